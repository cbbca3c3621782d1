package mockserver

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
)

// kept is an answer of a length as the client keeps it.
func (l *lab) kept(of openai.EndpointType, fields string) record.Output {
	l.t.Helper()
	body := `{"prompt":"Tell me.","messages":[{"role":"user","content":"Tell me."}],"ignore_eos":true,` + fields + `}`
	r := l.post(context.Background(), of.Path(), "", body)
	rec := record.New(record.PhaseMeasure, 0)
	var a openai.Answer
	a.Reset(rec, of, openai.KeepOutput)
	for _, e := range r.events {
		a.Event(nil, []byte(e.data), 1, 0, false)
	}
	if r.events == nil {
		a.Whole([]byte(r.body), 1, 0)
	}
	if a.Close(); rec.Outcome != record.OK {
		l.t.Fatalf("%s %s: %s %+v", of, fields, rec.Outcome, rec.Failure)
	}
	return rec.Output[0]
}

var askedFor = map[openai.EndpointType]string{openai.Chat: `"logprobs":true,"top_logprobs":2`, openai.Completions: `"logprobs":2`}

// The tokens add up to the text, in a stream as in a whole answer, and ties are
// where they can be.
func TestLogProbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		for of, fields := range askedFor {
			whole := l.kept(of, fields+`,"max_tokens":40`)
			if d := cmp.Diff(whole, l.kept(of, fields+`,"max_tokens":40,"stream":true`)); d != "" {
				t.Errorf("%s: a stream differs\n%s", of, d)
			}
			text, ties := "", 0
			for i, p := range whole.LogProbs {
				text += p.Token
				if len(p.Alternatives) != 2 || p.Alternatives[0] != p.LogProb {
					t.Fatalf("%s: token %d %+v", of, i, p)
				}
				switch gap := p.Value - p.Alternatives[1].Value; {
				case gap > 0 && gap < 0.1:
					ties++
				case gap < 1:
					t.Errorf("%s: token %d %+v is neither clear nor a tie", of, i, p)
				}
				if sum := math.Exp(p.Value) + math.Exp(p.Alternatives[1].Value); sum > 1 {
					t.Errorf("%s: token %d %+v: probabilities of %v", of, i, p, sum)
				}
			}
			if text != whole.Text || len(whole.LogProbs) != 40 || ties != 40/tieEvery {
				t.Errorf("%s: %d tokens with %d ties, text %q, answer %q", of, len(whole.LogProbs), ties, text, whole.Text)
			}
			if plain := l.kept(of, `"max_tokens":40`); plain.Text != whole.Text || plain.LogProbs != nil {
				t.Errorf("%s: without asking %+v", of, plain)
			}
		}
		for _, fields := range []string{`"logprobs":3`, `"top_logprobs":2`, `"logprobs":true,"top_logprobs":21`} {
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],%s}`, fields)
			if r := l.post(context.Background(), openai.Chat.Path(), "", body); r.status != 400 {
				t.Errorf("%s: status %d", fields, r.status)
			}
		}
	})
}

// A server that flips and one that does not name each other's token where they
// part, and call it a tie.
func TestFlipIsTie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		steady := newLab(t, cfg)
		cfg.Flips = 1
		flips := newLab(t, cfg)
		for n := 10; n < 40; n++ {
			fields := fmt.Sprintf(`%s,"max_tokens":%d`, askedFor[openai.Chat], n)
			a, b := steady.kept(openai.Chat, fields).LogProbs, flips.kept(openai.Chat, fields).LogProbs
			i := 0
			for i < n-1 && a[i].Token == b[i].Token {
				i++
			}
			if a[i].Token == b[i].Token || a[i].Alternatives[1].Token != b[i].Token || b[i].Alternatives[1].Token != a[i].Token {
				t.Fatalf("%d tokens, at %d: %+v and %+v", n, i, a[i], b[i])
			}
			if gap := a[i].Value - a[i].Alternatives[1].Value; gap > 0.1 {
				t.Errorf("%d tokens: the gap at the flip is %v", n, gap)
			}
		}
	})
}
