package stats

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a confidence interval, in the unit of the values.
type Interval struct {
	Low, High float64
	// Level is the confidence that was asked for, as 0.95.
	Level float64
}

// Contains reports whether v lies in the interval, ends included.
func (i Interval) Contains(v float64) bool { return i.Low <= v && v <= i.High }

// PercentileInterval returns the interval of percentile p (0 to 100, as in
// Percents) at a level (as 0.95) from ascending values. Its ends are values of
// the sample: how many values lie below the true percentile is binomial,
// whatever the distribution, so the ends are the outermost ranks that leave at
// most (1-level)/2 on either side. The true confidence is therefore never
// below the level.
//
// That holds for independent values; for requests of one run, which are not,
// use Bootstrap. It returns false if there are too few values, as NeedFor
// tells, or p or level lie out of range.
func PercentileInterval(sorted []float64, p, level float64) (Interval, bool) {
	if !inRange(p, level) {
		return Interval{}, false
	}
	n := len(sorted)
	low := lowerRank(n, p, (1-level)/2)
	high := upperRank(n, p, (1-level)/2)
	if low < 1 || high > n {
		return Interval{}, false
	}
	return Interval{Low: sorted[low-1], High: sorted[high-1], Level: level}, true
}

// PercentileAtMost returns a value that percentile p does not exceed, at the
// level, under the terms of PercentileInterval: the bound that a gate needs,
// for which fewer values do than for an interval.
func PercentileAtMost(sorted []float64, p, level float64) (float64, bool) {
	if !inRange(p, level) {
		return 0, false
	}
	high := upperRank(len(sorted), p, 1-level)
	if high > len(sorted) {
		return 0, false
	}
	return sorted[high-1], true
}

// PercentileAtLeast is PercentileAtMost for the other side.
func PercentileAtLeast(sorted []float64, p, level float64) (float64, bool) {
	if !inRange(p, level) {
		return 0, false
	}
	low := lowerRank(len(sorted), p, 1-level)
	if low < 1 {
		return 0, false
	}
	return sorted[low-1], true
}

// Need is how many independent values the statements about a percentile take
// at the least.
type Need struct {
	Interval int // PercentileInterval
	AtMost   int // PercentileAtMost
	AtLeast  int // PercentileAtLeast
}

// NeedFor returns the least numbers of values for percentile p at a level, or
// false if one of the two lies out of range. An upper bound exists once the
// largest of n values is above the percentile with that confidence, which
// (p/100)^n <= 1-level says: 459 values for p99 at 0.99, 528 for an interval,
// whose two sides share what may go wrong.
func NeedFor(p, level float64) (Need, bool) {
	if !inRange(p, level) {
		return Need{}, false
	}
	above := func(alpha float64) int { return leastPower(p/100, alpha) }
	below := func(alpha float64) int { return leastPower((100-p)/100, alpha) }
	return Need{
		Interval: max(above((1-level)/2), below((1-level)/2)),
		AtMost:   above(1 - level),
		AtLeast:  below(1 - level),
	}, true
}

// More returns how many values are wanting where there are n; none is 0.
func (need Need) More(n int) Need {
	return Need{
		Interval: max(0, need.Interval-n),
		AtMost:   max(0, need.AtMost-n),
		AtLeast:  max(0, need.AtLeast-n),
	}
}

// inRange is written so that NaN is out of it.
func inRange(p, level float64) bool { return p > 0 && p < 100 && level > 0 && level < 1 }

// roundOff keeps the last bits of 1-level or of a binomial sum from costing a
// rank; the confidence it gives away is of no account.
const roundOff = 1 + 1e-9

// leastPower is the least n, from 1, with q^n <= alpha.
func leastPower(q, alpha float64) int {
	n := math.Ceil(math.Log(alpha*roundOff) / math.Log(q))
	return int(min(max(n, 1), math.MaxInt32))
}

// lowerRank is the highest rank r, from 1, that P(fewer than r of n values
// lie below percentile p) <= alpha allows, or 0.
func lowerRank(n int, p, alpha float64) int { return tailRank(n, p/100, alpha) }

// upperRank is the lowest rank r such that P(r or more of n values lie below
// percentile p) <= alpha, or n+1. Seen from above it is a lower rank.
func upperRank(n int, p, alpha float64) int { return n + 1 - tailRank(n, (100-p)/100, alpha) }

func tailRank(n int, q, alpha float64) int {
	if n == 0 {
		return 0
	}
	// The sum over the binomial is an incomplete beta function, which neither
	// overflows nor grows slow with n.
	below := distuv.Binomial{N: float64(n), P: q}
	return sort.Search(n, func(k int) bool { return below.CDF(float64(k)) > alpha*roundOff })
}
