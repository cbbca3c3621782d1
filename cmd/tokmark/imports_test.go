package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tokmark/tokmark/"

// TestImportRules holds the direction of the data flow: what a package reaches
// through all of its imports, tests left out.
func TestImportRules(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}: {{join .Deps \" \"}}{{end}}", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		pkg, list, _ := strings.Cut(line, ": ")
		if rest, ours := strings.CutPrefix(pkg, module); ours {
			deps[rest] = strings.Fields(list)
		}
	}
	if len(deps) < 10 {
		t.Fatalf("only %d packages found", len(deps))
	}
	onlyCmd := []string{
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/schollz/progressbar/v3",
		"github.com/goccy/go-yaml", "os/signal",
	}
	reportMayUse := []string{"bench/record", "bench/hist"}
	leaves := []string{"bench/record", "bench/sse", "bench/hist"}
	for pkg, list := range deps {
		for _, dep := range list {
			ours, isOurs := strings.CutPrefix(dep, module)
			forbid := func(rule string) { t.Errorf("%s reaches %s: %s", pkg, dep, rule) }
			if !strings.HasPrefix(pkg, "cmd/") {
				if isOurs && strings.HasPrefix(ours, "cmd/") {
					forbid("nothing imports cmd")
				}
				if slices.Contains(onlyCmd, dep) {
					forbid("only cmd does")
				}
			}
			if strings.HasPrefix(pkg, "workloads") && (dep == "net/http" || isOurs && !strings.HasPrefix(ours, "workloads")) {
				forbid("workloads know no bench, report or HTTP")
			}
			if strings.HasPrefix(pkg, "bench") && isOurs && strings.HasPrefix(ours, "report") {
				forbid("data flows from bench to report")
			}
			if strings.HasPrefix(pkg, "report") && isOurs && !strings.HasPrefix(ours, "report") && !slices.Contains(reportMayUse, ours) {
				forbid("a report works from records alone")
			}
			if slices.Contains(leaves, pkg) && isOurs {
				forbid("it is a leaf")
			}
			if dep == "github.com/HdrHistogram/hdrhistogram-go" && pkg != "bench/hist" && !slices.Contains(list, module+"bench/hist") {
				forbid("bench/hist wraps it")
			}
		}
	}
}
