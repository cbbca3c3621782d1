package target

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
)

// told are the conditions with a value, as name=value, in order.
func told(list []record.Condition) []string {
	var out []string
	for _, c := range list {
		if c.Source == Probed {
			out = append(out, c.Name+"="+c.Value)
		}
	}
	return out
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		dialect string
		facts   Facts
		pages   map[string]string
		want    []string
	}{
		{
			dialect: "vllm",
			pages: map[string]string{
				"/v1/models": `{"data":[{"id":"m","root":"org/model","max_model_len":8192,"owned_by":"vllm"},{"id":"adapter","root":"/adapters/a","max_model_len":null}]}`,
				"/version":   `{"version":"0.20.0"}`,
				"/metrics":   "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",gpu_memory_utilization=\"0.9\",num_gpu_blocks=\"573\",sliding_window=\"None\"} 1.0\nprocess_start_time_seconds 1.79e+09\n",
			},
			want: []string{
				"model=m", "model_root=org/model", "max_model_len=8192", "engine=vllm", "engine_version=0.20.0", "prefix_cache=on", "kv_block_size=16",
				"kv_cache_precision=auto", "kv_cache_capacity=573", "gpu_memory_share=0.9", "process_start=1790000000",
			},
		},
		{
			dialect: "vllm",
			pages: map[string]string{"/server_info": `{"vllm_config":{"model_config":{"dtype":"torch.bfloat16","quantization":null,"hf_token":"` + key4 + `"},
				"parallel_config":{"tensor_parallel_size":2},"speculative_config":{"method":"eagle3","num_speculative_tokens":3}},"vllm_env":{"HF_TOKEN":"` + key4 + `"}}`},
			want: []string{"engine=vllm", "precision=torch.bfloat16", "tensor_parallel=2", "speculative_method=eagle3", "speculative_tokens=3"},
		},
		{
			dialect: "sglang",
			pages: map[string]string{
				"/server_info": `{"model_path":"org/model","tp_size":4,"dp_size":1,"disable_radix_cache":false,"page_size":1,"speculative_algorithm":null,
					"dtype":"auto","version":"0.5.4","api_key":"` + key4 + `","admin_api_key":"` + key4 + `","quantization":"fp8"}`,
				"/get_model_info": `{"model_path":"/cache/org/model","tokenizer_path":"org/tok","weight_version":"default"}`,
				"/metrics":        "sglang:context_len 32768\n",
			},
			want: []string{
				"model_root=org/model", "weight_version=default", "max_model_len=32768", "tokenizer=org/tok", "engine=sglang", "engine_version=0.5.4", "precision=auto",
				"quantization=fp8", "tensor_parallel=4", "data_parallel=1", "prefix_cache=on", "kv_block_size=1", "speculative_method=none",
			},
		},
		{
			dialect: "llamacpp",
			pages: map[string]string{
				"/v1/models": `{"data":[{"id":"m","owned_by":"llamacpp","meta":{"n_params":8030261248,"size":4912898304}}]}`,
				"/props":     `{"default_generation_settings":{"n_ctx":4096},"total_slots":4,"model_path":"m.gguf","model_ftype":"Q4_K - Medium","build_info":"b10519-abc","chat_template":"{{ messages }}"}`,
			},
			want: []string{
				"model=m", "model_root=m.gguf", "parameters=8030261248", "model_bytes=4912898304", "max_model_len=4096", "chat_template=sha256:f24189f08c85a1eb",
				"engine=llamacpp", "engine_version=b10519-abc", "quantization=Q4_K - Medium", "max_batch=4",
			},
		},
		{
			dialect: "ollama",
			pages: map[string]string{
				"/api/version": `{"version":"0.9.1"}`,
				"/api/ps":      `{"models":[{"name":"other","digest":"x"},{"name":"m","model":"m","digest":"a8b0","size_vram":123,"context_length":4096,"details":{"quantization_level":"Q4_K_M","parameter_size":"8B"}}]}`,
			},
			want: []string{"model_revision=a8b0", "parameters=8B", "model_bytes=123", "max_model_len=4096", "engine=ollama", "engine_version=0.9.1", "quantization=Q4_K_M"},
		},
		{
			dialect: "tgi",
			pages:   map[string]string{"/info": `{"model_id":"org/m","model_sha":"c0ffee","model_dtype":"float16","version":"3.3.4","max_total_tokens":4096,"max_concurrent_requests":128}`},
			want:    []string{"model_root=org/m", "model_revision=c0ffee", "max_model_len=4096", "engine=tgi", "engine_version=3.3.4", "precision=float16", "max_batch=128"},
		},
		{
			dialect: "dynamo",
			pages:   map[string]string{"/metrics": "dynamo_frontend_model_context_length{model=\"m\"} 8192\ndynamo_frontend_model_kv_cache_block_size{model=\"m\"} 64\n"},
			want:    []string{"max_model_len=8192", "engine=dynamo", "kv_block_size=64"},
		},
		{
			dialect: "nim", facts: Facts{Engine: "vllm"},
			pages: map[string]string{"/v1/version": `{"release":"2.0.1"}`, "/version": `{"version":"0.20.0"}`, "/v1/metrics": "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n"},
			want:  []string{"engine=vllm", "engine_version=0.20.0", "front_end=nim", "front_end_version=2.0.1", "kv_block_size=16"},
		},
		{dialect: "generic", pages: map[string]string{"/v1/models": "<html>"}, want: nil},
	} {
		t.Run(c.dialect, func(t *testing.T) {
			d := mustBe(c.dialect)
			if c.facts.Engine != "" {
				d = d.WithEngine(mustBe(c.facts.Engine))
			}
			list, warnings, err := serve(t, &script{pages: c.pages}).Conditions(t.Context(), d, c.facts, "m", nil, nil)
			if err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			if diff := cmp.Diff(c.want, told(list)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			for _, cond := range list {
				if cond.Source == Probed && cond.From == "" || cond.Source == Unknown && cond.Value != "" || strings.Contains(cond.Value, "secret") {
					t.Errorf("%+v", cond)
				}
			}
		})
	}
}

