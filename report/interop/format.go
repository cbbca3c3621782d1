// Package interop speaks the file formats of other tools: it writes a run as
// their files, and reads their files as records.
//
// Layouts are those of AIPerf 0.13, GenAI-Perf (perf_analyzer 263c5f6), vLLM's
// and SGLang's serving benchmarks of 2026, HdrHistogram, JUnit and Prometheus.
package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/csv"
	"github.com/tokmark/tokmark/report/hdrlog"
	"github.com/tokmark/tokmark/report/like"
	"github.com/tokmark/tokmark/report/slo"
)

// Format is a way to write a run down.
type Format string

// The formats. A figure in a tool's file has that tool's definition.
const (
	AIPerf     Format = "aiperf"     // profile_export.jsonl, profile_export_aiperf.json and .csv
	GenAIPerf  Format = "genai-perf" // profile_export_genai_perf.json and .csv
	VLLM       Format = "vllm"       // the result JSON of vllm bench serve --save-result --save-detailed
	HDR        Format = "hdr"        // an HdrHistogram log, and percentiles as text by metric
	JUnit      Format = "junit"      // a test case for the verdict and each objective
	GitHub     Format = "github"     // Markdown for a step summary of GitHub Actions
	Prometheus Format = "prometheus" // text for node_exporter's textfile collector
)

// Formats lists all formats.
var Formats = []Format{AIPerf, GenAIPerf, VLLM, HDR, JUnit, GitHub, Prometheus}

// ParseFormat returns the format with the name.
func ParseFormat(name string) (Format, error) {
	names := make([]string, len(Formats))
	for i, f := range Formats {
		if string(f) == name {
			return f, nil
		}
		names[i] = string(f)
	}
	return "", fmt.Errorf("no format %q is known: use %s", name, strings.Join(names, ", "))
}

// Source is a run to be written.
type Source struct {
	Summary *report.Summary
	// Records yields the records of the run; it is called once for each file
	// that needs them, and lines that cannot be read are passed over.
	Records func() iter.Seq2[*record.Record, error]
	// Objectives are what the run was held against, if anything.
	Objectives []slo.Result
}

// File is one file of a format. Write may be called once, by one goroutine.
type File struct {
	Name  string
	Write func(io.Writer) error
}

// Files returns the files of a format, without having written any.
func Files(f Format, src Source) []File {
	switch f {
	case AIPerf:
		return []File{
			{"profile_export.jsonl", src.aiperfRecords},
			{"profile_export_aiperf.json", src.aiperfStatistics},
			{"profile_export_aiperf.csv", func(w io.Writer) error { return csv.Write(w, src.Summary) }},
		}
	case GenAIPerf:
		return []File{
			{"profile_export_genai_perf.json", src.genaiPerfJSON},
			{"profile_export_genai_perf.csv", src.genaiPerfCSV},
		}
	case VLLM:
		return []File{{"vllm-result.json", src.vllm}}
	case HDR:
		files := []File{{"hdr.hlog", func(w io.Writer) error { return hdrlog.Write(w, src.Summary) }}}
		for _, h := range src.Summary.Histograms {
			files = append(files, File{"percentiles-" + strings.ToLower(h.Tag) + ".txt", func(w io.Writer) error { return src.percentiles(w, h.Tag) }})
		}
		return files
	case JUnit:
		return []File{{"junit.xml", src.junit}}
	case GitHub:
		return []File{{"step-summary.md", src.stepSummary}}
	case Prometheus:
		return []File{{"tokmark.prom", src.prometheus}}
	default:
		return nil
	}
}

// like shows the run like another tool.
func (src Source) like(tool like.Tool) (*like.View, error) {
	run, err := like.New(src.Summary.Manifest, src.Records())
	if err != nil {
		return nil, err
	}
	return run.As(tool), nil
}

// each calls do with every record that can be read.
func (src Source) each(do func(*record.Record) error) error {
	for r, err := range src.Records() {
		var damaged *record.LineError
		switch {
		case errors.As(err, &damaged):
		case err != nil:
			return err
		default:
			if err := do(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// object is a JSON object that keeps the order of its fields.
type object []field

type field struct {
	key   string
	value any
}

// MarshalJSON writes the fields in order.
func (o object) MarshalJSON() ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			buf.WriteByte(',')
		}
		buf.WriteString(strconv.Quote(f.key) + ":") // keys are ASCII of ours
		v, err := marshal(f.value, "")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.key, err)
		}
		buf.Write(bytes.TrimSuffix(v, []byte("\n")))
	}
	buf.WriteByte('}')
	return buf.Bytes(), nil
}

// marshal is json.Marshal without the escapes for HTML, and with a line end.
func marshal(v any, indent string) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return buf.Bytes(), err
}

func writeJSON(w io.Writer, v any, indent string) error {
	b, err := marshal(v, indent)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}
