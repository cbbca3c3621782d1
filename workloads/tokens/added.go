package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is found in a text before the model sees it.
type addedToken struct {
	ID         int64
	Content    string
	SingleWord bool // not inside of a word
	LStrip     bool // takes the white space before it
	RStrip     bool // takes the white space after it
	Normalized bool // is looked for after normalizing, in its own normal form
	Special    bool
}

// addedTokens are those of one kind: to be found before or after normalizing.
type addedTokens struct {
	trie *trie
	byID map[int32]addedToken
}

// parseAdded reads the added_tokens to those found in the raw text and those
// found in the normal form, and the texts that all of them decode to.
//
// As in the library that defines the format, a token that is in the model's
// vocabulary has its id there, and the others are numbered on from its end,
// whatever id the file gives.
func parseAdded(raw json.RawMessage, v *vocab, normalize normalizer) (before, after addedTokens, texts map[int32]string, err error) {
	before = addedTokens{newTrie(), map[int32]addedToken{}}
	after = addedTokens{newTrie(), map[int32]addedToken{}}
	texts = map[int32]string{}
	if isNull(raw) {
		return before, after, texts, nil
	}
	var list []struct {
		ID         int64
		Content    string
		SingleWord bool `json:"single_word"`
		LStrip     bool
		RStrip     bool
		Normalized bool
		Special    bool
	}
	if err := strict(raw, &list); err != nil {
		return before, after, nil, fmt.Errorf("added_tokens: %w", err)
	}
	next := int32(len(v.ids))
	ids := map[string]int32{}
	for _, e := range list {
		t := addedToken(e)
		if t.Content == "" {
			continue
		}
		id, ok := ids[t.Content]
		if !ok {
			if id = v.lookup(t.Content); id < 0 {
				id = next
				next++
			}
			ids[t.Content] = id
		}
		set, form := &before, t.Content
		if t.Normalized {
			set, form = &after, normalize(t.Content)
		}
		if form == "" {
			return before, after, nil, fmt.Errorf("added_tokens: nothing is left of %q when it is normalized", t.Content)
		}
		set.trie.insert(form, id)
		set.byID[id] = t
		texts[id] = form
	}
	return before, after, texts, nil
}

// split appends the tokens in p, which is text, and the text between them.
func (a *addedTokens) split(dst []piece, p piece) []piece {
	text, done := p.text, 0
	for at := 0; at < len(text); {
		n, id := a.trie.longest(text[at:])
		if n == 0 {
			at++
			continue
		}
		start, end := at, at+n
		at = end
		t := a.byID[id]
		if t.SingleWord {
			before, _ := utf8.DecodeLastRuneInString(text[:start])
			after, _ := utf8.DecodeRuneInString(text[end:])
			if start > 0 && isWord(before) || end < len(text) && isWord(after) {
				continue
			}
		}
		if t.LStrip {
			start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
		}
		if t.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if done < start {
			dst = append(dst, piece{text[done:start], -1, p.first && done == 0})
		}
		dst = append(dst, piece{id: id})
		done = end
	}
	if done < len(text) {
		dst = append(dst, piece{text[done:], -1, p.first && done == 0})
	}
	return dst
}

// isNull tells whether a field is missing or null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// strict reads a value and refuses fields that are not known.
func strict(raw json.RawMessage, into any) error {
	if isNull(raw) {
		return errors.New("it is missing")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// nodeType returns the type of the node at a place in the file.
func nodeType(raw json.RawMessage, at string) (string, error) {
	var p struct{ Type string }
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", fmt.Errorf("%s: %w", at, err)
	}
	if p.Type == "" {
		return "", fmt.Errorf("%s: it has no type", at)
	}
	return p.Type, nil
}
