package record

import "time"

// The timings of one record. Each is the only definition of its metric, after
// AIPerf: s is Start; c1, c2, cn the arrivals of the first, second and last
// event with output; OSL the output sequence length. ok is false where the
// record has no such value: missing is never 0.

// Valid reports whether the record enters the metrics: a measured request that
// ended OK with output later than its start.
func (r *Record) Valid() bool {
	return r.Phase == PhaseMeasure && r.Outcome == OK && len(r.Chunks) > 0 && r.lastOutput() > r.Start
}

func (r *Record) lastOutput() Time { return r.Chunks[len(r.Chunks)-1].At }

// LastOutput is cn.
func (r *Record) LastOutput() (Time, bool) {
	if len(r.Chunks) == 0 {
		return Unset, false
	}
	return r.lastOutput(), true
}

// RequestLatency is cn - s.
func (r *Record) RequestLatency() (time.Duration, bool) {
	if len(r.Chunks) == 0 {
		return 0, false
	}
	return r.lastOutput().Sub(r.Start), true
}

// LatencyFromDue is cn - due: what a user of an open-loop load waits, the time
// that the request was late included.
func (r *Record) LatencyFromDue() (time.Duration, bool) {
	if len(r.Chunks) == 0 || !r.Due.IsSet() {
		return 0, false
	}
	return r.lastOutput().Sub(r.Due), true
}

// Lateness is start - due.
func (r *Record) Lateness() (time.Duration, bool) {
	if !r.Due.IsSet() || !r.Start.IsSet() {
		return 0, false
	}
	return r.Start.Sub(r.Due), true
}

// OwnLateness is the lateness without what the request waited for a cap.
func (r *Record) OwnLateness() (time.Duration, bool) {
	late, ok := r.Lateness()
	return max(0, late-r.CapWait), ok
}

// TTFT is c1 - s, for streamed answers.
func (r *Record) TTFT() (time.Duration, bool) {
	if !r.Streamed || len(r.Chunks) == 0 {
		return 0, false
	}
	return r.Chunks[0].At.Sub(r.Start), true
}

// TTFTFromDue is c1 - due.
func (r *Record) TTFTFromDue() (time.Duration, bool) {
	if !r.Streamed || len(r.Chunks) == 0 || !r.Due.IsSet() {
		return 0, false
	}
	return r.Chunks[0].At.Sub(r.Due), true
}

// TTST is c2 - c1: really the gap to the second event.
func (r *Record) TTST() (time.Duration, bool) {
	if !r.Streamed || len(r.Chunks) < 2 {
		return 0, false
	}
	return r.Chunks[1].At.Sub(r.Chunks[0].At), true
}

// TTFO is the arrival of the first event with text, refusal or a tool call, so
// not of reasoning, minus s.
func (r *Record) TTFO() (time.Duration, bool) {
	if !r.Streamed {
		return 0, false
	}
	for _, c := range r.Chunks {
		if c.Kind.Answer() {
			return c.At.Sub(r.Start), true
		}
	}
	return 0, false
}

// DecodeDuration is cn - c1.
func (r *Record) DecodeDuration() (time.Duration, bool) {
	if !r.Streamed || len(r.Chunks) == 0 {
		return 0, false
	}
	return r.lastOutput().Sub(r.Chunks[0].At), true
}

// ITL is (cn - c1) / (OSL - 1) in nanoseconds, not rounded; it needs OSL >= 2.
func (r *Record) ITL() (float64, bool) {
	d, ok := r.DecodeDuration()
	osl, known := r.OSL()
	if !ok || !known || osl < 2 {
		return 0, false
	}
	return float64(d) / float64(osl-1), true
}

// Gaps appends the gaps between neighbouring events with output to dst.
func (r *Record) Gaps(dst []time.Duration) []time.Duration {
	if !r.Streamed {
		return dst
	}
	for i := 1; i < len(r.Chunks); i++ {
		dst = append(dst, r.Chunks[i].At.Sub(r.Chunks[i-1].At))
	}
	return dst
}

// ISL is the number of input tokens.
func (r *Record) ISL() (int64, bool) { return int64(r.Tokens.Input), r.Tokens.Input.IsKnown() }

// OSL is output + reasoning tokens. It is known as soon as one of them is.
func (r *Record) OSL() (int64, bool) {
	out, reasoning := r.Tokens.Output, r.Tokens.Reasoning
	if !out.IsKnown() && !reasoning.IsKnown() {
		return 0, false
	}
	return int64(max(out, 0) + max(reasoning, 0)), true
}

// ThroughputPerUser is 1 / ITL in tokens per second; absent if ITL is 0.
func (r *Record) ThroughputPerUser() (float64, bool) {
	itl, ok := r.ITL()
	if !ok || itl == 0 {
		return 0, false
	}
	return 1e9 / itl, true
}

// E2EThroughput is OSL / request latency in tokens per second.
func (r *Record) E2EThroughput() (float64, bool) {
	l, ok := r.RequestLatency()
	osl, known := r.OSL()
	if !ok || !known || l <= 0 {
		return 0, false
	}
	return float64(osl) / l.Seconds(), true
}

// PrefillThroughput is ISL / TTFT in tokens per second.
func (r *Record) PrefillThroughput() (float64, bool) {
	t, ok := r.TTFT()
	isl, known := r.ISL()
	if !ok || !known || t <= 0 {
		return 0, false
	}
	return float64(isl) / t.Seconds(), true
}
