package verify

import (
	"fmt"
	"math"
	"strings"
)

const (
	// tieGap in nats is the largest gap of a near tie: the two tokens are
	// within 10 % of equally likely, which other arithmetic can turn round.
	tieGap = 0.1
	// faultGap is beyond what it can: one is e times as likely as the other.
	faultGap = 1
)

// gap is by how much the token that A chose where the answers part is likelier
// to A than the one that B chose; over is what it is at least, where A lists
// tokens and B's is not among them. Both are nil if the log-probs are not of
// the answers' texts.
func gap(a, b Answer) (exact, over *float64) {
	i, at := 0, 0
	for i < len(a.LogProbs) && i < len(b.LogProbs) && a.LogProbs[i].Token == b.LogProbs[i].Token {
		if !strings.HasPrefix(a.Text[at:], a.LogProbs[i].Token) {
			return nil, nil
		}
		at += len(a.LogProbs[i].Token)
		i++
	}
	if i == len(a.LogProbs) || i == len(b.LogProbs) || !stands(a, i, at) || !stands(b, i, at) {
		return nil, nil
	}
	own := a.LogProbs[i]
	least := math.Inf(1)
	for _, c := range own.Alternatives {
		if c.Token == b.LogProbs[i].Token {
			d := own.Value - c.Value
			return &d, nil
		}
		least = min(least, c.Value)
	}
	if len(own.Alternatives) == 0 {
		return nil, nil
	}
	d := own.Value - least
	return nil, &d
}

// stands reports whether token i of the log-probs stands in the answer's text
// from at on. What comes after the text is the end token, which does not show.
func stands(a Answer, i, at int) bool {
	return at == len(a.Text) || at < len(a.Text) && strings.HasPrefix(a.Text[at:], a.LogProbs[i].Token)
}

// gaps counts the divergences whose log-probs tell of the gap.
type gaps struct{ told, ties, faults int }

func (d Difference) gaps() gaps {
	var g gaps
	for _, x := range d.Diverged {
		switch {
		case x.LogProbGap != nil && math.Abs(*x.LogProbGap) <= tieGap:
			g.ties++
		case x.LogProbGap != nil && math.Abs(*x.LogProbGap) > faultGap, x.LogProbGapOver != nil && *x.LogProbGapOver > faultGap:
			g.faults++
		case x.LogProbGap == nil && x.LogProbGapOver == nil:
			continue
		}
		g.told++
	}
	return g
}

// words says in a line what the gaps tell; "": nothing.
func (g gaps) words() string {
	if g.told == 0 {
		return ""
	}
	s := fmt.Sprintf("of %d divergences with log-probs: %d near ties (gap ≤ %.3g nats), %d beyond", g.told, g.ties, tieGap, g.told-g.ties)
	switch {
	case g.faults > 0:
		s += fmt.Sprintf(", %d of them so far (> %.3g) that it is a fault rather than a tie", g.faults, float64(faultGap))
	case g.ties == g.told:
		s += ": no sign of a fault, but of other arithmetic"
	}
	return s + "\n"
}
