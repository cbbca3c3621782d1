package tokens

import "strings"

// Byte-level vocabularies write each byte as one visible character: the
// printable ones of Latin-1 as themselves, the other 68 as U+0100 and up, in
// order. (The idea is GPT-2's: no byte is ever unknown.)

var byteToRune, runeToByte = byteLevelTables()

func byteLevelTables() (to [256]rune, from [256 + 68]int16) {
	for i := range from {
		from[i] = -1
	}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if b <= ' ' || b >= 0x7F && b <= 0xA0 || b == 0xAD {
			r = next
			next++
		}
		to[b] = r
		from[r] = int16(b)
	}
	return to, from
}

func toByteLevel(s string) string {
	same := true
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7F {
			same = false
			break
		}
	}
	if same {
		return s
	}
	var b strings.Builder
	b.Grow(2 * len(s))
	for i := range len(s) {
		b.WriteRune(byteToRune[s[i]])
	}
	return b.String()
}

// appendFromByteLevel appends the bytes that a token stands for; a token with
// any other character in it stands for itself.
func appendFromByteLevel(dst []byte, token string) []byte {
	from := len(dst)
	for _, r := range token {
		if int(r) >= len(runeToByte) || runeToByte[r] < 0 {
			return append(dst[:from], token...)
		}
		dst = append(dst, byte(runeToByte[r]))
	}
	return dst
}
