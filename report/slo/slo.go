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
	Text string
	// Metric is the tag, Statistic the figure of a distribution (avg, min, max
	// or a percentile as p99); empty for a metric of the whole run.
	Metric, Statistic string
	// Limit is in the unit of the metric.
	Limit float64
	// AtLeast: the figure must reach the limit; otherwise it must stay below.
	AtLeast bool
	// Strict: being at the limit does not do.
	Strict bool
}

// short are names that people use, with the tags they stand for.
var short = map[string]string{
	"ttft": "time_to_first_token", "ttst": "time_to_second_token", "ttfo": "time_to_first_output_token",
	"itl": "inter_token_latency", "icl": "inter_chunk_latency", "e2e": "request_latency", "latency": "request_latency",
	"error_rate": "request_error_rate",
}

// units are the units that a limit may be written in, by the metric's own, with
// how many of the metric's one of them is.
var units = map[string]map[string]float64{
	"ms":              {"": 1, "ms": 1, "s": 1e3, "us": -1e3, "µs": -1e3},
	"sec":             {"": 1, "s": 1, "ms": -1e3, "min": 60},
	"%":               {"": 100, "%": 1},
	"ratio":           {"": 1, "%": -100},
	"tokens":          {"": 1, "tok": 1, "tokens": 1},
	"requests":        {"": 1, "req": 1, "requests": 1},
	"requests/sec":    {"": 1, "req/s": 1, "rps": 1, "requests/s": 1, "requests/sec": 1},
	"tokens/sec":      {"": 1, "tok/s": 1, "tokens/s": 1, "tokens/sec": 1},
	"tokens/sec/user": {"": 1, "tok/s": 1, "tokens/s": 1, "tok/s/user": 1, "tokens/sec/user": 1},
}

var form = regexp.MustCompile(`^([a-z0-9_]+)(?:\.([a-z]+|p[0-9]+(?:[._][0-9]+)?))?\s*(<=|>=|<|>)\s*([0-9.eE+-]+?)\s*([a-zµ/%]*)$`)

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
	tag, figure, op, unit := f[1], strings.ReplaceAll(f[2], "_", "."), f[3], f[5]
	if long, ok := short[tag]; ok {
		tag = long
	}
	if tag == "goodput" && (unit == "" || unit == "%") {
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
	limit, err := strconv.ParseFloat(f[4], 64)
	if err != nil || math.IsInf(limit, 0) {
		return o, fmt.Errorf("the limit %s is no number", f[4])
	}
	scale, ok := units[m.Unit][unit]
	if m.Unit == "ms/token" && unit == "" {
		scale, ok = 1, true
	}
	if !ok {
		return o, fmt.Errorf("%s is in %s, which %q does not fit", tag, m.Unit, unit)
	}
	if o.Limit = limit * scale; scale < 0 {
		o.Limit = limit / -scale
	}
	if (m.Unit == "ratio" && o.Limit > 1) || (m.Unit == "%" && o.Limit > 100) {
		return o, fmt.Errorf("the limit of a share lies between 0 and 1: write %s%%, or for the rate of good requests goodput%s%sreq/s", f[4], op, f[4])
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
