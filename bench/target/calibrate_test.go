package target

import (
	"math"
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
