package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// Verdict is what the figures of two sides say of B against A.
type Verdict string

// The verdicts.
const (
	Better     Verdict = "better"
	Worse      Verdict = "worse"
	Alike      Verdict = "same"        // the interval lies within the margin
	CannotTell Verdict = "cannot tell" // the interval holds both, or there is none
)

// The reasons of a figure without an interval.
const (
	FewSamples = "few_samples" // fewer than ten values lie beyond the percentile
	NoRecords  = "no_records"  // only summaries are there: one run tells nothing of its spread
	NoInterval = "no_interval" // within one run this figure has none: it takes repeats
	Missing    = "missing"     // a side does not have the figure
)

// The reasons of a figure whose interval lies beyond the margin and that has no
// verdict all the same.
const (
	Unsure   = "unsure_among_all" // at the level that holds for all figures together, the interval holds no difference
	RankTest = "rank_test"        // the ranks of the runs do not differ
)

// Range is an interval, both ends in the unit of what it stands beside.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// More says what would tell more; 0 is unknown or not needed.
type More struct {
	Requests int64 `json:"requests,omitempty"` // further ones on each side
	Runs     int   `json:"runs,omitempty"`     // further ones on each side
}

// Figure is one number on both sides.
type Figure struct {
	Metric string `json:"metric"`
	Stat   string `json:"stat,omitempty"` // avg, p50, p99_9; empty: the run's own
	Label  string `json:"-"`
	Unit   string `json:"unit"`
	// A and B are the values: with several runs a side their geometric mean.
	// nil is missing.
	A *float64 `json:"a"`
	B *float64 `json:"b"`
	// CountA and CountB are the values behind a statistic, of all runs.
	CountA int64 `json:"count_a,omitempty"`
	CountB int64 `json:"count_b,omitempty"`
	// Change is B/A - 1, and of the error rate B - A in percentage points;
	// Interval is that of Change.
	Change   *float64 `json:"change"`
	Interval *Range   `json:"interval"`
	Points   bool     `json:"percentage_points,omitempty"`
	// Margin is the change that is of no account, in the terms of Change.
	Margin float64 `json:"margin"`
	// Runs: the interval is of the spread between runs, else of the requests
	// of one run a side.
	Runs bool `json:"between_runs,omitempty"`
	// UTest is how often runs that do not differ would look as unlike, by the
	// Mann-Whitney test, which takes four runs a side; nil: fewer.
	UTest   *float64 `json:"u_test_p,omitempty"`
	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons,omitempty"`
	// Doubts say why a better figure may not be a gain.
	Doubts []string `json:"doubts,omitempty"`
	More   *More    `json:"more,omitempty"`

	larger bool
	slow   *Range  // the interval of the factor by which B is worse
	ratio  float64 // by which B is worse
}

// Name is the label with the statistic.
func (f Figure) Name() string {
	return strings.TrimSpace(f.Label + " " + strings.ReplaceAll(f.Stat, "_", "."))
}

// Rule says which figure is compared, and from which change on it matters.
type Rule struct {
	Metric string `json:"metric" yaml:"metric"`
	// Stat is avg, p50, p99.9 and so on; empty for a metric of the run.
	Stat string `json:"stat,omitempty" yaml:"stat"`
	// Margin is a share, as 0.05; Floor is in the metric's unit. A change that
	// is below either is of no account. The error rate has its margin in Floor
	// alone, in percentage points.
	Margin float64 `json:"margin" yaml:"margin"`
	Floor  float64 `json:"floor,omitempty" yaml:"floor"`
}

// Validate reports a rule that makes no sense.
func (r Rule) Validate() error {
	m, ok := report.MetricByTag(r.Metric)
	if !ok {
		return fmt.Errorf("%s: no metric has this tag", r.Metric)
	}
	if err := checkStat(m, r.Stat); err != nil {
		return err
	}
	if !(r.Margin >= 0 && r.Margin < 10) || !(r.Floor >= 0) || math.IsInf(r.Floor, 0) {
		return fmt.Errorf("%s: margin %v and floor %v: a margin is a share (0.05 or 5%%), a floor is in %s", r.Metric, r.Margin, r.Floor, m.Unit)
	}
	return nil
}

