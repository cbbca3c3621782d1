package main

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/workloads/tokens"
)

// simulator starts a simulator in this process, which front may stand before.
func simulator(t *testing.T, change func(*mockserver.Config), front func(*mockserver.Server) http.Handler) (*mockserver.Server, string) {
	t.Helper()
	cfg := mockserver.Default()
	cfg.PrefillBase, cfg.DecodeBase = cfg.PrefillBase/4, cfg.DecodeBase/4 // so that a run takes a second
	if change != nil {
		change(&cfg)
	}
	sim, err := mockserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler = sim
	if front != nil {
		handler = front(sim)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.Close()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	})
	return sim, server.URL
}

// summarized runs the program and summarizes what it left.
func summarized(t *testing.T, url string, args ...string) (s *report.Summary, stdout, stderr string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	code, stdout, stderr := program("", append([]string{"run", "--url", url, "--artifact-dir", dir, "--ui", "none"}, args...)...)
	if code != exitOK && code != exitInvalid { // which a busy machine can make of it
		t.Fatalf("exit code = %d, stderr: %s", code, stderr)
	}
	s, err := report.Load(record.Dir(dir), report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s, stdout, stderr
}

// truthsOf returns what the simulator knows of the measured requests.
func truthsOf(sim *mockserver.Server, s *report.Summary) []mockserver.Truth {
	return slices.DeleteFunc(sim.Truth(), func(tr mockserver.Truth) bool {
		return !strings.HasPrefix(tr.RequestID, s.Manifest.RequestIDs+"m")
	})
}

// TestServerSide: what is reported of the server is what the simulator knows of
// itself.
func TestServerSide(t *testing.T) {
	const requests = 60
	sim, url := simulator(t, func(c *mockserver.Config) { c.DraftTokens = 3 }, nil)
	s, stdout, _ := summarized(t, url, "--concurrency", "6", "--request-count", strconv.Itoa(requests), "--warmup-request-count", "10",
		"--cache-hit-rate", "0.5", "--isl", "400", "--isl-stddev", "150", "--osl", "24", "--condition", "precision=fp8")
	truths := truthsOf(sim, s)
	if len(truths) != requests || s.Counts.Valid != requests {
		t.Fatalf("%d truths, %d valid requests, want %d", len(truths), s.Counts.Valid, requests)
	}
	var queue, prefill, decode float64 // ms, sums
	var input, cached, output, steps float64
	for _, tr := range truths {
		queue += milliseconds(tr.Admitted.Sub(tr.Queued))
		prefill += milliseconds(tr.PrefillEnd.Sub(tr.Admitted))
		decode += milliseconds(tr.EngineEnd.Sub(tr.PrefillEnd))
		input, cached, output = input+float64(tr.PromptTokens), cached+float64(tr.CachedTokens), output+float64(tr.OutputTokens)
		steps += float64(len(tr.Events) - 1)
	}

	// The phases are those of the same moments, up to the rounding of a sum.
	spans := map[string]float64{"decode": s.Server.Means["decode_time"]}
	for _, span := range s.Waterfall.Server {
		spans[span.Name] = span.Mean
	}
	for name, truth := range map[string]float64{report.SpanQueue: queue, report.SpanPrefill: prefill, "decode": decode} {
		truth /= requests
		if got := spans[name]; math.Abs(got-truth) > 1e-6*truth || got == 0 {
			t.Errorf("mean %s = %.3f ms, the simulator's own %.3f ms", name, got, truth)
		}
	}
	// The parts sum to the whole.
	var client, server, after float64
	for i, span := range s.Waterfall.Client {
		client += span.Mean
		if i > slices.IndexFunc(s.Waterfall.Client, func(s report.Span) bool { return s.Name == report.SpanWrite }) {
			after += span.Mean
		}
	}
	for _, span := range s.Waterfall.Server {
		server += span.Mean
	}
	ttft, _ := s.Metric("time_to_first_token")
	for what, pair := range map[string][2]float64{"client": {client, ttft.Statistic.Avg}, "server": {server, after}} {
		if math.Abs(pair[0]-pair[1]) > 0.01*pair[1] {
			t.Errorf("the %s's spans sum to %.4f ms of %.4f ms", what, pair[0], pair[1])
		}
	}
	if trip := s.Waterfall.RoundTrip; trip == nil || *trip <= 0 || s.Manifest.RoundTrip.Connects != 2*connectsBeside {
		t.Errorf("round trip = %v of %+v, want that of connects before and after the run", trip, s.Manifest.RoundTrip)
	}
	// Counts are exact.
	want := map[string]float64{report.CountRequests: requests, report.CountInput: input, report.CountOutput: output}
	for _, c := range s.Server.Counts {
		if c.Server != want[c.What] || c.Ours != want[c.What] {
			t.Errorf("%s: the server counted %v, we %v, the truth is %v", c.What, c.Server, c.Ours, want[c.What])
		}
		delete(want, c.What)
	}
	if len(want) > 0 || len(s.Server.Times) != 3 {
		t.Errorf("not compared: %v; times: %v", want, s.Server.Times)
	}
	if got := *s.Cache.HitRate; got != cached/input || got == 0 || *s.Cache.Server != got {
		t.Errorf("hit rate by usage %v, by the server %v, the truth is %v", got, *s.Cache.Server, cached/input)
	}
	accepted := output - requests - steps // a step makes one token and those accepted
	if sp := s.Speculation; sp == nil || *sp.AcceptedLength != 1+accepted/steps || *sp.AcceptanceRate != accepted/(3*steps) {
		t.Errorf("speculation = %+v, the truth is %v accepted in %v steps", sp, accepted, steps)
	}
	if e := s.Events; float64(e.Tokens) != output || float64(e.Events) != steps+requests || !e.Differ() {
		t.Errorf("events = %+v, the truth is %v tokens in %v events", e, output, steps+requests)
	}
	if s.Prefill == nil {
		t.Error("there is no prefill cost, though lengths vary")
	}
	for _, text := range []string{"TIME TO FIRST TOKEN, SPAN BY SPAN", "network round trip, beside it", "Prefill cost: ", "accepted length", "PREFIX CACHE: hit-rate", "declared      precision fp8", "as we did"} {
		if !strings.Contains(stdout, text) {
			t.Errorf("the report does not say %q:\n%s", text, stdout)
		}
	}
}

// TestServersThatMisbehave: what a server's metrics do is told, never fatal, and
// never makes a number that is wrong.
func TestServersThatMisbehave(t *testing.T) {
	const requests, warmup = 20, 10
	html := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>vllm:request_success_total 7</html>")
	}
	unauthorized := func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
	// changed rewrites the simulator's metrics.
	changed := func(sim *mockserver.Server, w http.ResponseWriter, r *http.Request, change func(string) string) {
		kept := httptest.NewRecorder()
		sim.ServeHTTP(kept, r)
		w.Header().Set("Content-Type", kept.Header().Get("Content-Type"))
		_, _ = io.WriteString(w, change(kept.Body.String()))
	}
	var readings atomic.Int64 // of the metrics
	nth := func(n int64) func(*mockserver.Server, int64, http.ResponseWriter, *http.Request) {
		return func(sim *mockserver.Server, _ int64, w http.ResponseWriter, r *http.Request) {
			if readings.Add(1) == n {
				w.WriteHeader(http.StatusInternalServerError)
			} else {
				sim.ServeHTTP(w, r)
			}
		}
	}
	tests := []struct {
		name string
		// metrics answers for the metrics once so many requests have been sent,
		// post before each request is.
		metrics func(sim *mockserver.Server, sent int64, w http.ResponseWriter, r *http.Request)
		post    func(sim *mockserver.Server, sent int64)
		warning string
		says    string // in the warning, or of the server where there is none
		suspect bool
		counts  bool // of the server are there
	}{
		{name: "missing from the start", says: "no Prometheus metrics there",
			metrics: func(_ *mockserver.Server, _ int64, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNotFound)
			}},
		{name: "500 once before the run", counts: true, metrics: nth(1)},
		{name: "500 once during the run", warning: report.ServerMetrics, says: " readings failed: read metrics: GET ", counts: true, metrics: nth(2)},
		{name: "HTML", warning: report.ServerMetrics, says: "the answer is HTML",
			metrics: func(_ *mockserver.Server, _ int64, w http.ResponseWriter, _ *http.Request) { html(w) }},
		{name: "401", warning: report.ServerMetrics, says: "it wants other credentials",
			metrics: func(_ *mockserver.Server, _ int64, w http.ResponseWriter, _ *http.Request) { unauthorized(w) }},
		{name: "gone at the end", warning: report.ServerMetrics, says: "it wants other credentials",
			metrics: func(sim *mockserver.Server, sent int64, w http.ResponseWriter, r *http.Request) {
				if sent > warmup {
					unauthorized(w)
				} else {
					sim.ServeHTTP(w, r)
				}
			}},
		{name: "HTML at the end", warning: report.ServerMetrics, says: "the answer is HTML",
			metrics: func(sim *mockserver.Server, sent int64, w http.ResponseWriter, r *http.Request) {
				if sent > warmup {
					html(w)
				} else {
					sim.ServeHTTP(w, r)
				}
			}},
		{name: "other labels at the end", warning: report.ServerMetrics, says: "series are gone",
			metrics: func(sim *mockserver.Server, sent int64, w http.ResponseWriter, r *http.Request) {
				changed(sim, w, r, func(s string) string {
					if sent > warmup {
						s = strings.ReplaceAll(s, `model_name=`, `build="b",model_name=`)
					}
					return s
				})
			}},
		{name: "another engine", warning: report.ConditionsChanged, says: target.ErrReplicas.Error(), suspect: true,
			metrics: func(sim *mockserver.Server, sent int64, w http.ResponseWriter, r *http.Request) {
				changed(sim, w, r, func(s string) string {
					if sent > warmup {
						s = strings.ReplaceAll(s, `engine="0"`, `engine="1"`)
					}
					return s
				})
			}},
		{name: "restarted", warning: report.ConditionsChanged, says: target.ErrReset.Error(), suspect: true,
			metrics: func(sim *mockserver.Server, sent int64, w http.ResponseWriter, r *http.Request) {
				if sent <= warmup {
					sim.ServeHTTP(w, r)
					return
				}
				again, err := mockserver.New(mockserver.Default())
				if err != nil {
					panic(err)
				}
				again.ServeHTTP(w, r)
				_ = again.Close()
			}},
		{name: "others use it", warning: report.OtherTraffic, says: "24 requests during the measurement where ours are at most 20 (+20 %)", suspect: true, counts: true,
			post: func(sim *mockserver.Server, sent int64) {
				if sent <= warmup+10 || sent > warmup+14 {
					return
				}
				r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"tokmark-sim","messages":[{"role":"user","content":"hello"}],"max_tokens":4}`))
				sim.ServeHTTP(httptest.NewRecorder(), r)
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var sent atomic.Int64
			readings.Store(0)
			_, url := simulator(t, nil, func(sim *mockserver.Server) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Method == http.MethodPost:
						if n := sent.Add(1); tt.post != nil {
							tt.post(sim, n)
						}
						sim.ServeHTTP(w, r)
					case r.URL.Path == "/metrics" && tt.metrics != nil:
						tt.metrics(sim, sent.Load(), w, r)
					default:
						sim.ServeHTTP(w, r)
					}
				})
			})
			s, _, _ := summarized(t, url, "--preflight=false", "--dialect", "vllm", "--concurrency", "2",
				"--warmup-request-count", strconv.Itoa(warmup), "--request-count", strconv.Itoa(requests), "--isl", "32", "--osl", "8")
			if s.Counts.Valid != requests {
				t.Errorf("%d valid requests, want %d", s.Counts.Valid, requests)
			}
			if s.Waterfall.RoundTrip != nil { // there was no preflight
				t.Errorf("round trip = %v", *s.Waterfall.RoundTrip)
			}
			said := s.Server.MetricsError
			if tt.warning == "" && s.Warned(report.ServerMetrics) {
				t.Errorf("there is a warning: %+v", s.Warnings)
			}
			if tt.warning != "" {
				said = ""
				for _, w := range s.Warnings {
					if w.Code == tt.warning {
						said = w.Message
						if (w.Effect == report.Suspect) != tt.suspect {
							t.Errorf("%s makes the run %s", w.Code, w.Effect)
						}
					}
				}
			}
			if !strings.Contains(said, tt.says) {
				t.Errorf("said %q, want %q in it", said, tt.says)
			}
			if tt.counts != (s.Server != nil && len(s.Server.Counts) > 0) || tt.counts != (s.Waterfall.Server != nil) {
				t.Errorf("server = %+v, want its figures: %v", s.Server, tt.counts)
			}
		})
	}
}

// TestTokensWithoutUsage: a server that tells no token counts has them counted,
// to what the simulator made where its own tokenizer counts, and to what the
// tokenizer makes of the text.
func TestTokensWithoutUsage(t *testing.T) {
	cl100k, err := tokens.Open("cl100k_base")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, tokenizer, endpoint, level string
		source                           record.Source
		breaks                           bool // /tokenize, once the measurement has begun
	}{
		{"tokenizer", "cl100k_base", "chat", "raw", record.SourceTokenizer, false},
		{"server", "server", "chat", "records", record.SourceServer, false},
		{"server, completions", "server", "completions", "raw", record.SourceServer, false},
		{"server that breaks", "server", "chat", "records", record.SourceNone, true},
		{"none", "none", "chat", "records", record.SourceNone, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sent, during, after atomic.Int64 // of the measurement; questions for tokens
			sim, url := simulator(t, func(c *mockserver.Config) { c.ReasoningShare, c.ReasoningTokens = 0.5, 4 }, func(sim *mockserver.Server) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch n := sent.Load(); {
					case strings.Contains(r.Header.Get("X-Request-ID"), "-m"):
						sent.Add(1)
					case r.URL.Path != "/tokenize" || n == 0:
					case n < 12:
						during.Add(1)
					default:
						after.Add(1)
						if tt.breaks {
							http.Error(w, "gone", http.StatusInternalServerError)
							return
						}
					}
					sim.ServeHTTP(w, r)
				})
			})
			dir := record.Dir(filepath.Join(t.TempDir(), "run"))
			code, stdout, stderr := program("", "run", "--url", url, "--artifact-dir", string(dir), "--ui", "none", "--usage=false", "--tokenizer", tt.tokenizer,
				"--endpoint-type", tt.endpoint, "--export-level", tt.level, "--concurrency", "4", "--request-count", "12", "--isl", "20", "--osl", "16")
			s, err := report.Load(dir, report.Options{})
			if err != nil || code != exitOK && code != exitInvalid {
				t.Fatalf("%v, exit code = %d, stderr: %s", err, code, stderr)
			}
			truths := make(map[string]mockserver.Truth)
			for _, tr := range truthsOf(sim, s) {
				truths[tr.RequestID] = tr
			}
			reasoned := 0
			for r, err := range dir.Records() {
				if err != nil {
					t.Fatal(err)
				}
				tr := truths[s.Manifest.RequestIDs+"m"+strconv.FormatInt(r.ID, 10)]
				want := record.Tokens{Source: tt.source, Input: record.Unknown, Output: tr.OutputTokens - max(tr.ReasoningTokens, 0), Reasoning: record.Unknown, Cached: record.Unknown}
				if tr.ReasoningTokens > 0 {
					want.Reasoning = tr.ReasoningTokens
					reasoned++
				}
				switch tt.source {
				case record.SourceTokenizer:
					want.Output = record.Count(cl100k.Count(r.Output[0].Text))
					if tr.ReasoningTokens > 0 {
						want.Reasoning = record.Count(cl100k.Count(r.Output[0].Reasoning))
					}
				case record.SourceNone:
					want.Output, want.Reasoning = record.Unknown, record.Unknown
				}
				if d := cmp.Diff(want, r.Tokens); d != "" {
					t.Errorf("request %d: tokens (-want +got)\n%s", r.ID, d)
				}
				if kept := len(r.Output) > 0; kept != (tt.level == "raw") {
					t.Errorf("request %d: the text is kept: %v", r.ID, kept)
				}
				if r.Chunks[0].Tokens != record.UnknownTokens {
					t.Errorf("request %d: its first event has %d tokens", r.ID, r.Chunks[0].Tokens)
				}
			}
			if len(truths) != 12 || tt.endpoint == "chat" && (reasoned == 0 || reasoned == 12) {
				t.Errorf("%d truths, of which %d reasoned", len(truths), reasoned)
			}
			if _, ok := s.Metric("inter_token_latency"); ok != (tt.source != record.SourceNone) {
				t.Errorf("there is an ITL: %v", ok)
			}
			if d := cmp.Diff([]report.TokenSource{{Source: tt.source, Count: 12}}, s.Tokens); d != "" {
				t.Errorf("token sources (-want +got)\n%s", d)
			}
			if advised := strings.Contains(stderr, "give a tokenizer"); advised != (tt.tokenizer == "none") {
				t.Errorf("a tokenizer is asked for: %v; stderr: %s", advised, stderr)
			}
			if strings.Contains(stdout, report.ShortOutput) {
				t.Errorf("a count from text is taken for the server's word:\n%s", stdout)
			}
			if broken := strings.Contains(stderr, "answers without usage have no token count"); broken != tt.breaks || tt.breaks && after.Load() != 1 {
				t.Errorf("it is said that counting failed: %v, after %d questions; stderr: %s", broken, after.Load(), stderr)
			}
			if during.Load() > 0 || (after.Load() >= 12) != (tt.source == record.SourceServer) {
				t.Errorf("the server was asked to count %d times while it was measured, and %d times after", during.Load(), after.Load())
			}
		})
	}
}

// renaming has its answers speak of another model.
type renaming struct{ http.ResponseWriter }

func (w renaming) Write(b []byte) (int, error) {
	_, err := w.ResponseWriter.Write(bytes.ReplaceAll(b, []byte("tokmark-sim"), []byte("another-sim")))
	return len(b), err
}

func (w renaming) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestAnotherModelInMidRun: a server that goes over to another model is caught
// by its list of models and by the names in its answers, each by itself.
func TestAnotherModelInMidRun(t *testing.T) {
	for _, tt := range []struct {
		name            string
		listed, answers bool // are of the other model from the 10th measured request on
		says            string
	}{
		{name: "in the list", listed: true, says: "model: tokmark-sim is no longer listed"},
		{name: "in the answers", answers: true, says: "requests for tokmark-sim name another-sim (10), tokmark-sim (10)"},
		{name: "no", says: ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var measured atomic.Int64
			_, url := simulator(t, nil, func(sim *mockserver.Server) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n := measured.Load()
					if id := r.Header.Get("X-Request-ID"); r.Method == http.MethodPost && strings.Contains(id, "-m") {
						n = measured.Add(1)
					}
					if n > 10 && (tt.answers && r.Method == http.MethodPost || tt.listed && r.URL.Path == "/v1/models") {
						w = renaming{w}
					}
					sim.ServeHTTP(w, r)
				})
			})
			s, _, _ := summarized(t, url, "--concurrency", "1", "--request-count", "20", "--isl", "32", "--osl", "8")
			said := ""
			for _, w := range s.Warnings {
				if w.Code == report.ConditionsChanged {
					said = w.Message
				}
			}
			if (tt.says == "") != (said == "") || !strings.Contains(said, tt.says) {
				t.Errorf("said %q, want %q in it", said, tt.says)
			}
			if said != "" && s.Verdict.Level == report.Valid {
				t.Error("the run is valid")
			}
		})
	}
}
