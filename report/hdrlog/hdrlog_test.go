package hdrlog

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/hist"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

const msec = record.Time(time.Millisecond)

func TestWrite(t *testing.T) {
	m := &record.Manifest{
		ID: "run-1", Outcome: record.RunCompleted, Target: record.Target{Streaming: true}, Load: record.Load{Concurrency: 1},
		Origin: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), MeasureStart: 2000 * msec, MeasureEnd: 12_000 * msec,
	}
	records := func(yield func(*record.Record, error) bool) {
		for i := range int64(3) {
			r := record.New(record.PhaseMeasure, i)
			r.Outcome, r.Streaming, r.Streamed, r.Done = record.OK, true, true, true
			r.Start = 2000 * msec
			for j := range record.Time(4) {
				r.Chunks = append(r.Chunks, record.Chunk{At: r.Start + 100*msec + j*10*msec, Kind: record.KindText})
			}
			r.Tokens.Output = 7
			if !yield(r, nil) {
				return
			}
		}
	}
	write := func() string {
		s, err := report.Summarize(m, records, nil, report.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var buf bytes.Buffer
		if err := Write(&buf, s); err != nil {
			t.Fatal(err)
		}
		return buf.String()
	}
	text := write()
	if diff := cmp.Diff(text, write()); diff != "" {
		t.Errorf("another time, other bytes:\n%s", diff)
	}
	start := m.Origin.Add(2 * time.Second)
	var want bytes.Buffer
	log, err := hist.NewLog(&want, "tokmark latencies in nanoseconds by tag", start)
	if err != nil {
		t.Fatal(err)
	}
	// hist's own tests read such a log back with HdrHistogram's reader.
	for _, in := range []struct {
		tag   string
		count int
		ns    int64
	}{{"TTFT", 3, 100e6}, {"ITL", 3, 5e6}, {"ICL", 9, 10e6}, {"E2E", 3, 130e6}} {
		h := hist.New()
		for range in.count {
			h.Record(in.ns)
		}
		if err := log.Write(in.tag, start, start.Add(10*time.Second), h); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want.String(), text); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestRunWithoutValuesHasALog(t *testing.T) {
	s, err := report.Summarize(&record.Manifest{MeasureStart: record.Unset, MeasureEnd: record.Unset}, func(func(*record.Record, error) bool) {}, nil, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := Write(&buf, s); err != nil || !strings.Contains(buf.String(), "format version") {
		t.Errorf("%v, %q", err, buf.String())
	}
}
