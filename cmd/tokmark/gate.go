package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/compare"
	"github.com/tokmark/tokmark/report/slo"
)

// gateOptions are the settings of a gate.
type gateOptions struct {
	compareOptions
	budget, baseline, store     string
	storeRuns                   int
	accept, github              bool
	slo                         string
	junitFile, mdFile, jsonFile string
}

func newGate(w *world) *cobra.Command {
	o := &gateOptions{}
	c := &cobra.Command{
		Use:   "gate CANDIDATE",
		Short: "Pass or fail a run by a budget and a baseline, for CI",
		Long: `Hold a run to a budget: objectives of its own, and changes against a baseline. The candidate
is a run directory, a capsule or a summary.json, or several joined by commas, as in compare.

Exit codes: 0 pass · 3 regression · 4 inconclusive, with what would decide it ·
5 not valid: the runs must not be compared, or say nothing

Without --budget, medians of TTFT, inter-token latency and latency may grow by 5 %, their p99
by 15 %, throughput may fall by 5 %, the error rate may rise by one percentage point, and every
run needs 1000 valid requests. 3000 are advised: with them nearly every gate is decided.`,
		Example: `  tokmark gate artifacts/new --baseline artifacts/released
  tokmark gate artifacts/new --budget budget.yaml --baseline-store baselines --accept
  tokmark gate artifacts/new --slo 'ttft.p99<300ms, error_rate<1%' --junit gate.xml --github`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.run(w, c.Flags().Changed("level"), args[0])
		},
	}
	fs := c.Flags()
	o.bind(fs)
	fs.StringVar(&o.budget, "budget", "", "YAML `file` with objectives, regressions, min_requests")
	bindSLO(fs, &o.slo)
	fs.StringVar(&o.baseline, "baseline", "", "`runs` to compare with: run directory, capsule, summary.json, or several")
	fs.StringVar(&o.store, "baseline-store", "", "`directory` of accepted runs to compare with")
	fs.IntVar(&o.storeRuns, "baseline-runs", 10, "how many of the last accepted runs to compare with")
	fs.BoolVar(&o.accept, "accept", false, "add the candidate to the store if it passes")
	fs.StringVar(&o.junitFile, "junit", "", "write a JUnit `file`")
	fs.StringVar(&o.mdFile, "markdown", "", "write a Markdown `file`")
	fs.StringVar(&o.jsonFile, "json", "", "write a JSON `file`")
	fs.BoolVar(&o.github, "github", false, "print annotations for GitHub Actions, and add to $GITHUB_STEP_SUMMARY")
	return c
}

func (o *gateOptions) run(w *world, levelSet bool, arg string) error {
	if o.baseline != "" && o.store != "" {
		return usagef("--baseline and --baseline-store exclude each other")
	}
	if o.accept && o.store == "" {
		return usagef("--accept needs --baseline-store")
	}
	if o.storeRuns < 1 {
		return usagef("--baseline-runs %d: it must be at least 1", o.storeRuns)
	}
	budget, err := o.readBudget(levelSet)
	if err != nil {
		return usage(err)
	}
	if o.baseline == "" && o.store == "" && len(budget.Rules) > 0 {
		return usagef("the budget has rules against a baseline: give --baseline or --baseline-store, or only --slo")
	}
	var from sides
	defer from.close()
	candidate, err := from.load(arg)
	if err != nil {
		return err
	}
	var baseline *compare.Side
	first := false
	switch {
	case o.baseline != "":
		side, err := from.load(o.baseline)
		if err != nil {
			return err
		}
		baseline = &side
	case o.store != "":
		side, err := compare.Store(o.store).Last(o.storeRuns)
		if err != nil {
			return &exitError{code: exitFailed, err: err}
		}
		if len(side.Runs) > 0 {
			baseline = &side
		} else if first = o.accept; first {
			budget.Rules = nil // there is nothing to be held to
		}
	}
	result, err := compare.Gate(candidate, baseline, budget)
	if err != nil {
		return usage(err)
	}
	if first {
		result.Notes = append(result.Notes, "the baseline store is empty: a run that passes its objectives is its first")
	}
	if o.accept && result.Outcome == compare.Pass {
		for _, r := range candidate.Runs {
			to, err := compare.Store(o.store).Add(r)
			if err != nil {
				return &exitError{code: exitFailed, err: err}
			}
			result.Notes = append(result.Notes, r.Path+" was accepted as "+to)
		}
	}
	if err := o.write(w, result); err != nil {
		return &exitError{code: exitFailed, err: err}
	}
	switch result.Outcome {
	case compare.Pass:
		return nil
	case compare.Regression:
		return &exitError{code: exitGate}
	case compare.Inconclusive:
		return &exitError{code: exitInconclusive}
	default:
		return &exitError{code: exitInvalid}
	}
}

// write writes the result to stdout and to the files that were asked for.
func (o *gateOptions) write(w *world, result *compare.GateResult) error {
	errs := []error{result.WriteText(w.Stdout)}
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{{o.junitFile, result.WriteJUnit}, {o.mdFile, result.WriteMarkdown}, {o.jsonFile, result.WriteJSON}} {
		if f.path == "" {
			continue
		}
		var b bytes.Buffer
		if err := f.write(&b); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, os.WriteFile(f.path, b.Bytes(), 0o644))
	}
	if !o.github {
		return errors.Join(errs...)
	}
	errs = append(errs, result.WriteGitHub(w.Stdout))
	if path := w.Getenv("GITHUB_STEP_SUMMARY"); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("write step summary: %w", err))...)
		}
		errs = append(errs, result.WriteMarkdown(f), f.Close())
	}
	return errors.Join(errs...)
}

