package report_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

func counted(seconds, n float64) record.ServerTimes {
	return record.ServerTimes{Seconds: seconds, Count: &n}
}

// served is the manifest of a run whose server counted what many(n) sent.
func served(n float64) *record.Manifest {
	m := manifest()
	m.Dialect, m.DialectBy = "vllm", "owned_by"
	m.Server = &record.ServerWindow{From: 0, To: 10_000 * msec,
		Counters: map[string]float64{"request_success": n, "prompt_tokens": 10 * n, "generation_tokens": 8 * n},
		Times: map[string]record.ServerTimes{
			"queue_time": counted(0.005*n, n), "prefill_time": counted(0.012*n, n), "ttft": counted(0.018*n, n),
			"itl": counted(0.005*7*n, 7*n), "e2e": counted(0.054*n, n),
		},
	}
	return m
}

func alike(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func message(s *report.Summary, code string) string {
	for _, w := range s.Warnings {
		if w.Code == code {
			return w.Message
		}
	}
	return ""
}

func TestServerAgainstOurs(t *testing.T) {
	tests := []struct {
		name   string
		change func(*record.Manifest, []*record.Record) []*record.Record
		codes  []string
		level  report.Level
		says   string // in the first warning
	}{
		{name: "all agrees", level: report.Valid},
		{name: "one request of others is named", codes: []string{report.OtherTraffic}, level: report.Valid, says: "101 requests",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server.Counters["request_success"] = 101
				return rs
			}},
		{name: "much of others spoils it, and its means are not compared", codes: []string{report.OtherTraffic}, level: report.Suspect, says: "+6 %",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				for name := range m.Server.Counters {
					m.Server.Counters[name] *= 1.06
				}
				m.Server.Times["e2e"], m.Server.Times["ttft"] = counted(100, 100), counted(100, 100)
				return rs
			}},
		{name: "without a count of requests tokens tell", codes: []string{report.OtherTraffic}, level: report.Suspect, says: "output tokens",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				delete(m.Server.Counters, "request_success")
				m.Server.Counters["generation_tokens"] = 900
				return rs
			}},
		{name: "requests that failed or were cancelled may have been counted", level: report.Suspect, codes: []string{report.Errors},
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				return append(rs[:98], failed(98, 0, record.ServerError, "x"), failed(99, 0, record.StreamError, "y"))
			}},
		{name: "fewer are named", codes: []string{report.ServerCountsOff}, level: report.Valid, says: "50 requests where we count 100",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server.Counters["request_success"] = 50
				return rs
			}},
		{name: "the same requests with more tokens were counted otherwise", codes: []string{report.ServerCountsOff}, level: report.Suspect, says: "1000 output tokens where we count 800",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server.Counters["generation_tokens"] = 1000
				return rs
			}},
		{name: "answers without usage leave the tokens open", codes: []string{report.NoUsage}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0].Usage, rs[0].Tokens = record.NoUsage, record.New("", 0).Tokens
				return rs
			}},
		{name: "llama.cpp counts the prompt tokens that it computed", level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Dialect = "llamacpp"
				m.Server.Counters["prompt_tokens"] = 600
				for _, r := range rs {
					r.Usage.Cached, r.Tokens.Cached = 4, 4
				}
				return rs
			}},
		{name: "another model", codes: []string{report.ConditionsChanged}, level: report.Suspect, says: "model: a became b",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Changed = []string{"model: a became b"}
				return rs
			}},
		{name: "answers of another model", codes: []string{report.ConditionsChanged}, level: report.Suspect, says: "requests for demo-8b name demo-8b (60), other (40)",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				for i, r := range rs {
					r.ResponseModel = "demo-8b"
					if i >= 60 {
						r.ResponseModel = "other"
					}
				}
				return rs
			}},
		{name: "answers under one other name, or none", level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				for _, r := range rs[1:] {
					r.ResponseModel = "demo-8b-2026-01-01"
				}
				return rs
			}},
		{name: "several models that were asked for", level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				for i, r := range rs {
					r.Model = fmt.Sprint("m", i%2)
					r.ResponseModel = r.Model
				}
				return rs
			}},
		{name: "counters began anew", codes: []string{report.ConditionsChanged}, level: report.Suspect, says: "fell from 7 to 3",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server = &record.ServerWindow{Error: "compare samples: the server's counters were reset: request_success fell from 7 to 3"}
				return rs
			}},
		{name: "no metrics at the end", codes: []string{report.ServerMetrics}, level: report.Valid, says: "it answers 401",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server = &record.ServerWindow{Error: "GET http://x/metrics: it answers 401"}
				return rs
			}},
		{name: "no metrics from the start, and only that is said", level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server = &record.ServerWindow{Error: "GET http://x/metrics: status 404: no Prometheus metrics there", Absent: true}
				return rs
			}},
		{name: "readings that failed, and the last one too", codes: []string{report.ServerMetrics}, level: report.Valid, says: "left out: 3 of 9 readings failed: status 500",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server = &record.ServerWindow{Error: "status 500", Warnings: []string{"3 of 9 readings failed: status 500"}}
				return rs
			}},
		{name: "series that went", codes: []string{report.ServerMetrics}, level: report.Valid, says: "ttft: series are gone",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				delete(m.Server.Times, "ttft")
				m.Server.Warnings = []string{"ttft: series are gone in the later sample", "ttft: series are gone in the later sample"}
				return rs
			}},
		{name: "a latency that is not ours", codes: []string{report.ServerTimesApart}, level: report.Valid, says: "mean request latency 14 ms where we measured 55 ms",
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server.Times["e2e"] = counted(1.4, 100)
				return rs
			}},
		{name: "figures that are none are left out", level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Server.Counters["request_success"] = math.NaN()
				m.Server.Counters["prompt_tokens"] = -7
				m.Server.Times["ttft"] = counted(math.Inf(1), 100)
				m.Server.Times["e2e"] = counted(3, 0)
				return rs
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, recs := served(100), many(100)
			if tt.change != nil {
				recs = tt.change(m, recs)
			}
			s := summarize(t, m, recs...)
			if got := codes(s); fmt.Sprint(got) != fmt.Sprint(tt.codes) {
				t.Errorf("warnings = %v, want %v", got, tt.codes)
			}
			if s.Verdict.Level != tt.level {
				t.Errorf("verdict = %s, want %s (%v)", s.Verdict.Level, tt.level, s.Verdict.Reasons)
			}
			if tt.says != "" && !strings.Contains(message(s, tt.codes[0]), tt.says) {
				t.Errorf("%s says %q, want %q in it", tt.codes[0], message(s, tt.codes[0]), tt.says)
			}
			b, err := s.JSON()
			if err != nil || strings.Contains(string(b), "NaN") {
				t.Errorf("JSON: %v", err)
			}
		})
	}
}

