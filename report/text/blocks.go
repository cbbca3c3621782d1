package text

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	pretty "github.com/jedib0t/go-pretty/v6/text"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/phrase"
)

// blockKey is the width of the keys in the blocks after the tables.
const blockKey = 12

// rightAligned aligns the columns from first to last, counted from 1.
func rightAligned(first, last int) []table.ColumnConfig {
	var out []table.ColumnConfig
	for n := first; n <= last; n++ {
		out = append(out, table.ColumnConfig{Number: n, Align: pretty.AlignRight, AlignHeader: pretty.AlignRight})
	}
	return out
}

// orDash is a figure in a table, "-" if it is unknown.
func orDash(v *float64) string {
	if v == nil {
		return "-"
	}
	return figure(*v)
}

// share writes a share as a percentage.
func share(v float64) string { return figure(100*v) + " %" }

// signed writes a share as a percentage with its sign.
func signed(v float64) string {
	if v > 0 {
		return "+" + share(v)
	}
	return share(v)
}

// intervalTags are the metrics in the block of intervals; the files have more.
var intervalTags = []string{"time_to_first_token", "inter_token_latency", "request_latency"}

func (p *page) intervals(s *report.Summary) {
	t := newTable()
	t.Style().Options.SeparateHeader = false
	for _, tag := range intervalTags {
		r, ok := s.Metric(tag)
		if !ok || r.Intervals == nil || !r.Intervals.Known() {
			continue
		}
		row := table.Row{r.Name()}
		for _, percent := range []float64{50, 99} {
			v, _ := r.Statistic.Percentile(percent)
			of := r.Interval(percent)
			row = append(row, fmt.Sprintf("p%g %s [%s, %s]", percent, figure(v), orDash(of.Low), orDash(of.High)))
		}
		method := "of " + figure(float64(r.Intervals.Count))
		if r.Intervals.Bootstrap {
			method += " worth " + figure(r.Intervals.Effective)
		}
		t.AppendRow(append(row, method))
	}
	if t.Length() == 0 {
		return
	}
	p.title("INTERVALS, " + share(report.IntervalLevel) + " (order statistics; \"worth\": block bootstrap of dependent requests; -: too few)")
	p.render(t)
}

// seconds writes seconds to the millisecond.
func seconds(v float64) string { return figure(math.Round(v*1e3) / 1e3) }

func (p *page) window(s *report.Summary) {
	w := s.Window
	if w == nil {
		return
	}
	span := fmt.Sprintf("%s s to %s s of %s s, %d requests", seconds(w.From), seconds(w.To), seconds(w.Run), w.Requests)
	switch {
	case w.Mode == report.WindowSet:
		span += " (as asked)"
	case w.Mode == report.WindowAll:
		span = "the whole run (as asked)"
	case w.Note != "":
		span = "the whole run: " + w.Note
	case w.Whole:
		span = "the whole run: it is steady from start to end"
	}
	var differ []string
	for _, f := range w.Figures {
		if !f.Differs() {
			continue
		}
		name := f.Label
		if f.Percent > 0 {
			name += " p" + strconv.FormatFloat(f.Percent, 'g', -1, 64)
		}
		difference := "-"
		if f.Run > 0 {
			difference = signed(f.Window/f.Run - 1)
		}
		differ = append(differ, fmt.Sprintf("%s %s %s (%s)", name, figure(f.Window), f.Unit, difference))
	}
	switch {
	case len(w.Figures) == 0:
	case differ == nil:
		span += "; its headline figures are within 5 % of the whole run's"
	default:
		span += "; there, against the whole run: " + strings.Join(differ, ", ")
	}
	p.sentence("STEADY STATE", span)
}

// groupWidth is what the figures leave for the name of a group.
const groupWidth = 22

