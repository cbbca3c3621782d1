package main

import (
	"fmt"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/html"
	"github.com/tokmark/tokmark/report/slo"
)

// seriesPage is the page of the runs of a series.
type seriesPage struct {
	dirs []string
	runs []html.Run
}

// add puts a run on the page, if it could be summarized.
func (p *seriesPage) add(o *options, s *report.Summary) {
	if s == nil {
		return
	}
	objectives, _ := parseSLO(o.slo) // was read before
	p.dirs = append(p.dirs, o.artifactDir)
	p.runs = append(p.runs, html.Run{Summary: s, Objectives: slo.Evaluate(s, objectives)})
}

// write writes the page into the directory that holds the runs, if there is
// any.
func (p *seriesPage) write(w *world, parent record.Dir) error {
	if len(p.runs) == 0 {
		return nil
	}
	if err := pageOf(w, p.dirs, p.runs, parent.Path(record.ReportHTMLFile)); err != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("write report of the series: %w", err)}
	}
	return nil
}
