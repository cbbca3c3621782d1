package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// huggingFace is a tokenizer.json, or a vocabulary that works like one. Its
// parts are not changed once it is made; what an encoding needs to write to is in a work.
type huggingFace struct {
	name        string
	before      addedTokens // found in the raw text
	normalizers []normalizer
	after       addedTokens // found in the normal form
	steps       []preTokenizer
	model       model
	decoders    []decoder
	texts       map[int32]string // what added tokens decode to
	works       sync.Pool        // of *work
}

// work is what one encoding at a time writes to. It is kept for the next one,
// and so are the tokens of words that come again.
type work struct {
	in, out []piece
	spans   []span
	ids     []int32
	words   map[string][]int32
	// For long words of BPE, and for Unigram.
	pairs []merge
	list  []link
	heap  rankHeap
	best  []best
	cuts  []span
}

func newWork() any { return &work{words: map[string][]int32{}} }

// Words that are kept: how many at most, and how long, in bytes.
const (
	maxWords   = 1 << 15
	maxWordLen = 64
)

// cached appends the tokens of a word, from memory if it was seen before.
func (w *work) cached(dst []int32, word string, encode func([]int32, string, *work) []int32) []int32 {
	if ids, ok := w.words[word]; ok {
		return append(dst, ids...)
	}
	from := len(dst)
	dst = encode(dst, word, w)
	if len(word) <= maxWordLen {
		if len(w.words) >= maxWords {
			clear(w.words)
		}
		w.words[strings.Clone(word)] = append([]int32(nil), dst[from:]...)
	}
	return dst
}

// parse reads the content of a tokenizer.json.
func parse(name string, content []byte) (*huggingFace, error) {
	var p struct {
		Version      string
		AddedTokens  json.RawMessage `json:"added_tokens"`
		Normalizer   json.RawMessage
		PreTokenizer json.RawMessage `json:"pre_tokenizer"`
		Decoder      json.RawMessage
		Model        json.RawMessage
	}
	if err := json.Unmarshal(content, &p); err != nil {
		return nil, fmt.Errorf("line %d: %w", errorLine(content, err), err)
	}
	if p.Version != "1.0" && p.Version != "" {
		return nil, fmt.Errorf("version %q is not supported", p.Version)
	}
	t := &huggingFace{name: name, works: sync.Pool{New: newWork}}
	var err error
	if t.normalizers, err = parseNormalizers(p.Normalizer, "normalizer"); err != nil {
		return nil, err
	}
	if t.steps, err = parsePreTokenizers(p.PreTokenizer, "pre_tokenizer"); err != nil {
		return nil, err
	}
	if t.decoders, err = parseDecoders(p.Decoder, "decoder"); err != nil {
		return nil, err
	}
	if t.model, err = parseModel(p.Model); err != nil {
		return nil, err
	}
	t.before, t.after, t.texts, err = parseAdded(p.AddedTokens, t.model.vocabulary(), t.normalize)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// errorLine returns the line, from 1, that a JSON error is about.
func errorLine(content []byte, err error) int {
	offset := int64(0)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	}
	return 1 + bytes.Count(content[:min(max(offset, 0), int64(len(content)))], []byte("\n"))
}

func (t *huggingFace) Name() string { return t.name }

func (t *huggingFace) Count(text string) int {
	w := t.works.Get().(*work)
	defer t.works.Put(w)
	w.ids = t.encode(w.ids[:0], text, w)
	return len(w.ids)
}

func (t *huggingFace) Encode(dst []int32, text string) []int32 {
	w := t.works.Get().(*work)
	defer t.works.Put(w)
	return t.encode(dst, text, w)
}

func (t *huggingFace) normalize(s string) string {
	for _, n := range t.normalizers {
		s = n(s)
	}
	return s
}

func (t *huggingFace) encode(dst []int32, text string, w *work) []int32 {
	w.out = append(w.out[:0], piece{validUTF8(text), -1, true})
	w.each(func(out []piece, p piece) []piece { return t.before.split(out, p) })
	w.each(func(out []piece, p piece) []piece {
		p.text = t.normalize(p.text)
		return t.after.split(out, p)
	})
	for _, step := range t.steps {
		w.each(func(out []piece, p piece) []piece { return step(out, p, w) })
	}
	for _, p := range w.out {
		if p.id >= 0 {
			dst = append(dst, p.id)
		} else {
			dst = t.model.encode(dst, p.text, w)
		}
	}
	w.forget()
	return dst
}

// forget lets go of the text, and of what only a very long one needs.
func (w *work) forget() {
	if cap(w.in)+cap(w.out) > 1<<14 {
		w.in, w.out, w.spans = nil, nil, nil
	}
	clear(w.in[:cap(w.in)])
	clear(w.out[:cap(w.out)])
}

// each replaces the pieces that are text by what step makes of them.
func (w *work) each(step func(out []piece, p piece) []piece) {
	w.in, w.out = w.out, w.in[:0]
	for _, p := range w.in {
		switch {
		case p.id >= 0:
			w.out = append(w.out, p)
		case p.text != "":
			w.out = step(w.out, p)
		}
	}
}

func (t *huggingFace) Decode(ids []int32) string {
	tokens := make([]string, 0, len(ids))
	v := t.model.vocabulary()
	for _, id := range ids {
		text, ok := t.texts[id]
		if !ok {
			text, ok = v.tokens[id]
		}
		if ok {
			tokens = append(tokens, text)
		}
	}
	if len(t.decoders) == 0 {
		return strings.Join(tokens, " ")
	}
	for _, d := range t.decoders {
		tokens = d(tokens)
	}
	return strings.Join(tokens, "")
}
