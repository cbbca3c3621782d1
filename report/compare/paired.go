package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

// Block is what one short run of an interleaved comparison showed: figures by
// metric and statistic, as "time_to_first_token.p50".
type Block map[string]float64

// The figures of a block. Medians, so that one hiccup of a machine does not
// decide a block; the first ones decide when a comparison ends.
var blockFigures = []struct {
	metric, stat string
	headline     bool
}{
	{"time_to_first_token", "p50", true},
	{"inter_token_latency", "p50", true},
	{"request_latency", "p50", true},
	{"output_token_throughput_per_user", "p50", false},
	{"output_sequence_length", "avg", false},
}

// errorShare is the share of failed requests in a Block.
const errorShare = "request_error_rate"

// BlockOf makes the figures of a block from its records.
func BlockOf(records []*record.Record) Block {
	b := Block{}
	failed, all := 0, 0
	for _, r := range records {
		if r.Phase != record.PhaseMeasure {
			continue
		}
		all++
		if r.Outcome.IsError() {
			failed++
		}
	}
	if all > 0 {
		b[errorShare] = float64(failed) / float64(all)
	}
	for _, f := range blockFigures {
		m, ok := report.MetricByTag(f.metric)
		if !ok {
			continue
		}
		var values []float64
		for _, r := range records {
			if v, ok := m.Of(r); ok && r.Valid() {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			continue
		}
		slices.Sort(values)
		v := values[len(values)/2]
		if len(values)%2 == 0 {
			v = (v + values[len(values)/2-1]) / 2
		}
		if f.stat == "avg" {
			sum := 0.0
			for _, x := range values {
				sum += x
			}
			v = sum / float64(len(values))
		}
		b[f.metric+"."+f.stat] = v
	}
	return b
}

// PairOptions say how interleaved blocks are compared. The zero value is ready
// for use.
type PairOptions struct {
	Margin float64 // the change that is of no account, as a share; 0: 5 %
	// Level is the confidence that none of the verdicts is wrong, over all
	// figures that decide and all looks at the data; 0: 0.95.
	Level float64
	// Looks is how often the data are looked at; 0: 1.
	Looks int
}

// Paired is an interleaved comparison: pairs of blocks, one on each side, close
// together in time, so that what changes over time hits both.
type Paired struct {
	Schema int     `json:"schema"`
	A      string  `json:"a"`
	B      string  `json:"b"`
	Pairs  int     `json:"pairs"`
	NullOf int     `json:"null_pairs"` // pairs of A with itself
	Level  float64 `json:"level"`
	Margin float64 `json:"margin"`
	// FailedA and FailedB are shares of requests.
	FailedA float64        `json:"failed_a"`
	FailedB float64        `json:"failed_b"`
	Figures []PairedFigure `json:"figures"`
	// Decided: every figure that decides has a verdict, or one of them is worse.
	Decided  bool   `json:"decided"`
	Headline string `json:"headline"`
}

// PairedFigure is one figure of an interleaved comparison.
type PairedFigure struct {
	Metric string  `json:"metric"`
	Stat   string  `json:"stat"`
	Label  string  `json:"-"`
	Unit   string  `json:"unit"`
	A      float64 `json:"a"` // geometric mean over blocks
	B      float64 `json:"b"`
	// Change is B/A - 1, Interval its interval: Student's t over the logarithms
	// of the pairs' ratios.
	Change   float64 `json:"change"`
	Interval *Range  `json:"interval"`
	// Noise is how far A lies from itself: the standard deviation of the change
	// of one pair in the null pairs.
	Noise *float64 `json:"noise,omitempty"`
	// NullChanges are those of the null pairs.
	NullChanges []float64 `json:"null_changes,omitempty"`

	Verdict Verdict `json:"verdict"`
	// Decides: the comparison goes on until this figure has a verdict.
	Decides bool `json:"decides"`
	// Changes are those of the pairs, in order.
	Changes []float64 `json:"changes"`
}

// leastPairs is how many pairs an interval needs.
const leastPairs = 4

// Pair compares B against A from blocks that were measured in pairs; null, if
// there is any, holds pairs of A with itself.
func Pair(a, b []Block, null [][2]Block, opt PairOptions) *Paired {
	if opt.Margin == 0 {
		opt.Margin = defaultMargin
	}
	if opt.Level == 0 {
		opt.Level = defaultLevel
	}
	deciding := 0
	for _, f := range blockFigures {
		if f.headline {
			deciding++
		}
	}
	alpha := (1 - opt.Level) / float64(max(opt.Looks, 1)*deciding) // Bonferroni
	p := &Paired{Schema: Schema, Pairs: min(len(a), len(b)), NullOf: len(null), Level: opt.Level, Margin: opt.Margin, Decided: true}
	p.FailedA, p.FailedB = meanOf(a, errorShare), meanOf(b, errorShare)
	for _, f := range blockFigures {
		m, _ := report.MetricByTag(f.metric)
		key := f.metric + "." + f.stat
		fig := PairedFigure{Metric: f.metric, Stat: f.stat, Label: m.Label, Unit: m.Unit, Verdict: CannotTell, Decides: f.headline}
		logs := logRatios(a, b, key)
		if len(logs) == 0 {
			p.Decided = p.Decided && !f.headline
			continue
		}
		fig.A, fig.B = geometric(a, key), geometric(b, key)
		mean, std := moments(logs)
		fig.Change = math.Expm1(mean)
		for _, l := range logs {
			fig.Changes = append(fig.Changes, math.Expm1(l))
		}
		var nulls []float64
		for _, pair := range null {
			nulls = append(nulls, logRatios(pair[:1], pair[1:], key)...)
		}
		for _, l := range nulls {
			fig.NullChanges = append(fig.NullChanges, math.Expm1(l))
		}
		if len(nulls) > 1 {
			_, s := moments(nulls)
			noise := math.Expm1(s)
			fig.Noise = &noise
		}
		if n := float64(len(logs)); len(logs) >= leastPairs {
			half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(1-alpha/2) * std / math.Sqrt(n)
			fig.Interval = &Range{math.Expm1(mean - half), math.Expm1(mean + half)}
			fig.Verdict = verdictOf(*fig.Interval, opt.Margin, m.LargerIsBetter)
		}
		p.Figures = append(p.Figures, fig)
	}
	p.Headline = p.sentence()
	for _, f := range p.Figures {
		p.Decided = p.Decided && (!f.Decides || f.Verdict != CannotTell)
	}
	for _, f := range p.Figures { // one that is worse is enough
		p.Decided = p.Decided || f.Decides && f.Verdict == Worse
	}
	return p
}

// verdictOf reads an interval: within the margin on both sides, beyond it on
// one, or neither.
func verdictOf(r Range, margin float64, larger bool) Verdict {
	down := 1/(1+margin) - 1 // as far below as the margin is above
	switch {
	case r.Low > down && r.High < margin:
		return Alike
	case r.Low >= margin && larger, r.High <= down && !larger:
		return Better
	case r.Low >= margin, r.High <= down:
		return Worse
	}
	return CannotTell
}

func logRatios(a, b []Block, key string) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		if x, y := a[i][key], b[i][key]; x > 0 && y > 0 {
			out = append(out, math.Log(y/x))
		}
	}
	return out
}

