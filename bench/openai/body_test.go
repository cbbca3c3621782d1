package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/workloads"
)

type raw = map[string]json.RawMessage

func TestPath(t *testing.T) {
	for typ, want := range map[EndpointType]string{Chat: "/v1/chat/completions", Completions: "/v1/completions", "x": ""} {
		if got := typ.Path(); got != want {
			t.Errorf("%s: %q, want %q", typ, got, want)
		}
	}
}

func TestBody(t *testing.T) {
	chat := workloads.Request{Messages: []workloads.Message{{Role: "system", Content: "be <brief>"}, {Role: "user", Content: "a\n\"é\" & b"}}, OutputTokens: 5}
	prompt := workloads.Request{Prompt: "once", OutputTokens: 5}
	tests := []struct {
		name string
		typ  EndpointType
		req  workloads.Request
		opt  BodyOptions
		want string
		err  string
	}{
		{"chat", Chat, chat, BodyOptions{Model: "m", Stream: true, IncludeUsage: true},
			`{"model":"m","messages":[{"role":"system","content":"be <brief>"},{"role":"user","content":"a\n\"é\" & b"}],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":5}`, ""},
		{"completions", Completions, prompt, BodyOptions{Model: "m", Stream: true, IncludeUsage: true, ContinuousUsage: true},
			`{"model":"m","prompt":"once","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":5}`, ""},
		{"usage is asked for only in a stream", Completions, prompt, BodyOptions{Model: "m", IncludeUsage: true, ContinuousUsage: true}, `{"model":"m","prompt":"once","max_tokens":5}`, ""},
		{"no usage", Completions, prompt, BodyOptions{Model: "m", Stream: true}, `{"model":"m","prompt":"once","stream":true,"max_tokens":5}`, ""},
		{"limit by another name", Chat, prompt, BodyOptions{MaxTokensField: "max_tokens"}, `{"messages":[{"role":"user","content":"once"}],"max_tokens":5}`, ""},
		{"no limit", Completions, workloads.Request{Prompt: "p"}, BodyOptions{}, `{"prompt":"p"}`, ""},
		{"model of the request", Completions, workloads.Request{Prompt: "p", Model: "own"}, BodyOptions{Model: "m"}, `{"model":"own","prompt":"p"}`, ""},
		{"extra is sorted", Completions, workloads.Request{Prompt: "p", Extra: raw{"seed": raw1("1"), "b": raw1("2")}}, BodyOptions{Extra: raw{"b": raw1("3"), "a": raw1(`{"x":[1]}`)}},
			`{"prompt":"p","a":{"x":[1]},"b":3,"seed":1}`, ""},
		{"extra wins", Completions, prompt, BodyOptions{Model: "m", Stream: true, IncludeUsage: true, Extra: raw{"model": raw1(`"x"`), "stream_options": raw1("null"), "prompt": raw1(`[1,2]`)}},
			`{"stream":true,"max_tokens":5,"model":"x","prompt":[1,2],"stream_options":null}`, ""},
		{"an extra limit wins under either name", Chat, chat1(), BodyOptions{Extra: raw{"max_tokens": raw1("9")}}, `{"messages":[{"role":"user","content":"q"}],"max_tokens":9}`, ""},
		{"one message is a prompt", Completions, chat1(), BodyOptions{}, `{"prompt":"q","max_tokens":5}`, ""},
		{"own body", Chat, workloads.Request{Body: raw1(`{ "a" : 1}`), Prompt: "p"}, BodyOptions{Model: "m", Extra: raw{"a": raw1("2")}}, `{ "a" : 1}`, ""},
		{"extra messages are enough", Chat, workloads.Request{}, BodyOptions{Extra: raw{"messages": raw1("[]")}}, `{"messages":[]}`, ""},
		{"several messages", Completions, chat, BodyOptions{}, "", "2 messages"},
		{"nothing asked", Chat, workloads.Request{}, BodyOptions{Model: "m"}, "", "neither messages nor a prompt"},
		{"no prompt", Completions, workloads.Request{}, BodyOptions{}, "", "neither messages nor a prompt"},
		{"bad extra", Chat, chat, BodyOptions{Extra: raw{"top_k": raw1("{")}}, "", `"top_k"`},
		{"unknown type", "images", chat, BodyOptions{}, "", `"images"`},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			got, err := Body(c.typ, c.req, c.opt)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%s, error %v; want an error that says %s", got, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func raw1(s string) json.RawMessage { return json.RawMessage(s) }

func chat1() workloads.Request {
	return workloads.Request{Messages: []workloads.Message{{Role: "user", Content: "q"}}, OutputTokens: 5}
}

// Any request gives valid JSON, with every field once, equal bytes each time,
// and the content that went in; and it leaves its arguments alone.
func TestBodyProperties(t *testing.T) {
	values := rapid.SampledFrom([]string{"1", "null", `"x"`, `{"a":[true]}`, " 2 "})
	names := rapid.SampledFrom([]string{"model", "messages", "stream", "seed", "stream_options", "max_tokens", "max_completion_tokens", "z\"", ""})
	extras := rapid.Custom(func(t *rapid.T) raw {
		m := raw{}
		for _, n := range rapid.SliceOfN(names, 0, 4).Draw(t, "names") {
			m[n] = raw1(values.Draw(t, "value"))
		}
		return m
	})
	rapid.Check(t, func(rt *rapid.T) {
		req := workloads.Request{OutputTokens: rapid.IntRange(0, 9).Draw(rt, "limit"), Extra: extras.Draw(rt, "own")}
		for range rapid.IntRange(1, 3).Draw(rt, "messages") {
			req.Messages = append(req.Messages, workloads.Message{Role: "user", Content: rapid.String().Draw(rt, "content")})
		}
		opt := BodyOptions{
			Model: rapid.String().Draw(rt, "model"), Stream: rapid.Bool().Draw(rt, "stream"),
			IncludeUsage: rapid.Bool().Draw(rt, "usage"), Extra: extras.Draw(rt, "extra"),
		}
		before := maps.Clone(req.Extra)
		got, err := Body(Chat, req, opt)
		if err != nil {
			rt.Fatal(err)
		}
		for range 5 { // maps come in a new order each time
			if again, _ := Body(Chat, req, opt); !bytes.Equal(got, again) {
				rt.Fatalf("two calls differ:\n%s\n%s", got, again)
			}
		}
		if diff := cmp.Diff(before, req.Extra); diff != "" {
			rt.Fatalf("the request was changed:\n%s", diff)
		}
		if !json.Valid(got) || odd(got) {
			rt.Fatalf("not JSON, or a field twice: %s", got)
		}
		var v raw
		if err := json.Unmarshal(got, &v); err != nil {
			rt.Fatal(err)
		}
		for name, want := range opt.Extra {
			if string(bytes.TrimSpace(want)) != string(v[name]) {
				rt.Fatalf("extra %s: %s, want %s", name, v[name], want)
			}
		}
		both := maps.Clone(req.Extra)
		maps.Copy(both, opt.Extra)
		if _, taken := both["messages"]; !taken {
			var messages []workloads.Message
			if err := json.Unmarshal(v["messages"], &messages); err != nil || !slices.Equal(messages, req.Messages) {
				rt.Fatalf("messages %v, want %v (%v)", messages, req.Messages, err)
			}
		}
	})
}

func FuzzBody(f *testing.F) {
	f.Add("m", "user", "hello <b> \u2028 \x00", "top_k", []byte("1"), true, 5)
	f.Add("", "", "", "stream", []byte("{"), false, 0)
	f.Fuzz(func(t *testing.T, model, role, content, name string, value []byte, stream bool, limit int) {
		req := workloads.Request{Messages: []workloads.Message{{Role: role, Content: content}}, OutputTokens: limit}
		opt := BodyOptions{Model: model, Stream: stream, ContinuousUsage: true, Extra: raw{name: value}}
		got, err := Body(Chat, req, opt)
		if (err == nil) != json.Valid(value) {
			t.Fatalf("error %v, extra field %q", err, value)
		}
		if err == nil && !json.Valid(got) {
			t.Fatalf("not JSON: %s", got)
		}
	})
}
