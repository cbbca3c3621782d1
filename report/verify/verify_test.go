package verify

import (
	"math"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
)

func answers(texts ...string) []Answer {
	var out []Answer
	for _, s := range texts {
		out = append(out, Answer{OK: true, Text: s, Finish: "stop", Tokens: record.Count(len(s)), Structure: s[0] == '{' && s[len(s)-1] == '}'})
	}
	return out
}

func TestCompare(t *testing.T) {
	a := answers("one two three", "same", "naïve é", `{"x":1}`, "short")
	b := answers("one two four", "same", "naïve è", `{"x":1`, "shorter")
	b[4].Finish = "length"
	a = append(a, Answer{}, Answer{OK: true})
	b = append(b, Answer{OK: true}, Answer{})
	d := Compare(a, b, func(s string) int { return len(s) / 2 })
	if d.Prompts != 5 || d.Identical != 1 || d.FailedA != 1 || d.FailedB != 1 || d.OneSided != 2 || d.Finish != 1 || d.StructureA != 1 || d.StructureB != 0 {
		t.Errorf("%+v", d)
	}
	if x := d.Diverged[0]; x.Prompt != 0 || *x.Tokens != 4 || x.Words != 2 || x.Characters != 8 || x.A != "three" || x.B != "four" {
		t.Errorf("first divergence %+v", x)
	}
	if x := d.Diverged[1]; x.Characters != 6 || x.A != "é" || x.B != "è" {
		t.Errorf("inside a character: %+v", x)
	}
	if math.Abs(d.Share()-0.8) > 1e-12 {
		t.Errorf("share %v", d.Share())
	}
}

// Values worked out in exact integers with Python's math.comb.
func TestFisher(t *testing.T) {
	for _, c := range []struct {
		k1, n1, k2, n2 int
		want           float64
	}{
		{0, 10, 5, 10, 0.016253869969040248},
		{3, 32, 12, 32, 0.008198907058378915},
		{5, 20, 5, 20, 0.6417867224318837},
		{0, 8, 0, 8, 1},
	} {
		if got := fisher(c.k1, c.n1, c.k2, c.n2); math.Abs(got-c.want) > 1e-9*c.want {
			t.Errorf("fisher(%d of %d, %d of %d) = %.10g, want %.10g", c.k1, c.n1, c.k2, c.n2, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	same := Difference{Prompts: 40, Identical: 36}
	if r := Judge(same, Difference{Prompts: 40, Identical: 34}); r.Verdict != Same {
		t.Errorf("10 %% against 15 %%: %s", r.Verdict)
	}
	if r := Judge(same, Difference{Prompts: 40, Identical: 10}); r.Verdict != Differs {
		t.Errorf("10 %% against 75 %%: %s", r.Verdict)
	}
	if r := Judge(same, Difference{Prompts: 40, Identical: 27}); r.Verdict != Unsure {
		t.Errorf("10 %% against 32.5 %%: %s (p %v)", r.Verdict, r.P)
	}
	if r := Judge(same, Difference{Prompts: 30, Identical: 29, OneSided: 10, FailedB: 10}); r.Verdict != Differs || r.By != "failures" {
		t.Errorf("B fails a quarter: %s by %q", r.Verdict, r.By)
	}
	if r := Judge(same, Difference{OneSided: 40, FailedB: 40}); r.Verdict != Differs || r.By != "failures" {
		t.Errorf("B fails all: %s by %q", r.Verdict, r.By)
	}
	if r := Judge(same, Difference{Prompts: 40, Identical: 38, Finish: 12}); r.Verdict != Differs || r.By != "finish reasons" {
		t.Errorf("other finish reasons: %s by %q", r.Verdict, r.By)
	}
	if r := Judge(same, Difference{Prompts: 3, Identical: 0}); r.Verdict != Unsure {
		t.Errorf("3 prompts: %s", r.Verdict)
	}
}
