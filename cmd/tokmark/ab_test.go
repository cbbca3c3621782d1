package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/report/compare"
	"github.com/tokmark/tokmark/workloads/synthetic"
)

// memory is a network within the process, for fake time.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}
func (m *memory) Close() error   { close(m.done); return nil }
func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case m.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fakeBlock measures one block against a simulator in fake time. It must be
// called in a synctest bubble.
func fakeBlock(t *testing.T, cfg mockserver.Config, seed uint64, schedule iter.Seq[time.Duration]) []*record.Record {
	t.Helper()
	out := make(chan *record.Record, 64)
	fakeRun(t, cfg, seed, bench.Plan{Schedule: schedule, Concurrency: 2, Requests: 12}, out)
	close(out)
	var recs []*record.Record
	for r := range out {
		if r.Outcome != record.OK {
			t.Fatalf("%+v", r.Failure)
		}
		recs = append(recs, r)
	}
	return recs
}

// fakeRun carries out the load of the plan against a simulator in fake time;
// the rest of the plan is filled in. It must be called in a synctest bubble.
func fakeRun(t *testing.T, cfg mockserver.Config, seed uint64, plan bench.Plan, out chan<- *record.Record) bench.Result {
	t.Helper()
	cfg.Seed, cfg.KeepTruth, cfg.Origin = seed, 0, time.Now()
	srv, err := mockserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	network := &memory{conns: make(chan net.Conn), done: make(chan struct{})}
	hs := &http.Server{Handler: srv}
	go func() { _ = hs.Serve(network) }()
	defer func() {
		_ = hs.Close()
		_ = srv.Close()
		synctest.Wait()
	}()
	plan.Source, err = synthetic.New(synthetic.Options{Seed: seed, Lengths: []synthetic.Lengths{{Input: synthetic.Fixed(40), Output: synthetic.Fixed(16)}}})
	if err != nil {
		t.Fatal(err)
	}
	plan.URL, _ = url.Parse("http://memory/v1/chat/completions")
	plan.Type, plan.CoarseWait = openai.Chat, true
	plan.Body = openai.BodyOptions{Model: cfg.Model, Stream: true, IncludeUsage: true, Extra: plan.Body.Extra}
	plan.Transport = transport.Options{Dial: network.dial}
	res, err := bench.Run(t.Context(), plan, out)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// abTrial compares two simulators; slower is how much longer B's steps take,
// drift how much longer everything takes with each block.
func abTrial(t *testing.T, seed uint64, slower, drift float64, order func(ab *abOptions, block func(int, int) (compare.Block, error)) *compare.Paired) (p *compare.Paired) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		block := func(side, n int) (compare.Block, error) {
			cfg := mockserver.Default()
			factor := 1 + drift*float64(n)
			if side == 1 {
				factor *= 1 + slower
			}
			cfg.DecodeBase = time.Duration(factor * float64(cfg.DecodeBase))
			cfg.DecodePerSequence = time.Duration(factor * float64(cfg.DecodePerSequence))
			cfg.PrefillBase = time.Duration((1 + drift*float64(n)) * float64(cfg.PrefillBase))
			return compare.BlockOf(fakeBlock(t, cfg, seed*1000+uint64(n), nil)), nil
		}
		p = order(&abOptions{pairs: 16, null: 2}, block)
	})
	return p
}

func interleaved(seed uint64) func(*abOptions, func(int, int) (compare.Block, error)) *compare.Paired {
	return func(ab *abOptions, block func(int, int) (compare.Block, error)) *compare.Paired {
		p, err := interleave(ab, compare.PairOptions{Looks: len(looks(ab.pairs))}, seed, block, func() bool { return false })
		if err != nil {
			panic(err) // the block function has no errors
		}
		return p
	}
}

// inSequence measures all of A and then all of B, as two runs do.
func inSequence(ab *abOptions, block func(int, int) (compare.Block, error)) *compare.Paired {
	var sides [2][]compare.Block
	for side := range sides {
		for n := range ab.pairs {
			b, _ := block(side, side*ab.pairs+n)
			sides[side] = append(sides[side], b)
		}
	}
	return compare.Pair(sides[0], sides[1], nil, compare.PairOptions{})
}

