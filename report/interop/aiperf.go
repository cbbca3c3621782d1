package interop

import (
	"io"
	"math"
	"strconv"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// aiperfSchema is the version of AIPerf's statistics file that ours follows.
const aiperfSchema = "1.4"

// aiperfRecords writes one line a request, failed ones too.
func (src Source) aiperfRecords(w io.Writer) error {
	m := src.Summary.Manifest
	epoch := int64(0)
	if !m.Origin.IsZero() {
		epoch = m.Origin.UnixNano()
	}
	metrics := report.Metrics()
	return src.each(func(r *record.Record) error {
		if !r.Start.IsSet() || r.Outcome == record.Dropped || r.Phase == record.PhaseCooldown {
			return nil
		}
		phase := "profiling"
		if r.Phase == record.PhaseWarmup {
			phase = "warmup"
		}
		end := r.End
		if last, ok := r.LastOutput(); ok {
			end = max(end, last)
		}
		conversation := r.Session
		if conversation == "" {
			conversation = strconv.FormatInt(r.ID, 10)
		}
		meta := object{
			{"session_num", r.ID}, {"x_request_id", m.ID + "-" + strconv.FormatInt(r.ID, 10)},
			{"conversation_id", conversation}, {"turn_index", r.Turn},
		}
		if r.Due.IsSet() {
			meta = append(meta, field{"credit_issued_ns", epoch + int64(r.Due)})
		}
		meta = append(meta, field{"request_start_ns", epoch + int64(r.Start)})
		if r.FirstByte.IsSet() {
			meta = append(meta, field{"request_ack_ns", epoch + int64(r.FirstByte)})
		}
		meta = append(meta,
			field{"request_end_ns", epoch + int64(max(end, r.Start))},
			field{"worker_id", "tokmark"}, field{"record_processor_id", "tokmark"},
			field{"benchmark_phase", phase}, field{"was_cancelled", r.Outcome == record.Cancelled},
		)
		values, problem := object{}, any(nil)
		if r.Outcome == record.OK && len(r.Chunks) > 0 {
			for _, metric := range metrics {
				if v, ok := metric.Of(r); ok && metric.Scope == report.PerRequest && aiperfHas(metric.Tag) {
					values = append(values, field{metric.Tag, object{{"value", v}, {"unit", metric.Unit}}})
				}
			}
			if gaps := r.Gaps(nil); len(gaps) > 0 {
				list := make([]float64, len(gaps))
				for i, g := range gaps {
					list[i] = float64(g) / float64(time.Millisecond)
				}
				values = append(values, field{"inter_chunk_latency", object{{"value", list}, {"unit", "ms"}}})
			}
		} else {
			details := object{{"code", nil}, {"type", string(r.Outcome)}, {"message", string(r.Outcome)}}
			if r.Status != 0 {
				details[0].value = r.Status
			}
			if r.Failure != nil && r.Failure.Message != "" {
				details[2].value = r.Failure.Message
			}
			problem = details
			if n, ok := r.ISL(); ok {
				values = append(values, field{"error_isl", object{{"value", n}, {"unit", "tokens"}}})
			}
		}
		return writeJSON(w, object{{"metadata", meta}, {"metrics", values}, {"error", problem}}, "")
	})
}

// aiperfHas reports whether AIPerf has a metric of the tag too.
func aiperfHas(tag string) bool {
	switch tag {
	case "tokens_per_chunk", "ttft_per_uncached_token", "time_to_first_token_from_due", "request_latency_from_due":
		return false
	}
	return true
}

// aiperfOrder is the order of AIPerf's own fields.
var aiperfOrder = []string{
	"request_throughput", "request_latency", "request_count", "time_to_first_token", "time_to_second_token",
	"inter_token_latency", "output_token_throughput", "output_token_throughput_per_user", "output_sequence_length",
	"input_sequence_length", "goodput", "good_request_count", "output_token_count", "reasoning_token_count",
	"min_request_timestamp", "max_response_timestamp", "inter_chunk_latency", "total_output_tokens",
	"total_reasoning_tokens", "benchmark_duration", "total_isl", "total_osl", "error_request_count",
}

// aiperfStatistics writes the statistics of the run. input_config is left out:
// AIPerf's reader wants its own options in it.
func (src Source) aiperfStatistics(w io.Writer) error {
	s, m := src.Summary, src.Summary.Manifest
	o := object{{"schema_version", aiperfSchema}, {"benchmark_id", m.ID}}
	written := map[string]bool{}
	add := func(r report.Result) {
		if !written[r.Tag] && aiperfHas(r.Tag) && r.Scope != report.PerSent {
			written[r.Tag] = true
			o = append(o, field{r.Tag, aiperfSection(r)})
		}
	}
	for _, tag := range aiperfOrder {
		if r, ok := s.Metric(tag); ok && (tag != "error_request_count" || r.Whole > 0) {
			add(r)
		}
		written[tag] = true
	}
	for _, r := range s.Metrics {
		add(r)
	}
	o = append(o, field{"was_cancelled", m.Outcome == record.RunInterrupted || m.Outcome == record.RunAborted})
	problems := []object{}
	for _, g := range s.Errors {
		details := object{{"code", nil}, {"type", string(g.Outcome)}, {"message", g.Message}}
		if g.Status != 0 {
			details[0].value = g.Status
		}
		problems = append(problems, object{{"error_details", details}, {"count", g.Count}})
	}
	o = append(o, field{"error_summary", problems})
	for _, at := range []struct {
		key string
		t   record.Time
	}{{"start_time", m.MeasureStart}, {"end_time", m.MeasureEnd}} {
		if at.t.IsSet() && !m.Origin.IsZero() {
			o = append(o, field{at.key, m.Origin.Add(time.Duration(at.t)).UTC().Format("2006-01-02T15:04:05.000000Z07:00")})
		}
	}
	return writeJSON(w, o, "  ")
}

func aiperfSection(r report.Result) object {
	o := object{{"unit", r.Unit}}
	add := func(key string, v float64) {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			o = append(o, field{key, v})
		}
	}
	st := r.Statistic
	switch {
	case st == nil && r.Integer:
		return append(o, field{"avg", r.Whole})
	case st == nil:
		add("avg", r.Value)
		return o
	}
	add("avg", st.Avg)
	addPercentiles(st, add)
	add("min", st.Min)
	add("max", st.Max)
	add("std", st.Std)
	o = append(o, field{"count", st.Count})
	add("sum", st.Sum)
	return o
}

// addPercentiles adds those that GenAI-Perf and AIPerf have.
func addPercentiles(st *stats.Statistic, add func(string, float64)) {
	for i, p := range stats.Percents {
		if p == math.Trunc(p) {
			add(report.PercentileKey(p), st.Percentiles[i])
		}
	}
}
