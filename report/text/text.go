// Package text renders a summary for a terminal: plain text, at most 100
// columns, without colour.
package text

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	pretty "github.com/jedib0t/go-pretty/v6/text"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/phrase"
)

// Width is the most columns that a line takes.
const Width = 100

// nameWidth is the width of the first column of the table of distributions:
// what ten columns of figures leave.
const nameWidth = 33

// shownPercents are the percentiles in the table.
var shownPercents = []float64{50, 90, 95, 99, 99.9}

// Write writes the report. Control characters and the like in what a server or
// a user said are replaced, and long texts cut. The same summary gives the same
// bytes.
func Write(w io.Writer, s *report.Summary) error {
	var p page
	p.head(s)
	p.distributions(s)
	p.totals(s)
	p.intervals(s)
	p.window(s)
	p.waterfall(s)
	p.groups(s)
	p.load(s)
	p.cache(s)
	p.events(s)
	p.server(s)
	p.structure(s)
	p.client(s)
	p.selfTest(s)
	p.outcomes(s)
	p.warnings(s)
	p.verdict(s)
	if _, err := w.Write(p.buf.Bytes()); err != nil {
		return fmt.Errorf("write text report: %w", err)
	}
	return nil
}

type page struct{ buf bytes.Buffer }

// title starts a part of the report.
func (p *page) title(s string) { fmt.Fprintf(&p.buf, "\n%s\n", s) }

// sentence writes a part that is one sentence: "TITLE: text".
func (p *page) sentence(title, s string) {
	p.buf.WriteByte('\n')
	p.paragraph(title + ": " + s)
}

// paragraph writes wrapped text, its lines after the first indented.
func (p *page) paragraph(s string) {
	for i, line := range wrap(s, Width-2) {
		if i > 0 {
			p.buf.WriteString("  ")
		}
		p.buf.WriteString(line + "\n")
	}
}

