package synthetic

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLengthMoments(t *testing.T) {
	const n = 100_000
	tests := []struct {
		name     string
		l        Length
		mean, sd float64
		kurtosis float64 // of the law; bounds how far the sample's deviation strays
	}{
		{"fixed", Fixed(7), 7, 0, 3},
		{"normal", Normal{550, 50}, 550, 50, 3},
		{"log-normal", LogNormal{500, 300}, 500, 300, 14},
		{"uniform", Uniform{10, 19}, 14.5, math.Sqrt(99.0 / 12), 1.8},
		{"histogram", Histogram{{10, 10, 3}, {20, 20, 1}}, 12.5, math.Sqrt(18.75), 2.4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.l.Validate(); err != nil {
				t.Fatal(err)
			}
			mean, sd := moment(tt.l.Draw, n)
			if math.Abs(mean-tt.mean) > 3*tt.sd/math.Sqrt(n) {
				t.Errorf("mean %v, want %v", mean, tt.mean)
			}
			if math.Abs(sd-tt.sd) > 3*tt.sd*math.Sqrt((tt.kurtosis-1)/4/n)+0.01 {
				t.Errorf("standard deviation %v, want %v", sd, tt.sd)
			}
		})
	}
	if _, sd := moment(func(r *rand.Rand) int {
		x := Normal{2, 50}.Draw(r)
		if x < 1 {
			t.Fatalf("length %d", x)
		}
		return x
	}, 1000); sd == 0 {
		t.Error("no spread")
	}
}

func TestParseLengths(t *testing.T) {
	want := []Lengths{
		{Input: Fixed(256), Output: Fixed(128), Weight: 60},
		{Input: Normal{512, 20}, Output: Normal{256, 10}, Weight: 40},
	}
	for _, s := range []string{
		"256,128:60;512|20,256|10:40",
		" 256, 128 : 60 ; 512|20 , 256|10:40 ;",
		"[(256,128):60,(512|20,256|10):40]",
		"[ (256|0,128):60 , (512|20,256|10):40 ]",
		`{"pairs":[{"isl":256,"osl":128,"prob":60},{"isl":512,"isl_stddev":20,"osl":256,"osl_stddev":10,"prob":40}]}`,
	} {
		got, err := ParseLengths(s)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v %s", s, err, d)
		}
	}
	for s, say := range map[string]string{
		"":              "empty",
		"256,128":       `entry 1, "256,128": it must be ISL,OSL:WEIGHT`,
		"256:60":        "entry 1",
		"1,2:3;4,x:5":   `entry 2, "4,x:5": "x" is no number`,
		"256,128:0":     "weight 0",
		"256,128:-1":    "weight -1",
		"256,128:NaN":   "weight NaN",
		"0,128:1":       "input length: 0 tokens",
		"5|-1,128:1":    "standard deviation -1",
		"1e99,1:1":      "1e+99 tokens",
		"[(256,128):60": "closing ]",
		"[(256,128:60]": "closing )",
		"[x(1,2):3]":    `"x" stands before`,
		"[]":            "no entry",
		`{"pairs":[]}`:  "no entry",
		`{"pairs":[{"isl":1,"osl":2,"probability":1}]}`:             "probability",
		`{"pairs":[{"isl":1,"osl":2,"prob":1},{"isl":1,"prob":1}]}`: "entry 2",
		`{"pairs":[{"isl":1,"osl":2,"prob":1}]} x`:                  "JSON",
	} {
		if got, err := ParseLengths(s); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v, error %v, want one that says %q", s, got, err, say)
		}
	}
}

func TestReadHistogram(t *testing.T) {
	got, err := ReadHistogram(strings.NewReader("# lengths\n10\r\n\n20-29, 2.5\n30,1"), "h.csv")
	want := Histogram{{10, 10, 1}, {20, 29, 2.5}, {30, 30, 1}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	for in, say := range map[string]string{
		"":           "h.csv: it holds no length",
		"1\n\nx,2":   "h.csv:3:",
		"5-3,1":      "h.csv:1: from 5 to 3",
		"5,0":        "weight 0",
		"5,inf":      "+Inf",
		"0":          "0 tokens",
		"1\n2-x,1\n": "h.csv:2:",
	} {
		if _, err := ReadHistogram(strings.NewReader(in), "h.csv"); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: error %v, want one that says %q", in, err, say)
		}
	}
}

func FuzzParseLengths(f *testing.F) {
	for _, s := range []string{"256,128:60;512|20,256|10:40", "[(1,2):3]", `{"pairs":[{"isl":1,"osl":2,"prob":1}]}`, "[(", "|,:;"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseLengths(s)
		if err == nil && len(got) == 0 {
			t.Error("no entry and no error")
		}
		for _, l := range got {
			if err := l.validate(); err != nil {
				t.Errorf("%q gives what is not valid: %v", s, err)
			}
		}
	})
}
