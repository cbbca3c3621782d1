package target

// Metric is one quantity that servers tell of themselves, under one name
// whatever the server calls it.
type Metric string

// Gauges: a value of the moment, added up over engines.
const (
	Running Metric = "running" // requests in the batch
	Waiting Metric = "waiting" // requests in the queue
)

// Gauges of which the mean over engines is taken.
const (
	KVUsage      Metric = "kv_usage"           // share of the KV cache in use, 0 to 1
	AcceptLength Metric = "spec_accept_length" // tokens of a speculative step
	AcceptRate   Metric = "spec_accept_rate"   // share of drafted tokens accepted, 0 to 1
)

// Counters, from the start of the server on.
const (
	// PrefixQueries and PrefixHits count tokens, or blocks with some servers:
	// only their ratio can be compared.
	PrefixQueries    Metric = "prefix_queries"
	PrefixHits       Metric = "prefix_hits"
	CachedTokens     Metric = "cached_tokens" // prompt tokens found in a cache
	Drafts           Metric = "spec_drafts"   // speculative steps
	DraftTokens      Metric = "spec_drafted"
	AcceptedTokens   Metric = "spec_accepted"
	Preemptions      Metric = "preemptions"
	PromptTokens     Metric = "prompt_tokens"
	GenerationTokens Metric = "generation_tokens"
	Finished         Metric = "request_success" // requests
)

// Times: the seconds and the number of intervals, from the start of the server
// on.
const (
	QueueTime     Metric = "queue_time"
	PrefillTime   Metric = "prefill_time"
	DecodeTime    Metric = "decode_time"
	InferenceTime Metric = "inference_time"
	TTFT          Metric = "ttft"
	ITL           Metric = "itl"  // with some servers an interval is a step, not a token
	TPOT          Metric = "tpot" // one interval a request
	E2E           Metric = "e2e"
)

// Of GPUs.
const (
	GPUUtilization Metric = "gpu_utilization"  // gauge, 0 to 1, mean over GPUs
	GPUMemory      Metric = "gpu_memory_bytes" // gauge, sum
	GPUMemoryFree  Metric = "gpu_memory_free_bytes"
	GPUPower       Metric = "gpu_power_watts" // gauge, sum
	GPUClock       Metric = "gpu_clock_hertz" // gauge, mean
	GPUEnergy      Metric = "gpu_energy_joules"
)

type kind uint8

const (
	sumGauge kind = iota + 1
	meanGauge
	counter
	times
)

// kinds is how each metric is read and added up.
var kinds = map[Metric]kind{
	Running: sumGauge, Waiting: sumGauge,
	KVUsage: meanGauge, AcceptLength: meanGauge, AcceptRate: meanGauge,
	PrefixQueries: counter, PrefixHits: counter, CachedTokens: counter,
	Drafts: counter, DraftTokens: counter, AcceptedTokens: counter, Preemptions: counter,
	PromptTokens: counter, GenerationTokens: counter, Finished: counter,
	QueueTime: times, PrefillTime: times, DecodeTime: times, InferenceTime: times,
	TTFT: times, ITL: times, TPOT: times, E2E: times,
	GPUUtilization: meanGauge, GPUClock: meanGauge,
	GPUMemory: sumGauge, GPUMemoryFree: sumGauge, GPUPower: sumGauge, GPUEnergy: counter,
}

// Metrics is what one kind of Prometheus endpoint tells.
type Metrics struct {
	// Path of the endpoint below the server's base; empty: there is none.
	Path string
	// Enable says which server option switches it on.
	Enable string
	Series map[Metric]Series
	// same are labels that do not tell apart: series equal in all others say
	// the same thing twice (ranks of one engine), and count once.
	same []string
	// apart, if set, are the only labels that tell apart.
	apart []string
}

// Series names the series that hold a metric.
type Series struct {
	// Names are those it has had, the newest first; the first one that is
	// there is read.
	Names []string
	// Plus is added to it, Over divides it; both must be there then.
	Plus, Over string
	// Label and Value, if set, select series by a label.
	Label, Value string
	// Scale turns the server's unit into ours; 0: 1.
	Scale float64
}

