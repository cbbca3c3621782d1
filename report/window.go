package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/stats"
)

// Options say how a summary is made. The zero value is ready for use.
type Options struct {
	// Window is the part of the run for which the headline figures are given
	// beside those of the whole run: "auto" (or empty) finds the steady part,
	// "all" takes the whole run, "FROM:TO" is in seconds from the start of
	// measuring.
	Window string
}

// Validate reports a window that cannot be read.
func (o Options) Validate() error {
	_, _, _, err := o.window()
	return err
}

// The ways in which a window is chosen.
const (
	WindowAuto = "auto"
	WindowAll  = "all"
	WindowSet  = "set" // from and to were given
)

func (o Options) window() (mode string, from, to float64, err error) {
	switch o.Window {
	case "", WindowAuto:
		return WindowAuto, 0, 0, nil
	case WindowAll:
		return WindowAll, 0, 0, nil
	}
	first, second, ok := strings.Cut(o.Window, ":")
	from, err1 := strconv.ParseFloat(first, 64)
	to, err2 := strconv.ParseFloat(second, 64)
	if !ok || err1 != nil || err2 != nil || !(from >= 0) || !(to > from) || to > 1e9 {
		return "", 0, 0, fmt.Errorf("window %q: write auto, all, or FROM:TO in seconds from the start of measuring, as 10:60", o.Window)
	}
	return WindowSet, from, to, nil
}

// Window is the part of a run without ramp-up and tail, and what was measured
// in it. The metrics of the summary are those of the whole run.
type Window struct {
	Mode string `json:"mode"`
	// From and To are in seconds from the start of measuring, as is Run, which
	// is the last end.
	From float64 `json:"from_s"`
	To   float64 `json:"to_s"`
	Run  float64 `json:"run_s"`
	// Whole: the window is the whole run. Note says why where that was not
	// found to be steady.
	Whole bool   `json:"whole_run"`
	Note  string `json:"note,omitempty"`
	// Requests counts the valid ones that started in the window.
	Requests int64          `json:"requests"`
	Figures  []WindowFigure `json:"figures,omitempty"`

	from, to record.Time // to is not in it
}

// WindowFigure is a headline figure of the whole run and of the window. Times
// are of the requests that started in the window; a request counts by the share
// of its time that lies in the window, since where requests end in waves a count
// of ends is one of waves; tokens as if a request's came evenly from its first
// to its last event.
type WindowFigure struct {
	Tag     string  `json:"tag"`
	Label   string  `json:"-"`
	Unit    string  `json:"unit"`
	Percent float64 `json:"percentile,omitempty"` // 0: a rate
	Run     float64 `json:"run"`
	Window  float64 `json:"window"`
}

// windowDiffers is the share from which on a window's figure is another one.
const windowDiffers = 0.05

// Differs reports whether the figures are more than 5 % apart.
func (f WindowFigure) Differs() bool { return math.Abs(f.Window-f.Run) > windowDiffers*f.Run }

// The number of bins in which a steady part is looked for.
const (
	leastBins = 40 // what stats.Steady needs
	mostBins  = 400
)

// steadyWindow finds or takes the window; nil if no request was valid.
func (t *tally) steadyWindow(opt Options, s *Summary) *Window {
	mode, from, to, err := opt.window()
	if err != nil || t.valid == 0 || len(t.requests) == 0 {
		return nil
	}
	origin := max(t.m.MeasureStart, 0)
	if !t.m.MeasureStart.IsSet() {
		origin = t.requests[0].start
	}
	const ns = 1e9
	first, last := t.requests[0].start, t.lastEnd
	w := &Window{Mode: mode, from: first, to: last + 1, Whole: true}
	if mode == WindowSet {
		w.from, w.to, w.Whole = origin+record.Time(from*ns), origin+record.Time(to*ns), false
	}
	if mode == WindowAuto {
		switch bins := min(int(t.valid)/2, mostBins); {
		case bins < leastBins:
			w.Note = fmt.Sprintf("too few requests to find a steady part in (%d valid, %d are needed)", t.valid, 2*leastBins)
		case last <= first:
			w.Note = "the run has no length"
		default:
			width := float64(last-first) / float64(bins)
			series := t.bins(first, width, bins)
			span, ok := stats.Steady(series...)
			if !ok {
				w.Note = "less than half of it is steady"
				break
			}
			span = widen(series, span)
			w.Whole = span.Len() == bins
			w.from += record.Time(float64(span.From) * width)
			if span.To < bins {
				w.to = first + record.Time(float64(span.To)*width)
			}
		}
	}
	w.From, w.To = w.from.Sub(origin).Seconds(), min(w.to, last).Sub(origin).Seconds()
	w.Run = last.Sub(origin).Seconds()
	if mode == WindowSet {
		w.From, w.To = from, to
		if from < w.Run && w.Run < to {
			w.To, w.to = w.Run, last+1 // nothing is measured after the end
		}
	}
	t.measureWindow(w, s)
	if mode == WindowAuto && !w.Whole && w.Requests == 0 {
		// Nothing but waiting is steady there.
		*w = Window{Mode: mode, Whole: true, Note: "no request started in the part that is steady", Run: w.Run, To: w.Run, From: first.Sub(origin).Seconds(), from: first, to: last + 1}
		t.measureWindow(w, s)
	}
	return w
}

