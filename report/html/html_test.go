package html

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/slo"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// render writes the page, twice, as it must be the same.
func render(t testing.TB, runs ...Run) string {
	t.Helper()
	var a, b bytes.Buffer
	if err := errors.Join(Write(&a, runs...), Write(&b, runs...)); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Error("the same run gave different bytes")
	}
	return a.String()
}

func chartsOf(t testing.TB, page string) []chart {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<script type="application/json" id="charts">`)
	data, _, ok2 := strings.Cut(rest, "</script>")
	if !ok || !ok2 {
		t.Fatal("the page has no data")
	}
	var charts []chart
	if err := json.Unmarshal([]byte(strings.ReplaceAll(data, "null", `"none"`)), new(any)); err != nil {
		t.Fatalf("the data is not JSON: %v", err)
	}
	if data == "null" {
		return nil
	}
	if err := json.Unmarshal([]byte(data), &charts); err != nil {
		t.Fatal(err)
	}
	return charts
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *num) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = nan
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

var scripts = regexp.MustCompile(`(?s)<script[^>]*>(.*?)</script>|<style>.*?</style>`)

// element is one element of a page, with the text that stands in it directly.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

// elements reads a page without its scripts, and fails if its elements are not
// nested properly.
func elements(t testing.TB, page string) []*element {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(scripts.ReplaceAllString(page, "")))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var out, open []*element
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("the page is damaged: %v", err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			e := &element{name: tok.Name.Local, attrs: map[string]string{}}
			for _, a := range tok.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			out, open = append(out, e), append(open, e)
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1].name != tok.Name.Local {
				t.Fatalf("</%s> closes nothing", tok.Name.Local)
			}
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				e := open[len(open)-1]
				if e.name == "bdi" && len(open) > 1 {
					e = open[len(open)-2] // bdi stands in every cell
				}
				e.text += string(tok)
			}
		}
	}
}

// outlineOf is the page as text: headings, tables, lists, and charts.
func outlineOf(t testing.TB, page string) string {
	t.Helper()
	var b strings.Builder
	charts := map[string]chart{}
	for _, c := range chartsOf(t, page) {
		charts[c.ID] = c
	}
	for _, e := range elements(t, page) {
		text := strings.Join(strings.Fields(e.text), " ")
		switch e.name {
		case "h1", "h2", "h3":
			b.WriteString("\n" + strings.Repeat("#", int(e.name[1]-'0')) + " " + text)
		case "caption":
			b.WriteString("\n[" + text + "]")
		case "tr", "dt", "p", "li", "pre", "figcaption":
			b.WriteString("\n" + e.name + " " + text)
		case "th", "td", "dd", "code", "strong":
			b.WriteString(" | " + text)
		case "span":
			b.WriteString(" " + text)
		case "div":
			if id := e.attrs["data-chart"]; id != "" {
				c := charts[id]
				b.WriteString("\n    chart " + id + ":")
				for _, s := range c.Series {
					b.WriteString(" " + s.Name + " (" + s.Style + ")")
				}
			}
		}
	}
	return b.String() + "\n"
}

func allFailed(t testing.TB) Run {
	var recs []*record.Record
	for i := range 5 {
		r := record.New(record.PhaseMeasure, int64(i))
		r.Streaming, r.Start, r.End = true, record.Time(i)*100*msec+500*msec, record.Time(i)*100*msec+520*msec
		r.Fail(record.ConnectFailed, record.Failure{Message: "dial tcp 127.0.0.1:8000: connect: connection refused"})
		recs = append(recs, r)
	}
	return summarize(t, manifest(2), recs, nil)
}

const attack = `</script><script>document.title="INERT-FAILED"</script><img src=x onerror=alert(1)>{{.}}"'` + "`${1}`\u202egnp\u2028\x00"

// hostile is a run in which whatever a server or a user can say is an attack.
func hostile(t testing.TB) Run {
	m := manifest(2)
	m.ID, m.Command, m.Workload, m.WorkloadHash = attack, attack, attack, attack
	m.Target = record.Target{URL: attack, Model: attack, EndpointType: attack, Streaming: true}
	m.Load.Arrival = attack
	m.Conditions = []record.Condition{{Name: attack, Value: attack, Source: "probed"}, {Name: attack, Source: "unknown"}}
	m.Dropped = []record.DroppedField{{Field: attack, Reason: attack}}
	m.Cache.Mode, m.Host.CPU, m.Tool.Version, m.Tool.Commit = attack, attack, attack, attack
	recs := closedLoop(120, 2, 20, 3)
	for i, r := range recs {
		r.Model, r.Class, r.Session, r.ResponseModel = attack, attack, attack, attack
		if i%2 == 0 {
			r.Class, r.Model = "b", "b"
		}
		if i%10 == 9 {
			r.Outcome = ""
			r.Chunks = nil
			r.Fail(record.StreamError, record.Failure{Message: attack, Type: attack, Code: attack, Body: attack})
		}
	}
	return named(attack, summarize(t, m, recs, []record.Sample{{At: 600 * msec, From: attack, Values: map[string]float64{attack: 1}}}))
}

// golden compares the outline of a page with the one that is kept.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("the page differs from %s (-update rewrites it):\n%s", file, d)
	}
}

