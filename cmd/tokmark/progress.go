package main

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/collect"
	"github.com/tokmark/tokmark/bench/record"
)

const (
	barEvery = 200 * time.Millisecond
	logEvery = 10 * time.Second
)

// showProgress shows how the run goes on until the returned function is
// called: a bar on a terminal, a log line every ten seconds elsewhere.
func showProgress(w *world, o *options, plan *bench.Plan, c *collect.Collector) (stop func()) {
	if o.ui == "none" {
		return func() {}
	}
	p := &progress{plan: plan, collector: c, began: time.Now()}
	every, show, end := logEvery, p.log(w), func() {}
	if w.Terminal && o.ui != "simple" {
		every = barEvery
		show, end = p.bar(w)
	}
	done := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				show()
			case <-done:
				end()
				return
			}
		}
	})
	return func() {
		close(done)
		shown.Wait()
	}
}

// progress turns snapshots into words.
type progress struct {
	plan      *bench.Plan
	collector *collect.Collector
	began     time.Time // of the phase
	warm      bool
}

// phase notices the change from warmup to measurement.
func (p *progress) phase() record.Phase {
	phase := record.PhaseWarmup
	if now := p.plan.Gauge.Phase.Load(); now != nil {
		phase = *now
	}
	if warm := phase == record.PhaseWarmup; warm != p.warm {
		p.warm, p.began = warm, time.Now()
	}
	return phase
}

// done returns how far the phase is, and what is all of it.
func (p *progress) done(phase record.Phase, s collect.Snapshot) (done, all int64) {
	switch {
	case phase == record.PhaseWarmup:
		return s.Warmup, p.plan.Warmup
	case p.plan.Duration > 0:
		return int64(min(time.Since(p.began), p.plan.Duration) / time.Millisecond), int64(p.plan.Duration / time.Millisecond)
	default:
		return s.Ended, p.plan.Requests
	}
}

func (p *progress) log(w *world) (show func()) {
	logger := slog.New(slog.NewTextHandler(w.Stderr, nil))
	return func() {
		phase := p.phase()
		s := p.collector.Snapshot()
		done, all := p.done(phase, s)
		args := []any{"phase", string(phase), "done", done, "of", all}
		if phase == record.PhaseMeasure && p.plan.Duration > 0 {
			args = []any{"phase", string(phase), "elapsed", time.Duration(done) * time.Millisecond, "of", p.plan.Duration, "ended", s.Ended}
		}
		args = append(args, "in_flight", p.plan.Gauge.InFlight.Load(), "failed", s.Failed)
		if s.OK > 0 {
			args = append(args, "tokens_per_s", round3(p.tokensPerSecond(s)), "ttft_p50_ms", ms3(s.TTFT50), "itl_p50_ms", ms3(s.ITL50))
		}
		logger.Info("running", args...)
	}
}

func (p *progress) bar(w *world) (show, end func()) {
	bar := progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(w.Stderr),
		progressbar.OptionSetWidth(18),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionThrottle(barEvery/2),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "=", SaucerHead: ">", SaucerPadding: " ", BarStart: "[", BarEnd: "]"}),
	)
	was := record.Phase("")
	show = func() {
		phase := p.phase()
		s := p.collector.Snapshot()
		done, all := p.done(phase, s)
		if phase != was {
			was = phase
			bar.Reset()
			bar.ChangeMax64(all)
		}
		bar.Describe(p.words(phase, s))
		_ = bar.Set64(min(done, all-1)) // all of it would end the bar
	}
	return show, func() { _ = bar.Finish() }
}

// words is the state in one short line.
func (p *progress) words(phase record.Phase, s collect.Snapshot) string {
	if phase == record.PhaseWarmup {
		return fmt.Sprintf("warmup %d/%d", s.Warmup, p.plan.Warmup)
	}
	count := fmt.Sprint(s.Ended)
	if p.plan.Duration == 0 {
		count = fmt.Sprintf("%d/%d", s.Ended, p.plan.Requests)
	}
	line := fmt.Sprintf("%s done, %d in flight", count, p.plan.Gauge.InFlight.Load())
	if s.OK > 0 {
		line += fmt.Sprintf(", %.4g tok/s, TTFT %.3g ms, ITL %.3g ms", p.tokensPerSecond(s), ms3(s.TTFT50), ms3(s.ITL50))
	}
	if s.Failed > 0 {
		line += fmt.Sprintf(", %d FAILED", s.Failed)
	}
	return line
}

func (p *progress) tokensPerSecond(s collect.Snapshot) float64 {
	return float64(s.OutputTokens) / time.Since(p.began).Seconds()
}

func round3(v float64) float64 { return float64(int64(v*1000+0.5)) / 1000 }

func ms3(d time.Duration) float64 { return round3(float64(d) / float64(time.Millisecond)) }