func moments(x []float64) (mean, std float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		std += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(std / float64(max(len(x)-1, 1)))
}

func geometric(blocks []Block, key string) float64 {
	sum, n := 0.0, 0
	for _, b := range blocks {
		if v := b[key]; v > 0 {
			sum += math.Log(v)
			n++
		}
	}
	return math.Exp(sum / float64(max(n, 1)))
}

func meanOf(blocks []Block, key string) float64 {
	sum := 0.0
	for _, b := range blocks {
		sum += b[key]
	}
	return sum / float64(max(len(blocks), 1))
}

// sentence is the result in words: the worst of the figures that decide.
func (p *Paired) sentence() string {
	var worst *PairedFigure
	rank := map[Verdict]int{Worse: 3, CannotTell: 2, Better: 1, Alike: 0}
	for i := range p.Figures {
		f := &p.Figures[i]
		if f.Decides && (worst == nil || rank[f.Verdict] > rank[worst.Verdict]) {
			worst = f
		}
	}
	if worst == nil {
		return "no request on both sides was answered"
	}
	say := fmt.Sprintf("B is %s: %s %s %s", worst.Verdict, worst.Label, worst.Stat, p.change(worst))
	switch worst.Verdict {
	case Alike:
		say = fmt.Sprintf("B is the same as A within %.3g %%", 100*p.Margin)
	case CannotTell:
		say = fmt.Sprintf("cannot tell: %s %s %s", worst.Label, worst.Stat, p.change(worst))
	}
	if p.FailedB > p.FailedA {
		say += fmt.Sprintf("; B fails more often (%.3g %% of requests, A %.3g %%)", 100*p.FailedB, 100*p.FailedA)
	}
	return say
}

func (p *Paired) change(f *PairedFigure) string {
	s := fmt.Sprintf("%+.1f %%", 100*f.Change)
	if f.Interval != nil {
		s += fmt.Sprintf(" [%+.1f, %+.1f]", 100*f.Interval.Low, 100*f.Interval.High)
	}
	return s
}

// nameWidth is the first column of the text.
const nameWidth = 37

// WriteText writes the comparison for a terminal.
func (p *Paired) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A  %s\nB  %s\n\n", p.A, p.B)
	fmt.Fprintf(&b, "%d pairs of blocks, in random order within a pair; %d pairs of A with itself for the noise\n\n", p.Pairs, p.NullOf)
	fmt.Fprintf(&b, "%-37s %8s %8s %7s %15s %6s %s\n", "median of a block, over blocks", "A", "B", "change", "interval, %", "noise", "verdict")
	for i := range p.Figures {
		f := &p.Figures[i]
		interval, noise := "-", "-"
		if f.Interval != nil {
			interval = fmt.Sprintf("[%+.1f, %+.1f]", 100*f.Interval.Low, 100*f.Interval.High)
		}
		if f.Noise != nil {
			noise = fmt.Sprintf("±%.1f", 100**f.Noise)
		}
		name := f.Label + " (" + f.Unit + ")"
		if len(name) > nameWidth {
			name = f.Label
		}
		fmt.Fprintf(&b, "%-37s %8.4g %8.4g %+6.1f%% %15s %6s %s\n", name, f.A, f.B, 100*f.Change, interval, noise, f.Verdict)
	}
	fmt.Fprintf(&b, "\nThe intervals hold together with %.0f %% confidence over all figures that decide and all looks;\na change below %.3g %% is of no account.\n\n%s\n", 100*p.Level, 100*p.Margin, p.Headline)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes the comparison for programs.
func (p *Paired) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(p)
}