// readBudget is the budget of the file, or the usual one, with what the
// command line adds.
func (o *gateOptions) readBudget(levelSet bool) (compare.Budget, error) {
	opt, err := o.options()
	if err != nil {
		return compare.Budget{}, err
	}
	budget := compare.DefaultBudget()
	if o.budget != "" {
		if budget, err = loadBudget(o.budget); err != nil {
			return budget, err
		}
	} else if o.slo != "" && o.baseline == "" && o.store == "" {
		budget.Rules, budget.MinRequests = nil, 0 // only what was asked for
	}
	budget.Vary = append(budget.Vary, opt.Vary...)
	budget.Allow = append(budget.Allow, opt.Allow...)
	if levelSet || budget.Level == 0 {
		budget.Level = opt.Level
	}
	var errs []error
	objectives, err := parseSLO(o.slo)
	if err != nil {
		errs = append(errs, err)
	}
	budget.Objectives = append(budget.Objectives, objectives...)
	if len(errs)+len(budget.Objectives)+len(budget.Rules) == 0 && budget.MinRequests == 0 {
		errs = append(errs, fmt.Errorf("read budget %s: the budget holds no rule: give objectives, regressions or min_requests", o.budget))
	}
	return budget, errors.Join(append(errs, budget.Validate())...)
}

// scalar is a value of a budget file with its place.
type scalar struct {
	text         string
	line, column int
}

// UnmarshalYAML keeps the value as it stands there.
func (s *scalar) UnmarshalYAML(n ast.Node) error {
	if _, ok := n.(ast.ScalarNode); !ok {
		return &yaml.UnexpectedNodeTypeError{Actual: n.Type(), Expected: ast.StringType, Token: n.GetToken()}
	}
	t := n.GetToken()
	*s = scalar{text: t.Value, line: t.Position.Line, column: t.Position.Column}
	return nil
}

// budgetFile is a budget as it is written.
type budgetFile struct {
	Objectives  []scalar `yaml:"objectives"`
	Regressions []struct {
		Metric scalar `yaml:"metric"`
		Margin scalar `yaml:"margin"`
		Floor  scalar `yaml:"floor"`
	} `yaml:"regressions"`
	MinRequests *scalar  `yaml:"min_requests"`
	Level       *scalar  `yaml:"level"`
	Vary        []scalar `yaml:"vary"`
	Allow       []scalar `yaml:"allow"`
}

// loadBudget reads a budget file. Unknown keys and values that make no sense
// are errors with their place.
func loadBudget(path string) (compare.Budget, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return compare.Budget{}, fmt.Errorf("read budget: %w", err)
	}
	var file budgetFile
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return compare.Budget{}, fmt.Errorf("read budget %w", yamlError(path, err))
	}
	var (
		b    compare.Budget
		errs []error
	)
	bad := func(s scalar, err error) {
		errs = append(errs, fmt.Errorf("read budget %s:%d:%d: %w", path, s.line, s.column, err))
	}
	for _, s := range file.Objectives {
		objectives, err := slo.Parse(s.text)
		if err != nil {
			bad(s, err)
			continue
		}
		b.Objectives = append(b.Objectives, objectives...)
	}
	for _, r := range file.Regressions {
		rule := compare.Rule{}
		rule.Metric, rule.Stat, _ = strings.Cut(r.Metric.text, ".")
		if err := rule.Validate(); err != nil {
			bad(r.Metric, err)
			continue
		}
		if r.Margin.text != "" {
			if rule.Margin, err = share(r.Margin.text); err != nil || !(rule.Margin >= 0 && rule.Margin < 10) {
				bad(r.Margin, fmt.Errorf("margin %q: give a share, as 5%%", r.Margin.text))
			}
		}
		if r.Floor.text != "" {
			m, _ := report.MetricByTag(rule.Metric)
			if rule.Floor, _, err = slo.Amount(r.Floor.text, m); err != nil {
				bad(r.Floor, fmt.Errorf("floor %q: give a number in %s", r.Floor.text, m.Unit))
			}
		}
		b.Rules = append(b.Rules, rule)
	}
	if s := file.MinRequests; s != nil {
		if b.MinRequests, err = strconv.ParseInt(s.text, 10, 64); err != nil || b.MinRequests < 0 {
			bad(*s, fmt.Errorf("min_requests %q: give a whole number", s.text))
		}
	}
	if s := file.Level; s != nil {
		if b.Level, err = share(s.text); err != nil || !(b.Level > 0 && b.Level < 1) {
			bad(*s, fmt.Errorf("level %q: give a confidence, as 95%%", s.text))
		}
	}
	for _, s := range file.Vary {
		b.Vary = append(b.Vary, s.text)
	}
	for _, s := range file.Allow {
		b.Allow = append(b.Allow, s.text)
	}
	return b, errors.Join(errs...)
}
