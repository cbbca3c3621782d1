package bench

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/workloads"
)

// builtAhead is how many bodies wait to be sent: enough to outlast a pause of
// the source, few enough to hold.
const builtAhead = 256

// preallocated bounds the chunks that a record has room for from the start.
const preallocated = 4096

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
	inFlight := plan.Concurrency
	if inFlight == 0 {
		var ok bool
		if inFlight, ok = transport.OpenFiles(); !ok {
			inFlight = 1 << 16
		}
	} else if err := transport.CheckOpenFiles(inFlight); err != nil {
		return Result{}, err
	}
	r := &run{plan: &plan, out: out, res: Result{Outcome: record.RunCompleted, MeasureStart: record.Unset, MeasureEnd: record.Unset}}
	r.clock = func() record.Time { return record.Time(time.Since(plan.Origin)) }
	r.x = newExchanger(&plan, r.clock, inFlight)
	defer r.x.trip.CloseIdleConnections()
	r.slots = make(chan record.Time, inFlight)

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
	if !plan.Transport.NoKernelStamps {
		defer transport.KeepStamping()()
	}

	if plan.Warmup > 0 {
		if err := r.phase(ctx, stop.Done(), record.PhaseWarmup, plan.WarmupSchedule, plan.Warmup, 0); err != nil {
			return r.res, err
		}
	}
	if !closed(stop.Done()) {
		if err := r.phase(ctx, stop.Done(), record.PhaseMeasure, plan.Schedule, plan.Requests, plan.Duration); err != nil {
			return r.res, err
		}
	}
	r.res.ClockSteps = r.x.wall.Steps()
	switch {
	case ctx.Err() != nil:
		r.res.Outcome = record.RunAborted
	case closed(plan.Interrupt):
		r.res.Outcome = record.RunInterrupted
	}
	return r.res, nil
}

