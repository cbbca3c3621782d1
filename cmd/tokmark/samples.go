package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/health"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/bench/transport"
)

// scrapeEvery is how often the server's metrics are read during a run.
const scrapeEvery = time.Second

// sampler keeps what is seen of the client and of the server over the time of
// a run.
type sampler struct {
	file   *record.SampleWriter
	plan   *bench.Plan
	in     chan record.Sample
	stop   context.CancelFunc
	wrote  chan error
	watch  sync.WaitGroup
	server *target.Scraper // nil: it tells nothing
	start  target.Sample   // of the server, at the start of the measurement
	startE error
	own    readings // of the server's metrics
	gpu    readings // complete after end, as own
}

// readings are how often an exporter was read and was not.
type readings struct {
	read, failed int
	last         string // why one failed
}

func (r *readings) add(failure string) {
	if failure == "" {
		r.read++
		return
	}
	r.failed++
	r.last = failure
}

// err tells what is missing; before is why a reading before the run failed.
func (r *readings) err(before error) error {
	switch {
	case r.failed > 0:
		return fmt.Errorf("%d of %d readings failed: %s", r.failed, r.failed+r.read, r.last)
	case r.read == 0:
		return before
	}
	return nil
}

// startSampling begins to keep samples of this process, and of the scrapers.
func startSampling(ctx context.Context, dir record.Dir, plan *bench.Plan, records <-chan *record.Record, server, gpu *target.Scraper) (*sampler, error) {
	file, err := dir.NewSampleWriter()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	s := &sampler{file: file, plan: plan, in: make(chan record.Sample, 64), stop: stop, wrote: make(chan error, 1), server: server}
	go func() {
		var failed error
		for sample := range s.in {
			if failed == nil {
				failed = file.Write(sample)
			}
		}
		s.wrote <- errors.Join(failed, file.Close())
	}()
	s.watch.Go(func() { s.client(ctx, records) })
	for from, scraper := range map[string]*target.Scraper{record.FromServer: server, record.FromGPU: gpu} {
		if scraper != nil {
			s.watch.Go(func() {
				scraper.Run(ctx, scrapeEvery, func(t target.Sample) {
					switch {
					case from == record.FromServer:
						s.own.add(t.Error)
					case t.Error == "" && len(t.Gauges)+len(t.Counters)+len(t.Times) == 0:
						s.gpu.add(strings.Join(t.Warnings, "; "))
					default:
						s.gpu.add(t.Error)
					}
					if t.Error == "" {
						s.in <- flat(from, t)
					}
				})
			})
		}
	}
	if server != nil {
		plan.PhaseStart = func(p record.Phase) {
			if p == record.PhaseMeasure {
				s.start, s.startE = server.Scrape(ctx)
			}
		}
	}
	return s, nil
}

// end stops the sampling and returns what the server counted during the
// measurement, and the first error of writing samples.
func (s *sampler) end(ctx context.Context) (*record.ServerWindow, error) {
	var window *record.ServerWindow
	if s.server != nil && (s.startE != nil || s.start.From != "") { // else nothing was measured
		const patience = 5 * time.Second // also where the run was interrupted
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		last, err := s.server.Scrape(ctx)
		cancel()
		window = windowOf(s.start, last, errors.Join(s.startE, err))
		window.Error = maskText(window.Error, s.plan.Secrets)
	}
	s.stop()
	s.watch.Wait()
	if err := s.own.err(nil); err != nil && window != nil {
		window.Warnings = append(window.Warnings, maskText(err.Error(), s.plan.Secrets))
	}
	close(s.in)
	return window, <-s.wrote
}

