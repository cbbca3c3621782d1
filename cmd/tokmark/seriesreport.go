package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// seriesFile holds the seriesReport in the parent directory of the runs.
const seriesFile = "series.json"

// seriesSchema is the version of that file. Additions do not raise it.
const seriesSchema = 1

// seriesReport shows runs side by side, and how far repeats lie apart.
type seriesReport struct {
	Schema  int         `json:"schema"`
	Runs    []seriesRun `json:"runs"`
	Repeats []repeats   `json:"repeats"` // empty: no load was measured twice
}

// seriesRun is one run of a series.
type seriesRun struct {
	Directory string             `json:"directory"` // its name, in that of the series
	Load      string             `json:"load"`
	Figures   map[string]float64 `json:"figures"` // by seriesFigure.key; one that is missing has no entry
	Failed    int64              `json:"failed"`
	Verdict   report.Level       `json:"verdict"`

	same string // equal for repeats of one another
}

// repeats is one figure of the runs that repeat one another: its mean, with
// the interval of that by Student's t, and the standard deviation between
// runs.
type repeats struct {
	Load   string    `json:"load"`
	Figure string    `json:"figure"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"` // in the order of the runs
	Mean   float64   `json:"mean"`
	Low    float64   `json:"low"`
	High   float64   `json:"high"`
	Level  float64   `json:"level"`
	Std    float64   `json:"std"`

	title string
}

// seriesFigure is a column of the table of a series.
type seriesFigure struct {
	title, tag string
	p          float64 // percentile; 0: the run's one value
}

var seriesFigures = []seriesFigure{
	{"req/s", "request_throughput", 0},
	{"out tok/s", "output_token_throughput", 0},
	{"tok/s/user\np50", "output_token_throughput_per_user", 50},
	{"TTFT p50\nms", "time_to_first_token", 50},
	{"TTFT p99\nms", "time_to_first_token", 99},
	{"ITL p50\nms", "inter_token_latency", 50},
	{"ITL p99\nms", "inter_token_latency", 99},
}

// key names the figure in files, as time_to_first_token.p99.
func (f seriesFigure) key() string {
	if f.p > 0 {
		return f.tag + "." + report.PercentileKey(f.p)
	}
	return f.tag
}

func (f seriesFigure) of(s *report.Summary) (float64, bool) {
	m, ok := s.Metric(f.tag)
	switch {
	case !ok:
		return 0, false
	case f.p > 0:
		if m.Statistic == nil {
			return 0, false
		}
		return m.Statistic.Percentile(f.p)
	default:
		return m.Value, m.Statistic == nil
	}
}

func newSeriesRun(directory string, s *report.Summary) seriesRun {
	m := s.Manifest
	r := seriesRun{
		Directory: directory, Load: loadName(m.Load), Figures: map[string]float64{},
		Failed: s.Counts.Failed, Verdict: s.Verdict.Level,
	}
	address := m.Target.URL
	if m.Target.Simulated {
		address = "" // of another port in each run
	}
	asked, _ := json.Marshal(m.Load) // it has no value that JSON lacks
	r.same = strings.Join([]string{string(asked), address, m.Target.Model, m.Workload, m.WorkloadHash, string(m.Config["osl"]), string(m.Config["extra-inputs"]), m.Cache.Mode}, "\x00")
	for _, f := range seriesFigures {
		if v, ok := f.of(s); ok {
			r.Figures[f.key()] = v
		}
	}
	return r
}

// newSeriesReport compares runs; those of one load, address, model and workload
// are repeats of one another.
func newSeriesReport(runs []seriesRun) *seriesReport {
	out := &seriesReport{Schema: seriesSchema, Runs: runs, Repeats: []repeats{}}
	groups := map[string][]seriesRun{}
	for _, r := range runs {
		groups[r.same] = append(groups[r.same], r)
	}
	for _, r := range runs {
		group := groups[r.same]
		delete(groups, r.same) // once, in the order of the first
		for _, f := range seriesFigures {
			var values []float64
			for _, one := range group {
				if v, ok := one.Figures[f.key()]; ok {
					values = append(values, v)
				}
			}
			const level = 0.95
			d, ok := stats.DescribeRepeats(values, level)
			if !ok {
				continue
			}
			metric, _ := report.MetricByTag(f.tag)
			out.Repeats = append(out.Repeats, repeats{
				Load: r.Load, Figure: f.key(), Unit: metric.Unit, Values: values,
				Mean: d.Mean, Low: d.Interval.Low, High: d.Interval.High, Level: level, Std: d.Std,
				title: strings.ReplaceAll(f.title, "\n", " "),
			})
		}
	}
	return out
}

// json is the content of the file.
func (r *seriesReport) json() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

func (r *seriesReport) writeText(w io.Writer) error {
	t := newPlainTable()
	header := table.Row{"run", "load"}
	for _, f := range seriesFigures {
		header = append(header, f.title)
	}
	t.AppendHeader(append(header, "failed", "verdict"))
	for i, run := range r.Runs {
		row := table.Row{i + 1, strings.Replace(run.Load, "request_rate", "rate ", 1)}
		for _, f := range seriesFigures {
			if v, ok := run.Figures[f.key()]; ok {
				row = append(row, fmt.Sprintf("%.4g", v))
			} else {
				row = append(row, "-")
			}
		}
		t.AppendRow(append(row, run.Failed, string(run.Verdict)))
	}
	out := "\nRUNS\n" + rendered(t)
	if len(r.Repeats) > 0 {
		t = newPlainTable()
		t.AppendHeader(table.Row{"load", "metric", "mean of runs", "from", "to", "std between runs"})
		for _, one := range r.Repeats {
			t.AppendRow(table.Row{
				one.Load, one.title,
				fmt.Sprintf("%.4g", one.Mean), fmt.Sprintf("%.4g", one.Low), fmt.Sprintf("%.4g", one.High), fmt.Sprintf("%.3g", one.Std),
			})
		}
		out += "\nREPEATS (mean with its 95 % t-interval over runs)\n" + rendered(t)
	}
	_, err := io.WriteString(w, out)
	return err
}

// rendered is the table without blanks at the ends of lines.
func rendered(t table.Writer) string {
	var b strings.Builder
	for line := range strings.Lines(t.Render() + "\n") {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

func newPlainTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.Options{SeparateHeader: true}
	style.Format.Header = text.FormatDefault
	style.Box.PaddingLeft, style.Box.PaddingRight, style.Box.MiddleHorizontal = "", "  ", "-"
	t.SetStyle(style)
	return t
}
