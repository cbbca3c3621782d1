// Package workloads makes the requests of a run. It knows neither HTTP nor a
// clock: a Source says what is asked, an arrival.Schedule when.
package workloads

import (
	"encoding/json"
	"time"
)

// Message is one message of a chat.
type Message struct {
	Role    string
	Content string
}

// Request is what one request asks for, in words that no server's dialect is
// part of yet.
type Request struct {
	// Messages are the chat so far; Prompt stands in their place for a plain
	// completion. One of the two is set, or Body.
	//
	// In the turns of a Session after the first they are only what is new:
	// whoever sends the turn puts the earlier turns and the server's answers
	// in front.
	Messages []Message
	Prompt   string
	// Body, if set, is a whole request body to be sent byte for byte.
	Body json.RawMessage
	// Model overrides the model of the run.
	Model string
	// InputTokens is the prompt length aimed at; 0: none was.
	InputTokens int
	// OwnTokens is what our own tokenizer counts in the texts; 0: nothing does.
	OwnTokens int
	// OutputTokens is the output length asked for; 0: no limit is sent.
	OutputTokens int
	// Extra holds further body fields of this request.
	Extra map[string]json.RawMessage
	// Class names the workload class it was drawn from, if there are several.
	Class string
	// Delay is the think time: how long after the end of the turn before it
	// this turn is due. It means nothing for a first turn.
	Delay time.Duration
	// ExpectedCached is how many of InputTokens a server with a prefix cache
	// should find there, were every earlier request of the run still cached;
	// 0: none. The earlier turns of a session are not in it.
	ExpectedCached int
}

// Session is the unit that arrives: one request, or the turns of one
// conversation, each waiting for the answer to the one before.
type Session struct {
	ID    string
	Turns []Request
}

// Source yields the sessions of a run. At is a pure function of i (and of the
// source's seed and salt), so that the same sessions are sent whatever the
// concurrency, and safe for concurrent use.
//
// Measured requests take i = 0, 1, 2, …; warmup takes i = -1, -2, … so that it
// neither repeats nor shifts what is measured.
type Source interface {
	At(i int) (Session, error)
	// Len is the number of different sessions, or 0 if there is no end of
	// them. A source with an end starts over: At(i) = At(i mod Len).
	Len() int
}