// A server that restarts in mid-run and is used by others until its counters
// have passed their old values looks well by its two ends.
func TestCountersThatFellInMidRun(t *testing.T) {
	sample := func(at record.Time, requests float64) record.Sample {
		return record.Sample{At: at * msec, From: record.FromServer, Values: map[string]float64{"request_success": requests, "running": 10 - float64(at)/1000}}
	}
	tests := []struct {
		name    string
		samples []record.Sample
		reset   bool
	}{
		{"rising", []record.Sample{sample(1, 5), sample(2000, 5), sample(3000, 40)}, false},
		{"fell", []record.Sample{sample(1, 50), sample(3000, 60), sample(2000, 3)}, true},
		{"fell before the window", []record.Sample{sample(-5, 50), sample(2000, 3)}, false},
		{"of the GPU", []record.Sample{{At: 1, From: record.FromGPU, Values: map[string]float64{"request_success": 9}}, sample(2000, 3)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := summarizeAll(t, served(100), tt.samples, "", many(100))
			if got := s.Warned(report.ConditionsChanged); got != tt.reset {
				t.Errorf("noticed = %v, want %v", got, tt.reset)
			}
			if tt.reset != (len(s.Server.Counts)+len(s.Server.Means) == 0) {
				t.Errorf("server = %+v", s.Server)
			}
		})
	}
}

