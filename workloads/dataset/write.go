package dataset

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tokmark/tokmark/workloads"
)

// Write writes the first n sessions of a source as an input file that Open
// reads back to the same requests, and returns its format: single_turn where
// each request is one text of a user, multi_turn where sessions have several
// turns of that kind, jsonl where a request has several messages. Further body
// fields stand in extra_body. offsets, if not nil, are the times at which the sessions are due.
//
// It is an error if a source mixes what no one format holds: several turns
// with several messages each, times with several messages.
func Write(w io.Writer, source workloads.Source, n int, offsets []time.Duration) (Format, error) {
	format, err := formatFor(source, n, offsets != nil)
	if err != nil {
		return "", fmt.Errorf("write dataset: %w", err)
	}
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for i := range n {
		s, err := source.At(i)
		if err != nil {
			return format, fmt.Errorf("write dataset: session %d: %w", i, err)
		}
		var at *float64
		if offsets != nil {
			ms := float64(offsets[i]) / float64(time.Millisecond)
			at = &ms
		}
		if err := enc.Encode(lineOf(format, s, at)); err != nil {
			return format, fmt.Errorf("write dataset: session %d: %w", i, err)
		}
	}
	if err := out.Flush(); err != nil {
		return format, fmt.Errorf("write dataset: %w", err)
	}
	return format, nil
}

// formatFor looks the sessions through for what holds them all.
func formatFor(source workloads.Source, n int, timed bool) (Format, error) {
	turns, messages := false, false
	for i := range n {
		s, err := source.At(i)
		if err != nil {
			return "", fmt.Errorf("session %d: %w", i, err)
		}
		turns = turns || len(s.Turns) > 1
		for _, r := range s.Turns {
			if r.Body != nil {
				return "", fmt.Errorf("session %d is a whole body, which is a file of its own already", i)
			}
			messages = messages || len(r.Messages) > 1
		}
	}
	switch {
	case messages && (turns || timed):
		return "", fmt.Errorf("no format holds requests of several messages together with turns or times")
	case messages:
		return Prompts, nil
	case turns:
		return MultiTurn, nil
	default:
		return SingleTurn, nil
	}
}

// turnLine is a line of single_turn, or a turn of multi_turn.
type turnLine struct {
	Text   string   `json:"text"`
	Role   string   `json:"role,omitempty"`
	Model  string   `json:"model,omitempty"`
	Output int      `json:"output_length,omitempty"`
	At     *float64 `json:"timestamp,omitempty"` // ms
	Delay  *float64 `json:"delay,omitempty"`     // ms
	Extra  extra    `json:"extra_body,omitempty"`
}

type sessionLine struct {
	Session string     `json:"session_id,omitempty"`
	Turns   []turnLine `json:"turns"`
}

type messagesLine struct {
	Messages []messageLine `json:"messages"`
	Model    string        `json:"model,omitempty"`
	Output   int           `json:"max_tokens,omitempty"`
	Extra    extra         `json:"extra_body,omitempty"`
}

type extra = map[string]json.RawMessage

type messageLine struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func lineOf(format Format, s workloads.Session, at *float64) any {
	if format == Prompts {
		r := s.Turns[0]
		line := messagesLine{Model: r.Model, Output: r.OutputTokens, Extra: r.Extra}
		for _, m := range r.Messages {
			line.Messages = append(line.Messages, messageLine(m))
		}
		if len(line.Messages) == 0 {
			line.Messages = []messageLine{{"user", r.Prompt}}
		}
		return line
	}
	turns := make([]turnLine, len(s.Turns))
	for k, r := range s.Turns {
		turns[k] = turnLine{Text: r.Prompt, Model: r.Model, Output: r.OutputTokens, Extra: r.Extra}
		if len(r.Messages) == 1 {
			turns[k].Text = r.Messages[0].Content
			if role := r.Messages[0].Role; role != "user" {
				turns[k].Role = role
			}
		}
		if r.Delay > 0 {
			ms := float64(r.Delay) / float64(time.Millisecond)
			turns[k].Delay = &ms
		}
	}
	turns[0].At = at
	if format == SingleTurn {
		return turns[0]
	}
	return sessionLine{Session: s.ID, Turns: turns}
}
