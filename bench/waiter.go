package bench

import (
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// waiter waits for moments. It serves one goroutine.
type waiter interface {
	// until returns true at t or at once if t has passed, and false as soon as
	// stop is closed.
	until(t record.Time) bool
	close()
}

// sleeper waits with the runtime's timers.
type sleeper struct {
	clock func() record.Time
	stop  <-chan struct{}
}

func (s sleeper) until(t record.Time) bool {
	d := t.Sub(s.clock())
	if d <= 0 {
		return !closed(s.stop)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stop:
		return false
	}
}

func (s sleeper) close() {}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
