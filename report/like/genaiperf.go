package like

import (
	"math"
	"slices"

	"github.com/tokmark/tokmark/bench/record"
)

// genaiPerf holds the definitions of GenAI-Perf. It knows text only; what one
// read brought is one response.
var genaiPerf = []definition{
	{"time_to_first_token", "time_to_first_token", "ms", []step{
		{gpText, distribution(gpCounts, one(gpTTFT), ms)},
	}},
	{"time_to_second_token", "time_to_second_token", "ms", []step{
		{"what one read brought is one response", distribution(gpCounts, one(gpTTST), ms)},
	}},
	{"request_latency", "request_latency", "ms", []step{
		{gpText, distribution(gpCounts, one(gpLatency), ms)},
	}},
	{"inter_token_latency", "inter_token_latency", "ms", []step{
		{gpText + "; it is rounded to whole ns and needs two responses", gpITLs},
	}},
	{"output_token_throughput_per_user", "output_token_throughput_per_user", "tokens/sec/user", []step{
		{"the inverse of the rounded inter token latency", distribution(gpCounts, one(gpPerUser), 1)},
	}},
	{"output_sequence_length", "output_sequence_length", "tokens", []step{
		{"tokens of the text, without reasoning and tool calls", distribution(gpCounts, one(gpOSL), 1)},
	}},
	{"input_sequence_length", "input_sequence_length", "tokens", []step{
		{"tokens of the message texts, without the chat template", distribution(gpCounts, one((*record.Record).ISL), 1)},
	}},
	{"output_token_throughput", "output_token_throughput", "tokens/sec", []step{
		{"tokens of the text, from the first start to the last text", rate(gpTokens, gpWindow)},
	}},
	{"request_throughput", "request_throughput", "requests/sec", []step{
		{"answers without text are counted too", rate(func(run *Run) (float64, bool) { n := run.count(gpExported); return n, n > 0 }, gpWindow)},
	}},
	{"goodput", "request_goodput", "requests/sec", []step{
		{"values of different requests are put together where one lacks a metric", gpGoodput},
	}},
	{"request_count", "request_count", "count", []step{
		{"answers with text", func(run *Run) (result, bool) { return result{value: run.count(gpCounts)}, true }},
	}},
}

const gpText = "only text counts as output, not reasoning or tool calls"

// gpExported reports whether the answer is in the file that GenAI-Perf reads:
// it came with a 2xx status. On any other it stops the run.
func gpExported(run *Run, r *record.Record) bool {
	switch r.Outcome {
	case record.OK, record.Empty, record.StreamError, record.Truncated, record.Malformed, record.NotStreaming:
		return !run.m.Late(r)
	default:
		return false
	}
}

func gpCounts(run *Run, r *record.Record) bool {
	_, n := gpResponses(r)
	return n > 0 && gpExported(run, r)
}

// gpResponses returns the arrivals of the first, second and last response with
// text, and how many there are; all events of one read are one response.
func gpResponses(r *record.Record) (at struct{ first, second, last record.Time }, n int) {
	for _, c := range r.Chunks {
		if c.Kind&record.KindText == 0 || n > 0 && c.At == at.last {
			continue
		}
		switch n++; n {
		case 1:
			at.first = c.At
		case 2:
			at.second = c.At
		}
		at.last = c.At
	}
	return at, n
}

func gpTTFT(r *record.Record) (int64, bool) {
	at, n := gpResponses(r)
	return int64(at.first - r.Start), n > 0
}

func gpTTST(r *record.Record) (int64, bool) {
	at, n := gpResponses(r)
	return int64(at.second - at.first), n > 1
}

func gpLatency(r *record.Record) (int64, bool) {
	at, n := gpResponses(r)
	return int64(at.last - r.Start), n > 0
}

// gpOSL is the number of text tokens. Where there are tool calls as well, it
// takes a count for each event to tell them apart.
func gpOSL(r *record.Record) (int64, bool) {
	var text int64
	tools, known := false, true
	for _, c := range r.Chunks {
		tools = tools || c.Kind&record.KindTool != 0
		if c.Kind&record.KindText != 0 {
			known = known && c.Tokens != record.UnknownTokens
			text += int64(c.Tokens)
		}
	}
	if tools {
		return text, known
	}
	return int64(r.Tokens.Output), r.Tokens.Output.IsKnown()
}

