package target

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// TokenCounter counts tokens by asking the server's /tokenize: vLLM, SGLang,
// llama.cpp and TGI have one, each with fields of its own. It serves before a
// run and after it, never beside it. Safe for concurrent use.
type TokenCounter struct {
	ctx    context.Context // Count has the signature of a tokenizer
	server *Server
	model  string

	mu  sync.Mutex
	err error
}

// TokenCounter returns a counter for a model, after asking it
// once. An error means that the server has none that is understood.
func (s *Server) TokenCounter(ctx context.Context, model string) (*TokenCounter, error) {
	t := &TokenCounter{ctx: ctx, server: s, model: model}
	if _, err := t.count("hello"); err != nil {
		return nil, err
	}
	return t, nil
}

// Name is that of the endpoint.
func (t *TokenCounter) Name() string { return "server /tokenize" }

// Count returns the tokens of a text. After a failure, which Err tells, it
// counts words.
func (t *TokenCounter) Count(text string) int {
	if text == "" {
		return 0
	}
	n, err := t.count(text)
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.err == nil {
			t.err = err
		}
		return len(strings.Fields(text))
	}
	return n
}

// Err is the first failure of a Count.
func (t *TokenCounter) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *TokenCounter) count(text string) (int, error) {
	// The fields of all servers at once: each reads its own.
	body, err := json.Marshal(map[string]any{
		"model": t.model, "prompt": text, "content": text, "inputs": text, "add_special_tokens": false, "add_special": false,
	})
	if err != nil {
		return 0, fmt.Errorf("ask for tokens: %w", err)
	}
	a, err := fetch(t.ctx, t.server.Client, http.MethodPost, t.server.at("/tokenize"), t.server.Header, body, t.server.Timeout)
	if err != nil {
		return 0, fmt.Errorf("ask for tokens: %w", err)
	}
	if !a.ok() {
		return 0, fmt.Errorf("ask for tokens: POST %s answers status %d", bare(t.server.at("/tokenize")), a.status)
	}
	var object struct {
		Count  *int  `json:"count"`
		Tokens []any `json:"tokens"`
	}
	var list []any // TGI
	switch {
	case json.Unmarshal(a.body, &object) == nil && object.Count != nil:
		return *object.Count, nil
	case object.Tokens != nil:
		return len(object.Tokens), nil
	case json.Unmarshal(a.body, &list) == nil:
		return len(list), nil
	}
	return 0, fmt.Errorf("ask for tokens: the answer of POST %s is not understood", bare(t.server.at("/tokenize")))
}
