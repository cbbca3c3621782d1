package compare

import (
	"flag"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// The numbers in the package comment are of -found 1000 -whole 100.
var (
	foundTrials = flag.Int("found", 20, "made gates with a regression")
	wholeTrials = flag.Int("whole", 2, "made gates of equal servers whose every interval is computed")
)

// TestSimulatedGate counts what the gate of the default budget says of made
// runs of the advised size.
func TestSimulatedGate(t *testing.T) {
	const equalTrials = 1000
	if raceDetector {
		t.Skip("arithmetic of one goroutine, twenty times as slow")
	}
	regressions, whole := *foundTrials, *wholeTrials
	// A few trials may miss the share by chance.
	wanted := 0.95 * float64(regressions)
	if regressions < 1000 {
		wanted -= 2 * math.Sqrt(0.95*0.05*float64(regressions))
	}
	rules := DefaultBudget().Rules
	for _, kind := range []struct {
		name string
		phi  float64
	}{{"independent", 0}, {"AR(1) 0.5", 0.5}} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			base := usual()
			base.phi = kind.phi
			regressed := func(trial int, b server) bool {
				c := &comparer{a: base.side("a", AdvisedRequests, uint64(2*trial)), b: b.side("b", AdvisedRequests, uint64(2*trial+1)), level: defaultLevel, rows: len(rules)}
				for _, r := range rules {
					if c.beyond(r) && c.figure(r).Verdict == Worse {
						return true
					}
				}
				return false
			}
			found := count(equalTrials, func(i int) bool { return regressed(i, base) })
			t.Logf("equal servers: %d of %d gates say regression", found, equalTrials)
			if found > equalTrials/100 {
				t.Errorf("equal servers: %d of %d gates say regression, at most 1 %% may", found, equalTrials)
			}
			var passed, failed atomic.Int64
			count(whole, func(i int) bool {
				a, b := base.side("a", AdvisedRequests, uint64(2*i)), base.side("b", AdvisedRequests, uint64(2*i+1))
				g, err := Gate(b, &a, DefaultBudget())
				if err != nil {
					t.Error(err)
					return false
				}
				switch g.Outcome {
				case Pass:
					passed.Add(1)
				case Regression:
					failed.Add(1)
				case NotValid:
					t.Errorf("equal servers: %s: %+v", g.Outcome, g.Checks)
				}
				// The short way above must say what the gate says.
				if short := regressed(i, base); short != (g.Outcome == Regression) {
					t.Errorf("trial %d: the gate says %s, the short way %v", i, g.Outcome, short)
				}
				return true
			})
			t.Logf("equal servers: %d of %d whole gates pass, %d say regression", passed.Load(), whole, failed.Load())
			for _, slower := range []struct {
				what string
				server
			}{
				{"TTFT alone 10 % slower", server{phi: kind.phi, ttft: 1.1, itl: 1}},
				{"everything 10 % slower", server{phi: kind.phi, ttft: 1.1, itl: 1.1}},
			} {
				found := count(regressions, func(i int) bool { return regressed(10_000+i, slower.server) })
				t.Logf("%s: %d of %d gates say regression", slower.what, found, regressions)
				if float64(found) < wanted {
					t.Errorf("%s: found in %d of %d, want 95 %%", slower.what, found, regressions)
				}
			}
		})
	}
}

// beyond reports whether the figure itself lies beyond the margin: only then
// can it be worse, and its interval is worth its time.
func (c *comparer) beyond(rule Rule) bool {
	if rule.Metric == errorRate {
		return true
	}
	f := Figure{Metric: rule.Metric, Stat: key(rule.Stat)}
	a, b := c.values(&f)
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	ratio := b[0] / a[0]
	if rule.Metric == tokenRate {
		ratio = 1 / ratio
	}
	return ratio > 1+max(rule.Margin, rule.Floor/a[0])
}

// count is how many of n trials hold, two at a time on two processors.
func count(n int, trial func(i int) bool) int {
	var (
		next, found atomic.Int64
		running     sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if trial(int(i)) {
					found.Add(1)
				}
			}
		})
	}
	running.Wait()
	return int(found.Load())
}

// TestSimulatedSmallGate: too few requests make a gate inconclusive, not
// wrong.
func TestSimulatedSmallGate(t *testing.T) {
	if raceDetector {
		t.Skip("arithmetic of one goroutine, twenty times as slow")
	}
	rules := DefaultBudget().Rules
	const n = 1000
	for _, size := range []int{40, 200} {
		for _, phi := range []float64{0, 0.8} {
			base := usual()
			base.phi = phi
			found := count(n, func(i int) bool {
				c := &comparer{a: base.side("a", size, uint64(2*i)), b: base.side("b", size, uint64(2*i+1)), level: defaultLevel, rows: len(rules)}
				for _, r := range rules {
					if c.beyond(r) && c.figure(r).Verdict == Worse {
						return true
					}
				}
				return false
			})
			t.Logf("%d requests, AR(1) %g: %d of %d equal gates say regression", size, phi, found, n)
			if float64(found) > 0.01*n {
				t.Errorf("%d requests, AR(1) %g: %d of %d equal gates say regression", size, phi, found, n)
			}
		}
	}
}

// TestSimulatedRepeats: where the whole server changes from run to run, one run
// a side is fooled, and repeats are not.
func TestSimulatedRepeats(t *testing.T) {
	if raceDetector {
		t.Skip("arithmetic of one goroutine, twenty times as slow")
	}
	base := usual()
	base.runSpread = 0.06
	rules := []Rule{{Metric: "time_to_first_token", Stat: "p50", Margin: 0.05}, {Metric: "request_latency", Stat: "p50", Margin: 0.05}}
	wrongs := func(runs int) int {
		const n = 200
		return count(n, func(i int) bool {
			var a, b []uint64
			for k := range runs {
				a, b = append(a, uint64(100*i+k)), append(b, uint64(100*i+50+k))
			}
			c := &comparer{a: base.side("a", 400, a...), b: base.side("b", 400, b...), level: defaultLevel, rows: len(rules)}
			for _, r := range rules {
				if c.figure(r).Verdict == Worse {
					return true
				}
			}
			return false
		})
	}
	if one, five := wrongs(1), wrongs(5); one < 20 || five > 2 {
		t.Errorf("equal servers that drift between runs: %d of 200 called worse by one run a side (want many), %d by five (want 1 %%)", one, five)
	} else {
		t.Logf("equal servers that drift between runs: %d of 200 called worse by one run a side, %d by five", one, five)
	}
}
