package openai

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
)

// both decodes events with patterns and without, and fails if that makes any
// difference. It returns how many events matched a pattern.
func both(t interface {
	Helper()
	Fatalf(string, ...any)
}, events [][]byte) (matched int) {
	t.Helper()
	var with, without Answer
	got, want := record.New(record.PhaseMeasure, 0), record.New(record.PhaseMeasure, 0)
	with.Reset(got, Chat, KeepOutput|KeepUncounted)
	without.Reset(want, Chat, KeepOutput|KeepUncounted)
	for i, e := range events {
		without.like.wait = 1 << 30
		if _, ok := with.like.text(e); ok && !with.ended {
			matched++
		}
		at, lag, same := record.Time(10*i), uint32(i), i%3 == 2
		if g, w := with.Event(nil, e, at, lag, same), without.Event(nil, e, at, lag, same); g != w {
			t.Fatalf("event %d %s: more is %v, want %v", i, e, g, w)
		}
		if with.choices != without.choices || with.ids != without.ids || with.logProbs != without.logProbs || with.grew != without.grew {
			t.Fatalf("event %d %s: the counts differ", i, e)
		}
	}
	with.Close()
	without.Close()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("-parsed +by pattern\n%s\n%q", d, events)
	}
	return matched
}

// frames are events with a place for a string; in some of them the string is
// not the output, or not all of it.
var frames = []string{
	`{"id":"a","model":"m","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`,
	`{"id":"a","model":"m","choices":[{"index":1,"delta":{"content": "%s"}}]}`,
	`{"id":"a","model":"n","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`,
	`{"model":"m","choices":[{"index":0,"delta":{"reasoning_content":"%s","content":null}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"","reasoning":"%s"}}]}`,
	`{"choices":[{"index":0,"delta":{"reasoning_content":"%[1]s","reasoning":"%[1]s"}}]}`,
	`{"choices":[{"index":0,"text":"%s","finish_reason":null}]}`,
	`{"choices":[{"index":0,"text":"%s","token_ids":[7]}]}`,
	`{"choices":[{"index":0,"delta":{"content":"%s"}}],"usage":{"completion_tokens":2}}`,
	`{"choices":[{"index":0,"delta":{"content":"%s"}}],"timings":{"cache_n":4}}`,
	`{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":"stop"}]}`,
	`{"choices":[{"index":0,"delta":{"content":"%s"}},{"index":1,"delta":{"content":"y"}}]}`,
	`{"x":{"content":"%s"},"choices":[{"index":0,"delta":{"content":"z"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"%s","tool_calls":[{"function":{"name":"f"}}]}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"%s"}}],"error":{"message":"no"}}`,
	`{"choices":[],"content":"%s"}`,
	`{"choices":[{"index":0,"delta":{"content":"%s"}}`,
	`{"choices":[{"index":0,"delta":{"content":"%s"},"logprobs":{"content":[{"token":"x","logprob":-1}]}}]}`,
	`{"choices":[{"logprobs":{"content":[{"token":"x"}]},"delta":{"content":"%s"}}]}`,
	`{"choices":[{"index":0,"text":"%s","logprobs":{"tokens":["x"]}}]}`,
	`{"choices":[{"index":0,"text":"%s","logprobs":null,"finish_reason":null}]}`,
}

func TestPatternsMakeNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var events [][]byte
		usual := rapid.SampledFrom(frames).Draw(t, "usual")
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			f := usual
			if rapid.IntRange(0, 4).Draw(t, "other") == 0 {
				f = rapid.SampledFrom(frames).Draw(t, "frame")
			}
			text := rapid.SampledFrom([]string{"", " ", "a", " word", "é", `\n`, `\"`, `\u00e9`, `x"`, `","content":"`, `"},"finish_reason":"stop","z":{"a":"`, "\t", `\\`, `\`}).Draw(t, "text")
			events = append(events, fmt.Appendf(nil, f, text))
		}
		both(t, events)
	})
}

func TestPatternsAreUsed(t *testing.T) {
	for _, f := range []string{frames[0], frames[1], frames[3], frames[4], frames[6], frames[len(frames)-1]} {
		var events [][]byte
		for i := range 100 {
			events = append(events, fmt.Appendf(nil, f, []string{" word", "é", `\n`}[i%3]))
		}
		if n := both(t, events); n < 60 {
			t.Errorf("%s: %d of 100 events matched", f, n)
		}
	}
}

// A server whose every event differs elsewhere is not parsed twice for it.
func TestPatternsGiveUp(t *testing.T) {
	var a Answer
	a.Reset(record.New(record.PhaseMeasure, 0), Chat, 0)
	learnt := 0
	for i := range 1000 {
		before := a.like.patience
		a.Event(nil, fmt.Appendf(nil, `{"created":%d,"choices":[{"index":0,"delta":{"content":"x"}}]}`, i), 0, 0, false)
		if a.like.patience != before {
			learnt++
		}
	}
	if learnt > 10 {
		t.Errorf("%d patterns were made for 1000 events that have none", learnt)
	}
}

func FuzzPattern(f *testing.F) {
	for i, frame := range frames {
		f.Add(fmt.Appendf(nil, frame, "x"), fmt.Appendf(nil, frame, " y"), fmt.Appendf(nil, frames[(i+1)%len(frames)], "z"))
	}
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		both(t, [][]byte{first, second, third, second, first, second})
	})
}
