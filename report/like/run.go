package like

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// Run holds the records of a run, so that several tools can look at them. It
// is not changed after New and may then be read concurrently.
type Run struct {
	m    *record.Manifest
	sent []*record.Record // measured requests that were sent
}

// New takes in the records of a run; lines that could not be read are passed
// over, as the summary counts them.
func New(m *record.Manifest, records iter.Seq2[*record.Record, error]) (*Run, error) {
	run := &Run{m: m}
	for r, err := range records {
		var damaged *record.LineError
		switch {
		case errors.As(err, &damaged):
		case err != nil:
			return nil, err
		case r.Phase == record.PhaseMeasure && r.Start.IsSet() && r.Outcome != record.Dropped:
			run.sent = append(run.sent, r)
		}
	}
	return run, nil
}

// Figure is one number of a tool.
type Figure struct {
	// Tag names our metric that goes by the same idea, Name the tool's own.
	Tag, Name, Unit string
	// Statistic describes a distribution; without one Value is the figure.
	Statistic *stats.Statistic
	Value     float64
	// Steps lead from our definition to the tool's, one change after the
	// other; there are none where the two are the same.
	Steps []Step
}

// Step is one change of a definition, and what it leads to; nil if there is no
// such figure then.
type Step struct {
	Change string
	Values *Values
}

// Values are the average and, of a distribution, two percentiles, by the names
// avg, p50 and p99.
type Values map[string]float64

// ValueNames are the names in Values, in the order of reports.
var ValueNames = []string{"avg", "p50", "p99"}

// Values returns those of the figure.
func (f Figure) Values() Values { return result{f.Statistic, f.Value}.values() }

func (r result) values() Values {
	v := Values{"avg": r.avg()}
	if r.stat != nil {
		v["p50"], _ = r.stat.Percentile(50)
		v["p99"], _ = r.stat.Percentile(99)
	}
	return v
}

// change writes by how much each value changes, or nothing if none does.
func (v Values) change(from Values, sign float64) string {
	var parts []string
	for _, name := range ValueNames {
		a, ok1 := from[name]
		b, ok2 := v[name]
		if ok1 && ok2 && !same(a, b) {
			parts = append(parts, fmt.Sprintf("%s %+.2f", name, sign*(b-a)))
		}
	}
	return strings.Join(parts, ", ")
}

// Avg is the average of a distribution, or the value.
func (f Figure) Avg() float64 {
	if f.Statistic != nil {
		return f.Statistic.Avg
	}
	return f.Value
}

// View is a run in the words of a tool.
type View struct {
	Tool    Tool
	Figures []Figure
	// Notes tell what the records cannot tell, and what else the tool would
	// have done.
	Notes []string
}

