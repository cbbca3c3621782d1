package mockserver

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

func TestLengthsAndFinishReasons(t *testing.T) {
	msg := `"messages":[{"role":"user","content":"Say something."}]`
	for _, c := range []struct {
		name, body string
		finish     string
		least      int // completion tokens
		most       int
	}{
		{"limit", msg + `,"max_tokens":7,"ignore_eos":true`, "length", 7, 7},
		{"newer name of the limit", msg + `,"max_completion_tokens":7,"ignore_eos":true`, "length", 7, 7},
		{"one token", msg + `,"max_tokens":1`, "length", 1, 1},
		{"natural end", msg, "stop", 2, 5000},
		{"least", msg + `,"min_tokens":3000`, "stop", 3001, 3001},
		{"least and most", msg + `,"min_tokens":9,"max_tokens":9`, "length", 9, 9},
		{"up to the context", msg + `,"ignore_eos":true`, "length", 4096 - 11, 4096 - 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := exact()
				cfg.MaxModelLen = 4096
				l := newLab(t, cfg)
				s := l.mustOK(l.ask(`{"stream":true,"stream_options":{"include_usage":true},` + c.body + `}`))
				d := l.mustOK(l.ask(`{` + c.body + `}`))
				for _, a := range []answer{s, d} {
					n := a.usage.Completion
					if a.finish[0] != c.finish || n < c.least || n > c.most {
						t.Errorf("finish %q after %d tokens, want %q after %d to %d", a.finish[0], n, c.finish, c.least, c.most)
					}
					visible := n
					if c.finish == "stop" {
						visible-- // the end token is counted, and does not show
					}
					if got := CountTokens(a.text[0]); got != visible {
						t.Errorf("the text has %d tokens, want %d", got, visible)
					}
				}
				if s.text[0] != d.text[0] {
					t.Error("stream and document differ")
				}
				if len(s.tokenAt) != s.usage.Completion {
					t.Errorf("%d events with tokens for %d tokens", len(s.tokenAt), s.usage.Completion)
				}
			})
		})
	}
}

func TestNaturalLengthsHaveTheirMean(t *testing.T) {
	cfg := Default()
	cfg.MeanOutput = 50
	sum := 0
	const n = 20000
	for i := range n {
		o := newOutput(mix(uint64(i)), true, "", outputLimits{most: 1 << 30}, &cfg)
		if o.length < 2 || o.finish != "stop" {
			t.Fatalf("length %d, finish %q", o.length, o.finish)
		}
		sum += o.length
	}
	if mean := float64(sum) / n; mean < 49 || mean > 51 {
		t.Errorf("mean length %.2f, want 50", mean)
	}
}

func TestStopStrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		base := `"messages":[{"role":"user","content":"Say something."}],"max_tokens":60,"ignore_eos":true`
		whole := l.mustOK(l.ask(`{` + base + `}`)).text[0]
		fields := strings.Fields(whole)
		across := fields[9][len(fields[9])-1:] + " " + fields[10] // ends one token and holds the next
		at := strings.Index(whole, across)

		for _, stream := range []string{"false", "true"} {
			a := l.mustOK(l.ask(fmt.Sprintf(`{%s,"stop":[%q,"never there"],"stream":%s}`, base, across, stream)))
			if a.text[0] != whole[:at] {
				t.Errorf("stream %s: %q, want %q", stream, a.text[0], whole[:at])
			}
			if a.finish[0] != "stop" || a.stopReason != across {
				t.Errorf("stream %s: finish %q, stop reason %q", stream, a.finish[0], a.stopReason)
			}
		}
		one := l.mustOK(l.ask(fmt.Sprintf(`{%s,"stop":%q}`, base, across)))
		if got, want := one.usage.Completion, CountTokens(whole[:at+len(across)]); got != want {
			t.Errorf("%d tokens, want %d: those of the stop string count", got, want)
		}
		n := one.usage.Completion
		just := l.mustOK(l.ask(fmt.Sprintf(`{%s,"stop":%q,"min_tokens":%d}`, base, across, n)))
		if just.usage.Completion != n {
			t.Errorf("min_tokens %d, which the stop string just reaches, gave %d tokens", n, just.usage.Completion)
		}
		late := l.mustOK(l.ask(fmt.Sprintf(`{%s,"stop":%q,"min_tokens":%d}`, base, across, n+1)))
		if late.usage.Completion <= n {
			t.Errorf("stopped after %d tokens though min_tokens is %d", late.usage.Completion, n+1)
		}
	})
}

func TestSameRequestSameAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		ask := func(more string) string {
			return l.mustOK(l.ask(`{"messages":[{"role":"user","content":"Say something."}],"max_tokens":30` + more + `}`)).text[0]
		}
		greedy := ask("")
		for _, more := range []string{"", `,"temperature":0`, `,"cache_salt":"x"`, `,"user":"me"`, `,"stream":true`} {
			if ask(more) != greedy {
				t.Errorf("%q changes the answer", more)
			}
		}
		if a, b := ask(`,"temperature":1`), ask(`,"temperature":1`); a == b {
			t.Error("two draws at temperature 1 are equal")
		}
		if a, b := ask(`,"temperature":1,"seed":7`), ask(`,"temperature":1,"seed":7`); a != b || a == greedy {
			t.Error("the request's seed does not rule the answer")
		}
		other := exact()
		other.Seed = 2
		l = newLab(t, other)
		if ask("") == greedy {
			t.Error("the server's seed does not matter")
		}
	})
}

