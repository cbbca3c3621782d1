package target

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
)

func TestCalibrate(t *testing.T) {
	c, err := Calibrate([]Measured{{100, 137}, {500, 657}, {1000, record.Unknown}})
	if err != nil || math.Abs(c.TokensPerWord-1.3) > 1e-9 || math.Abs(c.Template-7) > 1e-9 {
		t.Errorf("%+v, %v; want 1.3 tokens a word and a template of 7", c, err)
	}
	for name, points := range map[string][]Measured{
		"nothing":    nil,
		"one length": {{100, 137}, {100, 138}},
		"no counts":  {{100, record.Unknown}, {500, record.Unknown}},
		"falling":    {{100, 500}, {500, 100}},
	} {
		if _, err := Calibrate(points); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestCalibrationError: the standard error is how far the lines of many
// calibrations scatter.
func TestCalibrationError(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var told, found float64
	const tries = 2000
	for range tries {
		var points []Measured
		for _, words := range []int{64, 64, 64, 64, 64, 64, 1024, 1024} {
			tokens := 1.3*float64(words) + 7 + 0.3*math.Sqrt(float64(words))*rng.NormFloat64()
			points = append(points, Measured{words, record.Count(math.Round(tokens))})
		}
		c, err := Calibrate(points)
		if err != nil {
			t.Fatal(err)
		}
		off := c.Template + c.TokensPerWord*64 - (1.3*64 + 7)
		told, found = told+c.Error*c.Error, found+off*off
	}
	if r := math.Sqrt(told / found); math.Abs(r-1) > 0.05 {
		t.Errorf("the error told is %.3f times the one found", r)
	}
	c, err := Calibrate([]Measured{{64, 71}, {64, 71}, {1024, 1031}})
	if err != nil || c.Error > 1e-9 {
		t.Errorf("%+v, %v; points on a line have no error", c, err)
	}
}
