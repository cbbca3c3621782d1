package stats

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescribeRepeats(t *testing.T) {
	// Intervals by scipy's t.ppf.
	tests := []struct {
		runs  []float64
		level float64
		want  Repeats
	}{
		{[]float64{10, 12}, 0.95, Repeats{2, 11, math.Sqrt2, Interval{-1.7062047361746941, 23.706204736174694, 0.95}}},
		{[]float64{100, 102, 98, 101, 99}, 0.95, Repeats{5, 100, 1.5811388300841898, Interval{98.03675683852244, 101.96324316147756, 0.95}}},
		{[]float64{1.5, 2.5, 4}, 0.99, Repeats{3, 8.0 / 3, 1.2583057392117916, Interval{-4.543564757214927, 9.87689809054826, 0.99}}},
		{[]float64{7, 7, 7}, 0.95, Repeats{3, 7, 0, Interval{7, 7, 0.95}}},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	for _, tt := range tests {
		got, ok := DescribeRepeats(tt.runs, tt.level)
		if !ok {
			t.Errorf("%v: nothing", tt.runs)
		}
		if diff := cmp.Diff(tt.want, got, near); diff != "" {
			t.Errorf("%v at %v: -want +got\n%s", tt.runs, tt.level, diff)
		}
	}
}

func TestRepeatsRefuse(t *testing.T) {
	for _, tt := range []struct {
		runs  []float64
		level float64
	}{{nil, 0.95}, {[]float64{1}, 0.95}, {[]float64{1, math.NaN()}, 0.95}, {[]float64{1, math.Inf(1)}, 0.95}, {[]float64{1, 2}, 0}, {[]float64{1, 2}, 1}, {[]float64{1, 2}, 95}} {
		if got, ok := DescribeRepeats(tt.runs, tt.level); ok {
			t.Errorf("DescribeRepeats(%v, %v) = %+v, want none", tt.runs, tt.level, got)
		}
		if got, ok := DescribeMedian(tt.runs, tt.level); ok {
			t.Errorf("DescribeMedian(%v, %v) = %+v, want none", tt.runs, tt.level, got)
		}
		if got, ok := CompareRuns([]float64{1, 2, 3, 4}, tt.runs, tt.level); ok {
			t.Errorf("CompareRuns(…, %v, %v) = %+v, want none", tt.runs, tt.level, got)
		}
	}
}

func TestDescribeMedian(t *testing.T) {
	runs := []float64{9, 1, 5, 3, 7, 11}
	got, ok := DescribeMedian(runs, 0.95)
	want := MedianRepeats{Runs: 6, Median: 6, Known: true, Interval: Interval{1, 11, 0.95}} // 1 - 2/2^6 = 0.969
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if !slices.Equal(runs, []float64{9, 1, 5, 3, 7, 11}) {
		t.Errorf("the runs were put in order: %v", runs)
	}
	few, ok := DescribeMedian(runs[:5], 0.95)
	if !ok || few.Known || few.Interval != (Interval{}) || few.Median != 5 {
		t.Errorf("of five runs: %+v, %v", few, ok)
	}
	if text := strings.Join(few.Warnings, "; "); !strings.Contains(text, ">= 6 samples") {
		t.Errorf("of five runs it warns %q", text)
	}
}

func TestCompareRuns(t *testing.T) {
	// P by scipy's mannwhitneyu(method="exact").
	tests := []struct {
		name        string
		base, other []float64
		p           float64
		differ      bool
		warning     string
	}{
		{"apart", []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 0.02857142857142857, true, ""},
		{"mixed", []float64{1, 2, 3, 4, 9}, []float64{5, 6, 7, 8}, 0.19047619047619047, false, ""},
		{"too few", []float64{1, 2, 3}, []float64{5, 6, 7}, 0.1, false, ">= 4 samples"},
		{"alike", []float64{5, 5, 5, 5}, []float64{5, 5, 5, 5}, 1, false, "equal"},
	}
	for _, tt := range tests {
		got, ok := CompareRuns(tt.base, tt.other, 0.95)
		if !ok || math.Abs(got.P-tt.p) > 1e-12 || got.Differ != tt.differ {
			t.Errorf("%s: %+v, %v, want p %v, %v", tt.name, got, ok, tt.p, tt.differ)
		}
		if text := strings.Join(got.Warnings, "; "); tt.warning == "" && text != "" || !strings.Contains(text, tt.warning) {
			t.Errorf("%s: it warns %q, want %q", tt.name, text, tt.warning)
		}
	}
}
