package target

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/workloads"
)

// refuser is a server that refuses fields in its own words.
type refuser struct {
	fields []string // in the order in which it complains
	words  func(field string) string
	status int
	bodies []map[string]json.RawMessage
	tokens record.Count // of an answer
}

func (f *refuser) send(_ context.Context, body []byte) *record.Record {
	var got map[string]json.RawMessage
	if err := json.Unmarshal(body, &got); err != nil {
		panic(err)
	}
	f.bodies = append(f.bodies, got)
	r := record.New(record.PhaseWarmup, 0)
	r.Tokens.Output = f.tokens
	for _, name := range f.fields {
		if _, ok := got[name]; !ok {
			continue
		}
		r.Status = f.status
		o, failure := openai.HTTPFailure(f.status, nil, []byte(f.words(name)))
		r.Fail(o, failure)
		return r
	}
	r.Status, r.Outcome = http.StatusOK, record.OK
	return r
}

func fastAPI(field string) string {
	return `{"detail":[{"type":"extra_forbidden","loc":["body","` + field + `"],"msg":"Extra inputs are not permitted"}]}`
}

func inWords(field string) string {
	return `{"error":"Unsupported field: '` + field + `'"}`
}

func silent(string) string { return `{"error":"Bad Request"}` }

// names returns the fields of a body.
func names(body map[string]json.RawMessage) []string {
	var out []string
	for _, n := range []string{"stream_options", "max_completion_tokens", "max_tokens", "ignore_eos", "min_tokens", "top_k", "cache_salt"} {
		if _, ok := body[n]; ok {
			out = append(out, n)
		}
	}
	return out
}

func TestPreflight(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, c := range []struct {
		name    string
		server  refuser
		want    []string // fields of the last body
		dropped []string
		sent    int
	}{
		{"all accepted", refuser{}, []string{"stream_options", "max_completion_tokens", "ignore_eos", "min_tokens", "top_k"}, nil, 1},
		{
			"one extra, named in its place",
			refuser{fields: []string{"min_tokens"}, words: fastAPI, status: 422},
			[]string{"stream_options", "max_completion_tokens", "ignore_eos", "top_k"},
			[]string{"min_tokens"}, 2,
		},
		{
			"two extras, one at a time",
			refuser{fields: []string{"top_k", "ignore_eos"}, words: inWords, status: 400},
			[]string{"stream_options", "max_completion_tokens", "min_tokens"},
			[]string{"top_k", "ignore_eos"}, 3,
		},
		{
			"as transformers serve does",
			refuser{fields: []string{"stream_options", "max_completion_tokens", "ignore_eos", "min_tokens", "top_k"}, words: inWords, status: 422},
			[]string{"max_tokens"},
			[]string{"stream_options", "max_completion_tokens", "ignore_eos", "min_tokens", "top_k"}, 6,
		},
		{
			"the limit's name only",
			refuser{fields: []string{"max_completion_tokens"}, words: fastAPI, status: 400},
			[]string{"stream_options", "max_tokens", "ignore_eos", "min_tokens", "top_k"},
			[]string{"max_completion_tokens"}, 2,
		},
		{
			"no field is named: extras first, all at once",
			refuser{fields: []string{"top_k"}, words: silent, status: 400},
			[]string{"stream_options", "max_completion_tokens"},
			[]string{"ignore_eos", "min_tokens", "top_k"}, 2,
		},
		{
			"no field is named: then stream_options, then the limit",
			refuser{fields: []string{"stream_options", "max_completion_tokens"}, words: silent, status: 400},
			[]string{"max_tokens"},
			[]string{"ignore_eos", "min_tokens", "top_k", "stream_options", "max_completion_tokens"}, 4,
		},
		{
			"names something that was not sent",
			refuser{fields: []string{"top_k"}, words: func(string) string { return inWords("logprobs") }, status: 400},
			[]string{"stream_options", "max_completion_tokens"},
			[]string{"ignore_eos", "min_tokens", "top_k"}, 2,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := workloads.Request{Prompt: "x", OutputTokens: 5, Extra: map[string]json.RawMessage{"ignore_eos": raw("true"), "min_tokens": raw("5")}}
			body := openai.BodyOptions{Model: "m", Stream: true, IncludeUsage: true, Extra: map[string]json.RawMessage{"top_k": raw("1")}}
			c.server.tokens = 5
			settled, err := Preflight{Type: openai.Chat, Request: req, Body: body, Send: c.server.send}.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, names(c.server.bodies[len(c.server.bodies)-1])); d != "" {
				t.Errorf("fields (-want +sent): %s", d)
			}
			var dropped []string
			for _, f := range settled.Dropped {
				dropped = append(dropped, f.Field)
				if f.Reason == "" {
					t.Errorf("%s was dropped without the server's words", f.Field)
				}
			}
			if d := cmp.Diff(c.dropped, dropped); d != "" {
				t.Errorf("dropped (-want +got): %s", d)
			}
			if len(c.server.bodies) != c.sent {
				t.Errorf("%d requests, want %d", len(c.server.bodies), c.sent)
			}
			if settled.Record.Outcome != record.OK || len(settled.Warnings) > 0 {
				t.Errorf("record %+v, warnings %v", settled.Record, settled.Warnings)
			}
			// The run's requests are what the preflight ended with.
			again, err := openai.Body(openai.Chat, settled.Without(req), settled.Body)
			if err != nil {
				t.Fatal(err)
			}
			var run map[string]json.RawMessage
			if err := json.Unmarshal(again, &run); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, names(run)); d != "" {
				t.Errorf("fields of the run (-want +got): %s", d)
			}
			if len(req.Extra) != 2 || len(body.Extra) != 1 {
				t.Error("the caller's maps were changed")
			}
		})
	}
}

