package text

import (
	"bytes"
	"flag"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	pretty "github.com/jedib0t/go-pretty/v6/text"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
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

func render(t testing.TB, m *record.Manifest, recs []*record.Record, samples ...record.Sample) string {
	t.Helper()
	s, err := report.Summarize(m, sequence(recs), samples, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	if err := Write(&a, s); err != nil {
		t.Fatal(err)
	}
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Error("the same summary gave different bytes")
	}
	return a.String()
}

func manifest() *record.Manifest {
	return &record.Manifest{
		Schema: 1, ID: "20260301-120000-demo", Outcome: record.RunCompleted,
		Target:       record.Target{URL: "http://localhost:8000/v1/chat/completions", Model: "demo-8b", EndpointType: "chat", Streaming: true},
		Load:         record.Load{Concurrency: 4, Requests: 200, Warmup: 4},
		Workload:     "synthetic: 512 input tokens, 32 output tokens",
		Origin:       time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		MeasureStart: 0, MeasureEnd: 20_000 * msec, MaxInFlight: 4,
	}
}

func stream(id int64, start, ttft, gap record.Time, tokens int) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Outcome, r.Status = record.OK, 200
	r.Streaming, r.Streamed, r.Done = true, true, true
	r.Start, r.Due = start, start
	for i := range tokens {
		r.Chunks = append(r.Chunks, record.Chunk{At: start + ttft + record.Time(i)*gap, Tokens: 1, Kind: record.KindText})
	}
	r.End = r.Chunks[tokens-1].At + msec
	r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 512, Output: record.Count(tokens), Reasoning: record.Unknown, Cached: 0}
	r.Usage = record.Usage{Prompt: 512, Completion: record.Count(tokens), Total: record.Count(512 + tokens), Reasoning: record.Unknown, Cached: 0}
	r.Written, r.FirstByte, r.FirstEvent = start+msec/10, start+ttft-msec/10, start+ttft-msec/50
	r.Conn = record.Conn{Reused: id >= 4, Wait: 20 * time.Microsecond}
	if id < 4 {
		r.Conn.Wait, r.Conn.Connect = 300*time.Microsecond, 250*time.Microsecond
	}
	return r
}

func failure(id int64, o record.Outcome, status int, message string) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Streaming, r.Start, r.End, r.Status = true, 10*msec, 20*msec, status
	r.Fail(o, record.Failure{Message: message})
	return r
}

func many(n int) []*record.Record {
	var recs []*record.Record
	for i := range n {
		jitter := record.Time(i*7919%1000) * 10_000
		recs = append(recs, stream(int64(i), record.Time(i)*100*msec, 40*msec+jitter, 7*msec+jitter/100, 32))
	}
	return recs
}

// conversations are turns of two classes and models, at a rate that a busy
// client did not quite hold: everything that a report can speak of.
func conversations() []*record.Record {
	var recs []*record.Record
	for i := range 240 {
		jitter := record.Time(i*7919%1000) * 20_000
		start := record.Time(i) * 50 * msec
		gap := 7*msec + jitter/100
		if i < 40 { // a slow start
			gap *= 3
		}
		r := stream(int64(i), start, 40*msec+jitter, gap, 32)
		r.Due = start - record.Time(i%7)*msec
		r.Session, r.Turn = strconv.Itoa(i/4), i%4
		r.Class, r.Model = "chat", "demo-8b"
		r.Tokens.Input += record.Count(i % 5 * 128)
		r.Written, r.FirstByte, r.FirstEvent = start+msec, start+30*msec, start+31*msec
		if i%3 == 0 {
			r.Class, r.Model = "a class with a rather long name, of summaries", "demo-70b"
		}
		r.AskedInput, r.OwnInput, r.AskedOutput = 480, 484, 32
		r.Tokens.Cached = record.Count(128 * (i % 4))
		if r.Turn == 0 {
			r.ExpectedCached, r.Tokens.Cached = 96, 112
		}
		for k := range r.Chunks {
			r.Chunks[k].Lag = uint32(30_000 + k*1000)
			if k%8 == 7 {
				r.Chunks[k].Kind |= record.SameRead
			}
			if i%5 == 0 && k%4 == 3 {
				r.Chunks[k].Lag = 12_000_000
				r.Chunks[k].Kind |= record.SameRead
			}
		}
		recs = append(recs, r)
	}
	return recs
}

