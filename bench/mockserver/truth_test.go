package mockserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tokmark/tokmark/bench/record"
)

func TestTruthAgreesWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cfg := exact()
		cfg.TruthLog = &log
		cfg.DraftTokens = 2
		cfg.Origin = time.Now()
		time.Sleep(time.Second)
		l := newLab(t, cfg)
		var got []answer
		for i := range 3 {
			start := time.Since(cfg.Origin)
			a := l.understand(l.post(t.Context(), "/v1/chat/completions", fmt.Sprint("id-", i), chatBody(textOf(33, "x"), `,"max_tokens":20,"n":2`)))
			for j := range a.tokenAt {
				a.tokenAt[j] += start
			}
			got = append(got, a)
		}
		synctest.Wait()
		truth := l.srv.Truth()
		for i, tr := range truth {
			var at []time.Duration
			for _, c := range tr.Events {
				at = append(at, time.Duration(c.At))
			}
			if diff := cmp.Diff(got[i].tokenAt, at); diff != "" {
				t.Errorf("request %d, times of events: %s", i, diff)
			}
			if int(tr.PromptTokens) != got[i].usage.Prompt || int(tr.OutputTokens) != got[i].usage.Completion || int(tr.CachedTokens) != got[i].usage.PromptD.Cached {
				t.Errorf("request %d: counts %d, %d, %d; usage %+v", i, tr.PromptTokens, tr.OutputTokens, tr.CachedTokens, *got[i].usage)
			}
			want := Truth{
				Number: int64(i), RequestID: fmt.Sprint("id-", i), Endpoint: "/v1/chat/completions", Status: 200, Streamed: true,
				Received: tr.Received, Queued: tr.Received, Admitted: tr.Received, PrefillEnd: tr.Events[0].At,
				EngineEnd: tr.Events[len(tr.Events)-1].At, Finished: tr.Events[len(tr.Events)-1].At,
				PromptTokens: 40, CachedTokens: tr.CachedTokens, OutputTokens: 40, ReasoningTokens: 0,
				FinishReasons: []string{"length", "length"},
			}
			if diff := cmp.Diff(want, tr, cmpopts.IgnoreFields(Truth{}, "Events", "MonotonicOrigin")); diff != "" {
				t.Errorf("request %d: %s", i, diff)
			}
		}
		if truth[0].Received < record.Time(time.Second) {
			t.Errorf("received at %d, though the origin is a second back", truth[0].Received)
		}
		var lines []Truth
		for line := range strings.Lines(log.String()) {
			var tr Truth
			if err := json.Unmarshal([]byte(line), &tr); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, tr)
		}
		if diff := cmp.Diff(truth, lines); diff != "" {
			t.Errorf("log and memory differ: %s", diff)
		}
	})
}

func TestTruthKeepsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.KeepTruth = 3
		l := newLab(t, cfg)
		for i := range 7 {
			l.post(t.Context(), "/v1/chat/completions", fmt.Sprint(i), tenTokens+"}")
			synctest.Wait()
		}
		var ids []string
		for _, tr := range l.srv.Truth() {
			ids = append(ids, tr.RequestID)
		}
		if diff := cmp.Diff([]string{"4", "5", "6"}, ids); diff != "" {
			t.Error(diff)
		}
	})
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestCloseTellsThatTheLogFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.TruthLog = fullDisk{}
		srv, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		srv.truth.add(&Truth{Number: 8})
		if err := srv.Close(); err == nil || !strings.Contains(err.Error(), "request 8: disk full") {
			t.Errorf("close: %v", err)
		}
	})
}

