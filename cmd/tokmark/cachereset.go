package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/synthetic"
)

// cacheWords is the length of the prompt that verifies a reset: longer than
// some blocks of any server's cache.
const cacheWords = 512

// resetCache empties the server's prefix cache for --cache-reset, and says what
// could be found out about it.
func (p *prepared) resetCache(ctx context.Context, w *world) (*record.CacheReset, error) {
	d, reset := p.known.dialect, p.known.dialect.Reset
	if reset.Path == "" {
		return nil, &exitError{
			code: exitUsage, err: fmt.Errorf("--cache-reset: %s has no request that empties the prefix cache", d.Title),
			hint: "leave it out: synthetic prompts are new from their first token on (--cache cold); --dialect says what the server is, if that was not found out",
		}
	}
	prompts, err := synthetic.New(synthetic.Options{Salt: rand.Text(), Lengths: []synthetic.Lengths{{Input: synthetic.Fixed(1)}}})
	if err != nil {
		return nil, err
	}
	text, _, err := prompts.Prompt(0, cacheWords)
	if err != nil {
		return nil, err
	}
	ask := workloads.Request{Messages: []workloads.Message{{Role: "user", Content: text}}, OutputTokens: p.o.probeLength(&p.plan)}
	body, err := openai.Body(p.plan.Type, ask, p.plan.Body)
	if err != nil {
		return nil, err
	}
	probe, err := bench.NewProbe(p.plan)
	if err != nil {
		return nil, err
	}
	defer probe.Close()
	done, err := target.CacheReset{Body: body, Send: probe.Send, Empty: func(ctx context.Context) error {
		for _, model := range p.o.models {
			if err := p.known.server.ResetCache(ctx, d, model); err != nil {
				return err
			}
		}
		return nil
	}}.Run(ctx)
	if stop := stopped(ctx); stop != nil {
		return nil, stop
	}
	if err != nil {
		return nil, &exitError{code: exitFailed, err: fmt.Errorf("--cache-reset: %w", mask(err, p.plan.Secrets)), hint: "without --cache-reset the run finds the cache as it is"}
	}
	done.Request = reset.Method + " " + reset.Path
	if !done.Verified {
		fmt.Fprintf(w.Stderr, "tokmark: the prefix cache was emptied by %s; that cannot be verified: the server tells of no hits\n", done.Request)
	}
	return done, nil
}
