// Package synthetic makes prompts of a wanted length from ordinary words.
//
// Every text is a pure function of seed, salt and index: the same three give
// the same bytes, whichever goroutine or process asks. Another salt gives
// prompts that share no first block with those of any other run, so that no
// run measures the prefix cache that an earlier one filled. Lengths, classes,
// turns and think times do not depend on the salt.
package synthetic

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tokmark/tokmark/workloads"
)

// Counter counts tokens. It must be safe for concurrent use. The tokenizers of
// workloads/tokens are Counters.
type Counter interface {
	Count(text string) int
}

// Options describe a synthetic workload. Lengths needs an entry; the rest may
// be zero.
type Options struct {
	// Seed fixes the workload; Salt tells runs apart (a fresh one each run).
	Seed uint64
	Salt string

	// Counter counts tokens. Without one lengths are estimates: TokensPerWord
	// (0: 1) tokens for each word and each punctuation mark, to be calibrated
	// against the server's prompt_tokens.
	Counter       Counter
	TokensPerWord float64

	// Lengths are the classes of input and output lengths. A session is of one
	// class, drawn by weight, in all its turns.
	Lengths []Lengths

	// Completion puts texts into Request.Prompt in place of Messages.
	Completion bool

	// SystemTokens is the length of a system prompt that all sessions share;
	// it is a message of its own and comes on top of the input length.
	SystemTokens int
	// Prefixes and PrefixTokens make a pool of prompts of that length, one of
	// which is put in front of each session's first prompt, on top of the
	// input length (AIPerf's --num-prefix-prompts, --prefix-prompt-length).
	Prefixes, PrefixTokens int
	// ContextTokens is the length of a text of its own in front of each
	// session's first prompt, on top of the input length (AIPerf's
	// --user-context-prompt-length).
	ContextTokens int

	// HitRate is the share of the input length of first turns, Template
	// included, that a server with a prefix cache should find there, in
	// [0, 1); 0: every prompt is new from its first block on. It is met on
	// average, in whole blocks of Block tokens (0: 16), taken from HitPrefixes
	// (0: 1) shared texts. The last token of a prompt is never a hit, so
	// prompts of few blocks cannot reach a high rate. The first use of a
	// shared text is a miss: let a warmup use them.
	HitRate     float64
	Block       int
	HitPrefixes int
	// Template is how many tokens the server's chat template puts in front of
	// the prompt, as far as is known: they shift the blocks. Shared texts go on
	// for half a block beyond what is to hit, so that as much of an error, in
	// the template or in a count, costs no block.
	Template int

	// TurnsMean and TurnsStddev are the turns of a session, rounded, at least
	// 1; mean 0: 1.
	TurnsMean, TurnsStddev float64
	// DelayMean and DelayStddev are the think time before each turn but the
	// first, at least 0.
	DelayMean, DelayStddev time.Duration
}

// Validate joins all faults.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(o.Lengths) > 0, "synthetic input: no input length is given")
	for i, l := range o.Lengths {
		if err := l.validate(); err != nil {
			errs = append(errs, fmt.Errorf("lengths, entry %d: %w", i+1, err))
		}
	}
	for _, c := range []struct {
		name string
		n    int
	}{
		{"system prompt length", o.SystemTokens}, {"number of prefix prompts", o.Prefixes},
		{"prefix prompt length", o.PrefixTokens}, {"user context length", o.ContextTokens},
		{"block size", o.Block}, {"template", o.Template}, {"number of shared texts", o.HitPrefixes},
	} {
		check(c.n >= 0, "%s %d is below 0", c.name, c.n)
		check(c.n <= maxTokens, "%s %d is above %d", c.name, c.n, maxTokens)
	}
	check(o.HitRate >= 0 && o.HitRate < 1, "cache hit rate %v: it must be at least 0 and below 1", o.HitRate)
	check(o.TokensPerWord >= 0 && o.TokensPerWord < 1000, "tokens per word %v: it must be a number above 0", o.TokensPerWord)
	check(o.TurnsMean >= 0 && o.TurnsStddev >= 0 && o.TurnsMean < 1e6 && o.TurnsStddev < 1e6, "session turns %v ± %v: both must be numbers, 0 or above", o.TurnsMean, o.TurnsStddev)
	check(o.DelayMean >= 0 && o.DelayStddev >= 0, "turn delay %v ± %v: neither may be below 0", o.DelayMean, o.DelayStddev)
	return errors.Join(errs...)
}

// Generator makes the sessions. It is safe for concurrent use.
type Generator struct {
	o      Options
	weight []float64
	vocab  *vocabulary
	plan   stream // of seed: lengths, classes, turns, think times
	text   stream // of seed and salt: texts
	system text   // the system message; in a completion it is part of the prompt
}

