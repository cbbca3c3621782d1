package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/sse"
)

// tick stamps the n-th read with n.
func tick() func() sse.Stamp {
	var n int64
	return func() sse.Stamp { n++; return sse.Stamp{At: n} }
}

// replay decodes a stream as an exchange does, and shows every event with data
// to seen, even those that come when the answer is complete.
func replay(t testing.TB, body io.Reader, streaming bool, seen func(e sse.Event)) (*record.Record, *sse.Reader) {
	t.Helper()
	rec := record.New(record.PhaseMeasure, 0)
	rec.Streaming, rec.Start = streaming, 0
	var a Answer
	a.Reset(rec, Chat, KeepOutput)
	d := sse.NewReader(body, tick(), 0)
	if b, err := d.Peek(); err == nil && b == '{' {
		whole, stamp, err := d.Whole(0)
		if err != nil {
			t.Fatal(err)
		}
		a.Whole(whole, record.Time(stamp.At), stamp.Lag)
		a.Close()
		return rec, d
	}
	for {
		e, err := d.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if seen != nil {
			seen(e)
		}
		if e.Unterminated {
			a.Unterminated(e.Name, e.Data, record.Time(e.At), e.Lag, e.SameRead)
		} else {
			a.Event(e.Name, e.Data, record.Time(e.At), e.Lag, e.SameRead)
		}
	}
	a.Close()
	return rec, d
}

func load(t testing.TB, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// Recorded layouts of real servers: every figure of their expected parse.
func TestWire(t *testing.T) {
	type usage struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
	}
	type expect struct {
		Comments     int             `json:"comments"`
		JSONEvents   int             `json:"json_events"`
		RoleOnly     int             `json:"role_only_events"`
		TokenEvents  int             `json:"token_events"`
		EmptyEvents  int             `json:"empty_events"`
		FirstToken   *int            `json:"first_token_event"`
		Text         string          `json:"text"`
		Reasoning    string          `json:"reasoning"`
		FinishReason *string         `json:"finish_reason"`
		Usage        *usage          `json:"usage"`
		UsageChoices *int            `json:"usage_choices"`
		TokenIDs     int             `json:"token_ids"`
		Done         bool            `json:"done"`
		Error        json.RawMessage `json:"error"`
	}
	files, _ := filepath.Glob("testdata/wire/*.sse")
	if len(files) < 25 {
		t.Fatalf("%d layouts found", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sse")
		t.Run(name, func(t *testing.T) {
			var pair struct{ Expect expect }
			load(t, strings.TrimSuffix(file, ".sse")+".json", &pair)
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			// What the product has no use for is counted here.
			var got expect
			got.Error = json.RawMessage("null")
			rec, d := replay(t, bytes.NewReader(body), true, func(e sse.Event) {
				data := bytes.TrimSpace(e.Data)
				if string(data) == "[DONE]" {
					got.Done = true
					return
				}
				var v struct {
					Error   json.RawMessage
					Usage   *usage
					XGroq   struct{ Usage *usage } `json:"x_groq"`
					Choices []struct {
						FinishReason *string `json:"finish_reason"`
						Text         string
						TokenIDs     []int `json:"token_ids"`
						OutputIDs    []int `json:"output_ids"`
						Delta        struct {
							Role, Content, Reasoning string
							ReasoningContent         string            `json:"reasoning_content"`
							ToolCalls                []json.RawMessage `json:"tool_calls"`
						}
					}
				}
				if err := json.Unmarshal(data, &v); err != nil {
					t.Fatalf("%s: %v", data, err)
				}
				place := got.JSONEvents
				got.JSONEvents++
				if v.Error != nil {
					got.Error = v.Error
					return
				}
				if v.Usage != nil || v.XGroq.Usage != nil {
					n := len(v.Choices)
					got.UsageChoices = &n
				}
				token := false
				for _, c := range v.Choices {
					got.TokenIDs += len(c.TokenIDs) + len(c.OutputIDs)
					token = token || c.Text+c.Delta.Content+c.Delta.Reasoning+c.Delta.ReasoningContent != "" ||
						len(c.TokenIDs)+len(c.OutputIDs)+len(c.Delta.ToolCalls) > 0
					switch {
					case token:
					case c.Delta.Role != "" && c.FinishReason == nil && got.TokenEvents == 0:
						got.RoleOnly++
					default:
						got.EmptyEvents++
					}
				}
				if token {
					got.TokenEvents++
					if got.FirstToken == nil {
						got.FirstToken = &place
					}
				}
			})
			if got.TokenEvents != pair.Expect.TokenEvents {
				t.Fatalf("the test itself counts %d events with tokens", got.TokenEvents)
			}

			// And this is what the product says.
			got.Comments = d.Comments()
			got.TokenEvents = len(rec.Chunks)
			got.FirstToken = nil
			if rec.FirstTokenEvent >= 0 {
				got.FirstToken = &rec.FirstTokenEvent
			}
			if len(rec.Output) > 0 {
				got.Text, got.Reasoning = rec.Output[0].Text, rec.Output[0].Reasoning
			}
			if len(rec.FinishReasons) > 0 {
				got.FinishReason = &rec.FinishReasons[0]
			}
			if rec.Usage != record.NoUsage {
				got.Usage = &usage{int64(rec.Usage.Prompt), int64(rec.Usage.Completion), int64(rec.Usage.Total)}
			}
			if got.TokenIDs > 0 {
				sum := 0
				for _, c := range rec.Chunks {
					sum += int(c.Tokens)
				}
				if sum != got.TokenIDs {
					t.Errorf("chunks have %d tokens, want %d token ids", sum, got.TokenIDs)
				}
			}
			rawJSON := cmp.Comparer(func(a, b json.RawMessage) bool {
				var x, y bytes.Buffer
				return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && x.String() == y.String()
			})
			if diff := cmp.Diff(pair.Expect, got, rawJSON); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}

			want := record.OK
			switch {
			case string(got.Error) != "null":
				want = record.StreamError
			case pair.Expect.FinishReason == nil:
				want = record.Truncated // how Ollama loses its errors
			}
			if rec.Outcome != want {
				t.Errorf("outcome %s %+v, want %s", rec.Outcome, rec.Failure, want)
			}
			missing := want == record.OK && !pair.Expect.Done
			if noted := cmp.Equal(rec.Notes, []string{NoteMissingDone}); noted != missing || !missing && rec.Notes != nil {
				t.Errorf("notes %q", rec.Notes)
			}
			if want != record.StreamError && rec.Done != pair.Expect.Done {
				t.Errorf("done %v", rec.Done)
			}
			if want == record.OK && pair.Expect.Usage != nil && rec.Tokens.Source != record.SourceUsage {
				t.Errorf("tokens from %q, want usage", rec.Tokens.Source)
			}
		})
	}
}

