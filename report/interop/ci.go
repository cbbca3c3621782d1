package interop

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/slo"
)

type suite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Time     string     `xml:"time,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Failure *problem `xml:"failure"`
	Skipped *problem `xml:"skipped"` // inconclusive
	Output  string   `xml:"system-out,omitempty"`
}

type problem struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// junit writes a test case for the verdict and one for each objective. What is
// inconclusive is an error, not a failure: nothing was shown.
func (src Source) junit(w io.Writer) error {
	s := src.Summary
	t := suite{Name: "tokmark " + plain(s.Manifest.ID), Time: "0"}
	if r, ok := s.Metric("benchmark_duration"); ok {
		t.Time = fmt.Sprintf("%.3f", r.Value)
	}
	verdict := testCase{Class: "tokmark", Name: "the result is valid", Output: plain(headline(s))}
	switch {
	case s.Counts.Valid == 0:
		verdict.Failure = &problem{Message: "no request succeeded", Text: plain(strings.Join(s.Verdict.Reasons, "\n"))}
	case s.Verdict.Level == report.Invalid:
		verdict.Failure = &problem{Message: "the result is invalid", Text: plain(strings.Join(s.Verdict.Reasons, "\n"))}
	}
	t.Cases = append(t.Cases, verdict)
	for _, o := range src.Objectives {
		c := testCase{Class: "tokmark.slo", Name: plain(o.Text)}
		text := "no value"
		if o.Value != nil {
			text = fmt.Sprintf("%g %s", *o.Value, o.Unit)
		}
		switch o.State {
		case slo.Fail:
			c.Failure = &problem{Message: text, Text: text + " does not meet " + plain(o.Text)}
		case slo.Inconclusive:
			c.Skipped = &problem{Message: "inconclusive: " + text + ": " + o.Reason}
		default:
			c.Output = text
		}
		t.Cases = append(t.Cases, c)
	}
	for _, c := range t.Cases {
		t.Tests++
		if c.Failure != nil {
			t.Failures++
		}
		if c.Skipped != nil {
			t.Skipped++
		}
	}
	b, err := xml.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, xml.Header+string(b)+"\n")
	return err
}

// headline is the run in one line.
func headline(s *report.Summary) string {
	parts := []string{fmt.Sprintf("%d of %d requests succeeded", s.Counts.Valid, s.Counts.Valid+s.Counts.Failed)}
	for _, tag := range []string{"time_to_first_token", "inter_token_latency", "request_latency"} {
		if r, ok := s.Metric(tag); ok {
			p50, _ := r.Statistic.Percentile(50)
			p99, _ := r.Statistic.Percentile(99)
			parts = append(parts, fmt.Sprintf("%s p50 %.2f, p99 %.2f %s", r.Label, p50, p99, r.Unit))
		}
	}
	if r, ok := s.Metric("output_token_throughput"); ok {
		parts = append(parts, fmt.Sprintf("%.1f %s", r.Value, r.Unit))
	}
	return strings.Join(parts, "; ")
}

// stepSummary writes Markdown for $GITHUB_STEP_SUMMARY.
func (src Source) stepSummary(w io.Writer) error {
	s := src.Summary
	var b strings.Builder
	mark := map[report.Level]string{report.Valid: "✅", report.Invalid: "❌"}[s.Verdict.Level]
	switch worst := slo.Worst(src.Objectives); {
	case worst == slo.Fail:
		mark = "❌"
	case mark == "", mark == "✅" && worst == slo.Inconclusive:
		mark = "⚠️"
	}
	fmt.Fprintf(&b, "### %s tokmark: %s, %s\n\n%s\n\n", mark, markdown(s.Manifest.Target.Model), s.Verdict.Level, markdown(headline(s)))
	for _, reason := range s.Verdict.Reasons {
		fmt.Fprintf(&b, "- %s\n", markdown(reason))
	}
	if len(s.Verdict.Reasons) > 0 {
		b.WriteString("\n")
	}
	if len(src.Objectives) > 0 {
		fmt.Fprintf(&b, "| objective | result | measured | margin |\n| --- | --- | --- | --- |\n")
		for _, o := range src.Objectives {
			value, margin := "", ""
			if o.Value != nil {
				value = fmt.Sprintf("%.4g %s", *o.Value, o.Unit)
			}
			if o.Margin != nil {
				margin = fmt.Sprintf("%+.1f %%", 100**o.Margin)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", markdown(o.Text), o.State, value, margin)
		}
		b.WriteString("\n")
	}
	b.WriteString("| metric | avg | p50 | p90 | p99 | count |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
	for _, tag := range []string{
		"time_to_first_token", "inter_token_latency", "inter_chunk_latency", "request_latency",
		"output_token_throughput_per_user", "output_sequence_length", "input_sequence_length",
	} {
		r, ok := s.Metric(tag)
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "| %s |", r.Name())
		for _, v := range []float64{r.Statistic.Avg, percentile(r, 50), percentile(r, 90), percentile(r, 99)} {
			fmt.Fprintf(&b, " %.2f |", v)
		}
		fmt.Fprintf(&b, " %d |\n", r.Statistic.Count)
	}
	for _, tag := range []string{"request_throughput", "output_token_throughput", "goodput", "request_error_rate"} {
		if r, ok := s.Metric(tag); ok {
			fmt.Fprintf(&b, "| %s | %.2f | | | | |\n", r.Name(), r.Value)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func percentile(r report.Result, p float64) float64 {
	v, _ := r.Statistic.Percentile(p)
	return v
}

// markdown makes a text of a server or user harmless: no markup, no HTML, one
// line.
func markdown(s string) string {
	var b strings.Builder
	for _, r := range plain(s) {
		switch {
		case r == '\n':
			b.WriteByte(' ')
		case r == '<':
			b.WriteString("&lt;")
		case r == '&':
			b.WriteString("&amp;")
		case strings.ContainsRune("\\`*_{}[]()#|~!@>", r):
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// plain takes control characters, and what turns the direction of text, out.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == utf8.RuneError, r == 0xfffe, r == 0xffff:
			return '·'
		}
		return r
	}, s)
}

