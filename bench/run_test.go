package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/arrival"
)

const ms = time.Millisecond

// pipes is a network in memory, so that a test's time can be fake.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	dialed int
	mu     sync.Mutex
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		p.mu.Lock()
		p.dialed++
		p.mu.Unlock()
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer is how the scripted server answers every request.
type answer struct {
	ttft, itl time.Duration
	tokens    int
}

func (a answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	send := func(s string) {
		fmt.Fprintf(w, "data: %s\n\n", s)
		w.(http.Flusher).Flush()
	}
	pause(r, a.ttft)
	for i := range a.tokens {
		if i > 0 {
			pause(r, a.itl)
		}
		send(`{"choices":[{"index":0,"delta":{"content":"t` + fmt.Sprint(i) + ` "}}]}`)
	}
	send(`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`)
	send(fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":%d,"total_tokens":%d}}`, a.tokens, a.tokens+7))
	send("[DONE]")
}

// pause waits, or until the client has left.
func pause(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// prompts is an endless source of one-word prompts.
type prompts struct{}

func (prompts) Len() int { return 0 }
func (prompts) At(i int) (workloads.Session, error) {
	return workloads.Session{ID: fmt.Sprint(i), Turns: []workloads.Request{{
		Messages: []workloads.Message{{Role: "user", Content: fmt.Sprint("prompt ", i)}}, OutputTokens: 4,
	}}}, nil
}

// measure runs the plan in fake time against the handler.
func measure(t *testing.T, h http.Handler, change func(*Plan)) ([]*record.Record, Result) {
	t.Helper()
	net := newPipes()
	recs, res := measureOn(t, net, h, context.Background(), change)
	return recs, res
}

func measureOn(t *testing.T, network *pipes, h http.Handler, ctx context.Context, change func(*Plan)) ([]*record.Record, Result) {
	t.Helper()
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(network) }()
	defer func() {
		_ = srv.Close()
		synctest.Wait()
	}()
	u, _ := url.Parse("http://server/v1/chat/completions")
	plan := Plan{
		URL: u, Type: openai.Chat, Body: openai.BodyOptions{Model: "m", Stream: true, IncludeUsage: true},
		Transport: transport.Options{Dial: network.dial}, Source: prompts{}, Concurrency: 1, CoarseWait: true,
	}
	change(&plan)
	out := make(chan *record.Record, 10000)
	res, err := Run(ctx, plan, out)
	if err != nil {
		t.Fatal(err)
	}
	close(out)
	var recs []*record.Record
	for r := range out {
		recs = append(recs, r)
	}
	slices.SortStableFunc(recs, func(a, b *record.Record) int {
		if a.Phase != b.Phase {
			return -strings.Compare(string(a.Phase), string(b.Phase)) // warmup, then measure
		}
		return int(1000*(a.ID-b.ID)) + a.Turn - b.Turn
	})
	return recs, res
}

func every(gap time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for d := time.Duration(0); yield(d); d += gap {
		}
	}
}

// column collects one figure of each record in milliseconds; -1: absent.
func column(recs []*record.Record, of func(*record.Record) (time.Duration, bool)) []float64 {
	var out []float64
	for _, r := range recs {
		if d, ok := of(r); ok {
			out = append(out, float64(d)/float64(ms))
		} else {
			out = append(out, -1)
		}
	}
	return out
}

func started(r *record.Record) (time.Duration, bool) { return time.Duration(r.Start), true }
func dueAt(r *record.Record) (time.Duration, bool)   { return time.Duration(r.Due), true }
func endAt(r *record.Record) (time.Duration, bool)   { return time.Duration(r.End), true }
func capWait(r *record.Record) (time.Duration, bool) { return r.CapWait, true }

func outcomes(recs []*record.Record) []string {
	var out []string
	for _, r := range recs {
		out = append(out, string(r.Outcome))
	}
	return out
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: -want +got\n%s", what, d)
	}
}

func TestClosedLoopIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		recs, res := measureOn(t, network, answer{ttft: 20 * ms, itl: 5 * ms, tokens: 4}, t.Context(), func(p *Plan) {
			p.Concurrency, p.Requests = 2, 6
		})
		equal(t, "outcomes", outcomes(recs), []string{"ok", "ok", "ok", "ok", "ok", "ok"})
		equal(t, "start", column(recs, started), []float64{0, 0, 35, 35, 70, 70})
		equal(t, "due", column(recs, dueAt), []float64{0, 0, 35, 35, 70, 70})
		equal(t, "TTFT", column(recs, (*record.Record).TTFT), []float64{20, 20, 20, 20, 20, 20})
		equal(t, "latency", column(recs, (*record.Record).RequestLatency), []float64{35, 35, 35, 35, 35, 35})
		equal(t, "lateness", column(recs, (*record.Record).Lateness), []float64{0, 0, 0, 0, 0, 0})
		for _, r := range recs {
			equal(t, "gaps", r.Gaps(nil), []time.Duration{5 * ms, 5 * ms, 5 * ms})
			itl, ok := r.ITL()
			if !ok || itl != 5e6 {
				t.Errorf("ITL = %v, %v, want 5e6", itl, ok)
			}
			if r.Tokens.Source != record.SourceUsage || r.Tokens.Output != 4 || r.Tokens.Input != 7 {
				t.Errorf("tokens %+v", r.Tokens)
			}
			if !r.Done || r.Events != 7 || r.FirstTokenEvent != 0 || r.LastTokenEvent != 3 {
				t.Errorf("events %d, first %d, last %d, done %v", r.Events, r.FirstTokenEvent, r.LastTokenEvent, r.Done)
			}
		}
		if res.Sent != 6 || res.MaxInFlight != 2 || res.MeasureStart != 0 || res.Outcome != record.RunCompleted {
			t.Errorf("result %+v", res)
		}
		if network.dialed != 2 {
			t.Errorf("%d connections for 2 requests in flight", network.dialed)
		}
		if recs[0].Conn.Reused || !recs[2].Conn.Reused {
			t.Error("the first request's connection is new, the third's is used again")
		}
	})
}

// bodies are whole bodies, which say themselves what they ask.
type bodies []string

func (b bodies) Len() int { return len(b) }
func (b bodies) At(i int) (workloads.Session, error) {
	return workloads.Session{Turns: []workloads.Request{{Body: json.RawMessage(b[i%len(b)]), Model: "of a mix"}}}, nil
}

