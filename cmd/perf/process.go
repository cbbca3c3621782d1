//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a child on a processor of its own.
type process struct {
	*exec.Cmd
	stdin  io.Closer
	lines  chan string // of stdout
	stderr bytes.Buffer
	ended  chan error
	begun  time.Time
}

// start runs a program on one core (-1: on any).
func start(core int, env []string, name string, args ...string) (*process, error) {
	p := &process{Cmd: exec.Command(name, args...), lines: make(chan string, 1<<10), ended: make(chan error, 1)}
	p.Env = append(os.Environ(), env...)
	p.Stderr = &p.stderr
	in, err := p.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = in
	stdout, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if core >= 0 {
		p.Env = append(p.Env, "GOMAXPROCS=1")
		// A child has the affinity of the thread that starts it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var all, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			return nil, err
		}
		one.Set(core)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return nil, fmt.Errorf("pin to processor %d: %w", core, err)
		}
		defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	}
	p.begun = time.Now()
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		s := bufio.NewScanner(stdout)
		for s.Scan() {
			select {
			case p.lines <- s.Text():
			default: // nobody reads so much
			}
		}
		close(p.lines)
		p.ended <- p.Wait()
	}()
	return p, nil
}

// line waits for a line of stdout that begins so, and returns the rest of it.
func (p *process) line(prefix string, patience time.Duration) (string, error) {
	limit := time.After(patience)
	for {
		select {
		case l, ok := <-p.lines:
			if !ok {
				return "", fmt.Errorf("%s ended: %s", filepath.Base(p.Path), strings.TrimSpace(p.stderr.String()))
			}
			if rest, ok := strings.CutPrefix(l, prefix); ok {
				return strings.TrimSpace(rest), nil
			}
		case <-limit:
			return "", fmt.Errorf("%s said nothing of %q for %v", filepath.Base(p.Path), prefix, patience)
		}
	}
}

// wait waits for the end of the process and kills it if that takes too long.
func (p *process) wait(patience time.Duration) error {
	select {
	case err := <-p.ended:
		p.ended <- err
		return err
	case <-time.After(patience):
		_ = p.Process.Kill()
		return errors.Join(fmt.Errorf("%s did not end within %v", filepath.Base(p.Path), patience), <-p.ended)
	}
}

// quiet tells how much processor time others than ours take.
type quiet struct {
	ours map[int]bool
	used map[int]int64 // ticks by process
	at   time.Time
}

func watchOthers(ours ...int) *quiet {
	q := &quiet{ours: map[int]bool{os.Getpid(): true}, at: time.Now()}
	for _, pid := range ours {
		q.ours[pid] = true
	}
	q.used = q.read()
	return q
}

// share is the part of one processor that others have used since. What a
// process that has ended used goes to its parent, the part from before the
// watch included, which is taken off again.
func (q *quiet) share() float64 {
	const tick = time.Second / 100 // USER_HZ
	var sum int64
	now := q.read()
	for pid, ticks := range now {
		sum += max(0, ticks-q.used[pid])
	}
	for pid, ticks := range q.used {
		if _, alive := now[pid]; !alive {
			sum -= ticks
		}
	}
	return float64(max(0, sum)) * tick.Seconds() / time.Since(q.at).Seconds()
}

func (q *quiet) read() map[int]int64 {
	used := map[int]int64{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if q.ours[pid] {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		const utime, after = 11, 15 // utime, stime, and those of its children
		for _, v := range fields[utime:min(after, len(fields))] {
			n, _ := strconv.ParseInt(v, 10, 64)
			used[pid] += n
		}
	}
	return used
}

// rss is the resident memory of a process in bytes.
func rss(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseFloat(strings.Fields(string(b))[1], 64)
	return pages * float64(os.Getpagesize())
}
