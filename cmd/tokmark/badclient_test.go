//go:build linux

package main

import (
	"net/url"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/selftest"
)

// TestKernelStampsSurviveABusyClient makes the client slow on purpose: every
// processor of the program is kept busy, and the garbage collector runs all the
// time. The kernel's stamps must be nearer to the truth than our own, by far:
// both are taken in the same run, on the same events.
func TestKernelStampsSurviveABusyClient(t *testing.T) {
	// One processor for the client leaves one to the simulator, which is to
	// send in time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const tries = 3 // on a machine where others are busy as well
	for try := 1; ; try++ {
		r := measureBusy(t)
		t.Logf("%d events; error with kernel stamps p50 %v p99 %v, without p50 %v p99 %v", r.Seen, r.Event.P50, r.Event.P99, r.Own.P50, r.Own.P99)
		if r.Lost > 0 || r.Failed > 0 || r.Seen == 0 {
			t.Fatalf("%d events seen, %d lost, %d requests failed", r.Seen, r.Lost, r.Failed)
		}
		if r.Event.P50 < r.Own.P50/4 {
			return
		}
		if try == tries {
			t.Fatalf("kernel stamps are off by %v at p50, our own by %v: they should be much nearer", r.Event.P50, r.Own.P50)
		}
	}
}

// measureBusy measures while the program keeps itself busy.
func measureBusy(t *testing.T) selftest.Result {
	t.Helper()
	// An event every 150 ms on each stream: longer than the client is late, as
	// events that are read together share the last one's stamp.
	const streams = 20
	truth := filepath.Join(t.TempDir(), "truth.jsonl")
	shape := selftest.Shape{Streams: streams, Events: streams / 0.15, For: 1500 * time.Millisecond}
	address, stop, err := startMock("", "--truth-log", truth, "--noise", "0", "--max-batch", strconv.Itoa(streams),
		"--decode-base", shape.Step().String(), "--decode-per-sequence", "0", "--prefill-base", "10us", "--prefill-per-token", "0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	base, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var busy sync.WaitGroup
	for range 3 {
		busy.Go(func() {
			for x := 1; !over.Load(); {
				for range 1_000_000 { // a millisecond or so in which nobody else runs
					x = x*1664525 + 1013904223
				}
				if x == 0 {
					return
				}
			}
		})
	}
	busy.Go(func() {
		for !over.Load() {
			debug.FreeOSMemory() // a whole collection
			time.Sleep(5 * time.Millisecond)
		}
	})
	r, err := selftest.Measure(t.Context(), base, truth, shape)
	over.Store(true)
	busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return r
}
