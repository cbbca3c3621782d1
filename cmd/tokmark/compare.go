package main

import (
	"errors"
	"fmt"
	"io"
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

// loadSide reads what one argument names: one or more runs, joined by commas.
func loadSide(arg string) (compare.Side, error) {
	names := strings.Split(arg, ",")
	for _, name := range names {
		if strings.TrimSpace(name) == "" {
			return compare.Side{}, usagef("%q: a name between commas is empty", arg)
		}
	}
	side, err := compare.LoadSide(names...)
	if errors.Is(err, record.ErrNoRun) {
		return side, usage(err)
	}
	if err != nil {
		return side, &exitError{code: exitFailed, err: err}
	}
	return side, nil
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

A side is a run directory, a summary.json, a directory that holds run directories, or several
of these joined by commas: repeats, which tell what changes from run to run. Sides that differ
in what a comparison depends on are refused with exit code 5. Name a difference that is meant
with --vary; --allow compares all the same.

With --at-speed or --at-load a side is a sweep, and the curves are compared at that place.`,
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
			sides := make([]compare.Side, len(args))
			for i, arg := range args {
				if sides[i], err = loadSide(arg); err != nil {
					return err
				}
			}
			blocked := false
			for i, other := range sides[1:] {
				var result *compare.Comparison
				if len(atSpeed)+len(atLoad) > 0 {
					result, err = compare.Curves(sides[0], other, curve, opt)
				} else {
					result, err = compare.Compare(sides[0], other, opt)
				}
				if err != nil {
					return usage(err)
				}
				if i > 0 && format != "json" {
					if _, err := io.WriteString(w.Stdout, "\n"); err != nil {
						return &exitError{code: exitFailed, err: err}
					}
				}
				write := map[string]func(io.Writer) error{
					"text": result.WriteText, "json": result.WriteJSON, "markdown": result.WriteMarkdown,
				}[format]
				if err := write(w.Stdout); err != nil {
					return &exitError{code: exitFailed, err: err}
				}
				blocked = blocked || len(result.Blocked) > 0
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
	fs.StringVar(&format, "format", "text", "text, json or markdown")
	fs.Float64SliceVar(&atSpeed, "at-speed", nil, "compare sweeps at this `speed`, in output tokens per second per user")
	fs.Float64SliceVar(&atLoad, "at-load", nil, "compare sweeps at this `load`: concurrency, users or request rate")
	for _, name := range []string{"at-speed", "at-load"} {
		fs.Lookup(name).DefValue = "" // else help shows []
	}
	fs.StringVar(&metric, "curve-metric", "output_token_throughput", "what is compared there, as time_to_first_token.p50")
	return c
}