// text is a text with its number of tokens.
type text struct {
	s      string
	tokens int
}

var _ workloads.Source = (*Generator)(nil)

// New checks the options and counts the tokens of the vocabulary, which takes
// some tens of milliseconds with a tokenizer.
func New(o Options) (*Generator, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Block = cmp.Or(o.Block, 16)
	o.HitPrefixes = cmp.Or(o.HitPrefixes, 1)
	o.TurnsMean = cmp.Or(o.TurnsMean, 1)
	o.TokensPerWord = cmp.Or(o.TokensPerWord, 1)
	g := &Generator{o: o, plan: newStream(o.Seed, "plan"), text: newStream(o.Seed, "text", o.Salt)}
	for _, l := range o.Lengths {
		g.weight = append(g.weight, cmp.Or(l.Weight, 1))
	}
	var err error
	if g.vocab, err = newVocabulary(o.Counter, o.TokensPerWord); err != nil {
		return nil, err
	}
	if o.SystemTokens > 0 && !o.Completion {
		g.system = g.make(func(c *composer, want int) { c.add(g.text.at("system", 0), want) }, o.SystemTokens)
	}
	return g, nil
}

// Only returns a generator of the k-th Lengths alone. Of one session both make
// the same texts, up to their lengths.
func (g *Generator) Only(k int) *Generator {
	one := *g
	one.o.Lengths, one.weight = g.o.Lengths[k:k+1], g.weight[k:k+1]
	return &one
}

// Len is 0: there is no end.
func (g *Generator) Len() int { return 0 }

// Exact reports whether lengths are counted by a tokenizer; if not they are
// estimates, and a report must say so.
func (g *Generator) Exact() bool { return g.o.Counter != nil }

// Hash is the SHA-256, in hex, of all options but the salt and what depends on
// the server or the tokenizer: two runs of one workload have the same hash,
// though their texts differ.
func (g *Generator) Hash() string {
	o := g.o
	o.Salt, o.Counter, o.TokensPerWord, o.Template = "", nil, 0, 0
	sum := sha256.Sum256(fmt.Appendf(nil, "synthetic 2 %#v", o))
	return hex.EncodeToString(sum[:])
}

// At returns session i: i >= 0 is measured, i < 0 warmup. InputTokens of a
// request is the wanted length of the texts in it (in later turns: of what is
// new), without a chat template. OwnTokens is what the tokenizer counts in
// them, which is less should the wanted length be out of its reach.
func (g *Generator) At(i int) (workloads.Session, error) {
	plan := g.plan.at("session", int64(i))
	class := g.o.Lengths[pick(plan, g.weight)]
	turns := max(1, int(math.Round(g.o.TurnsMean+float64(g.o.TurnsStddev*plan.NormFloat64()))))
	s := workloads.Session{ID: strconv.Itoa(i), Turns: make([]workloads.Request, turns)}
	for t := range s.Turns {
		want := class.Input.Draw(plan)
		r := workloads.Request{Class: class.Class}
		if class.Output != nil {
			r.OutputTokens = class.Output.Draw(plan)
		}
		if t == 0 {
			g.first(&r, i, want, plan)
		} else {
			delay := float64(g.o.DelayMean) + float64(float64(g.o.DelayStddev)*plan.NormFloat64())
			r.Delay = time.Duration(max(0, min(math.Round(delay), math.MaxInt64/2)))
			// What a later turn adds needs no unique start: the turns before
			// it are unique already.
			body := g.make(func(c *composer, want int) {
				c.add(g.text.at("turn "+strconv.Itoa(t), int64(i)), want)
			}, want)
			r.InputTokens = want
			g.put(&r, text{}, body)
		}
		s.Turns[t] = r
	}
	return s, nil
}

// first makes the first turn of a session: what is shared, then what is not.
func (g *Generator) first(r *workloads.Request, i, want int, plan *rand.Rand) {
	o := &g.o
	r.ExpectedCached = o.SystemTokens
	total := o.ContextTokens + want
	if o.Completion {
		total += o.SystemTokens
	}
	prefix, prefixTokens := 0, 0
	if o.Prefixes > 0 {
		prefix, prefixTokens = plan.IntN(o.Prefixes), o.PrefixTokens
		total += prefixTokens
		r.ExpectedCached += prefixTokens
	}
	shared, hits := 0, 0
	if o.HitRate > 0 {
		shared = plan.IntN(o.HitPrefixes)
		blocks := o.HitRate * float64(want+o.Template) / float64(o.Block)
		hits = int(blocks)
		if plan.Float64() < blocks-float64(hits) {
			hits++
		}
		hits = min(hits, (want+o.Template-1)/o.Block)
		r.ExpectedCached += hits * o.Block
	}
	r.InputTokens = total
	if !o.Completion {
		r.InputTokens += o.SystemTokens
	}
	body := g.make(func(c *composer, total int) {
		if o.Completion {
			c.add(g.text.at("system", 0), o.SystemTokens)
		}
		c.add(g.text.at("prefix", int64(prefix)), prefixTokens)
		g.hit(c, shared, hits, want)
		c.mark(g.text.unique(i))
		c.add(g.text.at("body", int64(i)), total-c.tokens)
	}, total)
	g.put(r, g.system, body)
}

