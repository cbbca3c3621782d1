package mockserver

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
)

// translate puts the words of responses and embeddings into those of chats and
// completions. Embeddings are a prompt whose answer is one token long: it is
// there when the prompt is done.
func (q *request) translate(of api) *apiError {
	switch of {
	case responsesAPI:
		var text string
		if json.Unmarshal(q.Input, &text) == nil {
			q.Messages = []message{{Role: "user", Content: content(text)}}
		} else if err := json.Unmarshal(q.Input, &q.Messages); err != nil {
			return badRequest("input", "input: %v", err)
		}
		if q.Instructions != "" {
			q.Messages = append([]message{{Role: "system", Content: content(q.Instructions)}}, q.Messages...)
		}
		q.MaxCompletionTokens, q.MaxTokens, q.N = q.MaxOutputTokens, nil, nil
	case embeddingsAPI:
		if err := json.Unmarshal(q.Input, &q.Prompt); err != nil {
			return badRequest("input", "input: %v", err)
		}
		one := 1
		q.MaxTokens, q.MinTokens, q.IgnoreEOS, q.N, q.Stream, q.StreamOptions = &one, 0, true, nil, false, nil
	}
	return nil
}

// response is what the events of a Responses stream have in common.
type response struct {
	id      string
	created int64
	model   string // as a JSON string
	number  int    // of the next event
	item    record.Kind
}

// event begins an event of that type.
func (st *stream) event(name string) {
	st.str("event: ")
	st.str(name)
	st.str("\ndata: {\"type\":\"")
	st.str(name)
	st.str(`","sequence_number":`)
	st.num(st.response.number)
	st.response.number++
}

// created appends the event that opens the stream.
func (st *stream) created() {
	st.event("response.created")
	st.str(`,"response":`)
	st.str(st.object("in_progress", "null", "[]", "null"))
	st.str("}\n\n")
}

// object is the response as JSON.
func (st *stream) object(status, why, output, usage string) string {
	r := &st.response
	return fmt.Sprintf(`{"id":"%s","object":"response","created_at":%d,"status":"%s","error":null,"incomplete_details":%s,"model":%s,"output":%s,"usage":%s}`,
		r.id, r.created, status, why, r.model, output, usage)
}

// deltas appends the events of one engine step: one for each kind of output in
// it, as a delta holds but one.
func (st *stream) deltas(o *output, s step) record.Kind {
	var kinds record.Kind
	for i := s.first; i < s.end; {
		_, kind := o.token(i)
		from := i
		for i < s.end {
			if _, k := o.token(i); k != kind {
				break
			}
			i++
		}
		if kind == 0 {
			break // the end token
		}
		if kind == record.KindTool && from == o.reasoning {
			st.event("response.output_item.added")
			st.str(`,"output_index":0,"item":{"type":"function_call","id":"`)
			st.str(st.toolID)
			st.str(`","name":`)
			st.str(st.toolName)
			st.str(`,"arguments":"","status":"in_progress"}}` + "\n\n")
			kinds |= kind
			from++
		} else if kind != st.response.item {
			st.event("response.output_item.added")
			st.str(`,"output_index":0,"item":{"type":"`)
			st.str(map[record.Kind]string{record.KindReasoning: "reasoning", record.KindText: "message", record.KindTool: "function_call"}[kind])
			st.str(`","status":"in_progress"}}` + "\n\n")
		}
		st.response.item = kind
		text := o.text(from, i, kind)
		if text == "" {
			continue
		}
		switch kind {
		case record.KindReasoning:
			st.event("response.reasoning_text.delta")
		case record.KindTool:
			st.event("response.function_call_arguments.delta")
		default:
			st.event("response.output_text.delta")
		}
		st.str(`,"output_index":0,"delta":"`)
		st.escaped(text)
		st.str("\"}\n\n")
		kinds |= kind
	}
	return kinds
}

// completed appends the event that ends the stream.
func (st *stream) completed(u usage) {
	name := "response.completed"
	if st.outs[0].finish == "length" {
		name = "response.incomplete"
	}
	st.event(name)
	st.str(`,"response":`)
	st.str(st.finished(u))
	st.str("}\n\n")
}

// failed appends the event of a response that failed.
func (st *stream) failed() {
	st.event("response.failed")
	st.str(`,"response":{"id":"`)
	st.str(st.response.id)
	st.str(`","object":"response","status":"failed","error":{"code":"server_error","message":"`)
	st.str(simulatedError().message)
	st.str("\"}}}\n\n")
}

// finished is the whole response as JSON.
func (st *stream) finished(u usage) string {
	o := st.outs[0]
	var items []string
	if o.reasoning > 0 {
		items = append(items, `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":`+quote(o.text(0, o.reasoning, record.KindReasoning))+`}]}`)
	}
	switch {
	case o.length <= o.reasoning:
	case o.tool != "":
		items = append(items, `{"type":"function_call","id":"`+st.toolID+`","name":`+st.toolName+`,"arguments":`+quote(o.text(o.reasoning+1, o.length, record.KindTool))+`}`)
	default:
		items = append(items, `{"type":"message","role":"assistant","content":[{"type":"output_text","annotations":[],"text":`+quote(o.text(o.reasoning, o.length, record.KindText))+`}]}`)
	}
	status, why := "completed", "null"
	if o.finish == "length" {
		status, why = "incomplete", `{"reason":"max_output_tokens"}`
	}
	counts := fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}`,
		u.prompt, u.cached, u.completion, u.reasoning, u.prompt+u.completion)
	return st.object(status, why, "["+strings.Join(items, ",")+"]", counts)
}

// vectorLength is the number of dimensions of an embedding.
const vectorLength = 64

// embedding is the answer with the vector of a prompt: the same for the same
// one.
func (st *stream) embedding(u usage) []byte {
	b := []byte(`{"object":"list","model":` + st.response.model + `,"data":[{"object":"embedding","index":0,"embedding":[`)
	for i := range vectorLength {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(mix(st.outs[0].key+uint64(i))>>11)/(1<<52)-1, 'g', 6, 64)
	}
	return fmt.Appendf(b, `]}],"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, u.prompt, u.prompt)
}
