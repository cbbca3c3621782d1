package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// unigram is SentencePiece's model of that name: of all ways to cut a word
// into tokens the one with the best sum of scores.
type unigram struct {
	*vocab
	trie     *trie
	scores   []float64 // by id
	unk      int32
	unkScore float64
	bytes    *[256]int32 // nil: no byte fallback
}

// unkPenalty is how much worse than the worst token an unknown character is.
const unkPenalty = 10

func parseUnigram(raw json.RawMessage) (model, error) {
	var p struct {
		Type         string
		Unk          *int `json:"unk_id"`
		ByteFallback bool `json:"byte_fallback"`
		Vocab        [][]json.RawMessage
	}
	if err := strict(raw, &p); err != nil {
		return nil, err
	}
	if p.Unk == nil || *p.Unk < 0 || *p.Unk >= len(p.Vocab) {
		return nil, errors.New("unk_id is missing or not in the vocabulary")
	}
	ids := make(map[string]int64, len(p.Vocab))
	m := unigram{trie: newTrie(), scores: make([]float64, len(p.Vocab)), unk: int32(*p.Unk)}
	worst := math.Inf(1)
	for i, entry := range p.Vocab {
		var token string
		if len(entry) != 2 {
			return nil, fmt.Errorf("vocab[%d] is not a token and its score", i)
		}
		if err := errors.Join(json.Unmarshal(entry[0], &token), json.Unmarshal(entry[1], &m.scores[i])); err != nil {
			return nil, fmt.Errorf("vocab[%d]: %w", i, err)
		}
		ids[token] = int64(i)
		if token != "" {
			m.trie.insert(token, int32(i))
		}
		worst = min(worst, m.scores[i])
	}
	m.unkScore = worst - unkPenalty
	var err error
	if m.vocab, err = newVocab(ids); err != nil {
		return nil, err
	}
	if p.ByteFallback {
		m.bytes = m.byteTokens()
	}
	return m, nil
}

// best is the best way to cut a word up to some place: its last token and
// where that starts.
type best struct {
	score float64
	start int32 // -1: no way found yet
	id    int32
}

func (m unigram) encode(dst []int32, word string, w *work) []int32 {
	w.best = w.best[:0]
	for range len(word) + 1 {
		w.best = append(w.best, best{start: -1})
	}
	offer := func(end int, b best) {
		if t := &w.best[end]; t.start < 0 || b.score > t.score {
			*t = b
		}
	}
	for at := 0; at < len(word); {
		_, size := utf8.DecodeRuneInString(word[at:])
		here, single := w.best[at].score, false
		node := int32(0)
		for i := at; i < len(word); i++ {
			n, ok := m.trie.child(node, word[i])
			if !ok {
				break
			}
			node = n
			if id := m.trie.value[node]; id >= 0 {
				offer(i+1, best{here + m.scores[id], int32(at), id})
				single = single || i+1-at == size
			}
		}
		if !single {
			offer(at+size, best{here + m.unkScore, int32(at), m.unk})
		}
		at += size
	}
	// Back from the end; unknown tokens in a row are one.
	w.cuts = w.cuts[:0]
	for end := len(word); end > 0; {
		b := w.best[end]
		start := int(b.start)
		for b.id == m.unk && start > 0 && w.best[start].id == m.unk {
			start = int(w.best[start].start)
		}
		w.cuts = append(w.cuts, span{start, end, false})
		end = start
	}
	for i := len(w.cuts) - 1; i >= 0; i-- {
		part := word[w.cuts[i].start:w.cuts[i].end]
		id := m.lookup(part)
		if id < 0 && m.bytes != nil {
			var ok bool
			if dst, ok = appendBytes(dst, m.bytes, part); ok {
				continue
			}
		}
		if id < 0 {
			id = m.unk
		}
		dst = append(dst, id)
	}
	return dst
}
