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
//	measure arg…          tokmark run with a run directory; a run that is not valid
//	                      met a busy machine, and is made again
//	exits CODE arg…       runs tokmark and wants this exit code
//	await FILE REGEXP     waits until the file holds a match
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
				got := 0
				if err := ts.Exec("tokmark", args[1:]...); err != nil {
					var exit *exec.ExitError
					if !errors.As(err, &exit) {
						ts.Fatalf("tokmark: %v", err)
					}
					got = exit.ExitCode()
				}
				if got != want {
					ts.Fatalf("exit code = %d, want %d", got, want)
				}
			},
			"measure": func(ts *testscript.TestScript, _ bool, args []string) {
				at := slices.Index(args, "--artifact-dir") + 1
				if at == 0 {
					ts.Fatalf("measure needs an --artifact-dir")
				}
				const tries = 8
				for try := 1; ; try++ {
					err := ts.Exec("tokmark", append([]string{"run"}, args...)...)
					var exit *exec.ExitError
					if !errors.As(err, &exit) || exit.ExitCode() != exitInvalid || try == tries {
						ts.Check(err)
						return
					}
					ts.Logf("try %d met a busy machine", try)
					ts.Check(os.RemoveAll(ts.MkAbs(args[at])))
				}
			},
			"await": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(await(ts.MkAbs(args[0]), args[1]))
			},
		},
	})
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
