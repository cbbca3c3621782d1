package openai

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/sse"
	"github.com/tokmark/tokmark/workloads"
)

// readStream reads a stream of a type, each event by a read of its own: event n
// arrives at n.
func readStream(t testing.TB, of EndpointType, stream string) *record.Record {
	t.Helper()
	rec := record.New(record.PhaseMeasure, 0)
	rec.Streaming, rec.Start = true, 0
	var a Answer
	a.Reset(rec, of, KeepOutput)
	d := sse.NewReader(strings.NewReader(stream), tick(), 0)
	for n := record.Time(1); ; n++ {
		e, err := d.Next()
		if err != nil || !a.Event(e.Name, e.Data, n, 0, false) {
			break
		}
	}
	a.Close()
	return rec
}

func wholeAnswer(of EndpointType, streaming bool, body string) *record.Record {
	rec := record.New(record.PhaseMeasure, 0)
	rec.Streaming, rec.Start = streaming, 0
	var a Answer
	a.Reset(rec, of, KeepOutput)
	a.Whole([]byte(body), 7, 0)
	a.Close()
	return rec
}

// Streams that real servers sent: one names its events by type alone, the
// others by both, and each puts something else beside.
func TestResponsesOfServers(t *testing.T) {
	for server, want := range map[string]struct {
		text                   string
		places                 [3]int // first token, first answer, last token
		input, output          record.Count
		cached                 record.Count
		finish, model, timings string
	}{
		"transformers": {"massive aliases Provides", [3]int{4, 4, 6}, 10, 3, 0, "completed", "example@main", ""},
		"vllm":         {" FinDDlah", [3]int{4, 4, 6}, 10, 3, 0, "max_output_tokens", "tiny", "metrics"},
		"llamacpp":     {" Lewis284 disappro Piceworld", [3]int{4, 4, 8}, 10, 5, 9, "completed", "tiny.gguf", "timings"},
	} {
		t.Run(server, func(t *testing.T) {
			stream, err := os.ReadFile("testdata/responses/" + server + ".sse")
			if err != nil {
				t.Fatal(err)
			}
			rec := readStream(t, Responses, string(stream))
			if rec.Outcome != record.OK || len(rec.Notes) > 0 {
				t.Fatalf("outcome %s, %+v, notes %v", rec.Outcome, rec.Failure, rec.Notes)
			}
			if want.text == "" || rec.Output[0].Text != want.text {
				t.Errorf("text %q, want %q", rec.Output[0].Text, want.text)
			}
			if got := [3]int{rec.FirstTokenEvent, rec.FirstAnswerEvent, rec.LastTokenEvent}; got != want.places {
				t.Errorf("places %v, want %v", got, want.places)
			}
			tokens := record.Tokens{Source: record.SourceUsage, Input: want.input, Output: want.output, Reasoning: 0, Cached: want.cached}
			if server == "llamacpp" {
				tokens.Reasoning = record.Unknown
			}
			if d := cmp.Diff(tokens, rec.Tokens); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff([]string{want.finish}, rec.FinishReasons); d != "" {
				t.Error(d)
			}
			source := ""
			if rec.ServerTimings != nil {
				source = rec.ServerTimings.Source
			}
			if rec.ResponseModel != want.model || source != want.timings {
				t.Errorf("model %q, timings of %q", rec.ResponseModel, source)
			}
			if ttft, ok := rec.TTFT(); !ok || ttft != time.Duration(want.places[0]+1) {
				t.Errorf("TTFT %d: the first event with output is the %d.", ttft, want.places[0]+1)
			}
		})
	}
}

