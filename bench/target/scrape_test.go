package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
)

func clock() record.Time { return 7 }

// answering is a client that gets the same answer to every request.
func answering(status int, contentType, body string) *http.Client {
	return &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {contentType}},
			Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	})}
}

const textFormat = "text/plain; version=0.0.4"

var metricsURL = &url.URL{Scheme: "http", Host: "server", Path: "/metrics"}

// scrape reads a text as an endpoint of the dialect would give it.
func scrape(t testing.TB, m Metrics, modelName, text string) Sample {
	t.Helper()
	s := &Scraper{Client: answering(200, textFormat, text), URL: metricsURL, Metrics: m, Model: modelName, From: "server", Clock: clock}
	sample, err := s.Scrape(context.Background())
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return sample
}

func count(n float64) *float64 { return &n }

var ignoreParts = cmpopts.IgnoreUnexported(Sample{})

func TestScrape(t *testing.T) {
	for _, c := range []struct {
		name    string
		metrics Metrics
		model   string
		text    string
		want    Sample
	}{
		{
			name: "two engines are added up, shares averaged", metrics: vllmMetrics,
			text: `
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3
vllm:num_requests_running{engine="1",model_name="m"} 4
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 6
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 1.5
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 2
vllm:request_queue_time_seconds_bucket{engine="1",le="+Inf",model_name="m"} 4
vllm:request_queue_time_seconds_sum{engine="1",model_name="m"} 2.5
vllm:request_queue_time_seconds_count{engine="1",model_name="m"} 4
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e9
`,
			want: Sample{
				Gauges:   map[Metric]float64{Running: 7, KVUsage: 0.5},
				Counters: map[Metric]float64{Finished: 11},
				Times:    map[Metric]Total{QueueTime: {Seconds: 4, Count: count(6)}},
				Started:  count(1.7e9),
				Replicas: []string{`engine="0"`, `engine="1"`},
			},
		},
		{
			name: "another model is left out", metrics: vllmMetrics, model: "M",
			text: "vllm:prompt_tokens_total{model_name=\"m\"} 5\nvllm:prompt_tokens_total{model_name=\"other\"} 7\n",
			want: Sample{Counters: map[Metric]float64{PromptTokens: 5}},
		},
		{
			name: "only other models", metrics: vllmMetrics, model: "adapter",
			text: "vllm:prompt_tokens_total{model_name=\"base\"} 5\n",
			want: Sample{Warnings: []string{`no series is of model "adapter"; there are some of base`}},
		},
		{
			name: "old names", metrics: vllmMetrics,
			text: "vllm:gpu_cache_usage_perc 0.5\nvllm:gpu_prefix_cache_hits_total 3\n# TYPE vllm:time_per_output_token_seconds histogram\nvllm:time_per_output_token_seconds_sum 2\nvllm:time_per_output_token_seconds_count 8\n",
			want: Sample{Gauges: map[Metric]float64{KVUsage: 0.5}, Counters: map[Metric]float64{PrefixHits: 3}, Times: map[Metric]Total{ITL: {2, count(8)}}},
		},
		{
			name: "old and new name at once count once", metrics: vllmMetrics,
			text: "vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.5\n",
			want: Sample{Gauges: map[Metric]float64{KVUsage: 0.5}},
		},
		{
			name: "no numbers", metrics: vllmMetrics,
			text: "vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running +Inf\nvllm:num_requests_waiting 0\n",
			want: Sample{Gauges: map[Metric]float64{Waiting: 0}},
		},
		{
			name: "a series that stands there twice", metrics: vllmMetrics,
			text: "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"0\"} 3\n",
			want: Sample{Warnings: []string{"running: " + errTwice.Error()}},
		},
		{
			name: "nothing known", metrics: vllmMetrics,
			text: "# TYPE python_info gauge\npython_info 1\n",
			want: Sample{Warnings: []string{"none of the known series is there"}},
		},
		{
			name: "ranks of one engine tell the same, if one a little later", metrics: sglangMetrics,
			text: "sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 3\nsglang:num_running_reqs{model_name=\"m\",tp_rank=\"1\"} 2\n" +
				"sglang:num_running_reqs{dp_rank=\"1\",model_name=\"m\",tp_rank=\"2\"} 2\n",
			want: Sample{Gauges: map[Metric]float64{Running: 5}, Replicas: []string{`dp_rank="1"`}},
		},
		{
			name: "a stage of several, and a gauge that is no counter", metrics: sglangMetrics,
			text: `
# TYPE sglang:per_stage_req_latency_seconds histogram
sglang:per_stage_req_latency_seconds_sum{stage="prefill_forward"} 2
sglang:per_stage_req_latency_seconds_count{stage="prefill_forward"} 4
sglang:per_stage_req_latency_seconds_sum{stage="tokenize"} 9
sglang:per_stage_req_latency_seconds_count{stage="tokenize"} 9
# TYPE sglang:num_retracted_reqs gauge
sglang:num_retracted_reqs 1
`,
			want: Sample{Times: map[Metric]Total{PrefillTime: {2, count(4)}}},
		},
		{
			name: "a sum of two, both of which must be there", metrics: trtllmMetrics,
			text: "trtllm_kv_cache_reused_blocks_total 3\ntrtllm_kv_cache_missed_blocks_total 5\n",
			want: Sample{Counters: map[Metric]float64{PrefixQueries: 8, PrefixHits: 3}},
		},
		{
			name: "one of the two is missing", metrics: llamacppMetrics,
			text: "llamacpp:prompt_tokens_total 30\nllamacpp:prompt_seconds_total 1.5\n",
			want: Sample{Counters: map[Metric]float64{PromptTokens: 30}, Times: map[Metric]Total{PrefillTime: {1.5, nil}}},
		},
		{
			name: "a quotient", metrics: tgiMetrics,
			text: "tgi_batch_current_max_tokens 30\ntgi_batch_max_total_tokens 120\n",
			want: Sample{Gauges: map[Metric]float64{KVUsage: 0.25}},
		},
		{
			name: "a quotient by nothing", metrics: tgiMetrics,
			text: "tgi_batch_current_max_tokens 30\ntgi_batch_max_total_tokens 0\n",
			want: Sample{},
		},
		{
			name: "microseconds", metrics: tritonMetrics, model: "m",
			text: "# TYPE nv_inference_queue_duration_us counter\nnv_inference_queue_duration_us{model=\"m\",version=\"1\"} 2500000\nnv_inference_queue_duration_us{model=\"n\",version=\"1\"} 1\n",
			want: Sample{Times: map[Metric]Total{QueueTime: {2.5, nil}}},
		},
		{
			name: "tokens out of a histogram", metrics: dynamoMetrics,
			text: "# TYPE dynamo_frontend_input_sequence_tokens histogram\ndynamo_frontend_input_sequence_tokens_bucket{le=\"+Inf\"} 2\ndynamo_frontend_input_sequence_tokens_sum 300\ndynamo_frontend_input_sequence_tokens_count 2\n",
			want: Sample{Counters: map[Metric]float64{PromptTokens: 300, PrefixQueries: 300}},
		},
		{
			name: "GPUs, one of them shared by two pods", metrics: DCGM(),
			text: `
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",pod="x"} 50
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",pod="y"} 50
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",pod=""} 100
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",pod="x"} 300
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",pod="y"} 300
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b",pod=""} 400
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",pod=""} 2
`,
			want: Sample{
				Gauges:   map[Metric]float64{GPUUtilization: 0.75, GPUPower: 700, GPUMemory: 2 << 20},
				Replicas: []string{`UUID="GPU-a",gpu="0"`, `UUID="GPU-b",gpu="1"`},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.At, c.want.From = 7, "server"
			got := scrape(t, c.metrics, c.model, c.text)
			if d := cmp.Diff(c.want, got, ignoreParts, cmpopts.EquateApprox(0, 1e-12)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

func TestScrapeOfWhatIsNoMetrics(t *testing.T) {
	for _, c := range []struct {
		name, kind, body, want string
		status                 int
		none                   bool
	}{
		{"not there", "text/plain", "404 page not found", "status 404", 404, true},
		{"moved", "text/plain", "", "status 307", 307, true},
		{"switched off, as llama.cpp says it", "application/json", `{"error":{"code":501}}`, "status 501", 501, true},
		{"HTML", "text/html; charset=utf-8", "<html><p>vllm:num_requests_running 3</p>", "HTML", 200, false},
		{"HTML that says it is text", textFormat, "\n<!doctype html>\n<p>", "HTML", 200, false},
		{"JSON, as TensorRT-LLM has it there", "application/json", `[{"iter":1}]`, "JSON", 200, false},
		{"JSON that says it is text", "text/plain", `[]`, "JSON", 200, false},
		{"no credentials", "application/json", `{"error":"bad key ` + key4 + `"}`, "status 401", 401, false},
		{"broken", "text/plain", key4, "status 500", 500, false},
		{"cut off", textFormat, "vllm:num_requests_running 3\nvllm:num_requests_wai", "line 2", 200, false},
		{"prose", textFormat, "the key is " + key4 + "\n", "Prometheus text format", 200, false},
		{"too large", textFormat, strings.Repeat("# x\n", largestAnswer/4+1), "larger than 16 MiB", 200, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Scraper{Client: answering(c.status, c.kind, c.body), URL: metricsURL, Metrics: vllmMetrics, Clock: clock}
			sample, err := s.Scrape(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "http://server/metrics") {
				t.Fatalf("error %v", err)
			}
			if errors.Is(err, ErrNoMetrics) != c.none {
				t.Errorf("error %v", err)
			}
			if strings.Contains(err.Error(), key4) {
				t.Errorf("the error repeats what the server says: %v", err)
			}
			if sample.Gauges != nil || sample.Counters != nil || sample.Times != nil {
				t.Errorf("there is an error, and a sample %+v", sample)
			}
		})
	}
}

func TestSampleInAFile(t *testing.T) {
	want := scrape(t, vllmMetrics, "", "vllm:num_requests_waiting 0\nvllm:prompt_tokens_total 5\n# TYPE vllm:e2e_request_latency_seconds histogram\nvllm:e2e_request_latency_seconds_sum 2\nvllm:e2e_request_latency_seconds_count 0\n")
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	const line = `{"at":7,"took_ns":0,"from":"server","gauges":{"waiting":0},"counters":{"prompt_tokens":5},"times":{"e2e":{"seconds":2,"count":0}}}`
	if d := cmp.Diff(line, string(b)); d != "" {
		t.Error(d)
	}
	var got Sample
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, ignoreParts, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func TestDiff(t *testing.T) {
	text := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	prompt := func(engine string, n int) string {
		return fmt.Sprintf("vllm:prompt_tokens_total{engine=%q} %d", engine, n)
	}
	queue := func(seconds float64, n int) string {
		return fmt.Sprintf("# TYPE vllm:request_queue_time_seconds histogram\nvllm:request_queue_time_seconds_sum %g\nvllm:request_queue_time_seconds_count %d", seconds, n)
	}
	reason := func(r string, n int) string {
		return fmt.Sprintf("vllm:request_success_total{finished_reason=%q} %d", r, n)
	}
	for _, c := range []struct {
		name     string
		from, to string
		want     Delta
		err      error
	}{
		{
			name: "rises", from: text(prompt("0", 100), queue(1, 10)), to: text(prompt("0", 150), queue(1.5, 20)),
			want: Delta{Counters: map[Metric]float64{PromptTokens: 50}, Times: map[Metric]Total{QueueTime: {0.5, count(10)}}},
		},
		{
			name: "a series that appears with its first value counts from 0",
			from: text(reason("stop", 5)), to: text(reason("stop", 6), reason("length", 3), queue(2, 4)),
			want: Delta{Counters: map[Metric]float64{Finished: 4}, Times: map[Metric]Total{QueueTime: {2, count(4)}}},
		},
		{name: "a restart", from: text(prompt("0", 100)), to: text(prompt("0", 50)), err: ErrReset},
		{
			name: "a restart of one engine, behind the rise of another",
			from: text(prompt("0", 100), prompt("1", 100)), to: text(prompt("0", 5), prompt("1", 400)), err: ErrReset,
		},
		{
			name: "a restart after which the counters are higher than before",
			from: text(prompt("0", 100), "process_start_time_seconds 1000"), to: text(prompt("0", 150), "process_start_time_seconds 2000"), err: ErrReset,
		},
		{name: "a fall of seconds", from: text(queue(5, 3)), to: text(queue(4, 3)), err: ErrReset},
		{name: "a fall of counts", from: text(queue(5, 3)), to: text(queue(6, 2)), err: ErrReset},
		{name: "another engine answers", from: text(prompt("0", 100)), to: text(prompt("1", 150)), err: ErrReplicas},
		{name: "an engine more, with a past", from: text(prompt("0", 100)), to: text(prompt("0", 150), prompt("1", 9000)), err: ErrReplicas},
		{
			name: "a label set that is gone", from: text(reason("stop", 5), reason("abort", 1), "vllm:num_preemptions_total 4"), to: text(reason("stop", 9), "vllm:num_preemptions_total 5"),
			want: Delta{Counters: map[Metric]float64{Preemptions: 1}, Warnings: []string{"request_success: series are gone in the later sample"}},
		},
		{
			name: "a metric that is gone", from: text(reason("stop", 5), queue(1, 1)), to: text("vllm:num_requests_running 1"),
			want: Delta{Warnings: []string{"request_success: series are gone in the later sample", "queue_time: series are gone in the later sample"}},
		},
		{name: "nothing before", from: text("vllm:num_requests_running 1"), to: text(prompt("", 5)), want: Delta{Counters: map[Metric]float64{PromptTokens: 5}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := scrape(t, vllmMetrics, "", c.from), scrape(t, vllmMetrics, "", c.to)
			to.At = from.At + record.Time(time.Second)
			got, err := Diff(from, to)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if c.err == nil {
				c.want.Elapsed = time.Second
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
	good := scrape(t, vllmMetrics, "", prompt("0", 1)+"\n")
	later, failed, gpu := good, Sample{At: 9, From: "server", Error: "status 500"}, Sample{At: 9, From: "gpu"}
	later.At = 9
	for _, pair := range [][2]Sample{{good, failed}, {failed, later}, {good, gpu}, {later, good}, {good, good}} {
		if d, err := Diff(pair[0], pair[1]); err == nil {
			t.Errorf("a difference %+v of %+v and %+v", d, pair[0], pair[1])
		}
	}
}

func TestRatio(t *testing.T) {
	d := Delta{Counters: map[Metric]float64{PrefixHits: 3, PrefixQueries: 4, AcceptedTokens: 0, DraftTokens: 0}}
	if v, ok := d.Ratio(PrefixHits, PrefixQueries); !ok || v != 0.75 {
		t.Errorf("%v, %v", v, ok)
	}
	if v, ok := d.Ratio(AcceptedTokens, DraftTokens); ok {
		t.Errorf("nothing was drafted, and the acceptance is %v", v)
	}
	if v, ok := d.Ratio(Preemptions, PromptTokens); ok {
		t.Errorf("nothing is known, and the ratio is %v", v)
	}
}

// A difference is never negative, and differences of neighbours add up to that
// of the ends.
func TestDiffAddsUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var samples []Sample
		engines := rapid.IntRange(1, 3).Draw(rt, "engines")
		now := make([]int, engines)
		for i := range 3 {
			var b strings.Builder
			for e := range engines {
				now[e] += rapid.IntRange(0, 1000).Draw(rt, "rise")
				fmt.Fprintf(&b, "vllm:generation_tokens_total{engine=\"%d\"} %d\n", e, now[e])
			}
			s := scrape(t, vllmMetrics, "", b.String())
			s.At = record.Time(i)
			samples = append(samples, s)
		}
		sum := 0.0
		for i := range 2 {
			d, err := Diff(samples[i], samples[i+1])
			if err != nil {
				rt.Fatal(err)
			}
			sum += d.Counters[GenerationTokens]
		}
		whole, err := Diff(samples[0], samples[2])
		if err != nil || whole.Counters[GenerationTokens] != sum || sum < 0 {
			rt.Fatalf("the parts are %g, the whole is %g, %v", sum, whole.Counters[GenerationTokens], err)
		}
	})
}

func TestScrapeTheSimulator(t *testing.T) {
	cfg := mockserver.Default()
	cfg.PrefillBase, cfg.DecodeBase, cfg.DecodePerSequence = time.Microsecond, time.Microsecond, 0
	srv, err := mockserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	s := serve(t, srv)
	var at record.Time
	sc, ok := s.Scraper(mustBe("vllm"), cfg.Model, func() record.Time { at++; return at })
	if !ok {
		t.Fatal("vLLM has no metrics")
	}
	before, err := sc.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client.Post(s.at("/v1/completions").String(), "application/json", strings.NewReader(`{"model":"tokmark-sim","prompt":"one two three","max_tokens":5,"ignore_eos":true}`))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	after, err := sc.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(after.Warnings) > 0 {
		t.Errorf("warnings %v", after.Warnings)
	}
	d, err := Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	if d.Counters[GenerationTokens] != 5 || d.Counters[Finished] != 1 || d.Counters[PromptTokens] <= 0 {
		t.Errorf("counters %v", d.Counters)
	}
	for _, m := range []Metric{QueueTime, PrefillTime, DecodeTime, InferenceTime, TTFT, E2E} {
		if n := d.Times[m].Count; n == nil || *n != 1 {
			t.Errorf("%s: %+v", m, d.Times[m])
		}
	}
	if _, ok := after.Counters[Drafts]; ok {
		t.Error("a server without speculation has drafts")
	}
	if _, ok := after.Gauges[Running]; !ok {
		t.Errorf("gauges %v", after.Gauges)
	}
}

func TestRunSamplesAtItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := time.Now()
		n := 0
		client := &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
			n++
			switch n {
			case 2: // a slow answer
				time.Sleep(300 * time.Millisecond)
			case 4: // none at all
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return answering(200, textFormat, fmt.Sprintf("vllm:prompt_tokens_total %d\n", n)).Transport.RoundTrip(r)
		})}
		s := &Scraper{
			Client: client, URL: metricsURL, Metrics: vllmMetrics, From: "server", Timeout: 1500 * time.Millisecond,
			Clock: func() record.Time { return record.Time(time.Since(origin)) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		var got []Sample
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx, time.Second, func(s Sample) { got = append(got, s) })
		}()
		time.Sleep(6500 * time.Millisecond)
		cancel()
		<-done
		type moment struct {
			At, Took time.Duration
			Tokens   float64
			Error    string
		}
		var moments []moment
		for _, s := range got {
			moments = append(moments, moment{time.Duration(s.At), s.Took, s.Counters[PromptTokens], s.Error})
		}
		const ms = time.Millisecond
		want := []moment{
			{0, 0, 1, ""},
			{1000 * ms, 300 * ms, 2, ""},
			{2000 * ms, 0, 3, ""},
			{3000 * ms, 1500 * ms, 0, "read metrics: GET http://server/metrics: no whole answer within 1.5s"},
			{4500 * ms, 0, 5, ""},
			{5000 * ms, 0, 6, ""},
			{6000 * ms, 0, 7, ""},
		}
		if d := cmp.Diff(want, moments); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
	})
}

func TestRunEndsInTheMiddleOfAReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		s := &Scraper{Client: client, URL: metricsURL, Metrics: vllmMetrics, Clock: clock}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.Run(ctx, time.Second, func(s Sample) { t.Errorf("a sample %+v", s) })
	})
}

// FuzzScrape: no text makes a sample with a value that is no number.
func FuzzScrape(f *testing.F) {
	f.Add("vllm:num_requests_running{engine=\"0\"} 3\n")
	f.Add("# TYPE vllm:request_queue_time_seconds histogram\nvllm:request_queue_time_seconds_sum NaN\nvllm:request_queue_time_seconds_count 4\n")
	f.Add("# TYPE vllm:e2e_request_latency_seconds summary\nvllm:e2e_request_latency_seconds{quantile=\"0.5\"} 1\nvllm:e2e_request_latency_seconds_sum 1e308\nvllm:e2e_request_latency_seconds_sum{a=\"b\"} 1e308\n")
	f.Add("<html>")
	f.Fuzz(func(t *testing.T, text string) {
		s := &Scraper{Client: answering(200, textFormat, text), URL: metricsURL, Metrics: vllmMetrics, Clock: clock}
		sample, err := s.Scrape(context.Background())
		if err != nil {
			return
		}
		if _, err := json.Marshal(sample); err != nil {
			t.Errorf("%v of %q", err, text)
		}
		for m, v := range sample.Counters {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s is %v", m, v)
			}
		}
	})
}
