package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/report"
)

// finding is one thing that was checked.
type finding struct {
	ok   bool
	text string
}

// load is one measurement of a server.
type load struct {
	endpoint    string // type
	concurrency int
}

func (l load) String() string { return fmt.Sprintf("%s, %d in flight", l.endpoint, l.concurrency) }

var loads = []load{{"chat", 1}, {"chat", 4}, {"responses", 2}}

// requests is how many are sent for each one in flight.
const requests = 12

// run measures the server once and checks the run directory.
func (l *lab) run(ctx context.Context, address string, ld load) ([]finding, error) {
	dir := record.Dir(l.place(fmt.Sprintf("run-%s-%d", ld.endpoint, ld.concurrency)))
	if err := os.RemoveAll(string(dir)); err != nil {
		return nil, err
	}
	args := []string{
		"run", "--url", address, "--endpoint-type", ld.endpoint, "--concurrency", fmt.Sprint(ld.concurrency),
		"--request-count", fmt.Sprint(requests * ld.concurrency), "--warmup-request-count", fmt.Sprint(2 * ld.concurrency), "--isl", "64", "--osl", "24", "--ui", "none", "--artifact-dir", string(dir),
	}
	if l.server.model != "" {
		args = append(args, "--model", l.server.model)
	}
	rctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	for _, args := range [][]string{args, {"report", string(dir)}} {
		out, err := exec.CommandContext(rctx, l.tokmark, args...).CombinedOutput()
		var exit *exec.ExitError
		const notValid = 5 // the verdict is checked below
		if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == notValid) {
			return nil, fmt.Errorf("tokmark %s: %w: %s", args[0], err, tail(string(out)))
		}
	}
	s, err := report.Load(dir, report.Options{})
	if err != nil {
		return nil, err
	}
	var records []*record.Record
	for r, err := range dir.Records() {
		if err != nil {
			return nil, err
		}
		if r.Phase == record.PhaseMeasure {
			records = append(records, r)
		}
	}
	return check(l.server, s.Verdict, s.Manifest, records), nil
}

// check compares a run with what its server is known to be and to count.
func check(s server, verdict report.Verdict, m *record.Manifest, records []*record.Record) []finding {
	var out []finding
	add := func(ok bool, format string, a ...any) { out = append(out, finding{ok, fmt.Sprintf(format, a...)}) }

	add(verdict.Level != report.Invalid, "verdict %s %s", verdict.Level, strings.Join(verdict.Reasons, "; "))
	add(m.Dialect == s.dialect, "dialect %s (%s), want %s", m.Dialect, m.DialectBy, s.dialect)
	probed := 0
	for _, c := range m.Conditions {
		if c.Source == target.Probed {
			probed++
		}
	}
	add(probed >= s.conditions, "%d conditions probed, want %d or more", probed, s.conditions)

	var ours totals
	for _, r := range records {
		ours.add(r)
	}
	text := fmt.Sprintf("%d of %d requests ok", ours.ok, len(records))
	if ours.failure != "" {
		text += ": " + ours.failure
	}
	add(ours.ok > 0 && ours.ok == len(records), "%s", text)
	if s.timings != "" {
		add(ours.timed == ours.ok, "%d answers tell the server's timings (%s)", ours.timed, s.timings)
		out = append(out, ours.compareMean("latency, against the answers' own timings,", ours.latency, ours.served())...)
	}
	if !s.counts {
		return out
	}
	w := m.Server
	if w == nil || w.Error != "" {
		add(false, "no figures of the server: %+v", w)
		return out
	}
	if theirs, told := w.Counters[string(target.Finished)]; told {
		add(theirs == float64(len(records)), "%d requests, and %.0f by the server", len(records), theirs)
	}
	theirs, told := w.Counters[string(target.GenerationTokens)]
	add(told && theirs == float64(ours.output), "%d output tokens, and %.0f by the server", ours.output, theirs)
	// Some count the prompt without what they had in their cache.
	theirs, told = w.Counters[string(target.PromptTokens)]
	add(told && (theirs == float64(ours.input) || theirs == float64(ours.input-ours.cached)),
		"%d input tokens, %d of them cached, and %.0f by the server", ours.input, ours.cached, theirs)
	out = append(out, ours.compareMean("TTFT", ours.ttft, w.Times[string(target.TTFT)])...)
	out = append(out, ours.compareMean("latency", ours.latency, w.Times[string(target.E2E)])...)
	if prefill, decode := w.Times[string(target.PrefillTime)], w.Times[string(target.DecodeTime)]; prefill.Seconds > 0 {
		n := float64(ours.ok)
		sum := record.ServerTimes{Seconds: prefill.Seconds + decode.Seconds, Count: &n}
		out = append(out, ours.compareMean("latency, against prefill and decode,", ours.latency, sum)...)
	}
	return out
}

// totals are sums over the requests that ended well.
type totals struct {
	ok                    int
	failure               string // the first one
	input, output, cached int64
	ttft, latency         time.Duration
	timed                 int           // answers with the server's timings
	phases                time.Duration // the sum of their phases
}

// served is the time that the answers themselves tell.
func (t *totals) served() record.ServerTimes {
	n := float64(t.timed)
	return record.ServerTimes{Seconds: t.phases.Seconds(), Count: &n}
}

func (t *totals) add(r *record.Record) {
	if !r.Valid() {
		if t.failure == "" && r.Failure != nil {
			t.failure = r.Failure.Message
		}
		return
	}
	t.ok++
	isl, _ := r.ISL()
	osl, _ := r.OSL()
	t.input, t.output, t.cached = t.input+isl, t.output+osl, t.cached+int64(max(r.Tokens.Cached, 0))
	ttft, _ := r.TTFT()
	latency, _ := r.RequestLatency()
	t.ttft, t.latency = t.ttft+ttft, t.latency+latency
	if s := r.ServerTimings; s != nil {
		t.timed++
		for _, d := range []*time.Duration{s.Queue, s.Prefill, s.Decode} {
			if d != nil {
				t.phases += *d
			}
		}
	}
}

// compareMean compares a mean of ours with the server's, which begins later and
// ends earlier: ours cannot be shorter, and on one machine it is not much longer
// either.
func (t *totals) compareMean(what string, sum time.Duration, theirs record.ServerTimes) []finding {
	if theirs.Count == nil || *theirs.Count == 0 || t.ok == 0 {
		return nil
	}
	const (
		clocks = 0.5 // ms
		near   = 1.5
		slack  = 100 // ms
	)
	ms := float64(sum) / 1e6 / float64(t.ok)
	server := 1000 * theirs.Seconds / *theirs.Count
	ok := ms >= server-clocks && ms <= near*server+slack
	return []finding{{ok, fmt.Sprintf("mean %s %.2f ms, and %.2f ms by the server", what, ms, server)}}
}
