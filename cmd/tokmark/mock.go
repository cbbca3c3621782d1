package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/mockserver"
)

// startSimulator serves the simulator in this process and points the settings
// at it.
func (o *options) startSimulator() (stop func(), err error) {
	cfg := mockserver.Default()
	cfg.KeepTruth = 0
	srv, err := mockserver.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("start the simulator: %w", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the simulator: %w", errors.Join(err, srv.Close()))
	}
	hs := &http.Server{Handler: srv, ReadHeaderTimeout: time.Minute}
	go func() { _ = hs.Serve(ln) }()
	o.url = ln.Addr().String()
	if len(o.models) == 0 {
		o.models = []string{cfg.Model}
	}
	return func() {
		_ = hs.Close()
		_ = srv.Close()
	}, nil
}

func newMock(w *world) *cobra.Command {
	cfg := mockserver.Default()
	var addr, truth string
	c := &cobra.Command{
		Use:   "mock",
		Short: "Serve the embedded simulator",
		Long: `Serve a simulated model: chat, completions and responses with streaming, embeddings,
/v1/models, /health, and /metrics under vLLM's names. It batches, queues, caches prefixes and
speculates as a real server does, and writes down when it sent each event (--truth-log), so that a
client's figures can be checked against it. The defaults resemble a mid-size model on one GPU.`,
		Example: `  tokmark mock --addr 127.0.0.1:8000
  tokmark mock --decode-base 12ms --max-batch 16 --draft-tokens 4 --acceptance-rate 0.8`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return usage(err)
			}
			if truth != "" {
				f, err := os.Create(truth)
				if err != nil {
					return usagef("create truth log: %w", err)
				}
				defer f.Close()
				cfg.TruthLog = f
			}
			srv, err := mockserver.New(cfg)
			if err != nil {
				return usage(err)
			}
			ln, err := net.Listen("tcp", addr)
			if err != nil {
				return usagef("listen: %w", err)
			}
			hs := &http.Server{Handler: srv, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(w.Stderr, "tokmark: ", 0)}
			interrupted := make(chan struct{})
			defer w.interrupts.take(func(n int) bool {
				if n == 0 {
					close(interrupted)
				}
				return n == 0
			})()
			fmt.Fprintf(w.Stdout, "serving %s on http://%s\n", cfg.Model, ln.Addr())
			served := make(chan error, 1)
			go func() { served <- hs.Serve(ln) }()
			select {
			case err = <-served:
			case <-interrupted:
				ctx, cancel := context.WithTimeout(c.Context(), time.Second)
				defer cancel()
				if hs.Shutdown(ctx) != nil {
					_ = hs.Close()
				}
				err = http.ErrServerClosed
			}
			if cerr := srv.Close(); cerr != nil {
				return &exitError{code: exitFailed, err: cerr}
			}
			if !errors.Is(err, http.ErrServerClosed) {
				return &exitError{code: exitFailed, err: err}
			}
			return nil
		},
	}
	fs := c.Flags()
	fs.StringVar(&addr, "addr", "127.0.0.1:8000", "address to listen on; port 0 takes a free one")
	fs.StringVar(&truth, "truth-log", "", "`file` for one JSON line a request: when it came, when each event left")
	bindSimulator(fs, &cfg)
	return c
}

// bindSimulator makes a flag for each setting of the simulator.
func bindSimulator(fs *pflag.FlagSet, cfg *mockserver.Config) {
	fs.StringVar(&cfg.Model, "model", cfg.Model, "name of the model served")
	fs.IntVar(&cfg.MaxModelLen, "max-model-len", cfg.MaxModelLen, "most tokens of prompt and output together")
	fs.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of outputs, noise, speculation and faults")
	fs.IntVar(&cfg.MaxBatch, "max-batch", cfg.MaxBatch, "most sequences decoded at a time; others queue")
	fs.DurationVar(&cfg.PrefillBase, "prefill-base", cfg.PrefillBase, "prefill time of a prompt of no tokens")
	fs.DurationVar(&cfg.PrefillPerToken, "prefill-per-token", cfg.PrefillPerToken, "prefill time of each uncached token")
	fs.IntVar(&cfg.PrefillChunk, "prefill-chunk", cfg.PrefillChunk, "most prompt tokens prefilled between two decode steps")
	fs.DurationVar(&cfg.DecodeBase, "decode-base", cfg.DecodeBase, "time of a decode step")
	fs.DurationVar(&cfg.DecodePerSequence, "decode-per-sequence", cfg.DecodePerSequence, "further time for each sequence in the batch")
	fs.DurationVar(&cfg.DecodePerContextToken, "decode-per-context-token", cfg.DecodePerContextToken, "further time for each token of context")
	fs.Float64Var(&cfg.Noise, "noise", cfg.Noise, "standard deviation of the logarithm of step times")
	fs.IntVar(&cfg.KVBlocks, "kv-blocks", cfg.KVBlocks, "capacity of the key-value cache in blocks of 16 tokens")
	fs.BoolVar(&cfg.PrefixCache, "prefix-cache", cfg.PrefixCache, "reuse the blocks of earlier prompts")
	fs.IntVar(&cfg.DraftTokens, "draft-tokens", cfg.DraftTokens, "tokens that a speculative step proposes; 0: no speculation")
	fs.Float64Var(&cfg.AcceptanceRate, "acceptance-rate", cfg.AcceptanceRate, "probability that a proposed token is accepted")
	fs.IntVar(&cfg.MeanOutput, "mean-output", cfg.MeanOutput, "mean length of an answer that ends by itself, in tokens")
	fs.Float64Var(&cfg.ReasoningShare, "reasoning-share", cfg.ReasoningShare, "share of chat answers that begin with reasoning")
	fs.IntVar(&cfg.ReasoningTokens, "reasoning-tokens", cfg.ReasoningTokens, "reasoning tokens in such an answer")
	fs.Float64Var(&cfg.Flips, "flips", 0, "share of requests whose answer is another from a random near tie of two tokens on, 0 to 1")
	fs.Float64Var(&cfg.CachedFlips, "cached-flips", 0, "the same, from any token on, for requests that found something in the prefix cache")
	fs.StringSliceVar(&cfg.RejectFields, "reject-fields", nil, "body `fields` to refuse with status 400")
	f := &cfg.Faults
	for name, rate := range map[string]*float64{
		"fault-rate-limited": &f.RateLimited, "fault-unavailable": &f.Unavailable, "fault-stream-error": &f.StreamError,
		"fault-reset": &f.Reset, "fault-stall": &f.Stall, "fault-truncate": &f.Truncate, "fault-slow-header": &f.SlowHeader,
		"fault-role-first": &f.RoleFirst, "fault-ignore-stream": &f.IgnoreStream,
	} {
		fs.Float64Var(rate, name, 0, "share of requests with this fault, 0 to 1")
	}
}
