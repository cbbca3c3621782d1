package html

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/phrase"
	"github.com/tokmark/tokmark/report/stats"
)

var shownPercents = []float64{50, 90, 95, 99, 99.9}

// minor are metrics that stand at the end of the page only.
func minor(m report.Metric) bool {
	switch m.Tag {
	case "decode_duration", "output_token_count", "prefill_throughput_per_user", "min_request_timestamp", "max_response_timestamp":
		return true
	}
	return m.Adjusted || strings.HasPrefix(m.Tag, "usage_")
}

// statistics is a table of distributions.
func statistics(s *report.Summary, caption string, which func(report.Metric) bool) (t table, ok bool) {
	t = table{Caption: caption, Head: []string{"metric", "avg", "min"}}
	for _, p := range shownPercents {
		t.Head = append(t.Head, phrase.Percentile(p))
	}
	t.Head = append(t.Head, "max", "std", "count")
	for _, r := range s.Metrics {
		if r.Statistic == nil || !which(r.Metric) {
			continue
		}
		t.Rows = append(t.Rows, statisticRow(r.Label, phrase.Unit(r.Unit), r.Statistic))
		for _, p := range shownPercents {
			if r.Statistic.Few(p) {
				t.Note = "* fewer than ten values lie beyond this percentile: it rests on chance."
			}
		}
	}
	return t, len(t.Rows) > 0
}

func statisticRow(label, unit string, st *stats.Statistic) []cell {
	if unit != "" {
		label += " (" + unit + ")"
	}
	row := []cell{{Text: label, Head: true}, number(st.Avg), number(st.Min)}
	for _, p := range shownPercents {
		v, _ := st.Percentile(p)
		text := phrase.Figure(v)
		if st.Few(p) {
			text += "*"
		}
		row = append(row, cell{Text: text})
	}
	return append(row, number(st.Max), number(st.Std), number(float64(st.Count)))
}

func number(v float64) cell       { return cell{Text: phrase.Figure(v)} }
func maybe(v *float64) cell       { return cell{Text: phrase.Maybe(v)} }
func head(s string) cell          { return cell{Text: s, Head: true} }
func words(s string) cell         { return cell{Text: s, Left: true} }
func isTime(m report.Metric) bool { return m.Unit == "ms" }

// repeatsTTFT reports whether the metric is the time to the first answer token
// of a run in which nothing else comes before it.
func repeatsTTFT(s *report.Summary, m report.Metric) bool {
	ttft, ok := s.Metric("time_to_first_token")
	answer, ok2 := s.Metric("time_to_first_output_token")
	return m.Tag == "time_to_first_output_token" && ok && ok2 && ttft.Statistic.Sum == answer.Statistic.Sum && ttft.Statistic.Count == answer.Statistic.Count
}

// objectives says whether each run did what it was held against.
func objectives(runs []Run) section {
	sec := section{ID: "objectives", Title: "Objectives"}
	t := table{Caption: "What was to be met", Head: []string{"objective", "measured", "interval", "margin", "result"}, Texts: 1}
	for _, run := range runs {
		for _, r := range run.Objectives {
			name, result := clean(r.Text), string(r.State)
			if len(runs) > 1 {
				name = run.Name + ": " + name
			}
			if r.Reason != "" {
				result += ": " + clean(r.Reason)
			}
			measured, interval, margin := r.Words()
			t.Rows = append(t.Rows, []cell{head(name), {Text: measured}, {Text: interval}, {Text: margin}, words(result)})
		}
	}
	if len(t.Rows) > 0 {
		sec.Tables = []table{t}
	}
	return sec
}

func latency(runs []Run) section {
	sec := section{ID: "latency", Title: "Latency"}
	if len(runs) == 1 {
		s := runs[0].Summary
		if t, ok := statistics(s, "Distributions of times", func(m report.Metric) bool { return isTime(m) && !minor(m) && !repeatsTTFT(s, m) }); ok {
			sec.Tables = append(sec.Tables, t)
		}
		if t, ok := intervals(s); ok {
			sec.Tables = append(sec.Tables, t)
		}
	}
	for _, d := range distributions {
		f := figures{Title: d.title}
		if c, ok := percentileChart(runs, d); ok {
			f.Charts = append(f.Charts, c)
		}
		if c, ok := histogramChart(runs, d); ok {
			f.Charts = append(f.Charts, c)
		}
		if len(f.Charts) > 0 {
			sec.Figures = append(sec.Figures, f)
		}
	}
	return sec
}

