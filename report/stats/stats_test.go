package stats

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func sample[T Number](values ...T) *Sample[T] {
	s := new(Sample[T])
	for _, v := range values {
		s.Add(v)
	}
	return s
}

func TestDescribe(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		unit   float64
		want   Statistic
	}{
		{
			name: "one value", values: []float64{7}, unit: 1,
			want: Statistic{Count: 1, Sum: 7, Avg: 7, Min: 7, Max: 7,
				Percentiles: [...]float64{7, 7, 7, 7, 7, 7, 7, 7, 7, 7}},
		},
		{
			// GenAI-Perf's own CSV test has these figures.
			name: "linear interpolation and population deviation", values: []float64{6, 4, 5}, unit: 1,
			want: Statistic{Count: 3, Sum: 15, Avg: 5, Min: 4, Max: 6, Std: math.Sqrt(2.0 / 3),
				Percentiles: [...]float64{4.02, 4.1, 4.2, 4.5, 5, 5.5, 5.8, 5.9, 5.98, 5.998}},
		},
		{
			name: "unit", values: []float64{2e6, 4e6}, unit: 1e6,
			want: Statistic{Count: 2, Sum: 6, Avg: 3, Min: 2, Max: 4, Std: 1,
				Percentiles: [...]float64{2.02, 2.1, 2.2, 2.5, 3, 3.5, 3.8, 3.9, 3.98, 3.998}},
		},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Describe(tt.values, tt.unit)
			if !ok {
				t.Fatal("no statistic")
			}
			if diff := cmp.Diff(tt.want, got, near); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestNothingHasNoStatistic(t *testing.T) {
	if s, ok := Describe([]float64{}, 1); ok {
		t.Errorf("Describe of nothing = %+v, want none", s)
	}
	if s, ok := new(Sample[float64]).WithFailures(3, 1); ok {
		t.Errorf("WithFailures of failures only = %+v, want none", s)
	}
}

// Neighbours that differ by a few nanoseconds in 1.7e18 must be subtracted as
// integers: their floats are the same.
func TestLargeIntegersKeepTheirDifference(t *testing.T) {
	const base = int64(1_700_000_000_000_000_000)
	sorted := []int64{base, base + 4096}
	s := sample(sorted...)
	s.settle()
	if got := s.linear(50) - float64(base); got != 2048 {
		t.Errorf("middle lies %v after the first, want 2048", got)
	}
}

func TestWithFailures(t *testing.T) {
	inf := math.Inf(1)
	got, _ := sample[float64](90, 66, 80, 70).WithFailures(2, 1)
	want := Statistic{Count: 6, Sum: inf, Avg: inf, Min: 66, Max: inf, Std: inf,
		// Ranks of p/100 * 5: 2.5 goes to the even 2, 3.75 to 4.
		Percentiles: [...]float64{66, 66, 66, 70, 80, inf, inf, inf, inf, inf}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	plain, _ := Describe([]float64{1, 2, 4}, 1)
	if same, _ := sample[float64](1, 2, 4).WithFailures(0, 1); same != plain {
		t.Errorf("without failures = %+v, want %+v", same, plain)
	}
}

func TestFew(t *testing.T) {
	tests := []struct {
		p     float64
		needs int64
	}{{50, 20}, {75, 40}, {90, 100}, {95, 200}, {99, 1000}, {99.9, 10000}, {1, 1000}, {25, 40}}
	for _, tt := range tests {
		if s := (Statistic{Count: tt.needs}); s.Few(tt.p) {
			t.Errorf("p%v of %d values is marked as few", tt.p, tt.needs)
		}
		if s := (Statistic{Count: tt.needs - 1}); !s.Few(tt.p) {
			t.Errorf("p%v of %d values is not marked as few", tt.p, tt.needs-1)
		}
	}
}

func TestPercentileKnowsOnlyItsOwn(t *testing.T) {
	s, _ := Describe([]time.Duration{1, 2, 3}, 1)
	if v, ok := s.Percentile(50); !ok || v != 2 {
		t.Errorf("p50 = %v, %v", v, ok)
	}
	if v, ok := s.Percentile(42); ok {
		t.Errorf("p42 = %v, want none", v)
	}
}

// Several blocks give what one would.
func TestRankOverBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := new(Sample[int64])
		var all []int64
		for range rapid.IntRange(1, 6).Draw(t, "blocks") {
			block := rapid.SliceOfN(rapid.Int64Range(-20, 20), 1, 50).Draw(t, "block")
			for _, v := range block {
				s.Add(v)
			}
			s.seal()
			all = append(all, block...)
		}
		s.settle()
		slices.Sort(all)
		for k, want := range all {
			if got := s.at(k); got != want {
				t.Fatalf("rank %d = %d, want %d", k, got, want)
			}
		}
		a, _ := s.Describe(3)
		b, _ := Describe(all, 3)
		if diff := cmp.Diff(b, a, cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestMoreThanOneBlock(t *testing.T) {
	const n = 2*blockSize + 1000
	s := new(Sample[int64])
	for i := range int64(n) {
		s.Add(i * 7919 % n) // every number below n once
	}
	got, _ := s.Describe(1)
	for i, p := range Percents {
		if want := p / 100 * (n - 1); math.Abs(got.Percentiles[i]-want) > 1e-6 {
			t.Errorf("p%v = %v, want %v", p, got.Percentiles[i], want)
		}
	}
	if got.Count != n || got.Min != 0 || got.Max != n-1 || got.Avg != (n-1)/2.0 {
		t.Errorf("%+v", got)
	}
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(-1e15, 1e15), 1, 200).Draw(t, "values")
		shuffled := rapid.Permutation(values).Draw(t, "shuffled")
		a, _ := Describe(slices.Clone(values), 1e6)
		b, _ := Describe(shuffled, 1e6)
		if a != b {
			t.Fatalf("the order of the values matters: %+v, %+v", a, b)
		}
		figures := append([]float64{a.Min}, append(a.Percentiles[:], a.Max)...)
		if !slices.IsSorted(figures) {
			t.Fatalf("percentiles do not ascend from min to max: %v", figures)
		}
		if a.Avg < a.Min-1e-6 || a.Avg > a.Max+1e-6 || a.Std < 0 || a.Std > a.Max-a.Min+1e-6 {
			t.Fatalf("mean or deviation out of range: %+v", a)
		}
		for _, v := range values {
			if float64(v)/1e6 < a.Min || float64(v)/1e6 > a.Max {
				t.Fatalf("%d lies outside min and max", v)
			}
		}
	})
}