func named(names ...string) Series { return Series{Names: names} }

// prefixed puts a prefix before the names of a table.
func prefixed(prefix string, table map[Metric]Series) map[Metric]Series {
	out := make(map[Metric]Series, len(table))
	for m, s := range table {
		names := make([]string, len(s.Names))
		for i, n := range s.Names {
			names[i] = prefix + n
		}
		s.Names = names
		if s.Plus != "" {
			s.Plus = prefix + s.Plus
		}
		if s.Over != "" {
			s.Over = prefix + s.Over
		}
		out[m] = s
	}
	return out
}

var vllmMetrics = Metrics{
	Path: "/metrics", Enable: "on by default, off with --disable-log-stats",
	Series: prefixed("vllm:", map[Metric]Series{
		Running: named("num_requests_running"),
		Waiting: named("num_requests_waiting"),
		KVUsage: named("kv_cache_usage_perc", "gpu_cache_usage_perc"),
		// The old names counted blocks; the ratio is the same.
		PrefixQueries:    named("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
		PrefixHits:       named("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
		CachedTokens:     named("prompt_tokens_cached_total"),
		Drafts:           named("spec_decode_num_drafts_total"),
		DraftTokens:      named("spec_decode_num_draft_tokens_total"),
		AcceptedTokens:   named("spec_decode_num_accepted_tokens_total"),
		Preemptions:      named("num_preemptions_total"),
		PromptTokens:     named("prompt_tokens_total"),
		GenerationTokens: named("generation_tokens_total"),
		Finished:         named("request_success_total"),
		QueueTime:        named("request_queue_time_seconds"),
		PrefillTime:      named("request_prefill_time_seconds"),
		DecodeTime:       named("request_decode_time_seconds"),
		InferenceTime:    named("request_inference_time_seconds"),
		TTFT:             named("time_to_first_token_seconds"),
		ITL:              named("inter_token_latency_seconds", "time_per_output_token_seconds"),
		TPOT:             named("request_time_per_output_token_seconds"),
		E2E:              named("e2e_request_latency_seconds"),
	}),
}

var sglangMetrics = Metrics{
	Path: "/metrics", Enable: "--enable-metrics",
	// With metrics of all schedulers, the ranks of one engine repeat its state.
	same: []string{"tp_rank", "pp_rank", "moe_ep_rank"},
	Series: prefixed("sglang:", map[Metric]Series{
		Running:          named("num_running_reqs"),
		Waiting:          named("num_queue_reqs"),
		KVUsage:          named("token_usage"),
		PrefixQueries:    named("prompt_tokens_total"),
		PrefixHits:       named("cached_tokens_total"),
		Drafts:           named("spec_verify_calls_total"),
		AcceptLength:     named("spec_accept_length"),
		AcceptRate:       named("spec_accept_rate"),
		Preemptions:      named("num_retracted_requests_total", "num_retracted_reqs"),
		PromptTokens:     named("prompt_tokens_total"),
		GenerationTokens: named("generation_tokens_total"),
		Finished:         named("num_requests_total"),
		QueueTime:        named("queue_time_seconds"),
		PrefillTime:      {Names: []string{"per_stage_req_latency_seconds"}, Label: "stage", Value: "prefill_forward"},
		TTFT:             named("time_to_first_token_seconds"),
		ITL:              named("inter_token_latency_seconds", "inter_token_latency", "time_per_output_token_seconds"),
		E2E:              named("e2e_request_latency_seconds"),
	}),
}

var trtllmMetrics = Metrics{
	// /metrics of this server is JSON, and each reading empties it.
	Path: "/prometheus/metrics", Enable: "return_perf_metrics: true (gauges also need enable_iter_perf_stats: true)",
	Series: prefixed("trtllm_", map[Metric]Series{
		Running:          named("num_requests_running"),
		Waiting:          named("num_requests_waiting"),
		KVUsage:          named("kv_cache_utilization"),
		PrefixQueries:    {Names: []string{"kv_cache_reused_blocks_total"}, Plus: "kv_cache_missed_blocks_total"},
		PrefixHits:       named("kv_cache_reused_blocks_total"),
		CachedTokens:     named("prompt_cached_tokens_total"),
		DraftTokens:      named("spec_decode_num_draft_tokens_total"),
		AcceptedTokens:   named("spec_decode_num_accepted_tokens_total"),
		AcceptLength:     named("spec_decode_acceptance_length"),
		PromptTokens:     named("prompt_tokens_total"),
		GenerationTokens: named("generation_tokens_total"),
		Finished:         named("request_success_total"),
		QueueTime:        named("request_queue_time_seconds"),
		PrefillTime:      named("request_prefill_time_seconds"),
		DecodeTime:       named("request_decode_time_seconds"),
		InferenceTime:    named("request_inference_time_seconds"),
		TTFT:             named("time_to_first_token_seconds"),
		TPOT:             named("time_per_output_token_seconds"),
		E2E:              named("e2e_request_latency_seconds"),
	}),
}

// nimMetrics are those of NIM 1.x; from 2.0 on they are the engine's.
var nimMetrics = Metrics{
	Path: "/v1/metrics", Enable: "on",
	Series: map[Metric]Series{
		Running:          named("num_requests_running"),
		Waiting:          named("num_requests_waiting"),
		KVUsage:          named("gpu_cache_usage_perc"),
		PromptTokens:     named("prompt_tokens_total"),
		GenerationTokens: named("generation_tokens_total"),
		Finished:         named("request_finish_total"),
		TTFT:             named("time_to_first_token_seconds"),
		TPOT:             named("time_per_output_token_seconds"),
		E2E:              named("e2e_request_latency_seconds"),
	},
}

var dynamoMetrics = Metrics{
	Path: "/metrics", Enable: "on (DYN_METRICS_PREFIX changes the names)",
	Series: map[Metric]Series{
		Running:          named("dynamo_frontend_inflight_requests"),
		Waiting:          named("dynamo_frontend_queued_requests"),
		PrefixQueries:    named("dynamo_frontend_input_sequence_tokens"),
		PrefixHits:       named("dynamo_frontend_cached_tokens"),
		PromptTokens:     named("dynamo_frontend_input_sequence_tokens"),
		GenerationTokens: named("dynamo_frontend_output_tokens_total"),
		Finished:         named("dynamo_frontend_requests_total"),
		QueueTime:        named("dynamo_request_plane_queue_seconds"),
		TTFT:             named("dynamo_frontend_time_to_first_token_seconds"),
		ITL:              named("dynamo_frontend_inter_token_latency_seconds"),
		E2E:              named("dynamo_frontend_request_duration_seconds"),
	},
}

var tritonMetrics = Metrics{
	Path: "/metrics", Enable: "on",
	Series: prefixed("nv_inference_", map[Metric]Series{
		Waiting:       named("pending_request_count"),
		Finished:      named("request_success"),
		QueueTime:     {Names: []string{"queue_duration_us"}, Scale: 1e-6},
		InferenceTime: {Names: []string{"compute_infer_duration_us"}, Scale: 1e-6},
		TTFT:          {Names: []string{"first_response_histogram_ms"}, Scale: 1e-3},
		E2E:           {Names: []string{"request_duration_us"}, Scale: 1e-6},
	}),
}

var llamacppMetrics = Metrics{
	Path: "/metrics", Enable: "--metrics",
	Series: prefixed("llamacpp:", map[Metric]Series{
		Running: named("requests_processing"),
		Waiting: named("requests_deferred"),
		KVUsage: named("kv_cache_usage_ratio"),
		// Its prompt tokens exclude the cached ones.
		PrefixQueries:    {Names: []string{"prompt_tokens_total"}, Plus: "prompt_tokens_cached_total"},
		PrefixHits:       named("prompt_tokens_cached_total"),
		Drafts:           named("spec_decode_num_drafts_total"),
		DraftTokens:      named("spec_decode_num_draft_tokens_total"),
		AcceptedTokens:   named("spec_decode_num_accepted_tokens_total"),
		PromptTokens:     named("prompt_tokens_total"),
		GenerationTokens: named("tokens_predicted_total"),
		PrefillTime:      named("prompt_seconds_total"),
		DecodeTime:       named("tokens_predicted_seconds_total"),
	}),
}

var tgiMetrics = Metrics{
	Path: "/metrics", Enable: "on",
	Series: prefixed("tgi_", map[Metric]Series{
		Running:          named("batch_current_size"),
		Waiting:          named("queue_size"),
		KVUsage:          {Names: []string{"batch_current_max_tokens"}, Over: "batch_max_total_tokens"},
		AcceptedTokens:   named("request_skipped_tokens"),
		PromptTokens:     named("request_input_length"),
		GenerationTokens: named("request_generated_tokens"),
		Finished:         named("request_success"),
		QueueTime:        named("request_queue_duration"),
		PrefillTime:      {Names: []string{"batch_inference_duration"}, Label: "method", Value: "prefill"},
		DecodeTime:       {Names: []string{"batch_inference_duration"}, Label: "method", Value: "decode"},
		InferenceTime:    named("request_inference_duration"),
		TPOT:             named("request_mean_time_per_token_duration"),
		E2E:              named("request_duration"),
	}),
}

var lmdeployMetrics = Metrics{
	Path: "/metrics", Enable: "on, off with --disable-metrics",
	Series: prefixed("lmdeploy:", map[Metric]Series{
		Running:          named("num_requests_running"),
		Waiting:          named("num_requests_waiting"),
		KVUsage:          named("gpu_cache_usage_perc"),
		PrefixQueries:    named("prompt_tokens_total"),
		PrefixHits:       named("cached_tokens_total"),
		Drafts:           named("spec_decode_num_drafts_total"),
		DraftTokens:      named("spec_decode_num_draft_tokens_total"),
		AcceptedTokens:   named("spec_decode_num_accepted_tokens_total"),
		AcceptLength:     named("spec_decode_mean_accept_length"),
		AcceptRate:       named("spec_decode_mean_accept_rate"),
		PromptTokens:     named("prompt_tokens_total"),
		GenerationTokens: named("generation_tokens_total"),
		Finished:         named("request_success_total"),
		QueueTime:        named("request_queue_time_seconds"),
		PrefillTime:      named("request_prefill_time_seconds"),
		DecodeTime:       named("request_decode_time_seconds"),
		InferenceTime:    named("request_inference_time_seconds"),
		TTFT:             named("time_to_first_token_seconds"),
		ITL:              named("iter_token_latency"),
		TPOT:             named("time_per_output_token_seconds"),
		E2E:              named("e2e_request_latency_seconds"),
	}),
}

var litellmMetrics = Metrics{
	// Its overhead is the proxy's own and in a unit that changed by version,
	// so it is not taken for a queue time.
	Path: "/metrics", Enable: "litellm_settings.callbacks: [prometheus]",
	Series: map[Metric]Series{
		PromptTokens:     named("litellm_input_tokens_metric_total"),
		GenerationTokens: named("litellm_output_tokens_metric_total"),
		InferenceTime:    named("litellm_llm_api_latency_metric"),
		TTFT:             named("litellm_llm_api_time_to_first_token_metric"),
		E2E:              named("litellm_request_total_latency_metric"),
	},
}

// DCGM is what NVIDIA's DCGM exporter tells of GPUs. Its address is its own:
// give Scraper.URL. GPUs that are shared between pods come several times.
func DCGM() Metrics {
	return Metrics{
		Path: "/metrics", Enable: "the DCGM exporter, port 9400",
		apart: []string{"Hostname", "UUID", "gpu", "GPU_I_ID"},
		Series: map[Metric]Series{
			GPUUtilization: {Names: []string{"DCGM_FI_DEV_GPU_UTIL"}, Scale: 0.01},
			GPUMemory:      {Names: []string{"DCGM_FI_DEV_FB_USED"}, Scale: 1 << 20},
			GPUMemoryFree:  {Names: []string{"DCGM_FI_DEV_FB_FREE"}, Scale: 1 << 20},
			GPUPower:       named("DCGM_FI_DEV_POWER_USAGE"),
			GPUClock:       {Names: []string{"DCGM_FI_DEV_SM_CLOCK"}, Scale: 1e6},
			GPUEnergy:      {Names: []string{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}, Scale: 1e-3},
		},
	}
}
