package slo_test

import (
	"bytes"
	"encoding/json"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/slo"
)

func TestParse(t *testing.T) {
	got, err := slo.Parse("time_to_first_token.p99<300ms, error_rate<0.1%,goodput>0.95, itl.avg <= 0.02s , goodput>=3req/s, output_token_throughput>1e3, e2e.p99_9<9s, error_rate<0.02, goodput>95%")
	if err != nil {
		t.Fatal(err)
	}
	want := []slo.Objective{
		{Metric: "time_to_first_token", Statistic: "p99", Limit: 300, Strict: true},
		{Metric: "request_error_rate", Limit: 0.1, Strict: true},
		{Metric: "good_request_fraction", Limit: 0.95, AtLeast: true, Strict: true},
		{Metric: "inter_token_latency", Statistic: "avg", Limit: 20},
		{Metric: "goodput", Limit: 3, AtLeast: true},
		{Metric: "output_token_throughput", Limit: 1000, AtLeast: true, Strict: true},
		{Metric: "request_latency", Statistic: "p99.9", Limit: 9000, Strict: true},
		{Metric: "request_error_rate", Limit: 2, Strict: true}, // a share, as everywhere
		{Metric: "good_request_fraction", Limit: 0.95, AtLeast: true, Strict: true},
	}
	for i := range got {
		got[i].Text = ""
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseRejects(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "no objective",
		"ttft<300ms":                    "ttft.p99",
		"ttft.p98<300ms":                "no figure is called p98",
		"request_throughput.p99>3":      "leave .p99 out",
		"tttf.p99<3":                    "no metric",
		"ttft.p99<300tok/s":             "is in ms",
		"ttft.p99=300":                  "write it as",
		"ttft.p99<1e999":                "no number",
		"goodput>95":                    "95%",
		"ttft.p99<300ms; itl.p99<20ms":  "no number with a unit",
		"ttft.p98<300ms, goodput>95":    "p98",
		"ttft.p99<--3":                  "no number",
		"ttft.p99<300ms, error_rate<%%": "no number with a unit",
		"ttft.p99<":                     "write it as",
		"ttft.p99<-1":                   "negative",
		"ttft.p99<NaN":                  "no number",
		"goodput>195%":                  "195%, or",
	} {
		if _, err := slo.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error = %v, want one with %q", text, err, want)
		}
	}
	_, err := slo.Parse("ttft<1, e2e<1")
	if err == nil || !strings.Contains(err.Error(), `"ttft<1"`) || !strings.Contains(err.Error(), `"e2e<1"`) {
		t.Errorf("error = %v, want both faults", err)
	}
}

func TestAmount(t *testing.T) {
	for _, c := range []struct {
		text, tag string
		want      float64
	}{
		{"1500us", "time_to_first_token", 1.5}, {"0.3 s", "time_to_first_token", 300}, {"3", "time_to_first_token", 3},
		{"250ms", "benchmark_duration", 0.25}, {"2min", "benchmark_duration", 120},
		{"1", "request_error_rate", 1}, {"1%", "request_error_rate", 1}, // in percentage points
		{"95%", "good_request_fraction", 0.95}, {"1e3 tok/s", "output_token_throughput", 1000},
		{"50tokens/s/user", "output_token_throughput_per_user", 50}, {"7requests/sec", "request_throughput", 7},
	} {
		m, ok := report.MetricByTag(c.tag)
		if !ok {
			t.Fatalf("no metric %s", c.tag)
		}
		if v, _, err := slo.Amount(c.text, m); err != nil || v != c.want {
			t.Errorf("%s of %s = %v, %v; want %v", c.text, c.tag, v, err, c.want)
		}
	}
}

