package like_test

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/like"
)

var update = flag.Bool("update", false, "write the golden files anew")

// stream is a request of five tokens in four events at 100, 110, 120 and 150
// ms after its start; the role event came at 40 ms, the finish event and the
// end at 152 ms.
func stream(id int64, start record.Time) *record.Record {
	const ms = 1_000_000
	r := record.New(record.PhaseMeasure, id)
	r.Outcome, r.Streaming, r.Streamed, r.Done = record.OK, true, true, true
	r.Start, r.FirstEvent, r.End = start, start+40*ms, start+152*ms
	for _, at := range []record.Time{100, 110, 120, 150} {
		r.Chunks = append(r.Chunks, record.Chunk{At: start + at*ms, Tokens: record.UnknownTokens, Kind: record.KindText})
	}
	r.Events, r.FirstTokenEvent, r.FirstAnswerEvent, r.LastTokenEvent = 7, 1, 1, 4
	r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 8, Output: 5, Reasoning: record.Unknown, Cached: record.Unknown}
	r.Usage = record.Usage{Prompt: 8, Completion: 5, Total: 13, Reasoning: record.Unknown, Cached: record.Unknown}
	return r
}

func manifest() *record.Manifest {
	return &record.Manifest{ID: "run", Target: record.Target{Streaming: true}, MeasureStart: record.Unset, MeasureEnd: record.Unset}
}

