package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// model turns one word to tokens.
type model interface {
	encode(dst []int32, word string, w *work) []int32
	vocabulary() *vocab
}

// vocab is the vocabulary of a model.
type vocab struct {
	ids    map[string]int32
	tokens map[int32]string
}

func newVocab(ids map[string]int64) (*vocab, error) {
	v := &vocab{make(map[string]int32, len(ids)), make(map[int32]string, len(ids))}
	for token, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return nil, fmt.Errorf("vocab: %q has the id %d", token, id)
		}
		v.ids[token] = int32(id)
		// Of two tokens with one id, always decode to the same.
		if old, ok := v.tokens[int32(id)]; !ok || token < old {
			v.tokens[int32(id)] = token
		}
	}
	return v, nil
}

func (v *vocab) vocabulary() *vocab { return v }

// lookup returns the id of a token, or -1.
func (v *vocab) lookup(token string) int32 {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return -1
}

// byteTokens returns the ids of <0x00> to <0xFF>, -1 for one that is missing.
func (v *vocab) byteTokens() *[256]int32 {
	var ids [256]int32
	for b := range ids {
		ids[b] = v.lookup(fmt.Sprintf("<0x%02X>", b))
	}
	return &ids
}

// appendBytes appends the byte tokens of s; false: one is missing.
func appendBytes(dst []int32, bytes *[256]int32, s string) ([]int32, bool) {
	from := len(dst)
	for i := range len(s) {
		id := bytes[s[i]]
		if id < 0 {
			return dst[:from], false
		}
		dst = append(dst, id)
	}
	return dst, true
}

func parseModel(raw json.RawMessage) (model, error) {
	if isNull(raw) {
		return nil, errors.New("model: there is none")
	}
	var p struct {
		Type   string
		Merges json.RawMessage
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if p.Type == "" && p.Merges != nil {
		p.Type = "BPE" // older files do not say
	}
	var m model
	var err error
	switch p.Type {
	case "BPE":
		m, err = parseBPE(raw)
	case "WordPiece":
		m, err = parseWordPiece(raw)
	case "Unigram":
		m, err = parseUnigram(raw)
	default:
		return nil, fmt.Errorf("model: type %q is not supported", p.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("model (%s): %w", p.Type, err)
	}
	return m, nil
}
