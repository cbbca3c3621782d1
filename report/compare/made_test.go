package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// server is how a made server answers: log-normal times whose logarithms
// follow on one another by phi. Factors above 1 are slower.
type server struct {
	phi         float64
	ttft, itl   float64 // factors
	runSpread   float64 // standard deviation of the logarithm of all times, drawn once a run
	failures    float64 // share of requests
	outputShare float64 // of the output length; 0: all
}

const (
	madeTTFT, spreadTTFT = 200.0, 0.25 // ms
	madeITL, spreadITL   = 20.0, 0.10  // ms
	madeOutput           = 128         // tokens
	madeSlots            = 32
)

// manifest is that of a made run.
func manifest(id string) *record.Manifest {
	return &record.Manifest{
		ID: id, Tool: record.Build{Version: "v1.0.0"}, Outcome: record.RunCompleted, WorkloadHash: "abc", Salt: id,
		Target: record.Target{URL: "http://server/v1/chat/completions", Model: "m", EndpointType: "chat", Streaming: true},
		Load:   record.Load{Concurrency: madeSlots}, Cache: record.Cache{Mode: record.CacheCold},
		Stamps: record.StampsKernel, MeasureStart: record.Unset, MeasureEnd: record.Unset,
	}
}

// run makes a run of n requests of a closed loop.
func (s server) run(n int, seed uint64) *Run {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	all := math.Exp(s.runSpread * rng.NormFloat64())
	chain := func() func() float64 {
		z := rng.NormFloat64()
		return func() float64 {
			z = s.phi*z + math.Sqrt(1-s.phi*s.phi)*rng.NormFloat64()
			return z
		}
	}
	ttft, itl := chain(), chain()
	osl := float64(madeOutput)
	if s.outputShare > 0 {
		osl *= s.outputShare
	}
	tags := []string{"time_to_first_token", "inter_token_latency", "request_latency", outputMean, "output_token_throughput_per_user"}
	kept := make([]request, n)
	var free [madeSlots]float64
	var failed int64
	for i := range kept {
		slot := 0
		for k := range free {
			if free[k] < free[slot] {
				slot = k
			}
		}
		first := madeTTFT * s.ttft * all * math.Exp(spreadTTFT*ttft())
		gap := madeITL * s.itl * all * math.Exp(spreadITL*itl())
		latency := first + gap*(osl-1)
		at := func(ms float64) record.Time { return record.Time(ms * 1e6) }
		kept[i] = request{start: at(free[slot]), first: at(free[slot] + first), last: at(free[slot] + latency), osl: osl}
		if free[slot] += latency; rng.Float64() < s.failures {
			kept[i].failed = true
			failed++
			continue
		}
		kept[i].tags, kept[i].values = tags, []float64{first, gap, latency, osl, 1000 / gap}
	}
	r := &Run{
		Path: fmt.Sprintf("run-%d", seed), Manifest: manifest(fmt.Sprintf("run-%d", seed)), Records: true,
		Verdict: report.Verdict{Level: report.Valid}, Counts: report.Counts{Valid: int64(n) - failed, Failed: failed},
		Tokens: []report.TokenSource{{Source: record.SourceUsage, Count: int64(n)}},
		values: map[string]map[string]float64{tokenRate: nil, requestRate: nil, errorRate: {"": 100 * float64(failed) / float64(n)}}, counts: map[string]int64{},
	}
	for _, tag := range tags {
		r.values[tag] = nil
	}
	r.keep(kept)
	for _, tag := range tags {
		st, _ := stats.Describe(slices.Clone(r.series[tag]), 1)
		r.values[tag], r.counts[tag] = valuesOf(&st), st.Count
	}
	for _, tag := range []string{tokenRate, requestRate} {
		st, _ := stats.Describe(slices.Clone(r.series[tag]), 1)
		r.values[tag] = map[string]float64{"": st.Avg}
	}
	return r
}

// side is a side of one run for each seed.
func (s server) side(name string, n int, seeds ...uint64) Side {
	out := Side{Name: name}
	for _, seed := range seeds {
		out.Runs = append(out.Runs, s.run(n, seed))
	}
	return out
}

func usual() server { return server{ttft: 1, itl: 1} }
