package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
)

// caseFile is a case.json: see testdata/cases/README.md.
type caseFile struct {
	Name   string          `json:"name"`
	Kind   string          `json:"kind"`
	Source string          `json:"source"`
	What   string          `json:"what"`
	Server *script         `json:"server"`
	Run    caseRun         `json:"run"`
	Expect json.RawMessage `json:"expect"`
}

type caseRun struct {
	Endpoint         string  `json:"endpoint"`
	Stream           bool    `json:"stream"`
	Requests         *int    `json:"requests"`
	Concurrency      int     `json:"concurrency"`
	RatePerS         float64 `json:"rate_per_s"`
	Arrival          string  `json:"arrival"`
	MaxTokens        int     `json:"max_tokens"`
	MinTokens        int     `json:"min_tokens"`
	IgnoreEOS        bool    `json:"ignore_eos"`
	Model            string  `json:"model"`
	APIKey           string  `json:"api_key"`
	ContinuousUsage  bool    `json:"continuous_usage"`
	IdleTimeoutMS    int     `json:"idle_timeout_ms"`
	RequestTimeoutMS int     `json:"request_timeout_ms"`
	Dataset          *struct {
		File   string `json:"file"`
		Format string `json:"format"`
		Order  string `json:"order"`
	} `json:"dataset"`
	Trace *struct {
		File     string  `json:"file"`
		Format   string  `json:"format"`
		Speedup  float64 `json:"speedup"`
		MaxTrace float64 `json:"max_trace_s"`
	} `json:"trace"`
	Compare json.RawMessage `json:"compare"`
}

// TestCases runs every case through the whole program.
func TestCases(t *testing.T) {
	paths, err := filepath.Glob("testdata/cases/*/case.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 33 {
		t.Fatalf("only %d cases found", len(paths))
	}
	// Runs in parallel take the settings of the collector from each other.
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	for _, path := range paths {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var c caseFile
			if err := strictJSON(text, &c); err != nil {
				t.Fatalf("read %s: %v", path, err)
			}
			if c.Run.Compare != nil {
				c.checkComparisons(t, dir)
				return
			}
			var k *checker
			for try := 1; ; try++ {
				k = c.check(t, dir)
				if len(k.problems) > 0 || len(k.timing) == 0 || try == 10 {
					break
				}
				t.Logf("try %d met a busy machine: %q", try, k.timing)
			}
			for _, problem := range slices.Concat(k.problems, k.timing) {
				t.Error(problem)
			}
			if got := k.got; t.Failed() {
				t.Logf("%s\nexit code %d\nstdout:\n%s\nstderr:\n%s", c.What, got.code, got.stdout, got.stderr)
				return
			}
			k.everyExpectationCounts(t, c.Expect)
		})
	}
}

// check runs the case once and compares what came with what it expects.
func (c *caseFile) check(t *testing.T, dir string) *checker {
	got := c.run(t, dir, c.args(dir))
	if got.manifest == nil {
		t.Fatalf("no run was made: exit code %d, stderr: %s", got.code, got.stderr)
	}
	k := &checker{got: got, strictRun: func() *caseResult {
		args := slices.DeleteFunc(c.args(dir), func(a string) bool { return a == "--skip-bad-lines" })
		return c.run(t, dir, args)
	}}
	k.sound()
	k.expect(c.Expect)
	return k
}

