package stats

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// ranks are the values 1 to n, so that a value is its own rank.
func ranks(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(i + 1)
	}
	return out
}

func TestPercentileIntervalRanks(t *testing.T) {
	// By scipy 1.17.1: low is the largest r with binom.cdf(r-1, n, p) <= a/2, high
	// and most mirror that with 1-p, most with a in place of a/2. 0: none.
	tests := []struct {
		n               int
		p, level        float64
		low, high, most float64
	}{
		{5, 50, 0.95, 0, 0, 5},
		{5, 50, 0.99, 0, 0, 0},
		{5, 90, 0.95, 3, 0, 0},
		{5, 90, 0.99, 2, 0, 0},
		{5, 99, 0.95, 4, 0, 0},
		{5, 99, 0.99, 4, 0, 0},
		{5, 99.9, 0.95, 5, 0, 0},
		{5, 99.9, 0.99, 5, 0, 0},
		{6, 50, 0.95, 1, 6, 6},
		{6, 50, 0.99, 0, 0, 0},
		{6, 90, 0.95, 4, 0, 0},
		{6, 90, 0.99, 3, 0, 0},
		{6, 99, 0.95, 5, 0, 0},
		{6, 99, 0.99, 5, 0, 0},
		{6, 99.9, 0.95, 6, 0, 0},
		{6, 99.9, 0.99, 5, 0, 0},
		{10, 50, 0.95, 2, 9, 9},
		{10, 50, 0.99, 1, 10, 10},
		{10, 90, 0.95, 7, 0, 0},
		{10, 90, 0.99, 6, 0, 0},
		{10, 99, 0.95, 9, 0, 0},
		{10, 99, 0.99, 9, 0, 0},
		{10, 99.9, 0.95, 10, 0, 0},
		{10, 99.9, 0.99, 9, 0, 0},
		{20, 50, 0.95, 6, 15, 15},
		{20, 50, 0.99, 4, 17, 16},
		{20, 90, 0.95, 15, 0, 0},
		{20, 90, 0.99, 14, 0, 0},
		{20, 99, 0.95, 19, 0, 0},
		{20, 99, 0.99, 18, 0, 0},
		{20, 99.9, 0.95, 20, 0, 0},
		{20, 99.9, 0.99, 19, 0, 0},
		{36, 50, 0.95, 12, 25, 24},
		{36, 50, 0.99, 10, 27, 26},
		{36, 90, 0.95, 29, 36, 36},
		{36, 90, 0.99, 27, 0, 0},
		{36, 99, 0.95, 34, 0, 0},
		{36, 99, 0.99, 33, 0, 0},
		{36, 99.9, 0.95, 35, 0, 0},
		{36, 99.9, 0.99, 35, 0, 0},
		{100, 50, 0.95, 40, 61, 59},
		{100, 50, 0.99, 37, 64, 63},
		{100, 90, 0.95, 84, 96, 96},
		{100, 90, 0.99, 82, 98, 97},
		{100, 99, 0.95, 97, 0, 0},
		{100, 99, 0.99, 96, 0, 0},
		{100, 99.9, 0.95, 99, 0, 0},
		{100, 99.9, 0.99, 99, 0, 0},
		{528, 50, 0.95, 241, 288, 284},
		{528, 50, 0.99, 234, 295, 292},
		{528, 90, 0.95, 461, 489, 487},
		{528, 90, 0.99, 457, 493, 492},
		{528, 99, 0.95, 518, 528, 527},
		{528, 99, 0.99, 516, 528, 528},
		{528, 99.9, 0.95, 526, 0, 0},
		{528, 99.9, 0.99, 525, 0, 0},
		{1000, 50, 0.95, 469, 532, 527},
		{1000, 50, 0.99, 459, 542, 538},
		{1000, 90, 0.95, 881, 919, 916},
		{1000, 90, 0.99, 875, 925, 922},
		{1000, 99, 0.95, 983, 997, 996},
		{1000, 99, 0.99, 981, 998, 998},
		{1000, 99.9, 0.95, 997, 0, 0},
		{1000, 99.9, 0.99, 996, 0, 0},
		{10000, 50, 0.95, 4902, 5099, 5083},
		{10000, 50, 0.99, 4871, 5130, 5117},
		{10000, 90, 0.95, 8941, 9059, 9050},
		{10000, 90, 0.99, 8922, 9078, 9070},
		{10000, 99, 0.95, 9880, 9920, 9917},
		{10000, 99, 0.99, 9873, 9926, 9923},
		{10000, 99.9, 0.95, 9983, 9997, 9996},
		{10000, 99.9, 0.99, 9981, 9998, 9998},
		{1000000, 50, 0.95, 499020, 500981, 500823},
		{1000000, 50, 0.99, 498712, 501289, 501164},
		{1000000, 90, 0.95, 899412, 900589, 900494},
		{1000000, 90, 0.99, 899227, 900773, 900698},
		{1000000, 99, 0.95, 989805, 990196, 990164},
		{1000000, 99, 0.99, 989743, 990256, 990232},
		{1000000, 99.9, 0.95, 998938, 999062, 999053},
		{1000000, 99.9, 0.99, 998918, 999081, 999074},
	}
	for _, tt := range tests {
		sorted := ranks(tt.n)
		got, ok := PercentileInterval(sorted, tt.p, tt.level)
		want := Interval{Low: tt.low, High: tt.high, Level: tt.level}
		if tt.low == 0 || tt.high == 0 {
			want = Interval{}
		}
		if ok != (want != Interval{}) || got != want {
			t.Errorf("p%v of %d at %v = %+v, %v, want %+v", tt.p, tt.n, tt.level, got, ok, want)
		}
		if most, ok := PercentileAtMost(sorted, tt.p, tt.level); ok != (tt.most > 0) || most != tt.most {
			t.Errorf("p%v of %d is at most %v, %v at %v, want %v", tt.p, tt.n, most, ok, tt.level, tt.most)
		}
	}
}