func TestWaterfall(t *testing.T) {
	m := served(100)
	recs := many(100)
	for _, r := range recs {
		r.Conn = record.Conn{Wait: 3 * time.Millisecond, DNS: time.Millisecond, Connect: time.Millisecond}
		r.Written, r.FirstByte, r.FirstEvent = r.Start+4*msec, r.Start+10*msec, r.Start+15*msec
		r.FirstComment = r.Start + 12*msec
	}
	s := summarize(t, m, recs...)
	want := []float64{1, 1, 0, 1, 1, 6, 2, 3, 5}
	for i, span := range s.Waterfall.Client {
		if !alike(span.Mean, want[i]) || !alike(span.Share, want[i]/20) {
			t.Errorf("client span %s = %v, want %v", span.Name, span, want[i])
		}
	}
	// 16 ms after writing; the server tells 5 + 12 + 1 of it.
	names, means := []string{"queue", "prefill", "other in the server", "unexplained"}, []float64{5, 12, 1, -2}
	for i, span := range s.Waterfall.Server {
		if span.Name != names[i] || !alike(span.Mean, means[i]) {
			t.Errorf("server span %d = %v, want %s %v", i, span, names[i], means[i])
		}
	}
}

// Records without the moments, as some of other tools, have no waterfall.
func TestNoWaterfallWithoutMoments(t *testing.T) {
	if w := summarize(t, served(100), many(100)...).Waterfall; w != nil {
		t.Errorf("waterfall = %+v", w)
	}
}

func TestWaterfallSumsUp(t *testing.T) {
	sumOf := func(spans []report.Span) (total float64) {
		for _, s := range spans {
			total += s.Mean
		}
		return total
	}
	rapid.Check(t, func(t *rapid.T) {
		moment := rapid.Custom(func(t *rapid.T) record.Time { return record.Time(rapid.IntRange(0, 40_000_000).Draw(t, "at")) })
		step := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.IntRange(0, 30_000_000).Draw(t, "step")) })
		m := served(5)
		if rapid.Bool().Draw(t, "no queue") {
			delete(m.Server.Times, "queue_time")
		}
		var recs []*record.Record
		for i := range 5 {
			r := stream(int64(i), 0, 20*msec, 5*msec, 8)
			r.Conn = record.Conn{Reused: rapid.Bool().Draw(t, "reused"), Wait: step.Draw(t, "wait"), DNS: step.Draw(t, "dns"), Connect: step.Draw(t, "connect"), TLS: step.Draw(t, "tls")}
			r.Written, r.FirstByte, r.FirstEvent = moment.Draw(t, "w"), moment.Draw(t, "b"), moment.Draw(t, "e")
			if rapid.Bool().Draw(t, "held") {
				r.FirstComment = moment.Draw(t, "c")
			}
			recs = append(recs, r)
		}
		s, err := report.Summarize(m, sequence(recs), nil, report.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w := s.Waterfall
		for _, span := range w.Client {
			if span.Mean < 0 {
				t.Fatalf("span %v is negative", span)
			}
		}
		if total := sumOf(w.Client); math.Abs(total-w.TTFT) > 1e-9 {
			t.Fatalf("the client's spans sum to %v, TTFT is %v", total, w.TTFT)
		}
		if total := sumOf(w.Server); math.Abs(total-sumOf(w.Client[5:])) > 1e-9 {
			t.Fatalf("the server's spans sum to %v, after the write there are %v", total, sumOf(w.Client[5:]))
		}
	})
}

