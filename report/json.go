package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/stats"
)

// aiperfOrder is the order of the metrics in AIPerf's statistics file; what it
// does not name follows in the order of Metrics().
var aiperfOrder = []string{
	"request_throughput", "request_latency", "request_count", "time_to_first_token",
	"time_to_second_token", "inter_token_latency", "output_token_throughput",
	"output_token_throughput_per_user", "output_sequence_length", "input_sequence_length",
	"goodput", "good_request_count", "output_token_count", "reasoning_token_count",
	"min_request_timestamp", "max_response_timestamp", "inter_chunk_latency",
	"total_output_tokens", "total_reasoning_tokens", "benchmark_duration", "total_isl",
	"total_osl", "error_request_count",
}

// object is a JSON object that keeps the order of its fields.
type object []Field

// Field is a field of a JSON object.
type Field struct {
	Key   string
	Value any
}

// MarshalJSON writes the fields in order.
func (o object) MarshalJSON() ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	buf.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			buf.WriteByte(',')
		}
		key := strconv.Quote(f.Key) // tags and names of ours: ASCII
		buf.WriteString(key + ":")
		if err := enc.Encode(f.Value); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Key, err)
		}
	}
	buf.WriteByte('}')
	return buf.Bytes(), nil
}

// JSON returns the content of summary.json: AIPerf's fields in AIPerf's order,
// then ours. A metric that is missing has no field; an infinite figure of an
// adj_ metric is null. What others found in the run follows as more fields. The
// same summary gives the same bytes.
func (s *Summary) JSON(more ...Field) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(append(s.fields(), more...)); err != nil {
		return nil, fmt.Errorf("encode summary of run %s: %w", s.Manifest.ID, err)
	}
	return buf.Bytes(), nil
}

func (s *Summary) fields() object {
	m := s.Manifest
	o := object{{"schema", Schema}, {"schema_version", strconv.Itoa(Schema) + ".0"}}
	seen := make(map[string]bool)
	add := func(r Result) {
		seen[r.Tag] = true
		o = append(o, Field{r.Tag, r.fields()})
		if r.Tag == "goodput" { // GenAI-Perf's name of it
			o = append(o, Field{"request_goodput", r.fields()})
		}
	}
	for _, tag := range aiperfOrder {
		if r, ok := s.Metric(tag); ok {
			add(r)
		}
	}
	for _, r := range s.Metrics {
		if !seen[r.Tag] {
			add(r)
		}
	}
	if len(m.Config) > 0 {
		o = append(o, Field{"input_config", m.Config})
	}
	o = append(o,
		Field{"was_cancelled", m.Outcome == record.RunInterrupted || m.Outcome == record.RunAborted},
		Field{"error_summary", s.errorSummary()},
	)
	for _, at := range []struct {
		key string
		t   record.Time
	}{{"start_time", m.MeasureStart}, {"end_time", m.MeasureEnd}} {
		if at.t.IsSet() && !m.Origin.IsZero() {
			o = append(o, Field{at.key, m.Origin.Add(time.Duration(at.t)).UTC().Format(time.RFC3339Nano)})
		}
	}
	o = append(o,
		Field{"run", object{
			{"id", m.ID}, {"tool", m.Tool}, {"command", m.Command}, {"outcome", m.Outcome},
			{"partial", s.Partial}, {"workload", m.Workload}, {"workload_hash", m.WorkloadHash},
			{"seed", m.Seed}, {"stamps", m.Stamps},
		}},
		Field{"target", m.Target},
		Field{"verdict", s.Verdict},
		Field{"warnings", orEmpty(s.Warnings)},
		Field{"load", s.Load},
		Field{"requests", s.Counts},
		Field{"outcomes", orEmpty(s.Outcomes)},
		Field{"token_sources", orEmpty(s.Tokens)},
		Field{"connections", s.Connections},
	)
	if s.Window != nil {
		o = append(o, Field{"window", s.Window})
	}
	if len(s.Groups) > 0 {
		o = append(o, Field{"groups", s.Groups})
	}
	if s.Lengths != nil {
		o = append(o, Field{"lengths", s.Lengths})
	}
	if s.Cache != nil {
		o = append(o, Field{"cache", s.Cache})
	}
	o = append(o, Field{"client", s.Client})
	if s.Server != nil {
		o = append(o, Field{"server", s.Server})
	}
	if s.Waterfall != nil {
		o = append(o, Field{"ttft_waterfall", s.Waterfall})
	}
	if s.Prefill != nil {
		o = append(o, Field{"prefill_cost", s.Prefill})
	}
	if s.Events != nil {
		o = append(o, Field{"events", s.Events})
	}
	if s.Speculation != nil {
		o = append(o, Field{"speculation", s.Speculation})
	}
	if s.Reasoning != nil {
		o = append(o, Field{"reasoning", s.Reasoning})
	}
	if s.Structure != nil {
		o = append(o, Field{"structured_output", s.Structure})
	}
	if s.Manifest.SelfTest != nil {
		o = append(o, Field{"self_test", s.Manifest.SelfTest})
	}
	if s.First != nil {
		o = append(o, Field{"first_request", s.First})
	}
	if len(m.Goodput) > 0 {
		o = append(o, Field{"goodput_objectives", m.Goodput})
	}
	if len(m.Conditions) > 0 {
		o = append(o, Field{"conditions", m.Conditions})
	}
	if m.Input != nil {
		o = append(o, Field{"input", object{
			{"file", m.Input.File}, {"format", m.Input.Format}, {"usable", m.Input.Usable},
			{"skipped", m.Input.SkippedCount()}, {"reordered", m.Input.Reordered},
		}})
	}
	return append(o, Field{"damaged_records", s.Damaged})
}