// widen takes groups of bins next to the span in whose means are those of the
// span as far as anybody cares: where a load is very regular, Steady sees
// differences of a thousandth, and cuts.
func widen(series [][]float64, span stats.Span) stats.Span {
	const step = 5 // bins, as many as Steady takes together
	within := span
	alike := func(from, to int) bool {
		for _, s := range series {
			part, inner := known(s[from:to]), known(s[within.From:within.To])
			if a, b := average(part), average(inner); a != nil && b != nil && math.Abs(*a-*b) > windowDiffers**b {
				return false
			}
		}
		return true
	}
	for span.From > 0 && alike(max(0, span.From-step), span.From) {
		span.From = max(0, span.From-step)
	}
	for n := len(series[0]); span.To < n && alike(span.To, min(n, span.To+step)); {
		span.To = min(n, span.To+step)
	}
	return span
}

// known returns the values without NaN.
func known(values []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(values), math.IsNaN)
}

// bins returns, over equal parts of time, the mean number of requests in
// flight, the tokens that came, and the mean TTFT of the requests that started.
func (t *tally) bins(first record.Time, width float64, n int) [][]float64 {
	inFlight, tokens := make([]float64, n), make([]float64, n)
	ttft, started := make([]float64, n), make([]float64, n)
	at := func(x record.Time) float64 { return float64(x-first) / width }
	for i := range t.requests {
		q := &t.requests[i]
		spread(inFlight, at(q.start), at(q.end), float64(q.end-q.start)/width)
		if q.state != stateValid {
			continue
		}
		if q.osl > 0 {
			spread(tokens, at(q.first), at(q.last), float64(q.osl))
		}
		if v := q.values[followTTFT]; !math.IsNaN(v) {
			k := min(max(int(at(q.start)), 0), n-1)
			ttft[k] += v
			started[k]++
		}
	}
	for k := range ttft {
		ttft[k] /= started[k] // 0/0 is NaN: nothing started
	}
	out := [][]float64{inFlight, ttft}
	if t.osl.n > 0 {
		out = append(out, tokens)
	}
	return out
}

// spread adds amount evenly to the bins from place to place, all to one if
// they are the same.
func spread(bins []float64, from, to, amount float64) {
	for k := min(max(int(from), 0), len(bins)-1); k < len(bins); k++ {
		if to <= from {
			bins[k] += amount
			return
		}
		overlap := min(to, float64(k+1)) - max(from, float64(k))
		if overlap > 0 {
			bins[k] += amount * overlap / (to - from)
		}
		if to <= float64(k+1) {
			return
		}
	}
}

// measureWindow fills in the figures.
func (t *tally) measureWindow(w *Window, s *Summary) {
	in := func(at record.Time) bool { return at >= w.from && at < w.to }
	starts := func(q *request) bool { return in(q.start) }
	// share is how much of a span lies in the window.
	share := func(from, to record.Time) float64 {
		if to > from {
			return float64(max(0, min(to, w.to).Sub(max(from, w.from)))) / float64(to.Sub(from))
		}
		if in(to) {
			return 1
		}
		return 0
	}
	var requests, tokens float64
	for i := range t.requests {
		q := &t.requests[i]
		if q.state != stateValid {
			continue
		}
		if starts(q) {
			w.Requests++
		}
		requests += share(q.start, q.last)
		if q.osl > 0 {
			tokens += float64(q.osl) * share(q.first, q.last)
		}
	}
	if w.Whole || w.Requests == 0 {
		return // the figures are those of the run, or there are none
	}
	for place := range followLatency + 1 {
		whole, ok := s.Metric(followed[place])
		if !ok {
			continue
		}
		part, ok := stats.Describe(t.valuesOf(place, starts), 1)
		if !ok {
			continue
		}
		for _, p := range []float64{50, 99} {
			a, _ := whole.Statistic.Percentile(p)
			b, _ := part.Percentile(p)
			w.Figures = append(w.Figures, WindowFigure{Tag: whole.Tag, Label: whole.Label, Unit: whole.Unit, Percent: p, Run: a, Window: b})
		}
	}
	for _, rate := range []struct {
		tag    string
		amount float64
	}{{"request_throughput", requests}, {"output_token_throughput", tokens}} {
		if whole, ok := s.Metric(rate.tag); ok {
			w.Figures = append(w.Figures, WindowFigure{Tag: whole.Tag, Label: whole.Label, Unit: whole.Unit,
				Run: whole.Value, Window: rate.amount / w.to.Sub(w.from).Seconds()})
		}
	}
}
