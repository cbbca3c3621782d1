package mockserver

import (
	"time"

	"golang.org/x/sys/unix"
)

// MonotonicAt returns what CLOCK_MONOTONIC showed at the moment origin, in
// nanoseconds, or 0 if that cannot be told. It takes the tightest of a few
// readings of both clocks.
func MonotonicAt(origin time.Time) int64 {
	var best, at int64 = 1 << 62, 0
	for range 8 {
		var ts unix.Timespec
		before := time.Since(origin)
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
			return 0
		}
		after := time.Since(origin)
		if width := int64(after - before); width < best {
			best = width
			at = ts.Nano() - int64(before) - width/2
		}
	}
	return at
}