// gpTokens is the sum of the text tokens; one that is not known leaves it
// unknown.
func gpTokens(run *Run) (float64, bool) {
	for _, r := range run.sent {
		if gpCounts(run, r) {
			if _, ok := gpOSL(r); !ok {
				return 0, false
			}
		}
	}
	return run.total(gpCounts, gpOSL)
}

// gpITL is in whole nanoseconds, half to even.
func gpITL(r *record.Record) (float64, bool) {
	at, n := gpResponses(r)
	osl, ok := gpOSL(r)
	if !ok || n < 2 || osl < 2 {
		return 0, false
	}
	return math.RoundToEven(float64(at.last-at.first) / float64(osl-1)), true
}

// gpITLs leaves the metric out where every value is 0.
func gpITLs(run *Run) (result, bool) {
	res, ok := distribution(gpCounts, one(gpITL), ms)(run)
	return res, ok && res.stat.Max > 0
}

// gpPerUser has no value for an ITL of 0, at which GenAI-Perf fails.
func gpPerUser(r *record.Record) (float64, bool) {
	itl, ok := gpITL(r)
	return 1e9 / itl, ok && itl > 0
}

func gpWindow(run *Run) (float64, bool) {
	return run.span(gpCounts, func(r *record.Record) (record.Time, bool) {
		at, n := gpResponses(r)
		return at.last, n > 0
	})
}

// gpGoodput puts the lists of values side by side as they are, the shortest
// first to end, as GenAI-Perf does: requests without a metric are not in its
// list, and what comes after them belongs to another request's place.
func gpGoodput(run *Run) (result, bool) {
	if len(run.m.Goodput) == 0 {
		return result{}, false
	}
	per := map[string]struct {
		of    each
		unit  float64
		least bool // the objective is a lower bound
	}{
		"time_to_first_token":              {one(gpTTFT), ms, false},
		"time_to_second_token":             {one(gpTTST), ms, false},
		"request_latency":                  {one(gpLatency), ms, false},
		"inter_token_latency":              {one(gpITL), ms, false},
		"output_token_throughput_per_user": {one(gpPerUser), 1, true},
	}
	var met [][]bool
	for tag, limit := range run.m.Goodput {
		d, ok := per[tag]
		if !ok {
			return result{value: -1}, true
		}
		var list []bool
		for _, r := range run.sent {
			if gpCounts(run, r) {
				d.of(r, func(v float64) {
					v /= d.unit
					list = append(list, d.least && v >= limit || !d.least && v <= limit)
				})
			}
		}
		met = append(met, list)
	}
	shortest := slices.MinFunc(met, func(a, b []bool) int { return len(a) - len(b) })
	good := 0.0
	for i := range shortest {
		if !slices.ContainsFunc(met, func(list []bool) bool { return !list[i] }) {
			good++
		}
	}
	seconds, ok := gpWindow(run)
	if !ok {
		return result{}, false
	}
	return result{value: good / seconds}, true
}

// aiPerf is what our own definitions are taken from.
var aiPerf = []definition{
	{tag: "time_to_first_token", name: "time_to_first_token", unit: "ms"},
	{tag: "time_to_second_token", name: "time_to_second_token", unit: "ms"},
	{tag: "time_to_first_output_token", name: "time_to_first_output_token", unit: "ms"},
	{tag: "request_latency", name: "request_latency", unit: "ms"},
	{tag: "inter_token_latency", name: "inter_token_latency", unit: "ms"},
	{tag: "inter_chunk_latency", name: "inter_chunk_latency", unit: "ms"},
	{tag: "output_token_throughput_per_user", name: "output_token_throughput_per_user", unit: "tokens/sec/user"},
	{tag: "output_sequence_length", name: "output_sequence_length", unit: "tokens"},
	{tag: "input_sequence_length", name: "input_sequence_length", unit: "tokens"},
	{tag: "output_token_throughput", name: "output_token_throughput", unit: "tokens/sec"},
	{tag: "request_throughput", name: "request_throughput", unit: "requests/sec"},
	{tag: "goodput", name: "goodput", unit: "requests/sec"},
	{tag: "request_count", name: "request_count", unit: "requests"},
}
