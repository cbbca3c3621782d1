package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestWorkflow runs the commands of the workflow example, twice: the second
// time there is a baseline.
func TestWorkflow(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "examples/ci/gate.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Run string `yaml:"run"`
			} `yaml:"steps"`
		} `yaml:"jobs"`
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	var commands []documented
	for _, step := range workflow.Jobs["gate"].Steps {
		commands = append(commands, documentedCommands("```sh\n"+step.Run+"```")...)
	}
	if len(commands) != 2 {
		t.Fatalf("the workflow has %d commands of tokmark: %v", len(commands), commands)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join(repository, "examples"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	address := simulate(t)
	for range 2 {
		if err := os.RemoveAll("candidate"); err != nil {
			t.Fatal(err)
		}
		for _, c := range commands {
			args := shellWords(t, strings.ReplaceAll(c.line, "localhost:8000", address))
			var stdout, stderr bytes.Buffer
			code := Main(world{Args: args[1:], Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }})
			if code != exitOK {
				t.Fatalf("%s\nends with exit code %d\n%s%s", c.line, code, &stdout, &stderr)
			}
		}
	}
	if runs, err := os.ReadDir("baselines"); err != nil || len(runs) != 2 {
		t.Errorf("accepted runs: %v, %v", runs, err)
	}
}
