package openai

import (
	"math"

	"github.com/valyala/fastjson"

	"github.com/tokmark/tokmark/bench/record"
)

// appendLogProbs appends the entries of a choice's logprobs, as chats or as
// completions give them. A token without a number is left out: the others then
// do not add up to the text.
func appendLogProbs(to []record.TokenLogProbs, v *fastjson.Value) []record.TokenLogProbs {
	for _, e := range v.GetArray("content") {
		own, ok := logProb(e.GetStringBytes("token"), e.Get("logprob"))
		if !ok {
			continue
		}
		token := record.TokenLogProbs{LogProb: own}
		for _, alternative := range e.GetArray("top_logprobs") {
			add(&token, alternative.GetStringBytes("token"), alternative.Get("logprob"))
		}
		to = append(to, token)
	}
	numbers, top := v.GetArray("token_logprobs"), v.GetArray("top_logprobs")
	for i, t := range v.GetArray("tokens") {
		if i >= len(numbers) {
			break
		}
		own, ok := logProb(t.GetStringBytes(), numbers[i])
		if !ok {
			continue
		}
		token := record.TokenLogProbs{LogProb: own}
		if i < len(top) {
			top[i].GetObject().Visit(func(name []byte, v *fastjson.Value) { add(&token, name, v) })
		}
		to = append(to, token)
	}
	return to
}

// add appends an alternative that has a number.
func add(t *record.TokenLogProbs, token []byte, v *fastjson.Value) {
	if p, ok := logProb(token, v); ok {
		t.Alternatives = append(t.Alternatives, p)
	}
}

// logProb reads a token's log-probability; not ok: it is no finite number,
// which the parser lets pass.
func logProb(token []byte, v *fastjson.Value) (p record.LogProb, ok bool) {
	if v == nil || v.Type() != fastjson.TypeNumber {
		return p, false
	}
	f, err := v.Float64()
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return p, false
	}
	return record.LogProb{Token: string(token), Value: f}, true
}