// cut gives the body in the pieces that a case says.
func cut(body []byte, ends []int) io.Reader {
	var parts []io.Reader
	from := 0
	for _, end := range append(ends, len(body)) {
		parts = append(parts, bytes.NewReader(body[from:end]))
		from = end
	}
	return io.MultiReader(parts...)
}

// The cases of the wire that need no clock and no connection, decoded whole, as
// they are cut, and byte by byte.
func TestCases(t *testing.T) {
	type expected struct {
		Outcome       string
		ErrorClass    *string         `json:"error_class"`
		HTTPStatus    int             `json:"http_status"`
		RetryAfter    *int            `json:"retry_after_s"`
		Message       *string         `json:"error_message_contains"`
		Events        *int            `json:"events"`
		Chunks        *int            `json:"content_chunks"`
		Partial       *int            `json:"partial_content_chunks"`
		First         *int            `json:"first_token_event"`
		FirstAnswer   *int            `json:"first_answer_event"`
		Last          *int            `json:"last_token_event"`
		Text          *string         `json:"text"`
		Reasoning     *string         `json:"reasoning_text"`
		Tools         *string         `json:"tool_arguments"`
		FinishReason  *string         `json:"finish_reason"`
		Done          *bool           `json:"done_seen"`
		Model         *string         `json:"response_model"`
		Input         *int            `json:"input_tokens"`
		OutputTokens  *int            `json:"output_tokens"`
		Cached        *int            `json:"cached_tokens"`
		ReasoningToks *int            `json:"reasoning_tokens"`
		Source        *string         `json:"output_tokens_source"`
		ByChunk       []int           `json:"tokens_by_chunk"`
		Gaps          *int            `json:"itl_samples"`
		TTFT          json.RawMessage `json:"ttft_ms"`
	}
	classes := map[record.Outcome]string{
		record.RateLimited: "rate_limited", record.Rejected: "rejected_parameter",
		record.ClientError: "http_status", record.ServerError: "http_status",
		record.ErrorBody: "error_body", record.StreamError: "in_stream_error",
		record.Truncated: "truncated_stream", record.Malformed: "malformed_event",
	}
	dirs, _ := filepath.Glob("testdata/cases/*/case.json")
	if len(dirs) < 20 {
		t.Fatalf("%d cases found", len(dirs))
	}
	for _, path := range dirs {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var c struct {
				Server struct {
					Responses []struct {
						Status  int
						Headers map[string]string
						Body    string
						Chunks  []struct{ Upto int }
					}
				}
				Run    struct{ Stream bool }
				Expect struct {
					Requests []expected
					Warnings []string
					AnyOf    []struct {
						Requests []expected
						Warnings []string
					} `json:"any_of"`
				}
			}
			load(t, path, &c)
			if len(c.Expect.AnyOf) > 0 {
				c.Expect.Requests, c.Expect.Warnings = c.Expect.AnyOf[0].Requests, c.Expect.AnyOf[0].Warnings
			}
			for i, want := range c.Expect.Requests {
				res := c.Server.Responses[min(i, len(c.Server.Responses)-1)]
				body, err := os.ReadFile(filepath.Join(dir, res.Body))
				if err != nil {
					t.Fatal(err)
				}
				var ends []int
				for _, ch := range res.Chunks {
					ends = append(ends, ch.Upto)
				}
				for how, r := range map[string]io.Reader{
					"whole": bytes.NewReader(body), "cut": cut(body, ends), "bytes": iotest.OneByteReader(bytes.NewReader(body)),
				} {
					var rec *record.Record
					if res.Status == http.StatusOK {
						rec, _ = replay(t, r, c.Run.Stream, nil)
					} else {
						header := http.Header{}
						for k, v := range res.Headers {
							header.Set(k, v)
						}
						rec = record.New(record.PhaseMeasure, 0)
						rec.Fail(HTTPFailure(res.Status, header, body))
					}
					check := func(what string, got, want any) {
						t.Helper()
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("request %d, %s: %s (-want +got)\n%s", i, how, what, diff)
						}
					}
					check("ok", rec.Outcome == record.OK, want.Outcome == "ok")
					if want.ErrorClass != nil {
						check("class", classes[rec.Outcome], *want.ErrorClass)
					}
					if want.Message != nil && !strings.Contains(rec.Failure.Message, *want.Message) {
						t.Errorf("%s: message %q does not contain %q", how, rec.Failure.Message, *want.Message)
					}
					if want.RetryAfter != nil {
						check("retry after", int(rec.Failure.RetryAfter.Seconds()), *want.RetryAfter)
					}
					for what, n := range map[string]struct {
						want *int
						got  int
					}{
						"events": {want.Events, rec.Events}, "chunks": {want.Chunks, len(rec.Chunks)},
						"partial chunks": {want.Partial, len(rec.Chunks)}, "first": {want.First, rec.FirstTokenEvent},
						"first answer": {want.FirstAnswer, rec.FirstAnswerEvent}, "last": {want.Last, rec.LastTokenEvent},
						"input": {want.Input, int(rec.Tokens.Input)}, "cached": {want.Cached, int(rec.Tokens.Cached)},
						"reasoning": {want.ReasoningToks, int(rec.Tokens.Reasoning)}, "gaps": {want.Gaps, len(rec.Gaps(nil))},
					} {
						if n.want != nil {
							check(what, n.got, *n.want)
						}
					}
					if want.OutputTokens != nil {
						osl, _ := rec.OSL()
						check("output tokens", int(osl), *want.OutputTokens)
					}
					var out record.Output
					if len(rec.Output) > 0 {
						out = rec.Output[0]
					}
					reason := ""
					if len(rec.FinishReasons) > 0 {
						reason = rec.FinishReasons[0]
					}
					for what, s := range map[string]struct {
						want *string
						got  string
					}{
						"text": {want.Text, out.Text}, "reasoning text": {want.Reasoning, out.Reasoning},
						"tools": {want.Tools, out.Tools}, "finish reason": {want.FinishReason, reason},
						"model": {want.Model, rec.ResponseModel}, "source": {want.Source, string(rec.Tokens.Source)},
					} {
						if s.want != nil {
							check(what, s.got, *s.want)
						}
					}
					if want.Done != nil {
						check("done", rec.Done, *want.Done)
					}
					if want.ByChunk != nil {
						var tokens []int
						for _, ch := range rec.Chunks {
							tokens = append(tokens, int(ch.Tokens))
						}
						check("tokens by chunk", tokens, want.ByChunk)
					}
					if string(want.TTFT) == "null" {
						_, ok := rec.TTFT()
						check("has TTFT", ok, false)
					}
					for _, w := range c.Expect.Warnings {
						switch w {
						case "missing_done", "not_streaming":
							check("notes", rec.Notes, []string{w})
						case "no_usage":
							check("source", rec.Tokens.Source, record.SourceNone)
						}
					}
				}
			}
		})
	}
}