func intervals(s *report.Summary) (t table, ok bool) {
	t = table{
		Caption: "How well the percentiles are known: " + phrase.Share(report.IntervalLevel) + " intervals",
		Head:    []string{"metric", "p50", "from", "to", "p99", "from", "to", "method"}, Texts: 1,
		Note: phrase.Unknown + " too few requests to tell.",
	}
	for _, tag := range []string{"time_to_first_token", "inter_token_latency", "request_latency"} {
		r, has := s.Metric(tag)
		if !has || r.Intervals == nil || !r.Intervals.Known() {
			continue
		}
		row := []cell{head(r.Name())}
		for i, percent := range report.IntervalPercents {
			if percent == 50 || percent == 99 {
				v, _ := r.Statistic.Percentile(percent)
				row = append(row, number(v), maybe(r.Intervals.Of[i].Low), maybe(r.Intervals.Of[i].High))
			}
		}
		method := "order statistics of " + phrase.Figure(float64(r.Intervals.Count))
		if r.Intervals.Bootstrap {
			method = "block bootstrap: " + phrase.Figure(float64(r.Intervals.Count)) + " are worth " + phrase.Figure(r.Intervals.Effective)
		}
		t.Rows = append(t.Rows, append(row, words(method)))
	}
	return t, len(t.Rows) > 0
}

func overTime(t *timeCharts) section {
	sec := section{ID: "time", Title: "Over time"}
	if w := t.s.Window; w != nil {
		sec.Lead = windowText(w)
	}
	if charts := t.all(); len(charts) > 0 {
		sec.Figures = []figures{{Charts: charts}}
	}
	return sec
}

func windowText(w *report.Window) string {
	span := fmt.Sprintf("%s s to %s s of %s s, %s requests", phrase.Figure(w.From), phrase.Figure(w.To), phrase.Figure(w.Run), phrase.Figure(float64(w.Requests)))
	switch {
	case w.Mode == report.WindowSet:
		return "The shaded window is as asked: " + span + "."
	case w.Mode == report.WindowAll:
		return "The window is the whole run, as asked."
	case w.Note != "":
		return "The window is the whole run: " + w.Note + "."
	case w.Whole:
		return "The run is steady from start to end."
	}
	return "The shaded window is the steady part: " + span + "."
}

// waterfall shows where the time to the first token went, by the client and by
// the server.
func waterfall(s *report.Summary) section {
	sec := section{ID: "waterfall", Title: "Where the time goes"}
	if w := s.Waterfall; w != nil {
		t := table{
			Caption: "Mean time to first token, span by span", Head: []string{"span", "ms", "share of TTFT", "", "source"}, Texts: 2,
		}
		if w.Note != "" {
			t.Note = "The server's " + w.Note + "."
		}
		const shown = 0.0005 // ms; a figure has no more digits
		var at, written float64
		add := func(name string, one report.Span) {
			const whole = 1000
			bar := &barCell{From: max(0, min(whole, whole*at/w.TTFT)), Width: max(2, whole*min(1, one.Share))}
			t.Rows = append(t.Rows, []cell{head(name), number(one.Mean), {Text: phrase.Share(one.Share)}, {Left: true, Bar: bar}, words(one.Source)})
			at += one.Mean
		}
		for _, one := range w.Client {
			if one.Mean >= shown {
				add(one.Name, one)
			}
			if one.Name == report.SpanWrite {
				written = at
			}
		}
		t.Rows = append(t.Rows, []cell{head("= time to first token"), number(w.TTFT), {Text: phrase.Share(1)}, {Left: true}, words("client, " + phrase.Figure(float64(w.Requests)) + " requests")})
		at = written
		for _, one := range w.Server {
			name := "server: " + one.Name
			if one.Name == report.SpanUnexplained {
				name = one.Name
			}
			add(name, one)
		}
		if w.Late != nil && *w.Late > 0 {
			sec.Facts = append(sec.Facts, fact{"before it", "requests started " + phrase.Figure(*w.Late) + " ms late by the schedule on average"})
		}
		if w.RoundTrip != nil {
			sec.Facts = append(sec.Facts, fact{"network", fmt.Sprintf("a round trip takes %s ms, median of %d TCP connects beside the run", phrase.Figure(*w.RoundTrip), s.Manifest.RoundTrip.Connects)})
		}
		sec.Tables = append(sec.Tables, t)
	}
	if c := s.Connections; c.New+c.Reused > 0 {
		text := fmt.Sprintf("%s new, %s reused", phrase.Figure(float64(c.New)), phrase.Figure(float64(c.Reused)))
		for _, step := range []struct {
			name string
			ms   *float64
		}{{"DNS", c.DNS}, {"connect", c.Connect}, {"TLS", c.TLS}} {
			if step.ms != nil {
				text += ", " + step.name + " " + phrase.Figure(*step.ms) + " ms"
			}
		}
		sec.Facts = append(sec.Facts, fact{"connections", text + " on average where it was done"})
	}
	if f := s.First; f != nil {
		text := "latency " + phrase.Maybe(f.Latency) + " ms"
		if f.TTFT != nil {
			text = "first token after " + phrase.Figure(*f.TTFT) + " ms, " + text
		}
		sec.Facts = append(sec.Facts, fact{"first answer", text + " (" + string(f.Phase) + ")"})
	}
	return sec
}

