package like

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/report"
)

// Published is what a result file of a tool says, by the names of its figures,
// in the units of the definitions.
type Published struct {
	Tool    Tool
	Figures map[string]Values
}

// Read reads a result file: tokmark's summary.json, AIPerf's or GenAI-Perf's
// profile export, the result JSON of vLLM's or SGLang's serving benchmark, or
// guidellm's report of one benchmark. name stands in errors.
func Read(b []byte, name string) (*Published, error) {
	b = bytes.TrimSpace(StandardJSON(b))
	if lines := bytes.Count(b, []byte("\n")); lines > 0 && json.Valid(b[:bytes.IndexByte(b, '\n')]) {
		return nil, fmt.Errorf("read %s: it holds %d lines of JSON; give one run alone", name, lines+1)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(b, &top); err != nil {
		return nil, fmt.Errorf("read %s: it is no result file in JSON: %w", name, err)
	}
	p := &Published{Figures: map[string]Values{}}
	has := func(keys ...string) bool {
		for _, k := range keys {
			if _, ok := top[k]; !ok {
				return false
			}
		}
		return true
	}
	switch {
	case has("benchmarks"):
		p.Tool = GuideLLM
		return p, p.guidellm(top["benchmarks"], name)
	case has("mean_e2e_latency_ms"):
		p.Tool = SGLang
		p.serving(top)
	case has("mean_ttft_ms"):
		p.Tool = VLLM
		p.serving(top)
	case has("schema", "run"):
		p.Tool = Tokmark
	case has("experiments"):
		return nil, fmt.Errorf("read %s: it holds raw requests, not results: tokmark import makes a run of it", name)
	case has("request_throughput"):
		// GenAI-Perf and AIPerf share their keys but count in other units.
		p.Tool = AIPerf
		var count struct{ Unit string }
		_ = json.Unmarshal(top["request_count"], &count)
		if count.Unit == "count" {
			p.Tool = GenAIPerf
		}
	default:
		return nil, fmt.Errorf("read %s: it is the result of no tool that is known (%s, %s)", name, Tokmark, strings.Join(toolNames(), ", "))
	}
	if p.Tool == Tokmark || p.Tool == AIPerf || p.Tool == GenAIPerf {
		p.sections(top)
	}
	if len(p.Figures) == 0 {
		return nil, fmt.Errorf("read %s: it holds no figure", name)
	}
	return p, nil
}

func toolNames() []string {
	out := make([]string, len(Others))
	for i, t := range Others {
		out[i] = string(t)
	}
	return out
}

// sections reads {"metric":{"unit":…,"avg":…,"p50":…}}.
func (p *Published) sections(top map[string]json.RawMessage) {
	for tag, raw := range top {
		var s struct {
			Unit          *string
			Avg, P50, P99 *float64
		}
		if json.Unmarshal(raw, &s) == nil && s.Unit != nil {
			p.set(tag, s.Avg, s.P50, s.P99)
		}
	}
}

// serving reads mean_ttft_ms, median_ttft_ms, p99_ttft_ms and plain values.
func (p *Published) serving(top map[string]json.RawMessage) {
	value := func(key string) *float64 {
		var v *float64
		if json.Unmarshal(top[key], &v) != nil {
			return nil
		}
		return v
	}
	for _, d := range definitions(p.Tool) {
		if v := value(d.name); v != nil {
			p.set(d.name, v, nil, nil)
			continue
		}
		p.set(d.name, value("mean_"+d.name+"_ms"), value("median_"+d.name+"_ms"), value("p99_"+d.name+"_ms"))
	}
}

func (p *Published) guidellm(raw json.RawMessage, name string) error {
	type distribution struct {
		Successful struct {
			Mean        *float64
			Percentiles map[string]float64
		}
	}
	var benchmarks []struct {
		Metrics map[string]json.RawMessage `json:"metrics"`
	}
	if err := json.Unmarshal(raw, &benchmarks); err != nil {
		return fmt.Errorf("read %s: benchmarks: %w", name, err)
	}
	if len(benchmarks) != 1 {
		return fmt.Errorf("read %s: it holds %d benchmarks; give a report of one", name, len(benchmarks))
	}
	for _, key := range []string{"time_to_first_token", "inter_token_latency", "time_per_output_token", "request_latency"} {
		raw, scale := benchmarks[0].Metrics[key+"_ms"], 1.0
		if raw == nil {
			raw, scale = benchmarks[0].Metrics[key], 1000 // seconds
		}
		var d distribution
		if json.Unmarshal(raw, &d) != nil || d.Successful.Mean == nil {
			continue
		}
		scaled := func(v float64, ok bool) *float64 {
			if !ok {
				return nil
			}
			v *= scale
			return &v
		}
		p50, ok50 := d.Successful.Percentiles["p50"]
		p99, ok99 := d.Successful.Percentiles["p99"]
		p.set(key, scaled(*d.Successful.Mean, true), scaled(p50, ok50), scaled(p99, ok99))
	}
	if len(p.Figures) == 0 {
		return fmt.Errorf("read %s: it holds no figure", name)
	}
	return nil
}

func (p *Published) set(name string, avg, p50, p99 *float64) {
	if avg == nil {
		return
	}
	v := Values{"avg": *avg}
	for key, p := range map[string]*float64{"p50": p50, "p99": p99} {
		if p != nil {
			v[key] = *p
		}
	}
	p.Figures[name] = v
}

// Side is one of two results that are explained.
type Side struct {
	Name string // for people
	*Published
	// Run holds its records, if they are there: they tell by how much a
	// definition changes a figure.
	Run *Run
}

// Line explains one figure that both sides have.
type Line struct {
	Tag              string // our metric
	A, B             string // the sides' names of it
	Unit             string
	ValuesA, ValuesB Values
	// Reasons are the differences of the definitions. Where there are records,
	// each says by how much it moves the values from A to B; those that move
	// nothing are left out.
	Reasons []string
	// Rest is what no definition explains, B - A; nil without records, unless
	// the definitions are the same: then it is the whole difference.
	Rest Values
}

// Explain puts the figures of two sides side by side and names which
// definitions make them differ.
func Explain(a, b Side) ([]Line, error) {
	var lines []Line
	for _, da := range sideDefinitions(a.Tool) {
		for _, db := range sideDefinitions(b.Tool) {
			va, okA := a.Figures[da.name]
			vb, okB := b.Figures[db.name]
			if da.tag == "" || da.tag != db.tag || !okA || !okB || !paired(a.Tool, da, b.Tool, db) {
				continue
			}
			l := Line{Tag: da.tag, A: da.name, B: db.name, Unit: da.unit, ValuesA: va, ValuesB: vb}
			l.explain(a, da, b, db)
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return nil, errors.New("the two results have no figure in common")
	}
	return lines, nil
}

// sideDefinitions are those of a tool; our own are AIPerf's names.
func sideDefinitions(t Tool) []definition {
	if t == Tokmark {
		return append(slices.Clone(aiPerf), definition{tag: "total_token_throughput", name: "total_token_throughput", unit: "tokens/sec"})
	}
	return definitions(t)
}

// paired lets the ITL and the TPOT of one tool meet that of the other, and not
// each other, where both have two figures for our one.
func paired(ta Tool, a definition, tb Tool, b definition) bool {
	two := func(t Tool) bool { return t == VLLM || t == SGLang || t == GuideLLM }
	kind := func(name string) string {
		if name == "time_per_output_token" {
			return "tpot"
		}
		if name == "inter_token_latency" {
			return "itl"
		}
		return name
	}
	return !two(ta) || !two(tb) || kind(a.name) == kind(b.name)
}

// explain goes back from A's definition to ours and on to B's, and measures each
// step where there are records. A step that both have makes no difference.
func (l *Line) explain(a Side, da definition, b Side, db definition) {
	shared := func(change string, steps []step) bool {
		return slices.ContainsFunc(steps, func(s step) bool { return s.change == change })
	}
	run := a.Run
	if run == nil {
		run = b.Run
	}
	rest := Values{}
	for name, v := range l.ValuesA {
		if w, ok := l.ValuesB[name]; ok {
			rest[name] = w - v
		}
	}
	measured := len(da.steps)+len(db.steps) == 0
	for _, side := range []struct {
		steps, other []step
		sign         float64
		undo         string
	}{{da.steps, db.steps, -1, "not: "}, {db.steps, da.steps, 1, ""}} {
		var from Values // nil: not known
		if run != nil {
			if ours, ok := ourFigure(l.Tag)(run); ok {
				from = ours.values()
			}
		}
		for _, s := range side.steps {
			var to Values
			if run != nil {
				if res, ok := s.compute(run); ok {
					to = res.values()
				}
			}
			switch {
			case shared(s.change, side.other):
			case from == nil || to == nil:
				l.Reasons = append(l.Reasons, side.undo+s.change)
			default:
				measured = true
				for name := range rest {
					rest[name] -= side.sign * (to[name] - from[name])
				}
				if change := to.change(from, side.sign); change != "" {
					l.Reasons = append(l.Reasons, side.undo+s.change+" ("+change+")")
				}
			}
			from = to
		}
	}
	if measured {
		l.Rest = rest
	}
}

// WriteExplanation writes the lines for people.
func WriteExplanation(w io.Writer, a, b Side, lines []Line) error {
	var out strings.Builder
	fmt.Fprintf(&out, "A  %s (%s)\nB  %s (%s)\n", clean(a.Name), a.Tool.title(), clean(b.Name), b.Tool.title())
	if a.Run == nil && b.Run == nil && a.Tool != b.Tool {
		out.WriteString("\nNo records are at hand, so what each definition does to the figures is named, not\nmeasured. Give a run directory of tokmark in place of one of the files to have it measured.\n")
	}
	for _, l := range lines {
		m, _ := report.MetricByTag(l.Tag)
		name := l.A
		if l.A != l.B {
			name += " / " + l.B
		}
		fmt.Fprintf(&out, "\n%s: %s (%s)\n", m.Label, name, l.Unit)
		for _, key := range ValueNames {
			x, okA := l.ValuesA[key]
			y, okB := l.ValuesB[key]
			if !okA || !okB {
				continue
			}
			fmt.Fprintf(&out, "  %s  A %.2f, B %.2f: B is %+.2f", key, x, y, y-x)
			if x != 0 {
				fmt.Fprintf(&out, " (%+.1f %%)", 100*(y-x)/x)
			}
			out.WriteString("\n")
		}
		for _, r := range l.Reasons {
			out.WriteString("  - " + r + "\n")
		}
		const little = 0.005 // what two decimals show as 0
		left := Values{}
		for key, v := range l.Rest {
			if v >= little || v <= -little {
				left[key] = v
			}
		}
		rest := left.change(Values{"avg": 0, "p50": 0, "p99": 0}, 1)
		switch {
		case l.Rest == nil:
		case rest == "" && len(l.Reasons) == 0:
			out.WriteString("  no difference\n")
		case rest == "":
			out.WriteString("  that is all of the difference\n")
		case len(l.Reasons) == 0:
			out.WriteString("  the definitions give the same here: the difference is in what was measured\n")
		default:
			fmt.Fprintf(&out, "  no definition explains the rest: %s\n", rest)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// clean makes one safe line of a text that a user or server chose.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '·'
		}
		return r
	}, s)
}
