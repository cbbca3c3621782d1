package target

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Total is the seconds and the number of intervals, added up.
type Total struct {
	Seconds float64 `json:"seconds"`
	// Count is absent where the server tells only the seconds.
	Count *float64 `json:"count,omitempty"`
}

// Mean is the mean interval in seconds; absent without a count.
func (t Total) Mean() (float64, bool) {
	if t.Count == nil || *t.Count <= 0 {
		return 0, false
	}
	return t.Seconds / *t.Count, true
}

// Sample is what a metrics endpoint told at one moment. What it did not tell
// is in none of the maps.
type Sample struct {
	// At is when the endpoint was asked, Took how long the answer took.
	At   record.Time   `json:"at"`
	Took time.Duration `json:"took_ns"`
	// From names the endpoint: server, gpu.
	From     string             `json:"from"`
	Gauges   map[Metric]float64 `json:"gauges,omitempty"`
	Counters map[Metric]float64 `json:"counters,omitempty"`
	Times    map[Metric]Total   `json:"times,omitempty"`
	// Started is the start of the server's process in Unix seconds, where it
	// is told.
	Started *float64 `json:"process_start_unix_seconds,omitempty"`
	// Replicas names the engines (ranks, pods) that the counters come from.
	Replicas []string `json:"replicas,omitempty"`
	// Warnings say what was left out, and why.
	Warnings []string `json:"warnings,omitempty"`
	// Error tells that there is no sample.
	Error string `json:"error,omitempty"`

	// parts are the counters by series, so that the fall of one is seen behind
	// the rise of another. They are lost on the way through a file.
	parts map[Metric]map[string]float64
}

// The reasons why two samples have no difference.
var (
	// ErrReset: a counter began anew between the two, as after a restart.
	ErrReset = errors.New("the server's counters were reset")
	// ErrReplicas: the engines that answer are not the same.
	ErrReplicas = errors.New("the server's engines changed")
)

// Delta is what happened between two samples.
type Delta struct {
	Elapsed  time.Duration      `json:"elapsed_ns"`
	Counters map[Metric]float64 `json:"counters,omitempty"`
	Times    map[Metric]Total   `json:"times,omitempty"`
	Warnings []string           `json:"warnings,omitempty"`
}

// Ratio is the quotient of two counters; absent if one is, or if nothing was
// counted below.
func (d *Delta) Ratio(above, below Metric) (float64, bool) {
	a, ok := d.Counters[above]
	b, ok2 := d.Counters[below]
	if !ok || !ok2 || b <= 0 {
		return 0, false
	}
	return a / b, true
}

// Diff returns what was counted from one sample to a later one of the same
// endpoint. A counter that only the later one has is counted from 0: series
// with labels appear with their first value. A counter that only the earlier
// one has, or of which some series are gone, has no difference, and there is a
// warning.
//
// A fall of any counter makes them all useless: the error is ErrReset then,
// and ErrReplicas if other engines answer.
func Diff(from, to Sample) (Delta, error) {
	switch {
	case from.Error != "" || to.Error != "":
		return Delta{}, fmt.Errorf("compare samples: one of them failed: %s", strings.TrimPrefix(from.Error+"; "+to.Error, "; "))
	case from.From != to.From:
		return Delta{}, fmt.Errorf("compare samples: one is of the %s, the other of the %s", from.From, to.From)
	case to.At <= from.At:
		return Delta{}, errors.New("compare samples: they are not in order of time")
	case from.Started != nil && to.Started != nil && *from.Started != *to.Started:
		return Delta{}, fmt.Errorf("compare samples: %w: its process started anew", ErrReset)
	case len(from.Replicas) > 0 && !slices.Equal(from.Replicas, to.Replicas):
		return Delta{}, fmt.Errorf("compare samples: %w: %s became %s", ErrReplicas, orNothing(from.Replicas), orNothing(to.Replicas))
	}
	d := Delta{Elapsed: to.At.Sub(from.At)}
	for _, m := range slices.Sorted(maps.Keys(to.Counters)) {
		v, warning, err := rise(m, from.Counters[m], to.Counters[m], from.parts[m], to.parts[m])
		switch {
		case err != nil:
			return Delta{}, err
		case warning != "":
			d.Warnings = append(d.Warnings, warning)
		default:
			if d.Counters == nil {
				d.Counters = map[Metric]float64{}
			}
			d.Counters[m] = v
		}
	}
	for _, m := range slices.Sorted(maps.Keys(to.Times)) {
		a, b := from.Times[m], to.Times[m]
		seconds, warning, err := rise(m, a.Seconds, b.Seconds, from.parts[m+secondsPart], to.parts[m+secondsPart])
		if err != nil {
			return Delta{}, err
		}
		total := Total{Seconds: seconds}
		_, before := from.Times[m]
		if warning == "" && b.Count != nil && (a.Count != nil || !before) {
			var first float64
			if a.Count != nil {
				first = *a.Count
			}
			var n float64
			if n, warning, err = rise(m, first, *b.Count, from.parts[m+countPart], to.parts[m+countPart]); err != nil {
				return Delta{}, err
			}
			total.Count = &n
		}
		if warning != "" {
			d.Warnings = append(d.Warnings, warning)
			continue
		}
		if d.Times == nil {
			d.Times = map[Metric]Total{}
		}
		d.Times[m] = total
	}
	for _, m := range slices.Sorted(maps.Keys(from.Counters)) {
		if _, ok := to.Counters[m]; !ok {
			d.Warnings = append(d.Warnings, gone(m))
		}
	}
	for _, m := range slices.Sorted(maps.Keys(from.Times)) {
		if _, ok := to.Times[m]; !ok {
			d.Warnings = append(d.Warnings, gone(m))
		}
	}
	return d, nil
}

// The parts of a Times metric.
const (
	secondsPart Metric = " seconds"
	countPart   Metric = " count"
)

func gone(m Metric) string { return fmt.Sprintf("%s: series are gone in the later sample", m) }

// rise returns how much a counter rose, by its series if they are known.
func rise(m Metric, from, to float64, before, after map[string]float64) (v float64, warning string, err error) {
	if before == nil || after == nil {
		before, after = map[string]float64{"": from}, map[string]float64{"": to}
	}
	for series, old := range before {
		now, ok := after[series]
		switch {
		case !ok:
			warning = gone(m)
		case now < old:
			return 0, "", fmt.Errorf("compare samples: %w: %s fell from %g to %g", ErrReset, m, old, now)
		}
	}
	return to - from, warning, nil
}

func orNothing(replicas []string) string {
	if len(replicas) == 0 {
		return "none"
	}
	return strings.Join(replicas, " ")
}
