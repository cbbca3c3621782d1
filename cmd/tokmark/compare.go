package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/compare"
)

// compareOptions are what compare and gate share.
type compareOptions struct {
	vary, allow   []string
	margin, level string
}

func (o *compareOptions) bind(fs *pflag.FlagSet) {
	bindConditions(fs, &o.vary, &o.allow)
	fs.StringVar(&o.level, "level", "95%", "confidence of the intervals")
}

func bindConditions(fs *pflag.FlagSet, vary, allow *[]string) {
	fs.StringSliceVar(vary, "vary", nil, "`conditions` that are meant to differ, as engine,version")
	fs.StringSliceVar(allow, "allow", nil, "`conditions` that disqualify and shall not; every output will say so")
}

func (o *compareOptions) options() (compare.Options, error) {
	opt := compare.Options{Vary: o.vary, Allow: o.allow}
	var errs []error
	if o.margin != "" { // a gate has those of its budget
		errs = append(errs, setShare(&opt.Margin, "margin", o.margin))
	}
	if o.level != "" {
		errs = append(errs, setShare(&opt.Level, "level", o.level))
	}
	return opt, errors.Join(errs...)
}

// setShare reads the value of an option that is a share.
func setShare(into *float64, name, text string) error {
	v, err := share(text)
	if err != nil || !(v > 0 && v < 1) {
		return fmt.Errorf("--%s %s: give a share between 0 and 1, as 5%% or 0.05", name, text)
	}
	*into = v
	return nil
}

// share reads "5%" or "0.05".
func share(s string) (float64, error) {
	digits, isPercent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if isPercent {
		v /= 100
	}
	return v, err
}

// sides reads the sides of a comparison, and holds what was unpacked for them
// until it is closed. The zero value is ready for use.
type sides struct{ capsules []*capsule }

// load reads what one argument names: one or more runs, joined by commas.
func (s *sides) load(arg string) (compare.Side, error) {
	names := strings.Split(arg, ",")
	unpacked := map[string]string{} // names by directory
	paths := make([]string, len(names))
	for i, name := range names {
		if strings.TrimSpace(name) == "" {
			return compare.Side{}, usagef("%q: a name between commas is empty", arg)
		}
		if paths[i] = name; !isZip(name) {
			continue
		}
		c, err := unpackCapsule(name)
		if err != nil {
			return compare.Side{}, usage(err)
		}
		s.capsules = append(s.capsules, c)
		paths[i] = string(c.dir)
		unpacked[paths[i]] = name
	}
	side, err := compare.LoadSide(paths...)
	if errors.Is(err, record.ErrNoRun) {
		return side, usage(err)
	}
	if err != nil {
		return side, &exitError{code: exitFailed, err: err}
	}
	side.Name = strings.Join(names, ", ")
	for _, r := range side.Runs {
		if name, ok := unpacked[r.Path]; ok {
			r.Path, r.Files = name, r.Path
		}
	}
	return side, nil
}

// close removes what was unpacked.
func (s *sides) close() {
	for _, c := range s.capsules {
		_ = c.close() // what is left lies among temporary files
	}
}

// isZip reports whether a path is a file that begins as a zip file does.
func isZip(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var start [4]byte
	_, err = io.ReadFull(f, start[:])
	return err == nil && string(start[:]) == "PK\x03\x04"
}

func newCompare(w *world) *cobra.Command {
	o := &compareOptions{}
	var (
		format, metric  string
		atSpeed, atLoad []float64
	)
	c := &cobra.Command{
		Use:   "compare A B [C...]",
		Short: "Compare runs: what differs, by how much, and whether that may be said at all",
		Long: `Compare B (and C, …) against A: first the conditions, then figures with an interval and a
verdict: better, worse, same within the margin, or cannot tell.

A side is a run directory, a capsule, a summary.json, a directory that holds run directories, or
several of these joined by commas: repeats, which tell what changes from run to run. Sides that
differ in what a comparison depends on are refused with exit code 5. Name a difference that is
meant with --vary; --allow compares all the same.

With --at-speed or --at-load a side is a sweep of one kind of load, and the curves are compared at
that place.`,
		Example: `  tokmark compare artifacts/before artifacts/after
  tokmark compare a1,a2,a3 b1,b2,b3 --vary engine,version
  tokmark compare sweeps/a sweeps/b --at-speed 50`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			opt, err := o.options()
			if err != nil {
				return usage(err)
			}
			if len(atSpeed) > 0 && len(atLoad) > 0 {
				return usagef("--at-speed and --at-load exclude each other")
			}
			if format != "text" && format != "json" && format != "markdown" {
				return usagef("--format %s: use text, json or markdown", format)
			}
			curve := compare.Curve{By: compare.BySpeed, At: atSpeed}
			if len(atLoad) > 0 {
				curve.By, curve.At = compare.ByLoad, atLoad
			}
			curve.Metric, curve.Stat, _ = strings.Cut(metric, ".")
			if err := curve.Validate(); err != nil {
				return usagef("%w: see --curve-metric, --at-speed and --at-load", err)
			}
			var from sides
			defer from.close()
			loaded := make([]compare.Side, len(args))
			for i, arg := range args {
				if loaded[i], err = from.load(arg); err != nil {
					return err
				}
			}
			blocked := false
			results := make([]*compare.Comparison, len(args)-1)
			for i, other := range loaded[1:] {
				if len(atSpeed)+len(atLoad) > 0 {
					results[i], err = compare.Curves(loaded[0], other, curve, opt)
				} else {
					results[i], err = compare.Compare(loaded[0], other, opt)
				}
				if err != nil {
					return usage(err)
				}
				blocked = blocked || len(results[i].Blocked) > 0
			}
			if err := writeComparisons(w.Stdout, format, results); err != nil {
				return &exitError{code: exitFailed, err: err}
			}
			if blocked {
				return &exitError{code: exitInvalid}
			}
			return nil
		},
	}
	fs := c.Flags()
	o.bind(fs)
	fs.StringVar(&o.margin, "margin", "5%", "change that is of no account")
	fs.StringVar(&format, "format", "text", "text, json (of several comparisons an array) or markdown")
	fs.Float64SliceVar(&atSpeed, "at-speed", nil, "compare sweeps at this `speed`, in output tokens per second per user")
	fs.Float64SliceVar(&atLoad, "at-load", nil, "compare sweeps at this `load`: concurrency, users or request rate")
	for _, name := range []string{"at-speed", "at-load"} {
		fs.Lookup(name).DefValue = "" // else help shows []
	}
	fs.StringVar(&metric, "curve-metric", "output_token_throughput", "what is compared there, as time_to_first_token.p50")
	return c
}

// writeComparisons writes one comparison, or several: in JSON as one array.
func writeComparisons(w io.Writer, format string, results []*compare.Comparison) error {
	if format == "json" && len(results) > 1 {
		return compare.WriteJSON(w, results)
	}
	for i, c := range results {
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		write := map[string]func(io.Writer) error{"text": c.WriteText, "json": c.WriteJSON, "markdown": c.WriteMarkdown}[format]
		if err := write(w); err != nil {
			return err
		}
	}
	return nil
}
