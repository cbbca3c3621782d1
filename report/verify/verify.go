// Package verify says whether two sides give the same answers to the same
// prompts, beside how fast they give them.
//
// Equal servers need not give equal answers: the arithmetic of a batch differs
// from that of a single sequence, and a tie between two tokens falls either
// way. So what two sides differ by is judged by what one side differs from
// itself.
package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tokmark/tokmark/bench/record"
)

// Answer is what a prompt got.
type Answer struct {
	OK     bool
	Text   string // reasoning, answer and tool arguments, joined
	Finish string
	Tokens record.Count
	// Structure: the answer is of the structure that was asked for, and where
	// none was, JSON.
	Structure bool
	// LogProbs are the tokens of Text, where the server gives them.
	LogProbs []record.TokenLogProbs
}

// AnswerOf takes the answer from a record whose output was kept.
func AnswerOf(r *record.Record) Answer {
	a := Answer{OK: r.Outcome == record.OK, Tokens: record.Unknown}
	if n, ok := r.OSL(); ok {
		a.Tokens = record.Count(n)
	}
	var text, said strings.Builder
	for _, o := range r.Output {
		text.WriteString(o.Reasoning + o.Text + o.Tools)
		said.WriteString(o.Text)
		a.LogProbs = append(a.LogProbs, o.LogProbs...)
	}
	a.Text = text.String()
	if a.Structure = json.Valid([]byte(said.String())); r.StructureOK != nil {
		a.Structure = *r.StructureOK
	}
	a.Finish = strings.Join(r.FinishReasons, ",")
	return a
}

// Divergence is a prompt whose answers differ.
type Divergence struct {
	Prompt int `json:"prompt"`
	// Characters and Words are how much of the answers is the same, from the
	// start.
	Characters int `json:"characters"`
	Words      int `json:"words"`
	// Tokens is the same in tokens; absent if nobody counts them.
	Tokens *int `json:"tokens,omitempty"`
	// A and B are how the answers go on from there.
	A string `json:"a"`
	B string `json:"b"`
	// LogProbGap is by how much, in nats, A's own token there is likelier to A
	// than B's: near 0 it is a tie. Absent if A's log-probs do not tell; where
	// they list tokens, and B's is not among them, LogProbGapOver is what the
	// gap is at least.
	LogProbGap     *float64 `json:"log_prob_gap,omitempty"`
	LogProbGapOver *float64 `json:"log_prob_gap_over,omitempty"`

	rest int // bytes of A's answer from there
}

// Difference is what two lists of answers to the same prompts differ by.
type Difference struct {
	Prompts   int `json:"prompts"` // answered on both sides
	Identical int `json:"identical"`
	// FailedA and FailedB were not answered, OneSided by one side alone.
	FailedA  int `json:"failed_a"`
	FailedB  int `json:"failed_b"`
	OneSided int `json:"failed_on_one_side"`
	// Finish counts the prompts with other finish reasons, Length those with
	// other numbers of tokens; LengthChange is the mean of B - A over all.
	Finish       int          `json:"other_finish_reason"`
	Length       int          `json:"other_length"`
	LengthChange *float64     `json:"length_change_tokens,omitempty"`
	Diverged     []Divergence `json:"diverged"`
	// StructureA and StructureB count the answers of the structure asked for, or
	// else of JSON, on either side.
	StructureA int `json:"structure_valid_a"`
	StructureB int `json:"structure_valid_b"`
}

// asked is the number of prompts that any side answered.
func (d Difference) asked() int { return d.Prompts + d.OneSided }

// Share is the share of answered prompts whose answers are not the same; NaN
// if there are none.
func (d Difference) Share() float64 { return float64(d.Prompts-d.Identical) / float64(d.Prompts) }

// shownBytes is how much of an answer is kept from where it differs.
const shownBytes = 60

