package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/interop"
	"github.com/tokmark/tokmark/report/like"
	"github.com/tokmark/tokmark/report/slo"
)

// exports are what a report makes beside itself: the words of other tools, their
// files, a capsule, and the word on objectives.
type exports struct {
	formats []string
	out     string
	like    string
	capsule string
	slo     string

	tool       like.Tool
	written    []interop.Format
	objectives []slo.Objective
}

func (x *exports) bind(fs *pflag.FlagSet) {
	fs.StringSliceVar(&x.formats, "export", nil, "write the run as files of other tools: `FORMATS` of aiperf, genai-perf, vllm, hdr, junit, github, prometheus")
	fs.StringVar(&x.out, "out", "", "`directory` for --export (default: the run directory)")
	fs.StringVar(&x.like, "like", "", "show the same records under the definitions of another `TOOL`: vllm, sglang, genai-perf, aiperf, guidellm")
	fs.StringVar(&x.capsule, "capsule", "", "write all that is needed to make the run again to a zip `file`")
	bindSLO(fs, &x.slo)
}

func bindSLO(fs *pflag.FlagSet, into *string) {
	fs.StringVar(into, "slo", "", "`objectives` of the run, as \"time_to_first_token.p99<300ms, error_rate<0.1%, goodput>0.95\": exit code 3 if one is missed, 4 if the requests are too few to say")
}

// validate reads the settings.
func (x *exports) validate() error {
	var errs []error
	for _, name := range x.formats {
		f, err := interop.ParseFormat(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("--export: %w", err))
			continue
		}
		x.written = append(x.written, f)
	}
	if x.out != "" && len(x.formats) == 0 {
		errs = append(errs, errors.New("--out needs --export"))
	}
	var err error
	if x.like != "" {
		if x.tool, err = like.ParseTool(x.like); err != nil {
			errs = append(errs, fmt.Errorf("--like: %w", err))
		}
	}
	if x.objectives, err = parseSLO(x.slo); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// parseSLO reads --slo; no text is no objective.
func parseSLO(text string) ([]slo.Objective, error) {
	if text == "" {
		return nil, nil
	}
	objectives, err := slo.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--slo: %w", err)
	}
	return objectives, nil
}

// write writes the files that were asked for and names them on stderr.
func (x *exports) write(w *world, dir record.Dir, s *report.Summary, results []slo.Result) error {
	out := x.out
	if out == "" {
		out = string(dir)
	}
	if len(x.written) > 0 {
		if err := os.MkdirAll(out, 0o755); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	src := interop.Source{Summary: s, Objectives: results, Records: dirRecords(dir)}
	for _, f := range x.written {
		for _, file := range interop.Files(f, src) {
			path := filepath.Join(out, file.Name)
			if err := writeFile(path, file.Write); err != nil {
				return fmt.Errorf("export %s: %w", f, err)
			}
			fmt.Fprintf(w.Stderr, "wrote %s\n", path)
		}
	}
	return nil
}

// writeCapsule writes the capsule, if one was asked for, and returns its
// SHA-256 in hex.
func (x *exports) writeCapsule(w *world, dir record.Dir) (hash string, err error) {
	if x.capsule == "" {
		return "", nil
	}
	notRepeatable, err := writeCapsule(x.capsule, dir)
	if err != nil {
		return "", err
	}
	f, err := os.Open(x.capsule)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	hash = hex.EncodeToString(sum.Sum(nil))
	fmt.Fprintf(w.Stderr, "wrote %s (sha256 %s)\n", x.capsule, hash)
	if notRepeatable != "" {
		fmt.Fprintf(w.Stderr, "tokmark: the capsule cannot make the run again: %s\n", notRepeatable)
	}
	return hash, nil
}

// dirRecords yields the records of a directory, however often.
func dirRecords(dir record.Dir) func() iter.Seq2[*record.Record, error] { return dir.Records }

// writeFile writes a file in one step: a reader sees the old or the new one.
func writeFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	buf := bufio.NewWriter(tmp)
	err = errors.Join(write(buf), buf.Flush(), tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// showLike prints the run in the words of another tool.
func showLike(out io.Writer, dir record.Dir, s *report.Summary, tool like.Tool) error {
	run, err := like.New(s.Manifest, dir.Records())
	if err != nil {
		return err
	}
	return like.Write(out, run, run.As(tool))
}

// heldTo turns verdict and objectives into an exit code: a run that is not valid
// passes nothing and fails nothing.
func heldTo(s *report.Summary, results []slo.Result) error {
	if err := verdictError(s); err != nil || len(results) == 0 {
		return err
	}
	switch slo.Worst(results) {
	case slo.Fail:
		return &exitError{code: exitGate}
	case slo.Inconclusive:
		return &exitError{code: exitInconclusive}
	default:
		return nil
	}
}

// worse is the one of two ends of runs whose exit code says more: that a run
// failed, that its result is not valid, that an objective is missed, that one
// cannot be told.
func worse(a, b error) error {
	rank := func(err error) int {
		var e *exitError
		switch {
		case err == nil:
			return 0
		case !errors.As(err, &e):
			return 1 + len(codesByWeight)
		}
		return 1 + slices.Index(codesByWeight, e.code)
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

var codesByWeight = []int{exitInconclusive, exitGate, exitInvalid, exitFailed, exitUsage, exitInterrupted}

// printObjectives prints the objectives, if there are any.
func printObjectives(out io.Writer, results []slo.Result) error {
	if len(results) == 0 {
		return nil
	}
	if _, err := io.WriteString(out, "\n"); err != nil {
		return err
	}
	return slo.Write(out, results)
}

// any reports whether something was asked for.
func (x *exports) any() bool { return x.beside() || x.slo != "" }

// beside reports whether something was asked for that is no part of a page.
func (x *exports) beside() bool { return len(x.formats) > 0 || x.like != "" || x.capsule != "" }
