package dataset

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/tokmark/tokmark/workloads"
)

// entry is one line, row or record.
type entry struct {
	session string
	at      time.Duration // of the first turn, in the time of the file
	timed   bool
	turns   []workloads.Request
	// lengths: the prompt has only a length, of these blocks if there are any.
	lengths bool
	blocks  []int64
	// reply is the answer in the file, replies those of all turns.
	reply   string
	replies []string
}

// follow makes e a later turn of the conversation that prev is part of. A time
// of its own becomes a think time: the gap between the two times.
func (e *entry) follow(prev entry) {
	if e.timed && prev.timed && e.turns[0].Delay == 0 {
		e.turns[0].Delay = max(0, e.at-prev.at)
	}
}

// parser reads one entry; its error is a *fault. It is safe for concurrent
// use.
type parser func(raw []byte) (entry, error)

// newParser returns the parser of a format of JSON lines.
func (o *Options) newParser(f Format) parser {
	read := map[Format]func(object) (entry, error){
		SingleTurn: singleTurn, MultiTurn: multiTurn, RandomPool: poolEntry,
		MooncakeTrace: o.mooncake, Prompts: prompts, OpenAIBatch: batch, ShareGPT: o.shareGPT,
	}[f]
	return func(raw []byte) (entry, error) {
		obj, err := newObject(raw)
		if err != nil {
			return entry{}, err
		}
		if f == RawPayload {
			return rawPayload(obj, raw)
		}
		return read(obj)
	}
}

// timing reads timestamp and delay, both in ms.
func (e *entry) timing(o object) (delay time.Duration, err error) {
	if o.has("timestamp") && o.has("delay") {
		return 0, bad(BadShape, "it has both a timestamp and a delay")
	}
	at, err := o.number("timestamp")
	if err != nil {
		return 0, err
	}
	wait, err := o.number("delay")
	if err != nil {
		return 0, err
	}
	if at < 0 {
		return 0, bad(NegativeTimestamp, "timestamp %s is below 0", o["timestamp"])
	}
	if wait < 0 {
		return 0, bad(BadShape, "delay %s is below 0", o["delay"])
	}
	if max(at, wait) > 9e12 { // 285 years
		return 0, bad(BadShape, "timestamp or delay is out of range: it must be in milliseconds")
	}
	e.timed = o.has("timestamp")
	e.at = millis(at)
	return millis(wait), nil
}

func millis(v float64) time.Duration { return time.Duration(math.Round(v * 1e6)) }

// output reads the first of the keys that hold an output length.
func output(o object, keys ...string) (int, error) {
	for _, key := range keys {
		if !o.has(key) {
			continue
		}
		n, err := o.count(key)
		if err == nil && n == 0 {
			err = bad(ZeroOutput, "%s is 0", key)
		}
		return n, err
	}
	return 0, nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// notText are the keys of AIPerf's lines that bring something else than text.
var notText = []string{"image", "images", "audio", "audios", "video", "videos"}

// turn reads a line of single_turn, or one turn of multi_turn.
func (e *entry) turn(o object) error {
	for _, key := range notText {
		if o.has(key) {
			return bad(BadShape, "%s is not supported: only text is", key)
		}
	}
	text, err := o.text("text")
	if err != nil {
		return err
	}
	var texts []string
	switch {
	case o.has("text") && o.has("texts"):
		return bad(BadShape, "it has both text and texts")
	case o.has("text"):
		texts = []string{text}
	case o.has("texts"):
		if texts, err = contents(o); err != nil {
			return err
		}
	default:
		return o.lacks("text or texts")
	}
	joined := strings.Join(texts, "\n")
	if blank(joined) {
		return bad(Empty, "the text is empty")
	}
	role, err := o.text("role")
	if err != nil {
		return err
	}
	if role == "" {
		role = "user"
	}
	r := workloads.Request{Messages: []workloads.Message{{Role: role, Content: joined}}}
	if r.OutputTokens, err = output(o, "output_length", "max_tokens"); err != nil {
		return err
	}
	if r.Model, err = o.text("model"); err != nil {
		return err
	}
	if r.Delay, err = e.timing(o); err != nil {
		return err
	}
	if err := o.extraBody(&r); err != nil {
		return err
	}
	e.turns = append(e.turns, r)
	return nil
}

// contents reads texts: strings, or {"name":…,"contents":[…]}.
func contents(o object) ([]string, error) {
	list, err := o.list("texts")
	if err != nil {
		return nil, err
	}
	var out []string
	for i, raw := range list {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			out = append(out, s)
			continue
		}
		var named struct {
			Contents []string `json:"contents"`
		}
		if json.Unmarshal(raw, &named) != nil || named.Contents == nil {
			return nil, bad(BadShape, "texts[%d] is neither a string nor has it an array of strings as contents", i)
		}
		out = append(out, named.Contents...)
	}
	return out, nil
}