func TestWaterfallByAnswers(t *testing.T) {
	took := func(ms float64) *time.Duration { d := time.Duration(ms * 1e6); return &d }
	unknown := record.Unknown
	tests := []struct {
		name  string
		told  record.ServerTimings
		share int // of 10 requests that tell
		want  []report.Span
	}{
		{"llama.cpp", record.ServerTimings{Prefill: took(9), Decode: took(28), Source: "timings"}, 10,
			[]report.Span{{Name: "prefill", Mean: 9}, {Name: "unexplained", Mean: 10}}},
		{"vLLM", record.ServerTimings{Queue: took(4), Prefill: took(12), Source: "metrics"}, 10,
			[]report.Span{{Name: "queue", Mean: 4}, {Name: "prefill", Mean: 12}, {Name: "unexplained", Mean: 3}}},
		{"Dynamo", record.ServerTimings{Queue: took(4), Prefill: took(12), TTFT: took(18), Source: "nvext.timing"}, 10,
			[]report.Span{{Name: "queue", Mean: 4}, {Name: "prefill", Mean: 12}, {Name: "other in the server", Mean: 2}, {Name: "unexplained", Mean: 1}}},
		{"Groq makes its first token after the prefill", record.ServerTimings{Queue: took(4), Prefill: took(5), Decode: took(16), Source: "x_groq.usage"}, 10,
			[]report.Span{{Name: "queue", Mean: 4}, {Name: "prefill", Mean: 5}, {Name: "first decode step", Mean: 2}, {Name: "unexplained", Mean: 8}}},
		{"NIM", record.ServerTimings{Queue: took(4), TTFT: took(18), Source: "stats"}, 10,
			[]report.Span{{Name: "queue", Mean: 4}, {Name: "rest of its TTFT", Mean: 14}, {Name: "unexplained", Mean: 1}}},
		{"most answers tell", record.ServerTimings{Queue: took(4), Prefill: took(12), Source: "metrics"}, 6,
			[]report.Span{{Name: "queue", Mean: 4}, {Name: "prefill", Mean: 12}, {Name: "unexplained", Mean: 3}}},
		{"few answers tell, so the metrics do", record.ServerTimings{Queue: took(4), Prefill: took(12), Source: "metrics"}, 4,
			[]report.Span{{Name: "queue", Mean: 5}, {Name: "prefill", Mean: 12}, {Name: "other in the server", Mean: 1}, {Name: "unexplained", Mean: 1}}},
		{"only a decode time", record.ServerTimings{Decode: took(12), Source: "metrics"}, 10,
			[]report.Span{{Name: "queue", Mean: 5}, {Name: "prefill", Mean: 12}, {Name: "other in the server", Mean: 1}, {Name: "unexplained", Mean: 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.told.DraftTokens, tt.told.AcceptedTokens = unknown, unknown
			recs := many(10)
			for i, r := range recs {
				r.Written, r.FirstByte, r.FirstEvent = r.Start+msec, r.Start+2*msec, r.Start+3*msec
				if i < tt.share {
					told := tt.told
					r.ServerTimings = &told
				}
			}
			w := summarize(t, served(10), recs...).Waterfall
			if len(w.Server) != len(tt.want) {
				t.Fatalf("spans = %+v, want %+v", w.Server, tt.want)
			}
			for i, span := range w.Server {
				if span.Name != tt.want[i].Name || !alike(span.Mean, tt.want[i].Mean) || !alike(span.Share, span.Mean/20) {
					t.Errorf("span %d = %+v, want %+v", i, span, tt.want[i])
				}
			}
			if byAnswers := tt.share > 4 && (tt.told.Queue != nil || tt.told.Prefill != nil); strings.Contains(w.Server[0].Source, tt.told.Source+")") != byAnswers {
				t.Errorf("source = %q", w.Server[0].Source)
			}
		})
	}
	// Drafts by answers: 1 of 4 accepted.
	recs := many(10)
	for _, r := range recs {
		r.ServerTimings = &record.ServerTimings{Source: "timings", DraftTokens: 4, AcceptedTokens: 1}
	}
	if sp := summarize(t, manifest(), recs...).Speculation; sp == nil || *sp.AcceptanceRate != 0.25 || sp.AcceptedLength != nil || sp.Source != report.FromServerAnswers {
		t.Errorf("speculation = %+v", sp)
	}
}

func TestUnexplained(t *testing.T) {
	tests := []struct {
		name                 string
		queue, prefill, ttft float64 // ms; below 0: not told
		says                 string  // empty: no warning
	}{
		{"all told", 30, 60, 95, ""},
		{"small", 30, 45, 81, ""}, // 19 ms of 100
		{"outside the server", 30, 30, 62, "in a proxy or in the network, whose round trip takes 0.25 ms."},
		{"its API layer", 30, 30, 98, "in its API layer"},
		{"no TTFT told", 30, 30, -1, "look at its API layer, a proxy, or the network"},
		{"no queue told", -1, 30, -1, "its queue, of which it tells nothing, its API layer"},
		{"longer than what we saw", 100, 40, 141, "longer than the mean TTFT"},
		{"a TTFT without a prefill is no API layer", 30, -1, 98, ""},
		{"a TTFT from scheduling is none", 60, 35, 36, ""},
		{"nothing told", -1, -1, -1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := served(50)
			m.RoundTrip = &record.RoundTrip{Median: 250 * time.Microsecond, Connects: 10}
			m.Server.Times = map[string]record.ServerTimes{}
			for name, v := range map[string]float64{"queue_time": tt.queue, "prefill_time": tt.prefill, "ttft": tt.ttft} {
				if v >= 0 {
					m.Server.Times[name] = counted(v*50/1000, 50)
				}
			}
			var recs []*record.Record
			for i := range 50 {
				r := stream(int64(i), record.Time(i)*10*msec, 100*msec, 5*msec, 8)
				r.Written, r.FirstByte, r.FirstEvent = r.Start, r.Start+99*msec, r.Start+99*msec
				recs = append(recs, r)
			}
			s := summarize(t, m, recs...)
			got := message(s, report.TTFTUnexplained)
			if (tt.says == "") != (got == "") || !strings.Contains(got, tt.says) {
				t.Errorf("warning = %q, want %q in it", got, tt.says)
			}
			if s.Verdict.Level != report.Valid {
				t.Errorf("verdict = %s", s.Verdict.Level)
			}
		})
	}
}

