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
	if baseline == nil {
		c.Notes = nil
		c.Conditions = slices.DeleteFunc(c.Conditions, func(k Condition) bool {
			return k.Name != notValid && k.Name != clientLimited && k.Name != partialRun
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
		if p, ok := percent(o.Statistic); ok {
			if n := fewest(p) - s.Runs[0].counts[o.Metric]; n > 0 {
				c.More = &More{Requests: n}
			}
		}
		return c
	}
	c.Detail += fmt.Sprintf(" [%s, %s]", figure(i.Low), figure(i.High))
	switch {
	case o.Met(i.Low) && o.Met(i.High):
		c.Outcome = Pass
	case !o.Met(i.Low) && !o.Met(i.High):
		tail := wrong / float64(max(1, rows))
		strict, _ := intervalOf(o, s, values, max(level, 1-2*tail))
		if !o.Met(strict.Low) && !o.Met(strict.High) {
			c.Outcome = Regression
			return c
		}
		fallthrough
	default:
		half, room := (i.High-i.Low)/2, math.Abs(value-o.Limit)
		if room > 0 && half/room < math.Sqrt(mostMore) {
			if len(values) > 1 {
				c.More = &More{Runs: max(1, int(math.Ceil(float64(len(values))*(half*half/(room*room)-1))))}
			} else {
				c.More = &More{Requests: max(1, int64(math.Ceil(float64(s.Runs[0].Counts.Valid)*(half*half/(room*room)-1))))}
			}
		}
	}
	return c
}

// intervalOf is the interval of the figure of an objective, or the reason why
// there is none.
func intervalOf(o slo.Objective, s Side, values []float64, level float64) (stats.Interval, string) {
	if o.Metric == errorRate {
		var n int64
		p, effective := share(s, &n)
		low, high := wilson(p, effective, level)
		return stats.Interval{Low: 100 * low, High: 100 * high, Level: level}, ""
	}
	if o.Metric == goodShare {
		var good, n float64
		for i, r := range s.Runs {
			done := float64(r.Counts.Valid + r.Counts.Failed)
			good, n = good+values[i]*done, n+done
		}
		if n == 0 {
			return stats.Interval{}, FewSamples
		}
		low, high := wilson(good/n, n, level)
		return stats.Interval{Low: low, High: high, Level: level}, ""
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
