package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
