package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

// TestImportedCorpus: each case of the conformance corpus, written as
// perf_analyzer would have, gives the times of the case when it is imported.
func TestImportedCorpus(t *testing.T) {
	type message struct {
		At    int64  `json:"recv_ns"`
		Data  string `json:"data"`
		Event string `json:"event"`
	}
	type answer struct {
		Response string `json:"response"`
	}
	type request struct {
		At      int64             `json:"timestamp"`
		Inputs  map[string]string `json:"request_inputs"`
		Times   []int64           `json:"response_timestamps"`
		Outputs []answer          `json:"response_outputs"`
	}
	files, err := filepath.Glob("../../report/testdata/conformance/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	done := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Name      string
			GenAIPerf string `json:"genai_perf"`
			Endpoint  string
			Streaming bool
			Records   []struct {
				Start     int64 `json:"request_start_ns"`
				Phase     string
				Responses []message
			}
			Expect map[string]struct{ P50, Avg *float64 }
		}
		_ = json.Unmarshal(text, &c) // null sections and "inf" are of no interest here
		if c.GenAIPerf == "not_applicable" || c.Name == "warmup_excluded" || c.Name == "malformed_and_unknown_messages" {
			continue
		}
		var requests []request
		for _, r := range c.Records {
			q := request{At: r.Start, Inputs: map[string]string{"payload": `{"model":"m"}`}}
			for _, m := range r.Responses {
				data := m.Data
				if c.Streaming {
					if data = "data: " + data + "\n\n"; m.Event != "" {
						data = "event: " + m.Event + "\n" + data
					}
				}
				if n := len(q.Times); n > 0 && q.Times[n-1] == m.At { // one read
					q.Outputs[n-1].Response += data
					continue
				}
				q.Times, q.Outputs = append(q.Times, m.At), append(q.Outputs, answer{data})
			}
			requests = append(requests, q)
		}
		raw, err := json.Marshal(map[string]any{
			"experiments":  []any{map[string]any{"experiment": map[string]any{"mode": "concurrency", "value": 1}, "requests": requests}},
			"service_kind": "openai", "endpoint": "v1/" + strings.Replace(c.Endpoint, "chat", "chat/completions", 1),
		})
		if err != nil {
			t.Fatal(err)
		}
		work := t.TempDir()
		path, dir := filepath.Join(work, "profile_export.json"), filepath.Join(work, "run")
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		code, _, errs := program("", "import", path, "--artifact-dir", dir)
		s, err := report.Load(record.Dir(dir), report.Options{})
		if err != nil {
			t.Errorf("%s: %d: %s %v", c.Name, code, errs, err)
			continue
		}
		for _, tag := range []string{"time_to_first_token", "time_to_second_token", "request_latency", "inter_chunk_latency", "request_count", "benchmark_duration"} {
			want := c.Expect[tag]
			if want.Avg == nil || tag == "request_count" && *want.Avg == 0 {
				continue
			}
			r, ok := s.Metric(tag)
			got := r.Value
			if r.Statistic != nil {
				got = r.Statistic.Avg
			}
			if done++; !ok || math.Abs(got-*want.Avg) > 1e-9*math.Abs(*want.Avg) {
				t.Errorf("%s: %s = %v, %v; want %v", c.Name, tag, got, ok, *want.Avg)
			}
		}
	}
	if done < 100 {
		t.Errorf("%d figures were compared, want over 100", done)
	}
}

// TestImportIsRecorded: the manifest says what was imported and what it lacks, and
// the directory is whole.
func TestImportIsRecorded(t *testing.T) {
	work := t.TempDir()
	path, dir := filepath.Join(work, "x.jsonl"), record.Dir(filepath.Join(work, "run"))
	if err := os.WriteFile(path, []byte(`{"start_ns":0,"token_times_ns":[5,9],"output_tokens":2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := program("", "import", path, "--artifact-dir", string(dir)); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	m, err := dir.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	if m.Imported == nil || m.Imported.File != "x.jsonl" || m.Imported.Format != "offline" || m.ID != "run" ||
		!strings.HasPrefix(m.Command, "tokmark import ") || !slices.Contains(m.Imported.Missing, "the wall time of the run") {
		t.Errorf("manifest = %+v, imported %+v", m, m.Imported)
	}
	for _, name := range []string{record.SummaryJSONFile, record.SummaryCSVFile, record.HDRLogFile} {
		if _, err := os.Stat(dir.Path(name)); err != nil {
			t.Error(err)
		}
	}
}