func singleTurn(o object) (entry, error) {
	var e entry
	err := e.turn(o)
	return e, err
}

func poolEntry(o object) (entry, error) {
	for _, key := range []string{"timestamp", "delay", "role"} {
		if o.has(key) {
			return entry{}, bad(BadShape, "an entry of a random pool must not have a %s", key)
		}
	}
	return singleTurn(o)
}

func multiTurn(o object) (entry, error) {
	e, err := newSession(o)
	if err != nil {
		return e, err
	}
	if !o.has("turns") {
		return e, o.lacks("turns")
	}
	list, err := o.list("turns")
	if err != nil {
		return e, err
	}
	if len(list) == 0 {
		return e, bad(Empty, "turns is empty")
	}
	var last entry
	for i, raw := range list {
		t := entry{}
		turn, err := newObject(raw)
		if err == nil {
			err = t.turn(turn)
		}
		if err == nil && i > 0 && t.timed && last.timed && t.at < last.at {
			err = bad(BadShape, "its timestamp is before that of the turn before")
		}
		if err != nil {
			return e, inPart(err, "turn %d", i+1)
		}
		if i == 0 {
			e.at, e.timed = t.at, t.timed
		} else {
			t.follow(last)
		}
		last = t
		e.turns = append(e.turns, t.turns...)
	}
	return e, nil
}

// newSession reads session_id, a string or a number.
func newSession(o object) (entry, error) {
	raw := o["session_id"]
	switch kind(raw) {
	case "nothing":
		return entry{}, nil
	case "a number":
		return entry{session: string(raw)}, nil
	}
	s, err := o.text("session_id")
	return entry{session: s}, err
}

func (opt *Options) mooncake(o object) (entry, error) {
	e, err := newSession(o)
	if err != nil {
		return e, err
	}
	var r workloads.Request
	switch {
	case o.has("input_length") && o.has("text_input"):
		return e, bad(BadShape, "it has both input_length and text_input")
	case o.has("text_input"):
		if o.has("hash_ids") {
			return e, bad(BadShape, "hash_ids need input_length, not text_input")
		}
		if r.Prompt, err = o.text("text_input"); err == nil && blank(r.Prompt) {
			err = bad(Empty, "text_input is empty")
		}
	case o.has("input_length"):
		e.lengths = true
		if r.InputTokens, err = o.count("input_length"); err == nil && r.InputTokens == 0 {
			err = bad(ZeroInput, "input_length is 0")
		}
	default:
		err = o.lacks("input_length or text_input")
	}
	if err != nil {
		return e, err
	}
	if r.OutputTokens, err = output(o, "output_length"); err != nil {
		return e, err
	}
	if r.Delay, err = e.timing(o); err != nil {
		return e, err
	}
	ids, err := o.list("hash_ids")
	if err != nil {
		return e, err
	}
	for _, raw := range ids {
		var id int64
		if json.Unmarshal(raw, &id) != nil || string(raw) == "null" {
			return e, bad(BadShape, "hash_ids holds %s, which is no whole number", raw)
		}
		e.blocks = append(e.blocks, id)
	}
	if n := len(e.blocks); n > 0 {
		if need := (r.InputTokens + opt.BlockTokens - 1) / opt.BlockTokens; need != n {
			return e, bad(BadShape, "%d hash_ids do not fit input_length %d: %d blocks of %d tokens do", n, r.InputTokens, need, opt.BlockTokens)
		}
	}
	e.turns = []workloads.Request{r}
	return e, nil
}