// Streams with log-probabilities and nothing else that counts: one entry is a
// token, those of characters held back and the end token included.
func TestLogProbs(t *testing.T) {
	for name, want := range map[string]struct {
		text   string
		output record.Count
		chunks []uint16
	}{
		"chat":        {"Sure 🐋 and \"so\" on", 9, []uint16{1, 2, 5}},
		"completions": {" A B C D", 4, []uint16{1, 2, 1}},
	} {
		body, err := os.ReadFile("testdata/logprobs/" + name + ".sse")
		if err != nil {
			t.Fatal(err)
		}
		rec, _ := replay(t, bytes.NewReader(body), true, nil)
		var chunks []uint16
		for _, c := range rec.Chunks {
			chunks = append(chunks, c.Tokens)
		}
		if rec.Outcome != record.OK || rec.Tokens.Source != record.SourceLogProbs || rec.Tokens.Output != want.output || rec.Output[0].Text != want.text {
			t.Errorf("%s: %s, tokens %+v, text %q; want %+v", name, rec.Outcome, rec.Tokens, rec.Output[0].Text, want)
		}
		if d := cmp.Diff(want.chunks, chunks); d != "" {
			t.Errorf("%s: tokens by chunk (-want +got)\n%s", name, d)
		}
	}
}

// An error of the connection is the caller's to tell; what came before stays.
func TestBrokenStream(t *testing.T) {
	rec := record.New(record.PhaseMeasure, 0)
	var a Answer
	a.Reset(rec, Chat, 0)
	broken := errors.New("connection reset")
	d := sse.NewReader(io.MultiReader(
		strings.NewReader("data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":1}}\n\ndata: {"),
		iotest.ErrReader(broken)), tick(), 0)
	for {
		e, err := d.Next()
		if err != nil {
			rec.Fail(record.Reset, record.Failure{Message: err.Error()})
			break
		}
		a.Event(e.Name, e.Data, record.Time(e.At), e.Lag, e.SameRead)
	}
	a.Close()
	if rec.Outcome != record.Reset || len(rec.Chunks) != 1 || rec.Tokens.Output != 1 || rec.Notes != nil {
		t.Errorf("%+v", rec)
	}
}

