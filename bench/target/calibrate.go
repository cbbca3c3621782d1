package target

import (
	"fmt"
	"math"

	"github.com/tokmark/tokmark/bench/record"
)

// Measured is a prompt of a known number of words (or of another tokenizer's
// tokens) and the input tokens that the server counted for it.
type Measured struct {
	Words  int
	Tokens record.Count
}

// Calibrate finds tokens = perWord × words + template, the best line through
// the points. The tokens of words scatter, so a prompt weighs less the longer it
// is. It is an error if there are fewer than two lengths, or if the counts do
// not grow with the words.
func Calibrate(points []Measured) (record.Calibration, error) {
	var n, weights, words, tokens float64
	shortest := math.Inf(1)
	each := func(do func(weight, words, tokens float64)) {
		for _, p := range points {
			if p.Tokens.IsKnown() && p.Words > 0 {
				do(1/float64(p.Words), float64(p.Words), float64(p.Tokens))
			}
		}
	}
	each(func(k, w, t float64) {
		n, weights, words, tokens = n+1, weights+k, words+k*w, tokens+k*t
		shortest = min(shortest, w)
	})
	words, tokens = words/weights, tokens/weights // the means
	var ww, wt, scatter float64
	each(func(k, w, t float64) {
		ww, wt = ww+k*(w-words)*(w-words), wt+k*(w-words)*(t-tokens)
	})
	if n < 2 || ww < 1e-9 {
		return record.Calibration{}, fmt.Errorf("calibrate prompt lengths: the server counted the tokens of %.0f prompts, two of different lengths are needed", n)
	}
	c := record.Calibration{TokensPerWord: wt / ww, Requests: len(points)}
	c.Template = max(0, tokens-c.TokensPerWord*words)
	if !(c.TokensPerWord > 0) {
		return c, fmt.Errorf("calibrate prompt lengths: by the server's counts a word has %.3g tokens", c.TokensPerWord)
	}
	if n > 2 {
		each(func(k, w, t float64) {
			off := t - c.Template - c.TokensPerWord*w
			scatter += k * off * off
		})
		c.Error = math.Sqrt(scatter / (n - 2) * (1/weights + (shortest-words)*(shortest-words)/ww))
	}
	return c, nil
}
