package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/collect"
	"github.com/tokmark/tokmark/bench/health"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/arrival"
	"github.com/tokmark/tokmark/workloads/dataset"
	"github.com/tokmark/tokmark/workloads/synthetic"
)

// recordsWaiting is how many finished records may wait for the collector: a
// stalled disk must not hold up the load.
const recordsWaiting = 1 << 14

// memoryLimit bounds the heap while the garbage collector is off.
const memoryLimit = 4 << 30

func newRun(w *world) *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:     "run [scenario.yaml]",
		Aliases: []string{"profile"},
		Short:   "Measure a server at one load",
		Long: `Send streaming requests to a server, time every token, and report.

Options are named as those of aiperf profile. A scenario file holds the same settings, by
option name (request-rate: 4); the command line wins.`,
		Example: `  tokmark run --simulate
  tokmark run -u localhost:8000 --concurrency 16 --isl 1000 --osl 200 --request-count 320
  tokmark run -u localhost:8000 --request-rate 4 --benchmark-duration 60 --input-file prompts.jsonl
  tokmark run scenario.yaml --print-config`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			fs := c.Flags()
			if len(args) == 1 {
				if err := loadScenario(args[0], fs); err != nil {
					return usage(err)
				}
			}
			o.complete(fs, w.Getenv)
			if err := o.validate(fs); err != nil {
				return usage(err)
			}
			config := effective(fs, o)
			if o.printConfig {
				text, err := scenarioYAML(config, fs)
				if err != nil {
					return err
				}
				_, err = w.Stdout.Write(text)
				return err
			}
			m := &record.Manifest{
				Schema: record.ManifestSchema, Tool: build(), Command: maskedCommand(w.Args, o), Config: config,
				Outcome: record.RunRunning, MeasureStart: record.Unset, MeasureEnd: record.Unset,
			}
			return runOnce(c.Context(), w, o, m)
		},
	}
	o.bind(c.Flags())
	return c
}

// runOnce makes one run and reports it.
func runOnce(ctx context.Context, w *world, o *options, m *record.Manifest) error {
	if o.simulate {
		stop, err := o.startSimulator()
		if err != nil {
			return err
		}
		defer stop()
		m.Target.Simulated = true
	}
	endpoint, err := o.endpointURL()
	if err != nil {
		return usage(err)
	}
	header, err := o.header()
	if err != nil {
		return usage(err)
	}
	target := &target{endpoint: endpoint, header: header, insecure: o.insecure, connectTimeout: o.connectTimeout}
	models, err := target.models(ctx)
	if err != nil {
		return &exitError{code: exitFailed, err: mask(err, o.secrets())}
	}
	if o.model == "" {
		if o.model, err = models.only(); err != nil {
			return usage(err)
		}
	}

	source, err := o.source(m)
	if err != nil {
		return usage(err)
	}
	if closer, ok := source.(io.Closer); ok {
		defer closer.Close()
	}
	plan, err := o.plan(endpoint, source, m)
	if err != nil {
		return usage(err)
	}
	plan.Header = header
	if err := plan.Validate(); err != nil {
		return usage(err)
	}
	if o.concurrency > 0 {
		if err := transport.CheckOpenFiles(o.concurrency); err != nil {
			return usage(err)
		}
	}
	fillManifest(m, o, endpoint)

	dir, err := o.runDir(m)
	if err != nil {
		return usage(err)
	}
	writer, err := dir.NewWriter()
	if err != nil {
		return usage(err)
	}
	m.Origin = time.Now()
	plan.Origin = m.Origin
	m.ID = filepath.Base(string(dir))
	plan.RequestIDPrefix = m.ID + "-"
	if err := dir.WriteManifest(m); err != nil {
		return errors.Join(usage(err), writer.Close())
	}
	if err := measure(ctx, w, o, plan, dir, writer, m); err != nil {
		return err
	}
	return finish(w, dir, m)
}

