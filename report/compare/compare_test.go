package compare

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/slo"
)

func compared(t *testing.T, a, b Side, opt Options) *Comparison {
	t.Helper()
	c, err := Compare(a, b, opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Comparison) at(t *testing.T, metric, stat string) Figure {
	t.Helper()
	for _, f := range c.Figures {
		if f.Metric == metric && f.Stat == stat {
			return f
		}
	}
	t.Fatalf("no figure %s.%s", metric, stat)
	return Figure{}
}

// TestDirection: worse is slower for a latency and less for a throughput, and
// the interval holds what was put in.
func TestDirection(t *testing.T) {
	if raceDetector {
		t.Skip("arithmetic of one goroutine, twenty times as slow")
	}
	base := usual()
	for _, test := range []struct {
		name         string
		b            server
		ttft, tokens Verdict
		change       float64
	}{
		{"equal", usual(), Alike, Alike, 0},
		{"slower", server{ttft: 1.2, itl: 1.2}, Worse, Worse, 0.2},
		{"faster", server{ttft: 0.8, itl: 0.8}, Better, Better, -0.2},
		{"only the first token", server{ttft: 1.2, itl: 1}, Worse, Alike, 0.2},
	} {
		c := compared(t, base.side("a", 2000, 1), test.b.side("b", 2000, 2), Options{})
		ttft, tokens := c.at(t, "time_to_first_token", "p50"), c.at(t, tokenRate, "")
		if ttft.Verdict != test.ttft || tokens.Verdict != test.tokens {
			t.Errorf("%s: TTFT %s, throughput %s; want %s, %s\n%s\n%s", test.name, ttft.Verdict, tokens.Verdict, test.ttft, test.tokens, ttft.Text(), tokens.Text())
		}
		if i := ttft.Interval; i == nil || i.Low > test.change || i.High < test.change {
			t.Errorf("%s: the interval %v does not hold %v", test.name, i, test.change)
		}
		if test.name == "slower" && *tokens.Change > -0.1 {
			t.Errorf("%s: throughput changes by %v", test.name, *tokens.Change)
		}
	}
}

// TestFewSamples: a percentile that hangs on a few values has no verdict, however
// large its change.
func TestFewSamples(t *testing.T) {
	c := compared(t, usual().side("a", 200, 1), server{ttft: 3, itl: 1}.side("b", 200, 2), Options{})
	f := c.at(t, "time_to_first_token", "p99")
	if f.Verdict != CannotTell || !slices.Contains(f.Reasons, FewSamples) || f.Interval != nil || f.More == nil || f.More.Requests != 800 {
		t.Errorf("%+v", f)
	}
	if f := c.at(t, "time_to_first_token", "p50"); f.Verdict != Worse {
		t.Errorf("p50: %s", f.Text())
	}
}

// TestFloor: half a millisecond is nothing, whatever share it is.
func TestFloor(t *testing.T) {
	a, b := usual().side("a", 2000, 1), server{ttft: 1.2, itl: 1}.side("b", 2000, 2)
	for _, test := range []struct {
		floor float64
		want  Outcome
	}{{0, Regression}, {80, Pass}} {
		g, err := Gate(b, &a, Budget{Rules: []Rule{{Metric: "time_to_first_token", Stat: "p50", Margin: 0.05, Floor: test.floor}}})
		if err != nil || g.Outcome != test.want {
			t.Errorf("floor %v ms: %v, %v; want %s", test.floor, g.Checks, err, test.want)
		}
	}
}

// TestDoubts: a speed gain with shorter answers or more failures is no gain.
func TestDoubts(t *testing.T) {
	fast := server{ttft: 0.8, itl: 0.8}
	short, failing := fast, fast
	short.outputShare, failing.failures = 0.97, 0.06
	for _, test := range []struct {
		name  string
		b     server
		doubt string
	}{{"fair", fast, ""}, {"short", short, "shorter"}, {"failing", failing, "fail"}} {
		c := compared(t, usual().side("a", 600, 1), test.b.side("b", 600, 2), Options{})
		f := c.at(t, "request_latency", "p50")
		if f.Verdict != Better || (test.doubt == "") != (len(f.Doubts) == 0) || !strings.Contains(strings.Join(f.Doubts, " "), test.doubt) {
			t.Errorf("%s: %s", test.name, f.Text())
		}
		if celebrated := strings.Contains(c.Headline, "is better"); celebrated != (test.doubt == "") {
			t.Errorf("%s: headline %q", test.name, c.Headline)
		}
	}
	c := compared(t, usual().side("a", 600, 1), failing.side("b", 600, 2), Options{})
	if f := c.at(t, errorRate, ""); f.Verdict != Worse || *f.Change < 3 || *f.Change > 9 || f.Interval.Low > *f.Change || f.Interval.High < *f.Change {
		t.Errorf("errors: %s", f.Text())
	}
}

// TestDisqualifying changes one thing after the other: each must block, be
// allowed by its name, and where it is a condition be intended by its name.
func TestDisqualifying(t *testing.T) {
	declare := func(name, value string) func(*Run) {
		return func(r *Run) {
			r.Manifest.Conditions = append(r.Manifest.Conditions, record.Condition{Name: name, Value: value, Source: "declared"})
		}
	}
	both := map[string]func(*Run){} // what side A has
	for _, name := range []string{"model_revision", "precision", "tokenizer", "chat_template", "speculative_method", "prefix_cache"} {
		both[name] = declare(name, "one")
	}
	rate, mean := 0.1, 100.0
	both["cache_hit_rate"] = func(r *Run) { r.Cache = &report.Cache{HitRate: &rate} }
	both["cache_hit_rate by the server"] = func(r *Run) { r.Cache = &report.Cache{Server: &rate} }
	form := func(changed ...string) func(*Run) {
		return func(r *Run) {
			r.Manifest.Config = map[string]json.RawMessage{"exact-output": []byte("true"), "response-format": []byte(`""`), "per-chunk-usage": []byte("false"), "osl": []byte("64")}
			for i := 0; i < len(changed); i += 2 {
				r.Manifest.Config[changed[i]] = []byte(changed[i+1])
			}
		}
	}
	for _, name := range []string{"output_form", "output_form of a schema", "output_form in chunks"} {
		both[name] = form()
	}
	both["asked_output_length"] = func(r *Run) { r.Lengths = &report.Lengths{AskedOutput: &mean} }
	both["sampling"] = func(r *Run) { r.Manifest.Config = map[string]json.RawMessage{"extra-inputs": []byte(`[]`)} }
	more, other := 0.2, 106.0
	for _, test := range []struct {
		name   string
		change func(*Run)
	}{
		{"model", func(r *Run) { r.Manifest.Target.Model = "n" }},
		{"model_revision", declare("model_revision", "two")},
		{"precision", declare("precision", "two")},
		{"tokenizer", declare("tokenizer", "two")},
		{"chat_template", declare("chat_template", "two")},
		{"speculative_method", declare("speculative_method", "two")},
		{"prefix_cache", declare("prefix_cache", "two")},
		{"endpoint_type", func(r *Run) { r.Manifest.Target.EndpointType = "completions" }},
		{"streaming", func(r *Run) { r.Manifest.Target.Streaming = false }},
		{"workload", func(r *Run) { r.Manifest.WorkloadHash = "def" }},
		{"asked_output_length", func(r *Run) { r.Lengths = &report.Lengths{AskedOutput: &other} }},
		{"output_length", func(r *Run) { r.values[outputMean]["avg"] *= 1.06 }},
		{"cache_mode", func(r *Run) { r.Manifest.Cache.Mode = record.CacheAsIs }},
		{"cache_hit_rate", func(r *Run) { r.Cache = &report.Cache{HitRate: &more} }},
		{"cache_hit_rate by the server", func(r *Run) { r.Cache = &report.Cache{Server: &more} }},
		{"output_form", form("exact-output", "false")},
		{"output_form of a schema", form("response-format", `"some/schema.json"`)},
		{"output_form in chunks", form("per-chunk-usage", "true")},
		{"concurrency", func(r *Run) { r.Manifest.Load.Concurrency = 64 }},
		{"request_rate", func(r *Run) { r.Manifest.Load.Rate = 4 }},
		{"num_users", func(r *Run) { r.Manifest.Load.Users = 4 }},
		{"arrivals", func(r *Run) { r.Manifest.Load.Arrival = "poisson" }},
		{"sampling", func(r *Run) {
			r.Manifest.Config = map[string]json.RawMessage{"extra-inputs": []byte(`["temperature:1"]`)}
		}},
		{"dropped_fields", func(r *Run) { r.Manifest.Dropped = []record.DroppedField{{Field: "min_tokens"}} }},
		{"token_source", func(r *Run) { r.Tokens[0].Source = record.SourceTokenizer }},
		{"tool_version", func(r *Run) { r.Manifest.Tool.Version = "v2.0.1" }},
		{partialRun, func(r *Run) { r.Partial, r.Manifest.Outcome = true, record.RunInterrupted }},
		{notValid, func(r *Run) {
			r.Verdict.Level = report.Invalid
			r.Warnings = []report.Warning{{Code: report.AllFailed, Effect: report.Invalid}}
		}},
		{clientLimited, func(r *Run) {
			r.Verdict.Level = report.Invalid
			r.Warnings = []report.Warning{{Code: report.ClientLate, Effect: report.Invalid}}
		}},
		{saltReuse, func(r *Run) { r.Manifest.Salt = "run-1" }},
	} {
		a, b := usual().side("a", 60, 1), usual().side("b", 60, 2)
		if set := both[test.name]; set != nil {
			set(a.Runs[0])
			if !strings.Contains(test.name, "_length") && test.name != "cache_hit_rate" && test.name != "sampling" {
				b.Runs[0].Manifest.Conditions = nil
			}
		}
		test.name, _, _ = strings.Cut(test.name, " ") // the condition
		test.change(b.Runs[0])
		c := compared(t, a, b, Options{})
		if !slices.Equal(c.Blocked, []string{test.name}) || len(c.Figures) > 0 {
			t.Errorf("%s: blocked by %v", test.name, c.Blocked)
		}
		c = compared(t, a, b, Options{Allow: []string{test.name}})
		if len(c.Blocked) > 0 || len(c.Figures) == 0 || !slices.Equal(c.Allowed, []string{test.name}) {
			t.Errorf("%s allowed: %v", test.name, c.Blocked)
		}
		for what, write := range map[string]func(*bytes.Buffer) error{
			"text":     func(b *bytes.Buffer) error { return c.WriteText(b) },
			"markdown": func(b *bytes.Buffer) error { return c.WriteMarkdown(b) },
		} {
			var out bytes.Buffer
			if err := write(&out); err != nil || !strings.Contains(out.String(), "OVERRIDDEN") {
				t.Errorf("%s: the %s does not say that it was allowed: %v", test.name, what, err)
			}
		}
		single := test.name == partialRun || test.name == notValid || test.name == clientLimited || test.name == saltReuse
		c = compared(t, a, b, Options{Vary: []string{test.name}})
		if blocked := len(c.Blocked) > 0; blocked != single {
			t.Errorf("%s to vary: blocked by %v", test.name, c.Blocked)
		}
	}
}

// TestHarmless: what cannot spoil a comparison does not block it, and what
// nobody knows is said.
func TestHarmless(t *testing.T) {
	a, b := usual().side("a", 400, 1), usual().side("b", 400, 2)
	m := b.Runs[0].Manifest
	m.Conditions = []record.Condition{{Name: "engine_version", Value: "1.2", Source: "probed"}}
	a.Runs[0].Manifest.Conditions = []record.Condition{{Name: "engine_version", Value: "1.1", Source: "probed"}}
	m.Target.URL, m.Tool.Version, m.Load.Requests = "http://other/", "v1.9.0", 9
	b.Runs[0].values["input_sequence_length"], a.Runs[0].values["input_sequence_length"] = map[string]float64{"avg": 104}, map[string]float64{"avg": 100}
	kinds := func(opt Options) map[string]Kind {
		c := compared(t, a, b, opt)
		if len(c.Blocked) > 0 {
			t.Errorf("blocked by %v", c.Blocked)
		}
		out := map[string]Kind{}
		for _, k := range c.Conditions {
			out[k.Name] = k.Kind
		}
		return out
	}
	got := kinds(Options{})
	for name, want := range map[string]Kind{
		"engine_version": Harmless, "server": Harmless, "tool_version": Same, "request_count": Harmless, "input_length": Same,
		"precision": Unknown, "chat_template": Unknown, saltReuse: Same,
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if got := kinds(Options{Vary: []string{"version"}}); got["engine_version"] != Intended {
		t.Errorf("engine_version to vary is %q", got["engine_version"])
	}
	c := compared(t, a, b, Options{})
	var out bytes.Buffer
	if err := c.WriteText(&out); err != nil || !strings.Contains(out.String(), "Unknown on both sides, and asked for: model_revision, precision") {
		t.Errorf("unknown conditions are not asked for: %v\n%s", err, &out)
	}
	if _, err := Compare(a, b, Options{Vary: []string{"engin"}}); err == nil {
		t.Error("a condition that does not exist may vary")
	}
}

func TestSaltReuse(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*record.Manifest)
		reused bool
	}{
		{"one server", func(*record.Manifest) {}, true},
		{"two servers", func(m *record.Manifest) { m.Target.URL = "http://other" }, false},
		{"warm on purpose", func(m *record.Manifest) { m.Cache.Mode = record.CacheWarm }, false},
		{"started again", func(m *record.Manifest) {
			m.Conditions = []record.Condition{{Name: "process_start", Value: "2"}}
		}, false},
		{"no salt", func(m *record.Manifest) { m.Salt = "" }, false},
	} {
		a, b := usual().side("a", 50, 1), usual().side("b", 50, 2)
		b.Runs[0].Manifest.Salt = a.Runs[0].Manifest.Salt
		test.change(b.Runs[0].Manifest)
		c := compared(t, a, b, Options{Allow: []string{"cache_mode"}})
		if got := slices.Contains(c.Blocked, saltReuse); got != test.reused {
			t.Errorf("%s: blocked by %v", test.name, c.Blocked)
		}
	}
}

