package report

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tokmark/tokmark/bench/record"
)

// PrefillCost is a straight line through the times to first token over the
// input tokens that the server had to compute: what a token costs, and what
// every request costs. It is least squares; the intervals (95 %) take the
// requests for independent and the scatter for alike at every length.
type PrefillCost struct {
	Requests int64 `json:"requests"`
	// PerToken is in milliseconds a token, Fixed in milliseconds.
	PerToken     float64    `json:"ms_per_token"`
	PerTokenCI95 [2]float64 `json:"ms_per_token_ci95"`
	Fixed        float64    `json:"fixed_ms"`
	FixedCI95    [2]float64 `json:"fixed_ms_ci95"`
	// R2 is the share of the variance that the line explains.
	R2 float64 `json:"r2"`
	// Shortest and Longest are the lengths that the line stands on.
	Shortest int64 `json:"shortest_tokens"`
	Longest  int64 `json:"longest_tokens"`
}

// A line needs lengths that vary: it is drawn from so many requests on, of at
// least three lengths, with a standard deviation of a tenth of their mean.
const (
	fitRequests = 20
	fitLengths  = 3
	fitSpread   = 0.1
)

// uncached is the number of input tokens that had to be computed. In a cold run
// a server that does not tell its cached tokens is taken to have none.
func (t *tally) uncached(r *record.Record) int64 {
	in, cached := r.Tokens.Input, r.Tokens.Cached
	if !cached.IsKnown() && t.m.Cache.Mode == record.CacheCold {
		cached = 0
	}
	if !in.IsKnown() || !cached.IsKnown() || cached > in {
		return -1
	}
	return int64(in - cached)
}

// prefillCost fits the line; nil if the lengths do not vary enough for one.
func (t *tally) prefillCost() *PrefillCost {
	var x, y []float64
	lengths := map[float64]bool{}
	for i := range t.requests {
		q := &t.requests[i]
		if v := q.values[followTTFT]; q.state == stateValid && q.uncached >= 0 && !math.IsNaN(v) {
			x, y = append(x, float64(q.uncached)), append(y, v)
			if len(lengths) < fitLengths {
				lengths[float64(q.uncached)] = true
			}
		}
	}
	if len(x) < fitRequests || len(lengths) < fitLengths {
		return nil
	}
	n := float64(len(x))
	mx, my := *average(x), *average(y)
	var xx, xy, yy float64
	shortest, longest := x[0], x[0]
	for i := range x {
		dx, dy := x[i]-mx, y[i]-my
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
		shortest, longest = min(shortest, x[i]), max(longest, x[i])
	}
	if math.Sqrt(xx/n) < fitSpread*mx || yy == 0 {
		return nil
	}
	slope := xy / xx
	rest := max(0, yy-slope*xy)
	scatter := rest / (n - 2)
	quantile := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 2}.Quantile(1 - (1-IntervalLevel)/2)
	around := func(v, variance float64) [2]float64 {
		half := quantile * math.Sqrt(variance)
		return [2]float64{v - half, v + half}
	}
	fixed := my - slope*mx
	return &PrefillCost{
		Requests: int64(n),
		PerToken: slope, PerTokenCI95: around(slope, scatter/xx),
		Fixed: fixed, FixedCI95: around(fixed, scatter*(1/n+mx*mx/xx)),
		R2: 1 - rest/yy, Shortest: int64(shortest), Longest: int64(longest),
	}
}
