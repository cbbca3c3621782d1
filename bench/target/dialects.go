package target

// usage asks for the usage of a stream, as most servers understand it.
const usage = `{"include_usage":true}`

// The limits of the output, by what is sent first.
var (
	oldLimit = []string{"max_tokens", "max_completion_tokens"}
	newLimit = []string{"max_completion_tokens", "max_tokens"}
)

var modelList = document{"/v1/models", []key{
	{"data[*].id", Model, asIs},
	{"data[*].root", ModelRoot, asIs},
	{"data[*].max_model_len", MaxModelLen, asIs},
}}

// dialects is the table of all dialects, in the order of detection.
var dialects = []Dialect{
	{
		Name: "vllm", Title: "vLLM",
		clues: []clue{
			{path: models, json: "data[0].owned_by", equals: "vllm"},
			{path: metrics, contains: "vllm:"},
		},
		ChatLimits: oldLimit, MinTokens: "min_tokens", IgnoreEOS: "ignore_eos",
		// Unset sampling fields come from the model's generation_config.
		Greedy: map[string]any{"top_k": 1}, Seed: "seed",
		StreamOptions: usage,
		CacheSalt:     "cache_salt",
		Reset:         Call{Method: "POST", Path: "/reset_prefix_cache", Requires: "VLLM_SERVER_DEV_MODE=1"},
		Timings:       "metrics on the usage chunk",
		Metrics:       vllmMetrics,
		documents:     vllmDocuments,
		infos:         vllmInfos,
	},
	{
		// It answers as vLLM does, and has no /version.
		Name: "llm-d-sim", Title: "llm-d inference simulator",
		fronts: []string{"vllm"},
		clues: []clue{{
			path: models, header: "Server", equals: "fasthttp",
			and: &clue{path: "/version", status: 404},
		}},
		ChatLimits: oldLimit, IgnoreEOS: "ignore_eos",
		StreamOptions: usage,
		Metrics:       Metrics{Path: "/metrics", Enable: "on", Series: vllmMetrics.Series},
		documents:     []document{modelList},
		infos:         vllmInfos,
	},
	{
		Name: "sglang", Title: "SGLang",
		clues: []clue{
			{path: models, json: "data[0].owned_by", equals: "sglang"},
			{path: "/get_model_info", json: "model_path"},
			{path: metrics, contains: "sglang:"},
		},
		ChatLimits: oldLimit, MinTokens: "min_tokens", IgnoreEOS: "ignore_eos",
		Seed:          "seed",
		StreamOptions: usage,
		CacheSalt:     "cache_salt",
		Reset:         Call{Method: "POST", Path: "/flush_cache", Requires: "that no request runs or waits"},
		Timings:       "/generate meta_info only",
		Metrics:       sglangMetrics,
		documents:     sglangDocuments,
		infos: []key{
			{"sglang:page_size", BlockSize, asIs},
			{"sglang:context_len", MaxModelLen, asIs},
			{"sglang:max_total_num_tokens", CacheCapacity, asIs},
			{started, ProcessStart, asIs},
		},
	},
	{
		Name: "trtllm", Title: "TensorRT-LLM trtllm-serve",
		clues: []clue{
			{path: models, json: "data[0].owned_by", equals: "tensorrt_llm"},
			{path: "/prometheus/metrics", contains: "trtllm_"},
		},
		ChatLimits: oldLimit, MinTokens: "min_tokens", IgnoreEOS: "ignore_eos",
		Greedy: map[string]any{"top_k": 1}, Seed: "seed",
		StreamOptions: usage,
		CacheSalt:     "cache_salt",
		Timings:       "GET /perf_metrics (drains the queue)",
		Strict:        true,
		Metrics:       trtllmMetrics,
		documents:     []document{modelList, {"/version", []key{{"version", EngineVersion, asIs}}}},
		infos:         []key{{started, ProcessStart, asIs}},
	},
	{
		Name: "nim", Title: "NVIDIA NIM for LLMs",
		fronts: []string{"vllm", "sglang", "trtllm"},
		clues:  []clue{{path: "/v1/metadata", json: "modelInfo"}, {path: "/v1/metadata", json: "version"}},

		ChatLimits: oldLimit, MinTokens: "min_tokens", IgnoreEOS: "ignore_eos",
		Seed:          "seed",
		StreamOptions: usage,
		CacheSalt:     "cache_salt",
		Timings:       "stats on the response or on the last stream chunk (1.x, experimental)",
		Metrics:       nimMetrics,
		documents: []document{
			modelList,
			{"/v1/version", []key{{"release", FrontVersion, asIs}}},
			{"/v1/metadata", []key{{"selectedModelProfileId", Profile, asIs}}},
		},
		infos: []key{{started, ProcessStart, asIs}},
	},
	{
		Name: "dynamo", Title: "NVIDIA Dynamo frontend",
		clues:      []clue{{path: metrics, contains: "dynamo_frontend_"}},
		ChatLimits: oldLimit, MinTokens: "min_tokens", IgnoreEOS: "ignore_eos",
		Greedy: map[string]any{"top_k": 1, "nvext.greed_sampling": true}, Seed: "seed",
		StreamOptions: usage,
		CacheSalt:     "nvext.cache_salt",
		Timings:       "nvext.timing on the last choice chunk",
		AskTimings:    map[string]any{"nvext.extra_fields": []string{"timing", "worker_id"}},
		Strict:        true,
		Metrics:       dynamoMetrics,
		documents:     []document{modelList},
		infos: []key{
			{"dynamo_frontend_model_context_length", MaxModelLen, asIs},
			{"dynamo_frontend_model_kv_cache_block_size", BlockSize, asIs},
			{"dynamo_frontend_model_total_kv_blocks", CacheCapacity, asIs},
			{"dynamo_frontend_model_max_num_seqs", MaxBatch, asIs},
			{"dynamo_frontend_model_max_num_batched_tokens", MaxBatchTokens, asIs},
			{started, ProcessStart, asIs},
		},
	},
	{
		Name: "triton", Title: "Triton OpenAI frontend",
		clues: []clue{{path: models, json: "data[0].owned_by", equals: "Triton Inference Server"}},
		// The vLLM backend honours the two; others drop them silently.
		ChatLimits: oldLimit, MinTokens: "min_tokens", IgnoreEOS: "ignore_eos",
		Seed:          "seed",
		StreamOptions: usage,
		Metrics:       tritonMetrics,
		documents:     []document{modelList},
	},
	{
		Name: "llamacpp", Title: "llama.cpp llama-server",
		clues: []clue{
			{path: models, json: "data[0].owned_by", equals: "llamacpp"},
			{path: "/props", json: "default_generation_settings"},
		},
		ChatLimits: []string{"max_tokens", "max_completion_tokens", "n_predict"}, IgnoreEOS: "ignore_eos",
		Greedy: map[string]any{"top_k": 1, "cache_prompt": false}, Seed: "seed",
		StreamOptions: usage,
		NoCache:       map[string]any{"cache_prompt": false},
		Timings:       "timings on the last chunk (every chunk with timings_per_token)",
		Closes:        true,
		Metrics:       llamacppMetrics,
		documents: []document{
			{"/v1/models", []key{
				{"data[*].id", Model, asIs},
				{"data[*].meta.n_params", Parameters, asIs},
				{"data[*].meta.size", ModelBytes, asIs},
			}},
			{"/props", []key{
				{"model_path", ModelRoot, asIs},
				{"model_ftype", Quantization, asIs},
				{"default_generation_settings.n_ctx", MaxModelLen, asIs},
				{"chat_template", ChatTemplate, hashed},
				{"build_info", EngineVersion, asIs},
				{"total_slots", MaxBatch, asIs},
			}},
		},
	},
	{
		Name: "ollama", Title: "Ollama",
		clues: []clue{{path: "/", contains: "Ollama is running"}},
		// It does not read max_completion_tokens, and then writes without limit.
		ChatLimits:    []string{"max_tokens"},
		Seed:          "seed",
		StreamOptions: usage,
		Reset:         Call{Method: "POST", Path: "/api/generate", Body: `{"model":"NAME","keep_alive":0}`},
		Timings:       "native API only, last line (NDJSON)",
		documents: []document{
			modelList,
			{"/api/version", []key{{"version", EngineVersion, asIs}}},
			{"/api/ps", []key{
				{"models[*].digest", Revision, asIs},
				{"models[*].context_length", MaxModelLen, asIs},
				{"models[*].details.quantization_level", Quantization, asIs},
				{"models[*].details.parameter_size", Parameters, asIs},
				{"models[*].size_vram", ModelBytes, asIs},
			}},
		},
	},
	{
		Name: "tgi", Title: "Text Generation Inference",
		clues:         []clue{{path: "/info", json: "model_id"}},
		ChatLimits:    oldLimit,
		Seed:          "seed",
		StreamOptions: usage,
		Timings:       "response headers of NON-streaming calls",
		Metrics:       tgiMetrics,
		documents: []document{
			{"/v1/models", []key{{"data[*].id", Model, asIs}}},
			{"/info", []key{
				{"model_id", ModelRoot, asIs},
				{"model_sha", Revision, asIs},
				{"max_total_tokens", MaxModelLen, asIs},
				{"version", EngineVersion, asIs},
				{"docker_label", Build, asIs},
				{"model_dtype", Precision, asIs},
				{"max_concurrent_requests", MaxBatch, asIs},
			}},
		},
	},
	{
		Name: "lmdeploy", Title: "LMDeploy api_server",
		clues: []clue{
			{path: models, json: "data[0].owned_by", equals: "lmdeploy"},
			{path: metrics, contains: "lmdeploy:"},
		},
		ChatLimits: newLimit, MinTokens: "min_new_tokens", IgnoreEOS: "ignore_eos",
		Greedy: map[string]any{"top_k": 1}, Seed: "seed",
		StreamOptions: usage,
		Metrics:       lmdeployMetrics,
		documents: []document{
			modelList,
			{"/distserve/engine_info", []key{
				{"tp_size", TensorParallel, asIs},
				{"pp_size", PipelineParallel, asIs},
				{"dp_size", DataParallel, asIs},
				{"ep_size", ExpertParallel, asIs},
				{"block_size", BlockSize, asIs},
				{"num_gpu_blocks", CacheCapacity, asIs},
			}},
		},
		infos: []key{{started, ProcessStart, asIs}},
	},
	{
		Name: "deepseek-api", Title: "DeepSeek API",
		Hosts: []string{"api.deepseek.com"},
		// Usage comes on the finish event unasked.
		ChatLimits: []string{"max_tokens"},
		documents:  []document{{"/models", []key{{"data[*].id", Model, asIs}}}},
	},
	{
		Name: "openai", Title: "OpenAI API",
		Hosts:      []string{"api.openai.com"},
		ChatLimits: newLimit, Seed: "seed",
		// Without padding an event's size says something.
		StreamOptions: `{"include_usage":true,"include_obfuscation":false}`,
		Strict:        true,
		documents:     []document{{"/v1/models", []key{{"data[*].id", Model, asIs}}}},
	},
	{
		Name: "azure-openai", Title: "Azure OpenAI",
		Hosts:      []string{"*.openai.azure.com"},
		ChatLimits: newLimit, Seed: "seed",
		StreamOptions: usage,
	},
	{
		Name: "openrouter", Title: "OpenRouter",
		Hosts:      []string{"openrouter.ai"},
		ChatLimits: oldLimit, Seed: "seed",
		Timings:   "GET /api/v1/generation?id=ID afterwards",
		documents: []document{{"/v1/models", []key{{"data[*].id", Model, asIs}, {"data[*].context_length", MaxModelLen, asIs}}}},
	},
	{
		Name: "groq", Title: "Groq API",
		Hosts:      []string{"api.groq.com"},
		ChatLimits: newLimit, Seed: "seed",
		Timings:   "x_groq.usage on the finish chunk, in SECONDS",
		documents: []document{{"/v1/models", []key{{"data[*].id", Model, asIs}, {"data[*].context_window", MaxModelLen, asIs}}}},
	},
	{
		Name: "litellm", Title: "LiteLLM proxy",
		fronts: []string{"vllm", "sglang"},
		clues: []clue{
			{path: models, header: "X-Litellm-Call-Id"},
			{path: models, header: "X-Litellm-Version"},
		},
		ChatLimits: oldLimit,
		// Else the proxy may answer from its own cache.
		Greedy: map[string]any{"cache.no-cache": true}, Seed: "seed",
		StreamOptions: usage,
		NoCache:       map[string]any{"cache.no-cache": true},
		Timings:       "response headers",
		Metrics:       litellmMetrics,
		documents: []document{
			{"/v1/models", []key{{"data[*].id", Model, asIs}}},
			{"/health/readiness", []key{{"litellm_version", FrontVersion, asIs}}},
		},
		infos: []key{{started, ProcessStart, asIs}},
	},
	{
		// Its description of itself has a path that no other server has. It
		// takes max_completion_tokens, and then writes on to a limit of its own.
		Name: "transformers-serve", Title: "Hugging Face transformers serve",
		clues:      []clue{{path: "/openapi.json", contains: `"/load_model"`}},
		ChatLimits: []string{"max_tokens"}, Seed: "seed",
		Strict:    true,
		documents: []document{{"/v1/models", []key{{"data[*].id", Model, asIs}}}},
	},
	{
		Name: "llama-cpp-python", Title: "llama-cpp-python server",
		clues:      []clue{{path: models, json: "data[0].owned_by", equals: "me"}},
		ChatLimits: []string{"max_tokens"}, MinTokens: "min_tokens",
		Greedy: map[string]any{"top_k": 1}, Seed: "seed",
		documents: []document{{"/v1/models", []key{{"data[*].id", Model, asIs}}}},
	},
	{
		Name: "deepinfer", Title: "DeepInfer (DeepSeek)",
		offline: "DeepInfer runs offline only and has no server; use generic for what serves its models",
	},
	{
		Name: generic, Title: "unknown OpenAI-compatible server",
		ChatLimits:    oldLimit,
		StreamOptions: usage,
		documents:     []document{modelList},
	},
}

