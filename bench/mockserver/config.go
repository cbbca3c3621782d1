package mockserver

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Config describes the simulated server. Start from Default: the zero value is
// not valid.
type Config struct {
	// Model is the only model served; another one is answered with 404.
	// Default "tokmark-sim".
	Model string
	// MaxModelLen is the most tokens that prompt and output may have together.
	// Default 32768.
	MaxModelLen int
	// Seed feeds every random choice: outputs, noise, speculation, faults.
	// Default 1.
	Seed uint64

	// MaxBatch is the most sequences decoded at a time; further requests wait
	// in a queue, first come first served. Default 64.
	MaxBatch int
	// PrefillBase is what the prefill of one prompt costs whatever its length.
	// Where it and PrefillPerToken are 0, all prompts that wait are prefilled
	// before the next decode step, not one of them. Default 8 ms.
	PrefillBase time.Duration
	// PrefillPerToken is the further cost of each prompt token that is not
	// found in the prefix cache. Default 25 µs.
	PrefillPerToken time.Duration
	// PrefillChunk is the most prompt tokens prefilled between two decode
	// steps. A longer prompt takes several turns, so that it does not stop the
	// running sequences for long. Default 2048.
	PrefillChunk int
	// DecodeBase is what one decode step costs whatever its batch. Default
	// 7 ms.
	DecodeBase time.Duration
	// DecodePerSequence is the further cost of each sequence in the batch.
	// Default 50 µs.
	DecodePerSequence time.Duration
	// DecodePerContextToken is the further cost of each token of context, over
	// all sequences in the batch. Default 0.
	DecodePerContextToken time.Duration
	// Noise is the standard deviation of the logarithm of a factor with mean 1
	// that each prefill turn and each decode step is multiplied with; 0: none.
	// Default 0.03.
	Noise float64

	// KVBlocks is the capacity of the key-value cache in blocks of BlockTokens
	// tokens. It bounds what the prefix cache remembers and is the whole of
	// the cache use gauge; it never delays a request. Default 16384.
	KVBlocks int
	// PrefixCache lets a prompt reuse the blocks of earlier prompts and
	// outputs. Default true.
	PrefixCache bool

	// DraftTokens is how many tokens a speculative step proposes, at most
	// MaxDraftTokens; 0: no speculation. Default 0.
	DraftTokens int
	// AcceptanceRate is the probability, 0 to 1, that a proposed token is
	// accepted, given that those before it were. A step then yields
	// 1 + accepted tokens in one event. Default 0.7.
	AcceptanceRate float64

	// MeanOutput is the mean length in tokens of an answer that ends by
	// itself, its end token included. Lengths are geometric, at least 2.
	// Default 256.
	MeanOutput int
	// ReasoningShare is the share, 0 to 1, of chat requests whose answer
	// begins with reasoning. Default 0.
	ReasoningShare float64
	// ReasoningTokens is the number of reasoning tokens in such an answer; the
	// length of the answer proper comes on top. Default 64.
	ReasoningTokens int

	// Flips is the share, 0 to 1, of requests whose answer is another from a
	// random token on than the same request got before: what batch-dependent
	// arithmetic does to greedy decoding where two tokens are as good as equally
	// likely. Default 0.
	Flips float64
	// CachedFlips is the same for requests that found part of their prompt in
	// the prefix cache, at any token: a fault that only a warm cache shows.
	// Default 0.
	CachedFlips float64

	// RejectFields names body fields that are refused with status 400, as
	// strict servers do with fields they do not know. Default none: unknown
	// fields are ignored.
	RejectFields []string
	// Faults are what goes wrong on purpose. Default: nothing.
	Faults Faults

	// Origin is offset 0 of every time in the truth log; it must carry a
	// monotonic reading, as time.Now's result does. The zero Time, which is the
	// default, means the moment of New.
	Origin time.Time
	// TruthLog, if not nil, gets one JSON line for each request, in one Write
	// made when the request ends. Writes are serialized. Default nil.
	TruthLog io.Writer
	// KeepTruth is how many requests, the newest ones, Server.Truth remembers;
	// 0: none. Default 1000.
	KeepTruth int
}

