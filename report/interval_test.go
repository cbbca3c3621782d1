package report_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

// withTTFT makes a request for each TTFT in ms, in this order.
func withTTFT(ttft []float64) []*record.Record {
	recs := make([]*record.Record, len(ttft))
	for i, v := range ttft {
		recs[i] = stream(int64(i), record.Time(i)*10*msec, record.Time(v*float64(msec)), 5*msec, 8)
	}
	return recs
}

func TestIntervalsOfIndependentRequests(t *testing.T) {
	// 1 to 100 in an order without memory.
	ttft := make([]float64, 100)
	for i, v := range rand.New(rand.NewPCG(1, 1)).Perm(100) {
		ttft[i] = float64(v + 1)
	}
	r, _ := summarize(t, manifest(), withTTFT(ttft)...).Metric("time_to_first_token")
	if r.Intervals == nil || r.Intervals.Bootstrap || r.Intervals.Count != 100 {
		t.Fatalf("intervals %+v", r.Intervals)
	}
	// Ranks 40 and 61 of 100 for the median, by scipy.stats.binom: P(X < 40) =
	// 0.0176 and P(X >= 61) = 0.0176 for X of Binomial(100, 0.5).
	p50 := r.Intervals.Of[0]
	if *p50.Low != 40 || *p50.High != 61 {
		t.Errorf("p50 [%v, %v], want [40, 61]", *p50.Low, *p50.High)
	}
	// 0.99^100 = 0.366: the largest of 100 is no bound above the p99.
	if p99 := r.Intervals.Of[3]; p99.Low == nil || p99.High != nil {
		t.Errorf("p99 %+v, want a lower side alone", p99)
	}
}

func TestIntervalsOfDependentRequests(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	ttft := make([]float64, 2000)
	x := 0.0
	for i := range ttft {
		x = 0.9*x + rng.NormFloat64()
		ttft[i] = 100 + 10*x
	}
	m := manifest()
	s := summarize(t, m, withTTFT(ttft)...)
	r, _ := s.Metric("time_to_first_token")
	if r.Intervals == nil || !r.Intervals.Bootstrap || r.Intervals.Effective > 500 {
		t.Fatalf("intervals %+v, want a bootstrap worth some 100 requests", r.Intervals)
	}
	rng.Shuffle(len(ttft), func(i, j int) { ttft[i], ttft[j] = ttft[j], ttft[i] })
	shuffled, _ := summarize(t, m, withTTFT(ttft)...).Metric("time_to_first_token")
	width := func(r report.Result) float64 { return *r.Intervals.Of[0].High - *r.Intervals.Of[0].Low }
	if shuffled.Intervals.Bootstrap || width(r) < 2*width(shuffled) {
		t.Errorf("width %v, of the same values shuffled %v: dependence is not seen", width(r), width(shuffled))
	}
	again, _ := summarize(t, m, withTTFT(ttft)...).Metric("time_to_first_token")
	if diff := cmp.Diff(shuffled.Intervals, again.Intervals); diff != "" {
		t.Errorf("another time, another interval:\n%s", diff)
	}
}

func TestIntervalsInJSON(t *testing.T) {
	ttft := make([]float64, 400)
	for i, v := range rand.New(rand.NewPCG(2, 2)).Perm(400) {
		ttft[i] = float64(v + 1)
	}
	b, err := summarize(t, manifest(), withTTFT(ttft)...).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	var metric map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all["time_to_first_token"], &metric); err != nil {
		t.Fatal(err)
	}
	p99, ok := metric["p99_ci95"].([]any)
	if !ok || len(p99) != 2 || p99[0] == nil || p99[1] != 400.0 {
		t.Errorf("p99_ci95 = %v, want two sides, the upper being the maximum", metric["p99_ci95"])
	}
	if p999, ok := metric["p99_9_ci95"].([]any); !ok || p999[1] != nil {
		t.Errorf("p99_9_ci95 = %v, want no upper side", metric["p99_9_ci95"])
	}
	if metric["ci_method"] != "order_statistics" {
		t.Errorf("ci_method = %v", metric["ci_method"])
	}
}

// A warning about few samples says how many more would do.
// Of a handful of values the estimate is interpolated, and a bound may lie on its
// wrong side.
func TestIntervalsHoldTheEstimate(t *testing.T) {
	for n := 1; n <= 60; n++ {
		ttft := make([]float64, n)
		for i, v := range rand.New(rand.NewPCG(7, uint64(n))).Perm(n) {
			ttft[i] = float64(v + 1)
		}
		r, _ := summarize(t, manifest(), withTTFT(ttft)...).Metric("time_to_first_token")
		for i, p := range report.IntervalPercents {
			at, ok := r.Statistic.Percentile(p)
			in := r.Intervals.Of[i]
			if !ok || in.Low != nil && *in.Low > at || in.High != nil && *in.High < at {
				t.Errorf("%d requests: p%v is %v, not in [%v, %v]", n, p, at, in.Low, in.High)
			}
		}
	}
}

func TestFewSamplesSaysHowMany(t *testing.T) {
	message := func(s *report.Summary) string {
		for _, w := range s.Warnings {
			if w.Code == report.FewSamples {
				return w.Message
			}
		}
		return ""
	}
	if got := message(summarize(t, manifest(), many(400)...)); !strings.Contains(got, "send 600 more") {
		t.Errorf("400 requests: %q", got)
	}
	if got := message(summarize(t, manifest(), many(1000)...)); got != "" {
		t.Errorf("1000 requests: %q", got)
	}
}

func TestIntervalsStayFinite(t *testing.T) {
	for _, n := range []int{1, 2, 5, 12} {
		s := summarize(t, manifest(), many(n)...)
		for _, r := range s.Metrics {
			if r.Intervals == nil {
				continue
			}
			for i, ci := range r.Intervals.Of {
				for _, side := range []*float64{ci.Low, ci.High} {
					if side != nil && (math.IsNaN(*side) || math.IsInf(*side, 0)) {
						t.Errorf("%d requests, %s p%v: %v", n, r.Tag, report.IntervalPercents[i], *side)
					}
				}
			}
		}
	}
}
