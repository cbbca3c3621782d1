package arrival

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Stage is a stretch of a Profile: the level goes in a straight line from From
// to To.
type Stage struct {
	// Duration of the stage; 0, in the last stage only: without an end.
	Duration time.Duration
	From, To float64
}

// Profile is a level over time: a rate in sessions per second, or a
// concurrency. Stages follow one another and stay apart: no level is ever
// averaged over stages. After the last stage the level is 0.
type Profile []Stage

// Steady is a level that never changes.
func Steady(level float64) Profile { return Profile{{From: level, To: level}} }

// Ramp goes from one level to another and stays there.
func Ramp(from, to float64, over time.Duration) Profile {
	if over == 0 {
		return Steady(to)
	}
	return Profile{{Duration: over, From: from, To: to}, {From: to, To: to}}
}

// Validate joins all faults of the profile: levels below 0 or not finite,
// durations below 0, a stage without an end that is not the last or not level,
// and a profile that never leaves 0.
func (p Profile) Validate() error {
	var errs []error
	positive := false
	for i, s := range p {
		last := i == len(p)-1
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("stage %d: "+format, append([]any{i + 1}, args...)...))
		}
		for _, level := range []float64{s.From, s.To} {
			if !(level >= 0) || math.IsInf(level, 0) {
				bad("level %v: it must be a number, 0 or above", level)
			}
		}
		switch {
		case s.Duration < 0:
			bad("duration %v is below 0", s.Duration)
		case s.Duration == 0 && !last:
			bad("it has no duration, and only the last stage may be without an end")
		case s.Duration == 0 && s.From != s.To:
			bad("a stage without an end must stay level, not go from %v to %v: give it a duration", s.From, s.To)
		}
		positive = positive || s.From > 0 || s.To > 0
	}
	if !positive && len(errs) == 0 {
		errs = append(errs, errors.New("the level is never above 0"))
	}
	return errors.Join(errs...)
}

// maxRate keeps gaps at or above the resolution of a Duration.
const maxRate = 1e9

func (p Profile) validateRate() error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("request rate: %w", err)
	}
	for i, s := range p {
		if max(s.From, s.To) > maxRate {
			return fmt.Errorf("request rate: stage %d: %v per second is above %v", i+1, max(s.From, s.To), float64(maxRate))
		}
	}
	return nil
}

// Duration is the length of all stages; ok is false if there is no end.
func (p Profile) Duration() (d time.Duration, ok bool) {
	for _, s := range p {
		if s.Duration == 0 {
			return 0, false
		}
		d += s.Duration
	}
	return d, true
}

func (s Stage) level(t time.Duration) float64 {
	if s.From == s.To {
		return s.From
	}
	return s.From + float64((s.To-s.From)*(float64(t)/float64(s.Duration)))
}

// ConcurrencyAt is the level at an offset from the start, rounded down, but at
// least 1 where the level is above 0 at any time in the stage: a ramp from 0
// begins with one request. A boundary belongs to the stage that it begins.
func (p Profile) ConcurrencyAt(offset time.Duration) int {
	if offset < 0 {
		return 0
	}
	for _, s := range p {
		if s.Duration == 0 || offset < s.Duration {
			if s.From == 0 && s.To == 0 {
				return 0
			}
			return max(1, int(s.level(offset)))
		}
		offset -= s.Duration
	}
	return 0
}

// NextChange is the first offset after the given one at which ConcurrencyAt
// has another value; ok is false if it keeps its value for ever.
func (p Profile) NextChange(offset time.Duration) (next time.Duration, ok bool) {
	now := p.ConcurrencyAt(offset)
	var begin time.Duration
	for _, s := range p {
		end := begin + s.Duration
		if s.Duration == 0 {
			end = math.MaxInt64
		}
		if end > offset {
			lo := max(begin, offset)
			if p.ConcurrencyAt(lo) != now {
				return lo, true
			}
			if s.From != s.To && p.ConcurrencyAt(end-1) != now {
				// The level is monotonic in the stage: halve down to the change.
				hi := end - 1
				for hi-lo > 1 {
					mid := lo + (hi-lo)/2
					if p.ConcurrencyAt(mid) == now {
						lo = mid
					} else {
						hi = mid
					}
				}
				return hi, true
			}
			if s.Duration == 0 {
				return 0, false
			}
		}
		begin = end
	}
	if now != 0 {
		return begin, true
	}
	return 0, false
}

// rateClock inverts the cumulative rate. Its arguments must not fall from one
// call to the next.
type rateClock struct {
	profile Profile
	begin   time.Duration // of the stage at hand
	before  float64       // arrivals before that stage
}

// at is when the cumulative rate reaches whole + part.
func (c *rateClock) at(whole, part float64) (time.Duration, bool) {
	for len(c.profile) > 0 {
		s := c.profile[0]
		x := (whole - c.before) + part
		seconds := s.Duration.Seconds()
		area := float64((s.From+s.To)/2) * seconds
		if s.Duration == 0 && s.From > 0 || x < area {
			ns := 0.0
			switch {
			case s.From == s.To:
				ns = float64(x*1e9) / s.From
			case x > 0:
				slope := (s.To - s.From) / seconds
				square := max(0, float64(s.From*s.From)+float64(2*slope*x))
				// This form of the root neither divides by a slope near 0 nor
				// subtracts two near numbers.
				ns = float64(2e9*x) / (s.From + math.Sqrt(square))
			}
			ns = math.Round(ns)
			if !(ns < float64(math.MaxInt64-c.begin)) {
				return 0, false
			}
			at := time.Duration(ns)
			if s.Duration > 0 {
				at = min(at, s.Duration) // rounding only
			}
			return c.begin + at, true
		}
		if s.Duration == 0 {
			return 0, false
		}
		c.begin += s.Duration
		c.before += area
		c.profile = c.profile[1:]
	}
	return 0, false
}
