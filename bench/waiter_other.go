//go:build !linux

package bench

import (
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// spinFor is how long before the due time the sleep ends and a tight loop
// takes over: longer than the runtime's timers are late.
const spinFor = 1100 * time.Microsecond

// spinner sleeps to just before the due time and spins over the rest.
type spinner struct{ sleeper }

func newPreciseWaiter(clock func() record.Time, stop <-chan struct{}) (waiter, error) {
	return spinner{sleeper{clock: clock, stop: stop}}, nil
}

func (s spinner) until(t record.Time) bool {
	if !s.sleeper.until(t - record.Time(spinFor)) {
		return false
	}
	for s.clock() < t {
	}
	return true
}
