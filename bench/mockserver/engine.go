package mockserver

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// engine is the model of an inference engine with continuous batching. One
// goroutine sleeps from step to step and hands the tokens of each step to the
// requests' handlers.
//
// Its turns alternate: a prefill turn takes one chunk of one prompt, a decode
// turn takes one step of every running sequence. A prompt's first token comes
// at the end of its last prefill turn. A prefill turn that takes no time holds
// nobody up: it does not count, and all that wait are prefilled before the next
// step. Turns begin when the one before was due, not when the goroutine woke,
// so that late wake-ups do not add up.
type engine struct {
	cfg    *Config
	origin time.Time
	wake   chan struct{} // holds one element at most
	quit   chan struct{} // closed by the server
	ended  chan struct{} // closed by run

	mu      sync.Mutex
	queue   []*job
	current *job // whose prompt is being prefilled
	batch   []*sequence
	jobs    map[*job]struct{} // all of the above
	lastWas turn              // of those that took time
	cache   *prefixCache
	noise   *rand.Rand
	metrics metrics
}

type turn uint8

const (
	idle turn = iota
	prefill
	decode
)

// job is one request in the engine.
type job struct {
	prompt    chain
	salt      uint64
	seqs      []*sequence
	received  record.Time
	likeliest int           // tokens told with the log-probabilities of each; -1: none are told
	notify    chan struct{} // holds one element at most: there is mail

	// What follows is guarded by the engine's lock.
	queued, admitted, first, last record.Time
	cached                        int // prompt tokens found in the cache
	prefilled                     int // prompt tokens done, the cached ones included
	chunk                         int // prompt tokens of the turn at work
	running                       int // sequences not at their end
	mail                          []step
}

// sequence is one choice of a job.
type sequence struct {
	job    *job
	choice int
	out    *output
	accept *rand.Rand // nil without speculation
	// flipIfCached, if not nil, draws where the answer becomes another one if
	// part of the prompt is found in the cache.
	flipIfCached *rand.Rand
	made         int // tokens so far
	ended        bool
	last         record.Time
}

// step is what one engine step made for one sequence: its tokens from first
// up to before end.
type step struct {
	choice, first, end int
}

func newEngine(cfg *Config, origin time.Time) *engine {
	return &engine{
		cfg:     cfg,
		origin:  origin,
		wake:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
		ended:   make(chan struct{}),
		jobs:    map[*job]struct{}{},
		cache:   newPrefixCache(cfg.KVBlocks),
		noise:   rand.New(rand.NewPCG(cfg.Seed, 2)),
		metrics: newMetrics(),
	}
}

func (e *engine) now() record.Time { return record.Time(time.Since(e.origin)) }