// eventsSection compares events with tokens, and tells of speculation and
// reasoning.
func eventsSection(s *report.Summary, v *View) section {
	sec := section{ID: "events", Title: "Tokens and events"}
	add := func(key, text string) { sec.Facts = append(sec.Facts, fact{key, text}) }
	if e := s.Events; e != nil {
		add("tokens per event", fmt.Sprintf("%s: %s tokens in %s events", phrase.Figure(e.PerEvent), phrase.Figure(float64(e.Tokens)), phrase.Figure(float64(e.Events))))
		if e.EventGap != nil && e.TokenGap != nil {
			add("gaps", phrase.Figure(*e.EventGap)+" ms between events, "+phrase.Figure(*e.TokenGap)+" ms between tokens (decode time / (events − 1) and / (tokens − 1))")
		}
		if e.Differ() && e.TokenRate != nil && e.EventRate != nil {
			add("throughput", phrase.Figure(*e.TokenRate)+" tokens/s; "+phrase.Figure(*e.EventRate)+" events/s, which is what counting events as tokens would show")
		}
	}
	if sp := s.Speculation; sp != nil {
		var parts []string
		if sp.AcceptedLength != nil {
			parts = append(parts, "accepted length "+phrase.Figure(*sp.AcceptedLength)+" (1 + accepted / drafts)")
		}
		if sp.AcceptanceRate != nil {
			parts = append(parts, "acceptance rate "+phrase.Share(*sp.AcceptanceRate)+" (accepted / drafted)")
		}
		add("speculation", strings.Join(append(parts, "source: "+sp.Source), ", "))
	}
	if r := s.Reasoning; r != nil {
		text := phrase.Figure(float64(r.Answers)) + " answers with reasoning"
		if r.Share != nil && r.Tokens > 0 {
			text += ", " + phrase.Share(*r.Share) + " of all output tokens"
		}
		if r.First != nil && r.FirstAnswer != nil {
			text += "; first token after " + phrase.Figure(*r.First) + " ms, first of the answer after " + phrase.Figure(*r.FirstAnswer) + " ms on average"
		}
		add("reasoning", text)
	}
	if t, ok := perEvent(v); ok {
		sec.Tables = append(sec.Tables, t)
	}
	return sec
}

// serverSection is what the server says of itself beside what we measured.
func serverSection(s *report.Summary) section {
	sec := section{ID: "server", Title: "The server"}
	v := s.Server
	if v == nil {
		return sec
	}
	add := func(key, text string) {
		if text != "" {
			sec.Facts = append(sec.Facts, fact{key, clean(text)})
		}
	}
	if v.Dialect != "" {
		text := v.Dialect
		if v.DialectBy != "" {
			text += " (" + v.DialectBy + ")"
		}
		add("dialect", text)
	}
	add("changed", strings.Join(v.Changed, "; "))
	add("metrics", v.MetricsError)
	add("left out", strings.Join(v.Left, "; "))
	counts := table{Caption: "What both sides counted", Head: []string{"", "server", "ours, at least", "ours, at most"}}
	for _, c := range v.Counts {
		counts.Rows = append(counts.Rows, []cell{head(c.What), number(c.Server), number(c.Ours), maybe(c.AtMost)})
	}
	times := table{Caption: "What both sides timed, means", Head: []string{"", "server (ms)", "ours (ms)"}}
	for _, c := range v.Times {
		times.Rows = append(times.Rows, []cell{head(c.What), number(c.Server), number(c.Ours)})
	}
	for _, t := range []table{counts, times} {
		if len(t.Rows) > 0 {
			sec.Tables = append(sec.Tables, t)
		}
	}
	return sec
}

