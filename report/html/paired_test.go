package html

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/compare"
)

func paired() *compare.Paired {
	return &compare.Paired{
		Schema: 1, A: "http://localhost:8000/v1/chat/completions, demo-8b", B: "http://localhost:8001/v1/chat/completions, demo-8b",
		Pairs: 6, NullOf: 3, Level: 0.95, Margin: 0.05, Decided: true, Headline: "B is worse: Inter Token Latency p50 +9.8 % [+8.1, +11.5]",
		Figures: []compare.PairedFigure{
			{
				Metric: "request_error_rate", Label: "Request Error Rate", Unit: "%", Margin: 1, A: 0, B: 2.1, Change: 2.1, Points: true,
				Interval: &compare.Range{Low: 0.4, High: 4.7}, Noise: ptr(0.1), Verdict: compare.CannotTell, Decides: true,
				Changes: []float64{2, 3, 1.5, 2, 2, 2.1}, NullChanges: []float64{0, 0.1, 0},
			},
			{
				Metric: "time_to_first_token", Stat: "p50", Label: "Time to First Token", Unit: "ms", Margin: 0.05, A: 52.1, B: 52.6, Change: 0.0096,
				Interval: &compare.Range{Low: -0.021, High: 0.041}, Noise: ptr(0.019), Verdict: compare.Alike, Decides: true,
				Changes: []float64{0.02, -0.013, 0.031, 0.004, 0.008, 0.0076}, NullChanges: []float64{0.01, -0.02, 0.017},
			},
			{
				Metric: "inter_token_latency", Stat: "p50", Label: "Inter Token Latency", Unit: "ms", Margin: 0.05, A: 10.2, B: 11.2, Change: 0.098,
				Interval: &compare.Range{Low: 0.081, High: 0.115}, Noise: ptr(0.011), Verdict: compare.Worse, Decides: true,
				Changes: []float64{0.11, 0.09, 0.085, 0.104, 0.096, 0.103}, NullChanges: []float64{0.003, -0.012, 0.009},
			},
			{
				Metric: "output_sequence_length", Stat: "avg", Label: "Output Sequence Length", Unit: "tokens", Margin: 0.02, A: 64, B: 64, Verdict: compare.CannotTell,
				Changes: []float64{0, 0, 0},
			},
		},
	}
}

func renderPaired(t testing.TB, p *compare.Paired, sides ...*report.Summary) string {
	t.Helper()
	var a, b bytes.Buffer
	if err := errors.Join(WritePaired(&a, p, sides...), WritePaired(&b, p, sides...)); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Error("the same comparison gave different bytes")
	}
	return a.String()
}

func TestPairedPage(t *testing.T) {
	got := outlineOf(t, renderPaired(t, paired(), demo(t, 20, 2).Summary, demo(t, 20, 4).Summary))
	golden(t, "paired", got)
	empty := renderPaired(t, &compare.Paired{Headline: "no request on both sides was answered"})
	if strings.Contains(empty, `id="pairs"`) || !strings.Contains(empty, "no request on both sides") {
		t.Error("a comparison without pairs has a page that shows some, or does not say so")
	}
}

// TestPairedChart: all that is drawn lies on the axis, the band is as wide below
// as above as a ratio, and the interval is that of the figure.
func TestPairedChart(t *testing.T) {
	for _, c := range chartsOf(t, renderPaired(t, paired())) {
		for _, v := range append(append([]num{}, c.Shade...), c.Levels...) {
			if v <= c.Y.Min || v >= c.Y.Max {
				t.Errorf("%s: %v lies beyond the axis from %v to %v", c.ID, v, c.Y.Min, c.Y.Max)
			}
		}
		for _, s := range c.Series {
			for i, y := range s.Y {
				if y <= c.Y.Min || y >= c.Y.Max || s.X[i] <= c.X.Min || s.X[i] >= c.X.Max {
					t.Errorf("%s: the mark at %v, %v lies beyond the axes", c.ID, s.X[i], y)
				}
			}
		}
		band := map[string][]num{"change-request_error_rate": {-1, 1}, "change-output_sequence_length": {-1.9608, 2}}[c.ID]
		if band == nil {
			band = []num{-4.7619, 5}
		}
		if !slices.Equal(c.Shade, band) {
			t.Errorf("%s: the band of no account is %v", c.ID, c.Shade)
		}
		if c.ID == "change-inter_token_latency" {
			if d := cmp.Diff([]num{8.1, 11.5}, c.Levels); d != "" || len(c.Series) != 2 || len(c.Series[1].Y) != 6 || c.Series[1].Y[0] != 11 {
				t.Errorf("%s: %s %+v", c.ID, d, c.Series)
			}
		}
	}
}

// hostilePaired has an attack in place of whatever comes from elsewhere.
func hostilePaired(t testing.TB) string {
	p := paired()
	p.A, p.B, p.Headline = attack, attack, attack
	return renderPaired(t, p, hostile(t).Summary, hostile(t).Summary)
}

func TestHostilePairedStaysText(t *testing.T) {
	plain := renderPaired(t, paired(), demo(t, 20, 2).Summary, demo(t, 20, 2).Summary)
	known := map[string]bool{}
	for _, e := range elements(t, plain) {
		known[e.name] = true
	}
	page := hostilePaired(t)
	for _, e := range elements(t, page) {
		if !known[e.name] {
			t.Errorf("there is a new element <%s>", e.name)
		}
	}
	if strings.Contains(page, "<script>document") || strings.Contains(page, "<img") || strings.Count(page, "<script") != 3 {
		t.Error("an attack is on the page as it was written")
	}
}
