package mockserver

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const tenTokens = `{"messages":[{"role":"user","content":"x"}],"max_tokens":10,"ignore_eos":true`

// The prompt of tenTokens has 8 tokens: its first token comes at 18 ms, then
// one each 22 ms.
func TestFaultsInStreams(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults Faults
		check  func(t *testing.T, a answer)
	}{
		{"rate limited", Faults{RateLimited: 1, RetryAfter: 1500 * ms}, func(t *testing.T, a answer) {
			if a.status != 429 || a.header.Get("Retry-After") != "2" || !strings.Contains(a.body, `"code":429`) {
				t.Errorf("status %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.body)
			}
		}},
		{"unavailable", Faults{Unavailable: 1}, func(t *testing.T, a answer) {
			if a.status != 503 || !strings.Contains(a.body, `"code":503`) {
				t.Errorf("status %d, %s", a.status, a.body)
			}
		}},
		{"error in the stream", Faults{StreamError: 1, AfterTokens: 3}, func(t *testing.T, a answer) {
			if a.status != 200 || len(a.tokenAt) != 3 || !a.done || len(a.finish) != 0 || a.err != nil {
				t.Errorf("status %d, %d tokens, done %v, finish %v, %v", a.status, len(a.tokenAt), a.done, a.finish, a.err)
			}
			if e := a.events[len(a.events)-2]; !strings.Contains(e.data, `"error":{`) || e.at != 84*ms {
				t.Errorf("at %v: %s", e.at, e.data)
			}
		}},
		{"error at the last event", Faults{StreamError: 1, AfterTokens: 10}, func(t *testing.T, a answer) {
			if len(a.tokenAt) != 9 || len(a.finish) != 0 {
				t.Errorf("%d tokens, finish %v", len(a.tokenAt), a.finish)
			}
		}},
		{"truncated", Faults{Truncate: 1}, func(t *testing.T, a answer) {
			if len(a.tokenAt) != 5 || a.done || len(a.finish) != 0 || a.err != nil {
				t.Errorf("%d tokens, done %v, finish %v, %v", len(a.tokenAt), a.done, a.finish, a.err)
			}
		}},
		{"reset", Faults{Reset: 1}, func(t *testing.T, a answer) {
			if len(a.tokenAt) != 5 || a.done || !errors.Is(a.err, io.ErrUnexpectedEOF) {
				t.Errorf("%d tokens, done %v, %v", len(a.tokenAt), a.done, a.err)
			}
		}},
		{"stall", Faults{Stall: 1, AfterTokens: 2, StallFor: time.Minute}, func(t *testing.T, a answer) {
			if len(a.tokenAt) != 10 || !a.done || a.finish[0] != "length" {
				t.Errorf("%d tokens, done %v, finish %v", len(a.tokenAt), a.done, a.finish)
			}
			if a.tokenAt[1] != 40*ms || a.tokenAt[2] != 62*ms+time.Minute || a.tokenAt[9] != a.tokenAt[2] {
				t.Errorf("tokens at %v", a.tokenAt)
			}
		}},
		{"slow header", Faults{SlowHeader: 1, HeaderDelay: time.Minute}, func(t *testing.T, a answer) {
			if a.tokenAt[0] != 18*ms+time.Minute || !a.done {
				t.Errorf("first token at %v, done %v", a.tokenAt[0], a.done)
			}
		}},
		{"role before prefill", Faults{RoleFirst: 1}, func(t *testing.T, a answer) {
			if a.events[0].at != 0 || a.tokenAt[0] != 18*ms || !strings.Contains(a.events[0].data, `"role"`) || strings.Contains(a.events[1].data, `"role"`) {
				t.Errorf("first event at %v, first token at %v", a.events[0].at, a.tokenAt[0])
			}
		}},
		{"stream ignored", Faults{IgnoreStream: 1}, func(t *testing.T, a answer) {
			if a.header.Get("Content-Type") != "application/json" || CountTokens(a.text[0]) != 10 || len(a.events) != 0 {
				t.Errorf("%s: %s", a.header.Get("Content-Type"), a.body)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := exact()
				cfg.Faults = c.faults
				l := newLab(t, cfg)
				a := l.ask(tenTokens + `,"stream":true}`)
				c.check(t, a)
				synctest.Wait()
				truth := l.srv.Truth()[0]
				if independent := c.faults.SlowHeader+c.faults.RoleFirst+c.faults.IgnoreStream > 0; independent != (truth.Fault == NoFault) {
					t.Errorf("truth log: fault %q", truth.Fault)
				}
				if truth.Status == 200 && !truth.Streamed == (c.faults.IgnoreStream == 0) {
					t.Errorf("truth log: streamed %v", truth.Streamed)
				}
				if n := len(l.srv.engine.jobs); n != 0 {
					t.Errorf("%d jobs are left in the engine", n)
				}
			})
		})
	}
}

