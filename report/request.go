package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/stats"
)

// request is what is kept of each measured request that was sent: what groups,
// intervals and the steady window are made of.
type request struct {
	id         int64
	start, end record.Time // end: of the exchange
	first      record.Time // c1 and cn of a valid request
	last       record.Time
	// own is how late it started by our own doing, or noLateness.
	own time.Duration
	// values are those of followed metrics, in their units; NaN: missing.
	values       [len(followed)]float64
	isl, osl     int64 // -1: not known, as is
	uncached     int64
	turn         int32
	class, model int32 // in tally.names
	state        state
	good         bool // by the run's objectives
	goodInClass  bool
}

const noLateness = time.Duration(-1)

// state is what became of a request, as far as groups tell it apart.
type state uint8

const (
	stateOther state = iota // cancelled, or past duration and grace
	stateValid
	stateFailed
)

// followed are the metrics that are kept in the order of the requests.
var followed = [...]string{
	"time_to_first_token", "inter_token_latency", "request_latency", "time_to_second_token",
	"time_to_first_token_from_due", "request_latency_from_due",
	"output_token_throughput_per_user", "e2e_output_token_throughput",
}

// The places of the headline metrics among them.
const (
	followTTFT = iota
	followITL
	followLatency
)

// newRequest keeps a measured request that was sent.
func (t *tally) newRequest(r *record.Record) *request {
	t.requests = append(t.requests, request{
		id: r.ID, start: r.Start, end: r.Start, own: ownLateness(r),
		isl: -1, osl: -1, uncached: -1, turn: int32(min(r.Turn, math.MaxInt32)),
		class: t.name(r.Class), model: t.name(r.Model),
	})
	q := &t.requests[len(t.requests)-1]
	for i := range q.values {
		q.values[i] = math.NaN()
	}
	if last, ok := r.LastOutput(); ok {
		q.end = max(q.end, last)
	}
	q.end = max(q.end, r.End)
	return q
}

// keepValid fills in what only a valid request has.
func (q *request) keepValid(t *tally, r *record.Record) {
	q.state = stateValid
	q.first, q.last = r.Chunks[0].At, r.Chunks[len(r.Chunks)-1].At
	for i, m := range t.follow {
		if v, ok := m.Of(r); ok {
			q.values[i] = v
		}
	}
	if n, ok := r.ISL(); ok {
		q.isl = n
	}
	if n, ok := r.OSL(); ok {
		q.osl = n
	}
	q.uncached = t.uncached(r)
	of := func(m Metric) (float64, bool) { return m.Of(r) }
	q.good = meets(t.goals, of)
	q.goodInClass = q.good
	if goals, ok := t.classGoals[r.Class]; ok {
		q.goodInClass = meets(goals, of)
	}
}

// ownLateness is how late a request started by our own doing, or noLateness.
func ownLateness(r *record.Record) time.Duration {
	if late, ok := r.OwnLateness(); ok {
		return late
	}
	return noLateness
}

// name returns the number of a class or model, whose names are few; what comes
// after maxGroups of them shares one.
func (t *tally) name(s string) int32 {
	if i, ok := t.nameOf[s]; ok {
		return i
	}
	if len(t.names) > maxGroups {
		s = otherNames
		if i, ok := t.nameOf[s]; ok {
			return i
		}
	}
	i := int32(len(t.names))
	t.names = append(t.names, s)
	t.nameOf[s] = i
	return i
}

const otherNames = "(others)"

// sortRequests puts them into the order of their starts.
func (t *tally) sortRequests() {
	slices.SortFunc(t.requests, func(a, b request) int {
		return cmp.Or(
			cmp.Compare(a.start, b.start), cmp.Compare(a.id, b.id),
			cmp.Compare(a.turn, b.turn), cmp.Compare(a.end, b.end),
		)
	})
}

// valuesOf returns the values of a followed metric of the valid requests that
// keep takes, in the order of their starts.
func (t *tally) valuesOf(place int, keep func(*request) bool) []float64 {
	var out []float64
	for i := range t.requests {
		q := &t.requests[i]
		if v := q.values[place]; q.state == stateValid && !math.IsNaN(v) && keep(q) {
			out = append(out, v)
		}
	}
	return out
}

func anyRequest(*request) bool { return true }

// Spread is a distribution in three figures, of Count values.
type Spread struct {
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
	Count int64   `json:"count"`
}

// spreadOf sorts values; nil if there are none.
func spreadOf(values []float64) *Spread {
	st, ok := stats.Describe(values, 1)
	if !ok {
		return nil
	}
	p50, _ := st.Percentile(50)
	p99, _ := st.Percentile(99)
	return &Spread{P50: p50, P99: p99, Max: st.Max, Count: st.Count}
}

// ratio is a / b, nil if b is not above 0.
func ratio(a, b float64) *float64 {
	if !(b > 0) {
		return nil
	}
	v := a / b
	return &v
}
