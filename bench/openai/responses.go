package openai

import (
	"bytes"

	"github.com/valyala/fastjson"

	"github.com/tokmark/tokmark/bench/record"
)

// answerField is what every whole answer of the type has.
func (t EndpointType) answerField() string {
	switch t {
	case Responses:
		return "output"
	case Embeddings:
		return "data"
	}
	return "choices"
}

// responseEvent takes an event of a Responses stream, and returns the kinds of
// output in it. The type in the data says what it is, and the event's name where
// that is missing.
//
// Output are the deltas of text, refusal, reasoning and its summary, and the
// arguments of calls, and the name of a function when its call begins. What
// ends in .done repeats deltas and is none. The stream comes to its end with
// response.completed or response.incomplete, which have the usage;
// response.failed and error end the request as record.StreamError. The status
// of the response, or why it is incomplete, is the finish reason.
func (a *Answer) responseEvent(name []byte, v *fastjson.Value, data []byte, at record.Time, lag uint32, sameRead bool) record.Kind {
	event := v.GetStringBytes("type")
	if len(event) == 0 {
		event = name
	}
	var kind record.Kind
	switch string(event) {
	case "error":
		a.fail(v, data)
		return 0
	case "response.failed":
		a.about(v, v.Get("response"))
		a.usage(v.Get("response"), false)
		a.fail(v.Get("response"), data)
		return 0
	case "response.created", "response.completed", "response.incomplete":
		response := v.Get("response")
		a.about(v, response)
		if string(event) != "response.created" {
			a.usage(response, false)
			a.finish(0, finishOf(response, event))
		}
		return 0
	case "response.output_item.added":
		if item := v.Get("item"); string(item.GetStringBytes("type")) == "function_call" && len(item.GetStringBytes("name")) > 0 {
			kind = record.KindTool
		}
	default:
		kind = a.delta(event, v.GetStringBytes("delta"))
	}
	if kind != 0 {
		a.choices = 1
		kind = a.chunk(kind, 0, at, lag, sameRead)
	}
	return kind
}

// delta keeps a piece of output, and returns its kind by the event's type.
func (a *Answer) delta(event, text []byte) record.Kind {
	part, ok := bytes.CutPrefix(event, []byte("response."))
	if part, isDelta := bytes.CutSuffix(part, []byte(".delta")); ok && isDelta && len(text) > 0 {
		out := a.texts(0)
		switch {
		case string(part) == "output_text":
			if out != nil {
				out.text = append(out.text, text...)
			}
			return record.KindText
		case string(part) == "refusal":
			return record.KindRefusal
		case bytes.HasPrefix(part, []byte("reasoning")):
			if out != nil {
				out.reasoning = append(out.reasoning, text...)
			}
			return record.KindReasoning
		case bytes.HasSuffix(part, []byte("_arguments")), string(part) == "custom_tool_call_input", string(part) == "code_interpreter_call_code":
			if out != nil {
				out.tools = append(out.tools, text...)
			}
			return record.KindTool
		}
	}
	return 0
}

// finishOf says how a response ended.
func finishOf(response *fastjson.Value, event []byte) []byte {
	if why := response.GetStringBytes("incomplete_details", "reason"); len(why) > 0 {
		return why
	}
	if status := response.GetStringBytes("status"); len(status) > 0 {
		return status
	}
	return bytes.TrimPrefix(event, []byte("response."))
}

// response takes a whole response, whose output is one chunk.
func (a *Answer) response(v *fastjson.Value, body []byte, at record.Time, lag uint32) {
	if string(v.GetStringBytes("status")) == "failed" {
		a.fail(v, body)
		return
	}
	a.about(v, v)
	a.usage(v, false)
	a.finish(0, finishOf(v, []byte("completed")))
	var kind record.Kind
	for _, item := range v.GetArray("output") {
		switch string(item.GetStringBytes("type")) {
		case "message":
			for _, part := range item.GetArray("content") {
				kind |= a.delta([]byte("response.output_text.delta"), part.GetStringBytes("text"))
				kind |= a.delta([]byte("response.refusal.delta"), part.GetStringBytes("refusal"))
			}
		case "reasoning":
			for _, list := range []string{"content", "summary"} {
				for _, part := range item.GetArray(list) {
					kind |= a.delta([]byte("response.reasoning_text.delta"), part.GetStringBytes("text"))
				}
			}
		case "function_call":
			kind |= record.KindTool
			a.delta([]byte("response.function_call_arguments.delta"), item.GetStringBytes("arguments"))
		}
	}
	if kind != 0 {
		a.choices = 1
		a.chunk(kind, 0, at, lag, false)
	}
}

// embeddings takes the vectors of a text: one chunk, whatever their number. They
// have no tokens of output, so a count of them says nothing.
func (a *Answer) embeddings(v *fastjson.Value, at record.Time, lag uint32) {
	a.about(v, v)
	a.usage(v, false)
	a.rec.Usage.Completion = record.Unknown
	a.finished = true
	for _, e := range v.GetArray("data") {
		vector := e.Get("embedding")
		if len(vector.GetArray()) > 0 || len(vector.GetStringBytes()) > 0 { // numbers, or base64 of them
			a.chunk(record.KindVector, 0, at, lag, false)
			return
		}
	}
}
