package compare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// What two curves are matched by.
const (
	BySpeed = "speed" // median output tokens per second that one user sees
	ByLoad  = "load"  // concurrency, users or request rate
)

// Curve says at which places, and in which figure, sweeps are compared. A
// sweep is a side whose runs differ in their load.
type Curve struct {
	By string
	At []float64 // speeds in tokens per second per user, or loads
	// Metric and Stat are the figure that is compared; empty: the output token
	// throughput of the system.
	Metric, Stat string
}

// Match is the comparison of two curves at one place.
type Match struct {
	By       string   `json:"by"`
	At       float64  `json:"at"`
	Metric   string   `json:"metric"`
	Stat     string   `json:"stat,omitempty"`
	Label    string   `json:"-"`
	Unit     string   `json:"unit"`
	A        *float64 `json:"a"` // nil: the place lies beyond what was measured
	B        *float64 `json:"b"`
	Change   *float64 `json:"change"` // B/A - 1
	Interval *Range   `json:"interval"`
	Verdict  Verdict  `json:"verdict"`
	Reason   string   `json:"reason,omitempty"`
	// Doubts say why a better figure may not be a gain.
	Doubts []string `json:"doubts,omitempty"`
}

// Text is the match in one line: "at 50 tok/s/user: B +12 % [+7, +17]".
func (m Match) Text() string {
	at := fmt.Sprintf("at %.4g tok/s/user", m.At)
	if m.By == ByLoad {
		at = fmt.Sprintf("at load %.4g", m.At)
	}
	switch {
	case m.Change == nil:
		return fmt.Sprintf("%s: %s", at, m.Reason)
	case m.Interval == nil:
		return fmt.Sprintf("%s: B %+.3g %% (%s)", at, 100**m.Change, m.Reason)
	}
	verdict := string(m.Verdict)
	if len(m.Doubts) > 0 {
		verdict += ", doubtful: " + strings.Join(m.Doubts, "; ")
	}
	return fmt.Sprintf("%s: B %+.3g %% [%+.3g, %+.3g] in %s (%s)", at, 100**m.Change, 100*m.Interval.Low, 100*m.Interval.High, m.Label, verdict)
}

// Validate reports every fault.
func (c Curve) Validate() error {
	if c.Metric == "" {
		c.Metric = tokenRate
	}
	m, ok := report.MetricByTag(c.Metric)
	if !ok {
		return fmt.Errorf("curve of %s: no metric has this tag", c.Metric)
	}
	errs := []error{checkStat(m, c.Stat)}
	if c.By != BySpeed && c.By != ByLoad {
		errs = append(errs, fmt.Errorf("curve by %q: use %s or %s", c.By, BySpeed, ByLoad))
	}
	for _, at := range c.At {
		if !(at > 0) || math.IsInf(at, 0) {
			errs = append(errs, fmt.Errorf("curve at %v: give a number above 0", at))
		}
	}
	return errors.Join(errs...)
}

// point is a run on a curve. The errors are standard errors of the logarithms,
// NaN if unknown; why says why they are.
type point struct {
	x, y, xErr, yErr float64
	why              string
}

