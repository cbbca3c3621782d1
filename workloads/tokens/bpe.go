package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// bpe is byte pair encoding: a word starts as its characters, and the pair
// that was learnt first is merged, until no pair is known.
type bpe struct {
	*vocab
	pairs        pairTable
	low          [512]int32 // ids of the first characters, -1: none
	unk          int32      // -1: unknown characters vanish
	fuseUnk      bool
	bytes        *[256]int32 // nil: no byte fallback
	ignoreMerges bool
	prefix       string // of all characters but the first
	suffix       string // of the last character
	// cuts: no merge joins a token that ends in a character to one that begins
	// with a blank mark, but for the characters in joins; so a text may be cut
	// before most marks without any change to its tokens.
	cuts  bool
	joins map[rune]bool
}

// blankMark stands for a blank in vocabularies made by SentencePiece.
const blankMark = "▁"

func parseBPE(raw json.RawMessage) (model, error) {
	var p struct {
		Type         string
		Dropout      *float64
		Unk          *string `json:"unk_token"`
		Prefix       *string `json:"continuing_subword_prefix"`
		Suffix       *string `json:"end_of_word_suffix"`
		FuseUnk      bool    `json:"fuse_unk"`
		ByteFallback bool    `json:"byte_fallback"`
		IgnoreMerges bool    `json:"ignore_merges"`
		Vocab        map[string]int64
		Merges       merges
	}
	if err := strict(raw, &p); err != nil {
		return nil, err
	}
	if p.Dropout != nil && *p.Dropout != 0 {
		return nil, errors.New("dropout makes tokens a matter of chance: set it to null")
	}
	v, err := newVocab(p.Vocab)
	if err != nil {
		return nil, err
	}
	m := &bpe{vocab: v, unk: -1, fuseUnk: p.FuseUnk, ignoreMerges: p.IgnoreMerges}
	if p.Prefix != nil {
		m.prefix = *p.Prefix
	}
	if p.Suffix != nil {
		m.suffix = *p.Suffix
	}
	if p.Unk != nil {
		if m.unk = v.lookup(*p.Unk); m.unk < 0 {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", *p.Unk)
		}
	}
	if p.ByteFallback {
		m.bytes = v.byteTokens()
	}
	m.setLow()
	m.pairs = newPairTable(len(p.Merges))
	m.cuts = v.lookup(blankMark) >= 0 && !m.ignoreMerges && m.prefix == "" && m.suffix == ""
	m.joins = map[rune]bool{}
	for rank, pair := range p.Merges {
		a, b := pair[0], pair[1]
		if len(b) < len(m.prefix) {
			return nil, fmt.Errorf("merges[%d]: %q lacks the prefix %q", rank, b, m.prefix)
		}
		left, right, whole := v.lookup(a), v.lookup(b), v.lookup(a+b[len(m.prefix):])
		if left < 0 || right < 0 || whole < 0 {
			return nil, fmt.Errorf("merges[%d]: %q and %q, or what they make, are not in the vocabulary", rank, a, b)
		}
		m.pairs.put(left, right, uint32(rank), whole)
		if strings.HasPrefix(b, blankMark) {
			if _, isByte := byteToken(a); isByte || left == m.unk {
				m.cuts = false // what it stands for does not end as it is written
			}
			r, _ := utf8.DecodeLastRuneInString(a)
			m.joins[r] = true
		}
	}
	return m, nil
}

func (m *bpe) setLow() {
	for r := range m.low {
		m.low[r] = m.lookup(string(rune(r)))
	}
}

// merges are pairs of tokens, in a file as ["a", "b"] or "a b".
type merges [][2]string

