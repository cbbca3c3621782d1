package like

import (
	"math"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// vllm holds the definitions of vLLM's serving benchmark.
var vllm = []definition{
	{"request_count", "completed", "requests", []step{
		{"an answer counts as soon as any event came", func(run *Run) (result, bool) { return result{value: run.count(vllmCounts)}, true }},
	}},
	{"request_throughput", "request_throughput", "requests/sec", []step{
		{"divided by the whole wall time, up to the last [DONE] or failure", rate(func(run *Run) (float64, bool) { n := run.count(vllmCounts); return n, n > 0 }, wallTime)},
	}},
	{"output_token_throughput", "output_throughput", "tokens/sec", []step{
		{"divided by the whole wall time, up to the last [DONE] or failure", rate(func(run *Run) (float64, bool) { return run.total(vllmCounts, usageTokens) }, wallTime)},
	}},
	{"total_token_throughput", "total_token_throughput", "tokens/sec", []step{
		{"divided by the whole wall time, up to the last [DONE] or failure", rate(func(run *Run) (float64, bool) {
			out, ok1 := run.total(vllmCounts, usageTokens)
			in, ok2 := run.total(vllmCounts, (*record.Record).ISL)
			return in + out, ok1 && ok2
		}, wallTime)},
	}},
	{"time_to_first_token", "ttft", "ms", []step{
		{"the first event counts, mostly the role event that holds no token", distribution(vllmCounts, one(vllmTTFT), ms)},
	}},
	{"inter_token_latency", "tpot", "ms", []step{
		{"from the first event to the finish event", distribution(vllmCounts, one(vllmTPOT), ms)},
	}},
	{"inter_token_latency", "itl", "ms", []step{
		{"event gaps pooled, not one mean a request and not divided by tokens", ourFigure("inter_chunk_latency")},
		{"role event and finish event included", distribution(vllmCounts, func(r *record.Record, add func(float64)) {
			addGaps(vllmGaps(r), add)
		}, ms)},
	}},
	{"request_latency", "e2el", "ms", []step{
		{"up to the finish event", distribution(vllmCounts, one(vllmLatency), ms)},
	}},
	{"goodput", "request_goodput", "requests/sec", []step{
		{"only ttft, tpot and e2el; divided by the whole wall time", vllmGoodput},
	}},
}

// vllmCounts: an answer succeeds if any event with choices came; an error
// object later in the stream is not noticed. That tool knows streams alone: a
// whole answer that was asked for as such stands for a stream of one event.
func vllmCounts(_ *Run, r *record.Record) bool {
	switch r.Outcome {
	case record.OK, record.Truncated, record.StreamError, record.Empty:
		return (r.Streamed || !r.Streaming) && (r.FirstEvent.IsSet() || len(r.Chunks) > 0)
	default:
		return false
	}
}

// firstEvent is the arrival of the first event; imported records may know the
// first output only.
func firstEvent(r *record.Record) record.Time {
	if !r.FirstEvent.IsSet() && len(r.Chunks) > 0 {
		return r.Chunks[0].At
	}
	return r.FirstEvent
}

// finishEvent is the arrival of the last event with choices. Records keep that
// of output and the end of the exchange: where events without output came after
// the last token, it lies between the two, and the end stands for it.
func finishEvent(r *record.Record) record.Time {
	last := firstEvent(r)
	if n := len(r.Chunks); n > 0 {
		last = r.Chunks[n-1].At
	}
	after := r.Events - 1 - r.LastTokenEvent
	if r.Done {
		after--
	}
	if after > 0 && r.End > last {
		last = r.End
	}
	return last
}

func vllmTTFT(r *record.Record) (int64, bool) { return int64(firstEvent(r) - r.Start), true }

func vllmLatency(r *record.Record) (int64, bool) { return int64(finishEvent(r) - r.Start), true }

func vllmGaps(r *record.Record) []time.Duration {
	at := []record.Time{firstEvent(r)}
	for i, c := range r.Chunks {
		if i > 0 || c.At > at[0] {
			at = append(at, c.At)
		}
	}
	if end := finishEvent(r); end > at[len(at)-1] {
		at = append(at, end)
	}
	gaps := make([]time.Duration, len(at)-1)
	for i := range gaps {
		gaps[i] = at[i+1].Sub(at[i])
	}
	return gaps
}

func vllmTPOT(r *record.Record) (float64, bool) {
	n, ok := usageTokens(r)
	if !ok || n < 2 || !r.Streamed {
		return 0, false
	}
	return float64(finishEvent(r)-firstEvent(r)) / float64(n-1), true
}

// usageTokens are the completion tokens of the usage, else ours.
func usageTokens(r *record.Record) (int64, bool) {
	if r.Usage.Completion.IsKnown() {
		return int64(r.Usage.Completion), true
	}
	return r.OSL()
}

func vllmGoodput(run *Run) (result, bool) {
	if len(run.m.Goodput) == 0 {
		return result{}, false
	}
	names := map[string]func(*record.Record) (float64, bool){
		"time_to_first_token": func(r *record.Record) (float64, bool) { v, ok := vllmTTFT(r); return float64(v) / ms, ok },
		"inter_token_latency": func(r *record.Record) (float64, bool) { v, _ := vllmTPOT(r); return v / ms, true }, // 0 without one
		"request_latency":     func(r *record.Record) (float64, bool) { v, ok := vllmLatency(r); return float64(v) / ms, ok },
	}
	for tag := range run.m.Goodput {
		if names[tag] == nil {
			return result{}, false
		}
	}
	good := 0.0
	for _, r := range run.sent {
		if vllmCounts(run, r) && meets(run.m.Goodput, func(tag string) (float64, bool) { return names[tag](r) }) {
			good++
		}
	}
	seconds, ok := wallTime(run)
	if !ok {
		return result{}, false
	}
	return result{value: good / seconds}, true
}

// wallTime runs from the first start to the end of the last exchange, failed
// ones included.
func wallTime(run *Run) (float64, bool) { return run.span(everyone, exchangeEnd) }

func exchangeEnd(r *record.Record) (record.Time, bool) {
	end := r.End
	if last, ok := r.LastOutput(); ok {
		end = max(end, last)
	}
	return end, end.IsSet()
}

// sglang holds the definitions of SGLang's serving benchmark, for the OpenAI
// endpoints.
var sglang = []definition{
	{"request_count", "completed", "requests", []step{
		{"answers with text or reasoning", func(run *Run) (result, bool) { return result{value: run.count(sglangCounts)}, true }},
	}},
	{"request_throughput", "request_throughput", "requests/sec", []step{
		{"divided by the whole wall time, up to the last [DONE] or failure", rate(func(run *Run) (float64, bool) { n := run.count(sglangCounts); return n, n > 0 }, wallTime)},
	}},
	{"output_token_throughput", "output_throughput", "tokens/sec", []step{
		{"divided by the whole wall time, up to the last [DONE] or failure", rate(func(run *Run) (float64, bool) { return run.total(sglangCounts, sglangOSL) }, wallTime)},
	}},
	{"time_to_first_token", "ttft", "ms", []step{
		{"text or reasoning, not tool calls", distribution(sglangCounts, one(sglangTTFT), ms)},
	}},
	{"inter_token_latency", "tpot", "ms", []step{
		{"up to [DONE]", distribution(sglangCounts, one(sglangTPOT), ms)},
	}},
	{"inter_token_latency", "itl", "ms", []step{
		{"event gaps pooled, not one mean a request and not divided by tokens", distribution(sglangCounts, func(r *record.Record, add func(float64)) {
			at := sglangEvents(r)
			for i := 1; i < len(at); i++ {
				add(float64(at[i] - at[i-1]))
			}
		}, ms)},
	}},
	{"request_latency", "e2e_latency", "ms", []step{
		{"up to [DONE]", distribution(sglangCounts, one(wholeExchange), ms)},
	}},
	{"", "concurrency", "requests", []step{
		{"sum of the latencies over the wall time", rate(func(run *Run) (float64, bool) {
			ns, ok := run.total(sglangCounts, wholeExchange)
			return ns / 1e9, ok
		}, wallTime)},
	}},
}

func sglangCounts(_ *Run, r *record.Record) bool {
	return (r.Outcome == record.OK || r.Outcome == record.Truncated) && len(sglangEvents(r)) > 0
}

func sglangEvents(r *record.Record) []record.Time {
	var at []record.Time
	for _, c := range r.Chunks {
		if c.Kind&(record.KindText|record.KindReasoning) != 0 {
			at = append(at, c.At)
		}
	}
	return at
}

func sglangTTFT(r *record.Record) (int64, bool) { return int64(sglangEvents(r)[0] - r.Start), true }

func wholeExchange(r *record.Record) (int64, bool) {
	end, ok := exchangeEnd(r)
	return int64(end - r.Start), ok
}

// sglangOSL falls back on what was asked for, whatever came.
func sglangOSL(r *record.Record) (int64, bool) {
	switch {
	case r.Usage.Completion.IsKnown():
		return int64(r.Usage.Completion), true
	case r.AskedOutput.IsKnown():
		return int64(r.AskedOutput), true
	default:
		return r.OSL()
	}
}

func sglangTPOT(r *record.Record) (float64, bool) {
	latency, ok1 := wholeExchange(r)
	ttft, _ := sglangTTFT(r)
	n, ok2 := sglangOSL(r)
	if !ok1 || !ok2 || n < 2 {
		return 0, false
	}
	return float64(latency-ttft) / float64(n-1), true
}

// guidellm holds the definitions of guidellm's distributions; its rates are
// weighted by time and not among them.
var guidellm = []definition{
	{"request_count", "successful", "requests", nil},
	{"time_to_first_token", "time_to_first_token", "ms", []step{
		{"0 where none is known; percentiles without interpolation", weighted(func(r *record.Record) (float64, float64, bool) {
			v, _ := r.TTFT()
			return float64(v), 1, true
		})},
	}},
	{"inter_token_latency", "inter_token_latency", "ms", []step{
		{"requests weighted by their tokens less one", weighted(func(r *record.Record) (float64, float64, bool) {
			v, ok := r.ITL()
			n, _ := r.OSL()
			return v, float64(n - 1), ok
		})},
	}},
	{"inter_token_latency", "time_per_output_token", "ms", []step{
		{"the time to the first token is included, divided by all tokens, weighted by them", weighted(func(r *record.Record) (float64, float64, bool) {
			latency, ok1 := r.RequestLatency()
			n, ok2 := usageTokens(r)
			return float64(latency) / float64(max(n, 1)), float64(n), ok1 && ok2 && n > 0
		})},
	}},
	{"request_latency", "request_latency", "ms", []step{
		{"up to the end of the stream", weighted(func(r *record.Record) (float64, float64, bool) {
			v, ok := wholeExchange(r)
			return float64(v), 1, ok
		})},
	}},
}

// weighted describes times, in milliseconds, of valid requests that weigh differently, with
// guidellm's percentiles: the first value whose share of the weight reaches p.
func weighted(of func(*record.Record) (v, w float64, ok bool)) compute {
	return func(run *Run) (result, bool) {
		var values, weights []float64
		for _, r := range run.sent {
			if valid(run, r) {
				if v, w, ok := of(r); ok && w > 0 && !math.IsNaN(v) {
					values, weights = append(values, v/ms), append(weights, w)
				}
			}
		}
		return describeWeighted(values, weights)
	}
}

// VLLMRequest is what vLLM's benchmark keeps of one request: the time to its
// first event, the gaps between events, and the tokens of its usage.
type VLLMRequest struct {
	TTFT   time.Duration
	Gaps   []time.Duration
	Tokens int64
}

// VLLMDetail returns a request as vLLM's benchmark would have kept it; false if
// it would have failed it.
func VLLMDetail(r *record.Record) (VLLMRequest, bool) {
	if !vllmCounts(nil, r) {
		return VLLMRequest{}, false
	}
	n, _ := usageTokens(r)
	return VLLMRequest{TTFT: firstEvent(r).Sub(r.Start), Gaps: vllmGaps(r), Tokens: n}, true
}
