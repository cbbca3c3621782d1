package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench/record"
)

// version is set at build time by the Makefile.
var version = "dev"

func newRoot(w *world) *cobra.Command {
	root := &cobra.Command{
		Use:   "tokmark",
		Short: "Measure an OpenAI-compatible inference server, and whether the number may be believed",
		Long: `tokmark puts load on any OpenAI-compatible inference server, times every token that
comes back (TTFT, inter-token latency, end-to-end latency, throughput, with the definitions
of AIPerf and GenAI-Perf) and says whether the numbers may be believed.

Exit codes: 0 ok · 1 the run failed · 2 usage or configuration · 3 gate failed ·
4 inconclusive · 5 result not valid · 130 interrupted`,
		Example: `  tokmark run --simulate
  tokmark run -u localhost:8000 --concurrency 16 --isl 1000 --osl 200
  tokmark report artifacts/run-1`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(w), newReport(w), newMock(w), newDataset(w), newProbe(w), newSelftest(w), newAB(w), newVerify(w))
	root.AddCommand(newCompare(w), newGate(w), newImport(w), newExplain(w))
	showGroups(root, nil) // the template of all that have no groups
	root.SetFlagErrorFunc(flagError)
	for _, c := range root.Commands() {
		for _, c := range append(c.Commands(), c) {
			if c.Args != nil {
				c.Args = argsError(c.Args)
			}
		}
	}
	return root
}

// build identifies this program in a manifest.
func build() record.Build {
	b := record.Build{Version: version}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Go = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	return b
}