// Curves compares two sweeps at matched places. Between two neighbouring
// points a curve is taken to be a straight line in logarithms; by speed, only
// the points count that no other one beats in both speed and figure. What lies
// beyond the points of a curve is not told. The interval comes from curves
// through points that are moved by the errors of their runs. Error rate and
// output length of all points together come first, as in Compare.
func Curves(a, b Side, curve Curve, opt Options) (*Comparison, error) {
	opt = opt.withDefaults()
	if curve.Metric == "" {
		curve.Metric = tokenRate
	}
	m, ok := report.MetricByTag(curve.Metric)
	if !ok {
		return nil, curve.Validate()
	}
	if err := errors.Join(opt.check(a, b), curve.Validate()); err != nil {
		return nil, err
	}
	c := begin(a, b, opt, true)
	if len(c.Blocked) > 0 {
		return c, nil
	}
	first := slices.DeleteFunc([]Rule{
		{Metric: errorRate, Floor: errorMargin},
		{Metric: outputMean, Stat: "avg", Margin: lengthMargin},
	}, func(r Rule) bool { return !present(a, r) && !present(b, r) })
	rows := len(first) + len(curve.At)
	c.Figures = figuresOf(&comparer{a: a, b: b, level: opt.Level, rows: rows}, first)
	doubts := doubtsOf(c.Figures)
	pa, pb := pointsOf(a, curve, m), pointsOf(b, curve, m)
	for _, at := range curve.At {
		found := match(pa, pb, at, curve, m, opt, rows)
		if found.Verdict == Better {
			found.Doubts = doubts
		}
		c.Curve = append(c.Curve, found)
	}
	for i, match := range c.Curve {
		if i > 0 {
			c.Headline += "; "
		}
		c.Headline += match.Text()
	}
	if len(doubts) > 0 && !slices.ContainsFunc(c.Curve, func(m Match) bool { return len(m.Doubts) > 0 }) {
		c.Headline += "; in B " + strings.Join(doubts, " and ")
	}
	c.Headline += "."
	return c, nil
}

func pointsOf(s Side, curve Curve, m report.Metric) []point {
	const speed = "output_token_throughput_per_user"
	var out []point
	for _, r := range s.Runs {
		y, ok := r.value(curve.Metric, key(curve.Stat))
		p := point{y: y, yErr: logError(r, curve.Metric, curve.Stat)}
		if curve.By == ByLoad {
			_, p.x = r.Manifest.Load.Level()
		} else {
			var known bool
			p.x, known = r.value(speed, "p50")
			p.xErr = logError(r, speed, "p50")
			ok = ok && known
		}
		if math.IsNaN(p.xErr) || math.IsNaN(p.yErr) {
			p.why = fmt.Sprintf("%s has too few requests (%d valid) for one", r.Path, r.Counts.Valid)
			if !r.Records {
				p.why = r.Path + " has no records, only a summary"
			}
		}
		if ok && p.x > 0 && p.y > 0 {
			out = append(out, p)
		}
	}
	return arrange(out, curve.By, m.LargerIsBetter)
}

// logError is the standard error of the logarithm of a run's figure.
func logError(r *Run, tag, stat string) float64 {
	measure := stats.MeanMeasure()
	if p, ok := percent(stat); ok {
		measure = stats.PercentileMeasure(p)
	}
	const level = 0.9 // its ends are told better than those of a higher one
	e, ok := stats.Bootstrap{Level: level, Seed: 1}.Estimate(r.series[tag], measure)
	if !ok || e.Interval.Low <= 0 {
		return math.NaN()
	}
	return (math.Log(e.Interval.High) - math.Log(e.Interval.Low)) / (2 * normal(level))
}

// arrange sorts points by x and makes a curve of them.
func arrange(points []point, by string, larger bool) []point {
	points = slices.Clone(points)
	if by == BySpeed {
		beaten := func(p point) bool {
			return slices.ContainsFunc(points, func(q point) bool {
				noWorse, better := q.y >= p.y, q.y > p.y
				if !larger {
					noWorse, better = q.y <= p.y, q.y < p.y
				}
				return q.x >= p.x && noWorse && (q.x > p.x || better)
			})
		}
		var front []point
		for _, p := range points {
			if !beaten(p) {
				front = append(front, p)
			}
		}
		points = front
	}
	slices.SortFunc(points, func(p, q point) int { return cmp.Or(cmp.Compare(p.x, q.x), cmp.Compare(p.y, q.y)) })
	// Runs at one place are repeats: their mean counts.
	var out []point
	for from := 0; from < len(points); {
		to := from + 1
		for to < len(points) && points[to].x == points[from].x {
			to++
		}
		p, n := points[from], float64(to-from)
		var y, squares float64
		for _, q := range points[from:to] {
			y += math.Log(q.y)
			squares += q.yErr * q.yErr
			p.why = cmp.Or(p.why, q.why)
		}
		p.y, p.yErr = math.Exp(y/n), math.Sqrt(squares)/n
		out = append(out, p)
		from = to
	}
	return out
}

