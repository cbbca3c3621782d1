package markdown

import (
	"bytes"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/slo"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const msec = record.Time(time.Millisecond)

func sequence(recs []*record.Record) iter.Seq2[*record.Record, error] {
	return func(yield func(*record.Record, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func manifest() *record.Manifest {
	return &record.Manifest{
		Schema: 1, ID: "20260301-120000-demo", Outcome: record.RunCompleted,
		Tool:     record.Build{Version: "v0.3.0", Commit: "0123456789abcdef"},
		Command:  "tokmark run --url http://localhost:8000 --model demo_8b --concurrency 4",
		Target:   record.Target{URL: "http://localhost:8000/v1/chat/completions", Model: "demo_8b", EndpointType: "chat", Streaming: true},
		Load:     record.Load{Concurrency: 4, Requests: 200},
		Workload: "synthetic: 512 input tokens, 32 output tokens", WorkloadHash: "sha256:5f2c01",
		Conditions: []record.Condition{{Name: "gpu", Value: "1 × H100", Source: "declared"}, {Name: "quantization", Source: "unknown"}},
		Goodput:    map[string]float64{"time_to_first_token": 60},
		Stamps:     record.StampsKernel, MeasureStart: 0, MeasureEnd: 20_000 * msec, MaxInFlight: 4,
	}
}

func many(n int) []*record.Record {
	var recs []*record.Record
	for i := range n {
		r := record.New(record.PhaseMeasure, int64(i))
		jitter := record.Time(i*7919%1000) * 10_000
		r.Outcome, r.Status, r.Streaming, r.Streamed, r.Done = record.OK, 200, true, true, true
		r.Start = record.Time(i) * 100 * msec
		r.Due = r.Start
		for k := range 32 {
			r.Chunks = append(r.Chunks, record.Chunk{At: r.Start + 40*msec + jitter + record.Time(k)*(7*msec+jitter/100), Tokens: 1, Kind: record.KindText})
		}
		r.End = r.Chunks[31].At + msec
		r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 512, Output: 32, Reasoning: record.Unknown, Cached: 128}
		r.Usage = record.Usage{Prompt: 512, Completion: 32, Total: 544, Reasoning: record.Unknown, Cached: 128}
		recs = append(recs, r)
	}
	return recs
}

func failure(id int64, message string) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Streaming, r.Start, r.End, r.Status = true, 10*msec, 20*msec, 500
	r.Fail(record.ServerError, record.Failure{Message: message})
	return r
}

func render(t testing.TB, m *record.Manifest, recs []*record.Record, opt Options) string {
	t.Helper()
	s, err := report.Summarize(m, sequence(recs), nil, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	if err := Write(&a, s, opt); err != nil {
		t.Fatal(err)
	}
	if err := Write(&b, s, opt); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Error("the same summary gave different bytes")
	}
	return a.String()
}

const attack = "a|b `c` ``d`` **e** <img src=x onerror=alert(1)> [f](javascript:g) @team #12 \n\n# h\u202e\x00 https://evil.example"

func ptr(v float64) *float64 { return &v }

func hostile() *record.Manifest {
	m := manifest()
	m.ID, m.Command, m.Workload, m.WorkloadHash = attack, attack, attack, attack
	m.Target = record.Target{URL: attack, Model: attack, EndpointType: attack, Streaming: true}
	m.Load.Concurrency, m.Load.Rate, m.Load.Arrival = 4, 10, attack
	m.Tool = record.Build{Version: attack, Commit: attack}
	m.Conditions = []record.Condition{{Name: attack, Value: attack, Source: attack}, {Name: attack, Source: "unknown"}}
	m.Dropped = []record.DroppedField{{Field: attack, Reason: attack}}
	m.Cache.Mode = attack
	m.Outcome = record.RunOutcome(attack) // in a reason of the verdict
	return m
}

func TestBlock(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    *record.Manifest
		recs []*record.Record
		opt  Options
	}{
		{"closed", manifest(), many(200), Options{Capsule: "sha256:77aa"}},
		{"one", manifest(), many(1), Options{}},
		{"slo", manifest(), many(200), Options{Objectives: []slo.Result{
			{Objective: slo.Objective{Text: "ttft.p50<1s"}, Unit: "ms", State: slo.Pass, Value: ptr(45), Low: ptr(44), Bounded: true, Margin: ptr(0.955)},
			{Objective: slo.Objective{Text: attack}, Unit: "%", State: slo.Inconclusive, Reason: "the run has no such figure, " + attack},
		}}},
		{"empty", &record.Manifest{Schema: 1, Outcome: record.RunInterrupted, Load: record.Load{Concurrency: 1}}, nil, Options{}},
		{"failed", manifest(), []*record.Record{failure(0, "CUDA out of memory"), failure(1, "CUDA out of memory")}, Options{}},
		{"hostile", hostile(), append(many(50), failure(60, attack)), Options{Capsule: attack}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := render(t, tt.m, tt.recs, tt.opt)
			file := filepath.Join("testdata", tt.name+".md")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("the block differs from %s (-update rewrites it):\n%s", file, d)
			}
			for _, bad := range []string{"NaN", "Inf", "%!", "\u202e", "\x00"} {
				if strings.Contains(got, bad) {
					t.Errorf("%q is in the block", bad)
				}
			}
		})
	}
}

// TestTablesHaveTheirColumns: each row of a table has as many cells as its
// head, and nothing of a server's stands in one.
func TestTablesHaveTheirColumns(t *testing.T) {
	cells := 0
	for line := range strings.Lines(render(t, hostile(), many(50), Options{})) {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		n := strings.Count(line, "|")
		if cells > 0 && n != cells {
			t.Errorf("%d bars in %q, %d in the row above", n, line, cells)
		}
		cells = n
	}
}

// TestCodeHoldsAnything: a code span has one fence, longer than any run of
// backticks in it, and is one line.
func TestCodeHoldsAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.SampledFrom([]rune("a `|\n\\<@"))).Draw(t, "s")
		got := code(s, "none")
		if strings.TrimSpace(s) == "" {
			if got != "none" {
				t.Fatalf("nothing is %q", got)
			}
			return
		}
		fence := got[:len(got)-len(strings.TrimLeft(got, "`"))]
		inner, ok := strings.CutSuffix(strings.TrimPrefix(got, fence), fence)
		if !ok || fence == "" || longestRun(inner) >= len(fence) || strings.HasPrefix(inner, "`") || strings.HasSuffix(inner, "`") || strings.Contains(got, "\n") {
			t.Fatalf("%q becomes %q", s, got)
		}
		if want := strings.TrimSpace(strings.ReplaceAll(s, "\n", " ")); strings.TrimSpace(inner) != want {
			t.Fatalf("%q is shown as %q", s, inner)
		}
	})
}

func TestProse(t *testing.T) {
	for in, want := range map[string]string{
		"2 of 152 requests failed (1.32 %).": "2 of 152 requests failed (1.32 %).",
		"<b> & `x` [y](z) a_b *c* |":         "&lt;b&gt; &amp; \\`x\\` \\[y\\](z) a\\_b \\*c\\* \\|",
		"@team closes #12":                   "@\u2060team closes #\u206012",
		"see https://evil.example":           "see https:\u2060//evil.example",
		"two\nlines":                         "two lines",
	} {
		if got := prose(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
