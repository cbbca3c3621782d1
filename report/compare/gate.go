package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/slo"
	"github.com/tokmark/tokmark/report/stats"
)

// Outcome is what a gate says of a candidate, or of one of its checks.
type Outcome string

// The outcomes, best first.
const (
	Pass         Outcome = "pass"
	Inconclusive Outcome = "inconclusive"
	Regression   Outcome = "regression"
	NotValid     Outcome = "not valid"
)

// Check is one thing that a gate looked at.
type Check struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail"`
	More    *More   `json:"more,omitempty"`
}

// GateResult is what a gate says. It is not changed after it was made.
type GateResult struct {
	Schema    int          `json:"schema"`
	Outcome   Outcome      `json:"outcome"`
	Candidate SideSummary  `json:"candidate"`
	Baseline  *SideSummary `json:"baseline"` // null: there is none
	Level     float64      `json:"level"`
	// Allowed names the conditions that disqualify and were allowed.
	Allowed    []string    `json:"allowed,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	Notes      []string    `json:"notes,omitempty"`
	Checks     []Check     `json:"checks"`
	Figures    []Figure    `json:"figures,omitempty"`
	// More is what would decide what is open: the most that a check needs.
	More *More `json:"more,omitempty"`
}

// Gate holds a candidate to a budget: its objectives by the candidate alone,
// its rules against the baseline, without which they are inconclusive.
//
// An objective or a rule passes if the whole interval keeps it, fails if the
// whole interval breaks it, and is inconclusive otherwise. The gate fails with
// one failure, and passes if everything passes.
func Gate(candidate Side, baseline *Side, budget Budget) (*GateResult, error) {
	sides := []Side{candidate}
	if baseline != nil {
		sides = append(sides, *baseline)
	}
	budget.Options = budget.withDefaults()
	if err := budget.validate(sides...); err != nil {
		return nil, err
	}
	g := &GateResult{Schema: Schema, Candidate: summaryOf(candidate), Level: budget.Level}
	g.validity(candidate, baseline, budget)
	if slices.ContainsFunc(g.Checks, func(c Check) bool { return c.Outcome == NotValid }) {
		g.conclude()
		return g, nil
	}
	g.enough(candidate, baseline, budget)
	rules := slices.DeleteFunc(slices.Clone(budget.Rules), func(r Rule) bool {
		return baseline != nil && r.optional() && !present(candidate, r) && !present(*baseline, r)
	})
	rows := len(rules) + len(budget.Objectives)
	for _, o := range budget.Objectives {
		g.Checks = append(g.Checks, hold(o, candidate, budget.Level, rows))
	}
	switch {
	case len(rules) == 0:
	case baseline == nil:
		g.Checks = append(g.Checks, Check{Name: "baseline", Outcome: Inconclusive, Detail: "there is no baseline to hold the candidate to"})
	default:
		g.Figures = figuresOf(&comparer{a: *baseline, b: candidate, level: budget.Level, rows: rows}, rules)
		doubt(g.Figures)
		for _, f := range g.Figures {
			g.Checks = append(g.Checks, f.held())
		}
	}
	g.conclude()
	return g, nil
}

// optional rules are those of the default budget for what not every run has.
func (r Rule) optional() bool {
	return slices.Contains(DefaultBudget().Rules, r)
}

// validity checks whether the runs say anything, and the same thing.
func (g *GateResult) validity(candidate Side, baseline *Side, budget Budget) {
	base := candidate
	if baseline != nil {
		base = *baseline
		s := summaryOf(base)
		g.Baseline = &s
	}
	c := begin(base, candidate, budget.Options, false)
	if baseline == nil { // both sides are the candidate: it is told once
		c.Notes = slices.Compact(slices.DeleteFunc(slices.Sorted(slices.Values(c.Notes)), func(n string) bool { return !strings.Contains(n, suspectNote) }))
		c.Conditions = slices.DeleteFunc(c.Conditions, func(k Condition) bool {
			unlike := len(candidate.Runs) > 1 && k.Name != saltReuse && (k.Blocks() || k.Allowed)
			return !unlike && k.Name != notValid && k.Name != clientLimited && k.Name != partialRun
		})
		c.Blocked = nil
		c.Allowed = nil
		for _, k := range c.Conditions {
			if k.Blocks() {
				c.Blocked = append(c.Blocked, k.Name)
			} else if k.Allowed {
				c.Allowed = append(c.Allowed, k.Name)
			}
		}
	}
	g.Conditions, g.Notes, g.Allowed = c.Conditions, c.Notes, c.Allowed
	check := Check{Name: "conditions", Outcome: Pass, Detail: "the runs may be compared"}
	if baseline == nil {
		check.Detail = "the run is valid"
		if len(c.Notes) > 0 {
			check.Detail = "the run is suspect: see the notes"
		}
	}
	if len(c.Allowed) > 0 {
		check.Detail += "; allowed by hand: " + strings.Join(c.Allowed, ", ")
	}
	var why []string
	for _, k := range c.Conditions {
		if k.Blocks() {
			why = append(why, k.text())
		}
	}
	if len(why) > 0 {
		check.Outcome, check.Detail = NotValid, strings.Join(why, "; ")
	}
	g.Checks = append(g.Checks, check)
}

// text says how a condition differs.
func (c Condition) text() string {
	if c.A == c.B { // a side that stands for both
		return fmt.Sprintf("%s: %s (%s)", c.Name, c.Why, orUnknown(c.A))
	}
	return fmt.Sprintf("%s: %s (%s, %s)", c.Name, c.Why, orUnknown(c.A), orUnknown(c.B))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// enough checks the number of requests.
func (g *GateResult) enough(candidate Side, baseline *Side, budget Budget) {
	if budget.MinRequests == 0 {
		return
	}
	runs := candidate.Runs
	if baseline != nil {
		runs = slices.Concat(runs, baseline.Runs)
	}
	c := Check{Name: "min_requests", Outcome: Pass, Detail: fmt.Sprintf("every run has at least %d valid requests", budget.MinRequests)}
	for _, r := range runs {
		if n := r.Counts.Valid; n < budget.MinRequests {
			more := budget.MinRequests - n
			c.Outcome, c.Detail = Inconclusive, fmt.Sprintf("%s has %d valid requests of %d", r.Path, n, budget.MinRequests)
			if c.More == nil || c.More.Requests < more {
				c.More = &More{Requests: more}
			}
		}
	}
	g.Checks = append(g.Checks, c)
}

// held turns a figure into a check.
func (f Figure) held() Check {
	c := Check{Name: f.Metric, Outcome: Inconclusive, Detail: f.Text(), More: f.More}
	if f.Stat != "" {
		c.Name += "." + strings.ReplaceAll(f.Stat, "_", ".")
	}
	switch {
	case f.Verdict == Worse:
		c.Outcome = Regression
	case f.Points && f.Interval != nil:
		if f.Interval.High <= f.Margin {
			c.Outcome = Pass
		}
	case f.slow != nil && f.slow.High <= 1+f.Margin:
		c.Outcome = Pass
	}
	if c.Outcome != Inconclusive {
		c.More = nil
	}
	return c
}

// hold checks an objective.
func hold(o slo.Objective, s Side, level float64, rows int) Check {
	c := Check{Name: o.Text, Outcome: Inconclusive}
	m, _ := report.MetricByTag(o.Metric)
	var values []float64
	for _, r := range s.Runs {
		v, ok := r.value(o.Metric, key(o.Statistic))
		if !ok {
			c.Detail = r.Path + " has no such figure"
			return c
		}
		values = append(values, v)
	}
	var value float64
	for _, v := range values {
		value += v / float64(len(values))
	}
	c.Detail = fmt.Sprintf("%s %s", figure(value), m.Unit)
	i, reason := intervalOf(o, s, values, level)
	switch reason {
	case "":
	case NoInterval: // a count, say: it is what it is
		c.Outcome = Regression
		if o.Met(value) {
			c.Outcome = Pass
		}
		return c
	default:
		c.Detail += ", " + reason
		c.More = moreSamples(o, s, reason)
		return c
	}
	c.Detail += fmt.Sprintf(" [%s, %s]", figure(i.Low), figure(i.High))
	strict := max(level, 1-2*wrong/float64(max(1, rows)))
	switch {
	case o.Met(i.Low) && o.Met(i.High):
		c.Outcome = Pass
	case !o.Met(i.Low) && !o.Met(i.High):
		if i, reason = intervalOf(o, s, values, strict); reason == "" && !o.Met(i.Low) && !o.Met(i.High) {
			c.Outcome = Regression
			return c
		}
		c.Detail += ", " + Unsure
		if reason != "" {
			c.More = moreSamples(o, s, reason)
			return c
		}
		c.More = moreFor(o, s, values, value, i, level, strict)
	default:
		c.More = moreFor(o, s, values, value, i, level, strict)
	}
	return c
}

// moreSamples is what gives a figure an interval that has none.
func moreSamples(o slo.Objective, s Side, reason string) *More {
	if reason == NoRecords {
		return &More{Runs: 1}
	}
	n := s.Runs[0].counts[o.Metric]
	if n == 0 { // a throughput
		n = s.Runs[0].Counts.Valid
	}
	if p, ok := percent(o.Statistic); ok && fewest(p) > n {
		return &More{Requests: fewest(p) - n}
	}
	if n == 0 {
		return nil
	}
	return &More{Requests: n} // as many again
}

// moreFor is how much more would decide an objective whose interval i holds the
// limit, if the figure stays as it is. What breaks the objective has to do so at
// the strict level, too.
func moreFor(o slo.Objective, s Side, values []float64, value float64, i stats.Interval, level, strict float64) *More {
	if sh, ok := shareOf(o, s, values); ok {
		return moreShare(sh.count, func(k float64) bool {
			usual, wide := sh.interval(k, level), sh.interval(k, strict)
			return o.Met(usual.Low) && o.Met(usual.High) || !o.Met(wide.Low) && !o.Met(wide.High)
		})
	}
	room := math.Abs(value - o.Limit)
	times := max(value-i.Low, i.High-value) / room
	if times *= times; !(room > 0) || times > mostMore {
		return nil
	}
	if n := len(values); n > 1 {
		return &More{Runs: max(1, int(math.Ceil(float64(n)*(times-1))))}
	}
	return &More{Requests: max(1, int64(math.Ceil(float64(s.Runs[0].Counts.Valid)*(times-1))))}
}

// shareSeen is a share of the requests of a side, and from how many requests it
// is known.
type shareSeen struct {
	p, effective, unit float64 // unit: 100 for percent
	count              int64
}

// shareOf is the figure of an objective on a share; it reports whether it is
// one.
func shareOf(o slo.Objective, s Side, values []float64) (out shareSeen, ok bool) {
	switch o.Metric {
	case errorRate:
		out.unit = 100
		out.p, out.effective = share(s, &out.count)
	case goodShare:
		out.unit = 1
		for i, r := range s.Runs {
			done := r.Counts.Valid + r.Counts.Failed
			out.p += values[i] * float64(done)
			out.count += done
		}
		out.effective = float64(out.count)
		out.p /= max(1, out.effective)
	default:
		return out, false
	}
	return out, true
}

// interval is that of k times as many requests that are alike.
func (s shareSeen) interval(k, level float64) stats.Interval {
	low, high := wilson(s.p, k*s.effective, level)
	return stats.Interval{Low: s.unit * low, High: s.unit * high, Level: level}
}

// intervalOf is the interval of the figure of an objective, or the reason why
// there is none.
func intervalOf(o slo.Objective, s Side, values []float64, level float64) (stats.Interval, string) {
	if sh, ok := shareOf(o, s, values); ok {
		if sh.count == 0 {
			return stats.Interval{}, FewSamples
		}
		return sh.interval(1, level), ""
	}
	p, isPercentile := percent(o.Statistic)
	if isPercentile {
		for _, r := range s.Runs {
			if r.counts[o.Metric] < fewest(p) {
				return stats.Interval{}, FewSamples
			}
		}
	}
	if len(values) > 1 {
		r, ok := stats.DescribeRepeats(values, level)
		if !ok {
			return stats.Interval{}, NoInterval
		}
		return r.Interval, ""
	}
	r := s.Runs[0]
	series := r.series[o.Metric]
	switch m, _ := report.MetricByTag(o.Metric); {
	case !r.Records && (m.Scope == report.PerRequest || o.Metric == requestRate || o.Metric == tokenRate):
		return stats.Interval{}, NoRecords
	case len(series) == 0, o.Statistic == "min", o.Statistic == "max":
		return stats.Interval{}, NoInterval
	}
	measure := stats.MeanMeasure()
	if isPercentile {
		measure = stats.PercentileMeasure(p)
	}
	n := max(resamples, int(math.Ceil(2*tailDraws/(1-level))))
	e, ok := stats.Bootstrap{Level: level, Resamples: n, Seed: 1}.Estimate(series, measure)
	if !ok {
		return stats.Interval{}, FewSamples
	}
	return e.Interval, ""
}

// conclude draws the checks together.
func (g *GateResult) conclude() {
	rank := func(o Outcome) int { return slices.Index([]Outcome{Pass, Inconclusive, Regression, NotValid}, o) }
	g.Outcome = Pass
	var more More
	for _, c := range g.Checks {
		if rank(c.Outcome) > rank(g.Outcome) {
			g.Outcome = c.Outcome
		}
		if c.More != nil && c.Outcome == Inconclusive {
			more.Requests, more.Runs = max(more.Requests, c.More.Requests), max(more.Runs, c.More.Runs)
		}
	}
	if g.Outcome == Inconclusive && more != (More{}) {
		g.More = &more
	}
}
