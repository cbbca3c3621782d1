package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Measure is the figure of a series that is estimated. The zero value is the
// mean, which is also that of shares (values of 0 and 1).
type Measure struct {
	percent    float64
	percentile bool
}

// MeanMeasure is the arithmetic mean.
func MeanMeasure() Measure { return Measure{} }

// PercentileMeasure is percentile p (0 to 100), interpolated as in Describe.
func PercentileMeasure(p float64) Measure { return Measure{percent: p, percentile: true} }

// Bootstrap makes confidence intervals for values that depend on those before
// them, as the requests of one run do. The zero value is ready for use.
//
// The series is wrapped into a circle and resampled in blocks of neighbours, so
// that what neighbours share stays in the resample. For the mean, the interval
// lies between the percentiles of the resamples' means. For a percentile,
// resampled is the share of values below it, and the interval lies between the
// values at the percentiles of that share: for independent values this is
// PercentileInterval.
//
// Three rules make it hold its level, which the plain method does not: of 2000
// made series of 500 log-normal values with AR(1) correlation 0.8, it held the
// mean at 0.95 in 0.82 of cases with blocks of n^(1/3), and 0.90 with the first
// rule only.
//
//   - The block length is Politis and White's for an AR(1) series that has the
//     same autocorrelation time t: (1.5 n)^(1/3) * ((t*t-1) / 2t)^(2/3),
//     rounded up; 1 for independent values. t comes from autoregressions
//     fitted to the values, or, for a percentile, to whether each lies above
//     it: that, not the size of the values, is what a percentile depends on.
//   - Blocks cut dependence at their ends, so resamples vary too little. Each is
//     made shorter than the series by as much as the fitted autoregressions say
//     that they do, and by (t-quantile / normal quantile)^2 with n/(1+2t)
//     degrees of freedom because that too is an estimate.
//   - Of the values above a high percentile there are too few to tell their
//     dependence, and the estimate is mostly too low. It is held to be at least
//     what it would be if the dependence of all values, through their ranks,
//     were a Gaussian one.
//
// With them, 4000 made series of 500 values gave 0.954 to 0.967 for independent
// values (exponential and log-normal; mean, p50, p90, ratio of p50), and 0.941
// (the mean at 0.8) to 0.963 for AR(1) of 0.5 and 0.8. A weaker memory that
// lasts longer than a fit to 500 values shows, AR(1) of 0.9 under as much white
// noise, leaves 0.91 for the mean and 0.92 for p50; 0.93 and 0.95 at 2000.
//
// The same values and Seed give the same result, but for last bits that
// processors round differently. The time it takes grows with Resamples times
// values / Block: 6 to 170 ms for the ratio of 2 x 5000. It is safe for
// concurrent use.
type Bootstrap struct {
	// Resamples is their number; 0: 1000. Few make the ends jump about.
	Resamples int
	// Level is the confidence; 0: 0.95.
	Level float64
	Seed  uint64
}

// Estimate is a figure of one series and how well it is known.
type Estimate struct {
	// Value is the figure of the series itself.
	Value float64
	// Interval is zero if it could not be told.
	Interval Interval
	// Count is the number of values, Effective that of independent ones which
	// would tell the measure as well, Block the length of the blocks.
	Count     int
	Effective float64
	Block     int
}

// Ratio is a figure of one series divided by that of another.
type Ratio struct {
	// Value is Other.Value / Base.Value.
	Value    float64
	Interval Interval
	// Base and Other have their own intervals.
	Base, Other Estimate
}

// minEffective is how many independent values an interval needs at the least,
// of whatever measure: below it nothing can be said about their dependence.
const minEffective = 10

// Estimate returns the measure of a series that is in the order of time. It
// returns false if there is no interval: fewer than 10 effective values; too few
// of them for one end to lie within the sample (NeedFor tells how many that
// takes); a value that is not finite; a measure or level out of range. Value,
// Count, Effective and Block are set even then, as far as they are known.
func (b Bootstrap) Estimate(series []float64, m Measure) (Estimate, bool) {
	e, draws := b.draw(series, m, 0)
	if draws == nil {
		return e, false
	}
	e.Interval = b.between(draws)
	return e, true
}

