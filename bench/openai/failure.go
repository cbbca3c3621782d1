package openai

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/valyala/fastjson"

	"github.com/tokmark/tokmark/bench/record"
)

const (
	maxMessage = 300  // characters of Failure.Message
	maxKept    = 1024 // bytes of Failure.Body
)

// HTTPFailure classifies an answer whose status is not 2xx. The body may be
// JSON of any shape, HTML or plain text, and may be cut. Failure.Message is one
// line of at most 300 characters; Failure.Body holds the first bytes. Neither
// is masked: that is for the caller, who knows the secrets. A Retry-After in
// seconds is kept; a date says nothing without the server's clock.
func HTTPFailure(status int, header http.Header, body []byte) (record.Outcome, record.Failure) {
	var p fastjson.Parser
	v, err := p.ParseBytes(body)
	if err != nil {
		v = nil
	}
	f := explain(v, body)
	f.Stage = "headers"
	if to := header.Get("Location"); to != "" && status < 400 {
		if u, err := url.Parse(to); err == nil {
			to = u.Redacted()
		}
		f.Message = oneLine(fmt.Sprintf("%d %s, to %s: redirects are not followed", status, http.StatusText(status), to))
	}
	if f.Message == "" {
		f.Message = oneLine(strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status)))
	}
	s, err := strconv.ParseInt(strings.TrimSpace(header.Get("Retry-After")), 10, 64)
	if err == nil && s >= 0 && s <= math.MaxInt64/int64(time.Second) {
		f.RetryAfter = time.Duration(s) * time.Second
	}
	switch {
	case status == http.StatusTooManyRequests:
		return record.RateLimited, f
	case status >= 500:
		return record.ServerError, f
	case (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity) && RejectedField(body) != "":
		return record.Rejected, f
	}
	return record.ClientError, f
}

// knownFields are the request fields that a server may reject, and that a run
// can leave out or name otherwise.
var knownFields = []string{
	"best_of", "cache_prompt", "cache_salt", "chat_template_kwargs", "continuous_usage_stats", "echo",
	"frequency_penalty", "ignore_eos", "include_usage", "logit_bias", "logprobs", "max_completion_tokens",
	"max_new_tokens", "max_tokens", "min_new_tokens", "min_p", "min_tokens", "n", "nvext",
	"parallel_tool_calls", "presence_penalty", "priority", "reasoning_effort", "repetition_penalty",
	"response_format", "return_token_ids", "seed", "stop", "stop_token_ids", "stream", "stream_options",
	"temperature", "tool_choice", "tools", "top_k", "top_logprobs", "top_p",
}

// noFields are what else servers name in the place of a field: what carries the
// question itself (a prompt that is too long cannot be left out), and the parts
// of a request.
var noFields = []string{"body", "header", "input", "input_tokens", "messages", "model", "path", "prompt", "query"}

// RejectedField returns the request field which the body of a 400 or 422
// complains about, or "" if it names none. It looks at the places where servers
// name the field (param, or loc as FastAPI does), then for known names in the
// message.
func RejectedField(body []byte) (field string) {
	var p fastjson.Parser
	text := plainText(body)
	if v, err := p.ParseBytes(body); err == nil {
		if field := namedField(v, 0); field != "" {
			return field
		}
		text = tell(v, new(record.Failure), 0)
	}
	at := len(text)
	for _, known := range knownFields {
		if i := indexField(text, known); i >= 0 && i < at {
			field, at = known, i
		}
	}
	return field
}

// namedField returns the field that an error object names apart from its text.
func namedField(v *fastjson.Value, depth int) string {
	if v == nil || depth > maxNesting {
		return ""
	}
	for _, e := range v.GetArray() {
		if field := namedField(e, depth+1); field != "" {
			return field
		}
	}
	if field := rootField(string(v.GetStringBytes("param"))); field != "" {
		return field
	}
	for _, part := range v.GetArray("loc") {
		if field := rootField(string(part.GetStringBytes())); field != "" {
			return field
		}
		if string(part.GetStringBytes()) != "body" {
			break
		}
	}
	for _, key := range []string{"error", "detail", "errors"} {
		if field := namedField(v.Get(key), depth+1); field != "" {
			return field
		}
	}
	return ""
}

// rootField returns the request field of a path such as
// stream_options.include_usage, or "" if it is none that could be left out.
func rootField(path string) string {
	path = strings.TrimPrefix(path, "body.")
	end := strings.IndexFunc(path, func(r rune) bool { return !isWord(r) })
	if end < 0 {
		end = len(path)
	}
	if field := path[:end]; !slices.Contains(noFields, field) {
		return field
	}
	return ""
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// indexField finds a field's name as a word of text. A name that is also an
// ordinary word counts only in quotes.
func indexField(text, field string) int {
	for from := 0; ; {
		i := strings.Index(text[from:], field)
		if i < 0 {
			return -1
		}
		i += from
		from = i + len(field)
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[from:])
		if isWord(before) || isWord(after) {
			continue
		}
		if strings.Contains(field, "_") || strings.ContainsRune("'\"`", before) && before == after {
			return i
		}
	}
}

