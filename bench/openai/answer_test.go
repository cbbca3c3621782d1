package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
)

// decode takes events "NAME|DATA" (or only DATA) at 10, 20, … and closes.
func decode(events ...string) *record.Record {
	rec := record.New(record.PhaseMeasure, 0)
	rec.Streaming = true
	var a Answer
	a.Reset(rec, Chat, KeepOutput)
	for i, e := range events {
		name, data, named := strings.Cut(e, "|")
		if !named {
			name, data = "", e
		}
		a.Event([]byte(name), []byte(data), record.Time(10*(i+1)), uint32(i), false)
	}
	a.Close()
	return rec
}

// delta is an event of one choice.
func delta(fields string) string { return `{"choices":[{"index":0,"delta":{` + fields + `}}]}` }

const (
	stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	word = `{"choices":[{"index":0,"delta":{"content":"x"}}]}`
)

func TestKinds(t *testing.T) {
	tests := []struct {
		data string
		want record.Kind
	}{
		{delta(`"content":"x"`), record.KindText},
		{delta(`"content":" "`), record.KindText},
		{delta(`"content":"\u0000"`), record.KindText},
		{delta(`"content":""`), 0},
		{delta(`"content":null`), 0},
		{delta(`"content":7`), 0},
		{delta(`"role":"assistant"`), 0},
		{delta(`"role":"assistant","content":"","reasoning_content":null,"tool_calls":[],"refusal":null,"function_call":null`), 0},
		{delta(`"reasoning_content":"x"`), record.KindReasoning},
		{delta(`"reasoning":"x","content":""`), record.KindReasoning},
		{delta(`"reasoning":"x","content":"y"`), record.KindReasoning | record.KindText},
		{delta(`"refusal":"no"`), record.KindRefusal},
		{delta(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]`), record.KindTool},
		{delta(`"tool_calls":[{"index":0,"function":{"arguments":"{"}}]`), record.KindTool},
		{delta(`"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"","arguments":""}}]`), 0},
		{delta(`"tool_calls":[{"index":0,"function":null},{"index":1,"function":{"name":"g"}}]`), record.KindTool},
		{delta(`"tool_calls":[null,1]`), 0},
		{delta(`"function_call":{"name":"f"}`), record.KindTool},
		{`{"choices":[{"text":"x"}]}`, record.KindText},
		{`{"choices":[{"text":""}]}`, 0},
		{`{"choices":[{"text":"","token_ids":[5]}]}`, record.KindTokenIDs},
		{`{"choices":[{"delta":{"content":"x"},"output_ids":[5,6]}]}`, record.KindText | record.KindTokenIDs},
		{`{"choices":[{"delta":{},"token_ids":[],"output_ids":null}]}`, 0},
		{`{"choices":[{"delta":null}]}`, 0},
		{`{"choices":[{"index":0}]}`, 0},
		{`{"choices":[{"index":0,"delta":"x"}]}`, 0},
		{`{"choices":[null,3,"x"]}`, 0},
		{`{"choices":[]}`, 0},
		{`{"choices":null}`, 0},
		{`{"choices":"x"}`, 0},
		{`{"object":"chat.completion.chunk","prompt_progress":0.5}`, 0},
		{`{"error":null,"choices":[{"delta":{"content":"x"}}]}`, record.KindText},
		{`{"error":"","choices":[{"delta":{"content":"x"}}]}`, record.KindText},
		{`{"ch\u006fices":[{"d\u0065lta":{"content":"x"}}]}`, record.KindText},
		{`42`, 0},
		{`"text"`, 0},
		{`null`, 0},
		{`[]`, 0},
		{`[{"choices":[{"delta":{"content":"x"}}]}]`, 0},
	}
	for _, c := range tests {
		// The event stands between two others, so that places can be seen.
		rec := decode(delta(`"role":"assistant"`), c.data, stop, "[DONE]")
		var got record.Kind
		if len(rec.Chunks) > 0 {
			got = rec.Chunks[0].Kind
		}
		if got != c.want || len(rec.Chunks) > 1 {
			t.Errorf("%s: %d chunks, kind %b, want %b", c.data, len(rec.Chunks), got, c.want)
			continue
		}
		place := func(holds bool) int {
			if holds {
				return 1
			}
			return -1
		}
		want := [4]int{place(c.want != 0), place(c.want.Answer()), place(c.want != 0), 4}
		if got := [4]int{rec.FirstTokenEvent, rec.FirstAnswerEvent, rec.LastTokenEvent, rec.Events}; got != want {
			t.Errorf("%s: places and events %v, want %v", c.data, got, want)
		}
		outcome := record.OK
		if c.want == 0 {
			outcome = record.Empty
		}
		if rec.Outcome != outcome {
			t.Errorf("%s: %s %v, want %s", c.data, rec.Outcome, rec.Failure, outcome)
		}
	}
}

func TestOutcomes(t *testing.T) {
	tests := []struct {
		name    string
		events  []string
		want    record.Outcome
		message string
		typ     string
		code    string
		notes   []string
		count   int // events
	}{
		{name: "ok", events: []string{word, stop, "[DONE]"}, want: record.OK, count: 3},
		{name: "blank around DONE", events: []string{word, stop, " [DONE] "}, want: record.OK, count: 3},
		{name: "blank data is no event", events: []string{" \n", word, stop, "[DONE]"}, want: record.OK, count: 3},
		{name: "DONE without a finish reason", events: []string{word, "[DONE]"}, want: record.OK, count: 2},
		{name: "finish reason without DONE", events: []string{word, stop}, want: record.OK, notes: []string{NoteMissingDone}, count: 2},
		{name: "neither", events: []string{word}, want: record.Truncated, message: "[DONE]", count: 1},
		{name: "nothing", want: record.Truncated, message: "finish reason"},
		{name: "DONE alone", events: []string{"[DONE]"}, want: record.Empty, message: "without any output", count: 1},
		{name: "no output", events: []string{stop, `{"choices":[],"usage":{"completion_tokens":0}}`, "[DONE]"}, want: record.Empty, count: 3},
		{name: "after DONE nothing counts", events: []string{word, "[DONE]", "junk", `{"error":"x"}`}, want: record.OK, count: 2},
		{name: "error object", events: []string{word, `{"error":{"message":"engine died","type":"Internal","param":null,"code":500}}`, stop, "[DONE]"},
			want: record.StreamError, message: "engine died", typ: "Internal", code: "500", count: 2},
		{name: "error string", events: []string{`{"error":"out of memory"}`}, want: record.StreamError, message: "out of memory", count: 1},
		{name: "error beside choices", events: []string{`{"error":{"code":"x","message":"m"},"choices":[{"delta":{"content":"a"},"finish_reason":"error"}]}`},
			want: record.StreamError, message: "m", code: "x", count: 1},
		{name: "flat error", events: []string{`{"object":"error","message":"too long","type":"BadRequest","code":400}`},
			want: record.StreamError, message: "too long", typ: "BadRequest", code: "400", count: 1},
		{name: "TGI", events: []string{`{"error":"overloaded","error_type":"overloaded"}`}, want: record.StreamError, message: "overloaded", typ: "overloaded", count: 1},
		{name: "TGI in the stream", events: []string{`{"error":{"message":"m","http_status_code":422}}`}, want: record.StreamError, message: "m", code: "422", count: 1},
		{name: "error true", events: []string{`{"error":true,"message":"m"}`}, want: record.StreamError, message: "m", count: 1},
		{name: "event: error in plain text", events: []string{"error|overloaded,\n try later"}, want: record.StreamError, message: "overloaded, try later", count: 1},
		{name: "event: error in JSON", events: []string{`error|{"message":"m","code":"c"}`}, want: record.StreamError, message: "m", code: "c", count: 1},
		{name: "event: error goes before choices", events: []string{"error|" + word}, want: record.StreamError, message: "choices", count: 1},
		{name: "another event name", events: []string{"message|" + word, stop, "[DONE]"}, want: record.OK, count: 3},
		{name: "detail", events: []string{`{"detail":"not found"}`}, want: record.StreamError, message: "not found", count: 1},
		{name: "detail beside choices", events: []string{`{"detail":"x","choices":[{"delta":{"content":"a"}}]}`, stop, "[DONE]"}, want: record.OK, count: 3},
		{name: "no JSON", events: []string{word, "ping", stop, "[DONE]"}, want: record.Malformed, message: "event 1 is no JSON: ping", count: 2},
		{name: "cut JSON", events: []string{`{"choices":[{"delta":{"content":"a`}, want: record.Malformed, message: "event 0", count: 1},
		{name: "two values", events: []string{"{}{}"}, want: record.Malformed, message: "event 0", count: 1},
		{name: "NaN is no JSON", events: []string{"NaN"}, want: record.Malformed, message: "NaN", count: 1},
		{name: "the first failure stays", events: []string{`{"error":"one"}`, `{"error":"two"}`}, want: record.StreamError, message: "one", count: 1},
		{name: "output and failed end", events: []string{`{"choices":[{"delta":{"content":"a"},"finish_reason":"abort"}]}`},
			want: record.StreamError, message: "finish reason abort", code: "abort", count: 1},
	}
	for _, reason := range []string{"error", "abort", "parse_error", "insufficient_system_resource"} {
		c := tests[0]
		c.name, c.want, c.message, c.code = "finish reason "+reason, record.StreamError, reason, reason
		c.events = []string{word, strings.Replace(stop, "stop", reason, 1), "[DONE]"}
		c.count = 2
		tests = append(tests, c)
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			rec := decode(c.events...)
			if rec.Outcome != c.want || rec.Events != c.count {
				t.Fatalf("%s %+v, %d events; want %s, %d", rec.Outcome, rec.Failure, rec.Events, c.want, c.count)
			}
			if diff := cmp.Diff(c.notes, rec.Notes); diff != "" {
				t.Errorf("notes (-want +got)\n%s", diff)
			}
			if c.want == record.OK {
				if rec.Failure != nil {
					t.Errorf("failure %+v", rec.Failure)
				}
				return
			}
			f := rec.Failure
			if !strings.Contains(f.Message, c.message) || f.Type != c.typ || f.Code != c.code || f.Stage != "body" {
				t.Errorf("failure %+v, want %q %q %q", f, c.message, c.typ, c.code)
			}
			if (c.want == record.StreamError || c.want == record.Malformed) && f.Body == "" {
				t.Error("the first bytes are not kept")
			}
		})
	}
}

