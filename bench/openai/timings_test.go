package openai

import (
	"slices"
	"testing"

	"github.com/valyala/fastjson"
)

// TestTimingSources: each source that is claimed is one that is read.
func TestTimingSources(t *testing.T) {
	var read []string
	for _, text := range []string{
		`{"timings":{"prompt_ms":9,"predicted_ms":28}}`,
		`{"metrics":{"queue_time_ms":1,"time_to_first_token_ms":9}}`,
		`{"nvext":{"timing":{"ttft_ms":9}}}`,
		`{"x_groq":{"usage":{"prompt_time":0.009}}}`,
		`{"stats":{"time_in_queue_in_ms":1}}`,
	} {
		p := readPhases(fastjson.MustParse(text))
		read = append(read, p.source)
		if got := p.record(); got == nil || got.Source == "" {
			t.Errorf("%s: nothing is read", text)
		}
	}
	if want := TimingSources(); !slices.Equal(read, want) {
		t.Errorf("read from %v, claimed %v", read, want)
	}
	if p := readPhases(fastjson.MustParse(`{"total_duration":5,"eval_duration":4}`)); p.record() != nil {
		t.Error("what is not known was read")
	}
}
