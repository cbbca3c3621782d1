package bench

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Gauge is what can be seen of a run while it goes on. Safe for concurrent
// use. Counts are of all phases unless they say otherwise; sums and maxima are
// in nanoseconds.
type Gauge struct {
	Phase atomic.Pointer[record.Phase]
	// Start is the moment of the phase that its schedule counts from, an offset
	// from the origin; record.Unset while the phase is being prepared.
	Start    atomic.Int64
	Sent     atomic.Int64 // of the phase
	InFlight atomic.Int64
	Chunks   atomic.Int64 // events with output

	// Started counts the requests whose lateness by our own doing is known.
	// LateMax is the largest since somebody last swapped it for 0.
	Started, LateSum, LateMax atomic.Int64
	// Shared counts the events with output that came with an earlier one in
	// one read; LagSum is of the other events with output, 0 without kernel
	// stamps. LagMax is as LateMax.
	Shared, LagSum, LagMax atomic.Int64
	// ClockSteps is how often the wall clock was set.
	ClockSteps atomic.Int64
}

// started takes a request that starts now.
func (g *Gauge) started(r *record.Record) {
	late, ok := r.OwnLateness()
	if !ok {
		return
	}
	raise(&g.LateMax, int64(late))
	g.LateSum.Add(int64(late))
	g.Started.Add(1)
}

// chunk takes an event with output. It is called for every one: what shares a
// read shares its lag, so that one count more is enough.
func (g *Gauge) chunk(lag uint32, sameRead bool) {
	g.Chunks.Add(1)
	if sameRead {
		g.Shared.Add(1)
		return
	}
	if lag > 0 {
		raise(&g.LagMax, int64(lag))
		g.LagSum.Add(int64(lag))
	}
}

// Asked follows what a plan asks for while its run goes on, whether or not the
// run keeps up. It serves one goroutine.
type Asked struct {
	plan *Plan
	next func() (time.Duration, bool)
	stop func()
	due  int64         // before offset
	then time.Duration // the next offset
	more bool
}

// NewAsked follows the measurement of the plan, which must have a Gauge. Close
// is to be called after the last use.
func NewAsked(p *Plan) *Asked {
	a := &Asked{plan: p, stop: func() {}}
	if p.Schedule != nil {
		a.next, a.stop = iter.Pull(p.Schedule)
		a.then, a.more = a.next()
	}
	return a
}

// Close ends the following.
func (a *Asked) Close() { a.stop() }

// Due is how many sessions the schedule wanted to be sent until now; ok is
// false if there is no schedule, or now is not in the measurement. Calls are in
// the order of time.
func (a *Asked) Due(now record.Time) (n int64, ok bool) {
	offset, ok := a.offset(now)
	if !ok || a.next == nil {
		return 0, false
	}
	for ; a.more && a.then <= offset && !a.over(); a.then, a.more = a.next() {
		a.due++
	}
	return a.due, true
}

// over reports whether the bounds of the plan end it before the next offset.
func (a *Asked) over() bool {
	p := a.plan
	return p.Duration > 0 && a.then >= p.Duration ||
		p.Requests > 0 && a.due >= p.Requests || p.Sessions > 0 && a.due >= p.Sessions
}

// InFlight is how many requests may be in flight now; ok is false if there is
// no cap, or now is not in the measurement.
func (a *Asked) InFlight(now record.Time) (n int, ok bool) {
	offset, ok := a.offset(now)
	switch p := a.plan; {
	case !ok || p.Concurrency == 0:
		return 0, false
	case len(p.Ramp) > 0:
		return min(p.Ramp.ConcurrencyAt(offset), p.Concurrency), true
	default:
		return p.Concurrency, true
	}
}

// offset is the time from the start of the measurement.
func (a *Asked) offset(now record.Time) (time.Duration, bool) {
	phase, start := a.plan.Gauge.Phase.Load(), record.Time(a.plan.Gauge.Start.Load())
	if phase == nil || *phase != record.PhaseMeasure || !start.IsSet() || now < start {
		return 0, false
	}
	return now.Sub(start), true
}
