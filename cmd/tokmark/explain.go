package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/like"
)

func newExplain(w *world) *cobra.Command {
	return &cobra.Command{
		Use:   "explain A B",
		Short: "Say which definitions make two tools' results differ",
		Long: `Put two results side by side and name the definitions that make them differ. A result is a run
directory of tokmark, its summary.json, the JSON of AIPerf or GenAI-Perf, the result of vLLM's or
SGLang's serving benchmark, or a guidellm report of one benchmark. Of a run directory the records
are at hand, so that each definition's part in the difference is measured.`,
		Example: `  tokmark explain artifacts/run-1 vllm-result.json`,
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			var sides [2]like.Side
			for i, arg := range args {
				var err error
				if sides[i], err = explained(arg); err != nil {
					return err
				}
			}
			lines, err := like.Explain(sides[0], sides[1])
			if err != nil {
				return usagef("explain %s and %s: %w", args[0], args[1], err)
			}
			return like.WriteExplanation(w.Stdout, sides[0], sides[1], lines)
		},
	}
}

// explained reads one side: a result file, or a run directory.
func explained(path string) (like.Side, error) {
	side := like.Side{Name: path}
	dir := record.Dir(path)
	info, err := os.Stat(path)
	if err != nil {
		return side, usagef("explain: %w", err)
	}
	var text []byte
	if info.IsDir() {
		s, err := report.Load(dir, report.Options{})
		if errors.Is(err, record.ErrNoRun) {
			return side, usage(err)
		}
		if err != nil {
			return side, &exitError{code: exitFailed, err: err}
		}
		if text, err = s.JSON(); err != nil {
			return side, &exitError{code: exitFailed, err: err}
		}
	} else {
		if text, err = os.ReadFile(path); err != nil {
			return side, usagef("explain: %w", err)
		}
		if filepath.Base(path) == record.SummaryJSONFile {
			dir = record.Dir(filepath.Dir(path))
		} else {
			dir = ""
		}
	}
	if side.Published, err = like.Read(text, path); err != nil {
		return side, usage(err)
	}
	if dir == "" || side.Tool != like.Tokmark {
		return side, nil
	}
	m, err := dir.ReadManifest()
	if errors.Is(err, record.ErrNoRun) || errors.Is(err, fs.ErrNotExist) {
		return side, nil // a summary alone
	}
	if err != nil {
		return side, &exitError{code: exitFailed, err: err}
	}
	if side.Run, err = like.New(m, dir.Records()); err != nil {
		return side, &exitError{code: exitFailed, err: fmt.Errorf("explain: %w", err)}
	}
	return side, nil
}