// passed are the request fields that a prompt line may set. Other keys are
// taken for the dataset's own and are not sent, unless they are in extra_body.
var passed = []string{
	"temperature", "top_p", "top_k", "min_p", "seed", "stop", "ignore_eos", "min_tokens",
	"presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "response_format",
	"tools", "tool_choice", "reasoning_effort", "chat_template_kwargs", "priority",
}

func prompts(o object) (entry, error) {
	r, err := request(o)
	if err != nil {
		return entry{}, err
	}
	for _, key := range passed {
		if o.has(key) {
			r.Extra[key] = o[key]
		}
	}
	if err := o.extraBody(&r); err != nil {
		return entry{}, err
	}
	if len(r.Extra) == 0 {
		r.Extra = nil
	}
	return entry{turns: []workloads.Request{r}}, nil
}

// extraBody reads extra_body: further body fields, whatever their names. It is
// how Write keeps them.
func (o object) extraBody(r *workloads.Request) error {
	if !o.has("extra_body") {
		return nil
	}
	fields, err := newObject(o["extra_body"])
	if err != nil {
		return bad(BadShape, "extra_body is %s, not an object", kind(o["extra_body"]))
	}
	if r.Extra == nil {
		r.Extra = make(map[string]json.RawMessage, len(fields))
	}
	maps.Copy(r.Extra, fields)
	return nil
}

func batch(o object) (entry, error) {
	if !o.has("body") {
		return entry{}, o.lacks("body")
	}
	id, err := o.text("custom_id")
	if err != nil {
		return entry{}, err
	}
	body, err := newObject(o["body"])
	if err != nil {
		return entry{}, bad(BadShape, "body is %s, not an object", kind(o["body"]))
	}
	r, err := request(body)
	if err != nil {
		return entry{}, err
	}
	for key, raw := range body {
		switch key {
		case "prompt", "messages", "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "output_tokens":
		default:
			r.Extra[key] = raw
		}
	}
	if len(r.Extra) == 0 {
		r.Extra = nil
	}
	return entry{session: id, turns: []workloads.Request{r}}, nil
}

// request reads prompt or messages, the output length and the model.
func request(o object) (workloads.Request, error) {
	r := workloads.Request{Extra: map[string]json.RawMessage{}}
	var err error
	switch {
	case o.has("prompt") && o.has("messages"):
		return r, bad(BadShape, "it has both prompt and messages")
	case o.has("prompt"):
		if r.Prompt, err = o.text("prompt"); err == nil && blank(r.Prompt) {
			err = bad(Empty, "the prompt is empty")
		}
	case o.has("messages"):
		r.Messages, err = messages(o)
	default:
		err = o.lacks("prompt or messages")
	}
	if err != nil {
		return r, err
	}
	if r.OutputTokens, err = output(o, "max_completion_tokens", "max_tokens", "output_tokens"); err != nil {
		return r, err
	}
	r.Model, err = o.text("model")
	return r, err
}

func messages(o object) ([]workloads.Message, error) {
	list, err := o.list("messages")
	if err != nil {
		return nil, err
	}
	var out []workloads.Message
	empty := true
	for i, raw := range list {
		m, err := newObject(raw)
		if err != nil {
			return nil, bad(BadShape, "messages[%d] is %s, not an object", i, kind(raw))
		}
		role, err := m.text("role")
		if err != nil || role == "" {
			return nil, bad(BadShape, "messages[%d] has no role", i)
		}
		for _, key := range []string{"tool_calls", "tool_call_id", "function_call"} {
			if m.has(key) {
				return nil, bad(BadShape, "messages[%d] has %s, which is not supported: send whole bodies with %s", i, key, RawPayload)
			}
		}
		text, err := content(m, i)
		if err != nil {
			return nil, err
		}
		empty = empty && blank(text)
		out = append(out, workloads.Message{Role: role, Content: text})
	}
	if empty {
		return nil, bad(Empty, "the messages hold no text")
	}
	return out, nil
}

