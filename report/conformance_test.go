package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/stats"
)

// conformanceCase is one file of testdata/conformance; its README says what
// the fields mean.
type conformanceCase struct {
	Name       string `json:"name"`
	Strictness string `json:"strictness"`
	Endpoint   string `json:"endpoint"`
	Streaming  bool   `json:"streaming"`
	Config     struct {
		Goodput     map[string]float64 `json:"goodput"`
		TokenSource string             `json:"token_source"`
		StartNS     *int64             `json:"benchmark_start_ns"`
		DurationS   float64            `json:"benchmark_duration_s"`
		GraceS      float64            `json:"grace_period_s"`
	} `json:"config"`
	Records []struct {
		StartNS   int64 `json:"request_start_ns"`
		Responses []struct {
			RecvNS int64  `json:"recv_ns"`
			Data   string `json:"data"`
			Event  string `json:"event"`
		} `json:"responses"`
		Error     *struct{ Code any } `json:"error"`
		Cancelled bool                `json:"cancelled"`
		EndNS     *int64              `json:"request_end_ns"`
		Phase     string              `json:"phase"`
		Input     *int64              `json:"input_tokens"`
		Output    *int64              `json:"output_tokens"`
		Reasoning *int64              `json:"reasoning_tokens"`
	} `json:"records"`
	Status []string                   `json:"expect_status"`
	Expect map[string]json.RawMessage `json:"expect"`
}

// deviations are the advisory cases that tokmark decides otherwise: it says so
// here and asserts what it does.
var deviations = map[string]func(*testing.T, []*record.Record, *report.Summary){
	// Data that is no JSON is the server's fault, and what else it did to the
	// answer nobody knows: the request fails.
	"malformed_and_unknown_messages": func(t *testing.T, recs []*record.Record, s *report.Summary) {
		if recs[0].Outcome != record.Malformed {
			t.Errorf("outcome = %q, want %q", recs[0].Outcome, record.Malformed)
		}
		if s.Counts.Valid != 0 || s.Counts.Failed != 1 {
			t.Errorf("counts = %+v, want one failed request", s.Counts)
		}
	},
}

func TestConformance(t *testing.T) {
	files, err := filepath.Glob("testdata/conformance/*.json")
	if err != nil || len(files) != 41 {
		t.Fatalf("found %d cases (%v), want 41", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c conformanceCase
			dec := json.NewDecoder(bytes.NewReader(b))
			dec.UseNumber()
			if err := dec.Decode(&c); err != nil {
				t.Fatal(err)
			}
			m, recs := c.run()
			s, err := report.Summarize(m, sequence(recs), nil, report.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if check := deviations[c.Name]; check != nil {
				if c.Strictness != "advisory" {
					t.Fatal("only an advisory case may be deviated from")
				}
				check(t, recs, s)
				return
			}
			c.checkStatus(t, recs, s)
			for tag, section := range c.Expect {
				c.checkMetric(t, tag, section, recs, s)
			}
		})
	}
}

// run turns the case into a manifest and records, in offsets from the first
// moment of the case.
func (c *conformanceCase) run() (*record.Manifest, []*record.Record) {
	base := c.Records[0].StartNS
	for _, r := range c.Records {
		base = min(base, r.StartNS)
	}
	m := &record.Manifest{
		ID: c.Name, Outcome: record.RunCompleted, Goodput: c.Config.Goodput,
		Target:       record.Target{EndpointType: c.Endpoint, Streaming: c.Streaming},
		Load:         record.Load{Concurrency: 1},
		MeasureStart: record.Unset, MeasureEnd: record.Unset,
	}
	if c.Config.StartNS != nil {
		base = min(base, *c.Config.StartNS)
		m.MeasureStart = record.Time(*c.Config.StartNS - base)
		m.Load.Duration = time.Duration(c.Config.DurationS * 1e9)
		m.Load.Grace = time.Duration(c.Config.GraceS * 1e9)
	}
	m.Origin = time.Unix(0, base)
	known := func(n *int64) record.Count {
		if n == nil {
			return record.Unknown
		}
		return record.Count(*n)
	}
	endpoint := openai.EndpointType(c.Endpoint)
	var recs []*record.Record
	for i, in := range c.Records {
		r := record.New(record.PhaseMeasure, int64(i))
		if in.Phase == "warmup" {
			r.Phase = record.PhaseWarmup
		}
		r.Streaming = c.Streaming
		r.Start = record.Time(in.StartNS - base)
		r.End = r.Start
		var a openai.Answer
		a.Reset(r, endpoint, 0)
		for _, msg := range in.Responses {
			r.End = record.Time(msg.RecvNS - base)
			if !c.Streaming {
				a.Whole([]byte(msg.Data), r.End, 0)
				continue
			}
			r.Streamed = true
			if !a.Event([]byte(msg.Event), []byte(msg.Data), r.End, 0, false) {
				break
			}
		}
		if in.EndNS != nil {
			r.End = record.Time(*in.EndNS - base)
		}
		switch {
		case in.Cancelled:
			r.Fail(record.Cancelled, record.Failure{})
		case in.Error != nil:
			r.Fail(record.ServerError, record.Failure{Message: fmt.Sprint(in.Error.Code)})
		}
		a.Close()
		if c.Config.TokenSource != "server" {
			r.Tokens = record.Tokens{
				Source: record.SourceTokenizer, Cached: record.Unknown,
				Input: known(in.Input), Output: known(in.Output), Reasoning: known(in.Reasoning),
			}
		}
		recs = append(recs, r)
	}
	return m, recs
}

