package tokens

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestOpen(t *testing.T) {
	folder := t.TempDir()
	b, err := os.ReadFile("testdata/tiny/llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "tokenizer.json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	for spec, name := range map[string]string{
		"cl100k_base":               "tiktoken:cl100k_base",
		"tiktoken:o200k_base":       "tiktoken:o200k_base",
		"testdata/tiny/llama3.json": "testdata/tiny/llama3.json",
		folder:                      filepath.Join(folder, "tokenizer.json"),
	} {
		if got := open(t, spec).Name(); got != name {
			t.Errorf("Open(%q).Name() = %q, want %q", spec, got, name)
		}
	}
	for spec, want := range map[string]string{
		"":                  "give the path of a tokenizer.json",
		"no/such/file.json": "or cl100k_base or o200k_base",
		"gpt-4o":            "give the path of a tokenizer.json",
		"tiktoken:gpt-4o":   "try tiktoken:cl100k_base",
		t.TempDir():         "tokenizer.json",
	} {
		if _, err := Open(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): error %v, want one with %q", spec, err, want)
		}
	}
}

const tinyModel = `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`

// What is not known is refused by the name of its place: a count that may be
// wrong is worse than none.
func TestRefused(t *testing.T) {
	node := func(place, node string) string { return `{"` + place + `":` + node + `,` + tinyModel + `}` }
	for _, tt := range []struct{ content, want string }{
		{"", "line 1"},
		{"{\n\n  oops}", "line 3"},
		{`[]`, "array"},
		{`{}`, "model: there is none"},
		{`{"version":"2.0",` + tinyModel + `}`, `version "2.0"`},
		{`{"model":{"type":"WordLevel","vocab":{}}}`, `model: type "WordLevel" is not supported`},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`, "merges[0]"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":["ab"]}}`, "not two tokens"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","b","c"]]}}`, "3 parts"},
		{`{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, "id -1"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}}`, "dropout"},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"?"}}`, `unk_token "?"`},
		{`{"model":{"type":"BPE","vocab":{"a":0},"merges":[],"novelty":1}}`, "novelty"},
		{`{"model":{"type":"WordPiece","vocab":{"a":0},"unk_token":"[UNK]"}}`, `unk_token "[UNK]"`},
		{`{"model":{"type":"Unigram","vocab":[["a",-1.5]],"unk_id":null}}`, "unk_id"},
		{`{"model":{"type":"Unigram","vocab":[["a"]],"unk_id":0}}`, "vocab[0]"},
		{node("normalizer", `{"type":"Precompiled","precompiled_charsmap":"AA"}`), `normalizer: type "Precompiled" is not supported`},
		{node("normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Odd"}]}`), `normalizer.normalizers[1]: type "Odd"`},
		{node("normalizer", `{"type":"NFC","form":"new"}`), `normalizer (NFC): json: unknown field "form"`},
		{node("normalizer", `{"lower":true}`), "normalizer: it has no type"},
		{node("normalizer", `{"type":"Replace","pattern":{"String":""},"content":""}`), "normalizer (Replace)"},
		{node("pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"UnicodeScripts"}]}`), `pre_tokenizer.pretokenizers[0]: type "UnicodeScripts"`},
		{node("pre_tokenizer", `{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false}`), "pre_tokenizer (Split)"},
		{node("pre_tokenizer", `{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated","invert":false}`), `\w is not supported`},
		{node("pre_tokenizer", `{"type":"Split","pattern":{"Regex":"a"},"behavior":"Sideways","invert":false}`), `behavior "Sideways"`},
		{node("pre_tokenizer", `{"type":"Split","behavior":"Isolated","invert":false}`), "missing"},
		{node("pre_tokenizer", `{"type":"Metaspace","replacement":"__"}`), "one character"},
		{node("pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"often"}`), `"often"`},
		{node("decoder", `{"type":"CTC"}`), `decoder: type "CTC"`},
		{node("added_tokens", `[{"id":1,"content":"x","colour":"red"}]`), "added_tokens"},
		{`{"normalizer":{"type":"Strip","strip_left":true,"strip_right":false},"added_tokens":[{"id":1,"content":" ","normalized":true}],` + tinyModel + `}`, "nothing is left"},
	} {
		file := filepath.Join(t.TempDir(), "tokenizer.json")
		if err := os.WriteFile(file, []byte(tt.content), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(file)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s:\n  error %v, want one with %q and the file", tt.content, err, tt.want)
		}
	}
}

// The vectors are those of OpenAI's library: testdata/make_tiktoken.mjs.
func TestTiktoken(t *testing.T) {
	texts := corpus(t)
	for name, want := range readJSON[map[string][][2]uint32](t, "testdata/tiktoken.json") {
		tok := open(t, name)
		for i, text := range texts {
			ids := tok.Encode(nil, text)
			var le bytes.Buffer
			if err := binary.Write(&le, binary.LittleEndian, ids); err != nil {
				t.Fatal(err)
			}
			if got := [2]uint32{uint32(len(ids)), crc32.ChecksumIEEE(le.Bytes())}; got != want[i] {
				t.Errorf("%s: text %d %q: %d tokens %v, want %d", name, i, text, len(ids), ids, want[i][0])
			}
			if n := tok.Count(text); n != len(ids) {
				t.Errorf("%s: text %d %q: Count = %d, Encode gives %d", name, i, text, n, len(ids))
			}
			if back := tok.Decode(ids); back != text {
				t.Errorf("%s: text %d %q decodes to %q", name, i, text, back)
			}
		}
	}
}

// A byte-level vocabulary without a normalizer loses nothing.
func TestRoundTrip(t *testing.T) {
	for _, spec := range []string{
		"testdata/tiny/llama3.json", "testdata/tiny/deepseek.json", "testdata/tiny/o200k.json",
		"testdata/tiny/split_merged_with_next.json", "cl100k_base",
	} {
		tok := open(t, spec)
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.String().Draw(t, "text")
			ids := tok.Encode([]int32{-7}, text)
			if ids[0] != -7 || len(ids)-1 != tok.Count(text) {
				t.Fatalf("%s: Encode(%q) = %v, Count = %d", spec, text, ids, tok.Count(text))
			}
			if back := tok.Decode(ids[1:]); back != text {
				t.Fatalf("%s: %q came back as %q", spec, text, back)
			}
		})
	}
}

