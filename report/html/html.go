// Package html renders runs as one page that needs nothing else: no network,
// no server, and for its tables no JavaScript. What a server or a user said
// stands in it as text and cannot become anything else: html/template escapes
// it, and the page's own policy lets no other script run.
package html

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/phrase"
	"github.com/tokmark/tokmark/report/slo"
)

//go:embed assets
var assets embed.FS

// Run is one of several runs on a page. Name tells it from the others; it may
// be empty. The runs of one Group are a sweep, repeats, or both: they make one
// line on the charts by load.
type Run struct {
	Name    string
	Group   string
	Summary *report.Summary
	View    *View
	// Objectives are what the run was held against, if anything.
	Objectives []slo.Result
}

// name is what a series of the run is called on a page of n runs.
func (r Run) name(series string, n int) string {
	if n > 1 {
		return r.Name
	}
	return series
}

// Write writes the page of a run or, of several, one that compares them: their
// headline figures, their distributions over each other and, if their loads
// differ, figures by load. The same runs give the same bytes. It must not run at
// the same time as another use of the summaries' histograms.
func Write(w io.Writer, runs ...Run) error {
	switch len(runs) {
	case 0:
		return fmt.Errorf("write HTML report: there is no run")
	case 1:
		return write(w, onePage(runs[0]))
	}
	return write(w, severalPage(runs))
}

// page is what the template shows.
type page struct {
	Title  string
	Kicker string // above the title
	// Verdict, Reasons and Warnings are of the page of one run.
	Verdict   *verdict
	Headlines []headline
	Facts     []fact
	Command   string
	Sections  []section
	Footer    string

	Policy          string
	Style           template.CSS
	Library, Script template.JS
	Data            template.JS
}

// section is a part of the page with a heading. What it has is shown in the
// order of the fields.
type section struct {
	ID, Title, Lead string
	Facts           []fact
	Tables          []table
	Figures         []figures
	Notes           []string
}

// figures are charts that belong together.
type figures struct {
	Title  string
	Charts []chart
}

// fact is a line of a list: what it is of, and what is said.
type fact struct{ Key, Text string }

// table is a table whose first column names the rows.
type table struct {
	Caption string
	Head    []string
	// Texts is how many columns after the first hold text, not figures: they
	// stand at the end.
	Texts int
	Rows  [][]cell
	Note  string
}

// Left reports whether the column holds text.
func (t table) Left(column int) bool { return column == 0 || column >= len(t.Head)-t.Texts }

// cell is a text, or a drawing.
type cell struct {
	Text string
	Head bool // names the row
	Left bool // holds text
	Bar  *barCell
	Line *lineCell
}

// barCell is a bar from From on, in thousandths of the cell's width.
type barCell struct{ From, Width float64 }

// lineCell is the course of a request on a width of 1000: a wait until First,
// and a path with a tick for each event.
type lineCell struct {
	First, Last float64
	Ticks       string
	Alt         string
}

func write(w io.Writer, p *page) error {
	read := func(name string) string {
		b, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		return string(b)
	}
	library, script := read("uPlot.iife.min.js"), read("page.js")
	var charts []chart
	for _, s := range p.Sections {
		for _, f := range s.Figures {
			charts = append(charts, f.Charts...)
		}
	}
	// json.Marshal leaves no <, > and & in what it writes.
	data, err := json.Marshal(charts)
	if err != nil {
		return fmt.Errorf("make charts of HTML report: %w", err)
	}
	p.Style = template.CSS(read("uPlot.min.css") + read("page.css"))
	p.Library, p.Script, p.Data = template.JS(library), template.JS(script), template.JS(data)
	p.Policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src " + hashOf(library) + " " + hashOf(script)
	t, err := template.New("page.html").Parse(read("page.html"))
	if err != nil {
		return fmt.Errorf("parse template of HTML report: %w", err)
	}
	var buf bytes.Buffer
	if err := t.Execute(&buf, p); err != nil {
		return fmt.Errorf("make HTML report: %w", err)
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	return nil
}

// hashOf names a script in a policy.
func hashOf(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// clean is text of others: html/template escapes it, this takes what turns the
// direction of writing, and what is too long.
func clean(s string) string {
	const limit = 600
	return phrase.Clean(s, limit)
}
