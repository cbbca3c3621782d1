// Package csv writes a summary in the CSV layout of AIPerf, so that scripts
// that read AIPerf's file can read it.
package csv

import (
	"bytes"
	stdcsv "encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gocarina/gocsv"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// distribution is a row of the first section: metrics with percentiles.
type distribution struct {
	Metric string `csv:"Metric"`
	Avg    string `csv:"avg"`
	Min    string `csv:"min"`
	Max    string `csv:"max"`
	P1     string `csv:"p1"`
	P5     string `csv:"p5"`
	P10    string `csv:"p10"`
	P25    string `csv:"p25"`
	P50    string `csv:"p50"`
	P75    string `csv:"p75"`
	P90    string `csv:"p90"`
	P95    string `csv:"p95"`
	P99    string `csv:"p99"`
	Std    string `csv:"std"`
}

// columns is the number of columns of every row but the empty ones.
const columns = 14

// value is a row of the second section: metrics of the whole run.
type value struct {
	Metric string `csv:"Metric"`
	Value  string `csv:"Value"`
}

// The sections from the third on are not AIPerf's.

// fact is a row of the third section: what was measured, how the client did,
// and whether to believe it.
type fact struct {
	Fact  string `csv:"Fact"`
	Value string `csv:"Value"`
}

// interval is a row of the fourth section: how well a percentile is known.
type interval struct {
	Metric     string `csv:"Metric"`
	Percentile string `csv:"Percentile"`
	Low        string `csv:"Low"`
	High       string `csv:"High"`
	Level      string `csv:"Level"`
	Method     string `csv:"Method"`
	Worth      string `csv:"Worth"` // independent requests that would tell as much
}

// warning is a row of the fifth section.
type warning struct {
	Warning string `csv:"Warning"`
	Effect  string `csv:"Effect"` // the best verdict with it
	Message string `csv:"Message"`
	Advice  string `csv:"Advice"`
}

// Write writes five sections with an empty row between: metrics with
// percentiles, metrics of the run, facts, intervals of percentiles, warnings.
// The first two are AIPerf's. Rows of metrics are sorted by tag. Short
// rows are filled up with empty cells, so every row has the same number of
// columns. A figure that is missing or infinite is an empty cell. Text that a
// spreadsheet could take for a formula gets a leading apostrophe. The same
// summary gives the same bytes.
func Write(w io.Writer, s *report.Summary) error {
	metrics := slices.Clone(s.Metrics)
	slices.SortStableFunc(metrics, func(a, b report.Result) int { return strings.Compare(a.Tag, b.Tag) })
	var distributions []distribution
	var values []value
	var intervals []interval
	for _, r := range metrics {
		intervals = append(intervals, intervalsOf(r)...)
		if st := r.Statistic; st != nil {
			distributions = append(distributions, describe(cell(r.Name()), st))
			continue
		}
		v := number(r.Value)
		if r.Integer {
			v = strconv.FormatInt(r.Whole, 10)
		}
		values = append(values, value{cell(r.Name()), v})
	}
	var out rows
	for i, section := range []any{distributions, values, facts(s), intervals, warnings(s)} {
		if i > 0 {
			out.buf.WriteString("\r\n")
		}
		if err := gocsv.MarshalCSV(section, &out); err != nil {
			return fmt.Errorf("write csv summary: %w", err)
		}
	}
	if _, err := w.Write(out.buf.Bytes()); err != nil {
		return fmt.Errorf("write csv summary: %w", err)
	}
	return nil
}

func describe(name string, st *stats.Statistic) distribution {
	p := func(percent float64) string {
		v, _ := st.Percentile(percent)
		return number(v)
	}
	return distribution{
		Metric: name, Avg: number(st.Avg), Min: number(st.Min), Max: number(st.Max),
		P1: p(1), P5: p(5), P10: p(10), P25: p(25), P50: p(50), P75: p(75), P90: p(90), P95: p(95), P99: p(99),
		Std: number(st.Std),
	}
}

func facts(s *report.Summary) []fact {
	m := s.Manifest
	codes := make([]string, 0, len(s.Warnings))
	for _, w := range s.Warnings {
		codes = append(codes, w.Code)
	}
	source := "none"
	if len(s.Tokens) > 0 && s.Tokens[0].Source != record.SourceNone {
		source = string(s.Tokens[0].Source)
	}
	conditions := make([]string, 0, len(m.Conditions))
	for _, c := range m.Conditions {
		if c.Value != "" {
			conditions = append(conditions, c.Name+"="+c.Value+" ("+c.Source+")")
		}
	}
	return append([]fact{
		{"Run", cell(m.ID)},
		{"Model", cell(m.Target.Model)},
		{"URL", cell(m.Target.URL)},
		{"Token Source", cell(source)},
		{"Dialect", cell(m.Dialect)},
		{"Conditions", cell(strings.Join(conditions, "; "))},
		{"Verdict", cell(string(s.Verdict.Level))},
		{"Verdict Reasons", cell(strings.Join(s.Verdict.Reasons, " "))},
		{"Warnings", cell(strings.Join(codes, " "))},
	}, client(s)...)
}

// client tells how the client did; what is not known is an empty cell.
func client(s *report.Summary) []fact {
	c := &s.Client
	out := []fact{{"Client Events", strconv.FormatInt(c.Events, 10)}}
	for _, sp := range []struct {
		name string
		*report.Spread
	}{{"Client Lateness", c.Lateness}, {"Client Receive Lag", c.ReceiveLag}} {
		p50, p99, most := "", "", ""
		if sp.Spread != nil {
			p50, p99, most = precise(&sp.P50), precise(&sp.P99), precise(&sp.Max)
		}
		out = append(out, fact{sp.name + " p50 (ms)", p50}, fact{sp.name + " p99 (ms)", p99}, fact{sp.name + " max (ms)", most})
	}
	if s.Verdict.Headroom != nil {
		out = append(out, fact{"Client Headroom", number(*s.Verdict.Headroom)})
	}
	return append(out,
		fact{"Client Shared Reads (ratio)", precise(c.SharedReads)},
		fact{"Client Lost Stamps (ratio)", precise(c.LostStamps)},
		fact{"Client CPU avg (cores)", precise(c.CPU)},
		fact{"Client CPU max (cores)", precise(c.CPUMax)},
		fact{"Machine CPU avg (ratio)", precise(c.MachineCPU)},
		fact{"Machine CPU max (ratio)", precise(c.MachineMax)},
		fact{"Client Clock Steps", strconv.FormatInt(c.ClockSteps, 10)},
	)
}

func intervalsOf(r report.Result) []interval {
	var out []interval
	if r.Intervals == nil {
		return nil
	}
	for i, p := range report.IntervalPercents {
		if of := r.Intervals.Of[i]; of.Known() {
			out = append(out, interval{
				Metric: cell(r.Name()), Percentile: report.PercentileKey(p), Low: precise(of.Low), High: precise(of.High),
				Level: strconv.FormatFloat(report.IntervalLevel, 'g', -1, 64), Method: r.Intervals.Method(), Worth: precise(&r.Intervals.Effective),
			})
		}
	}
	return out
}

func warnings(s *report.Summary) []warning {
	out := make([]warning, 0, len(s.Warnings))
	for _, w := range s.Warnings {
		out = append(out, warning{w.Code, string(w.Effect), cell(w.Message), cell(w.Advice)})
	}
	return out
}

// precise writes a figure that two decimals would leave nothing of: a
// millisecond to the nanosecond. nil is empty.
func precise(v *float64) string {
	if v == nil || math.IsInf(*v, 0) || math.IsNaN(*v) {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', 6, 64)
}

// number writes a figure as AIPerf does.
func number(v float64) string {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// cell makes text safe for spreadsheets, which run a cell that begins with one
// of these characters as a formula.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}

// rows is a gocsv.CSVWriter that fills rows up and ends them with CR LF. The
// standard writer's own CRLF mode would change line ends inside cells too.
type rows struct{ buf bytes.Buffer }

func (r *rows) Write(row []string) error {
	for len(row) < columns {
		row = append(row, "")
	}
	w := stdcsv.NewWriter(&r.buf)
	if err := w.Write(row); err != nil {
		return err
	}
	w.Flush()
	r.buf.Truncate(r.buf.Len() - 1)
	r.buf.WriteString("\r\n")
	return nil
}

func (r *rows) Flush()       {}
func (r *rows) Error() error { return nil }