// What is not UTF-8 is read as a request's JSON would carry it, and half a
// character is written as servers do.
func TestInvalidUTF8(t *testing.T) {
	for _, spec := range []string{"testdata/tiny/llama3.json", "cl100k_base"} {
		tok := open(t, spec)
		got, want := tok.Encode(nil, "a\xff\xe4b"), tok.Encode(nil, "a\uFFFD\uFFFDb")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", spec, diff)
		}
		if got := tok.Decode(append([]int32{1 << 30, -1}, tok.Encode(nil, "ab")...)); got != "ab" {
			t.Errorf("%s: unknown ids: decoded to %q", spec, got)
		}
		ids := tok.Encode(nil, "x\U0001d400")
		if got := tok.Decode(ids[:len(ids)-1]); got != "x\uFFFD" {
			t.Errorf("%s: half a character: decoded to %q", spec, got)
		}
	}
	for in, want := range map[string]string{
		"":             "",
		"é":            "é",
		"\xe2\x82":     "\uFFFD",             // one character, cut off
		"\xe2\x82x":    "\uFFFDx",            //
		"\xf0\x9f\x98": "\uFFFD",             //
		"\xf0\x9f\x28": "\uFFFD(",            //
		"\xe2\x28":     "\uFFFD(",            //
		"\x80\x80":     "\uFFFD\uFFFD",       // never the start of one
		"\xc0\xaf":     "\uFFFD\uFFFD",       // overlong
		"\xe0\x80\x80": "\uFFFD\uFFFD\uFFFD", //
		"\xed\xa0\x80": "\uFFFD\uFFFD\uFFFD", // a surrogate
		"\xf4\x90\x80": "\uFFFD\uFFFD\uFFFD", // beyond Unicode
		"\xf0\x80a":    "\uFFFD\uFFFDa",      //
		"\xf8\xff":     "\uFFFD\uFFFD",       //
	} {
		if got := lossyUTF8(in); got != want {
			t.Errorf("lossyUTF8(%q) = %q, want %q", in, got, want)
		}
	}
}

// Many goroutines get what one alone gets.
func TestConcurrent(t *testing.T) {
	texts := corpus(t)[100:200]
	for _, spec := range []string{"testdata/tiny/gemma.json", "testdata/tiny/unigram.json", "testdata/tiny/bert.json", "cl100k_base"} {
		alone, shared := open(t, spec), open(t, spec)
		var want [][]int32
		for _, text := range texts {
			want = append(want, alone.Encode([]int32{}, text))
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range texts {
					i = (i + g*37) % len(texts)
					got := shared.Encode([]int32{}, texts[i])
					if !cmp.Equal(want[i], got) || shared.Count(texts[i]) != len(got) || alone.Decode(got) != shared.Decode(got) {
						t.Errorf("%s: text %d: %v, alone %v", spec, i, got, want[i])
					}
				}
			})
		}
		wg.Wait()
	}
}

// Whatever a file holds, opening it ends in a tokenizer that works or in an
// error, never in a panic.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"gemma", "bert", "unigram", "added", "suffix", "bertcased"} {
		b, err := os.ReadFile("testdata/tiny/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "Hello  wörld▁\n<mask>")
		f.Add(b[:len(b)/2], "x")
	}
	f.Add([]byte(`{"pre_tokenizer":{"type":"Metaspace","replacement":"_"},"decoder":{"type":"Strip","content":"a","start":9,"stop":9},`+tinyModel+`}`), "ab a")
	f.Add([]byte(`{"added_tokens":[{"id":9,"content":"b","lstrip":true,"rstrip":true,"single_word":true}],`+tinyModel+`}`), "a b a")
	f.Fuzz(func(t *testing.T, content []byte, text string) {
		if bytes.Contains(content, []byte("Regex")) {
			t.Skip("expressions that take for ever are easy to find, and no news")
		}
		tok, err := parse("fuzz", content)
		if err != nil {
			return
		}
		ids := tok.Encode(nil, text)
		if n := tok.Count(text); n != len(ids) {
			t.Fatalf("Count = %d, Encode gives %d", n, len(ids))
		}
		tok.Decode(ids)
	})
}
