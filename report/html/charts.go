package html

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/phrase"
)

const perMS = float64(time.Millisecond)

// The places in the palette of page.css.
const (
	blue = iota
	orange
	green
	purple
	red
	grey
)

// distribution is one metric of the section on latency.
type distribution struct {
	tag, histogram string // of the summary
	short, title   string
	bins           func(*View) *bins
}

var distributions = []distribution{
	{"time_to_first_token", "TTFT", "TTFT", "Time to First Token", func(v *View) *bins { return &v.ttft }},
	{"inter_token_latency", "ITL", "ITL", "Inter Token Latency, one value per request", func(v *View) *bins { return &v.itl }},
	{"inter_chunk_latency", "ICL", "gap", "Inter Chunk Latency, the gaps between events of all requests together", func(v *View) *bins { return &v.gap }},
	{"request_latency", "E2E", "latency", "Request Latency, start to last token", func(v *View) *bins { return &v.e2e }},
}

// leastValues is how many values a distribution needs to be drawn.
const leastValues = 2

// quantileCurve is the percentile curve of a metric, up to the last percentile
// that a value of its own stands behind.
func quantileCurve(s *report.Summary, tag string) []point {
	for _, h := range s.Histograms {
		if h.Tag != tag || h.Count() < leastValues {
			continue
		}
		const perDecade = 40
		last := math.Log10(float64(max(h.Count(), 2)))
		n := int(math.Ceil(last * perDecade))
		out := make([]point, 0, n+1)
		for i := range n + 1 {
			x := last * float64(i) / float64(n)
			if ns, ok := h.Quantile(1 - math.Pow(10, -x)); ok {
				out = append(out, point{x, float64(ns) / perMS})
			}
		}
		if ns, ok := h.Max(); ok && len(out) > 0 {
			out[len(out)-1].y = float64(ns) / perMS
		}
		return out
	}
	return nil
}

// percentileChart shows one metric of all runs.
func percentileChart(runs []Run, d distribution) (c chart, ok bool) {
	c = chart{
		ID: "percentiles-" + d.tag, Title: "Percentiles",
		X: axis{Kind: percentiles, Label: "percentile", Max: nan}, Y: axis{Kind: linear, Label: "ms", Unit: "ms", Max: nan},
	}
	for i, run := range runs {
		points := quantileCurve(run.Summary, d.histogram)
		if len(points) == 0 {
			continue
		}
		x, y := columns(points)
		c.Series = append(c.Series, series{Name: run.name(d.short, len(runs)), Style: line, Color: i, X: x, Y: y})
	}
	if len(c.Series) == 0 {
		return c, false
	}
	c.Alt = d.title + " by percentile. The table of distributions has the figures."
	return c, true
}

// histogramChart shows how the values of one metric are spread: counts of one
// run, or shares of each of several, over the same bars.
func histogramChart(runs []Run, d distribution) (c chart, ok bool) {
	what := "requests"
	if d.tag == "inter_chunk_latency" {
		what = "gaps"
	}
	c = chart{
		ID: "histogram-" + d.tag, Title: "Histogram",
		X: axis{Kind: logarithmic, Label: "ms", Unit: "ms"}, Y: axis{Kind: linear, Label: what, Max: nan},
		Alt: d.title + ": how many " + what + " took how long, on a logarithmic scale.",
	}
	if len(runs) > 1 {
		c.Y.Label, c.Y.Unit = "% of each run's "+what, "%"
	}
	first, last, least := math.MaxInt, 0, int64(math.MaxInt64)
	for _, run := range runs {
		b := d.bins(run.View)
		if from, to, ok := b.extent(); ok && b.n >= leastValues {
			first, last, least = min(first, from), max(last, to), min(least, b.n)
		}
		if b.none() > 0 && len(runs) == 1 {
			c.Note = phrase.Figure(float64(b.none())) + " of " + phrase.Figure(float64(b.n)) + " came together and are not drawn"
		}
	}
	const fewest, most = 10, 60
	n := min(max(int(2*math.Sqrt(float64(least))), fewest), most)
	var ends bar
	for i, run := range runs {
		b := d.bins(run.View)
		if _, _, ok := b.extent(); !ok || b.n < leastValues {
			continue
		}
		s := series{Name: what, Style: bars, Color: i}
		each := 1.0
		if len(runs) > 1 {
			const percent = 100
			s.Name, s.Style, each = run.Name, steps, percent/float64(b.n)
		}
		all := b.bars(first, last, n)
		ends = bar{low: all[0].low, high: all[len(all)-1].high}
		for _, one := range all {
			at := math.Log10(one.low / perMS) // a step goes on from there
			if s.Style == bars {
				at = (at + math.Log10(one.high/perMS)) / 2
			}
			s.X, s.Y = append(s.X, num(at)), append(s.Y, num(each*float64(one.count)))
		}
		if s.Style == steps {
			s.X, s.Y = append(s.X, num(math.Log10(ends.high/perMS))), append(s.Y, 0)
		}
		c.Series = append(c.Series, s)
	}
	if len(c.Series) == 0 {
		return c, false
	}
	const pad, leastPad = 0.02, 0.005
	room := max(leastPad, pad*math.Log10(ends.high/ends.low))
	c.X.Min, c.X.Max = num(math.Log10(ends.low/perMS)-room), num(math.Log10(ends.high/perMS)+room)
	return c, true
}

