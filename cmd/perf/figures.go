//go:build linux

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// figure is one measurement; it may add several rows.
type figure struct {
	name, about string
	measure     func(*harness) error
}

var figures = []figure{
	{"parts", "allocations and bytes of an event", parts},
	{"stamps", "1000 streams × 50 events/s", stamps},
	{"garbage", "the same while 200 MB are held and collected", garbage},
	{"joined", "64 streams, 16 events in a write, flat out", joined},
	{"endure", "50 000 events/s over 1000 streams", endure},
	{"arrivals", "1000 requests/s beside 20 000 events/s", arrivals},
	{"memory", "9000 streams of 256 tokens", memory},
	{"short", "answers of 5 tokens in one write", short},
	{"start", "start of the process to the first request", startUp},
	{"report", "report of 100 000 records × 256 events", reportRun},
}

func figureNames() []string {
	names := make([]string, len(figures))
	for i, f := range figures {
		names[i] = f.name
	}
	return names
}

const (
	settle = 500 * time.Millisecond
	// margin is how much longer a client goes on than it is watched.
	margin = settle + time.Second
)

// paced is the load of so many streams at 50 events/s each.
func paced(streams, tokens int, window time.Duration) load {
	return load{
		server: []string{"-mode", modePaced, "-slots", strconv.Itoa(streams), "-rate", "50", "-tokens", strconv.Itoa(tokens), "-spread"},
		full:   true, settle: settle, window: window,
	}
}

func stamps(h *harness) error {
	const streams, tokens = 1000, 500
	d := h.window + margin
	r, err := h.alternate(h.rounds, paced(streams, tokens, h.window), h.referenceClient(streams, d), h.toolClient(streams, 0, tokens, d))
	if err != nil {
		return err
	}
	ref, tool := r[0], r[1]
	q := func(os []*observation, of func(*observation) []float64, p float64) float64 {
		return median(os, func(o *observation) float64 { return quantile(of(o), p) })
	}
	stamp := func(o *observation) []float64 { return o.stamp }
	user := func(o *observation) []float64 { return o.user }
	k50, k99 := q(tool, stamp, 0.5), q(tool, stamp, 0.99)
	u50, u99 := q(tool, user, 0.5), q(tool, user, 0.99)
	r50, r99 := q(ref, user, 0.5), q(ref, user, 0.99)
	const us = 1e3
	h.table.add("stamp error with kernel stamps, p50 / p99", µs(k50, k99), µs(r50, r99), "", "≤ 5 / 25 µs", k50 <= 5*us && k99 <= 25*us)
	h.table.add("stamp error without, p50 / p99", µs(u50, u99), µs(r50, r99), times(u99/r99), "p99 ≤ 2.0", u99/r99 <= 2)
	mine, its := median(tool, (*observation).cpuEvent), median(ref, (*observation).cpuEvent)
	h.table.add("processor time of an event", µs(mine), µs(its), times(mine/its), "≤ 1.8", mine/its <= 1.8)
	return nil
}

func garbage(h *harness) error {
	const streams, tokens = 1000, 500
	d := h.window + margin
	r, err := h.alternate(h.rounds, paced(streams, tokens, h.window),
		h.engineClient(streams, tokens, d), h.engineClient(streams, tokens, d, "-hold", "200", "-collect", "200ms"))
	if err != nil {
		return err
	}
	p99 := func(o *observation) float64 { return quantile(o.stamp, 0.99) }
	without, with := median(r[0], p99), median(r[1], p99)
	h.table.add("stamp error while 200 MB are held and collected, p99", µs(with), µs(without), times(with/without), "≤ 2", with/without <= 2)
	return nil
}

func endure(h *harness) error {
	const streams, tokens, rounds = 1000, 500, 1
	r, err := h.alternate(rounds, paced(streams, tokens, h.window), h.toolClient(streams, 0, tokens, h.window+margin))
	if err != nil {
		return err
	}
	o := r[0][0]
	h.table.add(fmt.Sprintf("50 000 events/s for %v: lost", h.window), strconv.Itoa(o.lost), fmt.Sprintf("%.0f/s sent", o.events/o.seconds), "", "0", o.lost == 0)
	h.table.add("the same: processor", fmt.Sprintf("%.0f %%", 100*o.cpuShare()), "", "", "≤ 85 %", o.cpuShare() <= 0.85)
	return nil
}

//go:embed aiohttp_loop.py
var aiohttpLoop string