func TestPages(t *testing.T) {
	for name, runs := range map[string][]Run{
		"demo":    {demo(t, 400, 16)},
		"one":     {demo(t, 1, 1)},
		"empty":   {summarize(t, manifest(1), nil, nil)},
		"failed":  {allFailed(t)},
		"hostile": {hostile(t)},
		"several": {named("a", demo(t, 200, 4)), named("b <i>", demo(t, 200, 16)), named("c", demo(t, 200, 64))},
		"sweeps":  twoSweeps(t),
		"slo":     {held(t, demo(t, 200, 4))},
	} {
		t.Run(name, func(t *testing.T) {
			page := render(t, runs...)
			got := outlineOf(t, page)
			golden(t, name, got)
			for _, bad := range []string{"NaN", "Inf", "%!", "ZgotmplZ", "<nil>", "\u202e"} {
				if strings.Contains(scripts.ReplaceAllString(page, ""), bad) {
					t.Errorf("%q is on the page", bad)
				}
			}
		})
	}
}

// held is the run with objectives that it keeps, misses, and that are open.
func held(t testing.TB, r Run) Run {
	objectives, err := slo.Parse("ttft.p50<1s, ttft.p99<50ms, error_rate<2%, request_throughput>1e9")
	if err != nil {
		t.Fatal(err)
	}
	r.Objectives = slo.Evaluate(r.Summary, objectives)
	return r
}

// TestObjectives stand on the page of a run, and on that of several with the
// run's name.
func TestObjectives(t *testing.T) {
	a, b := named("a", held(t, demo(t, 200, 4))), named("b", held(t, demo(t, 200, 16)))
	for want, page := range map[string]string{"ttft.p99<50ms": render(t, a), "b: ttft.p99<50ms": render(t, a, b)} {
		got := outlineOf(t, page)
		if !strings.Contains(got, "| "+want+" |") || !strings.Contains(got, "| fail") || !strings.Contains(got, "| pass") || !strings.Contains(got, "| inconclusive: ") {
			t.Errorf("%q, or what became of it, is not on the page:\n%s", want, got)
		}
	}
	if page := render(t, demo(t, 200, 4)); strings.Contains(page, `id="objectives"`) {
		t.Error("a run that was held against nothing has objectives")
	}
	one := named(attack, hostile(t))
	one.Objectives = []slo.Result{{Objective: slo.Objective{Text: attack}, State: slo.Inconclusive, Reason: attack}}
	if page := render(t, one, one); strings.Contains(page, "<img") {
		t.Error("an objective is on the page as it was written")
	}
}

// twoSweeps are two groups of runs at the same loads, the second with a repeat.
func twoSweeps(t testing.TB) []Run {
	var runs []Run
	for _, group := range []string{"before", "after <i>"} {
		for i, concurrency := range []int{16, 4, 4} {
			if group == "before" && i == 2 {
				continue
			}
			m := manifest(concurrency)
			tokens := 40 + 8*len(runs) // so that no two are the same
			r := named(group+"/"+string(rune('1'+i)), summarize(t, m, closedLoop(120, concurrency, tokens, uint64(i)), nil))
			r.Group = group
			runs = append(runs, r)
		}
	}
	return runs
}

