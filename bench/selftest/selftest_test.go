package selftest

import (
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
)

func TestCompare(t *testing.T) {
	const us = record.Time(time.Microsecond)
	rec := record.New(record.PhaseMeasure, 3)
	rec.Outcome, rec.Streamed = record.OK, true
	rec.Due, rec.Start = 100*us, 150*us
	rec.Chunks = record.Chunks{
		{At: 1000 * us, Lag: 40_000, Kind: record.KindText}, {At: 2002 * us, Lag: 10_000, Kind: record.KindText},
	}
	failed := record.New(record.PhaseMeasure, 4)
	failed.Outcome = record.Reset
	// The simulator's clock began 500 µs before ours.
	truths := map[string]mockserver.Truth{
		"x-m3": {MonotonicOrigin: 1_000_000, Received: 700 * us, Events: record.Chunks{
			{At: 1495 * us, Kind: record.KindText}, {At: 2500 * us, Kind: record.KindText}, {At: 3500 * us, Kind: record.KindText}, {At: 3600 * us}, // the end token has no output
		}},
		"x-m4": {MonotonicOrigin: 1_000_000, Events: record.Chunks{{At: 5, Kind: record.KindText}}},
	}
	in := make(chan *record.Record, 2)
	in <- rec
	in <- failed
	close(in)
	var r Result
	r.compare(in, truths, "x-", 1_500_000)
	if r.Seen != 2 || r.Lost != 2 || r.Failed != 1 {
		t.Errorf("seen %d, lost %d, failed %d; want 2, 2 (one of each request), 1", r.Seen, r.Lost, r.Failed)
	}
	if r.Event.P50 != 2*time.Microsecond || r.Event.Max != 5*time.Microsecond {
		t.Errorf("event error %+v, want 2 and 5 µs", r.Event)
	}
	if r.Own.P50 != 12*time.Microsecond || r.Own.Max != 45*time.Microsecond {
		t.Errorf("error without the kernel %+v, want 12 and 45 µs", r.Own)
	}
	// TTFT is 850 µs here and 795 at the server.
	if r.TTFT.Max != 55*time.Microsecond || r.Late.Max != 50*time.Microsecond {
		t.Errorf("TTFT %+v, lateness %+v", r.TTFT, r.Late)
	}
	if r.Within(time.Millisecond) {
		t.Error("a client that loses events keeps up")
	}
}

func TestStepIsWhatTheRateNeeds(t *testing.T) {
	if d := (Shape{Streams: 100, Events: 5000}).Step(); d != 20*time.Millisecond {
		t.Errorf("a step of %v, want 20 ms: 100 streams of 50 events/s", d)
	}
}
