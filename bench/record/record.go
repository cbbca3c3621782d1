// Package record holds what is known of one request (Record), of one run
// (Manifest), and how both are kept in a run directory.
//
// It is a leaf: it imports nothing of this module, and every later step, from
// the live display to a comparison made next year, works from its types alone.
package record

import (
	"encoding/json"
	"fmt"
	"time"
)

// Time is an offset in integer nanoseconds from the run's origin, on the
// monotonic clock. Unset marks a moment that never came.
type Time int64

// Unset is the Time of a moment that never came. It is left out of files.
const Unset Time = -1

// IsSet reports whether the moment came.
func (t Time) IsSet() bool { return t >= 0 }

// IsZero tells encoding/json's omitzero to leave an unset time out.
func (t Time) IsZero() bool { return t < 0 }

// Sub returns t - u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Count is a number of tokens. Unknown marks one that nobody told; it is never
// shown as 0.
type Count int64

// Unknown is the Count that nobody told. It is left out of files.
const Unknown Count = -1

// IsKnown reports whether the count was told.
func (c Count) IsKnown() bool { return c >= 0 }

// IsZero tells encoding/json's omitzero to leave an unknown count out; a known
// count of 0 is kept.
func (c Count) IsZero() bool { return c < 0 }

// Phase is the part of a run that a request belongs to.
type Phase string

// The phases of a run, in order. Only PhaseMeasure enters the metrics.
const (
	PhaseWarmup   Phase = "warmup"
	PhaseMeasure  Phase = "measure"
	PhaseCooldown Phase = "cooldown"
)

// Source names where the count of a request's output comes from.
type Source string

// The sources of a token count. An event is never counted as a token.
const (
	SourceNone      Source = ""          // nobody told
	SourceUsage     Source = "usage"     // the server's last usage object
	SourceTokenIDs  Source = "token_ids" // token ids in the answer
	SourceLogProbs  Source = "logprobs"  // log-probabilities in the answer, one entry a token
	SourceTokenizer Source = "tokenizer" // the tokenizer given by the user, from the text
	SourceServer    Source = "server"    // the server's /tokenize, from the text
)

// Sources lists them, best first: an answer is counted by the first that it
// has.
var Sources = []Source{SourceUsage, SourceTokenIDs, SourceLogProbs, SourceTokenizer, SourceServer, SourceNone}

// FromText reports whether the count was made from the text of the answer. An
// end token, which has no text, is not in it, and the model may have cut the
// text in another way.
func (s Source) FromText() bool { return s == SourceTokenizer || s == SourceServer }

