package html

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/phrase"
)

type verdict struct {
	Title    string
	Level    report.Level // how it is marked
	Text     string
	Warnings []report.Warning
}

type headline struct {
	Label, Value, Unit, Below string
}

func onePage(r Run) *page {
	s, v := r.Summary, r.View
	m := s.Manifest
	p := &page{
		Title: clean(m.Target.Model), Kicker: "tokmark run " + clean(m.ID),
		Verdict: newVerdict(s), Headlines: headlines(s), Facts: conditions(s),
		Command: phrase.Clean(m.Command, 4000),
		Footer:  phrase.Tool(m.Tool) + " · summary made from the run directory " + clean(m.ID),
	}
	if p.Title == "" {
		p.Title = "Run"
	}
	if !m.Origin.IsZero() {
		p.Kicker += " · " + m.Origin.UTC().Format("2006-01-02 15:04 UTC")
	}
	runs := []Run{r}
	t := newTimeCharts(s, v)
	for _, sec := range []section{
		objectives(runs), latency(runs), overTime(t), waterfall(s), eventsSection(s, v), lengthSection(s, v), stallSection(t),
		slowestSection(v), errorSection(s), parts(s), serverSection(s), clientSection(s), totals(s), definitions(s),
	} {
		if len(sec.Facts)+len(sec.Tables)+len(sec.Figures)+len(sec.Notes) > 0 {
			p.Sections = append(p.Sections, sec)
		}
	}
	return p
}

func newVerdict(s *report.Summary) *verdict {
	out := &verdict{Title: "Verdict: " + string(s.Verdict.Level), Level: s.Verdict.Level}
	switch s.Verdict.Level {
	case report.Valid:
		out.Text = "Nothing was found that would spoil the numbers."
	case report.Suspect:
		out.Text = "Something touches the numbers: read the reasons first."
	case report.Invalid:
		out.Text = "The numbers do not say what was asked."
	}
	if more := phrase.Headroom(s.Verdict); more != "" {
		out.Text += " Self-test: " + more + "."
	}
	for _, level := range []report.Level{report.Invalid, report.Suspect, report.Valid} {
		for _, w := range s.Warnings {
			if w.Effect == level {
				w.Message, w.Advice = clean(w.Message), clean(w.Advice)
				out.Warnings = append(out.Warnings, w)
			}
		}
	}
	return out
}

// headlines puts the second percentile of a metric below the first.
func headlines(s *report.Summary) []headline {
	var out []headline
	all := phrase.Headlines(s)
	for i := 0; i < len(all); i++ {
		h := all[i]
		one := headline{Label: h.Name(), Value: star(h), Unit: h.UnitText()}
		if h.Percent > 0 && i+1 < len(all) && all[i+1].Tag == h.Tag {
			i++
			one.Below = phrase.Percentile(all[i].Percent) + " " + star(all[i]) + " " + one.Unit
		} else if h.Low != nil && h.High != nil {
			one.Below = phrase.Figure(*h.Low) + " to " + phrase.Figure(*h.High) + " (95 %)"
		}
		if h.Tag == "request_throughput" {
			one.Below = phrase.Figure(float64(s.Counts.Valid)) + " valid"
		}
		if h.Tag == "request_error_rate" {
			one.Below = fmt.Sprintf("%s failed", phrase.Figure(float64(s.Counts.Failed)))
		}
		if h.Tag == "output_token_throughput" {
			if d, ok := s.Metric("benchmark_duration"); ok {
				one.Below = "over " + phrase.Figure(d.Value) + " s"
			}
		}
		if good, ok := s.Metric("good_request_fraction"); ok && h.Tag == "goodput" {
			one.Below = phrase.Share(good.Value) + " are good"
		}
		out = append(out, one)
	}
	return out
}

func star(h phrase.Headline) string {
	if h.Few {
		return phrase.Figure(h.Value) + "*"
	}
	return phrase.Figure(h.Value)
}

// conditions are the facts about the run that figures depend on.
func conditions(s *report.Summary) []fact {
	m := s.Manifest
	answers := "whole answers"
	if m.Target.Streaming {
		answers = "streamed answers"
	}
	if m.Target.EndpointType != "" {
		answers = clean(m.Target.EndpointType) + ", " + answers
	}
	model := clean(m.Target.Model)
	if m.Target.Simulated {
		model += " (simulated by tokmark)"
	}
	out := []fact{
		{"model", model}, {"server", clean(m.Target.Address())}, {"endpoint", answers},
		{"workload", clean(phrase.Workload(m))}, {"load", phrase.Load(m.Load, phrase.Figure)}, {"tokens", phrase.Tokens(s)},
	}
	if m.Cache.Mode != "" {
		text := clean(m.Cache.Mode)
		if m.Cache.Reset != nil {
			text += "; " + phrase.CacheReset(m.Cache.Reset)
		}
		out = append(out, fact{"prefix cache", text})
	}
	if len(m.Goodput) > 0 {
		out = append(out, fact{"objectives", phrase.Objectives(m.Goodput)})
	}
	host := fmt.Sprintf("%s/%s, %d cores", clean(m.Host.OS), clean(m.Host.Arch), m.Host.Cores)
	if m.Host.CPU != "" {
		host += ", " + clean(m.Host.CPU)
	}
	stamps := "event times: this program's clock after each read"
	if m.Stamps == record.StampsKernel {
		stamps = "event times: the kernel's receive stamps"
	}
	out = append(out, fact{"client", host + "; " + stamps})
	var unknown []string
	for _, c := range m.Conditions {
		switch {
		case (c.Name == "model" || c.Name == "model_root") && c.Value == m.Target.Model, c.Name == "engine" && c.Value == m.Dialect:
			continue // it is said already
		case c.Source == "unknown" || c.Value == "":
			unknown = append(unknown, clean(c.Name))
		default:
			out = append(out, fact{clean(c.Name), clean(c.Value) + " (" + clean(c.Source) + ")"})
		}
	}
	if len(unknown) > 0 {
		out = append(out, fact{"not known", strings.Join(unknown, ", ")})
	}
	if m.WorkloadHash != "" {
		out = append(out, fact{"workload hash", clean(m.WorkloadHash)})
	}
	return slices.DeleteFunc(out, func(f fact) bool { return f.Text == "" })
}