// Faults are the faults that a server commits, each drawn for each request
// from the seed and the request's number. Rates lie between 0 and 1. Of
// RateLimited, Unavailable, StreamError, Reset, Stall and Truncate a request
// suffers one at most, so that their sum is at most 1; the others are drawn
// independently. The zero value is a server without faults.
type Faults struct {
	// RateLimited answers 429 with a Retry-After header.
	RateLimited float64
	// Unavailable answers 503.
	Unavailable float64
	// StreamError sends an error object in the stream and [DONE] after it; an
	// answer that is no stream becomes a 500.
	StreamError float64
	// Reset closes the connection with a TCP reset.
	Reset float64
	// Stall sends nothing for StallFor, or until the client leaves, and then
	// goes on; the engine meanwhile went on too, so the rest comes in a burst.
	Stall float64
	// Truncate ends the stream properly, without finish reason and [DONE]; an
	// answer that is no stream is cut in the middle.
	Truncate float64

	// SlowHeader waits HeaderDelay before the request is looked at.
	SlowHeader float64
	// RoleFirst sends the role chunk before prefill instead of with the first
	// token.
	RoleFirst float64
	// IgnoreStream answers a request for a stream with one JSON document.
	IgnoreStream float64

	// AfterTokens is how many tokens have left before StreamError, Reset,
	// Stall and Truncate strike, or one step's tokens more; an answer that is
	// shorter is struck at its last event. Default 5 where it is 0 or less.
	AfterTokens int
	// RetryAfter is the value of the Retry-After header, rounded up to
	// seconds. Default 1 s where it is 0.
	RetryAfter time.Duration
	// StallFor is the longest stall; 0: until the client leaves.
	StallFor time.Duration
	// HeaderDelay is the wait of SlowHeader. Default 1 s where it is 0.
	HeaderDelay time.Duration
}

// Default returns the documented defaults. The engine's figures are plausible
// for a model of 8 billion parameters on one recent data centre GPU; they claim
// nothing about any product.
func Default() Config {
	return Config{
		Model:             "tokmark-sim",
		MaxModelLen:       32768,
		Seed:              1,
		MaxBatch:          64,
		PrefillBase:       8 * time.Millisecond,
		PrefillPerToken:   25 * time.Microsecond,
		PrefillChunk:      2048,
		DecodeBase:        7 * time.Millisecond,
		DecodePerSequence: 50 * time.Microsecond,
		Noise:             0.03,
		KVBlocks:          16384,
		PrefixCache:       true,
		AcceptanceRate:    0.7,
		MeanOutput:        256,
		ReasoningTokens:   64,
		KeepTruth:         1000,
	}
}

// Validate returns every fault of the configuration, joined, each beginning
// with the name of its field; nil if there is none.
func (c *Config) Validate() error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("%s is %v: want %s", field, value, want))
	}
	atLeast := func(field string, v, low int) {
		if v < low {
			bad(field, v, fmt.Sprintf("at least %d", low))
		}
	}
	duration := func(field string, v time.Duration) {
		if v < 0 {
			bad(field, v, "0 or more")
		}
	}
	rate := func(field string, v float64) {
		if !(v >= 0 && v <= 1) { // so that NaN fails too
			bad(field, v, "0 to 1")
		}
	}

	if c.Model == "" {
		bad("Model", `""`, "a name")
	}
	atLeast("MaxModelLen", c.MaxModelLen, 2)
	atLeast("MaxBatch", c.MaxBatch, 1)
	duration("PrefillBase", c.PrefillBase)
	duration("PrefillPerToken", c.PrefillPerToken)
	atLeast("PrefillChunk", c.PrefillChunk, 1)
	duration("DecodeBase", c.DecodeBase)
	duration("DecodePerSequence", c.DecodePerSequence)
	duration("DecodePerContextToken", c.DecodePerContextToken)
	if !(c.Noise >= 0 && c.Noise <= 1) {
		bad("Noise", c.Noise, "0 to 1")
	}
	atLeast("KVBlocks", c.KVBlocks, 1)
	if c.DraftTokens < 0 || c.DraftTokens > MaxDraftTokens {
		bad("DraftTokens", c.DraftTokens, fmt.Sprintf("0 to %d", MaxDraftTokens))
	}
	rate("AcceptanceRate", c.AcceptanceRate)
	atLeast("MeanOutput", c.MeanOutput, 2)
	rate("ReasoningShare", c.ReasoningShare)
	rate("Flips", c.Flips)
	rate("CachedFlips", c.CachedFlips)
	atLeast("ReasoningTokens", c.ReasoningTokens, 0)
	atLeast("KeepTruth", c.KeepTruth, 0)

	f := &c.Faults
	rate("Faults.RateLimited", f.RateLimited)
	rate("Faults.Unavailable", f.Unavailable)
	rate("Faults.StreamError", f.StreamError)
	rate("Faults.Reset", f.Reset)
	rate("Faults.Stall", f.Stall)
	rate("Faults.Truncate", f.Truncate)
	rate("Faults.SlowHeader", f.SlowHeader)
	rate("Faults.RoleFirst", f.RoleFirst)
	rate("Faults.IgnoreStream", f.IgnoreStream)
	if sum := f.RateLimited + f.Unavailable + f.StreamError + f.Reset + f.Stall + f.Truncate; sum > 1+1e-9 && !math.IsInf(sum, 0) {
		bad("Faults: the sum of RateLimited, Unavailable, StreamError, Reset, Stall and Truncate", sum, "at most 1")
	}
	duration("Faults.RetryAfter", f.RetryAfter)
	duration("Faults.StallFor", f.StallFor)
	duration("Faults.HeaderDelay", f.HeaderDelay)
	return errors.Join(errs...)
}

// MaxDraftTokens bounds the tokens of one event: it has one more.
const MaxDraftTokens = 64
