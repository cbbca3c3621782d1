package compare

import (
	"errors"
	"fmt"

	"github.com/tokmark/tokmark/report/slo"
)

// Budget says what a gate lets pass. The zero value lets everything pass that
// is valid.
type Budget struct {
	// Objectives hold for the candidate itself.
	Objectives []slo.Objective
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
