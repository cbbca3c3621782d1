package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/sse"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/interop"
)

func newImport(w *world) *cobra.Command {
	var dir, format string
	var skip bool
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a run directory of another tool's file, or of an engine without a server",
		Long: `Make a run directory of the requests in a file, so that all of tokmark's reports can be made of
them. What the file does not tell stays unknown, and is listed.

  perf-analyzer   perf_analyzer's raw profile_export.json, which GenAI-Perf makes its figures from
  aiperf-records  AIPerf's profile_export.jsonl
  aiperf-raw      AIPerf's profile_export_raw.jsonl (--export-level raw)
  vllm            result of vllm bench serve --save-result --save-detailed
  sglang          result of sglang.bench_serving --output-details
  offline         one JSON object a line and request, for scripts that call an engine directly:

  {"start_ns":0,"token_times_ns":[41000000,52000000],"input_tokens":12,"output_tokens":2}

  start_ns        when the request was given to the engine; any clock, and required
  token_times_ns  when output appeared; without them end_ns, for output that came at once
  tokens          how many tokens came at each of these times
  end_ns due_ns input_tokens output_tokens reasoning_tokens cached_tokens max_tokens
  model session turn class phase (measure or warmup) error (it failed)

Times may be seconds instead: start_s, token_times_s, end_s, due_s. A first line
{"tokmark_offline":1,"engine":"name 1.0","clock":"unix","conditions":{"gpu":"…"}} is optional.`,
		Example: `  tokmark import profile_export.jsonl --artifact-dir artifacts/theirs
  tokmark import offline.jsonl --artifact-dir artifacts/offline`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return importFile(w, args[0], record.Dir(dir), format, skip)
		},
	}
	fs := c.Flags()
	fs.StringVar(&dir, "artifact-dir", "", "directory for the run (default: a new one in artifacts/, named after the file)")
	fs.StringVar(&format, "format", "", "format of the file (default: by its content): perf-analyzer, aiperf-records, aiperf-raw, vllm, sglang, offline")
	fs.BoolVar(&skip, "skip-bad-lines", false, "leave lines that cannot be used out instead of stopping")
	return c
}

func importFile(w *world, path string, dir record.Dir, format string, skip bool) error {
	opt := interop.ImportOptions{SkipBadLines: skip, Decode: decodeAnswer}
	if format != "" {
		var err error
		if opt.Format, err = interop.ParseInput(format); err != nil {
			return usagef("--format: %w", err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return usagef("import: %w", err)
	}
	defer f.Close()
	im, err := interop.Import(f, path, opt)
	if err != nil {
		return usage(err)
	}
	m := im.Manifest
	m.Tool, m.Command = build(), maskedCommand(w.Args, &options{})
	if dir == "" {
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		dir = record.Dir(filepath.Join("artifacts", fileName("import-"+name)))
	}
	m.ID = filepath.Base(string(dir))
	if err := dir.Create(); err != nil {
		if errors.Is(err, record.ErrHoldsRun) {
			err = fmt.Errorf("%w: give another --artifact-dir, or remove it", err)
		}
		return usage(err)
	}
	writer, err := dir.NewWriter()
	if err != nil {
		return usage(err)
	}
	for _, r := range im.Records {
		if err := writer.Write(r); err != nil {
			return errors.Join(&exitError{code: exitFailed, err: err}, writer.Close())
		}
	}
	if err := errors.Join(writer.Close(), dir.WriteManifest(m)); err != nil {
		return &exitError{code: exitFailed, err: err}
	}
	for _, line := range m.Input.Skipped {
		fmt.Fprintf(w.Stderr, "tokmark: left out %s:%d: %s\n", path, line.Line, line.Detail)
	}
	fmt.Fprintf(w.Stderr, "imported %d requests from %s (%s); it does not tell:\n", len(im.Records), path, m.Imported.Format)
	for _, what := range m.Imported.Missing {
		fmt.Fprintf(w.Stderr, "  - %s\n", what)
	}
	s, err := report.Load(dir, report.Options{})
	if err != nil {
		return err
	}
	if err := writeSummaries(dir, s, nil); err != nil {
		return err
	}
	if err := printReport(w.Stdout, s); err != nil {
		return err
	}
	fmt.Fprintf(w.Stderr, "run directory: %s\n", dir)
	return verdictError(s)
}

// decodeAnswer fills a record from the bytes of its answer, as a run does.
func decodeAnswer(r *record.Record, endpoint string, reads []interop.Read) {
	var answer openai.Answer
	answer.Reset(r, openai.EndpointType(endpoint), 0)
	defer answer.Close()
	if !r.Streaming {
		var body []byte
		for _, read := range reads {
			body = append(body, read.Data...)
		}
		if len(reads) > 0 {
			answer.Whole(body, reads[len(reads)-1].At, 0)
		}
		return
	}
	in := &readAgain{reads: reads}
	events := sse.NewReader(in, func() sse.Stamp { return sse.Stamp{At: int64(in.at)} }, 0)
	for {
		ev, err := events.Next()
		if err != nil {
			return // the end: reading from memory has no other
		}
		if ev.Unterminated {
			answer.Unterminated(ev.Name, ev.Data, record.Time(ev.At), 0, ev.SameRead)
			continue
		}
		if !answer.Event(ev.Name, ev.Data, record.Time(ev.At), 0, ev.SameRead) {
			return
		}
	}
}

// readAgain gives the reads of a connection once more.
type readAgain struct {
	reads []interop.Read
	at    record.Time // of the last one
}

func (a *readAgain) Read(p []byte) (int, error) {
	for len(a.reads) > 0 && len(a.reads[0].Data) == 0 {
		a.reads = a.reads[1:]
	}
	if len(a.reads) == 0 {
		return 0, io.EOF
	}
	n := copy(p, a.reads[0].Data)
	a.at, a.reads[0].Data = a.reads[0].At, a.reads[0].Data[n:]
	return n, nil
}
