// Command tokmark puts load on an OpenAI-compatible inference server, times
// every token that comes back, and says how fast the server is and whether the
// number may be believed.
package main

import (
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
	self, err := exec.LookPath(os.Args[0])
	if err != nil {
		self = ""
	}
	log.SetOutput(io.Discard) // net/http writes there what servers send unasked, secrets unmasked
	os.Exit(Main(world{
		Executable: self,
		Args:       os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())), Getenv: os.Getenv, Signals: sig,
	}))
}

// world is what a command may touch outside of the process's memory and the
// file system.
type world struct {
	Args           []string
	Stdout, Stderr io.Writer
	Terminal       bool // stderr is a terminal
	Getenv         func(string) string
	Executable     string // path of this program; empty: not known
	Signals        <-chan os.Signal

	interrupts *interrupts
}

// Main runs one command line and returns the exit code. It is all of the
// program but the process.
func Main(w world) int {
	w.interrupts = &interrupts{}
	root := newRoot(&w)
	root.SetArgs(w.Args)
	root.SetOut(w.Stdout)
	root.SetErr(w.Stderr)
	return interruptible(&w, root.ExecuteContext)
}