func TestCompletions(t *testing.T) {
	for _, c := range []struct {
		name, prompt string
		tokens       int
	}{
		{"text", `"one two three"`, 3},
		{"list of one text", `["one two three"]`, 3},
		{"token ids", `[101, 102, 103, 104]`, 4},
		{"list of token ids", `[[101, 102, 103, 104]]`, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, exact())
				a := l.mustOK(l.askAt("/v1/completions", `{"prompt":`+c.prompt+`,"stream":true,"ignore_eos":true,"stream_options":{"include_usage":true}}`))
				if a.usage.Prompt != c.tokens || a.usage.Completion != 16 {
					t.Errorf("usage %+v, want %d prompt tokens and the default of 16", *a.usage, c.tokens)
				}
				if n := len(a.events); n != 16+2 { // no role event
					t.Errorf("%d events", n)
				}
				if !a.done || CountTokens(a.text[0]) != 16 {
					t.Errorf("done %v, text %q", a.done, a.text[0])
				}
				d := l.mustOK(l.askAt("/v1/completions", `{"prompt":`+c.prompt+`,"ignore_eos":true}`))
				if d.text[0] != a.text[0] {
					t.Error("stream and document differ")
				}
			})
		})
	}
}

func TestContinuousUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.DraftTokens = 3
		l := newLab(t, cfg)
		a := l.mustOK(l.ask(`{"messages":[{"role":"user","content":"Go."}],"max_tokens":40,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`))
		var got, want []int
		for _, e := range a.events[1 : len(a.events)-2] {
			got = append(got, l.decode(e.data).Usage.Completion)
		}
		sum := 0
		for _, c := range l.srv.Truth()[0].Events {
			sum += int(c.Tokens)
			want = append(want, sum)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if first := l.decode(a.events[0].data).Usage; first.Completion != 0 || first.Prompt != 9 {
			t.Errorf("the role event's usage: %+v", *first)
		}
		for _, options := range []string{"", `,"stream_options":{}`, `,"stream_options":{"continuous_usage_stats":true}`} {
			plain := l.mustOK(l.ask(`{"messages":[{"role":"user","content":"Go."}],"max_tokens":4,"stream":true` + options + `}`))
			if plain.usage != nil {
				t.Errorf("%s: usage came without being asked for", options)
			}
		}
	})
}

func TestReasoning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.ReasoningShare, cfg.ReasoningTokens = 1, 10
		cfg.DraftTokens = 4 // events across the boundary
		l := newLab(t, cfg)
		body := `"messages":[{"role":"user","content":"Think."}],"max_tokens":25,"ignore_eos":true`
		s := l.mustOK(l.ask(`{` + body + `,"stream":true,"stream_options":{"include_usage":true}}`))
		d := l.mustOK(l.ask(`{` + body + `}`))
		for _, a := range []answer{s, d} {
			if CountTokens(a.reasoning[0]) != 10 || CountTokens(a.text[0]) != 15 {
				t.Errorf("reasoning %q, text %q", a.reasoning[0], a.text[0])
			}
			if a.usage.CompletionD.Reasoning != 10 || a.usage.Completion != 25 {
				t.Errorf("usage %+v", *a.usage)
			}
		}
		if tr := l.srv.Truth()[0]; tr.ReasoningTokens != 10 || tr.OutputTokens != 25 {
			t.Errorf("truth: %d reasoning of %d tokens", tr.ReasoningTokens, tr.OutputTokens)
		}
		short := l.mustOK(l.ask(`{"messages":[{"role":"user","content":"Think."}],"max_tokens":6}`))
		if short.text[0] != "" || short.usage.CompletionD.Reasoning != 6 || short.finish[0] != "length" {
			t.Errorf("cut in the reasoning: text %q, usage %+v", short.text[0], *short.usage)
		}
	})
}

