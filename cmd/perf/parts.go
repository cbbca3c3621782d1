//go:build linux

package main

import (
	"fmt"
	"io"
	"testing"
	"unsafe"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/sse"
)

// endless is a stream of events that never ends, an event a read.
type endless struct{ event []byte }

func (e endless) Read(p []byte) (int, error) { return copy(p, e.event), nil }

// parts measures an event's way from the read to the record.
func parts(h *harness) error {
	const events = 4096
	event := []byte(eventHead + `{"content":" token"}` + eventTail)
	reader := sse.NewReader(nil, nil, 0)
	var (
		answer openai.Answer
		rec    *record.Record
		err    error
		now    int64
	)
	reset := func() {
		rec = record.New(record.PhaseMeasure, 0)
		rec.Streaming, rec.AskedOutput = true, events
		rec.Chunks = make(record.Chunks, 0, events)
		answer.Reset(rec, openai.Chat, 0)
		reader.Reset(io.Reader(endless{event}), func() sse.Stamp { now += 1000; return sse.Stamp{At: now, Lag: 30} }, 0)
	}
	step := func() {
		e, rerr := reader.Next()
		if rerr != nil {
			err = rerr
			return
		}
		answer.Event(e.Name, e.Data, record.Time(e.At), e.Lag, e.SameRead)
	}
	reset()
	step() // the first event makes buffers
	allocs := testing.AllocsPerRun(events/2, step)
	b := testing.Benchmark(func(b *testing.B) {
		for i := range b.N {
			if i%events == 0 {
				reset()
			}
			step()
		}
	})
	if err != nil {
		return err
	}
	h.table.noisy = false
	h.table.add("allocations of an event", fmt.Sprint(allocs), "", "", "0", allocs == 0)
	ns := float64(b.NsPerOp())
	h.table.add("frame, decode, record an event", fmt.Sprintf("%.0f ns", ns), "", "", "≤ 500 ns", ns <= 500)
	size := unsafe.Sizeof(record.Chunk{})
	h.table.add("bytes kept of an event", fmt.Sprint(size), "", "", "≤ 16", size <= 16)
	return nil
}