func (p *page) groups(s *report.Summary) {
	if len(s.Groups) == 0 {
		return
	}
	t := newTable()
	t.AppendHeader(table.Row{
		"group", "valid", "fail", "TTFT50", "TTFT99", "ITL50", "ITL99", "E2E50", "E2E99", "ISL", "OSL", "tok/s", "good/s",
	})
	t.SetColumnConfigs(rightAligned(2, 13))
	both := func(sp *report.Spread) (p50, p99 string) {
		if sp == nil {
			return "-", "-"
		}
		return figure(sp.P50), figure(sp.P99)
	}
	by := ""
	for _, g := range s.Groups {
		if g.By != by {
			by = g.By
			t.AppendRow(table.Row{"by " + by})
		}
		ttft50, ttft99 := both(g.TTFT)
		itl50, itl99 := both(g.ITL)
		e2e50, e2e99 := both(g.Latency)
		t.AppendRow(table.Row{
			"  " + strings.Join(wrap(clean(g.Name, 60), groupWidth-2), "\n  "),
			figure(float64(g.Valid)), figure(float64(g.Failed)), ttft50, ttft99, itl50, itl99, e2e50, e2e99,
			orDash(g.ISL), orDash(g.OSL), orDash(g.OutputTokens), orDash(g.Goodput),
		})
	}
	p.title("GROUPS (times in ms at p50 and p99, lengths on average)")
	p.render(t)
}

func (p *page) lengths(s *report.Summary) {
	l := s.Lengths
	if l == nil {
		return
	}
	var parts []string
	for _, one := range []struct {
		name string
		mean *float64
	}{{"asked", l.AskedInput}, {"our tokenizer", l.OwnInput}, {"server", l.ServerInput}} {
		if one.mean != nil {
			parts = append(parts, one.name+" "+figure(*one.mean))
		}
	}
	if l.Template != nil && l.ServerInput != nil {
		parts[len(parts)-1] += " without its template (" + figure(*l.Template) + ")"
	}
	if l.ServerToAsked != nil && l.ServerToOwn == nil && l.OwnToAsked == nil {
		parts = append(parts, deviation("off", l.ServerToAsked))
		l = &report.Lengths{AskedOutput: l.AskedOutput, Output: l.Output, OutputToAsked: l.OutputToAsked}
	}
	for _, one := range []struct {
		name string
		d    *report.Deviation
	}{{"server to asked", l.ServerToAsked}, {"server to tokenizer", l.ServerToOwn}, {"tokenizer to asked", l.OwnToAsked}} {
		if one.d != nil {
			parts = append(parts, deviation(one.name, one.d))
		}
	}
	if len(parts) > 0 {
		p.item("input", blockKey, strings.Join(parts, ", "))
	}
	if l.OutputToAsked != nil {
		p.item("output", blockKey, "asked "+orUnknown(l.AskedOutput)+", got "+orUnknown(l.Output)+", "+deviation("off", l.OutputToAsked))
	}
}

// structure tells how many answers have the structure asked for.
func (p *page) structure(s *report.Summary) {
	if st := s.Structure; st != nil {
		p.sentence("STRUCTURED OUTPUT", fmt.Sprintf("%d of %d answers fit the schema (%s)", st.Fitting, st.Answers, share(float64(st.Fitting)/float64(st.Answers))))
	}
}

// selfTest tells what tries of the client showed.
func (p *page) selfTest(s *report.Summary) {
	test := s.Manifest.SelfTest
	if test == nil || test.After == nil {
		return
	}
	after := test.After
	text := fmt.Sprintf("against the simulator at this load (%d streams, %.0f events/s), event times were off by %s ms (p50), %s ms (p99)",
		after.Streams, after.Events, figure(float64(after.ErrorP50)/1e6), figure(float64(after.ErrorP99)/1e6))
	if after.Requests > 0 {
		text += fmt.Sprintf("; %s requests/s were sent late by %s ms (p99)", figure(after.Requests), figure(float64(after.LateP99)/1e6))
	}
	if more := phrase.Headroom(s.Verdict); more != "" {
		text += "; " + more
	}
	p.sentence("SELF-TEST", text)
}

func deviation(name string, d *report.Deviation) string {
	return name + " " + signed(d.Mean) + " (worst " + signed(d.Worst) + ")"
}

