package mockserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// request is what is understood of a body.
type request struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	Prompt              prompt         `json:"prompt"`
	MaxTokens           *int           `json:"max_tokens"`
	MaxCompletionTokens *int           `json:"max_completion_tokens"`
	MinTokens           int            `json:"min_tokens"`
	IgnoreEOS           bool           `json:"ignore_eos"`
	Stop                stringOrList   `json:"stop"`
	N                   *int           `json:"n"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options"`
	Seed                *int64         `json:"seed"`
	Temperature         *float64       `json:"temperature"`
	Tools               []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	ToolChoice json.RawMessage `json:"tool_choice"`
	CacheSalt  string          `json:"cache_salt"`
	// LogProbs is true or false in a chat, and in completions how many tokens
	// are wanted at each place; TopLogProbs is that of a chat.
	LogProbs    json.RawMessage `json:"logprobs"`
	TopLogProbs *int            `json:"top_logprobs"`

	// Of responses and embeddings.
	Input           json.RawMessage `json:"input"`
	Instructions    string          `json:"instructions"`
	MaxOutputTokens *int            `json:"max_output_tokens"`
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats"`
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is the text of a message: a string, or the text parts of a list.
type content string

func (c *content) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		var parts []struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(b, &parts); err != nil {
			return err
		}
		var text strings.Builder
		for _, p := range parts {
			text.WriteString(p.Text)
		}
		*c = content(text.String())
		return nil
	}
	return json.Unmarshal(b, (*string)(c))
}

// stringOrList is a string, a list of strings or null.
type stringOrList []string

func (l *stringOrList) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*l = make([]string, 1)
		return json.Unmarshal(b, &(*l)[0])
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// prompt is that of a completion: a text, or token ids.
type prompt struct {
	text string
	ids  []int64
}

func (p *prompt) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if b[0] != '[' {
		return json.Unmarshal(b, &p.text)
	}
	if json.Unmarshal(b, &p.ids) == nil {
		return nil
	}
	p.ids = nil
	var several []prompt
	if err := json.Unmarshal(b, &several); err != nil {
		return err
	}
	if len(several) != 1 {
		return errors.New("prompt: the simulator takes one prompt a request")
	}
	*p = several[0]
	return nil
}

// apiError is an answer that refuses a request.
type apiError struct {
	status  int
	kind    string
	param   string // "": null
	message string
}

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "BadRequestError", param, fmt.Sprintf(format, args...)}
}

// object returns the error object as JSON.
func (e *apiError) object() []byte {
	var body struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    int     `json:"code"`
		} `json:"error"`
	}
	body.Error.Message, body.Error.Type, body.Error.Code = e.message, e.kind, e.status
	if e.param != "" {
		body.Error.Param = &e.param
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and a number always marshal
	}
	return b
}