func TestFaultsInDocuments(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults Faults
		check  func(t *testing.T, r reply)
	}{
		{"error", Faults{StreamError: 1}, func(t *testing.T, r reply) {
			if r.status != 500 || !strings.Contains(r.body, `"code":500`) {
				t.Errorf("status %d, %s", r.status, r.body)
			}
		}},
		{"reset", Faults{Reset: 1}, func(t *testing.T, r reply) {
			if r.err == nil {
				t.Error("no error")
			}
		}},
		{"truncated", Faults{Truncate: 1}, func(t *testing.T, r reply) {
			if r.status != 200 || len(r.body) == 0 || !errors.Is(r.err, io.ErrUnexpectedEOF) {
				t.Errorf("status %d, %v, %q", r.status, r.err, r.body)
			}
		}},
		{"stall", Faults{Stall: 1, StallFor: time.Minute}, func(t *testing.T, r reply) {
			if r.status != 200 || r.err != nil {
				t.Errorf("status %d, %v", r.status, r.err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := exact()
				cfg.Faults = c.faults
				l := newLab(t, cfg)
				c.check(t, l.post(t.Context(), "/v1/chat/completions", "", tenTokens+"}"))
			})
		})
	}
}

func TestStallLastsUntilTheClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exact()
		cfg.Faults = Faults{Stall: 1}
		l := newLab(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := l.post(ctx, "/v1/chat/completions", "", tenTokens+`,"stream":true}`)
		if !errors.Is(r.err, context.DeadlineExceeded) || len(r.events) != 6 {
			t.Errorf("%d events, %v", len(r.events), r.err)
		}
		synctest.Wait()
		if tr := l.srv.Truth()[0]; !tr.Disconnected || tr.OutputTokens != 5 || tr.Fault != FaultStall {
			t.Errorf("truth %+v", tr)
		}
	})
}

// Only a real connection can tell a reset from an orderly close.
func TestResetIsAReset(t *testing.T) {
	cfg := exact()
	cfg.PrefillBase, cfg.DecodeBase = 0, ms
	cfg.Faults = Faults{Reset: 1}
	l := newLoopbackLab(t, cfg)
	r := l.post(t.Context(), "/v1/chat/completions", "", tenTokens+`,"stream":true}`)
	if !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("%v, want a connection reset", r.err)
	}
	if len(r.events) == 0 {
		t.Error("nothing came before the reset")
	}
}

func TestFaultRatesAndSeeds(t *testing.T) {
	f := Faults{RateLimited: 0.1, Unavailable: 0.1, StreamError: 0.1, Reset: 0.1, Stall: 0.1, Truncate: 0.1, SlowHeader: 0.3, RoleFirst: 0.5, IgnoreStream: 0}
	count := map[FaultKind]int{}
	slow, role, both := 0, 0, 0
	const n = 20000
	for i := range int64(n) {
		d := f.draw(1, i)
		if d != f.draw(1, i) {
			t.Fatal("the same request drew two fates")
		}
		count[d.kind]++
		if d.slowHeader {
			slow++
		}
		if d.roleFirst {
			role++
		}
		if d.slowHeader && d.roleFirst {
			both++
		}
		if d.ignoreStream {
			t.Fatal("a fault at rate 0")
		}
	}
	near := func(name string, got int, want float64) {
		if d := float64(got)/n - want; d > 0.015 || d < -0.015 {
			t.Errorf("%s: share %.3f, want %.2f", name, float64(got)/n, want)
		}
	}
	for _, k := range []FaultKind{FaultRateLimited, FaultUnavailable, FaultStreamError, FaultReset, FaultStall, FaultTruncate} {
		near(string(k), count[k], 0.1)
	}
	near("none", count[NoFault], 0.4)
	near("slow header", slow, 0.3)
	near("role first", role, 0.5)
	near("both", both, 0.15)
	all := Faults{RateLimited: 1}
	for i := range int64(1000) {
		if all.draw(3, i).kind != FaultRateLimited {
			t.Fatal("rate 1 spared a request")
		}
	}
}

func TestConcurrentLoadOverTCP(t *testing.T) {
	cfg := exact()
	cfg.PrefillBase, cfg.PrefillPerToken, cfg.DecodeBase, cfg.DecodePerSequence = 0, 0, 0, 0
	cfg.MaxBatch = 8
	cfg.DraftTokens = 2
	l := newLoopbackLab(t, cfg)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%5 == 4 {
				time.AfterFunc(time.Duration(i)*50*time.Microsecond, cancel)
			}
			a := l.understand(l.post(ctx, "/v1/chat/completions", "", chatBody(textOf(i+1, "x"), `,"max_tokens":50`)))
			if i%5 != 4 && (a.err != nil || !a.done || a.usage.Completion != 50 || CountTokens(a.text[0]) != 50) {
				t.Errorf("request %d: %v, done %v, %q", i, a.err, a.done, a.text[0])
			}
		})
	}
	wg.Wait()
}
