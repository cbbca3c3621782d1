package report

import (
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Scope says what a metric has one value for.
type Scope string

// The scopes of a metric.
const (
	PerRequest Scope = "request" // each valid request that has such a value
	PerGap     Scope = "gap"     // each gap between events, of all valid requests together
	PerSent    Scope = "sent"    // each measured request that was sent, failed ones included
	PerRun     Scope = "run"     // the whole run
)

// Metric is the definition of one number: the only place that says how it is
// called, what unit it is shown in and how it is computed.
type Metric struct {
	Tag   string // the name in files and in --goodput, AIPerf's where AIPerf has it
	Label string // the name for people
	Unit  string
	// Formula says in words how it is computed. s is the start of a request,
	// c1, c2, cn its first, second and last event with output, OSL its output
	// tokens.
	Formula        string
	LargerIsBetter bool
	StreamingOnly  bool // needs the time of an event, so a streamed answer
	OpenLoopOnly   bool // needs a schedule that does not wait for answers
	Integer        bool // of a run metric: the value is a whole number
	// Adjusted: an adj_ metric, which takes a failed request as infinitely
	// slow: its statistic then holds +Inf, in files null.
	Adjusted bool
	Scope    Scope

	per   float64 // how many of what of, gaps or run return make one Unit
	of    func(*record.Record) (float64, bool)
	run   func(*tally) (float64, bool)
	whole func(*tally) (int64, bool) // in place of run if Integer
}

// Of returns the metric of one record in its unit. ok is false if the record
// has no such value, or if the metric's scope is the gap or the run.
func (m Metric) Of(r *record.Record) (v float64, ok bool) {
	if m.of == nil {
		return 0, false
	}
	v, ok = m.of(r)
	return v / m.per, ok
}

// Name is the label with the unit, as "Request Latency (ms)".
func (m Metric) Name() string {
	if m.Unit == "requests" {
		return m.Label
	}
	return m.Label + " (" + m.Unit + ")"
}

// Metrics returns all definitions, in the order of reports.
func Metrics() []Metric { return append([]Metric(nil), metrics...) }

// MetricByTag returns the definition with the tag.
func MetricByTag(tag string) (Metric, bool) {
	for _, m := range metrics {
		if m.Tag == tag {
			return m, true
		}
	}
	return Metric{}, false
}

const (
	ms  = float64(time.Millisecond)
	one = 1.0
)

// adjustable reports whether the metric also exists as adj_<tag> if requests
// failed.
func (m Metric) adjustable() bool {
	switch m.Tag {
	case "request_latency", "time_to_first_token", "inter_token_latency", "decode_duration":
		return true
	}
	return false
}

// adjust returns the adj_ metric.
func (m Metric) adjust() Metric {
	m.Tag = "adj_" + m.Tag
	m.Label = "Adjusted " + m.Label
	m.Formula += "; infinite for a failed request; percentiles by the nearest rank"
	m.Adjusted, m.of = true, nil
	return m
}

var metrics = []Metric{
	{Tag: "time_to_first_token", Label: "Time to First Token", Unit: "ms", Scope: PerRequest, StreamingOnly: true,
		Formula: "c1 - s", per: ms, of: duration((*record.Record).TTFT)},
	{Tag: "time_to_second_token", Label: "Time to Second Token", Unit: "ms", Scope: PerRequest, StreamingOnly: true,
		Formula: "c2 - c1 (the gap between the first two events)", per: ms, of: duration((*record.Record).TTST)},
	{Tag: "time_to_first_output_token", Label: "Time to First Output Token", Unit: "ms", Scope: PerRequest, StreamingOnly: true,
		Formula: "first event with text, a refusal or a tool call (not reasoning) - s", per: ms, of: duration((*record.Record).TTFO)},
	{Tag: "request_latency", Label: "Request Latency", Unit: "ms", Scope: PerRequest,
		Formula: "cn - s", per: ms, of: duration((*record.Record).RequestLatency)},
	{Tag: "decode_duration", Label: "Decode Duration", Unit: "ms", Scope: PerRequest, StreamingOnly: true,
		Formula: "cn - c1", per: ms, of: duration((*record.Record).DecodeDuration)},
	{Tag: "inter_token_latency", Label: "Inter Token Latency", Unit: "ms", Scope: PerRequest, StreamingOnly: true,
		Formula: "(cn - c1) / (OSL - 1), one value per request", per: ms, of: (*record.Record).ITL},
	{Tag: "inter_chunk_latency", Label: "Inter Chunk Latency", Unit: "ms", Scope: PerGap, StreamingOnly: true,
		Formula: "gaps between neighbouring events with output, of all requests together", per: ms},
	{Tag: "time_to_first_token_from_due", Label: "Time to First Token From Due", Unit: "ms", Scope: PerRequest, StreamingOnly: true, OpenLoopOnly: true,
		Formula: "c1 - the time that the schedule wanted the request to start", per: ms, of: duration((*record.Record).TTFTFromDue)},
	{Tag: "request_latency_from_due", Label: "Request Latency From Due", Unit: "ms", Scope: PerRequest, OpenLoopOnly: true,
		Formula: "cn - the time that the schedule wanted the request to start", per: ms, of: duration((*record.Record).LatencyFromDue)},
	{Tag: "schedule_lateness", Label: "Schedule Lateness", Unit: "ms", Scope: PerSent, OpenLoopOnly: true,
		Formula: "s - the time that the schedule wanted, of all requests sent", per: ms, of: duration((*record.Record).Lateness)},
	{Tag: "output_token_throughput_per_user", Label: "Output Token Throughput Per User", Unit: "tokens/sec/user", Scope: PerRequest, StreamingOnly: true, LargerIsBetter: true,
		Formula: "1 / inter token latency", per: one, of: (*record.Record).ThroughputPerUser},
	{Tag: "e2e_output_token_throughput", Label: "E2E Output Token Throughput", Unit: "tokens/sec/user", Scope: PerRequest, LargerIsBetter: true,
		Formula: "OSL / request latency", per: one, of: (*record.Record).E2EThroughput},
	{Tag: "prefill_throughput_per_user", Label: "Prefill Throughput Per User", Unit: "tokens/sec/user", Scope: PerRequest, StreamingOnly: true, LargerIsBetter: true,
		Formula: "input tokens / time to first token", per: one, of: (*record.Record).PrefillThroughput},
	{Tag: "output_sequence_length", Label: "Output Sequence Length", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "OSL: output + reasoning tokens", per: one, of: integer((*record.Record).OSL)},
	{Tag: "input_sequence_length", Label: "Input Sequence Length", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "input tokens", per: one, of: integer((*record.Record).ISL)},
	{Tag: "output_token_count", Label: "Output Token Count", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "output tokens without reasoning", per: one, of: count(func(r *record.Record) record.Count { return r.Tokens.Output })},
	{Tag: "reasoning_token_count", Label: "Reasoning Token Count", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "reasoning tokens", per: one, of: count(func(r *record.Record) record.Count { return r.Tokens.Reasoning })},
	{Tag: "cached_token_count", Label: "Cached Token Count", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "input tokens that the server took from its prefix cache", per: one, of: count(func(r *record.Record) record.Count { return r.Tokens.Cached })},
	{Tag: "ttft_per_uncached_token", Label: "TTFT Per Uncached Token", Unit: "ms/token", Scope: PerRequest, StreamingOnly: true,
		Formula: "time to first token / (input - cached tokens)", per: ms, of: ttftPerUncached},
	{Tag: "tokens_per_chunk", Label: "Tokens Per Chunk", Unit: "tokens", Scope: PerRequest, StreamingOnly: true, LargerIsBetter: true,
		Formula: "OSL / events with output", per: one, of: tokensPerChunk},
	{Tag: "usage_prompt_tokens", Label: "Usage Prompt Tokens", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "the server's usage.prompt_tokens", per: one, of: count(func(r *record.Record) record.Count { return r.Usage.Prompt })},
	{Tag: "usage_completion_tokens", Label: "Usage Completion Tokens", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "the server's usage.completion_tokens", per: one, of: count(func(r *record.Record) record.Count { return r.Usage.Completion })},
	{Tag: "usage_total_tokens", Label: "Usage Total Tokens", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "the server's usage.total_tokens", per: one, of: count(func(r *record.Record) record.Count { return r.Usage.Total })},
	{Tag: "usage_reasoning_tokens", Label: "Usage Reasoning Tokens", Unit: "tokens", Scope: PerRequest, LargerIsBetter: true,
		Formula: "the server's usage.completion_tokens_details.reasoning_tokens", per: one, of: count(func(r *record.Record) record.Count { return r.Usage.Reasoning })},

	{Tag: "request_throughput", Label: "Request Throughput", Unit: "requests/sec", Scope: PerRun, LargerIsBetter: true,
		Formula: "valid requests / benchmark duration", run: func(t *tally) (float64, bool) { return t.rate(t.valid, t.valid > 0) }},
	{Tag: "output_token_throughput", Label: "Output Token Throughput", Unit: "tokens/sec", Scope: PerRun, LargerIsBetter: true,
		Formula: "sum of OSL / benchmark duration", run: func(t *tally) (float64, bool) { return t.rate(t.osl.sum, t.osl.n > 0) }},
	{Tag: "input_token_throughput", Label: "Input Token Throughput", Unit: "tokens/sec", Scope: PerRun, LargerIsBetter: true,
		Formula: "sum of input tokens / benchmark duration", run: func(t *tally) (float64, bool) { return t.rate(t.isl.sum, t.isl.n > 0) }},
	{Tag: "total_token_throughput", Label: "Total Token Throughput", Unit: "tokens/sec", Scope: PerRun, LargerIsBetter: true,
		Formula: "(sum of input tokens + sum of OSL) / benchmark duration", run: func(t *tally) (float64, bool) { return t.rate(t.isl.sum+t.osl.sum, t.isl.n > 0 && t.osl.n > 0) }},
	{Tag: "goodput", Label: "Goodput", Unit: "requests/sec", Scope: PerRun, LargerIsBetter: true,
		Formula: "requests that meet every objective / benchmark duration", run: func(t *tally) (float64, bool) { return t.rate(t.good, t.objectives && t.valid > 0) }},
	{Tag: "good_request_count", Label: "Good Request Count", Unit: "requests", Scope: PerRun, LargerIsBetter: true, Integer: true,
		Formula: "requests that meet every objective; one that lacks a metric is not good", whole: func(t *tally) (int64, bool) { return t.good, t.objectives }},
	{Tag: "good_request_fraction", Label: "Good Request Fraction", Unit: "ratio", Scope: PerRun, LargerIsBetter: true,
		Formula: "good requests / (valid + failed requests)", run: func(t *tally) (float64, bool) {
			return float64(t.good) / float64(max(t.valid+t.errors, 1)), t.objectives
		}},
	{Tag: "request_count", Label: "Request Count", Unit: "requests", Scope: PerRun, LargerIsBetter: true, Integer: true,
		Formula: "valid requests: measured, ended properly, with output", whole: func(t *tally) (int64, bool) { return t.valid, true }},
	{Tag: "error_request_count", Label: "Error Request Count", Unit: "requests", Scope: PerRun, Integer: true,
		Formula: "measured requests that failed; cancelled and unsent ones are not among them", whole: func(t *tally) (int64, bool) { return t.errors, true }},
	{Tag: "cancelled_request_count", Label: "Cancelled Request Count", Unit: "requests", Scope: PerRun, Integer: true,
		Formula: "measured requests that we cancelled", whole: func(t *tally) (int64, bool) { return t.cancelled, true }},
	{Tag: "completed_request_count", Label: "Completed Request Count", Unit: "requests", Scope: PerRun, LargerIsBetter: true, Integer: true,
		Formula: "valid + failed requests", whole: func(t *tally) (int64, bool) { return t.valid + t.errors, true }},
	{Tag: "request_error_rate", Label: "Request Error Rate", Unit: "%", Scope: PerRun,
		Formula: "100 * failed / (valid + failed) requests", run: func(t *tally) (float64, bool) {
			return 100 * float64(t.errors) / float64(max(t.valid+t.errors, 1)), t.valid+t.errors > 0
		}},
	{Tag: "benchmark_duration", Label: "Benchmark Duration", Unit: "sec", Scope: PerRun,
		Formula: "from the earliest s to the latest cn of valid requests", run: (*tally).window},
	{Tag: "min_request_timestamp", Label: "Minimum Request Timestamp", Unit: "ns", Scope: PerRun, Integer: true,
		Formula: "the earliest s of valid requests, since 1970", whole: func(t *tally) (int64, bool) { return t.epoch + int64(t.first), t.valid > 0 }},
	{Tag: "max_response_timestamp", Label: "Maximum Response Timestamp", Unit: "ns", Scope: PerRun, Integer: true,
		Formula: "the latest cn of valid requests, since 1970", whole: func(t *tally) (int64, bool) { return t.epoch + int64(t.last), t.valid > 0 }},
	{Tag: "total_isl", Label: "Total Input Sequence Length", Unit: "tokens", Scope: PerRun, LargerIsBetter: true, Integer: true,
		Formula: "sum of input tokens", whole: func(t *tally) (int64, bool) { return t.isl.sum, t.isl.n > 0 }},
	{Tag: "total_osl", Label: "Total Output Sequence Length", Unit: "tokens", Scope: PerRun, LargerIsBetter: true, Integer: true,
		Formula: "sum of OSL", whole: func(t *tally) (int64, bool) { return t.osl.sum, t.osl.n > 0 }},
	{Tag: "total_output_tokens", Label: "Total Output Tokens", Unit: "tokens", Scope: PerRun, LargerIsBetter: true, Integer: true,
		Formula: "sum of output tokens without reasoning", whole: func(t *tally) (int64, bool) { return t.output.sum, t.output.n > 0 }},
	{Tag: "total_reasoning_tokens", Label: "Total Reasoning Tokens", Unit: "tokens", Scope: PerRun, LargerIsBetter: true, Integer: true,
		Formula: "sum of reasoning tokens", whole: func(t *tally) (int64, bool) { return t.reasoning.sum, t.reasoning.n > 0 }},
}

func duration(f func(*record.Record) (time.Duration, bool)) func(*record.Record) (float64, bool) {
	return func(r *record.Record) (float64, bool) {
		d, ok := f(r)
		return float64(d), ok
	}
}

func integer(f func(*record.Record) (int64, bool)) func(*record.Record) (float64, bool) {
	return func(r *record.Record) (float64, bool) {
		n, ok := f(r)
		return float64(n), ok
	}
}

func count(f func(*record.Record) record.Count) func(*record.Record) (float64, bool) {
	return func(r *record.Record) (float64, bool) {
		n := f(r)
		return float64(n), n.IsKnown()
	}
}

func tokensPerChunk(r *record.Record) (float64, bool) {
	osl, ok := r.OSL()
	if !ok || !r.Streamed || len(r.Chunks) == 0 {
		return 0, false
	}
	return float64(osl) / float64(len(r.Chunks)), true
}
