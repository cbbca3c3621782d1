package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// series makes values whose truth is known.
type series struct {
	name           string
	of             func(rng *rand.Rand, n int) []float64
	mean, p50, p90 float64
}

// latencies are log-normal, as latencies about are, with correlation phi
// between the logarithms of neighbours.
func latencies(phi float64) series {
	return series{
		name: fmt.Sprintf("log-normal, AR(1) %v", phi),
		of: func(rng *rand.Rand, n int) []float64 {
			out := ar1(rng, n, phi)
			for i, v := range out {
				out[i] = math.Exp(v / 2)
			}
			return out
		},
		mean: math.Exp(0.125), p50: 1, p90: math.Exp(1.2815515655446004 / 2),
	}
}

func exponential() series {
	return series{
		name: "exponential",
		of: func(rng *rand.Rand, n int) []float64 {
			out := make([]float64, n)
			for i := range out {
				out[i] = rng.ExpFloat64()
			}
			return out
		},
		mean: 1, p50: math.Ln2, p90: math.Log(10),
	}
}

// The promise: an interval at 0.95 holds the truth in 93 to 97 of 100 cases.
func TestCoverage(t *testing.T) {
	if testing.Short() || underRace {
		t.Skip("long arithmetic that shares nothing")
	}
	const (
		trials = 800
		n      = 500
		level  = 0.95
	)
	type method struct {
		name     string
		truth    func(s series) float64
		interval func(seed uint64, next func() []float64) (Interval, bool)
	}
	estimate := func(m Measure) func(uint64, func() []float64) (Interval, bool) {
		return func(seed uint64, next func() []float64) (Interval, bool) {
			e, ok := Bootstrap{Resamples: 300, Seed: seed}.Estimate(next(), m)
			return e.Interval, ok
		}
	}
	order := func(p float64) func(uint64, func() []float64) (Interval, bool) {
		return func(_ uint64, next func() []float64) (Interval, bool) {
			sorted := next()
			slices.Sort(sorted)
			return PercentileInterval(sorted, p, level)
		}
	}
	mean := func(s series) float64 { return s.mean }
	p50 := func(s series) float64 { return s.p50 }
	p90 := func(s series) float64 { return s.p90 }
	ordered := []method{
		{"order statistics p50", p50, order(50)},
		{"order statistics p90", p90, order(90)},
	}
	bootstrap := []method{
		{"bootstrap mean", mean, estimate(MeanMeasure())},
		{"bootstrap p50", p50, estimate(PercentileMeasure(50))},
		{"bootstrap p90", p90, estimate(PercentileMeasure(90))},
		{"bootstrap ratio of p50", func(series) float64 { return 1 }, func(seed uint64, next func() []float64) (Interval, bool) {
			r, ok := Bootstrap{Resamples: 300, Seed: seed}.Ratio(next(), next(), PercentileMeasure(50))
			return r.Interval, ok
		}},
	}
	for _, tt := range []struct {
		series  series
		methods []method
	}{
		{exponential(), slices.Concat(ordered, bootstrap)},
		{latencies(0), slices.Concat(ordered, bootstrap)},
		{latencies(0.5), bootstrap},
		{latencies(0.8), bootstrap},
	} {
		for _, m := range tt.methods {
			t.Run(tt.series.name+", "+m.name, func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(2026, 11))
				next := func() []float64 { return tt.series.of(rng, n) }
				truth := m.truth(tt.series)
				var held, below, above, none int
				for i := range trials {
					switch got, ok := m.interval(uint64(i), next); {
					case !ok:
						none++
					case truth < got.Low:
						below++
					case truth > got.High:
						above++
					default:
						held++
					}
				}
				t.Logf("held %.3f; truth below it %.3f, above %.3f; no interval %.3f",
					float64(held)/trials, float64(below)/trials, float64(above)/trials, float64(none)/trials)
				if held < 0.93*trials || held > 0.97*trials || none > 0.01*trials {
					t.Errorf("the interval at %v held the truth in %d of %d cases, none in %d", level, held, trials, none)
				}
			})
		}
	}
}