// What is output in a Responses stream, by event.
func TestResponsesOutput(t *testing.T) {
	for data, want := range map[string]record.Kind{
		`{"type":"response.output_text.delta","delta":"a"}`:                                           record.KindText,
		`{"type":"response.output_text.delta","delta":""}`:                                            0,
		`{"type":"response.output_text.done","text":"all"}`:                                           0,
		`{"type":"response.reasoning_text.delta","delta":"a"}`:                                        record.KindReasoning,
		`{"type":"response.reasoning_summary_text.delta","delta":"a"}`:                                record.KindReasoning,
		`{"type":"response.reasoning_text.done","text":"a"}`:                                          0,
		`{"type":"response.refusal.delta","delta":"no"}`:                                              record.KindRefusal,
		`{"type":"response.function_call_arguments.delta","delta":"{"}`:                               record.KindTool,
		`{"type":"response.mcp_call_arguments.delta","delta":"{"}`:                                    record.KindTool,
		`{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}`:            record.KindTool,
		`{"type":"response.output_item.added","item":{"type":"message","name":"f"}}`:                  0,
		`{"type":"response.output_item.done","item":{"type":"function_call","name":"f"}}`:             0,
		`{"type":"response.audio.delta","delta":"AAAA"}`:                                              0,
		`{"type":"other.output_text.delta","delta":"a"}`:                                              0,
		`{"type":"response.output_text.delta","delta":"a","choices":[{"delta":{"content":"twice"}}]}`: record.KindText,
	} {
		var a Answer
		rec := record.New(record.PhaseMeasure, 0)
		a.Reset(rec, Responses, KeepOutput)
		a.Event(nil, []byte(data), 1, 0, false)
		var got record.Kind
		for _, c := range rec.Chunks {
			got |= c.Kind
		}
		if got != want || len(rec.Chunks) > 1 {
			t.Errorf("%s: kind %d in %d chunks, want %d", data, got, len(rec.Chunks), want)
		}
	}
	// Where the data has no type, the event's name is one.
	rec := readStream(t, Responses, "event: response.output_text.delta\ndata: {\"delta\":\"a\"}\n\nevent: response.completed\ndata: {\"response\":{}}\n\n")
	if rec.Outcome != record.OK || len(rec.Chunks) != 1 || !slices.Equal(rec.FinishReasons, []string{"completed"}) {
		t.Errorf("by name: %s, %d chunks, %v", rec.Outcome, len(rec.Chunks), rec.FinishReasons)
	}
}

func TestResponsesThatFail(t *testing.T) {
	const text = `data: {"type":"response.output_text.delta","delta":"a"}` + "\n\n"
	for name, c := range map[string]struct {
		stream string
		want   record.Outcome
		says   string
	}{
		"failed": {
			text + `data: {"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"out of memory"}}}` + "\n\n",
			record.StreamError, "out of memory",
		},
		"error by type": {text + `data: {"type":"error","code":"x","message":"broken","param":null}` + "\n\n", record.StreamError, "broken"},
		"error by name": {text + "event: error\n" + `data: {"message":"broken"}` + "\n\n", record.StreamError, "broken"},
		"cut":           {text, record.Truncated, "ended with neither"},
		"nothing":       {`data: {"type":"response.completed","response":{"status":"completed"}}` + "\n\n", record.Empty, "without any output"},
		"no JSON":       {"data: {\n\n", record.Malformed, "no JSON"},
	} {
		rec := readStream(t, Responses, c.stream)
		if rec.Outcome != c.want || rec.Failure == nil || !strings.Contains(rec.Failure.Message, c.says) {
			t.Errorf("%s: %s, %+v; want %s, %q", name, rec.Outcome, rec.Failure, c.want, c.says)
		}
	}
}