// The phases that real servers tell, and nothing where they tell none.
func TestWireTimings(t *testing.T) {
	files, _ := filepath.Glob("testdata/wire/*.sse")
	told := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sse")
		t.Run(name, func(t *testing.T) {
			var pair struct {
				Want map[string]float64 `json:"server_timings"`
			}
			load(t, strings.TrimSuffix(file, ".sse")+".json", &pair)
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			rec, _ := replay(t, bytes.NewReader(body), true, nil)
			if pair.Want == nil {
				if rec.ServerTimings != nil {
					t.Errorf("timings of nobody: %+v", rec.ServerTimings)
				}
				return
			}
			told++
			if name == "dynamo-chat" {
				pair.Want["decode_ms"] = 80 - 33.5 // total less TTFT
			}
			if rec.ServerTimings == nil {
				t.Fatal("no timings")
			}
			got := map[string]float64{}
			for key, d := range map[string]*time.Duration{
				"queue_ms": rec.ServerTimings.Queue, "prefill_ms": rec.ServerTimings.Prefill,
				"decode_ms": rec.ServerTimings.Decode, "ttft_ms": rec.ServerTimings.TTFT,
			} {
				if d != nil {
					got[key] = float64(*d) / 1e6
				}
			}
			if d := cmp.Diff(pair.Want, got); d != "" {
				t.Error(d)
			}
			drafted, accepted := record.Unknown, record.Unknown
			if name == "vllm-chat" || name == "llamacpp-chat" {
				drafted, accepted = 2, 1
			}
			if s := rec.ServerTimings; s.DraftTokens != drafted || s.AcceptedTokens != accepted {
				t.Errorf("%d drafted, %d accepted, want %d and %d", s.DraftTokens, s.AcceptedTokens, drafted, accepted)
			}
		})
	}
	if told != 4 {
		t.Errorf("%d answers tell timings, want 4", told)
	}
}

func TestTimingsElsewhere(t *testing.T) {
	ms := func(v float64) *time.Duration { d := time.Duration(v * 1e6); return &d }
	for name, c := range map[string]struct {
		fields string
		want   *record.ServerTimings
	}{
		"NIM": {
			`"stats":{"time_in_queue_in_ms":2,"generation_time_in_ms":60,"response_tokens":{"time_to_first_token_in_ms":20}}`,
			&record.ServerTimings{Queue: ms(2), TTFT: ms(20), Decode: ms(40), Source: "stats", DraftTokens: record.Unknown, AcceptedTokens: record.Unknown},
		},
		"zero is told, nonsense is not": {
			`"metrics":{"time_to_first_token_ms":-5,"queue_time_ms":0,"generation_time_ms":"9"}`,
			&record.ServerTimings{Queue: ms(0), Source: "metrics", DraftTokens: record.Unknown, AcceptedTokens: record.Unknown},
		},
		"others": {`"stats":{"tokens_per_second":9},"metrics":{},"nvext":{"worker_id":1},"timings":null`, nil},
	} {
		stream := `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],` + c.fields + "}\n\ndata: [DONE]\n\n"
		rec, _ := replay(t, strings.NewReader(stream), true, nil)
		if d := cmp.Diff(c.want, rec.ServerTimings); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