// along returns y at a place between the points of a curve.
func along(curve []point, at float64) (float64, bool) {
	for i, p := range curve {
		if p.x == at {
			return p.y, true
		}
		if i+1 < len(curve) && p.x < at && at < curve[i+1].x {
			q := curve[i+1]
			f := (math.Log(at) - math.Log(p.x)) / (math.Log(q.x) - math.Log(p.x))
			return math.Exp(math.Log(p.y) + f*(math.Log(q.y)-math.Log(p.y))), true
		}
	}
	return 0, false
}

func match(a, b []point, at float64, curve Curve, m report.Metric, opt Options, rows int) Match {
	out := Match{By: curve.By, At: at, Metric: m.Tag, Stat: key(curve.Stat), Label: m.Label, Unit: m.Unit, Verdict: CannotTell}
	ya, inA := along(a, at)
	yb, inB := along(b, at)
	for _, side := range []struct {
		name   string
		in     bool
		y      *float64
		into   **float64
		points []point
	}{{"A", inA, &ya, &out.A, a}, {"B", inB, &yb, &out.B, b}} {
		switch {
		case side.in:
			*side.into = side.y
		case len(side.points) == 0:
			out.Reason += "no run of " + side.name + " has the figure; "
		default:
			out.Reason += fmt.Sprintf("%s was measured from %.4g to %.4g only; ", side.name, side.points[0].x, side.points[len(side.points)-1].x)
		}
	}
	if !inA || !inB {
		out.Reason += "measure there, nothing is extrapolated"
		return out
	}
	change := yb/ya - 1
	out.Change = &change
	draws := make([]float64, 0, 2000)
	rng := rand.New(rand.NewPCG(1, math.Float64bits(at)))
	for range cap(draws) {
		da, okA := along(arrange(moved(a, rng), curve.By, m.LargerIsBetter), at)
		db, okB := along(arrange(moved(b, rng), curve.By, m.LargerIsBetter), at)
		if r := db / da; okA && okB && !math.IsNaN(r) {
			draws = append(draws, r)
		}
	}
	const enough = 0.95
	if float64(len(draws)) < enough*float64(cap(draws)) {
		out.Reason = "no interval: " + cmp.Or(unknownAt(a, at), unknownAt(b, at), "too near the end of a curve, whose points are not known that well")
		return out
	}
	slices.Sort(draws)
	ends := func(level float64) Range {
		at := func(q float64) float64 {
			return draws[min(max(int(math.Round(q*float64(len(draws)-1))), 0), len(draws)-1)]
		}
		return Range{at((1 - level) / 2), at((1 + level) / 2)}
	}
	r := ends(opt.Level)
	out.Interval = &Range{r.Low - 1, r.High - 1}
	strict := ends(max(opt.Level, 1-2*wrong/float64(max(1, rows))))
	limit := 1 + opt.Margin
	up, down := r.Low > limit && strict.Low > 1, r.High < 1/limit && strict.High < 1
	switch {
	case up && m.LargerIsBetter, down && !m.LargerIsBetter:
		out.Verdict = Better
	case up, down:
		out.Verdict = Worse
	case r.Low >= 1/limit && r.High <= limit:
		out.Verdict = Alike
	}
	return out
}

// unknownAt is why the error of one of the points that a place lies between is
// not known, or "".
func unknownAt(curve []point, at float64) string {
	for i, p := range curve {
		next := i+1 < len(curve) && p.x < at && at < curve[i+1].x
		if p.x == at || next {
			if next {
				return cmp.Or(p.why, curve[i+1].why)
			}
			return p.why
		}
	}
	return ""
}

// moved returns the points, each moved by its errors.
func moved(points []point, rng *rand.Rand) []point {
	out := slices.Clone(points)
	for i := range out {
		p := &out[i]
		if p.xErr != 0 {
			p.x *= math.Exp(p.xErr * rng.NormFloat64())
		}
		p.y *= math.Exp(p.yErr * rng.NormFloat64())
	}
	return out
}