// submit puts a job into the queue.
func (e *engine) submit(j *job) {
	j.notify = make(chan struct{}, 1)
	j.admitted, j.first, j.last = record.Unset, record.Unset, record.Unset
	j.running = len(j.seqs)
	e.mu.Lock()
	j.queued = e.now()
	e.queue = append(e.queue, j)
	e.jobs[j] = struct{}{}
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// cancel takes a job out, wherever it is; its place is free at once. A job
// that has ended is left alone.
func (e *engine) cancel(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.jobs[j]; !ok {
		return
	}
	delete(e.jobs, j)
	e.queue = slices.DeleteFunc(e.queue, func(q *job) bool { return q == j })
	e.batch = slices.DeleteFunc(e.batch, func(s *sequence) bool { return s.job == j })
	if e.current == j {
		e.current = nil
	}
	e.metrics.finished["abort"]++
}

// take swaps the job's mail for the emptied slice that it is given.
func (e *engine) take(j *job, empty []step) []step {
	e.mu.Lock()
	defer e.mu.Unlock()
	mail := j.mail
	j.mail = empty[:0]
	return mail
}

// run works until quit is closed.
func (e *engine) run() {
	defer close(e.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var due time.Time
	for {
		kind, d := e.begin()
		now := time.Now()
		if kind == idle {
			due = time.Time{}
			select {
			case <-e.wake:
				continue
			case <-e.quit:
				return
			}
		}
		// After idleness there is no turn before; and a machine that was
		// asleep must not make up for it in a burst.
		if due.IsZero() || now.Sub(due) > 100*time.Millisecond {
			due = now
		}
		due = due.Add(d)
		timer.Reset(due.Sub(now))
		select {
		case <-timer.C:
		case <-e.quit:
			return
		}
		e.finish(kind)
	}
}

// begin chooses the next turn and returns how long it takes.
func (e *engine) begin() (turn, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cfg
	if e.lastWas != prefill || len(e.batch) == 0 {
		if e.current == nil && len(e.queue) > 0 && len(e.batch)+len(e.queue[0].seqs) <= c.MaxBatch {
			e.admit()
		}
		if j := e.current; j != nil {
			j.chunk = min(c.PrefillChunk, j.prompt.tokens-j.prefilled)
			d := time.Duration(j.chunk) * c.PrefillPerToken
			if j.prefilled == j.cached {
				d += c.PrefillBase
			}
			if d > 0 {
				e.lastWas = prefill
			}
			return prefill, e.noisy(d)
		}
	}
	if len(e.batch) == 0 {
		e.lastWas = idle
		return idle, 0
	}
	e.lastWas = decode
	d := c.DecodeBase + time.Duration(len(e.batch))*c.DecodePerSequence
	if c.DecodePerContextToken > 0 {
		tokens := 0
		for _, s := range e.batch {
			tokens += s.job.prompt.tokens + s.made
		}
		d += time.Duration(tokens) * c.DecodePerContextToken
	}
	return decode, e.noisy(d)
}

// admit makes the first job of the queue the current one.
func (e *engine) admit() {
	j := e.queue[0]
	e.queue = slices.Delete(e.queue, 0, 1)
	e.current = j
	j.admitted = e.now()
	if e.cfg.PrefixCache {
		// The last token is always computed: its result is the first token of
		// the output.
		most := (j.prompt.tokens - 1) / BlockTokens
		j.cached = BlockTokens * e.cache.hits(j.prompt.blocks[:most], j.salt)
		e.metrics.queries += int64(j.prompt.tokens)
		e.metrics.hits += int64(j.cached)
	}
	j.prefilled = j.cached
	for _, s := range j.seqs {
		if s.flipIfCached != nil && j.cached > 0 {
			s.out.flip(s.flipIfCached)
		}
	}
}

func (e *engine) noisy(d time.Duration) time.Duration {
	sigma := e.cfg.Noise
	if sigma == 0 {
		return d
	}
	return time.Duration(float64(d) * math.Exp(sigma*e.noise.NormFloat64()-sigma*sigma/2))
}

// finish makes the tokens of a turn that is over.
func (e *engine) finish(kind turn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	if kind == prefill {
		j := e.current
		if j == nil {
			return // cancelled meanwhile
		}
		j.prefilled += j.chunk
		if j.prefilled < j.prompt.tokens {
			return
		}
		e.current = nil
		j.first = now
		e.metrics.prompt += int64(j.prompt.tokens)
		e.metrics.ttft.observe(now.Sub(j.received))
		if e.cfg.PrefixCache {
			e.cache.add(j.prompt.blocks, j.salt)
		}
		for _, s := range j.seqs {
			e.emit(s, 1, now)
			if !s.ended {
				e.batch = append(e.batch, s)
			}
		}
		return
	}
	for _, s := range e.batch {
		n := 1
		if s.accept != nil {
			for n <= e.cfg.DraftTokens && s.accept.Float64() < e.cfg.AcceptanceRate {
				n++
			}
			n = min(n, s.out.length-s.made)
			e.metrics.drafts++
			e.metrics.drafted += int64(e.cfg.DraftTokens)
			e.metrics.taken += int64(n - 1)
		}
		e.metrics.itl.observe(now.Sub(s.last))
		e.emit(s, n, now)
	}
	e.batch = slices.DeleteFunc(e.batch, func(s *sequence) bool { return s.ended })
}

// emit puts n tokens of a sequence into its job's mail, and ends the sequence
// and the job where these are the last.
func (e *engine) emit(s *sequence, n int, now record.Time) {
	j := s.job
	j.mail = append(j.mail, step{s.choice, s.made, s.made + n})
	s.made += n
	s.last = now
	e.metrics.generated += int64(n)
	if s.made == s.out.length {
		s.ended = true
		j.running--
		if e.cfg.PrefixCache {
			e.cache.add(outputBlocks(j.prompt, s.out), j.salt)
		}
	}
	if j.running == 0 {
		j.last = now
		delete(e.jobs, j)
		m := &e.metrics
		m.queue.observe(j.admitted.Sub(j.queued))
		m.prefill.observe(j.first.Sub(j.admitted))
		m.decode.observe(now.Sub(j.first))
		m.inference.observe(now.Sub(j.admitted))
		m.e2e.observe(now.Sub(j.received))
		reason := "stop" // vLLM knows no tool calls here
		if s.out.finish == "length" {
			reason = "length"
		}
		m.finished[reason]++
	}
	select {
	case j.notify <- struct{}{}:
	default:
	}
}

// outputBlocks returns the blocks of the prompt and of the output after it, so
// that the next turn of a conversation finds them.
func outputBlocks(prompt chain, o *output) []uint64 {
	c := prompt
	c.blocks = slices.Clone(c.blocks)
	for i := range o.length {
		w, kind := o.token(i)
		if kind == 0 {
			w = endToken
		}
		c.token(w)
	}
	return c.blocks
}

// times returns the moments of a job.
func (e *engine) times(j *job) (queued, admitted, first, last record.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return j.queued, j.admitted, j.first, j.last
}

// cachedTokens returns how many tokens of an admitted job's prompt were cached.
func (e *engine) cachedTokens(j *job) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return j.cached
}

func (e *engine) resetCache() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cache.reset()
}
