package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tokmark/tokmark/bench/record"
)

// TestMain puts the program itself, as the command tokmark, on the path of the
// tests.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tokmark": main})
}

// quickExit keeps a program built with the race detector from sleeping for a
// second at its end.
const quickExit = "GORACE=atexit_sleep_ms=0"

// startMock starts `tokmark mock` in dir as a process of its own and returns
// its URL. stop ends it as Ctrl-C does and waits until it is gone.
func startMock(dir string, args ...string) (url string, stop func() error, err error) {
	c := exec.Command("tokmark", append([]string{"mock", "--addr", "127.0.0.1:0"}, args...)...)
	c.Dir, c.Env = dir, append(os.Environ(), quickExit)
	out, err := c.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error {
		if err := c.Process.Signal(os.Interrupt); err != nil {
			return err
		}
		return c.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), " on ")
	if !found {
		_ = stop()
		return "", nil, fmt.Errorf("the simulator said %q: %w", line, err)
	}
	return url, stop, nil
}

// TestInterrupt: the first signal ends a run in order, and the code says so.
func TestInterrupt(t *testing.T) {
	url, stop, err := startMock("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Errorf("simulator: %v", err)
		}
	}()
	dir := record.Dir(filepath.Join(t.TempDir(), "run"))
	signals := make(chan os.Signal, 1)
	var out, errs strings.Builder
	w := world{
		Args: []string{"run", "--url", url, "--artifact-dir", string(dir), "--request-count", "100000", "--osl", "8",
			"--benchmark-grace-period", "60", "--ui", "none"},
		Stdout: &out, Stderr: &errs, Signals: signals, Getenv: func(string) string { return "" },
	}
	code := make(chan int)
	go func() { code <- Main(w) }()
	if err := await(dir.Path(record.RecordsFile), `"outcome":"ok"`); err != nil {
		t.Fatal(err)
	}
	signals <- os.Interrupt
	if c := <-code; c != exitInterrupted {
		t.Errorf("exit code = %d, want %d; stderr: %s", c, exitInterrupted, &errs)
	}
	if m, err := dir.ReadManifest(); err != nil || m.Outcome != record.RunInterrupted || m.Sent == 0 {
		t.Errorf("manifest = %+v, %v; want an interrupted run", m, err)
	}
	if !strings.Contains(out.String(), "partial_run") {
		t.Errorf("the report does not say that it is partial:\n%s", &out)
	}
	for r, err := range dir.Records() {
		if err != nil || r.Outcome != record.OK {
			t.Errorf("record = %+v, %v; a request in flight was not let end", r, err)
		}
	}
}

// TestRunDirectoryHasASafeName: whatever the model is called, the run stays
// inside artifacts/.
func TestRunDirectoryHasASafeName(t *testing.T) {
	const model = "acme/\"fast, cheap\"\nv2;<script>alert(1)</script>/../../..=1+1"
	server := newReplay(t, "testdata/cases/031-report-awkward-names", "/v1/chat/completions", &script{Responses: []response{{
		Status: 200, Headers: map[string]string{"Content-Type": "text/event-stream"}, Body: "ok.sse",
	}}})
	work := t.TempDir()
	t.Chdir(work)
	for range 2 { // within one second, so the second needs another name
		name := model + strings.Repeat(" very-long-name", 30) + "终"
		if code, _, errs := program("", "run", "--url", server.URL, "--model", name, "--request-count", "1", "--isl", "8", "--ui", "none"); code != exitOK {
			t.Fatalf("exit code = %d, stderr: %s", code, errs)
		}
	}
	if entries, err := os.ReadDir(work); err != nil || len(entries) != 1 || entries[0].Name() != "artifacts" {
		t.Errorf("files made: %v, %v; want artifacts alone", entries, err)
	}
	runs, err := os.ReadDir("artifacts")
	if err != nil || len(runs) != 2 {
		t.Fatalf("runs made: %v, %v; want 2", runs, err)
	}
	for _, run := range runs {
		if len(run.Name()) > 255 || strings.ContainsAny(run.Name(), "/\\\n\"<> ;'=") {
			t.Errorf("name of a run directory = %q", run.Name())
		}
		if _, err := record.Dir(filepath.Join("artifacts", run.Name())).ReadManifest(); err != nil {
			t.Error(err)
		}
	}
}

// TestInterruptBefore: a signal while a server does not answer ends a command,
// and so does one to a command that does not look.
func TestInterruptBefore(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, args := range [][]string{{"probe"}, {"run"}, {"run", "--preflight=false"}} {
		signals := make(chan os.Signal, 1)
		var out, errs strings.Builder
		dir := filepath.Join(t.TempDir(), "run")
		w := world{
			Args:   append(args, "--url", ln.Addr().String(), "--artifact-dir", dir),
			Stdout: &out, Stderr: &errs, Signals: signals, Getenv: func(string) string { return "" },
		}
		code := make(chan int)
		go func() { code <- Main(w) }()
		conn, err := ln.Accept() // and never answer
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		signals <- os.Interrupt
		if c := <-code; c != exitInterrupted || errs.String() != "tokmark: interrupted\n" || out.String() != "" {
			t.Errorf("%v: exit code = %d, stdout %q, stderr %q", args, c, &out, &errs)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%v: there is a run directory", args)
		}
	}
}

// TestInterruptCommandThatDoesNotLook: one signal gives it a moment, two none.
func TestInterruptCommandThatDoesNotLook(t *testing.T) {
	for n := 1; n <= 2; n++ {
		synctest.Test(t, func(t *testing.T) {
			signals, end := make(chan os.Signal, 2), make(chan error)
			var errs strings.Builder
			for range n {
				signals <- os.Interrupt
			}
			began := time.Now()
			code := interruptible(&world{Stderr: &errs, Signals: signals, interrupts: &interrupts{}}, func(context.Context) error { return <-end })
			if waited := time.Since(began); code != exitInterrupted || waited != interruptPatience*time.Duration(2-n) {
				t.Errorf("%d signals: exit code %d after %v", n, code, waited)
			}
			end <- nil
		})
	}
}

// TestRequestIDs: what the server sees has nothing of the directory's name,
// whatever characters that holds.
func TestRequestIDs(t *testing.T) {
	sim, url := simulator(t, nil, nil)
	dir := record.Dir(filepath.Join(t.TempDir(), "my secret\nname\x01"))
	if code, _, errs := program("", "run", "--url", url, "--artifact-dir", string(dir), "--request-count", "3", "--osl", "2", "--ui", "none"); code != exitOK && code != exitInvalid {
		t.Fatalf("exit code = %d, stderr: %s", code, errs)
	}
	m, err := dir.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, tr := range sim.Truth() {
		if strings.Contains(tr.RequestID, "secret") || strings.ContainsFunc(tr.RequestID, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("request id %q", tr.RequestID)
		}
		if strings.HasPrefix(tr.RequestID, m.RequestIDs+"m") {
			seen++
		}
	}
	if seen != 3 {
		t.Errorf("%d requests have an id of the run, want 3", seen)
	}
}

// TestHeaderValueIsNotShown: not even where it cannot be sent.
func TestHeaderValueIsNotShown(t *testing.T) {
	for _, header := range []string{"SEKRET", ":SEKRET", "a b:SEKRET", "X:SEKRET\x01", "X:SEKRET\nY"} {
		if code, _, errs := program("", "run", "-H", "A: b", "-H", header); code != exitUsage || strings.Contains(errs, "SEKRET") || !strings.Contains(errs, "--header number 2") {
			t.Errorf("%q: exit code %d, stderr: %s", header, code, errs)
		}
	}
}
