package tokens

import (
	"fmt"
	"sync"

	"github.com/tiktoken-go/tokenizer"
)

// o200kSplit is the pattern of GPT-4o's vocabulary.
const o200kSplit = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
	`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// openTiktoken opens one of OpenAI's vocabularies; ok is false if there is none
// of that name. Texts like <|endoftext|> are plain text to it.
//
// Only the vocabulary comes from the library: its version 0.10.0 splits some
// white space in the wrong place and loses U+007F.
func openTiktoken(name string) (t Tokenizer, ok bool, err error) {
	var enc tokenizer.Encoding
	var expr string
	var size int
	switch name {
	case "cl100k_base":
		enc, expr, size = tokenizer.Cl100kBase, gpt4Split, 100256
	case "o200k_base":
		enc, expr, size = tokenizer.O200kBase, o200kSplit, 199998
	default:
		return nil, false, nil
	}
	codec, err := tokenizer.Get(enc)
	if err != nil {
		return nil, true, fmt.Errorf("open tokenizer %q: %w", name, err)
	}
	find, err := regex(expr)
	if err != nil {
		return nil, true, fmt.Errorf("open tokenizer %q: %w", name, err)
	}
	v := &vocab{make(map[string]int32, size), make(map[int32]string, size)}
	for id := range int32(size) {
		token, err := codec.Decode([]uint{uint(id)})
		if err != nil {
			return nil, true, fmt.Errorf("open tokenizer %q: token %d: %w", name, id, err)
		}
		token = toByteLevel(token)
		v.ids[token], v.tokens[id] = id, token
	}
	return &huggingFace{
		name:     "tiktoken:" + name,
		before:   addedTokens{trie: newTrie()},
		after:    addedTokens{trie: newTrie()},
		steps:    []preTokenizer{split(find, isolated), byteLevel},
		model:    rankedBPE(v),
		decoders: []decoder{decodeByteLevel},
		works:    sync.Pool{New: newWork},
	}, true, nil
}

// rankedBPE makes the model of a byte-level vocabulary in which the id of a
// token is also its rank: two tokens merge if what they make is a token.
func rankedBPE(v *vocab) *bpe {
	m := &bpe{vocab: v, unk: -1, ignoreMerges: true}
	m.setLow()
	each := func(f func(left, right, whole int32)) {
		for whole := range int32(len(v.tokens)) {
			token := v.tokens[whole]
			for cut := range token { // at each character, which is a byte
				if cut == 0 {
					continue
				}
				left, right := v.lookup(token[:cut]), v.lookup(token[cut:])
				if left >= 0 && right >= 0 {
					f(left, right, whole)
				}
			}
		}
	}
	n := 0
	each(func(_, _, _ int32) { n++ })
	m.pairs = newPairTable(n)
	each(func(left, right, whole int32) { m.pairs.put(left, right, uint32(whole), whole) })
	return m
}