// perEvent shows how many tokens an event brought.
func perEvent(v *View) (t table, ok bool) {
	t = table{Caption: "Tokens in an event", Head: []string{"tokens", "events", "share", ""}, Texts: 1}
	if len(v.perEvent) == 0 || len(v.perEvent) == 1 && v.perEvent[-1] > 0 {
		return t, false
	}
	const most = 12 // rows
	var total, rest, largest int64
	for _, n := range v.perEvent {
		total += n
		largest = max(largest, n)
	}
	row := func(name string, n int64) {
		t.Rows = append(t.Rows, []cell{
			head(name), number(float64(n)), {Text: phrase.Share(float64(n) / float64(total))},
			{Left: true, Bar: &barCell{Width: max(2, 1000*float64(n)/float64(largest))}},
		})
	}
	keys := slices.Sorted(maps.Keys(v.perEvent))
	for i, k := range keys {
		switch {
		case k < 0:
			defer row("not told", v.perEvent[k])
		case i < most:
			row(strconv.Itoa(k), v.perEvent[k])
		default:
			rest += v.perEvent[k]
		}
	}
	if rest > 0 {
		row(strconv.Itoa(keys[most])+" and more", rest)
	}
	return t, true
}

func lengthSection(s *report.Summary, v *View) section {
	sec := section{ID: "lengths", Title: "Lengths and cache"}
	if t, ok := statistics(s, "Tokens of a request, and their speed", func(m report.Metric) bool {
		switch m.Tag {
		case "reasoning_token_count": // where there is no reasoning, nothing
			r, _ := s.Metric(m.Tag)
			return r.Statistic.Max > 0
		case "ttft_per_uncached_token":
			return s.Cache != nil && s.Cache.HitRate != nil && *s.Cache.HitRate > 0
		}
		return strings.HasPrefix(m.Unit, "tokens") && !minor(m)
	}); ok {
		sec.Tables = append(sec.Tables, t)
	}
	if l := s.Lengths; l != nil {
		for _, one := range []struct {
			what, got, than string
			d               *report.Deviation
			a, b            *float64
		}{
			{"input, server to asked", "the server counts", "asked for", l.ServerToAsked, l.ServerInput, l.AskedInput},
			{"input, server to tokenizer", "the server counts", "by our tokenizer", l.ServerToOwn, l.ServerInput, l.OwnInput},
			{"input, tokenizer to asked", "our tokenizer counts", "asked for", l.OwnToAsked, l.OwnInput, l.AskedInput},
			{"output, got to asked", "got", "asked for", l.OutputToAsked, l.Output, l.AskedOutput},
		} {
			if one.d != nil {
				sec.Facts = append(sec.Facts, fact{one.what, fmt.Sprintf("%s %s, %s %s: %s on average, worst %s", one.got, phrase.Maybe(one.a), phrase.Maybe(one.b), one.than,
					phrase.Signed(one.d.Mean), phrase.Signed(one.d.Worst))})
			}
		}
		if l.Template != nil {
			sec.Facts = append(sec.Facts, fact{"chat template", phrase.Figure(*l.Template) + " tokens, left out of the server's count"})
		}
	}
	if c := s.Cache; c != nil {
		text := "the server does not tell"
		if c.HitRate == nil && c.Server != nil {
			text = phrase.Share(*c.Server) + " by the server's counters"
		}
		if c.HitRate != nil {
			text = phrase.Share(*c.HitRate) + " of the input tokens"
			if c.FirstTurns != nil && *c.FirstTurns != *c.HitRate {
				text += ", " + phrase.Share(*c.FirstTurns) + " in first turns"
			}
			if c.Server != nil {
				text += "; " + phrase.Share(*c.Server) + " by the server's counters"
			}
			if c.Expected != nil {
				text += "; the workload was built for " + phrase.Share(*c.Expected)
			}
		}
		sec.Facts = append(sec.Facts, fact{"prefix cache hits", text})
	}
	if c, ok := lengthChart(s, v); ok {
		sec.Figures = []figures{{Charts: []chart{c}}}
	}
	return sec
}