// timeCharts builds charts whose x axis is the time of one run.
type timeCharts struct {
	s           *report.Summary
	v           *View
	first, last record.Time
	n           int // bins
}

func newTimeCharts(s *report.Summary, v *View) *timeCharts {
	t := &timeCharts{s: s, v: v, first: v.origin, last: v.end}
	for i := range v.requests {
		t.first = min(t.first, v.requests[i].start)
	}
	const perBin, fewest, most = 12, 20, 240
	t.n = min(max(len(v.requests)/perBin, fewest), most)
	return t
}

// draw returns a chart over time with the window drawn.
func (t *timeCharts) draw(id, title, note, alt string, wide bool, y axis, all ...series) chart {
	c := chart{
		ID: id, Title: title, Note: note, Alt: alt, Wide: wide, Sync: "time",
		X:      axis{Kind: linear, Label: "time (s)", Unit: "s", Min: num(t.v.seconds(t.first)), Max: num(t.v.seconds(t.last))},
		Y:      y,
		Series: all,
	}
	if w := t.s.Window; w != nil {
		c.Band = []num{num(w.From), num(w.To)}
	}
	return c
}

// at is the middle of a bin in seconds.
func (t *timeCharts) at(k int) float64 {
	width := float64(t.last-t.first) / float64(t.n)
	return t.v.seconds(t.first) + (float64(k)+0.5)*width/1e9
}

// binned makes a series of values, one a bin.
func (t *timeCharts) binned(name string, color int, values []float64) series {
	s := series{Name: name, Style: line, Color: color}
	for k, v := range values {
		s.X, s.Y = append(s.X, num(t.at(k))), append(s.Y, num(v))
	}
	return s
}

// constant is a dashed line over the whole chart.
func (t *timeCharts) constant(name string, color int, v float64) series {
	return series{
		Name: name, Style: dashed, Color: color,
		X: []num{num(t.v.seconds(t.first)), num(t.v.seconds(t.last))}, Y: []num{num(v), num(v)},
	}
}

func amount(label, unit string) axis { return axis{Kind: linear, Label: label, Unit: unit, Max: nan} }

func (t *timeCharts) all() []chart {
	if len(t.v.requests) == 0 || t.last <= t.first {
		return nil
	}
	out := []chart{t.inFlight(), t.requestRate()}
	if t.v.tokens.sums != nil {
		out = append(out, t.draw("tokens", "Output tokens", "by the arrival of their events",
			"Output tokens a second over time.", true, amount("tokens/s", "tok/s"),
			t.binned("output tokens", blue, t.v.tokens.rates(t.first, t.last, t.n))))
	}
	if t.v.ttft.n > 0 {
		out = append(out, t.ttft())
	}
	out = append(out, t.server()...)
	return append(out, t.client()...)
}

