// Package tokens counts, makes and reads back the tokens of a text, as the
// tokenizer of a model does.
//
// It reads tokenizer.json files of Hugging Face itself (byte-level and
// byte-fallback BPE, WordPiece and Unigram) and knows OpenAI's vocabularies. A file that asks for anything it does not know is refused
// when it is opened: a count is exact, or there is none.
//
// No special token is ever added. The post_processor, truncation and padding
// of a tokenizer.json are not used: what they add (a begin-of-text token, say)
// belongs to a request, not to its text. Special tokens that are written out
// in a text are found in it, as servers do; OpenAI's vocabularies, as OpenAI
// does, take them for plain text.
//
// Exact means: as the official libraries, but for two rarities. Characters
// younger than Unicode 15 have no category yet here, and the older tables of
// some normalizers there (NFKC, NFKD, StripAccents, BertNormalizer) lack
// others. And the forms NFC to NFKD break up more than 30 combining marks in a
// row.
package tokens

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Tokenizer turns texts to tokens and back. It is safe for concurrent use.
//
// A text that is not valid UTF-8 is read as the JSON of a request would carry
// it: each invalid byte is U+FFFD.
type Tokenizer interface {
	// Name tells which tokenizer it is: "tiktoken:cl100k_base", or the path
	// of the file.
	Name() string
	// Count returns the number of tokens of the text, special tokens that the
	// server adds not included.
	Count(text string) int
	// Encode appends the tokens of the text to dst.
	Encode(dst []int32, text string) []int32
	// Decode returns the text of the tokens, special tokens written out.
	// Unknown ids are left out. Bytes that are no UTF-8, as when a character's
	// tokens are not complete, become U+FFFD.
	Decode(ids []int32) string
}

// Open opens a tokenizer: "cl100k_base" or "o200k_base" (also with the prefix
// "tiktoken:"), else the path of a tokenizer.json or of a folder that holds
// one.
func Open(spec string) (Tokenizer, error) {
	name, prefixed := strings.CutPrefix(spec, "tiktoken:")
	if t, ok, err := openTiktoken(name); ok {
		return t, err
	}
	if prefixed {
		return nil, fmt.Errorf("open tokenizer %q: there is no such vocabulary: try tiktoken:cl100k_base or tiktoken:o200k_base", spec)
	}
	path := spec
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "tokenizer.json")
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open tokenizer %q: %w: give the path of a tokenizer.json, of a folder with one, or cl100k_base or o200k_base", spec, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open tokenizer: %w", err)
	}
	t, err := parse(path, b)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer %s: %w", path, err)
	}
	return t, nil
}