func TestWholeBodiesSayWhatTheyAsk(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var accept []string
			streams := answer{ttft: 20 * ms, itl: 5 * ms, tokens: 4}
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				accept = append(accept, r.Header.Get("Accept"))
				if accept[len(accept)-1] == "text/event-stream" {
					streams.ServeHTTP(w, r)
					return
				}
				fmt.Fprint(w, `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			})
			recs, _ := measure(t, h, func(p *Plan) {
				p.Source, p.Requests, p.Body.Stream = bodies{`{"model":"a","stream":true}`, `{"model":"b"}`, `{"stream":false}`}, 3, streaming
			})
			equal(t, "accept", accept, []string{"text/event-stream", "application/json", "application/json"})
			var got []string
			for _, r := range recs {
				got = append(got, fmt.Sprint(r.Model, " ", r.Outcome, " ", r.Streaming, " ", r.Streamed, " ", r.Notes))
			}
			equal(t, "records", got, []string{"a ok true true []", "b ok false false []", "of a mix ok false false []"})
		})
	}
}

func TestOpenLoopIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs, res := measure(t, answer{ttft: 150 * ms, itl: 10 * ms, tokens: 3}, func(p *Plan) {
			p.Concurrency, p.Requests, p.Schedule = 0, 5, every(100*ms)
		})
		equal(t, "due", column(recs, dueAt), []float64{0, 100, 200, 300, 400})
		equal(t, "start", column(recs, started), []float64{0, 100, 200, 300, 400})
		equal(t, "TTFT", column(recs, (*record.Record).TTFT), []float64{150, 150, 150, 150, 150})
		if res.MaxInFlight != 2 {
			t.Errorf("most in flight %d, want 2: a request of 170 ms every 100 ms", res.MaxInFlight)
		}
		if res.MeasureEnd != record.Time(400*ms) {
			t.Errorf("the sending ended at %v, want 400 ms: nothing waits for a request that is not due any more", time.Duration(res.MeasureEnd))
		}
	})
}

func TestCapDelaysAndIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, answer{ttft: 150 * ms, tokens: 1}, func(p *Plan) {
			p.Concurrency, p.Requests, p.Schedule = 1, 6, every(50*ms)
		})
		equal(t, "due", column(recs, dueAt), []float64{0, 50, 100, 150, 200, 250})
		equal(t, "lateness", column(recs, (*record.Record).Lateness), []float64{0, 100, 200, 300, 400, 500})
		equal(t, "of that for the cap", column(recs, capWait), []float64{0, 100, 200, 300, 400, 500})
		equal(t, "latency", column(recs, (*record.Record).RequestLatency), []float64{150, 150, 150, 150, 150, 150})
		equal(t, "latency from due", column(recs, (*record.Record).LatencyFromDue), []float64{150, 250, 350, 450, 550, 650})
	})
}

// TestAskedDoesNotWait: what the schedule wants goes on while a cap holds the
// requests back.
func TestAskedDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type seen struct{ Due, Sent, InFlight int64 }
		var got []seen
		looked := make(chan struct{})
		measure(t, answer{ttft: 150 * ms, tokens: 1}, func(p *Plan) {
			p.Concurrency, p.Requests, p.Schedule, p.Gauge = 2, 6, every(50*ms), &Gauge{}
			p.Ramp = arrival.Profile{{Duration: 200 * ms, From: 1, To: 1}, {From: 2, To: 2}}
			p.Origin = time.Now()
			a := NewAsked(p)
			if n, ok := a.Due(0); ok {
				t.Errorf("%d due before the run", n)
			}
			go func() {
				defer close(looked)
				defer a.Close()
				for range 4 {
					time.Sleep(120 * ms)
					now := record.Time(time.Since(p.Origin))
					due, _ := a.Due(now)
					inFlight, _ := a.InFlight(now)
					got = append(got, seen{due, p.Gauge.Sent.Load(), int64(inFlight)})
				}
			}()
		})
		<-looked
		// At 120, 240, 360, 480 ms; one request in flight until 200 ms, then two.
		if diff := cmp.Diff([]seen{{3, 1, 1}, {5, 3, 2}, {6, 5, 2}, {6, 6, 2}}, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

func TestGauge(t *testing.T) {
	var g Gauge
	for _, r := range []record.Record{
		{Due: 0, Start: record.Time(2 * ms)},
		{Due: 0, Start: record.Time(9 * ms), CapWait: 5 * ms},
		{Due: record.Unset, Start: record.Time(50 * ms)}, // nobody knows when it was due
	} {
		g.started(&r)
	}
	g.chunk(3000, false)
	g.chunk(3000, true)
	g.chunk(5000, false)
	g.chunk(0, false)
	got := []int64{g.Started.Load(), g.LateSum.Load(), g.LateMax.Load(), g.Chunks.Load(), g.Shared.Load(), g.LagSum.Load(), g.LagMax.Load()}
	if diff := cmp.Diff([]int64{2, int64(6 * ms), int64(4 * ms), 4, 1, 8000, 5000}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestCapAtTheEndOfTheDurationDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs, res := measure(t, answer{ttft: 150 * ms, tokens: 1}, func(p *Plan) {
			p.Concurrency, p.Schedule, p.Duration, p.Grace = 1, every(50*ms), 200*ms, time.Second
		})
		equal(t, "outcomes", outcomes(recs), []string{"ok", "ok", "dropped", "dropped"})
		if res.Sent != 2 || res.Unsent != 2 {
			t.Errorf("sent %d, unsent %d, want 2 and 2", res.Sent, res.Unsent)
		}
	})
}

func TestWarmupRunsBeforeAndApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		var mu sync.Mutex
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			mu.Lock()
			bodies = append(bodies, string(b))
			mu.Unlock()
			answer{ttft: 10 * ms, tokens: 1}.ServeHTTP(w, r)
		})
		recs, res := measure(t, h, func(p *Plan) { p.Warmup, p.Requests = 3, 2 })
		var phases []string
		for _, r := range recs {
			phases = append(phases, string(r.Phase))
		}
		equal(t, "phases", phases, []string{"warmup", "warmup", "warmup", "measure", "measure"})
		equal(t, "start", column(recs, started), []float64{0, 10, 20, 30, 40})
		if res.MeasureStart != record.Time(30*ms) || res.Sent != 2 {
			t.Errorf("measured from %v, %d sent", time.Duration(res.MeasureStart), res.Sent)
		}
		for i, want := range []string{"prompt -1", "prompt -2", "prompt -3", "prompt 0", "prompt 1"} {
			if !strings.Contains(bodies[i], want+`"`) {
				t.Errorf("request %d is %s, want %s", i, bodies[i], want)
			}
		}
	})
}

