package compare

import (
	"bytes"
	"strings"
	"testing"
)

// blocks makes blocks of 20 requests, of which some failed.
func blocks(n, failed int, length, latency float64) []Block {
	out := make([]Block, n)
	for i := range out {
		wobble := 1 + 0.002*float64(i%3)
		out[i] = Block{failed: make([]float64, 20), figures: map[string]float64{
			"output_sequence_length.avg": length, "time_to_first_token.p50": latency * wobble,
			"inter_token_latency.p50": latency * wobble, "request_latency.p50": latency * wobble,
		}}
		for k := range failed {
			out[i].failed[(7*k+i)%20] = 1
		}
	}
	return out
}

// TestPairCounts: what fails or answers less is no gain, and a stray failure
// does not keep a comparison from its end.
func TestPairCounts(t *testing.T) {
	stray := blocks(8, 0, 100, 1)
	stray[3].failed[0] = 1
	all := make([]Block, 8)
	for i := range all {
		all[i].failed = []float64{1, 1, 1, 1, 1, 1, 1, 1}
	}
	for _, test := range []struct {
		name     string
		b        []Block
		headline string
		decided  bool
		doubts   int
	}{
		{"equal", blocks(8, 0, 100, 1), "B is the same as A within 5 %", true, 0},
		{"faster", blocks(8, 0, 100, 0.8), "B is better: Time to First Token p50 -20.0 %", true, 0},
		{"faster with failures", blocks(8, 3, 100, 0.8), "B is worse: Request Error Rate +15.0 pp", true, 1},
		{"faster with half the answer", blocks(8, 0, 50, 0.8), "B looks better: Time to First Token p50 -20.0 % [-20.0, -20.0], but answers are shorter (-50 %)", true, 1},
		{"a stray failure", stray, "B is the same as A within 5 %; B fails more often (0.625 % of requests, A 0 %)", true, 0},
		{"a failure in each", blocks(8, 1, 100, 1), "cannot tell: Request Error Rate +5.0 pp", false, 1},
		{"nothing but failures", all, "B is worse: Request Error Rate +100.0 pp", true, 1},
	} {
		p := Pair(blocks(8, 0, 100, 1), test.b, nil, PairOptions{})
		if !strings.HasPrefix(p.Headline, test.headline) || p.Decided != test.decided || len(p.Doubts) != test.doubts {
			t.Errorf("%s: %q, decided %v, doubts %q", test.name, p.Headline, p.Decided, p.Doubts)
		}
		for _, f := range p.Figures {
			if f.Verdict == Better && len(f.Doubts) != test.doubts {
				t.Errorf("%s: %s is better, doubts %q", test.name, f.Label, f.Doubts)
			}
		}
	}
	if p := Pair(all, all, nil, PairOptions{}); p.Answered() || p.Headline != "no request on both sides was answered" {
		t.Errorf("nothing but failures on both sides: %q", p.Headline)
	}
}

func TestPairTooFew(t *testing.T) {
	some := blocks(3, 0, 100, 1)
	p := Pair(some, some, nil, PairOptions{})
	if p.LeaveOut(nil); p.TooFew() {
		t.Error("few pairs of a short comparison are not invalid")
	}
	p.LeaveOut([]string{"block 001-a: the client was late", "block 007-b: the client was late"})
	var out bytes.Buffer
	if err := p.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	if want := "not valid: 3 pairs left of 5, at least 4 are needed: block 001-a: the client was late"; !p.TooFew() || p.Headline != want || !strings.Contains(out.String(), want) {
		t.Errorf("%q\n%s", p.Headline, &out)
	}
}
