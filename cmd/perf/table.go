//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// row is one line of the result. A text that is empty is shown as a blank.
type row struct{ figure, measured, reference, ratio, target, verdict string }

// table collects rows. noisy marks those that are added: they come from rounds
// that others disturbed.
type table struct {
	rows  []row
	noisy bool
}

// add adds a figure. reference and ratio may be empty.
func (t *table) add(figure, measured, reference, ratio, target string, met bool) {
	verdict := "missed"
	if met {
		verdict = "met"
	}
	if t.noisy {
		verdict += " (noisy)"
	}
	t.rows = append(t.rows, row{figure, measured, reference, ratio, target, verdict})
}

func (t *table) skip(figure string, err error) {
	reason, _, _ := strings.Cut(err.Error(), "\n")
	t.rows = append(t.rows, row{figure: figure, verdict: "skipped: " + reason})
}

func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "figure\tmeasured\treference\tratio\ttarget\tverdict") // Flush has the error
	for _, r := range t.rows {
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", r.figure, r.measured, r.reference, r.ratio, r.target, r.verdict)
	}
	return tw.Flush()
}

// µs writes nanoseconds as microseconds.
func µs(ns ...float64) string {
	parts := make([]string, len(ns))
	for i, v := range ns {
		parts[i] = fmt.Sprintf("%.1f", v/1e3)
	}
	return strings.Join(parts, " / ") + " µs"
}

func times(r float64) string { return fmt.Sprintf("%.2f", r) }