// measure carries out the plan and completes the manifest.
func measure(ctx context.Context, w *world, o *options, plan bench.Plan, dir record.Dir, writer *record.Writer, m *record.Manifest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	interrupt := make(chan struct{})
	plan.Interrupt = interrupt
	done := make(chan struct{})
	defer close(done)
	go func() { // the first signal ends the sending, the second one everything
		for n := 0; ; n++ {
			select {
			case <-w.Signals:
				if n > 0 {
					cancel()
					return
				}
				fmt.Fprintf(w.Stderr, "tokmark: interrupted: no more requests are sent; those in flight have %gs to end (interrupt again to stop at once)\n", o.grace)
				close(interrupt)
			case <-done:
				return
			}
		}
	}()

	plan.Gauge = &bench.Gauge{}
	collector := &collect.Collector{}
	records := make(chan *record.Record, recordsWaiting)
	kept := make(chan error, 1)
	go func() {
		kept <- collector.Collect(records, writer, func(error) { cancel() })
	}()
	stopProgress := showProgress(w, o, &plan, collector)
	stopSampling, err := sampleClient(dir, &plan, records)
	if err != nil {
		return &exitError{code: exitFailed, err: err}
	}

	runtime.GC() // what was built before the run is not collected during it
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(memoryLimit)
	res, err := bench.Run(ctx, plan, records)
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(limit)

	sampleErr := stopSampling()
	close(records)
	keepErr := <-kept
	stopProgress()
	m.Outcome, m.MeasureStart, m.MeasureEnd = res.Outcome, res.MeasureStart, res.MeasureEnd
	m.Sent, m.Unsent, m.MaxInFlight, m.ClockSteps = res.Sent, res.Unsent, res.MaxInFlight, res.ClockSteps
	if err != nil || keepErr != nil {
		m.Outcome = record.RunAborted
	}
	if err := errors.Join(err, keepErr, sampleErr, writer.Close(), dir.WriteManifest(m)); err != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("run: %w", err), hint: "what was measured so far is in " + string(dir)}
	}
	return nil
}

// sampleClient keeps samples of this process until the returned function is
// called, which returns the first error of writing them.
func sampleClient(dir record.Dir, plan *bench.Plan, records <-chan *record.Record) (stop func() error, err error) {
	file, err := dir.NewSampleWriter()
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		monitor := health.NewMonitor()
		tick := time.NewTicker(health.Every)
		defer tick.Stop()
		var failed error
		for over := false; !over; {
			select {
			case <-tick.C:
			case <-done:
				over = true
			}
			v := monitor.Sample()
			v[record.ClientWaiting], v[record.ClientWaitingRoom] = float64(len(records)), float64(cap(records))
			v[record.ClientInFlight], v[record.ClientSent] = float64(plan.Gauge.InFlight.Load()), float64(plan.Gauge.Sent.Load())
			v[record.ClientChunks] = float64(plan.Gauge.Chunks.Load())
			if failed == nil {
				failed = file.Write(record.Sample{At: record.Time(time.Since(plan.Origin)), From: record.FromClient, Values: v})
			}
		}
		result <- errors.Join(failed, file.Close())
	}()
	return func() error {
		close(done)
		return <-result
	}, nil
}

// finish writes the summaries, prints the report, and says how the run went
// through the exit code.
func finish(w *world, dir record.Dir, m *record.Manifest) error {
	s, err := report.Load(dir)
	if err != nil {
		return err
	}
	if err := writeSummaries(dir, s); err != nil {
		return err
	}
	if err := printReport(w.Stdout, s); err != nil {
		return err
	}
	fmt.Fprintf(w.Stderr, "run directory: %s\n", dir)
	if m.Outcome == record.RunInterrupted || m.Outcome == record.RunAborted {
		return &exitError{code: exitInterrupted}
	}
	return verdictError(s)
}

