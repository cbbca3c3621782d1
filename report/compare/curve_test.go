package compare

import (
	"strings"
	"testing"
)

func curvesOf(t *testing.T, a, b Side, at float64) *Comparison {
	t.Helper()
	c, err := Curves(a, b, Curve{By: ByLoad, At: []float64{at}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCurveLoads: the level of the load may differ between the points, and the
// kind of load may not.
func TestCurveLoads(t *testing.T) {
	points := func() Side { return sweep([3]float64{4, 100, 400}, [3]float64{16, 50, 800}) }
	for _, test := range []struct {
		name    string
		change  func(*Run)
		blocked string
	}{
		{"other levels", func(r *Run) { r.Manifest.Load.Concurrency *= 2 }, ""},
		{"open loop", func(r *Run) {
			r.Manifest.Load.Rate, r.Manifest.Load.Concurrency, r.Manifest.Load.Arrival = 4*r.values[tokenRate][""], 0, "poisson"
		}, "concurrency, request_rate, arrivals"},
		{"users", func(r *Run) { r.Manifest.Load.Users, r.Manifest.Load.Concurrency = r.Manifest.Load.Concurrency, 0 }, "concurrency, num_users"},
	} {
		a, b := points(), points()
		for _, r := range b.Runs {
			r.Manifest.Salt += "b"
			test.change(r)
		}
		if got := strings.Join(curvesOf(t, a, b, 8).Blocked, ", "); got != test.blocked {
			t.Errorf("%s: blocked by %q, want %q", test.name, got, test.blocked)
		}
	}
}

// TestCurveDoubts: better at a point is no gain where more requests fail.
func TestCurveDoubts(t *testing.T) {
	a, b := sweep([3]float64{4, 100, 400}, [3]float64{16, 50, 800}), sweep([3]float64{4, 130, 600}, [3]float64{16, 70, 1200})
	for _, r := range b.Runs {
		r.Manifest.Salt += "b"
		r.Counts.Failed = r.Counts.Valid / 5
	}
	c := curvesOf(t, a, b, 8)
	if m := c.Curve[0]; m.Verdict != Better || len(m.Doubts) != 1 || !strings.Contains(c.Headline, "better, doubtful: more requests fail") {
		t.Errorf("%s", c.Headline)
	}
	for _, r := range b.Runs { // as fast as A, where nothing is better that could be doubted
		for k := range r.series[tokenRate] {
			r.series[tokenRate][k] /= 1.5
		}
		r.values[tokenRate][""] /= 1.5
	}
	if c := curvesOf(t, a, b, 8); len(c.Curve[0].Doubts) > 0 || !strings.Contains(c.Headline, "; in B more requests fail") {
		t.Errorf("%s", c.Headline)
	}
	if f := c.at(t, errorRate, ""); f.Verdict != Worse {
		t.Errorf("%s", f.Text())
	}
}

// TestCurveReasons: a curve without an interval says which run is the reason.
func TestCurveReasons(t *testing.T) {
	a, b := sweep([3]float64{4, 100, 400}, [3]float64{16, 50, 800}), sweep([3]float64{4, 100, 400}, [3]float64{16, 50, 800})
	for _, r := range b.Runs {
		r.Manifest.Salt += "b"
	}
	few := b.Runs[1]
	few.Path, few.series[tokenRate], few.Counts.Valid = "b/16", nil, 12
	if c := curvesOf(t, a, b, 8); !strings.Contains(c.Headline, "no interval: b/16 has too few requests (12 valid) for one") {
		t.Errorf("%s", c.Headline)
	}
	few.Records = false
	if c := curvesOf(t, a, b, 8); !strings.Contains(c.Headline, "no interval: b/16 has no records") {
		t.Errorf("%s", c.Headline)
	}
}