// strictJSON refuses fields that v does not have: what a case says must not be
// passed over in silence.
func strictJSON(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func (c *caseFile) model() string {
	if c.Run.Model != "" {
		return c.Run.Model
	}
	return "demo-8b"
}

// args is the command line of a case, without the server's address.
func (c *caseFile) args(dir string) []string {
	r := c.Run
	args := []string{
		"run", "--ui", "none", "--export-level", "raw", "--random-seed", "7",
		"--endpoint-type", r.Endpoint, "--streaming=" + strconv.FormatBool(r.Stream), "--model", c.model(),
		"--concurrency", strconv.Itoa(r.Concurrency), "--osl", strconv.Itoa(r.MaxTokens),
	}
	add := func(set bool, more ...string) {
		if set {
			args = append(args, more...)
		}
	}
	if r.Requests != nil {
		add(true, "--request-count", strconv.Itoa(*r.Requests))
	}
	// The scripted answers are for the measured requests alone; where there is
	// one for every request the questions before the run may be asked.
	add(c.Server.Select != "first-match", "--preflight=false")
	switch {
	case r.Trace != nil:
		add(true, "--input-file", filepath.Join(dir, r.Trace.File), "--custom-dataset-type", r.Trace.Format+"_trace",
			"--fixed-schedule-speedup", strconv.FormatFloat(r.Trace.Speedup, 'g', -1, 64), "--skip-bad-lines")
	case r.Dataset != nil:
		add(true, "--input-file", filepath.Join(dir, r.Dataset.File), "--custom-dataset-type", r.Dataset.Format, "--skip-bad-lines")
	default:
		add(true, "--isl", "8")
	}
	add(r.RatePerS > 0, "--request-rate", strconv.FormatFloat(r.RatePerS, 'g', -1, 64), "--arrival-pattern", r.Arrival)
	add(r.MinTokens > 0, "--extra-inputs", fmt.Sprintf("min_tokens:%d", r.MinTokens))
	add(r.IgnoreEOS, "--extra-inputs", "ignore_eos:true")
	add(r.ContinuousUsage, "--per-chunk-usage")
	add(r.IdleTimeoutMS > 0, "--idle-timeout", fmt.Sprintf("%dms", r.IdleTimeoutMS))
	add(r.RequestTimeoutMS > 0, "--request-timeout-seconds", strconv.FormatFloat(float64(r.RequestTimeoutMS)/1000, 'g', -1, 64))
	return args
}

// caseResult is all that can be seen of a run from outside.
type caseResult struct {
	c              *caseFile
	code           int
	stdout, stderr string
	dir            record.Dir
	posts          []post
	// slip is how many milliseconds the server's waits were too long: what the
	// client cannot be blamed for.
	slip float64

	records  []*record.Record // by number; nil if no run was made
	manifest *record.Manifest
	summary  map[string]any
	// reportCode and report are what `tokmark report` makes of the directory.
	reportCode int
	report     string
}

// run runs the program once against the scripted server.
func (c *caseFile) run(t *testing.T, dir string, args []string) *caseResult {
	server := newReplay(t, dir, openai.EndpointType(c.Run.Endpoint).Path(), c.Server)
	got := &caseResult{c: c, dir: record.Dir(filepath.Join(t.TempDir(), "run"))}
	args = append(args, "--url", server.URL, "--artifact-dir", string(got.dir))
	got.code, got.stdout, got.stderr = program(c.Run.APIKey, args...)
	got.posts, got.slip = server.taken()
	got.load(t)
	return got
}

// program is one call of the program, within this process.
func program(key string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(world{Args: args, Stdout: &out, Stderr: &errs, Signals: make(chan os.Signal), Getenv: func(name string) string {
		if name == "OPENAI_API_KEY" {
			return key
		}
		return ""
	}})
	return code, out.String(), errs.String()
}

// load reads the run directory, if there is one.
func (got *caseResult) load(t *testing.T) {
	var err error
	if got.manifest, err = got.dir.ReadManifest(); errors.Is(err, record.ErrNoRun) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	for r, err := range got.dir.Records() {
		if err != nil {
			t.Fatal(err)
		}
		got.records = append(got.records, r)
	}
	slices.SortFunc(got.records, func(a, b *record.Record) int { return int(a.ID - b.ID) })
	text, err := os.ReadFile(got.dir.Path(record.SummaryJSONFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got.summary); err != nil {
		t.Fatalf("summary.json: %v", err)
	}
	got.reportCode, got.report, _ = program("", "report", string(got.dir))
}

// at looks a value of the summary up: "load.achieved_rate".
func (got *caseResult) at(path string) any {
	var v any = got.summary
	for key := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// number is at, 0 if there is no such number.
func (got *caseResult) number(path string) float64 {
	v, _ := got.at(path).(float64)
	return v
}

// checker compares a result with what a case expects, and collects what
// differs.
type checker struct {
	got       *caseResult
	strictRun func() *caseResult // the same run, not tolerant of bad lines
	problems  []string
	// timing holds what may differ because the machine is busy.
	timing []string
}

func (k *checker) problem(format string, a ...any) {
	k.problems = append(k.problems, fmt.Sprintf(format, a...))
}

// sound checks what must hold for every run whatever the case.
func (k *checker) sound() {
	got := k.got
	if got.manifest.Outcome != record.RunCompleted {
		k.problem("outcome of the run = %s", got.manifest.Outcome)
	}
	if got.report != got.stdout {
		k.problem("a report made again differs from the one printed (-printed +again):\n%s", cmp.Diff(got.stdout, got.report))
	}
	if got.reportCode != got.code {
		k.problem("exit code of run = %d, of report = %d", got.code, got.reportCode)
	}
	n, m := len(got.records), len(got.posts)
	if got.c.Server.Select != "first-match" && n != m || n > m {
		k.problem("%d records of %d requests", n, m)
	} else if n < m { // the questions before the run settled what every request of it is
		for i, p := range got.posts[m-n:] {
			if bytes.Contains(p.body, []byte("stream_options")) {
				k.problem("request %d has what the server refuses", i)
			}
		}
	}
	ok := 0
	for i, r := range got.records {
		if r.ID != int64(i) {
			k.problem("record %d has the number %d", i, r.ID)
		}
		if r.Outcome == record.OK {
			ok++
		}
	}
	if n := got.number("request_count.avg"); n != float64(ok) {
		k.problem("request_count = %v, %d records are ok", n, ok)
	}
}

// expect checks an object of expectations of a run.
func (k *checker) expect(want json.RawMessage) {
	for key, w := range k.object(want) {
		k.ofRun(key, w)
	}
}

// object decodes an object of a case.
func (k *checker) object(b json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	k.decode(b, &m)
	return m
}

func (k *checker) decode(b json.RawMessage, v any) {
	if err := strictJSON(b, v); err != nil {
		k.problem("expectation %s: %v", b, err)
	}
}

// equal compares a value, nil if there is none, with an expectation: null, the
// value itself, or a range, which is always one of times.
func (k *checker) equal(what string, got any, want json.RawMessage) {
	var w any
	k.decode(want, &w)
	switch v := got.(type) { // to the types that JSON decodes to
	case int:
		got = float64(v)
	case int64:
		got = float64(v)
	}
	if limits, ok := w.(map[string]any); ok {
		low, high := math.Inf(-1), math.Inf(1)
		for name, v := range limits {
			n, isNumber := v.(float64)
			switch {
			case name == "min" && isNumber:
				low = n
			case name == "max" && isNumber:
				high = n
			default:
				k.problem("%s: expectation %s is no range", what, want)
			}
		}
		switch v, ok := got.(float64); {
		case !ok:
			k.problem("%s = %v, want a number in %s", what, got, want)
		case v < low || v > high+k.got.slip:
			k.timing = append(k.timing, fmt.Sprintf("%s = %v, want it in %s", what, v, want))
		}
		return
	}
	if d := cmp.Diff(w, got); d != "" {
		k.problem("%s (-want +got):\n%s", what, d)
	}
}

// near compares numbers with a tolerance.
func (k *checker) near(what string, got, want []float64, tolerance float64) {
	if len(got) != len(want) {
		k.problem("%s = %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > tolerance+k.got.slip {
			k.timing = append(k.timing, fmt.Sprintf("%s [%d] = %.1f, want %v ± %v", what, i, got[i], want[i], tolerance))
		}
	}
}

// everyExpectationCounts changes the expectations of a case that holds, one
// value at a time, and wants each change to be noticed: else the test would
// not look at that value.
func (k *checker) everyExpectationCounts(t *testing.T, want json.RawMessage) {
	var doc any
	if err := json.Unmarshal(want, &doc); err != nil {
		t.Fatal(err)
	}
	one := checker{got: k.got, strictRun: func() *caseResult { return &caseResult{code: -1} }}
	mutate(doc, "", func(path string) {
		changed, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		one.problems, one.timing = nil, nil
		one.expect(changed)
		if len(one.problems)+len(one.timing) == 0 {
			t.Errorf("the test does not notice a change of %s", path)
		}
	})
}

// mutate changes one value of a JSON document after the other, calls seen, and
// puts it back.
func mutate(v any, path string, seen func(path string)) {
	visit := func(key string, v any, set func(any)) {
		at := path + "/" + key
		switch key {
		case "warnings_allowed", "any_of", "strict", "console_absent_text", "absent_text", "html_absent", "csv_no_cell_starts_with",
			"file_name_max_bytes", "files_inside_output_folder":
			return // what may be, one of several, a run of its own, what must not be, and what another test looks at
		}
		switch w := v.(type) {
		case map[string]any, []any:
			mutate(w, at, seen)
			return
		case nil:
			set(1)
		case bool:
			set(!w)
		case string:
			set(w + " changed")
		case float64:
			switch key {
			case "min":
				set(1e9)
			case "max":
				set(-1e9)
			case "tolerance_ms":
				set(-1e9)
			default:
				set(w + 1e9)
			}
		}
		seen(at)
		set(v)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, w := range v {
			visit(key, w, func(changed any) { v[key] = changed })
		}
	case []any:
		for i, w := range v {
			visit(strconv.Itoa(i), w, func(changed any) { v[i] = changed })
		}
	}
}
