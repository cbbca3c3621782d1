//go:build linux

// Command perf measures tokmark itself: how true its times are, what an event
// costs it, and where it stops keeping up. It is no part of the product; `make
// bench` runs it.
//
// It starts a server of its own that knows when it sent each event (server.go),
// a reader that does as little as one can (reference.go), and the real tool,
// each pinned to one processor, one after the other and again, and prints the
// medians side by side. Figures of one machine mean little; the ratios do.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	// The harness starts itself again in these roles.
	roles := map[string]func([]string) error{
		"server": serveMain, "reference": referenceMain, "engine": engineMain,
	}
	args := os.Args[1:]
	run := harnessMain
	if len(args) > 0 && roles[args[0]] != nil {
		run, args = roles[args[0]], args[1:]
	}
	if err := run(args); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "perf:", err)
		os.Exit(1)
	}
}
