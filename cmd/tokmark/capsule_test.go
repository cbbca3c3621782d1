package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNamedFile(t *testing.T) {
	folder := t.TempDir()
	inside := filepath.Join(folder, "tokenizer.json")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ option, value, before, path string }{
		{"input-file", "a.jsonl", "", "a.jsonl"}, {"input-file", "", "", ""},
		{"response-format", "s.json", "", "s.json"},
		{"isl-distribution", "normal", "", ""}, {"osl-distribution", "histogram:h.txt", "histogram:", "h.txt"},
		{"tokenizer", "none", "", ""}, {"tokenizer", "server", "", ""}, {"tokenizer", "cl100k_base", "", ""}, {"tokenizer", "tiktoken:o200k_base", "", ""},
		{"tokenizer", "t/tokenizer.json", "", "t/tokenizer.json"}, {"tokenizer", folder, "", inside},
	} {
		if before, path := namedFile(c.option, c.value); before != c.before || path != c.path {
			t.Errorf("--%s %s names %q after %q, want %q after %q", c.option, c.value, path, before, c.path, c.before)
		}
	}
}
