//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/selftest"
	"github.com/tokmark/tokmark/report"
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
	address, stop, err := startMock("", append(simulatorFlags(shape.Simulator())[1:], "--truth-log", truth)...)
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

// hog leaves this process one processor and keeps it busy until stop is called,
// by n goroutines in turn: whatever else wants to run waits for them. A machine
// that is busy besides makes that worse.
func hog(n int) (stop func()) {
	procs := runtime.GOMAXPROCS(1)
	var over atomic.Bool
	var busy sync.WaitGroup
	for range n {
		busy.Go(func() {
			for x := 1; x != 0 && !over.Load(); {
				for range 1_000_000 { // a millisecond or so in which nobody else runs
					x = (x*1664525 + 1013904223) | 1
				}
			}
		})
	}
	return func() {
		over.Store(true)
		busy.Wait()
		runtime.GOMAXPROCS(procs)
	}
}

// judged is what summary.json says of the client.
type judged struct {
	Verdict  report.Verdict   `json:"verdict"`
	Warnings []report.Warning `json:"warnings"`
	Client   struct {
		Lateness *report.Spread `json:"own_lateness_ms"`
		Lag      *report.Spread `json:"receive_lag_ms"`
	} `json:"client"`
}

func (j *judged) warning(code string) (report.Warning, bool) {
	i := slices.IndexFunc(j.Warnings, func(w report.Warning) bool { return w.Code == code })
	if i < 0 {
		return report.Warning{}, false
	}
	return j.Warnings[i], true
}

// runHogged makes a run by a client that has to share its processor. The
// simulator has a process, and so a processor, of its own.
func runHogged(t *testing.T, load ...string) (code int, j judged, stdout string) {
	t.Helper()
	address, stop, err := startMock("", "--noise", "0", "--max-batch", "256",
		"--prefill-base", "10us", "--prefill-per-token", "0", "--decode-base", "2ms", "--decode-per-sequence", "0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Errorf("simulator: %v", err)
		}
	}()
	dir := record.Dir(filepath.Join(t.TempDir(), "run"))
	release := sync.OnceFunc(hog(8))
	over := make(chan struct{})
	defer close(over)
	go func() { // the report may be made in peace
		for {
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if m, err := dir.ReadManifest(); err == nil && m.Outcome != record.RunRunning {
				release()
				return
			}
		}
	}()
	code, stdout, errs := program("", append([]string{"run", "--url", address, "--artifact-dir", string(dir), "--ui", "none", "--preflight=false",
		"--isl", "16", "--osl", "4", "--extra-inputs", "ignore_eos:true"}, load...)...)
	release()
	b, err := os.ReadFile(dir.Path(record.SummaryJSONFile))
	if err != nil {
		t.Fatalf("%v; exit code %d, stderr: %s", err, code, errs)
	}
	if err := json.Unmarshal(b, &j); err != nil {
		t.Fatal(err)
	}
	for _, w := range j.Warnings {
		t.Logf("%s (%s): %s", w.Code, w.Effect, w.Message)
	}
	return code, j, stdout
}

// inOneLine takes out the line breaks that the report makes to fit a terminal.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// A client without the processor that it needs says so, whatever the load; the
// code tells a script.
func TestHoggedClientIsInvalid(t *testing.T) {
	for _, tt := range []struct {
		name  string
		load  []string
		codes []string // one of them at least
	}{
		{"open loop", []string{"--request-rate", "200", "--benchmark-duration", "1.5", "--benchmark-grace-period", "120"}, []string{report.ClientLate}},
		{"closed loop", []string{"--concurrency", "20", "--request-count", "200"}, []string{report.ClientLate, report.ConcurrencyNotReached}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, j, stdout := runHogged(t, tt.load...)
			if code != exitInvalid || j.Verdict.Level != report.Invalid {
				t.Errorf("exit code %d, verdict %s; want %d, %s", code, j.Verdict.Level, exitInvalid, report.Invalid)
			}
			found := 0
			for _, c := range tt.codes {
				w, ok := j.warning(c)
				if !ok {
					continue
				}
				found++
				if w.Effect != report.Invalid || !slices.Contains(j.Verdict.Reasons, w.Message) {
					t.Errorf("%s: effect %s, and not among the reasons %q", c, w.Effect, j.Verdict.Reasons)
				}
				if text := inOneLine(stdout); !strings.Contains(text, w.Code+" "+w.Message+" "+w.Advice) {
					t.Errorf("the report lacks %q", w.Message)
				}
			}
			if found == 0 {
				t.Errorf("none of %q among the warnings", tt.codes)
			}
			if late := j.Client.Lateness; late == nil || late.Max == 0 || !strings.Contains(inOneLine(stdout), "ms late by our own doing") {
				t.Errorf("the report does not tell the lateness %+v", late)
			}
		})
	}
}