func (m *merges) UnmarshalJSON(raw []byte) error {
	if list, ok := bytes.CutPrefix(raw, []byte("[")); ok && bytes.HasPrefix(bytes.TrimSpace(list), []byte("[")) {
		var pairs [][]string
		if err := json.Unmarshal(raw, &pairs); err != nil {
			return err
		}
		*m = make(merges, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return fmt.Errorf("merges[%d] has %d parts, not 2", i, len(p))
			}
			(*m)[i] = [2]string(p)
		}
		return nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return err
	}
	*m = make(merges, 0, len(lines))
	for i, l := range lines {
		if strings.HasPrefix(l, "#version") {
			continue
		}
		a, b, ok := strings.Cut(l, " ")
		if !ok || strings.Contains(b, " ") {
			return fmt.Errorf("merges[%d]: %q is not two tokens with a blank between them", i, l)
		}
		*m = append(*m, [2]string{a, b})
	}
	return nil
}

func (m *bpe) encode(dst []int32, word string, w *work) []int32 {
	if !m.cuts {
		return w.cached(dst, word, m.encodeWord)
	}
	start := 0
	for at := 1; ; {
		i := strings.Index(word[min(at, len(word)):], blankMark)
		if i < 0 {
			return w.cached(dst, word[start:], m.encodeWord)
		}
		at += i
		if r, _ := utf8.DecodeLastRuneInString(word[:at]); !m.joins[r] && r != '▁' {
			dst = w.cached(dst, word[start:at], m.encodeWord)
			start = at
		}
		at += len(blankMark)
	}
}

// encodeWord appends the tokens of a word. The symbols that it starts from
// stand at the end of dst.
func (m *bpe) encodeWord(dst []int32, word string, w *work) []int32 {
	if m.ignoreMerges {
		if id := m.lookup(word); id >= 0 {
			return append(dst, id)
		}
	}
	from := len(dst)
	dst = m.symbols(dst, word)
	n := len(dst) - from
	switch {
	case n < 2:
		return dst
	case n <= shortWord:
		n = m.mergeShort(dst[from:], w)
	default:
		n = m.mergeLong(dst[from:], w)
	}
	return dst[:from+n]
}

// symbols appends the tokens of the single characters.
func (m *bpe) symbols(dst []int32, word string) []int32 {
	unknown := false // an unknown token is due
	for at := 0; at < len(word); {
		r, size := utf8.DecodeRuneInString(word[at:])
		char := word[at : at+size]
		var id int32
		if m.prefix == "" && m.suffix == "" && int(r) < len(m.low) {
			id = m.low[r]
		} else {
			if at > 0 {
				char = m.prefix + char
			}
			if at+size == len(word) {
				char += m.suffix
			}
			id = m.lookup(char)
		}
		at += size
		if id >= 0 {
			if unknown {
				dst = append(dst, m.unk)
				unknown = false
			}
			dst = append(dst, id)
			continue
		}
		if m.bytes != nil {
			var ok bool
			if dst, ok = appendBytes(dst, m.bytes, char); ok {
				continue
			}
		}
		if m.unk >= 0 {
			if unknown && !m.fuseUnk {
				dst = append(dst, m.unk)
			}
			unknown = true
		}
	}
	if unknown {
		dst = append(dst, m.unk)
	}
	return dst
}

// shortWord is up to how many symbols looking through all pairs for the best
// one is faster than a heap.
const shortWord = 32

const noRank = math.MaxUint32

// mergeShort merges in place and returns how many symbols are left.
func (m *bpe) mergeShort(ids []int32, w *work) int {
	// pairs[i] is the merge of ids[i] and ids[i+1].
	pairs := w.pairs[:0]
	for i := range len(ids) - 1 {
		pairs = append(pairs, m.pairs.get(ids[i], ids[i+1]))
	}
	w.pairs = pairs
	for {
		best, at := uint32(noRank), -1
		for i, p := range pairs {
			if p.rank < best {
				best, at = p.rank, i
			}
		}
		if at < 0 {
			return len(pairs) + 1
		}
		ids[at] = pairs[at].id
		copy(ids[at+1:], ids[at+2:len(pairs)+1])
		copy(pairs[at:], pairs[at+1:])
		pairs = pairs[:len(pairs)-1]
		if at > 0 {
			pairs[at-1] = m.pairs.get(ids[at-1], ids[at])
		}
		if at < len(pairs) {
			pairs[at] = m.pairs.get(ids[at], ids[at+1])
		}
	}
}

