package main

import (
	"errors"
	"fmt"
	"io"
)

// The exit codes.
const (
	exitOK           = 0
	exitFailed       = 1   // the run failed: it could not be made, or no request succeeded
	exitUsage        = 2   // usage or configuration
	exitGate         = 3   // a gate failed
	exitInconclusive = 4   // not enough samples to say
	exitInvalid      = 5   // the result is not valid
	exitInterrupted  = 130 // interrupted; what there is was reported
)

// exitError is an error with the exit code it calls for, and a hint at what to
// try. Without an err there is nothing more to say: the report says it.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as the caller's.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitUsage, err: err}
}

func usagef(format string, a ...any) error { return usage(fmt.Errorf(format, a...)) }

// exitCode prints the error, if there is one to print, and returns its code.
// An error that no command gave a code to comes from reading the command line.
func exitCode(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{code: exitUsage, err: err, hint: "tokmark --help lists commands and options"}
	}
	if e.err != nil {
		fmt.Fprintf(stderr, "tokmark: %v\n", e.err)
		if e.hint != "" {
			fmt.Fprintf(stderr, "hint: %s\n", e.hint)
		}
	}
	return e.code
}
