package mockserver

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/tokmark/tokmark/bench/record"
)

// Truth is what the server itself knows of one request: the measure of a
// client's measurement. Times are offsets from Config.Origin on the monotonic
// clock.
type Truth struct {
	// Number counts the requests from 0 in the order of their arrival.
	Number int64 `json:"number"`
	// RequestID is the client's X-Request-ID header, the key to its records.
	RequestID string `json:"request_id,omitempty"`
	Endpoint  string `json:"endpoint"` // path
	Status    int    `json:"status,omitempty"`
	Streamed  bool   `json:"streamed,omitempty"`
	// Fault is the fault that was committed on purpose.
	Fault FaultKind `json:"fault,omitempty"`
	// Disconnected: the client left, or the server was closed, before the end.
	Disconnected bool `json:"disconnected,omitempty"`
	// MonotonicOrigin is what CLOCK_MONOTONIC showed at offset 0, in
	// nanoseconds: added to an offset it gives a time that another process on
	// the same machine can compare. 0 where the system has no such clock.
	MonotonicOrigin int64 `json:"monotonic_origin_ns,omitempty"`

	// Received is the entry of the handler, the request's header just read;
	// Queued when its body had been read and it joined the engine's queue,
	// Admitted when the engine took it from there, PrefillEnd when its first
	// token was there, Finished when the last byte was handed to the connection,
	// or the request failed.
	Received   record.Time `json:"received,omitzero"`
	Queued     record.Time `json:"queued,omitzero"`
	Admitted   record.Time `json:"admitted,omitzero"`
	PrefillEnd record.Time `json:"prefill_end,omitzero"`
	Finished   record.Time `json:"finished,omitzero"`

	// Events are the events with tokens, in the order written; At is taken
	// right before the write, so no client can have seen the event earlier.
	// Kind is 0 for an event whose only token is the invisible end token. An
	// answer that is no stream has no events.
	Events record.Chunks `json:"events,omitzero"`
	// EngineEnd is when the last token of the answer was made.
	EngineEnd record.Time `json:"engine_end,omitzero"`

	PromptTokens record.Count `json:"prompt_tokens,omitzero"`
	CachedTokens record.Count `json:"cached_tokens,omitzero"`
	// OutputTokens are the tokens made, over all choices, ReasoningTokens
	// those of them that were reasoning.
	OutputTokens    record.Count `json:"output_tokens,omitzero"`
	ReasoningTokens record.Count `json:"reasoning_tokens,omitzero"`
	// FinishReasons holds one for each choice that ended, by choice.
	FinishReasons []string `json:"finish_reasons,omitempty"`
}

// FaultKind names a fault of a Truth.
type FaultKind string

// The faults, by the fields of Faults.
const (
	NoFault          FaultKind = ""
	FaultRateLimited FaultKind = "rate_limited"
	FaultUnavailable FaultKind = "unavailable"
	FaultStreamError FaultKind = "stream_error"
	FaultReset       FaultKind = "reset"
	FaultStall       FaultKind = "stall"
	FaultTruncate    FaultKind = "truncate"
)

// Truth returns the newest requests that have ended, at most Config.KeepTruth
// of them, in the order in which they ended. The result belongs to the caller,
// who must not change the events. Safe for concurrent use.
func (s *Server) Truth() []Truth { return s.truth.all() }

// truthLog keeps and writes truths. It is safe for concurrent use.
type truthLog struct {
	out  io.Writer // may be nil
	keep int

	mu     sync.Mutex
	newest []Truth // a ring once it holds keep
	oldest int
	err    error // the first of writing
}

// wanted reports whether anybody will see the events.
func (l *truthLog) wanted() bool { return l.out != nil || l.keep > 0 }

func (l *truthLog) add(t *Truth) {
	var line []byte
	var err error
	if l.out != nil {
		line, err = json.Marshal(t)
		line = append(line, '\n')
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.keep == 0:
	case len(l.newest) < l.keep:
		l.newest = append(l.newest, *t)
	default:
		l.newest[l.oldest] = *t
		l.oldest = (l.oldest + 1) % l.keep
	}
	if l.out == nil || l.err != nil {
		return
	}
	if err == nil {
		_, err = l.out.Write(line)
	}
	if err != nil {
		l.err = fmt.Errorf("write truth log: request %d: %w", t.Number, err)
	}
}

func (l *truthLog) all() []Truth {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.newest[l.oldest:], l.newest[:l.oldest])
}

func (l *truthLog) firstError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
