package mockserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func tokensOf(s string) (out []string) {
	for len(s) > 0 {
		n := firstToken(s)
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"house", []string{"house"}},
		{" house", []string{" house"}},
		{"The old house.", []string{"The", " old", " house", "."}},
		{"something else", []string{"someth", "ing", " else"}},
		{"a, b", []string{"a", ",", " b"}},
		{"a  b", []string{"a", " ", " b"}},
		{"a\n\nb\n c ", []string{"a", "\n\n", "b", "\n", " c", " "}},
		{"größe 数字 ☕", []string{"gr", "ö", "ß", "e", " 数", "字", " ☕"}},
		{"\xff\xfe", []string{"\xff", "\xfe"}},
		{"x=1", []string{"x", "=", "1"}},
	} {
		if diff := cmp.Diff(c.want, tokensOf(c.text)); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
		if got := CountTokens(c.text); got != len(c.want) {
			t.Errorf("%q: counted %d tokens, want %d", c.text, got, len(c.want))
		}
	}
}

func FuzzTokensCoverTheText(f *testing.F) {
	f.Add("The old  house.\n \t größe")
	f.Add("\xff a")
	f.Fuzz(func(t *testing.T, s string) {
		tokens := tokensOf(s) // panics or never ends where a token is empty
		if strings.Join(tokens, "") != s {
			t.Errorf("%q was cut into %q", s, tokens)
		}
		var c chain
		c.text(s)
		if c.tokens != len(tokens) || len(c.blocks) != len(tokens)/BlockTokens {
			t.Errorf("the chain has %d tokens and %d blocks, want %d tokens", c.tokens, len(c.blocks), len(tokens))
		}
	})
}

func TestChainKnowsWhereTokensEnd(t *testing.T) {
	a, b := newChain(), newChain()
	a.token("ab")
	a.token("c")
	b.token("a")
	b.token("bc")
	if a.hash == b.hash {
		t.Error("ab, c and a, bc have the same hash")
	}
}

func TestEachWordIsOneToken(t *testing.T) {
	for _, w := range words {
		if CountTokens(w) != 1 || CountTokens(strings.TrimPrefix(w, " ")) != 1 {
			t.Errorf("%q is %d tokens", w, CountTokens(w))
		}
	}
}

func TestOutputsKeepTheirCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Default()
		cfg.ReasoningShare = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "share")
		cfg.ReasoningTokens = rapid.IntRange(0, 20).Draw(t, "reasoning")
		cfg.MeanOutput = rapid.IntRange(2, 30).Draw(t, "mean")
		lim := outputLimits{most: rapid.IntRange(1, 60).Draw(t, "most"), ignoreEOS: rapid.Bool().Draw(t, "ignore")}
		lim.least = rapid.IntRange(0, lim.most).Draw(t, "least")
		o := newOutput(rapid.Uint64().Draw(t, "key"), true, "", lim, &cfg)
		if o.length < max(1, lim.least) || o.length > lim.most {
			t.Fatalf("length %d is outside %d to %d", o.length, lim.least, lim.most)
		}
		if (lim.ignoreEOS || o.finish == "length") && o.length != lim.most {
			t.Fatalf("finish %q after %d of %d", o.finish, o.length, lim.most)
		}
		visible := CountTokens(o.text(0, o.reasoning, 2)) + CountTokens(o.text(o.reasoning, o.length, 1))
		if o.natural {
			visible++
		}
		if visible != o.length {
			t.Fatalf("%d tokens are in the text, length %d", visible, o.length)
		}
	})
}

// The cache must agree with a slow list of what was used when.
func TestPrefixCacheForgetsTheLeastRecentlyUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 8).Draw(t, "capacity")
		c := newPrefixCache(capacity)
		var model []uint64 // newest first
		touch := func(b uint64) {
			for i, m := range model {
				if m == b {
					model = append(model[:i:i], model[i+1:]...)
				}
			}
			model = append([]uint64{b}, model...)
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			prompt := make([]uint64, rapid.IntRange(0, 5).Draw(t, "blocks"))
			kind := rapid.Uint64Range(0, 3).Draw(t, "kind")
			for i := range prompt {
				prompt[i] = kind*100 + uint64(i)
			}
			hits := 0
			for hits < len(prompt) && slices.Contains(model, prompt[hits]) {
				hits++
			}
			if got := c.hits(prompt, 9); got != hits {
				t.Fatalf("%d hits, want %d", got, hits)
			}
			for i := len(prompt) - 1; i >= 0; i-- {
				touch(prompt[i])
			}
			model = model[:min(len(model), capacity)]
			c.add(prompt, 9)
			if c.order.Len() != len(c.index) || c.order.Len() > capacity {
				t.Fatalf("%d blocks in order, %d in the index", c.order.Len(), len(c.index))
			}
		}
	})
}
