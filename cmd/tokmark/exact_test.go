package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Answers are stretched to the length asked for where the workload asks for it,
// not where a file's text does.
func TestAsksExact(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "in.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	prompts, trace := file(`{"prompt":"Who?","output_length":3}`+"\n"), file(`{"timestamp":0,"input_length":7,"output_length":3}`+"\n")
	for _, c := range []struct {
		name string
		set  func(*options)
		want bool
	}{
		{"nothing asked", func(*options) {}, false},
		{"--osl", func(o *options) { o.osl = 8 }, true},
		{"a distribution", func(o *options) { o.oslDistribution = "uniform:1-9" }, true},
		{"a mixture", func(o *options) { o.sequenceDistribution = "1,2:100" }, true},
		{"classes", func(o *options) { o.classes = []string{"{}"} }, true},
		{"prompts", func(o *options) { o.inputFile = prompts }, false},
		{"prompts with --osl", func(o *options) { o.inputFile, o.osl = prompts, 8 }, true},
		{"a trace", func(o *options) { o.inputFile = trace }, true},
		{"a trace that is named", func(o *options) { o.inputFile, o.datasetType = trace, "mooncake_trace" }, true},
		{"a trace read as prompts", func(o *options) { o.inputFile, o.datasetType = trace, "jsonl" }, false},
	} {
		o := &options{}
		o.oslDistribution, o.exactOutput = "normal", true
		if c.set(o); o.asksExact() != c.want {
			t.Errorf("%s: %v, want %v", c.name, !c.want, c.want)
		}
		if o.exactOutput = false; o.asksExact() {
			t.Errorf("%s: exact in spite of --exact-output=false", c.name)
		}
	}
}
