package tokens

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func tinyBPE(t *testing.T, name string) *bpe {
	t.Helper()
	return open(t, "testdata/tiny/"+name+".json").(*huggingFace).model.(*bpe)
}

// letters draws words made of a vocabulary's own characters, in which merges
// are frequent.
func letters(m *bpe) *rapid.Generator[string] {
	var chars []string
	for token := range m.ids {
		if len([]rune(token)) == 1 {
			chars = append(chars, token)
		}
	}
	return rapid.Custom(func(t *rapid.T) string {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var b strings.Builder
		for range rapid.IntRange(2, 120).Draw(t, "length") {
			switch rng.IntN(12) {
			case 0, 1:
				b.WriteString(blankMark)
			case 2:
				b.WriteString("≈") // unknown
			default:
				b.WriteString(chars[rng.IntN(len(chars))])
			}
		}
		return b.String()
	})
}

// The two ways to merge, and cutting before blank marks, are only faster: the
// tokens are the same.
func TestMergesAgree(t *testing.T) {
	for _, name := range []string{"gemma", "llama2", "metabpe", "llama3"} {
		m := tinyBPE(t, name)
		if sentencePiece := name != "llama3"; m.cuts != sentencePiece {
			t.Errorf("%s: cuts = %v", name, m.cuts)
		}
		words := letters(m)
		rapid.Check(t, func(t *rapid.T) {
			word := words.Draw(t, "word")
			w := newWork().(*work)
			symbols := m.symbols(nil, word)
			if len(symbols) == 0 {
				t.Skip("all of it is unknown")
			}
			short := append([]int32{}, symbols...)
			long := append([]int32{}, symbols...)
			short = short[:m.mergeShort(short, w)]
			long = long[:m.mergeLong(long, w)]
			if diff := cmp.Diff(short, long); diff != "" {
				t.Fatalf("%s: %q (-all pairs +heap):\n%s", name, word, diff)
			}
			if diff := cmp.Diff(short, m.encode([]int32{}, word, w)); !m.ignoreMerges && diff != "" {
				t.Fatalf("%s: %q (-whole +cut):\n%s", name, word, diff)
			}
		})
	}
}

// A merge that joins a character to the blank mark after it forbids the cut at
// that place, and one from a byte forbids all.
func TestCuts(t *testing.T) {
	parse := func(vocab, merges string) (*bpe, model) {
		m, err := parseBPE([]byte(`{"type":"BPE","vocab":{"a":0,"b":1,"▁":2,"<0x0A>":3,` + vocab + `},"merges":[` + merges + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		return m.(*bpe), m
	}
	joined, m := parse(`"a▁":4,"▁b":5`, `["a","▁"],["▁","b"]`)
	if diff := cmp.Diff([]int32{4, 1, 5}, m.encode(nil, "a▁b▁b", newWork().(*work))); !joined.cuts || diff != "" {
		t.Errorf("cuts %v: %s", joined.cuts, diff)
	}
	if byByte, _ := parse(`"<0x0A>▁":4`, `["<0x0A>","▁"]`); byByte.cuts {
		t.Error("a text is cut though a byte token may join the mark after it")
	}
}

// The memory for words has a limit, and a word is the same before and after it
// is forgotten.
func TestWordMemory(t *testing.T) {
	m := tinyBPE(t, "gemma")
	w := newWork().(*work)
	want := m.encodeWord(nil, "server", w)
	for i := range maxWords + 10 {
		m.encode(nil, strconv.Itoa(i), w)
	}
	if len(w.words) > maxWords {
		t.Errorf("%d words are kept, the limit is %d", len(w.words), maxWords)
	}
	for range 2 {
		if diff := cmp.Diff(want, m.encode(nil, "server", w)); diff != "" {
			t.Error(diff)
		}
	}
	long := strings.Repeat("server", maxWordLen)
	m.encode(nil, long, w)
	if _, ok := w.words[long]; ok {
		t.Error("a long word is kept")
	}
}