func (t *timeCharts) inFlight() chart {
	actual := make([]float64, t.n)
	width := float64(t.last-t.first) / float64(t.n)
	for i := range t.v.requests {
		q := &t.v.requests[i]
		from, to := float64(q.start-t.first)/width, float64(q.end-t.first)/width
		spread(actual, from, to, to-from)
	}
	all := []series{t.binned("in flight", blue, actual)}
	asked := t.s.Manifest.Load.Concurrency
	note := "mean of each moment"
	switch {
	case asked == 0:
	case t.s.Load.OpenLoop:
		all = append(all, t.constant("cap", grey, float64(asked)))
		note += "; dashed: the cap"
	default:
		all = append(all, t.constant("asked", grey, float64(asked)))
		note += "; dashed: asked for"
	}
	return t.draw("in-flight", "Requests in flight", note, "Requests in flight over time.", true, amount("requests", ""), all...)
}

func (t *timeCharts) requestRate() chart {
	started, ended, failed := make([]float64, t.n), make([]float64, t.n), make([]float64, t.n)
	width := float64(t.last-t.first) / float64(t.n)
	perSecond := 1e9 / width
	failures := false
	place := func(at record.Time) int { return min(max(int(float64(at-t.first)/width), 0), t.n-1) }
	for i := range t.v.requests {
		q := &t.v.requests[i]
		started[place(q.start)] += perSecond
		switch {
		case q.valid:
			ended[place(q.last)] += perSecond
		case q.failed:
			failures = true
			failed[place(q.end)] += perSecond
		}
	}
	all := []series{t.binned("started", grey, started), t.binned("completed", blue, ended)}
	if failures {
		all = append(all, t.binned("failed", red, failed))
	}
	if asked := t.s.Manifest.Load.Rate; asked > 0 {
		all = append(all, t.constant("asked", grey, asked))
	}
	return t.draw("requests", "Requests", "started and completed a second", "Requests started, completed and failed a second over time.",
		true, amount("requests/s", "req/s"), all...)
}

func (t *timeCharts) ttft() chart {
	var cloud []point
	inBin := make([][]float64, t.n)
	width := float64(t.last-t.first) / float64(t.n)
	for i := range t.v.requests {
		q := &t.v.requests[i]
		if !q.hasTTFT {
			continue
		}
		ms := float64(q.ttft) / perMS
		cloud = append(cloud, point{t.v.seconds(q.start), ms})
		k := min(int(float64(q.start-t.first)/width), t.n-1)
		inBin[k] = append(inBin[k], ms)
	}
	var middle []point
	for k, values := range inBin {
		if len(values) > 0 {
			slices.Sort(values)
			middle = append(middle, point{t.at(k), values[len(values)/2]})
		}
	}
	x, y := columns(thin(cloud))
	all := []series{{Name: "request", Style: dots, Color: blue, X: x, Y: y}}
	note := "by the start of the request"
	if len(middle) >= 3 {
		x, y := columns(middle)
		all = append(all, series{Name: "median", Style: line, Color: orange, X: x, Y: y})
		note += "; line: median of each moment"
	}
	return t.draw("ttft", "Time to First Token", note, "Time to First Token of the requests over time.", true, amount("ms", "ms"), all...)
}

// sampled makes a series of a value of the samples of one place, if there are
// any. With an of value, it is the growth of the one over that of the other;
// with perSecond, the growth a second.
type sampled struct {
	from, value, over string
	perSecond         bool
	scale             float64
	name              string
	color             int
}

