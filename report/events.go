package report

import "github.com/tokmark/tokmark/bench/record"

// Events compares events with tokens, over the valid streams whose output
// tokens are known. An event is never counted as a token; a tool that does
// shows EventRate in place of TokenRate.
type Events struct {
	Answers int64 `json:"answers"`
	Events  int64 `json:"events"`
	Tokens  int64 `json:"tokens"`
	// PerEvent is tokens / events; the tokens come from Source.
	PerEvent float64       `json:"tokens_per_event"`
	Source   record.Source `json:"source"`
	// Told is the share of events that told their own tokens (by running usage
	// or token ids), Most the most that one of them told.
	Told float64 `json:"events_that_tell_share"`
	Most *int64  `json:"most_tokens_in_event,omitempty"`
	// EventGap and TokenGap are decode time / (events - 1) and / (tokens - 1),
	// in milliseconds, over all answers together.
	EventGap *float64 `json:"event_gap_ms,omitempty"`
	TokenGap *float64 `json:"token_gap_ms,omitempty"`
	// TokenRate and EventRate are tokens and events a second of the benchmark
	// duration.
	TokenRate *float64 `json:"tokens_per_s,omitempty"`
	EventRate *float64 `json:"events_per_s,omitempty"`
}

// Differ reports whether events and tokens are more than 1 % apart.
func (e *Events) Differ() bool { return e != nil && (e.PerEvent > 1.01 || e.PerEvent < 0.99) }

// Speculation is what is known of speculative decoding; nil is unknown.
type Speculation struct {
	// AcceptedLength is the mean number of tokens of a step: 1 + accepted /
	// drafts. AcceptanceRate is accepted / drafted tokens.
	AcceptedLength *float64 `json:"accepted_length,omitempty"`
	AcceptanceRate *float64 `json:"acceptance_rate,omitempty"`
	Drafts         *float64 `json:"drafts,omitempty"` // steps
	Drafted        *float64 `json:"drafted_tokens,omitempty"`
	Accepted       *float64 `json:"accepted_tokens,omitempty"`
	Source         string   `json:"source"`
}

// The sources of Speculation beside FromServerAnswers. A gauge is a rate that
// the server averages itself, over a time that it does not tell.
const (
	FromServerCounters = "server counters"
	FromServerGauge    = "server gauge, mean of samples"
)

// Reasoning splits output into what was thought and what was answered, over
// the valid answers that tell of reasoning. Times are means in milliseconds.
type Reasoning struct {
	Answers int64 `json:"answers"` // with reasoning
	Tokens  int64 `json:"reasoning_tokens"`
	// Share is Tokens / output tokens of all valid answers.
	Share *float64 `json:"share,omitempty"`
	// First is the time to first token, FirstAnswer that to the first token of
	// the answer, over the streams that have both.
	First       *float64 `json:"time_to_first_token_ms,omitempty"`
	FirstAnswer *float64 `json:"time_to_first_output_token_ms,omitempty"`
}

// events is what is kept for all three.
type events struct {
	answers, events, tokens int64
	told, most              int64
	reasons                 int64
	first, firstAnswer      sum
	drafted, accepted       sum
}

func (t *tally) addStream(r *record.Record) {
	e := &t.events
	reasons := r.Tokens.Reasoning > 0 || r.Usage.Reasoning > 0
	for i := range r.Chunks {
		reasons = reasons || r.Chunks[i].Kind&record.KindReasoning != 0
	}
	if reasons {
		e.reasons++
		ttft, ok := r.TTFT()
		if answer, too := r.TTFO(); ok && too {
			e.first.add(int64(ttft))
			e.firstAnswer.add(int64(answer))
		}
	}
	if told := r.ServerTimings; told != nil && told.DraftTokens.IsKnown() && told.AcceptedTokens.IsKnown() {
		e.drafted.add(int64(told.DraftTokens))
		e.accepted.add(int64(told.AcceptedTokens))
	}
	osl, ok := r.OSL()
	if !ok || !r.Streamed {
		return
	}
	e.answers++
	e.events += int64(len(r.Chunks))
	e.tokens += osl
	for i := range r.Chunks {
		if n := r.Chunks[i].Tokens; n != record.UnknownTokens {
			e.told++
			e.most = max(e.most, int64(n))
		}
	}
}

func (t *tally) eventsResult() *Events {
	e, v := &t.events, &t.served
	if e.events == 0 {
		return nil
	}
	out := &Events{
		Answers: e.answers, Events: e.events, Tokens: e.tokens,
		PerEvent: float64(e.tokens) / float64(e.events), Told: float64(e.told) / float64(e.events),
		EventGap: ratio(float64(v.decode)/ms, float64(v.eventGaps)),
		TokenGap: ratio(float64(v.decode)/ms, float64(v.tokenGaps)),
	}
	if sources := t.tokenSources(); len(sources) > 0 {
		out.Source = sources[0].Source
	}
	if e.told > 0 {
		out.Most = &e.most
	}
	if seconds, ok := t.window(); ok {
		out.TokenRate, out.EventRate = ratio(float64(e.tokens), seconds), ratio(float64(e.events), seconds)
	}
	return out
}

// speculation takes what the server counted in the window, else what answers
// tell, else its gauges; nil if nothing was drafted.
func (t *tally) speculation() *Speculation {
	w, e := &t.server, &t.events
	known := func(name string) *float64 {
		if v, ok := w.counters[name]; ok {
			return &v
		}
		return nil
	}
	out := &Speculation{
		Drafts: known(metricDrafts), Drafted: known(metricDrafted), Accepted: known(metricAccepted),
		AcceptanceRate: w.ratio(metricAccepted, metricDrafted), Source: FromServerCounters,
	}
	if perDraft := w.ratio(metricAccepted, metricDrafts); perDraft != nil {
		length := 1 + *perDraft
		out.AcceptedLength = &length
	}
	if out.AcceptanceRate != nil || out.AcceptedLength != nil {
		return out
	}
	if e.drafted.sum > 0 {
		drafted, accepted := float64(e.drafted.sum), float64(e.accepted.sum)
		return &Speculation{Drafted: &drafted, Accepted: &accepted, AcceptanceRate: ratio(accepted, drafted), Source: FromServerAnswers}
	}
	out = &Speculation{Source: FromServerGauge}
	if length, ok := w.gauges[metricAcceptLen]; ok {
		out.AcceptedLength = &length.Mean
	}
	if rate, ok := w.gauges[metricAcceptRate]; ok {
		out.AcceptanceRate = &rate.Mean
	}
	// A server that does not speculate shows 0, or steps of one token.
	if (out.AcceptanceRate == nil || *out.AcceptanceRate == 0) && (out.AcceptedLength == nil || *out.AcceptedLength <= 1) {
		return nil
	}
	return out
}

func (t *tally) reasoningResult() *Reasoning {
	e := &t.events
	if e.reasons == 0 {
		return nil
	}
	return &Reasoning{
		Answers: e.reasons, Tokens: t.reasoning.sum, Share: ratio(float64(t.reasoning.sum), float64(t.osl.sum)),
		First: e.first.mean(), FirstAnswer: e.firstAnswer.mean(),
	}
}
