package arrival

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Trace maps the times of a trace to offsets of the run.
type Trace struct {
	// Speedup divides the offsets, hence all gaps; 0: 1.
	Speedup float64
	// Start and End keep only times between them, both inclusive; End 0: no
	// end. They are times of the file (AIPerf's --fixed-schedule-start-offset
	// and -end-offset). With a Start above 0, it is offset 0.
	Start, End time.Duration
	// KeepOrigin makes time 0 of the file offset 0. Otherwise the first time
	// kept is (AIPerf's --fixed-schedule-auto-offset).
	KeepOrigin bool
}

// Validate joins all faults.
func (t Trace) Validate() error {
	var errs []error
	if !(t.Speedup >= 0) || math.IsInf(t.Speedup, 0) {
		errs = append(errs, fmt.Errorf("speed-up %v: it must be a number above 0", t.Speedup))
	}
	if t.Start < 0 || t.End < 0 {
		errs = append(errs, fmt.Errorf("cut of the trace from %v to %v: neither may be below 0", t.Start, t.End))
	}
	if t.End > 0 && t.End < t.Start {
		errs = append(errs, fmt.Errorf("cut of the trace: its end %v is before its start %v", t.End, t.Start))
	}
	return errors.Join(errs...)
}

// Keeps reports whether a time of the file lies in the cut.
func (t Trace) Keeps(at time.Duration) bool {
	return at >= t.Start && (t.End == 0 || at <= t.End)
}

// Offset maps a time that is kept, given the first one that is.
func (t Trace) Offset(at, first time.Duration) time.Duration {
	switch {
	case t.Start > 0:
		at -= t.Start
	case !t.KeepOrigin:
		at -= first
	}
	if t.Speedup > 0 && t.Speedup != 1 {
		return time.Duration(math.Round(float64(at) / t.Speedup))
	}
	return at
}
