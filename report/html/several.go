package html

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/phrase"
)

// paletteSize is how many runs can be told apart by colour.
const paletteSize = 6

// severalPage compares runs.
func severalPage(runs []Run) *page {
	runs = slices.Clone(runs)
	seen := make(map[string]bool)
	for i, r := range runs {
		name := clean(cmp.Or(r.Name, r.Summary.Manifest.ID, "run"))
		for n := 2; seen[name]; n++ {
			name = fmt.Sprintf("%s (%d)", clean(cmp.Or(r.Name, r.Summary.Manifest.ID, "run")), n)
		}
		seen[name] = true
		runs[i].Name = name
	}
	p := &page{Title: fmt.Sprintf("%d runs", len(runs)), Kicker: "tokmark comparison", Footer: phrase.Tool(runs[0].Summary.Manifest.Tool)}
	sec := section{ID: "runs", Title: "The runs", Tables: []table{comparison(runs), facts(runs)}}
	p.Sections = append(p.Sections, sec)
	if sec := objectives(runs); len(sec.Tables) > 0 {
		p.Sections = append(p.Sections, sec)
	}
	if sec := byLoad(runs); len(sec.Figures) > 0 {
		p.Sections = append(p.Sections, sec)
	}
	overlaid := runs[:min(len(runs), paletteSize)]
	if sec := latency(overlaid); len(sec.Figures) > 0 {
		if len(overlaid) < len(runs) {
			sec.Lead = fmt.Sprintf("The first %d runs; the others are in the table.", paletteSize)
		}
		p.Sections = append(p.Sections, sec)
	}
	return p
}

