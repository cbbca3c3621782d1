package main

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
)

// TestCapsuleRepeatsBodies: a run made again from its capsule sends the same
// bodies, byte for byte, to a server that counts otherwise.
func TestCapsuleRepeatsBodies(t *testing.T) {
	server := func() *replay {
		return newReplay(t, "testdata/cases/031-report-awkward-names", "/v1/chat/completions", &script{Responses: []response{{
			Status: 200, Headers: map[string]string{"Content-Type": "text/event-stream"}, Body: "ok.sse",
		}}})
	}
	bodies := func(r *replay) []string {
		posts, _ := r.taken()
		var out []string
		for _, p := range posts {
			out = append(out, string(p.body))
		}
		slices.Sort(out)
		return out
	}
	for name, options := range map[string][]string{
		"synthetic": {"--isl", "24", "--isl-stddev", "4", "--osl", "8", "--extra-inputs", "top_k:3", "--extra-inputs", `{"stop":["a,b"]}`},
		"turns":     {"--session-turns-mean", "2", "--isl", "12", "--num-prefix-prompts", "2", "--prefix-prompt-length", "20", "--random-seed", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir) // where capsules are unpacked
			first, second := server(), server()
			common := append([]string{"--ui", "none", "--preflight=false", "--request-count", "5", "--model", "a model"}, options...)
			run := filepath.Join(dir, "run")
			if code, _, errs := program("", append([]string{"run", "--url", first.URL, "--artifact-dir", run}, common...)...); code != exitOK {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			file := filepath.Join(dir, "c.zip")
			if code, _, errs := program("", "report", run, "--capsule", file); code != exitOK {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			if code, _, errs := program("", "run", "--from", file, "--url", second.URL, "--artifact-dir", filepath.Join(dir, "again")); code != exitOK {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			want := bodies(first)
			if d := cmp.Diff(want, bodies(second)); d != "" || len(want) != 5 {
				t.Errorf("%d bodies:\n%s", len(want), d)
			}
			left, err := filepath.Glob(filepath.Join(os.TempDir(), "tokmark-capsule-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestCapsuleIsNotTrusted: names in a capsule lead nowhere else, and what is
// missing or newer is told.
func TestCapsuleIsNotTrusted(t *testing.T) {
	pack := func(files map[string]string) string {
		path := filepath.Join(t.TempDir(), "c.zip")
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, text := range files {
			w, err := z.Create(name)
			if err == nil {
				_, err = w.Write([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	manifest := `{"schema":1,"config":{}}`
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{map[string]string{"x": ""}, "no capsule of tokmark"},
		{map[string]string{capsuleFile: `{"schema":9}`}, "use a newer tokmark"},
		{map[string]string{capsuleFile: `{"schema":1}`}, record.ManifestFile},
		{map[string]string{capsuleFile: `{"schema":1,"files":{"input-file":"../../x"}}`, record.ManifestFile: manifest, record.RecordsFile: ""}, "not allowed"},
		{map[string]string{capsuleFile: `{"schema":1,"files":{"../x":"y"}}`, record.ManifestFile: manifest, record.RecordsFile: ""}, "not allowed"},
		{map[string]string{capsuleFile: `{"schema":1,"files":{"tokenizer":""}}`, record.ManifestFile: manifest, record.RecordsFile: ""}, "not allowed"},
		{map[string]string{capsuleFile: `{`, record.ManifestFile: manifest}, capsuleFile},
	} {
		_, err := openCapsule(pack(c.files))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error = %v, want one with %q", c.files, err, c.want)
		}
	}
}

func TestNamedFile(t *testing.T) {
	folder := t.TempDir()
	inside := filepath.Join(folder, "tokenizer.json")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ option, value, before, path string }{
		{"input-file", "a.jsonl", "", "a.jsonl"}, {"input-file", "", "", ""},
		{"response-format", "s.json", "", "s.json"},
		{"isl-distribution", "normal", "", ""}, {"osl-distribution", "histogram:h.txt", "histogram:", "h.txt"},
		{"tokenizer", "none", "", ""}, {"tokenizer", "server", "", ""}, {"tokenizer", "cl100k_base", "", ""}, {"tokenizer", "tiktoken:o200k_base", "", ""},
		{"tokenizer", "t/tokenizer.json", "", "t/tokenizer.json"}, {"tokenizer", folder, "", inside},
	} {
		if before, path := namedFile(c.option, c.value); before != c.before || path != c.path {
			t.Errorf("--%s %s names %q after %q, want %q after %q", c.option, c.value, path, before, c.path, c.before)
		}
	}
}
