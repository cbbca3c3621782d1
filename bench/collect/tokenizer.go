package collect

import "github.com/tokmark/tokmark/bench/record"

// Tokenizer counts the tokens of the answers that tell no number themselves:
// those with a Record.Uncounted. Answer and reasoning are counted apart, and the
// events keep unknown numbers: a token may lie across two of them. The zero value
// counts nothing.
type Tokenizer struct {
	// Source is what the records name. The server is asked only when the run is
	// over, not to disturb it.
	Source record.Source
	// Count returns the number of tokens of a text, without any that stand for
	// its begin or end. ok is false if there is no telling.
	Count func(text string) (n int, ok bool)
}

// waits reports whether the record is to be counted when the run is over.
func (t *Tokenizer) waits(r *record.Record) bool {
	return t.Source == record.SourceServer && r.Uncounted != nil
}

// count counts what is to be counted of the record, and lets go of the text.
func (t *Tokenizer) count(r *record.Record) {
	texts := r.Uncounted
	r.Uncounted = nil
	if texts == nil || t.Count == nil {
		return
	}
	counts := record.Tokens{Source: t.Source, Input: r.Tokens.Input, Output: 0, Reasoning: record.Unknown, Cached: r.Tokens.Cached}
	for _, out := range texts {
		n, ok := t.Count(out.Text)
		if !ok {
			return
		}
		counts.Output += record.Count(n)
		if out.Reasoning == "" {
			continue
		}
		if n, ok = t.Count(out.Reasoning); !ok {
			return
		}
		counts.Reasoning = max(counts.Reasoning, 0) + record.Count(n)
	}
	r.Tokens = counts
}
