package html

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/compare"
	"github.com/tokmark/tokmark/report/phrase"
)

// WritePaired writes the page of an interleaved comparison. The conditions on it
// are those of sides: a block of A and one of B, or none. The same values give
// the same bytes.
func WritePaired(w io.Writer, p *compare.Paired, sides ...*report.Summary) error {
	return write(w, pairedPage(p, sides))
}

func pairedPage(p *compare.Paired, sides []*report.Summary) *page {
	out := &page{Title: "B against A", Kicker: "tokmark ab", Verdict: pairedVerdict(p)}
	out.Facts = []fact{
		{"A", clean(p.A)}, {"B", clean(p.B)},
		{"pairs", fmt.Sprintf("%d pairs of blocks, in random order within a pair; before them %d pairs of A with itself, for the noise", p.Pairs, p.NullOf)},
		{"confidence", phrase.Share(p.Level) + " for the intervals of all figures that decide and all looks at the data together"},
		{"margin", "a change below " + phrase.Share(p.Margin) + " is of no account"},
	}
	for _, d := range p.Doubts {
		out.Facts = append(out.Facts, fact{"doubt", clean(d)})
	}
	if n := len(p.LeftOut); n > 0 {
		out.Facts = append(out.Facts, fact{"left out", fmt.Sprintf("%d pairs, a block of which was not valid", n)})
	}
	if len(p.Allowed) > 0 {
		out.Facts = append(out.Facts, fact{"allowed by hand", clean(strings.Join(p.Allowed, ", "))})
	}
	if len(p.Blocked) > 0 {
		out.Facts = append(out.Facts, fact{"not alike", clean(strings.Join(p.Blocked, ", "))})
	}
	if len(sides) > 0 {
		out.Command, out.Footer = phrase.Clean(sides[0].Manifest.Command, 4000), phrase.Tool(sides[0].Manifest.Tool)
	}
	result := section{ID: "figures", Title: "Figures", Tables: []table{pairedFigures(p)}}
	byPair := section{
		ID: "pairs", Title: "The change by pair",
		Lead: "A mark is a pair: B against A, and before that A against A, which shows the noise. Dashed: the interval of the change over all pairs, or, while they are too few for one, the change. Shaded: changes of no account.",
	}
	f := figures{}
	for i := range p.Figures {
		if c := changeChart(&p.Figures[i]); c.points() > 0 {
			f.Charts = append(f.Charts, c)
		}
	}
	out.Sections = append(out.Sections, result)
	if len(f.Charts) > 0 {
		byPair.Figures = []figures{f}
		out.Sections = append(out.Sections, byPair, section{ID: "values", Title: "Pair by pair", Tables: []table{pairedChanges(p)}})
	}
	if len(sides) > 0 {
		runs := make([]Run, len(sides))
		for i, s := range sides {
			runs[i] = Run{Name: string(rune('A' + i)), Summary: s}
		}
		out.Sections = append(out.Sections, section{ID: "blocks", Title: "What was asked", Tables: []table{facts(runs)}})
	}
	return out
}

// pairedVerdict marks the headline as the exit code does.
func pairedVerdict(p *compare.Paired) *verdict {
	out := &verdict{Title: "Result", Level: report.Valid, Text: clean(p.Headline)}
	if !p.Decided || len(p.Doubts) > 0 {
		out.Level = report.Suspect
	}
	for _, f := range p.Figures {
		if f.Decides && f.Verdict == compare.Worse {
			out.Level = report.Invalid
		}
	}
	return out
}

// percent is a change of a figure as the page shows it: points are.
func percent(f *compare.PairedFigure, change float64) float64 {
	if f.Points {
		return change
	}
	return 100 * change
}

// changeUnit is that of percent.
func changeUnit(f *compare.PairedFigure) string {
	if f.Points {
		return "pp"
	}
	return "%"
}

// noAccount is the band of changes of no account, in percent: as far below as
// the margin is above.
func noAccount(f *compare.PairedFigure) (low, high float64) {
	if f.Points {
		return -f.Margin, f.Margin
	}
	return percent(f, 1/(1+f.Margin)-1), percent(f, f.Margin)
}

func figureName(f *compare.PairedFigure) string {
	if f.Stat == "" {
		return f.Label
	}
	return f.Label + " " + f.Stat
}