// content reads a message's content: a string, or an array of text parts.
func content(m object, i int) (string, error) {
	if kind(m["content"]) != "an array" {
		s, err := m.text("content")
		if err != nil {
			return "", bad(BadShape, "messages[%d]: content is %s", i, kind(m["content"]))
		}
		return s, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(m["content"], &parts) != nil {
		return "", bad(BadShape, "messages[%d]: content is not an array of parts", i)
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", bad(BadShape, "messages[%d]: a part of type %q is not supported: only text is", i, p.Type)
		}
		texts = append(texts, *p.Text)
	}
	return strings.Join(texts, "\n"), nil
}

func rawPayload(o object, raw []byte) (entry, error) {
	if len(o) == 0 {
		return entry{}, bad(Empty, "the body is {}")
	}
	r := workloads.Request{Body: bytes.Clone(bytes.TrimSpace(raw))}
	var err error
	if r.Model, err = o.text("model"); err != nil {
		return entry{}, err
	}
	r.OutputTokens, err = output(o, "max_completion_tokens", "max_tokens")
	return entry{turns: []workloads.Request{r}}, err
}

// speaker sorts the names that ShareGPT's variants give to the speakers.
func speaker(name string) string {
	switch strings.ToLower(name) {
	case "human", "user":
		return "user"
	case "gpt", "chatgpt", "assistant", "bard", "bing", "claude", "model", "bot":
		return "assistant"
	case "system":
		return "system"
	}
	return ""
}

func (opt *Options) shareGPT(o object) (entry, error) {
	var list []json.RawMessage
	var err error
	key := "conversations"
	for _, k := range []string{"conversations", "conversation", "messages"} {
		if o.has(k) {
			key = k
			break
		}
	}
	if !o.has(key) {
		return entry{}, o.lacks(key)
	}
	if list, err = o.list(key); err != nil {
		return entry{}, err
	}
	if len(list) == 0 {
		return entry{}, bad(Empty, "%s is empty", key)
	}
	id, err := o.text("id")
	if err != nil {
		id = "" // some variants number their records
	}
	e := entry{session: id}
	var front, pending []workloads.Message // before the reply at hand
	asked := false
	for i, raw := range list {
		m, err := newObject(raw)
		if err != nil {
			return e, bad(BadShape, "%s[%d] is %s, not an object", key, i, kind(raw))
		}
		from, text := "from", "value"
		if !m.has(from) {
			from = "role"
		}
		if !m.has(text) {
			text = "content"
		}
		name, err1 := m.text(from)
		value, err2 := m.text(text)
		if err1 != nil || err2 != nil {
			return e, bad(BadShape, "%s[%d]: speaker or text is no string", key, i)
		}
		switch who := speaker(name); {
		case who == "":
			return e, bad(BadShape, "%s[%d]: the speaker %q is not known", key, i, name)
		case who == "system" && !asked:
			if !blank(value) {
				front = append(front, workloads.Message{Role: who, Content: value})
			}
		case who == "assistant" && len(pending) == 0:
			// An answer that nobody asked for, or a second one.
		case who == "assistant":
			if blank(value) {
				return e, bad(NoReply, "%s[%d]: the reply is empty", key, i)
			}
			e.turns = append(e.turns, workloads.Request{Messages: append(front, pending...)})
			e.replies = append(e.replies, value)
			front, pending = nil, nil
			if !opt.WholeConversation {
				return e, nil
			}
		default:
			if blank(value) {
				return e, bad(Empty, "%s[%d]: the text is empty", key, i)
			}
			asked = true
			pending = append(pending, workloads.Message{Role: who, Content: value})
		}
	}
	switch {
	case len(e.turns) > 0:
		return e, nil
	case !asked:
		return e, bad(Empty, "nobody asks anything")
	}
	return e, bad(NoReply, "the question has no reply")
}
