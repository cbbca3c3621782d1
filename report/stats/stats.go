// Package stats describes a set of values: count, sum, mean, extremes,
// percentiles and population standard deviation, by AIPerf's formulas.
package stats

import "slices"

// Percents are the percentiles of a Statistic, ascending.
var Percents = [...]float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9}

// Number is what can be described: integers, as nanoseconds or tokens, or
// floats.
type Number interface{ ~int64 | ~float64 }

// Statistic describes a set of at least one value. A field is +Inf if the
// values that it is made of are; no field is ever NaN.
type Statistic struct {
	Count    int64
	Sum      float64
	Avg      float64
	Min, Max float64
	// Percentiles stand in the order of Percents.
	Percentiles [len(Percents)]float64
	// Std is the population standard deviation: divided by n, not n - 1.
	Std float64
}

// Describe returns the statistic of values, as Sample.Describe does. It sorts
// values in place.
func Describe[T Number](values []T, unit float64) (Statistic, bool) {
	s := Sample[T]{last: values, n: len(values)}
	return s.Describe(unit)
}

// Percentile returns the percentile p, which must be one of Percents, or false
// if it is not.
func (s Statistic) Percentile(p float64) (float64, bool) {
	i := slices.Index(Percents[:], p)
	if i < 0 {
		return 0, false
	}
	return s.Percentiles[i], true
}

// Few reports whether there are too few values for percentile p to be more
// than the place of a few outliers: at least ten values have to lie beyond it
// on its shorter side, so p50 needs 20, p90 100 and p99 1000 values.
func (s Statistic) Few(p float64) bool {
	const slack = 1e-6 // 100 - 99.9 is not exact in binary
	return float64(s.Count)*min(p, 100-p) < 10*100-slack
}