func (t *timeCharts) sampled(all ...sampled) []series {
	var out []series
	for _, one := range all {
		var points []point
		var before record.Sample
		for _, s := range t.v.samples {
			v, ok := s.Values[one.value]
			if s.From != one.from || !ok || s.At < t.first || s.At > t.last {
				continue
			}
			last, hasLast := before.Values[one.value]
			switch growth := v - last; {
			case one.over != "":
				if over := s.Values[one.over] - before.Values[one.over]; hasLast && over > 0 && growth >= 0 {
					points = append(points, point{t.v.seconds(s.At), one.scale * growth / over})
				}
			case one.perSecond:
				if d := s.At.Sub(before.At).Seconds(); hasLast && d > 0 && growth >= 0 {
					points = append(points, point{t.v.seconds(s.At), one.scale * growth / d})
				}
			default:
				points = append(points, point{t.v.seconds(s.At), one.scale * v})
			}
			before = s
		}
		if len(points) > 0 {
			const most = 600
			x, y := columns(outline(points, most))
			out = append(out, series{Name: one.name, Style: line, Color: one.color, X: x, Y: y})
		}
	}
	return out
}

// The names of values that servers and GPUs tell: those of package target,
// which a report does not import.
const (
	serverRunning       = "running"
	serverWaiting       = "waiting"
	serverKVUsage       = "kv_usage"
	serverPrefixQueries = "prefix_queries"
	serverPrefixHits    = "prefix_hits"
	serverPreemptions   = "preemptions"
	serverAccepted      = "spec_accepted"
	serverDrafted       = "spec_drafted"
	gpuUtilization      = "gpu_utilization"
	gpuPower            = "gpu_power_watts"
)

func (t *timeCharts) server() []chart {
	var out []chart
	add := func(id, title, note string, y axis, all []series) {
		if len(all) > 0 {
			out = append(out, t.draw(id, title, note, title+" over time, as the server tells.", false, y, all...))
		}
	}
	const percent = 100
	add("server-queue", "Server: running and waiting", "requests in the batch and in the queue", amount("requests", ""), t.sampled(
		sampled{from: record.FromServer, value: serverRunning, scale: 1, name: "running", color: blue},
		sampled{from: record.FromServer, value: serverWaiting, scale: 1, name: "waiting", color: orange}))
	add("server-cache", "Server: caches", "KV cache in use, prefix cache hits, draft tokens accepted", amount("%", "%"), t.sampled(
		sampled{from: record.FromServer, value: serverKVUsage, scale: percent, name: "KV cache in use", color: purple},
		sampled{from: record.FromServer, value: serverPrefixHits, over: serverPrefixQueries, scale: percent, name: "prefix hits", color: green},
		sampled{from: record.FromServer, value: serverAccepted, over: serverDrafted, scale: percent, name: "drafts accepted", color: blue}))
	if all := t.preemptions(); len(all) > 0 && slices.ContainsFunc(all[0].Y, func(y num) bool { return y > 0 }) {
		add("server-preemptions", "Server: preemptions", "a second", amount("preemptions/s", ""), all)
	}
	add("gpu", "GPU", "utilization, mean over GPUs", amount("%", "%"), t.sampled(
		sampled{from: record.FromGPU, value: gpuUtilization, scale: percent, name: "utilization", color: green}))
	add("gpu-power", "GPU power", "of all GPUs together", amount("W", "W"), t.sampled(
		sampled{from: record.FromGPU, value: gpuPower, scale: 1, name: "power", color: orange}))
	return out
}

func (t *timeCharts) preemptions() []series {
	return t.sampled(sampled{from: record.FromServer, value: serverPreemptions, perSecond: true, scale: 1, name: "preemptions", color: red})
}

func (t *timeCharts) client() []chart {
	var out []chart
	const percent, ms = 100, 1e3
	shares := []sampled{{from: record.FromClient, value: record.ClientMachineCPU, scale: percent, name: "machine", color: grey}}
	note := "in use, of the machine"
	if procs := t.s.Manifest.Host.Procs; procs > 0 {
		shares = append(shares, sampled{from: record.FromClient, value: record.ClientCPU, scale: percent / float64(procs), name: "this client", color: blue})
		note += " and of this client's own"
	}
	if all := t.sampled(shares...); len(all) > 0 {
		c := t.draw("client-cpu", "Client: processors", note, "Use of the client's processors over time.", false, amount("%", "%"), all...)
		out = append(out, c)
	}
	if all := t.sampled(
		sampled{from: record.FromClient, value: record.ClientSchedP99, scale: ms, name: "scheduler p99", color: blue},
		sampled{from: record.FromClient, value: record.ClientGCPauseMax, scale: ms, name: "longest GC pause", color: orange},
		sampled{from: record.FromClient, value: record.ClientLateMax, scale: ms, name: "latest start", color: red},
		sampled{from: record.FromClient, value: record.ClientLagMax, scale: ms, name: "longest receive lag", color: green}); len(all) > 0 {
		out = append(out, t.draw("client-delays", "Client: delays", "wait of a runnable goroutine, stops of the world, requests started late, events read after the kernel had them",
			"Delays inside of the client over time.", false, amount("ms", "ms"), all...))
	}
	return out
}