// run is one call of Run. Its fields belong to the dispatching goroutine but
// for those that are safe for concurrent use.
type run struct {
	plan  *Plan
	clock func() record.Time
	x     *exchanger
	out   chan<- *record.Record
	// slots holds a token for each request that may be in flight: when it
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
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// job is a session ready to be sent.
type job struct {
	i       int64
	session workloads.Session
	body    []byte // of the first turn
	err     error
}

// phase dispatches the requests of one phase and waits for their ends.
func (r *run) phase(ctx context.Context, stop <-chan struct{}, phase record.Phase, schedule iter.Seq[time.Duration], count int64, duration time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := r.build(ctx, phase, count)

	var wait waiter = sleeper{clock: r.clock, stop: stop}
	if schedule != nil && !r.plan.CoarseWait {
		var err error
		if wait, err = newPreciseWaiter(r.clock, stop); err != nil {
			return err
		}
	}
	defer wait.close()

	select { // the first bodies are there before time begins
	case <-stop:
		return nil
	case first, ok := <-jobs:
		if !ok {
			return nil
		}
		start := r.clock()
		r.plan.Gauge.Phase.Store(&phase)
		r.plan.Gauge.Sent.Store(0)
		for len(r.slots) > 0 {
			<-r.slots
		}
		for range cap(r.slots) {
			r.slots <- start
		}
		d := &dispatch{run: r, phase: phase, wait: wait, stop: stop, jobs: jobs, next: &first, start: start, end: -1}
		if duration > 0 {
			d.end = start + record.Time(duration)
		}
		err := d.loop(ctx, schedule)
		r.settle(ctx, stop, cancel, &d.carried, d.end)
		if phase == record.PhaseMeasure {
			r.res.MeasureStart, r.res.MeasureEnd = start, r.clock()
			if d.sentEnd.IsSet() {
				r.res.MeasureEnd = d.sentEnd
			}
			r.res.Sent, r.res.Unsent, r.res.MaxInFlight = d.sent, d.unsent, d.most
		}
		return err
	}
}

// settle waits for the requests in flight: without a bound after a count, for
// the grace period after a duration or an interrupt.
func (r *run) settle(ctx context.Context, stop <-chan struct{}, cancel context.CancelCauseFunc, carried *sync.WaitGroup, end record.Time) {
	ended := make(chan struct{})
	go func() {
		carried.Wait()
		close(ended)
	}()
	var limit <-chan time.Time
	grace := func(from record.Time, why error) {
		timer := time.NewTimer(max(0, (from + record.Time(r.plan.Grace)).Sub(r.clock())))
		defer timer.Stop()
		limit = timer.C
		select {
		case <-ended:
		case <-limit:
			cancel(why)
			<-ended
		case <-ctx.Done():
			<-ended
		}
	}
	switch {
	case closed(stop):
		grace(r.clock(), errInterrupt)
	case end.IsSet():
		grace(end, errGrace)
	default:
		select {
		case <-ended:
		case <-stop:
			grace(r.clock(), errInterrupt)
		}
	}
}

// build makes sessions and first bodies ahead of their due times, in order.
func (r *run) build(ctx context.Context, phase record.Phase, count int64) <-chan job {
	jobs := make(chan job, builtAhead)
	go func() {
		defer close(jobs)
		for i := int64(0); count == 0 || i < count; i++ {
			at := int(i)
			if phase == record.PhaseWarmup {
				at = -1 - at
			}
			j := job{i: i}
			j.session, j.err = r.plan.Source.At(at)
			if j.err == nil && len(j.session.Turns) == 0 {
				j.err = fmt.Errorf("session %d has no turns", at)
			}
			if j.err == nil {
				j.body, j.err = openai.Body(r.plan.Type, j.session.Turns[0], r.plan.Body)
			}
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

// dispatch is the sending of one phase.
type dispatch struct {
	*run
	phase   record.Phase
	wait    waiter
	stop    <-chan struct{}
	jobs    <-chan job
	next    *job // taken from jobs already
	start   record.Time
	end     record.Time // of the sending; unset: bounded by count
	sentEnd record.Time // when the sending ended
	carried sync.WaitGroup

	sent, unsent, most int64
}

// loop sends until the schedule, the jobs or the time is over, or until stop.
func (d *dispatch) loop(ctx context.Context, schedule iter.Seq[time.Duration]) error {
	defer func() { d.sentEnd = d.clock() }()
	if schedule == nil {
		for d.ready() {
			free, ok := d.slot()
			if !ok {
				return nil
			}
			if err := d.send(ctx, free, 0); err != nil {
				return err
			}
		}
		return nil
	}
	over := false // the time ended while requests waited for the cap
	// Requests that were due from heldFrom to heldTo waited for the cap, or
	// for one that did.
	var heldFrom, heldTo record.Time
	for offset := range schedule {
		due := d.start + record.Time(offset)
		if d.end.IsSet() && due >= d.end || !d.ready() || !d.wait.until(due) {
			return nil
		}
		if len(d.slots) == 0 && due > heldTo {
			heldFrom = d.clock()
		}
		if !over && len(d.slots) == 0 {
			_, ok := d.slot()
			if closed(d.stop) {
				return nil
			}
			over = !ok
			heldTo = d.clock()
		} else if !over {
			<-d.slots
		}
		if over {
			if err := d.drop(due); err != nil {
				return err
			}
			continue
		}
		var capWait time.Duration
		if due < heldTo {
			capWait = heldTo.Sub(max(due, heldFrom))
		}
		if err := d.send(ctx, due, capWait); err != nil {
			return err
		}
	}
	return nil
}

// slot waits until one more request may be in flight. It returns when that
// became so, and false if the time is over or the run is to stop.
func (d *dispatch) slot() (record.Time, bool) {
	if closed(d.stop) || d.end.IsSet() && d.clock() >= d.end {
		return 0, false
	}
	select {
	case free := <-d.slots:
		return free, true
	default:
	}
	var over <-chan time.Time
	if d.end.IsSet() {
		timer := time.NewTimer(d.end.Sub(d.clock()))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case free := <-d.slots:
		return free, true
	case <-d.stop:
		return 0, false
	case <-over:
		return 0, false
	}
}

// ready waits until the next job is there; false: there is none.
func (d *dispatch) ready() bool {
	if d.next != nil {
		return true
	}
	select {
	case j, ok := <-d.jobs:
		if ok {
			d.next = &j
		}
		return ok
	case <-d.stop:
		return false
	}
}

// take returns the job that ready found.
func (d *dispatch) take() (job, error) {
	j := *d.next
	d.next = nil
	if j.err != nil {
		return j, fmt.Errorf("build request %d: %w", j.i, j.err)
	}
	return j, nil
}

// send starts the next session in a goroutine of its own. It holds a slot,
// which the goroutine gives back.
func (d *dispatch) send(ctx context.Context, due record.Time, capWait time.Duration) error {
	j, err := d.take()
	if err != nil {
		return err
	}
	d.sent++
	d.plan.Gauge.Sent.Add(1)
	d.most = max(d.most, d.plan.Gauge.InFlight.Add(1))
	d.carried.Go(func() {
		d.carry(ctx, j, due, capWait)
	})
	return nil
}

// drop records the request that was due and could not be sent before the end
// of the run.
func (d *dispatch) drop(due record.Time) error {
	j, err := d.take()
	if err != nil {
		return err
	}
	d.unsent++
	rec := d.newRecord(j, 0, due)
	rec.End = d.clock()
	rec.Fail(record.Dropped, record.Failure{Stage: "build", Message: "the requests in flight were at their limit from the due time to the end of the run"})
	d.out <- rec
	return nil
}

// newRecord begins the record of one turn.
func (d *dispatch) newRecord(j job, turn int, due record.Time) *record.Record {
	req := &j.session.Turns[turn]
	rec := record.New(d.phase, j.i)
	rec.Due, rec.Session, rec.Turn, rec.Class = due, j.session.ID, turn, req.Class
	rec.Streaming = d.plan.Body.Stream
	if rec.Model = req.Model; rec.Model == "" {
		rec.Model = d.plan.Body.Model
	}
	if req.InputTokens > 0 {
		rec.AskedInput = record.Count(req.InputTokens)
	}
	if req.ExpectedCached > 0 {
		rec.ExpectedCached = record.Count(req.ExpectedCached)
	}
	if req.OutputTokens > 0 {
		rec.AskedOutput = record.Count(req.OutputTokens)
		rec.ExactOutput = d.plan.ExactOutput
		if rec.Streaming {
			rec.Chunks = make(record.Chunks, 0, min(req.OutputTokens, preallocated))
		}
	}
	return rec
}

// carry sends the turns of a session, one after the other, and gives its slot
// back. A turn is due when the one before has ended and its think time is over;
// one that fails ends the session.
func (d *dispatch) carry(ctx context.Context, j job, due record.Time, capWait time.Duration) {
	end := d.clock()
	defer func() {
		d.plan.Gauge.InFlight.Add(-1)
		d.slots <- end
	}()
	turns := j.session.Turns
	request := turns[0]
	for turn := 0; ; turn++ {
		rec := d.newRecord(j, turn, due)
		rec.CapWait = capWait
		id := d.plan.RequestIDPrefix + string(d.phase[0]) + strconv.FormatInt(j.i, 10)
		if len(turns) > 1 {
			id += "." + strconv.Itoa(turn)
		}
		more := turn+1 < len(turns)
		d.x.do(ctx, rec, id, j.body, more)
		end = rec.End
		if more && rec.Outcome == record.OK {
			request = next(request, rec.Output, turns[turn+1])
		}
		if !d.plan.KeepOutput {
			rec.Output = nil
		}
		d.out <- rec
		if !more || rec.Outcome != record.OK {
			return
		}
		body, err := openai.Body(d.plan.Type, request, d.plan.Body)
		j.body = body
		due, capWait = end+record.Time(request.Delay), 0
		wait := sleeper{clock: d.clock, stop: d.stop}
		if d.end.IsSet() && due >= d.end || !wait.until(due) {
			return
		}
		if err != nil {
			rec := d.newRecord(j, turn+1, due)
			rec.End = d.clock()
			rec.Fail(record.Dropped, record.Failure{Stage: "build", Message: err.Error()})
			d.out <- rec
			return
		}
	}
}

// next is the request of a turn with the turns before it and the server's
// answer to them in front.
func next(before workloads.Request, answer []record.Output, turn workloads.Request) workloads.Request {
	text := ""
	if len(answer) > 0 {
		text = answer[0].Text
	}
	if len(before.Messages) == 0 {
		turn.Prompt = before.Prompt + text + turn.Prompt
		return turn
	}
	history := make([]workloads.Message, 0, len(before.Messages)+1+len(turn.Messages))
	history = append(history, before.Messages...)
	history = append(history, workloads.Message{Role: "assistant", Content: text})
	turn.Messages = append(history, turn.Messages...)
	return turn
}