// speaking gives the run a server that tells much of itself.
func speaking(m *record.Manifest) {
	times := func(ms, n float64) record.ServerTimes { return record.ServerTimes{Seconds: ms * n / 1e3, Count: &n} }
	m.Dialect, m.DialectBy = "vllm", `GET /v1/models: data[0].owned_by is "vllm"`
	m.Conditions = []record.Condition{
		{Name: "model", Value: "demo-8b", Source: "probed", From: "GET /v1/models"},
		{Name: "model_root", Value: "demo-8b", Source: "probed"},
		{Name: "engine", Value: "vllm", Source: "probed"},
		{Name: "engine_version", Value: "0.32.1", Source: "probed"},
		{Name: "precision", Value: "fp8", Source: "declared"},
	}
	for _, name := range []string{"model_revision", "tokenizer", "chat_template", "tensor_parallel", "pipeline_parallel", "data_parallel", "gpu", "gpu_count", "driver"} {
		m.Conditions = append(m.Conditions, record.Condition{Name: name, Source: "unknown"})
	}
	m.Changed = []string{"engine_version: 0.32.1 became 0.32.2"}
	m.RoundTrip = &record.RoundTrip{Median: 180 * time.Microsecond, Connects: 10}
	m.Server = &record.ServerWindow{
		To: 20_000 * msec,
		Counters: map[string]float64{
			"request_success": 260, "prompt_tokens": 133_120, "generation_tokens": 8320,
			"prefix_queries": 133_120, "prefix_hits": 33_280, "spec_drafts": 4000, "spec_drafted": 12_000, "spec_accepted": 4320,
		},
		Times: map[string]record.ServerTimes{
			"queue_time": times(3, 260), "prefill_time": times(15, 260), "ttft": times(19, 260), "itl": times(8.2, 8060), "e2e": times(300, 260),
		},
		Warnings: []string{"kv_usage: two families have the name"},
	}
}

func clientSamples() []record.Sample {
	var samples []record.Sample
	for i := range 50 {
		samples = append(samples, record.Sample{At: record.Time(i+1) * 250 * msec, From: record.FromClient, Values: map[string]float64{
			record.ClientCPU: 1.9, record.ClientMachineCPU: 0.97, record.ClientSchedP99: 0.0007, record.ClientSchedMax: 0.0131,
			record.ClientGCPauseMax: 0.00021, record.ClientGoroutines: 20, record.ClientWaiting: 9000, record.ClientWaitingRoom: 16384,
			record.ClientOpenFiles: 960,
		}})
	}
	return samples
}

func TestGolden(t *testing.T) {
	tests := []struct {
		name    string
		m       func(*record.Manifest)
		recs    []*record.Record
		samples []record.Sample
	}{
		{"closed", func(m *record.Manifest) {}, many(200), nil},
		{"open", func(m *record.Manifest) {
			m.Load = record.Load{Rate: 10, Concurrency: 4, Arrival: "poisson", Duration: 20 * time.Second, Grace: 5 * time.Second}
			m.Goodput = map[string]float64{"time_to_first_token": 45, "inter_token_latency": 10}
			m.Target.Simulated = true
		}, append(many(150), failure(200, record.RateLimited, 429, "slow down"), failure(201, record.ServerError, 503, "CUDA out of memory")), nil},
		{"one", func(m *record.Manifest) {}, many(1), nil},
		{"failed", func(m *record.Manifest) {}, []*record.Record{
			failure(0, record.ServerError, 500, "CUDA out of memory"), failure(1, record.ServerError, 500, "CUDA out of memory"),
		}, nil},
		{"empty", func(m *record.Manifest) { m.Outcome = record.RunRunning }, nil, nil},
		{"hostile", func(m *record.Manifest) {
			m.ID = "x\x1b[31m"
			m.Target.Model = "acme/\"fast, cheap\"\nv2;<script>\x1b]0;owned\x07/../=1+1 " + strings.Repeat("very-long-name-", 20) + "终"
			m.Dropped = []record.DroppedField{{Field: "stream_options", Reason: strings.Repeat("语言模型", 60)}}
		}, append(many(3), failure(9, record.ClientError, 400, "=HYPERLINK(\"http://x.invalid\")\r\nline two \u202egnp.exe \x1b[2J"+strings.Repeat("w", 500))), nil},
		{"full", func(m *record.Manifest) {
			m.Load = record.Load{Rate: 20, Arrival: "constant", Requests: 240}
			m.Stamps, m.Tokenizer = record.StampsKernel, "demo"
			m.Host = record.Host{Procs: 2, NoFile: 1024}
			m.Cache = record.Cache{Mode: record.CacheHitRate, HitRate: 0.2, Block: 16}
			m.Calibration = &record.Calibration{TokensPerWord: 1.3, Template: 20}
			m.Goodput = map[string]float64{"inter_token_latency": 10}
			m.Classes = []record.Class{{Name: "chat", Goodput: map[string]float64{"inter_token_latency": 5}}}
			m.ClockSteps = 1
			speaking(m)
		}, conversations(), clientSamples()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest()
			tt.m(m)
			got := render(t, m, tt.recs, tt.samples...)
			checkFit(t, got)
			file := filepath.Join("testdata", tt.name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("run with -update if this is meant: -want +got\n%s", diff)
			}
		})
	}
}