// comparison is the headline figures, a row each run.
func comparison(runs []Run) table {
	t := table{Caption: "Headline figures", Head: []string{"run", "verdict"}, Note: "* fewer than ten values lie beyond this percentile: it rests on chance."}
	type key struct {
		tag     string
		percent float64
	}
	var columns []key
	known := make(map[key]bool)
	for _, r := range runs {
		for _, h := range phrase.Headlines(r.Summary) {
			k := key{h.Tag, h.Percent}
			if known[k] {
				continue
			}
			known[k] = true
			columns = append(columns, k)
			name := h.Name()
			if u := h.UnitText(); u != "" {
				name += " (" + u + ")"
			}
			t.Head = append(t.Head, name)
		}
	}
	for _, r := range runs {
		row := []cell{head(r.Name), {Text: string(r.Summary.Verdict.Level)}}
		values := make(map[key]string)
		for _, h := range phrase.Headlines(r.Summary) {
			values[key{h.Tag, h.Percent}] = star(h)
		}
		for _, k := range columns {
			row = append(row, cell{Text: cmp.Or(values[k], phrase.Unknown)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// facts are the conditions of the runs, a row each condition, and which of
// them differ.
func facts(runs []Run) table {
	t := table{Caption: "Conditions (≠: they differ)", Head: []string{"condition", ""}, Texts: len(runs)}
	var keys []string
	values := make([]map[string]string, len(runs))
	for i, r := range runs {
		t.Head = append(t.Head, r.Name)
		values[i] = make(map[string]string)
		for _, f := range conditions(r.Summary) {
			if f.Key == "workload" {
				f.Text = clean(r.Summary.Manifest.Workload) // salts differ, and say nothing
			}
			if !slices.Contains(keys, f.Key) {
				keys = append(keys, f.Key)
			}
			values[i][f.Key] = f.Text
		}
	}
	for _, k := range keys {
		row := []cell{head(k), {}}
		for i := range runs {
			if values[i][k] != values[0][k] {
				row[1].Text = "≠"
			}
			row = append(row, words(cmp.Or(values[i][k], phrase.Unknown)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sweep is a line on the charts by load: the runs of one group.
type sweep struct {
	name   string
	points []sweepPoint // in the order of their levels
}

// sweepPoint is one level of the load, with one run or repeats.
type sweepPoint struct {
	level float64
	runs  []*report.Summary
}

// figure is the mean of a figure over the runs, and how far they lie apart.
func (p sweepPoint) figure(of func(*report.Summary) (float64, bool)) (mean, low, high float64, ok bool) {
	low, high = math.Inf(1), math.Inf(-1)
	n := 0.0
	for _, s := range p.runs {
		if v, has := of(s); has {
			mean, low, high, n = mean+v, min(low, v), max(high, v), n+1
		}
	}
	return mean / n, low, high, n > 0
}

// sweeps puts the runs of each group in the order of their levels. It is none
// if all have one level, or if they are of different kinds: those do not stand
// on one axis.
func sweeps(runs []Run) (out []sweep, kind string) {
	kind, first := runs[0].Summary.Manifest.Load.Level()
	differ := false
	for _, r := range runs {
		name, level := r.Summary.Manifest.Load.Level()
		if name != kind || level == 0 {
			return nil, ""
		}
		differ = differ || level != first
		at := slices.IndexFunc(out, func(s sweep) bool { return s.name == r.Group })
		if at < 0 {
			at = len(out)
			out = append(out, sweep{name: r.Group})
		}
		s := &out[at]
		i, known := slices.BinarySearchFunc(s.points, level, func(p sweepPoint, level float64) int { return cmp.Compare(p.level, level) })
		if !known {
			s.points = slices.Insert(s.points, i, sweepPoint{level: level})
		}
		s.points[i].runs = append(s.points[i].runs, r.Summary)
	}
	if !differ {
		return nil, ""
	}
	return out, kind
}

// loadAxes are the axes of the charts by load, by the kind of load: the words
// beside the axis, its unit, and what stands after a figure.
var loadAxes = map[string][3]string{
	"concurrency":  {"requests in flight", "", " in flight"},
	"request_rate": {"requests/s asked", "req/s", " req/s"},
	"num_users":    {"users", "", " users"},
}

// byLoad shows sweeps: figures against the load, and the throughput of the
// system against the speed that one user sees.
func byLoad(runs []Run) section {
	sec := section{ID: "load", Title: "By load"}
	all, kind := sweeps(runs)
	if all == nil {
		return sec
	}
	repeated := false
	for _, s := range all {
		for _, p := range s.points {
			repeated = repeated || len(p.runs) > 1
		}
	}
	if repeated {
		sec.Lead = "Repeats at one load are one point, their mean; a line through it spans them. The table of headline figures has each run."
	}
	of := func(tag string, percent float64) func(*report.Summary) (float64, bool) {
		return func(s *report.Summary) (float64, bool) {
			m, ok := s.Metric(tag)
			if !ok || m.Statistic == nil {
				return m.Value, ok
			}
			return m.Statistic.Percentile(percent)
		}
	}
	name := func(s sweep, i int) string {
		if len(all) == 1 {
			return "run"
		}
		return clean(cmp.Or(s.name, fmt.Sprintf("group %d", i+1)))
	}
	// plot adds a point of a series, with the span of repeats.
	plot := func(s *series, x, y, low, high float64) {
		s.X, s.Y = append(s.X, num(x)), append(s.Y, num(y))
		if repeated {
			s.Low, s.High = append(s.Low, num(low)), append(s.High, num(high))
		}
	}
	axisOf := loadAxes[kind]
	f := figures{}
	pareto := chart{
		ID: "pareto", Title: "Throughput and speed", Note: "output tokens a second of the system, against the median speed that a user sees; up and right is better",
		Alt: "Output token throughput against the speed per user. The table of headline figures has the values.", Wide: true,
		X: axis{Kind: linear, Label: "tokens/s of a user, median", Unit: "tok/s", Max: nan}, Y: amount("tokens/s", "tok/s"),
	}
	for i, s := range all {
		one := series{Name: name(s, i), Style: rings, Color: i}
		for _, p := range s.points {
			y, low, high, ok1 := p.figure(of("output_token_throughput", 0))
			x, _, _, ok2 := p.figure(of("output_token_throughput_per_user", 50))
			if ok1 && ok2 {
				plot(&one, x, y, low, high)
				one.Labels = append(one.Labels, phrase.Figure(p.level)+axisOf[2])
			}
		}
		if len(one.X) > 0 {
			pareto.Series = append(pareto.Series, one)
		}
	}
	if pareto.points() > 1 {
		f.Charts = append(f.Charts, pareto)
	}
	for _, tag := range []string{"time_to_first_token", "inter_token_latency"} {
		c := chart{ID: "load-" + tag, X: axis{Kind: linear, Label: axisOf[0], Unit: axisOf[1], Max: nan}, Y: amount("ms", "ms")}
		for i, s := range all {
			for k, percent := range []float64{50, 99} {
				one := series{Name: phrase.Percentile(percent), Style: rings, Color: k}
				if len(all) > 1 {
					one.Name, one.Color = name(s, i)+" "+one.Name, i
					if percent > 50 {
						one.Style = dashedRings
					}
				}
				for _, p := range s.points {
					if y, low, high, ok := p.figure(of(tag, percent)); ok {
						plot(&one, p.level, y, low, high)
					}
				}
				if len(one.X) > 0 {
					c.Series = append(c.Series, one)
				}
			}
		}
		if len(c.Series) > 0 {
			m, _ := report.MetricByTag(tag)
			if len(all) > 1 {
				c.Note = "p99 dashed"
			}
			c.Title, c.Alt = m.Label, m.Label+" by load, at the median and p99."
			f.Charts = append(f.Charts, c)
		}
	}
	if len(f.Charts) > 0 {
		sec.Figures = []figures{f}
	}
	return sec
}
