package interop

import (
	"io"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/like"
)

// vllm writes the result of vllm bench serve, with the details of each request:
// its figures, its definitions.
func (src Source) vllm(w io.Writer) error {
	view, err := src.like(like.VLLM)
	if err != nil {
		return err
	}
	m := src.Summary.Manifest
	value := func(name string) any {
		if f, ok := view.Figure(name); ok {
			return f.Avg()
		}
		return nil
	}
	var inputs []record.Count
	var outputs []int64
	var ttfts, starts []float64
	var texts, problems []string
	gaps := [][]float64{}
	var completed, failed, totalIn, totalOut int64
	duration := 0.0
	first, last := record.Unset, record.Unset
	err = src.each(func(r *record.Record) error {
		if r.Phase != record.PhaseMeasure || !r.Start.IsSet() || r.Outcome == record.Dropped {
			return nil
		}
		end := max(r.End, r.Start)
		if at, ok := r.LastOutput(); ok {
			end = max(end, at)
		}
		if !first.IsSet() || r.Start < first {
			first = r.Start
		}
		last = max(last, end)
		starts = append(starts, seconds(r.Start))
		inputs = append(inputs, r.Tokens.Input)
		d, ok := like.VLLMDetail(r)
		problem, text := "", ""
		if len(r.Output) > 0 {
			text = r.Output[0].Text
		}
		if !ok {
			failed++
			problem = string(r.Outcome)
			if r.Failure != nil && r.Failure.Message != "" {
				problem = r.Failure.Message
			}
			outputs, ttfts, gaps = append(outputs, 0), append(ttfts, 0), append(gaps, []float64{})
		} else {
			completed++
			totalIn += int64(max(r.Tokens.Input, 0))
			totalOut += d.Tokens
			list := make([]float64, len(d.Gaps))
			for i, g := range d.Gaps {
				list[i] = g.Seconds()
			}
			outputs, ttfts, gaps = append(outputs, d.Tokens), append(ttfts, d.TTFT.Seconds()), append(gaps, list)
		}
		texts, problems = append(texts, text), append(problems, problem)
		return nil
	})
	if err != nil {
		return err
	}
	if first.IsSet() {
		duration = last.Sub(first).Seconds()
	}
	o := object{}
	if !m.Origin.IsZero() {
		o = append(o, field{"date", m.Origin.UTC().Format("20060102-150405")})
	}
	kind := "openai"
	if m.Target.EndpointType == "chat" {
		kind = "openai-chat"
	}
	var rate any = "inf"
	if m.Load.Rate > 0 {
		rate = m.Load.Rate
	}
	var cap any
	if m.Load.Concurrency > 0 {
		cap = m.Load.Concurrency
	}
	o = append(o, object{
		{"endpoint_type", kind}, {"backend", kind}, {"label", "tokmark"}, {"model_id", m.Target.Model}, {"tokenizer_id", m.Tokenizer},
		{"num_prompts", len(starts)}, {"request_rate", rate}, {"max_concurrency", cap}, {"duration", duration},
		{"completed", completed}, {"failed", failed}, {"total_input_tokens", totalIn}, {"total_output_tokens", totalOut},
		{"request_throughput", value("request_throughput")}, {"request_goodput", value("request_goodput")},
		{"output_throughput", value("output_throughput")}, {"total_token_throughput", value("total_token_throughput")},
		{"max_concurrent_requests", m.MaxInFlight},
		{"input_lens", nulls(inputs)}, {"output_lens", orEmpty(outputs)}, {"ttfts", orEmpty(ttfts)}, {"itls", gaps},
		{"start_times", orEmpty(starts)}, {"generated_texts", orEmpty(texts)}, {"errors", orEmpty(problems)},
	}...)
	for _, name := range []string{"ttft", "tpot", "itl", "e2el"} {
		f, ok := view.Figure(name)
		if !ok || f.Statistic == nil {
			continue
		}
		p50, _ := f.Statistic.Percentile(50)
		o = append(o, object{{"mean_" + name + "_ms", f.Avg()}, {"median_" + name + "_ms", p50}, {"std_" + name + "_ms", f.Statistic.Std}}...)
		for _, p := range []float64{50, 90, 95, 99} {
			v, _ := f.Statistic.Percentile(p)
			o = append(o, field{strings.ReplaceAll(report.PercentileKey(p), "_", ".") + "_" + name + "_ms", v})
		}
	}
	return writeJSON(w, o, "")
}

func seconds(t record.Time) float64 { return float64(t) / 1e9 }

// orEmpty turns a missing list into an empty one.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// nulls writes counts that are not known as null.
func nulls(counts []record.Count) []*int64 {
	out := make([]*int64, len(counts))
	for i, c := range counts {
		if n := int64(c); c.IsKnown() {
			out[i] = &n
		}
	}
	return out
}
