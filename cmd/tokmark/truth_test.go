//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
)

// TestTruth measures the simulator, in another process, over real sockets, and
// compares what was measured with what the simulator wrote down. How large the
// errors are depends on the machine, so they are logged; what is asserted holds
// on any machine.
func TestTruth(t *testing.T) {
	const streams, requests, tokens = 100, 200, 60
	work := t.TempDir()
	truthFile := filepath.Join(work, "truth.jsonl")
	url, stop, err := startMock("", "--truth-log", truthFile, "--max-batch", strconv.Itoa(streams),
		"--prefill-base", "1ms", "--prefill-per-token", "1us", "--decode-base", "12ms", "--decode-per-sequence", "20us")
	if err != nil {
		t.Fatal(err)
	}
	dir := record.Dir(filepath.Join(work, "run"))
	before := wallClock(t)
	code, _, errs := program("", "run", "--url", url, "--artifact-dir", string(dir), "--ui", "none", "--preflight=false", "--per-chunk-usage",
		"--concurrency", strconv.Itoa(streams), "--request-count", strconv.Itoa(requests),
		"--isl", "32", "--osl", strconv.Itoa(tokens), "--extra-inputs", "ignore_eos:true")
	after := wallClock(t)
	if err := stop(); err != nil { // which also writes the truth to its end
		t.Fatal(err)
	}
	if code != exitOK && code != exitInvalid { // which a busy machine can make of it
		t.Fatalf("exit code = %d, stderr: %s", code, errs)
	}
	truths := readTruth(t, truthFile)
	m, err := dir.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}

	// Our offset 0 on the clock of the truth, through the wall clock, which is
	// good as long as nobody sets it during the run.
	origin := m.Origin.UnixNano() - before
	const steady = int64(time.Millisecond)
	mapped := max(after-before, before-after) < steady

	var ttft, gap, lag []float64 // errors in ms
	earliest := math.Inf(1)
	seen := 0
	for r, err := range dir.Records() {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		truth, ok := truths[m.RequestIDs+"m"+strconv.FormatInt(r.ID, 10)]
		if !ok {
			t.Fatalf("the simulator knows no request %d", r.ID)
		}
		sent := slices.DeleteFunc(slices.Clone(truth.Events), func(c record.Chunk) bool { return !c.Kind.Output() })
		if len(sent) != len(r.Chunks) || len(sent) == 0 {
			t.Fatalf("request %d: %d events with output, %d were sent", r.ID, len(r.Chunks), len(sent))
		}
		if n, ok := r.OSL(); !ok || n != int64(truth.OutputTokens) || n != tokens {
			t.Errorf("request %d: %d output tokens, the simulator made %d", r.ID, n, truth.OutputTokens)
		}
		if n, ok := r.ISL(); !ok || n != int64(truth.PromptTokens) {
			t.Errorf("request %d: %d input tokens, the simulator counts %d", r.ID, n, truth.PromptTokens)
		}
		// The clock of both is the same, and the server's interval lies within
		// the client's; a kernel's stamp, from another clock, may be a little off.
		measured, ok := r.TTFT()
		made := sent[0].At.Sub(truth.Received)
		if !ok || measured < made-time.Duration(steady) {
			t.Errorf("request %d: TTFT %v, but the server took %v", r.ID, measured, made)
		}
		ttft = append(ttft, milliseconds(measured-made))
		for i, c := range r.Chunks {
			if i > 0 && c.At < r.Chunks[i-1].At {
				t.Errorf("request %d: event %d arrived before the one before it", r.ID, i)
			}
			if c.Tokens != sent[i].Tokens {
				t.Errorf("request %d: event %d brought %d tokens, %d were sent", r.ID, i, c.Tokens, sent[i].Tokens)
			}
			gap = append(gap, math.Abs(milliseconds(c.At.Sub(r.Chunks[0].At)-sent[i].At.Sub(sent[0].At))))
			late := float64(origin+int64(c.At)-truth.MonotonicOrigin-int64(sent[i].At)) / 1e6
			earliest = min(earliest, late)
			lag = append(lag, late)
		}
	}
	if seen != requests || len(truths) != requests {
		t.Errorf("%d records, %d requests at the server, want %d", seen, len(truths), requests)
	}
	show := func(what string, ms []float64) (least, p50 float64) {
		slices.Sort(ms)
		at := func(q float64) float64 { return ms[int(q*float64(len(ms)-1))] }
		t.Logf("%-50s min %.3f  p50 %.3f  p99 %.3f  max %.3f ms, %d values", what, at(0), at(0.5), at(0.99), at(1), len(ms))
		return at(0), at(0.5)
	}
	const gross = 50 // ms
	// On a busy machine requests wait long for both processes, but never all.
	if least, _ := show("TTFT, longer than the server's own by", ttft); least > gross {
		t.Errorf("TTFT is %.1f ms too long at least", least)
	}
	if _, p50 := show("events since the first, differ from the truth by", gap); p50 > gross {
		t.Errorf("events since the first are wrong by %.1f ms at p50", p50)
	}
	if !mapped {
		t.Logf("the wall clock was set by %v during the run: no absolute times", time.Duration(after-before))
		return
	}
	if _, p50 := show("events, seen after they were sent by", lag); p50 > gross {
		t.Errorf("events are seen %.1f ms late at p50", p50)
	}
	if earliest < -float64(steady)/1e6 {
		t.Errorf("an event was seen %.3f ms before it was sent", -earliest)
	}
}

// wallClock returns by how many nanoseconds the wall clock is ahead of
// CLOCK_MONOTONIC, from the tightest of a few readings.
func wallClock(t *testing.T) int64 {
	var ahead int64
	tightest := time.Duration(math.MaxInt64)
	for range 20 {
		var ts unix.Timespec
		start := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		if width := time.Since(start); width < tightest {
			tightest = width
			ahead = start.UnixNano() + int64(width/2) - ts.Nano()
		}
	}
	return ahead
}

// readTruth returns what the simulator knows, by request id.
func readTruth(t *testing.T, path string) map[string]mockserver.Truth {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]mockserver.Truth{}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var tr mockserver.Truth
		if err := json.Unmarshal(line, &tr); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if tr.RequestID == "" || out[tr.RequestID].RequestID != "" {
			t.Errorf("request id %q is missing or used twice", tr.RequestID)
		}
		out[tr.RequestID] = tr
	}
	return out
}
