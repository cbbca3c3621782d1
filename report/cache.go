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
	beyond, template  int64 // hits beyond what all prompts share; hits that the template may add
}

func (t *tally) addCache(r *record.Record) {
	if r.ExpectedCached.IsKnown() {
		t.cache.expects = true
	}
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
	if c.requests == 0 && t.m.Cache.Mode == "" {
		return nil
	}
	out := &Cache{
		Mode: t.m.Cache.Mode, Requests: c.requests,
		HitRate:    ratio(float64(c.cached), float64(c.input)),
		FirstTurns: ratio(float64(c.first), float64(c.firstInput)),
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
	if t.m.Cache.Mode != record.CacheCold || c.firstInput == 0 {
		return "", Valid
	}
	share := float64(c.beyond) / float64(c.firstInput)
	if share <= coldHits {
		return "", Valid
	}
	return fmt.Sprintf("%.3g %% of the input tokens came from the prefix cache (%.3g %% beyond what all prompts share), though every prompt was to be new.",
		100**s.Cache.FirstTurns, 100*share), Suspect
}

func cacheRateOff(t *tally, s *Summary) (string, Level) {
	if t.m.Cache.Mode != record.CacheHitRate || s.Cache == nil || s.Cache.FirstTurns == nil || s.Cache.Expected == nil {
		return "", Valid
	}
	got, want := *s.Cache.FirstTurns, *s.Cache.Expected
	// The chat template hits as well, which is nobody's fault.
	extra := float64(t.cache.template) / float64(t.cache.firstInput)
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
