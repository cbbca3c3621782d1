//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/collect"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/workloads/arrival"
	"github.com/tokmark/tokmark/workloads/synthetic"
)

// engineMain carries out a run as tokmark run does, in a process that can also
// do what the tool never does while it measures: hold many results and collect
// garbage. With -cpuprofile it is the way to profile the hot path:
//
//	perf server -mode paced &   perf engine -url … -cpuprofile cpu.prof
func engineMain(args []string) error {
	fs := flag.NewFlagSet("engine", flag.ContinueOnError)
	addr := fs.String("url", "", "server, as http://host:port")
	dir := fs.String("dir", "", "run directory to make")
	concurrency := fs.Int("concurrency", 1000, "requests in flight")
	rate := fs.Float64("rate", 0, "requests per second; 0: closed loop")
	duration := fs.Duration("duration", 5*time.Second, "how long to send")
	tokens := fs.Int("tokens", 500, "to ask for")
	hold := fs.Int("hold", 0, "MB of results to hold")
	collectEvery := fs.Duration("collect", 0, "how often to collect garbage; 0: never, as the tool does")
	cpu := fs.String("cpuprofile", "", "file for a CPU profile of the run")
	heap := fs.String("memprofile", "", "file for a profile of all allocations")
	if err := fs.Parse(args); err != nil {
		return err
	}
	u, err := url.Parse(*addr)
	if err != nil {
		return err
	}
	typ := openai.Chat
	u.Path = typ.Path()
	const input = 16
	source, err := synthetic.New(synthetic.Options{Lengths: []synthetic.Lengths{{Input: synthetic.Fixed(input), Output: synthetic.Fixed(*tokens)}}})
	if err != nil {
		return err
	}
	plan := bench.Plan{
		URL: u, Type: typ, Body: openai.BodyOptions{Model: "perf", Stream: true, IncludeUsage: true},
		Source: source, Concurrency: *concurrency, Duration: *duration, Grace: time.Second / 2, IdleTimeout: 2 * time.Minute,
		RequestIDPrefix: "engine-", Origin: time.Now(), Gauge: &bench.Gauge{},
	}
	if *rate > 0 {
		if plan.Schedule, err = (arrival.Plan{Pattern: arrival.Constant, Rate: arrival.Steady(*rate)}).Schedule(); err != nil {
			return err
		}
	}
	out := record.Dir(*dir)
	if err := out.Create(); err != nil {
		return err
	}
	writer, err := out.NewWriter()
	if err != nil {
		return err
	}
	m := &record.Manifest{Schema: record.ManifestSchema, ID: "engine", RequestIDs: "engine-", Origin: plan.Origin, Stamps: record.StampsKernel}

	held := holdResults(*hold << 20)
	runtime.GC()
	debug.SetGCPercent(-1)
	done := make(chan struct{})
	if *collectEvery > 0 {
		debug.SetGCPercent(100)
		go func() {
			tick := time.NewTicker(*collectEvery)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					runtime.GC()
				case <-done:
					return
				}
			}
		}()
	}
	if *cpu != "" {
		f, err := os.Create(*cpu)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
	}
	const waiting = 1 << 14
	records := make(chan *record.Record, waiting)
	kept := make(chan error, 1)
	go func() { kept <- new(collect.Collector).Collect(records, writer, nil) }()
	res, err := bench.Run(context.Background(), plan, records)
	close(done)
	close(records)
	err = errors.Join(err, <-kept, writer.Close())
	if *cpu != "" {
		pprof.StopCPUProfile()
	}
	if *heap != "" {
		f, ferr := os.Create(*heap)
		if ferr != nil {
			return ferr
		}
		defer f.Close()
		runtime.GC() // a profile shows what the last collection knew
		err = errors.Join(err, pprof.Lookup("allocs").WriteTo(f, 0))
	}
	runtime.KeepAlive(held)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	m.Outcome, m.MeasureStart, m.MeasureEnd, m.Sent = res.Outcome, res.MeasureStart, res.MeasureEnd, res.Sent
	return out.WriteManifest(m)
}

// holdResults makes records of so many bytes, as a long run has them.
func holdResults(size int) []*record.Record {
	const (
		chunks = 256
		each   = chunks*16 + 1024
	)
	held := make([]*record.Record, 0, size/each)
	for i := range cap(held) {
		held = append(held, syntheticRecord(int64(i), chunks))
	}
	return held
}

// syntheticRecord is the record of an answer with so many events, 5 ms apart
// or so.
func syntheticRecord(i int64, chunks int) *record.Record {
	const ms = record.Time(time.Millisecond)
	r := record.New(record.PhaseMeasure, i)
	r.Session, r.Model, r.ResponseModel = fmt.Sprintf("s%d", i), "perf", "perf"
	r.Streaming, r.Streamed, r.Done, r.Status, r.Outcome = true, true, true, 200, record.OK
	r.Due = record.Time(i) * ms
	r.Start = r.Due + 20_000
	r.Written, r.FirstByte, r.FirstEvent = r.Start+90_000, r.Start+19*ms, r.Start+19*ms
	at := r.Start + 20*ms
	r.Chunks = make(record.Chunks, chunks)
	for j := range r.Chunks {
		r.Chunks[j] = record.Chunk{At: at, Lag: uint32(20_000 + (int(i)*31+j*977)%50_000), Tokens: record.UnknownTokens, Kind: record.KindText}
		at += 5*ms + record.Time((int(i)*7919+j*104729)%1_000_000)
	}
	r.End = at
	r.Events, r.FirstTokenEvent, r.FirstAnswerEvent, r.LastTokenEvent = chunks+4, 1, 1, chunks
	r.FinishReasons = []string{"length"}
	r.AskedOutput = record.Count(chunks)
	r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 16, Output: record.Count(chunks), Reasoning: record.Unknown, Cached: record.Unknown}
	r.Usage = record.Usage{Prompt: 16, Completion: record.Count(chunks), Total: record.Count(chunks + 16), Reasoning: record.Unknown, Cached: record.Unknown}
	r.Conn = record.Conn{Reused: true, Wait: 2 * time.Microsecond, Remote: "127.0.0.1:8000", Protocol: "HTTP/1.1"}
	return r
}
