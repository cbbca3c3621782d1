package report

import (
	"math"
	"slices"
	"sync"

	"github.com/tokmark/tokmark/report/stats"
)

// Intervals say how well the percentiles of a metric are known.
type Intervals struct {
	// Bootstrap: neighbouring requests are alike, so the intervals are of a
	// moving-block bootstrap; otherwise of order statistics, which suppose
	// nothing but independent requests.
	Bootstrap bool
	// Effective is how many independent requests would say as much about the
	// mean, of Count.
	Effective float64
	Count     int
	// Of holds an interval for each of IntervalPercents.
	Of [len(IntervalPercents)]PercentileInterval
}

// Method names how the intervals were made.
func (in *Intervals) Method() string {
	if in.Bootstrap {
		return "block_bootstrap"
	}
	return "order_statistics"
}

// Known reports whether any side of any interval is known.
func (in *Intervals) Known() bool { return slices.ContainsFunc(in.Of[:], PercentileInterval.Known) }

// IntervalPercents are the percentiles that have an interval.
var IntervalPercents = [...]float64{50, 90, 95, 99, 99.9}

// IntervalLevel is the confidence of intervals.
const IntervalLevel = 0.95

// PercentileInterval is one interval, in the unit of the metric; nil is a side
// on which there are too few values to tell.
type PercentileInterval struct{ Low, High *float64 }

// Known reports whether a side is known.
func (i PercentileInterval) Known() bool { return i.Low != nil || i.High != nil }

// Interval is that of a percentile, unknown on both sides if there is none.
func (r Result) Interval(percent float64) PercentileInterval {
	if i := slices.Index(IntervalPercents[:], percent); i >= 0 && r.Intervals != nil {
		return r.Intervals.Of[i]
	}
	return PercentileInterval{}
}

const (
	// dependent is the share of effective requests from which on intervals
	// for independent ones would be too narrow to be called so: by an eighth.
	dependent = 0.75
	// drawn bounds the work of a bootstrap: how many values all its resamples
	// have together.
	drawn         = 1 << 23
	fewResamples  = 200
	mostResamples = 1000
)

// addIntervals gives intervals to the results of followed metrics.
func (t *tally) addIntervals(results []Result) {
	var running sync.WaitGroup
	for i := range results {
		place := slices.Index(followed[:], results[i].Tag)
		if place < 0 {
			continue
		}
		running.Go(func() {
			results[i].Intervals = intervalsOf(t.valuesOf(place, anyRequest), t.m.Seed)
		})
	}
	running.Wait()
}

// intervalsOf returns the intervals of a series in the order of time, nil if it
// is empty.
func intervalsOf(series []float64, seed uint64) *Intervals {
	n := len(series)
	if n == 0 {
		return nil
	}
	out := &Intervals{Count: n, Effective: stats.Effective(series)}
	out.Bootstrap = out.Effective < dependent*float64(n)
	sorted := slices.Sorted(slices.Values(series))
	estimate, _ := stats.Describe(sorted, 1)
	resamples := min(max(drawn/n, fewResamples), mostResamples)
	b := stats.Bootstrap{Level: IntervalLevel, Seed: seed, Resamples: resamples}
	for i, p := range IntervalPercents {
		if out.Bootstrap {
			if e, ok := b.Estimate(series, stats.PercentileMeasure(p)); ok {
				out.Of[i] = PercentileInterval{Low: &e.Interval.Low, High: &e.Interval.High}
			}
		} else {
			// Each side by itself, so that one may be known without the other. The
			// estimate is interpolated, so that of a handful of values it may lie
			// beyond a side: the side gives way, which makes it no less sure.
			at, _ := estimate.Percentile(p)
			const side = 1 - (1-IntervalLevel)/2
			if low, ok := stats.PercentileAtLeast(sorted, p, side); ok {
				low = min(low, at)
				out.Of[i].Low = &low
			}
			if high, ok := stats.PercentileAtMost(sorted, p, side); ok {
				high = max(high, at)
				out.Of[i].High = &high
			}
		}
	}
	return out
}

// moreFor is how many more requests the p99 needs: to have ten beyond it, as
// Statistic.Few wants, counted in independent ones if the run is known to have
// fewer of these than requests.
func moreFor(n int64, in *Intervals) int64 {
	const enough = 1000
	need := float64(enough)
	if in != nil && in.Bootstrap && in.Effective > 0 {
		need *= float64(in.Count) / in.Effective
	}
	return max(0, int64(math.Ceil(need))-n)
}