// The plain reading of the values would be sure of a difference where there is
// none; this is what the blocks are for.
func TestDependenceWidensTheInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	inOrder := latencies(0.9).of(rng, 4000)
	shuffled := slices.Clone(inOrder)
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for _, m := range []Measure{MeanMeasure(), PercentileMeasure(50), PercentileMeasure(95)} {
		a, ok1 := Bootstrap{}.Estimate(inOrder, m)
		b, ok2 := Bootstrap{}.Estimate(shuffled, m)
		if !ok1 || !ok2 || a.Value != b.Value && math.Abs(a.Value-b.Value) > 1e-12 {
			t.Fatalf("%+v: %+v, %v and %+v, %v", m, a, ok1, b, ok2)
		}
		if wide, narrow := a.Interval.High-a.Interval.Low, b.Interval.High-b.Interval.Low; wide < 1.8*narrow {
			t.Errorf("%+v: in order of time %v wide, shuffled %v", m, wide, narrow)
		}
		if a.Effective > b.Effective/3 || a.Block < 5*b.Block {
			t.Errorf("%+v: in order of time %+v, shuffled %+v", m, a, b)
		}
	}
}

// For independent values the bootstrap of a percentile says what order
// statistics say: within a few ranks of chance.
func TestBootstrapIsOrderStatistics(t *testing.T) {
	values := ranks(1000)
	rand.New(rand.NewPCG(1, 0)).Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	for _, p := range []float64{1, 10, 50, 90, 99} {
		got, ok := Bootstrap{Resamples: 20000}.Estimate(values, PercentileMeasure(p))
		want, _ := PercentileInterval(ranks(1000), p, 0.95)
		if !ok || math.Abs(got.Interval.Low-want.Low) > 3 || math.Abs(got.Interval.High-want.High) > 3 {
			t.Errorf("p%v: bootstrap %+v, %v, order statistics %+v", p, got, ok, want)
		}
	}
}

func TestBootstrapRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	some := latencies(0).of(rng, 300)
	with := func(v float64) []float64 { return append(slices.Clone(some), v) }
	tests := []struct {
		name   string
		b      Bootstrap
		values []float64
		m      Measure
	}{
		{"nothing", Bootstrap{}, nil, MeanMeasure()},
		{"nine values", Bootstrap{}, some[:9], MeanMeasure()},
		{"NaN", Bootstrap{}, with(math.NaN()), MeanMeasure()},
		{"infinite", Bootstrap{}, with(math.Inf(1)), PercentileMeasure(50)},
		{"too large to be squared", Bootstrap{}, with(1e300), MeanMeasure()},
		{"p0", Bootstrap{}, some, PercentileMeasure(0)},
		{"p100", Bootstrap{}, some, PercentileMeasure(100)},
		{"level of 95", Bootstrap{Level: 95}, some, MeanMeasure()},
		{"p99 of 300", Bootstrap{}, some, PercentileMeasure(99)}, // 368 are needed
		{"few independent values", Bootstrap{}, latencies(0.99).of(rng, 300), MeanMeasure()},
		{"a line", Bootstrap{}, ranks(300), MeanMeasure()},
	}
	for _, tt := range tests {
		if got, ok := tt.b.Estimate(tt.values, tt.m); ok || got.Interval != (Interval{}) || got.Count != len(tt.values) {
			t.Errorf("%s: %+v, %v, want no interval", tt.name, got, ok)
		}
		if got, ok := tt.b.Ratio(some, tt.values, tt.m); ok || got.Interval != (Interval{}) {
			t.Errorf("%s: as a ratio %+v, %v, want none", tt.name, got, ok)
		}
	}
	around0 := ar1(rng, 300, 0)
	for _, base := range [][]float64{around0, make([]float64, 300)} {
		if got, ok := (Bootstrap{}).Ratio(base, some, MeanMeasure()); ok || got.Value != 0 {
			t.Errorf("over a mean about 0: %+v, want none", got)
		}
	}
}