func (p *page) cache(s *report.Summary) {
	c := s.Cache
	if c == nil {
		return
	}
	var parts []string
	if c.Mode != "" {
		parts = append(parts, clean(c.Mode, 40))
	}
	if reset := s.Manifest.Cache.Reset; reset != nil {
		parts = append(parts, phrase.CacheReset(reset))
	}
	if c.HitRate != nil {
		text := share(*c.HitRate) + " of input tokens hit by usage"
		if c.FirstTurns != nil && *c.FirstTurns != *c.HitRate {
			text += ", " + share(*c.FirstTurns) + " in first turns"
		}
		parts = append(parts, text+fmt.Sprintf(" (%d answers)", c.Requests))
	}
	if c.Server != nil {
		parts = append(parts, share(*c.Server)+" by the server's counters")
	}
	if c.HitRate == nil && c.Server == nil {
		parts = append(parts, "the server does not tell of hits")
	}
	if c.Expected != nil {
		parts = append(parts, share(*c.Expected)+" expected in first turns")
	}
	p.sentence("PREFIX CACHE", strings.Join(parts, "; "))
}

// clientCodes are the warnings about the client.
var clientCodes = []string{
	report.ClientLate, report.ConcurrencyNotReached, report.ImpossibleRate, report.LostStamps, report.ReceiveLag,
	report.ClientCPU, report.MachineCPU, report.WriterStalled, report.ClockStep, report.OpenFiles, report.ScheduleLag,
}

// client writes one sentence where there is nothing to complain about.
func (p *page) client(s *report.Summary) {
	c := s.Client
	if !slices.ContainsFunc(clientCodes, s.Warned) {
		if text := phrase.Client(s, figure); text != "" {
			p.sentence("CLIENT", text)
		}
		return
	}
	p.title("CLIENT")
	if l := c.Lateness; l != nil {
		text := ends(l) + " late by our own doing"
		if c.LatenessShare != nil {
			text += ", " + share(*c.LatenessShare) + " of the time"
		}
		p.item("sending", blockKey, text)
	}
	if c.Events > 0 {
		text := "no kernel stamps"
		if c.ReceiveLag != nil {
			text = ends(c.ReceiveLag) + " after the kernel"
			if s.Manifest.Stamps == record.StampsKernel {
				text += ", whose times are used"
			}
		}
		if c.SharedReads != nil {
			text += "; " + share(*c.SharedReads) + " of events shared a read"
		}
		if c.LostStamps != nil {
			text += ", " + share(*c.LostStamps) + " because we were behind"
		}
		p.item("receiving", blockKey, text)
	}
	var parts []string
	if c.CPU != nil {
		procs := "?"
		if c.Procs > 0 {
			procs = strconv.Itoa(c.Procs)
		}
		parts = append(parts, figure(*c.CPU)+" of "+procs+" cores used (max "+orUnknown(c.CPUMax)+")")
	}
	if c.MachineCPU != nil && c.MachineMax != nil {
		parts = append(parts, "machine "+share(*c.MachineCPU)+" busy (max "+share(*c.MachineMax)+")")
	}
	if c.SchedP99 != nil {
		parts = append(parts, "scheduler p99 "+figure(*c.SchedP99)+" ms")
	}
	if c.GCPauseMax != nil {
		parts = append(parts, "GC pause at most "+figure(*c.GCPauseMax)+" ms")
	}
	// What is far from its bound is in the files.
	const near = 0.25
	if c.WaitingMax != nil && *c.WaitingMax > near {
		parts = append(parts, "records waiting took "+share(*c.WaitingMax)+" of their room")
	}
	if c.OpenFilesMax != nil && c.OpenFiles > 0 && *c.OpenFilesMax > near*float64(c.OpenFiles) {
		parts = append(parts, "at most "+figure(*c.OpenFilesMax)+" files open of "+figure(float64(c.OpenFiles)))
	}
	if c.ClockSteps > 0 {
		parts = append(parts, fmt.Sprintf("the clock was set (%d)", c.ClockSteps))
	}
	if parts != nil {
		p.item("machine", blockKey, strings.Join(parts, "; "))
	}
}

// ends writes a spread of milliseconds.
func ends(sp *report.Spread) string {
	return "p50 " + figure(sp.P50) + ", p99 " + figure(sp.P99) + ", max " + figure(sp.Max) + " ms"
}