func checkFit(t testing.TB, s string) {
	t.Helper()
	for line := range strings.Lines(s) {
		line = strings.TrimSuffix(line, "\n")
		if w := pretty.StringWidth(line); w > Width {
			t.Errorf("%d columns: %s", w, line)
		}
		for _, r := range line {
			if !unicode.IsPrint(r) {
				t.Errorf("control character %U in %q", r, line)
			}
		}
	}
}

// Whatever the figures are, the table stays within the width.
func TestAnyFigureFits(t *testing.T) {
	for _, gap := range []record.Time{1, 700, 1e6, 123_456_789, 99_999_000_000, 3_000_000_000_000} {
		var recs []*record.Record
		for i := range 130 {
			r := stream(int64(i), record.Time(i)*13_577, gap*12345, gap+record.Time(i), 9)
			r.Tokens.Input = 1_234_567
			r.Tokens.Cached = record.Count(9 * i)
			r.AskedInput, r.OwnInput, r.AskedOutput = 1, 3, 123_456_789
			r.Turn, r.Class = i%2, strings.Repeat("wide终", 1+i%40)
			r.Chunks[3].Lag = uint32(i) * 30_000_000
			r.Due = 0
			recs = append(recs, r)
		}
		m := manifest()
		m.Load = record.Load{Rate: 0.001}
		m.Stamps = record.StampsKernel
		m.Cache = record.Cache{Mode: strings.Repeat("cold", 30)}
		speaking(m)
		n := 1e-9
		m.Server.Times["queue_time"] = record.ServerTimes{Seconds: 1e300, Count: &n}
		m.Server.Counters["prompt_tokens"], m.Server.Counters["generation_tokens"] = 1e300, 123_456_789_012
		m.DialectBy, m.Conditions[3].Value = strings.Repeat("wide终", 90), strings.Repeat("\x1b[31m", 90)
		m.Changed = []string{strings.Repeat("语言模型", 90)}
		checkFit(t, render(t, m, recs))
		m.Load = record.Load{Concurrency: 3}
		checkFit(t, render(t, m, recs, clientSamples()...))
	}
}

func TestFigure(t *testing.T) {
	tests := []struct {
		v    float64
		want string
	}{
		{0, "0"}, {1, "1"}, {12345, "12345"}, {0.1234, "0.123"}, {0.0005, "0.001"}, {0.0003, "3e-4"},
		{9.99949, "9.999"}, {9.9996, "10.00"}, {12.345, "12.35"}, {99.996, "100.0"}, {123.45, "123.5"}, {999.96, "1000"},
		{1234.5, "1234"}, {99999.4, "99999"}, {100000, "100k"}, {123456, "123k"}, {9_994_000, "9.99M"}, {12_345_678, "12.3M"},
		{25.6e9, "25.6G"}, {math.Inf(1), "-"},
	}
	for _, tt := range tests {
		if got := figure(tt.v); got != tt.want {
			t.Errorf("figure(%v) = %s, want %s", tt.v, got, tt.want)
		}
	}
}

func TestFigureHasFiveColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(1e-9, 1e12).Draw(t, "v")
		if got := figure(v); len(got) > 5 {
			t.Fatalf("figure(%v) = %s", v, got)
		}
	})
}

func TestWrapAndClean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		width := rapid.IntRange(2, 40).Draw(t, "width")
		for _, line := range wrap(clean(s, 200), width) {
			if pretty.StringWidth(line) > width {
				t.Fatalf("%q is wider than %d", line, width)
			}
		}
	})
}

func TestHeadroomStandsInTheVerdict(t *testing.T) {
	m := manifest()
	m.SelfTest = &record.SelfTest{
		After:    &record.ClientTry{Streams: 10, Events: 500, EventsReached: 499, ErrorP50: 3000, ErrorP99: 25_000, Requests: 30, LateP99: 250_000, Well: true},
		Headroom: 4,
	}
	out := strings.Join(strings.Fields(render(t, m, nil)), " ")
	for _, want := range []string{
		"SELF-TEST: against the simulator at this load (10 streams, 500 events/s), event times were off by 0.003 ms (p50), 0.025 ms (p99); 30 requests/s were sent late by 0.250 ms (p99); client headroom at least × 4",
		"- client headroom at least × 4",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q:\n%s", want, out)
		}
	}
}
