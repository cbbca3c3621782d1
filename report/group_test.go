package report_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

func TestGroups(t *testing.T) {
	m := manifest()
	m.Goodput = map[string]float64{"time_to_first_token": 25}
	m.Classes = []record.Class{{Name: "short", Goodput: map[string]float64{"time_to_first_token": 5}}, {Name: "long"}}
	var recs []*record.Record
	for i := range 20 {
		r := stream(int64(i), record.Time(i)*100*msec, 10*msec, 10*msec, 3)
		r.Class, r.Model = "short", "a"
		if i%2 == 1 {
			r = stream(int64(i), record.Time(i)*100*msec, 20*msec, 5*msec, 11)
			r.Class, r.Model, r.Turn = "long", "a", 2
		}
		recs = append(recs, r)
	}
	bad := failed(30, 500*msec, record.ServerError, "boom")
	bad.Class, bad.Model = "short", "a"
	gone := stream(31, 500*msec, 10*msec, 10*msec, 3)
	gone.Class, gone.Outcome = "short", record.Cancelled
	s := summarize(t, m, append(recs, bad, gone)...)
	seconds, _ := s.Metric("benchmark_duration")
	spread := func(v float64) *report.Spread { return &report.Spread{P50: v, P99: v, Max: v, Count: 10} }
	ptr := func(v float64) *float64 { return &v }
	short := report.Group{Name: "short", Valid: 10, Failed: 1, TTFT: spread(10), ITL: spread(10), Latency: spread(30),
		ISL: ptr(10), OSL: ptr(3), OutputTokens: ptr(30 / seconds.Value), Goodput: ptr(0), GoodFraction: ptr(0)}
	long := report.Group{Name: "long", Valid: 10, TTFT: spread(20), ITL: spread(5), Latency: spread(70),
		ISL: ptr(10), OSL: ptr(11), OutputTokens: ptr(110 / seconds.Value), Goodput: ptr(10 / seconds.Value), GoodFraction: ptr(1)}
	first, later := short, long
	first.By, first.Name, later.By, later.Name = report.ByTurn, "first", report.ByTurn, "later"
	// By turn the run's objective holds, which the class tightened.
	first.Goodput, first.GoodFraction = ptr(10/seconds.Value), ptr(10.0/11)
	short.By, long.By = report.ByClass, report.ByClass
	if diff := cmp.Diff([]report.Group{first, later, long, short}, s.Groups); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestOneKindOfRequestIsNoGroup(t *testing.T) {
	recs := many(10)
	for _, r := range recs {
		r.Class, r.Model = "only", "one"
	}
	m := manifest()
	m.Classes = []record.Class{{Name: "only"}, {Name: "never drawn"}}
	if s := summarize(t, m, recs...); s.Groups != nil {
		t.Errorf("groups %+v", s.Groups)
	}
}

// Names come from files of others: what is kept of them is bounded.
func TestManyGroupsAreBounded(t *testing.T) {
	var recs []*record.Record
	for i := range 500 {
		r := stream(int64(i), record.Time(i)*msec, 10*msec, msec, 2)
		r.Model = fmt.Sprintf("model %d", i)
		recs = append(recs, r)
	}
	s := summarize(t, manifest(), recs...)
	var total int64
	for _, g := range s.Groups {
		total += g.Valid
	}
	if len(s.Groups) > 102 || total != 500 {
		t.Errorf("%d groups of %d requests", len(s.Groups), total)
	}
}

func TestClassObjectivesAreChecked(t *testing.T) {
	m := manifest()
	m.Classes = []record.Class{{Name: "x", Goodput: map[string]float64{"speed": 1}}}
	if _, err := report.Summarize(m, sequence(nil), nil, report.Options{}); err == nil {
		t.Error("an objective on an unknown metric is accepted in a class")
	}
}