// prometheus writes the figures as gauges and summaries in base units, for
// node_exporter's textfile collector.
func (src Source) prometheus(w io.Writer) error {
	s := src.Summary
	labels := fmt.Sprintf(`run="%s",model="%s"`, label(s.Manifest.ID), label(s.Manifest.Target.Model))
	var b strings.Builder
	for _, r := range s.Metrics {
		if r.Adjusted || r.Unit == "ns" {
			continue
		}
		name, scale := prometheusName(r.Metric)
		kind := "gauge"
		if r.Statistic != nil {
			kind = "summary"
		}
		fmt.Fprintf(&b, "# HELP %s %s: %s.\n# TYPE %s %s\n", name, r.Label, strings.NewReplacer(`\`, `\\`, "\n", " ").Replace(r.Formula), name, kind)
		if st := r.Statistic; st != nil {
			for _, p := range []float64{50, 90, 95, 99} {
				fmt.Fprintf(&b, "%s{%s,quantile=\"%g\"} %v\n", name, labels, p/100, prometheusNumber(percentile(r, p)*scale))
			}
			fmt.Fprintf(&b, "%s_sum{%s} %v\n%s_count{%s} %d\n", name, labels, prometheusNumber(st.Sum*scale), name, labels, st.Count)
			continue
		}
		fmt.Fprintf(&b, "%s{%s} %v\n", name, labels, prometheusNumber(r.Value*scale))
	}
	fmt.Fprintf(&b, "# HELP tokmark_verdict Whether the figures may be believed: 1 at the level that holds.\n# TYPE tokmark_verdict gauge\n")
	for _, level := range []report.Level{report.Valid, report.Suspect, report.Invalid} {
		is := 0
		if s.Verdict.Level == level {
			is = 1
		}
		fmt.Fprintf(&b, "tokmark_verdict{%s,level=\"%s\"} %d\n", labels, level, is)
	}
	if at := s.Manifest; at.MeasureEnd.IsSet() && !at.Origin.IsZero() {
		fmt.Fprintf(&b, "# HELP tokmark_run_end_timestamp_seconds When the measurement ended, since 1970.\n# TYPE tokmark_run_end_timestamp_seconds gauge\ntokmark_run_end_timestamp_seconds{%s} %.3f\n",
			labels, float64(at.Origin.UnixNano()+int64(at.MeasureEnd))/1e9)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// prometheusName is the name with its base unit, and the factor to that unit.
func prometheusName(m report.Metric) (string, float64) {
	name := "tokmark_" + m.Tag
	switch m.Unit {
	case "ms":
		return name + "_seconds", 1e-3
	case "sec":
		return name + "_seconds", 1
	case "ms/token":
		return name + "_seconds", 1e-3
	case "%":
		return name + "_ratio", 1e-2
	case "ratio":
		return name + "_ratio", 1
	case "tokens/sec", "tokens/sec/user":
		return name + "_tokens_per_second", 1
	case "requests/sec":
		return name + "_requests_per_second", 1
	case "tokens":
		if strings.HasSuffix(name, "_tokens") {
			return name, 1
		}
		return name + "_tokens", 1
	default:
		return name, 1
	}
}

func prometheusNumber(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	default:
		return fmt.Sprintf("%g", v)
	}
}

func label(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(plain(s))
}
