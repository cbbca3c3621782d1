package mockserver

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
)

// output is one answer, settled before its first token is made. Its tokens are
// computed when they are wanted, so that a long answer costs no memory. It is
// not changed after its first token is made.
type output struct {
	key       uint64
	length    int // tokens, the invisible end token included
	reasoning int // the first of them, which are reasoning
	natural   bool
	tool      string // name of the function called; "": a text
	bare      bool   // the first word loses its space, as in a chat
	finish    string
	stop      string // the stop string that was met
	// Of the token clipAt clipLen bytes are left, of those after it nothing:
	// the stop string and what follows do not show.
	clipAt, clipLen int
	// The words from flipAt on are others than the key gives.
	flipAt int
}

// outputLimits is what a request says about the length of its answer.
type outputLimits struct {
	least, most int // tokens
	ignoreEOS   bool
	stop        []string
}

// newOutput draws an answer from its key: the same key and the same limits
// give the same answer.
func newOutput(key uint64, chat bool, tool string, lim outputLimits, cfg *Config) *output {
	o := &output{key: key, bare: chat, tool: tool, clipAt: math.MaxInt, flipAt: math.MaxInt}
	rng := rand.New(rand.NewPCG(key, 1))
	if chat && rng.Float64() < cfg.ReasoningShare {
		o.reasoning = cfg.ReasoningTokens
	}
	// Geometric from 2, so that an answer holds at least one word and its end.
	u := 1 - rng.Float64() // in (0, 1]
	drawn := 2 + int(min(math.Log(u)/math.Log1p(-1/float64(cfg.MeanOutput-1)), 1e9))
	if tool != "" {
		drawn = max(drawn, 4) // name, opening, closing, end
	}
	o.length = max(o.reasoning+drawn, lim.least+1)
	o.natural = true
	o.finish = "stop"
	if tool != "" {
		o.finish = "tool_calls"
	}
	if lim.ignoreEOS || o.length > lim.most {
		o.length, o.natural, o.finish = lim.most, false, "length"
	}
	o.reasoning = min(o.reasoning, o.length)
	if tool == "" {
		o.applyStop(lim)
	}
	return o
}

// applyStop ends the answer with the token that completes a stop string.
func (o *output) applyStop(lim outputLimits) {
	longest := 0
	for _, s := range lim.stop {
		longest = max(longest, len(s))
	}
	if longest == 0 {
		return
	}
	var text strings.Builder
	var ends []int
	for i := o.reasoning; i < o.length; i++ {
		from := max(0, text.Len()-longest+1)
		word, _ := o.token(i)
		text.WriteString(word)
		ends = append(ends, text.Len())
		if i+1 < lim.least {
			continue
		}
		at := -1
		for _, s := range lim.stop {
			if s == "" {
				continue
			}
			if p := strings.Index(text.String()[from:], s); p >= 0 && (at < 0 || from+p < at) {
				at, o.stop = from+p, s
			}
		}
		if at < 0 {
			continue
		}
		o.length, o.natural, o.finish = i+1, false, "stop"
		for j, end := range ends {
			if end > at {
				o.clipAt = o.reasoning + j
				o.clipLen = at
				if j > 0 {
					o.clipLen -= ends[j-1]
				}
				return
			}
		}
	}
}

// token returns the text of a token and what it is part of: KindReasoning,
// KindText, or KindTool, whose first token is the function's name and whose
// others are the arguments. The end token has no text and the kind 0.
func (o *output) token(i int) (string, record.Kind) {
	if o.natural && i == o.length-1 {
		return "", 0
	}
	if i < o.reasoning {
		return o.word(i, i == 0), record.KindReasoning
	}
	first := i == o.reasoning
	if o.tool != "" {
		switch {
		case first:
			return o.tool, record.KindTool
		case i == o.reasoning+1:
			return `{"query": "`, record.KindTool
		case o.natural && i == o.length-2:
			return `"}`, record.KindTool
		}
		return o.word(i, i == o.reasoning+2), record.KindTool
	}
	w := o.word(i, first && o.bare)
	switch {
	case i > o.clipAt:
		w = ""
	case i == o.clipAt:
		w = w[:o.clipLen]
	}
	return w, record.KindText
}

// text joins the tokens from first up to before end that are of the kind.
func (o *output) text(first, end int, kind record.Kind) string {
	var b strings.Builder
	for i := first; i < end; i++ {
		if w, k := o.token(i); k == kind {
			b.WriteString(w)
		}
	}
	return b.String()
}

// reasoningIn counts the reasoning tokens among those from first to before
// end.
func (o *output) reasoningIn(first, end int) int {
	return max(0, min(end, o.reasoning)-first)
}

// flip makes the answer another one from a token on that rng draws. It must be
// called before the first token is made.
func (o *output) flip(rng *rand.Rand) {
	o.flipAt = o.reasoning + rng.IntN(max(1, o.length-o.reasoning-1))
}

// flipTie is flip, but at the next place where two words are as good as equally
// likely, if the answer is long enough to have one.
func (o *output) flipTie(rng *rand.Rand) {
	o.flip(rng)
	span := max(1, o.length-o.reasoning-1)
	for i := range span {
		if at := o.reasoning + (o.flipAt-o.reasoning+i)%span; o.tie(at) {
			o.flipAt = at
			return
		}
	}
}

// tieEvery is how many tokens there are to each place with a tie.
const tieEvery = 8

// tie reports whether two words are as good as equally likely at a place.
func (o *output) tie(i int) bool { return (o.key+uint64(i))%tieEvery == 0 }

func (o *output) word(i int, bare bool) string {
	n := mix(o.key + uint64(i))
	if i >= o.flipAt {
		n = flipped(n, i-o.flipAt)
	}
	return spell(n, bare)
}

// flipped is the draw of a word at a distance from the flip: surely another
// word at 0.
func flipped(n uint64, distance int) uint64 {
	return n%uint64(len(words)) + 1 + mix(uint64(distance))%uint64(len(words)/4)
}

func spell(n uint64, bare bool) string {
	w := words[n%uint64(len(words))]
	if bare {
		w = strings.TrimPrefix(w, " ")
	}
	return w
}

// words is the vocabulary. Each is one token of the tokenizer, in any order.
var words = strings.Split(" the| of| and| a| to| in| is| it| that| for| was| on| are| as| with| they| at| be| this|"+
	" from| or| one| had| by| word| but| not| what| all| were| we| when| your| can| said| there| use| each| which|"+
	" she| do| how| their| if| will| up| other| about| out| many| then| them| these| so| some| her| would| make|"+
	" like| him| into| time| has| look| two| more| write| go| see| number| no| way| could| people| my| than| first|"+
	" water| been| call| who| oil| its| now| find| long| down| day| did| get| come| made| may| part| over| new|"+
	" sound| take| only| little| work| know| place| year| live| me| back| give| most| very| after| thing| our|"+
	" just| name| good| man| think| say| great| where| help| much| before| line| right| too| mean| old| any| same|"+
	" tell| boy| follow| came| want| show| also| around| form| three| small| set| put| end| does| well| large|"+
	" must| big| even| such| turn| here| why| ask| went| men| read| need| land| home| us| move| try| kind| hand|"+
	" again| change| off| play| spell| air| away| animal| house| point| page| letter| mother| answer| found| study|"+
	" still| learn| should| world| high| every| near| add| food| own| below| plant| last| school| father| keep|"+
	" tree| never| start| city| earth| eye| light| head| under| story| saw| left| few| while| along| might| close|"+
	" seem| next| hard| open| begin| life| always| those| both| paper| got| group| often| run|,|,|,|.|.|.|.|.", "|")