// TestSweepsAreLinesOfTheirOwn: each group is one line in the order of loads, and
// repeats are one point with the span of its runs.
func TestSweepsAreLinesOfTheirOwn(t *testing.T) {
	runs := twoSweeps(t)
	charts := map[string]chart{}
	for _, c := range chartsOf(t, render(t, runs...)) {
		charts[c.ID] = c
	}
	pareto := charts["pareto"]
	if len(pareto.Series) != 2 || pareto.Series[0].Name != "before" || pareto.Series[0].Color == pareto.Series[1].Color {
		t.Fatalf("the groups are not told apart: %+v", pareto.Series)
	}
	for _, s := range pareto.Series {
		if d := cmp.Diff([]string{"4 in flight", "16 in flight"}, s.Labels); d != "" || len(s.X) != 2 {
			t.Errorf("%s: %v", s.Name, d)
		}
	}
	if n := len(charts["load-time_to_first_token"].Series); n != 4 {
		t.Errorf("TTFT by load has %d lines", n)
	}
	for _, s := range charts["load-time_to_first_token"].Series {
		if d := cmp.Diff([]num{4, 16}, s.X); d != "" {
			t.Errorf("%s is not in the order of loads: %s", s.Name, d)
		}
	}
	one, two := pareto.Series[0], pareto.Series[1]
	a, _ := runs[3].Summary.Metric("output_token_throughput")
	b, _ := runs[4].Summary.Metric("output_token_throughput")
	near := func(got num, want float64) bool { return math.Abs(float64(got)/want-1) < 1e-4 }
	if !near(two.Low[0], min(a.Value, b.Value)) || !near(two.High[0], max(a.Value, b.Value)) || !near(two.Y[0], (a.Value+b.Value)/2) {
		t.Errorf("repeats of %v and %v are %v from %v to %v", a.Value, b.Value, two.Y[0], two.Low[0], two.High[0])
	}
	if one.Low[0] != one.Y[0] || one.High[0] != one.Y[0] || two.Low[0] == two.High[0] {
		t.Error("a single run has a span, or repeats have none")
	}
}

// TestLoadsOfTwoKinds do not stand on one axis.
func TestLoadsOfTwoKinds(t *testing.T) {
	a, b := demo(t, 50, 2), demo(t, 50, 4)
	b.Summary.Manifest.Load.Rate = 3
	if sec := byLoad([]Run{a, b}); len(sec.Figures) > 0 {
		t.Error("requests per second and requests in flight are on one axis")
	}
	a.Summary.Manifest.Load.Users, a.Summary.Manifest.Load.Rate = 5, 3
	b.Summary.Manifest.Load.Users = 10
	if sec := byLoad([]Run{a, b}); len(sec.Figures) == 0 || sec.Figures[0].Charts[0].Series[0].Labels[1] != "10 users" {
		t.Errorf("users make no sweep: %+v", sec)
	}
}

// TestPageIsUsableByAll checks what a reader needs who does not see the
// charts, has no mouse, or no network.
func TestPageIsUsableByAll(t *testing.T) {
	page := render(t, demo(t, 400, 16))
	ids := map[string]bool{}
	level := 1
	for _, e := range elements(t, page) {
		if id := e.attrs["id"]; id != "" {
			if ids[id] {
				t.Errorf("two elements have the id %q", id)
			}
			ids[id] = true
		}
		switch e.name {
		case "h1", "h2", "h3":
			if next := int(e.name[1] - '0'); next > level+1 {
				t.Errorf("heading %q skips a level", e.text)
			} else {
				level = next
			}
		case "th":
			if e.attrs["scope"] == "" {
				t.Errorf("table heading %q has no scope", e.text)
			}
		case "link", "img", "script", "iframe":
			if ref := e.attrs["href"] + e.attrs["src"]; ref != "data:," {
				t.Errorf("<%s> fetches %q", e.name, ref)
			}
		case "svg":
			if e.attrs["role"] == "img" && e.attrs["aria-label"] == "" {
				t.Error("a drawing says nothing to those who do not see it")
			}
		case "div":
			if e.attrs["data-chart"] != "" && (e.attrs["tabindex"] != "0" || len(e.attrs["aria-label"]) < 40 || e.attrs["role"] == "") {
				t.Errorf("chart %s cannot be reached or says nothing: %v", e.attrs["data-chart"], e.attrs)
			}
			if e.attrs["class"] == "scroll" && e.attrs["tabindex"] != "0" {
				t.Error("a wide table cannot be scrolled with the keyboard")
			}
		}
	}
	for _, e := range elements(t, page) {
		if e.name == "a" && !ids[strings.TrimPrefix(e.attrs["href"], "#")] {
			t.Errorf("the link %q leads nowhere", e.attrs["href"])
		}
		if by := e.attrs["aria-labelledby"]; by != "" && !ids[by] {
			t.Errorf("nothing has the id %q", by)
		}
	}
}

