package stats

import "math"

// Span is a range of bins: From is the first, To the one after the last.
type Span struct{ From, To int }

// Len is the number of bins.
func (s Span) Len() int { return s.To - s.From }

// Limits of Steady.
const (
	// perBatch is how many bins MSER-5 takes together.
	perBatch = 5
	// minBatches is how many of them there must be to see a ramp in.
	minBatches = 8
	// maxBatches bounds the work, which grows with its square.
	maxBatches = 400
)

// Steady returns the bins of a run in which all the series are steady, without
// ramp-up and tail. The series, as requests in flight, tokens a second and TTFT,
// have one value for each bin of time, the bins being the same for all; NaN
// stands for a bin in which nothing was measured.
//
// Each series is cut by the marginal standard error rule MSER-5 (White 1997):
// over averages of five bins (more above 2000 bins), the span is kept that
// makes the sum of squares about its mean, divided by the square of its
// length, least. It is searched for from both ends together, since a tail would
// spoil the search for the ramp, and keeps at least half of the run.
//
// The rule also trims noise. So a cut gives back averages from its inner end up
// to the first that lies two standard deviations of the kept part off its mean,
// and it is dropped unless the mean of what is left lies off by one standard
// deviation and by four standard errors, for which autocorrelation counts (four,
// not two, since the rule has chosen the quietest part to compare with). The
// result is what all series have in common.
//
// It returns all bins and false if there are fewer than 40 of them, the series
// differ in length, or less than half of the run is steady in all; also if
// there is no series. A series that is steady nowhere, or keeps drifting slowly,
// is not noticed: see whether the two halves of the span agree.
func Steady(series ...[]float64) (Span, bool) {
	if len(series) == 0 {
		return Span{}, false
	}
	n := len(series[0])
	whole := Span{To: n}
	batches := min(n/perBatch, maxBatches)
	if batches < minBatches {
		return whole, false
	}
	span := whole
	for _, s := range series {
		if len(s) != n {
			return whole, false
		}
		cut := steadySpan(batchMeans(s, batches))
		span.From = max(span.From, cut.From*n/batches)
		span.To = min(span.To, cut.To*n/batches)
	}
	if 2*span.Len() < n {
		return whole, false
	}
	return span, true
}

// batchMeans averages neighbouring bins. A batch of bins without value has NaN.
func batchMeans(bins []float64, batches int) []float64 {
	out := make([]float64, batches)
	for i := range out {
		var sum, count float64
		for _, v := range bins[i*len(bins)/batches : (i+1)*len(bins)/batches] {
			if !math.IsNaN(v) {
				sum += v
				count++
			}
		}
		out[i] = sum / count // 0/0 is NaN
	}
	return out
}

// steadySpan returns the steady span of batch means, all if there are too few
// that have a value.
func steadySpan(means []float64) Span {
	whole := Span{To: len(means)}
	var values []float64
	var at []int // the batch of each value
	for i, v := range means {
		if !math.IsNaN(v) {
			values, at = append(values, v), append(at, i)
		}
	}
	n := len(values)
	if n < minBatches {
		return whole
	}
	kept := leastMarginalError(values)
	kept = giveBack(values, kept)
	// What has no value cannot be unsteady.
	span := whole
	if kept.From > 0 {
		span.From = at[kept.From]
	}
	if kept.To < n {
		span.To = at[kept.To-1] + 1
	}
	return span
}

// leastMarginalError searches spans of at least half of the values, long ones
// first: of equals, the longest stays.
func leastMarginalError(values []float64) Span {
	n := len(values)
	mean := meanOf(values)
	sums, squares := make([]float64, n+1), make([]float64, n+1)
	for i, v := range values {
		v -= mean
		sums[i+1], squares[i+1] = sums[i]+v, squares[i]+v*v
	}
	best, least := Span{To: n}, math.Inf(1)
	for length := n; 2*length >= n; length-- {
		for from := 0; from+length <= n; from++ {
			sum := sums[from+length] - sums[from]
			square := squares[from+length] - squares[from]
			spread := max(0, square-sum*sum/float64(length))
			if spread <= 1e-12*squares[n] { // that is rounding
				spread = 0
			}
			if mser := spread / float64(length*length); mser < least {
				best, least = Span{From: from, To: from + length}, mser
			}
		}
	}
	return best
}

// giveBack takes back what a cut has of noise, as Steady states.
func giveBack(values []float64, kept Span) Span {
	inner := values[kept.From:kept.To]
	mean := meanOf(inner)
	deviation := math.Sqrt(autocovariances(inner, 0)[0])
	time := max(1, dependenceOf(inner).time(asIs))
	off := func(cut []float64, deviations float64) bool {
		return len(cut) > 0 && math.Abs(meanOf(cut)-mean) > deviations*deviation
	}
	standing := func(cut []float64) bool {
		return off(cut, max(1, 4*math.Sqrt(min(1, time/float64(len(cut))+time/float64(len(inner))))))
	}
	for kept.From > 0 && !off(values[kept.From-1:kept.From], 2) {
		kept.From--
	}
	for kept.To < len(values) && !off(values[kept.To:kept.To+1], 2) {
		kept.To++
	}
	if !standing(values[:kept.From]) {
		kept.From = 0
	}
	if !standing(values[kept.To:]) {
		kept.To = len(values)
	}
	return kept
}
