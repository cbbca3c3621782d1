package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/csv"
	"github.com/tokmark/tokmark/report/hdrlog"
	"github.com/tokmark/tokmark/report/text"
)

func newReport(w *world) *cobra.Command {
	var format, window string
	c := &cobra.Command{
		Use:   "report DIR",
		Short: "Report a run again from its directory",
		Long: `Make the report of a run again, from its run directory alone. Nothing is measured again; the
same directory gives the same report, bit for bit. A run that was killed is reported as far as
it went.`,
		Example: `  tokmark report artifacts/run-1
  tokmark report artifacts/run-1 --format json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := load(record.Dir(args[0]), window)
			if errors.Is(err, record.ErrNoRun) {
				return usage(err)
			}
			if err != nil {
				var e *exitError
				if errors.As(err, &e) {
					return err
				}
				return &exitError{code: exitFailed, err: err}
			}
			switch format {
			case "text":
				err = printReport(w.Stdout, s)
			case "json":
				var b []byte
				if b, err = s.JSON(); err == nil {
					_, err = w.Stdout.Write(b)
				}
			case "csv":
				err = csv.Write(w.Stdout, s)
			default:
				return usagef("--format %s: use text, json or csv", format)
			}
			if err != nil {
				return &exitError{code: exitFailed, err: fmt.Errorf("write report: %w", err)}
			}
			return verdictError(s)
		},
	}
	c.Flags().StringVar(&format, "format", "text", "text, json or csv")
	c.Flags().StringVar(&window, "window", "", "steady-state window: auto, all, or FROM:TO in seconds (default: as the run had it)")
	return c
}

// reportGC is the collector's setting while a directory is read.
const reportGC = 50

// load summarizes a run directory, with the run's own window if none is given.
func load(dir record.Dir, window string) (*report.Summary, error) {
	if window == "" {
		if m, err := dir.ReadManifest(); err == nil {
			_ = json.Unmarshal(m.Config["window"], &window) // older runs have none
		}
	}
	opt := report.Options{Window: window}
	if err := opt.Validate(); err != nil {
		return nil, usagef("--window: %w", err)
	}
	// A million records want memory enough: collect more often than usual.
	defer debug.SetGCPercent(debug.SetGCPercent(reportGC))
	return report.Load(dir, opt)
}

// writeSummaries writes the files that are made from the records.
func writeSummaries(dir record.Dir, s *report.Summary) error {
	js, err := s.JSON()
	if err != nil {
		return fmt.Errorf("make %s: %w", record.SummaryJSONFile, err)
	}
	var table, hdr bytes.Buffer
	if err := csv.Write(&table, s); err != nil {
		return fmt.Errorf("make %s: %w", record.SummaryCSVFile, err)
	}
	if err := hdrlog.Write(&hdr, s); err != nil {
		return fmt.Errorf("make %s: %w", record.HDRLogFile, err)
	}
	return errors.Join(
		dir.WriteFile(record.SummaryJSONFile, js),
		dir.WriteFile(record.SummaryCSVFile, table.Bytes()),
		dir.WriteFile(record.HDRLogFile, hdr.Bytes()),
	)
}

// printReport prints the report in one write, so that nothing comes between.
func printReport(out io.Writer, s *report.Summary) error {
	var b strings.Builder
	if err := text.Write(&b, s); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// verdictError turns a run's verdict into an exit code: the report has said
// the rest.
func verdictError(s *report.Summary) error {
	switch {
	case s.Counts.Valid == 0:
		return &exitError{code: exitFailed}
	case s.Verdict.Level == report.Invalid:
		return &exitError{code: exitInvalid}
	default:
		return nil
	}
}
