package mockserver

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tokmark/tokmark/bench/record"
)

// stream builds the events of one answer in the layout of vLLM's Python front
// end: the role event leaves with the first token, the finish reason stands in
// the last event with tokens, usage in an event of its own. It keeps one
// buffer, so that an event costs no allocation.
type stream struct {
	of         api
	chat       bool
	head       string // of every event, up to the choice's index
	toolID     string
	toolName   string // as a JSON string
	prompt     int
	continuous bool // running usage in every event
	likeliest  int  // tokens told with the log-probabilities of each; -1: none are told
	outs       []*output
	opened     []bool // by choice: the role event was made
	response   response
	buf        []byte
}

func newStream(id string, created int64, model string, of api, j *job, continuous bool) *stream {
	st := &stream{of: of, chat: of.chats(), prompt: j.prompt.tokens, continuous: continuous, likeliest: j.likeliest, opened: make([]bool, len(j.seqs))}
	for _, s := range j.seqs {
		st.outs = append(st.outs, s.out)
	}
	object := "text_completion"
	if st.chat {
		object = "chat.completion.chunk"
	}
	st.response = response{id: id, created: created, model: quote(model)}
	st.head = fmt.Sprintf(`data: {"id":"%s","object":"%s","created":%d,"model":%s,"choices":[`, id, object, created, quote(model))
	st.toolID = "call_" + id
	st.toolName = quote(st.outs[0].tool)
	return st
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(b)
}

func (st *stream) str(s string) { st.buf = append(st.buf, s...) }
func (st *stream) num(n int)    { st.buf = strconv.AppendInt(st.buf, int64(n), 10) }

// escaped appends text of the vocabulary, which needs nothing but quotation
// marks escaped.
func (st *stream) escaped(s string) {
	for i := 0; i < len(s); i++ {
		if s[i] == '"' {
			st.buf = append(st.buf, '\\')
		}
		st.buf = append(st.buf, s[i])
	}
}

// ends counts the steps that end their choice.
func (st *stream) ends(steps []step) int {
	n := 0
	for _, s := range steps {
		if s.end == st.outs[s.choice].length {
			n++
		}
	}
	return n
}

// role appends the role event of a choice, once.
func (st *stream) role(choice int) {
	if !st.chat || st.opened[choice] {
		return
	}
	st.opened[choice] = true
	if st.of == responsesAPI {
		st.created()
		return
	}
	st.str(st.head)
	st.str(`{"index":`)
	st.num(choice)
	st.str(`,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`)
	st.close(0)
}

// close ends an event; done are the tokens of its choice so far.
func (st *stream) close(done int) {
	if st.continuous {
		st.str(`,"usage":{"prompt_tokens":`)
		st.num(st.prompt)
		st.str(`,"total_tokens":`)
		st.num(st.prompt + done)
		st.str(`,"completion_tokens":`)
		st.num(done)
		st.str(`}`)
	}
	st.str("}\n\n")
}

// step appends the event of one engine step, the role event before it if that
// is still owed, and returns the kinds of output in it.
func (st *stream) step(s step) record.Kind {
	st.role(s.choice)
	o := st.outs[s.choice]
	if st.of == responsesAPI {
		return st.deltas(o, s)
	}
	st.str(st.head)
	st.str(`{"index":`)
	st.num(s.choice)
	var kinds record.Kind
	if st.chat {
		st.str(`,"delta":{`)
		kinds = st.delta(o, s)
		st.str(`},"logprobs":`)
	} else {
		st.str(`,"text":"`)
		for i := s.first; i < s.end; i++ {
			w, _ := o.token(i)
			st.escaped(w)
			if w != "" {
				kinds |= record.KindText
			}
		}
		st.str(`","logprobs":`)
	}
	st.logProbs(o, s.first, s.end)
	if s.end < o.length {
		st.str(`,"finish_reason":null}]`)
	} else {
		st.str(`,"finish_reason":"`)
		st.str(o.finish)
		st.str(`","stop_reason":`)
		if o.stop == "" {
			st.str("null")
		} else {
			st.str(quote(o.stop))
		}
		st.str(`}]`)
	}
	st.close(s.end)
	return kinds
}

