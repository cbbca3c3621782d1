// Package like reads the records of a run with the eyes of other benchmark
// tools: the same requests under their definitions of TTFT, inter-token latency,
// latency and throughput, each beside ours and with the reason of the
// difference.
//
// The definitions were read in the sources of GenAI-Perf (perf_analyzer
// 263c5f6), AIPerf of 2026, vLLM's and SGLang's serving benchmarks of 2026 and
// guidellm ee7a774. Those of GenAI-Perf are held against its own parser by the
// conformance corpus; the others were read, not run.
package like

import (
	"fmt"
	"strings"
)

// Tool is a benchmark tool whose definitions are known.
type Tool string

// The tools.
const (
	Tokmark   Tool = "tokmark"
	GenAIPerf Tool = "genai-perf"
	AIPerf    Tool = "aiperf"
	VLLM      Tool = "vllm"
	SGLang    Tool = "sglang"
	GuideLLM  Tool = "guidellm"
)

// Others are the tools that a run can be shown like.
var Others = []Tool{VLLM, SGLang, GenAIPerf, AIPerf, GuideLLM}

// ParseTool returns the tool with the name.
func ParseTool(name string) (Tool, error) {
	names := make([]string, len(Others))
	for i, t := range Others {
		if name == string(t) {
			return t, nil
		}
		names[i] = string(t)
	}
	return "", fmt.Errorf("no tool %q is known: use %s", name, strings.Join(names, ", "))
}

func (t Tool) title() string {
	switch t {
	case GenAIPerf:
		return "GenAI-Perf"
	case AIPerf:
		return "AIPerf"
	case VLLM:
		return "vLLM bench"
	case SGLang:
		return "SGLang bench"
	default:
		return string(t)
	}
}
