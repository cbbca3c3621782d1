package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
)

// vocabulary is a byte-pair tokenizer: the tokens by number, the last of which
// ends a text, and the merges in their order.
type vocabulary struct {
	tokens, merges []string
}

// shape is the size of a model. The width is a multiple of 64, that of a head.
type shape struct {
	width, layers, context int
}

const headWidth = 64

// chatTemplate writes one line a message.
const chatTemplate = `{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}`

// The types of values and of tensors in a GGUF file of version 3.
const (
	ggufUint32  = 4
	ggufInt32   = 5
	ggufFloat32 = 6
	ggufBool    = 7
	ggufString  = 8
	ggufArray   = 9

	tensorF32 = 0
	tensorF16 = 1

	alignment = 32 // bytes
)

// tensor is a matrix (or, with rows 0, a vector) of random numbers of that
// spread, or of ones if it is 0.
type tensor struct {
	name          string
	columns, rows int
	spread        float64
}

func (t tensor) kind() uint32 {
	if t.spread == 0 {
		return tensorF32
	}
	return tensorF16
}

func (t tensor) size() int {
	bytes := 2
	if t.kind() == tensorF32 {
		bytes = 4
	}
	return t.columns * max(t.rows, 1) * bytes
}

func aligned(n int) int { return (n + alignment - 1) / alignment * alignment }

// writeGGUF writes a model of llama's architecture with random weights. Equal
// arguments give equal bytes. Such a model hardly ever ends a text by itself,
// and all that surrounds its weights is as in a real one.
func writeGGUF(to io.Writer, v vocabulary, s shape) error {
	if s.width%headWidth != 0 || s.layers < 1 || len(v.tokens) == 0 {
		return fmt.Errorf("no model has the shape %+v and %d tokens", s, len(v.tokens))
	}
	inner := 2 * s.width // of the feed-forward part
	matrix := func(name string, columns, rows int) tensor { return tensor{name, columns, rows, 0.08} }
	tensors := []tensor{
		{"token_embd.weight", s.width, len(v.tokens), 0.3},
		{"output_norm.weight", s.width, 0, 0},
		{"output.weight", s.width, len(v.tokens), 0.15},
	}
	for i := range s.layers {
		p := fmt.Sprintf("blk.%d.", i)
		tensors = append(tensors,
			tensor{p + "attn_norm.weight", s.width, 0, 0},
			matrix(p+"attn_q.weight", s.width, s.width), matrix(p+"attn_k.weight", s.width, s.width),
			matrix(p+"attn_v.weight", s.width, s.width), matrix(p+"attn_output.weight", s.width, s.width),
			tensor{p + "ffn_norm.weight", s.width, 0, 0},
			matrix(p+"ffn_gate.weight", s.width, inner), matrix(p+"ffn_up.weight", s.width, inner),
			matrix(p+"ffn_down.weight", inner, s.width),
		)
	}
	const ordinary, control = 1, 3
	types := make([]int32, len(v.tokens))
	for i := range types {
		types[i] = ordinary
	}
	last := len(v.tokens) - 1
	types[last] = control
	heads := uint32(s.width / headWidth)
	facts := []struct {
		key   string
		value any
	}{
		{"general.architecture", "llama"},
		{"general.name", "tokmark-random"},
		{"general.file_type", uint32(tensorF16)},
		{"llama.block_count", uint32(s.layers)},
		{"llama.context_length", uint32(s.context)},
		{"llama.embedding_length", uint32(s.width)},
		{"llama.feed_forward_length", uint32(inner)},
		{"llama.attention.head_count", heads},
		{"llama.attention.head_count_kv", heads},
		{"llama.attention.layer_norm_rms_epsilon", float32(1e-5)},
		{"llama.rope.freq_base", float32(10000)},
		{"llama.rope.dimension_count", uint32(headWidth)},
		{"llama.vocab_size", uint32(len(v.tokens))},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", "gpt-2"},
		{"tokenizer.ggml.tokens", v.tokens},
		{"tokenizer.ggml.token_type", types},
		{"tokenizer.ggml.merges", v.merges},
		{"tokenizer.ggml.bos_token_id", uint32(last)},
		{"tokenizer.ggml.eos_token_id", uint32(last)},
		{"tokenizer.ggml.add_bos_token", false},
		{"tokenizer.chat_template", chatTemplate},
	}

	w := ggufWriter{to: bufio.NewWriterSize(to, 1<<20)}
	w.raw([]byte("GGUF"))
	w.number(uint32(3))
	w.number(uint64(len(tensors)))
	w.number(uint64(len(facts)))
	for _, f := range facts {
		w.text(f.key)
		w.value(f.value)
	}
	at := 0
	for _, t := range tensors {
		w.text(t.name)
		if t.rows == 0 {
			w.number(uint32(1))
			w.number(uint64(t.columns))
		} else {
			w.number(uint32(2))
			w.number(uint64(t.columns))
			w.number(uint64(t.rows))
		}
		w.number(t.kind())
		w.number(uint64(at))
		at += aligned(t.size())
	}
	w.align()
	r := rand.New(rand.NewPCG(1, 2))
	var half [2]byte
	for _, t := range tensors {
		for range t.columns * max(t.rows, 1) {
			if t.spread == 0 {
				w.number(float32(1))
				continue
			}
			binary.LittleEndian.PutUint16(half[:], float16(float32(r.NormFloat64()*t.spread)))
			w.raw(half[:])
		}
		w.align()
	}
	return errors.Join(w.err, w.to.Flush())
}

// ggufWriter keeps the first error.
type ggufWriter struct {
	to  *bufio.Writer
	n   int // bytes so far
	err error
}

func (w *ggufWriter) raw(b []byte) {
	n, err := w.to.Write(b)
	w.n += n
	if w.err == nil {
		w.err = err
	}
}

func (w *ggufWriter) number(v any) {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if w.err == nil {
		w.err = err
	}
	w.raw(b)
}

func (w *ggufWriter) text(s string) {
	w.number(uint64(len(s)))
	w.raw([]byte(s))
}

// value writes a value behind its type.
func (w *ggufWriter) value(v any) {
	switch v := v.(type) {
	case string:
		w.number(uint32(ggufString))
		w.text(v)
	case uint32:
		w.number(uint32(ggufUint32))
		w.number(v)
	case float32:
		w.number(uint32(ggufFloat32))
		w.number(v)
	case bool:
		w.number(uint32(ggufBool))
		w.number(v)
	case []string:
		w.number(uint32(ggufArray))
		w.number(uint32(ggufString))
		w.number(uint64(len(v)))
		for _, s := range v {
			w.text(s)
		}
	case []int32:
		w.number(uint32(ggufArray))
		w.number(uint32(ggufInt32))
		w.number(uint64(len(v)))
		w.number(v)
	default:
		w.err = errors.Join(w.err, fmt.Errorf("a GGUF file holds no %T", v))
	}
}

func (w *ggufWriter) align() { w.raw(make([]byte, aligned(w.n)-w.n)) }

// float16 rounds towards zero; what is too small for a normal number is 0.
func float16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits>>16) & 0x8000
	const biases = 127 - 15
	switch exponent := int(bits>>23&0xff) - biases; {
	case exponent <= 0:
		return sign
	case exponent >= 31:
		return sign | 0x7bff // the largest number
	default:
		return sign | uint16(exponent)<<10 | uint16(bits>>13)&0x3ff
	}
}