// Compare compares answers to the same prompts, by place in the lists. count
// counts the tokens of a text; nil: nobody does.
func Compare(a, b []Answer, count func(string) int) Difference {
	var d Difference
	change, counted := 0.0, 0
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if !x.OK || !y.OK {
			if !x.OK {
				d.FailedA++
			}
			if !y.OK {
				d.FailedB++
			}
			if x.OK != y.OK {
				d.OneSided++
			}
			continue
		}
		d.Prompts++
		if x.Finish != y.Finish {
			d.Finish++
		}
		if x.Tokens.IsKnown() && y.Tokens.IsKnown() {
			change += float64(y.Tokens - x.Tokens)
			counted++
			if x.Tokens != y.Tokens {
				d.Length++
			}
		}
		if x.Structure {
			d.StructureA++
		}
		if y.Structure {
			d.StructureB++
		}
		if x.Text == y.Text {
			d.Identical++
			continue
		}
		one := diverge(i, x.Text, y.Text)
		if count != nil {
			n := count(x.Text[:len(x.Text)-one.rest])
			one.Tokens = &n
		}
		one.LogProbGap, one.LogProbGapOver = gap(x, y)
		d.Diverged = append(d.Diverged, one)
	}
	if counted > 0 {
		mean := change / float64(counted)
		d.LengthChange = &mean
	}
	return d
}

// diverge finds the first place where two texts differ.
func diverge(prompt int, a, b string) Divergence {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) || n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	rest := func(s string) string {
		s = s[n:]
		if len(s) > shownBytes {
			s = s[:shownBytes]
		}
		return strings.ToValidUTF8(s, "")
	}
	return Divergence{
		Prompt: prompt, Characters: utf8.RuneCountInString(a[:n]), Words: len(strings.Fields(a[:n])), A: rest(a), B: rest(b), rest: len(a) - n,
	}
}

// Verdict is what is said of the two sides.
type Verdict string

// The verdicts.
const (
	Same    Verdict = "same"        // B differs from A no more than A from itself
	Differs Verdict = "differs"     // B differs more
	Unsure  Verdict = "cannot tell" // too few prompts to say
)

// Result is the whole of a verification.
type Result struct {
	A       string     `json:"a"`
	B       string     `json:"b"`
	Null    Difference `json:"a_with_itself"`
	Other   Difference `json:"a_with_b"`
	P       float64    `json:"p"` // of so much more, were there no difference
	Verdict Verdict    `json:"verdict"`
	// By names what differs most: answers, failures, finish reasons.
	By string `json:"by"`
}

const (
	// leastPrompts is how many answered prompts a verdict needs.
	leastPrompts = 8
	// significant is the p below which a difference is said, suspicious the one
	// below which sameness is not.
	significant = 0.01
	suspicious  = 0.1
)

// Judge compares what A and B differ by with what A differs from itself, by
// Fisher's exact tests on the shares of prompts whose answers are not the same,
// that one side alone answered, and whose finish reasons differ. P is the least
// of the three, three times over (Bonferroni).
func Judge(null, other Difference) Result {
	r := Result{Null: null, Other: other, P: 1, Verdict: Unsure}
	if null.asked() < leastPrompts || other.asked() < leastPrompts {
		return r
	}
	tests := []struct {
		by             string
		k1, n1, k2, n2 int
	}{
		{"answers", null.Prompts - null.Identical, null.Prompts, other.Prompts - other.Identical, other.Prompts},
		{"failures", null.OneSided, null.asked(), other.OneSided, other.asked()},
		{"finish reasons", null.Finish, null.Prompts, other.Finish, other.Prompts},
	}
	for _, t := range tests {
		if p := float64(len(tests)) * fisher(t.k1, t.n1, t.k2, t.n2); p < r.P {
			r.P, r.By = p, t.by
		}
	}
	switch {
	case r.P >= significant && other.Prompts < leastPrompts:
		r.P, r.By = 1, "" // of what was answered there is too little
	case r.P < significant:
		r.Verdict = Differs
	case r.P < suspicious:
		r.Verdict = Unsure
	case other.OneSided > null.OneSided: // too few to say that it fails more often, and no sameness
		r.By = "failures"
		r.Verdict = Unsure
	default:
		r.Verdict = Same
	}
	return r
}

// fisher is the probability of at least k2 of n2, given k1 of n1 and no
// difference.
func fisher(k1, n1, k2, n2 int) float64 {
	choose := func(n, k int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return a - b - c
	}
	k, n := k1+k2, n1+n2
	p := 0.0
	for i := k2; i <= min(n2, k); i++ {
		if k-i <= n1 {
			p += math.Exp(choose(n2, i) + choose(n1, k-i) - choose(n, k))
		}
	}
	return min(p, 1)
}

