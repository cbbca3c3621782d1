// Package selftest finds out how good this machine is as a client: it measures
// the simulator, which writes down when it sent each event, and compares.
package selftest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/health"
	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/workloads"
)

// Shape is a load to try the client with.
type Shape struct {
	// Streams are open at a time; each brings one event every Streams / Events
	// seconds.
	Streams int `json:"streams"`
	// Events is the number of events a second of all streams together.
	Events float64 `json:"events_per_s"`
	// Requests, if not 0, is a rate of short requests in place of streams.
	Requests float64 `json:"requests_per_s,omitempty"`
	// For is about how long the load lasts.
	For time.Duration `json:"for_ns"`
}

// Step is the decode step that the simulator needs for the shape.
func (s Shape) Step() time.Duration {
	if s.Requests > 0 {
		return time.Millisecond
	}
	return time.Duration(float64(s.Streams) / s.Events * float64(time.Second))
}

// Spread tells how large a kind of error was.
type Spread struct {
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`
}

// Result is what a shape showed.
type Result struct {
	Shape Shape `json:"shape"`
	// Seen and Lost are events with output: received, and sent but not
	// received. Failed are requests.
	Seen   int `json:"events_seen"`
	Lost   int `json:"events_lost"`
	Failed int `json:"requests_failed"`
	// Rate is the rate of events that was reached.
	Rate float64 `json:"events_per_s_reached"`
	// Event is how long after it was sent an event is said to have come, TTFT
	// by how much the time to first token is longer than the server's own, Own
	// what Event would be without the kernel's stamps, Late how late requests
	// were sent. Event and Own are 0 where the clocks of two processes cannot
	// be compared.
	Event Spread `json:"event_error"`
	TTFT  Spread `json:"ttft_error"`
	Own   Spread `json:"event_error_without_kernel"`
	Late  Spread `json:"lateness"`
	// CPU is the cores that this process used, MemoryPerStream the resident
	// memory that a stream took, in bytes; 0 where it is not told.
	CPU             float64 `json:"cpu_cores"`
	MemoryPerStream float64 `json:"memory_per_stream_bytes,omitempty"`
}

// Within reports whether the client kept up: nothing lost or failed, and the
// error of event times at p99 at most the limit.
func (r Result) Within(limit time.Duration) bool {
	return r.Lost == 0 && r.Failed == 0 && r.Event.P99 <= limit
}

// Measure puts the shape on the simulator at base, which must have been
// started for it: decode steps of Shape.Step, no noise, a batch of all streams.
// truth is the path of its log.
func Measure(ctx context.Context, base *url.URL, truth string, shape Shape) (Result, error) {
	endpoint := *base
	endpoint.Path = openai.Chat.Path()
	tokens := max(2, int(shape.For/shape.Step()))
	plan := bench.Plan{
		URL: &endpoint, Type: openai.Chat, Source: prompts{tokens},
		Body:        openai.BodyOptions{Model: mockserver.Default().Model, Stream: true, IncludeUsage: true},
		Concurrency: shape.Streams, Requests: int64(shape.Streams), TotalTimeout: 10*shape.For + time.Minute,
		RequestIDPrefix: "selftest-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-", Gauge: &bench.Gauge{},
	}
	if shape.Requests > 0 {
		plan.Source, plan.Concurrency = prompts{1}, 0
		plan.Requests = int64(shape.Requests * shape.For.Seconds())
		plan.Schedule = every(time.Duration(float64(time.Second) / shape.Requests))
	}
	plan.Origin = time.Now()
	monotonic := mockserver.MonotonicAt(plan.Origin)

	out := make(chan *record.Record, plan.Requests)
	monitor := health.NewMonitor()
	rss := residentBytes()
	peak := make(chan float64, 1)
	watching, stop := context.WithCancel(ctx)
	go func() { peak <- watchMemory(watching) }()
	_, err := bench.Run(ctx, plan, out)
	stop()
	most := <-peak
	if err != nil {
		return Result{Shape: shape}, fmt.Errorf("self-test: %w", err)
	}
	close(out)
	r := Result{Shape: shape, CPU: monitor.Sample()[record.ClientCPU]}
	if rss > 0 && shape.Requests == 0 {
		r.MemoryPerStream = max(0, most-rss) / float64(shape.Streams)
	}
	truths, err := ReadTruth(truth)
	if err != nil {
		return r, err
	}
	r.compare(out, truths, plan.RequestIDPrefix, monotonic)
	return r, nil
}

// compare fills in what records and truth say together.
func (r *Result) compare(records <-chan *record.Record, truths map[string]mockserver.Truth, prefix string, monotonic int64) {
	var event, own, ttft, late []time.Duration
	first, last := record.Time(1<<62), record.Time(0)
	for rec := range records {
		t, ok := truths[prefix+"m"+strconv.FormatInt(rec.ID, 10)]
		sent := slices.DeleteFunc(slices.Clone(t.Events), func(c record.Chunk) bool { return !c.Kind.Output() })
		if rec.Outcome != record.OK || !ok {
			r.Failed++
			r.Lost += max(0, len(sent)-len(rec.Chunks))
			continue
		}
		r.Seen += len(rec.Chunks)
		r.Lost += max(0, len(sent)-len(rec.Chunks))
		if d, ok := rec.Lateness(); ok {
			late = append(late, d)
		}
		if d, ok := rec.TTFT(); ok && len(sent) > 0 {
			ttft = append(ttft, d-sent[0].At.Sub(t.Received))
		}
		first, last = min(first, rec.Chunks[0].At), max(last, rec.Chunks[len(rec.Chunks)-1].At)
		if monotonic == 0 || t.MonotonicOrigin == 0 {
			continue
		}
		for i := range min(len(sent), len(rec.Chunks)) {
			c := rec.Chunks[i]
			d := time.Duration(monotonic + int64(c.At) - t.MonotonicOrigin - int64(sent[i].At))
			event = append(event, d)
			own = append(own, d+time.Duration(c.Lag))
		}
	}
	if last > first {
		r.Rate = float64(r.Seen) / last.Sub(first).Seconds()
	}
	r.Event, r.Own, r.TTFT, r.Late = spread(event), spread(own), spread(ttft), spread(late)
}

// spread is taken over the sizes of the errors.
func spread(d []time.Duration) Spread {
	if len(d) == 0 {
		return Spread{}
	}
	for i, v := range d {
		d[i] = max(v, -v)
	}
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1))] }
	return Spread{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

// ReadTruth reads the log of a simulator, by request id.
func ReadTruth(path string) (map[string]mockserver.Truth, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read truth log: %w", err)
	}
	defer f.Close()
	truths := map[string]mockserver.Truth{}
	in := bufio.NewReaderSize(f, 1<<20)
	dec := json.NewDecoder(in)
	for dec.More() {
		var t mockserver.Truth
		if err := dec.Decode(&t); err != nil {
			return truths, fmt.Errorf("read truth log %s: %w", path, err)
		}
		truths[t.RequestID] = t
	}
	if len(truths) == 0 {
		return nil, errors.New("read truth log: the simulator saw no request")
	}
	return truths, nil
}

// prompts are short, for answers of a set length.
type prompts struct{ tokens int }

func (prompts) Len() int { return 0 }

func (p prompts) At(i int) (workloads.Session, error) {
	return workloads.Session{ID: strconv.Itoa(i), Turns: []workloads.Request{{
		Messages:     []workloads.Message{{Role: "user", Content: "Self-test " + strconv.Itoa(i) + "."}},
		OutputTokens: p.tokens, Extra: map[string]json.RawMessage{"ignore_eos": json.RawMessage("true")},
	}}}, nil
}

func every(gap time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := 0; yield(time.Duration(i) * gap); i++ {
		}
	}
}

// watchMemory returns the most resident memory until ctx is done.
func watchMemory(ctx context.Context) float64 {
	const often = 100 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	most := residentBytes()
	for {
		select {
		case <-tick.C:
			most = max(most, residentBytes())
		case <-ctx.Done():
			return most
		}
	}
}

// residentBytes is the resident memory of this process; 0: not told.
func residentBytes() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0
	}
	return resident * float64(os.Getpagesize())
}
