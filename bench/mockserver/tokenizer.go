package mockserver

import "unicode/utf8"

// The simulator's chat template: each message is three header tokens, its
// content, and an end token; the prompt ends with the three header tokens of
// the reply. A prompt thus has CountTokens(content) + MessageTokens tokens for
// each message, and ReplyTokens more.
const (
	MessageTokens = 4
	ReplyTokens   = 3
)

// BlockTokens is the number of tokens in one block of the prefix cache.
const BlockTokens = 16

// The tokens of the template. They begin with a byte that no text holds.
const (
	startToken = "\xffstart"
	bodyToken  = "\xffbody"
	endToken   = "\xffend"
)

// CountTokens returns the number of tokens that the simulator's tokenizer cuts
// the text into. A token is up to six ASCII letters and digits, or one other
// character, each with the one space before it; or else a run of white space.
// English prose has about 1.2 tokens a word.
func CountTokens(text string) int {
	n := 0
	for len(text) > 0 {
		text = text[firstToken(text):]
		n++
	}
	return n
}

const longestWord = 6 // of one token, in bytes

// firstToken returns the length in bytes of the first token of s, which is not
// empty.
func firstToken(s string) int {
	i := 0
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	switch {
	case i == len(s):
		return i
	case i == 1 && s[0] == ' ', i == 0:
		// The space belongs to what follows.
	case s[i-1] == ' ':
		return i - 1 // white space, without the space of the next token
	default:
		return i
	}
	end := i
	for end < len(s) && end-i < longestWord && isWord(s[end]) {
		end++
	}
	if end > i {
		return end
	}
	_, size := utf8.DecodeRuneInString(s[i:])
	return i + size
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func isWord(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// chain is the rolling hash over the tokens of a sequence. The hash after each
// full block stands for the block and everything before it.
type chain struct {
	hash   uint64 // FNV-1a
	tokens int
	blocks []uint64
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func newChain() chain { return chain{hash: fnvOffset} }

// token adds one token.
func (c *chain) token(t string) {
	h := c.hash
	for i := 0; i < len(t); i++ {
		h = (h ^ uint64(t[i])) * fnvPrime
	}
	c.end(h)
}

// id adds one token given by its number.
func (c *chain) id(id int64) {
	h := c.hash
	for range 8 {
		h = (h ^ uint64(id&0xff)) * fnvPrime
		id >>= 8
	}
	c.end(h)
}

func (c *chain) end(h uint64) {
	c.hash = (h ^ 0xfe) * fnvPrime // a token's end, so that "ab" differs from "a", "b"
	c.tokens++
	if c.tokens%BlockTokens == 0 {
		c.blocks = append(c.blocks, c.hash)
	}
}

// text adds the tokens of a text.
func (c *chain) text(s string) {
	for len(s) > 0 {
		n := firstToken(s)
		c.token(s[:n])
		s = s[n:]
	}
}

// header adds the header tokens of a message.
func (c *chain) header(role string) {
	c.token(startToken)
	c.token(role)
	c.token(bodyToken)
}

// mix is a bijection of 64 bits that spreads close values (the finalizer of
// splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