// Figure returns the figure with the tool's own name.
func (v *View) Figure(name string) (Figure, bool) {
	for _, f := range v.Figures {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}

// As shows the run under the definitions of a tool. A figure that the tool
// would not report is not there.
func (run *Run) As(tool Tool) *View {
	v := &View{Tool: tool, Notes: run.notes(tool)}
	for _, d := range definitions(tool) {
		if m, ok := report.MetricByTag(d.tag); ok && m.StreamingOnly && !run.m.Target.Streaming {
			continue
		}
		f := Figure{Tag: d.tag, Name: d.name, Unit: d.unit}
		res, ok := ourFigure(d.tag)(run)
		for _, s := range d.steps {
			if res, ok = s.compute(run); ok {
				values := res.values()
				f.Steps = append(f.Steps, Step{s.change, &values})
			} else {
				f.Steps = append(f.Steps, Step{s.change, nil})
			}
		}
		if f.Statistic, f.Value = res.stat, res.value; ok {
			v.Figures = append(v.Figures, f)
		}
	}
	return v
}

// definition is a figure of a tool, told as what has to be changed in ours.
type definition struct {
	tag, name, unit string
	steps           []step
}

type step struct {
	change  string
	compute compute
}

// compute makes a figure; false: there is none.
type compute func(*Run) (result, bool)

type result struct {
	stat  *stats.Statistic
	value float64
}

func (r result) avg() float64 {
	if r.stat != nil {
		return r.stat.Avg
	}
	return r.value
}

// definitions returns those of a tool, in the order of its own report.
func definitions(tool Tool) []definition {
	switch tool {
	case GenAIPerf:
		return genaiPerf
	case AIPerf:
		return aiPerf
	case VLLM:
		return vllm
	case SGLang:
		return sglang
	case GuideLLM:
		return guidellm
	default:
		return nil
	}
}

// who says whether a request counts, and each hands its values on.
type (
	who  func(*Run, *record.Record) bool
	each func(r *record.Record, add func(float64))
)

// distribution describes the values of the requests that count, in units of
// per.
func distribution(counts who, values each, per float64) compute {
	return func(run *Run) (result, bool) {
		var s stats.Sample[float64]
		for _, r := range run.sent {
			if counts(run, r) {
				values(r, s.Add)
			}
		}
		st, ok := s.Describe(per)
		return result{stat: &st}, ok
	}
}

// one hands on a single value, where there is one.
func one[T ~int64 | ~float64](of func(*record.Record) (T, bool)) each {
	return func(r *record.Record, add func(float64)) {
		if v, ok := of(r); ok {
			add(float64(v))
		}
	}
}

// total sums the values of the requests that count.
func (run *Run) total(counts who, of func(*record.Record) (int64, bool)) (sum float64, known bool) {
	for _, r := range run.sent {
		if counts(run, r) {
			if n, ok := of(r); ok {
				sum, known = sum+float64(n), true
			}
		}
	}
	return sum, known
}

func (run *Run) count(counts who) float64 {
	n := 0
	for _, r := range run.sent {
		if counts(run, r) {
			n++
		}
	}
	return float64(n)
}

// span is the time from the first start to the last end of those that count,
// in seconds.
func (run *Run) span(counts who, end func(*record.Record) (record.Time, bool)) (float64, bool) {
	first, last, any := record.Time(0), record.Time(0), false
	for _, r := range run.sent {
		if !counts(run, r) {
			continue
		}
		at, ok := end(r)
		if !ok {
			continue
		}
		if !any {
			first, last, any = r.Start, at, true
		}
		first, last = min(first, r.Start), max(last, at)
	}
	return last.Sub(first).Seconds(), any && last > first
}

// rate divides by a span.
func rate(n func(*Run) (float64, bool), span func(*Run) (float64, bool)) compute {
	return func(run *Run) (result, bool) {
		v, ok := n(run)
		seconds, long := span(run)
		if !ok || !long {
			return result{}, false
		}
		return result{value: v / seconds}, true
	}
}

const ms = float64(time.Millisecond)

// Our own definitions, which every chain of steps begins with.

func valid(run *Run, r *record.Record) bool { return r.Valid() && !run.m.Late(r) }

func everyone(*Run, *record.Record) bool { return true }

// ourFigure computes a metric of ours.
func ourFigure(tag string) compute {
	switch tag {
	case "inter_chunk_latency":
		return distribution(valid, func(r *record.Record, add func(float64)) { addGaps(r.Gaps(nil), add) }, ms)
	case "request_count":
		return func(run *Run) (result, bool) { return result{value: run.count(valid)}, true }
	case "request_throughput":
		return rate(func(run *Run) (float64, bool) { n := run.count(valid); return n, n > 0 }, window)
	case "output_token_throughput":
		return rate(func(run *Run) (float64, bool) { return run.total(valid, (*record.Record).OSL) }, window)
	case "total_token_throughput":
		return rate(func(run *Run) (float64, bool) {
			out, ok1 := run.total(valid, (*record.Record).OSL)
			in, ok2 := run.total(valid, (*record.Record).ISL)
			return in + out, ok1 && ok2
		}, window)
	case "goodput":
		return goodput
	}
	m, _ := report.MetricByTag(tag)
	return distribution(valid, one(m.Of), 1)
}

func window(run *Run) (float64, bool) { return run.span(valid, (*record.Record).LastOutput) }

func addGaps(gaps []time.Duration, add func(float64)) {
	for _, g := range gaps {
		add(float64(g))
	}
}

func goodput(run *Run) (result, bool) {
	if len(run.m.Goodput) == 0 {
		return result{}, false
	}
	good := 0.0
	for _, r := range run.sent {
		if valid(run, r) && meets(run.m.Goodput, func(tag string) (float64, bool) {
			m, _ := report.MetricByTag(tag)
			return m.Of(r)
		}) {
			good++
		}
	}
	seconds, ok := window(run)
	if !ok {
		return result{}, false
	}
	return result{value: good / seconds}, true
}

// meets reports whether the values meet every objective, bounds included; one
// that is missing meets none.
func meets(objectives map[string]float64, value func(tag string) (float64, bool)) bool {
	for tag, limit := range objectives {
		v, ok := value(tag)
		m, _ := report.MetricByTag(tag)
		if !ok || m.LargerIsBetter && v < limit || !m.LargerIsBetter && v > limit {
			return false
		}
	}
	return true
}