// item writes "  key  text", the text wrapped beside the key.
func (p *page) item(key string, keyWidth int, s string) {
	left := keyWidth + 4
	for i, line := range wrap(s, Width-left) {
		if i > 0 {
			key = ""
		}
		line = "  " + pretty.Pad(key, keyWidth, ' ') + "  " + line
		p.buf.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func (p *page) head(s *report.Summary) {
	m := s.Manifest
	const key = 8
	fmt.Fprintf(&p.buf, "tokmark %s\n", clean(m.ID, 60))
	model := clean(m.Target.Model, 160)
	if m.Target.Simulated {
		model += " (simulated by tokmark)"
	}
	verdict := string(s.Verdict.Level)
	switch n := len(s.Verdict.Reasons); {
	case n == 1:
		verdict += ": " + clean(s.Verdict.Reasons[0], 400)
	case n > 1:
		verdict += fmt.Sprintf(" for %d reasons, the first: %s", n, clean(s.Verdict.Reasons[0], 400))
	}
	if more := phrase.Headroom(s.Verdict); more != "" {
		verdict += "; " + more
	}
	p.item("verdict", key, verdict)
	p.item("model", key, model)
	answers := "whole answers"
	if m.Target.Streaming {
		answers = "streamed answers"
	}
	if m.Target.EndpointType != "" {
		answers = clean(m.Target.EndpointType, 40) + ", " + answers
	}
	p.item("server", key, clean(m.Target.Address(), 200)+" ("+answers+")")
	if m.Workload != "" {
		p.item("workload", key, clean(phrase.Workload(m), 300))
	}
	p.item("load", key, phrase.Load(m.Load, number))
	p.item("tokens", key, phrase.Tokens(s))
}

// newTable returns a table without borders whose cells stand one blank apart.
func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.Options{SeparateHeader: true}
	style.Format.Header = pretty.FormatDefault
	style.Box.PaddingLeft = ""
	style.Box.PaddingRight = " "
	style.Box.MiddleHorizontal = "-"
	t.SetStyle(style)
	return t
}

func (p *page) render(t table.Writer) {
	for line := range strings.Lines(t.Render()) {
		p.buf.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// left out of the terminal: it is in the files.
func hidden(m report.Metric) bool {
	switch m.Tag {
	case "decode_duration", "output_token_count", "prefill_throughput_per_user",
		"min_request_timestamp", "max_response_timestamp", "completed_request_count",
		"total_output_tokens", "total_reasoning_tokens", "total_isl", "total_osl":
		return true
	}
	return m.Adjusted || strings.HasPrefix(m.Tag, "usage_")
}

// repeats reports whether a row would only say what another one says: the
// first answer token where nothing else comes before it, no reasoning at all,
// uncached tokens where none is cached.
func repeats(s *report.Summary, r report.Result) bool {
	switch r.Tag {
	case "reasoning_token_count":
		return r.Statistic.Max == 0
	case "ttft_per_uncached_token":
		return s.Cache == nil || s.Cache.HitRate == nil || *s.Cache.HitRate == 0
	case "time_to_first_output_token":
		ttft, ok := s.Metric("time_to_first_token")
		return ok && ttft.Statistic != nil && ttft.Statistic.Sum == r.Statistic.Sum && ttft.Statistic.Count == r.Statistic.Count
	}
	return false
}

func (p *page) distributions(s *report.Summary) {
	t := newTable()
	header := make(table.Row, 0, 11)
	header = append(header, "metric", "avg", "min")
	for _, percent := range shownPercents {
		header = append(header, "p"+strconv.FormatFloat(percent, 'g', -1, 64))
	}
	header = append(header, "max", "std", "count")
	t.AppendHeader(header)
	configs := []table.ColumnConfig{{Number: 1}}
	for n := 2; n <= len(header); n++ {
		configs = append(configs, table.ColumnConfig{Number: n, Align: pretty.AlignRight, AlignHeader: pretty.AlignRight})
	}
	t.SetColumnConfigs(configs)
	few := false
	var shown []report.Metric
	var same []string
	for _, r := range s.Metrics {
		if r.Statistic == nil || hidden(r.Metric) || repeats(s, r) {
			continue
		}
		shown = append(shown, r.Metric)
		st := r.Statistic
		if r.Unit == "tokens" && st.Count > 1 && st.Min == st.Max {
			same = append(same, r.Label+" "+figure(st.Min))
			continue
		}
		name := r.Name()
		if len(name) > nameWidth {
			name = r.Label + "\n(" + r.Unit + ")"
		}
		if len(r.Label) > nameWidth {
			name = strings.Join(wrap(r.Name(), nameWidth), "\n")
		}
		row := make(table.Row, 0, len(header))
		row = append(row, name, figure(st.Avg), figure(st.Min))
		for _, percent := range shownPercents {
			v, _ := st.Percentile(percent)
			cell := figure(v)
			if st.Few(percent) {
				cell += "*"
				few = true
			}
			row = append(row, cell)
		}
		t.AppendRow(append(row, figure(st.Max), figure(st.Std), figure(float64(st.Count))))
	}
	if shown == nil {
		return
	}
	p.title("DISTRIBUTIONS")
	p.render(t)
	if few {
		p.buf.WriteString("* fewer than ten values lie beyond this percentile: it rests on chance.\n")
	}
	if same != nil {
		p.paragraph("The same for all requests: " + strings.Join(same, ", ") + ".")
	}
	p.formulas(shown)
}

// formulas writes how the metrics are computed, one after the other.
func (p *page) formulas(metrics []report.Metric) {
	parts := []string{"s: start of a request; c1, c2, cn: its first, second, last event with output; OSL: output tokens"}
	for _, m := range metrics {
		parts = append(parts, m.Label+" = "+m.Formula)
	}
	p.paragraph(strings.Join(parts, "; ") + ".")
}

func (p *page) totals(s *report.Summary) {
	t := newTable()
	t.AppendHeader(table.Row{"metric", "value", "formula"})
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: pretty.AlignRight, AlignHeader: pretty.AlignRight}})
	for _, r := range s.Metrics {
		if r.Statistic != nil || hidden(r.Metric) || r.Value == 0 && !r.LargerIsBetter {
			continue // no errors: the outcomes say so
		}
		v := figure(r.Value)
		if r.Integer {
			v = strconv.FormatInt(r.Whole, 10)
		}
		t.AppendRow(table.Row{r.Name(), v, strings.Join(wrap(r.Formula, 55), "\n")})
	}
	if t.Length() > 0 {
		p.title("WHOLE RUN")
		p.render(t)
	}
}

