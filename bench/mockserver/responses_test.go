package mockserver

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// responseEvent is what the tests read of an event, or of a whole answer.
type responseEvent struct {
	Type     string       `json:"type"`
	Number   int          `json:"sequence_number"`
	Delta    string       `json:"delta"`
	Response responseBody `json:"response"`
}

type responseBody struct {
	ID, Object, Status string
	Incomplete         *struct{ Reason string } `json:"incomplete_details"`
	Error              *struct{ Message string }
	Output             []struct {
		Type, Name, Arguments string
		Content               []struct{ Type, Text string }
	}
	Usage *struct {
		Input   int `json:"input_tokens"`
		Output  int `json:"output_tokens"`
		Total   int `json:"total_tokens"`
		Details struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	}
}

// responseStream is a stream of responses: its deltas joined by type, and when
// each came.
func responseStream(t *testing.T, r reply) (events []responseEvent, text map[string]string, at []time.Duration) {
	t.Helper()
	text = map[string]string{}
	for i, e := range r.events {
		var v responseEvent
		if err := json.Unmarshal([]byte(e.data), &v); err != nil {
			t.Fatalf("%v in %s", err, e.data)
		}
		if v.Number != i {
			t.Errorf("event %d has the number %d", i, v.Number)
		}
		if strings.HasSuffix(v.Type, ".delta") {
			text[v.Type] += v.Delta
			at = append(at, e.at)
		}
		events = append(events, v)
	}
	return events, text, at
}

// The same question gives the same tokens at the same times as a chat.
func TestResponsesAreChats(t *testing.T) {
	for name, setup := range map[string]func(*Config){
		"text":      func(*Config) {},
		"reasoning": func(c *Config) { c.ReasoningShare, c.ReasoningTokens = 1, 5 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := exact()
				cfg.PrefixCache = false
				setup(&cfg)
				l := newLab(t, cfg)
				chat := l.mustOK(l.ask(`{"messages":[{"role":"user","content":"Say it."}],"max_tokens":12,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`))
				for _, input := range []string{`"Say it."`, `[{"role":"user","content":"Say it."}]`, `[{"role":"user","content":[{"type":"input_text","text":"Say it."}]}]`} {
					body := `{"input":` + input + `,"max_output_tokens":12,"ignore_eos":true`
					r := l.post(context.Background(), "/v1/responses", "", body+`,"stream":true}`)
					events, text, at := responseStream(t, r)
					if text["response.output_text.delta"] != chat.text[0] || text["response.reasoning_text.delta"] != chat.reasoning[0] {
						t.Errorf("%v, want %q and %q", text, chat.text[0], chat.reasoning[0])
					}
					if !slices.Equal(at, chat.textAt) {
						t.Errorf("times %v, want %v", at, chat.textAt)
					}
					first, last := events[0], events[len(events)-1]
					if first.Type != "response.created" || last.Type != "response.incomplete" || last.Response.Incomplete.Reason != "max_output_tokens" {
						t.Errorf("from %s to %+v", first.Type, last)
					}
					u := last.Response.Usage
					if u.Input != chat.usage.Prompt || u.Output != 12 || u.Details.Reasoning != chat.usage.CompletionD.Reasoning || u.Total != u.Input+12 {
						t.Errorf("usage %+v, want as %+v", u, chat.usage)
					}
					whole := l.post(context.Background(), "/v1/responses", "", body+`}`)
					var doc responseBody
					if err := json.Unmarshal([]byte(whole.body), &doc); err != nil {
						t.Fatal(err)
					}
					message := doc.Output[len(doc.Output)-1]
					if doc.Status != "incomplete" || message.Type != "message" || message.Content[0].Text != chat.text[0] || *doc.Usage != *u {
						t.Errorf("whole answer %s", whole.body)
					}
				}
			})
		})
	}
}

func TestResponsesEndAndFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		events, _, _ := responseStream(t, l.post(context.Background(), "/v1/responses", "", `{"input":"a","stream":true}`))
		if last := events[len(events)-1]; last.Type != "response.completed" || last.Response.Status != "completed" || last.Response.Incomplete != nil {
			t.Errorf("the end of its own: %+v", last)
		}
		tool := `{"input":"a","stream":true,"tools":[{"type":"function","function":{"name":"look"}}]}`
		_, text, _ := responseStream(t, l.post(context.Background(), "/v1/responses", "", tool))
		if !json.Valid([]byte(text["response.function_call_arguments.delta"])) {
			t.Errorf("arguments %v", text)
		}
		for _, body := range []string{`{}`, `{"input":7}`, `{"input":[]}`, `{"input":"a","max_output_tokens":0}`} {
			if r := l.post(context.Background(), "/v1/responses", "", body); r.status != 400 {
				t.Errorf("%s: status %d", body, r.status)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.Faults.StreamError = 1
		l := newLab(t, cfg)
		events, _, _ := responseStream(t, l.post(context.Background(), "/v1/responses", "", `{"input":"a","stream":true}`))
		if last := events[len(events)-1]; last.Type != "response.failed" || last.Response.Error == nil {
			t.Errorf("%+v", last)
		}
	})
}

func TestEmbeddings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.PrefixCache = false
		l := newLab(t, cfg)
		ask := func(body string) (vector []float64) {
			t.Helper()
			start := time.Now()
			r := l.post(context.Background(), "/v1/embeddings", "", body)
			var doc struct {
				Data  []struct{ Embedding []float64 }
				Usage struct {
					Prompt int `json:"prompt_tokens"`
					Total  int `json:"total_tokens"`
				}
			}
			if err := json.Unmarshal([]byte(r.body), &doc); err != nil {
				t.Fatalf("%v in %s", err, r.body)
			}
			// Nothing is generated: the time is that of the prompt.
			if took := time.Since(start); took != cfg.PrefillBase+3*cfg.PrefillPerToken {
				t.Errorf("%s took %v", body, took)
			}
			if doc.Usage.Prompt != 3 || doc.Usage.Total != 3 {
				t.Errorf("usage %+v", doc.Usage)
			}
			return doc.Data[0].Embedding
		}
		one, again, other := ask(`{"input":"the of and"}`), ask(`{"input":["the of and"],"stream":true}`), ask(`{"input":"the of to"}`)
		if len(one) != vectorLength || !slices.Equal(one, again) || slices.Equal(one, other) {
			t.Errorf("vectors %v, %v, %v", one, again, other)
		}
		if r := l.post(context.Background(), "/v1/embeddings", "", `{"input":""}`); r.status != 400 {
			t.Errorf("no input: status %d", r.status)
		}
	})
}
