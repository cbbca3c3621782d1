package tokens

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The vectors are the official library's: testdata/make_vectors.py.

func readJSON[T any](t testing.TB, path string) T {
	t.Helper()
	var v T
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

func corpus(t testing.TB) []string { return readJSON[[]string](t, "testdata/corpus.json") }

func open(t testing.TB, spec string) Tokenizer {
	t.Helper()
	tok, err := Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func tinyFiles(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/tiny/*.json")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range all {
		if !strings.HasSuffix(f, ".vectors.json") {
			files = append(files, f)
		}
	}
	if len(files) < 20 {
		t.Fatalf("there are only %d tiny tokenizers", len(files))
	}
	return files
}

// A small tokenizer of each kind gives the ids and the text that the official
// library gives.
func TestTiny(t *testing.T) {
	texts := corpus(t)
	for _, file := range tinyFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			tok := open(t, file)
			for _, row := range readJSON[[][3]json.RawMessage](t, strings.TrimSuffix(file, ".json")+".vectors.json") {
				var i int
				var want []int32
				var decoded string
				for j, into := range []any{&i, &want, &decoded} {
					if err := json.Unmarshal(row[j], into); err != nil {
						t.Fatal(err)
					}
				}
				got := tok.Encode([]int32{}, texts[i])
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("text %d %q: ids (-official +ours):\n%s", i, texts[i], diff)
					continue
				}
				if n := tok.Count(texts[i]); n != len(want) {
					t.Errorf("text %d %q: Count = %d, Encode gives %d", i, texts[i], n, len(want))
				}
				if s := tok.Decode(got); s != decoded {
					t.Errorf("text %d %q: decodes to %q, official %q", i, texts[i], s, decoded)
				}
			}
		})
	}
}

// cached returns the file of a tokenizer in the folder that the environment
// names; their vocabularies are not ours to ship.
func cached(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("TOKMARK_TOKENIZERS")
	if dir == "" {
		t.Skip("TOKMARK_TOKENIZERS does not name a folder with " + name + "/tokenizer.json")
	}
	file := filepath.Join(dir, name, "tokenizer.json")
	if _, err := os.Stat(file); err != nil {
		t.Skip(err)
	}
	return file
}

var bigNames = []string{"llama3_1", "qwen3", "gemma3", "deepseek_v3"}

// The tokenizers of four models give the ids that the official library gives,
// on every text of the corpus.
func TestBig(t *testing.T) {
	texts := corpus(t)
	for _, name := range bigNames {
		t.Run(name, func(t *testing.T) {
			file := cached(t, name)
			want := readJSON[struct {
				SHA256 string
				Texts  [][3]uint32
			}](t, filepath.Join("testdata/big", name+".json"))
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want.SHA256 {
				t.Skipf("%s is another version than the vectors are for", file)
			}
			tok := open(t, filepath.Dir(file))
			if len(want.Texts) != len(texts) {
				t.Fatalf("vectors for %d texts, the corpus has %d", len(want.Texts), len(texts))
			}
			exact := 0
			for i, text := range texts {
				ids := tok.Encode(nil, text)
				var le bytes.Buffer
				if err := binary.Write(&le, binary.LittleEndian, ids); err != nil {
					t.Fatal(err)
				}
				back := tok.Decode(ids)
				got := [3]uint32{uint32(len(ids)), crc32.ChecksumIEEE(le.Bytes()), crc32.ChecksumIEEE([]byte(back))}
				if got != want.Texts[i] {
					t.Errorf("text %d %q: %d tokens %v, official %d (ids or decoded text %q differ)", i, text, len(ids), ids, want.Texts[i][0], back)
					continue
				}
				exact++
			}
			t.Logf("%d of %d texts exact", exact, len(texts))
		})
	}
}
