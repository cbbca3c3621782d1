package target

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/workloads"
)

// Preflight is one request, with the run's own endpoint and fields, that
// settles before the run what the server accepts.
type Preflight struct {
	Type openai.EndpointType
	// Request is one as the run sends them, with its own extra fields.
	Request workloads.Request
	Body    openai.BodyOptions
	// Tokenizer tells that the run can count the tokens of answers itself.
	Tokenizer bool
	// Send carries one body and returns its record, with the server's words
	// masked.
	Send func(ctx context.Context, body []byte) *record.Record
}

// Settled is what came of a preflight.
type Settled struct {
	// Body is what the requests of the run are to have in common. Fields of
	// their own that were refused must be left out too: see Without.
	Body openai.BodyOptions
	// Dropped lists the refused fields with the server's words.
	Dropped []record.DroppedField
	// Record is the last request's: with no error, one that was answered.
	Record *record.Record
	// Warnings say what the answer shows of fields that are not honoured.
	Warnings []string
}

// Without returns the request without the extra fields that the preflight
// dropped, and with a limit of the output under the name that was settled.
func (s *Settled) Without(req workloads.Request) workloads.Request {
	req.Extra = maps.Clone(req.Extra)
	for _, d := range s.Dropped {
		v, ok := req.Extra[d.Field]
		if !ok {
			continue
		}
		delete(req.Extra, d.Field)
		if to := otherLimit(d.Field); to != "" && s.Body.MaxTokensField == to {
			req.Extra[to] = v
		}
	}
	return req
}

// Run sends the request until the server accepts it, each time without what it
// refused: the field that it names, or, if it names none, first all extra
// fields, then stream_options, then the other name of the output limit. It ends
// after a few requests, since each has less than the one before.
//
// An answer that fails for another reason than a field is an error. What was
// settled so far comes with any error.
func (p Preflight) Run(ctx context.Context) (Settled, error) {
	a := attempt{Preflight: p, settled: Settled{Body: p.Body}}
	a.settled.Body.Extra = maps.Clone(p.Body.Extra)
	a.Request.Extra = maps.Clone(p.Request.Extra)
	var first *record.Record
	for {
		body, err := openai.Body(p.Type, a.Request, a.settled.Body)
		if err != nil {
			return a.settled, fmt.Errorf("preflight: %w", err)
		}
		r := p.Send(ctx, body)
		a.settled.Record = r
		if r.Outcome == record.OK {
			a.check()
			return a.settled, nil
		}
		if first == nil {
			first = r
		}
		if ctx.Err() != nil {
			return a.settled, fmt.Errorf("preflight: %w", context.Cause(ctx))
		}
		if r.Status != http.StatusBadRequest && r.Status != http.StatusUnprocessableEntity {
			return a.settled, fmt.Errorf("preflight: the server does not answer the request: %s", words(r))
		}
		if p.Request.Body != nil || !a.less(refused(r), words(r)) {
			return a.settled, fmt.Errorf("preflight: the server refuses the request: %s", words(first))
		}
	}
}

// refused returns the field that the server complains about.
func refused(r *record.Record) string {
	if r.Failure == nil {
		return ""
	}
	// The body may be cut; the message is the server's in one line.
	for _, text := range []string{r.Failure.Body, r.Failure.Message} {
		if field := openai.RejectedField([]byte(text)); field != "" {
			return field
		}
	}
	return ""
}

// words are the server's, or the outcome's name.
func words(r *record.Record) string {
	what := string(r.Outcome)
	if r.Status != 0 {
		what = fmt.Sprintf("status %d", r.Status)
	}
	if r.Failure != nil && r.Failure.Message != "" {
		what += ": " + r.Failure.Message
	}
	return what
}

const streamOptions = "stream_options"

// question holds the fields that are never left out.
var question = []string{"messages", "prompt", "model", "stream"}

// attempt is a preflight on its way.
type attempt struct {
	Preflight
	settled Settled
	swapped bool
}