// TestHostileStringsStayText: the page with attacks has the elements and
// attributes of one without, and its data is as long as it seems.
func TestHostileStringsStayText(t *testing.T) {
	other := hostile(t)
	other.Group, other.Summary.Manifest.Load.Concurrency = attack, 3 // a sweep
	page := render(t, hostile(t), other) + render(t, hostile(t))
	known := map[string]bool{}
	for _, e := range elements(t, render(t, demo(t, 400, 16))+render(t, demo(t, 50, 2), demo(t, 50, 4))) {
		known[e.name] = true
	}
	for _, e := range elements(t, page) {
		if !known[e.name] {
			t.Errorf("there is a new element <%s>", e.name)
		}
		for a := range e.attrs {
			if strings.HasPrefix(a, "on") {
				t.Errorf("<%s> has %s", e.name, a)
			}
		}
	}
	if strings.Contains(page, "<script>document") || strings.Contains(page, "<img") {
		t.Error("an attack is on the page as it was written")
	}
	if n := strings.Count(page, "<script"); n != 6 {
		t.Errorf("%d scripts", n)
	}
	if !strings.Contains(page, "&lt;img src=x onerror=alert(1)&gt;") {
		t.Error("what was said is not shown")
	}
	for _, c := range chartsOf(t, page) {
		if c.points() == 0 {
			t.Errorf("chart %s has no data", c.ID)
		}
	}
}

func TestPolicyNamesTheScripts(t *testing.T) {
	page := render(t, demo(t, 20, 2))
	n := 0
	for _, m := range scripts.FindAllStringSubmatch(page, -1) {
		if m[1] == "" || strings.HasPrefix(m[1], "[") {
			continue // style or data
		}
		n++
		if hash := strings.ReplaceAll(hashOf(m[1]), "+", "&#43;"); !strings.Contains(page, strings.ReplaceAll(hash, "'", "&#39;")) {
			t.Errorf("the policy does not name the script with hash %s", hash)
		}
	}
	if n != 2 {
		t.Errorf("%d scripts", n)
	}
}

func TestAssetsAreAsReleased(t *testing.T) {
	versions, err := assets.ReadFile("assets/VERSIONS")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"uPlot.iife.min.js", "uPlot.min.css", "LICENSE"} {
		b, err := assets.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		if line := hex.EncodeToString(sum[:]) + "  " + name + "\n"; !strings.Contains(string(versions), line) {
			t.Errorf("VERSIONS lacks %q: the file was changed", line)
		}
	}
}

// TestOrderOfRecords: the file is in the order in which requests ended; the
// page must not depend on it.
func TestOrderOfRecords(t *testing.T) {
	m := manifest(16)
	recs := closedLoop(300, 16, 20, 5)
	forth := render(t, summarize(t, m, recs, nil))
	back := slices.Clone(recs)
	slices.Reverse(back)
	if got := render(t, summarize(t, m, back, nil)); got != forth {
		t.Error(cmp.Diff(outlineOf(t, forth), outlineOf(t, got)))
	}
}