// client samples this process until ctx is done, and once more then.
func (s *sampler) client(ctx context.Context, records <-chan *record.Record) {
	monitor := health.NewMonitor()
	asked := bench.NewAsked(s.plan)
	defer asked.Close()
	var before traffic
	tick := time.NewTicker(health.Every)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true
		}
		v := monitor.Sample()
		now := record.Time(time.Since(s.plan.Origin))
		v[record.ClientWaiting], v[record.ClientWaitingRoom] = float64(len(records)), float64(cap(records))
		v[record.ClientInFlight], v[record.ClientSent] = float64(s.plan.Gauge.InFlight.Load()), float64(s.plan.Gauge.Sent.Load())
		v[record.ClientClockSteps] = float64(s.plan.Gauge.ClockSteps.Load())
		if n, ok := asked.Due(now); ok {
			v[record.ClientDue] = float64(n)
		}
		if n, ok := asked.InFlight(now); ok {
			v[record.ClientAsked] = float64(n)
		}
		before = before.next(s.plan.Gauge, v)
		s.in <- record.Sample{At: now, From: record.FromClient, Values: v}
	}
}

// traffic are the counts of a gauge at one moment.
type traffic struct{ started, late, chunks, shared, lag int64 }

// next reads the gauge, and writes what came since into v.
func (t traffic) next(g *bench.Gauge, v map[string]float64) traffic {
	now := traffic{
		started: g.Started.Load(), late: g.LateSum.Load(),
		chunks: g.Chunks.Load(), shared: g.Shared.Load(), lag: g.LagSum.Load(),
	}
	// A maximum is raised before its count: a sample may have one that belongs
	// to the next, which then has none above its mean.
	const perSecond = 1e9
	spread := func(mean, most string, sum, n int64, largest *atomic.Int64) {
		if n <= 0 || sum < 0 {
			return
		}
		v[mean] = float64(sum) / perSecond / float64(n)
		v[most] = max(v[mean], float64(largest.Swap(0))/perSecond)
	}
	spread(record.ClientLateMean, record.ClientLateMax, now.late-t.late, now.started-t.started, &g.LateMax)
	chunks, shared := now.chunks-t.chunks, now.shared-t.shared
	v[record.ClientChunks] = float64(now.chunks)
	if chunks > 0 {
		v[record.ClientSharedReads] = float64(shared) / float64(chunks)
	}
	if lag := now.lag - t.lag; lag > 0 {
		spread(record.ClientLagMean, record.ClientLagMax, lag, chunks-shared, &g.LagMax)
	}
	return now
}

// flat is a server's sample as one list of values: times as NAME_seconds and
// NAME_count.
func flat(from string, t target.Sample) record.Sample {
	v := map[string]float64{}
	for name, x := range t.Gauges {
		v[string(name)] = x
	}
	for name, x := range t.Counters {
		v[string(name)] = x
	}
	for name, x := range t.Times {
		v[string(name)+"_seconds"] = x.Seconds
		if x.Count != nil {
			v[string(name)+"_count"] = *x.Count
		}
	}
	return record.Sample{At: t.At, From: from, Values: v}
}

// windowOf is the difference of two samples, or why there is none.
func windowOf(from, to target.Sample, err error) *record.ServerWindow {
	w := &record.ServerWindow{From: from.At, To: to.At}
	var d target.Delta
	if err == nil {
		d, err = target.Diff(from, to)
	}
	if err != nil {
		w.Error = err.Error()
		return w
	}
	w.Warnings = append(append(from.Warnings, to.Warnings...), d.Warnings...)
	w.Counters, w.Times = map[string]float64{}, map[string]record.ServerTimes{}
	for name, x := range d.Counters {
		w.Counters[string(name)] = x
	}
	for name, x := range d.Times {
		w.Times[string(name)] = record.ServerTimes{Seconds: x.Seconds, Count: x.Count}
	}
	return w
}

// nvidiaSMI in place of an address means the GPUs of this machine.
const nvidiaSMI = "nvidia-smi"

// gpuScraper reads what --gpu-telemetry names; nil: nothing.
func gpuScraper(address string, clock func() record.Time) (*target.Scraper, error) {
	switch address {
	case "":
		return nil, nil
	case nvidiaSMI:
		path, err := exec.LookPath(nvidiaSMI)
		if err != nil {
			return nil, fmt.Errorf("--gpu-telemetry %w; it reads GPUs of this machine, those of another need the URL of a DCGM exporter there", err)
		}
		return target.NVIDIASMI(path, clock), nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return &target.Scraper{Client: &http.Client{Transport: transport.New(transport.Options{})}, URL: u, Metrics: target.DCGM(), Clock: clock, From: record.FromGPU}, nil
}
