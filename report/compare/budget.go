package compare

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/report"
)

// Budget says what a gate lets pass. The zero value lets everything pass that
// is valid.
type Budget struct {
	// Objectives hold for the candidate itself.
	Objectives []Objective
	// Rules hold against the baseline.
	Rules []Rule
	// MinRequests is how many valid requests each run needs; 0: none.
	MinRequests int64
	Options
}

// DefaultBudget is the budget of a gate without one: medians within 5 %, p99
// within 15 %, throughput within 5 %, one percentage point of errors, and the
// thousand requests that a p99 takes. Rules for what a run does not have, as
// TTFT without streams, do not count.
func DefaultBudget() Budget {
	const median, tail = 0.05, 0.15
	return Budget{
		Rules: []Rule{
			{Metric: errorRate, Floor: errorMargin},
			{Metric: "time_to_first_token", Stat: "p50", Margin: median, Floor: 1},
			{Metric: "time_to_first_token", Stat: "p99", Margin: tail, Floor: 5},
			{Metric: "inter_token_latency", Stat: "p50", Margin: median, Floor: 0.1},
			{Metric: "inter_token_latency", Stat: "p99", Margin: tail, Floor: 0.5},
			{Metric: "request_latency", Stat: "p50", Margin: median, Floor: 5},
			{Metric: "request_latency", Stat: "p99", Margin: tail, Floor: 20},
			{Metric: tokenRate, Margin: median},
		},
		MinRequests: 1000,
	}
}

// AdvisedRequests is how many requests a side the default budget wants to be
// decided in nearly all cases.
const AdvisedRequests = 3000

// Validate reports every fault. Names of conditions that only the runs tell
// are checked by Gate.
func (b Budget) Validate() error {
	b.Vary, b.Allow = nil, nil
	return b.validate()
}

func (b Budget) validate(sides ...Side) error {
	errs := []error{b.check(sides...)}
	for i, r := range b.Rules {
		if err := r.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("regressions[%d]: %w", i, err))
		}
	}
	if b.MinRequests < 0 {
		errs = append(errs, fmt.Errorf("min_requests %d: it must not be negative", b.MinRequests))
	}
	return errors.Join(errs...)
}

// Objective is a bound that a figure has to keep.
type Objective struct {
	Metric string `json:"metric"`
	Stat   string `json:"stat,omitempty"`
	// AtMost: the figure must not lie above Bound, else not below. Bound is in
	// the metric's unit.
	AtMost bool    `json:"at_most"`
	Bound  float64 `json:"bound"`
	Text   string  `json:"text"` // as it was written
}

var objectiveForm = regexp.MustCompile(`^\s*([a-z0-9_]+)(?:\.(avg|p[0-9]+(?:\.[0-9]+)?))?\s*(<=?|>=?)\s*([0-9.eE+-]+)\s*([a-zµ%/]*)\s*$`)

// ParseObjective reads an objective as it stands in a budget:
// "time_to_first_token.p99 < 300ms", "request_error_rate < 1%",
// "output_token_throughput > 500". Without a unit the metric's own is meant.
func ParseObjective(text string) (Objective, error) {
	parts := objectiveForm.FindStringSubmatch(text)
	if parts == nil {
		return Objective{}, fmt.Errorf("objective %q: write it as metric.statistic < value, as time_to_first_token.p99 < 300ms", text)
	}
	m, ok := report.MetricByTag(parts[1])
	if !ok {
		return Objective{}, fmt.Errorf("objective %q: no metric is called %s", text, parts[1])
	}
	if err := checkStat(m, parts[2]); err != nil {
		return Objective{}, fmt.Errorf("objective %q: %w", text, err)
	}
	v, err := strconv.ParseFloat(parts[4], 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) || v < 0 {
		return Objective{}, fmt.Errorf("objective %q: %s is no number", text, parts[4])
	}
	if parts[5] == "%" && m.Unit == "ratio" {
		v, parts[5] = v/100, ""
	}
	factor, ok := unit(parts[5], m.Unit)
	if !ok {
		return Objective{}, fmt.Errorf("objective %q: %s has the unit %s", text, m.Tag, m.Unit)
	}
	return Objective{Metric: m.Tag, Stat: key(parts[2]), AtMost: parts[3][0] == '<', Bound: v * factor, Text: strings.TrimSpace(text)}, nil
}

// unit returns how many of the metric's unit one of the given unit is.
func unit(given, of string) (float64, bool) {
	if given == "" || given == of {
		return 1, true
	}
	toMS := map[string]float64{"us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1e3}
	switch of {
	case "ms":
		f, ok := toMS[given]
		return f, ok
	case "sec":
		f, ok := toMS[given]
		return f / 1e3, ok
	case "tokens/sec":
		return 1, given == "tok/s" || given == "tokens/s"
	case "tokens/sec/user":
		return 1, given == "tok/s/user" || given == "tokens/s/user"
	case "requests/sec":
		return 1, given == "req/s" || given == "requests/s"
	}
	return 0, false
}
