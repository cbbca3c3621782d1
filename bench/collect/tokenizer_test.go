package collect

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
)

// words counts words, and what it cannot tell of.
func words(text string) (int, bool) { return len(strings.Fields(text)), !strings.Contains(text, "?") }

// uncounted is an answer that tells no count.
func uncounted(id int64, texts ...record.Output) *record.Record {
	r := answered(id)
	r.Tokens = record.New(record.PhaseMeasure, id).Tokens
	r.Tokens.Input = 7
	r.Uncounted = texts
	return r
}

func TestTokenizer(t *testing.T) {
	const no = record.Unknown
	tests := []struct {
		name  string
		texts []record.Output
		want  record.Tokens
	}{
		{"text", []record.Output{{Text: "a b c"}}, record.Tokens{Source: record.SourceTokenizer, Input: 7, Output: 3, Reasoning: no, Cached: no}},
		{"text and reasoning", []record.Output{{Text: "a b", Reasoning: "c"}}, record.Tokens{Source: record.SourceTokenizer, Input: 7, Output: 2, Reasoning: 1, Cached: no}},
		{"reasoning alone", []record.Output{{Reasoning: "c d"}}, record.Tokens{Source: record.SourceTokenizer, Input: 7, Output: 0, Reasoning: 2, Cached: no}},
		{"choices", []record.Output{{Text: "a"}, {Text: "b c", Reasoning: "d"}, {Reasoning: "e"}}, record.Tokens{Source: record.SourceTokenizer, Input: 7, Output: 3, Reasoning: 2, Cached: no}},
		{"no telling", []record.Output{{Text: "a"}, {Text: "what?"}}, record.Tokens{Input: 7, Output: no, Reasoning: no, Cached: no}},
		{"no telling of the reasoning", []record.Output{{Text: "a", Reasoning: "what?"}}, record.Tokens{Input: 7, Output: no, Reasoning: no, Cached: no}},
		{"nothing to count", nil, record.Tokens{Input: 7, Output: no, Reasoning: no, Cached: no}},
	}
	for _, tt := range tests {
		r := uncounted(0, tt.texts...)
		(&Tokenizer{Source: record.SourceTokenizer, Count: words}).count(r)
		if d := cmp.Diff(tt.want, r.Tokens); d != "" || r.Uncounted != nil {
			t.Errorf("%s: text left %v, tokens (-want +got)\n%s", tt.name, r.Uncounted, d)
		}
	}
	counted := answered(0)
	want := counted.Tokens
	if (&Tokenizer{Source: record.SourceTokenizer, Count: words}).count(counted); counted.Tokens != want {
		t.Errorf("a count of the server's became %+v", counted.Tokens)
	}
	r := uncounted(0, record.Output{Text: "a"})
	if new(Tokenizer).count(r); r.Tokens.Output.IsKnown() || r.Uncounted != nil {
		t.Errorf("nothing counts, and there is %+v", r)
	}
}

// What the server counts waits for the end of the run; what the tokenizer
// counts does not, and is in the live figures.
func TestWhenTokensAreCounted(t *testing.T) {
	for source, want := range map[record.Source][]int64{
		record.SourceTokenizer: {0, 1, 2, 3},
		record.SourceServer:    {0, 3, 1, 2},
	} {
		in := make(chan *record.Record)
		over := false
		c := Collector{Tokenizer: Tokenizer{Source: source, Count: func(text string) (int, bool) {
			if over != (source == record.SourceServer) {
				t.Errorf("%s: %q is counted, the run over: %v", source, text, over)
			}
			return words(text)
		}}}
		go func() {
			for _, r := range []*record.Record{answered(0), uncounted(1, record.Output{Text: "a b"}), uncounted(2, record.Output{Text: "c"}), answered(3)} {
				in <- r
			}
			in <- ended(4, record.Reset) // the ones before have been taken in
			over = true
			close(in)
		}()
		var kept memory
		if err := c.Collect(in, &kept, nil); err != nil {
			t.Fatal(err)
		}
		at := slices.Index(kept.ids, 4)
		if got := slices.Delete(slices.Clone(kept.ids), at, at+1); !slices.Equal(got, want) || kept.flushed != 5 {
			t.Errorf("%s: kept %v of which %d were flushed, want %v in order", source, kept.ids, kept.flushed, want)
		}
		tokens := int64(8)
		if source == record.SourceTokenizer {
			tokens += 3
		}
		if s := c.Snapshot(); s.OK != 4 || s.Failed != 1 || s.OutputTokens != tokens {
			t.Errorf("%s: the last snapshot is %+v", source, s)
		}
	}
}

// A full disk ends it all the same.
func TestLateRecordsAndAFullDisk(t *testing.T) {
	in := make(chan *record.Record, 3)
	for i := range int64(3) {
		in <- uncounted(i, record.Output{Text: "a"})
	}
	close(in)
	full, failed := errors.New("disk full"), 0
	c := Collector{Tokenizer: Tokenizer{Source: record.SourceServer, Count: words}}
	err := c.Collect(in, &memory{beforeWrite: func(n int) error {
		if n == 1 {
			return full
		}
		return nil
	}}, func(error) { failed++ })
	if !errors.Is(err, full) || failed != 1 {
		t.Errorf("%v, told %d times", err, failed)
	}
}