// TestViewAndSummaryCountAlike: warmup, cancelled, unsent and late requests
// enter neither.
func TestViewAndSummaryCountAlike(t *testing.T) {
	m := manifest(4)
	m.Load.Duration, m.Load.Grace = 2*time.Second, time.Second
	recs := closedLoop(200, 4, 20, 5)
	for i, r := range recs {
		switch i % 10 {
		case 0:
			r.Phase = record.PhaseWarmup
		case 1:
			r.Outcome = record.Cancelled
		case 2:
			r.Outcome, r.Start, r.Chunks = record.Dropped, record.Unset, nil
		case 3:
			r.Streamed = false
		}
	}
	run := summarize(t, m, recs, nil)
	if run.Summary.Counts.Excluded == 0 || run.Summary.Counts.Valid == 0 {
		t.Fatalf("the run shows nothing: %+v", run.Summary.Counts)
	}
	for _, d := range distributions {
		want := int64(0)
		if r, ok := run.Summary.Metric(d.tag); ok {
			want = r.Statistic.Count
		}
		var inBars int64
		if first, last, ok := d.bins(run.View).extent(); ok {
			for _, b := range d.bins(run.View).bars(first, last, 60) {
				inBars += b.count
			}
		}
		inBars += d.bins(run.View).none()
		if got := d.bins(run.View).n; got != want || inBars != want || want == 0 {
			t.Errorf("%s: %d in the view, %d in its bars, %d in the summary", d.tag, got, inBars, want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := record.Dir(t.TempDir() + "/run")
	if _, err := Load(dir); !errors.Is(err, record.ErrNoRun) {
		t.Errorf("no directory: %v", err)
	}
	w, err := func() (*record.Writer, error) {
		if err := errors.Join(dir.Create(), dir.WriteManifest(manifest(4))); err != nil {
			return nil, err
		}
		return dir.NewWriter()
	}()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range closedLoop(50, 4, 20, 1) {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(dir.Path(record.RecordsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"id":51,"phase":"meas`)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := report.Load(dir, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if page := render(t, Run{Summary: s, View: v}); !strings.Contains(page, "1 lines of the records file could not be read") || v.ttft.n == 0 {
		t.Error("a run with a cut line is not reported as far as it goes")
	}
}

func TestWriteOfNone(t *testing.T) {
	if err := Write(io.Discard); err == nil {
		t.Error("a page of no run")
	}
}

// TestLargeRun: a page of 100 000 requests stays below 2 MB.
func TestLargeRun(t *testing.T) {
	const n = 100_000
	m := manifest(32)
	recs := closedLoop(n, 32, 12, 9)
	s, err := report.Summarize(m, sequence(recs), nil, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	v, err := NewView(m, sequence(recs), samplesFor(recs))
	if err != nil {
		t.Fatal(err)
	}
	viewed := time.Since(begin)
	begin = time.Now()
	page := render(t, Run{Summary: s, View: v})
	t.Logf("%d requests: view %v, page written twice %v, %d bytes", n, viewed, time.Since(begin), len(page))
	const most = 2_000_000
	if len(page) > most {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, c := range chartsOf(t, page) {
		if c.points() == 0 || c.points() > 3*cloudPoints {
			t.Errorf("chart %s has %d points", c.ID, c.points())
		}
	}
}

// A step of a histogram goes on from its x: the first bar is not lost, and the
// last one ends.
func TestStepsSpanTheirBins(t *testing.T) {
	for _, d := range distributions {
		one, ok := histogramChart([]Run{demo(t, 200, 4)}, d)
		several, ok2 := histogramChart([]Run{named("a", demo(t, 200, 4)), named("b", demo(t, 200, 4))}, d)
		if !ok || !ok2 {
			t.Fatalf("no histogram of %s", d.tag)
		}
		middles, edges := one.Series[0], several.Series[0]
		n := len(middles.X)
		if len(edges.X) != n+1 || edges.Y[n] != 0 {
			t.Fatalf("%s: %d bars are %d steps, the last %v high", d.tag, n, len(edges.X), edges.Y[n])
		}
		sum := 0.0
		for i, x := range middles.X {
			if x <= edges.X[i] || x >= edges.X[i+1] {
				t.Errorf("%s: the bar at %v lies outside of its step from %v to %v", d.tag, x, edges.X[i], edges.X[i+1])
			}
			sum += float64(edges.Y[i])
		}
		if sum < 99.9 && d.tag != "inter_chunk_latency" || sum > 100.1 {
			t.Errorf("%s: the steps are %v %% together", d.tag, sum)
		}
	}
}
