package mockserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

// textOf returns a text of n tokens that is unlike one with another seed.
func textOf(n int, seed string) string {
	w := []string{"a" + seed}
	for len(w) < n {
		w = append(w, "tree")
	}
	return strings.Join(w, " ")
}

func chatBody(prompt string, more string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true%s}`, prompt, more)
}

func times(from, step time.Duration, n int) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = from + time.Duration(i)*step
	}
	return out
}

func TestTimesOfOneRequestAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		time.Sleep(3 * ms) // the engine's clock starts with the request
		a := l.mustOK(l.ask(chatBody(textOf(33, "x"), `,"max_tokens":5`)))
		// 33 tokens of text, 4 of the message, 3 of the reply; then 10 ms + 1 ms each.
		if diff := cmp.Diff(times(50*ms, 22*ms, 5), a.tokenAt); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(usageObject{Prompt: 40, Completion: 5, Total: 45}, *a.usage); diff != "" {
			t.Error(diff)
		}
		if len(a.events) != 1+5+1+1 || !a.done || a.finish[0] != "length" {
			t.Errorf("%d events, done %v, finish %v", len(a.events), a.done, a.finish)
		}
		// The role event leaves with the first token, usage and [DONE] with the last.
		if a.events[0].at != 50*ms || a.events[7].at != 138*ms {
			t.Errorf("role at %v, [DONE] at %v", a.events[0].at, a.events[7].at)
		}
	})
}

func TestContextTokensSlowDecoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.DecodePerContextToken = time.Microsecond
		l := newLab(t, cfg)
		a := l.mustOK(l.ask(chatBody(textOf(33, "x"), `,"max_tokens":3`)))
		want := []time.Duration{50 * ms, 50*ms + 22*ms + 41*time.Microsecond, 50*ms + 44*ms + 83*time.Microsecond}
		if diff := cmp.Diff(want, a.tokenAt); diff != "" {
			t.Error(diff)
		}
	})
}

// asked is a request sent at a time.
type asked struct {
	at   time.Duration
	body string
}

func (l *lab) askAll(list ...asked) []answer {
	out := make([]answer, len(list))
	var wg sync.WaitGroup
	for i, q := range list {
		wg.Go(func() {
			time.Sleep(q.at)
			out[i] = l.ask(q.body)
		})
	}
	wg.Wait()
	for _, a := range out {
		l.mustOK(a)
	}
	return out
}

func TestFreePrefillAdmitsAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.PrefillBase, cfg.PrefillPerToken, cfg.DecodePerSequence = 0, 0, 0
		l := newLab(t, cfg)
		first := asked{0, chatBody("x", `,"max_tokens":3`)}
		later := asked{5 * ms, chatBody("y", `,"max_tokens":3`)} // during the first one's step, to 20 ms
		a := l.askAll(first, later, later, later)
		if diff := cmp.Diff(times(0, 20*ms, 3), a[0].tokenAt); diff != "" {
			t.Errorf("first: %s", diff)
		}
		for _, b := range a[1:] {
			if diff := cmp.Diff(times(15*ms, 20*ms, 3), b.tokenAt); diff != "" {
				t.Errorf("later: %s", diff)
			}
		}
	})
}

func TestPrefillRunsBetweenDecodeSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		a := l.askAll(
			asked{0, chatBody(textOf(33, "x"), `,"max_tokens":5`)},
			// It arrives during the first one's second step (72 to 94 ms), and is prefilled from 94 ms to 144 ms.
			asked{80 * ms, chatBody(textOf(33, "y"), `,"max_tokens":3`)})
		want := []time.Duration{50 * ms, 72 * ms, 94 * ms, (144 + 24) * ms, (144 + 48) * ms}
		if diff := cmp.Diff(want, a[0].tokenAt); diff != "" {
			t.Errorf("first: %s", diff)
		}
		// From its own start; both steps have a batch of 2.
		want = []time.Duration{64 * ms, 88 * ms, 112 * ms}
		if diff := cmp.Diff(want, a[1].tokenAt); diff != "" {
			t.Errorf("second: %s", diff)
		}
	})
}

func TestLongPromptIsPrefilledInChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.PrefillChunk = 16
		l := newLab(t, cfg)
		alone := l.mustOK(l.ask(chatBody(textOf(33, "x"), `,"max_tokens":1`)))
		if alone.tokenAt[0] != 50*ms {
			t.Errorf("alone: first token at %v: chunks must cost nothing by themselves", alone.tokenAt[0])
		}
		a := l.askAll(
			asked{0, chatBody(textOf(1, "y"), `,"max_tokens":6`)},
			asked{20 * ms, chatBody(textOf(33, "z"), `,"max_tokens":1`)})
		// 8 tokens: 18 ms. One step to 40 ms, then 26, 16 and 8 ms of prefill, a step after each.
		want := []time.Duration{18 * ms, 40 * ms, 88 * ms, 126 * ms, 156 * ms, 178 * ms}
		if diff := cmp.Diff(want, a[0].tokenAt); diff != "" {
			t.Error(diff)
		}
		if got := a[1].tokenAt[0]; got != (134-20)*ms {
			t.Errorf("long prompt's first token after %v", got)
		}
	})
}

func TestFullBatchQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.MaxBatch = 1
		l := newLab(t, cfg)
		a := l.askAll(
			asked{0, chatBody(textOf(33, "x"), `,"max_tokens":3`)}, // until 94 ms
			asked{10 * ms, chatBody(textOf(33, "y"), `,"max_tokens":2`)},
			asked{20 * ms, chatBody(textOf(33, "z"), `,"max_tokens":1`)})
		// Each waits for all before it: 94+50; 94+72+50.
		if got := a[1].tokenAt[0]; got != (144-10)*ms {
			t.Errorf("second: first token after %v", got)
		}
		if got := a[2].tokenAt[0]; got != (216-20)*ms {
			t.Errorf("third: first token after %v", got)
		}
		truth := l.srv.Truth()
		if got := truth[1].Admitted.Sub(truth[1].Received); got != 84*ms {
			t.Errorf("second waited %v in the queue by the truth log, want 84 ms", got)
		}
	})
}

func TestChoicesNeedRoomForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.MaxBatch = 3
		l := newLab(t, cfg)
		a := l.askAll(
			asked{0, chatBody(textOf(33, "x"), `,"max_tokens":4,"n":2`)}, // 50 ms, then steps of 24 ms
			asked{10 * ms, chatBody(textOf(33, "y"), `,"max_tokens":1,"n":2`)})
		if got := a[1].tokenAt[0]; got != (122+50-10)*ms {
			t.Errorf("second: first token after %v", got)
		}
		if a[0].usage.Completion != 8 || len(a[0].finish) != 2 {
			t.Errorf("completion tokens %d, finish %v", a[0].usage.Completion, a[0].finish)
		}
		if a[0].text[0] == a[0].text[1] {
			t.Errorf("both choices say %q", a[0].text[0])
		}
		if got := a[1].tokenAt; len(got) != 2 {
			t.Errorf("token events at %v", got)
		}
	})
}

func TestPrefixCache(t *testing.T) {
	long := textOf(60, "x") // 67 tokens of prompt: 4 blocks and 3
	body := chatBody(long, `,"max_tokens":1`)
	for _, c := range []struct {
		name   string
		before []string
		body   string
		cached int
		change func(*Config)
	}{
		{name: "cold", body: body},
		{name: "same prompt", before: []string{body}, body: body, cached: 64},
		{name: "common beginning", before: []string{body}, body: chatBody(strings.TrimSuffix(long, "tree")+"house", `,"max_tokens":1`), cached: 48},
		{name: "another beginning", before: []string{body}, body: chatBody(textOf(60, "y"), `,"max_tokens":1`)},
		{name: "another salt", before: []string{body}, body: chatBody(long, `,"max_tokens":1,"cache_salt":"s"`)},
		{name: "same salt", before: []string{chatBody(long, `,"max_tokens":1,"cache_salt":"s"`)}, body: chatBody(long, `,"max_tokens":1,"cache_salt":"s"`), cached: 64},
		{name: "off", before: []string{body}, body: body, change: func(c *Config) { c.PrefixCache = false }},
		// 64 tokens are 4 blocks, of which the last must be computed again.
		{name: "whole blocks", before: []string{chatBody(textOf(57, "x"), `,"max_tokens":1`)}, body: chatBody(textOf(57, "x"), `,"max_tokens":1`), cached: 48},
		{name: "forgotten", before: []string{body, chatBody(textOf(60, "y"), `,"max_tokens":1`)}, body: body, change: func(c *Config) { c.KVBlocks = 4 }},
		{name: "partly forgotten", before: []string{body, chatBody(textOf(60, "y"), `,"max_tokens":1`)}, body: body, cached: 32, change: func(c *Config) { c.KVBlocks = 6 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := exact()
				if c.change != nil {
					c.change(&cfg)
				}
				l := newLab(t, cfg)
				for _, b := range c.before {
					l.mustOK(l.ask(b))
				}
				a := l.mustOK(l.ask(c.body))
				if got := a.usage.PromptD.Cached; got != c.cached {
					t.Errorf("cached_tokens %d, want %d", got, c.cached)
				}
				want := 10*ms + time.Duration(a.usage.Prompt-c.cached)*ms
				if a.tokenAt[0] != want {
					t.Errorf("first token at %v, want %v", a.tokenAt[0], want)
				}
			})
		})
	}
}

func TestResetPrefixCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		body := chatBody(textOf(60, "x"), `,"max_tokens":1`)
		l.mustOK(l.ask(body))
		if r := l.post(t.Context(), "/reset_prefix_cache", "", ""); r.status != 200 {
			t.Fatalf("status %d", r.status)
		}
		if a := l.mustOK(l.ask(body)); a.usage.PromptD.Cached != 0 {
			t.Errorf("cached_tokens %d after the reset", a.usage.PromptD.Cached)
		}
	})
}

func TestNextTurnFindsTheAnswerInTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.MeanOutput = 40
		l := newLab(t, cfg)
		question := textOf(20, "x")
		turn := func(history string) answer {
			return l.mustOK(l.ask(`{"messages":[` + history + `],"stream":true,"stream_options":{"include_usage":true},"min_tokens":40}`))
		}
		first := fmt.Sprintf(`{"role":"user","content":%q}`, question)
		a := turn(first)
		if a.finish[0] != "stop" {
			t.Fatalf("finish %q", a.finish[0])
		}
		b := turn(first + fmt.Sprintf(`,{"role":"assistant","content":%q},{"role":"user","content":"And then?"}`, a.text[0]))
		// All of the first prompt and of its answer, end token included.
		if got, want := b.usage.PromptD.Cached, a.usage.Total/BlockTokens*BlockTokens; got != want {
			t.Errorf("cached_tokens %d, want %d", got, want)
		}
	})
}

func TestSpeculation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.DraftTokens, cfg.AcceptanceRate = 3, 0.6
		l := newLab(t, cfg)
		const tokens = 20001
		a := l.mustOK(l.ask(chatBody("x", fmt.Sprintf(`,"max_tokens":%d`, tokens))))
		if a.usage.Completion != tokens {
			t.Fatalf("completion tokens %d", a.usage.Completion)
		}
		steps := len(a.tokenAt) - 1
		mean := float64(tokens-1) / float64(steps)
		if want := 1 + 0.6 + 0.36 + 0.216; mean < want*0.98 || mean > want*1.02 {
			t.Errorf("%.3f tokens a step, want %.3f", mean, want)
		}
		// A step takes as long as without speculation, whatever it brings.
		if got, want := a.tokenAt[steps], a.tokenAt[0]+time.Duration(steps)*22*ms; got != want {
			t.Errorf("last event at %v, want %v", got, want)
		}
		sum := 0
		for _, c := range l.srv.Truth()[0].Events {
			if c.Tokens < 1 || c.Tokens > 4 {
				t.Fatalf("an event of %d tokens", c.Tokens)
			}
			sum += int(c.Tokens)
		}
		if sum != tokens {
			t.Errorf("the truth log has %d tokens", sum)
		}
		if CountTokens(a.text[0]) != tokens {
			t.Errorf("the text has %d tokens", CountTokens(a.text[0]))
		}
	})
}

func TestDisconnectFreesTheSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.MaxBatch = 1
		l := newLab(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), 60*ms)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { l.post(ctx, "/v1/chat/completions", "gone", chatBody(textOf(33, "x"), `,"max_tokens":1000`)) })
		time.Sleep(10 * ms)
		a := l.mustOK(l.ask(chatBody(textOf(33, "y"), `,"max_tokens":1`)))
		wg.Wait()
		// The step under way at 60 ms ends at 72 ms; then 50 ms of prefill.
		if got := a.tokenAt[0]; got != (72+50-10)*ms {
			t.Errorf("first token after %v", got)
		}
		gone := l.srv.Truth()[0]
		if gone.RequestID != "gone" || !gone.Disconnected || gone.OutputTokens != 1 || len(gone.FinishReasons) != 0 {
			t.Errorf("truth of the one that left: %+v", gone)
		}
		if got := time.Duration(gone.Finished - gone.Received); got != 60*ms {
			t.Errorf("it was finished after %v", got)
		}
	})
}

func TestDisconnectInTheQueueAndInPrefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		ctx, cancel := context.WithTimeout(t.Context(), 25*ms)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { l.post(ctx, "/v1/chat/completions", "", chatBody(textOf(33, "x"), "")) })
		time.Sleep(ms)
		wg.Go(func() { l.post(ctx, "/v1/chat/completions", "", chatBody(textOf(33, "y"), "")) })
		time.Sleep(4 * ms)
		a := l.mustOK(l.ask(chatBody(textOf(33, "z"), `,"max_tokens":1`)))
		wg.Wait()
		// The prefill turn under way takes its time; the queued one costs nothing.
		if got := a.tokenAt[0]; got != (50+50-5)*ms {
			t.Errorf("first token after %v", got)
		}
		if n := len(l.srv.engine.jobs); n != 0 {
			t.Errorf("%d jobs are left in the engine", n)
		}
	})
}

func TestNoiseHasMeanOneAndComesFromTheSeed(t *testing.T) {
	run := func(seed uint64) (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			cfg := exact()
			cfg.Noise, cfg.Seed = 0.2, seed
			l := newLab(t, cfg)
			at = l.mustOK(l.ask(chatBody("x", `,"max_tokens":2001`))).tokenAt
		})
		return at
	}
	a, b, c := run(1), run(1), run(2)
	if !cmp.Equal(a, b) {
		t.Error("the same seed gave other times")
	}
	if cmp.Equal(a, c) {
		t.Error("another seed gave the same times")
	}
	mean := (a[2000] - a[0]) / 2000
	if mean < 21500*time.Microsecond || mean > 22500*time.Microsecond {
		t.Errorf("mean step %v, want about 22 ms", mean)
	}
}

func TestCloseCutsRequestsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, exact())
		var wg sync.WaitGroup
		wg.Go(func() {
			if r := l.post(context.Background(), "/v1/chat/completions", "", chatBody("x", `,"max_tokens":100`)); r.err == nil {
				t.Error("the stream ended as if it were whole")
			}
		})
		time.Sleep(100 * ms)
		if err := l.srv.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}