func stallSection(t *timeCharts) section {
	sec := section{ID: "stalls", Title: "Stalls"}
	st := &t.v.stalls
	if st.streams == 0 {
		return sec
	}
	sec.Lead = fmt.Sprintf("A stall is a gap of at least %d times the median gap of its own stream, and at least %s ms above it.", stallTimes, phrase.Figure(float64(stallFloor)/perMS))
	if st.total == 0 {
		sec.Notes = []string{fmt.Sprintf("None of %s streams stalled.", phrase.Figure(float64(st.streams)))}
		return sec
	}
	n, most := st.coinciding()
	share := float64(n) / float64(len(st.list))
	judged := ""
	if int64(len(st.list)) < st.total {
		judged = fmt.Sprintf(" (of the longest %s)", phrase.Figure(float64(len(st.list))))
	}
	sec.Facts = []fact{
		{"stalls", fmt.Sprintf("%s in %s of %s streams", phrase.Figure(float64(st.total)), phrase.Figure(float64(st.touched)), phrase.Figure(float64(st.streams)))},
		{"time lost", fmt.Sprintf("%s of the time from first to last event", phrase.Share(st.lost.Seconds()/max(st.decode.Seconds(), 1e-9)))},
		{"together", fmt.Sprintf("%s coincide with stalls of at least half of the other streams%s; at most %d streams stood still at one moment", phrase.Share(share), judged, most)},
	}
	if all := t.preemptions(); len(all) > 0 && !slices.ContainsFunc(all[0].Y, func(y num) bool { return y > 0 }) {
		sec.Facts = append(sec.Facts, fact{"preemptions", "the server tells of none"})
	}
	if c, ok := t.stallChart(); ok {
		charts := []chart{c}
		for _, one := range t.server() {
			if one.ID == "server-queue" || one.ID == "server-preemptions" {
				one.ID += "-beside-stalls"
				charts = append(charts, one)
			}
		}
		sec.Figures = []figures{{Charts: charts}}
	}
	return sec
}

func slowestSection(v *View) section {
	sec := section{ID: "slowest", Title: "Slowest requests"}
	if len(v.slowest) == 0 {
		return sec
	}
	t := table{
		Caption: "The requests with the longest latency, with their course on one scale: waiting for the first token, then a tick for each event",
		Head:    []string{"request", "start (s)", "TTFT (ms)", "latency (ms)", "tokens", "events", "longest gap (ms)", "course"}, Texts: 1,
	}
	scale := 1000 / float64(max(v.slowest[0].latency, 1))
	for _, q := range v.slowest {
		name := strconv.FormatInt(q.id, 10)
		if q.turn > 0 {
			name += ", turn " + strconv.Itoa(q.turn)
		}
		var ticks strings.Builder
		for _, at := range q.at {
			fmt.Fprintf(&ticks, "M%.1f 5v14", float64(at)*scale)
		}
		ttft, gap, tokens := cell{Text: phrase.Unknown}, cell{Text: phrase.Unknown}, cell{Text: phrase.Unknown}
		first := float64(q.latency) * scale
		if q.streams {
			ttft = number(float64(q.ttft) / perMS)
			first = float64(q.ttft) * scale
			if q.events > 1 {
				gap = number(float64(q.gap) / perMS)
			}
		}
		if q.output >= 0 {
			tokens = number(float64(q.output))
		}
		t.Rows = append(t.Rows, []cell{
			head(name), number(v.seconds(q.start)), ttft, number(float64(q.latency) / perMS), tokens, number(float64(q.events)), gap,
			{Left: true, Line: &lineCell{First: first, Last: float64(q.latency) * scale, Ticks: ticks.String(),
				Alt: "first token after " + ttft.Text + " ms, last after " + phrase.Figure(float64(q.latency)/perMS) + " ms"}},
		})
	}
	sec.Tables = []table{t}
	return sec
}