// An event that the end of the body left open counts if it is whole.
func TestUnterminated(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       record.Outcome
		events     int
	}{
		{"", stop, record.OK, 2},
		{"", "[DONE]", record.OK, 2},
		{"", `{"choices":[{"delta":{"content":"a`, record.Truncated, 1},
		{"", "[DON", record.Truncated, 1},
		{"error", "overl", record.StreamError, 2},
	} {
		rec := record.New(record.PhaseMeasure, 0)
		var a Answer
		a.Reset(rec, Chat, 0)
		a.Event(nil, []byte(word), 10, 0, false)
		a.Unterminated([]byte(c.name), []byte(c.data), 20, 0, true)
		a.Close()
		if rec.Outcome != c.want || rec.Events != c.events || len(rec.Chunks) != 1 {
			t.Errorf("%s: %s, %d events, %d chunks; want %s, %d, 1", c.data, rec.Outcome, rec.Events, len(rec.Chunks), c.want, c.events)
		}
	}
}

func TestChunks(t *testing.T) {
	rec := record.New(record.PhaseMeasure, 0)
	var a Answer
	a.Reset(rec, Chat, KeepOutput)
	more := []bool{
		a.Event(nil, []byte(delta(`"role":"assistant"`)), 5, 0, false),
		a.Event(nil, []byte(word), 10, 3, false),
		a.Event(nil, []byte(`{"choices":[{"index":1,"delta":{"reasoning":"r"}}]}`), 10, 4, true),
		a.Event(nil, []byte(`{"choices":[{"index":0,"delta":{}},{"index":300,"delta":{"content":"y"}},{"index":2,"delta":{"refusal":"no"},"finish_reason":"length"}]}`), 20, 0, false),
		a.Event(nil, []byte(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"model":"m1"}`), 30, 0, false),
		a.Event(nil, []byte(`{"choices":[],"model":""}`), 40, 0, false),
		a.Event(nil, []byte(`[DONE]`), 50, 0, false),
	}
	a.Close()
	if want := []bool{true, true, true, true, true, true, false}; !cmp.Equal(want, more) {
		t.Errorf("more %v", more)
	}
	want := record.Chunks{
		{At: 10, Lag: 3, Tokens: record.UnknownTokens, Kind: record.KindText},
		{At: 10, Lag: 4, Tokens: record.UnknownTokens, Kind: record.KindReasoning | record.SameRead, Choice: 1},
		{At: 20, Tokens: record.UnknownTokens, Kind: record.KindText | record.KindRefusal, Choice: 255},
	}
	if diff := cmp.Diff(want, rec.Chunks); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"stop", "", "length"}, rec.FinishReasons); diff != "" {
		t.Errorf("finish reasons (-want +got)\n%s", diff)
	}
	if rec.FirstEvent != 5 || !rec.Streamed || rec.ResponseModel != "m1" {
		t.Errorf("first event %d, streamed %v, model %q", rec.FirstEvent, rec.Streamed, rec.ResponseModel)
	}
	if len(rec.Output) != 256 || rec.Output[0].Text != "x" || rec.Output[1].Reasoning != "r" || rec.Output[255].Text != "y" {
		t.Errorf("output %v", rec.Output)
	}
}

func TestTokens(t *testing.T) {
	// use is an event with a usage; text "" makes one without output.
	use := func(text string, usage string) string {
		return `{"choices":[{"index":0,"delta":{"content":"` + text + `"}}],"usage":` + usage + `}`
	}
	running := func(text string, n int) string { return use(text, fmt.Sprintf(`{"completion_tokens":%d}`, n)) }
	final := func(usage string) string { return `{"choices":[],"usage":` + usage + `}` }
	ids := func(text, ids string) string { return `{"choices":[{"text":"` + text + `","token_ids":` + ids + `}]}` }
	probs := func(text, list string) string {
		return `{"choices":[{"index":0,"delta":{"content":"` + text + `"},"logprobs":{"content":` + list + `}}]}`
	}
	const no = -1
	tests := []struct {
		name   string
		events []string
		source record.Source
		want   [4]int64 // input, output, reasoning, cached
		chunks []int    // -1: unknown
		notes  []string
	}{
		{"nobody told", []string{word, word}, record.SourceNone, [4]int64{no, no, no, no}, []int{no, no}, nil},
		{"final usage", []string{word, word, final(`{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}`)},
			record.SourceUsage, [4]int64{7, 3, no, no}, []int{no, no}, nil},
		{"null", []string{use("a", "null"), final(`{"prompt_tokens":7,"completion_tokens":3}`), use("", "null")},
			record.SourceUsage, [4]int64{7, 3, no, no}, []int{no}, nil},
		{"null fields", []string{word, final(`{"prompt_tokens":7,"completion_tokens":3,"completion_tokens_details":null,"prompt_tokens_details":{"cached_tokens":null}}`)},
			record.SourceUsage, [4]int64{7, 3, no, no}, []int{no}, nil},
		{"a usage of nulls does not replace", []string{word, final(`{"prompt_tokens":7,"completion_tokens":3}`), final(`{"prompt_tokens":null}`), final(`{}`)},
			record.SourceUsage, [4]int64{7, 3, no, no}, []int{no}, nil},
		{"prompt only", []string{word, final(`{"prompt_tokens":7}`)}, record.SourceUsage, [4]int64{7, no, no, no}, []int{no}, nil},
		{"odd numbers", []string{word, final(`{"prompt_tokens":7.0,"completion_tokens":3e0,"reasoning_tokens":-1,"total_tokens":1.5}`)},
			record.SourceUsage, [4]int64{7, 3, no, no}, []int{no}, nil},
		{"numbers that are text", []string{word, final(`{"prompt_tokens":"7","completion_tokens":true}`)}, record.SourceNone, [4]int64{no, no, no, no}, []int{no}, nil},
		{"reasoning is part of completion", []string{word, final(`{"prompt_tokens":1,"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":4}}`)},
			record.SourceUsage, [4]int64{1, 5, 4, no}, []int{no}, nil},
		{"reasoning beside", []string{word, final(`{"completion_tokens":9,"reasoning_tokens":0}`)}, record.SourceUsage, [4]int64{no, 9, 0, no}, []int{no}, nil},
		{"more reasoning than completion", []string{word, final(`{"completion_tokens":3,"reasoning_tokens":4}`)}, record.SourceUsage, [4]int64{no, 0, 4, no}, []int{no}, nil},
		{"cached", []string{word, final(`{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}`)}, record.SourceUsage, [4]int64{9, 1, no, 8}, []int{no}, nil},
		{"cache hits", []string{word, final(`{"prompt_tokens":9,"completion_tokens":1,"prompt_cache_hit_tokens":0}`)}, record.SourceUsage, [4]int64{9, 1, no, 0}, []int{no}, nil},
		{"timings", []string{word, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1},"timings":{"cache_n":5}}`}, record.SourceUsage, [4]int64{9, 1, no, 5}, []int{no}, nil},
		{"x_groq", []string{word, `{"choices":[],"x_groq":{"id":"r","usage":{"prompt_tokens":9,"completion_tokens":2}}}`}, record.SourceUsage, [4]int64{9, 2, no, no}, []int{no}, nil},

		{"running", []string{running("", 0), running("a", 3), running("b", 4), final(`{"completion_tokens":4}`)}, record.SourceUsage, [4]int64{no, 4, no, no}, []int{3, 1}, nil},
		{"hidden tokens come with the next event", []string{running("a", 1), running("", 2), running("b", 3)}, record.SourceUsage, [4]int64{no, 3, no, no}, []int{1, 2}, nil},
		{"an end token comes with none", []string{running("a", 1), running("b", 2), running("", 3), final(`{"completion_tokens":3}`)}, record.SourceUsage, [4]int64{no, 3, no, no}, []int{1, 1}, nil},
		{"not on every event", []string{running("a", 1), word, running("b", 3)}, record.SourceUsage, [4]int64{no, 3, no, no}, []int{no, no, no}, nil},
		{"does not grow", []string{running("a", 1), running("b", 1), running("c", 3)}, record.SourceUsage, [4]int64{no, 3, no, no}, []int{no, no, no}, nil},
		{"does not lead to the total", []string{running("a", 1), running("b", 2), final(`{"completion_tokens":5}`)}, record.SourceUsage, [4]int64{no, 5, no, no}, []int{no, no}, nil},
		{"zeros, then the total", []string{running("a", 0), running("b", 0), final(`{"completion_tokens":5}`)}, record.SourceUsage, [4]int64{no, 5, no, no}, []int{no, no}, nil},
		{"falls", []string{running("a", 2), running("b", 1), final(`{"completion_tokens":3}`)}, record.SourceUsage, [4]int64{no, 3, no, no}, []int{no, no}, []string{NoteUsageFell}},
		{"one count a choice", []string{running("a", 1), running("b", 2),
			`{"choices":[{"index":1,"delta":{"content":"x"}}],"usage":{"completion_tokens":1}}`, `{"choices":[{"index":1,"delta":{"content":"x"}}],"usage":{"completion_tokens":4}}`,
			final(`{"completion_tokens":6}`)}, record.SourceUsage, [4]int64{no, 6, no, no}, []int{no, no, no, no}, nil},
		{"one count a choice that happens to grow", []string{running("a", 1), `{"choices":[{"index":1,"delta":{"content":"x"}}],"usage":{"completion_tokens":2}}`},
			record.SourceUsage, [4]int64{no, 2, no, no}, []int{no, no}, nil},
		{"more than a chunk can hold", []string{running("a", 70000), running("b", 70001)}, record.SourceUsage, [4]int64{no, 70001, no, no}, []int{no, 1}, nil},
		{"zero tokens and output", []string{word, final(`{"prompt_tokens":4,"completion_tokens":0}`)}, record.SourceUsage, [4]int64{4, no, no, no}, []int{no}, []string{NoteUsageZero}},

		{"token ids", []string{ids("a", "[1,2]"), ids("", "[3]"), ids("", "[]")}, record.SourceTokenIDs, [4]int64{no, 3, no, no}, []int{2, 1}, nil},
		{"usage goes before token ids", []string{ids("a", "[1,2]"), ids("b", "[3]"), final(`{"completion_tokens":4}`)}, record.SourceUsage, [4]int64{no, 4, no, no}, []int{2, 1}, nil},
		{"token ids not on every event", []string{ids("a", "[1,2]"), ids("b", "null")}, record.SourceNone, [4]int64{no, no, no, no}, []int{no, no}, nil},
		{"log-probabilities", []string{probs("a", "[{},{}]"), probs("b", "[{}]")}, record.SourceLogProbs, [4]int64{no, 3, no, no}, []int{2, 1}, nil},
		{"what was held back comes with the next event", []string{probs("", "[{}]"), probs("a", "[{}]"), probs("", "[{}]")}, record.SourceLogProbs, [4]int64{no, 3, no, no}, []int{2}, nil},
		{"of a refusal", []string{`{"choices":[{"delta":{"refusal":"no"},"logprobs":{"content":null,"refusal":[{},{}]}}]}`}, record.SourceLogProbs, [4]int64{no, 2, no, no}, []int{2}, nil},
		{"of a completion", []string{`{"choices":[{"text":"a b","logprobs":{"tokens":["a"," b"],"token_logprobs":[null,-1]}}]}`}, record.SourceLogProbs, [4]int64{no, 2, no, no}, []int{2}, nil},
		{"of two choices", []string{probs("a", "[{}]"), `{"choices":[{"index":1,"text":"b","logprobs":{"tokens":["b"]}}]}`}, record.SourceLogProbs, [4]int64{no, 2, no, no}, []int{1, 1}, nil},
		{"usage goes before log-probabilities", []string{probs("a", "[{},{}]"), final(`{"completion_tokens":4}`)}, record.SourceUsage, [4]int64{no, 4, no, no}, []int{2}, nil},
		{"token ids go before log-probabilities", []string{`{"choices":[{"text":"a","token_ids":[1,2],"logprobs":{"tokens":["a"]}}]}`}, record.SourceTokenIDs, [4]int64{no, 2, no, no}, []int{2}, nil},
		{"log-probabilities go before a usage of 0", []string{probs("a", "[{}]"), final(`{"completion_tokens":0}`)}, record.SourceLogProbs, [4]int64{no, 1, no, no}, []int{1}, []string{NoteUsageZero}},
		{"log-probabilities not on every event", []string{probs("a", "[{}]"), word}, record.SourceNone, [4]int64{no, no, no, no}, []int{no, no}, nil},
		{"no log-probabilities", []string{probs("a", "[]"), probs("a", "null"), `{"choices":[{"text":"a","logprobs":7}]}`}, record.SourceNone, [4]int64{no, no, no, no}, []int{no, no, no}, nil},
		{"token ids and a prompt count", []string{ids("a", "[1,2]"), final(`{"prompt_tokens":6}`)}, record.SourceTokenIDs, [4]int64{6, 2, no, no}, []int{2}, nil},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			rec := decode(append(c.events, stop, "[DONE]")...)
			tok := rec.Tokens
			got := [4]int64{int64(tok.Input), int64(tok.Output), int64(tok.Reasoning), int64(tok.Cached)}
			if tok.Source != c.source || got != c.want {
				t.Errorf("%q %v, want %q %v", tok.Source, got, c.source, c.want)
			}
			var chunks []int
			for _, ch := range rec.Chunks {
				n := int(ch.Tokens)
				if n == record.UnknownTokens {
					n = no
				}
				chunks = append(chunks, n)
			}
			if diff := cmp.Diff(c.chunks, chunks); diff != "" {
				t.Errorf("tokens by chunk (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(c.notes, rec.Notes); diff != "" {
				t.Errorf("notes (-want +got)\n%s", diff)
			}
			if rec.Outcome != record.OK {
				t.Errorf("%s %+v", rec.Outcome, rec.Failure)
			}
		})
	}
}

