package like

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Write writes the figures of a tool beside ours, each difference with its
// reason. The same view gives the same bytes.
func Write(w io.Writer, run *Run, v *View) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The same records under the definitions of %s, beside ours\n\n", v.Tool.title())
	var rows strings.Builder
	fmt.Fprintf(&rows, "%s\tunit\tavg\tp50\tp99\tours: avg\tp50\tp99\tdifference\t\n", v.Tool)
	for _, f := range v.Figures {
		ours, ok := ourFigure(f.Tag)(run)
		o := Figure{Unit: f.Unit, Statistic: ours.stat, Value: ours.value}
		cells := []string{f.Name, f.Unit}
		cells = append(cells, three(f, true)...)
		cells = append(cells, three(o, ok)...)
		cells = append(cells, change(f, o, ok))
		rows.WriteString(strings.Join(cells, "\t") + "\t\n")
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, err := io.WriteString(t, rows.String())
	if err = errors.Join(err, t.Flush()); err != nil {
		return err
	}
	var why strings.Builder
	for _, f := range v.Figures {
		ours, ok := ourFigure(f.Tag)(run)
		if reasons := f.reasons(ours.values(), ok); reasons != "" {
			fmt.Fprintf(&why, "  %s: %s\n", f.Name, reasons)
		}
	}
	if why.Len() > 0 {
		b.WriteString("\nWhat makes the difference\n" + why.String())
	}
	if len(v.Notes) > 0 {
		b.WriteString("\nNotes\n")
		for _, n := range v.Notes {
			b.WriteString("  - " + n + "\n")
		}
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// three are the average and two percentiles of a figure.
func three(f Figure, known bool) []string {
	switch {
	case !known:
		return []string{"-", "-", "-"}
	case f.Statistic == nil:
		return []string{f.value(), "", ""}
	}
	p50, _ := f.Statistic.Percentile(50)
	p99, _ := f.Statistic.Percentile(99)
	return []string{number(f.Statistic.Avg), number(p50), number(p99)}
}

func (f Figure) value() string {
	if f.Unit == "requests" && f.Value == math.Trunc(f.Value) || f.Unit == "count" {
		return strconv.FormatFloat(f.Value, 'f', 0, 64)
	}
	return number(f.Value)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// change is the difference of the averages and, if it is another one, of the
// p99.
func change(theirs, ours Figure, known bool) string {
	if !known {
		return ""
	}
	a, b := ours.Values(), theirs.Values()
	if b.change(a, 1) == "" {
		return "same"
	}
	relative := func(name string) string {
		switch {
		case same(a[name], b[name]):
			return "same"
		case a[name] != 0:
			return fmt.Sprintf("%+.1f %%", 100*(b[name]-a[name])/a[name])
		default:
			return fmt.Sprintf("%+.2f", b[name]-a[name])
		}
	}
	out := relative("avg")
	if _, ok := b["p99"]; ok && relative("p99") != out {
		out += ", p99 " + relative("p99")
	}
	return out
}

func same(a, b float64) bool {
	const much = 1e-6
	return a-b <= much*max(a, -a) && b-a <= much*max(b, -b)
}

// reasons names the steps that change a value, each with by how much.
func (f Figure) reasons(from Values, known bool) string {
	var parts []string
	for _, s := range f.Steps {
		switch {
		case s.Values == nil:
			parts = append(parts, s.Change+" (then there is none)")
			known = false
		case !known:
			parts = append(parts, s.Change)
			from, known = *s.Values, true
		default:
			if change := s.Values.change(from, 1); change != "" {
				parts = append(parts, s.Change+" ("+change+")")
			}
			from = *s.Values
		}
	}
	return strings.Join(parts, "; ")
}