func verdicts(p *compare.Paired) map[string]compare.Verdict {
	out := map[string]compare.Verdict{}
	for _, f := range p.Figures {
		if f.Decides {
			out[f.Metric] = f.Verdict
		}
	}
	return out
}

func TestABOfEqualServersIsNeverWorse(t *testing.T) {
	same := 0
	for seed := range uint64(50) {
		p := abTrial(t, seed, 0, 0, interleaved(seed))
		for metric, v := range verdicts(p) {
			if v == compare.Worse || v == compare.Better {
				t.Errorf("seed %d: %s is %s of two equal servers: %s", seed, metric, v, p.Headline)
			}
		}
		if p.Decided {
			same++
		}
	}
	t.Logf("%d of 50 ended with the same, the others cannot tell", same)
}

func TestABFindsASlowerDecode(t *testing.T) {
	worse := 0
	for seed := range uint64(10) {
		p := abTrial(t, seed, 0.1, 0, interleaved(seed))
		if verdicts(p)["inter_token_latency"] == compare.Worse || verdicts(p)["request_latency"] == compare.Worse {
			worse++
		}
		for _, f := range p.Figures {
			if f.Metric == "inter_token_latency" && (f.Interval.Low > 0.1 || f.Interval.High < 0.1) {
				t.Errorf("seed %d: the interval [%.3f, %.3f] does not hold 10 %%", seed, f.Interval.Low, f.Interval.High)
			}
		}
		if seed == 0 {
			t.Log(p.Headline)
		}
	}
	if worse < 10 {
		t.Errorf("a decode that is 10 %% slower was found in %d of 10 trials", worse)
	}
}

func TestDriftFoolsTwoRunsButNotAB(t *testing.T) {
	const drift = 0.005 // a block
	p := abTrial(t, 1, 0, drift, interleaved(1))
	if v := verdicts(p)["inter_token_latency"]; v == compare.Worse {
		t.Errorf("interleaved: %s", p.Headline)
	}
	p = abTrial(t, 1, 0, drift, inSequence)
	if v := verdicts(p)["inter_token_latency"]; v != compare.Worse {
		t.Errorf("one after the other, of equal servers that grow slower: %s (%v), and should be fooled", p.Headline, v)
	}
}

// TestInvalidBlocks: a pair with an invalid block is measured again; if that
// goes on, the comparison is not valid.
func TestInvalidBlocks(t *testing.T) {
	for _, test := range []struct {
		spoilt, left int
		code         int
	}{{0, 0, exitOK}, {3, 3, exitOK}, {1000, leastLook, exitInvalid}} {
		measured := 0
		block := func(_, n int) (compare.Block, error) {
			if measured++; n >= 2 && measured-2 <= test.spoilt {
				return compare.Block{}, &blockError{fmt.Sprint(n), "the client was late"}
			}
			r := record.New(record.PhaseMeasure, int64(n))
			r.Outcome, r.Streaming, r.Streamed, r.Done, r.FinishReasons = record.OK, true, true, true, []string{"stop"}
			r.Start, r.Written, r.FirstByte, r.End = 0, 0, 1e6, 2e6
			r.Chunks = record.Chunks{{At: 1e6, Tokens: 1, Kind: record.KindText}, {At: 2e6, Tokens: 1, Kind: record.KindText}}
			r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 1, Output: 2}
			return compare.BlockOf([]*record.Record{r}), nil
		}
		p := interleaved(1)(&abOptions{pairs: 6, null: 1}, block)
		var e *exitError
		code := exitOK
		if errors.As(abError(p), &e) {
			code = e.code
		}
		if len(p.LeftOut) != test.left || code != test.code {
			t.Errorf("%d invalid blocks: %d pairs, %d left out, exit %d; want %d, %d\n%s", test.spoilt, p.Pairs, len(p.LeftOut), code, test.left, test.code, p.Headline)
		}
	}
}

func TestLooks(t *testing.T) {
	for most, want := range map[int]string{6: "[6]", 7: "[6 7]", 24: "[6 9 14 21 24]"} {
		if got := fmt.Sprint(looks(most)); got != want {
			t.Errorf("looks(%d) = %s, want %s", most, got, want)
		}
	}
}