func errorSection(s *report.Summary) section {
	sec := section{ID: "outcomes", Title: "Outcomes"}
	if len(s.Outcomes) == 0 {
		return sec
	}
	t := table{Caption: "How the measured requests ended", Head: []string{"outcome", "count", "share", "example"}, Texts: 1}
	for _, o := range s.Outcomes {
		t.Rows = append(t.Rows, []cell{head(string(o.Outcome)), number(float64(o.Count)), {Text: phrase.Share(o.Share)}, words(clean(o.Example))})
	}
	sec.Tables = append(sec.Tables, t)
	if len(s.Errors) > 0 {
		const most = 20
		t := table{Caption: "Errors by what was said", Head: []string{"error", "HTTP status", "count", "message"}, Texts: 1}
		for i, g := range s.Errors {
			if i == most {
				t.Note = fmt.Sprintf("%d more are in summary.json.", len(s.Errors)-most)
				break
			}
			status := phrase.Unknown
			if g.Status > 0 {
				status = strconv.Itoa(g.Status)
			}
			t.Rows = append(t.Rows, []cell{head(string(g.Outcome)), {Text: status}, number(float64(g.Count)), words(clean(g.Message))})
		}
		sec.Tables = append(sec.Tables, t)
	}
	return sec
}

// parts shows the figures of parts of the run: the window, and groups.
func parts(s *report.Summary) section {
	sec := section{ID: "parts", Title: "Parts of the run"}
	if w := s.Window; w != nil && len(w.Figures) > 0 {
		t := table{Caption: "The steady window beside the whole run", Head: []string{"figure", "whole run", "window", "difference"}}
		for _, f := range w.Figures {
			name := f.Label
			if f.Percent > 0 {
				name += " " + phrase.Percentile(f.Percent)
			}
			difference := phrase.Unknown
			if f.Run > 0 {
				difference = phrase.Signed(f.Window/f.Run - 1)
			}
			t.Rows = append(t.Rows, []cell{head(name + " (" + phrase.Unit(f.Unit) + ")"), number(f.Run), number(f.Window), {Text: difference}})
		}
		sec.Tables = append(sec.Tables, t)
	}
	for _, by := range []string{report.ByTurn, report.ByClass, report.ByModel} {
		t := table{
			Caption: "By " + by + " (times in ms, lengths on average, rates a second)",
			Head:    []string{by, "valid", "failed", "TTFT p50", "p99", "ITL p50", "p99", "latency p50", "p99", "input", "output", "tokens/s", "good/s"},
		}
		for _, g := range s.Groups {
			if g.By != by {
				continue
			}
			row := []cell{head(clean(g.Name)), number(float64(g.Valid)), number(float64(g.Failed))}
			for _, sp := range []*report.Spread{g.TTFT, g.ITL, g.Latency} {
				if sp == nil {
					row = append(row, cell{Text: phrase.Unknown}, cell{Text: phrase.Unknown})
				} else {
					row = append(row, number(sp.P50), number(sp.P99))
				}
			}
			t.Rows = append(t.Rows, append(row, maybe(g.ISL), maybe(g.OSL), maybe(g.OutputTokens), maybe(g.Goodput)))
		}
		if len(t.Rows) > 0 {
			sec.Tables = append(sec.Tables, t)
		}
	}
	return sec
}

