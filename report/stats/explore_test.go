package stats

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"fmt"
	"slices"
	"strconv"
)

func TestExplore(t *testing.T) {
	if os.Getenv("EXPLORE") == "" {
		t.Skip()
	}
	trials, _ := strconv.Atoi(os.Getenv("EXPLORE"))
	for _, n := range []int{200, 500} {
		for _, phi := range []float64{0, 0.5, 0.8, -100} {
			for _, m := range []string{"mean", "p50", "p90", "p95", "ratio"} {
				t.Run(fmt.Sprint(n, phi, m), func(t *testing.T) {
					t.Parallel()
					rng := rand.New(rand.NewPCG(7, uint64(n)))
					ok, hit, low, high, eff, blk, wid := 0, 0, 0, 0, 0.0, 0, 0.0
					var ls []float64
					for i := range trials {
						b := Bootstrap{Resamples: 400, Seed: uint64(i)}
						gen := func() []float64 { return explore(rng, n, phi) }
						var iv Interval
						var have bool
						truth := 1.0
						var e Estimate
						switch m {
						case "mean":
							e, have = b.Estimate(gen(), MeanMeasure())
							truth = math.Exp(0.125)
						case "p50":
							e, have = b.Estimate(gen(), PercentileMeasure(50))
						case "p90":
							e, have = b.Estimate(gen(), PercentileMeasure(90))
							truth = math.Exp(0.5 * 1.2815515655446004)
						case "p95":
							e, have = b.Estimate(gen(), PercentileMeasure(95))
							truth = math.Exp(0.5 * 1.6448536269514722)
						case "ratio":
							var r Ratio
							r, have = b.Ratio(gen(), gen(), PercentileMeasure(50))
							e = r.Base
							e.Interval = r.Interval
						}
						if !have {
							continue
						}
						iv = e.Interval
						ok++
						eff += e.Effective
						blk += e.Block
						wid += iv.High - iv.Low
						ls = append(ls, e.Effective)
						switch {
						case truth < iv.Low:
							low++
						case truth > iv.High:
							high++
						default:
							hit++
						}
					}
					slices.Sort(ls)
					f := float64(max(1, ok))
					fmt.Printf("n=%d phi=%v %s: cover %.3f (below %.3f above %.3f) of %d; eff %.0f block %.1f width %.3f\n", n, phi, m, float64(hit)/f, float64(low)/f, float64(high)/f, ok, eff/f, float64(blk)/f, wid/f)
				})
			}
		}
	}
}

// phi -100: AR(0.9)+ white noise, halves
func explore(rng *rand.Rand, n int, phi float64) []float64 {
	out := make([]float64, n)
	noise := 0.0
	if phi == -100 {
		phi, noise = 0.9, 0.5
	}
	x := rng.NormFloat64()
	for i := range out {
		v := math.Sqrt(1-noise)*x + math.Sqrt(noise)*rng.NormFloat64()
		out[i] = math.Exp(0.5 * v)
		x = phi*x + math.Sqrt(1-phi*phi)*rng.NormFloat64()
	}
	return out
}
