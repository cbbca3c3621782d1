package synthetic

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// form is how a word stands in a text.
type form int

const (
	opening  form = iota // "Word" at the start of the text
	starting             // " Word"
	inside               // " word"
	ending               // " word."
	forms
)

// vocabulary holds the words and, for each form, their tokens.
type vocabulary struct {
	counter Counter
	word    []string
	capital []string // the words with a capital letter
	tokens  [forms][]float64
	// short are the words that are one token in that form.
	short [forms][]int
	// additive: the tokens of a text are those of its words.
	additive bool
}

// newVocabulary counts the words. Without a counter each word, and each full
// stop, has perWord tokens.
func newVocabulary(counter Counter, perWord float64) (*vocabulary, error) {
	v := &vocabulary{counter: counter, word: strings.Fields(words)}
	for _, w := range v.word {
		v.capital = append(v.capital, strings.ToUpper(w[:1])+w[1:])
	}
	for f := range forms {
		v.tokens[f] = make([]float64, len(v.word))
		for i := range v.word {
			switch {
			case counter != nil:
				v.tokens[f][i] = float64(counter.Count(string(v.append(nil, f, i))))
			case f == ending:
				v.tokens[f][i] = 2 * perWord
			default:
				v.tokens[f][i] = perWord
			}
			switch n := v.tokens[f][i]; {
			case n <= 0:
				return nil, fmt.Errorf("synthetic input: the tokenizer finds no token in %q", v.append(nil, f, i))
			case n == 1 || counter == nil:
				v.short[f] = append(v.short[f], i)
			}
		}
	}
	v.additive = counter == nil || v.addsUp()
	return v, nil
}

// addsUp compares the sum over words with the count of the whole, over some
// ten thousand joins of words.
func (v *vocabulary) addsUp() bool {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 32 {
		c := &composer{vocab: v}
		c.add(rng, 400)
		if v.counter.Count(string(c.out)) != c.tokens {
			return false
		}
	}
	return true
}

func (v *vocabulary) append(dst []byte, f form, i int) []byte {
	if f != opening {
		dst = append(dst, ' ')
	}
	if f == opening || f == starting {
		dst = append(dst, v.capital[i]...)
	} else {
		dst = append(dst, v.word[i]...)
	}
	if f == ending {
		dst = append(dst, '.')
	}
	return dst
}

// repair brings a text whose words do not add up to the wanted count: it
// composes again for a length corrected by what was missed, then adds or takes
// off at the end. If the count cannot be met, the nearest shorter text is
// taken.
func (v *vocabulary) repair(run func(aim int) *composer, s string, want int) text {
	n := v.counter.Count(s)
	for aim, round := want, 0; n != want && round < 8; round++ {
		aim = max(1, aim+want-n)
		s = string(run(aim).out)
		n = v.counter.Count(s)
	}
	for n > want && len(s) > 1 {
		// Take off words, or letters of the only one.
		cut := strings.LastIndexByte(s, ' ')
		if cut < 1 {
			cut = len(s) - 1
		}
		s = s[:cut]
		n = v.counter.Count(s)
	}
	for n < want {
		best, most := "", 0
		for _, more := range v.fillers() {
			if m := v.counter.Count(s+more) - n; m > most && n+m <= want {
				best, most = more, m
			}
		}
		if most == 0 {
			break
		}
		s += best
		n += most
	}
	return text{s, n}
}

// fillers are endings tried to reach a count, words before letters.
func (v *vocabulary) fillers() []string {
	return []string{" time", " water", " a", ".", "s", "!", "\n", "7"}
}

// composer puts a text together. tokens is the sum over its words.
type composer struct {
	vocab  *vocabulary
	out    []byte
	tokens int
	sum    float64 // tokens, not rounded
	marks  []int   // words to come next
}

// mark makes the next words spell a number: other numbers give other words
// within the first seven.
func (c *composer) mark(unique uint64) {
	n := uint64(len(c.vocab.word))
	c.marks = c.marks[:0]
	for range 7 {
		c.marks = append(c.marks, int(unique%n))
		unique /= n
	}
}

// add appends words of the given number of tokens in all, or of somewhat less
// if no word fits the rest. It begins a sentence, so that what it adds does not
// depend on what stands before.
func (c *composer) add(rng *rand.Rand, tokens int) { c.fill(rng, c.sum+float64(tokens)) }

// fill is add up to a number of tokens of the whole text. Estimates are parts
// of tokens: filling up one piece after the other rounds each off, and not
// always the same way.
func (c *composer) fill(rng *rand.Rand, target float64) {
	v := c.vocab
	slack := 0.0
	if v.counter == nil {
		slack = v.tokens[inside][0] / 2 // the nearest estimate
	}
	f := starting
	left := 5 + rng.IntN(9) // words until the sentence ends
	for c.sum < target {
		if len(c.out) == 0 {
			f = opening
		}
		i := rng.IntN(len(v.word))
		if len(c.marks) > 0 {
			i, c.marks = c.marks[0], c.marks[1:]
		}
		if room := target - c.sum + slack; v.tokens[f][i] > room {
			if f != opening {
				f = inside
			}
			if len(v.short[f]) == 0 {
				break
			}
			// In an estimate the first word is put even if it is too long: no
			// prompt is empty.
			i = v.short[f][rng.IntN(len(v.short[f]))]
			if v.tokens[f][i] > room && (v.counter != nil || f != opening) {
				break
			}
		}
		c.out = v.append(c.out, f, i)
		c.sum += v.tokens[f][i]
		switch left--; {
		case f == ending:
			f = starting
			left = 5 + rng.IntN(9)
		case left <= 0:
			f = ending
		default:
			f = inside
		}
	}
	c.marks = c.marks[:0]
	c.tokens = int(c.sum + 0.5)
}