// hit adds so much of a shared text that, with the template in front of it, the
// wanted number of blocks is filled and half of one more.
func (g *Generator) hit(c *composer, shared, blocks, most int) {
	o := &g.o
	left := min(blocks*o.Block+o.Block/2-o.Template, most)
	if blocks == 0 {
		return
	}
	// The text is made of pieces, so that a longer share begins with a shorter
	// one.
	goal := c.sum
	for k := int64(0); left > 0; k++ {
		piece := o.Block
		if k == 0 { // ends where the blocks do, but for the half
			piece = o.Block + o.Block/2 - o.Template%o.Block
		}
		piece = min(piece, left)
		goal += float64(piece)
		c.fill(g.text.at("hit "+strconv.Itoa(shared), k), goal)
		left -= piece
	}
}

// put fills the texts of a request in.
func (g *Generator) put(r *workloads.Request, system, body text) {
	if g.Exact() {
		r.OwnTokens = system.tokens + body.tokens
	}
	if g.o.Completion {
		r.Prompt = body.s
		return
	}
	if system.s != "" {
		r.Messages = append(r.Messages, workloads.Message{Role: "system", Content: system.s})
	}
	r.Messages = append(r.Messages, workloads.Message{Role: "user", Content: body.s})
}

// Prompt returns a text of the given number of tokens that is unique to i, and
// how many the tokenizer counts; 0: there is none. With Blocks it makes the
// Generator a dataset.Prompter.
func (g *Generator) Prompt(i, tokens int) (prompt string, own int, err error) {
	if err := inRange(tokens); err != nil {
		return "", 0, err
	}
	prompt, own = g.counted(g.make(func(c *composer, want int) {
		c.mark(g.text.unique(i))
		c.add(g.text.at("prompt", int64(i)), want)
	}, tokens))
	return prompt, own, nil
}

func (g *Generator) counted(t text) (string, int) {
	if !g.Exact() {
		return t.s, 0
	}
	return t.s, t.tokens
}

// Blocks returns a text of the given number of tokens made of one block for
// each id, all but the last of blockTokens tokens. Under one seed and salt the
// same id gives the same text, and a shorter last block the beginning of it.
// Like Prompt it says what the tokenizer counts. It is an error if the ids do
// not fit the length.
func (g *Generator) Blocks(ids []int64, tokens, blockTokens int) (prompt string, own int, err error) {
	if err := errors.Join(inRange(tokens), inRange(blockTokens)); err != nil {
		return "", 0, err
	}
	if last := tokens - (len(ids)-1)*blockTokens; len(ids) == 0 || last < 1 || last > blockTokens {
		return "", 0, fmt.Errorf("%d blocks of %d tokens do not make %d tokens", len(ids), blockTokens, tokens)
	}
	prompt, own = g.counted(g.make(func(c *composer, want int) {
		for _, id := range ids {
			c.add(g.text.at("block", id), min(blockTokens, want-c.tokens))
		}
	}, tokens))
	return prompt, own, nil
}

// maxTokens bounds what one text may be asked to hold.
const maxTokens = 1 << 26

func inRange(tokens int) error {
	if tokens < 1 || tokens > maxTokens {
		return fmt.Errorf("a prompt of %d tokens: it must be 1 to %d", tokens, maxTokens)
	}
	return nil
}

// make runs a composition for the wanted number of tokens. Where the counts of
// words do not simply add up, the text is counted as a whole and put right.
func (g *Generator) make(compose func(c *composer, want int), want int) text {
	run := func(aim int) *composer {
		c := &composer{vocab: g.vocab, out: make([]byte, 0, 6*aim+16)}
		compose(c, aim)
		return c
	}
	c := run(want)
	if !g.Exact() || g.vocab.additive && c.tokens == want {
		return text{string(c.out), c.tokens}
	}
	return g.vocab.repair(run, string(c.out), want)
}