// mergeLong does the same with a list of the symbols and a heap of the pairs.
func (m *bpe) mergeLong(ids []int32, w *work) int {
	n := len(ids)
	list, heap := w.list[:0], w.heap[:0]
	for i := range n {
		l := link{prev: int32(i - 1), next: int32(i + 1), merge: merge{rank: noRank}}
		if i+1 < n {
			l.merge = m.pairs.get(ids[i], ids[i+1])
			if l.merge.rank != noRank {
				heap = append(heap, uint64(l.merge.rank)<<32|uint64(i))
			}
		}
		list = append(list, l)
	}
	heap.init()
	again := func(i int32) { // the pair that starts at i has changed
		l := &list[i]
		l.merge = merge{rank: noRank}
		if int(l.next) < n {
			l.merge = m.pairs.get(ids[i], ids[l.next])
			if l.merge.rank != noRank {
				heap.push(uint64(l.merge.rank)<<32 | uint64(i))
			}
		}
	}
	for len(heap) > 0 {
		top := heap.pop()
		i := int32(uint32(top))
		l := &list[i]
		if l.merge.rank != uint32(top>>32) {
			continue // the pair is not there any more
		}
		gone := l.next
		ids[i] = l.merge.id
		l.next = list[gone].next
		list[gone].merge.rank = noRank
		if int(l.next) < n {
			list[l.next].prev = i
		}
		again(i)
		if l.prev >= 0 {
			again(l.prev)
		}
	}
	w.list, w.heap = list, heap
	left := 0
	for i := int32(0); int(i) < n; i = list[i].next {
		ids[left] = ids[i]
		left++
	}
	return left
}

// link is a symbol in the list of a long word.
type link struct {
	prev, next int32 // next is the number of symbols for the last one
	merge      merge // with the next one
}

// rankHeap is a binary min-heap of rank<<32 | place: of equal ranks the
// leftmost goes first.
type rankHeap []uint64

func (h rankHeap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h rankHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[i] <= h[c] {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func (h *rankHeap) push(v uint64) {
	s := append(*h, v)
	for i := len(s) - 1; i > 0; {
		p := (i - 1) / 2
		if s[p] <= s[i] {
			break
		}
		s[p], s[i] = s[i], s[p]
		i = p
	}
	*h = s
}

func (h *rankHeap) pop() uint64 {
	s := *h
	top := s[0]
	s[0] = s[len(s)-1]
	s = s[:len(s)-1]
	s.down(0)
	*h = s
	return top
}

// merge is what a pair of tokens becomes; rank noRank: it stays.
type merge struct {
	rank uint32
	id   int32
}

// pairTable is a hash table from pairs of tokens to merges: one look at memory
// a question, which is what the time of byte pair encoding goes to.
type pairTable struct {
	slots []pairSlot
	shift uint
}

type pairSlot struct {
	left, right int32 // left -1: empty
	merge       merge
}

func newPairTable(n int) pairTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	t := pairTable{make([]pairSlot, 1<<bits), 64 - bits}
	for i := range t.slots {
		t.slots[i].left = -1
	}
	return t
}

// slot finds the slot of a pair, or the empty one where it would be.
func (t *pairTable) slot(left, right int32) *pairSlot {
	h := (uint64(uint32(left))<<32 | uint64(uint32(right))) * 0x9E3779B97F4A7C15
	for i := h >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		if s := &t.slots[i]; s.left < 0 || s.left == left && s.right == right {
			return s
		}
	}
}

// put adds a pair; of two equal pairs the later one counts.
func (t *pairTable) put(left, right int32, rank uint32, whole int32) {
	*t.slot(left, right) = pairSlot{left, right, merge{rank, whole}}
}

func (t *pairTable) get(left, right int32) merge {
	if s := t.slot(left, right); s.left >= 0 {
		return s.merge
	}
	return merge{rank: noRank}
}
