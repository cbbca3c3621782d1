package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

func TestInputLengthOff(t *testing.T) {
	// Of 10 requests: asked, own and server's count; -1 is unknown.
	tests := []struct {
		name                string
		asked, own, server  record.Count
		template            float64 // of a calibration; 0: none
		perWord, error      float64 // of it
		tokenizer           string
		want                bool
		level               report.Level
		toAsked             float64 // server's
		noComparison, twist bool
	}{
		{name: "at the limit", asked: 1000, own: -1, server: 950, want: false, level: report.Valid, toAsked: -0.05},
		{name: "above, by guess", asked: 1000, own: -1, server: 949, want: true, level: report.Valid, toAsked: -0.051},
		{name: "above, with a tokenizer", asked: 1000, own: 1000, server: 949, tokenizer: "llama", want: true, level: report.Suspect, toAsked: -0.051},
		{name: "an unknown template, at the limit", asked: 1000, own: -1, server: 1114, want: false, level: report.Valid, toAsked: 0.114},
		{name: "more than an unknown template", asked: 1000, own: -1, server: 1115, want: true, level: report.Valid, toAsked: 0.115},
		{name: "a known template explains it", asked: 100, own: -1, server: 130, template: 28, want: false, level: report.Valid, toAsked: 0.02},
		{name: "a known template explains no more", asked: 100, own: -1, server: 134, template: 28, want: true, level: report.Suspect, toAsked: 0.06},
		{name: "the error of a calibration, and a part of a word, explain it", asked: 100, own: -1, server: 136, template: 28, perWord: 2, error: 2, want: false, level: report.Valid, toAsked: 0.08},
		{name: "below as well", asked: 100, own: -1, server: 120, template: 28, perWord: 2, error: 2, want: false, level: report.Valid, toAsked: -0.08},
		{name: "they explain no more", asked: 100, own: -1, server: 119, template: 28, perWord: 2, error: 2, want: true, level: report.Suspect, toAsked: -0.09},
		{name: "our tokenizer is not the asked length", asked: 1000, own: 900, server: 950, tokenizer: "llama", want: true, level: report.Suspect, toAsked: -0.05},
		{name: "nothing was asked", asked: -1, own: -1, server: 950, level: report.Valid, noComparison: true},
		{name: "the server tells nothing", asked: 1000, own: -1, server: -1, level: report.Valid, noComparison: true},
		{name: "later turns do not count", asked: 1000, own: -1, server: 1000, twist: true, level: report.Valid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest()
			m.Tokenizer = tt.tokenizer
			if tt.template > 0 {
				m.Calibration = &record.Calibration{TokensPerWord: tt.perWord, Template: tt.template, Error: tt.error, Requests: 8}
			}
			recs := many(10)
			for i, r := range recs {
				r.AskedInput, r.OwnInput, r.Usage.Prompt = tt.asked, tt.own, tt.server
				if tt.twist && i > 4 {
					r.Turn, r.Usage.Prompt = 1, 9999
				}
			}
			s := summarize(t, m, recs...)
			if got := s.Warned(report.InputLengthOff); got != tt.want || s.Verdict.Level != tt.level {
				t.Errorf("warned %v, verdict %+v; want %v, %s", got, s.Verdict, tt.want, tt.level)
			}
			switch l := s.Lengths; {
			case tt.noComparison:
				if l != nil && l.ServerToAsked != nil {
					t.Errorf("a comparison of nothing: %+v", l)
				}
			case l == nil || l.ServerToAsked == nil || !near(l.ServerToAsked.Mean, tt.toAsked):
				t.Errorf("lengths %+v, want the server %v off what was asked", l, tt.toAsked)
			}
		})
	}
}

func TestLengths(t *testing.T) {
	m := manifest()
	m.Calibration = &record.Calibration{Template: 10}
	recs := many(2)
	recs[0].AskedInput, recs[0].OwnInput, recs[0].Usage.Prompt, recs[0].AskedOutput = 100, 102, 115, 10
	recs[1].AskedInput, recs[1].Usage.Prompt = 300, 307
	ptr := func(v float64) *float64 { return &v }
	want := &report.Lengths{
		AskedInput: ptr(200), OwnInput: ptr(102), ServerInput: ptr(201), Template: ptr(10),
		ServerToAsked: &report.Deviation{Mean: 2.0 / 400, Worst: 0.05, Count: 2},
		ServerToOwn:   &report.Deviation{Mean: 3.0 / 102, Worst: 3.0 / 102, Count: 1},
		OwnToAsked:    &report.Deviation{Mean: 0.02, Worst: 0.02, Count: 1},
		AskedOutput:   ptr(10), Output: ptr(8), OutputToAsked: &report.Deviation{Mean: -0.2, Worst: -0.2, Count: 1},
	}
	if diff := cmp.Diff(want, summarize(t, m, recs...).Lengths); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if l := summarize(t, manifest(), many(3)...).Lengths; l != nil {
		t.Errorf("lengths %+v though none was asked for", l)
	}
}