// The stamps of two processes can be compared through CLOCK_MONOTONIC.
func TestMonotonicOrigin(t *testing.T) {
	a := time.Now()
	b := a.Add(-time.Hour)
	atA, atB := MonotonicAt(a), MonotonicAt(b)
	if atA == 0 {
		t.Skip("no CLOCK_MONOTONIC here")
	}
	// How tight a reading is depends on the machine; an hour apart they are.
	if d := time.Duration(atA - atB); d < time.Hour-time.Second || d > time.Hour+time.Second {
		t.Errorf("origins an hour apart are %v apart on the clock", d)
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.Model = `odd "name"\`
		cfg.DraftTokens = 2
		cfg.KVBlocks = 100
		l := newLab(t, cfg)
		scrape := func() map[string]float64 {
			t.Helper()
			resp, err := l.client.Get(l.url + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			parser := expfmt.NewTextParser(model.LegacyValidation)
			families, err := parser.TextToMetricFamilies(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]float64{}
			for name, f := range families {
				name = strings.TrimPrefix(name, "vllm:")
				for _, m := range f.Metric {
					key := name
					for _, p := range m.Label {
						switch p.GetName() {
						case "finished_reason":
							key += "/" + p.GetValue()
						case "model_name":
							if p.GetValue() != cfg.Model {
								t.Errorf("%s: model_name %q", name, p.GetValue())
							}
						}
					}
					switch {
					case m.Counter != nil:
						out[key] = m.Counter.GetValue()
					case m.Gauge != nil:
						out[key] = m.Gauge.GetValue()
					case m.Histogram != nil:
						h := m.Histogram
						out[key+"_count"] = float64(h.GetSampleCount())
						out[key+"_sum"] = h.GetSampleSum()
						last := uint64(0)
						for _, b := range h.Bucket {
							if b.GetCumulativeCount() < last {
								t.Errorf("%s: buckets fall", name)
							}
							last = b.GetCumulativeCount()
						}
						if last != h.GetSampleCount() {
							t.Errorf("%s: +Inf bucket %d, count %d", name, last, h.GetSampleCount())
						}
					}
				}
			}
			return out
		}
		check := func(what string, want map[string]float64) {
			t.Helper()
			got := scrape()
			for k, v := range want {
				g, ok := got[k]
				if !ok || g < v-1e-9 || g > v+1e-9 {
					t.Errorf("%s: %s is %v (there: %v), want %v", what, k, g, ok, v)
				}
			}
		}
		check("at the start", map[string]float64{
			"num_requests_running": 0, "num_requests_waiting": 0, "kv_cache_usage_perc": 0, "num_preemptions_total": 0,
			"prompt_tokens_total": 0, "request_success_total/stop": 0, "time_to_first_token_seconds_count": 0, "cache_config_info": 1,
		})

		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { l.post(ctx, "/v1/chat/completions", "", chatBody(textOf(33, "x"), `,"max_tokens":1000`)) })
		time.Sleep(ms)
		wg.Go(func() { l.post(ctx, "/v1/chat/completions", "", chatBody(textOf(33, "y"), `,"max_tokens":1000`)) })
		time.Sleep(ms)
		// One in prefill with its 40 tokens, one waiting.
		check("under way", map[string]float64{"num_requests_running": 1, "num_requests_waiting": 1, "kv_cache_usage_perc": 0.03})
		cancel()
		wg.Wait()
		synctest.Wait()
		check("after both left", map[string]float64{"num_requests_running": 0, "num_requests_waiting": 0, "kv_cache_usage_perc": 0, "request_success_total/abort": 2})
		time.Sleep(time.Second)

		body := chatBody(textOf(60, "z"), `,"max_tokens":30`)
		a, b := l.mustOK(l.ask(body)), l.mustOK(l.ask(body))
		c := l.mustOK(l.ask(`{"messages":[{"role":"user","content":"Hi."}],"stream":true,"stream_options":{"include_usage":true}}`))
		tokens := float64(a.usage.Completion + b.usage.Completion + c.usage.Completion)
		steps := float64(len(a.tokenAt) + len(b.tokenAt) + len(c.tokenAt) - 3)
		var ttft, last, itl float64
		for _, x := range []answer{a, b, c} {
			first, end := x.tokenAt[0].Seconds(), x.tokenAt[len(x.tokenAt)-1].Seconds()
			ttft += first
			last += end
			itl += end - first
		}
		check("after three", map[string]float64{
			"prompt_tokens_total": 67 + 67 + 9, "generation_tokens_total": tokens,
			"prefix_cache_queries_total": 40 + 67 + 67 + 9, "prefix_cache_hits_total": 64,
			"request_success_total/length": 2, "request_success_total/stop": 1, "request_success_total/abort": 2,
			"spec_decode_num_drafts_total": steps, "spec_decode_num_draft_tokens_total": 2 * steps,
			// Every token is a first one, a step's own, or an accepted one.
			"spec_decode_num_accepted_tokens_total": tokens - 3 - steps,
			"time_to_first_token_seconds_count":     3, "time_to_first_token_seconds_sum": ttft,
			"inter_token_latency_seconds_count": steps, "inter_token_latency_seconds_sum": itl,
			"e2e_request_latency_seconds_count": 3, "e2e_request_latency_seconds_sum": last,
			"request_queue_time_seconds_count": 3, "request_queue_time_seconds_sum": 0,
			"request_prefill_time_seconds_sum": ttft, "request_decode_time_seconds_sum": itl,
			"request_inference_time_seconds_sum": last, "request_inference_time_seconds_count": 3,
		})
	})
}

// BenchmarkEvents streams with an engine that costs no time: what is left is
// the cost of the simulator, of net/http and of a client that throws all away.
func BenchmarkEvents(b *testing.B) {
	cfg := exact()
	cfg.PrefillBase, cfg.PrefillPerToken, cfg.DecodeBase, cfg.DecodePerSequence = 0, 0, 50*time.Microsecond, 0
	cfg.KeepTruth = 10
	l := newLoopbackLab(b, cfg)
	const streams = 32
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			for done := 0; done < b.N; {
				n := min(b.N-done, 1000)
				l.post(b.Context(), "/v1/chat/completions", "", chatBody("x", fmt.Sprintf(`,"max_tokens":%d`, n)))
				done += n
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N*streams)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkEvent is the cost of building one event.
func BenchmarkEvent(b *testing.B) {
	cfg := Default()
	o := newOutput(1, true, "", outputLimits{most: 1 << 30, ignoreEOS: true}, &cfg)
	j := &job{prompt: newChain()}
	j.seqs = []*sequence{{job: j, out: o}}
	st := newStream("chatcmpl-1", 1, cfg.Model, chatAPI, j, false)
	b.ReportAllocs()
	for i := range b.N {
		st.buf = st.buf[:0]
		st.step(step{0, i, i + 1})
	}
}
