package slo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tokmark/tokmark/report"
)

// State is what became of an objective.
type State string

// The states. Inconclusive: the interval of the figure spans the limit, or the
// run has no such figure.
const (
	Pass         State = "pass"
	Fail         State = "fail"
	Inconclusive State = "inconclusive"
)

// Level is the confidence of intervals.
const Level = report.IntervalLevel

// Result is an objective and how the run did, all in Unit.
type Result struct {
	Objective
	Unit  string `json:"unit"`
	State State  `json:"state"`
	// Value is the figure; nil if the run has none.
	Value *float64 `json:"value"`
	// Low and High bound the figure with confidence Level; nil is a side that
	// the requests are too few to tell, or both where the figure has no
	// interval (Bounded is false).
	Low     *float64 `json:"low"`
	High    *float64 `json:"high"`
	Bounded bool     `json:"bounded"`
	// Margin is the room left to the limit as a share of it: negative if it is
	// passed; nil without a value, or for a limit of 0.
	Margin *float64 `json:"margin"`
	// Reason says why it is inconclusive.
	Reason string `json:"reason,omitempty"`
}

// MarshalJSON writes the fields; an infinite figure is null.
func (r Result) MarshalJSON() ([]byte, error) {
	type fields Result
	out := fields(r)
	for _, v := range []**float64{&out.Value, &out.Low, &out.High, &out.Margin} {
		if *v != nil && (math.IsInf(**v, 0) || math.IsNaN(**v)) {
			*v = nil
		}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(out)
	return buf.Bytes(), err
}

// Evaluate holds a run against objectives.
func Evaluate(s *report.Summary, objectives []Objective) []Result {
	out := make([]Result, len(objectives))
	for i, o := range objectives {
		out[i] = evaluate(s, o)
	}
	return out
}

// Worst is the state of the whole: Fail if any failed, else Inconclusive if
// any is, else Pass.
func Worst(results []Result) State {
	for _, state := range []State{Fail, Inconclusive} {
		if slices.ContainsFunc(results, func(r Result) bool { return r.State == state }) {
			return state
		}
	}
	return Pass
}

func evaluate(s *report.Summary, o Objective) Result {
	m, _ := report.MetricByTag(o.Metric)
	r := Result{Objective: o, Unit: m.Unit, State: Inconclusive}
	res, ok := s.Metric(o.Metric)
	if !ok {
		r.Reason = "the run has no such figure"
		if o.Metric == "good_request_fraction" || o.Metric == "goodput" {
			r.Reason = "the run has no objectives for single requests: give --goodput"
		}
		return r
	}
	value := res.Value
	if st := res.Statistic; st != nil {
		switch o.Statistic {
		case "avg":
			value = st.Avg
		case "min":
			value = st.Min
		case "max":
			value = st.Max
		default:
			p, _ := percent(o.Statistic)
			value, _ = st.Percentile(p)
		}
	}
	r.Value = &value
	if o.Limit != 0 {
		room := (o.Limit - value) / math.Abs(o.Limit)
		if o.AtLeast {
			room = -room
		}
		r.Margin = &room
	}
	r.bound(s, res)
	worst, best := r.High, r.Low
	if o.AtLeast {
		worst, best = r.Low, r.High
	}
	switch {
	case !r.Bounded && o.Met(value):
		r.State = Pass
	case !r.Bounded:
		r.State = Fail
	case worst != nil && o.Met(*worst):
		r.State = Pass
	case best != nil && !o.Met(*best):
		r.State = Fail
	case worst == nil && o.Met(value):
		r.Reason = "too few requests to bound the figure on the side of the limit"
	default:
		r.Reason = fmt.Sprintf("the %g %% interval spans the limit: take more requests", 100*Level)
	}
	return r
}

// Met reports whether a figure in the metric's unit keeps the objective.
func (o Objective) Met(v float64) bool {
	switch {
	case o.AtLeast && o.Strict:
		return v > o.Limit
	case o.AtLeast:
		return v >= o.Limit
	case o.Strict:
		return v < o.Limit
	default:
		return v <= o.Limit
	}
}

// bound finds the interval: of percentiles and averages as the summary has
// them, of shares the exact one of Clopper and Pearson. Other figures have none
// and are taken as they are.
func (r *Result) bound(s *report.Summary, res report.Result) {
	done := s.Counts.Valid + s.Counts.Failed
	switch {
	case r.Metric == "request_error_rate":
		r.share(s.Counts.Failed, done, 100)
	case r.Metric == "good_request_fraction":
		r.share(int64(math.Round(*r.Value*float64(done))), done, 1)
	case res.Intervals == nil || res.Statistic == nil:
	case r.Statistic == "avg":
		if res.Statistic.Count < 2 || !(res.Intervals.Effective > 0) {
			r.Bounded = true
			return
		}
		half := distuv.UnitNormal.Quantile(1-(1-Level)/2) * res.Statistic.Std / math.Sqrt(res.Intervals.Effective)
		low, high := *r.Value-half, *r.Value+half
		r.Low, r.High, r.Bounded = &low, &high, true
	default:
		p, ok := percent(r.Statistic)
		if i := slices.Index(report.IntervalPercents[:], p); ok && i >= 0 {
			r.Low, r.High, r.Bounded = res.Intervals.Of[i].Low, res.Intervals.Of[i].High, true
		}
	}
}

func (r *Result) share(k, n int64, unit float64) {
	r.Bounded = true
	if n == 0 {
		return
	}
	alpha := (1 - Level) / 2
	low, high := 0.0, unit
	if k > 0 {
		low = unit * distuv.Beta{Alpha: float64(k), Beta: float64(n - k + 1)}.Quantile(alpha)
	}
	if k < n {
		high = unit * distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(1-alpha)
	}
	r.Low, r.High = &low, &high
}

// Write writes a table of the results for people.
func Write(w io.Writer, results []Result) error {
	var rows strings.Builder
	rows.WriteString("\tobjective\tmeasured\tinterval\tmargin\n")
	for _, r := range results {
		measured, interval, margin := r.Words()
		fmt.Fprintf(&rows, "%s\t%s\t%s\t%s\t%s\n", strings.ToUpper(string(r.State)), r.Text, measured, interval, margin)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Objectives: %s\n", strings.ToUpper(string(Worst(results))))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(t, rows.String()); err != nil {
		return err
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.Reason != "" {
			fmt.Fprintf(&b, "  %s: %s\n", r.Text, r.Reason)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Words are the figure, its interval and the margin for people; "-" stands for
// what there is none of.
func (r Result) Words() (measured, interval, margin string) {
	measured, margin = "-", "-"
	if r.Value != nil {
		measured = figure(*r.Value) + " " + r.Unit
	}
	if r.Margin != nil {
		margin = fmt.Sprintf("%+.1f %%", 100**r.Margin)
	}
	return measured, r.interval(), margin
}

func (r Result) interval() string {
	if !r.Bounded {
		return "-"
	}
	side := func(v *float64) string {
		if v == nil {
			return "?"
		}
		return figure(*v)
	}
	return "[" + side(r.Low) + ", " + side(r.High) + "]"
}

func figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 1 || a == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}
