package html

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// View is what the charts of a run are drawn from, gathered in one pass over
// its records. It keeps some 70 bytes for each request, and nothing for each
// event. It is not changed after it was made and may then be read
// concurrently.
type View struct {
	cold     bool        // no prompt is in the server's cache
	origin   record.Time // of the charts: the start of measuring
	end      record.Time // of the last exchange
	requests []request   // measured and sent, in the order of their starts
	tokens   timeline    // output tokens by arrival
	events   timeline    // events with output by arrival
	// The distributions of valid requests, in nanoseconds.
	ttft, itl, gap, e2e bins

	perEvent map[int]int64 // how many events brought so many tokens; -1: not known
	stalls   stalls
	slowest  []timed // longest first
	samples  []record.Sample
}

// request is what is kept of each measured request that was sent. Times are
// from the origin of the run.
type request struct {
	start, end  record.Time
	first, last record.Time // of its output; Unset if not valid
	ttft        time.Duration
	hasTTFT     bool
	input       record.Count
	cached      record.Count
	valid       bool
	failed      bool
}

// timed is a request with the arrivals of its events.
type timed struct {
	id      int64
	session string
	turn    int
	start   record.Time
	latency time.Duration
	ttft    time.Duration
	streams bool
	output  int64 // tokens, -1: not known
	events  int
	gap     time.Duration   // the longest
	at      []time.Duration // of events, from the start; at most keptEvents
}

const (
	slowestShown = 10
	keptEvents   = 400 // of one request: as many as the width of a page can show
)

// Load makes the view of the run in a run directory. It fails with
// record.ErrNoRun if there is none. Lines that cannot be read are passed over:
// the summary tells of them.
func Load(dir record.Dir) (*View, error) {
	m, err := dir.ReadManifest()
	if err != nil {
		return nil, err
	}
	samples, _, err := dir.Samples()
	if err != nil {
		return nil, err
	}
	return NewView(m, dir.Records(), samples)
}

// NewView makes a view from the manifest, the records in any order, each used
// once, and the samples of a run. A *record.LineError among the records is
// passed over; any other error ends it.
func NewView(m *record.Manifest, records iter.Seq2[*record.Record, error], samples []record.Sample) (*View, error) {
	v := &View{perEvent: make(map[int]int64), samples: samples, origin: record.Unset, cold: m.Cache.Mode == record.CacheCold}
	if m.MeasureStart.IsSet() {
		v.origin = m.MeasureStart
	}
	for r, err := range records {
		var damaged *record.LineError
		switch {
		case errors.As(err, &damaged):
		case err != nil:
			return nil, fmt.Errorf("draw run %s: %w", m.ID, err)
		case r.Phase == record.PhaseMeasure && r.Outcome != record.Dropped && r.Start.IsSet():
			v.add(r, r.Valid() && !m.Late(r))
		}
	}
	slices.SortFunc(v.requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.ttft, b.ttft))
	})
	if !v.origin.IsSet() {
		v.origin = 0
		if len(v.requests) > 0 {
			v.origin = v.requests[0].start
		}
	}
	slices.SortStableFunc(v.samples, func(a, b record.Sample) int { return cmp.Compare(a.At, b.At) })
	v.stalls.settle(v.requests)
	return v, nil
}

// add takes one measured request that was sent, and keeps no reference to it.
func (v *View) add(r *record.Record, valid bool) {
	q := request{
		start: r.Start, end: max(r.Start, r.End), first: record.Unset, last: record.Unset,
		input: r.Tokens.Input, cached: r.Tokens.Cached, valid: valid,
		failed: r.Outcome.IsError() || r.Outcome == record.OK && !r.Valid(),
	}
	if last, ok := r.LastOutput(); ok {
		q.end = max(q.end, last)
		if valid {
			q.first, q.last = r.Chunks[0].At, last
		}
	}
	if valid {
		q.ttft, q.hasTTFT = r.TTFT()
		v.addValid(r)
	}
	v.end = max(v.end, q.end)
	v.requests = append(v.requests, q)
}

func (v *View) addValid(r *record.Record) {
	ttft, streams := r.TTFT()
	if streams {
		v.ttft.add(float64(ttft))
	}
	if itl, ok := r.ITL(); ok {
		v.itl.add(itl)
	}
	latency, _ := r.RequestLatency()
	v.e2e.add(float64(latency))
	osl, known := r.OSL()
	for i := range r.Chunks {
		c := &r.Chunks[i]
		tokens := float64(c.Tokens)
		if c.Tokens == record.UnknownTokens {
			tokens = float64(osl) / float64(len(r.Chunks))
			v.perEvent[-1]++
		} else {
			v.perEvent[int(c.Tokens)]++
		}
		if known || c.Tokens != record.UnknownTokens {
			v.tokens.add(c.At, tokens)
		}
		v.events.add(c.At, 1)
		if i > 0 && streams {
			v.gap.add(float64(c.At - r.Chunks[i-1].At))
		}
	}
	if streams {
		v.stalls.addStream(r)
	}
	v.keepSlow(r, latency, ttft, streams, osl, known)
}

// keepSlow keeps the request if it is one of the slowest.
func (v *View) keepSlow(r *record.Record, latency, ttft time.Duration, streams bool, osl int64, known bool) {
	slower := func(a timed, than time.Duration) int { return cmp.Compare(than, a.latency) }
	place, _ := slices.BinarySearchFunc(v.slowest, latency, slower)
	for place < len(v.slowest) && v.slowest[place].latency == latency && v.slowest[place].id < r.ID {
		place++ // the order of the file does not matter
	}
	if place >= slowestShown {
		return
	}
	t := timed{
		id: r.ID, session: r.Session, turn: r.Turn, start: r.Start, latency: latency, ttft: ttft,
		streams: streams, output: -1, events: len(r.Chunks),
	}
	if known {
		t.output = osl
	}
	column := -1
	for i, c := range r.Chunks {
		if i > 0 {
			t.gap = max(t.gap, c.At.Sub(r.Chunks[i-1].At))
		}
		at := c.At.Sub(r.Start)
		if k := int(keptEvents * float64(at) / float64(max(latency, 1))); k != column {
			column = k
			t.at = append(t.at, at)
		}
	}
	v.slowest = slices.Insert(v.slowest, place, t)
	v.slowest = v.slowest[:min(len(v.slowest), slowestShown)]
}

// seconds is a moment on the time axis of the charts.
func (v *View) seconds(t record.Time) float64 { return t.Sub(v.origin).Seconds() }
