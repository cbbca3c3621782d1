// Package markdown renders a summary as the block to paste in a post or a pull
// request: what was measured, under which conditions, with which command, and
// whether it may be believed.
//
// What a server or a user said stands in code spans, where markup, mentions
// and links mean nothing.
package markdown

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/phrase"
	"github.com/tokmark/tokmark/report/slo"
)

// Options say what stands in the block beside the summary.
type Options struct {
	// Capsule is the hash of a capsule with which the run can be repeated;
	// empty: there is none.
	Capsule string
	// Objectives are what the run was held against, if anything.
	Objectives []slo.Result
}

// Write writes the block in GitHub's Markdown. The same summary gives the same
// bytes.
func Write(w io.Writer, s *report.Summary, opt Options) error {
	var buf bytes.Buffer
	m := s.Manifest
	fmt.Fprintf(&buf, "### %s\n\n", code(m.Target.Model, "unknown model"))
	fmt.Fprintf(&buf, "**Verdict: %s.** %s\n", s.Verdict.Level, meaning[s.Verdict.Level])
	for _, reason := range s.Verdict.Reasons {
		fmt.Fprintf(&buf, "- %s\n", prose(reason))
	}
	if more := phrase.Headroom(s.Verdict); more != "" {
		fmt.Fprintf(&buf, "- %s\n", more)
	}
	headlines(&buf, s)
	objectives(&buf, opt.Objectives)
	distributions(&buf, s)
	conditions(&buf, s)
	command(&buf, m)
	var last []string
	last = append(last, prose(phrase.Tool(m.Tool)), "run "+code(m.ID, "?"))
	if m.WorkloadHash != "" {
		last = append(last, "workload "+code(m.WorkloadHash, ""))
	}
	if opt.Capsule != "" {
		last = append(last, "capsule "+code(opt.Capsule, ""))
	}
	fmt.Fprintf(&buf, "\n%s\n", strings.Join(last, " · "))
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write Markdown report: %w", err)
	}
	return nil
}

var meaning = map[report.Level]string{
	report.Valid:   "Nothing was found that would spoil the numbers.",
	report.Suspect: "Something touches the numbers:",
	report.Invalid: "The numbers do not say what was asked:",
}

// objectives is the table of what the run was held against.
func objectives(buf *bytes.Buffer, results []slo.Result) {
	if len(results) == 0 {
		return
	}
	fmt.Fprintf(buf, "\n**Objectives: %s**\n\n| objective | result | measured | interval | margin |\n|:--|:--|--:|--:|--:|\n", slo.Worst(results))
	for _, r := range results {
		measured, interval, margin := r.Words()
		fmt.Fprintf(buf, "| %s | %s | %s | %s | %s |\n", prose(r.Text), r.State, measured, prose(interval), margin)
	}
	for _, r := range results {
		if r.Reason != "" {
			fmt.Fprintf(buf, "\n%s: %s.\n", prose(r.Text), prose(r.Reason))
		}
	}
}

// headlines is the table of rates.
func headlines(buf *bytes.Buffer, s *report.Summary) {
	var rows []string
	for _, h := range phrase.Headlines(s) {
		if h.Percent > 0 {
			continue // it is in the table of distributions
		}
		rows = append(rows, fmt.Sprintf("| %s | %s |", h.Metric.Label, strings.TrimSpace(phrase.Figure(h.Value)+" "+h.UnitText())))
	}
	if d, ok := s.Metric("benchmark_duration"); ok {
		rows = append(rows, fmt.Sprintf("| %s | %s s |", d.Label, phrase.Figure(d.Value)))
	}
	rows = append(rows, fmt.Sprintf("| Requests | %s valid, %s failed |", phrase.Figure(float64(s.Counts.Valid)), phrase.Figure(float64(s.Counts.Failed))))
	fmt.Fprintf(buf, "\n| metric | value |\n|:--|--:|\n%s\n", strings.Join(rows, "\n"))
}

// quoted are the distributions that a run is quoted by.
var quoted = []string{
	"time_to_first_token", "inter_token_latency", "inter_chunk_latency", "request_latency", "request_latency_from_due",
	"output_token_throughput_per_user", "input_sequence_length", "output_sequence_length",
}

// withInterval are those whose percentiles stand with their intervals; the
// files have more.
var withInterval = []string{"time_to_first_token", "inter_token_latency", "request_latency"}

