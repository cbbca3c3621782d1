package report_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

const msec = record.Time(time.Millisecond)

// manifest is that of a completed closed-loop run of streams.
func manifest() *record.Manifest {
	return &record.Manifest{
		Schema: record.ManifestSchema, ID: "run-1", Outcome: record.RunCompleted,
		Target:       record.Target{URL: "http://localhost:8000/v1/chat/completions", Model: "demo-8b", EndpointType: "chat", Streaming: true},
		Load:         record.Load{Concurrency: 2, Requests: 4},
		Origin:       time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		MeasureStart: 0, MeasureEnd: 1000 * msec, MaxInFlight: 2,
	}
}

// stream is a good request: tokens came one by one, gap apart, the first ttft
// after the start.
func stream(id int64, start, ttft, gap record.Time, tokens int) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Outcome, r.Status = record.OK, 200
	r.Streaming, r.Streamed, r.Done = true, true, true
	r.Start = start
	for i := range tokens {
		r.Chunks = append(r.Chunks, record.Chunk{At: start + ttft + record.Time(i)*gap, Tokens: 1, Kind: record.KindText})
	}
	r.End = r.Chunks[tokens-1].At + msec
	r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 10, Output: record.Count(tokens), Reasoning: record.Unknown, Cached: record.Unknown}
	r.Usage = record.Usage{Prompt: 10, Completion: record.Count(tokens), Total: record.Count(10 + tokens), Reasoning: record.Unknown, Cached: record.Unknown}
	return r
}

func failed(id int64, start record.Time, o record.Outcome, message string) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Streaming, r.Start, r.End, r.Status = true, start, start+msec, 500
	r.Fail(o, record.Failure{Message: message})
	return r
}

func summarize(t *testing.T, m *record.Manifest, recs ...*record.Record) *report.Summary {
	t.Helper()
	return summarizeAll(t, m, nil, "", recs)
}