// delta appends the members of a chat delta. Tokens are in the order
// reasoning, text or tool call, end, so that each member is one run of them.
func (st *stream) delta(o *output, s step) record.Kind {
	var kinds record.Kind
	var open record.Kind // of the member being written
	closeMember := func() {
		switch open {
		case record.KindTool:
			st.str(`"}}]`)
		case record.KindReasoning, record.KindText:
			st.str(`"`)
		}
	}
	for i := s.first; i < s.end; i++ {
		w, kind := o.token(i)
		if kind == 0 {
			break
		}
		if kind != open {
			closeMember()
			if open != 0 {
				st.str(`,`)
			}
			open = kind
			switch kind {
			case record.KindReasoning:
				st.str(`"reasoning_content":"`)
			case record.KindText:
				st.str(`"content":"`)
			case record.KindTool:
				st.str(`"tool_calls":[{"index":0,`)
				if i == o.reasoning { // the name
					st.str(`"id":"`)
					st.str(st.toolID)
					st.str(`","type":"function","function":{"name":`)
					st.str(st.toolName)
					st.str(`,"arguments":"`)
					kinds |= kind
					continue
				}
				st.str(`"function":{"arguments":"`)
			}
		}
		st.escaped(w)
		if w != "" {
			kinds |= kind
		}
	}
	closeMember()
	if open == 0 {
		st.str(`"content":""`)
	}
	return kinds
}

// usage appends the usage event.
func (st *stream) usage(u usage) {
	st.str(st.head)
	st.str(`],"usage":`)
	st.str(u.object())
	st.str("}\n\n")
}

// usage is the count of a whole answer.
type usage struct {
	prompt, cached, completion, reasoning int
	chat                                  bool
}

func (u usage) object() string {
	details := ""
	if u.chat {
		details = fmt.Sprintf(`,"completion_tokens_details":{"reasoning_tokens":%d}`, u.reasoning)
	}
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}%s}`,
		u.prompt, u.prompt+u.completion, u.completion, u.cached, details)
}

// document is the whole answer as one JSON document.
func (st *stream) document(id string, created int64, model string, u usage) []byte {
	switch st.of {
	case responsesAPI:
		return []byte(st.finished(u))
	case embeddingsAPI:
		return st.embedding(u)
	}
	type object = map[string]any
	choices := make([]object, len(st.outs))
	for i, o := range st.outs {
		st.buf = nil // the choice before keeps its part
		st.logProbs(o, 0, o.length)
		c := object{"index": i, "logprobs": json.RawMessage(st.buf), "finish_reason": o.finish, "stop_reason": nil}
		if o.stop != "" {
			c["stop_reason"] = o.stop
		}
		choices[i] = c
		if !st.chat {
			c["text"] = o.text(0, o.length, record.KindText)
			continue
		}
		m := object{"role": "assistant", "content": o.text(o.reasoning, o.length, record.KindText)}
		if o.reasoning > 0 {
			m["reasoning_content"] = o.text(0, o.reasoning, record.KindReasoning)
		}
		if o.tool != "" && o.length > o.reasoning {
			m["content"] = nil
			m["tool_calls"] = []object{{"id": st.toolID, "type": "function", "function": object{
				"name": o.tool, "arguments": o.text(o.reasoning+1, o.length, record.KindTool),
			}}}
		}
		c["message"] = m
	}
	kind := "text_completion"
	if st.chat {
		kind = "chat.completion"
	}
	b, err := json.Marshal(object{
		"id": id, "object": kind, "created": created, "model": model,
		"choices": choices, "usage": json.RawMessage(u.object()),
	})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return b
}