func TestRepeats(t *testing.T) {
	if raceDetector {
		t.Skip("arithmetic of one goroutine, twenty times as slow")
	}
	base, slow := usual(), server{ttft: 1.1, itl: 1.1}
	base.runSpread, slow.runSpread = 0.005, 0.005
	c := compared(t, base.side("a", 1000, 1, 2, 3, 4, 5), slow.side("b", 1000, 6, 7, 8, 9, 10), Options{})
	f := c.at(t, "request_latency", "p50")
	if f.Verdict != Worse || !f.Runs || f.UTest == nil || *f.UTest > 0.05 || f.Interval.Low > 0.1 || f.Interval.High < 0.1 {
		t.Errorf("%s, %+v", f.Text(), f)
	}
	// Two against one are too few to compare runs: the last ones are compared.
	c = compared(t, base.side("a", 1000, 1, 2), slow.side("b", 1000, 6), Options{})
	if f := c.at(t, "request_latency", "p50"); f.Runs || f.Verdict != Worse || f.CountA != 1000 {
		t.Errorf("%s, %+v", f.Text(), f)
	}
	// One against five is compared with the spread of the five.
	c = compared(t, base.side("a", 1000, 1, 2, 3, 4, 5), slow.side("b", 1000, 6), Options{})
	if f := c.at(t, "request_latency", "p50"); !f.Runs || f.Verdict != Worse || f.UTest != nil {
		t.Errorf("%s, %+v", f.Text(), f)
	}
	// A figure that one of the runs lacks has no mean of the others.
	b := slow.side("b", 1000, 6, 7)
	delete(b.Runs[0].values, "request_latency")
	c = compared(t, base.side("a", 1000, 1, 2), b, Options{})
	if f := c.at(t, "request_latency", "p50"); f.B != nil || !slices.Contains(f.Reasons, Missing) {
		t.Errorf("%+v", f)
	}
}