// less takes something away that the server refused. It reports false when
// nothing is left to take.
func (a *attempt) less(field, why string) bool {
	switch field {
	case "include_usage", "continuous_usage_stats":
		field = streamOptions
	}
	limit := a.limit()
	switch {
	case field == "":
	case slices.Contains(question, field):
		return false
	case limit != "" && (field == limit || field == otherLimit(limit)):
		// A server may name either: "use max_completion_tokens instead".
		return a.swap(why)
	case a.drop(field, why), field == streamOptions && a.dropUsage(why):
		return true
	}
	// It names nothing, or nothing that was sent.
	extras := slices.Concat(slices.Collect(maps.Keys(a.settled.Body.Extra)), slices.Collect(maps.Keys(a.Request.Extra)))
	slices.Sort(extras)
	dropped := false
	for _, name := range slices.Compact(extras) {
		if otherLimit(name) == "" && a.drop(name, why) {
			dropped = true
		}
	}
	return dropped || a.dropUsage(why) || a.swap(why)
}

// drop leaves an extra field out.
func (a *attempt) drop(field, why string) bool {
	b := &a.settled.Body
	if slices.Contains(question, field) || b.Extra[field] == nil && a.Request.Extra[field] == nil {
		return false
	}
	delete(b.Extra, field)
	delete(a.Request.Extra, field)
	if field == streamOptions && b.Stream && b.IncludeUsage {
		field += " (more than include_usage)" // which is sent from now on
	}
	a.note(field, why)
	return true
}

// dropUsage stops asking for the usage: first only for the running one.
func (a *attempt) dropUsage(why string) bool {
	b := &a.settled.Body
	switch {
	case !b.Stream || !b.IncludeUsage && !b.ContinuousUsage:
		return false
	case b.ContinuousUsage && b.IncludeUsage:
		b.ContinuousUsage = false
		a.note("stream_options.continuous_usage_stats", why)
	default:
		b.ContinuousUsage, b.IncludeUsage = false, false
		a.note(streamOptions, why)
	}
	return true
}

// limit returns the name under which the output limit is sent, or "".
func (a *attempt) limit() string {
	for _, extra := range []map[string]json.RawMessage{a.settled.Body.Extra, a.Request.Extra} {
		for name := range extra {
			if otherLimit(name) != "" {
				return name
			}
		}
	}
	switch {
	case a.Request.OutputTokens <= 0, a.Type != openai.Chat && a.Type != openai.Completions:
		return "" // other types have one name for it, or none
	case a.settled.Body.MaxTokensField != "":
		return a.settled.Body.MaxTokensField
	case a.Type == openai.Chat:
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// swap sends the limit under its other name, once.
func (a *attempt) swap(why string) bool {
	from := a.limit()
	to := otherLimit(from)
	if to == "" || a.swapped {
		return false
	}
	a.swapped = true
	for _, extra := range []map[string]json.RawMessage{a.settled.Body.Extra, a.Request.Extra} {
		if v, ok := extra[from]; ok {
			delete(extra, from)
			extra[to] = v
		}
	}
	a.settled.Body.MaxTokensField = to
	a.note(from, why+" ("+to+" is sent in its place)")
	return true
}

func otherLimit(name string) string {
	switch name {
	case "max_tokens":
		return "max_completion_tokens"
	case "max_completion_tokens":
		return "max_tokens"
	}
	return ""
}

func (a *attempt) note(field, why string) {
	a.settled.Dropped = append(a.settled.Dropped, record.DroppedField{Field: field, Reason: why})
}

// check compares the answer with what was asked: many servers ignore fields
// that they do not know.
func (a *attempt) check() {
	r, want := a.settled.Record, int64(a.Request.OutputTokens)
	got, known := r.OSL()
	switch {
	case want <= 0:
	case !known:
		if a.settled.Body.Stream && !a.Tokenizer {
			a.settled.Warnings = append(a.settled.Warnings, "the answer tells no token counts: give a tokenizer")
		}
	case got > want:
		a.settled.Warnings = append(a.settled.Warnings, fmt.Sprintf("the answer has %d tokens, and %s was %d: the server does not honour the limit", got, a.limit(), want))
	case got < want && a.exact():
		a.settled.Warnings = append(a.settled.Warnings, fmt.Sprintf("the answer has %d tokens, and exactly %d were asked for: the server does not honour it, or its context is too short", got, want))
	}
}

// exact reports whether the request still asks for its whole length.
func (a *attempt) exact() bool {
	for _, extra := range []map[string]json.RawMessage{a.settled.Body.Extra, a.Request.Extra} {
		if string(extra["ignore_eos"]) == "true" || extra["min_tokens"] != nil || extra["min_new_tokens"] != nil {
			return true
		}
	}
	return false
}
