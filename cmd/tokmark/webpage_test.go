package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestWebPage: a web page in place of an API is named as one, wherever it is met.
func TestWebPage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!DOCTYPE html>\n<html><style>p{}</style>\n<p>Welcome to   the portal</p>\ndata: {\n</html>")
	}))
	defer server.Close()
	const want = `the answer is a web page (text/html; charset=utf-8) that begins "Welcome to the portal data: {": is --url the address of an API?`
	for name, args := range map[string][]string{
		"models":       nil,
		"preflight":    {"--model", "m"},
		"whole":        {"--model", "m", "--streaming=false"},
		"no preflight": {"--model", "m", "--preflight=false", "--request-count", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program("", append([]string{"run", "--url", server.URL, "--ui", "none", "--artifact-dir", filepath.Join(t.TempDir(), "run")}, args...)...)
			said := strings.Join(strings.Fields(stdout+stderr), " ")
			if code == exitOK || !strings.Contains(said, want) && name != "no preflight" || !strings.Contains(said, "is a web page") {
				t.Errorf("exit code %d, want the words %q in:\n%s%s", code, want, stdout, stderr)
			}
		})
	}
}