// TestRunsRatio: the interval of A/B is that of B/A turned over, and holds the
// ratio of the means.
func TestRunsRatio(t *testing.T) {
	value := rapid.Float64Range(0.1, 1000)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(value, 1, 6).Draw(t, "a"), rapid.SliceOfN(value, 2, 6).Draw(t, "b")
		i, ok := runsRatio(a, b, 0.95)
		j, ok2 := runsRatio(b, a, 0.95)
		ratio := geometricMean(b) / geometricMean(a)
		if !ok || !ok2 || i.Low > ratio*(1+1e-9) || i.High < ratio*(1-1e-9) || math.Abs(i.Low*j.High-1) > 1e-6 {
			t.Errorf("%v and %v: %v, %v, ratio %v", a, b, i, j, ratio)
		}
	})
	if _, ok := runsRatio([]float64{1}, []float64{2}, 0.95); ok {
		t.Error("one run a side has an interval")
	}
}

func TestWilson(t *testing.T) {
	// By hand: 10 of 100 at 0.95.
	if low, high := wilson(0.1, 100, 0.95); math.Abs(low-0.0552) > 1e-4 || math.Abs(high-0.1744) > 1e-4 {
		t.Errorf("10 of 100: [%v, %v]", low, high)
	}
	if low, high := wilson(0, 100, 0.95); low != 0 || math.Abs(high-0.0370) > 1e-4 {
		t.Errorf("0 of 100: [%v, %v]", low, high)
	}
}

