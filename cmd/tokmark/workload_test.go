package main

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
)

// measured runs the program against the simulator and returns its measured
// records, in order.
func measured(t *testing.T, args ...string) []*record.Record {
	t.Helper()
	dir := record.Dir(filepath.Join(t.TempDir(), "run"))
	args = append([]string{"run", "--ui", "none", "--artifact-dir", string(dir)}, args...)
	var stdout, stderr bytes.Buffer
	if code := Main(world{Args: args, Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }}); code != exitOK && code != exitInvalid {
		t.Fatalf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
	}
	m, err := dir.ReadManifest()
	if err != nil {
		t.Fatal(err)
	}
	recs := make([]*record.Record, m.Sent)
	for r, err := range dir.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if r.Phase == record.PhaseMeasure {
			if r.Outcome != record.OK {
				t.Fatalf("%+v %+v", r, r.Failure)
			}
			recs[r.ID] = r
		}
	}
	return recs
}

// TestPrefixCacheControl: what the options say of a prefix cache is what the
// simulator's cache does.
func TestPrefixCacheControl(t *testing.T) {
	const block = 16
	address := simulate(t)
	hits := func(recs []*record.Record) (rate, ofFullBlocks float64) {
		var cached, input, full record.Count
		for _, r := range recs {
			cached += r.Tokens.Cached
			input += r.Tokens.Input
			full += (r.Tokens.Input - 1) / block * block // the last token is always computed
		}
		return float64(cached) / float64(input), float64(cached) / float64(full)
	}
	base := []string{"--url", address, "--osl", "2", "--concurrency", "8", "--request-count", "200"}
	with := func(more ...string) []*record.Record { return measured(t, append(more, base...)...) }

	if rate, _ := hits(with("--isl", "300")); rate != 0 {
		t.Errorf("cold: %v of the input tokens were cached, want none", rate)
	}
	if rate, _ := hits(with("--isl", "300", "--salt", "again")); rate != 0 {
		t.Errorf("another salt: %v of the input tokens were cached", rate)
	}
	if _, rate := hits(with("--isl", "300", "--salt", "again")); rate < 0.99 {
		t.Errorf("the same salt again: %v of the full blocks were cached", rate)
	}
	if _, rate := hits(with("--isl", "300", "--cache", "warm")); rate < 0.99 {
		t.Errorf("warm: %v of the full blocks were cached, want 0.99 or more", rate)
	}
	for _, seed := range []string{"1", "2", "3"} {
		rate, _ := hits(with("--isl", "600", "--cache-hit-rate", "0.6", "--cache-block", "16", "--random-seed", seed))
		if math.Abs(rate-0.6) > 0.02 {
			t.Errorf("hit rate 0.6, seed %s: %.4f of the input tokens were cached, want 0.6 ± 0.02", seed, rate)
		}
	}
}

// TestPromptLengths: what is asked for is what the server counts, but for its
// chat template: exactly with a tokenizer, nearly by calibration.
func TestPromptLengths(t *testing.T) {
	const template = 7 // of the simulator
	address := simulate(t)
	base := []string{"--url", address, "--osl", "2", "--concurrency", "4", "--request-count", "30", "--isl", "400"}
	for _, r := range measured(t, append(base, "--tokenizer", "server")...) {
		if r.Tokens.Input != 400+template {
			t.Errorf("with the server's tokenizer: %d tokens", r.Tokens.Input)
		}
	}
	var sum record.Count
	recs := measured(t, base...)
	for _, r := range recs {
		sum += r.Tokens.Input
	}
	if mean := float64(sum) / float64(len(recs)); math.Abs(mean-template-400) > 0.03*400 {
		t.Errorf("calibrated: %.1f tokens on average, want 400 ± 3 %%", mean-template)
	}
	for _, r := range measured(t, append(base, "--endpoint-type", "completions", "--prompt-as", "token-ids")...) {
		if r.Tokens.Input != 400 {
			t.Errorf("token ids: %d tokens, want exactly 400", r.Tokens.Input)
		}
	}
}

// TestClassesWithArrivals: each class comes at its own times, with its own
// lengths, whichever prompts of it are taken.
func TestClassesWithArrivals(t *testing.T) {
	for _, more := range [][]string{nil, {"--num-dataset-entries", "3"}, {"--endpoint-type", "completions", "--prompt-as", "token-ids"}} {
		recs := measured(t, append(more, "--simulate", "--preflight=false", "--request-count", "9",
			"--class", `{"name": "chat", "isl": 20, "osl": 2, "request-rate": 40, "arrival-pattern": "constant"}`,
			"--class", `{"name": "document", "isl": 60, "osl": 3, "request-rate": 20, "arrival-pattern": "constant"}`)...)
		next := map[string]record.Time{}
		for i, r := range recs {
			due := r.Due - recs[0].Due
			gap := map[string]record.Time{"chat": 25e6, "document": 50e6}[r.Class]
			if due != next[r.Class] {
				t.Errorf("%v: request %d of class %s is due at %v, want %v", more, i, r.Class, due, next[r.Class])
			}
			next[r.Class] = due + gap
			if want := map[string]record.Count{"chat": 2, "document": 3}[r.Class]; r.AskedOutput != want {
				t.Errorf("%v: request %d of class %s asks for %d tokens", more, i, r.Class, r.AskedOutput)
			}
		}
		if len(next) != 2 {
			t.Errorf("%v: classes %v", more, next)
		}
	}
}