func TestNeedFor(t *testing.T) {
	tests := []struct {
		p, level float64
		want     Need
	}{
		// 0.5^5 = 1/32 <= 0.05 < 1/16, and 0.5^6 = 1/64 <= 0.025.
		{50, 0.95, Need{6, 5, 5}},
		{50, 0.5, Need{2, 1, 1}},
		{10, 0.9, Need{29, 1, 22}}, // 0.1^1 <= 0.1, where 1-0.9 is less than that in binary
		// By trying n = 1, 2, … in Python.
		{75, 0.9, Need{11, 9, 2}},
		{90, 0.95, Need{36, 29, 2}},
		{95, 0.95, Need{72, 59, 1}},
		{99, 0.95, Need{368, 299, 1}},
		{99, 0.99, Need{528, 459, 1}},
		{99.9, 0.99, Need{5296, 4603, 1}},
		{1, 0.99, Need{528, 1, 459}},
	}
	for _, tt := range tests {
		got, ok := NeedFor(tt.p, tt.level)
		if !ok {
			t.Errorf("NeedFor(%v, %v) knows nothing", tt.p, tt.level)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("NeedFor(%v, %v): -want +got\n%s", tt.p, tt.level, diff)
		}
	}
	need, _ := NeedFor(99, 0.99)
	if got, want := need.More(460), (Need{Interval: 68}); got != want {
		t.Errorf("with 460 values there are %+v wanting, want %+v", got, want)
	}
}

// What NeedFor promises is what the bounds then do, and one value less is too
// few.
func TestNeedIsExact(t *testing.T) {
	for _, p := range Percents {
		for _, level := range []float64{0.8, 0.9, 0.95, 0.99} {
			need, _ := NeedFor(p, level)
			for _, tt := range []struct {
				name string
				n    int
				has  func(n int) bool
			}{
				{"interval", need.Interval, func(n int) bool { _, ok := PercentileInterval(ranks(n), p, level); return ok }},
				{"upper bound", need.AtMost, func(n int) bool { _, ok := PercentileAtMost(ranks(n), p, level); return ok }},
				{"lower bound", need.AtLeast, func(n int) bool { _, ok := PercentileAtLeast(ranks(n), p, level); return ok }},
			} {
				if !tt.has(tt.n) || tt.has(tt.n-1) {
					t.Errorf("%s of p%v at %v: %d values, %v; one less, %v", tt.name, p, level, tt.n, tt.has(tt.n), tt.has(tt.n-1))
				}
			}
		}
	}
}

func TestBoundsOutOfRange(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct{ p, level float64 }{{0, 0.9}, {100, 0.9}, {-1, 0.9}, {nan, 0.9}, {50, 0}, {50, 1}, {50, 95}, {50, nan}} {
		if got, ok := PercentileInterval(ranks(100), tt.p, tt.level); ok {
			t.Errorf("p%v at %v = %+v, want none", tt.p, tt.level, got)
		}
		if got, ok := PercentileAtMost(ranks(100), tt.p, tt.level); ok {
			t.Errorf("p%v at %v is at most %v, want none", tt.p, tt.level, got)
		}
		if got, ok := PercentileAtLeast(ranks(100), tt.p, tt.level); ok {
			t.Errorf("p%v at %v is at least %v, want none", tt.p, tt.level, got)
		}
		if got, ok := NeedFor(tt.p, tt.level); ok {
			t.Errorf("NeedFor(%v, %v) = %+v, want none", tt.p, tt.level, got)
		}
	}
	if got, ok := PercentileInterval(nil, 50, 0.9); ok {
		t.Errorf("of nothing = %+v, want none", got)
	}
}

// The interval holds the percentile that the report shows; more confidence
// makes it wider; turning the values around turns it around.
func TestIntervalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "n")
		p := rapid.SampledFrom(Percents[:]).Draw(t, "p")
		level := rapid.Float64Range(0.8, 0.999).Draw(t, "level")
		got, ok := PercentileInterval(ranks(n), p, level)
		if !ok {
			return
		}
		shown, _ := Describe(ranks(n), 1)
		if v, _ := shown.Percentile(p); !got.Contains(v) {
			t.Fatalf("%+v does not hold p%v = %v", got, p, v)
		}
		if less, ok := PercentileInterval(ranks(n), p, level-0.05); !ok || less.Low < got.Low || less.High > got.High {
			t.Fatalf("%+v at %v lies outside of %+v at %v", less, level-0.05, got, level)
		}
		back, ok := PercentileInterval(ranks(n), 100-p, level)
		if !ok || back.Low+got.High != float64(n+1) || back.High+got.Low != float64(n+1) {
			t.Fatalf("p%v: %+v, p%v: %+v: no mirror images", p, got, 100-p, back)
		}
		most, ok := PercentileAtMost(ranks(n), p, level)
		if !ok || most > got.High {
			t.Fatalf("the upper bound %v lies above the interval %+v", most, got)
		}
	})
}
