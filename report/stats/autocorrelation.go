package stats

import "math"

// dependence is how much the values of a series repeat one another.
type dependence struct {
	// time is the integrated autocorrelation time 1 + 2*(r1 + r2 + …): n values
	// say as much about their mean as n/time independent ones.
	time float64
	// variance is that of one value.
	variance float64
}

// Effective returns how many independent values would say as much about the
// mean as the series, which is in the order of time, does. It is at most the
// number of values; 0 if there is none.
func Effective(series []float64) float64 {
	return float64(len(series)) / max(1, dependenceOf(series).time)
}

// dependenceOf fits autoregressions of growing order to the series (Yule and
// Walker's equations, by Levinson and Durbin), keeps the one that Akaike's
// criterion, corrected for small samples, likes best, and takes the
// autocorrelation time from it. Summing the measured autocorrelations
// themselves is several times as noisy at equal length.
func dependenceOf(series []float64) dependence {
	n := len(series)
	if n < 2 {
		return dependence{time: 1}
	}
	orders := min(int(10*math.Log10(float64(n))), n/10)
	c := autocovariances(series, orders)
	if !(c[0] > 0) {
		return dependence{time: 1}
	}
	// Around their own mean the values look less alike than they are: every
	// autocovariance is low by the variance of the mean. One round puts back
	// most of it.
	lost := c[0] * autoregression(c, n) / float64(n)
	for k := range c {
		c[k] += lost
	}
	return dependence{time: autoregression(c, n), variance: c[0]}
}

// autocovariances returns those of lag 0 to lags, each a sum over n.
func autocovariances(series []float64, lags int) []float64 {
	n := len(series)
	mean := meanOf(series)
	centred := make([]float64, n)
	for i, v := range series {
		centred[i] = v - mean
	}
	c := make([]float64, lags+1)
	for k := range c {
		var sum float64
		for i, v := range centred[k:] {
			sum += v * centred[i]
		}
		c[k] = sum / float64(n)
	}
	return c
}

// autoregression returns the autocorrelation time of the autoregression that
// fits n values with autocovariances c best.
func autoregression(c []float64, n int) float64 {
	var (
		phi   = make([]float64, len(c)) // phi[1:k+1] at order k
		prev  = make([]float64, len(c))
		noise = c[0]
		time  = 1.0
		best  = criterion(noise, 0, n)
	)
	for k := 1; k < len(c); k++ {
		reflect := c[k]
		for j := 1; j < k; j++ {
			reflect -= phi[j] * c[k-j]
		}
		reflect /= noise
		copy(prev, phi)
		phi[k] = reflect
		for j := 1; j < k; j++ {
			phi[j] = prev[j] - reflect*prev[k-j]
		}
		noise *= 1 - reflect*reflect
		if !(noise > c[0]*1e-12) { // the past tells the next value: a line, a period
			break
		}
		if score := criterion(noise, k, n); score < best {
			best = score
			rest := 1.0
			for _, f := range phi[1 : k+1] {
				rest -= f
			}
			time = noise / (c[0] * rest * rest)
		}
	}
	return min(time, float64(n))
}

func criterion(noise float64, order, n int) float64 {
	free := float64(n - order - 2)
	if free <= 0 {
		return math.Inf(1)
	}
	return float64(n)*math.Log(noise) + 2*float64(order+1)*float64(n)/free
}

func meanOf(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
