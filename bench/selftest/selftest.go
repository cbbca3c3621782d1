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
	// Tokens is the payload of an event, up to MaxTokens; 0: 1.
	Tokens int `json:"tokens_per_event,omitempty"`
	// Requests, if not 0, is a rate of short requests, of one event each, in
	// place of streams.
	Requests float64 `json:"requests_per_s,omitempty"`
	// For is about how long the load lasts.
	For time.Duration `json:"for_ns"`
}

// MaxTokens is the largest payload of an event.
const MaxTokens = mockserver.MaxDraftTokens + 1

// Step is the decode step that the simulator needs for the shape.
func (s Shape) Step() time.Duration {
	if s.Requests > 0 {
		return time.Millisecond
	}
	return time.Duration(float64(s.Streams) / s.Events * float64(time.Second))
}

// Simulator is the configuration that the simulator needs for the shape.
func (s Shape) Simulator() mockserver.Config {
	cfg := mockserver.Default()
	cfg.Noise, cfg.PrefixCache = 0, false
	cfg.PrefillBase, cfg.PrefillPerToken = 0, 0 // all streams are let in at once
	cfg.DecodeBase, cfg.DecodePerSequence = s.Step(), 0
	cfg.MaxBatch = max(cfg.MaxBatch, s.Streams)
	cfg.DraftTokens, cfg.AcceptanceRate = max(s.Tokens, 1)-1, 1
	cfg.MaxModelLen = 1 << 30
	return cfg
}

// opening is the time over which the streams are begun: in one moment they
// would wait for each other, which is not what a stream costs.
func (s Shape) opening() time.Duration {
	return max(s.Step(), time.Duration(s.Streams)*100*time.Microsecond)
}

// leastEvents a stream has while all are open, so that there is a rate.
const leastEvents = 4

// outputTokens is how long an answer is: the first event, which prefill makes,
// has one token, and the others the payload.
func (s Shape) outputTokens() int {
	if s.Requests > 0 {
		return 1
	}
	open := max(leastEvents, int(s.For/s.Step()))
	return 1 + max(s.Tokens, 1)*(open+int(s.opening()/s.Step())+1)
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
	// Events is the rate of events a second while all streams were open, 0 if
	// they never were; Requests the rate at which requests were sent, 0 if none
	// was asked for.
	Events   float64 `json:"events_per_s_reached,omitempty"`
	Requests float64 `json:"requests_per_s_reached,omitempty"`
	// Event is how long after it was sent an event is said to have come, Own
	// what it would be without the kernel's stamps. TTFT is by how much the time
	// to first token, less the wait for a connection, is longer than the time
	// from the request written to the first event sent. All three are 0 where
	// the clocks of two processes cannot be compared. Late is how late requests
	// were sent.
	Event Spread `json:"event_error"`
	TTFT  Spread `json:"ttft_error"`
	Own   Spread `json:"event_error_without_kernel"`
	Late  Spread `json:"lateness"`
	// CPU is the cores that this process used, MemoryPerStream the resident
	// memory that a stream took, in bytes; 0 where it is not told.
	CPU             float64 `json:"cpu_cores"`
	MemoryPerStream float64 `json:"memory_per_stream_bytes,omitempty"`
}

// Reached is the share of the rate asked for that was reached, at most 1; 0 if
// not all streams were open at once.
func (r Result) Reached() float64 {
	if r.Shape.Requests > 0 {
		return min(1, r.Requests/r.Shape.Requests)
	}
	return min(1, r.Events/r.Shape.Events)
}

// enough is the share of a rate that counts as reached.
const enough = 0.9

// Fault says in what the client, or the simulator beside it, did not keep up:
// the rate was not reached, something was lost or failed, or the error at p99
// of event times, or of when requests are sent, was past the limit. It is empty
// if all went well.
func (r Result) Fault(limit time.Duration) string {
	switch {
	case r.Lost+r.Failed > 0:
		return fmt.Sprintf("%d events lost, %d requests failed", r.Lost, r.Failed)
	case r.Shape.Requests == 0 && r.Events == 0:
		return "not all streams were open at once"
	case r.Reached() < enough:
		return "rate not reached"
	case r.Shape.Requests == 0 && r.Event.P99 > limit:
		return "event times past the limit"
	case r.Shape.Requests > 0 && r.Late.P99 > limit:
		return "sent too late"
	}
	return ""
}

// Measure puts the shape on the simulator at base, which must have been
// started for it, with the configuration of Shape.Simulator. truth is the path
// of its log.
func Measure(ctx context.Context, base *url.URL, truth string, shape Shape) (Result, error) {
	endpoint := *base
	endpoint.Path = openai.Chat.Path()
	plan := bench.Plan{
		URL: &endpoint, Type: openai.Chat, Source: prompts{shape.outputTokens()},
		Body:     openai.BodyOptions{Model: mockserver.Default().Model, Stream: true, IncludeUsage: true},
		Requests: int64(shape.Streams), Schedule: every(shape.opening() / time.Duration(max(shape.Streams, 1))),
		TotalTimeout:    10*shape.For + time.Minute,
		RequestIDPrefix: "selftest-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-", Gauge: &bench.Gauge{},
	}
	if shape.Requests > 0 {
		plan.Requests = max(2, int64(shape.Requests*shape.For.Seconds()))
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
	var starts []record.Time
	var streams []record.Chunks
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
		starts, streams = append(starts, rec.Start), append(streams, rec.Chunks)
		if d, ok := rec.Lateness(); ok {
			late = append(late, d)
		}
		if monotonic == 0 || t.MonotonicOrigin == 0 {
			continue
		}
		ours := func(at record.Time) record.Time { return at + record.Time(t.MonotonicOrigin-monotonic) }
		if d, ok := rec.TTFT(); ok && len(sent) > 0 && rec.Written.IsSet() {
			// What the server took to notice the request is no error of ours;
			// it may have noticed before we knew that it was written.
			from := min(rec.Written, ours(t.Received))
			ttft = append(ttft, d-rec.Conn.Wait-ours(sent[0].At).Sub(from))
		}
		for i := range min(len(sent), len(rec.Chunks)) {
			c := rec.Chunks[i]
			d := c.At.Sub(ours(sent[i].At))
			event = append(event, d)
			own = append(own, d+time.Duration(c.Lag))
		}
	}
	switch {
	case r.Shape.Requests > 0:
		slices.Sort(starts)
		r.Requests = rate(starts)
	case len(streams) == r.Shape.Streams:
		r.Events = openRate(streams)
	}
	r.Event, r.Own, r.TTFT, r.Late = spread(event), spread(own), spread(ttft), spread(late)
}

// openRate is the sum of the streams' rates while all of them were open,
// between the last of the first events and the first of the last; 0 if there
// was no such time.
func openRate(streams []record.Chunks) float64 {
	from, to := record.Time(0), record.Time(1<<62)
	for _, s := range streams {
		if len(s) == 0 {
			return 0
		}
		from, to = max(from, s[0].At), min(to, s[len(s)-1].At)
	}
	sum := 0.0
	for _, s := range streams {
		var at []record.Time
		for _, c := range s {
			if c.At >= from && c.At <= to {
				at = append(at, c.At)
			}
		}
		sum += rate(at)
	}
	return sum
}

// rate is that of moments in order, a second; 0 if they are too few for one.
func rate(at []record.Time) float64 {
	if len(at) < 2 || at[len(at)-1] <= at[0] {
		return 0
	}
	return float64(len(at)-1) / at[len(at)-1].Sub(at[0]).Seconds()
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