func TestWholeAnswers(t *testing.T) {
	const response = `{"object":"response","status":"completed","error":null,"model":"m","output":[
		{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
		{"type":"message","content":[{"type":"output_text","text":"hello"}]},
		{"type":"function_call","name":"f","arguments":"{}"}],
		"usage":{"input_tokens":5,"output_tokens":9,"total_tokens":14,"output_tokens_details":{"reasoning_tokens":4}}}`
	rec := wholeAnswer(Responses, false, response)
	kind := record.KindText | record.KindReasoning | record.KindTool
	if rec.Outcome != record.OK || len(rec.Chunks) != 1 || rec.Chunks[0].Kind != kind {
		t.Errorf("response: %s, %+v", rec.Outcome, rec.Chunks)
	}
	if d := cmp.Diff([]record.Output{{Text: "hello", Reasoning: "hm", Tools: "{}"}}, rec.Output); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(record.Tokens{Source: record.SourceUsage, Input: 5, Output: 5, Reasoning: 4, Cached: record.Unknown}, rec.Tokens); d != "" {
		t.Error(d)
	}

	for _, vector := range []string{`[0.5,-1]`, `"AAAAPw=="`} {
		rec = wholeAnswer(Embeddings, false, `{"object":"list","model":"e","data":[{"index":0,"embedding":`+vector+`}],"usage":{"prompt_tokens":6,"total_tokens":6,"completion_tokens":0}}`)
		if rec.Outcome != record.OK || len(rec.Chunks) != 1 || rec.Chunks[0].Kind != record.KindVector || len(rec.Notes) > 0 {
			t.Errorf("embedding: %s, %+v, %v", rec.Outcome, rec.Chunks, rec.Notes)
		}
		if d := cmp.Diff(record.Tokens{Source: record.SourceUsage, Input: 6, Output: record.Unknown, Reasoning: record.Unknown, Cached: record.Unknown}, rec.Tokens); d != "" {
			t.Error(d)
		}
		if latency, ok := rec.RequestLatency(); !ok || latency != 7 {
			t.Errorf("latency %v", latency)
		}
		if _, ok := rec.TTFT(); ok {
			t.Error("an embedding has a time to first token")
		}
		if _, ok := rec.OSL(); ok {
			t.Error("an embedding has an output length")
		}
	}

	for name, c := range map[string]struct {
		of   EndpointType
		body string
		want record.Outcome
	}{
		"no vector":        {Embeddings, `{"data":[]}`, record.Empty},
		"empty vector":     {Embeddings, `{"data":[{"embedding":[]}]}`, record.Empty},
		"another's answer": {Embeddings, `{"choices":[]}`, record.ErrorBody},
		"error":            {Embeddings, `{"error":{"message":"no"}}`, record.ErrorBody},
		"failed response":  {Responses, `{"status":"failed","error":null,"output":[]}`, record.ErrorBody},
		"empty response":   {Responses, `{"status":"completed","output":[]}`, record.Empty},
	} {
		if rec := wholeAnswer(c.of, false, c.body); rec.Outcome != c.want {
			t.Errorf("%s: %s, want %s", name, rec.Outcome, c.want)
		}
	}
	if rec := wholeAnswer(Responses, true, response); !slices.Contains(rec.Notes, NoteNotStreaming) {
		t.Errorf("a whole answer in place of a stream: notes %v", rec.Notes)
	}
}

func TestResponsesAllocateNothing(t *testing.T) {
	rec := record.New(record.PhaseMeasure, 0)
	rec.Chunks = make(record.Chunks, 0, 2000)
	var a Answer
	a.Reset(rec, Responses, 0)
	a.byUsage = make([]uint16, 0, 2000)
	name := []byte("response.output_text.delta")
	var events [1100][]byte
	for i := range events {
		events[i] = fmt.Appendf(nil, `{"type":"response.output_text.delta","item_id":"m","output_index":0,"delta":" word","sequence_number":%d}`, i)
	}
	next := 0
	if n := testing.AllocsPerRun(1000, func() { a.Event(name, events[next], 1, 0, false); next++ }); n != 0 {
		t.Errorf("%v allocations an event, want 0", n)
	}
}

func TestBodiesOfOtherEndpoints(t *testing.T) {
	two := []workloads.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}
	stream := BodyOptions{Model: "m", Stream: true, IncludeUsage: true, ContinuousUsage: true, MaxTokensField: "max_tokens"}
	for name, c := range map[string]struct {
		of   EndpointType
		req  workloads.Request
		want string // or of the error
	}{
		"response to a prompt":     {Responses, workloads.Request{Prompt: "p", OutputTokens: 9}, `{"model":"m","input":"p","stream":true,"max_output_tokens":9}`},
		"response to a talk":       {Responses, workloads.Request{Messages: two}, `{"model":"m","input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"stream":true}`},
		"response to nothing":      {Responses, workloads.Request{}, "neither messages nor a prompt"},
		"embedding of a prompt":    {Embeddings, workloads.Request{Prompt: "p", OutputTokens: 9}, `{"model":"m","input":"p"}`},
		"embedding of one message": {Embeddings, workloads.Request{Messages: two[:1]}, `{"model":"m","input":"a"}`},
		"embedding of a talk":      {Embeddings, workloads.Request{Messages: two}, "the request has 2 messages"},
	} {
		got, err := Body(c.of, c.req, stream)
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != c.want && !(err != nil && strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, of := range EndpointTypes() {
		if of.Path() == "" {
			t.Errorf("%s has no path", of)
		}
	}
}
