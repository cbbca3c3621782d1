package bench

import (
	"context"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// unbounded is a number of requests that is never used up.
const unbounded = math.MaxInt64 / 2

// dispatch is the sending of one phase. The fields without a type that is safe
// for concurrent use belong to the dispatching goroutine, and are fixed before
// the first session is sent if the sessions read them.
type dispatch struct {
	*run
	phase record.Phase
	wait  waiter
	stop  <-chan struct{}
	jobs  <-chan job
	next  *job // taken from jobs already
	start record.Time
	end   record.Time // of the sending; unset: bounded by count
	// prefill holds an entry for each request that has no output yet, if
	// their number is capped.
	prefill chan struct{}

	held   hold
	excess atomic.Int64 // slots to take out when they come free

	// idle hands sessions to goroutines that have carried one before.
	idle    chan *session
	carried sync.WaitGroup
	left    atomic.Int64 // requests that may still be sent
	sent    atomic.Int64
	most    atomic.Int64 // in flight
	unsent  atomic.Int64
}

// open lets sessions in: as many as the plan says at the start, and as many
// more or less over time if it has a ramp.
func (d *dispatch) open(ctx context.Context, scheduled bool) {
	for len(d.slots) > 0 {
		<-d.slots
	}
	level := cap(d.slots)
	switch {
	case d.phase == record.PhaseWarmup && !scheduled && d.plan.Concurrency == 0:
		level = 1 // a cap of the open files is not a number to warm up with
	case d.phase == record.PhaseMeasure && len(d.plan.Ramp) > 0:
		level = min(d.plan.Ramp.ConcurrencyAt(0), cap(d.slots))
		go d.ramp(ctx, level)
	}
	for range level {
		d.slots <- d.start
	}
}

// ramp follows the plan's concurrency until the phase is over.
func (d *dispatch) ramp(ctx context.Context, level int) {
	wait := sleeper{clock: d.clock, stop: ctx.Done()}
	offset, ok := d.plan.Ramp.NextChange(0)
	for ; ok && wait.until(d.start+record.Time(offset)); offset, ok = d.plan.Ramp.NextChange(offset) {
		want := min(d.plan.Ramp.ConcurrencyAt(offset), cap(d.slots))
		for ; level < want; level++ {
			d.release(d.start + record.Time(offset)) // or one less to take out
		}
		for ; level > want; level-- {
			select {
			case <-d.slots:
			default:
				d.excess.Add(1)
			}
		}
	}
}

// loop sends until the schedule, the jobs or the time is over, or until stop.
func (d *dispatch) loop(ctx context.Context, schedule iter.Seq[time.Duration]) error {
	if schedule == nil {
		for d.ready() {
			free, ok := d.slot()
			if !ok {
				return nil
			}
			if sent, err := d.send(ctx, free); err != nil || !sent {
				return err
			}
		}
		return nil
	}
	over := false // the time ended while requests waited for the cap
	for offset := range schedule {
		due := d.start + record.Time(offset)
		if d.end.IsSet() && due >= d.end || !d.ready() || !d.wait.until(due) {
			return nil
		}
		switch {
		case over:
		case len(d.slots) > 0:
			<-d.slots
		default:
			d.held.begin(due, d.clock())
			_, ok := d.slot()
			over = !ok
			d.held.end(d.clock())
		}
		if !over {
			sent, err := d.send(ctx, due)
			if err != nil {
				return err
			}
			over = !sent
		}
		if closed(d.stop) {
			return nil
		}
		if over {
			if err := d.drop(due); err != nil {
				return err
			}
		}
	}
	return nil
}

// slot waits until one more session may be in flight. It returns when that
// became so, and false if the time is over or the run is to stop.
func (d *dispatch) slot() (record.Time, bool) {
	if closed(d.stop) || d.over(d.clock()) {
		return 0, false
	}
	select {
	case free := <-d.slots:
		return free, true
	default:
	}
	over, stop := d.untilEnd()
	defer stop()
	select {
	case free := <-d.slots:
		return free, true
	case <-d.stop:
		return 0, false
	case <-over:
		return 0, false
	}
}

// untilEnd returns what fires when the time is over: never, if a count bounds
// the phase. stop frees it.
func (d *dispatch) untilEnd() (over <-chan time.Time, stop func() bool) {
	if !d.end.IsSet() {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(d.end.Sub(d.clock()))
	return timer.C, timer.Stop
}

// over reports whether nothing may be sent any more at t.
func (d *dispatch) over(t record.Time) bool { return d.end.IsSet() && t >= d.end }

// ready waits until the next job is there; false: there is none.
func (d *dispatch) ready() bool {
	if d.left.Load() <= 0 {
		return false
	}
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
	return j, j.err
}

// send has the next session carried, in a goroutine of its own. It holds a
// slot, which is given back. It returns false if the prefill cap let none
// through before the time was over, or the run is to stop.
func (d *dispatch) send(ctx context.Context, due record.Time) (bool, error) {
	if len(d.prefill) < cap(d.prefill) || d.prefill == nil {
		d.enterPrefill(ctx)
	} else {
		d.held.begin(due, d.clock())
		_, ok := d.enterPrefill(ctx)
		d.held.end(d.clock())
		if !ok {
			return false, nil
		}
	}
	j, err := d.take()
	if err != nil {
		return false, err
	}
	if !d.claim() {
		d.leavePrefill()
		return true, nil // later turns of other sessions took the last ones
	}
	s := &session{dispatch: d, job: j, due: due, capWait: d.held.of(due)}
	d.carried.Add(1)
	select {
	case d.idle <- s: // only a goroutine that waits takes it
	default:
		go d.carryAll(ctx, s)
	}
	return true, nil
}

// release gives a slot back, unless there are more than the ramp wants.
func (d *dispatch) release(free record.Time) {
	for n := d.excess.Load(); n > 0; n = d.excess.Load() {
		if d.excess.CompareAndSwap(n, n-1) {
			return
		}
	}
	d.slots <- free
}

// hold is the last stretch of time in which the dispatcher waited for a cap,
// or was behind because it had.
type hold struct{ from, to record.Time }

// begin tells that a request due at due begins to wait now, end that it has
// waited.
func (h *hold) begin(due, now record.Time) {
	if due > h.to {
		h.from = now
	}
}

func (h *hold) end(now record.Time) { h.to = now }

// of is the part of the stretch that a request due at due was kept by.
func (h *hold) of(due record.Time) time.Duration {
	if due >= h.to {
		return 0
	}
	return h.to.Sub(max(due, h.from))
}

// carryAll carries a session, and then others as long as there are some to be
// had at once: a goroutine that is used again has grown its stack already.
// Nothing ever waits for one.
func (d *dispatch) carryAll(ctx context.Context, s *session) {
	for ok := true; ok; s, ok = <-d.idle {
		s.carry(ctx)
		d.release(s.ended)
		d.carried.Done()
	}
}

// claim takes one of the requests that may still be sent.
func (d *dispatch) claim() bool { return d.left.Add(-1) >= 0 }

// enterPrefill waits until one more request may be without output, and returns
// how long that took; false if the time was over before, or the run is to stop.
// leavePrefill ends it.
func (d *dispatch) enterPrefill(ctx context.Context) (waited time.Duration, ok bool) {
	if d.prefill == nil {
		return 0, true
	}
	select {
	case d.prefill <- struct{}{}:
		return 0, true
	default:
	}
	before := d.clock()
	over, stop := d.untilEnd()
	defer stop()
	select {
	case d.prefill <- struct{}{}:
		ok = true
	case <-over:
	case <-d.stop:
	case <-ctx.Done():
	}
	return d.clock().Sub(before), ok
}

func (d *dispatch) leavePrefill() {
	select {
	case <-d.prefill: // nil, and never ready, if there is no cap
	default:
	}
}

// heldToTheEnd is why a request that was due was never sent.
const heldToTheEnd = "the requests in flight were at their limit from the due time to the end of the run"

// drop records the request that was due and could not be sent before the end
// of the run.
func (d *dispatch) drop(due record.Time) error {
	j, err := d.take()
	if err != nil {
		return err
	}
	s := &session{dispatch: d, job: j, due: due, capWait: d.held.of(due)}
	s.unsent(heldToTheEnd)
	return nil
}

// users sends the sessions of a user-centric load: each user has one request
// at a time, and a gap of its own between two.
func (d *dispatch) users(ctx context.Context, sessions int64) error {
	users := d.plan.Users
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for k := range users.Count {
		all.Go(func() {
			wait := sleeper{clock: d.clock, stop: d.stop}
			due := d.start + record.Time(users.Start(k))
			var shifted time.Duration
			for i := int64(k); sessions == 0 || i < sessions; i += int64(users.Count) {
				j := d.job(d.phase, i)
				if j.err != nil {
					failed.CompareAndSwap(nil, &j.err)
				}
				if d.over(due) || d.left.Load() <= 0 || !wait.until(due) || failed.Load() != nil || !d.claim() {
					return
				}
				s := &session{dispatch: d, job: j, due: due, shifted: shifted, users: &users}
				if !s.enter(ctx) {
					return
				}
				s.carry(ctx)
				due, shifted = s.due, s.shifted
			}
		})
	}
	// Sessions end on their own: those in flight are what settle waits for.
	d.carried.Go(all.Wait)
	timer := make(<-chan time.Time)
	if d.end.IsSet() {
		t := time.NewTimer(max(0, d.end.Sub(d.clock())))
		defer t.Stop()
		timer = t.C
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-d.stop:
	case <-timer:
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
