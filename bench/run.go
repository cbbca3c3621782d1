package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/workloads"
)

// builtAhead is how many bodies wait to be sent: enough to outlast a pause of
// the source, few enough to hold.
const builtAhead = 256

// Run carries out the plan and sends every record to out, in the order of
// their ends; it does not close out. It returns when every request has ended.
// An error means that the run could not be made; failed requests are records.
//
// Cancelling ctx ends all requests at once; closing plan.Interrupt lets those
// in flight end within plan.Grace.
func Run(ctx context.Context, plan Plan, out chan<- *record.Record) (Result, error) {
	if err := plan.Validate(); err != nil {
		return Result{}, fmt.Errorf("plan: %w", err)
	}
	if plan.Gauge == nil {
		plan.Gauge = &Gauge{}
	}
	if plan.Origin.IsZero() {
		plan.Origin = time.Now()
	}
	conns, err := plan.connections()
	if err != nil {
		return Result{}, err
	}
	r := &run{plan: &plan, out: out, res: Result{Outcome: record.RunCompleted, MeasureStart: record.Unset, MeasureEnd: record.Unset}}
	r.clock = func() record.Time { return record.Time(time.Since(plan.Origin)) }
	r.x = newExchanger(&plan, r.clock, conns)
	defer r.x.trip.CloseIdleConnections()
	r.slots = make(chan record.Time, conns)

	// stop ends the waiting of the dispatcher, whoever asked for it.
	stop, stopNow := context.WithCancel(ctx)
	defer stopNow()
	go func() {
		select {
		case <-plan.Interrupt:
			stopNow()
		case <-stop.Done():
		}
	}()
	defer r.sampleWallClock()()
	if plan.Transport.Stamped() {
		defer transport.KeepStamping()()
	}

	if plan.Warmup > 0 {
		err = r.phase(ctx, stop.Done(), record.PhaseWarmup)
	}
	if err == nil && !closed(stop.Done()) {
		err = r.phase(ctx, stop.Done(), record.PhaseMeasure)
	}
	r.res.ClockSteps = r.x.wall.Steps()
	switch {
	case ctx.Err() != nil:
		r.res.Outcome = record.RunAborted
	case closed(plan.Interrupt):
		r.res.Outcome = record.RunInterrupted
	}
	return r.res, err
}

// connections is the most requests that may be in flight, and so the most
// connections: as planned, or what the limit on open files allows.
func (p *Plan) connections() (int, error) {
	most := max(p.Concurrency, p.Users.Count)
	if most > 0 {
		return most, transport.CheckOpenFiles(most)
	}
	if have, ok := transport.OpenFiles(); ok {
		return have, transport.CheckOpenFiles(1) // without one, nothing would ever be sent
	}
	return 1 << 16, nil
}

// run is one call of Run. Its fields belong to the dispatching goroutine but
// for those that are safe for concurrent use.
type run struct {
	plan  *Plan
	clock func() record.Time
	x     *exchanger
	out   chan<- *record.Record
	// slots holds a token for each session that may be in flight: when it
	// became free.
	slots chan record.Time
	res   Result
}

