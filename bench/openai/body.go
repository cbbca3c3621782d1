package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tokmark/tokmark/workloads"
)

// EndpointType names one API of the OpenAI family.
type EndpointType string

// The endpoint types.
const (
	Chat        EndpointType = "chat"
	Completions EndpointType = "completions"
	Responses   EndpointType = "responses"
	Embeddings  EndpointType = "embeddings"
)

// EndpointTypes lists all types.
func EndpointTypes() []EndpointType {
	return []EndpointType{Chat, Completions, Responses, Embeddings}
}

// Streams reports whether answers of the type can be streams.
func (t EndpointType) Streams() bool { return t != Embeddings }

// Path is the path of the endpoint below the server's address; empty for a
// type that is not known.
func (t EndpointType) Path() string {
	switch t {
	case Chat:
		return "/v1/chat/completions"
	case Completions:
		return "/v1/completions"
	case Responses:
		return "/v1/responses"
	case Embeddings:
		return "/v1/embeddings"
	}
	return ""
}

// The names of the limit of the output; the last one is of Responses alone.
const (
	maxTokens           = "max_tokens"
	maxCompletionTokens = "max_completion_tokens"
	maxOutputTokens     = "max_output_tokens"
)

// BodyOptions are what all request bodies of a run have in common.
type BodyOptions struct {
	// Model is the model asked for, unless the request names its own. Empty:
	// the field is left out.
	Model string
	// Stream asks for a stream.
	Stream bool
	// IncludeUsage asks for the usage at the end of the stream
	// (stream_options.include_usage), ContinuousUsage for a running usage on
	// every event (stream_options.continuous_usage_stats). Both mean nothing
	// without Stream, and for Responses, whose last event always has the usage.
	IncludeUsage    bool
	ContinuousUsage bool
	// MaxTokensField is the field that limits the output. Empty: as AIPerf,
	// max_completion_tokens for chat and max_tokens for completions. Responses
	// know max_output_tokens alone, and embeddings none.
	MaxTokensField string
	// Extra holds further fields. They replace ours of the same name; a limit
	// of the output under either of its names replaces ours.
	Extra map[string]json.RawMessage
}

// Body returns the JSON body of one request. Equal arguments give equal bytes:
// our fields come in a fixed order, then the extra ones sorted by name. Where
// both have a field, opt.Extra goes before req.Extra, and both before ours.
//
// A req.Body is returned as it is. A prompt becomes the one user message of a
// chat, and a single message the prompt of a completion or the text that is
// embedded; messages become the input of Responses as they are. It is an error
// if there is nothing to ask, if a prompt would have to be made of several
// messages, or if an extra field is not JSON.
func Body(t EndpointType, req workloads.Request, opt BodyOptions) ([]byte, error) {
	if req.Body != nil {
		return req.Body, nil
	}
	extra := maps.Clone(req.Extra)
	if extra == nil {
		extra = map[string]json.RawMessage{}
	}
	maps.Copy(extra, opt.Extra)

	b := body{extra: extra}
	b.enc = json.NewEncoder(&b.buf)
	b.enc.SetEscapeHTML(false)
	b.buf.Grow(size(req))
	b.buf.WriteByte('{')
	if model := req.Model; model != "" {
		b.field("model", model)
	} else if opt.Model != "" {
		b.field("model", opt.Model)
	}
	limit := opt.MaxTokensField
	switch t {
	case Chat:
		b.messages("messages", req)
		limit = cmp.Or(limit, maxCompletionTokens)
	case Completions:
		b.prompt("prompt", t, req)
		limit = cmp.Or(limit, maxTokens)
	case Responses:
		if len(req.Messages) > 0 {
			b.messages("input", req)
		} else {
			b.prompt("input", t, req)
		}
		limit = maxOutputTokens
	case Embeddings:
		b.prompt("input", t, req)
		limit = ""
	default:
		return nil, fmt.Errorf("build request body: endpoint type %q is not known; use one of %q", t, EndpointTypes())
	}
	if opt.Stream && t.Streams() {
		b.field("stream", true)
		if t != Responses && (opt.IncludeUsage || opt.ContinuousUsage) {
			b.field("stream_options", struct {
				IncludeUsage    bool `json:"include_usage,omitempty"`
				ContinuousUsage bool `json:"continuous_usage_stats,omitempty"`
			}{opt.IncludeUsage, opt.ContinuousUsage})
		}
	}
	if req.OutputTokens > 0 && limit != "" && extra[maxTokens] == nil && extra[maxCompletionTokens] == nil {
		b.field(limit, req.OutputTokens)
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if !json.Valid(extra[name]) {
			b.fail(fmt.Errorf("extra field %q is not JSON: %.40q", name, extra[name]))
			break
		}
		b.name(name)
		b.buf.Write(extra[name])
	}
	b.buf.WriteByte('}')
	if b.err != nil {
		return nil, fmt.Errorf("build request body: %w", b.err)
	}
	return b.buf.Bytes(), nil
}

// Asked tells what a body that was made elsewhere asks for: its model, empty if
// it names none, and whether a stream.
func Asked(body []byte) (model string, stream bool) {
	var asked struct {
		Model  json.RawMessage `json:"model"`
		Stream json.RawMessage `json:"stream"`
	}
	if json.Unmarshal(body, &asked) != nil {
		return "", false // the server is to say what it makes of it
	}
	_ = json.Unmarshal(asked.Model, &model) // what is no text names none
	return model, string(asked.Stream) == "true"
}

// size is about how long the body of a request becomes.
func size(req workloads.Request) int {
	const rest = 256
	n := len(req.Prompt) + rest
	for _, m := range req.Messages {
		n += len(m.Content) + rest/4
	}
	return n + n/8 // for escapes
}

// body is a JSON object that is being written, with its first error.
type body struct {
	buf   bytes.Buffer
	enc   *json.Encoder // into buf
	extra map[string]json.RawMessage
	err   error
}

func (b *body) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// field writes one of our fields, unless an extra one takes its place.
func (b *body) field(name string, value any) {
	if _, taken := b.extra[name]; taken {
		return
	}
	b.name(name)
	b.value(value)
}

func (b *body) name(name string) {
	if b.buf.Len() > 1 {
		b.buf.WriteByte(',')
	}
	b.value(name)
	b.buf.WriteByte(':')
}

// value writes as json.Marshal does, but without the escapes that only HTML
// needs: a prompt should reach the server with the bytes that other clients
// send.
func (b *body) value(v any) {
	if err := b.enc.Encode(v); err != nil {
		b.fail(err)
		return
	}
	b.buf.Truncate(b.buf.Len() - 1) // the line end
}

var errNothingAsked = errors.New("the request has neither messages nor a prompt")

func (b *body) messages(field string, req workloads.Request) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	list := make([]message, 0, max(1, len(req.Messages)))
	for _, m := range req.Messages {
		list = append(list, message(m))
	}
	if len(list) == 0 {
		if req.Prompt == "" && b.extra[field] == nil {
			b.fail(errNothingAsked)
		}
		list = append(list, message{"user", req.Prompt})
	}
	b.field(field, list)
}

func (b *body) prompt(field string, t EndpointType, req workloads.Request) {
	prompt := req.Prompt
	if prompt == "" && b.extra[field] == nil {
		switch len(req.Messages) {
		case 0:
			b.fail(errNothingAsked)
		case 1:
			prompt = req.Messages[0].Content
		default:
			b.fail(fmt.Errorf("the endpoint type %q needs a prompt, the request has %d messages; use endpoint type %q", t, len(req.Messages), Chat))
		}
	}
	b.field(field, prompt)
}
