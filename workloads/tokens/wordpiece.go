package tokens

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// wordPiece is BERT's model: from the left, the longest token that fits; a
// word with a part that no token fits is unknown as a whole.
type wordPiece struct {
	*vocab
	starts   *trie // tokens at the start of a word
	inside   *trie // tokens after it, without their prefix
	unk      int32
	maxRunes int
}

func parseWordPiece(raw json.RawMessage) (model, error) {
	var p struct {
		Type   string
		Unk    string `json:"unk_token"`
		Prefix string `json:"continuing_subword_prefix"`
		Max    int    `json:"max_input_chars_per_word"`
		Vocab  map[string]int64
	}
	if err := strict(raw, &p); err != nil {
		return nil, err
	}
	v, err := newVocab(p.Vocab)
	if err != nil {
		return nil, err
	}
	m := wordPiece{v, newTrie(), newTrie(), v.lookup(p.Unk), p.Max}
	if m.unk < 0 {
		return nil, fmt.Errorf("unk_token %q is not in the vocabulary", p.Unk)
	}
	for token, id := range v.ids {
		if token != "" {
			m.starts.insert(token, id)
		}
		if n := len(p.Prefix); len(token) > n && token[:n] == p.Prefix {
			m.inside.insert(token[n:], id)
		}
	}
	return m, nil
}

func (m wordPiece) encode(dst []int32, word string, _ *work) []int32 {
	from := len(dst)
	if utf8.RuneCountInString(word) > m.maxRunes {
		return append(dst, m.unk)
	}
	for at, t := 0, m.starts; at < len(word); t = m.inside {
		n, id := t.longest(word[at:])
		if n == 0 {
			return append(dst[:from], m.unk)
		}
		dst = append(dst, id)
		at += n
	}
	return dst
}
