package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The autocorrelation time of an AR(1) series is (1+phi)/(1-phi).
func TestEffective(t *testing.T) {
	const n = 20000
	for _, tt := range []struct{ phi, want, within float64 }{
		{0, n, 0.05}, {0.5, n / 3, 0.1}, {0.8, n / 9, 0.15}, {0.95, n / 39, 0.25},
		{-0.5, n, 0}, // it would be 3n, but no value counts for more than itself
	} {
		got := Effective(ar1(rand.New(rand.NewPCG(4, 2)), n, tt.phi))
		if math.Abs(got-tt.want) > tt.within*tt.want {
			t.Errorf("AR(1) of %v: %v effective values, want about %v", tt.phi, got, tt.want)
		}
	}
}

// A server that batches makes every answer of a batch wait alike.
func TestEffectiveOfBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	var values []float64
	for range 1000 {
		wait := rng.ExpFloat64()
		for range 8 {
			values = append(values, wait)
		}
	}
	if got := Effective(values); got < 800 || got > 1250 {
		t.Errorf("1000 batches of 8: %v effective values, want about 1000", got)
	}
}

func TestEffectiveOfLittle(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 1}, {[]float64{3, 4}, 2}, {[]float64{5, 5, 5, 5}, 4}} {
		if got := Effective(tt.values); got != tt.want {
			t.Errorf("%v: %v effective values, want %v", tt.values, got, tt.want)
		}
	}
	if got := Effective(ranks(1000)); got > 20 {
		t.Errorf("a straight line: %v effective values, want few", got)
	}
}

func TestExceedance(t *testing.T) {
	// By scipy's multivariate_normal.cdf; for p50 it is asin(r)*2/pi.
	for _, tt := range []struct{ p, r, want float64 }{
		{50, 0.5, 1.0 / 3}, {50, 1, 1}, {50, -1, -1}, {50, 0, 0},
		{90, 0.8, 0.51380818605}, {90, 0.3, 0.12907200395}, {90, -0.5, -0.10290442899},
		{10, 0.8, 0.51380818605}, {99, 0.9, 0.53734437740}, {99, 0.999, 0.95198661899}, {99, 1, 1},
	} {
		if got := exceedance(tt.p)(tt.r); math.Abs(got-tt.want) > 1e-3 {
			t.Errorf("p%v at correlation %v: %v, want %v", tt.p, tt.r, got, tt.want)
		}
	}
}
