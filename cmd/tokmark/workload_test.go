package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
)

// measured runs the program against the simulator and returns its measured
// records, in order.
func measured(t *testing.T, args ...string) []*record.Record {
	t.Helper()
	dir := record.Dir(filepath.Join(t.TempDir(), "run"))
	args = append([]string{"run", "--ui", "none", "--artifact-dir", string(dir)}, args...)
	var stdout, stderr bytes.Buffer
	if code := Main(world{Args: args, Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }}); code != exitOK && code != exitInvalid {
		t.Fatalf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
	}
	m, err := dir.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	recs := make([]*record.Record, m.Sent)
	for r, err := range dir.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if r.Phase == record.PhaseMeasure {
			if r.Outcome != record.OK {
				t.Fatalf("%+v %+v", r, r.Failure)
			}
			recs[r.ID] = r
		}
	}
	return recs
}

// TestPrefixCacheControl: what the options say of a prefix cache is what the
// simulator's cache does.
func TestPrefixCacheControl(t *testing.T) {
	const block = 16
	address := simulate(t)
	hits := func(recs []*record.Record) (rate, ofFullBlocks float64) {
		var cached, input, full record.Count
		for _, r := range recs {
			cached += r.Tokens.Cached
			input += r.Tokens.Input
			full += (r.Tokens.Input - 1) / block * block // the last token is always computed
		}
		return float64(cached) / float64(input), float64(cached) / float64(full)
	}
	base := []string{"--url", address, "--osl", "2", "--concurrency", "8", "--request-count", "200"}
	with := func(more ...string) []*record.Record { return measured(t, append(more, base...)...) }

	if rate, _ := hits(with("--isl", "300")); rate != 0 {
		t.Errorf("cold: %v of the input tokens were cached, want none", rate)
	}
	if rate, _ := hits(with("--isl", "300", "--salt", "again")); rate != 0 {
		t.Errorf("another salt: %v of the input tokens were cached", rate)
	}
	if _, rate := hits(with("--isl", "300", "--salt", "again")); rate < 0.99 {
		t.Errorf("the same salt again: %v of the full blocks were cached", rate)
	}
	if _, rate := hits(with("--isl", "300", "--cache", "warm")); rate < 0.99 {
		t.Errorf("warm: %v of the full blocks were cached, want 0.99 or more", rate)
	}
	for _, seed := range []string{"1", "2", "3"} {
		rate, _ := hits(with("--isl", "600", "--cache-hit-rate", "0.6", "--cache-block", "16", "--random-seed", seed))
		if math.Abs(rate-0.6) > 0.02 {
			t.Errorf("hit rate 0.6, seed %s: %.4f of the input tokens were cached, want 0.6 ± 0.02", seed, rate)
		}
	}
}

// TestPromptLengths: what is asked for is what the server counts, but for its
// chat template: exactly with a tokenizer, nearly by calibration.
func TestPromptLengths(t *testing.T) {
	const template = 7 // of the simulator
	address := simulate(t)
	base := []string{"--url", address, "--osl", "2", "--concurrency", "4", "--request-count", "30", "--isl", "400"}
	for _, r := range measured(t, append(base, "--tokenizer", "server")...) {
		if r.Tokens.Input != 400+template {
			t.Errorf("with the server's tokenizer: %d tokens", r.Tokens.Input)
		}
	}
	var sum record.Count
	recs := measured(t, base...)
	for _, r := range recs {
		sum += r.Tokens.Input
	}
	if mean := float64(sum) / float64(len(recs)); math.Abs(mean-template-400) > 0.03*400 {
		t.Errorf("calibrated: %.1f tokens on average, want 400 ± 3 %%", mean-template)
	}
	for _, r := range measured(t, append(base, "--endpoint-type", "completions", "--prompt-as", "token-ids")...) {
		if r.Tokens.Input != 400 {
			t.Errorf("token ids: %d tokens, want exactly 400", r.Tokens.Input)
		}
	}
}

