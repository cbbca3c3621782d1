package tokens

import (
	"strings"
	"unicode/utf8"
)

// validUTF8 replaces each invalid byte by U+FFFD, as encoding/json does.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// lossyUTF8 replaces each longest start of a character that is cut off, and
// each other invalid byte, by one U+FFFD: what Unicode recommends, and what
// the decoders of servers do.
func lossyUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = cutOff(s)
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// cutOff returns how many bytes at the start of s, which is no character,
// could have been the start of one: 1, 2 or 3.
func cutOff(s string) int {
	low, high := byte(0x80), byte(0xBF) // of the second byte
	switch c := s[0]; {
	case c == 0xE0:
		low = 0xA0
	case c == 0xED:
		high = 0x9F
	case c == 0xF0:
		low = 0x90
	case c == 0xF4:
		high = 0x8F
	case c < 0xE1 || c > 0xF4:
		return 1
	}
	if len(s) < 2 || s[1] < low || s[1] > high {
		return 1
	}
	if s[0] < 0xF0 || len(s) < 3 || s[2] < 0x80 || s[2] > 0xBF {
		return 2
	}
	return 3
}