// sampleWallClock keeps the mapping of kernel stamps true until the returned
// function is called.
func (r *run) sampleWallClock() (stop func()) {
	if r.plan.CoarseWait {
		return func() {} // fake time has one clock
	}
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(transport.SampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.x.wall.Sample()
				r.plan.Gauge.ClockSteps.Store(r.x.wall.Steps())
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// phase dispatches the requests of one phase and waits for their ends.
func (r *run) phase(ctx context.Context, stop <-chan struct{}, phase record.Phase) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &dispatch{run: r, phase: phase, stop: stop, end: record.Unset, idle: make(chan *session)}
	defer close(d.idle)
	var schedule iter.Seq[time.Duration]
	var sessions int64
	var duration time.Duration
	if phase == record.PhaseWarmup {
		sessions, schedule = r.plan.Warmup, r.plan.WarmupSchedule
		if d.left.Store(sessions); r.plan.WarmupRepeats {
			d.left.Store(unbounded)
		}
	} else {
		sessions, schedule, duration = r.plan.Sessions, r.plan.Schedule, r.plan.Duration
		if d.left.Store(unbounded); r.plan.Requests > 0 {
			d.left.Store(r.plan.Requests)
			if sessions == 0 || r.plan.Requests < sessions {
				sessions = r.plan.Requests // each has at least one
			}
		}
	}

	d.wait = sleeper{clock: r.clock, stop: stop}
	if schedule != nil && !r.plan.CoarseWait {
		var err error
		if d.wait, err = newPreciseWaiter(r.clock, stop); err != nil {
			return err
		}
	}
	defer d.wait.close()

	users := phase == record.PhaseMeasure && r.plan.Users.Count > 0
	if !users {
		d.jobs = r.build(ctx, phase, sessions)
		if !d.ready() { // the first bodies are there before time begins
			return nil
		}
	}
	r.plan.Gauge.Start.Store(int64(record.Unset))
	r.plan.Gauge.Phase.Store(&phase)
	r.plan.Gauge.Sent.Store(0)
	if n := r.plan.PrefillConcurrency; n > 0 {
		d.prefill = make(chan struct{}, n)
	}
	if r.plan.PhaseStart != nil {
		r.plan.PhaseStart(phase)
	}
	d.start = r.clock()
	r.plan.Gauge.Start.Store(int64(d.start))
	if duration > 0 {
		d.end = d.start + record.Time(duration)
	}
	var err error
	if users {
		err = d.users(ctx, sessions)
	} else {
		d.open(ctx, schedule != nil)
		err = d.loop(ctx, schedule)
	}
	sent := r.clock()
	r.settle(ctx, d, cancel)
	if phase == record.PhaseMeasure {
		r.res.MeasureStart, r.res.MeasureEnd = d.start, sent
		r.res.Sent, r.res.Unsent, r.res.MaxInFlight = d.sent.Load(), d.unsent.Load(), d.most.Load()
	}
	return err
}

// settle waits for the requests in flight: without a bound after a count, for
// the grace period after a duration or an interrupt.
func (r *run) settle(ctx context.Context, d *dispatch, cancel context.CancelCauseFunc) {
	ended := make(chan struct{})
	go func() {
		d.carried.Wait()
		close(ended)
	}()
	grace := func(from record.Time, why error) {
		timer := time.NewTimer(max(0, (from + record.Time(r.plan.Grace)).Sub(r.clock())))
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			cancel(why)
			<-ended
		case <-ctx.Done():
			<-ended
		}
	}
	switch {
	case closed(d.stop):
		grace(r.clock(), errInterrupt)
	case d.end.IsSet():
		grace(d.end, errGrace)
	default:
		select {
		case <-ended:
		case <-d.stop:
			grace(r.clock(), errInterrupt)
		}
	}
}

// job is a session ready to be sent.
type job struct {
	i       int64
	session workloads.Session
	body    []byte // of the first turn, then of the turn at hand
	model   string // that body's
	stream  bool   // the body asks for one
	err     error
}

// ask makes the body of a turn.
func (j *job) ask(p *Plan, request workloads.Request) error {
	j.model, j.stream = cmp.Or(request.Model, p.Body.Model), p.Body.Stream
	if request.Body != nil {
		model, stream := openai.Asked(request.Body)
		j.model, j.stream = cmp.Or(model, j.model), stream
	}
	var err error
	j.body, err = openai.Body(p.Type, request, p.Body)
	return err
}

// build makes sessions and first bodies ahead of their due times, in order.
func (r *run) build(ctx context.Context, phase record.Phase, count int64) <-chan job {
	jobs := make(chan job, builtAhead)
	go func() {
		defer close(jobs)
		for i := int64(0); count == 0 || i < count; i++ {
			j := r.job(phase, i)
			select {
			case jobs <- j:
			case <-ctx.Done():
				return
			}
			if j.err != nil {
				return
			}
		}
	}()
	return jobs
}

// job makes session i of a phase.
func (r *run) job(phase record.Phase, i int64) job {
	at := int(i)
	if phase == record.PhaseWarmup && !r.plan.WarmupRepeats {
		at = -1 - at
	}
	j := job{i: i}
	if j.session, j.err = r.plan.Source.At(at); j.err == nil && len(j.session.Turns) == 0 {
		j.err = errors.New("it has no turns")
	}
	if j.err == nil {
		j.err = j.ask(r.plan, j.session.Turns[0])
	}
	if j.err != nil {
		j.err = fmt.Errorf("build session %d: %w", at, j.err)
	}
	return j
}

// raise sets a to v if that is larger.
func raise(a *atomic.Int64, v int64) {
	for was := a.Load(); v > was && !a.CompareAndSwap(was, v); was = a.Load() {
	}
}
