package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/collect"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/slo"
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
			if o.from != "" {
				capsule, err := openCapsule(o.from)
				if err != nil {
					return usage(err)
				}
				defer func() { _ = capsule.close() }() // what is left lies among temporary files
				if err := capsule.apply(fs); err != nil {
					return usagef("--from %s: %w", o.from, err)
				}
				o.capsule = capsule
			}
			o.complete(fs, w.Getenv)
			if err := o.validate(fs); err != nil {
				return usage(err)
			}
			if o.printConfig {
				text, err := scenarioYAML(effective(fs, o), fs)
				if err != nil {
					return err
				}
				_, err = w.Stdout.Write(text)
				return err
			}
			return runSeries(c.Context(), w, o, fs)
		},
	}
	showGroups(c, o.bind(c.Flags()))
	c.Flags().StringVar(&o.from, "from", "", "make the run of a capsule again: its `file`; other options win over the capsule's")
	return c
}

// runOnce makes one run and reports it. The summary comes with an error too, if
// there is one to be had.
func runOnce(ctx context.Context, w *world, o *options, m *record.Manifest) (*report.Summary, error) {
	if o.simulate {
		stop, err := o.startSimulator()
		if err != nil {
			return nil, err
		}
		defer stop()
		m.Target.Simulated = true
	}
	p, err := prepare(ctx, w, o, m)
	if err != nil {
		return nil, err
	}
	dir, err := p.execute(ctx, w, m)
	if err != nil {
		return nil, err
	}
	return finish(w, o, dir, m)
}

// prepared is a server that is known: what is asked can be put to it.
type prepared struct {
	o        *options
	endpoint *url.URL
	plan     bench.Plan
	known    *settled
}