// WriteText writes the result for a terminal.
func (r Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A  %s\nB  %s\n\n%-34s %16s %16s\n", r.A, r.B, "", "A with itself", "A with B")
	line := func(name string, of func(Difference) string) {
		fmt.Fprintf(&b, "%-34s %16s %16s\n", name, of(r.Null), of(r.Other))
	}
	count := func(of func(Difference) int) func(Difference) string {
		return func(d Difference) string { return fmt.Sprint(of(d)) }
	}
	line("prompts answered on both sides", count(func(d Difference) int { return d.Prompts }))
	line("failed", func(d Difference) string { return fmt.Sprintf("%d, %d", d.FailedA, d.FailedB) })
	line("identical answers", func(d Difference) string {
		if d.Prompts == 0 {
			return "-"
		}
		return fmt.Sprintf("%d (%.3g %%)", d.Identical, 100*float64(d.Identical)/float64(d.Prompts))
	})
	line("first difference, median words in", func(d Difference) string {
		return median(d.Diverged, "%d", func(x Divergence) *int { return &x.Words })
	})
	if counted := func(x Divergence) *int { return x.Tokens }; median(r.Other.Diverged, "%d", counted) != "-" {
		line("first difference, median tokens in", func(d Difference) string { return median(d.Diverged, "%d", counted) })
	}
	line("other finish reason", count(func(d Difference) int { return d.Finish }))
	line("other length in tokens", count(func(d Difference) int { return d.Length }))
	line("mean change of length in tokens", func(d Difference) string {
		if d.LengthChange == nil {
			return "not known"
		}
		return fmt.Sprintf("%+.3g", *d.LengthChange)
	})
	if r.Null.StructureA+r.Other.StructureA+r.Other.StructureB > 0 {
		line("of the structure asked for, or JSON", func(d Difference) string { return fmt.Sprintf("%d, %d", d.StructureA, d.StructureB) })
	}
	if r.Null.gaps().told+r.Other.gaps().told > 0 {
		line("near ties, of those with log-probs", func(d Difference) string {
			if d.gaps().told == 0 {
				return "-"
			}
			return fmt.Sprintf("%d of %d", d.gaps().ties, d.gaps().told)
		})
		line("median log-prob gap in nats", func(d Difference) string {
			return median(d.Diverged, "%.2g", func(x Divergence) *float64 { return x.LogProbGap })
		})
	}
	const shown = 5
	for i, d := range r.Other.Diverged {
		if i == shown {
			fmt.Fprintf(&b, "  … %d more\n", len(r.Other.Diverged)-shown)
			break
		}
		if i == 0 {
			fmt.Fprintln(&b, "\nWhere A and B part:")
		}
		fmt.Fprintf(&b, "  prompt %d after %d words\n    A …%q\n    B …%q\n", d.Prompt, d.Words, d.A, d.B)
	}
	switch {
	case r.Verdict == Same:
		fmt.Fprintf(&b, "\nsame: B differs from A no more than A from itself (p = %.2g)\n", r.P)
	case r.Verdict == Differs:
		fmt.Fprintf(&b, "\ndiffers: B differs from A more often than A from itself, in %s (p = %.2g)\n", r.By, r.P)
	case r.By != "":
		fmt.Fprintf(&b, "\ncannot tell: B differs from A more often than A from itself, in %s, which may be chance (p = %.2g): ask more prompts\n", r.By, r.P)
	default:
		fmt.Fprintf(&b, "\ncannot tell: fewer than %d prompts were answered on both sides\n", leastPrompts)
	}
	if r.Verdict != Same {
		b.WriteString(r.Other.gaps().words())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// median is that of a number that divergences may have; "-": none has it.
func median[N int | float64](d []Divergence, format string, of func(Divergence) *N) string {
	var all []N
	for _, x := range d {
		if n := of(x); n != nil {
			all = append(all, *n)
		}
	}
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return fmt.Sprintf(format, all[len(all)/2])
}

// WriteJSON writes the result for programs.
func (r Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
