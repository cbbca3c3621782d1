package stats

import (
	"math"
	"math/rand/v2"
)

// ar1 makes a series of normal values of mean 0 and variance 1, each with
// correlation phi to the one before.
func ar1(rng *rand.Rand, n int, phi float64) []float64 {
	out := make([]float64, n)
	x := rng.NormFloat64()
	for i := range out {
		out[i] = x
		x = phi*x + math.Sqrt(1-phi*phi)*rng.NormFloat64()
	}
	return out
}