func checkStat(m report.Metric, stat string) error {
	if m.Scope == report.PerRun {
		if stat != "" {
			return fmt.Errorf("%s.%s: the run has one value of it; leave the statistic out", m.Tag, stat)
		}
		return nil
	}
	if stat == "avg" {
		return nil
	}
	if p, ok := percent(stat); ok && slices.Contains(stats.Percents[:], p) {
		return nil
	}
	return fmt.Errorf("%s.%s: give a statistic: avg, p50, p90, p95, p99 or p99.9", m.Tag, stat)
}

// percent reads p50 or p99.9.
func percent(stat string) (float64, bool) {
	digits, ok := strings.CutPrefix(stat, "p")
	p, err := strconv.ParseFloat(strings.ReplaceAll(digits, "_", "."), 64)
	return p, ok && err == nil
}

// key is the statistic's name in files.
func key(stat string) string { return strings.ReplaceAll(stat, ".", "_") }

const (
	// wrong is how often at most one of the figures of a comparison may be
	// called worse (or better) where none is.
	wrong = 0.01
	// tailDraws is how many resamples lie beyond the end of an interval.
	tailDraws  = 5
	resamples  = 1000
	drawnMost  = 1 << 24 // values that all resamples of a figure have together
	sureMost   = 1 << 26 // the same for one that has to stand before all others
	fewestRuns = 6       // of both sides, to compare runs where one side has only one
)

// comparer compares figures of two sides.
type comparer struct {
	a, b  Side
	level float64
	// rows is how many figures may give a verdict, in all.
	rows int
}

// betweenRuns reports whether the spread between runs is what counts.
func (c *comparer) betweenRuns() bool {
	n, m := len(c.a.Runs), len(c.b.Runs)
	return n > 1 && m > 1 || n+m >= fewestRuns
}

// single are the runs that are compared if there is one a side: of several the
// last.
func (c *comparer) single() (a, b *Run) {
	return c.a.Runs[len(c.a.Runs)-1], c.b.Runs[len(c.b.Runs)-1]
}

// figure compares one figure.
func (c *comparer) figure(rule Rule) Figure {
	m, _ := report.MetricByTag(rule.Metric)
	f := Figure{
		Metric: m.Tag, Stat: key(rule.Stat), Label: m.Label, Unit: m.Unit, larger: m.LargerIsBetter,
		Margin: rule.Margin, Verdict: CannotTell, Runs: c.betweenRuns(),
	}
	if m.Tag == errorRate {
		c.errors(&f, rule)
		return f
	}
	av, bv := c.values(&f)
	if len(av) == 0 || len(bv) == 0 {
		f.Reasons = append(f.Reasons, Missing)
		return f
	}
	a, b := geometricMean(av), geometricMean(bv)
	if notFinite(a) || notFinite(b) {
		f.Reasons = append(f.Reasons, NoInterval)
		return f
	}
	f.A, f.B = &a, &b
	if !(a > 0) || !(b > 0) {
		f.Reasons = append(f.Reasons, NoInterval)
		return f
	}
	change := b/a - 1
	f.Change = &change
	f.Margin = max(rule.Margin, rule.Floor/a)
	if f.ratio = b / a; f.larger {
		f.ratio = a / b
	}
	if p, ok := percent(f.Stat); ok && f.Stat != "" {
		if need := fewest(p); c.least(m.Tag) < need {
			f.Reasons = append(f.Reasons, FewSamples)
			f.More = &More{Requests: need - c.least(m.Tag)}
			return f
		}
	}
	interval, reason := c.ratio(&f, av, bv, c.level, resamples)
	if reason != "" {
		f.Reasons = append(f.Reasons, reason)
		switch {
		case f.Runs:
		case reason == FewSamples:
			f.More = c.enough(&f, c.level)
		default:
			f.More = &More{Runs: max(1, 2-min(len(c.a.Runs), len(c.b.Runs)))}
		}
		return f
	}
	f.Interval = &Range{interval.Low - 1, interval.High - 1}
	f.slow = f.worsening(interval)
	c.judge(&f, av, bv)
	return f
}

// worsening turns the interval of B/A into that of how much worse B is.
func (f *Figure) worsening(i stats.Interval) *Range {
	if f.larger {
		return &Range{1 / i.High, 1 / i.Low}
	}
	return &Range{i.Low, i.High}
}