func TestPrefillCost(t *testing.T) {
	line := func(n int, length func(i int) record.Count, cached record.Count, noise float64) []*record.Record {
		var recs []*record.Record
		for i := range n {
			in := length(i)
			ttft := 8 + 0.025*float64(in-max(cached, 0)) + noise*float64(i%3-1)
			r := stream(int64(i), record.Time(i)*10*msec, record.Time(ttft*float64(msec)), 5*msec, 8)
			r.Tokens.Input, r.Tokens.Cached = in, cached
			recs = append(recs, r)
		}
		return recs
	}
	varied := func(i int) record.Count { return record.Count(100 + 100*(i%10)) }
	tests := []struct {
		name  string
		recs  []*record.Record
		shown bool
	}{
		{"varied", line(60, varied, 0, 0.5), true},
		{"cached tokens cost nothing", line(60, varied, 64, 0.5), true},
		{"not told in a run that is not cold", line(60, varied, record.Unknown, 0.5), false},
		{"one length", line(60, func(int) record.Count { return 500 }, 0, 0.5), false},
		{"nearly one length", line(60, func(i int) record.Count { return record.Count(500 + i%10) }, 0, 0.5), false},
		{"two lengths", line(60, func(i int) record.Count { return record.Count(100 + 400*(i%2)) }, 0, 0.5), false},
		{"few", line(19, varied, 0, 0.5), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := summarize(t, manifest(), tt.recs...).Prefill
			if (c != nil) != tt.shown {
				t.Fatalf("cost = %+v, shown should be %v", c, tt.shown)
			}
			if c == nil {
				return
			}
			if math.Abs(c.PerToken-0.025) > 0.0005 || math.Abs(c.Fixed-8) > 0.3 || c.R2 < 0.98 {
				t.Errorf("cost = %+v, want 0.025 ms a token and 8 ms", c)
			}
			in := func(v float64, ci [2]float64) bool { return ci[0] < v && v < ci[1] && ci[1]-ci[0] < 1 }
			if !in(0.025, c.PerTokenCI95) || !in(8, c.FixedCI95) {
				t.Errorf("intervals %v, %v do not hold the truth", c.PerTokenCI95, c.FixedCI95)
			}
		})
	}
}

