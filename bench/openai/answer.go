// Package openai speaks the OpenAI API as its many servers speak it: it makes
// request bodies, and decodes answers into records.
package openai

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/valyala/fastjson"

	"github.com/tokmark/tokmark/bench/record"
)

// Codes that an Answer puts into Record.Notes.
const (
	NoteMissingDone  = "missing_done"  // a finish reason and a proper end, but no [DONE]
	NoteNotStreaming = "not_streaming" // one whole JSON answer to a request for a stream
	NoteUsageFell    = "usage_fell"    // a running count of completion tokens fell
	NoteUsageZero    = "usage_zero"    // output came, and the usage says 0 tokens
)

const (
	maxChoice  = 255     // what record.Chunk.Choice can hold
	keepParser = 1 << 20 // Reset drops buffers that a larger answer has grown
)

// Keep says for what the text of an answer is kept; the zero value for
// nothing.
type Keep uint8

// What may be kept.
const (
	KeepOutput    Keep = 1 << iota // in Record.Output
	KeepUncounted                  // in Record.Uncounted, if the answer tells no count
)

// Answer decodes one answer of a server into a record. What counts as output,
// success and a token count is set down in the methods Event and Close. It
// holds buffers to be used again: Reset makes it ready for the next answer. It
// is not safe for concurrent use.
type Answer struct {
	rec    *record.Record
	of     EndpointType
	parser fastjson.Parser
	parsed int // length of the longest text parsed

	ended    bool // [DONE] or a failure: what follows does not count
	whole    bool // a whole JSON body came
	finished bool // a finish reason came
	choices  int  // highest choice index + 1

	// Tokens by event. Which of the three ways holds is known only at the end.
	byUsage  []uint16     // differences of the running usage
	counted  record.Count // running usage at the last event with output
	running  record.Count // running usage at the last event with a choice
	grew     bool         // so far it grew with every event with output
	ids      listed
	logProbs listed
	cacheN   record.Count // llama.cpp's timings.cache_n

	told phases // the last ones

	keep   Keep
	output []texts
	like   pattern // what the events look like
}

// texts is the output of one choice so far.
type texts struct {
	text, reasoning, tools []byte
	logProbs               []record.TokenLogProbs
}

// listed counts tokens that the events list one by one.
type listed struct {
	sum     record.Count // over all events
	counted record.Count // sum at the last event with output
	missing bool         // an event with output brought none
}

// next returns how many came since the last event with output, at the next.
func (l *listed) next() record.Count {
	n := l.sum - l.counted
	l.counted = l.sum
	l.missing = l.missing || n == 0
	return n
}

// has reports whether all of an answer with output are there.
func (l *listed) has() bool { return l.counted > 0 && !l.missing }

// Reset makes a ready for an answer that goes to rec, and says what its text is
// kept for. Chat and completions are told apart by their fields, so of says no
// more than that it is one of the two.
//
// The Answer fills what the answer tells: Streamed, FirstEvent, Outcome,
// Failure, Chunks, Events and the places among them, FinishReasons, Done,
// Notes, ResponseModel, Tokens, Usage, ServerTimings, Output, Uncounted. The rest
// is the caller's; of that, Streaming and AskedOutput must be set before the
// first event.
func (a *Answer) Reset(rec *record.Record, of EndpointType, keep Keep) {
	b := Answer{
		rec: rec, of: of, keep: keep,
		parser: a.parser, byUsage: a.byUsage[:0], output: a.output[:0],
		counted: 0, running: record.Unknown, grew: true,
		cacheN: record.Unknown, like: a.like.forgotten(),
	}
	if a.parsed > keepParser {
		b.parser, b.byUsage, b.output, b.like = fastjson.Parser{}, nil, nil, pattern{}
	}
	*a = b
}