// judge gives the verdict: by the interval and the margin; and a difference
// has to stand before so many figures, too.
func (c *comparer) judge(f *Figure, av, bv []float64) {
	limit := 1 + f.Margin
	switch {
	case f.slow.Low > limit || f.slow.High < 1/limit:
		reach, reason := c.reach(f, av, bv)
		switch {
		case reason != "":
			f.Reasons = append(f.Reasons, reason)
			f.More = c.surer(f, reach, reason)
		case f.slow.Low > limit:
			f.Verdict = Worse
		default:
			f.Verdict = Better
		}
	case f.slow.Low >= 1/limit && f.slow.High <= limit:
		f.Verdict = Alike
	default:
		f.More = c.more(f)
	}
}

// strict is the level that holds for all figures of the comparison together.
func (c *comparer) strict() (level, tail float64) {
	tail = wrong / float64(max(1, c.rows))
	return max(c.level, 1-2*tail), tail
}

// reach says whether the sides differ at the strict level: how far its interval
// reaches from the change towards none, as a share of the change, both in
// logarithms, and, if the sides do not differ, the reason. Where there are
// enough runs for a test that supposes nothing about their spread, that has to
// find a difference, too.
func (c *comparer) reach(f *Figure, av, bv []float64) (share float64, reason string) {
	const testRuns = 4
	if f.Runs && min(len(av), len(bv)) >= testRuns {
		test, ok := stats.CompareRuns(av, bv, c.level)
		if ok {
			f.UTest = &test.P
		}
		if !ok || !test.Differ {
			return 0, RankTest
		}
	}
	level, tail := c.strict()
	n := max(resamples, int(math.Ceil(tailDraws/tail)))
	at := math.Log1p(*f.Change)
	var low, high float64
	if a, b := c.single(); !f.Runs && n*max(len(a.series[f.Metric]), len(b.series[f.Metric])) > sureMost {
		// So many requests that the bootstrap is as good as normal, and takes
		// long: the interval is widened as a normal one is.
		wider := normal(level) / normal(c.level)
		low = at - (at-math.Log1p(f.Interval.Low))*wider
		high = at + (math.Log1p(f.Interval.High)-at)*wider
	} else {
		i, reason := c.ratio(f, av, bv, level, n)
		if reason != "" {
			return 0, reason
		}
		low, high = math.Log(i.Low), math.Log(i.High)
	}
	if share = (at - low) / at; at < 0 {
		share = (at - high) / at
	}
	if low > 0 || high < 0 {
		return share, ""
	}
	return share, Unsure
}

// surer says how much more would make a change that lies beyond the margin
// stand before all figures, if it stays as it is.
func (c *comparer) surer(f *Figure, share float64, reason string) *More {
	level, _ := c.strict()
	switch {
	case f.Runs:
		return c.moreRuns(f, level, math.Abs(math.Log(f.ratio)))
	case reason == FewSamples:
		return c.enough(f, level)
	case share*share > mostMore:
		return nil
	}
	return &More{Requests: max(1, int64(math.Ceil(c.requests(f)*(share*share-1))))}
}

// normal is how many standard errors an interval reaches to each side.
func normal(level float64) float64 { return distuv.UnitNormal.Quantile((1 + level) / 2) }

// ratio returns the interval of B/A, or the reason why there is none.
func (c *comparer) ratio(f *Figure, av, bv []float64, level float64, draws int) (stats.Interval, string) {
	if f.Runs {
		i, ok := runsRatio(av, bv, level)
		if !ok {
			return i, NoInterval
		}
		return i, ""
	}
	a, b := c.single()
	if !a.Records || !b.Records {
		return stats.Interval{}, NoRecords
	}
	x, y := a.series[f.Metric], b.series[f.Metric]
	if len(x) == 0 || len(y) == 0 {
		return stats.Interval{}, NoInterval
	}
	measure := stats.MeanMeasure()
	if p, ok := percent(f.Stat); ok && f.Stat != "" {
		measure = stats.PercentileMeasure(p)
	}
	if draws == resamples {
		draws = min(draws, max(400, drawnMost/max(len(x), len(y))))
	}
	r, ok := stats.Bootstrap{Level: level, Resamples: draws, Seed: 1}.Ratio(x, y, measure)
	if !ok {
		return stats.Interval{}, FewSamples
	}
	return r.Interval, ""
}