func TestPreflightKeepsTheUsersLimit(t *testing.T) {
	s := refuser{fields: []string{"max_tokens", "top_k"}, words: silent, status: 400, tokens: 5}
	extra := map[string]json.RawMessage{"max_tokens": json.RawMessage("5"), "top_k": json.RawMessage("1")}
	req := workloads.Request{Prompt: "x", Extra: extra}
	settled, err := Preflight{Type: openai.Chat, Request: req, Send: s.send}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := s.bodies[len(s.bodies)-1]
	if string(last["max_completion_tokens"]) != "5" || last["max_tokens"] != nil || last["top_k"] != nil {
		t.Errorf("sent %s", last)
	}
	if got := settled.Without(req).Extra; len(got) != 1 || string(got["max_completion_tokens"]) != "5" {
		t.Errorf("the run's extra fields are %s", got)
	}
}

func TestPreflightGivesUp(t *testing.T) {
	tooLong := func(string) string {
		return `{"error":{"message":"This model's maximum context length is 100 tokens, you asked for 500 (max_tokens)."}}`
	}
	for _, c := range []struct {
		name   string
		server refuser
		want   string
		most   int
	}{
		{"a prompt that is too long", refuser{fields: []string{"messages"}, words: tooLong, status: 400}, "maximum context length", 3},
		{"a model that is not there", refuser{fields: []string{"model"}, words: silent, status: 404}, "status 404", 1},
		{"no credentials", refuser{fields: []string{"model"}, words: silent, status: 401}, "status 401", 1},
		{"overload", refuser{fields: []string{"model"}, words: silent, status: 429}, "status 429", 1},
		{"bad whatever is left out", refuser{fields: []string{"messages"}, words: silent, status: 400}, "Bad Request", 4},
		{"a raw body", refuser{fields: []string{"top_k"}, words: inWords, status: 400}, "top_k", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Preflight{
				Type: openai.Chat, Request: workloads.Request{Prompt: "x", OutputTokens: 5}, Send: c.server.send,
				Body: openai.BodyOptions{Model: "m", Stream: true, IncludeUsage: true, Extra: map[string]json.RawMessage{"top_k": json.RawMessage("1")}},
			}
			if c.name == "a raw body" {
				p.Request = workloads.Request{Body: json.RawMessage(`{"top_k":1}`)}
			}
			settled, err := p.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || len(c.server.bodies) > c.most || settled.Record == nil {
				t.Errorf("error %v after %d requests", err, len(c.server.bodies))
			}
		})
	}
}