func TestConditionsOfTheSimulator(t *testing.T) {
	srv, err := mockserver.New(mockserver.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	list, _, err := serve(t, srv).Conditions(t.Context(), mustBe("vllm"), Facts{}, "tokmark-sim", nil, []string{"gpu=none", "rack = 7"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, c.Name+"="+c.Value+" "+c.Source)
	}
	want := []string{
		"model=tokmark-sim probed", "model_root=tokmark-sim probed", "model_revision= unknown", "max_model_len=32768 probed", "tokenizer= unknown",
		"chat_template= unknown", "engine=vllm probed", "engine_version=0.0.0+tokmark.simulator probed", "precision= unknown", "quantization= unknown",
		"tensor_parallel= unknown", "pipeline_parallel= unknown", "data_parallel= unknown", "prefix_cache=on probed", "kv_block_size=16 probed",
		"kv_cache_precision= unknown", "kv_cache_capacity=16384 probed", "max_batch= unknown", "speculative_method= unknown", "gpu=none declared",
		"gpu_count= unknown", "driver= unknown", "rack=7 declared",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestDeclaredConditions(t *testing.T) {
	s := serve(t, &script{pages: map[string]string{"/version": `{"version":"0.20.0"}`}})
	list, warnings, err := s.Conditions(t.Context(), mustBe("vllm"), Facts{}, "m", nil, []string{"engine_version=0.19.0", "engine=VLLM", "gpu=8xH100 = SXM", "gpu=8xH100 = SXM"})
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], `declared as "0.19.0", and GET /version tells "0.20.0"`) {
		t.Errorf("warnings %q", warnings)
	}
	for _, c := range list {
		if c.Name == EngineVersion && c.Value != "0.20.0" || c.Name == GPU && c.Value != "8xH100 = SXM" {
			t.Errorf("%+v", c)
		}
	}
	for _, bad := range [][]string{{"gpu"}, {"=x"}, {"gpu="}, {"gpu=a", "gpu=b"}} {
		if _, _, err := s.Conditions(t.Context(), mustBe("vllm"), Facts{}, "m", nil, bad); err == nil {
			t.Errorf("declarations %q are let through", bad)
		}
	}
}

func TestGPUConditions(t *testing.T) {
	const text = `
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",modelName="NVIDIA L4",DCGM_FI_DRIVER_VERSION="580.105.08"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",modelName="NVIDIA L4",DCGM_FI_DRIVER_VERSION="580.105.08"} 0
`
	gpus := &Scraper{Client: answering(200, textFormat, text), URL: metricsURL, Metrics: DCGM(), Clock: clock}
	list, _, err := serve(t, &script{}).Conditions(t.Context(), mustBe("generic"), Facts{}, "m", gpus, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"gpu=NVIDIA L4", "gpu_count=2", "driver=580.105.08"}, told(list)); d != "" {
		t.Error(d)
	}
}

func TestHostileConditionsAreTamed(t *testing.T) {
	s := serve(t, &script{pages: map[string]string{"/version": `{"version":"1\n\u001b[31m` + strings.Repeat("x", 5000) + `"}`, "/v1/models": `{"data":[{"id":{"a":[1]}}]}`}})
	list, _, err := s.Conditions(t.Context(), mustBe("vllm"), Facts{}, "m", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if len(c.Value) > 210 || strings.ContainsAny(c.Value, "\n\x1b") {
			t.Errorf("%q", c.Value)
		}
	}
}

func TestChanges(t *testing.T) {
	at := func(pairs ...string) (list []record.Condition) {
		for _, p := range pairs {
			name, value, _ := strings.Cut(p, "=")
			list = append(list, record.Condition{Name: name, Value: value})
		}
		return list
	}
	got := Changes(at("model=a", "engine_version=1", "kv_block_size=", "gpu=x", "process_start=5"), at("process_start=9", "model=b", "engine_version=1", "kv_block_size=16"))
	if d := cmp.Diff([]Change{{Model, "a", "b"}, {ProcessStart, "5", "9"}}, got); d != "" {
		t.Error(d)
	}
}

// A model that is gone from the list has changed, if the list can be read.
func TestModelNoLongerListed(t *testing.T) {
	of := func(page string) []record.Condition {
		list, _, err := serve(t, &script{pages: map[string]string{"/v1/models": page}}).Conditions(t.Context(), mustBe("vllm"), Facts{}, "m", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	const listed, other = `{"data":[{"id":"m"}]}`, `{"data":[{"id":"other"}]}`
	for _, c := range []struct{ before, after, want string }{
		{listed, other, "model: m is no longer listed"},
		{listed, `{"data":[]}`, "model: m is no longer listed"},
		{listed, listed, ""},
		{listed, `{"data":null}`, ""},
		{listed, "<html>", ""},
		{other, other, ""}, // an alias that was never listed
		{other, listed, ""},
	} {
		var got []string
		for _, change := range Changes(of(c.before), of(c.after)) {
			got = append(got, change.String())
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s, then %s: changes %q, want %q", c.before, c.after, got, c.want)
		}
	}
}
