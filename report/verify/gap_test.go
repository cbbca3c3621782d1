package verify

import (
	"math"
	"strings"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
)

// likely is an answer of tokens "OWN" or "OWN/OTHER", where OWN has the
// log-prob -0.5 and OTHER the one given.
func likely(other float64, tokens ...string) Answer {
	a := Answer{OK: true}
	for _, t := range tokens {
		own, alternative, listed := strings.Cut(t, "/")
		one := record.TokenLogProbs{LogProb: record.LogProb{Token: own, Value: -0.5}}
		if listed {
			one.Alternatives = []record.LogProb{one.LogProb, {Token: alternative, Value: other}}
		}
		a.Text += own
		a.LogProbs = append(a.LogProbs, one)
	}
	return a
}

func TestGap(t *testing.T) {
	none := math.NaN()
	with := func(a Answer, text string) Answer { a.Text = text; return a }
	for _, c := range []struct {
		name        string
		a, b        Answer
		exact, over float64
	}{
		{"a tie", likely(-0.55, "x", " one/ two", " a"), likely(-1, "x", " two", " b"), 0.05, none},
		{"a fault", likely(-5, " one/ two"), likely(-1, " two"), 4.5, none},
		{"A was not greedy", likely(-0.4, " one/ two"), likely(-1, " two"), -0.1, none},
		{"not listed", likely(-5, "x", " one/ two"), likely(-1, "x", " three"), none, 4.5},
		{"no list", likely(-5, " one"), likely(-1, " two"), none, none},
		{"tokens that begin alike", likely(-1, " one/ on"), likely(-1, " on", "ly"), 0.5, none},
		{"the same text in other tokens", likely(-1, "ab/a", "c"), likely(-1, "a", "b", "d"), 0.5, none},
		{"B ends, and its end shows", likely(-1, "x", " one/<end>"), with(likely(-1, "x", "<end>"), "x"), 0.5, none},
		{"A ends, and nothing tells", likely(-1, "x"), likely(-1, "x", " one"), none, none},
		{"not of this text", with(likely(-1, "x", " one/ two"), "reasonx one"), with(likely(-1, "x", " two"), "reasonx two"), none, none},
		{"a token lacks", with(likely(-1, "x", " one/ two"), "x and one"), with(likely(-1, "x", " two"), "x and two"), none, none},
		{"B has none", likely(-1, "x", " one/ two"), Answer{Text: "x two"}, none, none},
	} {
		exact, over := gap(c.a, c.b)
		for _, is := range []struct {
			what string
			got  *float64
			want float64
		}{{"gap", exact, c.exact}, {"at least", over, c.over}} {
			if (is.got == nil) != math.IsNaN(is.want) || is.got != nil && math.Abs(*is.got-is.want) > 1e-9 {
				t.Errorf("%s: %s %v, want %v", c.name, is.what, is.got, is.want)
			}
		}
	}
}

func TestGapsInWords(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	d := Difference{Prompts: 40, Diverged: []Divergence{{}, {LogProbGap: f(0.1)}, {LogProbGap: f(-0.05)}}}
	for _, c := range []struct {
		more Divergence
		want string
	}{
		{Divergence{}, "of 2 divergences with log-probs: 2 near ties (gap ≤ 0.1 nats), 0 beyond: no sign of a fault"},
		{Divergence{LogProbGap: f(0.5)}, "of 3 divergences with log-probs: 2 near ties (gap ≤ 0.1 nats), 1 beyond\n"},
		{Divergence{LogProbGapOver: f(0.5)}, "of 3 divergences with log-probs: 2 near ties (gap ≤ 0.1 nats), 1 beyond\n"},
		{Divergence{LogProbGap: f(3)}, "1 beyond, 1 of them so far (> 1) that it is a fault rather than a tie\n"},
		{Divergence{LogProbGapOver: f(3)}, "1 beyond, 1 of them so far (> 1) that it is a fault rather than a tie\n"},
	} {
		other := d
		other.Diverged = append(other.Diverged[:3:3], c.more)
		var text strings.Builder
		if err := Judge(Difference{Prompts: 40, Identical: 40}, other).WriteText(&text); err != nil || !strings.Contains(text.String(), c.want) {
			t.Errorf("%v, want %q in\n%s", err, c.want, text.String())
		}
	}
	same := Difference{Prompts: 40, Identical: 40, Diverged: d.Diverged}
	var text strings.Builder
	if err := Judge(same, same).WriteText(&text); err != nil || strings.Contains(text.String(), "beyond") || !strings.Contains(text.String(), "2 of 2") {
		t.Errorf("%v: the same\n%s", err, text.String())
	}
}