func TestPreflightSeesWhatIsIgnored(t *testing.T) {
	ask := func(tokens record.Count, exact bool) []string {
		s := refuser{tokens: tokens}
		p := Preflight{Type: openai.Chat, Request: workloads.Request{Prompt: "x", OutputTokens: 16}, Body: openai.BodyOptions{Stream: true}, Send: s.send}
		if exact {
			p.Request.Extra = map[string]json.RawMessage{"ignore_eos": json.RawMessage("true")}
		}
		settled, err := p.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return settled.Warnings
	}
	for _, c := range []struct {
		tokens record.Count
		exact  bool
		want   string
	}{
		{16, true, ""},
		{9, false, ""}, // an answer may end by itself
		{9, true, "exactly 16"},
		{800, false, "max_completion_tokens was 16"}, // as Ollama does
		{record.Unknown, true, "no token counts"},
	} {
		got := strings.Join(ask(c.tokens, c.exact), "; ")
		if got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%d tokens, exact %v: warnings %q, want %q", c.tokens, c.exact, got, c.want)
		}
	}
}

func TestPreflightOfTheSimulator(t *testing.T) {
	cfg := mockserver.Default()
	cfg.RejectFields = []string{"max_completion_tokens", "cache_salt", "stream_options"}
	srv, err := mockserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	s := serve(t, srv)
	send := func(ctx context.Context, body []byte) *record.Record {
		r := record.New(record.PhaseWarmup, 0)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.at(openai.Chat.Path()).String(), bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.Client.Do(req)
		if err != nil {
			r.Fail(record.ConnectFailed, record.Failure{Message: err.Error()})
			return r
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		if r.Status = resp.StatusCode; r.Status != http.StatusOK {
			o, f := openai.HTTPFailure(r.Status, resp.Header, b)
			r.Fail(o, f)
			return r
		}
		r.Outcome = record.OK
		return r
	}
	d := mustBe("vllm")
	fields, err := d.Fields(Ask{Exact: 4, CacheSalt: "s"})
	if err != nil {
		t.Fatal(err)
	}
	settled, err := Preflight{
		Type: openai.Chat, Send: send,
		Request: workloads.Request{Prompt: "x", OutputTokens: 4, Extra: fields},
		Body:    openai.BodyOptions{Model: cfg.Model, Stream: true, IncludeUsage: true},
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if settled.Body.MaxTokensField != "max_tokens" || settled.Body.IncludeUsage || len(settled.Dropped) != 3 {
		t.Errorf("settled on %+v, dropped %+v", settled.Body, settled.Dropped)
	}
}

// Responses and embeddings have no stream_options and no second name of the
// limit: nothing that was not sent is said to have been dropped.
func TestPreflightOfOtherEndpoints(t *testing.T) {
	for _, of := range []openai.EndpointType{openai.Responses, openai.Embeddings} {
		for _, name := range []string{"openai", "vllm", "generic"} {
			d, err := ByName(name)
			if err != nil {
				t.Fatal(err)
			}
			sent := 0
			p := Preflight{
				Type: of, Request: workloads.Request{Prompt: "p", OutputTokens: 4},
				Body: d.Options(of, openai.BodyOptions{Model: "m", Stream: true, IncludeUsage: true}),
				Send: func(_ context.Context, body []byte) *record.Record {
					sent++
					if strings.Contains(string(body), "stream_options") || strings.Contains(string(body), `"max_tokens"`) {
						t.Errorf("%s, %s: %s", of, name, body)
					}
					r := record.New(record.PhaseWarmup, 0)
					r.Status = 400
					r.Fail(record.Rejected, record.Failure{Message: "no"})
					return r
				},
			}
			settled, err := p.Run(t.Context())
			if err == nil || sent != 1 || len(settled.Dropped) > 0 {
				t.Errorf("%s, %s: sent %d times, dropped %v, %v", of, name, sent, settled.Dropped, err)
			}
		}
	}
}
