package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Input is a format that can be read.
type Input string

// The formats that can be read.
const (
	PerfAnalyzer  Input = "perf-analyzer"  // perf_analyzer's raw profile_export.json
	AIPerfRecords Input = "aiperf-records" // AIPerf's profile_export.jsonl
	AIPerfRaw     Input = "aiperf-raw"     // AIPerf's profile_export_raw.jsonl
	VLLMResult    Input = "vllm"           // result JSON of vllm bench serve with --save-detailed
	SGLangResult  Input = "sglang"         // result line of bench_serving with --output-details
	Offline       Input = "offline"        // our neutral JSONL, see offlineLine
)

// Inputs lists all of them.
var Inputs = []Input{PerfAnalyzer, AIPerfRecords, AIPerfRaw, VLLMResult, SGLangResult, Offline}

// ParseInput returns the input format with the name.
func ParseInput(name string) (Input, error) {
	if f := Input(name); slices.Contains(Inputs, f) {
		return f, nil
	}
	return "", fmt.Errorf("no format %q is known: use %s", name, inputNames())
}

func inputNames() string {
	names := make([]string, len(Inputs))
	for i, f := range Inputs {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

// Read is what one read of a connection brought, or one message of a stream
// with its framing.
type Read struct {
	At   record.Time
	Data []byte
}

// ImportOptions say how to read a file.
type ImportOptions struct {
	// Format is that of the file; empty: found by its content.
	Format Input
	// SkipBadLines leaves lines that cannot be used out, and tells of them,
	// instead of failing.
	SkipBadLines bool
	// Decode fills a record from the bytes of its answer: a stream, or if
	// r.Streaming is false a body. endpoint is chat or completions. Formats that
	// hold bytes need it; it is called by one goroutine.
	Decode func(r *record.Record, endpoint string, reads []Read)
}

// Imported is a run from a file.
type Imported struct {
	// Manifest tells what the file does: what it does not is in its Imported
	// part. The caller adds the tool and the command.
	Manifest *record.Manifest
	Records  []*record.Record // in the order of their starts
}

// Import reads the file of another tool. name stands in errors and in the
// manifest. Lines that cannot be used are told with file and line, all at once.
func Import(in io.Reader, name string, opt ImportOptions) (*Imported, error) {
	buffered := bufio.NewReaderSize(in, 1<<16)
	format := opt.Format
	if format == "" {
		var err error
		if format, err = detect(buffered, name); err != nil {
			return nil, err
		}
	}
	im := &importer{
		name: name, opt: opt, missing: map[string]bool{},
		m: &record.Manifest{
			Schema: record.ManifestSchema, ID: strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)),
			MeasureStart: record.Unset, MeasureEnd: record.Unset, Outcome: record.RunCompleted,
			Imported: &record.Import{File: filepath.Base(name), Format: string(format)},
			Input:    &record.Input{File: filepath.Base(name), Format: string(format)},
		},
	}
	var err error
	switch format {
	case PerfAnalyzer:
		err = im.perfAnalyzer(buffered)
	case AIPerfRecords:
		err = im.lines(buffered, im.aiperfRecord)
		im.reasoningOnly()
	case AIPerfRaw:
		err = im.lines(buffered, im.aiperfRaw)
	case VLLMResult, SGLangResult:
		err = im.serving(buffered, format)
	case Offline:
		err = im.lines(buffered, im.offline)
	}
	if err != nil {
		return nil, err
	}
	return im.finish()
}

// detect finds the format by the names at the beginning of the file.
func detect(in *bufio.Reader, name string) (Input, error) {
	head, err := in.Peek(in.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("import %s: %w", name, err)
	}
	if len(bytes.TrimSpace(head)) == 0 {
		return "", fmt.Errorf("import %s: the file is empty", name)
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(head), []byte("\n"))
	has := func(in []byte, key string) bool { return bytes.Contains(in, []byte(`"`+key+`"`)) }
	switch {
	case has(head, "experiments"):
		return PerfAnalyzer, nil
	case has(line, "metadata") && has(line, "request_start_ns") && (has(line, "start_perf_ns") || has(line, "responses")):
		return AIPerfRaw, nil
	case has(line, "metadata") && has(line, "request_start_ns"):
		return AIPerfRecords, nil
	case has(line, "start_ns") || has(line, "start_s") || has(line, "tokmark_offline"):
		return Offline, nil
	case has(head, "mean_e2e_latency_ms") || has(head, "sharegpt_output_len"):
		return SGLangResult, nil
	case has(head, "num_prompts") || has(head, "mean_ttft_ms") || has(head, "endpoint_type"):
		return VLLMResult, nil
	}
	return "", fmt.Errorf("import %s: the format is not known by its content: give --format, one of %s", name, inputNames())
}

// importer collects the records of a file. Their times are in nanoseconds on
// the file's own clock until finish.
type importer struct {
	name    string
	opt     ImportOptions
	m       *record.Manifest
	records []*record.Record
	wall    bool // the file's clock counts from 1970
	missing map[string]bool
	bad     []error
	line    int
	// answers: some request has a time to its first output token; unanswered
	// are those that have none.
	answers    bool
	unanswered []*record.Record
}