func TestWarmupCountsTurns(t *testing.T) {
	phases := func(recs []*record.Record) map[record.Phase]int {
		out := map[record.Phase]int{}
		for _, r := range recs {
			out[r.Phase]++
		}
		return out
	}
	server := answer{ttft: 10 * ms, tokens: 1}
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, server, func(p *Plan) { p.Warmup, p.Sessions, p.Source = 2, 1, conversation{} })
		equal(t, "phases", phases(recs), map[record.Phase]int{record.PhaseWarmup: 2, record.PhaseMeasure: 3})
		equal(t, "turns", []int{recs[0].Turn, recs[1].Turn}, []int{0, 1})
	})
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, server, func(p *Plan) {
			p.Warmup, p.Sessions, p.Source, p.WarmupSchedule, p.Schedule = 4, 1, conversation{}, every(5*time.Second), every(time.Second)
		})
		equal(t, "phases", phases(recs), map[record.Phase]int{record.PhaseWarmup: 4, record.PhaseMeasure: 3})
	})
	// What is to be found in the cache is sent whole.
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, server, func(p *Plan) { p.Warmup, p.WarmupRepeats, p.Sessions, p.Source = 2, true, 2, conversation{} })
		equal(t, "phases", phases(recs), map[record.Phase]int{record.PhaseWarmup: 6, record.PhaseMeasure: 6})
	})
}

func TestDurationAndGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Requests of 400 ms: sent at 0, 400, 800; the third ends at 1200,
		// in the grace period.
		recs, _ := measure(t, answer{ttft: 400 * ms, tokens: 1}, func(p *Plan) { p.Duration, p.Grace = time.Second, 300*ms })
		equal(t, "start", column(recs, started), []float64{0, 400, 800})
		equal(t, "outcomes", outcomes(recs), []string{"ok", "ok", "ok"})
	})
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, answer{ttft: 400 * ms, tokens: 1}, func(p *Plan) { p.Duration, p.Grace = time.Second, 150*ms })
		equal(t, "outcomes", outcomes(recs), []string{"ok", "ok", "cancelled"})
		equal(t, "end", column(recs, endAt), []float64{400, 800, 1150})
	})
}

func TestInterruptLetsInFlightEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupt := make(chan struct{})
		time.AfterFunc(250*ms, func() { close(interrupt) })
		recs, res := measure(t, answer{ttft: 100 * ms, tokens: 1}, func(p *Plan) {
			p.Requests, p.Interrupt, p.Grace = 100, interrupt, time.Second
		})
		equal(t, "outcomes", outcomes(recs), []string{"ok", "ok", "ok"})
		equal(t, "end", column(recs, endAt), []float64{100, 200, 300})
		if res.Outcome != record.RunInterrupted {
			t.Errorf("outcome %s", res.Outcome)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		interrupt := make(chan struct{})
		time.AfterFunc(250*ms, func() { close(interrupt) })
		recs, _ := measure(t, answer{ttft: 100 * ms, tokens: 1}, func(p *Plan) {
			p.Requests, p.Interrupt, p.Grace = 100, interrupt, 20*ms
		})
		equal(t, "outcomes", outcomes(recs), []string{"ok", "ok", "cancelled"})
		equal(t, "end", column(recs, endAt), []float64{100, 200, 270})
	})
}

func TestCancelEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(150*ms, cancel)
		recs, res := measureOn(t, newPipes(), answer{ttft: 100 * ms, tokens: 1}, ctx, func(p *Plan) { p.Requests = 100 })
		equal(t, "outcomes", outcomes(recs), []string{"ok", "cancelled"})
		equal(t, "end", column(recs, endAt), []float64{100, 150})
		if res.Outcome != record.RunAborted {
			t.Errorf("outcome %s", res.Outcome)
		}
	})
}