func TestWhole(t *testing.T) {
	const ok = `{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a","reasoning_content":"b"},"finish_reason":"stop"},{"index":1,"message":{"content":"c"}}],"usage":{"prompt_tokens":2,"completion_tokens":3}}`
	tests := []struct {
		name, body string
		want       record.Outcome
		message    string
		chunks     int
	}{
		{"chat", ok, record.OK, "", 1},
		{"blanks before", "\n\n " + ok + "\n", record.OK, "", 1},
		{"completion", `{"choices":[{"text":"a","finish_reason":null}]}`, record.OK, "", 1},
		{"empty", `{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`, record.Empty, "without any output", 0},
		{"no choice", `{"choices":[]}`, record.Empty, "without any output", 0},
		{"error", `{"error":{"message":"is loading","code":503}}`, record.ErrorBody, "is loading", 0},
		{"error beside choices", `{"error":"bad","choices":[]}`, record.ErrorBody, "bad", 0},
		{"flat error", `{"object":"error","message":"flat"}`, record.ErrorBody, "flat", 0},
		{"no choices", `{"message":"hello"}`, record.ErrorBody, "hello", 0},
		{"another shape", `[{"error":{"message":"in a list"}}]`, record.ErrorBody, "in a list", 0},
		{"failed end", `{"choices":[{"message":{"content":"a"},"finish_reason":"error"}]}`, record.ErrorBody, "finish reason error", 1},
		{"HTML", `<html><body><h1>It works</h1></body></html>`, record.Malformed, "no JSON: It works", 0},
		{"cut", ok[:50], record.Malformed, "no JSON", 0},
		{"two values", ok + ok, record.Malformed, "no JSON", 0},
		{"nothing", "", record.Malformed, "empty", 0},
	}
	for _, c := range tests {
		for _, streaming := range []bool{false, true} {
			rec := record.New(record.PhaseMeasure, 0)
			rec.Streaming, rec.Start = streaming, 0
			var a Answer
			a.Reset(rec, Chat, KeepOutput)
			a.Whole([]byte(c.body), 50, 7)
			a.Close()
			if rec.Outcome != c.want || len(rec.Chunks) != c.chunks || rec.Streamed || rec.Events != 0 {
				t.Errorf("%s: %s %+v, %d chunks; want %s, %d", c.name, rec.Outcome, rec.Failure, len(rec.Chunks), c.want, c.chunks)
				continue
			}
			if c.message != "" && !strings.Contains(rec.Failure.Message, c.message) {
				t.Errorf("%s: message %q, want %q", c.name, rec.Failure.Message, c.message)
			}
			if c.want != record.OK {
				continue
			}
			if rec.Chunks[0].At != 50 || rec.Chunks[0].Lag != 7 {
				t.Errorf("%s: chunk %+v", c.name, rec.Chunks[0])
			}
			if _, ok := rec.TTFT(); ok {
				t.Errorf("%s: a whole answer has a TTFT", c.name)
			}
			var want []string
			if streaming {
				want = []string{NoteNotStreaming}
			}
			if diff := cmp.Diff(want, rec.Notes); diff != "" {
				t.Errorf("%s: notes (-want +got)\n%s", c.name, diff)
			}
		}
	}
}