// orEmpty turns a missing list into an empty one, so that a reader can count.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (s *Summary) errorSummary() []object {
	out := make([]object, 0, len(s.Errors))
	for _, g := range s.Errors {
		var code any
		if g.Status != 0 {
			code = g.Status
		}
		out = append(out, object{
			{"error_details", object{{"code", code}, {"type", g.Outcome}, {"message", g.Message}}},
			{"count", g.Count},
		})
	}
	return out
}

func (r Result) fields() object {
	o := object{{"unit", r.Unit}}
	st := r.Statistic
	switch {
	case st == nil && r.Integer:
		return append(o, Field{"avg", r.Whole})
	case st == nil:
		return append(o, Field{"avg", finite(r.Value)})
	}
	o = append(o, Field{"avg", finite(st.Avg)})
	var few []string
	for i, p := range stats.Percents {
		o = append(o, Field{PercentileKey(p), finite(st.Percentiles[i])})
		if st.Few(p) {
			few = append(few, PercentileKey(p))
		}
	}
	o = append(o,
		Field{"min", finite(st.Min)}, Field{"max", finite(st.Max)}, Field{"std", finite(st.Std)},
		Field{"count", st.Count}, Field{"sum", finite(st.Sum)},
	)
	if len(few) > 0 {
		o = append(o, Field{"few_samples_for", few})
	}
	if in := r.Intervals; in != nil {
		for i, p := range IntervalPercents {
			if ci := in.Of[i]; ci.Known() {
				o = append(o, Field{PercentileKey(p) + "_ci95", []*float64{ci.Low, ci.High}})
			}
		}
		if in.Known() {
			o = append(o, Field{"ci_method", in.Method()})
		}
		o = append(o, Field{"effective_count", finite(in.Effective)})
	}
	return o
}

// PercentileKey is the name of a percentile in files: p50, p99_9.
func PercentileKey(p float64) string {
	return "p" + strings.ReplaceAll(strconv.FormatFloat(p, 'g', -1, 64), ".", "_")
}

// finite is v, or nil where JSON has no such number.
func finite(v float64) any {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return v
}