// source makes the requests: from the input file if there is one.
func (o *options) source(m *record.Manifest) (workloads.Source, error) {
	made, err := synthetic.New(synthetic.Options{
		Seed: o.randomSeed, Salt: o.freshSalt(),
		Lengths:    []synthetic.Lengths{{Input: length(o.isl, o.islStddev), Output: length(o.osl, o.oslStddev)}},
		Completion: openai.EndpointType(o.endpointType) == openai.Completions,
	})
	if err != nil {
		return nil, fmt.Errorf("synthetic prompts: %w", err)
	}
	m.Seed, m.Salt = o.randomSeed, o.salt
	if o.inputFile == "" {
		m.Workload = fmt.Sprintf("synthetic prompts of %g ± %g tokens", o.isl, o.islStddev)
		m.WorkloadHash = made.Hash()
		return made, nil
	}
	format, err := dataset.ParseFormat(o.datasetType)
	if err != nil {
		return nil, fmt.Errorf("--custom-dataset-type: %w", err)
	}
	data, err := dataset.Open(o.inputFile, dataset.Options{
		Format: format, SkipBadLines: o.skipBadLines, Prompter: made, Seed: o.randomSeed,
	})
	if err != nil {
		return nil, err
	}
	if m.WorkloadHash, err = data.Hash(); err != nil {
		return nil, errors.Join(err, data.Close())
	}
	rep := data.Report()
	m.Workload = fmt.Sprintf("%d entries of %s", rep.Usable, filepath.Base(o.inputFile))
	m.Input = &record.Input{File: filepath.Base(o.inputFile), Format: string(data.Format()), Usable: rep.Usable, Reordered: rep.Reordered}
	for _, s := range rep.Skipped {
		m.Input.Skipped = append(m.Input.Skipped, record.SkippedLine{Line: s.Line, Reason: string(s.Reason), Detail: s.Detail})
	}
	if o.osl > 0 {
		return &limited{Source: data, Closer: data, tokens: int(o.osl)}, nil
	}
	return data, nil
}

// limited sets the output limit of requests that have none of their own.
type limited struct {
	workloads.Source
	io.Closer
	tokens int
}

func (l *limited) At(i int) (workloads.Session, error) {
	s, err := l.Source.At(i)
	turns := make([]workloads.Request, len(s.Turns))
	copy(turns, s.Turns)
	for k := range turns {
		if turns[k].OutputTokens == 0 {
			turns[k].OutputTokens = l.tokens
		}
	}
	s.Turns = turns
	return s, err
}

// length is the distribution of a mean and a standard deviation; no mean: none.
func length(mean, stddev float64) synthetic.Length {
	switch {
	case mean == 0:
		return nil
	case stddev == 0:
		return synthetic.Fixed(int(math.Round(mean)))
	default:
		return synthetic.Normal{Mean: mean, Stddev: stddev}
	}
}

// freshSalt draws the salt of this run, unless one was given.
func (o *options) freshSalt() string {
	if o.salt == "" {
		var b [5]byte
		_, _ = rand.Read(b[:]) // it never fails
		o.salt = strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
	}
	return o.salt
}

