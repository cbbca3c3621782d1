package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/mockserver"
)

// overheard is the simulator, and the requests for answers that it got.
type overheard struct {
	mu    sync.Mutex
	paths []string // with their queries
	posts []map[string]json.RawMessage
}

// overhear starts a simulator whose requests are kept; it answers those to
// another path as if they were for at, unless at is empty.
func overhear(t *testing.T, at string, change func(*mockserver.Config)) (*overheard, string) {
	o := &overheard{}
	_, url := simulator(t, change, func(sim *mockserver.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				text, err := io.ReadAll(r.Body)
				var body map[string]json.RawMessage
				if err == nil && len(text) > 0 {
					err = json.Unmarshal(text, &body)
				}
				if err != nil {
					t.Errorf("POST %s: %v", r.URL, err)
				}
				o.mu.Lock()
				o.paths, o.posts = append(o.paths, r.URL.RequestURI()), append(o.posts, body)
				o.mu.Unlock()
				r.Body = io.NopCloser(bytes.NewReader(text))
				if at != "" {
					r.URL.Path = at
				}
			}
			sim.ServeHTTP(w, r)
		})
	})
	return o, url
}

// shortRun makes a run, whose numbers do not matter.
func shortRun(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	args = append([]string{"run", "--artifact-dir", filepath.Join(t.TempDir(), "run"), "--ui", "none", "--isl", "16", "--osl", "4", "--request-count", "2"}, args...)
	code, stdout, stderr := program("", args...)
	if code != exitOK && code != exitInvalid { // which a busy machine can make of it
		t.Fatalf("%v: exit code = %d, stderr: %s", args, code, stderr)
	}
	return stdout, stderr
}

// TestDialectWithoutPreflight: a dialect that the user names decides the bodies,
// whether or not the server is asked anything.
func TestDialectWithoutPreflight(t *testing.T) {
	for dialect, want := range map[string]map[string]bool{
		"ollama":             {"max_tokens": true, "max_completion_tokens": false, "stream_options": true},
		"transformers-serve": {"max_tokens": true, "max_completion_tokens": false, "stream_options": false},
		"openai":             {"max_tokens": false, "max_completion_tokens": true, "stream_options": true},
		"":                   {"max_tokens": false, "max_completion_tokens": true, "stream_options": true}, // as AIPerf
	} {
		heard, url := overhear(t, "", nil)
		shortRun(t, "--url", url, "--preflight=false", "--dialect", dialect)
		if len(heard.posts) != 2 {
			t.Errorf("%s: %d requests, want 2", dialect, len(heard.posts))
		}
		for _, body := range heard.posts {
			for field, has := range want {
				if (body[field] != nil) != has {
					t.Errorf("dialect %q: %s sent: %v, want %v", dialect, field, !has, has)
				}
			}
		}
	}
}

// TestCacheResetThatDoesNothing: a server that accepts a reset and keeps its
// cache, as vLLM may, is not measured.
func TestCacheResetThatDoesNothing(t *testing.T) {
	_, url := simulator(t, nil, func(sim *mockserver.Server) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/reset_prefix_cache" {
				sim.ServeHTTP(w, r)
			}
		})
	})
	dir := filepath.Join(t.TempDir(), "run")
	code, _, stderr := program("", "run", "--url", url, "--cache-reset", "--osl", "4", "--artifact-dir", dir, "--ui", "none")
	if code != exitFailed || !strings.Contains(stderr, "the server accepted it, but") {
		t.Errorf("exit code = %d, stderr: %s", code, stderr)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("there is a run directory")
	}
}

// TestWholeEndpoint: a URL whose path is an endpoint's is taken as it is, with
// its query, and its path says the type; Azure's has a deployment in it.
func TestWholeEndpoint(t *testing.T) {
	for _, c := range []struct{ given, of, want string }{
		{"http://h/openai/deployments/d/chat/completions?api-version=2024-10-21", "chat", "http://h/openai/deployments/d/chat/completions?api-version=2024-10-21"},
		{"http://h/openai/deployments/d/completions?api-version=1", "completions", "http://h/openai/deployments/d/completions?api-version=1"},
		{"http://h/openai/deployments/d/embeddings", "embeddings", "http://h/openai/deployments/d/embeddings"},
		{"http://h/openai/v1/responses/", "responses", "http://h/openai/v1/responses"},
		{"http://h/v1/chat/completions", "chat", "http://h/v1/chat/completions"},
		{"h:1/gateway", "chat", "http://h:1/gateway/v1/chat/completions"},
		{"h:1/gateway/v1", "chat", "http://h:1/gateway/v1/chat/completions"},
		{"h:1/my-responses", "chat", "http://h:1/my-responses/v1/chat/completions"},
	} {
		o := &options{}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.bind(fs)
		if err := fs.Set("url", c.given); err != nil {
			t.Fatal(err)
		}
		o.complete(fs, func(string) string { return "" })
		if got, err := o.endpointURL(); err != nil || got.String() != c.want || o.endpointType != c.of {
			t.Errorf("%s: %v of %s, %v; want %s of %s", c.given, got, o.endpointType, err, c.want, c.of)
		}
	}
	const path = "/openai/deployments/d/chat/completions?api-version=2024-10-21"
	heard, url := overhear(t, "/v1/chat/completions", nil)
	shortRun(t, "--url", url+path)
	for _, got := range heard.paths {
		if got != path {
			t.Errorf("POST %s, want %s", got, path)
		}
	}
	if code, _, stderr := program("", "run", "--url", url+path, "--endpoint-type", "completions"); code != exitUsage || !strings.Contains(stderr, "is the endpoint of chat") {
		t.Errorf("exit code = %d, stderr: %s", code, stderr)
	}
}

// TestResponseFormatFields: a schema goes where the endpoint and the dialect
// look for it.
func TestResponseFormatFields(t *testing.T) {
	const schema = repository + "/examples/servers/answer.json"
	for _, c := range []struct{ endpoint, dialect, field, kind string }{
		{"chat", "vllm", "response_format", `"json_schema"`},
		{"chat", "tgi", "response_format", `"json"`},
		{"responses", "vllm", "text", ""},
	} {
		heard, url := overhear(t, "", nil)
		shortRun(t, "--url", url, "--preflight=false", "--endpoint-type", c.endpoint, "--dialect", c.dialect, "--response-format", schema)
		for _, body := range heard.posts {
			var v struct {
				Type   json.RawMessage `json:"type"`
				Format struct {
					Type, Name string
					Schema     json.RawMessage
					Strict     bool
				} `json:"format"`
			}
			if err := json.Unmarshal(body[c.field], &v); err != nil || string(v.Type) != c.kind {
				t.Errorf("%s, %s: %s is %s, %v", c.endpoint, c.dialect, c.field, body[c.field], err)
			}
			if f := v.Format; c.endpoint == "responses" && (f.Type != "json_schema" || f.Name == "" || !f.Strict || len(f.Schema) == 0 || body["response_format"] != nil) {
				t.Errorf("%s: %s", c.endpoint, body[c.field])
			}
		}
	}
	if code, _, stderr := program("", "run", "--simulate", "--response-format", schema, "--extra-inputs", `{"response_format":{"type":"text"}}`); code != exitUsage || !strings.Contains(stderr, "leave one of them out") {
		t.Errorf("exit code = %d, stderr: %s", code, stderr)
	}
}