// parseRequest decodes a body and makes a job of it.
func (s *Server) parseRequest(body []byte, of api, number int64) (*request, *job, *apiError) {
	if e := s.rejectField(body); e != nil {
		return nil, nil, e
	}
	q := &request{}
	if err := json.Unmarshal(body, q); err != nil {
		return nil, nil, badRequest("", "request body: %v", err)
	}
	if q.Model != "" && q.Model != s.cfg.Model {
		return nil, nil, &apiError{http.StatusNotFound, "NotFoundError", "model", fmt.Sprintf("The model `%s` does not exist.", q.Model)}
	}
	if e := q.translate(of); e != nil {
		return nil, nil, e
	}
	chat := of.chats()
	if q.StreamOptions != nil && !q.Stream {
		return nil, nil, badRequest("stream_options", "stream_options are only allowed when stream is true")
	}
	n := 1
	if q.N != nil {
		n = *q.N
	}
	if n < 1 || n > s.cfg.MaxBatch {
		return nil, nil, badRequest("n", "n must be from 1 to %d, got %d", s.cfg.MaxBatch, n)
	}
	j := &job{prompt: newChain()}
	switch {
	case chat && len(q.Messages) == 0:
		return nil, nil, badRequest("messages", "messages must not be empty")
	case chat:
		for _, m := range q.Messages {
			j.prompt.header(m.Role)
			j.prompt.text(string(m.Content))
			j.prompt.token(endToken)
		}
		j.prompt.header("assistant")
	case q.Prompt.ids != nil:
		for _, id := range q.Prompt.ids {
			j.prompt.id(id)
		}
	default:
		j.prompt.text(q.Prompt.text)
	}
	if j.prompt.tokens == 0 {
		return nil, nil, badRequest("prompt", "prompt must not be empty")
	}
	lim, e := s.limits(q, chat, j.prompt.tokens)
	if e != nil {
		return nil, nil, e
	}
	if q.CacheSalt != "" {
		c := newChain()
		c.token(q.CacheSalt)
		j.salt = c.hash
	}

	// The same prompt gives the same answer, whatever the salt and the limits
	// are, unless the client asks for chance and gives no seed.
	key := mix(j.prompt.hash ^ mix(s.cfg.Seed))
	switch {
	case q.Seed != nil:
		key = mix(key ^ mix(uint64(*q.Seed)+1))
	case q.Temperature != nil && *q.Temperature > 0:
		key = mix(key ^ mix(uint64(number)+1)<<1)
	}
	if j.likeliest, e = q.likeliest(of); e != nil {
		return nil, nil, e
	}
	tool := ""
	if chat {
		tool = q.tool()
	}
	for i := range n {
		seq := &sequence{job: j, choice: i, out: newOutput(mix(key+uint64(i)), chat, tool, lim, &s.cfg)}
		if flips := newRand(mix(s.cfg.Seed^uint64(number)), uint64(7+i)); flips.Float64() < s.cfg.Flips {
			seq.out.flipTie(flips)
		} else if flips.Float64() < s.cfg.CachedFlips {
			seq.flipIfCached = flips
		}
		if s.cfg.DraftTokens > 0 {
			seq.accept = newRand(seq.out.key, 3)
		}
		j.seqs = append(j.seqs, seq)
	}
	return q, j, nil
}

func (s *Server) rejectField(body []byte) *apiError {
	if len(s.cfg.RejectFields) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil // reported by the caller's own decoding
	}
	for _, name := range s.cfg.RejectFields {
		if _, ok := fields[name]; ok {
			return badRequest(name, "Extra inputs are not permitted: %s", name)
		}
	}
	return nil
}

// limits settles the lengths that a request allows.
func (s *Server) limits(q *request, chat bool, prompt int) (outputLimits, *apiError) {
	lim := outputLimits{least: q.MinTokens, ignoreEOS: q.IgnoreEOS, stop: q.Stop}
	room := s.cfg.MaxModelLen - prompt
	asked, param := q.MaxCompletionTokens, "max_completion_tokens"
	if asked == nil || !chat {
		asked, param = q.MaxTokens, "max_tokens"
	}
	switch {
	case asked != nil:
		lim.most = *asked
	case chat:
		lim.most = max(room, 1)
	default:
		lim.most = 16 // the API's default for completions
	}
	switch {
	case lim.most < 1:
		return lim, badRequest(param, "%s must be at least 1, got %d", param, lim.most)
	case lim.least < 0 || lim.least > lim.most:
		return lim, badRequest("min_tokens", "min_tokens must be from 0 to max_tokens=%d, got %d", lim.most, lim.least)
	case lim.most > room:
		return lim, badRequest("", "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt has %d input tokens. Please reduce the length of the input or the number of output tokens.",
			s.cfg.MaxModelLen, lim.most, prompt)
	}
	return lim, nil
}

// tool returns the function that the answer calls: the one that tool_choice
// names, else the first; "" where there is none or tool_choice is "none".
func (q *request) tool() string {
	if len(q.Tools) == 0 {
		return ""
	}
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	var word string
	switch {
	case json.Unmarshal(q.ToolChoice, &word) == nil && word == "none":
		return ""
	case json.Unmarshal(q.ToolChoice, &named) == nil && named.Function.Name != "":
		return named.Function.Name
	}
	return q.Tools[0].Function.Name
}
