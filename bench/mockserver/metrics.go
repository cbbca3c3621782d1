package mockserver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// histogram counts durations in the buckets of a bounds table.
type histogram struct {
	bounds []float64 // seconds, upper, inclusive
	counts []int64   // by bound, not cumulative; the last is +Inf
	sum    float64
	total  int64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) observe(d time.Duration) {
	v := d.Seconds()
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
	h.total++
}

// The bounds are those of vLLM, coarse as they are: a client must not take
// quantiles from them.
var (
	phaseBounds = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	ttftBounds  = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBounds   = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
)

// metrics are the engine's counters; the engine's lock guards them.
type metrics struct {
	prompt, generated      int64 // tokens
	queries, hits          int64 // tokens asked of the prefix cache
	drafts, drafted, taken int64
	finished               map[string]int64 // requests by finish reason

	queue, prefill, decode, inference, ttft, itl, e2e histogram
}

func newMetrics() metrics {
	return metrics{
		// As in vLLM every reason is there from the beginning.
		finished:  map[string]int64{"stop": 0, "length": 0, "abort": 0},
		queue:     newHistogram(phaseBounds),
		prefill:   newHistogram(phaseBounds),
		decode:    newHistogram(phaseBounds),
		inference: newHistogram(phaseBounds),
		e2e:       newHistogram(phaseBounds),
		ttft:      newHistogram(ttftBounds),
		itl:       newHistogram(itlBounds),
	}
}

// exposition writes the Prometheus text format.
type exposition struct {
	b      strings.Builder
	labels string // engine="0",model_name="…"
}

func (x *exposition) head(name, kind, help string) {
	fmt.Fprintf(&x.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (x *exposition) sample(name, more string, v float64) {
	fmt.Fprintf(&x.b, "%s{%s%s} %s\n", name, x.labels, more, strconv.FormatFloat(v, 'g', -1, 64))
}

func (x *exposition) gauge(name, help string, v float64) {
	x.head(name, "gauge", help)
	x.sample(name, "", v)
}

func (x *exposition) counter(name, help string, v int64) {
	x.head(name, "counter", help)
	x.sample(name, "", float64(v))
}

func (x *exposition) histogram(name, help string, h *histogram) {
	x.head(name, "histogram", help)
	var n int64
	for i, b := range h.bounds {
		n += h.counts[i]
		x.sample(name+"_bucket", `,le="`+strconv.FormatFloat(b, 'g', -1, 64)+`"`, float64(n))
	}
	x.sample(name+"_bucket", `,le="+Inf"`, float64(h.total))
	x.sample(name+"_sum", "", h.sum)
	x.sample(name+"_count", "", float64(h.total))
}

// exposition returns the content of /metrics.
func (e *engine) exposition() string {
	x := &exposition{labels: `engine="0",model_name="` + labelEscaper.Replace(e.cfg.Model) + `"`}
	e.mu.Lock()
	defer e.mu.Unlock()
	m := &e.metrics

	running, blocks := len(e.jobs)-len(e.queue), 0
	for j := range e.jobs {
		for _, s := range j.seqs {
			if j.admitted.IsSet() && !s.ended {
				blocks += (j.prompt.tokens + s.made + BlockTokens - 1) / BlockTokens
			}
		}
	}
	x.gauge("vllm:num_requests_running", "Number of requests in the batch.", float64(running))
	x.gauge("vllm:num_requests_waiting", "Number of requests in the queue.", float64(len(e.queue)))
	x.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache in use by running requests; 1 means 100 percent.",
		min(1, float64(blocks)/float64(e.cfg.KVBlocks)))
	x.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", m.queries)
	x.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", m.hits)
	x.counter("vllm:num_preemptions_total", "Preemptions; the simulator has none.", 0)
	x.counter("vllm:prompt_tokens_total", "Prompt tokens of requests whose prefill has ended.", m.prompt)
	x.counter("vllm:generation_tokens_total", "Tokens generated.", m.generated)
	if e.cfg.DraftTokens > 0 {
		x.counter("vllm:spec_decode_num_drafts_total", "Speculative steps.", m.drafts)
		x.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens proposed.", m.drafted)
		x.counter("vllm:spec_decode_num_accepted_tokens_total", "Tokens accepted.", m.taken)
	}
	x.head("vllm:request_success_total", "counter", "Requests ended, by reason.")
	for _, reason := range []string{"abort", "length", "stop"} {
		x.sample("vllm:request_success_total", `,finished_reason="`+reason+`"`, float64(m.finished[reason]))
	}
	x.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", &m.ttft)
	x.histogram("vllm:inter_token_latency_seconds", "Between a request's steps.", &m.itl)
	x.histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", &m.e2e)
	x.histogram("vllm:request_queue_time_seconds", "From queued to scheduled.", &m.queue)
	x.histogram("vllm:request_prefill_time_seconds", "From scheduled to the first token.", &m.prefill)
	x.histogram("vllm:request_decode_time_seconds", "From the first to the last token.", &m.decode)
	x.histogram("vllm:request_inference_time_seconds", "From scheduled to the last token.", &m.inference)

	x.head("vllm:cache_config_info", "gauge", "Configuration of the KV cache.")
	caching := "False"
	if e.cfg.PrefixCache {
		caching = "True"
	}
	fmt.Fprintf(&x.b, "vllm:cache_config_info{block_size=\"%d\",enable_prefix_caching=\"%s\",engine=\"0\",num_gpu_blocks=\"%d\"} 1\n",
		BlockTokens, caching, e.cfg.KVBlocks)
	return x.b.String()
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
