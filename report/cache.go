package report

import (
	"cmp"
	"fmt"
	"math"

	"github.com/tokmark/tokmark/bench/record"
)

// Cache tells what the server's prefix cache did, over the valid requests
// whose input and cached tokens are both known; rates are shares of input
// tokens, nil if unknown.
//
// What was expected is compared over first turns only: a later turn finds the
// turns before it whatever the workload was built for.
type Cache struct {
	Mode     string `json:"mode,omitempty"` // as in the manifest
	Requests int64  `json:"requests"`       // that tell
	// HitRate is the sum of cached over the sum of input tokens, of all turns.
	HitRate *float64 `json:"hit_rate,omitempty"`
	// FirstTurns is the same of the first turns, Expected what the workload was
	// built for there.
	FirstTurns *float64 `json:"hit_rate_first_turns,omitempty"`
	Expected   *float64 `json:"expected_hit_rate,omitempty"`
	// OfFullBlocks is the share of the tokens in whole cache blocks that hit,
	// of first turns: in a warm run all of them can.
	OfFullBlocks *float64 `json:"hit_rate_of_full_blocks,omitempty"`
	// Server is the rate by the server's own counters, of all turns, and of
	// others' requests if there were any.
	Server *float64 `json:"server_hit_rate,omitempty"`
}

// rate is the hit rate of first turns: by usage, else by the server's counters
// if there are no later turns.
func (c *Cache) rate(t *tally) (v float64, told bool) {
	switch {
	case c == nil:
		return 0, false
	case c.FirstTurns != nil:
		return *c.FirstTurns, true
	case c.Server != nil && !t.cache.later:
		return *c.Server, true
	}
	return 0, false
}

// The bounds of the rules about the cache.
const (
	// coldHits is the share of hits that a cold run may have beyond what no
	// prompt can avoid: a first token that is one part in a hundred earlier is
	// within the noise of any run.
	coldHits  = 0.01
	rateOff   = 0.05
	warmHits  = 0.9
	someBlock = 16 // tokens a cache block, if not known
	// someTemplate is how many tokens a chat template puts before the text
	// that is ours, if not known.
	someTemplate = 32
)

// cache is what is kept for Cache.
type cache struct {
	requests          int64
	input, cached     int64 // of all turns
	firstInput, first int64
	expected          int64
	expects           bool // some request says what it expects
	fullBlocks        int64
	later             bool  // there are later turns
	beyond, template  int64 // hits beyond what all prompts share; hits that the template may add
}

func (t *tally) addCache(r *record.Record) {
	if r.ExpectedCached.IsKnown() {
		t.cache.expects = true
	}
	t.cache.later = t.cache.later || r.Turn > 0
	if !r.Tokens.Input.IsKnown() || !r.Tokens.Cached.IsKnown() {
		return
	}
	c := &t.cache
	input, cached, expected := int64(r.Tokens.Input), int64(r.Tokens.Cached), int64(max(r.ExpectedCached, 0))
	c.requests++
	c.input += input
	c.cached += cached
	if r.Turn > 0 {
		return
	}
	block := int64(cmp.Or(max(t.m.Cache.Block, 0), someBlock))
	start := int64(someTemplate)
	if t.m.Calibration != nil {
		start = int64(math.Ceil(max(t.m.Calibration.Template, 0)))
	}
	c.firstInput += input
	c.first += cached
	c.expected += expected
	c.fullBlocks += max(0, input-1) / block * block // the last token is always computed
	shared := (expected + start + block - 1) / block * block
	c.beyond += max(0, cached-shared)
	c.template += min(max(0, shared-expected), input)
}

func (t *tally) cacheResult() *Cache {
	c := &t.cache
	server := t.server.ratio(metricHits, metricQueries)
	if c.requests == 0 && t.m.Cache.Mode == "" && server == nil {
		return nil
	}
	out := &Cache{
		Mode: t.m.Cache.Mode, Requests: c.requests,
		HitRate:    ratio(float64(c.cached), float64(c.input)),
		FirstTurns: ratio(float64(c.first), float64(c.firstInput)),
		Server:     server,
	}
	switch {
	case c.expects && c.firstInput > 0:
		out.Expected = ratio(float64(c.expected), float64(c.firstInput))
	case t.m.Cache.Mode == record.CacheHitRate:
		out.Expected = &t.m.Cache.HitRate
	}
	out.OfFullBlocks = ratio(float64(c.first), float64(c.fullBlocks))
	return out
}