// The figures of a textbook: y = 1 + 2x with known residuals.
func TestPrefillCostIntervals(t *testing.T) {
	m := manifest()
	m.Cache.Mode = record.CacheCold // cached tokens are not told, and are none
	var recs []*record.Record
	for i := range 22 {
		x := i + 1
		e := 1.0
		if i%2 == 1 {
			e = -1
		}
		r := stream(int64(i), record.Time(i)*10*msec, record.Time((10+2*float64(x)+e)*float64(msec)), 5*msec, 8)
		r.Tokens.Input = record.Count(x)
		recs = append(recs, r)
	}
	c := summarize(t, m, recs...).Prefill
	// Sxx = 885.5, Sxy = 1760, mean x 11.5, mean y 33; t(20) at 0.975 = 2.0860.
	slope := 1760.0 / 885.5
	rest := (4*885.5 + 22 + 2*2*(-11)) - slope*1760
	half := 2.0859634472658364 * math.Sqrt(rest/20/885.5)
	if c == nil || math.Abs(c.PerToken-slope) > 1e-9 || math.Abs(c.PerTokenCI95[1]-slope-half) > 1e-9 || math.Abs(c.Fixed-(33-slope*11.5)) > 1e-9 {
		t.Errorf("cost = %+v, want slope %v ± %v", c, slope, half)
	}
}

func TestEventsSpeculationReasoning(t *testing.T) {
	m := served(100)
	m.Server.Counters["spec_drafts"], m.Server.Counters["spec_drafted"], m.Server.Counters["spec_accepted"] = 200, 600, 150
	// Four steps of two tokens each.
	var recs []*record.Record
	for i := range 100 {
		r := stream(int64(i), record.Time(i)*10*msec, 20*msec, 14*msec, 4)
		for k := range r.Chunks {
			r.Chunks[k].Tokens = 2
		}
		r.Chunks[0].Kind, r.Chunks[1].Kind = record.KindReasoning, record.KindReasoning
		r.Tokens.Output, r.Tokens.Reasoning = 4, 4
		r.Usage.Completion = 8
		recs = append(recs, r)
	}
	m.Server.Times["itl"] = counted(0.014*300, 300)
	s := summarize(t, m, recs...)
	e, sp, r := s.Events, s.Speculation, s.Reasoning
	if !alike(*sp.AcceptedLength, 1.75) || !alike(*sp.AcceptanceRate, 0.25) || sp.Source != report.FromServerCounters {
		t.Errorf("speculation = %+v", sp)
	}
	if e.PerEvent != 2 || *e.Most != 2 || e.Told != 1 || !alike(*e.EventGap, 14) || !alike(*e.TokenGap, 6) || e.Source != record.SourceUsage || !e.Differ() {
		t.Errorf("events = %+v", e)
	}
	if rate, _ := s.Metric("output_token_throughput"); !alike(*e.TokenRate, rate.Value) || !alike(*e.EventRate, rate.Value/2) {
		t.Errorf("rates = %v and %v, throughput %v", *e.TokenRate, *e.EventRate, rate.Value)
	}
	if r.Answers != 100 || *r.Share != 0.5 || *r.First != 20 || *r.FirstAnswer != 48 {
		t.Errorf("reasoning = %+v", r)
	}
	// Its intervals are steps here, so they are set beside the gaps of events.
	for _, one := range s.Server.Times {
		if one.What == report.TimeITL || one.What == report.TimeGap && !alike(one.Ours, 14) {
			t.Errorf("compared: %+v", one)
		}
	}

	plain := summarize(t, served(100), many(100)...)
	if plain.Speculation != nil || plain.Reasoning != nil || plain.Events.Differ() {
		t.Errorf("a plain run has %+v, %+v, %+v", plain.Speculation, plain.Reasoning, plain.Events)
	}

	gauge := served(100)
	s = summarizeAll(t, gauge, []record.Sample{
		{At: msec, From: record.FromServer, Values: map[string]float64{"spec_accept_length": 2, "spec_accept_rate": 0.4}},
		{At: 2 * msec, From: record.FromServer, Values: map[string]float64{"spec_accept_length": 3, "spec_accept_rate": 0.6}},
	}, "", many(100))
	if g := s.Server.Gauges["spec_accept_length"]; g != (report.Gauge{Mean: 2.5, Max: 3, Samples: 2}) {
		t.Errorf("gauge = %+v", g)
	}
	if s.Speculation == nil || *s.Speculation.AcceptedLength != 2.5 || *s.Speculation.AcceptanceRate != 0.5 || s.Speculation.Source != report.FromServerGauge {
		t.Errorf("by gauges = %+v", s.Speculation)
	}
}

