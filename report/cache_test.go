package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

func TestCacheRules(t *testing.T) {
	const u = record.Unknown
	tests := []struct {
		name                    string
		mode                    string
		block                   int
		input, cached, expected record.Count // of each of ten requests
		template                float64
		change                  func(rs []*record.Record)
		codes                   []string
	}{
		{name: "cold, no hit", mode: record.CacheCold, input: 1000, cached: 0, expected: u},
		{name: "cold, the template hits", mode: record.CacheCold, input: 100, cached: 32, expected: u},
		{name: "cold, at the limit", mode: record.CacheCold, input: 1000, cached: 42, expected: u},
		{name: "cold, above", mode: record.CacheCold, input: 1000, cached: 43, expected: u, codes: []string{report.CacheHitsInColdRun}},
		{name: "cold, a known template hits", mode: record.CacheCold, block: 64, template: 70, input: 1000, cached: 128, expected: u},
		{name: "cold, more than a known template", mode: record.CacheCold, block: 64, template: 20, input: 1000, cached: 128, expected: u, codes: []string{report.CacheHitsInColdRun}},
		{name: "cold, a shared system prompt hits", mode: record.CacheCold, input: 1000, cached: 512, expected: 500},
		{name: "cold, later turns find the turns before", mode: record.CacheCold, input: 1000, cached: 0, expected: u,
			change: func(rs []*record.Record) { rs[4].Turn, rs[4].Tokens.Cached = 1, 900 }},
		{name: "cold, the server does not tell", mode: record.CacheCold, input: 1000, cached: u, expected: u},
		{name: "as it is", mode: record.CacheAsIs, input: 1000, cached: 900, expected: u},
		{name: "no mode", input: 1000, cached: 900, expected: u},

		{name: "hit rate, at the lower limit", mode: record.CacheHitRate, input: 1000, cached: 450, expected: 500},
		{name: "hit rate, below", mode: record.CacheHitRate, input: 1000, cached: 449, expected: 500, codes: []string{report.CacheRateOff}},
		// 500 + 32 of a template that nobody knows make 34 blocks.
		{name: "hit rate, at the upper limit", mode: record.CacheHitRate, input: 1000, cached: 594, expected: 500},
		{name: "hit rate, above", mode: record.CacheHitRate, input: 1000, cached: 595, expected: 500, codes: []string{report.CacheRateOff}},
		{name: "hit rate of the plan", mode: record.CacheHitRate, input: 1000, cached: 240, expected: u, codes: []string{report.CacheRateOff}},

		{name: "warm", mode: record.CacheWarm, input: 1000, cached: 992, expected: u},
		{name: "warm, at the limit", mode: record.CacheWarm, block: 100, input: 1001, cached: 900, expected: u},
		{name: "warm, below", mode: record.CacheWarm, block: 100, input: 1001, cached: 899, expected: u, codes: []string{report.CacheNotWarm}},
		{name: "warm, prompts below a block", mode: record.CacheWarm, input: 16, cached: 0, expected: u},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest()
			m.Cache = record.Cache{Mode: tt.mode, HitRate: 0.3, Block: tt.block}
			if tt.template > 0 {
				m.Calibration = &record.Calibration{Template: tt.template}
			}
			recs := many(10)
			for _, r := range recs {
				r.Tokens.Input, r.Tokens.Cached, r.ExpectedCached = tt.input, tt.cached, tt.expected
			}
			if tt.change != nil {
				tt.change(recs)
			}
			s := summarize(t, m, recs...)
			if diff := cmp.Diff(tt.codes, codes(s)); diff != "" {
				t.Errorf("warnings: -want +got\n%s", diff)
			}
			if want := map[bool]report.Level{true: report.Valid, false: report.Suspect}[tt.codes == nil]; s.Verdict.Level != want {
				t.Errorf("verdict %+v, want %s", s.Verdict, want)
			}
		})
	}
}

func TestCacheFigures(t *testing.T) {
	m := manifest()
	m.Cache = record.Cache{Mode: record.CacheAsIs}
	recs := many(4)
	recs[0].Tokens.Input, recs[0].Tokens.Cached, recs[0].ExpectedCached = 100, 50, 40
	recs[1].Tokens.Input, recs[1].Tokens.Cached = 100, 0
	recs[2].Tokens.Input, recs[2].Tokens.Cached, recs[2].Turn = 200, 200, 3
	recs[3].Tokens.Input, recs[3].Tokens.Cached = 5000, record.Unknown
	s := summarize(t, m, recs...)
	ptr := func(v float64) *float64 { return &v }
	want := &report.Cache{Mode: record.CacheAsIs, Requests: 3, HitRate: ptr(250.0 / 400), FirstTurns: ptr(0.25), Expected: ptr(0.2), OfFullBlocks: ptr(50.0 / 192)}
	if diff := cmp.Diff(want, s.Cache); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// All of the third is cached, of the fourth nobody knows.
	r, ok := s.Metric("ttft_per_uncached_token")
	if !ok || r.Statistic.Count != 2 || !near(r.Statistic.Max, 0.4) || !near(r.Statistic.Min, 0.2) {
		t.Errorf("ttft_per_uncached_token: %+v", r.Statistic)
	}
	if s := summarize(t, manifest(), many(3)...); s.Cache != nil {
		t.Errorf("cache %+v of which nobody told", s.Cache)
	}
}
