package openai

import (
	"math"
	"time"

	"github.com/valyala/fastjson"

	"github.com/tokmark/tokmark/bench/record"
)

// The places in an answer where servers tell the timings of its request.
const (
	llamaTimings  = "timings"
	vllmTimings   = "metrics"
	dynamoTimings = "nvext.timing"
	groqTimings   = "x_groq.usage"
	nimTimings    = "stats"
)

// TimingSources lists the places in an answer where a server's timings of the
// request are read; record.ServerTimings.Source is one of them.
func TimingSources() []string {
	return []string{llamaTimings, vllmTimings, dynamoTimings, groqTimings, nimTimings}
}

// phases are what an event tells of the request's time in the server. They hold
// no pointer, so that an event which tells them costs no allocation; a negative
// time is one that was not told.
type phases struct {
	source                       string // empty: nothing was told
	queue, prefill, decode, ttft time.Duration
	drafted, accepted            record.Count
}

// readPhases takes the server's timings of an event or body, wherever it puts
// them. A source is known by its own figure: other objects of the same name are
// passed over.
func readPhases(v *fastjson.Value) phases {
	const untold = -1
	p := phases{queue: untold, prefill: untold, decode: untold, ttft: untold, drafted: record.Unknown, accepted: record.Unknown}
	if t := v.Get("timings"); t.Exists("prompt_ms") { // llama.cpp
		p.source = llamaTimings
		p.prefill, p.decode = span(t.Get("prompt_ms"), time.Millisecond), span(t.Get("predicted_ms"), time.Millisecond)
		p.drafted, p.accepted = count(t.Get("draft_n")), count(t.Get("draft_n_accepted"))
		return p
	}
	metrics := v.Get("metrics")
	if metrics == nil {
		metrics = v.Get("response", "metrics")
	}
	if metrics.Exists("time_to_first_token_ms") { // vLLM
		p.source = vllmTimings
		p.queue = span(metrics.Get("queue_time_ms"), time.Millisecond)
		// Its first token counts from scheduling.
		p.prefill = span(metrics.Get("time_to_first_token_ms"), time.Millisecond)
		p.decode = span(metrics.Get("generation_time_ms"), time.Millisecond)
		s := metrics.Get("speculative_decoding")
		p.drafted, p.accepted = count(s.Get("num_draft_tokens")), count(s.Get("num_accepted_draft_tokens"))
		return p
	}
	if t := v.Get("nvext", "timing"); t.Exists("ttft_ms") || t.Exists("prefill_time_ms") { // Dynamo
		p.source = dynamoTimings
		p.queue = span(t.Get("prefill_wait_time_ms"), time.Millisecond)
		p.prefill = span(t.Get("prefill_time_ms"), time.Millisecond)
		p.ttft = span(t.Get("ttft_ms"), time.Millisecond)
		if whole := span(t.Get("total_time_ms"), time.Millisecond); p.ttft >= 0 && whole >= p.ttft {
			p.decode = whole - p.ttft
		}
		return p
	}
	if u := v.Get("x_groq", "usage"); u.Exists("prompt_time") {
		p.source = groqTimings
		p.queue = span(u.Get("queue_time"), time.Second)
		p.prefill = span(u.Get("prompt_time"), time.Second)
		p.decode = span(u.Get("completion_time"), time.Second)
		return p
	}
	if s := v.Get("stats"); s.Exists("time_in_queue_in_ms") { // NIM 1.x
		p.source = nimTimings
		p.queue = span(s.Get("time_in_queue_in_ms"), time.Millisecond)
		p.ttft = span(s.Get("response_tokens", "time_to_first_token_in_ms"), time.Millisecond)
		if whole := span(s.Get("generation_time_in_ms"), time.Millisecond); p.ttft >= 0 && whole >= p.ttft {
			p.decode = whole - p.ttft
		}
	}
	return p
}

// span reads a time in a unit; anything but a number that is not negative is
// untold.
func span(v *fastjson.Value, unit time.Duration) time.Duration {
	if v == nil || v.Type() != fastjson.TypeNumber {
		return -1
	}
	f, err := v.Float64()
	if ns := f * float64(unit); err == nil && ns >= 0 && ns < math.MaxInt64 {
		return time.Duration(math.Round(ns))
	}
	return -1
}

// record returns what is kept of them; nil: nothing was told.
func (p *phases) record() *record.ServerTimings {
	if p.source == "" {
		return nil
	}
	told := func(d time.Duration) *time.Duration {
		if d < 0 {
			return nil
		}
		return &d
	}
	return &record.ServerTimings{
		Queue: told(p.queue), Prefill: told(p.prefill), Decode: told(p.decode), TTFT: told(p.ttft),
		Source: p.source, DraftTokens: p.drafted, AcceptedTokens: p.accepted,
	}
}
