package target

import (
	"fmt"

	"github.com/tokmark/tokmark/bench/record"
)

// Measured is a prompt of a known number of words (or of another tokenizer's
// tokens) and the input tokens that the server counted for it.
type Measured struct {
	Words  int
	Tokens record.Count
}

// Calibrate finds tokens = perWord × words + template, the best line through
// the points. It is an error if there are fewer than two lengths, or if the
// counts do not grow with the words.
func Calibrate(points []Measured) (record.Calibration, error) {
	var n, sw, st, sww, swt float64
	for _, p := range points {
		if !p.Tokens.IsKnown() {
			continue
		}
		w, t := float64(p.Words), float64(p.Tokens)
		n, sw, st, sww, swt = n+1, sw+w, st+t, sww+w*w, swt+w*t
	}
	d := n*sww - sw*sw
	if n < 2 || d == 0 {
		return record.Calibration{}, fmt.Errorf("calibrate prompt lengths: the server counted the tokens of %.0f prompts, two of different lengths are needed", n)
	}
	slope := (n*swt - sw*st) / d
	c := record.Calibration{TokensPerWord: slope, Template: (st - slope*sw) / n, Requests: len(points)}
	if !(slope > 0) {
		return c, fmt.Errorf("calibrate prompt lengths: by the server's counts a word has %.3g tokens", slope)
	}
	return c, nil
}
