package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// piece is a part of a text on its way through the steps.
type piece struct {
	text string
	// id is the token that was found already, or -1: text is still to be
	// split and encoded.
	id int32
	// first: it begins where the whole text does.
	first bool
}

// preTokenizer appends the parts of p, which is text, to dst.
type preTokenizer func(dst []piece, p piece, w *work) []piece

// gpt2Split is the pattern that the ByteLevel step splits with.
const gpt2Split = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// parsePreTokenizers reads a node, at is its place in the file, to the steps
// in order.
func parsePreTokenizers(raw json.RawMessage, at string) ([]preTokenizer, error) {
	if isNull(raw) {
		return nil, nil
	}
	typ, err := nodeType(raw, at)
	if err != nil {
		return nil, err
	}
	steps := func(err error, steps ...preTokenizer) ([]preTokenizer, error) {
		if err != nil {
			return nil, fmt.Errorf("%s (%s): %w", at, typ, err)
		}
		return steps, nil
	}
	plain := func(all ...preTokenizer) ([]preTokenizer, error) {
		return steps(strict(raw, &struct{ Type string }{}), all...)
	}
	switch typ {
	case "Sequence":
		var p struct {
			Type          string
			PreTokenizers []json.RawMessage `json:"pretokenizers"`
		}
		if err := strict(raw, &p); err != nil {
			return steps(err)
		}
		var all []preTokenizer
		for i, r := range p.PreTokenizers {
			ps, err := parsePreTokenizers(r, fmt.Sprintf("%s.pretokenizers[%d]", at, i))
			if err != nil {
				return nil, err
			}
			all = append(all, ps...)
		}
		return all, nil
	case "Split":
		var p struct {
			Type     string
			Pattern  json.RawMessage
			Behavior behavior
			Invert   bool
		}
		if err := strict(raw, &p); err != nil {
			return steps(err)
		}
		find, err := parsePattern(p.Pattern)
		if err == nil {
			err = p.Behavior.check()
		}
		if p.Invert {
			find = invert(find)
		}
		return steps(err, split(find, p.Behavior))
	case "ByteLevel":
		p := struct {
			Type           string
			AddPrefixSpace bool `json:"add_prefix_space"`
			TrimOffsets    bool `json:"trim_offsets"` // of no effect on tokens
			UseRegex       bool `json:"use_regex"`
		}{UseRegex: true}
		if err := strict(raw, &p); err != nil {
			return steps(err)
		}
		var all []preTokenizer
		if p.AddPrefixSpace {
			all = append(all, prefixSpace)
		}
		if p.UseRegex {
			find, err := regex(gpt2Split)
			if err != nil {
				return steps(err)
			}
			all = append(all, split(find, isolated))
		}
		return append(all, byteLevel), nil
	case "Digits":
		var p struct {
			Type       string
			Individual bool `json:"individual_digits"`
		}
		err := strict(raw, &p)
		b := contiguous
		if p.Individual {
			b = isolated
		}
		return steps(err, split(each(unicode.IsNumber), b))
	case "Punctuation":
		p := struct {
			Type     string
			Behavior behavior
		}{Behavior: isolated}
		return steps(errors.Join(strict(raw, &p), p.Behavior.check()), split(each(isPunct), p.Behavior))
	case "CharDelimiterSplit":
		var p struct{ Type, Delimiter string }
		if err := strict(raw, &p); err != nil {
			return steps(err)
		}
		if utf8.RuneCountInString(p.Delimiter) != 1 {
			return steps(fmt.Errorf("delimiter %q is not one character", p.Delimiter))
		}
		return steps(nil, split(literal(p.Delimiter), removed))
	case "Whitespace":
		return plain(split(words, removed))
	case "WhitespaceSplit":
		return plain(split(each(unicode.IsSpace), removed))
	case "BertPreTokenizer":
		return plain(split(each(unicode.IsSpace), removed), split(each(isPunct), isolated))
	case "Metaspace":
		m, err := parseMetaspace(raw)
		if err != nil {
			return steps(err)
		}
		all := []preTokenizer{m.prepend}
		if m.split {
			all = append(all, split(literal(m.mark), mergedWithNext))
		}
		return all, nil
	}
	return nil, fmt.Errorf("%s: type %q is not supported", at, typ)
}