// Comments before the first event are those of a request that waits; others
// tell nothing.
func TestFirstComment(t *testing.T) {
	const event = `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n"
	for _, c := range []struct {
		name  string
		parts []string // one each 10 ms, after the header
		want  record.Time
		first record.Time // event
	}{
		{"while it waits", []string{": keep-alive\n\n", ": keep-alive\n\n", event, "data: [DONE]\n\n"}, record.Time(20 * ms), record.Time(40 * ms)},
		{"in the read of the first event", []string{": ready\n\n" + event, "data: [DONE]\n\n"}, record.Unset, record.Time(20 * ms)},
		{"later", []string{event, ": keep-alive\n\n", "data: [DONE]\n\n"}, record.Unset, record.Time(20 * ms)},
		{"and nothing else", []string{": keep-alive\n\n"}, record.Time(20 * ms), record.Unset},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					for _, part := range append([]string{""}, c.parts...) {
						pause(r, 10*ms)
						_, _ = io.WriteString(w, part)
						w.(http.Flusher).Flush()
					}
				})
				recs, _ := measure(t, h, func(p *Plan) { p.Requests = 1 })
				r := recs[0]
				if r.FirstByte != record.Time(10*ms) || r.FirstComment != c.want || r.FirstEvent != c.first {
					t.Errorf("first byte %v, comment %v, event %v; want comment %v, event %v", r.FirstByte, r.FirstComment, r.FirstEvent, c.want, c.first)
				}
			})
		})
	}
}

func TestTimeouts(t *testing.T) {
	stall := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		pause(r, 30*ms)
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
		w.(http.Flusher).Flush()
		pause(r, time.Hour)
	})
	for _, c := range []struct {
		name    string
		change  func(*Plan)
		outcome record.Outcome
		end     time.Duration
	}{
		{"idle", func(p *Plan) { p.IdleTimeout = 300 * ms }, record.IdleTimeout, 330 * ms},
		{"total", func(p *Plan) { p.TotalTimeout = 200 * ms }, record.TotalTimeout, 200 * ms},
		{"the first limit counts", func(p *Plan) { p.IdleTimeout, p.TotalTimeout = 300*ms, 400*ms }, record.IdleTimeout, 330 * ms},
		{"first byte", func(p *Plan) { p.Transport.FirstByteTimeout = 20 * ms }, record.FirstByteTimeout, 20 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recs, _ := measure(t, stall, func(p *Plan) {
					p.Requests = 1
					c.change(p)
				})
				if recs[0].Outcome != c.outcome || recs[0].End != record.Time(c.end) {
					t.Errorf("%s at %v, want %s at %v (%+v)", recs[0].Outcome, time.Duration(recs[0].End), c.outcome, c.end, recs[0].Failure)
				}
				if _, ok := recs[0].TTFT(); ok && recs[0].Valid() {
					t.Error("a failed request is valid")
				}
			})
		})
	}
	t.Run("connect", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			recs, _ := measure(t, stall, func(p *Plan) {
				p.Requests = 1
				p.Transport.ConnectTimeout = 70 * ms
				p.Transport.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
			})
			if recs[0].Outcome != record.ConnectTimeout || recs[0].End != record.Time(70*ms) {
				t.Errorf("%s at %v", recs[0].Outcome, time.Duration(recs[0].End))
			}
		})
	})
}

func TestTurnsCarryTheServersAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []map[string]any
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			var body map[string]any
			if err := json.Unmarshal(b, &body); err != nil {
				t.Error(err)
			}
			bodies = append(bodies, body)
			answer{ttft: 10 * ms, tokens: 2}.ServeHTTP(w, r)
		})
		recs, _ := measure(t, h, func(p *Plan) {
			p.Sessions = 1
			p.Source = conversation{}
		})
		equal(t, "start", column(recs, started), []float64{0, 1010, 1020})
		equal(t, "due", column(recs, dueAt), []float64{0, 1010, 1020})
		want := []any{
			map[string]any{"role": "user", "content": "one"},
			map[string]any{"role": "assistant", "content": "t0 t1 "},
			map[string]any{"role": "user", "content": "two"},
			map[string]any{"role": "assistant", "content": "t0 t1 "},
			map[string]any{"role": "user", "content": "three"},
		}
		for turn, n := range []int{1, 3, 5} {
			equal(t, fmt.Sprint("messages of turn ", turn), bodies[turn]["messages"], any(want[:n]))
			if recs[turn].Turn != turn || recs[turn].Output != nil {
				t.Errorf("turn %d: %+v", turn, recs[turn])
			}
		}
	})
}

type conversation struct{}

func (conversation) Len() int { return 1 }
func (conversation) At(int) (workloads.Session, error) {
	say := func(s string, delay time.Duration) workloads.Request {
		return workloads.Request{Messages: []workloads.Message{{Role: "user", Content: s}}, Delay: delay}
	}
	return workloads.Session{ID: "s", Turns: []workloads.Request{say("one", 0), say("two", time.Second), say("three", 0)}}, nil
}

func TestRequestCountBoundsTheTurnsOfAllSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs, res := measure(t, answer{ttft: 10 * ms, tokens: 1}, func(p *Plan) {
			p.Requests, p.Concurrency, p.Source = 7, 2, conversation{}
		})
		if len(recs) != 7 || res.Sent != 7 {
			t.Errorf("%d records, %d sent, want 7: two whole sessions and a turn", len(recs), res.Sent)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, answer{ttft: 10 * ms, tokens: 1}, func(p *Plan) { p.Sessions, p.Concurrency, p.Source = 3, 2, conversation{} })
		if len(recs) != 9 {
			t.Errorf("%d records, want the 9 turns of 3 sessions", len(recs))
		}
	})
}

func TestFailedTurnEndsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 2 {
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
			answer{ttft: 10 * ms, tokens: 1}.ServeHTTP(w, r)
		})
		recs, _ := measure(t, h, func(p *Plan) { p.Sessions, p.Source = 2, conversation{} })
		equal(t, "outcomes", outcomes(recs), []string{"ok", "http_5xx", "ok", "ok", "ok"})
	})
}

func TestConcurrencyRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs, res := measure(t, answer{ttft: 100 * ms, tokens: 1}, func(p *Plan) {
			p.Concurrency, p.Duration, p.Grace = 3, 500*ms, time.Second
			p.Ramp = arrival.Profile{{Duration: 200 * ms, From: 1, To: 1}, {Duration: 150 * ms, From: 3, To: 3}, {From: 1, To: 1}}
		})
		equal(t, "start", column(recs, started), []float64{0, 100, 200, 200, 200, 300, 300, 300, 400})
		if res.MaxInFlight != 3 {
			t.Errorf("most in flight %d", res.MaxInFlight)
		}
	})
}

func TestPrefillConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, answer{ttft: 100 * ms, itl: 100 * ms, tokens: 4}, func(p *Plan) {
			p.Concurrency, p.PrefillConcurrency, p.Requests = 3, 1, 3
		})
		// Each is sent when the one before has its first token.
		equal(t, "start", column(recs, started), []float64{0, 100, 200})
		equal(t, "kept by the cap", column(recs, capWait), []float64{0, 100, 200})
	})
}

func TestPrefillCapUnderASchedule(t *testing.T) {
	server := answer{ttft: 100 * ms, itl: 100 * ms, tokens: 4}
	synctest.Test(t, func(t *testing.T) {
		recs, res := measure(t, server, func(p *Plan) {
			p.Concurrency, p.PrefillConcurrency, p.Requests, p.Schedule = 0, 1, 4, every(50*ms)
		})
		equal(t, "due", column(recs, dueAt), []float64{0, 50, 100, 150})
		equal(t, "start", column(recs, started), []float64{0, 100, 200, 300})
		equal(t, "kept by the cap", column(recs, capWait), []float64{0, 50, 100, 150})
		if res.MaxInFlight != 4 {
			t.Errorf("most in flight %d", res.MaxInFlight)
		}
	})
	// Nothing is sent after the end, however long it waited.
	synctest.Test(t, func(t *testing.T) {
		recs, res := measure(t, server, func(p *Plan) {
			p.Concurrency, p.PrefillConcurrency, p.Schedule, p.Duration, p.Grace = 0, 1, every(50*ms), 250*ms, time.Second
		})
		equal(t, "outcomes", outcomes(recs), []string{"ok", "ok", "ok", "dropped", "dropped"})
		equal(t, "kept by the cap", column(recs, capWait), []float64{0, 50, 100, 100, 50})
		if res.Sent != 3 || res.Unsent != 2 || res.MeasureEnd != record.Time(250*ms) {
			t.Errorf("result %+v, want 3 sent and 2 not, until 250 ms", res)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		interrupt := make(chan struct{})
		time.AfterFunc(150*ms, func() { close(interrupt) })
		recs, _ := measure(t, server, func(p *Plan) {
			p.Concurrency, p.PrefillConcurrency, p.Requests, p.Schedule, p.Grace = 0, 1, 9, every(50*ms), time.Second
			p.Interrupt = interrupt
		})
		equal(t, "start", column(recs, started), []float64{0, 100})
	})
	// The later turns of sessions, too.
	synctest.Test(t, func(t *testing.T) {
		recs, res := measure(t, answer{ttft: 400 * ms, tokens: 1}, func(p *Plan) {
			p.Users, p.PrefillConcurrency, p.Source = arrival.Users{Count: 2, Rate: 10}, 1, conversation{}
			p.Concurrency, p.Duration, p.Grace = 0, 300*ms, time.Second
		})
		equal(t, "outcomes", outcomes(recs), []string{"ok", "dropped"})
		if res.Unsent != 1 {
			t.Errorf("result %+v", res)
		}
	})
}

func TestUserCentricLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs, res := measure(t, answer{ttft: 50 * ms, tokens: 1}, func(p *Plan) {
			p.Users, p.Concurrency, p.Requests, p.Source = arrival.Users{Count: 2, Rate: 10}, 0, 7, conversation{}
		})
		// Two users at 10 requests/s: each sends every 200 ms, 100 ms apart.
		equal(t, "start", column(recs, started), []float64{0, 200, 400, 100, 300, 500, 600})
		if res.MaxInFlight != 1 {
			t.Errorf("most in flight %d", res.MaxInFlight)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, answer{ttft: 350 * ms, tokens: 1}, func(p *Plan) {
			p.Users, p.Concurrency, p.Duration, p.Grace = arrival.Users{Count: 1, Rate: 5}, 0, time.Second, time.Second
		})
		// A slow answer shifts the user's schedule.
		equal(t, "start", column(recs, started), []float64{0, 350, 700})
		equal(t, "shifted", column(recs, func(r *record.Record) (time.Duration, bool) { return r.Shifted, true }), []float64{0, 150, 150})
		equal(t, "outcomes", outcomes(recs), []string{"ok", "ok", "ok"})
	})
}

func TestWarmupThatRepeatsTheMeasuredPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			seen = append(seen, string(b))
			answer{ttft: 10 * ms, tokens: 1}.ServeHTTP(w, r)
		})
		measure(t, h, func(p *Plan) { p.Warmup, p.Requests, p.WarmupRepeats = 2, 2, true })
		if len(seen) != 4 || seen[0] != seen[2] || seen[1] != seen[3] || seen[0] == seen[1] {
			t.Errorf("bodies %q", seen)
		}
	})
}

func TestAnswersAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recs, _ := measure(t, answer{ttft: 10 * ms, tokens: 2}, func(p *Plan) {
			p.Requests = 2
			p.Check = func(text string) bool { return text == "t0 t1 " }
		})
		for _, r := range recs {
			if r.StructureOK == nil || !*r.StructureOK || r.Output != nil {
				t.Errorf("record %d: structure %v, output %v", r.ID, r.StructureOK, r.Output)
			}
		}
	})
}

func TestSourceErrorEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, _ := url.Parse("http://server/v1/chat/completions")
		bad := errors.New("line 7 is bad")
		_, err := Run(t.Context(), Plan{URL: u, Type: openai.Chat, Source: failing{bad}, Concurrency: 1, Requests: 2, CoarseWait: true}, make(chan *record.Record, 1))
		if !errors.Is(err, bad) {
			t.Errorf("error %v", err)
		}
	})
}

type failing struct{ err error }

func (failing) Len() int                            { return 0 }
func (f failing) At(int) (workloads.Session, error) { return workloads.Session{}, f.err }

func TestPlanRefused(t *testing.T) {
	u, _ := url.Parse("http://server/v1/chat/completions")
	good := Plan{URL: u, Type: openai.Chat, Source: prompts{}, Concurrency: 1, Requests: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Plan){
		"no URL":            func(p *Plan) { p.URL = nil },
		"no type":           func(p *Plan) { p.Type = "ping" },
		"no source":         func(p *Plan) { p.Source = nil },
		"no concurrency":    func(p *Plan) { p.Concurrency = 0 },
		"no bound":          func(p *Plan) { p.Requests = 0 },
		"negative count":    func(p *Plan) { p.Requests = -1 },
		"negative duration": func(p *Plan) { p.Duration = -1 },
	} {
		p := good
		change(&p)
		if p.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
