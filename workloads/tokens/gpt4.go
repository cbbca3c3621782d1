package tokens

import (
	"unicode"
	"unicode/utf8"
)

// gpt4Split is the pattern of GPT-4's vocabulary, which Llama 3 and others took
// over; Qwen's takes digits one by one.
const (
	gpt4Split = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwenSplit = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// gpt4Scanner matches as these two patterns do, several times faster than the
// regexp engine; digits is how many of them make a part.
func gpt4Scanner(digits int) pattern {
	return func(dst []span, text string) []span {
		for at := 0; at < len(text); {
			end := at + gpt4Next(text[at:], digits)
			dst = append(dst, span{at, end, true})
			at = end
		}
		return dst
	}
}

// charKind is the kind of a character to gpt4Split.
type charKind uint8

const (
	otherChar charKind = iota
	letterChar
	numberChar
	spaceChar
)

var asciiKinds = func() (kinds [utf8.RuneSelf]charKind) {
	for r := range kinds {
		kinds[r] = slowKind(rune(r))
	}
	return kinds
}()

func slowKind(r rune) charKind {
	switch {
	case unicode.IsLetter(r):
		return letterChar
	case unicode.IsNumber(r):
		return numberChar
	case unicode.IsSpace(r):
		return spaceChar
	}
	return otherChar
}

// firstChar returns the first character of s, its length and its kind; the
// length is 0 at the end of the text.
func firstChar(s string) (r rune, size int, kind charKind) {
	if s == "" {
		return 0, 0, otherChar
	}
	if c := s[0]; c < utf8.RuneSelf {
		return rune(c), 1, asciiKinds[c]
	}
	r, size = utf8.DecodeRuneInString(s)
	return r, size, slowKind(r)
}

// runOf returns the length of at most limit characters of a kind at the start
// of s.
func runOf(s string, kind charKind, limit int) int {
	at := 0
	for ; limit > 0; limit-- {
		_, size, k := firstChar(s[at:])
		if size == 0 || k != kind {
			break
		}
		at += size
	}
	return at
}

// gpt4Next returns the length of the match at the start of s, which is not
// empty. The comments show the alternatives of the pattern, in their order.
func gpt4Next(s string, digits int) int {
	r, size, kind := firstChar(s)
	next, nextSize, nextKind := firstChar(s[size:])
	if r == '\'' { // (?i:'s|'t|'re|'ve|'m|'ll|'d)
		switch next {
		case 's', 'S', 't', 'T', 'm', 'M', 'd', 'D', 'ſ': // the long s is an s in any case
			return size + nextSize
		}
		if len(s) >= 3 {
			switch string([]byte{s[1] | 0x20, s[2] | 0x20}) {
			case "re", "ve", "ll":
				return 3
			}
		}
	}
	newline := r == '\n' || r == '\r'
	switch { // [^\r\n\p{L}\p{N}]?\p{L}+
	case kind == letterChar:
		return size + runOf(s[size:], letterChar, len(s))
	case kind != numberChar && !newline && nextSize > 0 && nextKind == letterChar:
		return size + runOf(s[size:], letterChar, len(s))
	}
	if kind == numberChar { // \p{N}{1,3}
		return runOf(s, numberChar, digits)
	}
	if kind == otherChar || r == ' ' && nextSize > 0 && nextKind == otherChar { // ?[^\s\p{L}\p{N}]+[\r\n]*
		end := size + runOf(s[size:], otherChar, len(s))
		for end < len(s) && (s[end] == '\n' || s[end] == '\r') {
			end++
		}
		return end
	}
	end, last, line := 0, 0, 0 // of the white space, before its last character, after its last line end
	for end < len(s) {
		r, size, kind := firstChar(s[end:])
		if kind != spaceChar {
			break
		}
		last = end
		end += size
		if r == '\n' || r == '\r' {
			line = end
		}
	}
	switch {
	case line > 0: // \s*[\r\n]+
		return line
	case end < len(s) && last > 0: // \s+(?!\S)
		return last
	}
	return end // \s+
}