// started is the series that says when a process began; it moves with a
// restart.
const started = "process_start_time_seconds"

var vllmInfos = []key{
	{"vllm:cache_config_info{block_size}", BlockSize, asIs},
	{"vllm:cache_config_info{enable_prefix_caching}", PrefixCache, onOff},
	{"vllm:cache_config_info{cache_dtype}", CachePrecision, asIs},
	{"vllm:cache_config_info{num_gpu_blocks}", CacheCapacity, asIs},
	{"vllm:cache_config_info{gpu_memory_utilization}", MemoryShare, asIs},
	{started, ProcessStart, asIs},
}

var vllmDocuments = []document{
	modelList,
	{"/version", []key{{"version", EngineVersion, asIs}}},
	// Only in development mode; it holds the whole environment, of which no
	// more than this may be kept.
	{"/server_info?config_format=json", []key{
		{"vllm_config.model_config.revision", Revision, asIs},
		{"vllm_config.model_config.tokenizer", Tokenizer, asIs},
		{"vllm_config.model_config.dtype", Precision, asIs},
		{"vllm_config.model_config.quantization", Quantization, asIs},
		{"vllm_config.parallel_config.tensor_parallel_size", TensorParallel, asIs},
		{"vllm_config.parallel_config.pipeline_parallel_size", PipelineParallel, asIs},
		{"vllm_config.parallel_config.data_parallel_size", DataParallel, asIs},
		{"vllm_config.scheduler_config.max_num_seqs", MaxBatch, asIs},
		{"vllm_config.scheduler_config.max_num_batched_tokens", MaxBatchTokens, asIs},
		{"vllm_config.scheduler_config.stream_interval", StreamInterval, asIs},
		{"vllm_config.speculative_config", SpeculativeMethod, orNone},
		{"vllm_config.speculative_config.method", SpeculativeMethod, asIs},
		{"vllm_config.speculative_config.num_speculative_tokens", SpeculativeTokens, asIs},
	}},
}