func TestGate(t *testing.T) {
	a := usual().side("a", 1500, 1)
	equal, slow := usual().side("b", 1500, 2), server{ttft: 1.1, itl: 1.1}.side("b", 1500, 2)
	few := usual().side("b", 300, 2)
	broken := usual().side("b", 1500, 2)
	broken.Runs[0].Manifest.Target.Model = "n"
	invalid := usual().side("b", 1500, 2)
	invalid.Runs[0].Verdict.Level = report.Invalid
	good := usual().side("b", 1500, 2)
	good.Runs[0].values["good_request_fraction"] = map[string]float64{"": 0.99}
	objective := func(text string) Budget {
		o, err := slo.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return Budget{Objectives: o}
	}
	for _, test := range []struct {
		name      string
		candidate Side
		baseline  *Side
		budget    Budget
		want      Outcome
		requests  bool // it says how many more
	}{
		{"equal", equal, &a, DefaultBudget(), Pass, false},
		{"slow", slow, &a, DefaultBudget(), Regression, false},
		{"few", few, &a, DefaultBudget(), Inconclusive, true},
		{"another model", broken, &a, DefaultBudget(), NotValid, false},
		{"invalid", invalid, nil, objective("request_latency.p50 < 100s"), NotValid, false},
		{"no baseline", equal, nil, DefaultBudget(), Inconclusive, false},
		{"objective kept", equal, nil, objective("time_to_first_token.p99 < 2s"), Pass, false},
		{"objective broken", equal, nil, objective("time_to_first_token.p99 < 100ms"), Regression, false},
		{"objective open", equal, nil, objective("time_to_first_token.p50 < 202ms"), Inconclusive, true},
		{"objective of too few", few, nil, objective("time_to_first_token.p99 < 2s"), Inconclusive, true},
		{"throughput kept", equal, nil, objective("output_token_throughput > 1000"), Pass, false},
		{"throughput broken", equal, nil, objective("output_token_throughput > 100000 tok/s"), Regression, false},
		{"no errors", equal, nil, objective("request_error_rate < 1%"), Pass, false},
		{"the greatest value, which has no interval", equal, nil, objective("time_to_first_token.max < 60s"), Pass, false},
		{"good requests", good, nil, objective("goodput > 97%"), Pass, false},
		{"hardly enough good requests", good, nil, objective("goodput > 98.9%"), Inconclusive, true},
		{"too few good requests", good, nil, objective("goodput > 0.999"), Regression, false},
		{"no such figure", equal, nil, objective("time_to_first_output_token.p50 < 1s"), Inconclusive, false},
	} {
		g, err := Gate(test.candidate, test.baseline, test.budget)
		if err != nil {
			t.Fatal(err)
		}
		if g.Outcome != test.want || (g.More != nil && g.More.Requests > 0) != test.requests {
			t.Errorf("%s: %s, more %+v; want %s\n%+v", test.name, g.Outcome, g.More, test.want, g.Checks)
		}
	}
	if _, err := Gate(equal, &a, Budget{Rules: []Rule{{Metric: "ttft"}}}); err == nil {
		t.Error("a budget with an unknown metric")
	}
}

