// Package phrase puts the figures and facts of a summary into words, the same
// in every renderer for people.
package phrase

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

// Unknown stands for a figure that nobody has.
const Unknown = "–"

// Figure writes a number with three or four digits that count, whole numbers
// below a thousand million in full, and thousands parted by commas. What is no
// number, or infinite, is Unknown.
func Figure(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return Unknown
	case a == 0:
		return "0"
	case a == math.Trunc(a) && a < 1e9:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a < 0.0005 || a >= 1e12:
		return strconv.FormatFloat(v, 'e', 2, 64)
	case a < 9.9995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 99.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 999.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return thousands(strconv.FormatFloat(v, 'f', 0, 64))
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// Maybe is the figure, or Unknown for nil.
func Maybe(v *float64) string {
	if v == nil {
		return Unknown
	}
	return Figure(*v)
}

// Share writes a share as a percentage.
func Share(v float64) string { return Figure(100*v) + " %" }

// Signed writes a share as a percentage with its sign.
func Signed(v float64) string {
	if v > 0 {
		return "+" + Share(v)
	}
	return Share(v)
}

// Percentile is its name for people: p99.9.
func Percentile(p float64) string { return "p" + strconv.FormatFloat(p, 'g', -1, 64) }

// Clean makes text of others fit to be shown: one line, nothing that steers a
// terminal or turns the direction of writing, at most limit characters. It
// does not escape markup.
func Clean(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = '?'
		}
		if n++; n > limit {
			return b.String() + "…"
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Workload says in words what was asked, and, of prompts that were made, what
// makes the same ones again. It does not clean the text.
func Workload(m *record.Manifest) string {
	if m.Workload == "" || m.Salt == "" {
		return m.Workload
	}
	return fmt.Sprintf("%s; seed %d, salt %s", m.Workload, m.Seed, m.Salt)
}

// Load says in words what load was asked for; figure writes its numbers.
func Load(l record.Load, figure func(float64) string) string {
	var parts []string
	switch {
	case l.Users > 0:
		parts = append(parts, fmt.Sprintf("%d users, together %s requests/s", l.Users, figure(l.Rate)))
	case l.Rate > 0:
		part := figure(l.Rate) + " requests/s"
		if l.Arrival != "" {
			part += " (" + Clean(l.Arrival, 40) + ")"
		}
		if l.Concurrency > 0 {
			part += fmt.Sprintf(", at most %d in flight", l.Concurrency)
		}
		parts = append(parts, part)
	case l.Arrival != "" || l.Concurrency == 0:
		part := "as the schedule says"
		if l.Arrival != "" {
			part += " (" + Clean(l.Arrival, 40) + ")"
		}
		if l.Concurrency > 0 {
			part += fmt.Sprintf(", at most %d in flight", l.Concurrency)
		}
		parts = append(parts, part)
	default:
		parts = append(parts, fmt.Sprintf("%d in flight", l.Concurrency))
	}
	if l.Ramp != "" {
		parts = append(parts, Clean(l.Ramp, 80))
	}
	if l.PrefillConcurrency > 0 {
		parts = append(parts, fmt.Sprintf("at most %d before their first token", l.PrefillConcurrency))
	}
	if l.Requests > 0 {
		parts = append(parts, figure(float64(l.Requests))+" requests")
	}
	if l.Sessions > 0 {
		parts = append(parts, figure(float64(l.Sessions))+" sessions")
	}
	if l.Duration > 0 {
		parts = append(parts, fmt.Sprintf("for %v, then %v for requests in flight", l.Duration, l.Grace))
	}
	if l.Warmup > 0 {
		parts = append(parts, fmt.Sprintf("after %d for warmup", l.Warmup))
	}
	return strings.Join(parts, ", ")
}

// Shifted says how many turns of users were due late.
func Shifted(l report.LoadFacts) string {
	return fmt.Sprintf("%d of %d turns, as the answer before took longer than the user's gap", l.Shifted, l.Sent)
}

// Held says how many requests waited for a cap, and how long.
func Held(h *report.Held) string {
	return fmt.Sprintf("%d requests waited for a cap, %s ms on average, at most %s ms", h.Requests, Figure(h.Mean), Figure(h.Max))
}

// Tokens says where the token counts of a run come from.
func Tokens(s *report.Summary) string {
	words := map[record.Source]string{
		record.SourceUsage:     "counted by the server (usage)",
		record.SourceTokenIDs:  "counted from token ids in the stream",
		record.SourceLogProbs:  "counted from log-probabilities in the stream",
		record.SourceTokenizer: "counted with the tokenizer given",
		record.SourceServer:    "counted by the server's /tokenize",
		record.SourceNone:      "not known",
	}
	parts := make([]string, 0, len(s.Tokens))
	for _, src := range s.Tokens {
		part := words[src.Source]
		if len(s.Tokens) > 1 {
			part += fmt.Sprintf(" for %d answers", src.Count)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "no answer to count"
	}
	return strings.Join(parts, ", ")
}

// Client says in a line how the client did; empty: nothing is known. figure
// writes its numbers.
func Client(s *report.Summary, figure func(float64) string) string {
	c := s.Client
	spread := func(sp *report.Spread) string {
		return "p50 " + figure(sp.P50) + ", p99 " + figure(sp.P99) + ", max " + figure(sp.Max) + " ms"
	}
	var parts []string
	if c.Lateness != nil {
		parts = append(parts, "sent "+spread(c.Lateness)+" late by our own doing")
	}
	switch {
	case c.ReceiveLag != nil:
		parts = append(parts, "events seen "+spread(c.ReceiveLag)+" after the kernel, whose times are used")
	case c.Events > 0:
		parts = append(parts, "event times are our own, without kernel stamps")
	}
	if c.SharedReads != nil {
		text := figure(100**c.SharedReads) + " % of events shared a read"
		if lost := c.LostStamps; lost != nil && *lost > 0 {
			text += ", " + figure(100**lost) + " % because we were behind"
		}
		parts = append(parts, text)
	}
	if c.CPU != nil && c.Procs > 0 {
		parts = append(parts, fmt.Sprintf("%s of %d cores used", figure(*c.CPU), c.Procs))
	}
	return strings.Join(parts, "; ")
}

// Objectives says service level objectives in words.
func Objectives(goals map[string]float64) string {
	var parts []string
	for _, tag := range slices.Sorted(maps.Keys(goals)) {
		label, unit, sign := Clean(tag, 80), "", " ≤ "
		if m, ok := report.MetricByTag(tag); ok {
			label, unit = m.Label, " "+Unit(m.Unit)
			if m.LargerIsBetter {
				sign = " ≥ "
			}
		}
		parts = append(parts, label+sign+Figure(goals[tag])+unit)
	}
	return strings.Join(parts, ", ")
}

// Tool names the version of tokmark that measured.
func Tool(b record.Build) string {
	out := "tokmark " + Clean(b.Version, 60)
	if b.Version == "" {
		out = "tokmark"
	}
	if b.Commit != "" {
		const enough = 12 // to name it
		commit := []rune(Clean(b.Commit, 2*enough))
		out += " (" + string(commit[:min(len(commit), enough)]) + ")"
	}
	return out
}

// Headline is one of the few figures that a run is quoted by.
type Headline struct {
	report.Metric
	Label   string  // short
	Percent float64 // 0: the figure is of the whole run
	Value   float64
	Few     bool     // the percentile rests on chance
	Low     *float64 // of the interval; nil: not known
	High    *float64
}

// Headlines returns the headline figures that the run has, in order.
func Headlines(s *report.Summary) []Headline {
	var out []Headline
	for _, h := range []struct {
		tag, label string
		percents   []float64
	}{
		{"output_token_throughput", "Output tokens", nil},
		{"request_throughput", "Requests", nil},
		{"goodput", "Goodput", nil},
		{"time_to_first_token", "TTFT", []float64{50, 99}},
		{"inter_token_latency", "ITL", []float64{50, 99}},
		{"request_latency", "Latency", []float64{50, 99}},
		{"output_token_throughput_per_user", "Speed per user", []float64{50}},
		{"request_error_rate", "Errors", nil},
	} {
		r, ok := s.Metric(h.tag)
		switch {
		case !ok:
		case r.Statistic == nil:
			out = append(out, Headline{Metric: r.Metric, Label: h.label, Value: r.Value})
		default:
			for _, p := range h.percents {
				out = append(out, headline(r, h.label, p))
			}
		}
	}
	return out
}

func headline(r report.Result, label string, percent float64) Headline {
	h := Headline{Metric: r.Metric, Label: label, Percent: percent, Few: r.Statistic.Few(percent)}
	h.Value, _ = r.Statistic.Percentile(percent)
	of := r.Interval(percent)
	h.Low, h.High = of.Low, of.High
	return h
}

// Name is the label, with the percentile if there is one.
func (h Headline) Name() string {
	if h.Percent > 0 {
		return h.Label + " " + Percentile(h.Percent)
	}
	return h.Label
}

// UnitText is the unit as it is read after a figure.
func (h Headline) UnitText() string { return Unit(h.Unit) }

// Unit is a metric's unit as it is read after a figure.
func Unit(unit string) string {
	switch unit {
	case "tokens/sec":
		return "tok/s"
	case "tokens/sec/user":
		return "tok/s/user"
	case "requests/sec":
		return "req/s"
	case "sec":
		return "s"
	case "requests", "ratio":
		return ""
	}
	return unit
}

// CacheReset says that the prefix cache was emptied before a run, and whether
// that is known to have worked.
func CacheReset(r *record.CacheReset) string {
	text := "emptied before the run by " + Clean(r.Request, 60)
	switch {
	case r.Verified:
		return fmt.Sprintf("%s (verified: a prompt of %d tokens had %d cached before, %d after)", text, r.Prompt, r.Before, max(r.After, 0))
	case r.Before.IsKnown():
		return text + " (not verified: nothing hit before it)"
	default:
		return text + " (not verified: the server does not tell of hits)"
	}
}

// Headroom says how much more than the run's load the client was shown to keep
// up with; empty if that was not shown.
func Headroom(v report.Verdict) string {
	if v.Headroom == nil {
		return ""
	}
	return fmt.Sprintf("client headroom at least × %.3g", *v.Headroom)
}
