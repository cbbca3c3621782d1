package selftest

import (
	"errors"
	"math"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
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
	rec.Written, rec.Conn.Wait = 230*us, 30*time.Microsecond
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
	// TTFT is 820 µs once there is a connection; the request left at 200 µs, by
	// when the server had it, and its first event at 995.
	if r.TTFT.Max != 25*time.Microsecond || r.Late.Max != 50*time.Microsecond {
		t.Errorf("TTFT %+v, lateness %+v", r.TTFT, r.Late)
	}
	if r.Fault(time.Millisecond) == "" {
		t.Error("a client that loses events keeps up")
	}
}

// What the server takes to notice a request is no error of the client's.
func TestTTFTErrorLeavesOutTheServersWait(t *testing.T) {
	const us = record.Time(time.Microsecond)
	rec := record.New(record.PhaseMeasure, 0)
	rec.Outcome, rec.Streamed, rec.Start, rec.Written = record.OK, true, 100*us, 110*us
	rec.Chunks = record.Chunks{{At: 9003 * us, Kind: record.KindText}}
	in := make(chan *record.Record, 1)
	in <- rec
	close(in)
	var r Result
	r.compare(in, map[string]mockserver.Truth{"m0": {MonotonicOrigin: 1, Received: 8000 * us,
		Events: record.Chunks{{At: 9000 * us, Kind: record.KindText}}}}, "", 1)
	if r.TTFT.Max != 13*time.Microsecond {
		t.Errorf("error of TTFT %v, want 13 µs: 10 to write the request, 3 to see the event", r.TTFT.Max)
	}
}

// stream has n events, gap apart from first on.
func stream(first, gap record.Time, n int) record.Chunks {
	var out record.Chunks
	for i := range record.Time(n) {
		out = append(out, record.Chunk{At: first + i*gap, Kind: record.KindText})
	}
	return out
}

func TestRateIsThatWhileAllStreamsAreOpen(t *testing.T) {
	const ms = record.Time(time.Millisecond)
	// 10 and 20 events/s, together from 500 to 1900 ms.
	both := []record.Chunks{stream(0, 100*ms, 20), stream(500*ms, 50*ms, 40)}
	if got := openRate(both); math.Abs(got-30) > 1e-9 {
		t.Errorf("%v events/s, want 30", got)
	}
	// One after the other: many events a second, and never two streams.
	apart := []record.Chunks{stream(0, ms, 100), stream(100*ms, ms, 100)}
	if got := openRate(apart); got != 0 {
		t.Errorf("%v events/s of streams that were never open together, want 0", got)
	}
	if got := openRate([]record.Chunks{both[0], nil}); got != 0 {
		t.Errorf("%v events/s with a stream without events, want 0", got)
	}
}

func TestFault(t *testing.T) {
	streams := Shape{Streams: 10, Events: 1000}
	requests := Shape{Requests: 100}
	slow := Spread{P99: 2 * time.Millisecond}
	for _, c := range []struct {
		name string
		r    Result
		want string
	}{
		{"well", Result{Shape: streams, Events: 900}, ""},
		{"late streams are no fault", Result{Shape: streams, Events: 1001, Late: slow}, ""},
		{"rate", Result{Shape: streams, Events: 899}, "rate not reached"},
		{"never open", Result{Shape: streams}, "not all streams were open at once"},
		{"lost", Result{Shape: streams, Events: 1000, Lost: 1}, "1 events lost, 0 requests failed"},
		{"error", Result{Shape: streams, Events: 1000, Event: slow}, "event times past the limit"},
		{"requests", Result{Shape: requests, Requests: 95}, ""},
		{"request rate", Result{Shape: requests, Requests: 80}, "rate not reached"},
		{"late", Result{Shape: requests, Requests: 100, Late: slow}, "sent too late"},
	} {
		if got := c.r.Fault(time.Millisecond); got != c.want {
			t.Errorf("%s: fault %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAllStreamsAreOpen measures the simulator as it is set up for a shape: a
// decode step is a moment in which every stream has an event.
func TestAllStreamsAreOpen(t *testing.T) {
	for _, shape := range []Shape{
		{Streams: 50, Events: 250, For: time.Second / 2},
		{Streams: 20, Events: 100, Tokens: 8, For: time.Second / 2},
		{Requests: 50, For: 200 * time.Millisecond},
	} {
		truth := filepath.Join(t.TempDir(), "truth.jsonl")
		log, err := os.Create(truth)
		if err != nil {
			t.Fatal(err)
		}
		cfg := shape.Simulator()
		cfg.TruthLog = log
		srv, err := mockserver.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		hs := httptest.NewServer(srv)
		base, err := url.Parse(hs.URL)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Measure(t.Context(), base, truth, shape)
		hs.Close()
		if err := errors.Join(err, srv.Close(), log.Close()); err != nil {
			t.Fatal(err)
		}
		if r.Lost+r.Failed > 0 || r.Seen == 0 {
			t.Errorf("%+v: %d seen, %d lost, %d failed", shape, r.Seen, r.Lost, r.Failed)
		}
		if shape.Requests > 0 {
			if r.Requests == 0 || r.Events != 0 {
				t.Errorf("%+v: %v requests/s, %v events/s", shape, r.Requests, r.Events)
			}
			continue
		}
		if r.Events == 0 {
			t.Errorf("%+v: the streams were never all open", shape)
		}
		truths, err := ReadTruth(truth)
		if err != nil {
			t.Fatal(err)
		}
		for id, one := range truths {
			if n, tokens := len(one.Events), int(one.OutputTokens); tokens != 1+(n-1)*max(shape.Tokens, 1) {
				t.Fatalf("%+v: %s has %d tokens in %d events", shape, id, tokens, n)
			}
		}
	}
}

func TestStepIsWhatTheRateNeeds(t *testing.T) {
	if d := (Shape{Streams: 100, Events: 5000}).Step(); d != 20*time.Millisecond {
		t.Errorf("a step of %v, want 20 ms: 100 streams of 50 events/s", d)
	}
}