func summarizeAll(t *testing.T, m *record.Manifest, samples []record.Sample, window string, recs []*record.Record) *report.Summary {
	t.Helper()
	s, err := report.Summarize(m, sequence(recs), samples, report.Options{Window: window})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func codes(s *report.Summary) []string {
	var out []string
	for _, w := range s.Warnings {
		if w.Code != report.FewSamples {
			out = append(out, w.Code)
		}
	}
	return out
}

func many(n int) []*record.Record {
	var recs []*record.Record
	for i := range n {
		recs = append(recs, stream(int64(i), record.Time(i)*10*msec, 20*msec, 5*msec, 8))
	}
	return recs
}

func TestVerdictAndWarnings(t *testing.T) {
	tests := []struct {
		name   string
		change func(*record.Manifest, []*record.Record) []*record.Record
		codes  []string
		level  report.Level
	}{
		{name: "clean", level: report.Valid},
		{name: "no usage and no tokens at all", codes: []string{report.NoUsage}, level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				for _, r := range rs {
					r.Usage, r.Tokens = record.NoUsage, record.New("", 0).Tokens
				}
				return rs
			}},
		{name: "some without tokens make the throughput too low", codes: []string{report.NoUsage}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[3].Usage, rs[3].Tokens = record.NoUsage, record.New("", 0).Tokens
				return rs
			}},
		{name: "two sources", codes: []string{report.NoUsage, report.MixedTokenSources}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[3].Usage, rs[3].Tokens.Source = record.NoUsage, record.SourceTokenizer
				return rs
			}},
		{name: "missing done", codes: []string{report.MissingDone}, level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0].Done = false
				rs[0].Note("missing_done")
				return rs
			}},
		{name: "an API that has no done", level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				for _, r := range rs {
					r.Done = false
				}
				return rs
			}},
		{name: "data after done", codes: []string{report.DataAfterDone}, level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record { rs[0].AfterDone = true; return rs }},
		{name: "usage fell", codes: []string{report.UsageFell}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record { rs[0].Note("usage_fell"); return rs }},
		{name: "one JSON body", codes: []string{report.NotStreaming}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0].Streamed, rs[0].Chunks = false, rs[0].Chunks[7:]
				return rs
			}},
		{name: "half of the gaps are none", level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				for _, r := range rs {
					for i := 2; i < 8; i += 2 {
						r.Chunks[i].Kind |= record.SameRead
					}
				}
				return rs
			}},
		{name: "most of the gaps are none", codes: []string{report.CoalescedStream}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				for _, r := range rs {
					for i := 2; i < 8; i++ {
						r.Chunks[i].At = r.Chunks[1].At
					}
				}
				return rs
			}},
		{name: "whole answer at one moment", codes: []string{report.ZeroITL}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0].Chunks = rs[0].Chunks[:1]
				return rs
			}},
		{name: "one of a hundred short answers at one moment", codes: []string{report.ZeroITL}, level: report.Valid,
			change: func(_ *record.Manifest, _ []*record.Record) []*record.Record {
				rs := many(100)
				rs[5].Chunks = rs[5].Chunks[:1]
				return rs
			}},
		{name: "hidden reasoning", codes: []string{report.HiddenReasoning}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0].Usage.Reasoning = 5
				return rs
			}},
		{name: "reasoning that was streamed is not hidden", level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0].Usage.Reasoning = 5
				rs[0].Chunks[0].Kind = record.KindReasoning
				return rs
			}},
		{name: "short output", codes: []string{report.ShortOutput}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0].ExactOutput, rs[0].AskedOutput = true, 32
				return rs
			}},
		{name: "a count from the text does not prove a short output", codes: []string{report.NoUsage}, level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				for _, r := range rs {
					r.Tokens.Source, r.Usage = record.SourceTokenizer, record.NoUsage
				}
				rs[0].ExactOutput, rs[0].AskedOutput = true, 32
				return rs
			}},
		{name: "a limit that was not reached is no short output", level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0].AskedOutput = 32
				return rs
			}},
		{name: "parameter dropped", codes: []string{report.ParameterDropped}, level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Dropped = []record.DroppedField{{Field: "stream_options", Reason: "unknown argument"}}
				return rs
			}},
		{name: "lines skipped", codes: []string{report.DatasetLinesSkipped}, level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Input = &record.Input{File: "p.jsonl", Format: "single_turn", Usable: 3, Skipped: []record.SkippedLine{{Line: 2, Reason: "json"}}}
				return rs
			}},
		{name: "trace rows skipped and reordered", codes: []string{report.TraceRowsSkipped, report.TraceReordered}, level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Input = &record.Input{File: "t.jsonl", Format: "mooncake_trace", Reordered: true, Skipped: []record.SkippedLine{{Line: 2, Reason: "json"}}}
				return rs
			}},
		{name: "interrupted", codes: []string{report.PartialRun}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Outcome = record.RunInterrupted
				return rs
			}},
		{name: "killed", codes: []string{report.PartialRun}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Outcome, m.MeasureEnd = record.RunRunning, record.Unset
				return rs
			}},
		{name: "one of nine failed", codes: []string{report.Errors}, level: report.Suspect,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				return append(rs, failed(9, 5*msec, record.ServerError, "boom"))
			}},
		{name: "all failed", codes: []string{report.AllFailed}, level: report.Invalid,
			change: func(_ *record.Manifest, _ []*record.Record) []*record.Record {
				return []*record.Record{failed(0, 0, record.ServerError, "CUDA out of memory")}
			}},
		{name: "nothing at all", codes: []string{report.NoValidRequests}, level: report.Invalid,
			change: func(_ *record.Manifest, _ []*record.Record) []*record.Record { return nil }},
		{name: "cold first request", codes: []string{report.FirstRequestSlow}, level: report.Valid,
			change: func(_ *record.Manifest, rs []*record.Record) []*record.Record {
				rs[0] = stream(0, 0, 500*msec, 5*msec, 8)
				return rs
			}},
		{name: "open loop on time", level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load = record.Load{Rate: 100}
				for _, r := range rs {
					r.Due = r.Start
				}
				return rs
			}},
		{name: "a slow client makes the run invalid", codes: []string{report.ScheduleLag, report.ClientLate}, level: report.Invalid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load = record.Load{Rate: 200}
				for i, r := range rs {
					r.Due = record.Time(i) * 5 * msec
				}
				return rs
			}},
		{name: "a cap that was reached is the user's wish", codes: []string{report.ScheduleLag}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load = record.Load{Rate: 200, Concurrency: 2}
				for i, r := range rs {
					r.Due = record.Time(i) * 5 * msec
					r.CapWait = r.Start.Sub(r.Due)
				}
				return rs
			}},
		{name: "so is one on prefill", codes: []string{report.ScheduleLag}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load, m.MaxInFlight = record.Load{Rate: 200, PrefillConcurrency: 1}, 7
				for i, r := range rs {
					r.Due = record.Time(i) * 5 * msec
					r.CapWait = r.Start.Sub(r.Due)
				}
				return rs
			}},
		{name: "so is one that a ramp keeps below the level in flight", codes: []string{report.ScheduleLag}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load, m.MaxInFlight = record.Load{Rate: 200, Concurrency: 100}, 2
				for i, r := range rs {
					r.Due = record.Time(i) * 5 * msec
					r.CapWait = r.Start.Sub(r.Due)
				}
				return rs
			}},
		{name: "a cap that explains little of it is no excuse", codes: []string{report.ScheduleLag, report.ClientLate}, level: report.Invalid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load, m.MaxInFlight = record.Load{Rate: 200, Concurrency: 2}, 2
				for i, r := range rs {
					r.Due = record.Time(i) * 5 * msec
					r.CapWait = r.Start.Sub(r.Due) / 3
				}
				return rs
			}},
		{name: "a cap that held the last back to the end", codes: []string{report.ScheduleLag}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load, m.Unsent = record.Load{Rate: 100, Concurrency: 2}, 1
				for _, r := range rs {
					r.Due = r.Start
				}
				last := record.New(record.PhaseMeasure, int64(len(rs)))
				last.Due, last.CapWait, last.Outcome = rs[len(rs)-1].Due, 30*time.Millisecond, record.Dropped
				return append(rs, last)
			}},
		{name: "users who wait for answers", codes: []string{report.UsersBehind}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load = record.Load{Rate: 200, Users: 1}
				for _, r := range rs {
					r.Due, r.Shifted = r.Start, 5*time.Millisecond
				}
				rs[0].Shifted = 0
				return rs
			}},
		{name: "users who wait now and then", level: report.Valid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load = record.Load{Rate: 1e9 / float64(rs[1].Start-rs[0].Start), Users: 1}
				for _, r := range rs {
					r.Due = r.Start
				}
				rs[1].Shifted = time.Millisecond
				return rs
			}},
		{name: "late throughout though at the full rate", codes: []string{report.ScheduleLag}, level: report.Suspect,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load = record.Load{Rate: 100}
				for _, r := range rs {
					r.Due = r.Start
					r.Start += 8 * msec
				}
				return rs
			}},
		{name: "requests never sent", codes: []string{report.ScheduleLag}, level: report.Invalid,
			change: func(m *record.Manifest, rs []*record.Record) []*record.Record {
				m.Load, m.Unsent = record.Load{Rate: 100}, 3
				for _, r := range rs {
					r.Due = r.Start
				}
				return rs
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, recs := manifest(), many(8)
			if tt.change != nil {
				recs = tt.change(m, recs)
			}
			s := summarize(t, m, recs...)
			if diff := cmp.Diff(tt.codes, codes(s)); diff != "" {
				t.Errorf("warnings: -want +got\n%s", diff)
			}
			if s.Verdict.Level != tt.level {
				t.Errorf("verdict %s (%q), want %s", s.Verdict.Level, s.Verdict.Reasons, tt.level)
			}
			if (s.Verdict.Level == report.Valid) != (len(s.Verdict.Reasons) == 0) {
				t.Errorf("a %s run has reasons %q", s.Verdict.Level, s.Verdict.Reasons)
			}
		})
	}
}