// stallChart shows the stalls over time: those that coincide, and the others.
func (t *timeCharts) stallChart() (c chart, ok bool) {
	var alone, together []point
	for _, one := range t.v.stalls.list {
		p := point{t.v.seconds(one.from), float64(one.length()) / perMS}
		if one.coincide() {
			together = append(together, p)
		} else {
			alone = append(alone, p)
		}
	}
	if len(alone)+len(together) == 0 {
		return chart{}, false
	}
	var all []series
	for _, part := range []struct {
		name   string
		color  int
		points []point
	}{{"alone", blue, alone}, {"with at least half of the other streams", red, together}} {
		if x, y := columns(thin(part.points)); len(x) > 0 {
			all = append(all, series{Name: part.name, Style: dots, Color: part.color, X: x, Y: y})
		}
	}
	return t.draw("stalls", "Stalls over time", "length of each stall", "Stalls over time and how long they were.", true, amount("ms", "ms"), all...), true
}

// lengthChart shows TTFT against the input tokens that the server had to
// compute, with the summary's line through them, or, where it does not tell of
// its cache, against all input tokens. There is none if the lengths are alike.
func lengthChart(s *report.Summary, v *View) (c chart, ok bool) {
	var computed, input []point
	for i := range v.requests {
		q := &v.requests[i]
		if !q.hasTTFT || !q.input.IsKnown() {
			continue
		}
		ms := float64(q.ttft) / perMS
		input = append(input, point{float64(q.input), ms})
		cached := q.cached
		if !cached.IsKnown() && v.cold {
			cached = 0
		}
		if cached.IsKnown() && cached <= q.input {
			computed = append(computed, point{float64(q.input - cached), ms})
		}
	}
	cloud, what := input, "input tokens"
	if len(computed) > 0 {
		cloud, what = computed, "uncached input tokens"
	}
	x, y := columns(thin(cloud))
	const alike = 1.1
	if len(x) == 0 || x[len(x)-1] <= alike*x[0] {
		return chart{}, false
	}
	const margin = 50
	first, last := x[0], x[len(x)-1]
	c = chart{
		ID: "input-length", Title: "Time to First Token by input length", Wide: true,
		Alt:    "Time to First Token against " + what + ".",
		X:      axis{Kind: linear, Label: what, Unit: "tokens", Min: first - (last-first)/margin, Max: last + (last-first)/margin},
		Y:      amount("ms", "ms"),
		Series: []series{{Name: "request", Style: dots, Color: blue, X: x, Y: y}},
	}
	if p := s.Prefill; p != nil && len(computed) > 0 {
		from, to := float64(p.Shortest), float64(p.Longest)
		c.Series = append(c.Series, series{
			Name: "fit", Style: dashed, Color: orange,
			X: []num{num(from), num(to)}, Y: []num{num(p.Fixed + p.PerToken*from), num(p.Fixed + p.PerToken*to)},
		})
		c.Note = "dashed: " + prefill(p)
		c.Alt += " The line: " + prefill(p) + "."
	}
	return c, true
}

// prefill says the cost of prefill in words.
func prefill(p *report.PrefillCost) string {
	const thousand = 1000
	return fmt.Sprintf("%s ms a request + %s ms for each 1,000 uncached input tokens (least squares, R² %s)",
		phrase.Figure(p.Fixed), phrase.Figure(thousand*p.PerToken), phrase.Figure(p.R2))
}