func joined(h *harness) error {
	const streams, tokens = 64, 4000
	d := h.window + margin
	l := load{
		server: []string{"-mode", modeFlat, "-slots", strconv.Itoa(streams), "-join", "16", "-tokens", strconv.Itoa(tokens)},
		full:   true, settle: settle, window: h.window,
	}
	clients := []client{h.toolClient(streams, 0, tokens, d), h.referenceClient(streams, d)}
	python, err := filepath.Abs(filepath.Join(h.extras, "aiohttp/bin/python"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(python); err == nil {
		clients = append(clients, client{name: "aiohttp", args: func(addr, _ string) []string {
			return []string{python, "-c", aiohttpLoop, "http://" + addr + "/v1/chat/completions", strconv.Itoa(streams), fmt.Sprint(d.Seconds())}
		}})
	}
	r, err := h.alternate(h.rounds, l, clients...)
	if err != nil {
		return err
	}
	mine := median(r[0], (*observation).perCPU)
	const million = 1e6
	h.table.add("events per core-second, joined", fmt.Sprintf("%.2f M", mine/million), fmt.Sprintf("%.2f M", median(r[1], (*observation).perCPU)/million), times(mine/median(r[1], (*observation).perCPU)), "≥ 1.5 M", mine >= 1.5*million)
	if len(r) < 3 {
		h.table.skip("the same against aiohttp", errors.New("no "+python))
		return nil
	}
	theirs := median(r[2], func(o *observation) float64 {
		var events, seconds float64
		_, _ = fmt.Sscan(o.text, &events, &seconds)
		return events / max(seconds, 1e-3)
	})
	h.table.add("the same against aiohttp", fmt.Sprintf("%.2f M", mine/million), fmt.Sprintf("%.2f M", theirs/million), times(mine/theirs), "≥ 10", mine/theirs >= 10)
	return nil
}

func arrivals(h *harness) error {
	const rate, tokens, inFlight = 1000, 20, 400
	d := h.window + margin
	l := paced(inFlight, tokens, h.window)
	l.server = append(l.server, "-slots", "1000")
	l.full, l.settle, l.rate = false, 2*time.Second, rate
	d += l.settle
	clients := []client{h.toolClient(0, rate, tokens, d)}
	if vegeta, err := h.find("vegeta"); err == nil {
		body := filepath.Join(h.dir, "body.json")
		if err := os.WriteFile(body, []byte(`{"model":"perf","stream":true,"messages":[]}`), 0o600); err != nil {
			return err
		}
		clients = append(clients, client{name: "vegeta", args: func(addr, dir string) []string {
			targets := filepath.Join(dir, "targets")
			_ = os.WriteFile(targets, []byte("POST http://"+addr+"/v1/chat/completions\n@"+body+"\n"), 0o600)
			return []string{vegeta, "attack", "-rate", fmt.Sprintf("%d/1s", rate), "-duration", d.String(), "-targets", targets, "-output", filepath.Join(dir, "vegeta.bin")}
		}})
	}
	r, err := h.alternate(h.rounds, l, clients...)
	if err != nil {
		return err
	}
	p50 := func(o *observation) float64 { return quantile(o.lateness, 0.5) }
	p99 := func(o *observation) float64 { return quantile(o.lateness, 0.99) }
	const us = 1e3
	m50, m99 := median(r[0], p50), median(r[0], p99)
	theirs, ratio := "no vegeta", ""
	if len(r) > 1 {
		theirs, ratio = µs(median(r[1], p50), median(r[1], p99)), times(m50/median(r[1], p50))
	}
	h.table.add("lateness at the server, p50 / p99", µs(m50, m99), theirs, ratio, "≤ 60 / 300 µs", m50 <= 60*us && m99 <= 300*us)

	// The same events per second with nobody waiting for due times.
	closed := paced(inFlight, tokens, h.window)
	closed.settle, closed.full = 2*time.Second, true
	other, err := h.alternate(h.rounds, closed, h.toolClient(inFlight, 0, tokens, d))
	if err != nil {
		return err
	}
	lag := func(o *observation) float64 { return quantile(o.lag, 0.5) }
	open, without := median(r[0], lag), median(other[0], lag)
	h.table.add("receive lag p50 beside the schedule", µs(open), µs(without), times(open/without), "≤ 1.1", open/without <= 1.1)
	return nil
}

func memory(h *harness) error {
	const streams, tokens = 9000, 256
	l := load{
		server: []string{"-mode", modePaced, "-slots", strconv.Itoa(streams), "-rate", "5", "-join", "4", "-tokens", strconv.Itoa(tokens)},
		full:   true, settle: time.Second, window: 11 * time.Second, // 12.8 s of tokens
	}
	one := load{server: []string{"-mode", modePaced, "-slots", "1", "-rate", "50", "-tokens", strconv.Itoa(tokens)}, full: true, settle: time.Second, window: time.Second}
	base, err := h.observe(one, h.toolClient(1, 0, tokens, 2*time.Second))
	if err != nil {
		return err
	}
	const rounds = 1
	r, err := h.alternate(rounds, l, h.toolClient(streams, 0, tokens, 0, "--request-count", strconv.Itoa(streams)))
	if err != nil {
		return err
	}
	o := r[0][0]
	const kB = 1000
	each := (o.end - base.end) / streams / kB
	h.table.add("memory of a stream", fmt.Sprintf("%.1f KB", each), fmt.Sprintf("%.0f MB without", base.end/kB/kB), "", "≤ 60 KB", each <= 60)
	growth := o.end / o.begin
	h.table.add("memory: all tokens over few", fmt.Sprintf("%.0f MB", o.end/kB/kB), fmt.Sprintf("%.0f MB", o.begin/kB/kB), times(growth), "≤ 1.1", growth <= 1.1)
	return nil
}

func short(h *harness) error {
	const tokens, connections, rate = 5, 64, 5000
	d := h.window + margin
	l := load{server: []string{"-mode", modeShort, "-tokens", strconv.Itoa(tokens)}, settle: margin / 2, window: h.window}
	clients := []client{h.toolClient(connections, 0, tokens, d)}
	if wrk, err := h.find("wrk"); err == nil {
		script := filepath.Join(h.dir, "post.lua")
		if err := os.WriteFile(script, []byte(`wrk.method = "POST"; wrk.body = '{"model":"perf","stream":true,"messages":[]}'`), 0o600); err != nil {
			return err
		}
		clients = append(clients, client{name: "wrk", args: func(addr, _ string) []string {
			return []string{wrk, "-t", "1", "-c", strconv.Itoa(connections), "-d", fmt.Sprintf("%.0fs", d.Seconds()+0.5), "-s", script, "http://" + addr + "/v1/chat/completions"}
		}})
	}
	r, err := h.alternate(h.rounds, l, clients...)
	if err != nil {
		return err
	}
	mine := median(r[0], (*observation).perSecond)
	perCPU := func(o *observation) float64 { return o.requests / (o.cpu / 1e9) }
	if len(r) > 1 {
		theirs := median(r[1], (*observation).perSecond)
		h.table.add("short answers per second", fmt.Sprintf("%.0f", mine), fmt.Sprintf("%.0f", theirs), times(mine/theirs), "≥ 0.35", mine/theirs >= 0.35)
		mine, theirs = median(r[0], perCPU), median(r[1], perCPU)
		h.table.add("short answers per core-second", fmt.Sprintf("%.0f", mine), fmt.Sprintf("%.0f", theirs), times(mine/theirs), "≥ 0.35", mine/theirs >= 0.35)
	} else {
		h.table.skip("short answers per second", errors.New("no wrk"))
	}
	l.rate, l.settle = rate, margin/2
	open, err := h.alternate(h.rounds, l, h.toolClient(0, rate, tokens, d))
	if err != nil {
		return err
	}
	p99 := median(open[0], func(o *observation) float64 { return quantile(o.lateness, 0.99) })
	got := median(open[0], (*observation).perSecond)
	const ms = 1e6
	h.table.add("lateness at 5000/s, p99", µs(p99), fmt.Sprintf("%.0f/s came", got), "", "≤ 1 ms", p99 <= ms)
	return nil
}

func startUp(h *harness) error {
	l := load{server: []string{"-mode", modeShort, "-tokens", "5"}, window: time.Second / 2}
	c := client{name: "tokmark", args: func(addr, dir string) []string {
		return []string{h.tool, "run", "--url", addr, "--request-count", "1", "--ui", "none", "--artifact-dir", filepath.Join(dir, "run")}
	}}
	r, err := h.alternate(h.rounds, l, c)
	if err != nil {
		return err
	}
	first := median(r[0], func(o *observation) float64 { return o.first })
	const ms = 1e6
	h.table.add("start to first request", fmt.Sprintf("%.1f ms", first/ms), "", "", "≤ 50 ms", first <= 50*ms)
	return nil
}

// reportRun makes a run directory and reports it.
func reportRun(h *harness) error {
	const records, chunks = 100_000, 256
	dir := record.Dir(filepath.Join(h.dir, "synthetic"))
	defer func() { _ = os.RemoveAll(string(dir)) }()
	if err := dir.Create(); err != nil {
		return err
	}
	w, err := dir.NewWriter()
	if err != nil {
		return err
	}
	begun := time.Now()
	for i := range int64(records) {
		if err := w.Write(syntheticRecord(i, chunks)); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	wrote := time.Since(begun)
	m := &record.Manifest{
		Schema: record.ManifestSchema, ID: "synthetic", Stamps: record.StampsKernel, Outcome: record.RunCompleted, Sent: records,
		MeasureEnd: record.Time(records * time.Millisecond), Load: record.Load{Rate: 1000, Requests: records},
		Target: record.Target{Streaming: true, EndpointType: "chat", Model: "perf"},
	}
	if err := dir.WriteManifest(m); err != nil {
		return err
	}
	// The kernel starts a child's peak of memory at that of its parent.
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return err
	}
	cmd := exec.Command(h.tool, "report", string(dir))
	begun = time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(begun)
	if !strings.Contains(string(out), "100,000") && !strings.Contains(string(out), "100000") {
		return fmt.Errorf("report: %w: %s", err, out)
	}
	h.table.noisy = false
	const limit, gb = 10 * time.Second, 1 << 30
	peak := float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) * 1024
	h.table.add("report of 100 000 × 256", fmt.Sprintf("%.1f s", took.Seconds()), fmt.Sprintf("%.1f s to write", wrote.Seconds()), "", "≤ 10 s", took <= limit)
	h.table.add("the same: memory", fmt.Sprintf("%.0f MB", peak/(1<<20)), "", "", "≤ 1 GB", peak <= gb)
	return nil
}
