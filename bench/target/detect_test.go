package target

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/mockserver"
)

// script is a server that answers paths with fixed texts.
type script struct {
	header http.Header
	pages  map[string]string
	mu     sync.Mutex
	asked  []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Path)
	s.mu.Unlock()
	for k, v := range s.header {
		w.Header()[k] = v
	}
	page, ok := s.pages[r.URL.Path]
	if !ok {
		http.Error(w, `{"detail":"Not Found"}`, http.StatusNotFound)
		return
	}
	switch {
	case strings.HasPrefix(page, "{") || strings.HasPrefix(page, "["):
		w.Header().Set("Content-Type", "application/json")
	case strings.HasPrefix(page, "<"):
		w.Header().Set("Content-Type", "text/html")
	default:
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	}
	_, _ = w.Write([]byte(page))
}

// serve starts a server on the loopback interface.
func serve(t *testing.T, h http.Handler) *Server {
	t.Helper()
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	base, err := url.Parse(hs.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &Server{Client: hs.Client(), Base: base, Timeout: 10 * time.Second}
}

func owner(name string) string {
	return `{"object":"list","data":[{"id":"m","object":"model","owned_by":"` + name + `"}]}`
}

const (
	vllmText   = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\n"
	sglangText = "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{model_name=\"m\"} 1\n"
)

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name   string
		pages  map[string]string
		header http.Header
		want   string
		engine string
	}{
		{name: "vllm", pages: map[string]string{"/v1/models": owner("vllm"), "/version": `{"version":"0.20.0"}`, "/metrics": vllmText}, want: "vllm"},
		{name: "vllm behind a server header", header: http.Header{"Server": {"uvicorn"}}, pages: map[string]string{"/v1/models": owner("vllm"), "/version": `{"version":"0.20.0"}`}, want: "vllm"},
		{name: "vllm, model list hidden", pages: map[string]string{"/metrics": vllmText}, want: "vllm"},
		{name: "vllm behind a gateway on fasthttp", header: http.Header{"Server": {"fasthttp"}}, pages: map[string]string{"/v1/models": owner("vllm"), "/version": `{"version":"0.20.0"}`}, want: "vllm"},
		{name: "simulator of llm-d", header: http.Header{"Server": {"fasthttp"}}, pages: map[string]string{"/v1/models": owner("vllm"), "/metrics": vllmText}, want: "llm-d-sim", engine: "vllm"},
		{name: "sglang", pages: map[string]string{"/v1/models": owner("sglang"), "/get_model_info": `{"model_path":"m"}`}, want: "sglang"},
		{name: "sglang, owner hidden", pages: map[string]string{"/v1/models": owner("organization"), "/get_model_info": `{"model_path":"m"}`}, want: "sglang"},
		{name: "trtllm", pages: map[string]string{"/v1/models": owner("tensorrt_llm"), "/metrics": `[{"iter":1}]`}, want: "trtllm"},
		{name: "nim 2", pages: map[string]string{"/v1/models": owner("vllm"), "/v1/metadata": `{"version":"2.0.1","modelInfo":[{"shortName":"m"}]}`, "/v1/metrics": vllmText}, want: "nim", engine: "vllm"},
		{name: "nim 2, owner unknown", pages: map[string]string{"/v1/models": owner("system"), "/v1/metadata": `{"version":"2.1.0"}`, "/v1/metrics": sglangText}, want: "nim", engine: "sglang"},
		{name: "nim 1", pages: map[string]string{"/v1/models": owner("system"), "/v1/metadata": `{"version":"1.14.0"}`, "/v1/metrics": "num_requests_running 1\n"}, want: "nim"},
		{name: "dynamo", pages: map[string]string{"/v1/models": owner("nvidia"), "/metrics": "# TYPE dynamo_frontend_queued_requests gauge\ndynamo_frontend_queued_requests{model=\"m\"} 0\n"}, want: "dynamo"},
		{name: "triton", pages: map[string]string{"/v1/models": owner("Triton Inference Server")}, want: "triton"},
		{name: "llama.cpp", header: http.Header{"Server": {"llama.cpp"}}, pages: map[string]string{"/v1/models": owner("llamacpp"), "/api/tags": `{}`, "/": "<html>"}, want: "llamacpp"},
		{name: "llama.cpp by its properties", pages: map[string]string{"/props": `{"default_generation_settings":{"n_ctx":4096}}`}, want: "llamacpp"},
		{name: "a server header is no proof", header: http.Header{"Server": {"llama.cpp"}}, pages: map[string]string{"/v1/models": owner("x")}, want: "generic"},
		{name: "ollama", pages: map[string]string{"/v1/models": owner("library"), "/": "Ollama is running"}, want: "ollama"},
		{name: "tgi", pages: map[string]string{"/v1/models": owner("m"), "/info": `{"model_id":"m","version":"3.3.4"}`}, want: "tgi"},
		{name: "lmdeploy", pages: map[string]string{"/v1/models": owner("lmdeploy")}, want: "lmdeploy"},
		{name: "litellm", header: http.Header{"X-Litellm-Call-Id": {"1"}}, pages: map[string]string{"/v1/models": owner("openai")}, want: "litellm"},
		{name: "llama-cpp-python", pages: map[string]string{"/v1/models": owner("me")}, want: "llama-cpp-python"},
		{name: "transformers serve", pages: map[string]string{"/health": `{"status":"ok"}`, "/openapi.json": `{"paths":{"/v1/chat/completions":{},"/load_model":{},"/reset":{}}}`}, want: "transformers-serve"},
		{name: "another server of its framework", pages: map[string]string{"/openapi.json": `{"info":{"title":"FastAPI"},"paths":{"/v1/chat/completions":{}}}`}, want: "generic"},
		{name: "nothing known", pages: map[string]string{"/health": "{}"}, want: "generic"},
		{name: "one page for every path", pages: htmlEverywhere(), want: "generic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &script{pages: c.pages, header: c.header}
			d, facts, err := serve(t, h).Detect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d.Name != c.want || facts.Engine != c.engine || facts.Evidence == "" {
				t.Errorf("dialect %q, facts %+v; want %q before %q", d.Name, facts, c.want, c.engine)
			}
			const handful = 12
			if len(h.asked) > handful {
				t.Errorf("%d requests: %v", len(h.asked), h.asked)
			}
			if c.engine == "sglang" && d.Metrics.Series[Running].Names[0] != "sglang:num_running_reqs" {
				t.Error("the series are not the engine's")
			}
			if c.want == "generic" && !strings.Contains(facts.Evidence, "/info (status ") {
				t.Errorf("evidence %q", facts.Evidence)
			}
			if c.want == "nim" && d.Metrics.Path != "/v1/metrics" {
				t.Errorf("the metrics are at %s", d.Metrics.Path)
			}
			if c.want == "trtllm" {
				for _, path := range h.asked {
					if path == "/metrics" {
						t.Error("/metrics was read, which empties it")
					}
				}
			}
		})
	}
}

