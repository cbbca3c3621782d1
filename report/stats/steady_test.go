package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// shape makes bins from a function of the bin.
func shape(bins int, of func(i int) float64) []float64 {
	out := make([]float64, bins)
	for i := range out {
		out[i] = of(i)
	}
	return out
}

func TestSteady(t *testing.T) {
	noise := func(seed uint64, sd float64) func() float64 {
		rng := rand.New(rand.NewPCG(seed, 0))
		return func() float64 { return sd * rng.NormFloat64() }
	}
	flat := shape(200, func(int) float64 { return 64 })
	n1, n2, n3, n4, n5, n6 := noise(1, 5), noise(2, 5), noise(3, 5), noise(4, 10), noise(5, 5), noise(6, 8)
	ramp := shape(200, func(i int) float64 { return min(64, float64(i)*64/30, float64(200-i)*64/20) })
	// Each want is a range in which an end may lie: the rule sees five bins at
	// once, and where a ramp drowns in noise is a matter of taste.
	tests := []struct {
		name     string
		series   [][]float64
		from, to [2]int
		ok       bool
	}{
		{"flat", [][]float64{flat}, [2]int{0, 0}, [2]int{200, 200}, true},
		{"ramp and tail", [][]float64{ramp}, [2]int{25, 30}, [2]int{180, 185}, true},
		{"ramp and tail with noise", [][]float64{shape(200, func(i int) float64 { return ramp[i] + n1() })},
			[2]int{20, 35}, [2]int{175, 190}, true},
		{"noise", [][]float64{shape(200, func(int) float64 { return 64 + n2() })}, [2]int{0, 0}, [2]int{200, 200}, true},
		{"step at the start", [][]float64{shape(200, func(i int) float64 {
			if i < 40 {
				return 200 + n3()
			}
			return 100 + n3()
		})}, [2]int{40, 40}, [2]int{200, 200}, true},
		{"period", [][]float64{shape(300, func(i int) float64 { return 100 + 20*math.Sin(float64(i)/8) + n5() })},
			[2]int{0, 0}, [2]int{300, 300}, true},
		{"period after a ramp", [][]float64{shape(300, func(i int) float64 {
			return min(1, float64(i)/50)*(100+10*math.Sin(float64(i)/8)) + n5()
		})}, [2]int{35, 55}, [2]int{300, 300}, true},
		{"correlated noise", [][]float64{ar1(rand.New(rand.NewPCG(7, 0)), 400, 0.9)}, [2]int{0, 0}, [2]int{400, 400}, true},
		{"what all have in common", [][]float64{
			shape(200, func(i int) float64 { return min(64, float64(i)*4) + n6()/8 }),
			shape(200, func(i int) float64 {
				if i >= 160 {
					return 20 + n4()/10
				}
				return 100 + n4()/10
			}),
			shape(200, func(i int) float64 {
				if i < 50 {
					return 90 + n6()
				}
				return 30 + n6()
			}),
		}, [2]int{50, 50}, [2]int{160, 160}, true},
		{"nothing measured at the ends", [][]float64{shape(200, func(i int) float64 {
			switch {
			case i < 20 || i >= 170 || i == 100:
				return math.NaN()
			case i < 50:
				return 500
			}
			return 30
		})}, [2]int{50, 50}, [2]int{200, 200}, true},
		{"mostly nothing measured", [][]float64{shape(200, func(i int) float64 {
			if i < 180 {
				return math.NaN()
			}
			return float64(i)
		})}, [2]int{0, 0}, [2]int{200, 200}, true},
		{"too short", [][]float64{ramp[:39]}, [2]int{0, 0}, [2]int{39, 39}, false},
		{"no bins", [][]float64{nil}, [2]int{0, 0}, [2]int{0, 0}, false},
		{"no series", nil, [2]int{0, 0}, [2]int{0, 0}, false},
		{"unlike lengths", [][]float64{flat, flat[1:]}, [2]int{0, 0}, [2]int{200, 200}, false},
		{"under half in common", [][]float64{
			shape(200, func(i int) float64 {
				if i < 80 {
					return 0
				}
				return 100
			}),
			shape(200, func(i int) float64 {
				if i < 120 {
					return 0
				}
				return 100
			}),
		}, [2]int{0, 0}, [2]int{200, 200}, false},
		{"long run", [][]float64{shape(100_003, func(i int) float64 { return min(1, float64(i)/20_000) })},
			[2]int{19_000, 20_001}, [2]int{100_003, 100_003}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Steady(tt.series...)
			if ok != tt.ok || got.From < tt.from[0] || got.From > tt.from[1] || got.To < tt.to[0] || got.To > tt.to[1] {
				t.Errorf("steady in %+v, %v, want from in %v, to in %v, %v", got, ok, tt.from, tt.to, tt.ok)
			}
		})
	}
}

// Noise alone is left whole, but for a few cases in a hundred.
func TestSteadyLeavesNoise(t *testing.T) {
	const trials = 300
	for _, phi := range []float64{0, 0.8} {
		rng := rand.New(rand.NewPCG(1, 2))
		cut, lost := 0, 0
		for range trials {
			got, ok := Steady(ar1(rng, 300, phi))
			if !ok || got.Len() < 300 {
				cut++
				lost += 300 - got.Len()
			}
		}
		t.Logf("correlation %v: %d of %d cut, by %d bins in all", phi, cut, trials, lost)
		if cut > trials*6/100 {
			t.Errorf("correlation %v: %d of %d runs of noise were cut", phi, cut, trials)
		}
	}
}
