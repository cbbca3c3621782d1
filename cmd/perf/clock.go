//go:build linux

package main

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC, which all processes of a machine share, at the
// price of the runtime's own clock: the system call of unix.ClockGettime takes
// ten times as long.
type clock struct {
	base time.Time
	at   int64 // CLOCK_MONOTONIC at base
}

func newClock() clock {
	c := clock{base: time.Now()}
	best := int64(math.MaxInt64)
	for range 200 {
		before := int64(time.Since(c.base))
		now := clockID(unix.CLOCK_MONOTONIC)
		after := int64(time.Since(c.base))
		if after-before < best {
			best, c.at = after-before, now-(before+after)/2
		}
	}
	return c
}

func (c clock) now() int64 { return c.at + int64(time.Since(c.base)) }

// wallAhead is CLOCK_REALTIME - CLOCK_MONOTONIC.
func (c clock) wallAhead() int64 {
	var ahead int64
	best := int64(math.MaxInt64)
	for range 200 {
		before := c.now()
		wall := time.Now().UnixNano()
		after := c.now()
		if after-before < best {
			best, ahead = after-before, wall-(before+after)/2
		}
	}
	return ahead
}

// clockID reads a clock; one that is not there reads as 0.
func clockID(id int32) int64 {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return t.Nano()
}

// processCPU is the processor time that a process has used, in nanoseconds.
func processCPU(pid int) int64 {
	const whole = 2 // CPUCLOCK_SCHED of the whole process
	return clockID(int32(^pid<<3 | whole))
}
