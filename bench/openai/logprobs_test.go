package openai

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
)

func TestKeptLogProbs(t *testing.T) {
	want := []record.TokenLogProbs{
		{LogProb: record.LogProb{Token: "a", Value: -0.5}, Alternatives: []record.LogProb{{Token: "a", Value: -0.5}, {Token: "\"b", Value: -1}}},
		{LogProb: record.LogProb{Token: " c", Value: 0}},
	}
	const (
		first  = `{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5},{"token":"\"b","logprob":-1},{"token":"never","logprob":null}]}`
		second = `{"token":" c","logprob":0,"top_logprobs":[]}`
		odd    = `{"token":"x","logprob":nan},{"token":"y","logprob":1e999},{"token":"z"},7`
		before = `{"tokens":["a"," c","x"],"token_logprobs":[-0.5,0,null],"top_logprobs":[{"a":-0.5,"\"b":-1},null,null]}`
	)
	chat := func(entries string) string {
		return `{"choices":[{"index":0,"delta":{"content":"t"},"logprobs":{"content":[` + entries + `]}}]}`
	}
	for name, events := range map[string][]string{
		"chat":              {chat(first), chat(second)},
		"two an event":      {chat(first + "," + second)},
		"without a number":  {chat(first), chat(odd), chat(second)},
		"completions":       {`{"choices":[{"index":0,"text":"t","logprobs":` + before + `}]}`},
		"lists that differ": {`{"choices":[{"index":0,"text":"t","logprobs":{"tokens":["a"]}}]}`, chat(first), chat(second)},
	} {
		rec := decode(append(events, stop, "[DONE]")...)
		if d := cmp.Diff(want, rec.Output[0].LogProbs); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
	}

	whole := `{"choices":[{"index":1,"text":"t","logprobs":` + before + `},{"index":0,"text":"u"}]}`
	rec := record.New(record.PhaseMeasure, 0)
	var a Answer
	for range 2 { // the second time with the buffers of the first
		a.Reset(rec, Completions, KeepOutput)
		a.Whole([]byte(whole), 10, 0)
		a.Close()
		if d := cmp.Diff([]record.Output{{Text: "u"}, {Text: "t", LogProbs: want}}, rec.Output); d != "" {
			t.Errorf("whole (-want +got)\n%s", d)
		}
	}
	rec = record.New(record.PhaseMeasure, 0)
	a.Reset(rec, Completions, KeepUncounted)
	a.Whole([]byte(whole), 10, 0)
	if a.Close(); len(a.output) > 1 && a.output[1].logProbs != nil {
		t.Error("log-probs are kept where no output is")
	}
}
