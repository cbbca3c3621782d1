package report

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ParseGoodput reads service level objectives as they are given to --goodput:
// "time_to_first_token:300 inter_token_latency:30", metric tags each with a
// threshold in the unit that the metric is shown in. Every fault is reported,
// not only the first. An empty text holds no objective and gives nil.
// streaming is as for CheckGoodput.
func ParseGoodput(text string, streaming bool) (map[string]float64, error) {
	items := strings.Fields(text)
	errs := make([]error, 0, len(items))
	var goals map[string]float64
	for _, item := range items {
		tag, value, ok := strings.Cut(item, ":")
		threshold, err := strconv.ParseFloat(value, 64)
		switch _, twice := goals[tag]; {
		case !ok || err != nil:
			errs = append(errs, fmt.Errorf("goodput objective %q: write it as metric:number, as in time_to_first_token:300", item))
		case twice:
			errs = append(errs, fmt.Errorf("goodput objective %q: the metric already has an objective; give one", item))
		default:
			if goals == nil {
				goals = make(map[string]float64)
			}
			goals[tag] = threshold
		}
	}
	if err := errors.Join(append(errs, CheckGoodput(goals, streaming))...); err != nil {
		return nil, err
	}
	return goals, nil
}

// CheckGoodput reports every objective that makes no sense: a tag that is not
// known, a metric that a single request does not have, a threshold that is
// not a positive number, and a metric that needs streams in a run without.
func CheckGoodput(objectives map[string]float64, streaming bool) error {
	errs := make([]error, 0, len(objectives))
	for _, tag := range slices.Sorted(maps.Keys(objectives)) {
		threshold := objectives[tag]
		m, ok := MetricByTag(tag)
		var why string
		switch {
		case !ok:
			why = "no metric has this tag; " + suggest(tag)
		case m.Scope != PerRequest:
			why = "it is not a metric of single requests; " + suggest(tag)
		case m.StreamingOnly && !streaming:
			why = "it needs streamed answers; add --streaming or use request_latency"
		case !(threshold > 0) || math.IsInf(threshold, 0):
			why = fmt.Sprintf("the threshold %v is not a number above 0 (in %s)", threshold, m.Unit)
		default:
			continue
		}
		errs = append(errs, fmt.Errorf("goodput objective %s: %s", tag, why))
	}
	return errors.Join(errs...)
}

// suggest names the tags nearest to what was written.
func suggest(tag string) string {
	type near struct {
		tag  string
		cost int
	}
	var tags []near
	for _, m := range metrics {
		if m.Scope == PerRequest && m.Tag != tag {
			cost := Distance(tag[:min(len(tag), 64)], m.Tag)
			if initials(m.Tag) == strings.ToLower(tag) {
				cost = 0
			}
			tags = append(tags, near{m.Tag, cost})
		}
	}
	slices.SortStableFunc(tags, func(a, b near) int { return a.cost - b.cost })
	return fmt.Sprintf("did you mean %s, %s or %s?", tags[0].tag, tags[1].tag, tags[2].tag)
}

// initials shortens time_to_first_token to ttft.
func initials(tag string) string {
	var b strings.Builder
	for _, word := range strings.Split(tag, "_") {
		b.WriteByte(word[0])
	}
	return b.String()
}

// Distance is the Levenshtein distance in bytes: how many to change, add or
// remove. It tells what a user may have meant.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// goal is one objective, ready to be tested.
type goal struct {
	metric    Metric
	threshold float64
}

// goalsOf returns objectives that CheckGoodput has let pass.
func goalsOf(objectives map[string]float64) []goal {
	goals := make([]goal, 0, len(objectives))
	for _, tag := range slices.Sorted(maps.Keys(objectives)) {
		metric, _ := MetricByTag(tag)
		goals = append(goals, goal{metric, objectives[tag]})
	}
	return goals
}

// meets reports whether what get returns meets every goal; a metric that is
// missing meets none.
func meets(goals []goal, get func(Metric) (float64, bool)) bool {
	for _, g := range goals {
		v, ok := get(g.metric)
		switch {
		case !ok:
			return false
		case g.metric.LargerIsBetter && v < g.threshold:
			return false
		case !g.metric.LargerIsBetter && v > g.threshold:
			return false
		}
	}
	return true
}