func distributions(buf *bytes.Buffer, s *report.Summary) {
	percents := []float64{50, 90, 99}
	few, bounded := false, false
	var rows []string
	for _, tag := range quoted {
		r, ok := s.Metric(tag)
		if !ok {
			continue
		}
		row := "| " + r.Label + " (" + phrase.Unit(r.Unit) + ") | " + phrase.Figure(r.Statistic.Avg)
		for _, p := range percents {
			v, _ := r.Statistic.Percentile(p)
			row += " | " + phrase.Figure(v)
			if r.Statistic.Few(p) {
				row += `\*`
				few = true
			}
			if of := r.Interval(p); of.Known() && slices.Contains(withInterval, tag) {
				row += " [" + phrase.Maybe(of.Low) + ", " + phrase.Maybe(of.High) + "]"
				bounded = true
			}
		}
		rows = append(rows, row+" | "+phrase.Figure(float64(r.Statistic.Count))+" |")
	}
	if rows == nil {
		return
	}
	fmt.Fprintf(buf, "\n| metric | avg | p50 | p90 | p99 | count |\n|:--|--:|--:|--:|--:|--:|\n%s\n", strings.Join(rows, "\n"))
	if few {
		buf.WriteString("\n\\* fewer than ten values lie beyond this percentile: it rests on chance.\n")
	}
	if bounded {
		fmt.Fprintf(buf, "\n\\[low, high\\]: %s interval of the percentile, of order statistics or, where neighbouring requests are alike, of a block bootstrap; %s: too few values to tell.\n", phrase.Share(report.IntervalLevel), phrase.Unknown)
	}
}

func conditions(buf *bytes.Buffer, s *report.Summary) {
	m := s.Manifest
	fmt.Fprintf(buf, "\n**Conditions**\n\n")
	server := code(m.Target.Address(), "?")
	if m.Target.Simulated {
		server += " (simulated by tokmark)"
	}
	item := func(name, text string) { fmt.Fprintf(buf, "- %s: %s\n", name, text) }
	item("server", server)
	answers := "whole answers"
	if m.Target.Streaming {
		answers = "streamed answers"
	}
	item("endpoint", code(m.Target.EndpointType, "?")+", "+answers)
	if m.Workload != "" {
		item("workload", code(phrase.Workload(m), ""))
	}
	item("load", prose(phrase.Load(m.Load, phrase.Figure)))
	item("tokens", phrase.Tokens(s))
	if c := s.Cache; c != nil && (c.HitRate != nil || c.Mode != "") {
		text := "the server does not tell of hits"
		if c.HitRate != nil {
			text = "hits for " + phrase.Share(*c.HitRate) + " of the input tokens"
		}
		if c.Mode != "" {
			text = code(c.Mode, "") + ", " + text
		}
		item("prefix cache", text)
	}
	if len(m.Goodput) > 0 {
		item("objectives", prose(phrase.Objectives(m.Goodput)))
	}
	if w := s.Window; w != nil && !w.Whole {
		item("window", fmt.Sprintf("the figures are of the whole run; %s s to %s s of it is steady", phrase.Figure(w.From), phrase.Figure(w.To)))
	}
	var unknown []string
	for _, c := range m.Conditions {
		if c.Source == "unknown" || c.Value == "" {
			unknown = append(unknown, code(c.Name, "?"))
			continue
		}
		item(code(c.Name, "?"), code(c.Value, "")+" ("+prose(c.Source)+")")
	}
	if unknown != nil {
		item("not known", strings.Join(unknown, ", "))
	}
	stamps := "this program's clock after each read"
	if m.Stamps == record.StampsKernel {
		stamps = "the kernel's receive stamps"
	}
	item("times", stamps)
	if text := phrase.Client(s, phrase.Figure); text != "" {
		item("client", text)
	}
}

// command is the command line in a block that nothing in it can end.
func command(buf *bytes.Buffer, m *record.Manifest) {
	if m.Command == "" {
		return
	}
	const limit, shortest = 4000, 3
	text := phrase.Clean(m.Command, limit)
	fence := strings.Repeat("`", max(shortest, longestRun(text)+1))
	fmt.Fprintf(buf, "\n**The command**\n\n%ssh\n%s\n%s\n", fence, text, fence)
}

func longestRun(s string) int {
	longest, run := 0, 0
	for _, r := range s {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

// code is text of others as a code span; if there is none, the words instead.
// It may not stand in a table, whose cells a bar in it would part.
func code(s, without string) string {
	const limit = 300
	s = strings.TrimSpace(phrase.Clean(s, limit))
	if s == "" {
		return without
	}
	fence := strings.Repeat("`", longestRun(s)+1)
	// A blank beside a backtick is taken off again.
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return fence + s + fence
}

// prose escapes a sentence of ours in which a server's words may stand. A word
// joiner keeps @ and # from calling somebody or pointing at an issue.
func prose(s string) string {
	const limit = 600
	var b strings.Builder
	for _, r := range phrase.Clean(s, limit) {
		switch r {
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '&':
			b.WriteString("&amp;")
		case '\\', '`', '*', '_', '{', '}', '[', ']', '|', '~', '!', '$':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '@', '#':
			b.WriteRune(r)
			b.WriteRune('\u2060')
		default:
			b.WriteRune(r)
		}
	}
	// A bare address becomes a link.
	return strings.NewReplacer("://", ":\u2060//", "www.", "www\u2060.").Replace(b.String())
}