// prepare finds out about the server and writes it into the manifest.
func prepare(ctx context.Context, w *world, o *options, m *record.Manifest) (*prepared, error) {
	endpoint, header, err := o.address(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := o.plan(endpoint, header, m)
	if err != nil {
		return nil, usage(err)
	}
	known, err := o.settle(ctx, w, &plan, m)
	if o.capsule != nil && known != nil {
		o.capsule.recall(known, m)
	}
	if err == nil {
		err = stopped(ctx)
	}
	return &prepared{o: o, endpoint: endpoint, plan: plan, known: known}, err
}

// execute makes one run, into a directory of its own.
func (p *prepared) execute(ctx context.Context, w *world, m *record.Manifest) (record.Dir, error) {
	o, plan := p.o, p.plan
	asked, err := o.work(m, p.known)
	if err != nil {
		return "", usage(err)
	}
	defer func() { _ = asked.close() }() // it was only read
	if o.capsule != nil {
		if err := o.capsule.check(m); err != nil {
			return "", usage(err)
		}
	}
	if err := o.putLoad(&plan, asked, m); err != nil {
		return "", usage(err)
	}
	if err := transport.CheckOpenFiles(max(1, plan.Concurrency, plan.Users.Count)); err != nil {
		return "", usage(err) // before there is a run directory
	}
	if err := stopped(ctx); err != nil {
		return "", err
	}
	if o.cacheReset {
		if m.Cache.Reset, err = p.resetCache(ctx, w); err != nil {
			return "", err
		}
	}
	fillManifest(m, o, p.endpoint)

	dir, err := o.runDir(m)
	if err != nil {
		return "", usage(err)
	}
	writer, err := dir.NewWriter()
	if err != nil {
		return dir, usage(err)
	}
	m.Origin = time.Now()
	plan.Origin = m.Origin
	m.ID = filepath.Base(string(dir))
	// What the server sees of the run is not the name of a directory.
	m.RequestIDs = "tokmark-" + rand.Text()[:12] + "-"
	plan.RequestIDPrefix = m.RequestIDs
	if err := dir.WriteManifest(m); err != nil {
		return dir, errors.Join(usage(err), writer.Close())
	}
	if o.selftest {
		fmt.Fprintln(w.Stderr, "tokmark: trying this machine as a client")
		before, err := tryClient(ctx, w, tryShape(o))
		if err != nil {
			return dir, errors.Join(err, writer.Close())
		}
		m.SelfTest = &record.SelfTest{Before: before}
	}
	return dir, measure(ctx, w, o, plan, p.known, dir, writer, m)
}

// address is where requests go and the headers they have, once the server is
// known to be there and the model to be asked is known.
func (o *options) address(ctx context.Context) (*url.URL, http.Header, error) {
	endpoint, err := o.endpointURL()
	if err != nil {
		return nil, nil, usage(err)
	}
	header, err := o.header()
	if err != nil {
		return nil, nil, usage(err)
	}
	before := &server{endpoint: endpoint, header: header, transport: o.transport()}
	models, err := before.models(ctx)
	if err != nil {
		return nil, nil, &exitError{code: exitFailed, err: mask(err, o.secrets())}
	}
	if len(o.models) == 0 {
		name, err := models.only()
		if err != nil {
			return nil, nil, usage(mask(err, o.secrets())) // it may hold the server's words
		}
		o.models = []string{name}
	}
	return endpoint, header, nil
}

// measure carries out the plan and completes the manifest.
func measure(ctx context.Context, w *world, o *options, plan bench.Plan, known *settled, dir record.Dir, writer *record.Writer, m *record.Manifest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	interrupt := make(chan struct{})
	plan.Interrupt = interrupt
	// The first signal ends the sending, the second one everything, the third
	// one also what follows.
	defer w.interrupts.take(func(n int) bool {
		switch n {
		case 0:
			fmt.Fprintf(w.Stderr, "tokmark: interrupted: no more requests are sent; those in flight have %gs to end (interrupt again to stop at once)\n", o.grace)
			close(interrupt)
		case 1:
			cancel()
		}
		return n < 2
	})()

	var gpuErr error
	if known.gpus != nil {
		if _, gpuErr = known.gpus.Scrape(ctx); gpuErr != nil {
			fmt.Fprintf(w.Stderr, "tokmark: no GPU telemetry: %v\n", mask(gpuErr, plan.Secrets))
		}
	}
	plan.Gauge = &bench.Gauge{}
	plan.KeepUncounted = known.count.Counter != nil
	collector := &collect.Collector{Tokenizer: known.count.tokenizer(ctx)}
	records := make(chan *record.Record, recordsWaiting)
	kept := make(chan error, 1)
	go func() {
		kept <- collector.Collect(records, writer, func(error) { cancel() })
	}()
	stopProgress := showProgress(w, o, &plan, collector)
	samples, err := startSampling(ctx, dir, &plan, records, known.metrics, known.gpus)
	if err != nil {
		close(records)
		stopProgress()
		return &exitError{code: exitFailed, err: errors.Join(err, <-kept, writer.Close())}
	}

	runtime.GC() // what was built before the run is not collected during it
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(memoryLimit)
	res, err := bench.Run(ctx, plan, records)
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(limit)

	window, sampleErr := samples.end(ctx)
	if window != nil {
		m.Server = window
	}
	if err := samples.gpu.err(gpuErr); err != nil {
		m.GPUError = mask(err, plan.Secrets).Error()
	}
	close(records)
	keepErr := <-kept
	stopProgress()
	if known.count.check != nil {
		if err := known.count.check(); err != nil {
			fmt.Fprintf(w.Stderr, "tokmark: answers without usage have no token count: %v\n", mask(err, plan.Secrets))
		}
	}
	m.Outcome, m.MeasureStart, m.MeasureEnd = res.Outcome, res.MeasureStart, res.MeasureEnd
	m.Sent, m.Unsent, m.MaxInFlight, m.ClockSteps = res.Sent, res.Unsent, res.MaxInFlight, res.ClockSteps
	if err != nil || keepErr != nil {
		m.Outcome = record.RunAborted
	}
	if o.preflight {
		m.RoundTrip = roundTrip(slices.Concat(known.connects, connects(context.WithoutCancel(ctx), &plan)))
		if after, _, err := known.conditions(context.WithoutCancel(ctx), o); err == nil {
			for _, c := range target.Changes(m.Conditions, after) {
				m.Changed = append(m.Changed, c.String())
			}
		}
	}
	if seen := collector.Snapshot(); o.selftest && err == nil && res.Outcome == record.RunCompleted && seen.Last > seen.First {
		err = tryAfter(ctx, w, m.SelfTest, hadShape(&plan, &res, seen))
	}
	if err := errors.Join(err, keepErr, sampleErr, writer.Close(), dir.WriteManifest(m)); err != nil {
		return &exitError{code: exitFailed, err: fmt.Errorf("run: %w", err), hint: "what was measured so far is in " + string(dir)}
	}
	return nil
}

// finish writes the summaries, prints the report, and says how the run went
// through the exit code.
func finish(w *world, o *options, dir record.Dir, m *record.Manifest) (*report.Summary, error) {
	s, err := report.Load(dir, report.Options{Window: o.window})
	if err != nil {
		return s, &exitError{code: exitFailed, err: err}
	}
	objectives, err := parseSLO(o.slo)
	if err != nil {
		return s, err
	}
	results := slo.Evaluate(s, objectives)
	if err := writeSummaries(dir, s, results); err != nil {
		return s, &exitError{code: exitFailed, err: err}
	}
	if err := errors.Join(printReport(w.Stdout, s), printObjectives(w.Stdout, results)); err != nil {
		return s, &exitError{code: exitFailed, err: fmt.Errorf("write report: %w", err)}
	}
	if o.capsule != nil {
		if err := o.capsule.compare(w.Stdout, dir); err != nil {
			return s, &exitError{code: exitFailed, err: fmt.Errorf("compare with the capsule: %w", err)}
		}
	}
	fmt.Fprintf(w.Stderr, "run directory: %s\n", dir)
	if m.Outcome == record.RunInterrupted || m.Outcome == record.RunAborted {
		return s, &exitError{code: exitInterrupted}
	}
	return s, heldTo(s, results)
}

// plan is how requests are sent, without what they ask and when.
func (o *options) plan(endpoint *url.URL, header http.Header, m *record.Manifest) (bench.Plan, error) {
	extra, err := o.extra()
	if err != nil {
		return bench.Plan{}, err
	}
	if m.Goodput, err = report.ParseGoodput(o.goodput, o.streaming); err != nil {
		return bench.Plan{}, err
	}
	p := bench.Plan{
		URL: endpoint, Type: openai.EndpointType(o.endpointType), Header: header, Secrets: o.secrets(),
		Body:        openai.BodyOptions{Model: o.models[0], Stream: o.streaming, IncludeUsage: o.usage, ContinuousUsage: o.perChunkUsage, Extra: extra},
		Transport:   o.transport(),
		IdleTimeout: o.idleTimeout, TotalTimeout: seconds(o.totalSeconds),
		KeepOutput: o.exportData == "raw",
	}
	if o.legacyMax {
		p.Body.MaxTokensField = "max_tokens"
	}
	return p, nil
}

// putLoad completes the plan with what is asked and when.
func (o *options) putLoad(p *bench.Plan, asked *work, m *record.Manifest) error {
	p.Source = asked
	if err := o.apply(p, o.randomSeed, asked.offsets); err != nil {
		return err
	}
	if asked.all > 0 && o.bounds == byDefault {
		p.Requests, p.Sessions = 0, int64(asked.all) // all of the file, once
	}
	if m.Cache.Mode == record.CacheWarm {
		n := p.Sessions
		if n == 0 || p.Requests > 0 && p.Requests < n {
			n = p.Requests
		}
		if length := int64(asked.Len()); n == 0 || length > 0 && length < n {
			n = length
		}
		if n == 0 {
			return errors.New("--cache warm: a run without a count needs --num-dataset-entries, so that all prompts can be sent before")
		}
		p.Warmup, p.WarmupRepeats, p.WarmupSchedule = n, true, nil
	}
	if m.Cache.Mode == record.CacheHitRate && p.Warmup == 0 {
		// The shared prefixes have to be in the cache before they can hit. They
		// are in first turns.
		p.Warmup = int64(warmPrefixes * o.cachePrefixes * int(math.Ceil(max(1, o.turnsMean))))
	}
	m.Load = o.describe(asked.offsets != nil)
	m.Load.Requests, m.Load.Sessions, m.Load.Warmup = p.Requests, o.sessions, p.Warmup
	return p.Validate()
}

// warmPrefixes is how many warmup requests a shared prefix gets, so that each
// is very likely used at least once.
const warmPrefixes = 8

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// newManifest is that of a run that is about to be made.
func newManifest(w *world, o *options) *record.Manifest {
	return &record.Manifest{
		Schema: record.ManifestSchema, Tool: build(), Command: maskedCommand(w.Args, o),
		Outcome: record.RunRunning, MeasureStart: record.Unset, MeasureEnd: record.Unset,
	}
}

// fillManifest writes down what is known before the run.
func fillManifest(m *record.Manifest, o *options, endpoint *url.URL) {
	m.Target.URL, m.Target.Model = maskURL(endpoint.String()), strings.Join(o.models, ", ")
	m.Target.EndpointType, m.Target.Streaming = o.endpointType, o.streaming
	m.Target.Via = o.transport().Via()
	m.Stamps = record.StampsRead
	if o.transport().Stamped() {
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
	dir := freshDir(fmt.Sprintf("%s-%s-%s", fileName(strings.Join(o.models, "_")), o.endpointType, loadName(m.Load)))
	return dir, dir.Create()
}

// freshDir is a directory in artifacts/ that is not there yet.
func freshDir(name string) record.Dir {
	stamp := time.Now().UTC().Format("20060102-150405")
	dir := record.Dir(filepath.Join("artifacts", stamp+"-"+name))
	for n := 2; ; n++ { // several within a second
		if _, err := os.Lstat(string(dir)); err != nil {
			return dir
		}
		dir = record.Dir(filepath.Join("artifacts", stamp+"-"+name+"-"+strconv.Itoa(n)))
	}
}

func loadName(l record.Load) string {
	switch {
	case l.Rate > 0 && l.Concurrency > 0:
		return "request_rate" + strconv.FormatFloat(l.Rate, 'g', -1, 64) + "-concurrency" + strconv.Itoa(l.Concurrency)
	case l.Rate > 0:
		return "request_rate" + strconv.FormatFloat(l.Rate, 'g', -1, 64)
	case l.Concurrency > 0:
		return "concurrency" + strconv.Itoa(l.Concurrency)
	}
	return "schedule"
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
	hide, address := false, false
	for _, a := range args {
		switch name, value, has := strings.Cut(a, "="); {
		case hide:
			a, hide = "***", false
		case address:
			a, address = maskURL(a), false
		case slices.Contains([]string{"--url", "-u", "--gpu-telemetry", "--proxy", "--a", "--b"}, name):
			if address = !has; has {
				a = name + "=" + maskURL(value)
			}
		case strings.HasPrefix(a, "-u"):
			a = "-u" + maskURL(a[len("-u"):])
		case slices.Contains([]string{"--api-key", "--header", "-H", "--a-header", "--b-header"}, name):
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