// A failure that the caller told stays, and the tokens so far with it.
func TestCloseAfterFailure(t *testing.T) {
	rec := record.New(record.PhaseMeasure, 0)
	var a Answer
	a.Reset(rec, Chat, 0)
	a.Event(nil, []byte(word), 10, 0, false)
	rec.Fail(record.IdleTimeout, record.Failure{Message: "silence"})
	a.Close()
	if rec.Outcome != record.IdleTimeout || rec.Failure.Message != "silence" || len(rec.Chunks) != 1 || rec.Output != nil {
		t.Errorf("%+v", rec)
	}
}

// Nothing of one answer reaches the next.
func TestReset(t *testing.T) {
	var a Answer
	first := []string{
		`{"choices":[{"index":3,"delta":{"content":"old","reasoning":"old"},"token_ids":[1],"finish_reason":"length"}],"usage":{"completion_tokens":9},"timings":{"cache_n":4}}`,
		delta(`"content":"` + strings.Repeat("x", 2<<20) + `"`),
		`{"error":"x"}`,
	}
	second := []string{word, stop, "[DONE]"}
	want := decode(second...)
	for _, events := range [][]string{first[:1], first[:2], first, second} {
		for _, list := range [][]string{events, second} {
			rec := record.New(record.PhaseMeasure, 0)
			rec.Streaming = true
			a.Reset(rec, Chat, KeepOutput)
			for i, e := range list {
				a.Event(nil, []byte(e), record.Time(10*(i+1)), uint32(i), false)
			}
			a.Close()
			if len(list) == len(second) && list[0] == second[0] {
				if diff := cmp.Diff(want, rec); diff != "" {
					t.Errorf("after %.40q: (-want +got)\n%s", events, diff)
				}
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	full := `{"id":"gen-1","object":"chat.completion.chunk","created":1700000000,"model":"demo-8b","choices":[{"index":0,"delta":{%s},"token_ids":[5,6],"finish_reason":null}],"usage":{"prompt_tokens":40,"completion_tokens":12,"total_tokens":52,"prompt_tokens_details":{"cached_tokens":3}}}`
	for _, fields := range []string{
		`"role":"assistant","content":""`,
		`"content":" word"`,
		`"content":" \u00e9\n\"word\""`,
		`"reasoning_content":"hm","content":null`,
		`"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"a\":"}}]`,
		`"content":" word"},"logprobs":null,"x":{"a":0`,
		`"content":" word"},"logprobs":{"content":[{"token":" word","logprob":-0.5,"top_logprobs":[]}]},"x":{"a":0`,
	} {
		data := fmt.Appendf(nil, full, fields)
		rec := record.New(record.PhaseMeasure, 0)
		rec.Chunks = make(record.Chunks, 0, 2000)
		var a Answer
		a.Reset(rec, Chat, KeepUncounted)
		*a.texts(0) = texts{text: make([]byte, 0, 1<<14), reasoning: make([]byte, 0, 1<<14), tools: make([]byte, 0, 1<<14)}
		a.byUsage = make([]uint16, 0, 2000)
		a.Event(nil, data, 0, 0, false)
		if n := testing.AllocsPerRun(1000, func() { a.Event(nil, data, 0, 0, false) }); n != 0 {
			t.Errorf("%s: %v allocations an event, want 0", fields, n)
		}
	}
}

// What is kept for a tokenizer is all that the model wrote, of answers that
// tell no count.
func TestUncounted(t *testing.T) {
	thought, second := delta(`"reasoning":"so "`), `{"choices":[{"index":1,"delta":{"content":"y"}}]}`
	tests := []struct {
		name   string
		events []string
		want   []record.Output
	}{
		{"text", []string{word, word, word}, []record.Output{{Text: "xxx"}}},
		{"text after thought", []string{thought, thought, word}, []record.Output{{Text: "x", Reasoning: "so so "}}},
		{"two choices", []string{word, second, word}, []record.Output{{Text: "xx"}, {Text: "y"}}},
		{"usage", []string{word, `{"choices":[],"usage":{"completion_tokens":3}}`}, nil},
		{"a usage of 0", []string{word, `{"choices":[],"usage":{"completion_tokens":0}}`}, []record.Output{{Text: "x"}}},
		{"token ids", []string{`{"choices":[{"text":"a","token_ids":[1]}]}`}, nil},
		{"log-probabilities", []string{`{"choices":[{"text":"a","logprobs":{"tokens":["a"]}}]}`}, nil},
		{"a call, of which the text is not all", []string{word, delta(`"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]`)}, nil},
		{"a refusal", []string{delta(`"refusal":"no"`)}, nil},
		{"nothing", nil, nil},
	}
	var a Answer
	for _, c := range tests {
		rec := record.New(record.PhaseMeasure, 0)
		a.Reset(rec, Chat, KeepUncounted)
		for _, e := range append(c.events, stop, "[DONE]") {
			a.Event(nil, []byte(e), 10, 0, false)
		}
		a.Close()
		if d := cmp.Diff(c.want, rec.Uncounted); d != "" || rec.Output != nil {
			t.Errorf("%s: output %v, uncounted (-want +got)\n%s", c.name, rec.Output, d)
		}
	}
}

func BenchmarkEvent(b *testing.B) {
	data := []byte(`{"id":"gen-1","object":"chat.completion.chunk","created":1700000000,"model":"demo-8b","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}`)
	rec := record.New(record.PhaseMeasure, 0)
	var a Answer
	a.Reset(rec, Chat, 0)
	b.ReportAllocs()
	for b.Loop() {
		rec.Chunks = rec.Chunks[:0]
		a.Event(nil, data, 0, 0, false)
	}
}

// reference decodes one event with encoding/json, for comparison.
func reference(data []byte) (kind record.Kind, text, reasoning string, usage record.Usage) {
	usage = record.NoUsage
	var v any
	if json.Unmarshal(data, &v) != nil {
		return
	}
	get := func(v any, keys ...string) any {
		for _, k := range keys {
			m, _ := v.(map[string]any)
			v = m[k]
		}
		return v
	}
	str := func(v any) string { s, _ := v.(string); return s }
	list := func(v any) []any { l, _ := v.([]any); return l }
	num := func(v any) record.Count {
		if f, ok := v.(float64); ok && f >= 0 && f < 1<<53 && f == float64(int64(f)) {
			return record.Count(f)
		}
		return record.Unknown
	}
	for _, c := range list(get(v, "choices")) {
		if s := str(get(c, "text")); s != "" {
			kind |= record.KindText
			text += s
		}
		if len(list(get(c, "token_ids")))+len(list(get(c, "output_ids"))) > 0 {
			kind |= record.KindTokenIDs
		}
		d, ok := get(c, "delta").(map[string]any)
		if !ok {
			d, _ = get(c, "message").(map[string]any)
		}
		if s := str(d["content"]); s != "" {
			kind |= record.KindText
			text += s
		}
		r := str(d["reasoning_content"])
		if r == "" {
			r = str(d["reasoning"])
		}
		if r != "" {
			kind |= record.KindReasoning
			reasoning += r
		}
		if str(d["refusal"]) != "" {
			kind |= record.KindRefusal
		}
		for _, call := range append(list(d["tool_calls"]), map[string]any{"function": d["function_call"]}) {
			if str(get(call, "function", "name"))+str(get(call, "function", "arguments")) != "" {
				kind |= record.KindTool
			}
		}
	}
	for _, u := range []any{get(v, "usage"), get(v, "x_groq", "usage")} {
		first := func(a, b record.Count) record.Count {
			if a.IsKnown() {
				return a
			}
			return b
		}
		usage = record.Usage{
			Prompt: num(get(u, "prompt_tokens")), Completion: num(get(u, "completion_tokens")), Total: num(get(u, "total_tokens")),
			Reasoning: first(num(get(u, "completion_tokens_details", "reasoning_tokens")), num(get(u, "reasoning_tokens"))),
			Cached:    first(num(get(u, "prompt_tokens_details", "cached_tokens")), num(get(u, "prompt_cache_hit_tokens"))),
		}
		if usage != record.NoUsage {
			break
		}
	}
	return
}

// odd reports what the two decoders are known to take differently: an object
// that has a key twice (the last one wins in encoding/json, the first one in
// fastjson), nesting deeper than 300 (fastjson gives up), and text that is not
// Unicode (encoding/json puts U+FFFD). The names of struct fields would be a
// fourth (encoding/json ignores their case), which is why the reference decodes
// into maps.
func odd(data []byte) bool {
	if !bytes.Equal(data, bytes.ToValidUTF8(data, nil)) || bytes.Contains(bytes.ToLower(data), []byte(`\ud`)) {
		return true
	}
	type object struct {
		keys map[string]bool // nil: an array
		key  bool            // a key comes next
	}
	var open []object
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		top := len(open) - 1
		if d, ok := tok.(json.Delim); ok && (d == '}' || d == ']') {
			open = open[:top]
			continue
		}
		if top >= 0 && open[top].keys != nil {
			if open[top].key {
				k := tok.(string)
				if open[top].keys[k] {
					return true
				}
				open[top].keys[k] = true
				open[top].key = false
				continue
			}
			open[top].key = true
		}
		switch tok {
		case json.Delim('{'):
			open = append(open, object{keys: map[string]bool{}, key: true})
		case json.Delim('['):
			open = append(open, object{})
		}
		if len(open) >= 300 {
			return true
		}
	}
}

func FuzzEvent(f *testing.F) {
	for _, s := range []string{
		word, stop, "[DONE]", "ping", "42", `{"error":"x"}`, `{"choices":[{"text":"a","token_ids":[1]}],"usage":{"prompt_tokens":1,"completion_tokens":2.0,"reasoning_tokens":1}}`,
		delta(`"reasoning":"\u00e9\n","tool_calls":[{"function":{"name":"f","arguments":"{}"}}],"refusal":"n"`),
		`{"choices":[],"x_groq":{"usage":{"total_tokens":1e2,"prompt_tokens_details":{"cached_tokens":3}}}}`,
		`{"choices":[{"index":-1,"message":{"content":"a"}},{"index":1e9,"delta":{"function_call":{"name":"f"}}}]}`,
		`{"a":"A\/","choices":[{"d\u0065lta":{"content":"\u0061"}}]}`,
		`{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"}],"refusal":null}},{"text":"b","logprobs":{"tokens":["b"]}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rec := record.New(record.PhaseMeasure, 0)
		var a Answer
		a.Reset(rec, Chat, KeepOutput)
		a.Event(nil, data, 1, 0, false)
		early := rec.Outcome
		a.Close()
		if rec.Outcome == "" || len(rec.Chunks) > 1 {
			t.Fatalf("%+v", rec)
		}
		data = bytes.TrimSpace(data)
		if !json.Valid(data) || odd(data) {
			return // fastjson is laxer, which is not compared
		}
		if early == record.Malformed {
			t.Fatalf("valid JSON is malformed: %s", data)
		}
		if early != "" && len(rec.Chunks) == 0 {
			return // an error
		}
		kind, text, reasoning, usage := reference(data)
		var got record.Kind
		if len(rec.Chunks) > 0 {
			got = rec.Chunks[0].Kind
		}
		var gotText, gotReasoning strings.Builder
		for _, o := range rec.Output {
			gotText.WriteString(o.Text)
			gotReasoning.WriteString(o.Reasoning)
		}
		if got != kind || rec.Usage != usage {
			t.Fatalf("%s:\nkind %b, want %b\nusage %v, want %v", data, got, kind, rec.Usage, usage)
		}
		// Output is by choice, and choices may come in any order.
		if gotText.Len() != len(text) || gotReasoning.Len() != len(reasoning) || len(rec.Output) == 1 && gotText.String() != text {
			t.Fatalf("%s:\ntext %q, want %q\nreasoning %q, want %q", data, gotText.String(), text, gotReasoning.String(), reasoning)
		}
	})
}