// split cuts a piece where find matches. Parts without text are left out.
func split(find pattern, b behavior) preTokenizer {
	return func(dst []piece, p piece, w *work) []piece {
		w.spans = find(w.spans[:0], p.text)
		for _, s := range b.apply(w.spans) {
			if s.start < s.end {
				dst = append(dst, piece{p.text[s.start:s.end], -1, p.first && s.start == 0})
			}
		}
		return dst
	}
}

func prefixSpace(dst []piece, p piece, _ *work) []piece {
	if !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	return append(dst, p)
}

func byteLevel(dst []piece, p piece, _ *work) []piece {
	p.text = toByteLevel(p.text)
	return append(dst, p)
}

// metaspace marks blanks by a visible character, as SentencePiece does.
type metaspace struct {
	mark   string
	scheme string // of the mark before a text: always, first, never
	split  bool
}

// parseMetaspace reads a Metaspace node, which pre-tokenizers and decoders
// share, in its present and its older form.
func parseMetaspace(raw json.RawMessage) (metaspace, error) {
	p := struct {
		Type           string
		Replacement    string
		StrRep         string  `json:"str_rep"`
		AddPrefixSpace *bool   `json:"add_prefix_space"`
		PrependScheme  *string `json:"prepend_scheme"`
		Split          *bool
	}{}
	if err := strict(raw, &p); err != nil {
		return metaspace{}, err
	}
	m := metaspace{mark: p.Replacement, scheme: "always", split: p.Split == nil || *p.Split}
	if p.PrependScheme != nil {
		m.scheme = *p.PrependScheme
	}
	if p.AddPrefixSpace != nil && !*p.AddPrefixSpace {
		if p.PrependScheme != nil && m.scheme != "never" {
			return metaspace{}, fmt.Errorf("add_prefix_space is false, but prepend_scheme is %q", m.scheme)
		}
		m.scheme = "never"
	}
	switch {
	case utf8.RuneCountInString(m.mark) != 1:
		return metaspace{}, fmt.Errorf("replacement %q is not one character", m.mark)
	case m.scheme != "always" && m.scheme != "first" && m.scheme != "never":
		return metaspace{}, fmt.Errorf("prepend_scheme %q is not supported", m.scheme)
	}
	return m, nil
}

func (m metaspace) prepend(dst []piece, p piece, _ *work) []piece {
	p.text = strings.ReplaceAll(p.text, " ", m.mark)
	if (m.scheme == "always" || m.scheme == "first" && p.first) && !strings.HasPrefix(p.text, m.mark) {
		p.text = m.mark + p.text
	}
	return append(dst, p)
}

// words is the inverse of \w+|[^\w\s]+: white space matches, and so parts runs
// of word characters from runs of others by an empty place between them.
func words(dst []span, text string) []span {
	const (
		none = iota
		space
		word
		other
	)
	at, run := 0, none
	for i, r := range text {
		kind := other
		switch {
		case isWord(r):
			kind = word
		case unicode.IsSpace(r):
			kind = space
		}
		if kind != run && i > 0 {
			dst = append(dst, span{at, i, run == space})
			at = i
		}
		run = kind
	}
	if at < len(text) {
		dst = append(dst, span{at, len(text), run == space})
	}
	return dst
}

// isWord is \w by the Unicode rules for regular expressions.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r) ||
		unicode.In(r, unicode.Pc, unicode.Nl, unicode.Other_Alphabetic, unicode.Join_Control)
}

// isPunct holds for what ASCII or Unicode calls punctuation.
func isPunct(r rune) bool {
	if r < utf8.RuneSelf {
		return unicode.IsPunct(r) || unicode.IsSymbol(r)
	}
	return unicode.IsPunct(r)
}
