package target

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
)

func TestCacheReset(t *testing.T) {
	refused := errors.New("status 404")
	none := record.Unknown
	for _, c := range []struct {
		name   string
		cached [3]record.Count // of the answers: new, again, after the reset
		empty  error
		want   *record.CacheReset
		fails  string
	}{
		{"works", [3]record.Count{0, 512, 0}, nil, &record.CacheReset{Prompt: 600, Before: 512, After: 0, Verified: true}, ""},
		{"a template is shared by all prompts", [3]record.Count{32, 512, 32}, nil, &record.CacheReset{Prompt: 600, Before: 512, After: 32, Verified: true}, ""},
		{"no hits are left out, as vLLM does", [3]record.Count{none, 512, none}, nil, &record.CacheReset{Prompt: 600, Before: 512, After: none, Verified: true}, ""},
		{"hits are never told", [3]record.Count{none, none, none}, nil, &record.CacheReset{Prompt: 600, Before: none, After: none}, ""},
		{"there are no hits", [3]record.Count{0, 0, 0}, nil, &record.CacheReset{Prompt: 600, Before: 0, After: 0}, ""},
		{"accepted, not done", [3]record.Count{0, 512, 512}, nil, nil, "512 tokens of a prompt were cached before and 512 still are"},
		{"done in part", [3]record.Count{0, 512, 64}, nil, nil, "64 still are"},
		{"refused", [3]record.Count{0, 512, 512}, refused, nil, "status 404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent, emptied := 0, 0
			got, err := CacheReset{
				Body: []byte("{}"),
				Send: func(context.Context, []byte) *record.Record {
					r := record.New(record.PhaseWarmup, 0)
					r.Outcome, r.Tokens.Input, r.Tokens.Cached = record.OK, 600, c.cached[sent]
					sent++
					return r
				},
				Empty: func(context.Context) error {
					if emptied++; sent != 2 {
						t.Errorf("emptied after %d requests", sent)
					}
					return c.empty
				},
			}.Run(t.Context())
			if d := cmp.Diff(c.want, got); d != "" || emptied != 1 {
				t.Errorf("emptied %d times (-want +got): %s", emptied, d)
			}
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("error %v, want %q", err, c.fails)
			}
		})
	}
}

func TestCacheResetWithoutAnswer(t *testing.T) {
	_, err := CacheReset{
		Send: func(context.Context, []byte) *record.Record {
			r := record.New(record.PhaseWarmup, 0)
			r.Status = 503
			r.Fail(record.ServerError, record.Failure{Message: "no worker"})
			return r
		},
		Empty: func(context.Context) error { t.Error("emptied"); return nil },
	}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "status 503: no worker") {
		t.Error(err)
	}
}
