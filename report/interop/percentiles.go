package interop

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// percentiles writes one distribution in milliseconds as HdrHistogram prints
// percentiles, which its plotter reads. The values are exact, not those of
// buckets.
func (src Source) percentiles(w io.Writer, tag string) error {
	var ns []float64
	err := src.each(func(r *record.Record) error {
		if !r.Valid() || src.Summary.Manifest.Late(r) {
			return nil
		}
		switch tag {
		case "TTFT":
			if d, ok := r.TTFT(); ok {
				ns = append(ns, float64(d))
			}
		case "ITL":
			if d, ok := r.ITL(); ok {
				ns = append(ns, d)
			}
		case "ICL":
			for _, d := range r.Gaps(nil) {
				ns = append(ns, float64(d))
			}
		case "E2E":
			if d, ok := r.RequestLatency(); ok {
				ns = append(ns, float64(d))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(ns)
	const ms = float64(time.Millisecond)
	var b strings.Builder
	b.WriteString("       Value     Percentile TotalCount 1/(1-Percentile)\n\n")
	n := len(ns)
	mean, squares := 0.0, 0.0
	for _, v := range ns {
		mean += v / float64(max(n, 1))
	}
	for _, v := range ns {
		squares += (v - mean) * (v - mean)
	}
	// Steps halve with each halving of what lies above, five to a half, as
	// HdrHistogram's do by default.
	const ticks = 5.0
	for p := 0.0; n > 0; {
		rank := max(1, int(math.Ceil(p*float64(n)-1e-9)))
		v := ns[rank-1]
		count := sort.Search(n, func(i int) bool { return ns[i] > v })
		if count == n {
			break
		}
		fmt.Fprintf(&b, "%12.6f %14.12f %10d %14.2f\n", v/ms, p, count, 1/(1-p))
		half := math.Pow(2, math.Floor(math.Log2(1/(1-p)))+1)
		p += 1 / (ticks * half)
	}
	if n > 0 {
		fmt.Fprintf(&b, "%12.6f %14.12f %10d\n", ns[n-1]/ms, 1.0, n)
		fmt.Fprintf(&b, "#[Mean    = %12.6f, StdDeviation   = %12.6f]\n#[Max     = %12.6f, Total count    = %12d]\n",
			mean/ms, math.Sqrt(squares/float64(n))/ms, ns[n-1]/ms, n)
	}
	_, err = io.WriteString(w, b.String())
	return err
}