// Event takes one SSE event with data: its name, its data, its arrival, our lag
// and whether an earlier event was completed by the same read. It keeps neither
// slice. It reports whether more is to be read: false after [DONE], and after
// anything that made the request fail; events that come later are ignored.
//
// An event carries output if any of its choices has non-empty content,
// reasoning_content, reasoning, refusal, text, token_ids, output_ids, or a
// function's name or arguments. Blank data is no event. An event named error, an
// error object, an object that tells a detail and has no choices, and a finish
// reason that names a failure end the request as record.StreamError; data that
// is no JSON ends it as record.Malformed. JSON of any other shape is passed
// over. For Responses see responseEvent.
func (a *Answer) Event(name, data []byte, at record.Time, lag uint32, sameRead bool) (more bool) {
	if a.ended {
		return false
	}
	data = bytes.TrimSpace(data)
	isError := string(name) == "error"
	if len(data) == 0 && !isError {
		return true
	}
	rec := a.rec
	rec.Streamed = true
	if !rec.FirstEvent.IsSet() {
		rec.FirstEvent = at
	}
	place := rec.Events
	rec.Events++

	if string(data) == "[DONE]" {
		rec.Done, a.ended = true, true
		return false
	}
	if text, ok := a.like.text(data); ok && !isError && a.like.model == rec.ResponseModel {
		a.plain(text)
		a.chunk(a.like.kind, a.like.choice, at, lag, sameRead)
		a.place(place, a.like.kind)
		return true
	}
	v := a.parse(data)
	switch {
	case isError:
		a.fail(v, data)
	case v == nil:
		a.ended = true
		rec.Fail(record.Malformed, record.Failure{
			Stage:   "body",
			Message: oneLine(fmt.Sprintf("event %d is no JSON: %s", place, firstBytes(data))),
			Body:    firstBytes(data),
		})
	case v.Type() != fastjson.TypeObject:
	case isFailure(v):
		a.fail(v, data)
	case a.of == Responses:
		if kind := a.responseEvent(name, v, data, at, lag, sameRead); kind.Output() {
			a.place(place, kind)
		}
	default:
		if kind := a.object(v, data, at, lag, sameRead); kind.Output() {
			a.place(place, kind)
			if !a.ended {
				a.learn(data, kind)
			}
		}
	}
	return !a.ended
}

// place notes where among the events one with output stands.
func (a *Answer) place(place int, kind record.Kind) {
	rec := a.rec
	rec.LastTokenEvent = place
	if rec.FirstTokenEvent < 0 {
		rec.FirstTokenEvent = place
	}
	if kind.Answer() && rec.FirstAnswerEvent < 0 {
		rec.FirstAnswerEvent = place
	}
}

// Unterminated takes an event that the proper end of the body left open. It
// counts like any other if its data is whole, and else for nothing: the answer
// is then judged by what came before.
func (a *Answer) Unterminated(name, data []byte, at record.Time, lag uint32, sameRead bool) {
	data = bytes.TrimSpace(data)
	if string(name) == "error" || string(data) == "[DONE]" || json.Valid(data) {
		a.Event(name, data, at, lag, sameRead)
	}
}

// Whole takes a whole JSON body that came in place of a stream: the answer to a
// request without one, or to a request for a stream by a server that has none
// (NoteNotStreaming). Its output is one chunk at the arrival given. A body that
// is no JSON is record.Malformed, one that holds no answer of the endpoint type
// record.ErrorBody.
func (a *Answer) Whole(body []byte, at record.Time, lag uint32) {
	if a.ended {
		return
	}
	body = bytes.TrimSpace(body)
	a.whole = true
	switch v := a.parse(body); {
	case v == nil:
		a.ended = true
		message := "the answer is empty"
		if len(body) > 0 {
			message = "the answer is no JSON: " + plainText(body)
		}
		a.rec.Fail(record.Malformed, record.Failure{Stage: "body", Message: oneLine(message), Body: firstBytes(body)})
	case v.Type() != fastjson.TypeObject, isFailure(v), !v.Exists(a.of.answerField()):
		a.fail(v, body)
	case a.of == Responses:
		a.response(v, body, at, lag)
	case a.of == Embeddings:
		a.embeddings(v, at, lag)
	default:
		a.object(v, body, at, lag, false)
	}
	if !a.ended && a.rec.Streaming {
		a.rec.Note(NoteNotStreaming)
	}
	a.ended = true
}