// isFailure reports whether an object tells an error in place of an answer.
func isFailure(v *fastjson.Value) bool {
	if e := v.Get("error"); e != nil {
		switch e.Type() {
		case fastjson.TypeNull, fastjson.TypeFalse:
		case fastjson.TypeString:
			if len(e.GetStringBytes()) > 0 {
				return true
			}
		case fastjson.TypeObject:
			if e.GetObject().Len() > 0 {
				return true
			}
		default:
			return true
		}
	}
	if string(v.GetStringBytes("object")) == "error" {
		return true
	}
	return v.Exists("detail") && !v.Exists("choices")
}

// maxNesting is how deep an error is looked for inside others.
const maxNesting = 6

// explain makes a failure of an error in any shape; v is the parsed body, or
// nil if it is no JSON.
func explain(v *fastjson.Value, body []byte) record.Failure {
	f := record.Failure{Body: firstBytes(body)}
	if v == nil {
		f.Message = oneLine(plainText(body))
		return f
	}
	message := tell(v, &f, 0)
	if message == "" {
		message = string(bytes.TrimSpace(body))
	}
	f.Message = oneLine(plainText([]byte(message)))
	f.Type, f.Code = oneLine(f.Type), oneLine(f.Code)
	return f
}

// tell returns the message in an error value, and fills type and code; those
// nearest to the message win.
func tell(v *fastjson.Value, f *record.Failure, depth int) string {
	if v == nil || depth > maxNesting {
		return ""
	}
	switch v.Type() {
	case fastjson.TypeString:
		return string(v.GetStringBytes())
	case fastjson.TypeArray:
		var all []string
		size := 0
		for _, e := range v.GetArray() {
			if m := tell(e, f, depth+1); m != "" {
				all = append(all, m)
				size += len(m)
			}
			if size > maxMessage {
				break
			}
		}
		return strings.Join(all, "; ")
	case fastjson.TypeObject:
		message := ""
		for _, key := range []string{"error", "message", "detail", "msg", "errors", "error_message", "description", "title"} {
			if message = tell(v.Get(key), f, depth+1); message != "" {
				break
			}
		}
		if loc := v.GetArray("loc"); len(loc) > 0 && message != "" {
			var path []string
			for _, part := range loc {
				path = append(path, scalar(part))
			}
			message = strings.Join(path, ".") + ": " + message
		}
		for _, key := range []string{"type", "error_type"} {
			if f.Type == "" {
				f.Type = scalar(v.Get(key))
			}
		}
		for _, key := range []string{"code", "http_status_code", "status"} {
			if f.Code == "" {
				f.Code = scalar(v.Get(key))
			}
		}
		return message
	}
	return ""
}

// scalar is a string or a number as text.
func scalar(v *fastjson.Value) string {
	if v == nil {
		return ""
	}
	switch v.Type() {
	case fastjson.TypeString:
		return string(v.GetStringBytes())
	case fastjson.TypeNumber:
		return string(v.MarshalTo(nil))
	}
	return ""
}

// plainText returns the text of an HTML page, and any other text as it is.
func plainText(body []byte) string {
	s := strings.TrimSpace(string(body[:min(len(body), 64<<10)]))
	if !strings.HasPrefix(s, "<") && !strings.Contains(strings.ToLower(s), "<html") {
		return s
	}
	var out strings.Builder
	for s != "" {
		text, rest, found := strings.Cut(s, "<")
		out.WriteString(text)
		if !found {
			break
		}
		out.WriteByte(' ')
		end := ">"
		switch {
		case strings.HasPrefix(rest, "!--"):
			end = "-->"
		case hasTag(rest, "script"):
			end = "</script"
		case hasTag(rest, "style"):
			end = "</style"
		}
		s = after(rest, end)
		if strings.HasPrefix(end, "</") {
			s = after(s, ">")
		}
	}
	return html.UnescapeString(out.String())
}

// WebPage says of an answer that is an HTML page what it is and how it begins;
// ok is false if it is none. A label may be wrong: the first byte decides.
func WebPage(header http.Header, body []byte) (text string, ok bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		return "", false
	}
	kind := header.Get("Content-Type")
	if kind == "" {
		kind = "without a content type"
	}
	const shown = 80
	words := oneLine(plainText(body))
	if r := []rune(words); len(r) > shown {
		words = string(r[:shown]) + "…"
	}
	text = "the answer is a web page (" + kind + ")"
	if words != "" {
		text += " that begins " + strconv.Quote(words)
	}
	return oneLine(text + ": is --url the address of an API?"), true
}

// hasTag reports whether s begins with the name of a tag, in any case.
func hasTag(s, name string) bool {
	if len(s) < len(name) || !strings.EqualFold(s[:len(name)], name) {
		return false
	}
	next, _ := utf8.DecodeRuneInString(s[len(name):])
	return !isWord(next)
}

// after returns what follows the first end in s, compared without regard to
// case; nothing if there is none.
func after(s, end string) string {
	for i := 0; i+len(end) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(end)], end) {
			return s[i+len(end):]
		}
	}
	return ""
}

// oneLine folds white space and control characters into single blanks, and
// cuts the text to maxMessage characters.
func oneLine(s string) string {
	var out strings.Builder
	n, blank := 0, false
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			blank = n > 0
			continue
		}
		if n >= maxMessage-2 {
			out.WriteRune('…')
			break
		}
		if blank {
			out.WriteByte(' ')
			n++
		}
		blank = false
		out.WriteRune(r)
		n++
	}
	return out.String()
}

// firstBytes is the start of a body as valid UTF-8.
func firstBytes(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), maxKept)]), "\uFFFD")
}
