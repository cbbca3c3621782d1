package synthetic

import (
	"encoding/json"
	"strconv"

	"github.com/tokmark/tokmark/workloads"
)

// The token ids that a TokenIDs prompt is made of. Any vocabulary in use has
// them, and they lie above the special tokens that some begin with.
const (
	firstTokenID = 1000
	tokenIDs     = 25000
)

// TokenIDs turns the prompts of a completions workload into random token ids,
// for servers that take them: of exactly the length aimed at, without a
// tokenizer. They are as new to a prefix cache as cold prompts are; prefixes
// that prompts share are lost.
type TokenIDs struct {
	Source workloads.Source
	Seed   uint64
	Salt   string
}

// Len is that of the source.
func (t TokenIDs) Len() int { return t.Source.Len() }

// At returns session i with token ids for prompts. It is safe for concurrent
// use.
func (t TokenIDs) At(i int) (workloads.Session, error) {
	s, err := t.Source.At(i)
	if err != nil {
		return s, err
	}
	rng := newStream(t.Seed, "token ids", t.Salt).at("prompt", int64(i))
	turns := make([]workloads.Request, len(s.Turns))
	for k, r := range s.Turns {
		b := make([]byte, 0, 6*r.InputTokens+2)
		b = append(b, '[')
		for n := range r.InputTokens {
			if n > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(firstTokenID+rng.IntN(tokenIDs)), 10)
		}
		extra := map[string]json.RawMessage{"prompt": append(b, ']')}
		for name, v := range r.Extra {
			extra[name] = v
		}
		r.Extra, r.ExpectedCached = extra, 0
		turns[k] = r
	}
	s.Turns = turns
	return s, nil
}
