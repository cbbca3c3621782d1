package interop

import (
	"bytes"
	stdcsv "encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/report/like"
	"github.com/tokmark/tokmark/report/stats"
)

// genaiPerfOrder is the order of the sections of GenAI-Perf's JSON.
var genaiPerfOrder = []string{
	"request_throughput", "request_latency", "request_goodput", "request_count", "time_to_first_token",
	"time_to_second_token", "inter_token_latency", "output_token_throughput", "output_token_throughput_per_user",
	"output_sequence_length", "input_sequence_length",
}

func (src Source) genaiPerfJSON(w io.Writer) error {
	view, err := src.like(like.GenAIPerf)
	if err != nil {
		return err
	}
	var o object
	for _, name := range genaiPerfOrder {
		f, ok := view.Figure(name)
		if !ok {
			continue
		}
		section := object{{"unit", f.Unit}, {"avg", f.Avg()}}
		if st := f.Statistic; st != nil {
			add := func(key string, v float64) { section = append(section, field{key, v}) }
			addPercentiles(st, add)
			add("min", st.Min)
			add("max", st.Max)
			add("std", st.Std)
		}
		o = append(o, field{name, section})
	}
	m := src.Summary.Manifest
	o = append(o, field{"input_config", object{
		{"model_names", []string{m.Target.Model}},
		{"endpoint", object{{"type", m.Target.EndpointType}, {"streaming", m.Target.Streaming}, {"url", m.Target.URL}}},
		{"subcommand", "profile"},
	}})
	return writeJSON(w, o, "  ")
}

// genaiPerfCSV writes two sections, in the order and with the numbers of
// GenAI-Perf: two decimals, and commas between thousands.
func (src Source) genaiPerfCSV(w io.Writer) error {
	view, err := src.like(like.GenAIPerf)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	out := stdcsv.NewWriter(&buf)
	out.UseCRLF = true
	percents := []float64{99, 95, 90, 75, 50, 25, 10, 5, 1}
	head := []string{"Metric", "avg", "min", "max"}
	for _, p := range percents {
		head = append(head, "p"+strconv.FormatFloat(p, 'g', -1, 64))
	}
	rows := [][]string{head}
	for _, name := range []string{
		"time_to_first_token", "time_to_second_token", "request_latency", "inter_token_latency",
		"output_token_throughput_per_user", "output_sequence_length", "input_sequence_length",
	} {
		f, ok := view.Figure(name)
		if !ok || f.Statistic == nil {
			continue
		}
		row := []string{genaiPerfLabel(f), thousands(f.Statistic.Avg), thousands(f.Statistic.Min), thousands(f.Statistic.Max)}
		for _, p := range percents {
			row = append(row, thousands(f.Statistic.Percentiles[slices.Index(stats.Percents[:], p)]))
		}
		rows = append(rows, row)
	}
	if err := out.WriteAll(rows); err != nil {
		return err
	}
	buf.WriteString("\r\n")
	rows = [][]string{{"Metric", "Value"}}
	for _, name := range []string{"output_token_throughput", "request_throughput", "request_goodput", "request_count"} {
		if f, ok := view.Figure(name); ok {
			rows = append(rows, []string{genaiPerfLabel(f), thousands(f.Value)})
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return err
	}
	_, err = w.Write(buf.Bytes())
	return err
}

func genaiPerfLabel(f like.Figure) string {
	words := strings.Split(f.Name, "_")
	for i, word := range words {
		words[i] = strings.ToUpper(word[:1]) + word[1:]
	}
	unit := f.Unit
	if unit == "requests/sec" {
		unit = "per sec"
	}
	return strings.Join(words, " ") + " (" + unit + ")"
}

// thousands is v with two decimals and commas between thousands.
func thousands(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	whole, rest, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return sign + whole + "." + rest
}
