package compare

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// Block is what one short run of an interleaved comparison showed.
type Block struct {
	figures map[string]float64 // by metric and statistic, as "time_to_first_token.p50"
	failed  []float64          // 1 for each failed and 0 for each valid request
}

// The figures of a block. Medians, so that one hiccup of a machine does not
// decide a block. Those that decide are what a comparison ends by; failures and
// lengths stand first, since they say what a gain is worth.
var blockFigures = []struct {
	metric, stat string
	decides      bool
}{
	{errorRate, "", true},
	{outputMean, "avg", false},
	{"time_to_first_token", "p50", true},
	{"inter_token_latency", "p50", true},
	{"request_latency", "p50", true},
	{"output_token_throughput_per_user", "p50", false},
}

// BlockOf makes the figures of a block from its records.
func BlockOf(records []*record.Record) Block {
	b := Block{figures: map[string]float64{}}
	values := map[string][]float64{}
	for _, r := range records {
		if r.Phase != record.PhaseMeasure {
			continue
		}
		q, ok := newRequest(r)
		switch {
		case !ok:
		case q.failed:
			b.failed = append(b.failed, 1)
		default:
			b.failed = append(b.failed, 0)
			for i, tag := range q.tags {
				values[tag] = append(values[tag], q.values[i])
			}
		}
	}
	for _, f := range blockFigures {
		if st, ok := stats.Describe(values[f.metric], 1); ok {
			b.figures[f.metric+"."+f.stat] = valuesOf(&st)[f.stat]
		}
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
	// Blocked, Allowed and Conditions are those of a Comparison.
	Blocked    []string    `json:"blocked,omitempty"`
	Allowed    []string    `json:"allowed,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	// LeftOut says of each pair that was measured and does not count why not.
	LeftOut []string `json:"left_out,omitempty"`
	// FailedA and FailedB are shares of requests.
	FailedA float64        `json:"failed_a"`
	FailedB float64        `json:"failed_b"`
	Figures []PairedFigure `json:"figures"`
	// Decided: every figure that decides has a verdict, or one of them is worse.
	// The error rate also counts as decided where it grew by less than its
	// margin: few requests never show that it did not.
	Decided bool `json:"decided"`
	// Doubts say why what is better or the same may not be so: more requests
	// fail, or answers are shorter.
	Doubts   []string `json:"doubts,omitempty"`
	Headline string   `json:"headline"`
}

// PairedFigure is one figure of an interleaved comparison.
type PairedFigure struct {
	Metric string  `json:"metric"`
	Stat   string  `json:"stat"`
	Label  string  `json:"-"`
	Unit   string  `json:"unit"`
	A      float64 `json:"a"` // geometric mean over blocks; an error rate: of all requests
	B      float64 `json:"b"`
	// Change is B/A - 1, Interval its interval: Student's t over the logarithms
	// of the pairs' ratios. Of the error rate, Change is B - A in percentage
	// points, and its interval is that of compare, of all requests together.
	Change   float64 `json:"change"`
	Interval *Range  `json:"interval"`
	Points   bool    `json:"percentage_points,omitempty"`
	// Margin is the change that is of no account, in the terms of Change.
	Margin float64 `json:"margin"`
	// Noise is how far A lies from itself: the standard deviation of the change
	// of one pair in the null pairs.
	Noise *float64 `json:"noise,omitempty"`
	// NullChanges are those of the null pairs.
	NullChanges []float64 `json:"null_changes,omitempty"`

	Verdict Verdict `json:"verdict"`
	// Decides: the comparison goes on until this figure has a verdict.
	Decides bool `json:"decides"`
	// Doubts are the comparison's, where the figure is better.
	Doubts []string `json:"doubts,omitempty"`
	// Changes are those of the pairs, in order.
	Changes []float64 `json:"changes"`
}

// open reports whether the comparison has to go on for this figure.
func (f PairedFigure) open() bool {
	return f.Decides && f.Verdict == CannotTell && !(f.Points && f.Change <= f.Margin)
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
	// Bonferroni, over the figures that decide and the length, which raises
	// doubts.
	const counted = 5
	alpha := (1 - opt.Level) / float64(max(opt.Looks, 1)*counted)
	p := &Paired{Schema: Schema, Pairs: min(len(a), len(b)), NullOf: len(null), Level: opt.Level, Margin: opt.Margin, Decided: true}
	a, b = a[:p.Pairs], b[:p.Pairs]
	for _, f := range blockFigures {
		m, _ := report.MetricByTag(f.metric)
		fig := PairedFigure{Metric: f.metric, Stat: f.stat, Label: m.Label, Unit: m.Unit, Verdict: CannotTell, Decides: f.decides, Margin: opt.Margin}
		if f.metric == outputMean {
			fig.Margin = min(opt.Margin, lengthMargin)
		}
		var told bool
		if f.metric == errorRate {
			told = fig.ofFailures(a, b, null, 1-alpha)
			p.FailedA, p.FailedB = fig.A/100, fig.B/100
		} else {
			told = fig.ofRatios(a, b, null, 1-alpha, m.LargerIsBetter)
		}
		if !told {
			p.Decided = p.Decided && !f.decides
			continue
		}
		if f.metric == errorRate || f.metric == outputMean {
			if d := doubtOf(f.metric, fig.Change, fig.Interval); d != "" {
				p.Doubts = append(p.Doubts, d)
			}
		}
		p.Figures = append(p.Figures, fig)
	}
	worse := false
	for i := range p.Figures {
		f := &p.Figures[i]
		if f.Verdict == Better && f.Metric != errorRate && f.Metric != outputMean {
			f.Doubts = p.Doubts
		}
		p.Decided = p.Decided && !f.open()
		worse = worse || f.Decides && f.Verdict == Worse
	}
	p.Decided = p.Decided || worse // one that is worse is enough
	p.Headline = p.sentence()
	return p
}

// PairConditions compares what the comparison of two blocks depends on. What
// was measured is no condition: blocks have the same prompts under fresh salts,
// one tells too little of its hit rate, and how long the answers are is a
// figure. The comparison has no figures.
func PairConditions(a, b *Run, opt Options) (*Comparison, error) {
	x, y := Side{Name: a.Path, Runs: []*Run{a}}, Side{Name: b.Path, Runs: []*Run{b}}
	opt = opt.withDefaults()
	if err := opt.check(x, y); err != nil {
		return nil, err
	}
	c := begin(x, y, opt, false)
	measured := func(name string) bool {
		return slices.Contains([]string{"input_length", "output_length", "cache_hit_rate", notValid}, name) // validity counts block by block
	}
	c.Conditions = slices.DeleteFunc(c.Conditions, func(k Condition) bool { return measured(k.Name) })
	c.Blocked, c.Allowed = slices.DeleteFunc(c.Blocked, measured), slices.DeleteFunc(c.Allowed, measured)
	return c, nil
}

// Under sets what the sides were compared under; nil: nobody knows.
func (p *Paired) Under(c *Comparison) {
	if c == nil {
		return
	}
	p.Blocked, p.Allowed, p.Conditions = c.Blocked, c.Allowed, c.Conditions
	if len(p.Blocked) > 0 {
		p.Decided, p.Headline = false, "The two sides must not be compared: "+strings.Join(p.Blocked, ", ")
	}
}

// LeaveOut sets why pairs do not count, one reason a pair.
func (p *Paired) LeaveOut(why []string) {
	p.LeftOut = why
	if p.TooFew() {
		p.Decided = false
		p.Headline = fmt.Sprintf("not valid: %s left of %d, at least %d are needed: %s",
			plural(int64(p.Pairs), "pair"), p.Pairs+len(why), leastPairs, printable(why[0]))
	}
}

// TooFew reports whether so many pairs were left out that nothing can be said.
func (p *Paired) TooFew() bool { return len(p.LeftOut) > 0 && p.Pairs < leastPairs }

// ofRatios fills the figure in from the ratios of the pairs' values; it reports
// whether there is any.
func (f *PairedFigure) ofRatios(a, b []Block, null [][2]Block, level float64, larger bool) bool {
	key := f.Metric + "." + f.Stat
	logs := logRatios(a, b, key)
	if len(logs) == 0 {
		return false
	}
	f.A, f.B = geometric(a, key), geometric(b, key)
	mean, std := moments(logs)
	f.Change = math.Expm1(mean)
	for _, l := range logs {
		f.Changes = append(f.Changes, math.Expm1(l))
	}
	var nulls []float64
	for _, pair := range null {
		nulls = append(nulls, logRatios(pair[:1], pair[1:], key)...)
	}
	for _, l := range nulls {
		f.NullChanges = append(f.NullChanges, math.Expm1(l))
	}
	if len(nulls) > 1 {
		_, s := moments(nulls)
		noise := math.Expm1(s)
		f.Noise = &noise
	}
	if n := float64(len(logs)); len(logs) >= leastPairs {
		half := student(n-1, level) * std / math.Sqrt(n)
		f.Interval = &Range{math.Expm1(mean - half), math.Expm1(mean + half)}
		f.Verdict = verdictOf(*f.Interval, f.Margin, larger)
	}
	return true
}

// ofFailures fills the error rate in; it reports whether there was any request.
func (f *PairedFigure) ofFailures(a, b []Block, null [][2]Block, level float64) bool {
	f.Points, f.Margin = true, errorMargin
	pa, na := failures(a)
	pb, nb := failures(b)
	if na == 0 || nb == 0 {
		return false
	}
	f.A, f.B = 100*pa, 100*pb
	f.Change = f.B - f.A
	difference := func(x, y Block) float64 {
		px, _ := failures([]Block{x})
		py, _ := failures([]Block{y})
		return 100 * (py - px)
	}
	for i := range a {
		f.Changes = append(f.Changes, difference(a[i], b[i]))
	}
	for _, pair := range null {
		f.NullChanges = append(f.NullChanges, difference(pair[0], pair[1]))
	}
	if len(null) > 1 {
		_, s := moments(f.NullChanges)
		f.Noise = &s
	}
	if len(a) >= leastPairs {
		i := newcombe(pa, na, pb, nb, level)
		f.Interval = &i
		f.Verdict = pointsVerdict(i, i, f.Margin)
	}
	return true
}

// failures is the share of failed requests of some blocks together, and how
// many independent requests it is known from.
func failures(blocks []Block) (p, effective float64) {
	var all []float64
	for _, b := range blocks {
		all = append(all, b.failed...)
	}
	if len(all) == 0 {
		return 0, 0
	}
	p, _ = moments(all)
	effective = float64(len(all))
	if p > 0 && p < 1 {
		effective = min(effective, stats.Effective(all))
	}
	return p, effective
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
		if x, y := a[i].figures[key], b[i].figures[key]; x > 0 && y > 0 {
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
		if v := b.figures[key]; v > 0 {
			sum += math.Log(v)
			n++
		}
	}
	return math.Exp(sum / float64(max(n, 1)))
}

// Answered reports whether there is a figure besides the error rate: whether
// requests were answered on both sides.
func (p *Paired) Answered() bool {
	return slices.ContainsFunc(p.Figures, func(f PairedFigure) bool { return f.Metric != errorRate })
}

// sentence is the result in words: the worst of the figures that decide.
func (p *Paired) sentence() string {
	var worst *PairedFigure
	rank := map[Verdict]int{Worse: 3, CannotTell: 2, Better: 1, Alike: 0}
	for i := range p.Figures {
		f := &p.Figures[i]
		if settled := f.Verdict == CannotTell && !f.open(); f.Decides && !settled && (worst == nil || rank[f.Verdict] > rank[worst.Verdict]) {
			worst = f
		}
	}
	if worst == nil || !p.Answered() && worst.Verdict != Worse {
		return "no request on both sides was answered"
	}
	name, doubts := strings.TrimSpace(worst.Label+" "+worst.Stat), strings.Join(p.Doubts, " and ")
	change, interval := worst.change()
	if interval != "-" {
		change += " " + interval
	}
	failing := ""
	if p.FailedB > p.FailedA && !worst.Points {
		failing = fmt.Sprintf("; B fails more often (%.3g %% of requests, A %.3g %%)", 100*p.FailedB, 100*p.FailedA)
	}
	switch {
	case worst.Verdict == Worse:
		return fmt.Sprintf("B is worse: %s %s%s", name, change, failing)
	case worst.Verdict == CannotTell:
		return fmt.Sprintf("cannot tell: %s %s%s", name, change, failing)
	case doubts != "" && worst.Verdict == Better:
		return fmt.Sprintf("B looks better: %s %s, but %s: no gain until that is explained", name, change, doubts)
	case doubts != "":
		return fmt.Sprintf("B looks the same as A within %.3g %%, but %s", 100*p.Margin, doubts)
	case worst.Verdict == Better:
		return fmt.Sprintf("B is better: %s %s%s", name, change, failing)
	}
	return fmt.Sprintf("B is the same as A within %.3g %%%s", 100*p.Margin, failing)
}

// change is the change with its interval, in percent or percentage points.
func (f *PairedFigure) change() (change, interval string) {
	scale, unit := 100.0, " %"
	if f.Points {
		scale, unit = 1, " pp"
	}
	change, interval = fmt.Sprintf("%+.1f%s", scale*f.Change, unit), "-"
	if f.Interval != nil {
		interval = fmt.Sprintf("[%+.1f, %+.1f]", scale*f.Interval.Low, scale*f.Interval.High)
	}
	return change, interval
}

// nameWidth is the first column of the text.
const nameWidth = 37

// WriteText writes the comparison for a terminal.
func (p *Paired) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A  %s\nB  %s\n\n", p.A, p.B)
	if len(p.Conditions) > 0 {
		hint := ""
		if len(p.Blocked) > 0 {
			hint = blockedHint(p.Blocked)
		}
		sections := conditionSections(p.Conditions, hint)
		sections[0].lines = append(sections[0].lines, stamp(p.Allowed)...)
		putSections(&b, sections)
		b.WriteByte('\n')
	}
	if len(p.Blocked) > 0 {
		b.WriteString(p.Headline + "\n")
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(&b, "%d pairs of blocks, in random order within a pair; %d pairs of A with itself for the noise\n", p.Pairs, p.NullOf)
	if n := len(p.LeftOut); n > 0 {
		fmt.Fprintf(&b, "%s left out, since a block was not valid: %s\n", plural(int64(n), "pair"), printable(p.LeftOut[0]))
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "%-37s %8s %8s %8s %15s %6s %s\n", "median of a block, over blocks", "A", "B", "change", "interval", "noise", "verdict")
	for i := range p.Figures {
		f := &p.Figures[i]
		change, interval := f.change()
		noise := "-"
		switch {
		case f.Noise != nil && f.Points:
			noise = fmt.Sprintf("±%.1f", *f.Noise)
		case f.Noise != nil:
			noise = fmt.Sprintf("±%.1f", 100**f.Noise)
		}
		name := f.Label + " (" + f.Unit + ")"
		if len(name) > nameWidth {
			name = f.Label
		}
		verdict := string(f.Verdict)
		if len(f.Doubts) > 0 {
			verdict += ", doubtful"
		}
		fmt.Fprintf(&b, "%-37s %8.4g %8.4g %8s %15s %6s %s\n", name, f.A, f.B, change, interval, noise, verdict)
	}
	fmt.Fprintf(&b, "\nThe intervals hold together with %.0f %% confidence over all figures that decide and all looks;\na change below %.3g %% is of no account, nor one of the error rate below %.3g points.\n\n%s\n",
		100*p.Level, 100*p.Margin, errorMargin, p.Headline)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes the comparison for programs.
func (p *Paired) WriteJSON(w io.Writer) error { return WriteJSON(w, p) }
