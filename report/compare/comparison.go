// Package compare says how two sides of runs differ, and whether they may be
// compared at all: conditions first, then figures with an interval.
//
// A difference is judged by the interval of the ratio B/A at Options.Level
// (0.95) and a margin (5 %): worse if the interval lies beyond the margin, same
// if it lies within, cannot tell if it does neither. Worse means slower or
// less, in the direction of the metric. With one run a side the interval is
// that of a moving-block bootstrap of the two series of requests, in the order
// of their starts; it does not hold what changes from one run to the next. With
// several, it is that of Student's t on the logarithms of one value a run.
//
// Many figures are looked at in one comparison, so that one of them would
// differ by chance sooner or later. A figure is therefore called worse or better
// only if, besides, its interval at a level corrected for their number
// (Bonferroni: 1 % on each side for all figures together) does not hold "no
// difference". To pass, on the other hand, every figure has to pass, which
// needs no correction.
//
// What that gives was counted with made runs of a default gate at its advised
// size, 3000 requests a side: TTFT log-normal with a spread of 25 %, inter-token
// latency of 10 %, both either independent or AR(1) with 0.5 from one request to
// the next (TestSimulatedGate with -found 1000 -whole 100):
//
//	                                         independent    AR(1)
//	equal servers: the gate says regression  0 of 1000      0 of 1000
//	equal servers: the gate passes           100 of 100     98 of 100
//	TTFT alone 10 % slower: regression       999 of 1000    963 of 1000
//	everything 10 % slower: regression       1000 of 1000   1000 of 1000
package compare

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tokmark/tokmark/report"
)

// Schema is the version of the JSON of a comparison and of a gate.
const Schema = 1

// Options say how two sides are compared. The zero value is ready for use.
type Options struct {
	// Vary names the conditions that are meant to differ, Allow the ones that
	// disqualify and shall not.
	Vary, Allow []string
	// Margin is the change that is of no account, as a share; 0: 5 %.
	Margin float64
	// Level is the confidence of an interval; 0: 0.95.
	Level float64
}

const (
	defaultMargin = 0.05
	defaultLevel  = 0.95
)

func (o Options) withDefaults() Options {
	if o.Margin == 0 {
		o.Margin = defaultMargin
	}
	if o.Level == 0 {
		o.Level = defaultLevel
	}
	return o
}

// check reports names that no condition has.
func (o Options) check(sides ...Side) error {
	var errs []error
	for _, list := range []struct {
		what  string
		names []string
	}{{"vary", o.Vary}, {"allow", o.Allow}} {
		for _, name := range list.names {
			if !knownName(name, sides...) {
				errs = append(errs, fmt.Errorf("%s %s: no condition has this name", list.what, name))
			}
		}
	}
	if o.Margin < 0 || o.Margin >= 10 {
		errs = append(errs, fmt.Errorf("margin %v: give a share, as 0.05", o.Margin))
	}
	if o.Level < 0 || o.Level >= 1 {
		errs = append(errs, fmt.Errorf("level %v: give a confidence, as 0.95", o.Level))
	}
	return errors.Join(errs...)
}

// suspectNote stands in a note about a run whose verdict is suspect.
const suspectNote = " is suspect: "

// Comparison is what is said of B against A. It is not changed after it was
// made.
type Comparison struct {
	Schema int         `json:"schema"`
	A      SideSummary `json:"a"`
	B      SideSummary `json:"b"`
	Level  float64     `json:"level"`
	Margin float64     `json:"margin"`
	// Blocked names the conditions that keep the sides from being compared;
	// there are no figures then. Allowed names those that would have.
	Blocked    []string    `json:"blocked,omitempty"`
	Allowed    []string    `json:"allowed,omitempty"`
	Conditions []Condition `json:"conditions"`
	// Notes say what else a reader has to know.
	Notes   []string `json:"notes,omitempty"`
	Figures []Figure `json:"figures,omitempty"`
	Curve   []Match  `json:"curve,omitempty"`
	// Headline is the result in one sentence.
	Headline string `json:"headline"`
}

// SideSummary names a side.
type SideSummary struct {
	Name string       `json:"name"`
	Runs []RunSummary `json:"runs"`
}

// RunSummary names a run.
type RunSummary struct {
	Path     string       `json:"path"`
	ID       string       `json:"id"`
	Verdict  report.Level `json:"verdict"`
	Requests int64        `json:"requests"` // valid ones
	Records  bool         `json:"records"`
}

func summaryOf(s Side) SideSummary {
	out := SideSummary{Name: s.Name}
	for _, r := range s.Runs {
		out.Runs = append(out.Runs, RunSummary{r.Path, r.Manifest.ID, r.Verdict.Level, r.Counts.Valid, r.Records})
	}
	return out
}

// The rules of a comparison without a budget.
var usualFigures = []Rule{
	{Metric: errorRate, Floor: errorMargin},
	{Metric: outputMean, Stat: "avg", Margin: lengthMargin},
	{Metric: "time_to_first_token", Stat: "p50"},
	{Metric: "time_to_first_token", Stat: "p90"},
	{Metric: "time_to_first_token", Stat: "p99"},
	{Metric: "inter_token_latency", Stat: "p50"},
	{Metric: "inter_token_latency", Stat: "p99"},
	{Metric: "request_latency", Stat: "p50"},
	{Metric: "request_latency", Stat: "p99"},
	{Metric: "request_latency_from_due", Stat: "p99"},
	{Metric: requestRate},
	{Metric: tokenRate},
	{Metric: "goodput"},
}

const (
	errorMargin  = 1.0  // percentage points
	lengthMargin = 0.01 // answers shorter by more are another workload
)

