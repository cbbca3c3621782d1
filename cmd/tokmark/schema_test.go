package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnswerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schema.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}`)
	s, err := readSchema(path)
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]bool{`{"n": 3}`: true, `{"n": "3"}`: false, `{}`: false, `n is 3`: false, ``: false, `{"n": 3`: false} {
		if got := s.fits(answer); got != want {
			t.Errorf("%q fits: %v, want %v", answer, got, want)
		}
	}
	for _, bad := range []string{`{`, `{"type": "thing"}`, `{"$ref": "https://example.com/schema.json"}`, `{"$ref": "file:///etc/passwd"}`} {
		write(bad)
		if _, err := readSchema(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