func cacheHitsInColdRun(t *tally, s *Summary) (string, Level) {
	c := &t.cache
	if t.m.Cache.Mode != record.CacheCold {
		return "", Valid
	}
	if c.firstInput == 0 {
		return coldByCounters(t, s)
	}
	share := float64(c.beyond) / float64(c.firstInput)
	if share <= coldHits {
		return "", Valid
	}
	return fmt.Sprintf("%.3g %% of the input tokens came from the prefix cache (%.3g %% beyond what all prompts share), though every prompt was to be new.",
		100**s.Cache.FirstTurns, 100*share), Suspect
}

// coldByCounters is cacheHitsInColdRun where no answer tells its cached tokens:
// only the server's counters are left, and what its template hits is guessed.
func coldByCounters(t *tally, s *Summary) (string, Level) {
	rate, ok := s.Cache.rate(t)
	if !ok || t.isl.n == 0 || t.isl.sum == 0 {
		return "", Valid
	}
	allowed := someTemplate * float64(t.isl.n) / float64(t.isl.sum)
	if rate <= allowed+coldHits {
		return "", Valid
	}
	return fmt.Sprintf("By the server's counters %.3g %% of the input came from the prefix cache, though every prompt was to be new.", 100*rate), Suspect
}

// cacheCountsDiffer compares what answers tell with what the server counted.
func cacheCountsDiffer(t *tally, s *Summary) (string, Level) {
	c := s.Cache
	if c == nil || c.HitRate == nil || c.Server == nil {
		return "", Valid
	}
	allowed := rateOff
	if t.m.Dialect == "trtllm" { // which counts blocks, and no part of one
		allowed += float64(cmp.Or(t.m.Cache.Block, someBlock)) * float64(t.cache.requests) / float64(t.cache.input)
	}
	if math.Abs(*c.HitRate-*c.Server) <= allowed {
		return "", Valid
	}
	return fmt.Sprintf("The answers tell that %.3g %% of their input tokens were cached, the server's counters %.3g %%.", 100**c.HitRate, 100**c.Server), Suspect
}

func cacheRateOff(t *tally, s *Summary) (string, Level) {
	got, told := s.Cache.rate(t)
	if t.m.Cache.Mode != record.CacheHitRate || !told || s.Cache.Expected == nil {
		return "", Valid
	}
	want := *s.Cache.Expected
	// The chat template hits as well, which is nobody's fault.
	extra := 0.0
	if t.cache.firstInput > 0 {
		extra = float64(t.cache.template) / float64(t.cache.firstInput)
	}
	if got >= want-rateOff && got <= want+extra+rateOff {
		return "", Valid
	}
	return fmt.Sprintf("The prefix cache served %.3g %% of the input tokens where the prompts were built for %.3g %%.", 100*got, 100*want), Suspect
}

func cacheNotWarm(t *tally, s *Summary) (string, Level) {
	if t.m.Cache.Mode != record.CacheWarm || s.Cache == nil || s.Cache.OfFullBlocks == nil || *s.Cache.OfFullBlocks >= warmHits {
		return "", Valid
	}
	return fmt.Sprintf("The prefix cache served %.3g %% of the tokens in full blocks, though every prompt had been sent before.", 100**s.Cache.OfFullBlocks), Suspect
}

// ttftPerUncached is the time to first token for each input token that the
// server had to compute.
func ttftPerUncached(r *record.Record) (float64, bool) {
	ttft, ok := r.TTFT()
	uncached := r.Tokens.Input - r.Tokens.Cached
	if !ok || !r.Tokens.Input.IsKnown() || !r.Tokens.Cached.IsKnown() || uncached <= 0 {
		return 0, false
	}
	return float64(ttft) / float64(uncached), true
}