// Close ends the answer: it settles the token counts and, if nothing has failed
// yet, the outcome. Call it in every case. If the body did not come to a proper
// end or to [DONE], set the outcome with rec.Fail before.
//
// Without output the answer is record.Empty; a stream with neither a finish
// reason nor [DONE] is record.Truncated.
func (a *Answer) Close() {
	rec := a.rec
	a.ended = true
	a.settleTokens()
	rec.ServerTimings = a.told.record()
	if a.keep&KeepOutput != 0 {
		rec.Output = a.outputs()
	}
	if a.keep&KeepUncounted != 0 && !rec.Tokens.Output.IsKnown() && a.allText() {
		rec.Uncounted = a.outputs()
	}
	switch {
	case rec.Outcome != "":
	case !a.whole && !a.finished && !rec.Done:
		rec.Fail(record.Truncated, record.Failure{
			Stage: "body", Message: "the stream ended with neither a finish reason nor [DONE]",
		})
	case len(rec.Chunks) == 0:
		rec.Fail(record.Empty, record.Failure{Stage: "body", Message: "the answer came to a proper end without any output"})
	default:
		rec.Outcome = record.OK
		if rec.Streamed && !rec.Done && a.of != Responses { // which have none
			rec.Note(NoteMissingDone)
		}
	}
}

// parse returns nil if data is no JSON. fastjson is lax about numbers and about
// what stands inside strings, which does no harm in an object.
func (a *Answer) parse(data []byte) *fastjson.Value {
	a.parsed = max(a.parsed, len(data))
	v, err := a.parser.ParseBytes(data)
	if err != nil {
		return nil
	}
	if t := v.Type(); t != fastjson.TypeObject && t != fastjson.TypeArray && !json.Valid(data) {
		return nil
	}
	return v
}

// fail ends the request with the error that data tells; v is nil if it is no
// JSON.
func (a *Answer) fail(v *fastjson.Value, data []byte) {
	a.ended = true
	f := explain(v, data)
	f.Stage = "body"
	a.rec.Fail(a.failure(), f)
}

// failure is the outcome of an answer that holds an error.
func (a *Answer) failure() record.Outcome {
	if a.whole {
		return record.ErrorBody
	}
	return record.StreamError
}

// object takes one event or body that holds an answer, and returns the kinds of
// output in it.
func (a *Answer) object(v *fastjson.Value, data []byte, at record.Time, lag uint32, sameRead bool) record.Kind {
	rec := a.rec
	a.about(v, v)

	var (
		kind, k record.Kind
		n       counts
		failed  string // finish reason that says so
		from    = -1   // choice of the output
	)
	list := v.GetArray("choices")
	for i, c := range list {
		index := choiceIndex(c, i)
		a.choices = max(a.choices, index+1)
		out := a.texts(index)
		k, n = choice(c, out)
		if n.logProbs > 0 && a.keep&KeepOutput != 0 {
			out.logProbs = appendLogProbs(out.logProbs, c.Get("logprobs"))
		}
		kind |= k
		a.ids.sum += n.ids
		a.logProbs.sum += n.logProbs
		if k != 0 && from < 0 {
			from = index
		}
		if reason := c.GetStringBytes("finish_reason"); len(reason) > 0 {
			a.finish(index, reason)
			if failedReason(reason) {
				failed = rec.FinishReasons[index]
			}
		}
	}
	a.usage(v, len(list) > 0)
	if kind != 0 {
		kind = a.chunk(kind, from, at, lag, sameRead)
	}
	if failed != "" {
		a.ended = true
		rec.Fail(a.failure(), record.Failure{
			Stage: "body", Code: failed, Body: firstBytes(data),
			Message: oneLine("the server ended the answer with finish reason " + failed),
		})
	}
	return kind
}

