package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/compare"
)

// caseComparison is an entry of run.compare in a case.
type caseComparison struct {
	ID        string `json:"id"`
	Baseline  string `json:"baseline"`
	Candidate string `json:"candidate"`
	Gates     []struct {
		Metric         string  `json:"metric"`
		Stat           string  `json:"stat"`
		MaxIncreasePct float64 `json:"max_increase_pct"`
	} `json:"gates"`
}

// caseExpectation is what a case expects of one comparison.
type caseExpectation struct {
	ID     string                        `json:"id"`
	Values map[string]map[string]float64 `json:"values"`
	// Verdicts have other names there: see caseVerdicts.
	Verdicts []struct {
		Metric     string   `json:"metric"`
		Stat       string   `json:"stat"`
		VerdictIn  []string `json:"verdict_in"`
		VerdictNot []string `json:"verdict_not"`
	} `json:"verdicts"`
	Warnings    []string `json:"warnings"`
	ExitCode    string   `json:"exit_code"`
	ExitCodeNot string   `json:"exit_code_not"`
}

// caseVerdicts are our verdicts by the names of the cases.
var caseVerdicts = map[string]compare.Verdict{
	"regression": compare.Worse, "improvement": compare.Better, "no_change": compare.Alike, "inconclusive": compare.CannotTell,
}

// caseMetrics are our metrics by the names of the cases.
var caseMetrics = map[string]string{"ttft_ms": "time_to_first_token", "e2e_ms": "request_latency"}

// gated is what a gate said of one comparison.
type gated struct {
	code   int
	output string
	result compare.GateResult
}

