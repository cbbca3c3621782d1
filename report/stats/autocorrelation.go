package stats

import (
	"math"
	"slices"
)

// Effective returns how many independent values would say as much about the
// mean as the series, which is in the order of time, does. It is at most the
// number of values; 0 if there is none.
func Effective(series []float64) float64 {
	return float64(len(series)) / max(1, dependenceOf(series).time(asIs))
}

// dependence is how much the values of a series repeat one another: a mixture
// of autoregressions of growing order, fitted by Yule and Walker's equations
// (in Levinson and Durbin's way) and weighted by Akaike's criterion, corrected
// for small samples. Summing the measured autocorrelations themselves is
// several times as noisy, and the best order alone overlooks what is weak but
// long.
type dependence struct {
	lags   int       // as many as there are values
	start  []float64 // measured autocorrelations, from lag 0
	models []autoregression
}

// autoregression of order k has start's first k autocorrelations.
type autoregression struct {
	phi    []float64 // of lag 1 to k
	weight float64
}

// dependenceOf returns no models for very few values or such as are all alike.
func dependenceOf(series []float64) dependence {
	n := len(series)
	if n < minEffective { // too few to tell
		return dependence{}
	}
	c := autocovariances(series, min(int(10*math.Log10(float64(n))), n/10))
	if !(c[0] > 0) || math.IsInf(c[0], 1) {
		return dependence{}
	}
	d := fit(c, n)
	// Around their own mean the values look less alike than they are: every
	// autocovariance is low by the variance of the mean. One round puts back
	// most of it.
	lost := c[0] * max(0, d.time(asIs)) / float64(n)
	for k := range c {
		c[k] += lost
	}
	return fit(c, n)
}

// autocovariances returns those of lag 0 to lags, each a sum over n.
func autocovariances(series []float64, lags int) []float64 {
	mean := meanOf(series)
	centred := make([]float64, len(series))
	for i, v := range series {
		centred[i] = v - mean
	}
	c := make([]float64, lags+1)
	for k := range c {
		for i, v := range centred[k:] {
			c[k] += v * centred[i]
		}
		c[k] /= float64(len(series))
	}
	return c
}

func fit(c []float64, n int) dependence {
	d := dependence{lags: n, start: make([]float64, len(c))}
	for k := range c {
		d.start[k] = c[k] / c[0]
	}
	var (
		phi    []float64
		noise  = 1.0
		scores []float64
	)
	for k := 0; ; k++ {
		free := float64(n - k - 2)
		if free <= 0 {
			break
		}
		d.models = append(d.models, autoregression{phi: phi})
		scores = append(scores, float64(n)*math.Log(noise)+2*float64(k+1)*float64(n)/free)
		if k+1 == len(c) {
			break
		}
		reflect := d.start[k+1]
		for j, f := range phi {
			reflect -= f * d.start[k-j]
		}
		reflect /= noise
		next := append(slices.Clone(phi), reflect)
		for j, f := range phi {
			next[k-1-j] -= reflect * f
		}
		// Where the past tells the next value, as in a straight line, there is
		// nothing left to fit.
		if noise *= 1 - reflect*reflect; !(noise > 1e-12) {
			break
		}
		phi = next
	}
	var sum float64
	best := slices.Min(scores)
	for i, s := range scores {
		d.models[i].weight = math.Exp((best - s) / 2)
		sum += d.models[i].weight
	}
	for i := range d.models {
		d.models[i].weight /= sum
	}
	return d
}

// time returns the integrated autocorrelation time 1 + 2*(of(r1) + of(r2) + …),
// where of makes the autocorrelation that counts from that of the values; at
// most the length of the series.
func (d dependence) time(of func(r float64) float64) float64 {
	const small = 1e-4 // of a weight or of an autocorrelation
	t := 1.0
	r := make([]float64, 0, 64)
	for _, m := range d.models {
		k := len(m.phi)
		if m.weight < small || k == 0 {
			continue
		}
		r = append(r[:0], d.start[:k+1]...)
		for faded := 0; faded < k && len(r) < d.lags; faded++ {
			var next float64
			for j, f := range m.phi {
				next += f * r[len(r)-1-j]
			}
			if r = append(r, next); math.Abs(next) > small {
				faded = -1
			}
		}
		for _, v := range r[1:] {
			t += 2 * m.weight * of(v)
		}
	}
	return min(t, float64(d.lags))
}

// asIs is what counts for a mean: the autocorrelation of the values themselves.
func asIs(r float64) float64 { return r }

func meanOf(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
