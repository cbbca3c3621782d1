package html

import (
	"iter"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

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

func manifest(concurrency int) *record.Manifest {
	return &record.Manifest{
		Schema: 1, ID: "20260301-120000-demo", Outcome: record.RunCompleted,
		Tool:    record.Build{Version: "v0.3.0", Commit: "0123456789abcdef", Go: "go1.26"},
		Command: "tokmark run --url http://localhost:8000 --model demo-8b --concurrency " + strconv.Itoa(concurrency) + " --request-count 400",
		Target:  record.Target{URL: "http://localhost:8000/v1/chat/completions", Model: "demo-8b", EndpointType: "chat", Streaming: true},
		Load:    record.Load{Concurrency: concurrency, Requests: 400, Warmup: 4},
		Conditions: []record.Condition{
			{Name: "server version", Value: "vllm 0.11.0", Source: "probed"}, {Name: "gpu", Value: "1 × H100", Source: "declared"},
			{Name: "quantization", Source: "unknown"}, {Name: "tensor parallel size", Source: "unknown"},
		},
		Workload: "synthetic: 512 ± 200 input tokens, 48 output tokens", WorkloadHash: "sha256:5f2c01", Cache: record.Cache{Mode: record.CacheHitRate, HitRate: 0.25},
		Goodput:   map[string]float64{"time_to_first_token": 120, "inter_token_latency": 12},
		Host:      record.Host{OS: "linux", Arch: "amd64", Cores: 16, Procs: 16, NoFile: 1 << 20, CPU: "Some CPU"},
		RoundTrip: &record.RoundTrip{Median: 180 * time.Microsecond, Connects: 10},
		Dialect:   "vllm", Server: &record.ServerWindow{
			From: 500 * msec, To: 9000 * msec, Counters: map[string]float64{"request_success": 396, "generation_tokens": 19008},
			Times: map[string]record.ServerTimes{"queue_time": {Seconds: 4, Count: ptr(396)}, "prefill_time": {Seconds: 20, Count: ptr(396)}, "ttft": {Seconds: 25, Count: ptr(396)}},
		},
		Stamps: record.StampsKernel, Origin: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		MeasureStart: 500 * msec, MeasureEnd: 20_000 * msec, MaxInFlight: int64(concurrency),
	}
}

func ptr(v float64) *float64 { return &v }

// closedLoop simulates a server under a closed loop: TTFT grows with the
// uncached input, gaps with the load, and at 60 % of the run all streams stand
// still for a while.
func closedLoop(n, concurrency, tokens int, seed uint64) []*record.Record {
	rnd := rand.New(rand.NewPCG(seed, 1))
	free := make([]record.Time, concurrency)
	for i := range free {
		free[i] = 500*msec + record.Time(i)*3*msec
	}
	gap := 5e6 * (1 + float64(concurrency)/32)
	whole := float64(n) / float64(concurrency) * (60e6 + float64(tokens)*gap)
	stop := 500*msec + record.Time(0.6*whole)
	recs := make([]*record.Record, 0, n)
	for i := range n {
		slot := 0
		for k := range free {
			if free[k] < free[slot] {
				slot = k
			}
		}
		r := record.New(record.PhaseMeasure, int64(i))
		input := max(16, int(512+200*rnd.NormFloat64()))
		cached := input / 4 / 16 * 16
		r.Outcome, r.Status, r.Streaming, r.Streamed, r.Done = record.OK, 200, true, true, true
		r.Due, r.Start = free[slot], free[slot]+record.Time(rnd.IntN(40_000))
		r.Conn = record.Conn{Reused: i >= concurrency, Wait: 20 * time.Microsecond}
		if i < concurrency {
			r.Conn = record.Conn{Wait: 900 * time.Microsecond, DNS: 200 * time.Microsecond, Connect: 300 * time.Microsecond}
		}
		r.Written = r.Start + record.Time(r.Conn.Wait) + 60_000
		at := r.Start + record.Time(20e6+float64(input-cached)*0.09e6+rnd.ExpFloat64()*float64(concurrency)*0.8e6)
		r.FirstByte, r.FirstEvent = at-2*msec, at-1*msec
		r.AskedInput, r.AskedOutput, r.ExpectedCached = record.Count(input), record.Count(tokens), record.Count(cached)
		left := tokens
		for left > 0 {
			k := 1
			if rnd.IntN(5) == 0 {
				k = min(left, 2+rnd.IntN(2))
			}
			left -= k
			r.Chunks = append(r.Chunks, record.Chunk{At: at, Tokens: uint16(k), Kind: record.KindText, Lag: uint32(20_000 + rnd.IntN(40_000))})
			next := at + record.Time(gap*math.Exp(0.18*rnd.NormFloat64()))
			if at < stop && next >= stop {
				next += 180*msec + record.Time(rnd.IntN(int(20*msec)))
			}
			if rnd.IntN(4000) == 0 {
				next += 90 * msec
			}
			at = next
		}
		r.End = r.Chunks[len(r.Chunks)-1].At + 50_000
		r.Tokens = record.Tokens{Source: record.SourceUsage, Input: record.Count(input), Output: record.Count(tokens), Reasoning: record.Unknown, Cached: record.Count(cached)}
		r.Usage = record.Usage{Prompt: record.Count(input), Completion: record.Count(tokens), Total: record.Count(input + tokens), Reasoning: record.Unknown, Cached: record.Count(cached)}
		if i%97 == 50 {
			r.Outcome, r.Status, r.Chunks, r.Tokens, r.Usage = "", 503, nil, record.New("", 0).Tokens, record.NoUsage
			r.End = r.Start + 30*msec
			r.Fail(record.ServerError, record.Failure{Message: "CUDA out of memory"})
		}
		free[slot] = r.End
		recs = append(recs, r)
	}
	return recs
}

func samplesFor(recs []*record.Record) []record.Sample {
	var last record.Time
	for _, r := range recs {
		last = max(last, r.End)
	}
	var out []record.Sample
	rnd := rand.New(rand.NewPCG(7, 7))
	const every = 250 * msec
	for at := record.Time(0); at < last; at += every {
		x := float64(at) / float64(last)
		busy := 0.0
		if x > 0.58 && x < 0.66 {
			busy = 1
		}
		out = append(out,
			record.Sample{At: at, From: record.FromClient, Values: map[string]float64{
				record.ClientCPU: 1.2 + 0.3*rnd.Float64(), record.ClientMachineCPU: 0.18 + 0.05*rnd.Float64(), record.ClientGoroutines: 90,
				record.ClientSchedP99: 20e-6 + 30e-6*rnd.Float64(), record.ClientGCPauseMax: 60e-6 * rnd.Float64(), record.ClientOpenFiles: 40,
				record.ClientLateMax: 40e-6 + 1e-3*busy, record.ClientLagMax: 30e-6 + 2e-3*busy,
			}},
			record.Sample{At: at, From: record.FromServer, Values: map[string]float64{
				serverRunning: 14 + 2*rnd.Float64() - 8*busy, serverWaiting: 1 + 9*busy, serverKVUsage: min(0.98, 0.3+x), serverPrefixQueries: 1000 * x * 60, serverPrefixHits: 250 * x * 60,
				serverPreemptions: math.Floor(40 * max(0, min(x-0.58, 0.08))),
			}})
	}
	return out
}

func summarize(t testing.TB, m *record.Manifest, recs []*record.Record, samples []record.Sample) Run {
	t.Helper()
	s, err := report.Summarize(m, sequence(recs), samples, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewView(m, sequence(recs), samples)
	if err != nil {
		t.Fatal(err)
	}
	return Run{Summary: s, View: v}
}

func demo(t testing.TB, n, concurrency int) Run {
	m := manifest(concurrency)
	recs := closedLoop(n, concurrency, 48, uint64(concurrency))
	return summarize(t, m, recs, samplesFor(recs))
}