// about takes what an event tells of the answer as a whole: its model from
// answer, which is the event itself or a part of it, and the server's timings.
func (a *Answer) about(event, answer *fastjson.Value) {
	if model := answer.GetStringBytes("model"); len(model) > 0 && string(model) != a.rec.ResponseModel {
		a.rec.ResponseModel = string(model)
	}
	if n := count(event.Get("timings", "cache_n")); n.IsKnown() {
		a.cacheN = n
	}
	if p := readPhases(event); p.source != "" {
		a.told = p
	}
}

// choiceIndex is the index of the choice that stands at a place in choices.
func choiceIndex(c *fastjson.Value, place int) int {
	index := place
	if at := c.Get("index"); at != nil && at.Type() == fastjson.TypeNumber {
		index = at.GetInt()
	}
	return min(max(index, 0), maxChoice)
}

// chunk appends an event with output to the record, and returns its kind with
// the flag about its arrival. What the event says of tokens has been read.
func (a *Answer) chunk(kind record.Kind, choice int, at record.Time, lag uint32, sameRead bool) record.Kind {
	rec := a.rec
	tokens := a.tokens()
	if sameRead {
		kind |= record.SameRead
	}
	if rec.Chunks == nil {
		// One allocation for the usual answer: an event a token.
		rec.Chunks = make(record.Chunks, 0, min(max(16, rec.AskedOutput+1), 4096))
	}
	rec.Chunks = append(rec.Chunks, record.Chunk{At: at, Lag: lag, Tokens: tokens, Kind: kind, Choice: uint8(choice)})
	return kind
}

// failedReason reports whether a finish reason says that generation failed.
func failedReason(reason []byte) bool {
	switch string(reason) {
	case "error", "abort", "parse_error", "insufficient_system_resource":
		return true
	}
	return false
}

func (a *Answer) finish(choice int, reason []byte) {
	a.finished = true
	rec := a.rec
	for len(rec.FinishReasons) <= choice {
		rec.FinishReasons = append(rec.FinishReasons, "")
	}
	if rec.FinishReasons[choice] != string(reason) {
		rec.FinishReasons[choice] = string(reason)
	}
}

// texts is where the output of a choice is kept; nil: it is not.
func (a *Answer) texts(choice int) *texts {
	if a.keep == 0 {
		return nil
	}
	for len(a.output) <= choice {
		if len(a.output) < cap(a.output) {
			a.output = a.output[:len(a.output)+1]
			o := &a.output[len(a.output)-1]
			o.text, o.reasoning, o.tools, o.logProbs = o.text[:0], o.reasoning[:0], o.tools[:0], nil
		} else {
			a.output = append(a.output, texts{})
		}
	}
	return &a.output[choice]
}

// outputs returns the text that was kept.
func (a *Answer) outputs() []record.Output {
	var out []record.Output
	for _, o := range a.output {
		out = append(out, record.Output{Text: string(o.text), Reasoning: string(o.reasoning), Tools: string(o.tools), LogProbs: o.logProbs})
	}
	return out
}

// allText reports whether there is output, and its text is all that the model
// wrote. It is not where a function was called: how the model writes that down
// does not come with the answer.
func (a *Answer) allText() bool {
	var kind record.Kind
	for i := range a.rec.Chunks {
		kind |= a.rec.Chunks[i].Kind
	}
	return kind&(record.KindText|record.KindReasoning) != 0 && kind&(record.KindTool|record.KindRefusal|record.KindVector) == 0
}

