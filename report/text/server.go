package text

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	pretty "github.com/jedib0t/go-pretty/v6/text"

	"github.com/tokmark/tokmark/report"
)

// smallSpan is the share of TTFT below which the client's spans share a row.
const smallSpan = 0.005

// waterfall writes where the time to the first token went.
func (p *page) waterfall(s *report.Summary) {
	w := s.Waterfall
	if w == nil {
		return
	}
	t := newTable()
	t.AppendHeader(table.Row{"span", "ms", "share", "source"})
	t.SetColumnConfigs(rightAligned(2, 3))
	add := func(name string, of report.Span) {
		t.AppendRow(table.Row{name, figure(of.Mean), share(of.Share), of.Source})
	}
	if w.Late != nil && *w.Late > 0 {
		t.AppendRow(table.Row{"late by the schedule, before it", figure(*w.Late), "", report.FromClient})
	}
	rest := report.Span{Source: report.FromClient}
	for _, one := range w.Client {
		switch {
		case one.Mean == 0:
		case one.Share < smallSpan:
			rest.Mean, rest.Share = rest.Mean+one.Mean, rest.Share+one.Share
		default:
			add(one.Name, one)
		}
	}
	if rest.Mean > 0 {
		add("the rest, each below 0.5 %", rest)
	}
	add("= time to first token", report.Span{Mean: w.TTFT, Share: 1, Source: fmt.Sprintf("client, %d requests", w.Requests)})
	for i, one := range w.Server {
		name := one.Name
		if i == 0 {
			name = "of it, once written: " + name
		} else {
			name = "                     " + name
		}
		add(name, one)
	}
	if w.RoundTrip != nil {
		t.AppendRow(table.Row{"network round trip, beside it", figure(*w.RoundTrip), "", fmt.Sprintf("median of %d TCP connects", s.Manifest.RoundTrip.Connects)})
	}
	p.title("TIME TO FIRST TOKEN, SPAN BY SPAN (means)")
	p.render(t)
	if w.Note != "" {
		p.paragraph(w.Note + ".")
	}
	p.prefill(s)
}

func (p *page) prefill(s *report.Summary) {
	c := s.Prefill
	if c == nil {
		return
	}
	flat := ""
	if c.PerTokenCI95[0] <= 0 && c.PerTokenCI95[1] >= 0 {
		flat = "; the lengths may as well cost nothing"
	}
	p.paragraph(fmt.Sprintf("Prefill cost: %s ms [%s, %s] an uncached input token and %s ms [%s, %s] a request"+
		" (least squares over %d requests of %d to %d tokens, R2 %s; 95 %%%s).",
		figure(c.PerToken), figure(c.PerTokenCI95[0]), figure(c.PerTokenCI95[1]),
		figure(c.Fixed), figure(c.FixedCI95[0]), figure(c.FixedCI95[1]), c.Requests, c.Shortest, c.Longest, figure(c.R2), flat))
}

// events writes of events that are no tokens, of speculation and of reasoning,
// if there is any of it.
func (p *page) events(s *report.Summary) {
	e, sp, r := s.Events, s.Speculation, s.Reasoning
	if !e.Differ() && sp == nil && r == nil {
		return
	}
	p.title("TOKENS AND EVENTS")
	if e != nil && (e.Differ() || sp != nil) {
		text := fmt.Sprintf("%s tokens an event (tokens: %s, %d in %d events", figure(e.PerEvent), e.Source, e.Tokens, e.Events)
		if e.Most != nil {
			text += fmt.Sprintf("; %s of the events tell theirs, at most %d", share(e.Told), *e.Most)
		}
		p.item("per event", blockKey, text+")")
		if e.EventGap != nil && e.TokenGap != nil {
			p.item("gaps", blockKey, fmt.Sprintf("%s ms between events, %s ms between tokens (decode time / (events - 1) and / (tokens - 1))", figure(*e.EventGap), figure(*e.TokenGap)))
		}
		if e.TokenRate != nil && e.EventRate != nil {
			p.item("throughput", blockKey, fmt.Sprintf("%s tokens/s; %s events/s, which is what counting events as tokens would show", figure(*e.TokenRate), figure(*e.EventRate)))
		}
	}
	if sp != nil {
		var parts []string
		if sp.AcceptedLength != nil {
			parts = append(parts, "accepted length "+figure(*sp.AcceptedLength)+" (1 + accepted / drafts)")
		}
		if sp.AcceptanceRate != nil {
			parts = append(parts, "acceptance rate "+share(*sp.AcceptanceRate)+" (accepted / drafted)")
		}
		p.item("speculation", blockKey, strings.Join(parts, ", ")+"; "+sp.Source)
	}
	if r != nil {
		text := fmt.Sprintf("%d answers with reasoning", r.Answers)
		if r.Share != nil && r.Tokens > 0 {
			text += ", " + share(*r.Share) + " of all output tokens"
		}
		if r.First != nil && r.FirstAnswer != nil {
			text += "; first token after " + figure(*r.First) + " ms, first of the answer after " + figure(*r.FirstAnswer) + " ms on average"
		}
		p.item("reasoning", blockKey, text)
	}
}

