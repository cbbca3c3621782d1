package mockserver

import (
	"encoding/json"
	"strconv"

	"github.com/tokmark/tokmark/bench/record"
)

// likeliest is how many tokens are to be told with the log-probabilities of
// each token of the answer; -1: none are.
func (q *request) likeliest(of api) (int, *apiError) {
	var told bool
	n := 0
	switch of {
	case chatAPI:
		if q.LogProbs != nil && json.Unmarshal(q.LogProbs, &told) != nil {
			return 0, badRequest("logprobs", "logprobs must be true or false")
		}
		if q.TopLogProbs != nil {
			n = *q.TopLogProbs
		}
		if n > 0 && !told {
			return 0, badRequest("top_logprobs", "when using top_logprobs, logprobs must be set to true")
		}
	case completionsAPI:
		var asked *int
		if q.LogProbs != nil && json.Unmarshal(q.LogProbs, &asked) != nil {
			return 0, badRequest("logprobs", "logprobs must be a number")
		}
		if told = asked != nil; told {
			n = *asked
		}
	}
	const most = 20
	if n < 0 || n > most {
		return 0, badRequest("logprobs", "0 to %d likeliest tokens can be told, not %d", most, n)
	}
	if !told {
		n = -1
	}
	return n, nil
}

// candidate is a token that could stand at a place.
type candidate struct {
	token   string
	logProb float64
}

// candidates are the token at a place of the answer and, where it is a word,
// the next likely one: at a flip the word that stood there before, elsewhere
// the word that a flip would put there. At a tie they are near each other.
func (o *output) candidates(i int) (list [2]candidate, n int) {
	own, kind := o.token(i)
	drawn := mix(o.key + uint64(i))
	u := float64(mix(drawn)>>11) / (1 << 53)
	near, far := -0.05-0.2*u, -3-2*u
	if o.tie(i) {
		near, far = -0.7, -0.71-0.05*u
	}
	list[0] = candidate{own, near}
	first := i == o.reasoning || i == 0
	if kind == 0 || kind == record.KindTool {
		return list, 1
	}
	other := flipped(drawn, 0)
	if i == o.flipAt {
		other = drawn
	}
	list[1] = candidate{spell(other, first && (o.bare || i < o.reasoning)), far}
	return list, 2
}

// logProbs appends the log-probabilities of the tokens from first to before
// end as the value of a choice's logprobs.
func (st *stream) logProbs(o *output, first, end int) {
	switch {
	case st.likeliest < 0:
		st.str("null")
		return
	case st.chat:
		st.str(`{"content":[`)
		for i := first; i < end; i++ {
			list, n := o.candidates(i)
			st.comma(i > first)
			st.candidate(list[0])
			st.str(`,"top_logprobs":[`)
			for k := range min(n, st.likeliest) {
				st.comma(k > 0)
				st.candidate(list[k])
				st.str(`}`)
			}
			st.str(`]}`)
		}
		st.str(`]}`)
		return
	}
	each := func(name string, one func(list []candidate)) {
		st.str(name)
		for i := first; i < end; i++ {
			list, n := o.candidates(i)
			st.comma(i > first)
			one(list[:n])
		}
		st.str(`]`)
	}
	each(`{"tokens":[`, func(list []candidate) { st.quoted(list[0].token) })
	each(`,"token_logprobs":[`, func(list []candidate) { st.float(list[0].logProb) })
	each(`,"top_logprobs":[`, func(list []candidate) {
		st.str(`{`)
		for k, c := range list[:min(len(list), st.likeliest)] {
			st.comma(k > 0)
			st.quoted(c.token)
			st.str(`:`)
			st.float(c.logProb)
		}
		st.str(`}`)
	})
	st.str(`}`)
}

// candidate appends one as a chat tells it, without the closing brace.
func (st *stream) candidate(c candidate) {
	st.str(`{"token":`)
	st.quoted(c.token)
	st.str(`,"logprob":`)
	st.float(c.logProb)
	st.str(`,"bytes":null`)
}

func (st *stream) comma(wanted bool) {
	if wanted {
		st.str(`,`)
	}
}

func (st *stream) quoted(s string) {
	st.str(`"`)
	st.escaped(s)
	st.str(`"`)
}

func (st *stream) float(f float64) { st.buf = strconv.AppendFloat(st.buf, f, 'f', 4, 64) }