func clientSection(s *report.Summary) section {
	c := s.Client
	sec := section{ID: "client", Title: "The client"}
	add := func(key, text string) { sec.Facts = append(sec.Facts, fact{key, text}) }
	spread := func(sp *report.Spread) string {
		return "p50 " + phrase.Figure(sp.P50) + ", p99 " + phrase.Figure(sp.P99) + ", max " + phrase.Figure(sp.Max) + " ms"
	}
	l := s.Load
	if l.Asked.Rate > 0 || l.ScheduledRate != nil && l.OpenLoop {
		text := "scheduled " + phrase.Maybe(l.ScheduledRate) + ", achieved " + phrase.Maybe(l.AchievedRate) + " requests/s"
		if l.Asked.Rate > 0 {
			text = "asked " + phrase.Figure(l.Asked.Rate) + ", " + text
		}
		add("rate", text)
	}
	limit := "no cap"
	if l.Asked.Concurrency > 0 {
		limit = "asked " + strconv.Itoa(l.Asked.Concurrency)
	}
	most := phrase.Unknown
	if l.MaxInFlight > 0 {
		most = phrase.Figure(float64(l.MaxInFlight))
	}
	add("in flight", limit+", most "+most+", mean "+phrase.Maybe(l.MeanInFlight))
	if l.Shifted > 0 {
		add("put off", phrase.Shifted(l))
	}
	if l.Held != nil {
		add("held back", phrase.Held(l.Held))
	}
	sent := phrase.Figure(float64(l.Sent)) + " sent"
	for _, n := range []struct {
		n    int64
		what string
	}{
		{s.Counts.Valid, "valid"}, {s.Counts.Failed, "failed"}, {s.Counts.Cancelled, "cancelled"}, {s.Counts.Unsent, "not sent"},
		{s.Counts.Excluded, "past duration and grace (left out)"}, {s.Counts.Warmup, "for warmup"},
	} {
		if n.n > 0 {
			sent += ", " + phrase.Figure(float64(n.n)) + " " + n.what
		}
	}
	add("requests", sent)
	if c.Lateness != nil {
		add("sending", spread(c.Lateness)+" late by our own doing")
	}
	if c.ReceiveLag != nil {
		add("receiving", spread(c.ReceiveLag)+" after the kernel")
	}
	if c.SharedReads != nil {
		text := phrase.Share(*c.SharedReads) + " of events came with an earlier one"
		if c.LostStamps != nil {
			text += ", " + phrase.Share(*c.LostStamps) + " because we were behind"
		}
		add("shared reads", text)
	}
	if c.SchedP99 != nil {
		add("scheduler", "latency p99 "+phrase.Figure(*c.SchedP99)+", max "+phrase.Maybe(c.SchedMax)+" ms")
	}
	if c.GCPauseMax != nil {
		add("GC", "longest pause "+phrase.Figure(*c.GCPauseMax)+" ms")
	}
	if c.CPU != nil {
		add("processors", fmt.Sprintf("%s of %d used, at most %s", phrase.Figure(*c.CPU), c.Procs, phrase.Maybe(c.CPUMax)))
	}
	if c.MachineCPU != nil && c.MachineMax != nil {
		add("machine", "busy to "+phrase.Share(*c.MachineCPU)+", at most "+phrase.Share(*c.MachineMax))
	}
	if c.WaitingMax != nil {
		add("records", "waiting ones took at most "+phrase.Share(*c.WaitingMax)+" of their room")
	}
	if c.OpenFilesMax != nil {
		add("open files", "at most "+phrase.Figure(*c.OpenFilesMax)+" of "+phrase.Figure(float64(c.OpenFiles)))
	}
	clock := "was not set"
	if c.ClockSteps > 0 {
		clock = fmt.Sprintf("was set (%d)", c.ClockSteps)
	}
	add("wall clock", clock)
	return sec
}

// totals holds every figure that the page has not shown yet.
func totals(s *report.Summary) section {
	sec := section{ID: "figures", Title: "All other figures"}
	t := table{Caption: "Of the whole run", Head: []string{"metric", "value", "how it is computed"}, Texts: 1}
	for _, r := range s.Metrics {
		if r.Statistic != nil || r.Tag == "min_request_timestamp" || r.Tag == "max_response_timestamp" {
			continue
		}
		v := number(r.Value)
		if r.Integer {
			v = number(float64(r.Whole))
		}
		t.Rows = append(t.Rows, []cell{head(r.Name()), v, words(r.Formula)})
	}
	if len(t.Rows) > 0 {
		sec.Tables = append(sec.Tables, t)
	}
	if t, ok := statistics(s, "Further distributions", minor); ok {
		sec.Tables = append(sec.Tables, t)
	}
	return sec
}

func definitions(s *report.Summary) section {
	sec := section{ID: "definitions", Title: "Definitions",
		Lead: "s: start of a request; c1, c2, cn: its first, second and last event with output; OSL: its output tokens."}
	for _, r := range s.Metrics {
		if r.Statistic != nil {
			sec.Facts = append(sec.Facts, fact{r.Label, r.Formula})
		}
	}
	if len(sec.Facts) == 0 {
		sec.Lead = ""
	}
	return sec
}
