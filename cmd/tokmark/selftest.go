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
	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/collect"
	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/selftest"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/report"
)

func newSelftest(w *world) *cobra.Command {
	var (
		shape    selftest.Shape
		rate     float64
		duration float64
		limit    time.Duration
	)
	c := &cobra.Command{
		Use:   "selftest",
		Short: "Find out how good this machine is as a client",
		Long: `Measure the simulator, in a process of its own on this machine, and compare with what it wrote
down: how wrong event times and TTFT are, how late requests are sent, what a stream takes in memory.
Events, streams and requests are doubled, one after the other, as long as all streams are open, the
rate is reached and the error at p99 stays under the limit. The simulator needs about as much of the
machine as the client does, so a server elsewhere leaves more room than this.`,
		Example: `  tokmark selftest
  tokmark selftest --streams 1000 --events 20000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			shape.For = seconds(duration)
			switch {
			case shape.Streams < 1 || !(shape.Events >= float64(shape.Streams)) || math.IsInf(shape.Events, 1):
				return usagef("--streams %d, --events %v: give at least one stream, and an event a second for each", shape.Streams, shape.Events)
			case shape.Tokens < 1 || shape.Tokens > selftest.MaxTokens:
				return usagef("--tokens-per-event %d: give 1 to %d", shape.Tokens, selftest.MaxTokens)
			case !(rate > 0) || math.IsInf(rate, 1) || !(duration >= 0.2 && duration <= 60):
				return usagef("--request-rate %v, --duration %v: the rate must be above 0, the duration between 0.2 and 60 s", rate, duration)
			}
			if err := transport.CheckOpenFiles(shape.Streams); err != nil {
				return usage(err)
			}
			return runSelftest(c.Context(), w, shape, rate, limit)
		},
	}
	fs := c.Flags()
	fs.IntVar(&shape.Streams, "streams", 100, "streams open at a time, to begin with")
	fs.Float64Var(&shape.Events, "events", 5000, "events per second of all streams together, to begin with")
	fs.IntVar(&shape.Tokens, "tokens-per-event", 1, "payload of an event")
	fs.Float64Var(&rate, "request-rate", 500, "requests per second of the open-loop part, to begin with")
	fs.Float64Var(&duration, "duration", 1.5, "`seconds` for each step")
	fs.DurationVar(&limit, "limit", time.Millisecond, "largest error at p99 of event times, and lateness of requests")
	return c
}

// doubled bounds how often a rate, or the streams, are doubled.
const doubled = 4

func runSelftest(ctx context.Context, w *world, shape selftest.Shape, rate float64, limit time.Duration) error {
	percent := debug.SetGCPercent(-1)
	old := debug.SetMemoryLimit(memoryLimit)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(old)
	}()

	// climb measures shapes as long as they go well, and returns the last that did.
	climb := func(show func(selftest.Result, string), next func(selftest.Shape) (selftest.Shape, bool), from selftest.Shape) (best selftest.Result, err error) {
		for n := 0; ; n++ {
			r, fault, err := selftestStep(ctx, w, from, limit)
			if err != nil {
				return best, err
			}
			if fault == "" {
				best = r
			} else {
				fault = "  " + fault
			}
			show(r, fault)
			var more bool
			if from, more = next(from); fault != "" || !more || n == doubled {
				return best, nil
			}
		}
	}
	streaming := func(r selftest.Result, fault string) {
		fmt.Fprintf(w.Stdout, "%-9d %10.0f %10s  %-26s %-26s %-26s %6.2f %9s%s\n", r.Shape.Streams, r.Shape.Events, reached(r.Events),
			micros(r.Event), micros(r.Own), micros(r.TTFT), r.CPU, size(int64(r.MemoryPerStream)), fault)
	}
	sending := func(r selftest.Result, fault string) {
		fmt.Fprintf(w.Stdout, "%-20.0f %10s  %-26s %-26s %-26s %6.2f%s\n", r.Shape.Requests, reached(r.Requests),
			micros(r.Late), "", micros(r.TTFT), r.CPU, fault)
	}

	fmt.Fprintf(w.Stdout, "%-9s %10s %10s  %-26s %-26s %-26s %6s %9s\n", "STREAMS", "events/s", "reached", "event error p50/p99/p99.9", "without kernel stamps", "TTFT error p50/p99/p99.9", "cores", "a stream")
	events, err := climb(streaming, func(s selftest.Shape) (selftest.Shape, bool) {
		s.Events *= 2
		return s, true
	}, shape)
	if err != nil {
		return err
	}
	streams := events
	if wider, ok := widen(shape); ok && events.Events > 0 {
		if streams, err = climb(streaming, widen, wider); err != nil {
			return err
		}
		if streams.Events == 0 {
			streams.Shape = shape // went well, in the first climb
		}
	}
	fmt.Fprintf(w.Stdout, "\n%-20s %10s  %-26s %-26s %-26s %6s\n", "REQUESTS/s", "reached", "late by p50/p99/p99.9", "", "TTFT error p50/p99/p99.9", "cores")
	requests, err := climb(sending, func(s selftest.Shape) (selftest.Shape, bool) {
		s.Requests *= 2
		return s, true
	}, selftest.Shape{Requests: rate, For: shape.For})
	if err != nil {
		return err
	}

	fmt.Fprintln(w.Stdout)
	var failed []string
	if events.Events > 0 {
		fmt.Fprintf(w.Stdout, "this machine times at least %.0f events/s over %d streams, and %d streams at %.0f events/s, with an error of at most %v at p99\n",
			events.Events, events.Shape.Streams, streams.Shape.Streams, streams.Shape.Events, limit)
	} else {
		failed = append(failed, fmt.Sprintf("time %.0f events/s over %d streams with an error of at most %v at p99", shape.Events, shape.Streams, limit))
	}
	if requests.Requests > 0 {
		fmt.Fprintf(w.Stdout, "this machine sends at least %.0f requests/s late by at most %v at p99\n", requests.Requests, limit)
	} else {
		failed = append(failed, fmt.Sprintf("send %.0f requests/s late by at most %v at p99", rate, limit))
	}
	if len(failed) == 0 {
		return nil
	}
	fmt.Fprintf(w.Stdout, "this machine does not %s: try less, or another machine\n", strings.Join(failed, ", nor "))
	return &exitError{code: exitInvalid}
}

// widen doubles the streams at the same rate of events, as far as each still
// has an event a second and the system allows so many connections.
func widen(s selftest.Shape) (selftest.Shape, bool) {
	s.Streams *= 2
	return s, float64(s.Streams) <= s.Events && transport.CheckOpenFiles(s.Streams) == nil
}

func reached(rate float64) string {
	if rate == 0 {
		return "-"
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
}

func micros(s selftest.Spread) string {
	us := func(d time.Duration) string {
		if v := float64(d) / 1000; v < 100 {
			return strconv.FormatFloat(v, 'g', 3, 64)
		}
		return strconv.FormatInt(d.Microseconds(), 10)
	}
	return us(s.P50) + " / " + us(s.P99) + " / " + us(s.P999) + " µs"
}

// selftestStep measures one shape and says what went badly, if anything. That is
// tried once more: a moment's noise is not what the machine can do.
func selftestStep(ctx context.Context, w *world, shape selftest.Shape, limit time.Duration) (r selftest.Result, fault string, err error) {
	for range 2 {
		if r, err = measureShape(ctx, w, shape); err != nil {
			return r, "", err
		}
		if fault = r.Fault(limit); fault == "" {
			break
		}
	}
	return r, fault, nil
}

// measureShape starts a simulator for one shape and measures it.
func measureShape(ctx context.Context, w *world, shape selftest.Shape) (r selftest.Result, err error) {
	if w.Executable == "" {
		return r, errors.New("self-test: the program does not know where it is")
	}
	dir, err := os.MkdirTemp("", "tokmark-selftest-")
	if err != nil {
		return r, fmt.Errorf("self-test: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	truth := filepath.Join(dir, "truth.jsonl")
	mock := exec.CommandContext(ctx, w.Executable, append(simulatorFlags(shape.Simulator()), "--addr", "127.0.0.1:0", "--truth-log", truth)...)
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
	debug.FreeOSMemory() // so that the streams' memory is seen to be taken
	r, err = selftest.Measure(ctx, base, truth, shape)
	if err != nil {
		return r, &exitError{code: exitFailed, err: err}
	}
	return r, nil
}

// simulatorFlags is the command line of a simulator with this configuration.
func simulatorFlags(cfg mockserver.Config) []string {
	usual := mockserver.Default()
	had, want := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	bindSimulator(had, &usual)
	bindSimulator(want, &cfg)
	args := []string{"mock"}
	want.VisitAll(func(f *pflag.Flag) {
		if v := f.Value.String(); v != had.Lookup(f.Name).Value.String() {
			args = append(args, "--"+f.Name+"="+v)
		}
	})
	return args
}

// The try of a client beside a run: as long as that, with so many events a
// stream and answers of that length where the run's own are not known yet.
const (
	tryFor     = time.Second
	tryEvents  = 50
	tryAnswer  = time.Second
	tryLimit   = time.Millisecond
	tryTimes   = 4    // the most times of the run's load
	tryStreams = 8000 // more are tried only if the run had them
)

// tryShape is the load of a run that has not begun.
func tryShape(o *options) selftest.Shape {
	s := selftest.Shape{Streams: max(o.concurrency, o.users), Requests: max(o.requestRate, o.userRate)}
	if s.Streams == 0 {
		s.Streams = max(1, int(s.Requests*tryAnswer.Seconds()))
	}
	s.Events = tryEvents * float64(s.Streams)
	return s
}

// hadShape is the load of a run that has ended.
func hadShape(plan *bench.Plan, res *bench.Result, seen collect.Snapshot) selftest.Shape {
	s := selftest.Shape{Streams: int(res.MaxInFlight), Events: float64(seen.Events) / seen.Last.Sub(seen.First).Seconds()}
	s.Tokens = min(selftest.MaxTokens, int(math.Round(float64(seen.OutputTokens)/float64(seen.Events))))
	if sending := res.MeasureEnd.Sub(res.MeasureStart); sending > 0 && (plan.Schedule != nil || plan.Users.Count > 0) {
		s.Requests = float64(res.Sent) / sending.Seconds()
	}
	return s
}

// tryClient measures the simulator at a load like the run's: its streams with
// their events and, if Requests is set, requests at that rate.
func tryClient(ctx context.Context, w *world, load selftest.Shape) (*record.ClientTry, error) {
	load.Streams = max(load.Streams, 1)
	load.Events = max(load.Events, float64(load.Streams)) // a stream with fewer takes longer to try than it is worth
	load.For = tryFor
	requests := load.Requests
	load.Requests = 0
	r, fault, err := selftestStep(ctx, w, load, tryLimit)
	if err != nil {
		return nil, err
	}
	try := &record.ClientTry{
		Streams: load.Streams, Events: load.Events, EventsReached: r.Events, Tokens: load.Tokens,
		ErrorP50: r.Event.P50, ErrorP99: r.Event.P99, TTFTP99: r.TTFT.P99, Lost: r.Lost, Fault: fault,
	}
	if requests > 0 && try.Fault == "" {
		if r, fault, err = selftestStep(ctx, w, selftest.Shape{Requests: requests, For: tryFor}, report.LatenessBound(requests)); err != nil {
			return nil, err
		}
		try.Requests, try.RequestsReached, try.LateP99 = requests, r.Requests, r.Late.P99
		try.Lost, try.Fault = try.Lost+r.Lost, fault
	}
	try.Well = try.Fault == ""
	return try, nil
}

// affordable reports whether a load may be tried that the run did not have.
func affordable(streams int) bool {
	return streams <= tryStreams && transport.CheckOpenFiles(streams) == nil
}

// tryAfter tries the client at the load that the run had, and at twice that as
// long as it goes well.
func tryAfter(ctx context.Context, w *world, test *record.SelfTest, load selftest.Shape) error {
	for times := 1; times <= tryTimes && (times == 1 || affordable(times*load.Streams)); times *= 2 {
		more := load
		more.Streams, more.Events, more.Requests = times*load.Streams, float64(times)*load.Events, float64(times)*load.Requests
		try, err := tryClient(ctx, w, more)
		if err != nil {
			return err
		}
		if times == 1 {
			test.After = try
		}
		if !try.Well {
			return nil
		}
		test.Headroom = float64(times)
	}
	return nil
}