// plain keeps the text of an event that matched the pattern.
func (a *Answer) plain(text []byte) {
	switch out := a.texts(a.like.choice); {
	case out == nil:
	case a.like.kind&record.KindText != 0:
		out.text = append(out.text, text...)
	case a.like.kind&record.KindReasoning != 0:
		out.reasoning = append(out.reasoning, text...)
	}
}

// counts are the tokens that one choice of an event lists.
type counts struct{ ids, logProbs record.Count }

// choice takes one entry of choices, and returns the kinds of output in it and
// the tokens that it lists. It appends the text to out, if that is not nil.
func choice(c *fastjson.Value, out *texts) (kind record.Kind, n counts) {
	ids := len(c.GetArray("token_ids"))
	if ids == 0 {
		ids = len(c.GetArray("output_ids"))
	}
	if ids > 0 {
		kind |= record.KindTokenIDs
	}
	n = counts{record.Count(ids), logProbs(c.Get("logprobs"))}
	if text := c.GetStringBytes("text"); len(text) > 0 {
		kind |= record.KindText
		if out != nil {
			out.text = append(out.text, text...)
		}
	}
	delta := c.Get("delta")
	if delta == nil || delta.Type() != fastjson.TypeObject {
		if delta = c.Get("message"); delta == nil || delta.Type() != fastjson.TypeObject {
			return kind, n
		}
	}
	if text := delta.GetStringBytes("content"); len(text) > 0 {
		kind |= record.KindText
		if out != nil {
			out.text = append(out.text, text...)
		}
	}
	// Some servers send the same text under both names.
	reasoning := delta.GetStringBytes("reasoning_content")
	if len(reasoning) == 0 {
		reasoning = delta.GetStringBytes("reasoning")
	}
	if len(reasoning) > 0 {
		kind |= record.KindReasoning
		if out != nil {
			out.reasoning = append(out.reasoning, reasoning...)
		}
	}
	if len(delta.GetStringBytes("refusal")) > 0 {
		kind |= record.KindRefusal
	}
	for _, call := range delta.GetArray("tool_calls") {
		kind |= function(call.Get("function"), out)
	}
	kind |= function(delta.Get("function_call"), out)
	return kind, n
}

// logProbs is the number of tokens whose log-probabilities are given, as chats
// or as completions give them.
func logProbs(v *fastjson.Value) record.Count {
	if v == nil || v.Type() != fastjson.TypeObject {
		return 0
	}
	if n := len(v.GetArray("content")) + len(v.GetArray("refusal")); n > 0 {
		return record.Count(n)
	}
	return record.Count(len(v.GetArray("tokens")))
}

// function takes the function of a tool call.
func function(f *fastjson.Value, out *texts) record.Kind {
	if f == nil {
		return 0
	}
	arguments := f.GetStringBytes("arguments")
	if out != nil {
		out.tools = append(out.tools, arguments...)
	}
	if len(arguments) > 0 || len(f.GetStringBytes("name")) > 0 {
		return record.KindTool
	}
	return 0
}

// usage takes the usage of an event, wherever it stands. The last one wins, as
// a whole.
func (a *Answer) usage(v *fastjson.Value, hasChoice bool) {
	u := readUsage(v.Get("usage"))
	if u == record.NoUsage {
		u = readUsage(v.Get("x_groq", "usage"))
	}
	if u == record.NoUsage {
		return
	}
	// Several answers have a running count each, so only that of a single one
	// can be followed.
	if a.choices <= 1 && u.Completion.IsKnown() && u.Completion < a.rec.Usage.Completion {
		a.rec.Note(NoteUsageFell)
	}
	if hasChoice && u.Completion.IsKnown() {
		a.running = u.Completion
	}
	a.rec.Usage = u
}