// pairedFigures has a row for each figure.
func pairedFigures(p *compare.Paired) table {
	t := table{
		Caption: "Figures of a block, over all blocks", Head: []string{"figure", "A", "B", "change", "from", "to", "A against A", "verdict"}, Texts: 1,
		Note: "from, to: the interval of the change. A against A: how far one pair of A with itself lies apart, as a standard deviation.",
	}
	for i := range p.Figures {
		f := &p.Figures[i]
		low, high, noise := phrase.Unknown, phrase.Unknown, phrase.Unknown
		if f.Interval != nil {
			low, high = signed(f, f.Interval.Low), signed(f, f.Interval.High)
		}
		if f.Noise != nil {
			noise = fmt.Sprintf("±%.1f %s", percent(f, *f.Noise), changeUnit(f))
		}
		verdict := string(f.Verdict)
		if !f.Decides {
			verdict += " (does not decide)"
		}
		name := figureName(f)
		if unit := phrase.Unit(f.Unit); unit != "" {
			name += " (" + unit + ")"
		}
		t.Rows = append(t.Rows, []cell{head(name), number(f.A), number(f.B), {Text: signed(f, f.Change)}, {Text: low}, {Text: high}, {Text: noise}, words(verdict)})
	}
	return t
}

// pairedChanges has a row for each pair.
func pairedChanges(p *compare.Paired) table {
	t := table{Caption: "Change by pair", Head: []string{"pair"}}
	null, pairs := 0, 0
	for i := range p.Figures {
		t.Head = append(t.Head, figureName(&p.Figures[i]))
		null, pairs = max(null, len(p.Figures[i].NullChanges)), max(pairs, len(p.Figures[i].Changes))
	}
	rows := func(n int, name string, of func(*compare.PairedFigure) []float64) {
		for k := range n {
			row := []cell{head(name + strconv.Itoa(k+1))}
			for i := range p.Figures {
				text := phrase.Unknown
				if all := of(&p.Figures[i]); k < len(all) {
					text = signed(&p.Figures[i], all[k])
				}
				row = append(row, cell{Text: text})
			}
			t.Rows = append(t.Rows, row)
		}
	}
	rows(null, "A, A ", func(f *compare.PairedFigure) []float64 { return f.NullChanges })
	rows(pairs, "A, B ", func(f *compare.PairedFigure) []float64 { return f.Changes })
	return t
}

// signed writes a change with one decimal: the noise of a block is larger.
func signed(f *compare.PairedFigure, change float64) string {
	return fmt.Sprintf("%+.1f %s", percent(f, change), changeUnit(f))
}

// changeChart shows one figure: the changes of the pairs, those of A with
// itself, the interval, and the band of no account.
func changeChart(f *compare.PairedFigure) chart {
	low, high := noAccount(f)
	c := chart{
		ID: "change-" + f.Metric, Title: figureName(f), Note: string(f.Verdict) + ", " + signed(f, f.Change),
		Alt: "Change of " + f.Label + " from A to B in each pair of blocks. The table of changes by pair has the values.",
		X:   axis{Kind: linear, Label: "pair", Min: 0.5, Max: num(max(len(f.Changes), len(f.NullChanges))) + 0.5}, Y: axis{Kind: linear, Label: "change, " + changeUnit(f), Unit: changeUnit(f)},
		Levels: []num{num(percent(f, f.Change))}, Shade: []num{num(low), num(high)},
	}
	all := []float64{low, high}
	if f.Interval != nil {
		c.Levels = []num{num(percent(f, f.Interval.Low)), num(percent(f, f.Interval.High))}
		all = append(all, percent(f, f.Interval.Low), percent(f, f.Interval.High))
		c.Note += " [" + signed(f, f.Interval.Low) + ", " + signed(f, f.Interval.High) + "]"
	}
	for _, one := range []struct {
		name    string
		color   int
		changes []float64
	}{{"A against A", grey, f.NullChanges}, {"B against A", blue, f.Changes}} {
		s := series{Name: one.name, Style: marks, Color: one.color}
		for i, change := range one.changes {
			s.X, s.Y = append(s.X, num(i+1)), append(s.Y, num(percent(f, change)))
			all = append(all, percent(f, change))
		}
		if len(s.X) > 0 {
			c.Series = append(c.Series, s)
		}
	}
	room := max(0.08*(slices.Max(all)-slices.Min(all)), 0.01) // all may be 0
	c.Y.Min, c.Y.Max = num(slices.Min(all)-room), num(slices.Max(all)+room)
	return c
}
