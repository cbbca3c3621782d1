package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	e := &exitError{code: exitUsage, err: err}
	var inner *exitError
	if errors.As(err, &inner) {
		e.hint = inner.hint
	}
	return e
}

func usagef(format string, a ...any) error { return usage(fmt.Errorf(format, a...)) }

// exitCode prints the error, if there is one to print, and returns its code.
// An error that no command gave a code to comes from reading the command line.
func exitCode(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var e *exitError
	var file *fs.PathError
	switch {
	case errors.As(err, &e):
	case errors.As(err, &file) && file.Op == "write": // stdout is full, or gone
		e = &exitError{code: exitFailed, err: err}
	default:
		e = &exitError{code: exitUsage, err: err, hint: "tokmark --help lists commands and options"}
	}
	if e.err != nil {
		fmt.Fprintf(stderr, "tokmark: %s\n", printable(e.Error()))
		if e.hint != "" {
			fmt.Fprintf(stderr, "hint: %s\n", printable(e.hint))
		}
	}
	return e.code
}

// flagError says in plain words what is wrong with an option on the command
// line, and where the options of the command are told.
func flagError(c *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		f := value.GetFlag()
		err = fmt.Errorf("--%s %s: %w", f.Name, value.GetValue(), valueError(f, value.GetValue(), value.Unwrap()))
	}
	return &exitError{code: exitUsage, err: err, hint: c.CommandPath() + " --help lists the options"}
}

// valueError says what value an option takes; err is why the given one does not
// do.
func valueError(f *pflag.Flag, given string, err error) error {
	what := map[string]string{
		"uint": "a whole number of at least 0", "uint64": "a whole number of at least 0",
		"int": "a whole number", "int64": "a whole number", "float64": "a number", "bool": "true or false",
		"duration": "a time with its unit, as 10s or 500ms, of at most 292 years", "float64Slice": "numbers joined by commas",
	}[f.Value.Type()]
	if what == "" {
		return err
	}
	name, _ := pflag.UnquoteUsage(f)
	if d, failed := time.ParseDuration(given); failed == nil && f.Value.Type() == "float64" && (name == "seconds" || name == "ms") {
		unit := map[string]time.Duration{"seconds": time.Second, "ms": time.Millisecond}[name]
		what = fmt.Sprintf("a number of %s without a unit, as %g", name, float64(d)/float64(unit))
	} else if errors.Is(err, strconv.ErrRange) {
		what += " that is not so large"
	}
	return errors.New("give " + what)
}

// argsError wraps what checks a command's arguments: its errors come with the
// command's help as hint, and with the likely reason.
func argsError(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err == nil {
			return nil
		}
		hint := c.CommandPath() + " --help shows what it takes"
		for _, a := range args {
			if a == "true" || a == "false" {
				hint = "a switch takes its value after =, as --streaming=" + a
				c.Flags().Visit(func(f *pflag.Flag) {
					if f.Value.Type() == "bool" {
						hint = "a switch takes its value after =, as --" + f.Name + "=" + a
					}
				})
			}
		}
		return &exitError{code: exitUsage, err: err, hint: hint}
	}
}

// printable writes control characters, and what is not UTF-8, as escapes: text
// from outside must not steer the terminal. Line ends and tabs stay.
func printable(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n' || r == '\t' || !unicode.Is(unicode.C, r):
			b.WriteString(s[:n])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}