var sglangDocuments = []document{
	modelList,
	// It may hold keys and paths of the host: no more than this is kept.
	{"/get_server_info", []key{
		{"model_path", ModelRoot, asIs},
		{"revision", Revision, asIs},
		{"context_length", MaxModelLen, asIs},
		{"tokenizer_path", Tokenizer, asIs},
		{"version", EngineVersion, asIs},
		{"dtype", Precision, asIs},
		{"quantization", Quantization, asIs},
		{"tp_size", TensorParallel, asIs},
		{"pp_size", PipelineParallel, asIs},
		{"dp_size", DataParallel, asIs},
		{"ep_size", ExpertParallel, asIs},
		{"disable_radix_cache", PrefixCache, inverted},
		{"page_size", BlockSize, asIs},
		{"kv_cache_dtype", CachePrecision, asIs},
		{"max_total_num_tokens", CacheCapacity, asIs},
		{"mem_fraction_static", MemoryShare, asIs},
		{"max_running_requests", MaxBatch, asIs},
		{"chunked_prefill_size", PrefillChunk, asIs},
		{"speculative_algorithm", SpeculativeMethod, orNone},
		{"speculative_num_draft_tokens", SpeculativeTokens, asIs},
		{"stream_interval", StreamInterval, asIs},
		{"attention_backend", AttentionBackend, asIs},
		{"enable_deterministic_inference", Deterministic, onOff},
	}},
	{"/get_model_info", []key{
		{"model_path", ModelRoot, asIs},
		{"tokenizer_path", Tokenizer, asIs},
		{"weight_version", WeightVersion, asIs},
	}},
}
