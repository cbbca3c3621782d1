package html

import (
	"math"

	"github.com/tokmark/tokmark/bench/record"
)

// bins counts durations in nanoseconds on a logarithmic scale, each bin 1/1000
// wide of its value, and what is not above a microsecond in one more: the gap
// of events that came together. The zero value is empty.
type bins struct {
	counts []int64
	n      int64
}

const (
	smallest = 1000.0
	binsPerE = 1000.5 // 1 / ln(1.001)
	lastBin  = 40_000 // beyond any duration that a run can have
)

func (b *bins) add(v float64) {
	k := 0
	if v > smallest {
		k = min(1+int(math.Log(v/smallest)*binsPerE), lastBin)
	}
	if k >= len(b.counts) {
		b.counts = append(b.counts, make([]int64, k+1-len(b.counts))...)
	}
	b.counts[k]++
	b.n++
}

// edge is the lower end of a bin.
func edge(k int) float64 { return smallest * math.Exp(float64(k-1)/binsPerE) }

// bar is a bar of a histogram: the values from low up to high.
type bar struct {
	low, high float64
	count     int64
}

// none is how many values were not above a microsecond.
func (b *bins) none() int64 {
	if b.n == 0 {
		return 0
	}
	return b.counts[0]
}

// extent is the first and the last bin that holds a value above a microsecond;
// ok is false if none does.
func (b *bins) extent() (first, last int, ok bool) {
	if b.n == b.none() {
		return 0, 0, false
	}
	for first = 1; b.counts[first] == 0; {
		first++
	}
	return first, len(b.counts) - 1, true
}

// bars groups the bins from first to last, in which all values above a
// microsecond lie, into at most n bars of equal width on the logarithmic scale.
func (b *bins) bars(first, last, n int) []bar {
	width := (last - first + n) / n
	out := make([]bar, (last-first)/width+1)
	for i := range out {
		out[i].low, out[i].high = edge(first+i*width), edge(first+(i+1)*width)
	}
	for k := first; k < len(b.counts); k++ {
		out[(k-first)/width].count += b.counts[k]
	}
	return out
}

// timelineBins is how many bins a timeline has at most.
const timelineBins = 4096

// timeline adds up amounts over time in bins that grow wider, all by the same
// factor, as time goes on. The zero value is empty.
type timeline struct {
	width record.Time
	sums  []float64
}

func (t *timeline) add(at record.Time, amount float64) {
	if at < 0 {
		return
	}
	if t.width == 0 {
		t.width = 1_000_000
	}
	for int(at/t.width) >= timelineBins {
		half := make([]float64, (len(t.sums)+1)/2, timelineBins)
		for i, v := range t.sums {
			half[i/2] += v
		}
		t.sums, t.width = half, 2*t.width
	}
	k := int(at / t.width)
	for len(t.sums) <= k {
		t.sums = append(t.sums, 0)
	}
	t.sums[k] += amount
}

// rates returns the amounts a second in n equal parts of the time from first
// to last.
func (t *timeline) rates(first, last record.Time, n int) []float64 {
	out := make([]float64, n)
	width := float64(last-first) / float64(n)
	if !(width > 0) {
		return out
	}
	for k, sum := range t.sums {
		if sum != 0 {
			from := float64(record.Time(k)*t.width - first)
			spread(out, from/width, (from+float64(t.width))/width, sum)
		}
	}
	for i := range out {
		out[i] /= width / 1e9
	}
	return out
}

// spread adds amount evenly to the bins between two places, and what lies
// outside of them to the first and the last one.
func spread(bins []float64, from, to, amount float64) {
	last := len(bins) - 1
	clamp := func(x float64) int { return min(max(int(x), 0), last) }
	if !(to > from) {
		bins[clamp(from)] += amount
		return
	}
	for k := clamp(from); k <= clamp(to); k++ {
		low, high := max(from, float64(k)), min(to, float64(k+1))
		if k == 0 {
			low = from
		}
		if k == last {
			high = to
		}
		if high > low {
			bins[k] += amount * (high - low) / (to - from)
		}
	}
}