func readUsage(v *fastjson.Value) record.Usage {
	if v == nil || v.Type() != fastjson.TypeObject {
		return record.NoUsage
	}
	u := record.Usage{
		Prompt:     count(v.Get("prompt_tokens")),
		Completion: count(v.Get("completion_tokens")),
		Total:      count(v.Get("total_tokens")),
		Reasoning:  count(v.Get("completion_tokens_details", "reasoning_tokens")),
		Cached:     count(v.Get("prompt_tokens_details", "cached_tokens")),
	}
	if !u.Prompt.IsKnown() && !u.Completion.IsKnown() { // the words of Responses
		u.Prompt, u.Completion = count(v.Get("input_tokens")), count(v.Get("output_tokens"))
	}
	if !u.Reasoning.IsKnown() {
		u.Reasoning = count(v.Get("output_tokens_details", "reasoning_tokens"))
	}
	if !u.Cached.IsKnown() {
		u.Cached = count(v.Get("input_tokens_details", "cached_tokens"))
	}
	if !u.Reasoning.IsKnown() {
		u.Reasoning = count(v.Get("reasoning_tokens"))
	}
	if !u.Cached.IsKnown() {
		u.Cached = count(v.Get("prompt_cache_hit_tokens"))
	}
	return u
}

// count reads a number of tokens; anything but a whole number that is not
// negative is unknown.
func count(v *fastjson.Value) record.Count {
	if v == nil || v.Type() != fastjson.TypeNumber {
		return record.Unknown
	}
	if n, err := v.Int64(); err == nil {
		return max(record.Count(n), record.Unknown)
	}
	const exact = 1 << 53
	if f, err := v.Float64(); err == nil && f >= 0 && f < exact && f == float64(int64(f)) {
		return record.Count(f)
	}
	return record.Unknown
}

// tokens notes what an event with output says of its number of tokens, and
// returns the number that it lists, or record.UnknownTokens.
func (a *Answer) tokens() uint16 {
	a.grew = a.grew && a.running > a.counted
	if a.grew {
		a.byUsage = append(a.byUsage, small(a.running-a.counted))
		a.counted = a.running
	}
	ids, logProbs := a.ids.next(), a.logProbs.next()
	switch {
	case ids > 0:
		return small(ids)
	case logProbs > 0:
		return small(logProbs)
	}
	return record.UnknownTokens
}

// small is a number of tokens as record.Chunk holds it.
func small(n record.Count) uint16 { return uint16(min(n, record.UnknownTokens)) }

// settleTokens decides where the counts come from: the server's usage, else
// token ids, else log-probabilities, else nowhere that the answer knows of.
func (a *Answer) settleTokens() {
	rec := a.rec
	u, t := rec.Usage, &rec.Tokens
	t.Input, t.Reasoning, t.Cached = u.Prompt, u.Reasoning, u.Cached
	if !t.Cached.IsKnown() {
		t.Cached = a.cacheN
	}
	if u.Completion == 0 && len(rec.Chunks) > 0 {
		// That cannot be true, so it was not counted.
		rec.Note(NoteUsageZero)
		u.Completion = record.Unknown
	}
	switch {
	case u.Completion.IsKnown():
		t.Source = record.SourceUsage
		t.Output = max(u.Completion-max(u.Reasoning, 0), 0)
	case a.ids.has():
		t.Source = record.SourceTokenIDs
		t.Output, t.Reasoning = a.ids.sum, record.Unknown
	case a.logProbs.has():
		t.Source = record.SourceLogProbs
		t.Output, t.Reasoning = a.logProbs.sum, record.Unknown
	case u.Prompt.IsKnown():
		t.Source = record.SourceUsage
	}

	// The tokens of each event: from a running usage that grew with every one
	// of them and led to the total, else from what every one of them lists, else
	// unknown. What grew on later events without output, as an end token, came
	// with none of them.
	byUsage := a.grew && a.choices == 1 && len(rec.Chunks) > 0 && a.running == u.Completion
	for i := range rec.Chunks {
		switch c := &rec.Chunks[i]; {
		case byUsage:
			c.Tokens = a.byUsage[i]
		case !a.ids.has() && !a.logProbs.has():
			c.Tokens = record.UnknownTokens
		}
	}
}