// enough is how many requests more an interval takes at all: as many as count
// for the least number of independent ones, and at least as many again.
func (c *comparer) enough(f *Figure, level float64) *More {
	p, ok := percent(f.Stat)
	if !ok {
		p = 50
	}
	need, ok := stats.NeedFor(p, level)
	if !ok {
		return nil
	}
	var more int64
	a, b := c.single()
	for _, r := range []*Run{a, b} {
		series := r.series[f.Metric]
		if n := float64(len(series)); n > 0 {
			least := float64(need.Interval) * n / max(stats.Effective(series), 1)
			more = max(more, int64(math.Ceil(max(n, least-n))))
		}
	}
	if more == 0 {
		return nil
	}
	return &More{Requests: more}
}

// values are the figure's values, one a run, of the runs that count; it also
// sets the counts.
func (c *comparer) values(f *Figure) (a, b []float64) {
	of := func(s Side, count *int64) []float64 {
		var out []float64
		for _, r := range s.Runs {
			if v, ok := r.value(f.Metric, f.Stat); ok {
				out = append(out, v)
				*count += r.counts[f.Metric]
			}
		}
		if len(out) < len(s.Runs) {
			return nil // not every run has it: no mean of the others stands for them
		}
		return out
	}
	sideA, sideB := c.a, c.b
	if !f.Runs {
		ra, rb := c.single()
		sideA.Runs, sideB.Runs = []*Run{ra}, []*Run{rb}
	}
	return of(sideA, &f.CountA), of(sideB, &f.CountB)
}

// least is the least number of values that a run has.
func (c *comparer) least(tag string) int64 {
	runs := slices.Concat(c.a.Runs, c.b.Runs)
	if !c.betweenRuns() {
		a, b := c.single()
		runs = []*Run{a, b}
	}
	out := int64(math.MaxInt64)
	for _, r := range runs {
		out = min(out, r.counts[tag])
	}
	return out
}

// fewest is how many values a percentile needs to have ten beyond it, as
// Statistic.Few wants.
func fewest(p float64) int64 { return int64(math.Ceil(1000/min(p, 100-p) - 1e-6)) }

