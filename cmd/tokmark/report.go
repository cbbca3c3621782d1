package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/compare"
	"github.com/tokmark/tokmark/report/csv"
	"github.com/tokmark/tokmark/report/hdrlog"
	"github.com/tokmark/tokmark/report/html"
	"github.com/tokmark/tokmark/report/markdown"
	"github.com/tokmark/tokmark/report/slo"
	"github.com/tokmark/tokmark/report/text"
)

func newReport(w *world) *cobra.Command {
	var format, window, page string
	var asMarkdown bool
	var also exports
	c := &cobra.Command{
		Use:   "report DIR...",
		Short: "Report a run again from its directory",
		Long: `Make the report of a run, or of the runs in a directory, again. Nothing is measured again; the
same directory gives the same report, bit for bit. A run that was killed is reported as far as
it went. Several directories are shown side by side, as run --repeat shows its runs; those of
one load, address, model and workload are taken for repeats. --html writes a page with charts;
of several directories it compares the runs.`,
		Example: `  tokmark report artifacts/run-1
  tokmark report artifacts/run-1 --format json
  tokmark report artifacts/run-1 --html
  tokmark report artifacts/run-1 --like vllm
  tokmark report artifacts/run-1 artifacts/run-2
  tokmark report artifacts/run-1 --export aiperf,junit --slo "ttft.p99<300ms"
  tokmark report artifacts/run-1 artifacts/run-2 --html=both.html
  tokmark report sweeps/a sweeps/b --html=sweeps.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := also.validate(); err != nil {
				return usage(err)
			}
			if page != "" && also.beside() {
				return usagef("report: --html makes the page alone; call it again for --export, --like or --capsule")
			}
			if page == inRunDirectory {
				if len(args) > 1 {
					return usagef("report: give the page of several directories a file: --html=FILE")
				}
				page = record.Dir(args[0]).Path(record.ReportHTMLFile)
			}
			args, err := runDirs(args)
			if err != nil {
				return usage(err)
			}
			if page != "" {
				return writePage(w, args, window, page, also.objectives)
			}
			if asMarkdown {
				format = "markdown"
			}
			if len(args) > 1 {
				if also.any() {
					return usagef("report: --export, --like, --capsule and --slo are of one directory")
				}
				return reportSeries(w, args, window, format)
			}
			dir := record.Dir(args[0])
			s, err := load(dir, window)
			if err != nil {
				return err
			}
			hash, err := also.writeCapsule(w, dir)
			if err != nil {
				return &exitError{code: exitFailed, err: err}
			}
			results := slo.Evaluate(s, objectivesOf(also.objectives, s))
			switch format {
			case "text":
				if also.like != "" {
					err = showLike(w.Stdout, dir, s, also.tool)
				} else {
					err = printReport(w.Stdout, s)
				}
				err = errors.Join(err, printObjectives(w.Stdout, results))
			case "json":
				var b []byte
				if b, err = summaryJSON(s, results); err == nil {
					_, err = w.Stdout.Write(b)
				}
			case "csv":
				err = csv.Write(w.Stdout, s)
			case "markdown":
				err = markdown.Write(w.Stdout, s, markdown.Options{Capsule: hash, Objectives: results})
			default:
				return usagef("--format %s: use text, json, csv or markdown", format)
			}
			if err != nil {
				return &exitError{code: exitFailed, err: fmt.Errorf("write report: %w", err)}
			}
			if err := also.write(w, dir, s, results); err != nil {
				return &exitError{code: exitFailed, err: err}
			}
			return heldTo(s, results)
		},
	}
	c.Flags().StringVar(&format, "format", "text", "text, json, csv or markdown")
	c.Flags().StringVar(&page, "html", "", "write a page with charts to the file (-: stdout), without one into the run directory")
	c.Flags().Lookup("html").NoOptDefVal = inRunDirectory
	c.Flags().BoolVar(&asMarkdown, "markdown", false, "print a block to paste in a post or pull request (--format markdown)")
	also.bind(c.Flags())
	c.Flags().StringVar(&window, "window", "", "steady-state window: auto, all, or FROM:TO in seconds (default: as the run had it)")
	return c
}

// reportSeries shows runs side by side.
func reportSeries(w *world, dirs []string, window, format string) error {
	var runs []seriesRun
	var verdict error
	for _, arg := range dirs {
		s, err := load(record.Dir(arg), window)
		if err != nil {
			return err
		}
		if verdict == nil {
			verdict = verdictError(s)
		}
		runs = append(runs, newSeriesRun(filepath.Base(filepath.Clean(arg)), s))
	}
	made := newSeriesReport(runs)
	var err error
	switch format {
	case "text":
		err = made.writeText(w.Stdout)
	case "json":
		var b []byte
		if b, err = made.json(); err == nil {
			_, err = w.Stdout.Write(b)
		}
	default:
		return usagef("--format %s: several directories are shown as text or json; tokmark compare compares two", format)
	}
	if err != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("write report: %w", err)}
	}
	return verdict
}

// inRunDirectory is the value of --html without a file.
const inRunDirectory = "DIR/" + record.ReportHTMLFile

// runDirs puts the runs in a directory that holds some, as that of a sweep, in
// its place.
func runDirs(args []string) ([]string, error) {
	var dirs []string
	for _, arg := range args {
		runs, err := record.Dir(arg).Runs()
		if err != nil {
			return nil, err
		}
		for _, dir := range runs {
			dirs = append(dirs, string(dir))
		}
	}
	return dirs, nil
}

// writePage writes the page of one run, or of several to compare them, to a
// file or, for "-", to stdout.
func writePage(w *world, dirs []string, window, to string, objectives []slo.Objective) error {
	var runs []html.Run
	for _, dir := range dirs {
		s, err := load(record.Dir(dir), window)
		if err != nil {
			return err
		}
		runs = append(runs, html.Run{Summary: s, Objectives: slo.Evaluate(s, objectivesOf(objectives, s))})
	}
	if err := pageOf(w, dirs, runs, to); err != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("write report: %w", err)}
	}
	var end error
	for _, r := range runs {
		end = worse(end, heldTo(r.Summary, r.Objectives))
	}
	return end
}

// objectivesOf are those given, or else those that the run was made with.
func objectivesOf(given []slo.Objective, s *report.Summary) []slo.Objective {
	if given == nil {
		given, _ = parseSLO(configText(s.Manifest, "slo")) // it was read before the run
	}
	return given
}

// pageOf writes the page of runs that are summarized, and names it on stderr.
func pageOf(w *world, dirs []string, runs []html.Run, to string) error {
	err := nameRuns(runs, dirs)
	for i := range runs {
		if err == nil {
			runs[i].View, err = html.Load(record.Dir(dirs[i]))
		}
	}
	var b bytes.Buffer
	if err == nil {
		err = html.Write(&b, runs...)
	}
	switch {
	case err != nil:
	case to == "-":
		_, err = w.Stdout.Write(b.Bytes())
	default:
		err = record.Dir(filepath.Dir(to)).WriteFile(filepath.Base(to), b.Bytes())
	}
	if err == nil && to != "-" {
		fmt.Fprintf(w.Stderr, "page: %s\n", to)
	}
	return err
}

// writePairedPage writes the page of an interleaved comparison into the directory
// of its blocks, whose names end in their side.
func writePairedPage(w *world, parent record.Dir, result *compare.Paired) error {
	blocks, err := parent.Runs()
	if err != nil {
		return &exitError{code: exitFailed, err: err}
	}
	var sides []*report.Summary
	for _, side := range []string{"a", "b"} {
		i := slices.IndexFunc(blocks, func(dir record.Dir) bool { return strings.HasSuffix(string(dir), "-"+side) })
		if i < 0 {
			break // there is none of B if the time was up before
		}
		s, err := load(blocks[i], "")
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	var b bytes.Buffer
	err = html.WritePaired(&b, result, sides...)
	if err == nil {
		err = parent.WriteFile(record.ReportHTMLFile, b.Bytes())
	}
	if err != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("write report: %w", err)}
	}
	fmt.Fprintf(w.Stderr, "page: %s\n", parent.Path(record.ReportHTMLFile))
	return nil
}

// nameRuns names runs by their directories, and their groups by the directories
// that hold those.
func nameRuns(runs []html.Run, dirs []string) error {
	paths, parents := make([]string, len(dirs)), make([]string, len(dirs))
	for i, dir := range dirs {
		path, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("name run %s: %w", dir, err)
		}
		paths[i], parents[i] = path, filepath.Dir(path)
	}
	names, groups := shortest(paths), shortest(parents)
	for i := range runs {
		runs[i].Name, runs[i].Group = names[i], groups[i]
	}
	return nil
}

// shortest names absolute paths by their last elements: by as many as tell
// different ones apart.
func shortest(paths []string) []string {
	names := make([]string, len(paths))
	for n := 1; ; n++ {
		named, alike := make(map[string]string), false
		for i, path := range paths {
			elements := strings.Split(filepath.ToSlash(path), "/")
			names[i] = strings.Join(elements[max(0, len(elements)-n):], "/")
			other, known := named[names[i]]
			alike = alike || known && other != path
			named[names[i]] = path
		}
		if !alike {
			return names
		}
	}
}

// reportGC is the collector's setting while a directory is read.
const reportGC = 50

// load summarizes a run directory, with the run's own window if none is given.
// Its errors have their exit code.
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
	s, err := report.Load(dir, opt)
	switch {
	case errors.Is(err, record.ErrNoRun):
		return nil, usage(err)
	case err != nil:
		return nil, &exitError{code: exitFailed, err: err}
	}
	return s, nil
}

// summaryJSON is the content of summary.json.
func summaryJSON(s *report.Summary, results []slo.Result) ([]byte, error) {
	if len(results) == 0 {
		return s.JSON()
	}
	return s.JSON(report.Field{Key: "objectives", Value: results})
}

// writeSummaries writes the files that are made from the records; results are of
// what the run was held against.
func writeSummaries(dir record.Dir, s *report.Summary, results []slo.Result) error {
	js, err := summaryJSON(s, results)
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
	v, err := html.Load(dir)
	if err != nil {
		return fmt.Errorf("make %s: %w", record.ReportHTMLFile, err)
	}
	var page bytes.Buffer
	if err := html.Write(&page, html.Run{Summary: s, View: v, Objectives: results}); err != nil {
		return fmt.Errorf("make %s: %w", record.ReportHTMLFile, err)
	}
	return errors.Join(
		dir.WriteFile(record.SummaryJSONFile, js),
		dir.WriteFile(record.SummaryCSVFile, table.Bytes()),
		dir.WriteFile(record.HDRLogFile, hdr.Bytes()),
		dir.WriteFile(record.ReportHTMLFile, page.Bytes()),
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
