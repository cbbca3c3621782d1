package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/record"
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
// and ends with a table of them, which is in their parent directory too. The exit
// code is that of the run that ended worst.
func runSeries(ctx context.Context, w *world, o *options, fs *pflag.FlagSet) error {
	var page seriesPage
	runs := o.series()
	parent := record.Dir(o.artifactDir)
	if len(runs) > 1 && parent == "" {
		parent = freshDir("series")
	}
	var end error
	var done []seriesRun
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
			done = append(done, newSeriesRun(filepath.Base(one.artifactDir), s))
		}
		if err != nil {
			end = worse(end, err)
			var e *exitError
			if !errors.As(err, &e) || e.err != nil || e.code == exitInterrupted {
				break // it was not made, or is not to go on
			}
		}
	}
	if len(runs) > 1 && len(done) > 0 {
		made := newSeriesReport(done)
		js, err := made.json()
		if err == nil {
			err = errors.Join(made.writeText(w.Stdout), parent.WriteFile(seriesFile, js))
		}
		if err != nil {
			return &exitError{code: exitFailed, err: fmt.Errorf("write the report of the series: %w", err)}
		}
	}
	if len(runs) > 1 {
		if err := page.write(w, parent); err != nil {
			return err
		}
	}
	return end
}