// TestToolFigures: figures of each tool, worked out by hand from its formulas.
func TestToolFigures(t *testing.T) {
	long := stream(1, 0)
	short := stream(2, 50_000_000)
	short.Chunks = short.Chunks[:1] // one token at 100 ms
	short.Tokens.Output, short.Usage.Completion, short.Events, short.LastTokenEvent = 1, 1, 4, 1
	short.End = short.Start + 102_000_000
	run, err := like.New(manifest(), sequence([]*record.Record{long, short}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tool like.Tool
		name string
		avg  float64
	}{
		{like.AIPerf, "time_to_first_token", 100},
		{like.AIPerf, "inter_token_latency", 12.5}, // 50 ms / 4
		{like.VLLM, "ttft", 40},                    // the role event
		{like.VLLM, "tpot", 28},                    // (152 - 40) / 4
		{like.VLLM, "itl", (60 + 10 + 10 + 30 + 2 + 60 + 2) / 7.0},
		{like.VLLM, "e2el", (152 + 102) / 2.0},
		{like.VLLM, "output_throughput", 6 / 0.152}, // both end at 152 ms
		{like.SGLang, "ttft", 100},
		{like.SGLang, "itl", 50 / 3.0},
		{like.SGLang, "tpot", 13}, // (152 - 100) / 4
		{like.SGLang, "concurrency", (0.152 + 0.102) / 0.152},
		{like.GenAIPerf, "inter_token_latency", 12.5},
		{like.GuideLLM, "inter_token_latency", 12.5},
		{like.GuideLLM, "time_per_output_token", (150.0/5*5 + 100.0*1) / 6},
		{like.GuideLLM, "request_latency", 127},
	} {
		f, ok := run.As(c.tool).Figure(c.name)
		if !ok || math.Abs(f.Avg()-c.avg) > 1e-9*c.avg {
			t.Errorf("%s %s = %v, %v; want %v", c.tool, c.name, f.Avg(), ok, c.avg)
		}
	}
}

// TestFailuresAreNoAnswers: a failed request is in no latency of any tool, and
// a run without any answer has no latencies at all.
func TestFailuresAreNoAnswers(t *testing.T) {
	failed := record.New(record.PhaseMeasure, 1)
	failed.Start, failed.End = 0, 5
	failed.Fail(record.ServerError, record.Failure{})
	run, err := like.New(manifest(), sequence([]*record.Record{failed}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range like.Others {
		for _, f := range run.As(tool).Figures {
			if f.Statistic != nil || f.Value != 0 {
				t.Errorf("%s: %s = %v from a failed request", tool, f.Name, f.Avg())
			}
		}
	}
}

// TestGuideLLMPercentiles: no interpolation, and weights.
func TestGuideLLMPercentiles(t *testing.T) {
	slow := stream(2, 0)
	for i := range slow.Chunks { // ITL 25 ms over 10 tokens: weight 9 against 4
		slow.Chunks[i].At += record.Time(i) * (225 - 50) * 1_000_000 / 3
	}
	slow.Tokens.Output = 10
	run, err := like.New(manifest(), sequence([]*record.Record{stream(1, 0), slow}))
	if err != nil {
		t.Fatal(err)
	}
	f, _ := run.As(like.GuideLLM).Figure("inter_token_latency")
	itl, _ := slow.ITL()
	itl /= 1e6
	if want := (12.5*4 + itl*9) / 13; math.Abs(f.Avg()-want) > 1e-9 {
		t.Errorf("avg = %v, want %v", f.Avg(), want)
	}
	if p25, _ := f.Statistic.Percentile(25); p25 != 12.5 { // 4 of 13 is 30.8 %
		t.Errorf("p25 = %v, want 12.5", p25)
	}
	if p50, _ := f.Statistic.Percentile(50); p50 != itl {
		t.Errorf("p50 = %v, want %v: the values weigh differently", p50, itl)
	}
}

// TestWrite: one golden file a tool.
func TestWrite(t *testing.T) {
	tool := stream(3, 70_000_000)
	tool.Chunks[2].Kind = record.KindTool
	failed := record.New(record.PhaseMeasure, 4)
	failed.Start, failed.End, failed.Status = 80_000_000, 81_000_000, 503
	failed.Fail(record.ServerError, record.Failure{Message: "\x1b[31mbusy"})
	for name, recs := range map[string][]*record.Record{
		"mixed":  {stream(1, 0), stream(2, 50_000_000), tool, failed},
		"one":    {stream(1, 0)},
		"failed": {failed},
	} {
		for _, other := range like.Others {
			m := manifest()
			m.Goodput = map[string]float64{"time_to_first_token": 50}
			run, err := like.New(m, sequence(recs))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := like.Write(&out, run, run.As(other)); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"-"+string(other)+".txt", out.Bytes())
		}
	}
}

func TestExplain(t *testing.T) {
	run, err := like.New(manifest(), sequence([]*record.Record{stream(1, 0), stream(2, 50_000_000)}))
	if err != nil {
		t.Fatal(err)
	}
	read := func(name, text string) *like.Published {
		t.Helper()
		p, err := like.Read([]byte(text), name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	ours := read("summary.json", `{"schema":1,"run":{},"time_to_first_token":{"unit":"ms","avg":100,"p50":100},"inter_token_latency":{"unit":"ms","avg":12.5},"request_latency":{"unit":"ms","avg":150}}`)
	theirs := read("vllm.json", `{"mean_ttft_ms":41.5,"median_ttft_ms":41,"mean_itl_ms":22.4,"mean_tpot_ms":28,"mean_e2el_ms":152,"completed":2}`)
	if ours.Tool != like.Tokmark || theirs.Tool != like.VLLM {
		t.Fatalf("tools = %s, %s", ours.Tool, theirs.Tool)
	}
	a, b := like.Side{Name: "run\x1b[2J", Published: ours, Run: run}, like.Side{Name: "vllm.json", Published: theirs}
	lines, err := like.Explain(a, b)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := like.WriteExplanation(&out, a, b, lines); err != nil {
		t.Fatal(err)
	}
	golden(t, "explain-measured.txt", out.Bytes())
	a.Run = nil
	if lines, err = like.Explain(b, a); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := like.WriteExplanation(&out, b, a, lines); err != nil {
		t.Fatal(err)
	}
	golden(t, "explain-named.txt", out.Bytes())
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		file string
		tool like.Tool
		want string // of the error
	}{
		{`{"request_throughput":{"unit":"requests/sec","avg":1},"request_count":{"unit":"count","avg":1}}`, like.GenAIPerf, ""},
		{`{"request_throughput":{"unit":"requests/sec","avg":1},"request_count":{"unit":"requests","avg":1}}`, like.AIPerf, ""},
		{`{"mean_e2e_latency_ms":5,"mean_ttft_ms":1}`, like.SGLang, ""},
		{`{"benchmarks":[{"metrics":{"request_latency":{"successful":{"mean":2.5,"percentiles":{"p50":2}}}}}]}`, like.GuideLLM, ""},
		{`{"experiments":[]}`, "", "tokmark import"},
		{`{"a":1}`, "", "no tool that is known"},
		{`[]`, "", "no result file"},
		{"{\"mean_ttft_ms\":1}\n{\"mean_ttft_ms\":2}", "", "2 lines"},
		{`{"benchmarks":[{},{}]}`, "", "2 benchmarks"},
	} {
		p, err := like.Read([]byte(c.file), "f.json")
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "f.json") {
				t.Errorf("%s: error = %v, want one with %q", c.file, err, c.want)
			}
		case err != nil:
			t.Errorf("%s: %v", c.file, err)
		case p.Tool != c.tool:
			t.Errorf("%s: tool = %s, want %s", c.file, p.Tool, c.tool)
		case p.Tool == like.GuideLLM && p.Figures["request_latency"]["avg"] != 2500:
			t.Errorf("guidellm's seconds = %v ms", p.Figures["request_latency"])
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; look and then go test -update:\n%s", path, got)
	}
}