// summary is of n good requests with TTFTs of 1, 2, … ms, and some failures.
func summary(t *testing.T, n, failures int) *report.Summary {
	t.Helper()
	var recs []*record.Record
	for i := range n + failures {
		r := record.New(record.PhaseMeasure, int64(i))
		// A step coprime to n spreads the values over time, so that
		// neighbours are not alike.
		r.Start = record.Time(i) * 1e9
		if i >= n {
			r.End = r.Start + 1
			r.Fail(record.ServerError, record.Failure{})
		} else {
			r.Outcome, r.Streaming, r.Streamed = record.OK, true, true
			ttft := record.Time((i*617)%n+1) * 1e6
			r.Chunks = record.Chunks{{At: r.Start + ttft, Kind: record.KindText}, {At: r.Start + ttft + 1e6, Kind: record.KindText}}
			r.End = r.Chunks[1].At
		}
		recs = append(recs, r)
	}
	m := &record.Manifest{
		Target: record.Target{Streaming: true}, Outcome: record.RunCompleted, MeasureStart: record.Unset, MeasureEnd: record.Unset,
		Goodput: map[string]float64{"time_to_first_token": 900},
	}
	var seq iter.Seq2[*record.Record, error] = func(yield func(*record.Record, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	}
	s, err := report.Summarize(m, seq, nil, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEvaluate(t *testing.T) {
	many, few, none := summary(t, 1000, 10), summary(t, 12, 0), summary(t, 0, 5)
	for _, c := range []struct {
		s    *report.Summary
		text string
		want slo.State
	}{
		{many, "ttft.p50<600ms", slo.Pass},
		{many, "ttft.p50<505ms", slo.Inconclusive}, // 500.5 and its interval spans 505
		{many, "ttft.p50<400ms", slo.Fail},
		{many, "ttft.p50>400ms", slo.Pass}, // the other side of the interval
		{many, "ttft.avg<600ms", slo.Pass},
		{many, "ttft.avg<501ms", slo.Inconclusive},
		{many, "ttft.max<=1000ms", slo.Pass}, // no interval: as it is, bounds included
		{many, "ttft.max<1000ms", slo.Fail},
		{many, "error_rate<3%", slo.Pass},
		{many, "error_rate<1%", slo.Inconclusive}, // 0.99 %
		{many, "error_rate<0.1%", slo.Fail},
		{many, "goodput>0.8", slo.Pass}, // 900 of 1010
		{many, "goodput>0.9", slo.Inconclusive},
		{many, "goodput>0.95", slo.Fail},
		{many, "request_throughput>0.5", slo.Pass},
		{many, "ttfo.p99_9<0.9s", slo.Fail},
		{few, "ttft.p99<1s", slo.Inconclusive}, // 12 requests bound no p99
		{few, "ttft.p99<1ms", slo.Fail},        // but say that it is above
		{few, "error_rate<0.1%", slo.Inconclusive},
		{few, "output_token_throughput>1", slo.Inconclusive}, // no token counts
		{none, "ttft.p99<1s", slo.Inconclusive},
		{none, "error_rate<1%", slo.Fail},
	} {
		objectives, err := slo.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		r := slo.Evaluate(c.s, objectives)[0]
		if r.State != c.want {
			t.Errorf("%s: %s %s (%s), want %s: %+v", c.text, r.State, r.Reason, interval(r), c.want, r.Value)
		}
		if (r.State == slo.Inconclusive) != (r.Reason != "") {
			t.Errorf("%s: %s for the reason %q", c.text, r.State, r.Reason)
		}
	}
}

func interval(r slo.Result) string {
	var b bytes.Buffer
	_ = slo.Write(&b, []slo.Result{r})
	return b.String()
}

// TestWorst: a failure outweighs what cannot be said.
func TestWorst(t *testing.T) {
	state := func(states ...slo.State) slo.State {
		var results []slo.Result
		for _, s := range states {
			results = append(results, slo.Result{State: s})
		}
		return slo.Worst(results)
	}
	if got := state(slo.Pass, slo.Inconclusive, slo.Fail); got != slo.Fail {
		t.Errorf("%s", got)
	}
	if got := state(slo.Inconclusive, slo.Pass); got != slo.Inconclusive {
		t.Errorf("%s", got)
	}
	if got := state(slo.Pass); got != slo.Pass {
		t.Errorf("%s", got)
	}
}

func TestWrite(t *testing.T) {
	objectives, err := slo.Parse("ttft.p50<600ms, error_rate<0.1%, ttft.p99.9<1s, output_token_throughput>1")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := slo.Write(&got, slo.Evaluate(summary(t, 1000, 10), objectives)); err != nil {
		t.Fatal(err)
	}
	want := `Objectives: FAIL
              objective                  measured   interval          margin
PASS          ttft.p50<600ms             500.50 ms  [469.00, 532.00]  +16.6 %
FAIL          error_rate<0.1%            0.99 %     [0.476, 1.81]     -890.1 %
INCONCLUSIVE  ttft.p99.9<1s              999.00 ms  [997.00, ?]       +0.1 %
INCONCLUSIVE  output_token_throughput>1  -          -                 -
  ttft.p99.9<1s: too few requests to bound the figure on the side of the limit
  output_token_throughput>1: the run has no such figure
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Error(d)
	}
}

// FuzzParse: no text makes the parser panic, and what it takes can be
// evaluated.
func FuzzParse(f *testing.F) {
	f.Add("time_to_first_token.p99<300ms, error_rate<0.1%, goodput>0.95")
	f.Add("itl.p99_9>=1e-3us,benchmark_duration<1min")
	f.Fuzz(func(t *testing.T, text string) {
		objectives, err := slo.Parse(text)
		if err != nil {
			return
		}
		if len(objectives) == 0 {
			t.Errorf("%q gives neither an objective nor an error", text)
		}
		slo.Worst(slo.Evaluate(&report.Summary{}, objectives))
	})
}

// TestJSON: what is missing, or infinite, is null, and the objective stands as it
// was written.
func TestJSON(t *testing.T) {
	inf, one := math.Inf(1), 1.0
	got, err := json.Marshal(slo.Result{Objective: slo.Objective{Text: "x.p99<3", Metric: "x", Statistic: "p99", Limit: 3, Strict: true}, Unit: "ms", State: slo.Fail, Value: &inf, Low: &one, Bounded: true})
	const want = `{"objective":"x.p99\u003c3","metric":"x","statistic":"p99","limit":3,"at_least":false,"strict":true,"unit":"ms","state":"fail","value":null,"low":1,"high":null,"bounded":true,"margin":null}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