func TestCacheByTheServer(t *testing.T) {
	tests := []struct {
		name          string
		mode          string
		cached        record.Count // by usage, of 10
		queries, hits float64
		code          string // empty: none
	}{
		{"agree", record.CacheAsIs, 4, 1000, 400, ""},
		{"within a twentieth", record.CacheAsIs, 4, 1000, 449, ""},
		{"differ", record.CacheAsIs, 4, 1000, 460, report.CacheCountsDiffer},
		{"blocks have the same ratio", record.CacheAsIs, 4, 50, 20, ""},
		{"usage tells nothing, and all is well", record.CacheHitRate, record.Unknown, 1000, 420, ""},
		{"usage tells nothing, and the rate is off", record.CacheHitRate, record.Unknown, 1000, 100, report.CacheRateOff},
		{"no queries", record.CacheAsIs, 4, 0, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, recs := served(100), many(100)
			m.Cache = record.Cache{Mode: tt.mode, HitRate: 0.4, Block: 16}
			m.Server.Counters["prefix_queries"], m.Server.Counters["prefix_hits"] = tt.queries, tt.hits
			for _, r := range recs {
				r.Tokens.Cached = tt.cached
			}
			s := summarize(t, m, recs...)
			if got := fmt.Sprint(codes(s)); tt.code == "" && got != "[]" || tt.code != "" && got != "["+tt.code+"]" {
				t.Errorf("warnings = %s, want %q", got, tt.code)
			}
			if (s.Verdict.Level == report.Suspect) != (tt.code != "") {
				t.Errorf("verdict = %s", s.Verdict.Level)
			}
			if tt.queries > 0 && !alike(*s.Cache.Server, tt.hits/tt.queries) {
				t.Errorf("server's rate = %v", *s.Cache.Server)
			}
		})
	}
	// Where no answer tells, a cold run's hits show in the counters.
	m := served(100)
	m.Cache.Mode = record.CacheCold
	m.Server.Counters["prefix_queries"], m.Server.Counters["prefix_hits"] = 100_000, 90_000
	recs := many(100)
	for _, r := range recs {
		r.Tokens.Input, r.Usage.Prompt = 1000, 1000
	}
	m.Server.Counters["prompt_tokens"] = 100_000
	if got := fmt.Sprint(codes(summarize(t, m, recs...))); got != "[cache_hits_in_cold_run]" {
		t.Errorf("warnings = %s", got)
	}
}
