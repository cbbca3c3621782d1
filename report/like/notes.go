package like

import (
	"fmt"

	"github.com/tokmark/tokmark/bench/record"
)

// notes tell where the records are not enough for a tool's definition, and
// where the tool would have gone another way.
func (run *Run) notes(tool Tool) []string {
	var out []string
	say := func(when bool, format string, a ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, a...))
		}
	}
	var failed, inStream, malformed, tools, usage, finish, silent int
	for _, r := range run.sent {
		if r.Outcome.IsError() && !gpExported(run, r) {
			failed++
		}
		switch r.Outcome {
		case record.StreamError:
			inStream++
		case record.Malformed:
			malformed++
		}
		for _, c := range r.Chunks {
			if c.Kind&record.KindTool != 0 {
				tools++
				break
			}
		}
		if r.Tokens.Source == record.SourceUsage {
			usage++
		}
		if n := len(r.Chunks); n > 0 && finishEvent(r) > r.Chunks[n-1].At {
			finish++
		}
		if n := len(r.Chunks); n > 0 && r.LastTokenEvent-r.FirstTokenEvent+1 > n {
			silent++
		}
	}
	switch tool {
	case GenAIPerf:
		say(failed > 0, "GenAI-Perf stops at the first failed request and reports nothing; failed requests left out here: %d", failed)
		say(usage > 0, "it tokenizes the text itself; these are the server's counts, which hold special tokens and the chat template")
		say(inStream > 0, "GenAI-Perf reads on after an error in a stream, and what came then is not kept; such streams: %d", inStream)
		say(malformed > 0, "GenAI-Perf reads on after data that is no JSON, and what came then is not kept; such streams: %d", malformed)
		say(tools > 0, "where an answer holds tool calls, its text tokens are known only if each event has a count; such answers: %d", tools)
	case AIPerf:
		out = append(out, "our definitions are AIPerf's; it counts tokens with its own tokenizer unless --use-server-token-count is given",
			"AIPerf 0.1 takes failed requests that we cancelled as errors, ignores tool calls, and drops an answer's chunk gaps if one is 0")
	case VLLM:
		say(!run.m.Target.Streaming, "vLLM's benchmark always streams: only counts and throughputs are told")
		say(finish > 0, "the end of the exchange stands for the finish event, which is not kept and comes a little earlier; such answers: %d", finish)
		say(silent > 0, "events without output between others are not kept: vLLM's gaps would be more and shorter; such answers: %d", silent)
		say(inStream > 0, "answers with an error in the stream count as completed, but vLLM fails one whose error comes as an event line; such answers: %d", inStream)
		out = append(out, "the first event is taken for one with choices; a server that sends one without (Azure) is seen too early")
	case SGLang:
		out = append(out, "for the OpenAI endpoints; for its own endpoint SGLang divides each gap by its tokens")
	case GuideLLM:
		out = append(out, "its rates and concurrency are distributions weighted by time and are not reproduced")
	}
	return out
}
