//go:build !linux

package mockserver

import "time"

// monotonicAt tells nothing where there is no CLOCK_MONOTONIC to compare with.
func monotonicAt(time.Time) int64 { return 0 }