// server writes who the server is and what it says of the run itself.
func (p *page) server(s *report.Summary) {
	v := s.Server
	if v == nil {
		return
	}
	p.title("SERVER")
	if v.Dialect != "" {
		p.item("dialect", blockKey, clean(v.Dialect, 40)+" ("+clean(v.DialectBy, 160)+")")
	}
	p.conditions(s)
	if len(v.Changed) > 0 {
		p.item("changed", blockKey, clean(strings.Join(v.Changed, "; "), 400))
	}
	p.reconciled(v)
	var state []string
	for _, one := range []struct {
		name, text string
		write      func(float64) string
	}{
		{report.GaugeRunning, "running", figure}, {report.GaugeWaiting, "waiting", figure},
		{report.GaugeKVUsage, "KV cache", share}, {report.GaugeGPU, "GPU", share}, {report.GaugePower, "power in W", figure},
	} {
		if g, ok := v.Gauges[one.name]; ok && g.Max > 0 {
			state = append(state, one.text+" "+one.write(g.Mean)+" (max "+one.write(g.Max)+")")
		}
	}
	if state != nil {
		p.item("sampled", blockKey, strings.Join(state, ", "))
	}
	if v.MetricsError != "" {
		p.item("metrics", blockKey, clean(v.MetricsError, 300))
	}
	if len(v.Left) > 0 {
		p.item("left out", blockKey, clean(strings.Join(v.Left, "; "), 300))
	}
}

// weighty are the conditions that a comparison depends on most: of those that
// are not known they are named first.
var weighty = []string{"precision", "quantization", "gpu", "model_revision", "speculative_method", "tensor_parallel", "engine_version", "prefix_cache"}

// conditions writes what is known of the server by who told it, and names in
// one line what is not.
func (p *page) conditions(s *report.Summary) {
	known := map[string][]string{}
	var unknown []string
	for _, c := range s.Manifest.Conditions {
		name := clean(c.Name, 60)
		switch {
		case c.Source == "unknown":
			unknown = append(unknown, name)
		case c.Name == "model_root" && c.Value == s.Manifest.Target.Model, c.Name == "engine" && c.Value == s.Manifest.Dialect:
			// Said already.
		default:
			known[c.Source] = append(known[c.Source], name+" "+clean(c.Value, 120))
		}
	}
	for _, source := range []string{"probed", "declared"} {
		if list := known[source]; list != nil {
			p.item(source, blockKey, strings.Join(list, ", "))
		}
	}
	if unknown == nil {
		return
	}
	rank := func(name string) int {
		if i := slices.Index(weighty, name); i >= 0 {
			return i
		}
		return len(weighty)
	}
	slices.SortStableFunc(unknown, func(a, b string) int { return rank(a) - rank(b) })
	text := ""
	for shown := len(unknown); shown > 0; shown-- {
		text = strings.Join(unknown[:shown], ", ")
		if more := len(unknown) - shown; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		if text += "; --condition name=value gives them"; pretty.StringWidth(text) <= Width-blockKey-4 {
			break
		}
	}
	p.item("not known", blockKey, text)
}

// whole writes a count to its last digit, unless it is absurd.
func whole(v float64) string {
	if v < 1e15 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return figure(v)
}

// reconciled writes the server's figures beside ours.
func (p *page) reconciled(v *report.Server) {
	var counted, timed, ours []string
	same := true
	for _, c := range v.Counts {
		same = same && c.AtMost != nil && c.Server == c.Ours && *c.AtMost == c.Ours
	}
	for _, c := range v.Counts {
		if same {
			counted = append(counted, whole(c.Server)+" "+c.What)
			continue
		}
		our := whole(c.Ours)
		if c.AtMost == nil {
			our += " or more"
		} else if *c.AtMost != c.Ours {
			our += " to " + whole(*c.AtMost)
		}
		counted = append(counted, whole(c.Server)+" "+c.What+" (ours "+our+")")
	}
	for _, c := range v.Times {
		what := strings.NewReplacer(report.TimeTTFT, "TTFT", report.TimeLatency, "latency", "gap between tokens", "token gap", "gap between events", "event gap").Replace(c.What)
		timed, ours = append(timed, what+" "+figure(c.Server)), append(ours, figure(c.Ours))
	}
	if counted != nil {
		text := strings.Join(counted, ", ")
		if same {
			text += ": as we did"
		}
		p.item("counted", blockKey, text)
	}
	if timed != nil {
		p.item("timed", blockKey, "mean "+strings.Join(timed, ", ")+" ms (ours "+strings.Join(ours, ", ")+")")
	}
}
