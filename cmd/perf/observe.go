//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// The processors that server and client have to themselves.
const (
	serverCore = 0
	clientCore = 1
)

// core is the processor for a process, or -1.
func (h *harness) core(n int) int {
	if h.free {
		return -1
	}
	return n
}

// client is a program under load: the tool, or what it is compared with.
type client struct {
	name string
	env  []string
	// args makes the command line from the server's address and a directory
	// of its own.
	args func(addr, dir string) []string
	// seen reads what the client saw from the directory; nil: it tells nothing.
	// ahead is CLOCK_REALTIME - CLOCK_MONOTONIC.
	seen func(dir string, ahead int64) ([]*exchange, error)
}

// observation is what one run showed. Times are in nanoseconds, sorted where
// there are many.
type observation struct {
	stamp, user []float64 // arrival, and when the program saw it, after the send time
	lag         []float64 // user - stamp
	lateness    []float64 // of requests read by the server, after the best line
	events      float64   // sent in the window
	taken       float64   // seen by the client in the window: sockets hold much
	requests    float64   // read by the server in the window
	lost        int
	cpu         float64 // of the client in the window
	seconds     float64 // of the window
	begin, end  float64 // bytes resident at the start and the end of the window
	first       float64 // start of the process to its first request
	others      float64 // share of a processor that others took
	text        string  // what the client wrote to stdout
}

func (o *observation) cpuShare() float64  { return o.cpu / 1e9 / o.seconds }
func (o *observation) cpuEvent() float64  { return o.cpu / o.events }
func (o *observation) perCPU() float64    { return o.taken / (o.cpu / 1e9) }
func (o *observation) perSecond() float64 { return o.requests / o.seconds }

// quantile of sorted values; 0 of none.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return v[min(int(q*float64(len(v))), len(v)-1)]
}

// load is what a server does and how long a client is watched.
type load struct {
	server []string
	full   bool // the window begins when all slots are taken
	settle time.Duration
	window time.Duration
	rate   float64 // requests per second of an open loop
}

// observe runs server and client once.
func (h *harness) observe(l load, c client) (o *observation, err error) {
	dir, err := os.MkdirTemp(h.dir, "run-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", c.name, err)
		}
	}()
	log := filepath.Join(dir, "server.log")
	// Without it the runtime interrupts a loop that does not end.
	steady := []string{"GODEBUG=asyncpreemptoff=1"}
	server, err := start(h.core(serverCore), steady, h.self, append([]string{"server", "-log", log}, l.server...)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Process.Kill() }()
	const patience = 30 * time.Second
	addr, err := server.line("ready", patience)
	if err != nil {
		return nil, err
	}

	ahead := h.clock.wallAhead()
	args := c.args(addr, dir)
	launched := h.clock.now()
	p, err := start(h.core(clientCore), c.env, args[0], args[1:]...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.Process.Kill() }()
	if l.full {
		if _, err := server.line("full", patience); err != nil {
			return nil, errors.Join(err, errors.New(strings.TrimSpace(p.stderr.String())))
		}
	}
	time.Sleep(l.settle)
	o = &observation{begin: rss(p.Process.Pid)}
	others := watchOthers(server.Process.Pid, p.Process.Pid)
	from, cpu := h.clock.now(), processCPU(p.Process.Pid)
	time.Sleep(l.window)
	to := h.clock.now()
	o.cpu = float64(processCPU(p.Process.Pid) - cpu)
	o.seconds = float64(to-from) / 1e9
	o.others, o.end = others.share(), rss(p.Process.Pid)

	const windDown = 60 * time.Second
	ended := p.wait(windDown) // of the tool: the verdict, which is not ours to judge
	_ = server.stdin.Close()
	if err := server.wait(windDown); err != nil {
		return nil, errors.Join(err, errors.New(server.stderr.String()))
	}
	ahead = (ahead + h.clock.wallAhead()) / 2
	for line := range p.lines {
		o.text += line + "\n"
	}
	served, err := readLog(log)
	if err != nil {
		return nil, err
	}
	var seen []*exchange
	if c.seen != nil {
		if seen, err = c.seen(dir, ahead); err != nil {
			return nil, errors.Join(err, ended, errors.New(strings.TrimSpace(p.stderr.String())))
		}
	}
	o.compare(served, seen, from, to)
	if len(served) > 0 {
		o.first = float64(served[0].Start - launched)
	}
	if l.rate > 0 {
		o.arrivals(served, l.rate, from, to)
	}
	return o, nil
}

// compare matches what was sent with what was seen.
func (o *observation) compare(served, seen []*exchange, from, to int64) {
	byID := make(map[string]*exchange, len(seen))
	for _, x := range seen {
		byID[x.ID] = x
		for k, at := range x.Events {
			if x.Lag != nil {
				at += int64(x.Lag[k])
			}
			if at >= from && at < to {
				o.taken++
			}
		}
	}
	for _, s := range served {
		if s.Start >= from && s.Start < to {
			o.requests++
		}
		x := byID[s.ID]
		for k, at := range s.Events {
			if at < from || at >= to {
				continue
			}
			o.events++
			if x == nil || k >= len(x.Events) {
				continue
			}
			d := float64(x.Events[k] - at)
			o.stamp = append(o.stamp, d)
			if x.Lag != nil {
				o.lag = append(o.lag, float64(x.Lag[k]))
				d += float64(x.Lag[k])
			}
			o.user = append(o.user, d)
		}
		if seen != nil && s.Over && len(s.Events) > 0 && s.Events[len(s.Events)-1] < to {
			if x == nil {
				o.lost += len(s.Events)
			} else {
				o.lost += max(0, len(s.Events)-len(x.Events))
			}
		}
	}
	for _, v := range [][]float64{o.stamp, o.user, o.lag} {
		slices.Sort(v)
	}
}

// arrivals takes the lateness of requests at a constant rate: what they are
// later than the line through the earliest of them.
func (o *observation) arrivals(served []*exchange, rate float64, from, to int64) {
	var off []float64
	best := 0.0
	for i, s := range served {
		if s.Start < from || s.Start >= to {
			continue
		}
		d := float64(s.Start-served[0].Start) - float64(i)*1e9/rate
		if off = append(off, d); len(off) == 1 || d < best {
			best = d
		}
	}
	for _, d := range off {
		o.lateness = append(o.lateness, d-best)
	}
	slices.Sort(o.lateness)
}

// seenByReference is what the reference reader wrote.
func seenByReference(dir string, _ int64) ([]*exchange, error) {
	return readLog(filepath.Join(dir, "seen.log"))
}

// seenByTool reads a run directory.
func seenByTool(dir string, ahead int64) ([]*exchange, error) {
	run := record.Dir(filepath.Join(dir, "run"))
	m, err := run.ReadManifest()
	if err != nil {
		return nil, err
	}
	origin := m.Origin.UnixNano() - ahead
	var seen []*exchange
	for r, err := range run.Records() {
		if err != nil {
			return nil, err
		}
		x := &exchange{ID: fmt.Sprintf("%s%c%d", m.RequestIDs, r.Phase[0], r.ID), Start: origin + int64(r.Start), Over: r.Outcome == record.OK}
		x.Events, x.Lag = make([]int64, len(r.Chunks)), make([]uint32, len(r.Chunks))
		for i, c := range r.Chunks {
			x.Events[i], x.Lag[i] = origin+int64(c.At), c.Lag
		}
		seen = append(seen, x)
	}
	return seen, nil
}