// htmlEverywhere is a web application that answers any path with itself, and
// talks of other things than it is.
func htmlEverywhere() map[string]string {
	pages := map[string]string{}
	for _, p := range probes {
		pages[p] = "<!doctype html><p>vllm: sglang: dynamo_frontend_ trtllm_ Ollama is running</p>"
	}
	return pages
}

func TestDetectByHost(t *testing.T) {
	for host, want := range map[string]string{
		"api.openai.com":         "openai",
		"API.deepseek.com":       "deepseek-api",
		"team.openai.azure.com":  "azure-openai",
		"openrouter.ai":          "openrouter",
		"api.groq.com":           "groq",
		"api.groq.com.evil.test": "",
		"notopenai.azure.com":    "",
	} {
		asked := false
		s := &Server{Base: &url.URL{Scheme: "https", Host: host}, Client: &http.Client{Transport: transportFunc(func(*http.Request) (*http.Response, error) {
			asked = true
			return nil, http.ErrHandlerTimeout
		})}}
		d, _, err := s.Detect(t.Context())
		if d.Name != want || asked != (want == "") || (err == nil) != (want != "") {
			t.Errorf("%s: dialect %q, asked %v, error %v", host, d.Name, asked, err)
		}
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestDetectTheSimulator(t *testing.T) {
	srv, err := mockserver.New(mockserver.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	d, facts, err := serve(t, srv).Detect(t.Context())
	if err != nil || d.Name != "vllm" {
		t.Errorf("dialect %q, %+v, %v", d.Name, facts, err)
	}
	if diff := cmp.Diff([]string{"tokmark-sim"}, facts.Models); diff != "" {
		t.Error(diff)
	}
}

const key4 = "sk-very-secret"

func TestNoSecretInErrors(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(r.Header.Get("Authorization") + r.URL.RawQuery))
	})
	s := serve(t, echo)
	s.Header = http.Header{"Authorization": {"Bearer " + key4}}
	s.Base.RawQuery = "key=" + key4
	s.Base.User = url.UserPassword("me", key4)
	d := mustBe("vllm")
	sc, _ := s.Scraper(d, "", clock)
	var errs []string
	_, err := sc.Scrape(t.Context())
	errs = append(errs, err.Error())
	if err := s.ResetCache(t.Context(), d, "m"); err != nil {
		errs = append(errs, err.Error())
	}
	gone := *s
	base := *s.Base
	gone.Base = &base
	gone.Base.Host = "127.0.0.1:1" // nothing listens there
	_, _, err = gone.Detect(t.Context())
	errs = append(errs, err.Error())
	if len(errs) != 3 {
		t.Errorf("errors are missing: %q", errs)
	}
	for _, e := range errs {
		if strings.Contains(e, "secret") || !strings.Contains(e, "127.0.0.1") && !strings.Contains(e, "/reset_prefix_cache") {
			t.Errorf("error %q", e)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := &script{}
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
	}))
	s.Header = http.Header{"Api-Key": {key4}}
	d, _, err := s.Detect(t.Context())
	if err != nil || d.Name != "generic" || len(elsewhere.asked) > 0 {
		t.Errorf("dialect %q, %v; the other server was asked %v", d.Name, err, elsewhere.asked)
	}
}

func TestDetectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != models {
			cancel()
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"data":[]}`))
	}))
	if _, _, err := s.Detect(ctx); err == nil {
		t.Error("no error, and the probing did not end")
	}
}

func TestResetCache(t *testing.T) {
	var got []string
	s := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b := make([]byte, 100)
		n, _ := r.Body.Read(b)
		got = append(got, r.Method+" "+r.URL.Path+" "+string(b[:n]))
	}))
	for _, name := range []string{"vllm", "ollama"} {
		if err := s.ResetCache(t.Context(), mustBe(name), `a"b`); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"POST /reset_prefix_cache ", `POST /api/generate {"model":"a\"b","keep_alive":0}`}, got); diff != "" {
		t.Error(diff)
	}
	if err := s.ResetCache(t.Context(), mustBe("tgi"), "m"); err == nil || !strings.Contains(err.Error(), "prompts that differ") {
		t.Errorf("a server without such a request: %v", err)
	}
}
