package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/selftest"
	"github.com/tokmark/tokmark/bench/transport"
)

func newSelftest(w *world) *cobra.Command {
	var (
		streams  int
		events   float64
		rate     float64
		duration float64
		limit    time.Duration
	)
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Find out how good this machine is as a client",
		Long: `Measure the simulator, in a process of its own on this machine, and compare with what it wrote
down: how wrong event times and TTFT are, up to which rate of events the error stays under the
limit, how late requests are sent, what a stream takes in memory. The simulator needs about as
much of the machine as the client does, so a server elsewhere leaves more room than this.`,
		Example: `  tokmark selftest
  tokmark selftest --streams 1000 --events 20000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			shape := selftest.Shape{Streams: streams, Events: events, For: seconds(duration)}
			switch {
			case streams < 1 || !(events >= float64(streams)/10) || math.IsInf(events, 1):
				return usagef("--streams %d, --events %v: give at least one stream, and an event every ten seconds for each", streams, events)
			case !(rate > 0) || !(duration >= 0.2 && duration <= 60):
				return usagef("--request-rate %v, --duration %v: the rate must be above 0, the duration between 0.2 and 60 s", rate, duration)
			}
			if err := transport.CheckOpenFiles(streams); err != nil {
				return usage(err)
			}
			return runSelftest(c.Context(), w, shape, rate, limit)
		},
	}
	fs := c.Flags()
	fs.IntVar(&streams, "streams", 100, "streams open at a time")
	fs.Float64Var(&events, "events", 5000, "events per second of all streams together, to begin with; it is doubled until the limit is passed")
	fs.Float64Var(&rate, "request-rate", 500, "requests per second of the open-loop part")
	fs.Float64Var(&duration, "duration", 1.5, "`seconds` for each step")
	fs.DurationVar(&limit, "limit", time.Millisecond, "largest error of event times at p99")
	return c
}

// steps bounds how often the rate is doubled.
const steps = 5

func runSelftest(ctx context.Context, w *world, shape selftest.Shape, rate float64, limit time.Duration) error {
	percent := debug.SetGCPercent(-1)
	old := debug.SetMemoryLimit(memoryLimit)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(old)
	}()
	fmt.Fprintf(w.Stdout, "%-9s %10s %10s  %-26s %-26s %-26s %6s %9s\n", "STREAMS", "events/s", "reached", "event error p50/p99/p99.9", "without kernel stamps", "TTFT error p50/p99/p99.9", "cores", "a stream")
	best := 0.0
	for range steps {
		r, err := selftestStep(ctx, w, shape)
		if err != nil {
			return err
		}
		verdict := ""
		switch {
		case !r.Within(limit):
			verdict = "  past the limit"
		case r.Rate < 0.9*shape.Events:
			verdict = "  the simulator sends no faster"
		}
		if r.Within(limit) {
			best = max(best, r.Rate)
		}
		if r.Lost+r.Failed > 0 {
			verdict += fmt.Sprintf(" (%d events lost, %d requests failed)", r.Lost, r.Failed)
		}
		fmt.Fprintf(w.Stdout, "%-9d %10.0f %10.0f  %-26s %-26s %-26s %6.2f %9s%s\n", shape.Streams, shape.Events, r.Rate,
			micros(r.Event), micros(r.Own), micros(r.TTFT), r.CPU, size(int64(r.MemoryPerStream)), verdict)
		if verdict != "" {
			break
		}
		shape.Events *= 2
	}
	late, err := selftestStep(ctx, w, selftest.Shape{Streams: 64, Requests: rate, For: shape.For})
	if err != nil {
		return err
	}
	fmt.Fprintf(w.Stdout, "\nrequests at %g/s are sent late by p50 %v, p99 %v, at most %v\n", rate, late.Late.P50.Round(time.Microsecond), late.Late.P99.Round(time.Microsecond), late.Late.Max.Round(time.Microsecond))
	if best > 0 {
		fmt.Fprintf(w.Stdout, "this machine times at least %.0f events/s over %d streams with an error of at most %v at p99\n", best, shape.Streams, limit)
		return nil
	}
	fmt.Fprintf(w.Stdout, "this machine does not time that many events with an error of at most %v at p99: try less, or another machine\n", limit)
	return &exitError{code: exitInvalid}
}

func micros(s selftest.Spread) string {
	us := func(d time.Duration) string { return strconv.FormatFloat(float64(d)/1000, 'g', 3, 64) }
	return us(s.P50) + " / " + us(s.P99) + " / " + us(s.P999) + " µs"
}

// selftestStep starts a simulator for one shape and measures it.
func selftestStep(ctx context.Context, w *world, shape selftest.Shape) (r selftest.Result, err error) {
	if w.Executable == "" {
		return r, errors.New("self-test: the program does not know where it is")
	}
	dir, err := os.MkdirTemp("", "tokmark-selftest-")
	if err != nil {
		return r, fmt.Errorf("self-test: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	truth := filepath.Join(dir, "truth.jsonl")
	mock := exec.CommandContext(ctx, w.Executable, "mock", "--addr", "127.0.0.1:0", "--truth-log", truth, "--noise", "0",
		"--max-batch", strconv.Itoa(max(shape.Streams, 1)), "--decode-base", shape.Step().String(), "--decode-per-sequence", "0",
		"--prefill-base", "10us", "--prefill-per-token", "0", "--prefix-cache=false")
	mock.Stderr = w.Stderr
	stdout, err := mock.StdoutPipe()
	if err != nil {
		return r, fmt.Errorf("self-test: %w", err)
	}
	if err := mock.Start(); err != nil {
		return r, fmt.Errorf("self-test: start the simulator: %w", err)
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		if runtime.GOOS == "windows" || mock.Process.Signal(os.Interrupt) != nil {
			_ = mock.Process.Kill()
		}
		_ = mock.Wait() // how it ends makes no difference
	}
	defer stop()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), " on ")
	if !ok {
		return r, fmt.Errorf("self-test: the simulator did not start: %w", err)
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	base, err := url.Parse(address)
	if err != nil {
		return r, fmt.Errorf("self-test: %w", err)
	}
	runtime.GC()
	r, err = selftest.Measure(ctx, base, truth, shape)
	if err != nil {
		return r, &exitError{code: exitFailed, err: err}
	}
	return r, nil
}

// The try of a client beside a run: as long as that, doubled so often at most,
// and with so many events a stream where the run's own are not known yet.
const (
	tryFor      = time.Second
	tryDoubled  = 3
	tryEvents   = 50
	tryLimit    = time.Millisecond
	tryLongest  = 2000 // streams: a short try of more would only open connections
	leastEvents = 10
)

// tryClient measures the simulator at a load like the run's. The after-run try
// is repeated at twice the events as long as it goes well.
func tryClient(ctx context.Context, w *world, m *record.Manifest, streams int, events float64, after bool) error {
	streams = min(max(streams, 1), tryLongest)
	if events == 0 {
		events = tryEvents * float64(streams)
	}
	shape := selftest.Shape{Streams: streams, Events: max(events, leastEvents), For: tryFor}
	if m.SelfTest == nil {
		m.SelfTest = &record.SelfTest{}
	}
	for i := range tryDoubled {
		r, err := selftestStep(ctx, w, shape)
		if err != nil {
			return err
		}
		try := &record.ClientTry{
			Streams: streams, Events: r.Rate, ErrorP50: r.Event.P50, ErrorP99: r.Event.P99, TTFTP99: r.TTFT.P99, Lost: r.Lost, Well: r.Within(tryLimit),
		}
		if !after {
			m.SelfTest.Before = try
			return nil
		}
		if i == 0 {
			m.SelfTest.After = try
		}
		if !try.Well {
			return nil
		}
		m.SelfTest.Headroom = max(m.SelfTest.Headroom, r.Rate/max(events, leastEvents))
		shape.Events *= 2
	}
	return nil
}