// checkComparisons runs a gate for each comparison of a case.
func (c *caseFile) checkComparisons(t *testing.T, dir string) {
	var comparisons []caseComparison
	if err := strictJSON(c.Run.Compare, &comparisons); err != nil {
		t.Fatal(err)
	}
	got := map[string]gated{}
	for _, cmp := range comparisons {
		work := t.TempDir()
		var budget strings.Builder
		budget.WriteString("regressions:\n")
		for _, g := range cmp.Gates {
			fmt.Fprintf(&budget, "  - metric: %s.%s\n    margin: %g%%\n", caseMetrics[g.Metric], g.Stat, g.MaxIncreasePct)
		}
		file := filepath.Join(work, "budget.yaml")
		if err := os.WriteFile(file, []byte(budget.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		base := neutralRun(t, filepath.Join(dir, cmp.Baseline), filepath.Join(work, "base"))
		cand := neutralRun(t, filepath.Join(dir, cmp.Candidate), filepath.Join(work, "cand"))
		out := filepath.Join(work, "gate.json")
		g := gated{}
		var stderr string
		g.code, g.output, stderr = program("", "gate", cand, "--baseline", base, "--budget", file, "--json", out)
		text, err := os.ReadFile(out)
		if err == nil {
			err = json.Unmarshal(text, &g.result)
		}
		if err != nil {
			t.Fatalf("exit code %d, %v, stderr: %s", g.code, err, stderr)
		}
		got[cmp.ID] = g
	}
	for _, problem := range comparisonProblems(got, c.Expect) {
		t.Error(problem)
	}
	if t.Failed() {
		for _, g := range got {
			t.Logf("exit code %d\n%s", g.code, g.output)
		}
		return
	}
	var doc any
	if err := json.Unmarshal(c.Expect, &doc); err != nil {
		t.Fatal(err)
	}
	mutate(doc, "", func(path string) {
		changed, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if len(comparisonProblems(got, changed)) == 0 {
			t.Errorf("the test does not notice a change of %s", path)
		}
	})
}

// comparisonProblems compares what gates said with what a case expects.
func comparisonProblems(got map[string]gated, expect json.RawMessage) (problems []string) {
	problem := func(format string, a ...any) { problems = append(problems, fmt.Sprintf(format, a...)) }
	var want struct {
		Compare []caseExpectation `json:"compare"`
	}
	if err := strictJSON(expect, &want); err != nil {
		problem("%v", err)
	}
	for _, w := range want.Compare {
		g, ok := got[w.ID]
		if !ok {
			problem("there is no comparison %q", w.ID)
			continue
		}
		figureOf := func(metric, stat string) compare.Figure {
			for _, f := range g.result.Figures {
				if f.Metric == caseMetrics[metric] && f.Stat == stat {
					return f
				}
			}
			problem("%s: there is no figure %s.%s", w.ID, metric, stat)
			return compare.Figure{}
		}
		for side, values := range w.Values {
			for name, v := range values {
				runs, pick := g.result.Candidate, func(f compare.Figure) *float64 { return f.B }
				switch {
				case side == "baseline" && g.result.Baseline != nil:
					runs, pick = *g.result.Baseline, func(f compare.Figure) *float64 { return f.A }
				case side != "candidate":
					problem("%s: there is no side %q", w.ID, side)
				}
				if name == "n" {
					if n := runs.Runs[0].Requests; float64(n) != v {
						problem("%s: %s has %d requests, want %v", w.ID, side, n, v)
					}
					continue
				}
				metric, stat, _ := strings.Cut(name, ".")
				if value := pick(figureOf(metric, stat)); value == nil || math.Abs(*value-v) > 1e-3 {
					problem("%s: %s of %s = %v, want %v", w.ID, name, side, value, v)
				}
			}
		}
		for _, v := range w.Verdicts {
			f := figureOf(v.Metric, v.Stat)
			in := func(names []string) bool {
				return slices.ContainsFunc(names, func(name string) bool {
					verdict, known := caseVerdicts[name]
					if !known {
						problem("%s: there is no verdict %q", w.ID, name)
					}
					return verdict == f.Verdict
				})
			}
			for _, name := range slices.Concat(v.VerdictIn, v.VerdictNot) {
				if _, known := caseVerdicts[name]; !known {
					problem("%s: there is no verdict %q", w.ID, name)
				}
			}
			if !in(v.VerdictIn) || in(v.VerdictNot) {
				problem("%s: %s.%s is %q, want one of %q", w.ID, v.Metric, v.Stat, f.Verdict, v.VerdictIn)
			}
		}
		for _, code := range w.Warnings {
			if !slices.ContainsFunc(g.result.Figures, func(f compare.Figure) bool { return slices.Contains(f.Reasons, code) }) {
				problem("%s: no figure is marked %s", w.ID, code)
			}
		}
		switch w.ExitCode {
		case "":
		case "nonzero":
			if g.code != exitGate {
				problem("%s: exit code %d", w.ID, g.code)
			}
		default:
			problem("%s: exit code %q is not known", w.ID, w.ExitCode)
		}
		switch w.ExitCodeNot {
		case "":
		case "regression":
			if g.code == exitGate {
				problem("%s: exit code %d", w.ID, g.code)
			}
		default:
			problem("%s: exit code %q is not known", w.ID, w.ExitCodeNot)
		}
	}
	return problems
}

// neutralRun turns the neutral records of a case into a run directory.
func neutralRun(t *testing.T, file, path string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var records []*record.Record
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var v struct {
			Start   float64        `json:"start_ms"`
			Outcome record.Outcome `json:"outcome"`
			TTFT    float64        `json:"ttft_ms"`
			E2E     float64        `json:"e2e_ms"`
			Input   record.Count   `json:"input_tokens"`
			Output  record.Count   `json:"output_tokens"`
		}
		if err := strictJSON([]byte(line), &v); err != nil {
			t.Fatalf("%s:%d: %v", file, i+1, err)
		}
		records = append(records, madeRecord(i, v.Start, v.TTFT, v.E2E, v.Input, v.Output))
	}
	return writeRun(t, path, madeManifest(filepath.Base(path)), records)
}

// madeRecord is a proper answer with its first and last event at these times.
func madeRecord(id int, start, ttft, e2e float64, input, output record.Count) *record.Record {
	at := func(ms float64) record.Time { return record.Time(math.Round(ms * 1e6)) }
	r := record.New(record.PhaseMeasure, int64(id))
	r.Outcome, r.Streaming, r.Streamed, r.Done, r.FinishReasons = record.OK, true, true, true, []string{"stop"}
	r.Due, r.Start, r.Written, r.FirstByte, r.End = at(start), at(start), at(start), at(start+ttft), at(start+e2e)
	r.Chunks = record.Chunks{
		{At: at(start + ttft), Tokens: record.UnknownTokens, Kind: record.KindText},
		{At: at(start + e2e), Tokens: record.UnknownTokens, Kind: record.KindText},
	}
	r.Tokens = record.Tokens{Source: record.SourceUsage, Input: input, Output: output, Reasoning: 0, Cached: 0}
	r.Usage = record.Usage{Prompt: input, Completion: output, Total: input + output, Reasoning: 0, Cached: 0}
	return r
}

func madeManifest(id string) *record.Manifest {
	return &record.Manifest{
		Schema: record.ManifestSchema, ID: id, Tool: record.Build{Version: "v1.0.0"}, Outcome: record.RunCompleted,
		Target:       record.Target{URL: "http://server/v1/chat/completions", Model: "demo-8b", EndpointType: "chat", Streaming: true},
		WorkloadHash: "0123456789abcdef", Workload: "made", Salt: id, Cache: record.Cache{Mode: record.CacheCold},
		Load:   record.Load{Rate: 40, Arrival: "constant"},
		Stamps: record.StampsKernel, MeasureStart: 0, MeasureEnd: record.Unset,
	}
}

// writeRun writes a run directory with its summaries and returns its path.
func writeRun(t *testing.T, path string, m *record.Manifest, records []*record.Record) string {
	t.Helper()
	dir := record.Dir(path)
	if err := dir.Create(); err != nil {
		t.Fatal(err)
	}
	w, err := dir.NewWriter()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	m.Sent = int64(len(records))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dir.WriteManifest(m); err != nil {
		t.Fatal(err)
	}
	return path
}
