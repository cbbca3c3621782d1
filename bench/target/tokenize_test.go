package target

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestTokenizerOfTheServer(t *testing.T) {
	for name, c := range map[string]struct{ field, answer string }{
		"vLLM":      {"prompt", `{"count":%d,"max_model_len":100,"tokens":[1]}`},
		"llama.cpp": {"content", `{"tokens":[%s]}`},
		"TGI":       {"inputs", `[%s]`},
	} {
		t.Run(name, func(t *testing.T) {
			broken := false
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body map[string]any
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/tokenize" || broken {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				n := len(strings.Fields(body[c.field].(string)))
				if strings.Contains(c.answer, "%d") {
					fmt.Fprintf(w, c.answer, n)
				} else {
					fmt.Fprintf(w, c.answer, strings.TrimSuffix(strings.Repeat("7,", n), ","))
				}
			}))
			defer srv.Close()
			base, _ := url.Parse(srv.URL)
			tok, err := (&Server{Base: base}).TokenCounter(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			if n := tok.Count("one two three"); n != 3 || tok.Err() != nil {
				t.Errorf("count %d, %v", n, tok.Err())
			}
			broken = true
			if n := tok.Count("one two"); n != 2 || tok.Err() == nil {
				t.Errorf("a broken server: count %d, error %v", n, tok.Err())
			}
		})
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer srv.Close()
	base, _ := url.Parse(srv.URL)
	if _, err := (&Server{Base: base}).TokenCounter(t.Context(), "m"); err == nil {
		t.Error("a page is taken for a tokenizer")
	}
}
