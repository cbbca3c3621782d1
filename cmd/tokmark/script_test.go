package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the command line scripts of testdata/script. Beside the
// usual commands they have:
//
//	mock [flag…]          starts the simulator; $MOCK is its URL, $MOCKADDR host:port
//	measure arg…          tokmark run with a run directory, which is to succeed
//	exits CODE arg…       runs tokmark and wants this exit code
//	await FILE REGEXP     waits until the file holds a match
//
// A run that a busy machine made invalid is made again.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, quickExit)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mock": func(ts *testscript.TestScript, _ bool, args []string) {
				url, stop, err := startMock(ts.MkAbs("."), args...)
				ts.Check(err)
				ts.Setenv("MOCK", url)
				ts.Setenv("MOCKADDR", strings.TrimPrefix(url, "http://"))
				ts.Defer(func() { ts.Check(stop()) })
			},
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				exits(ts, want, args[1:])
			},
			"measure": func(ts *testscript.TestScript, _ bool, args []string) {
				exits(ts, exitOK, append([]string{"run"}, args...))
			},
			"await": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(await(ts.MkAbs(args[0]), args[1]))
			},
		},
	})
}

// exits runs tokmark, which has to end with the wanted exit code.
func exits(ts *testscript.TestScript, want int, args []string) {
	got := undisturbed(args, ts.MkAbs("."), []int{want}, func() int {
		err := ts.Exec("tokmark", args...)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		ts.Check(err)
		return exitOK
	})
	if got != want {
		ts.Fatalf("exit code = %d, want %d", got, want)
	}
}

// undisturbed calls run, which runs tokmark in dir, and returns its exit code;
// again, a few times, as long as it says that its numbers are not to be believed
// and that is not wanted: the machine is busy with something else.
func undisturbed(args []string, dir string, want []int, run func() int) int {
	for range 7 {
		code := run()
		if code != exitInvalid || slices.Contains(want, code) || !slices.Contains([]string{"run", "ab", "verify"}, args[0]) {
			return code
		}
		if at := slices.Index(args, "--artifact-dir") + 1; at > 0 {
			_ = os.RemoveAll(filepath.Join(dir, args[at])) // a run does not overwrite another
		}
	}
	return run()
}

// await waits until the file holds a match of the pattern.
func await(file, pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	const patience = 30 * time.Second // a busy machine; usual is well below 1 s
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(file); err == nil && re.Match(text) {
			return nil
		}
	}
	return fmt.Errorf("no %q in %s", pattern, filepath.Base(file))
}
