// Integration measures real inference servers on this machine, and compares
// what tokmark says of them with what they count of themselves:
//
//	go run ./cmd/integration [-cache DIR] [-optional] [SERVER ...]
//
// It installs the servers by the ordinary clients (pip's uv, npm) into the cache
// folder, starts each on a loopback port with a tiny model of random weights,
// measures it, and stops it. A server that cannot be had is skipped by name. It
// fails if a server was measured wrongly, or, unless they are optional, if none
// ran.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	cache := flag.String("cache", ".cache/integration", "folder for packages, models and run directories")
	optional := flag.Bool("optional", false, "it is no failure if none of the servers can be had")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *cache, flag.Args())
	stop()
	if *optional && errors.Is(err, errNoneRan) {
		err = nil
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		os.Exit(1)
	}
}

var errNoneRan = errors.New("no server ran")

// run measures the servers of those names, or all.
func run(ctx context.Context, cache string, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(servers, func(s server) bool { return s.name == name }) {
			return fmt.Errorf("there is no server %q: use %s", name, strings.Join(serverNames(), ", "))
		}
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	tokmark := filepath.Join(cache, "tokmark")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", tokmark, "./cmd/tokmark").CombinedOutput(); err != nil {
		return fmt.Errorf("build tokmark: %w: %s", err, out)
	}
	var passed, failed, skipped int
	for _, s := range servers {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		fmt.Printf("== %s\n", s.name)
		l := &lab{cache: cache, server: s, tokmark: tokmark}
		err := l.measure(ctx)
		var missing *missingError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &missing):
			skipped++
			fmt.Printf("SKIP %s: %v\n", s.name, err)
		case err != nil:
			failed++
			fmt.Printf("FAIL %s: %v\n", s.name, err)
		default:
			passed++
			fmt.Printf("PASS %s\n", s.name)
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	switch {
	case failed > 0:
		return errors.New("tokmark and a real server do not agree")
	case passed == 0:
		return errNoneRan
	}
	return nil
}

// missingError tells why a server cannot be had on this machine.
type missingError struct{ err error }

func (e *missingError) Error() string { return e.err.Error() }
func (e *missingError) Unwrap() error { return e.err }

// lab is where one server is installed, started and measured.
type lab struct {
	cache, tokmark string
	server         server
}

// The limits of each part.
const (
	installLimit = 8 * time.Minute
	startLimit   = 5 * time.Minute
	runLimit     = 3 * time.Minute
	stopLimit    = 20 * time.Second
)

// measure installs, starts, measures and stops the server.
func (l *lab) measure(ctx context.Context) error {
	ictx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	if err := l.install(ictx); err != nil {
		return &missingError{err}
	}
	p, err := l.start(ctx)
	if err != nil {
		return &missingError{err}
	}
	defer p.stop()
	var errs []error
	for _, ld := range loads {
		findings, err := l.run(ctx, p.address, ld)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("%s: %w", ld, err))...)
		}
		for _, f := range findings {
			mark := "ok "
			if !f.ok {
				mark = "BAD"
				errs = append(errs, fmt.Errorf("%s: %s", ld, f.text))
			}
			fmt.Printf("  %s %s: %s\n", mark, ld, f.text)
		}
	}
	return errors.Join(errs...)
}