// TestMoreIsEnough: a gate that is given as many requests as it asked for is
// decided, more often than not.
func TestMoreIsEnough(t *testing.T) {
	budget := Budget{Rules: []Rule{{Metric: "time_to_first_token", Stat: "p50", Margin: 0.05}}}
	decided, asked := 0, 0
	for seed := range uint64(20) {
		a, b := usual().side("a", 500, 2*seed), usual().side("b", 500, 2*seed+1)
		g, err := Gate(b, &a, budget)
		if err != nil {
			t.Fatal(err)
		}
		if g.More == nil || g.More.Requests > 5000 {
			continue
		}
		asked++
		n := 500 + int(g.More.Requests)
		a, b = usual().side("a", n, 2*seed+100), usual().side("b", n, 2*seed+101)
		if g, err = Gate(b, &a, budget); err != nil {
			t.Fatal(err)
		}
		if g.Outcome == Pass {
			decided++
		}
	}
	if asked < 3 || 2*decided < asked {
		t.Errorf("%d gates asked for more requests, %d were decided with them", asked, decided)
	}
}

// sweep has points with exactly these figures: load, speed, throughput.
func sweep(points ...[3]float64) Side {
	out := Side{Name: "sweep"}
	for i, p := range points {
		r := usual().run(400, uint64(i+1))
		r.Manifest.Load.Concurrency = int(p[0])
		scale := func(tag, stat string, to float64) {
			from := r.values[tag][stat]
			r.values[tag][stat] = to
			for k := range r.series[tag] {
				r.series[tag][k] *= to / from
			}
		}
		scale("output_token_throughput_per_user", "p50", p[1])
		scale(tokenRate, "", p[2])
		out.Runs = append(out.Runs, r)
	}
	return out
}