// Ratio returns the measure of other over that of base. The two series are
// independent of one another, each in the order of time. It returns false if
// Estimate would for either, or if the measure of base is not above 0 in every
// resample.
func (b Bootstrap) Ratio(base, other []float64, m Measure) (Ratio, bool) {
	var (
		r          Ratio
		down, over []float64
	)
	r.Base, down = b.draw(base, m, 0)
	r.Other, over = b.draw(other, m, 1)
	if down == nil || over == nil || !(r.Base.Value > 0) || !(slices.Min(down) > 0) {
		return r, false
	}
	r.Value = r.Other.Value / r.Base.Value
	ratios := make([]float64, len(down))
	for i := range ratios {
		ratios[i] = over[i] / down[i]
	}
	r.Interval = b.between(ratios)
	r.Base.Interval = b.between(down)
	r.Other.Interval = b.between(over)
	return r, true
}

func (b Bootstrap) level() float64 {
	if b.Level == 0 {
		return 0.95
	}
	return b.Level
}

// between returns the interval between the percentiles of draws, which it sorts.
func (b Bootstrap) between(draws []float64) Interval {
	slices.Sort(draws)
	tail := (1 - b.level()) / 2
	// The truth is as likely to fall into each of the n+1 gaps.
	at := func(q float64) float64 { return interpolate(draws, q*float64(len(draws)+1)-1) }
	return Interval{Low: at(tail), High: at(1 - tail), Level: b.level()}
}

// draw returns the estimate without its interval, and where the true measure
// may lie, once for each resample; no draws if there cannot be an interval.
func (b Bootstrap) draw(series []float64, m Measure, stream uint64) (Estimate, []float64) {
	n := len(series)
	e := Estimate{Count: n}
	p := 50.0
	if m.percentile {
		p = m.percent
	}
	if !inRange(p, b.level()) || n < minEffective || slices.ContainsFunc(series, notFinite) {
		return e, nil
	}
	s := newResampler(series, m)
	if notFinite(s.variance()) { // sums overflow
		return e, nil
	}
	e.Value = s.value
	t := s.time()
	e.Effective = float64(n) / t
	e.Block = min(blockLength(n, t), n/2)
	if e.Effective < minEffective {
		return e, nil
	}

	tail := (1 - b.level()) / 2
	length := float64(n)
	if v := s.blockVariance(e.Block); v > 0 {
		freedom := max(3, float64(n)/(1+2*t))
		wider := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(tail) / distuv.UnitNormal.Quantile(tail)
		length /= max(1, t*s.variance()/v) * wider * wider
	}
	draws := make([]float64, b.resamples())
	rng := rand.New(rand.NewPCG(b.Seed, stream))
	var below, above int // how many lie outside the sample
	for i := range draws {
		var side int
		draws[i], side = s.resample(rng, e.Block, max(2, int(math.Round(length))))
		switch {
		case side < 0:
			below++
		case side > 0:
			above++
		}
	}
	if float64(max(below, above)) > tail*float64(len(draws)) {
		return e, nil
	}
	return e, draws
}

func (b Bootstrap) resamples() int {
	if b.Resamples <= 0 {
		return 1000
	}
	return b.Resamples
}

func notFinite(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// blockLength is the rule that Bootstrap states.
func blockLength(n int, t float64) int {
	return max(1, int(math.Ceil(math.Cbrt(1.5*float64(n))*math.Pow((t*t-1)/(2*t), 2.0/3))))
}

// resampler makes resamples of one series for one measure.
type resampler struct {
	m     Measure
	value float64
	// influence is what each value adds to the measure: the value, or whether
	// it lies below the percentile; less the mean of that.
	influence []float64
	prefix    []float64 // sums of the first i of influence, twice around
	sorted    []float64
	scores    []float64 // for percentiles: the normal scores of the ranks
}

func newResampler(series []float64, m Measure) *resampler {
	n := len(series)
	s := &resampler{m: m, influence: make([]float64, n), prefix: make([]float64, 2*n+1)}
	if m.percentile {
		s.rank(series)
	} else {
		s.value = meanOf(series)
		copy(s.influence, series)
	}
	mean := meanOf(s.influence)
	for i := range s.influence {
		s.influence[i] -= mean
	}
	for i := range 2 * n {
		s.prefix[i+1] = s.prefix[i] + s.influence[i%n]
	}
	return s
}

// rank sets what percentiles need.
func (s *resampler) rank(series []float64) {
	n := len(series)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(series[a], series[b]) })
	s.sorted = make([]float64, n)
	for rank, i := range order {
		s.sorted[rank] = series[i]
	}
	s.value = interpolate(s.sorted, s.m.percent/100*float64(n-1))
	s.scores = make([]float64, n)
	for from := 0; from < n; {
		to := from + 1
		for to < n && s.sorted[to] == s.sorted[from] {
			to++
		}
		// Equal values share one score, and as much of them lies below the
		// percentile as makes it the percentile.
		score := distuv.UnitNormal.Quantile(float64(from+to) / 2 / float64(n))
		var below float64
		switch v := s.sorted[from]; {
		case v < s.value:
			below = 1
		case v == s.value:
			below = min(max((s.m.percent/100*float64(n)-float64(from))/float64(to-from), 0), 1)
		}
		for ; from < to; from++ {
			s.scores[order[from]], s.influence[order[from]] = score, below
		}
	}
}

