package html

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// chart is a chart in the words that page.js draws from.
type chart struct {
	ID string `json:"id"`
	// Title and Note stand beside the chart; Alt says what it shows to those
	// who do not see it.
	Title string `json:"-"`
	Note  string `json:"-"`
	Alt   string `json:"-"`
	Wide  bool   `json:"-"` // takes the whole width of the page

	X      axis     `json:"x"`
	Y      axis     `json:"y"`
	Series []series `json:"series"`
	// Band is the measuring window on the x axis.
	Band []num `json:"band,omitempty"`
	// Shade is a band on the y axis, Levels are dashed lines across.
	Shade  []num `json:"shade,omitempty"`
	Levels []num `json:"levels,omitempty"`
	// Sync names charts that share the cursor's place.
	Sync string `json:"sync,omitempty"`
}

// The kinds of an axis. The values of a logarithmic one are decadic logarithms,
// those of a percentile one -log10(1 - p).
const (
	linear      = "linear"
	logarithmic = "log"
	percentiles = "percentile"
)

type axis struct {
	Kind  string `json:"kind"`
	Label string `json:"label"`
	Unit  string `json:"unit,omitempty"`
	Min   num    `json:"min"`
	Max   num    `json:"max"` // not a number: as the values need
}

// The styles of a series.
const (
	line   = "line"
	steps  = "steps"
	dashed = "dashed"
	dots   = "dots"
	rings  = "rings" // few points, joined by a line
	bars   = "bars"
	marks  = "marks" // few points, each for itself

	dashedRings = "dashed-rings"
)

type series struct {
	Name  string `json:"name"`
	Style string `json:"style"`
	Color int    `json:"color"` // a place in the page's palette
	X     []num  `json:"x"`
	Y     []num  `json:"y"` // as many; not a number where there is none
	// Low and High, if there are any, are the ends of a line through each point.
	Low  []num `json:"low,omitempty"`
	High []num `json:"high,omitempty"`
	// Labels stand beside the points.
	Labels []string `json:"labels,omitempty"`
}

// points counts what there is to draw.
func (c *chart) points() int {
	n := 0
	for _, s := range c.Series {
		for _, y := range s.Y {
			if !math.IsNaN(float64(y)) {
				n++
			}
		}
	}
	return n
}

// num is a number with as many digits as a chart can show; null if it is none.
type num float64

var nan = num(math.NaN())

// MarshalJSON writes five digits.
func (n num) MarshalJSON() ([]byte, error) {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	const digits = 5
	b := strconv.AppendFloat(nil, v, 'g', digits, 64)
	if json.Valid(b) {
		return b, nil
	}
	return strconv.AppendFloat(nil, v, 'f', -1, 64), nil
}

// point is a place on a chart; y is not a number where there is none.
type point struct{ x, y float64 }

func columns(points []point) (x, y []num) {
	x, y = make([]num, len(points)), make([]num, len(points))
	for i, p := range points {
		x[i], y[i] = num(p.x), num(p.y)
	}
	return x, y
}

// cloudPoints is how many points of a cloud are kept at most.
const cloudPoints = 4000

// thin keeps of the points that would be drawn over each other the first, so
// that at most cloudPoints are left, in the order of x. No place that holds a
// point becomes empty, up to the size of a cell.
func thin(points []point) []point {
	points = slices.DeleteFunc(slices.Clone(points), func(p point) bool { return math.IsNaN(p.x) || math.IsNaN(p.y) })
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Or(cmp.Compare(a.x, b.x), cmp.Compare(a.y, b.y)) })
	if len(points) <= cloudPoints {
		return points
	}
	low, high := points[0], points[0]
	for _, p := range points {
		low = point{min(low.x, p.x), min(low.y, p.y)}
		high = point{max(high.x, p.x), max(high.y, p.y)}
	}
	cell := func(v, low, high float64, n int) int {
		if high <= low {
			return 0
		}
		return int(float64(n) * (v - low) / (high - low))
	}
	for columns := 400; ; columns = columns * 3 / 4 {
		taken := make(map[[2]int]bool)
		var kept []point
		for _, p := range points {
			at := [2]int{cell(p.x, low.x, high.x, columns), cell(p.y, low.y, high.y, columns/3)}
			if !taken[at] {
				taken[at] = true
				kept = append(kept, p)
			}
		}
		if len(kept) <= cloudPoints {
			return kept
		}
	}
}

// outline reduces a line to at most n points by largest triangles in three
// buckets (Steinarsson, 2013): its first and last point, and of each stretch
// between the point that stands out most. The points are in the order of x and
// have a y; n is at least 3.
func outline(points []point, n int) []point {
	if len(points) <= n {
		return points
	}
	out := append(make([]point, 0, n), points[0])
	width := float64(len(points)-2) / float64(n-2)
	bucket := func(i int) []point {
		from, to := 1+int(float64(i)*width), 1+int(float64(i+1)*width)
		return points[from:min(to, len(points)-1)]
	}
	for i := range n - 2 {
		next := points[len(points)-1:]
		if i < n-3 {
			next = bucket(i + 1)
		}
		var ahead point
		for _, p := range next {
			ahead.x += p.x / float64(len(next))
			ahead.y += p.y / float64(len(next))
		}
		last, best, largest := out[len(out)-1], point{}, -1.0
		for _, p := range bucket(i) {
			area := math.Abs((last.x-ahead.x)*(p.y-last.y) - (last.x-p.x)*(ahead.y-last.y))
			if area > largest {
				best, largest = p, area
			}
		}
		out = append(out, best)
	}
	return append(out, points[len(points)-1])
}