func notFinite(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

func geometricMean(values []float64) float64 {
	if len(values) == 1 {
		return values[0]
	}
	var sum float64
	for _, v := range values {
		if v <= 0 {
			return 0
		}
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

// runsRatio is the interval of the ratio of geometric means over runs, by
// Student's t on logarithms with one spread for both sides, which lets one run
// stand against several.
func runsRatio(a, b []float64, level float64) (stats.Interval, bool) {
	freedom := float64(len(a) + len(b) - 2)
	if freedom < 1 {
		return stats.Interval{}, false
	}
	ma, sa := logSpread(a)
	mb, sb := logSpread(b)
	half := student(freedom, level) * math.Sqrt((sa+sb)/freedom*(1/float64(len(a))+1/float64(len(b))))
	return stats.Interval{Low: math.Exp(mb - ma - half), High: math.Exp(mb - ma + half), Level: level}, true
}

func student(freedom, level float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile((1 + level) / 2)
}

// logSpread returns mean and sum of squares of the logarithms.
func logSpread(values []float64) (mean, squares float64) {
	for _, v := range values {
		mean += math.Log(v)
	}
	mean /= float64(len(values))
	for _, v := range values {
		d := math.Log(v) - mean
		squares += d * d
	}
	return mean, squares
}

const mostMore = 100 // times as much: more is no advice

// more says how much more would decide, if the figures stay as they are.
func (c *comparer) more(f *Figure) *More {
	at := math.Log(f.ratio)
	room := math.Abs(math.Abs(at) - math.Log1p(f.Margin))
	if f.Runs {
		return c.moreRuns(f, c.level, room)
	}
	half := max(at-math.Log(f.slow.Low), math.Log(f.slow.High)-at)
	if !(room > 0) || half/room > math.Sqrt(mostMore) {
		return nil
	}
	return &More{Requests: max(1, int64(math.Ceil(c.requests(f)*(half*half/(room*room)-1))))}
}

// requests is how many requests a figure of single runs is known from.
func (c *comparer) requests(f *Figure) float64 {
	if n := c.least(f.Metric); n > 0 {
		return float64(n)
	}
	a, b := c.single() // a throughput: its requests
	return float64(min(a.Counts.Valid, b.Counts.Valid))
}

// moreRuns is how many runs more a side bring half the interval at a level down
// to room, in logarithms.
func (c *comparer) moreRuns(f *Figure, level, room float64) *More {
	// Half is t * s * sqrt(1/n + 1/m); find the number a side whose own is small
	// enough.
	half := (math.Log(f.slow.High) - math.Log(f.slow.Low)) / 2
	na, nb := float64(len(c.a.Runs)), float64(len(c.b.Runs))
	s := half / student(na+nb-2, c.level) / math.Sqrt(1/na+1/nb)
	for more := 1; more <= mostMore; more++ {
		x, y := na+float64(more), nb+float64(more)
		if student(x+y-2, level)*s*math.Sqrt(1/x+1/y) <= room {
			return &More{Runs: more}
		}
	}
	return nil
}

// moreShare is how many requests beside count decide what a share is looked at
// for: decided tells whether k times as many that are alike do. nil: no number
// within reason does.
func moreShare(count int64, decided func(k float64) bool) *More {
	const most = 1e5 // times as many
	low, high := 1.0, 2.0
	for !decided(high) {
		if low, high = high, 2*high; high > most {
			return nil
		}
	}
	const steps = 30
	for range steps {
		if k := (low + high) / 2; decided(k) {
			high = k
		} else {
			low = k
		}
	}
	return &More{Requests: max(1, int64(math.Ceil(float64(count)*(high-1))))}
}

// errors compares the shares of failed requests, all runs of a side together,
// by Newcombe's interval for the difference of two shares; failures that come
// in bursts count as fewer independent requests.
func (c *comparer) errors(f *Figure, rule Rule) {
	f.Points, f.Runs = true, false
	f.Margin = rule.Floor
	pa, na := share(c.a, &f.CountA)
	pb, nb := share(c.b, &f.CountB)
	if f.CountA == 0 || f.CountB == 0 {
		f.Reasons = append(f.Reasons, Missing)
		return
	}
	a, b := 100*pa, 100*pb
	change := b - a
	f.A, f.B, f.Change = &a, &b, &change
	strict, _ := c.strict()
	judged := func(k float64) (Range, Verdict) {
		i := newcombe(pa, k*na, pb, k*nb, c.level)
		return i, pointsVerdict(i, newcombe(pa, k*na, pb, k*nb, strict), f.Margin)
	}
	i, v := judged(1)
	if f.Interval, f.Verdict = &i, v; v == CannotTell {
		if i.Low > f.Margin || i.High < -f.Margin {
			f.Reasons = append(f.Reasons, Unsure)
		}
		f.More = moreShare(min(f.CountA, f.CountB), func(k float64) bool {
			_, v := judged(k)
			return v != CannotTell
		})
	}
}

// newcombe is Newcombe's interval for pb - pa, the difference of two shares seen
// in na and nb independent requests, in percentage points.
func newcombe(pa, na, pb, nb, level float64) Range {
	la, ua := wilson(pa, na, level)
	lb, ub := wilson(pb, nb, level)
	return Range{
		Low:  100 * (pb - pa - math.Hypot(pb-lb, ua-pa)),
		High: 100 * (pb - pa + math.Hypot(ub-pb, pa-la)),
	}
}

// pointsVerdict reads the interval of a change of the error rate; strict is the
// one that stands before all figures.
func pointsVerdict(i, strict Range, margin float64) Verdict {
	switch {
	case i.Low > margin && strict.Low > 0:
		return Worse
	case i.High < -margin && strict.High < 0:
		return Better
	case i.Low >= -margin && i.High <= margin:
		return Alike
	}
	return CannotTell
}

// share is the share of failed requests of a side, and how many independent
// requests it is known from.
func share(s Side, count *int64) (p, effective float64) {
	var failed float64
	for _, r := range s.Runs {
		n := r.Counts.Valid + r.Counts.Failed
		*count += n
		failed += float64(r.Counts.Failed)
		e := float64(n)
		if len(r.failed) > 0 && r.Counts.Failed > 0 {
			e = min(e, stats.Effective(r.failed))
		}
		effective += e
	}
	return failed / float64(max(1, *count)), effective
}

// wilson is Wilson's interval for a share seen in n requests.
func wilson(p, n, level float64) (low, high float64) {
	z := normal(level)
	centre := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	low, high = max(0, centre-half), min(1, centre+half)
	if p == 0 { // and not what rounding leaves
		low = 0
	}
	if p == 1 {
		high = 1
	}
	return low, high
}