func TestCurves(t *testing.T) {
	a := sweep([3]float64{4, 100, 400}, [3]float64{16, 50, 800}, [3]float64{64, 25, 1600}, [3]float64{128, 20, 900}) // the last one is beaten
	b := sweep([3]float64{4, 110, 440}, [3]float64{16, 60, 960}, [3]float64{64, 30, 1920})
	for i := range b.Runs {
		b.Runs[i].Manifest.Salt += "b"
	}
	for _, test := range []struct {
		by     string
		at     float64
		a, b   float64
		beyond bool
	}{
		{by: BySpeed, at: 50, a: 800, b: 1152}, // on B: 30 and 60 with 1920 and 960
		{by: BySpeed, at: 35.36, a: 1131, b: 1629},
		{by: BySpeed, at: 22, beyond: true},  // B has no such point; and A's beaten one does not count
		{by: BySpeed, at: 105, beyond: true}, // A is never that fast
		{by: ByLoad, at: 16, a: 800, b: 960},
		{by: ByLoad, at: 32, a: 1131, b: 1358},
		{by: ByLoad, at: 256, beyond: true},
	} {
		c, err := Curves(a, b, Curve{By: test.by, At: []float64{test.at}}, Options{})
		if err != nil || len(c.Blocked) > 0 {
			t.Fatal(err, c.Blocked)
		}
		m := c.Curve[0]
		if test.beyond {
			if m.Change != nil || m.Interval != nil || !strings.Contains(m.Reason, "nothing is extrapolated") {
				t.Errorf("%s %v: %s", test.by, test.at, m.Text())
			}
			continue
		}
		if m.A == nil || m.B == nil || math.Abs(*m.A/test.a-1) > 0.002 || math.Abs(*m.B/test.b-1) > 0.002 {
			t.Errorf("%s %v: A %v, B %v; want %v, %v", test.by, test.at, *m.A, *m.B, test.a, test.b)
			continue
		}
		want := test.b/test.a - 1
		if m.Interval == nil || m.Interval.Low > want || m.Interval.High < want || test.by == BySpeed && m.Verdict != Better {
			t.Errorf("%s %v: %s", test.by, test.at, m.Text())
		}
	}
	if _, err := Curves(a, b, Curve{By: "size", At: []float64{1}}, Options{}); err == nil {
		t.Error("curves by nothing known")
	}
	c, err := Curves(a, b, Curve{By: BySpeed, At: []float64{50}}, Options{})
	if err != nil || !strings.HasPrefix(c.Headline, "at 50 tok/s/user: B +44 % [+") {
		t.Errorf("%q, %v", c.Headline, err)
	}
}

