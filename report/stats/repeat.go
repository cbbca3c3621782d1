package stats

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
	"gonum.org/v1/gonum/stat/distuv"
)

// Repeats is one figure over several runs of the same plan.
type Repeats struct {
	Runs int
	Mean float64
	// Std is the standard deviation between runs: divided by Runs-1, since the
	// runs stand for those that could be made.
	Std float64
	// Interval is that of the mean, by Student's t: it supposes that the runs
	// do not depend on one another and are spread about normally.
	Interval Interval
}

// DescribeRepeats describes a figure by its value in each run, or returns false
// for fewer than two runs (one run says nothing about the next), a value that
// is not finite, or a level outside of 0 to 1.
func DescribeRepeats(runs []float64, level float64) (Repeats, bool) {
	n := len(runs)
	if n < 2 || !(level > 0 && level < 1) || slices.ContainsFunc(runs, notFinite) {
		return Repeats{}, false
	}
	r := Repeats{Runs: n, Mean: meanOf(runs)}
	var squares float64
	for _, v := range runs {
		squares += (v - r.Mean) * (v - r.Mean)
	}
	r.Std = math.Sqrt(squares / float64(n-1))
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(n - 1)}.Quantile((1 + level) / 2)
	half := t * r.Std / math.Sqrt(float64(n))
	r.Interval = Interval{Low: r.Mean - half, High: r.Mean + half, Level: level}
	return r, true
}

// MedianRepeats is the median over runs, which supposes nothing about how they
// are spread, by benchmath.
type MedianRepeats struct {
	Runs     int
	Median   float64
	Interval Interval // zero where Known is false
	Known    bool
	// Warnings say in words why there is no interval.
	Warnings []string
}

// DescribeMedian describes a figure by its value in each run, or returns false
// on the same terms as DescribeRepeats. At 0.95, an interval takes six runs.
func DescribeMedian(runs []float64, level float64) (MedianRepeats, bool) {
	if len(runs) < 2 || !(level > 0 && level < 1) || slices.ContainsFunc(runs, notFinite) {
		return MedianRepeats{}, false
	}
	s := benchmath.AssumeNothing.Summary(runsSample(runs, 1-level), level)
	m := MedianRepeats{Runs: len(runs), Median: s.Center, Warnings: texts(s.Warnings)}
	if !notFinite(s.Lo) && !notFinite(s.Hi) {
		m.Known = true
		m.Interval = Interval{Low: s.Lo, High: s.Hi, Level: level}
	}
	return m, true
}

// RunsTest is the Mann-Whitney U-test on the runs of two sides.
type RunsTest struct {
	// P is how often runs that do not differ would look at least this unlike.
	P float64
	// Differ is P < 1-level.
	Differ bool
	// Warnings say in words why the test could find nothing, as too few runs:
	// at 0.95, a side needs four.
	Warnings []string
}

// CompareRuns tests whether a figure differs between the runs of two sides. It
// takes one value a run, never one a request: requests of one run depend on one
// another, and the test would cry wolf. It returns false on the terms of
// DescribeRepeats, for either side.
func CompareRuns(base, other []float64, level float64) (RunsTest, bool) {
	if len(base) < 2 || len(other) < 2 || !(level > 0 && level < 1) ||
		slices.ContainsFunc(base, notFinite) || slices.ContainsFunc(other, notFinite) {
		return RunsTest{}, false
	}
	c := benchmath.AssumeNothing.Compare(runsSample(base, 1-level), runsSample(other, 1-level))
	return RunsTest{P: c.P, Differ: c.P < c.Alpha, Warnings: texts(c.Warnings)}, true
}

// runsSample copies the values, which benchmath would sort in place.
func runsSample(runs []float64, alpha float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(runs), &benchmath.Thresholds{CompareAlpha: alpha})
}

func texts(errs []error) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}
