// Package arrival says when requests are due: offsets from the start of the
// load, as pure functions of the plan and its seed.
//
// Every process that is given the same plan computes the same offsets, so a
// load can be shared by several clients without a master: see Share.
package arrival

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Schedule yields the offsets at which sessions are due, ascending, from the
// start of the load. Each range over it starts again from the beginning and
// gives the same offsets; several goroutines may range over it at once. A
// schedule without an end stops where a Duration would overflow.
type Schedule = iter.Seq[time.Duration]

// Pattern is the law of the gaps between arrivals.
type Pattern string

// The patterns, named as in AIPerf's --arrival-pattern.
const (
	// Constant: equal gaps; the first arrival is at 0.
	Constant Pattern = "constant"
	// Poisson: independent exponential gaps; the first arrival comes after one.
	Poisson Pattern = "poisson"
	// Gamma: independent gamma gaps, see Plan.Smoothness.
	Gamma Pattern = "gamma"
)

// Plan describes an open-loop load.
type Plan struct {
	Pattern Pattern
	// Rate is the arrival rate over time, in sessions per second.
	Rate Profile
	// Smoothness is the shape of the gamma distribution (AIPerf's
	// --arrival-smoothness, vLLM's burstiness): 1 is Poisson, above 1 is
	// smoother, below 1 burstier. The coefficient of variation of the gaps is
	// 1/sqrt(Smoothness). Only Gamma reads it; it must be above 0.
	Smoothness float64
	// Seed fixes the gaps of Poisson and Gamma.
	Seed uint64
}

// Validate joins all faults of the plan.
func (p Plan) Validate() error {
	var errs []error
	switch p.Pattern {
	case Constant, Poisson:
	case Gamma:
		if !(p.Smoothness > 0) || math.IsInf(p.Smoothness, 0) {
			errs = append(errs, fmt.Errorf("arrival smoothness %v: it must be a number above 0 (1 is poisson)", p.Smoothness))
		}
	default:
		errs = append(errs, fmt.Errorf("arrival pattern %q is not known: use constant, poisson or gamma", p.Pattern))
	}
	return errors.Join(append(errs, p.Rate.validateRate())...)
}

// Schedule returns the offsets of the plan. Gaps are drawn at rate 1, and
// their running sum is mapped through the inverse of the cumulative rate: so
// stages and ramps are exact, nothing is drawn and thrown away, and no error
// piles up over a long run.
func (p Plan) Schedule() (Schedule, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p.Rate = slices.Clone(p.Rate)
	return func(yield func(time.Duration) bool) {
		gap := p.gaps()
		clock := rateClock{profile: p.Rate}
		// The sum is kept in two parts, as its own rounding would grow with it.
		var whole, part float64
		for first := true; ; first = false {
			if !first || p.Pattern != Constant {
				part += gap()
				floor := math.Floor(part)
				whole += floor
				part -= floor
			}
			at, ok := clock.at(whole, part)
			if !ok || !yield(at) {
				return
			}
		}
	}, nil
}

// gaps returns a generator of gaps with mean 1.
func (p Plan) gaps() func() float64 {
	rng := rand.New(rand.NewPCG(p.Seed, 0x61727269_76616c73)) // the stream "arrivals"
	switch p.Pattern {
	case Poisson:
		return rng.ExpFloat64
	case Gamma:
		return func() float64 { return gamma(rng, p.Smoothness) / p.Smoothness }
	}
	return func() float64 { return 1 }
}

// gamma draws from the gamma distribution of the given shape and scale 1, by
// the method of Marsaglia and Tsang (2000).
func gamma(rng *rand.Rand, shape float64) float64 {
	boost := 1.0
	if shape < 1 {
		// A draw of shape+1 times U^(1/shape) has the wanted shape.
		boost = math.Pow(1-rng.Float64(), 1/shape)
		shape++
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + float64(c*x)
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < float64(x*x/2)+d-float64(d*v)+float64(d*math.Log(v)) {
			return d * v * boost
		}
	}
}

// Share is the part of a schedule that client number client of clients (from
// 0) sends: every clients-th arrival. The shares of all clients together are
// the whole schedule.
func Share(s Schedule, client, clients int) Schedule {
	return func(yield func(time.Duration) bool) {
		i := 0
		for at := range s {
			if i == client && !yield(at) {
				return
			}
			if i++; i == clients {
				i = 0
			}
		}
	}
}

// Merge is several loads together: it yields their offsets, ascending, each with
// the place of the schedule that it is of. At one moment they keep their order.
func Merge(schedules ...Schedule) iter.Seq2[time.Duration, int] {
	return func(yield func(time.Duration, int) bool) {
		type head struct {
			at   time.Duration
			ok   bool
			next func() (time.Duration, bool)
		}
		heads := make([]head, len(schedules))
		for k, s := range schedules {
			next, stop := iter.Pull(s)
			defer stop()
			heads[k].next = next
			heads[k].at, heads[k].ok = next()
		}
		for {
			first := -1
			for k := range heads {
				if heads[k].ok && (first < 0 || heads[k].at < heads[first].at) {
					first = k
				}
			}
			if first < 0 || !yield(heads[first].at, first) {
				return
			}
			heads[first].at, heads[first].ok = heads[first].next()
		}
	}
}

// Fixed is the schedule of given offsets, sorted.
func Fixed(offsets []time.Duration) Schedule {
	sorted := slices.Clone(offsets)
	slices.Sort(sorted)
	return slices.Values(sorted)
}