// directory writes a run of real records.
func directory(t *testing.T, id string, n int, slower float64) record.Dir {
	t.Helper()
	dir := record.Dir(filepath.Join(t.TempDir(), id))
	if err := dir.Create(); err != nil {
		t.Fatal(err)
	}
	w, err := dir.NewWriter()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r := record.New(record.PhaseMeasure, int64(i))
		start := record.Time(i * 25e6)
		ttft := record.Time(slower * float64(100e6+(i*7919%1000)*20e3))
		r.Outcome, r.Streaming, r.Streamed, r.Done, r.FinishReasons = record.OK, true, true, true, []string{"stop"}
		r.Start, r.Written, r.FirstByte, r.End = start, start, start+ttft, start+ttft+1e9
		r.Chunks = record.Chunks{{At: start + ttft, Tokens: 1, Kind: record.KindText}, {At: start + ttft + 1e9, Tokens: 50, Kind: record.KindText}}
		r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 10, Output: 51, Reasoning: 0, Cached: 0}
		if i%50 == 49 {
			r.Outcome, r.Chunks = record.ServerError, nil
		}
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	m := manifest(id)
	m.Schema = record.ManifestSchema
	if err := errors.Join(w.Close(), dir.WriteManifest(m)); err != nil {
		t.Fatal(err)
	}
	s, err := report.Load(dir, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	js, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.WriteFile(record.SummaryJSONFile, js); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSummaryAlone: a summary has the figures of its directory and no
// intervals; what it does not say is unknown.
func TestSummaryAlone(t *testing.T) {
	dir := directory(t, "one", 500, 1)
	whole, err := Load(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	alone, err := Load(dir.Path(record.SummaryJSONFile))
	if err != nil {
		t.Fatal(err)
	}
	if !whole.Records || alone.Records || len(whole.failed) != 500 || whole.Counts.Failed != 10 || alone.Counts != whole.Counts {
		t.Errorf("%+v\n%+v", whole.Counts, alone.Counts)
	}
	seen := 0
	for tag, values := range whole.values {
		for stat, v := range values {
			got, ok := alone.value(tag, stat)
			if !ok || math.Abs(got-v) > 1e-9*math.Abs(v) {
				t.Errorf("%s.%s = %v in the summary, %v in the directory", tag, stat, got, v)
			}
			seen++
		}
	}
	if seen < 100 {
		t.Errorf("only %d figures", seen)
	}
	// The mean of a throughput's parts is the throughput.
	for _, tag := range []string{requestRate, tokenRate} {
		var sum float64
		for _, v := range whole.series[tag] {
			sum += v
		}
		if mean, v := sum/float64(len(whole.series[tag])), whole.values[tag][""]; math.Abs(mean/v-1) > 1e-9 {
			t.Errorf("%s: the mean of the parts is %v, the figure %v", tag, mean, v)
		}
	}
	c := compared(t, Side{Name: "a", Runs: []*Run{alone}}, Side{Name: "b", Runs: []*Run{whole}}, Options{})
	if len(c.Blocked) > 0 {
		t.Fatal(c.Blocked)
	}
	if f := c.at(t, "time_to_first_token", "p50"); f.Interval != nil || !slices.Contains(f.Reasons, NoRecords) || *f.Change != 0 {
		t.Errorf("%+v", f)
	}
	if err := os.WriteFile(filepath.Join(t.TempDir(), "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{}", "[]", `{"schema":99,"target":{}}`} {
		file := filepath.Join(t.TempDir(), "summary.json")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err == nil {
			t.Errorf("%q is a summary", text)
		}
	}
	if _, err := LoadSide(t.TempDir()); !errors.Is(err, record.ErrNoRun) {
		t.Errorf("an empty directory: %v", err)
	}
	side, err := LoadSide(filepath.Dir(string(dir)))
	if err != nil || len(side.Runs) != 1 {
		t.Errorf("a directory of runs: %v, %v", side.Runs, err)
	}
}

func TestStore(t *testing.T) {
	store := Store(filepath.Join(t.TempDir(), "store"))
	if side, err := store.Last(3); err != nil || len(side.Runs) != 0 {
		t.Fatalf("no store: %v, %v", side, err)
	}
	for _, id := range []string{"one", "../two", "three"} {
		dir := directory(t, strings.TrimPrefix(id, "../"), 60, 1)
		r, err := Load(string(dir))
		if err != nil {
			t.Fatal(err)
		}
		r.Manifest.ID = id
		if _, err := store.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	side, err := store.Last(2)
	if err != nil || len(side.Runs) != 2 || side.Runs[0].Manifest.ID != "two" || side.Runs[1].Manifest.ID != "three" || !side.Runs[1].Records {
		t.Errorf("%+v, %v", side, err)
	}
	entries, err := os.ReadDir(string(store))
	if err != nil || len(entries) != 3 || entries[0].Name() != "000001-one" || strings.Contains(entries[1].Name(), "..") {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestHostileText: nothing that a server says can break an output.
func TestHostileText(t *testing.T) {
	const evil = "\x1b[31m|<script>alert(1)</script>\n::error::x\r\n`*_[x](http://y)"
	a, b := usual().side("a"+evil, 400, 1), usual().side("b"+evil, 400, 2)
	a.Runs[0].Manifest.Conditions = []record.Condition{{Name: "precision", Value: evil}}
	b.Runs[0].Manifest.Conditions = []record.Condition{{Name: "precision", Value: "fp8"}, {Name: evil, Value: evil}}
	g, err := Gate(b, &a, DefaultBudget())
	if err != nil || g.Outcome != NotValid {
		t.Fatal(g, err)
	}
	c := compared(t, a, b, Options{})
	for what, write := range map[string]func(*bytes.Buffer) error{
		"text":          func(b *bytes.Buffer) error { return c.WriteText(b) },
		"markdown":      func(b *bytes.Buffer) error { return c.WriteMarkdown(b) },
		"gate text":     func(b *bytes.Buffer) error { return g.WriteText(b) },
		"gate markdown": func(b *bytes.Buffer) error { return g.WriteMarkdown(b) },
		"GitHub":        func(b *bytes.Buffer) error { return g.WriteGitHub(b) },
		"JUnit":         func(b *bytes.Buffer) error { return g.WriteJUnit(b) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		s := out.String()
		if strings.ContainsAny(s, "\x1b\r") || strings.Contains(what, "markdown") && strings.Contains(s, "<script") || strings.Contains(s, "\n::error::x") {
			t.Errorf("%s:\n%s", what, s)
		}
		if what == "JUnit" {
			if err := xml.Unmarshal(out.Bytes(), new(junitSuite)); err != nil || strings.Contains(s, "<script") {
				t.Errorf("%v\n%s", err, s)
			}
		}
		for line := range strings.Lines(s) {
			if strings.Contains(what, "text") && len([]rune(line)) > textWidth+1 {
				t.Errorf("%s: a line of %d columns: %s", what, len([]rune(line)), line)
			}
		}
	}
}

// TestJSON: missing is null or absent, never a number.
func TestJSON(t *testing.T) {
	b := usual().side("b", 40, 2)
	b.Runs[0].values["time_to_first_token"]["p50"] = math.Inf(1)
	b.Runs[0].values["request_latency"]["p50"] = 0
	c := compared(t, usual().side("a", 40, 1), b, Options{})
	var out bytes.Buffer
	if err := c.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var doc struct{ Figures []map[string]any }
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range doc.Figures {
		switch name := f["metric"].(string); {
		case f["stat"] == "p99", f["stat"] == "p50" && (name == "time_to_first_token" || name == "request_latency"):
			if v, there := f["interval"]; v != nil || !there {
				t.Errorf("%s: interval %v, want null", name, v)
			}
			seen++
		}
		if f["metric"] == "time_to_first_token" && f["stat"] == "p50" && f["b"] != nil {
			t.Errorf("an infinite figure is written as %v", f["b"])
		}
	}
	if seen < 4 {
		t.Errorf("only %d figures without an interval", seen)
	}
}

// TestManyRequests: the short way for very many requests says the same.
func TestManyRequests(t *testing.T) {
	if raceDetector {
		t.Skip("arithmetic of one goroutine, twenty times as slow")
	}
	a, b := usual().side("a", 20_000, 1), server{ttft: 1.1, itl: 1}.side("b", 20_000, 2)
	c := &comparer{a: a, b: b, level: defaultLevel, rows: 8}
	if f := c.figure(Rule{Metric: "time_to_first_token", Stat: "p50", Margin: 0.05}); f.Verdict != Worse {
		t.Error(f.Text())
	}
	b = usual().side("b", 20_000, 2)
	c.b = b
	if f := c.figure(Rule{Metric: "time_to_first_token", Stat: "p50", Margin: 0.05}); f.Verdict != Alike {
		t.Error(f.Text())
	}
}
