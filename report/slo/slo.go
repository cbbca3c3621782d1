// Package slo reads service level objectives, as
// "time_to_first_token.p99<300ms, error_rate<0.1%, goodput>0.95", and says
// whether a run meets them, with enough requests to say so.
package slo

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// Objective bounds one figure of a run.
type Objective struct {
	// Text is what was written.
	Text string `json:"objective"`
	// Metric is the tag, Statistic the figure of a distribution (avg, min, max
	// or a percentile as p99); empty for a metric of the whole run.
	Metric    string `json:"metric"`
	Statistic string `json:"statistic,omitempty"`
	// Limit is in the unit of the metric.
	Limit float64 `json:"limit"`
	// AtLeast: the figure must reach the limit; otherwise it must stay below.
	AtLeast bool `json:"at_least"`
	// Strict: being at the limit does not do.
	Strict bool `json:"strict"`
}

// short are names that people use, with the tags they stand for.
var short = map[string]string{
	"ttft": "time_to_first_token", "ttst": "time_to_second_token", "ttfo": "time_to_first_output_token",
	"itl": "inter_token_latency", "icl": "inter_chunk_latency", "e2e": "request_latency", "latency": "request_latency",
	"error_rate": "request_error_rate",
}

// units are the units that an amount may be written in besides the metric's own,
// by that one, with how many of it one of them is; negative: one of it is so many
// of them.
var units = map[string]map[string]float64{
	"ms":              {"s": 1e3, "us": -1e3, "µs": -1e3},
	"sec":             {"s": 1, "ms": -1e3, "us": -1e6, "µs": -1e6, "min": 60},
	"ratio":           {"%": -100},
	"tokens":          {"tok": 1},
	"requests":        {"req": 1},
	"requests/sec":    {"req/s": 1, "rps": 1, "requests/s": 1},
	"tokens/sec":      {"tok/s": 1, "tokens/s": 1},
	"tokens/sec/user": {"tok/s": 1, "tokens/s": 1, "tok/s/user": 1, "tokens/s/user": 1},
}

// amount is a number and its unit.
var amount = regexp.MustCompile(`^([0-9.eE+-]+?)\s*([a-zµ/%]*)$`)

// Amount reads a number with a unit, as 300ms, and returns it in the metric's
// unit, which is meant where there is none.
func Amount(text string, m report.Metric) (v float64, unit string, err error) {
	f := amount.FindStringSubmatch(text)
	if f == nil {
		return 0, "", fmt.Errorf("%q is no number with a unit", text)
	}
	v, err = strconv.ParseFloat(f[1], 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, "", fmt.Errorf("%s is no number", f[1])
	}
	if v < 0 {
		return 0, "", fmt.Errorf("%s is negative", f[1])
	}
	unit = f[2]
	if unit == "" || unit == m.Unit {
		return v, unit, nil
	}
	switch scale := units[m.Unit][unit]; {
	case scale == 0:
		return 0, "", fmt.Errorf("%s is in %s, which %q does not fit", m.Tag, m.Unit, unit)
	case scale < 0:
		return v / -scale, unit, nil
	default:
		return v * scale, unit, nil
	}
}

var form = regexp.MustCompile(`^([a-z0-9_]+)(?:\.([a-z]+|p[0-9]+(?:[._][0-9]+)?))?\s*(<=|>=|<|>)\s*(.+)$`)

// Parse reads objectives with commas between. A metric is named by its tag, or
// by ttft, ttst, ttfo, itl, icl, e2e or error_rate; a distribution needs the
// figure that is meant, as in ttft.p99. A limit without a unit is in the
// metric's own, but that shares, as error_rate, are from 0 to 1. goodput is the
// share of good requests, unless the limit says req/s. Every fault is reported.
func Parse(text string) ([]Objective, error) {
	var out []Objective
	var errs []error
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		o, err := parse(part)
		if err != nil {
			errs = append(errs, fmt.Errorf("objective %q: %w", part, err))
			continue
		}
		out = append(out, o)
	}
	if len(out)+len(errs) == 0 {
		errs = append(errs, errors.New("no objective is given: write one as time_to_first_token.p99<300ms"))
	}
	return out, errors.Join(errs...)
}

func parse(text string) (Objective, error) {
	f := form.FindStringSubmatch(text)
	if f == nil {
		return Objective{}, errors.New("write it as metric.figure<limit, as in time_to_first_token.p99<300ms")
	}
	tag, figure, op := f[1], strings.ReplaceAll(f[2], "_", "."), f[3]
	if long, ok := short[tag]; ok {
		tag = long
	}
	if last := f[4][len(f[4])-1]; tag == "goodput" && (last == '%' || last >= '0' && last <= '9') {
		tag = "good_request_fraction"
	}
	m, ok := report.MetricByTag(tag)
	if !ok {
		return Objective{}, fmt.Errorf("no metric has the tag %s; tokmark report DIR --format json shows all", f[1])
	}
	o := Objective{Text: text, Metric: tag, Statistic: figure, AtLeast: op[0] == '>', Strict: len(op) == 1}
	switch {
	case m.Scope == report.PerRun && figure != "":
		return o, fmt.Errorf("%s is one value of the whole run: leave .%s out", tag, f[2])
	case m.Scope != report.PerRun && figure == "":
		return o, fmt.Errorf("%s has a value for each %s: say which figure is meant, as %s.p99 or %s.avg", tag, m.Scope, f[1], f[1])
	case figure != "" && !known(figure):
		return o, fmt.Errorf("no figure is called %s: use avg, min, max, %s", figure, percentNames())
	}
	limit, unit, err := Amount(f[4], m)
	if err != nil {
		return o, fmt.Errorf("the limit: %w", err)
	}
	if o.Limit = limit; m.Unit == "%" && unit == "" {
		o.Limit = 100 * limit
	}
	number := strings.TrimSuffix(f[4], "%")
	if (m.Unit == "ratio" && o.Limit > 1) || (m.Unit == "%" && o.Limit > 100) {
		return o, fmt.Errorf("the limit of a share lies between 0 and 1: write %s%%, or for the rate of good requests goodput%s%sreq/s", number, op, number)
	}
	return o, nil
}

func known(figure string) bool {
	switch figure {
	case "avg", "min", "max":
		return true
	}
	_, ok := percent(figure)
	return ok
}

// percent is the percentile that a figure names.
func percent(figure string) (float64, bool) {
	for _, p := range stats.Percents {
		if figure == "p"+strconv.FormatFloat(p, 'g', -1, 64) {
			return p, true
		}
	}
	return 0, false
}

func percentNames() string {
	names := make([]string, len(stats.Percents))
	for i, p := range stats.Percents {
		names[i] = "p" + strconv.FormatFloat(p, 'g', -1, 64)
	}
	return strings.Join(names, ", ")
}
