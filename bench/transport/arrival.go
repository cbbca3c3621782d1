package transport

import (
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// WallClock maps the kernel's receive stamps, which are wall time, to offsets
// from a run's origin on the monotonic clock. The wall clock may be slewed or
// set while a run goes on, so Sample has to be called again and again; between
// two calls a slew of 500 ppm, the most that is usual, is 50 µs in 100 ms.
//
// It is safe for concurrent use.
type WallClock struct {
	origin time.Time
	// ahead is wall time - offset in nanoseconds.
	ahead atomic.Int64
	steps atomic.Int64
}

const (
	// SampleEvery is how often a WallClock is to be sampled during a run.
	SampleEvery = 100 * time.Millisecond
	// samples is how many readings one Sample takes; the tightest counts.
	samples = 16
	// step is the change between two samples from which on the wall clock was
	// set, not slewed.
	step = int64(time.Millisecond)
)

// NewWallClock returns a sampled clock for a run with the origin, which must
// carry a monotonic reading.
func NewWallClock(origin time.Time) *WallClock {
	w := &WallClock{origin: origin}
	w.ahead.Store(w.measure())
	return w
}

// Sample takes the difference of the clocks again.
func (w *WallClock) Sample() {
	now := w.measure()
	if d := now - w.ahead.Swap(now); d > step || d < -step {
		w.steps.Add(1)
	}
}

// Steps is how often the wall clock was set.
func (w *WallClock) Steps() int64 { return w.steps.Load() }

// Offset maps a wall time in nanoseconds since 1970.
func (w *WallClock) Offset(wall int64) record.Time { return record.Time(wall - w.ahead.Load()) }

// measure brackets readings of the wall clock by readings of the monotonic
// one.
func (w *WallClock) measure() int64 {
	var ahead int64
	best := time.Duration(1<<63 - 1)
	for range samples {
		before := time.Since(w.origin)
		wall := time.Now().UnixNano()
		after := time.Since(w.origin)
		if width := after - before; width < best {
			best, ahead = width, wall-int64(before+width/2)
		}
	}
	return ahead
}

// arrivals is a connection that tells when the kernel received the last byte
// of what its last Read returned: wall time in nanoseconds since 1970, or 0 if
// the kernel did not tell.
type arrivals interface{ lastArrival() int64 }