func (c *conformanceCase) checkStatus(t *testing.T, recs []*record.Record, s *report.Summary) {
	want := make(map[string]int64)
	for i, status := range c.Status {
		want[status]++
		if valid := recs[i].Valid(); status != "excluded" && valid != (status == "valid") {
			t.Errorf("record %d: valid = %v (outcome %s), want status %s", i, valid, recs[i].Outcome, status)
		}
	}
	got := report.Counts{
		Valid: want["valid"], Failed: want["error"], Cancelled: want["cancelled"],
		Excluded: want["excluded"], Warmup: want["warmup"],
	}
	if s.Counts != got {
		t.Errorf("counts = %+v, want %+v", s.Counts, got)
	}
}

func (c *conformanceCase) checkMetric(t *testing.T, tag string, section json.RawMessage, recs []*record.Record, s *report.Summary) {
	r, ok := s.Metric(tag)
	if string(section) == "null" {
		if ok && (!r.Integer || r.Whole != 0) {
			t.Errorf("%s is reported, want none", tag)
		}
		return
	}
	if !ok {
		t.Errorf("%s is missing", tag)
		return
	}
	var want map[string]any
	dec := json.NewDecoder(bytes.NewReader(section))
	dec.UseNumber()
	if err := dec.Decode(&want); err != nil {
		t.Fatal(err)
	}
	for key, w := range want {
		switch key {
		case "unit":
			if r.Unit != w {
				t.Errorf("%s: unit = %s, want %s", tag, r.Unit, w)
			}
			continue
		case "per_record":
			c.checkRecords(t, r, w.([]any), recs)
			continue
		}
		if n, isNumber := w.(json.Number); r.Integer && isNumber {
			if whole, err := n.Int64(); err == nil && whole != r.Whole {
				t.Errorf("%s = %d, want %d", tag, r.Whole, whole)
			}
			continue
		}
		if got := figureOf(t, r, key); !near(got, number(t, w)) {
			t.Errorf("%s.%s = %v, want %v", tag, key, got, w)
		}
	}
}

func (c *conformanceCase) checkRecords(t *testing.T, r report.Result, want []any, recs []*record.Record) {
	for i, w := range want {
		rec := recs[i]
		if r.Scope == report.PerGap {
			var gaps []time.Duration
			if c.Status[i] == "valid" {
				gaps = rec.Gaps(nil)
			}
			list, _ := w.([]any)
			if len(gaps) != len(list) {
				t.Errorf("%s of record %d: %d gaps, want %d", r.Tag, i, len(gaps), len(list))
				continue
			}
			for j, gap := range gaps {
				if got := float64(gap) / 1e6; !near(got, number(t, list[j])) {
					t.Errorf("%s of record %d: gap %d = %v, want %v", r.Tag, i, j, got, list[j])
				}
			}
			continue
		}
		got, ok := r.Of(rec)
		ok = ok && c.Status[i] == "valid"
		switch {
		case ok != (w != nil):
			t.Errorf("%s of record %d: %v, %v; want %v", r.Tag, i, got, ok, w)
		case ok && !near(got, number(t, w)):
			t.Errorf("%s of record %d = %v, want %v", r.Tag, i, got, w)
		}
	}
}

func figureOf(t *testing.T, r report.Result, key string) float64 {
	t.Helper()
	st := r.Statistic
	if st == nil {
		if key != "avg" {
			t.Fatalf("%s: a run metric has no %s", r.Tag, key)
		}
		return r.Value
	}
	switch key {
	case "count":
		return float64(st.Count)
	case "sum":
		return st.Sum
	case "avg":
		return st.Avg
	case "min":
		return st.Min
	case "max":
		return st.Max
	case "std":
		return st.Std
	}
	for i, p := range stats.Percents {
		if report.PercentileKey(p) == key {
			return st.Percentiles[i]
		}
	}
	t.Fatalf("%s: no figure is called %s", r.Tag, key)
	return 0
}

func number(t *testing.T, v any) float64 {
	t.Helper()
	if v == "inf" {
		return math.Inf(1)
	}
	n, ok := v.(json.Number)
	if !ok {
		t.Fatalf("%v (%T) is no number", v, v)
	}
	f, err := n.Float64()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// near is the corpus's tolerance.
func near(got, want float64) bool {
	if math.IsInf(want, 0) || math.IsInf(got, 0) {
		return got == want
	}
	return math.Abs(got-want) <= max(1e-12, 1e-9*math.Abs(want))
}

func sequence(recs []*record.Record) iter.Seq2[*record.Record, error] {
	return func(yield func(*record.Record, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	}
}
