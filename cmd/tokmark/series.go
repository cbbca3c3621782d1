package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// levels are the values of an option that makes a sweep if there are several.
type levels []float64

// String, Set and Type make it a flag; the slice methods let a file give a list.
func (l *levels) String() string {
	return strings.Join(l.GetSlice(), ",")
}

// Set replaces the levels by those of a list with commas.
func (l *levels) Set(s string) error { return l.Replace(strings.Split(s, ",")) }

// Type names the flag's kind in help.
func (l *levels) Type() string { return "numbers" }

// GetSlice returns the levels as text.
func (l *levels) GetSlice() []string {
	out := make([]string, len(*l))
	for i, v := range *l {
		out[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return out
}

// Replace sets the levels.
func (l *levels) Replace(values []string) error {
	out := make(levels, len(values))
	for i, s := range values {
		v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil {
			return fmt.Errorf("%q is no number", s)
		}
		out[i] = v
	}
	*l = out
	return nil
}

// Append adds a level.
func (l *levels) Append(s string) error { return l.Replace(append(l.GetSlice(), s)) }

var _ pflag.SliceValue = (*levels)(nil)

// series are the runs that one command makes: one for each level, repeated.
func (o *options) series() []*options {
	var out []*options
	at := func(set func(*options)) {
		for range max(o.repeat, 1) {
			one := *o
			set(&one)
			out = append(out, &one)
		}
	}
	switch {
	case len(o.rates) > 1:
		for _, rate := range o.rates {
			at(func(one *options) { one.requestRate = rate })
		}
	case len(o.concurrencies) > 1:
		for _, c := range o.concurrencies {
			at(func(one *options) {
				one.concurrency = int(c)
				if o.bounds == byDefault && o.duration == 0 {
					one.requestCount = defaultRequests(int(c))
				}
			})
		}
	default:
		at(func(*options) {})
	}
	return out
}

// runSeries makes the runs one after the other, each in a directory of its own,
// and ends with a table of them. The exit code is that of the first run that
// did not end well.
func runSeries(ctx context.Context, w *world, o *options, fs *pflag.FlagSet) error {
	var page seriesPage
	runs := o.series()
	parent := record.Dir(o.artifactDir)
	if len(runs) > 1 && parent == "" {
		parent = freshDir("series")
	}
	var first error
	var done []*report.Summary
	for i, one := range runs {
		if len(runs) > 1 {
			one.artifactDir = parent.Path(fmt.Sprintf("%02d-%s", i+1, loadName(record.Load{Rate: one.requestRate, Concurrency: one.concurrency})))
			fmt.Fprintf(w.Stderr, "run %d of %d: %s\n", i+1, len(runs), one.artifactDir)
			if one.salt != "" {
				one.salt += "-" + strconv.Itoa(i+1) // the same prompts twice would find the cache warm
			}
		}
		config := effective(fs, one)
		if one.concurrency > 0 {
			config["concurrency"] = json.RawMessage(strconv.Itoa(one.concurrency))
		}
		if one.requestRate > 0 {
			config["request-rate"] = json.RawMessage(strconv.FormatFloat(one.requestRate, 'g', -1, 64))
		}
		m := newManifest(w, one)
		m.Config = config
		s, err := runOnce(ctx, w, one, m)
		page.add(one, s)
		if s != nil {
			done = append(done, s)
		}
		if err != nil {
			if first == nil {
				first = err
			}
			var e *exitError
			if !errors.As(err, &e) || e.err != nil || e.code == exitInterrupted {
				break // it was not made, or is not to go on
			}
		}
	}
	if len(runs) > 1 && len(done) > 0 {
		if _, err := io.WriteString(w.Stdout, seriesTable(done, o.repeat)); err != nil {
			return err
		}
	}
	if len(runs) > 1 {
		if err := page.write(w, parent); err != nil {
			return err
		}
	}
	return first
}

// seriesFigures are the columns of the table of a series.
var seriesFigures = []struct {
	title, tag string
	p          float64 // percentile; 0: the run's one value
}{
	{"req/s", "request_throughput", 0},
	{"out tok/s", "output_token_throughput", 0},
	{"tok/s/user\np50", "output_token_throughput_per_user", 50},
	{"TTFT p50\nms", "time_to_first_token", 50},
	{"TTFT p99\nms", "time_to_first_token", 99},
	{"ITL p50\nms", "inter_token_latency", 50},
	{"ITL p99\nms", "inter_token_latency", 99},
}

func figureOf(s *report.Summary, tag string, p float64) (float64, bool) {
	m, ok := s.Metric(tag)
	switch {
	case !ok:
		return 0, false
	case p > 0:
		if m.Statistic == nil {
			return 0, false
		}
		return m.Statistic.Percentile(p)
	default:
		return m.Value, m.Statistic == nil
	}
}

// seriesTable shows the runs side by side, and how far repeats lie apart.
func seriesTable(runs []*report.Summary, repeat int) string {
	t := newPlainTable()
	header := table.Row{"run", "load"}
	for _, f := range seriesFigures {
		header = append(header, f.title)
	}
	t.AppendHeader(append(header, "failed", "verdict"))
	for i, s := range runs {
		row := table.Row{i + 1, strings.Replace(loadName(s.Manifest.Load), "request_rate", "rate ", 1)}
		for _, f := range seriesFigures {
			if v, ok := figureOf(s, f.tag, f.p); ok {
				row = append(row, fmt.Sprintf("%.4g", v))
			} else {
				row = append(row, "-")
			}
		}
		t.AppendRow(append(row, s.Counts.Failed, string(s.Verdict.Level)))
	}
	out := "\nRUNS\n" + rendered(t)
	if repeat < 2 || len(runs) < 2 {
		return out
	}
	t = newPlainTable()
	t.AppendHeader(table.Row{"load", "metric", "mean of runs", "from", "to", "std between runs"})
	for from := 0; from < len(runs); from += repeat {
		group := runs[from:min(from+repeat, len(runs))]
		for _, f := range seriesFigures {
			var values []float64
			for _, s := range group {
				if v, ok := figureOf(s, f.tag, f.p); ok {
					values = append(values, v)
				}
			}
			const level = 0.95
			r, ok := stats.DescribeRepeats(values, level)
			if !ok {
				continue
			}
			t.AppendRow(table.Row{
				loadName(group[0].Manifest.Load), strings.ReplaceAll(f.title, "\n", " "),
				fmt.Sprintf("%.4g", r.Mean), fmt.Sprintf("%.4g", r.Interval.Low), fmt.Sprintf("%.4g", r.Interval.High), fmt.Sprintf("%.3g", r.Std),
			})
		}
	}
	return out + "\nREPEATS (mean with its 95 % t-interval over runs)\n" + rendered(t)
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
