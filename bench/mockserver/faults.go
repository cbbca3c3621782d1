package mockserver

import (
	"math/rand/v2"
	"time"
)

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// drawn are the faults of one request.
type drawn struct {
	kind                                FaultKind
	slowHeader, roleFirst, ignoreStream bool
}

// draw draws the faults of a request from the seed and the request's number.
func (f *Faults) draw(seed uint64, number int64) drawn {
	rng := newRand(mix(seed), uint64(number))
	var d drawn
	u := rng.Float64()
	for _, c := range []struct {
		rate float64
		kind FaultKind
	}{
		{f.RateLimited, FaultRateLimited},
		{f.Unavailable, FaultUnavailable},
		{f.StreamError, FaultStreamError},
		{f.Reset, FaultReset},
		{f.Stall, FaultStall},
		{f.Truncate, FaultTruncate},
	} {
		if u < c.rate {
			d.kind = c.kind
			break
		}
		u -= c.rate
	}
	d.slowHeader = rng.Float64() < f.SlowHeader
	d.roleFirst = rng.Float64() < f.RoleFirst
	d.ignoreStream = rng.Float64() < f.IgnoreStream
	return d
}

func (f *Faults) afterTokens() int {
	if f.AfterTokens <= 0 {
		return 5
	}
	return f.AfterTokens
}

func (f *Faults) retryAfterSeconds() int {
	if f.RetryAfter == 0 {
		return 1
	}
	return int((f.RetryAfter + time.Second - 1) / time.Second)
}

func (f *Faults) headerDelay() time.Duration {
	if f.HeaderDelay == 0 {
		return time.Second
	}
	return f.HeaderDelay
}