const mostFaults = 20 // lines that an error names

// lines reads a file with one JSON object a line.
func (im *importer) lines(in *bufio.Reader, use func(line []byte) error) error {
	for over := false; !over; {
		im.line++
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			over = true
		case err != nil:
			return fmt.Errorf("import %s:%d: %w", im.name, im.line, err)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := use(line); err != nil {
			im.fault(err)
		}
	}
	return nil
}

// fault keeps what is wrong with a line.
func (im *importer) fault(err error) {
	var syntax *json.SyntaxError
	reason := "bad_value"
	if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) {
		reason = "no_json"
	}
	im.bad = append(im.bad, fmt.Errorf("%s:%d: %w", im.name, im.line, err))
	im.m.Input.Skipped = append(im.m.Input.Skipped, record.SkippedLine{Line: im.line, Reason: reason, Detail: err.Error()})
}

// lacks notes what the file does not tell.
func (im *importer) lacks(what string) { im.missing[what] = true }

// add takes a record whose times are on the file's clock.
func (im *importer) add(r *record.Record) {
	r.ID = int64(len(im.records))
	im.records = append(im.records, r)
}

func (im *importer) finish() (*Imported, error) {
	if len(im.bad) > 0 && !im.opt.SkipBadLines {
		shown := im.bad[:min(len(im.bad), mostFaults)]
		if more := len(im.bad) - len(shown); more > 0 {
			shown = append(slices.Clone(shown), fmt.Errorf("and %d lines more", more))
		}
		return nil, fmt.Errorf("import %s: lines that cannot be used (--skip-bad-lines leaves them out):\n%w", im.name, errors.Join(shown...))
	}
	if len(im.records) == 0 {
		return nil, fmt.Errorf("import %s: it holds no request", im.name)
	}
	m := im.m
	base := im.records[0].Start
	for _, r := range im.records {
		if base = min(base, r.Start); r.Due.IsSet() {
			base = min(base, r.Due)
		}
	}
	if im.wall {
		m.Origin = time.Unix(0, int64(base)).UTC()
	} else {
		im.lacks("the wall time of the run")
	}
	for _, r := range im.records {
		rebase(r, base)
	}
	slices.SortStableFunc(im.records, func(a, b *record.Record) int { return int(min(max(a.Start-b.Start, -1), 1)) })
	var starts, ends []record.Time
	models := map[string]bool{m.Target.Model: true}
	for _, r := range im.records {
		if r.Model != "" && !models[r.Model] {
			models[r.Model] = true
			if m.Target.Model != "" {
				m.Target.Model += ", "
			}
			m.Target.Model += r.Model
		}
		m.Target.Streaming = m.Target.Streaming || r.Streamed
		if r.Phase != record.PhaseMeasure {
			m.Load.Warmup++
			continue
		}
		m.Sent++
		m.MeasureEnd = max(m.MeasureEnd, r.Start)
		if !m.MeasureStart.IsSet() {
			m.MeasureStart = r.Start
		}
		starts, ends = append(starts, r.Start), append(ends, max(r.End, r.Start))
	}
	m.MaxInFlight = mostInFlight(starts, ends)
	m.Load.Requests = m.Sent
	m.Input.Usable = len(im.records)
	if m.Workload == "" {
		m.Workload = fmt.Sprintf("%d requests imported from %s", len(im.records), m.Imported.File)
	}
	im.lacks("how the client fared: nothing says whether it was the limit")
	for what := range im.missing {
		m.Imported.Missing = append(m.Imported.Missing, what)
	}
	slices.Sort(m.Imported.Missing)
	return &Imported{Manifest: m, Records: im.records}, nil
}

// rebase takes times to offsets from base.
func rebase(r *record.Record, base record.Time) {
	for _, t := range []*record.Time{&r.Due, &r.Start, &r.Written, &r.FirstByte, &r.FirstComment, &r.FirstEvent, &r.End} {
		if t.IsSet() {
			*t -= base
		}
	}
	for i := range r.Chunks {
		r.Chunks[i].At -= base
	}
}

func mostInFlight(starts, ends []record.Time) int64 {
	slices.Sort(starts)
	slices.Sort(ends)
	most, over := 0, 0
	for i, s := range starts {
		for over < len(ends) && ends[over] <= s {
			over++
		}
		most = max(most, i+1-over)
	}
	return int64(most)
}

// received is the record of an answer that the tool took for complete.
func received(r *record.Record, at []record.Time, streamed bool) {
	r.Outcome, r.Done = record.OK, true
	r.Streaming, r.Streamed = streamed, streamed
	for _, t := range at {
		r.Chunks = append(r.Chunks, record.Chunk{At: t, Tokens: record.UnknownTokens, Kind: record.KindText})
	}
	if len(at) > 0 && r.End < at[len(at)-1] {
		r.End = at[len(at)-1]
	}
	r.Events, r.FirstTokenEvent, r.FirstAnswerEvent, r.LastTokenEvent = 0, 0, 0, max(0, len(at)-1)
	if streamed {
		r.Events = len(at)
	}
}

func unknownTokens() record.Tokens { return record.New("", 0).Tokens }
