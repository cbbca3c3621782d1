package compare

import (
	"slices"
	"testing"

	"github.com/tokmark/tokmark/report/slo"
)

// TestMoreToBeSure: what lies beyond the margin and has no verdict says why, and
// how many more requests would give it one.
func TestMoreToBeSure(t *testing.T) {
	for _, test := range []struct {
		name   string
		stat   string
		n      int
		slower float64
		phi    float64
		rows   int
		reason string
	}{
		{"a small change among very many figures", "p50", 100, 1.095, 0, 1_000_000, Unsure},
		{"a tail of few independent requests", "p99", 1000, 1.5, 0.6, 8, FewSamples},
	} {
		rule := Rule{Metric: "inter_token_latency", Stat: test.stat, Margin: 0.05}
		a, b := server{ttft: 1, itl: 1, phi: test.phi}, server{ttft: 1, itl: test.slower, phi: test.phi}
		c := &comparer{a: a.side("a", test.n, 1), b: b.side("b", test.n, 2), level: defaultLevel, rows: test.rows}
		f := c.figure(rule)
		if f.Verdict != CannotTell || f.Interval == nil || f.Interval.Low < rule.Margin || !slices.Contains(f.Reasons, test.reason) || f.More == nil || f.More.Requests <= 0 {
			t.Errorf("%s: %s, %+v", test.name, f.Text(), f.More)
			continue
		}
		more := test.n + int(f.More.Requests)*5/4
		c.a, c.b = a.side("a", more, 3), b.side("b", more, 4)
		if g := c.figure(rule); g.Verdict != Worse {
			t.Errorf("%s: with %d requests more: %s", test.name, f.More.Requests, g.Text())
		}
	}
}

// TestMoreFailures: a gate on a share near 0 says how many clean requests
// decide it, and with them it is decided.
func TestMoreFailures(t *testing.T) {
	objectives, err := slo.Parse("error_rate<0.1%")
	if err != nil {
		t.Fatal(err)
	}
	hold := func(n int) Check {
		g, err := Gate(usual().side("a", n, 1), nil, Budget{Objectives: objectives})
		if err != nil {
			t.Fatal(err)
		}
		return g.Checks[len(g.Checks)-1]
	}
	c := hold(80)
	// By hand: Wilson's upper end of 0 in n is z²/(n+z²), below 0.001 from 3838 on.
	if c.Outcome != Inconclusive || c.More == nil || c.More.Requests < 3758 || c.More.Requests > 3760 || c.Detail != "0 % [0, 4.582]" {
		t.Errorf("%+v, %+v", c, c.More)
	}
	if c := hold(80 + int(c.More.Requests)); c.Outcome != Pass {
		t.Errorf("%+v", c)
	}
	a, b := usual().side("a", 80, 1), usual().side("b", 80, 2)
	f := (&comparer{a: a, b: b, level: defaultLevel, rows: 1}).figure(Rule{Metric: errorRate, Floor: errorMargin})
	if f.Verdict != CannotTell || f.More == nil {
		t.Fatal(f.Text())
	}
	n := 80 + int(f.More.Requests)
	a, b = usual().side("a", n, 1), usual().side("b", n, 2)
	if g := (&comparer{a: a, b: b, level: defaultLevel, rows: 1}).figure(Rule{Metric: errorRate, Floor: errorMargin}); g.Verdict != Alike {
		t.Errorf("with %d requests more: %s", f.More.Requests, g.Text())
	}
}
