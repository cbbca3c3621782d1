package target

import (
	"context"
	"fmt"

	"github.com/tokmark/tokmark/bench/record"
)

// CacheReset empties a server's prefix cache and finds out whether that worked:
// one prompt is sent twice, so that the second has hits to tell of, and once
// more when the cache should be empty.
type CacheReset struct {
	// Body asks for an answer to a prompt that is longer than some blocks of
	// the cache, and that the server has never seen.
	Body []byte
	// Send carries one body and returns its record, with the server's words
	// masked.
	Send func(ctx context.Context, body []byte) *record.Record
	// Empty empties the cache. See Server.ResetCache.
	Empty func(ctx context.Context) error
}

// Run empties the cache. It is an error if the server does not answer, refuses,
// or still finds the prompt in its cache. Where it tells no hits nothing can be
// verified, which is no error.
func (c CacheReset) Run(ctx context.Context) (*record.CacheReset, error) {
	fresh, err := c.ask(ctx)
	if err != nil {
		return nil, err
	}
	before, err := c.ask(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Empty(ctx); err != nil {
		return nil, err
	}
	after, err := c.ask(ctx)
	if err != nil {
		return nil, err
	}
	out := &record.CacheReset{Prompt: after.Input, Before: before.Cached, After: after.Cached}
	// What all prompts share, as a template, may hit even if the prompt is new.
	// vLLM leaves the count out where it is 0.
	shared := max(fresh.Cached, 0)
	if out.Before <= shared {
		return out, nil
	}
	if out.After > shared {
		return nil, fmt.Errorf("empty the prefix cache: the server accepted it, but %d tokens of a prompt were cached before and %d still are: is it busy with other requests, or is there another cache behind it?", out.Before, out.After)
	}
	out.Verified = true
	return out, nil
}

func (c CacheReset) ask(ctx context.Context) (record.Tokens, error) {
	r := c.Send(ctx, c.Body)
	if ctx.Err() != nil {
		return record.Tokens{}, fmt.Errorf("empty the prefix cache: %w", context.Cause(ctx))
	}
	if r.Outcome != record.OK {
		return record.Tokens{}, fmt.Errorf("empty the prefix cache: the server does not answer the prompt that is to verify it: %s", words(r))
	}
	return r.Tokens, nil
}
