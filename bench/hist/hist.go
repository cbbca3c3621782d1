// Package hist counts durations in an HDR histogram and keeps beside it what
// the histogram rounds away: the exact smallest, largest and summed value, and
// how many values did not fit.
package hist

import "github.com/HdrHistogram/hdrhistogram-go"

// The range of a histogram in nanoseconds, and its precision in decimal
// digits.
const (
	Lowest  = 1_000             // 1 µs: smaller values share the first bucket
	Highest = 3_600_000_000_000 // 1 h: larger values are counted here
	Digits  = 3
)

// Histogram counts durations in integer nanoseconds, in a fixed 200 kB however
// many there are. Make one with New. It is not safe for concurrent use, not
// even for reading: one goroutine owns it and hands out clones.
type Histogram struct {
	h                   *hdrhistogram.Histogram
	count, sum, clamped int64
	min, max            int64
}

// New returns an empty histogram.
func New() *Histogram {
	return &Histogram{h: hdrhistogram.New(Lowest, Highest, Digits)}
}

// Record counts one duration. A value below 0 or above Highest is counted at
// that end of the range and as clamped; Min, Max and Sum keep its true size.
// It allocates nothing.
func (h *Histogram) Record(ns int64) {
	if h.count == 0 {
		h.min, h.max = ns, ns
	}
	h.min, h.max = min(h.min, ns), max(h.max, ns)
	h.count++
	h.sum += ns
	fit := min(max(ns, 0), Highest)
	if fit != ns {
		h.clamped++
	}
	// A value inside the range is never refused.
	_ = h.h.RecordValue(fit)
}

// Merge adds all that o holds. o is not changed.
func (h *Histogram) Merge(o *Histogram) {
	if o.count == 0 {
		return
	}
	if h.count == 0 {
		h.min, h.max = o.min, o.max
	}
	h.min, h.max = min(h.min, o.min), max(h.max, o.max)
	h.count += o.count
	h.sum += o.sum
	h.clamped += o.clamped
	h.h.Merge(o.h)
}

// Clone returns an independent copy.
func (h *Histogram) Clone() *Histogram {
	c := New()
	c.Merge(h)
	return c
}

// Reset empties the histogram.
func (h *Histogram) Reset() {
	h.h.Reset()
	*h = Histogram{h: h.h}
}

// Count is how many values were recorded.
func (h *Histogram) Count() int64 { return h.count }

// Clamped is how many recorded values lay below 0 or above Highest.
func (h *Histogram) Clamped() int64 { return h.clamped }

// Sum is the exact sum of all values in nanoseconds.
func (h *Histogram) Sum() int64 { return h.sum }

// Min is the exact smallest value; ok is false if there is none.
func (h *Histogram) Min() (ns int64, ok bool) { return h.min, h.count > 0 }

// Max is the exact largest value; ok is false if there is none.
func (h *Histogram) Max() (ns int64, ok bool) { return h.max, h.count > 0 }

// Mean is the exact mean; ok is false if there is no value.
func (h *Histogram) Mean() (ns float64, ok bool) {
	if h.count == 0 {
		return 0, false
	}
	return float64(h.sum) / float64(h.count), true
}

// Quantile is the value at the rank nearest to the share q of the values, q
// from 0 to 1, to Digits digits. It never lies outside Min and Max, which are
// what 0 and 1 give. ok is false if there is no value.
func (h *Histogram) Quantile(q float64) (ns int64, ok bool) {
	switch {
	case h.count == 0:
		return 0, false
	case q <= 0:
		return h.min, true
	case q >= 1:
		return h.max, true
	}
	return min(max(h.h.ValueAtPercentile(q*100), h.min), h.max), true
}