// Compare compares B against A. An error is of the options; that the sides
// must not be compared is a result.
func Compare(a, b Side, opt Options) (*Comparison, error) {
	opt = opt.withDefaults()
	if err := opt.check(a, b); err != nil {
		return nil, err
	}
	c := begin(a, b, opt, false)
	if len(c.Blocked) > 0 {
		return c, nil
	}
	rules := make([]Rule, 0, len(usualFigures))
	for _, r := range usualFigures {
		if r.Margin == 0 && r.Metric != errorRate {
			r.Margin = opt.Margin
		}
		if present(a, r) || present(b, r) {
			rules = append(rules, r)
		}
	}
	c.Figures = figuresOf(&comparer{a: a, b: b, level: opt.Level, rows: len(rules)}, rules)
	doubt(c.Figures)
	c.Headline = c.headline()
	return c, nil
}

// present reports whether any run of the side has the figure.
func present(s Side, r Rule) bool {
	return slices.ContainsFunc(s.Runs, func(run *Run) bool {
		_, ok := run.value(r.Metric, key(r.Stat))
		return ok
	})
}

// begin compares the conditions.
func begin(a, b Side, opt Options, curve bool) *Comparison {
	c := &Comparison{
		Schema: Schema, A: summaryOf(a), B: summaryOf(b), Level: opt.Level, Margin: opt.Margin,
		Conditions: conditions(a, b, opt, curve),
	}
	for _, k := range c.Conditions {
		switch {
		case k.Blocks():
			c.Blocked = append(c.Blocked, k.Name)
		case k.Allowed:
			c.Allowed = append(c.Allowed, k.Name)
		case k.Kind == Same && slices.Contains(opt.Vary, k.Name):
			c.Notes = append(c.Notes, k.Name+" was to vary, and is the same on both sides")
		case k.Kind == Unknown && slices.Contains(opt.Vary, k.Name):
			c.Notes = append(c.Notes, k.Name+" was to vary, and nobody knows it: tell it when measuring")
		}
	}
	for _, s := range []Side{a, b} {
		for _, r := range s.Runs {
			if r.Verdict.Level == report.Suspect {
				c.Notes = append(c.Notes, fmt.Sprintf("%s"+suspectNote+"%s", r.Path, strings.Join(r.Verdict.Reasons, " ")))
			}
			if !r.Records {
				c.Notes = append(c.Notes, r.Path+" has no records, only a summary: alone it has no interval, and salt and client host are unknown")
			}
		}
	}
	switch n, m := len(a.Runs), len(b.Runs); {
	case curve:
	case n == 1 && m == 1:
		c.Notes = append(c.Notes, "one run a side: the intervals are of its requests and do not hold what changes from run to run; repeat runs to have that in")
	case (n == 1 || m == 1) && n+m < fewestRuns:
		c.Notes = append(c.Notes, fmt.Sprintf("%d and %d runs are too few to compare runs: only the last one of each side is compared", n, m))
	}
	if len(c.Blocked) > 0 {
		c.Headline = "The two sides must not be compared: " + strings.Join(c.Blocked, ", ") + "."
	}
	return c
}

// figuresOf computes all figures at the same time.
func figuresOf(c *comparer, rules []Rule) []Figure {
	out := make([]Figure, len(rules))
	var running sync.WaitGroup
	for i, r := range rules {
		running.Go(func() { out[i] = c.figure(r) })
	}
	running.Wait()
	return out
}

// doubt marks gains that come with more failures or shorter answers.
func doubt(figures []Figure) {
	doubts := doubtsOf(figures)
	for i := range figures {
		if f := &figures[i]; f.Verdict == Better && f.Metric != errorRate && f.Metric != outputMean {
			f.Doubts = doubts
		}
	}
}

// doubtsOf says why gains beside these figures may be none.
func doubtsOf(figures []Figure) []string {
	var doubts []string
	for _, f := range figures {
		if f.Change == nil {
			continue
		}
		if d := doubtOf(f.Metric, *f.Change, f.Interval); d != "" {
			doubts = append(doubts, d)
		}
	}
	return doubts
}

// doubtOf says what the change of a figure lets one doubt, or "".
func doubtOf(metric string, change float64, i *Range) string {
	switch {
	case i == nil:
	case metric == errorRate && i.Low > 0:
		return fmt.Sprintf("more requests fail (%+.2g percentage points)", change)
	case metric == outputMean && i.High < 0 && change < -lengthMargin:
		return fmt.Sprintf("answers are shorter (%+.2g %%)", 100*change)
	}
	return ""
}

// headline says it in one sentence.
func (c *Comparison) headline() string {
	var better, worse, alike, open, doubts []string
	for _, f := range c.Figures {
		name := f.Name()
		switch f.Verdict {
		case Better:
			better = append(better, name)
			if len(f.Doubts) > 0 {
				doubts = f.Doubts
			}
		case Worse:
			worse = append(worse, name)
		case Alike:
			alike = append(alike, name)
		default:
			open = append(open, name)
		}
	}
	var parts []string
	if len(worse) > 0 {
		parts = append(parts, "B is worse in "+strings.Join(worse, ", "))
	}
	if len(better) > 0 {
		s := "B is better in " + strings.Join(better, ", ")
		if len(doubts) > 0 {
			s = "B looks better in " + strings.Join(better, ", ") + ", but " + strings.Join(doubts, " and ") + ": no gain until that is explained"
		}
		parts = append(parts, s)
	}
	if len(worse)+len(better) == 0 && len(alike) > 0 {
		parts = append(parts, fmt.Sprintf("B is the same within %.3g %% in %s", 100*c.Margin, strings.Join(alike, ", ")))
	}
	if len(open) > 0 {
		parts = append(parts, "cannot tell: "+strings.Join(open, ", "))
	}
	return strings.Join(parts, "; ") + "."
}
