package report

import (
	"cmp"
	"slices"
)

// The ways in which requests are told apart.
const (
	ByTurn  = "turn"  // first turns of conversations and later ones
	ByClass = "class" // workload classes
	ByModel = "model" // the models that were asked for
)

// Group is what was measured of a part of the requests. Times are in
// milliseconds; nil is missing.
type Group struct {
	By      string  `json:"by"`
	Name    string  `json:"name"`
	Valid   int64   `json:"valid"`
	Failed  int64   `json:"failed"`
	TTFT    *Spread `json:"time_to_first_token_ms,omitempty"`
	ITL     *Spread `json:"inter_token_latency_ms,omitempty"`
	Latency *Spread `json:"request_latency_ms,omitempty"`
	// ISL and OSL are means.
	ISL *float64 `json:"input_sequence_length_avg,omitempty"`
	OSL *float64 `json:"output_sequence_length_avg,omitempty"`
	// OutputTokens is the group's share in the output token throughput, and
	// Goodput that in the goodput, per second of the run's benchmark
	// duration. A class is held to its own objectives, if it has any.
	OutputTokens *float64 `json:"output_token_throughput,omitempty"`
	Goodput      *float64 `json:"goodput,omitempty"`
	// GoodFraction is good / (valid + failed) requests.
	GoodFraction *float64 `json:"good_request_fraction,omitempty"`
}

// grouping is one way to tell requests apart.
type grouping struct {
	by  string
	key func(*request) string
	// objectives reports whether the group has some, good whether a request
	// meets them.
	objectives func(name string) bool
	good       func(*request) bool
}

// requestGroups returns the groups of every way in which there are several.
func (t *tally) requestGroups() []Group {
	ofRun := func(string) bool { return t.objectives }
	good := func(q *request) bool { return q.good }
	var out []Group
	for _, g := range []grouping{
		{ByTurn, func(q *request) string {
			if q.turn > 0 {
				return "later"
			}
			return "first"
		}, ofRun, good},
		{ByClass, func(q *request) string { return t.names[q.class] },
			func(name string) bool { return t.objectives || t.classGoals[name] != nil },
			func(q *request) bool { return q.goodInClass }},
		{ByModel, func(q *request) string { return t.names[q.model] }, ofRun, good},
	} {
		out = append(out, t.groupBy(g)...)
	}
	return out
}

func (t *tally) groupBy(g grouping) []Group {
	members := make(map[string][]*request)
	for i := range t.requests {
		if q := &t.requests[i]; q.state != stateOther {
			members[g.key(q)] = append(members[g.key(q)], q)
		}
	}
	if len(members) < 2 {
		return nil
	}
	seconds, timed := t.window()
	out := make([]Group, 0, len(members))
	for name, requests := range members {
		group := Group{By: g.by, Name: cmp.Or(name, "(none)")}
		var isl, osl sum
		var good int64
		var values [followLatency + 1][]float64
		for _, q := range requests {
			if q.state == stateFailed {
				group.Failed++
				continue
			}
			group.Valid++
			isl.addKnown(q.isl, q.isl >= 0)
			osl.addKnown(q.osl, q.osl >= 0)
			if g.good(q) {
				good++
			}
			for place := range values {
				if v := q.values[place]; v == v {
					values[place] = append(values[place], v)
				}
			}
		}
		group.TTFT, group.ITL, group.Latency = spreadOf(values[followTTFT]), spreadOf(values[followITL]), spreadOf(values[followLatency])
		group.ISL, group.OSL = ratio(float64(isl.sum), float64(isl.n)), ratio(float64(osl.sum), float64(osl.n))
		if timed && osl.n > 0 {
			group.OutputTokens = ratio(float64(osl.sum), seconds)
		}
		if g.objectives(name) {
			group.GoodFraction = ratio(float64(good), float64(group.Valid+group.Failed))
			if timed {
				group.Goodput = ratio(float64(good), seconds)
			}
		}
		out = append(out, group)
	}
	slices.SortFunc(out, func(a, b Group) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