// Record is all that is known of one request: one attempt, never retried.
//
// Make one with New: the zero value would claim that moments came at offset 0
// and that counts are 0. A record is written by the goroutine that carries its
// request and belongs to the receiver once it has been handed over.
type Record struct {
	// ID numbers the requests of a phase in the order of the schedule, from 0.
	ID    int64 `json:"id"`
	Phase Phase `json:"phase"`
	// Session and Turn tell the conversation and the place in it; a request
	// that stands alone is turn 0 of a session of its own.
	Session string `json:"session,omitempty"`
	Turn    int    `json:"turn,omitempty"`
	// Class is the workload class that the request was drawn from, if there
	// are several.
	Class string `json:"class,omitempty"`
	Model string `json:"model,omitempty"`

	// Streaming tells whether a stream was asked for; Streamed whether one
	// came.
	Streaming bool `json:"streaming,omitempty"`
	Streamed  bool `json:"streamed,omitempty"`

	// Due is when the schedule wanted the request, Start when it was handed to
	// the transport (DNS, connect and TLS of a new connection lie after it),
	// Written when the last byte of the request was written.
	Due     Time `json:"due,omitzero"`
	Start   Time `json:"start,omitzero"`
	Written Time `json:"written,omitzero"`
	// CapWait is the part of Start - Due spent waiting for a cap of the plan on
	// requests in flight, or on those without output; the rest of it is our
	// own lateness. Of a request that was never sent it is how long it waited.
	CapWait time.Duration `json:"cap_wait_ns,omitempty"`
	// Shifted is how much later the turn of a user was due than the user's gap
	// wanted, as the answer before took longer. Only a user-centric load has it.
	Shifted time.Duration `json:"shifted_ns,omitempty"`
	// FirstByte is the first byte of the response header, FirstEvent the first
	// event with data, whatever it holds. FirstComment is the first comment
	// line of the stream, if one came before that: what servers send to keep
	// the connection of a request that waits. End is the end of the exchange:
	// [DONE], the end of the body, or the failure.
	FirstByte    Time `json:"first_byte,omitzero"`
	FirstComment Time `json:"first_comment,omitzero"`
	FirstEvent   Time `json:"first_event,omitzero"`
	End          Time `json:"end,omitzero"`

	Conn Conn `json:"conn,omitzero"`

	Outcome Outcome  `json:"outcome"`
	Failure *Failure `json:"failure,omitempty"`
	Status  int      `json:"status,omitempty"` // HTTP status

	// Chunks are the events that carried output, in order of arrival.
	Chunks Chunks `json:"chunks,omitzero"`
	// Events counts the SSE events with data, up to and including [DONE].
	Events int `json:"events,omitempty"`
	// FirstTokenEvent, FirstAnswerEvent and LastTokenEvent are 0-based places
	// among those events; -1: there was none.
	FirstTokenEvent  int `json:"first_token_event"`
	FirstAnswerEvent int `json:"first_answer_event"`
	LastTokenEvent   int `json:"last_token_event"`
	// FinishReasons holds the last finish reason of each choice.
	FinishReasons []string `json:"finish_reasons,omitempty"`
	// Done: [DONE] was seen. AfterDone: bytes with data came after it.
	Done      bool `json:"done,omitempty"`
	AfterDone bool `json:"after_done,omitempty"`
	// Notes are codes of oddities that do not fail the request, each once.
	Notes []string `json:"notes,omitempty"`

	ResponseModel string `json:"response_model,omitempty"`

	// AskedInput is the prompt length that the workload aimed at, OwnInput
	// what our own tokenizer counts, AskedOutput the output limit sent.
	AskedInput  Count `json:"asked_input,omitzero"`
	OwnInput    Count `json:"own_input,omitzero"`
	AskedOutput Count `json:"asked_output,omitzero"`
	// ExpectedCached is how many input tokens the workload was built to find
	// in the server's prefix cache.
	ExpectedCached Count `json:"expected_cached,omitzero"`
	// ExactOutput: the request asked for exactly AskedOutput tokens
	// (ignore_eos or min_tokens).
	ExactOutput bool `json:"exact_output,omitempty"`

	Tokens Tokens `json:"tokens,omitzero"`
	Usage  Usage  `json:"usage,omitzero"`
	// ServerTimings are the request's phases as the answer tells them; nil: it
	// does not.
	ServerTimings *ServerTimings `json:"server_timings,omitempty"`

	// StructureOK tells whether the answer was of the structure asked for; nil:
	// none was.
	StructureOK *bool `json:"structure_ok,omitempty"`

	// Output is the text that came, by choice; kept only if the plan says so.
	Output []Output `json:"output,omitempty"`
	// Uncounted is the same of an answer whose tokens nobody has counted, until
	// a tokenizer has. It never gets into a file.
	Uncounted []Output `json:"-"`
}

// Tokens are the counts that metrics use. Output excludes Reasoning; their sum
// is the output sequence length.
type Tokens struct {
	Source    Source `json:"source,omitempty"`
	Input     Count  `json:"input,omitzero"`
	Output    Count  `json:"output,omitzero"`
	Reasoning Count  `json:"reasoning,omitzero"`
	Cached    Count  `json:"cached,omitzero"`
}

// IsZero tells omitzero to leave out counts that nobody told.
func (t Tokens) IsZero() bool { return t == unknownTokens }