// plan puts the settings together.
func (o *options) plan(endpoint *url.URL, source workloads.Source, m *record.Manifest) (bench.Plan, error) {
	extra, err := o.extra()
	if err != nil {
		return bench.Plan{}, err
	}
	if m.Goodput, err = report.ParseGoodput(o.goodput, o.streaming); err != nil {
		return bench.Plan{}, err
	}
	p := bench.Plan{
		URL: endpoint, Type: openai.EndpointType(o.endpointType), Secrets: o.secrets(),
		Body: openai.BodyOptions{Model: o.model, Stream: o.streaming, IncludeUsage: o.usage, ContinuousUsage: o.perChunkUsage, Extra: extra},
		Transport: transport.Options{
			ConnectTimeout: o.connectTimeout, FirstByteTimeout: o.firstByteTimeout, Insecure: o.insecure,
		},
		IdleTimeout: o.idleTimeout, TotalTimeout: seconds(o.totalSeconds),
		Source: source, Concurrency: o.concurrency, Requests: o.requestCount,
		Duration: seconds(o.duration), Grace: seconds(o.grace), Warmup: o.warmup,
		KeepOutput: o.exportData == "raw", ExactOutput: asksExactLength(extra),
	}
	if o.legacyMax {
		p.Body.MaxTokensField = "max_tokens"
	}
	schedule := func(seed uint64) (iter.Seq[time.Duration], error) {
		return arrival.Plan{
			Pattern: arrival.Pattern(o.arrivalPattern), Rate: arrival.Steady(o.requestRate),
			Smoothness: o.arrivalSmoothness, Seed: seed,
		}.Schedule()
	}
	if o.requestRate > 0 {
		if p.Schedule, err = schedule(o.randomSeed); err != nil {
			return p, err
		}
		if p.WarmupSchedule, err = schedule(o.randomSeed + 1); err != nil {
			return p, err
		}
	}
	return p, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// fillManifest writes down what is known before the run.
func fillManifest(m *record.Manifest, o *options, endpoint *url.URL) {
	m.Target.URL, m.Target.Model = maskURL(endpoint.String()), o.model
	m.Target.EndpointType, m.Target.Streaming = o.endpointType, o.streaming
	m.Load = record.Load{
		Concurrency: o.concurrency, Rate: o.requestRate, Requests: o.requestCount, Warmup: o.warmup, Duration: seconds(o.duration),
	}
	if o.requestRate > 0 {
		m.Load.Arrival = o.arrivalPattern
	}
	if o.duration > 0 {
		m.Load.Grace = seconds(o.grace)
	}
	m.Stamps = record.StampsRead
	if transport.KernelStamps {
		m.Stamps = record.StampsKernel
	}
	m.Host = record.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0)}
	if n, ok := transport.OpenFiles(); ok {
		m.Host.NoFile = uint64(n)
	}
}

// runDir creates the run directory.
func (o *options) runDir(m *record.Manifest) (record.Dir, error) {
	if o.artifactDir != "" {
		dir := record.Dir(o.artifactDir)
		err := dir.Create()
		if errors.Is(err, record.ErrHoldsRun) {
			err = fmt.Errorf("%w: give another --artifact-dir, or remove it", err)
		}
		return dir, err
	}
	name := fmt.Sprintf("%s-%s-%s", fileName(o.model), o.endpointType, loadName(m.Load))
	stamp := time.Now().UTC().Format("20060102-150405")
	for n := 1; ; n++ {
		dir := record.Dir(filepath.Join("artifacts", stamp+"-"+name))
		if n > 1 {
			dir += record.Dir("-" + strconv.Itoa(n))
		}
		if _, err := os.Lstat(string(dir)); err == nil && n < 100 {
			continue // several runs within a second
		}
		return dir, dir.Create()
	}
}

func loadName(l record.Load) string {
	if l.Rate > 0 {
		return "request_rate" + strconv.FormatFloat(l.Rate, 'g', -1, 64)
	}
	return "concurrency" + strconv.Itoa(l.Concurrency)
}

// fileName makes a short, safe file name of any text.
func fileName(s string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		default:
			return '_'
		}
	}, s)
	safe = strings.TrimLeft(safe, ".-")
	const longest = 60
	return safe[:min(len(safe), longest)]
}

// maskedCommand is the command line without secrets.
func maskedCommand(args []string, o *options) string {
	var b bytes.Buffer
	b.WriteString("tokmark")
	hide := false
	for _, a := range args {
		switch name, _, has := strings.Cut(a, "="); {
		case hide:
			a, hide = "***", false
		case name == "--api-key" || name == "--header" || name == "-H":
			if has {
				a = name + "=***"
			} else {
				hide = true
			}
		case strings.HasPrefix(a, "-H"):
			a = "-H***"
		}
		b.WriteByte(' ')
		b.WriteString(quoted(a))
	}
	return maskText(b.String(), o.secrets())
}

// quoted puts an argument in quotes where a shell needs them.
func quoted(a string) string {
	if a != "" && !strings.ContainsAny(a, " \t\n\"'\\$`!*?[]{}();&|<>~#") {
		return a
	}
	return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
}

func maskText(s string, secrets []string) string {
	for _, secret := range secrets {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return s
}

// mask takes secrets out of an error's text; what it wraps is lost.
func mask(err error, secrets []string) error {
	if text := maskText(err.Error(), secrets); text != err.Error() {
		return errors.New(text)
	}
	return err
}