// resample draws blocks until there are length values, cuts the last one, and
// returns where they say that the true measure may lie. For a percentile that
// is between two neighbours of the sample, or it may be outside: side is then
// -1 or 1 and the value the first or the last.
func (s *resampler) resample(rng *rand.Rand, block, length int) (v float64, side int) {
	n := len(s.influence)
	var sum float64
	for left := length; left > 0; left -= block {
		from := rng.IntN(n)
		sum += s.prefix[from+min(block, left)] - s.prefix[from]
	}
	if !s.m.percentile {
		return s.value + sum/float64(length), 0
	}
	below := s.m.percent/100*float64(length) + sum
	rank := (below+rng.Float64())*float64(n+1)/float64(length+1) - 1
	const half = 0.5 // below is whole only up to what centring took
	switch {
	case below < half:
		side = -1
	case below > float64(length)-half:
		side = 1
	}
	return interpolate(s.sorted, rank), side
}

// variance is that of influence.
func (s *resampler) variance() float64 { return s.blockVariance(1) }

// blockVariance is n times the variance of the mean over resamples in blocks.
func (s *resampler) blockVariance(block int) float64 {
	var squares float64
	for i := range s.influence {
		sum := s.prefix[i+block] - s.prefix[i]
		squares += sum * sum
	}
	return squares / float64(len(s.influence)) / float64(block)
}

// time is the autocorrelation time that tells how well the measure is known,
// at least 1.
func (s *resampler) time() float64 {
	t := max(1, dependenceOf(s.influence).time(asIs))
	if s.m.percentile {
		t = max(t, dependenceOf(s.scores).time(exceedance(s.m.percent)))
	}
	return t
}

// exceedance returns the function that makes, of the correlation r of two
// normal variables, the correlation of whether they lie above their percentile
// p: the integral over their density at (q, q) from correlation 0 to r.
func exceedance(p float64) func(r float64) float64 {
	const steps = 512 // over asin(r) from -pi/2 to pi/2; even
	q := distuv.UnitNormal.Quantile(p / 100)
	share := p / 100 * (1 - p/100)
	const h = math.Pi / steps
	// in is the part of the integral in the middle of step i: at -1 itself there
	// is no density.
	in := func(i int) float64 {
		angle := math.Pi*(float64(i)+0.5)/steps - math.Pi/2
		return h * math.Exp(-q*q/(1+math.Sin(angle))) / (2 * math.Pi * share)
	}
	var table [steps + 1]float64
	for i := steps / 2; i < steps; i++ {
		table[i+1] = table[i] + in(i)
	}
	for i := steps / 2; i > 0; i-- {
		table[i-1] = table[i] - in(i-1)
	}
	return func(r float64) float64 {
		at := (math.Asin(min(max(r, -1), 1))/math.Pi + 0.5) * steps
		return interpolate(table[:], at)
	}
}

// interpolate returns the value at a rank, from 0, between two whole ones; the
// first or last where it lies beyond.
func interpolate(sorted []float64, rank float64) float64 {
	last := len(sorted) - 1
	rank = min(max(rank, 0), float64(last))
	i := min(int(rank), last)
	v := sorted[i]
	return v + (rank-float64(i))*(sorted[min(i+1, last)]-v)
}
