package html

import (
	"cmp"
	"fmt"
	"slices"

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

// byLoad shows a sweep: figures against the load, and the throughput of the
// system against the speed that one user sees.
func byLoad(runs []Run) section {
	sec := section{ID: "load", Title: "By load"}
	load := func(r Run) float64 {
		l := r.Summary.Manifest.Load
		if l.Rate > 0 {
			return l.Rate
		}
		return float64(l.Concurrency)
	}
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b Run) int {
		return cmp.Compare(load(a), load(b))
	})
	low, high := load(sorted[0]), load(sorted[len(sorted)-1])
	byRate := sorted[0].Summary.Manifest.Load.Rate > 0
	for _, r := range sorted {
		if (r.Summary.Manifest.Load.Rate > 0) != byRate {
			return sec // loads of two kinds do not stand on one axis
		}
	}
	if low == high || low == 0 {
		return sec
	}
	var pareto []point
	var labels []string
	for _, r := range sorted {
		system, ok1 := r.Summary.Metric("output_token_throughput")
		user, ok2 := r.Summary.Metric("output_token_throughput_per_user")
		if ok1 && ok2 {
			v, _ := user.Statistic.Percentile(50)
			what := " in flight"
			if byRate {
				what = " req/s"
			}
			pareto = append(pareto, point{v, system.Value})
			labels = append(labels, phrase.Figure(load(r))+what)
		}
	}
	f := figures{}
	if len(pareto) > 1 {
		x, y := columns(pareto)
		f.Charts = append(f.Charts, chart{
			ID: "pareto", Title: "Throughput and speed", Note: "output tokens a second of the system, against the median speed that a user sees; up and right is better",
			Alt: "Output token throughput against the speed per user. The table of headline figures has the values.", Wide: true,
			X: axis{Kind: linear, Label: "tokens/s of a user, median", Unit: "tok/s", Max: nan}, Y: amount("tokens/s", "tok/s"),
			Series: []series{{Name: "run", Style: rings, Color: blue, X: x, Y: y, Labels: labels}},
		})
	}
	label, unit := "requests in flight", ""
	if byRate {
		label, unit = "requests/s asked", "req/s"
	}
	for _, tag := range []string{"time_to_first_token", "inter_token_latency"} {
		c := chart{ID: "load-" + tag, X: axis{Kind: linear, Label: label, Unit: unit, Max: nan}, Y: amount("ms", "ms")}
		for i, percent := range []float64{50, 99} {
			s := series{Name: phrase.Percentile(percent), Style: rings, Color: i}
			for _, r := range sorted {
				if m, ok := r.Summary.Metric(tag); ok {
					v, _ := m.Statistic.Percentile(percent)
					s.X, s.Y = append(s.X, num(load(r))), append(s.Y, num(v))
					c.Title = m.Label
				}
			}
			if len(s.X) > 0 {
				c.Series = append(c.Series, s)
			}
		}
		if len(c.Series) > 0 {
			c.Alt = c.Title + " by load, at the median and p99."
			f.Charts = append(f.Charts, c)
		}
	}
	if len(f.Charts) > 0 {
		sec.Figures = []figures{f}
	}
	return sec
}