func TestHeadroomIsPartOfTheVerdict(t *testing.T) {
	well := &record.ClientTry{Streams: 10, Events: 500, EventsReached: 499, Well: true}
	short := &record.ClientTry{Streams: 10, Events: 500, EventsReached: 200, Fault: "rate not reached"}
	guess := &record.ClientTry{Streams: 10, Events: 5000, EventsReached: 893, Fault: "rate not reached"}
	for _, c := range []struct {
		name string
		test *record.SelfTest
		want string // of the JSON's verdict
	}{
		{"not tried", nil, `{"level":"valid"}`},
		{"room", &record.SelfTest{Before: well, After: well, Headroom: 2}, `{"level":"valid","headroom":2}`},
		{"more was tried before than the run had", &record.SelfTest{Before: guess, After: well, Headroom: 1}, `{"level":"valid","headroom":1}`},
		{"none", &record.SelfTest{Before: guess, After: short}, `{"level":"suspect"}`},
		{"only the try before failed, at the run's load", &record.SelfTest{Before: short, After: well, Headroom: 1}, `{"level":"suspect","headroom":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := manifest()
			m.SelfTest = c.test
			s := summarize(t, m, many(8)...)
			if failed := s.Verdict.Level != report.Valid; failed {
				want := []string{"It is not shown that the client keeps up: against the simulator, 200 of 500 events/s over 10 streams were timed, off by 0s at p99, with 0 events lost (rate not reached)."}
				if diff := cmp.Diff(want, s.Verdict.Reasons); diff != "" {
					t.Errorf("reasons: -want +got\n%s", diff)
				}
			}
			s.Verdict.Reasons = nil
			got, err := json.Marshal(s.Verdict)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("verdict %s, want %s", got, c.want)
			}
		})
	}
}

// cases/015: a cap of one makes every request wait for the one before.
func TestOpenLoopBacklog(t *testing.T) {
	m := manifest()
	m.Load = record.Load{Rate: 20, Concurrency: 1, Requests: 6, Arrival: "constant"}
	m.MaxInFlight = 1
	var recs []*record.Record
	for i := range 6 {
		at := record.Time(i)
		r := stream(int64(i), at*150*msec, 145*msec, 0, 1)
		r.Due = at * 50 * msec
		r.CapWait = r.Start.Sub(r.Due)
		recs = append(recs, r)
	}
	s := summarize(t, m, recs...)
	if !s.Warned(report.ScheduleLag) || s.Verdict.Level != report.Suspect {
		t.Errorf("warnings %v, verdict %s", codes(s), s.Verdict.Level)
	}
	if got := *s.Load.AchievedRate; !near(got, 5/0.75) {
		t.Errorf("achieved %v requests/s, want 6.67", got)
	}
	if got := *s.Load.ScheduledRate; !near(got, 20) {
		t.Errorf("scheduled %v requests/s, want 20", got)
	}
	if got, want := s.Load.Held, (&report.Held{Requests: 5, Mean: 300, Max: 500}); got == nil || *got != *want {
		t.Errorf("held back %+v, want %+v", got, want)
	}
	for tag, want := range map[string]float64{
		"request_latency": 145, "request_latency_from_due": 645, "time_to_first_token_from_due": 645, "schedule_lateness": 500,
	} {
		if r, ok := s.Metric(tag); !ok || !near(r.Statistic.Max, want) {
			t.Errorf("%s: max %+v, want %v ms", tag, r.Statistic, want)
		}
	}
}

func TestClosedLoopHasNoLatencyFromDue(t *testing.T) {
	r := stream(0, 10*msec, 5*msec, msec, 4)
	r.Due = 0
	s := summarize(t, manifest(), r)
	for _, tag := range []string{"request_latency_from_due", "schedule_lateness"} {
		if _, ok := s.Metric(tag); ok {
			t.Errorf("%s is reported for a closed loop", tag)
		}
	}
}

func TestOneRequestAndItsFigures(t *testing.T) {
	s := summarize(t, manifest(), stream(0, 100*msec, 20*msec, 10*msec, 5))
	for tag, want := range map[string]float64{
		"time_to_first_token": 20, "time_to_second_token": 10, "request_latency": 60,
		"inter_token_latency": 10, "inter_chunk_latency": 10, "output_token_throughput_per_user": 100,
		"tokens_per_chunk": 1,
	} {
		r, ok := s.Metric(tag)
		if !ok || !near(r.Statistic.Avg, want) {
			t.Errorf("%s = %+v, want avg %v", tag, r.Statistic, want)
		}
	}
	if r, _ := s.Metric("benchmark_duration"); !near(r.Value, 0.060) {
		t.Errorf("duration = %v s, want 0.060", r.Value)
	}
	// 61 ms of exchange in a span of 61 ms.
	if got := *s.Load.MeanInFlight; !near(got, 1) {
		t.Errorf("mean in flight = %v, want 1", got)
	}
}

// Usage without a count of output tokens is no source of output tokens.
func TestTokenSourceNeedsAnOutputCount(t *testing.T) {
	r := stream(0, 0, 20*msec, msec, 3)
	r.Tokens.Output = record.Unknown
	s := summarize(t, manifest(), r)
	if diff := cmp.Diff([]report.TokenSource{{Source: record.SourceNone, Count: 1}}, s.Tokens); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, ok := s.Metric("output_token_throughput"); ok {
		t.Error("token throughput without tokens")
	}
}

func TestMeanInFlight(t *testing.T) {
	// Two at once for 100 ms, then 100 ms of nothing, then one for 100 ms.
	s := summarize(t, manifest(),
		stream(0, 0, 99*msec, 0, 1), stream(1, 0, 99*msec, 0, 1), stream(2, 200*msec, 99*msec, 0, 1))
	if got := *s.Load.MeanInFlight; !near(got, 1) {
		t.Errorf("mean in flight = %v, want 1", got)
	}
}

func TestPhasesAndClassesAreKeptApart(t *testing.T) {
	warm := stream(0, 0, 900*msec, msec, 3)
	warm.Phase = record.PhaseWarmup
	cool := stream(0, 5000*msec, 900*msec, msec, 3)
	cool.Phase = record.PhaseCooldown
	cancelled := stream(5, 20*msec, 900*msec, msec, 3)
	cancelled.Outcome = record.Cancelled
	dropped := record.New(record.PhaseMeasure, 6)
	dropped.Fail(record.Dropped, record.Failure{})
	s := summarize(t, manifest(), warm, stream(1, 10*msec, 20*msec, msec, 3), cancelled, dropped, cool,
		failed(7, 12*msec, record.ServerError, "boom"), failed(8, 13*msec, record.ServerError, "bang"))
	want := report.Counts{Valid: 1, Failed: 2, Cancelled: 1, Unsent: 1, Warmup: 1, Cooldown: 1}
	if s.Counts != want {
		t.Errorf("counts %+v, want %+v", s.Counts, want)
	}
	if r, _ := s.Metric("time_to_first_token"); r.Statistic.Max != 20 {
		t.Errorf("TTFT max %v, want 20: another phase or outcome is in it", r.Statistic.Max)
	}
	if r, _ := s.Metric("request_error_rate"); !near(r.Value, 200.0/3) {
		t.Errorf("error rate %v, want 66.7: cancelled requests are not among the completed", r.Value)
	}
	if s.First == nil || s.First.Phase != record.PhaseWarmup || *s.First.TTFT != 900 {
		t.Errorf("first request %+v, want the warmup's", s.First)
	}
	wantOutcomes := []report.OutcomeShare{
		{Outcome: record.OK, Count: 1, Share: 0.2},
		{Outcome: record.ServerError, Count: 2, Share: 0.4, Example: "boom"},
		{Outcome: record.Dropped, Count: 1, Share: 0.2},
		{Outcome: record.Cancelled, Count: 1, Share: 0.2},
	}
	if diff := cmp.Diff(wantOutcomes, s.Outcomes); diff != "" {
		t.Errorf("outcomes: -want +got\n%s", diff)
	}
}

// Past duration and grace a record is left out of everything but the load.
func TestDurationAndGrace(t *testing.T) {
	m := manifest()
	m.MeasureStart = 100 * msec
	m.Load.Duration, m.Load.Grace = 200*time.Millisecond, 100*time.Millisecond
	onTime := stream(0, 150*msec, 249*msec, 0, 1) // ends at 400 ms, the bound
	late := stream(1, 150*msec, 249*msec, 0, 1)
	late.End++
	s := summarize(t, m, onTime, late)
	if s.Counts.Valid != 1 || s.Counts.Excluded != 1 || s.Load.Sent != 2 {
		t.Errorf("counts %+v, sent %d", s.Counts, s.Load.Sent)
	}
}

func TestStreamingMetricsNeedAStreamingRun(t *testing.T) {
	m := manifest()
	m.Target.Streaming = false
	r := stream(0, 0, 50*msec, 0, 1)
	r.Streaming, r.Streamed, r.Done = false, false, false
	unasked := stream(1, 0, 50*msec, msec, 3)
	unasked.Streaming = false
	s := summarize(t, m, r, unasked)
	for _, res := range s.Metrics {
		if res.StreamingOnly {
			t.Errorf("%s is reported for whole answers", res.Tag)
		}
	}
	if s.Verdict.Level != report.Valid {
		t.Errorf("verdict %+v", s.Verdict)
	}
}

func TestOrderOfRecordsDoesNotMatter(t *testing.T) {
	m := manifest()
	m.Goodput = map[string]float64{"time_to_first_token": 30, "request_latency": 60}
	recs := many(40)
	for i, r := range recs {
		for j := range r.Chunks {
			r.Chunks[j].At += record.Time(i*j*j*9973) % (20 * msec)
		}
		slices.SortFunc(r.Chunks, func(a, b record.Chunk) int { return int(a.At - b.At) })
	}
	recs = append(recs, failed(50, 3*msec, record.Reset, "a"), failed(51, 3*msec, record.ServerError, "b"))
	render := func() string {
		b, err := summarize(t, m, recs...).JSON()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	want := render()
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(recs), func(i, j int) { recs[i], recs[j] = recs[j], recs[i] })
	if diff := cmp.Diff(want, render()); diff != "" {
		t.Errorf("another order, another summary:\n%s", diff)
	}
}

func TestManyErrorMessagesAreBounded(t *testing.T) {
	var recs []*record.Record
	for i := range 500 {
		recs = append(recs, failed(int64(i), 0, record.ServerError, fmt.Sprintf("request %d failed", i)))
	}
	s := summarize(t, manifest(), recs...)
	var total int64
	for _, g := range s.Errors {
		total += g.Count
	}
	if len(s.Errors) > 101 || total != 500 {
		t.Errorf("%d groups with %d errors, want at most 101 with 500", len(s.Errors), total)
	}
}

func TestLoad(t *testing.T) {
	dir := record.Dir(t.TempDir())
	if _, err := report.Load(dir, report.Options{}); !errors.Is(err, record.ErrNoRun) {
		t.Errorf("empty directory: %v, want ErrNoRun", err)
	}
	if err := dir.WriteManifest(manifest()); err != nil {
		t.Fatal(err)
	}
	w, err := dir.NewWriter()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range many(5) {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := report.Load(dir, report.Options{})
	if err != nil || s.Counts.Valid != 5 || s.Damaged != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	want, _ := summarize(t, manifest(), many(5)...).JSON()
	got, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the way through the directory changed the summary:\n%s", diff)
	}

	t.Run("damaged and cut off lines", func(t *testing.T) {
		b, err := os.ReadFile(dir.Path(record.RecordsFile))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(b), "\n")
		lines[1] = "{\"id\": oops}\n"
		lines[4] = lines[4][:40]
		if err := os.WriteFile(dir.Path(record.RecordsFile), []byte(strings.Join(lines, "")), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := report.Load(dir, report.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Counts.Valid != 3 || s.Damaged != 2 || !s.Warned(report.DamagedRecords) || s.Verdict.Level != report.Suspect {
			t.Errorf("counts %+v, damaged %d, warnings %v, verdict %v", s.Counts, s.Damaged, codes(s), s.Verdict.Level)
		}
		if !strings.Contains(s.FirstDamage, "records.jsonl:2") {
			t.Errorf("first damage %q names no line", s.FirstDamage)
		}
	})
	t.Run("newer schema", func(t *testing.T) {
		m := manifest()
		m.Schema++
		if err := dir.WriteManifest(m); err != nil {
			t.Fatal(err)
		}
		if _, err := report.Load(dir, report.Options{}); err == nil || !strings.Contains(err.Error(), "newer") {
			t.Errorf("error %v, want one about a newer schema", err)
		}
	})
}

func TestReadErrorEndsIt(t *testing.T) {
	broken := errors.New("disk on fire")
	seq := iter.Seq2[*record.Record, error](func(yield func(*record.Record, error) bool) {
		if yield(stream(0, 0, msec, msec, 2), nil) {
			yield(nil, broken)
		}
	})
	if _, err := report.Summarize(manifest(), seq, nil, report.Options{}); !errors.Is(err, broken) {
		t.Errorf("error %v, want the reader's", err)
	}
}

func TestUnknownObjectiveInManifest(t *testing.T) {
	m := manifest()
	m.Goodput = map[string]float64{"speed": 1}
	if _, err := report.Summarize(m, sequence(nil), nil, report.Options{}); err == nil {
		t.Error("an objective on an unknown metric is accepted")
	}
}

func TestJSON(t *testing.T) {
	decode := func(t *testing.T, s *report.Summary) map[string]any {
		t.Helper()
		b, err := s.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatalf("%v in\n%s", err, b)
		}
		return v
	}
	t.Run("metrics as AIPerf has them", func(t *testing.T) {
		m := manifest()
		m.Goodput = map[string]float64{"time_to_first_token": 30}
		v := decode(t, summarize(t, m, many(4)...))
		ttft := v["time_to_first_token"].(map[string]any)
		want := map[string]any{
			"unit": "ms", "avg": 20.0, "min": 20.0, "max": 20.0, "std": 0.0, "count": 4.0, "sum": 80.0,
			"p1": 20.0, "p5": 20.0, "p10": 20.0, "p25": 20.0, "p50": 20.0, "p75": 20.0, "p90": 20.0, "p95": 20.0, "p99": 20.0, "p99_9": 20.0,
			"p90_ci95": []any{20.0, nil}, "p95_ci95": []any{20.0, nil}, "p99_ci95": []any{20.0, nil}, "p99_9_ci95": []any{20.0, nil},
			"ci_method": "order_statistics", "effective_count": 4.0,
			"few_samples_for": []any{"p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99_9"},
		}
		if diff := cmp.Diff(want, ttft); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if diff := cmp.Diff(v["goodput"], v["request_goodput"]); diff != "" {
			t.Errorf("goodput and request_goodput differ:\n%s", diff)
		}
		if diff := cmp.Diff(map[string]any{"unit": "requests", "avg": 4.0}, v["request_count"]); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("order and text", func(t *testing.T) {
		m := manifest()
		m.Target.Model = "acme/\"fast\"\nv2;<script>&\xff"
		b, err := summarize(t, m, many(2)...).JSON()
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		order := []string{`"schema": 1`, `"request_throughput"`, `"request_latency"`, `"time_to_first_token"`, `"benchmark_duration"`, `"error_summary"`, `"verdict"`}
		last := -1
		for _, key := range order {
			at := strings.Index(text, key)
			if at <= last {
				t.Errorf("%s stands at %d, after %d", key, at, last)
			}
			last = at
		}
		if !strings.Contains(text, `<script>&`) {
			t.Error("HTML is escaped")
		}
		if strings.Contains(text, ": null") {
			t.Errorf("a clean run has null in it:\n%s", text)
		}
	})
	t.Run("missing is absent and infinite is null", func(t *testing.T) {
		v := decode(t, summarize(t, manifest(), stream(0, 0, 20*msec, msec, 2), failed(1, 0, record.ServerError, "boom")))
		adj := v["adj_request_latency"].(map[string]any)
		if adj["max"] != nil || adj["avg"] != nil || adj["min"] != 21.0 || adj["count"] != 2.0 {
			t.Errorf("adj_request_latency = %v", adj)
		}
		if diff := cmp.Diff([]any{map[string]any{"count": 1.0, "error_details": map[string]any{"code": 500.0, "type": "http_5xx", "message": "boom"}}}, v["error_summary"]); diff != "" {
			t.Error(diff)
		}
		v = decode(t, summarize(t, manifest(), failed(1, 0, record.ServerError, "boom")))
		for _, tag := range []string{"request_latency", "output_token_throughput", "benchmark_duration", "adj_request_latency", "goodput"} {
			if x, ok := v[tag]; ok {
				t.Errorf("%s = %v after failures only, want no field", tag, x)
			}
		}
		if got := v["request_error_rate"].(map[string]any)["avg"]; got != 100.0 {
			t.Errorf("error rate %v, want 100", got)
		}
		decode(t, summarize(t, &record.Manifest{}))
	})
}

func TestMetricTable(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range report.Metrics() {
		if seen[m.Tag] {
			t.Errorf("%s is defined twice", m.Tag)
		}
		seen[m.Tag] = true
		if m.Tag == "" || m.Label == "" || m.Unit == "" || m.Formula == "" || m.Scope == "" {
			t.Errorf("%+v lacks a field", m)
		}
		if m.Integer && m.Scope != report.PerRun {
			t.Errorf("%s: only a run metric is an integer", m.Tag)
		}
		_, ok := m.Of(stream(0, 0, 20*msec, 10*msec, 4))
		if ok && m.Scope != report.PerRequest {
			t.Errorf("%s has a value for one record, its scope is %s", m.Tag, m.Scope)
		}
	}
	core := strings.Fields(`time_to_first_token time_to_second_token request_latency inter_token_latency
		inter_chunk_latency output_token_throughput_per_user output_sequence_length input_sequence_length request_count
		error_request_count benchmark_duration request_throughput output_token_throughput good_request_count goodput`)
	for _, tag := range core {
		if _, ok := report.MetricByTag(tag); !ok {
			t.Errorf("%s is missing", tag)
		}
	}
}