// Kernel stamps keep the times right, and the report tells why they are needed.
func TestReceiveLagIsNamed(t *testing.T) {
	over := make(chan struct{})
	var collects sync.WaitGroup
	collects.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
				debug.FreeOSMemory() // a whole collection
			}
		}
	})
	_, j, stdout := runHogged(t, "--concurrency", "20", "--request-count", "100")
	close(over)
	collects.Wait()
	w, ok := j.warning(report.ReceiveLag)
	if !ok || w.Effect != report.Valid || !strings.Contains(w.Message, "the times are the kernel's") {
		t.Errorf("warning %+v; the lag was %+v", w, j.Client.Lag)
	}
	// What does not suffer must not include events whose stamps are lost.
	if _, lost := j.warning(report.LostStamps); lost != strings.Contains(w.Message, "but for those of events that were read together") {
		t.Errorf("stamps were lost: %v, and the warning says %q", lost, w.Message)
	}
	if lag := j.Client.Lag; lag == nil || !strings.Contains(w.Message, fmt.Sprintf("%.4g ms (p99)", lag.P99)) || !strings.Contains(inOneLine(stdout), w.Message) {
		t.Errorf("the report does not tell the lag %+v", lag)
	}
}

// TestFewOpenFiles: a limit that cannot hold the load is told before anything is
// sent or written, with the limit and the way out.
func TestFewOpenFiles(t *testing.T) {
	url, stop, err := startMock("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stop() }()
	for _, tt := range []struct {
		name, limit, load string
		tells             []string
	}{
		{"less than a run needs", "40", "--concurrency 100 --request-count 200", []string{"100 connections", "open files is 40", "ulimit -n 164"}},
		{"less than the load needs", "100", "--concurrency 100 --request-count 200", []string{"100 connections", "open files is 100", "ulimit -n 164", "36 in flight"}},
		{"users", "100", "--user-centric-rate 10 --num-users 50 --request-count 50", []string{"50 connections", "open files is 100", "ulimit -n 114"}},
		{"open loop without a cap", "40", "--request-rate 50 --request-count 10", []string{"open files is 40", "ulimit -n 65"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a run that hangs
			defer cancel()
			c := exec.CommandContext(ctx, "sh", "-c", "ulimit -n "+tt.limit+"; exec tokmark run --ui none --preflight=false "+tt.load+` --url "$1" --artifact-dir "$2"`, "sh", url, dir)
			c.Env = append(os.Environ(), quickExit)
			var out, errs strings.Builder
			c.Stdout, c.Stderr = &out, &errs
			if err := c.Run(); c.ProcessState.ExitCode() != exitUsage {
				t.Errorf("%v, want exit code %d; stderr: %s", err, exitUsage, &errs)
			}
			for _, want := range tt.tells {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("stderr does not tell %q: %s", want, &errs)
				}
			}
			if out.Len() > 0 || strings.Count(errs.String(), "\n") > 2 {
				t.Errorf("more than an error was said: %s%s", &out, &errs)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a run directory was made (%v)", err)
			}
		})
	}
	// As many as fit are no fault.
	said, err := exec.Command("sh", "-c", `ulimit -n 100; exec tokmark run --ui none --preflight=false --concurrency 36 --request-count 72 --osl 4 --url "$1" --artifact-dir "$2"`,
		"sh", url, filepath.Join(t.TempDir(), "run")).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() != exitInvalid || bytes.Contains(said, []byte("too many open files")) {
		t.Errorf("36 in flight under a limit of 100: %v\n%s", err, said)
	}
}