func TestBootstrapOfTies(t *testing.T) {
	same := slices.Repeat([]float64{7}, 100)
	steps := slices.Repeat([]float64{1, 2, 2, 2, 2, 2, 3, 3, 3, 3}, 100)
	tests := []struct {
		name   string
		values []float64
		m      Measure
		want   Interval
	}{
		{"mean of equals", same, MeanMeasure(), Interval{7, 7, 0.95}},
		{"p50 of equals", same, PercentileMeasure(50), Interval{7, 7, 0.95}},
		{"inside of a tie", steps, PercentileMeasure(50), Interval{2, 2, 0.95}},
		{"border of a tie", steps, PercentileMeasure(60), Interval{2, 3, 0.95}},
	}
	rng := rand.New(rand.NewPCG(8, 0))
	for _, tt := range tests {
		rng.Shuffle(len(tt.values), func(i, j int) { tt.values[i], tt.values[j] = tt.values[j], tt.values[i] })
		if got, ok := (Bootstrap{}).Estimate(tt.values, tt.m); !ok || got.Interval != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, ok, tt.want)
		}
	}
}

func TestRatio(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	base := latencies(0.5).of(rng, 3000)
	faster := latencies(0.5).of(rng, 2000)
	for i := range faster {
		faster[i] *= 0.8
	}
	for _, m := range []Measure{MeanMeasure(), PercentileMeasure(50), PercentileMeasure(90)} {
		r, ok := Bootstrap{}.Ratio(base, faster, m)
		if !ok || !r.Interval.Contains(0.8) || r.Interval.Contains(1) || !r.Interval.Contains(r.Value) {
			t.Errorf("%+v: %+v, %v, want an interval about 0.8 without 1", m, r, ok)
		}
		if alone, _ := (Bootstrap{}).Estimate(base, m); alone != r.Base {
			t.Errorf("%+v: base %+v differs from its estimate %+v", m, r.Base, alone)
		}
		if r.Value != r.Other.Value/r.Base.Value || !r.Other.Interval.Contains(r.Other.Value) {
			t.Errorf("%+v: %+v does not agree with itself", m, r)
		}
	}
	// The same run twice is two draws, not one that cancels out.
	if r, ok := (Bootstrap{}).Ratio(base, base, MeanMeasure()); !ok || r.Value != 1 || r.Interval.Low >= 1 || r.Interval.High <= 1 {
		t.Errorf("a series over itself: %+v, %v", r, ok)
	}
}

// The same seed gives the same; the values are left as they are; a unit changes
// nothing but the unit; another seed moves the ends little.
func TestBootstrapProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(50, 400).Draw(t, "n")
		seed := rapid.Uint64().Draw(t, "seed")
		m := rapid.SampledFrom([]Measure{MeanMeasure(), PercentileMeasure(25), PercentileMeasure(50), PercentileMeasure(90)}).Draw(t, "measure")
		values := latencies(rapid.SampledFrom([]float64{-0.5, 0, 0.5}).Draw(t, "phi")).of(rand.New(rand.NewPCG(seed, 1)), n)
		kept := slices.Clone(values)
		b := Bootstrap{Resamples: 200, Seed: seed}
		one, ok := b.Estimate(values, m)
		two, _ := b.Estimate(values, m)
		if one != two || !slices.Equal(values, kept) {
			t.Fatalf("%+v, then %+v", one, two)
		}
		if !ok {
			return
		}
		if !one.Interval.Contains(one.Value) || one.Interval.Low < slices.Min(values) || one.Interval.High > slices.Max(values) {
			t.Fatalf("%+v is no interval of the values", one)
		}
		if one.Effective > float64(n) || one.Effective < minEffective || one.Block < 1 || one.Count != n {
			t.Fatalf("%+v of %d values", one, n)
		}
		for i := range values {
			values[i] *= 1024 // exact in binary
		}
		scaled, _ := b.Estimate(values, m)
		scaled.Value /= 1024
		scaled.Interval.Low /= 1024
		scaled.Interval.High /= 1024
		if scaled != one {
			t.Fatalf("%+v, in another unit %+v", one, scaled)
		}
	})
}

func BenchmarkRatio(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, phi := range []float64{0, 0.8} {
		base, other := latencies(phi).of(rng, 5000), latencies(phi).of(rng, 5000)
		for _, m := range []struct {
			name string
			Measure
		}{{"mean", MeanMeasure()}, {"p99", PercentileMeasure(99)}} {
			b.Run(fmt.Sprintf("phi=%v/%s", phi, m.name), func(b *testing.B) {
				for b.Loop() {
					if _, ok := (Bootstrap{}).Ratio(base, other, m.Measure); !ok {
						b.Fatal("no interval")
					}
				}
			})
		}
	}
}