var unknownTokens = Tokens{Input: Unknown, Output: Unknown, Reasoning: Unknown, Cached: Unknown}

// Usage repeats the fields of the server's last usage object.
type Usage struct {
	Prompt     Count `json:"prompt_tokens,omitzero"`
	Completion Count `json:"completion_tokens,omitzero"`
	Total      Count `json:"total_tokens,omitzero"`
	Reasoning  Count `json:"reasoning_tokens,omitzero"`
	Cached     Count `json:"cached_tokens,omitzero"`
}

// IsZero tells omitzero to leave out a usage that never came.
func (u Usage) IsZero() bool { return u == NoUsage }

// NoUsage is the Usage of an answer without one.
var NoUsage = Usage{Prompt: Unknown, Completion: Unknown, Total: Unknown, Reasoning: Unknown, Cached: Unknown}

// Output is the text of one choice.
type Output struct {
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	Tools     string `json:"tools,omitempty"` // tool call arguments, joined
	// LogProbs are the tokens with their log-probabilities, in order, where the
	// answer gives them. Servers differ in whether those of the reasoning and
	// the end token are among them.
	LogProbs []TokenLogProbs `json:"log_probs,omitempty"`
}

// TokenLogProbs is a token of an answer with what could have stood in its
// place: the likeliest tokens as the server lists them, often with the token
// itself.
type TokenLogProbs struct {
	LogProb
	Alternatives []LogProb `json:"alternatives,omitempty"`
}

// LogProb is a token's text and the natural logarithm of its probability, which
// is finite.
type LogProb struct {
	Token string  `json:"token"`
	Value float64 `json:"log_prob"`
}

// Conn says which connection carried a request and what setting it up took.
// Durations of steps that did not happen are 0.
type Conn struct {
	Reused   bool          `json:"reused,omitempty"`
	Wait     time.Duration `json:"wait_ns,omitempty"` // start until a connection was there, set-up included
	DNS      time.Duration `json:"dns_ns,omitempty"`
	Connect  time.Duration `json:"connect_ns,omitempty"`
	TLS      time.Duration `json:"tls_ns,omitempty"`
	Remote   string        `json:"remote,omitempty"`
	Protocol string        `json:"protocol,omitempty"` // of the answer, as HTTP/1.1
}

// New returns a record in which no moment came and no count is known.
func New(phase Phase, id int64) *Record {
	return &Record{
		ID: id, Phase: phase,
		Due: Unset, Start: Unset, Written: Unset,
		FirstByte: Unset, FirstComment: Unset, FirstEvent: Unset, End: Unset,
		FirstTokenEvent: -1, FirstAnswerEvent: -1, LastTokenEvent: -1,
		AskedInput: Unknown, OwnInput: Unknown, AskedOutput: Unknown, ExpectedCached: Unknown,
		Tokens: unknownTokens, Usage: NoUsage,
	}
}

// UnmarshalJSON fills a record from one line of records.jsonl. What the line
// does not name is unset or unknown, as in New.
func (r *Record) UnmarshalJSON(b []byte) error {
	type plain Record // without this method
	p := (*plain)(r)
	*p = plain(*New("", 0))
	if rest, chunks, ok := cutChunks(b); ok && json.Unmarshal(rest, p) == nil {
		p.Chunks = chunks
	} else {
		*p = plain(*New("", 0))
		if err := json.Unmarshal(b, p); err != nil {
			return err
		}
	}
	if !p.Outcome.known() {
		return fmt.Errorf("outcome %q is not known", p.Outcome)
	}
	return nil
}

// Note adds a code to Notes, once.
func (r *Record) Note(code string) {
	for _, c := range r.Notes {
		if c == code {
			return
		}
	}
	r.Notes = append(r.Notes, code)
}

// Fail sets outcome and failure, unless the record already has an outcome: the
// first thing that went wrong is the reason.
func (r *Record) Fail(o Outcome, f Failure) {
	if r.Outcome != "" {
		return
	}
	r.Outcome = o
	r.Failure = &f
}