func TestToolCalls(t *testing.T) {
	const tools = `,"tools":[{"type":"function","function":{"name":"find \"it\""}},{"type":"function","function":{"name":"other"}}]`
	for _, c := range []struct{ name, more, tool string }{
		{"first tool", tools, `find "it"`},
		{"required", tools + `,"tool_choice":"required"`, `find "it"`},
		{"named", tools + `,"tool_choice":{"type":"function","function":{"name":"other"}}`, "other"},
		{"none", tools + `,"tool_choice":"none"`, ""},
	} {
		for _, drafts := range []int{0, 4} {
			t.Run(fmt.Sprintf("%s/%d", c.name, drafts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := exact()
					cfg.DraftTokens = drafts
					cfg.MeanOutput = 2 + 3*drafts // at its least the call must be whole too
					l := newLab(t, cfg)
					body := `"messages":[{"role":"user","content":"Look."}]` + c.more
					s := l.mustOK(l.ask(`{` + body + `,"stream":true,"stream_options":{"include_usage":true}}`))
					d := l.mustOK(l.ask(`{` + body + `}`))
					for _, a := range []answer{s, d} {
						if a.tool != c.tool {
							t.Errorf("called %q, want %q", a.tool, c.tool)
						}
						if c.tool == "" {
							if a.text[0] == "" || a.finish[0] != "stop" {
								t.Errorf("text %q, finish %q", a.text[0], a.finish[0])
							}
							continue
						}
						if !strings.HasPrefix(a.args, `{"query": "`) || !strings.HasSuffix(a.args, `"}`) {
							t.Errorf("arguments %q", a.args)
						}
						if a.finish[0] != "tool_calls" || a.text[0] != "" {
							t.Errorf("finish %q, text %q", a.finish[0], a.text[0])
						}
					}
					if s.args != d.args || s.usage.Completion != d.usage.Completion {
						t.Error("stream and document differ")
					}
				})
			})
		}
	}
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.MaxModelLen = 100
		cfg.RejectFields = []string{"ignore_eos"}
		l := newLab(t, cfg)
		chat, text := "/v1/chat/completions", "/v1/completions"
		hi := `"messages":[{"role":"user","content":"Hi."}]`
		for _, c := range []struct {
			name, path, body string
			status           int
			param, message   string
		}{
			{"other model", chat, `{"model":"other",` + hi + `}`, 404, "model", "The model `other` does not exist."},
			{"no JSON", chat, `{`, 400, "", "unexpected end"},
			{"wrong type", chat, `{"max_tokens":"many",` + hi + `}`, 400, "", "max_tokens"},
			{"no messages", chat, `{}`, 400, "messages", "empty"},
			{"no prompt", text, `{}`, 400, "prompt", "empty"},
			{"two prompts", text, `{"prompt":["a","b"]}`, 400, "", "one prompt"},
			{"no room", chat, `{"max_tokens":100,` + hi + `}`, 400, "", "maximum context length is 100 tokens"},
			{"prompt fills the context", chat, `{"messages":[{"role":"user","content":"` + textOf(93, "x") + `"}]}`, 400, "", "maximum context length"},
			{"zero tokens", chat, `{"max_tokens":0,` + hi + `}`, 400, "max_tokens", "at least 1"},
			{"least above most", chat, `{"max_tokens":2,"min_tokens":3,` + hi + `}`, 400, "min_tokens", "min_tokens"},
			{"no choices", chat, `{"n":0,` + hi + `}`, 400, "n", "n must be"},
			{"too many choices", chat, `{"n":65,` + hi + `}`, 400, "n", "n must be"},
			{"options without stream", chat, `{"stream_options":{},` + hi + `}`, 400, "stream_options", "stream"},
			{"rejected field", chat, `{"ignore_eos":true,` + hi + `}`, 400, "ignore_eos", "ignore_eos"},
		} {
			r := l.post(t.Context(), c.path, c.name, c.body)
			e := l.decode(r.body).Error
			if e == nil {
				t.Errorf("%s: no error in %q", c.name, r.body)
				continue
			}
			param := ""
			if e.Param != nil {
				param = *e.Param
			}
			if r.status != c.status || e.Code != c.status || param != c.param || !strings.Contains(e.Message, c.message) {
				t.Errorf("%s: status %d, code %d, param %q, message %q", c.name, r.status, e.Code, param, e.Message)
			}
			truth := l.srv.Truth()
			last := truth[len(truth)-1]
			if last.RequestID != c.name || last.Status != c.status || last.Admitted.IsSet() || last.OutputTokens.IsKnown() {
				t.Errorf("%s: truth %+v", c.name, last)
			}
		}
		if a := l.ask(`{"model":"tokmark-sim","logprobs":true,"made_up":1,"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"text","text":" you"}]}]}`); a.status != 200 || a.usage.Prompt != 9 {
			t.Errorf("unknown fields and text parts: status %d, %s", a.status, a.body)
		}
	})
}

func TestPlainEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		for _, c := range []struct {
			path   string
			status int
			body   string
		}{
			{"/health", 200, ""},
			{"/version", 200, `{"version":"0.0.0+tokmark.simulator"}`},
			{"/v1/chat/completions", 405, "Method Not Allowed"},
			{"/nowhere", 404, "not found"},
			{"/v1/models", 200, `"max_model_len":32768,"object":"model","owned_by":"vllm","parent":null,"root":"tokmark-sim"`},
		} {
			resp, err := l.client.Get(l.url + c.path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != c.status || !strings.Contains(string(b), c.body) {
				t.Errorf("%s: status %d, %v, %s", c.path, resp.StatusCode, err, b)
			}
			if resp.Header.Get("Server") != "tokmark-simulator" {
				t.Errorf("%s does not say that it is a simulator", c.path)
			}
		}
	})
	var _ http.Handler = (*Server)(nil)
}