func (p *page) load(s *report.Summary) {
	p.title("LOAD, ASKED AND ACHIEVED")
	const key = blockKey
	l := s.Load
	if l.Asked.Rate > 0 || l.ScheduledRate != nil && l.OpenLoop {
		text := "scheduled " + orUnknown(l.ScheduledRate) + ", achieved " + orUnknown(l.AchievedRate) + " requests/s"
		if l.Asked.Rate > 0 {
			text = "asked " + figure(l.Asked.Rate) + ", " + text
		}
		p.item("rate", key, text)
	}
	cap := "no cap"
	if l.Asked.Concurrency > 0 {
		cap = strconv.Itoa(l.Asked.Concurrency)
	}
	inFlight := "asked " + cap + ", most " + orUnknown(positive(float64(l.MaxInFlight))) + ", mean " + orUnknown(l.MeanInFlight)
	if steady := s.Client.InFlight; steady != nil {
		inFlight += ", without ramp and tail " + figure(*steady)
	}
	p.item("in flight", key, inFlight)
	if l.Shifted > 0 {
		p.item("put off", key, phrase.Shifted(l))
	}
	if l.Held != nil {
		p.item("held back", key, phrase.Held(l.Held))
	}
	text := fmt.Sprintf("%d sent, %d valid", l.Sent, s.Counts.Valid)
	for _, c := range []struct {
		n    int64
		what string
	}{
		{s.Counts.Failed, "failed"}, {s.Counts.Cancelled, "cancelled"}, {s.Counts.Unsent, "not sent"},
		{s.Counts.Excluded, "past duration and grace (left out)"}, {s.Counts.Warmup, "for warmup"},
	} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	if c := s.Connections; c.New+c.Reused > 0 {
		text += fmt.Sprintf("; %d new connections, %d reused", c.New, c.Reused)
	}
	p.item("requests", key, text)
	p.lengths(s)
	if f := s.First; f != nil {
		text := "latency " + orUnknown(f.Latency) + " ms"
		if f.TTFT != nil {
			text = "first token after " + figure(*f.TTFT) + " ms, " + text
		}
		p.item("first answer", key, text+" ("+string(f.Phase)+")")
	}
}

func (p *page) outcomes(s *report.Summary) {
	if len(s.Outcomes) == 1 && s.Outcomes[0].Outcome == record.OK {
		p.sentence("OUTCOMES", fmt.Sprintf("%d ok (100 %%)", s.Outcomes[0].Count))
		return
	}
	if len(s.Outcomes) == 0 {
		return
	}
	p.title("OUTCOMES")
	for _, o := range s.Outcomes {
		text := fmt.Sprintf("%d (%s %%)", o.Count, figure(100*o.Share))
		if o.Example != "" {
			text += "  e.g. " + clean(o.Example, 240)
		}
		p.item(string(o.Outcome), 18, text)
	}
}

func (p *page) warnings(s *report.Summary) {
	if len(s.Warnings) == 0 {
		return
	}
	p.title("WARNINGS")
	for _, w := range s.Warnings {
		p.item(w.Code, 21, clean(w.Message+" "+w.Advice, 900))
	}
}

func (p *page) verdict(s *report.Summary) {
	p.title("VERDICT: " + string(s.Verdict.Level))
	for _, reason := range s.Verdict.Reasons {
		p.item("-", 1, clean(reason, 600))
	}
	if more := phrase.Headroom(s.Verdict); more != "" {
		p.item("-", 1, more)
	}
}

func positive(v float64) *float64 {
	if v > 0 {
		return &v
	}
	return nil
}

func orUnknown(v *float64) string {
	if v == nil {
		return "unknown"
	}
	return figure(*v)
}

// number is figure, but for whole numbers, which stand as they are.
func number(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return figure(v)
}

// figure writes a number in at most five columns with three or four digits
// that count.
func figure(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "-"
	case a == 0:
		return "0"
	case a < 0.0005:
		return strings.Replace(strconv.FormatFloat(v, 'e', 0, 64), "e-0", "e-", 1)
	case a == math.Trunc(a) && a < 1e5:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a < 9.9995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 99.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 999.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a < 99999.5:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	for _, unit := range []string{"k", "M", "G"} {
		a, v = a/1e3, v/1e3
		switch {
		case a < 9.995:
			return strconv.FormatFloat(v, 'f', 2, 64) + unit
		case a < 99.95:
			return strconv.FormatFloat(v, 'f', 1, 64) + unit
		case a < 999.5:
			return strconv.FormatFloat(v, 'f', 0, 64) + unit
		}
	}
	return strings.Replace(strconv.FormatFloat(v, 'e', 0, 64), "e+", "e", 1)
}

// clean makes text of others fit for a terminal: one line, nothing that steers
// it or turns it round, at most limit columns.
func clean(s string, limit int) string {
	var b strings.Builder
	width := 0
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = '?'
		}
		if width += max(pretty.RuneWidth(r), 0); width > limit {
			return b.String() + "..."
		}
		b.WriteRune(r)
	}
	return b.String()
}

// wrap breaks text at blanks into lines of at most width columns; a longer
// word is broken anywhere.
func wrap(s string, width int) []string {
	var lines []string
	line, used := "", 0
	for _, word := range strings.Fields(s) {
		w := pretty.StringWidth(word)
		if used > 0 && used+1+w > width {
			lines, line, used = append(lines, line), "", 0
		}
		if used > 0 {
			line, used = line+" ", used+1
		}
		for _, r := range word {
			if rw := max(pretty.RuneWidth(r), 0); used+rw > width {
				lines, line, used = append(lines, line), string(r), rw
			} else {
				line, used = line+string(r), used+rw
			}
		}
	}
	return append(lines, line)
}