// TestClassesWithArrivals: each class comes at its own times, with its own
// lengths, whichever prompts of it are taken.
func TestClassesWithArrivals(t *testing.T) {
	for _, more := range [][]string{nil, {"--num-dataset-entries", "3"}, {"--endpoint-type", "completions", "--prompt-as", "token-ids"}} {
		recs := measured(t, append(more, "--simulate", "--preflight=false", "--request-count", "9",
			"--class", `{"name": "chat", "isl": 20, "osl": 2, "request-rate": 40, "arrival-pattern": "constant"}`,
			"--class", `{"name": "document", "isl": 60, "osl": 3, "request-rate": 20, "arrival-pattern": "constant"}`)...)
		next := map[string]record.Time{}
		for i, r := range recs {
			due := r.Due - recs[0].Due
			gap := map[string]record.Time{"chat": 25e6, "document": 50e6}[r.Class]
			if due != next[r.Class] {
				t.Errorf("%v: request %d of class %s is due at %v, want %v", more, i, r.Class, due, next[r.Class])
			}
			next[r.Class] = due + gap
			if want := map[string]record.Count{"chat": 2, "document": 3}[r.Class]; r.AskedOutput != want {
				t.Errorf("%v: request %d of class %s asks for %d tokens", more, i, r.Class, r.AskedOutput)
			}
		}
		if len(next) != 2 {
			t.Errorf("%v: classes %v", more, next)
		}
	}
}

// TestOwnCount: what our tokenizer counts is told beside what was asked and
// what the server counts, and a server with another tokenizer is warned of.
func TestOwnCount(t *testing.T) {
	address := simulate(t)
	texts := filepath.Join(t.TempDir(), "texts.jsonl")
	if err := os.WriteFile(texts, []byte(`{"text":"Where do tides come from, and what do they do to a harbour?"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		args  []string
		asked record.Count
		own   record.Count
		off   bool
	}{
		{"synthetic", []string{"--isl", "200"}, 200, 200, true},
		{"file", []string{"--input-file", texts}, record.Unknown, 16, false}, // too short to tell
	} {
		dir := filepath.Join(t.TempDir(), "run")
		args := append([]string{"run", "--url", address, "--ui", "none", "--artifact-dir", dir, "--osl", "2", "--request-count", "4", "--salt", "a", "--tokenizer", "cl100k_base"}, tt.args...)
		code, stdout, stderr := program("", args...)
		if code != exitOK && code != exitInvalid {
			t.Fatalf("%s: exit code %d\n%s%s", tt.name, code, stdout, stderr)
		}
		for r, err := range record.Dir(dir).Records() {
			if err != nil {
				t.Fatal(err)
			}
			if r.AskedInput != tt.asked || r.OwnInput != tt.own {
				t.Errorf("%s: asked %d, own count %d; want %d, %d", tt.name, r.AskedInput, r.OwnInput, tt.asked, tt.own)
			}
		}
		if !strings.Contains(stdout, "our tokenizer "+strconv.Itoa(int(tt.own))) || strings.Contains(stdout, "input_length_off") != tt.off {
			t.Errorf("%s: the report lacks our count, or warns wrongly:\n%s", tt.name, stdout)
		}
	}
}

// TestWorkloadHash: the dataset command and every run of a workload tell the
// same hash, and a report names what repeats the prompts.
func TestWorkloadHash(t *testing.T) {
	address := simulate(t)
	prompts := []string{"--isl", "50", "--osl", "2", "--request-count", "4", "--salt", "abc"}
	_, shown, _ := program("", append([]string{"dataset"}, prompts...)...)
	for _, more := range [][]string{nil, {"--random-seed", "0"}, {"--tokenizer", "cl100k_base"}} {
		dir := filepath.Join(t.TempDir(), "run")
		args := append([]string{"run", "--url", address, "--ui", "none", "--artifact-dir", dir}, append(more, prompts...)...)
		_, stdout, stderr := program("", args...)
		m, err := record.Dir(dir).ReadManifest()
		if err != nil {
			t.Fatal(err, stdout, stderr)
		}
		if !strings.Contains(shown, "hash        "+m.WorkloadHash+"\n") {
			t.Errorf("run %q has the hash %s, dataset says\n%s", more, m.WorkloadHash, shown)
		}
		if want := "synthetic prompts, 50 input tokens; seed 0, salt abc\n"; !strings.Contains(stdout, want) {
			t.Errorf("the report lacks %q:\n%s", want, stdout)
		}
	}
}

func TestDatasetLeavesNoFileAfterAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	code, _, stderr := program("", "dataset", "--isl", "20", "--shared-system-prompt-length", "5", "--session-turns-mean", "2", "--request-count", "2", "--out", path)
	if code == exitOK {
		t.Fatal("system prompts in conversations are written")
	}
	if _, err := os.Stat(path); err == nil {
		t.Errorf("a file is left after: %s", stderr)
	}
}
