//go:build linux

package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// harness makes the figures one after the other.
type harness struct {
	self, tool, extras string
	rounds             int
	free               bool // processes are not pinned
	window             time.Duration
	noise              float64
	deadline           time.Time
	dir                string
	clock              clock
	table              table
}

func harnessMain(args []string) error {
	fs := flag.NewFlagSet("perf", flag.ContinueOnError)
	h := &harness{clock: newClock()}
	fs.StringVar(&h.tool, "tool", "bin/tokmark", "the tool, as make build leaves it")
	fs.StringVar(&h.extras, "extras", ".cache", "where aiohttp/ (a Python environment) and bin/vegeta may be")
	fs.IntVar(&h.rounds, "rounds", 5, "quiet rounds of each figure; medians are shown")
	fs.DurationVar(&h.window, "window", 4*time.Second, "length of a round")
	fs.Float64Var(&h.noise, "noise", 0.025, "share of a processor that others may use in a quiet round")
	long := fs.Duration("long", 10*time.Second, "length of the endurance figure (60s for a release)")
	limit := fs.Duration("limit", 20*time.Minute, "begin no round after that")
	only := fs.String("only", "", "figures to make, of "+strings.Join(figureNames(), ","))
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if h.self, err = os.Executable(); err != nil {
		return err
	}
	if h.tool, err = filepath.Abs(h.tool); err != nil {
		return err
	}
	if _, err := os.Stat(h.tool); err != nil {
		return fmt.Errorf("%w: make build makes it", err)
	}
	if h.dir, err = os.MkdirTemp("", "perf-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(h.dir) }()
	h.deadline = time.Now().Add(*limit)
	for _, f := range figures {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), f.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", f.name, f.about)
		if f.name == "endure" {
			h.window, *long = *long, h.window
		}
		if err := f.measure(h); err != nil {
			h.table.skip(f.about, err)
		}
		if f.name == "endure" {
			h.window = *long
		}
	}
	return h.table.write(os.Stdout)
}

// rounds of several clients under the same load, in turn.
type rounds [][]*observation // by client

// alternate observes the clients one after the other, h.rounds times over. A
// round in which others used the machine is made again, up to three times as
// often as asked for; if there are never enough quiet ones, the noisy ones
// count, and the table says so.
func (h *harness) alternate(n int, l load, clients ...client) (rounds, error) {
	quietOnes, noisy := make(rounds, len(clients)), make(rounds, len(clients))
	for try := 0; try < 3*n && len(quietOnes[0]) < n; try++ {
		if time.Now().After(h.deadline) {
			break
		}
		h.awaitQuiet()
		row := make([]*observation, len(clients))
		others := 0.0
		for i, c := range clients {
			o, err := h.observe(l, c)
			if err != nil {
				return nil, err
			}
			row[i] = o
			others = max(others, o.others)
		}
		into := quietOnes
		if others > h.noise {
			into = noisy
		}
		for i, o := range row {
			into[i] = append(into[i], o)
		}
		fmt.Fprintf(os.Stderr, "  round %d: others used %.1f %% of a processor\n", try+1, 100*others)
		if len(noisy[0]) >= n && len(quietOnes[0]) == 0 {
			break // it will not get quiet
		}
	}
	if len(quietOnes[0]) > 0 {
		h.table.noisy = false
		return quietOnes, nil
	}
	h.table.noisy = true
	if len(noisy[0]) == 0 {
		return nil, fmt.Errorf("no time left")
	}
	return noisy, nil
}

// awaitQuiet waits for a moment in which others leave the machine alone, for a
// while.
func (h *harness) awaitQuiet() {
	const look, patience = 250 * time.Millisecond, 8 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); {
		others := watchOthers()
		time.Sleep(look)
		if others.share() <= h.noise {
			return
		}
	}
}

// median over the rounds of one client.
func median(os []*observation, of func(*observation) float64) float64 {
	v := make([]float64, len(os))
	for i, o := range os {
		v[i] = of(o)
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// toolClient is the real tool in a closed loop (rate 0) or an open one, bounded
// by a duration or, if that is 0, by what more says.
func (h *harness) toolClient(concurrency int, rate float64, tokens int, duration time.Duration, more ...string) client {
	return client{
		name: "tokmark", seen: seenByTool,
		args: func(addr, dir string) []string {
			a := []string{h.tool, "run", "--url", addr, "--isl", "16", "--osl", strconv.Itoa(tokens), "--ui", "none", "--preflight=false",
				"--artifact-dir", filepath.Join(dir, "run")}
			if duration > 0 {
				a = append(a, "--benchmark-duration", fmt.Sprint(duration.Seconds()), "--benchmark-grace-period", "0.5")
			}
			if rate > 0 {
				a = append(a, "--request-rate", fmt.Sprint(rate), "--arrival-pattern", "constant")
			} else {
				a = append(a, "--concurrency", strconv.Itoa(concurrency))
			}
			return append(a, more...)
		},
	}
}

func (h *harness) referenceClient(streams int, duration time.Duration) client {
	return client{
		name: "reference", seen: seenByReference, env: []string{"GODEBUG=asyncpreemptoff=1"},
		args: func(addr, dir string) []string {
			return []string{h.self, "reference", "-addr", addr, "-streams", strconv.Itoa(streams),
				"-duration", duration.String(), "-log", filepath.Join(dir, "seen.log")}
		},
	}
}

func (h *harness) engineClient(concurrency, tokens int, duration time.Duration, more ...string) client {
	return client{
		name: "engine", seen: seenByTool,
		args: func(addr, dir string) []string {
			return append([]string{h.self, "engine", "-url", "http://" + addr, "-dir", filepath.Join(dir, "run"),
				"-concurrency", strconv.Itoa(concurrency), "-tokens", strconv.Itoa(tokens), "-duration", duration.String()}, more...)
		},
	}
}

// find looks for an optional program.
func (h *harness) find(name string) (string, error) {
	if path, err := filepath.Abs(filepath.Join(h.extras, "bin", name)); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return exec.LookPath(name)
}
