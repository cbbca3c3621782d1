package report

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/tokmark/tokmark/bench/hist"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/stats"
)

// tally is what is kept while the records pass by.
type tally struct {
	m        *record.Manifest
	epoch    int64 // of the origin, in ns since 1970
	openLoop bool

	objectives bool
	goals      []goal
	classGoals map[string][]goal // of classes that have their own

	requests  []request             // measured ones that were sent
	follow    [len(followed)]Metric // the zero Metric, which has no value, if it means nothing here
	names     []string              // of classes and models
	nameOf    map[string]int32
	health    health
	lengths   lengths
	cache     cache
	server    serverWindow
	served    served
	events    events
	waterfall waterfall
	answered  map[answeredAs]int64 // valid requests

	clientSamples []record.Sample

	damaged     int64
	firstDamage string

	valid, errors, cancelled, dropped int64
	excluded, warmup, cooldown, good  int64

	first, last record.Time             // the window: earliest start, latest cn
	samples     []stats.Sample[float64] // by place in metrics, in the unit that Metric.of returns
	gaps        stats.Sample[time.Duration]
	scratch     []time.Duration
	histograms  map[string]*hist.Histogram

	isl, osl, output, reasoning sum
	structured, fitting         int64 // answers of which a structure was asked, and that have it

	outcomes map[record.Outcome]*OutcomeShare
	groups   map[ErrorGroup]int64 // with Count 0
	sources  map[record.Source]int64

	caps             caps
	shifted          int64  // turns of users that were sent
	starts, dues     series // of measured requests that were sent
	inFlight         time.Duration
	lastEnd          record.Time
	connNew          int64
	connReused       int64
	wait             sum
	dns, connect     sum
	tls              sum
	earliest         *record.Record
	unstreamed       int64 // valid requests, as all below
	noUsage          int64
	missingDone      int64
	afterDone        int64
	usageFell        int64
	hiddenReasoning  int64
	oneChunk         int64 // several tokens at one moment
	exact, short     int64
	longStreams      int64 // streams of at least four events
	longGaps, merged int64 // their gaps, and how many of them are none
}

// sum is a total of n values.
type sum struct{ sum, n int64 }

func (s *sum) add(v int64) { s.sum += v; s.n++ }

func (s *sum) addKnown(v int64, ok bool) {
	if ok {
		s.add(v)
	}
}

func (s *sum) addStep(d time.Duration) {
	if d > 0 {
		s.add(int64(d))
	}
}

// mean is the average of durations, in milliseconds.
func (s sum) mean() *float64 {
	if s.n == 0 {
		return nil
	}
	v := float64(s.sum) / float64(s.n) / ms
	return &v
}

// caps is what waiting for caps adds up to.
type caps struct {
	held              int64 // requests that waited and were sent
	waited, most      time.Duration
	explained, behind time.Duration // of requests never sent too: what caps took of it
}

// add takes a measured request.
func (c *caps) add(r *record.Record) {
	late, sent := r.Lateness()
	if !sent {
		late = r.CapWait
	} else if r.CapWait > 0 {
		c.held++
		c.waited, c.most = c.waited+r.CapWait, max(c.most, r.CapWait)
	}
	c.explained += r.CapWait
	c.behind += max(late, r.CapWait)
}

// decide reports whether a load that was late was so for the caps: they
// explain most of it.
func (c *caps) decide() bool { return c.explained > 0 && 2*c.explained >= c.behind }

func (c *caps) result() *Held {
	if c.held == 0 {
		return nil
	}
	return &Held{Requests: c.held, Mean: float64(c.waited) / float64(c.held) / ms, Max: float64(c.most) / ms}
}

// series is a number of moments, in any order.
type series struct {
	n           int64
	first, last record.Time
}

func (s *series) add(t record.Time) {
	if s.n == 0 {
		s.first, s.last = t, t
	}
	s.first, s.last = min(s.first, t), max(s.last, t)
	s.n++
}

func (s series) rate() *float64 {
	if s.n < 2 || s.last <= s.first {
		return nil
	}
	v := float64(s.n-1) / s.last.Sub(s.first).Seconds()
	return &v
}

// The tags of the histograms, in the order of files.
var histogramTags = []string{"TTFT", "ITL", "ICL", "E2E"}

// maxGroups bounds how many different error messages are told apart: a server
// may put a number of its own into each.
const maxGroups = 100

func newTally(m *record.Manifest) *tally {
	t := &tally{
		m: m,
		// A rate or a trace sends when a request is due; without either, the
		// next request waits for an answer.
		openLoop:   m.Load.Rate > 0 || m.Load.Arrival != "" || m.Load.Concurrency == 0,
		samples:    make([]stats.Sample[float64], len(metrics)),
		histograms: make(map[string]*hist.Histogram),
		outcomes:   make(map[record.Outcome]*OutcomeShare),
		groups:     make(map[ErrorGroup]int64),
		sources:    make(map[record.Source]int64),
		objectives: len(m.Goodput) > 0,
		goals:      goalsOf(m.Goodput),
		classGoals: make(map[string][]goal),
		nameOf:     make(map[string]int32),
		answered:   make(map[answeredAs]int64),
	}
	for _, c := range m.Classes {
		if len(c.Goodput) > 0 {
			t.classGoals[c.Name] = goalsOf(c.Goodput)
		}
	}
	for i, tag := range followed {
		if metric, ok := MetricByTag(tag); ok && !t.leavesOut(metric) {
			t.follow[i] = metric
		}
	}
	if !m.Origin.IsZero() {
		t.epoch = m.Origin.UnixNano()
	}
	return t
}

// rate is n over the window in seconds.
func (t *tally) rate(n int64, known bool) (float64, bool) {
	w, ok := t.window()
	if !ok || !known {
		return 0, false
	}
	return float64(n) / w, true
}

// window is the benchmark duration in seconds.
func (t *tally) window() (float64, bool) {
	if t.valid == 0 || t.last <= t.first {
		return 0, false
	}
	return float64(t.last-t.first) / 1e9, true
}

// add takes one record. It keeps no reference to it, but for the earliest.
func (t *tally) add(r *record.Record) {
	if r.Outcome == record.OK && r.Start.IsSet() && len(r.Chunks) > 0 &&
		(t.earliest == nil || r.Start < t.earliest.Start) {
		t.earliest = r
	}
	switch r.Phase {
	case record.PhaseWarmup:
		t.warmup++
		return
	case record.PhaseCooldown:
		t.cooldown++
		return
	}
	t.caps.add(r)
	var kept *request
	if r.Outcome != record.Dropped && r.Start.IsSet() {
		kept = t.newRequest(r)
		t.addSent(r)
		t.health.addEvents(r)
	}
	if t.m.Late(r) {
		t.excluded++
		return
	}
	valid := r.Valid()
	t.addOutcome(r, valid)
	if valid {
		t.addValid(r)
	}
	switch {
	case kept == nil:
	case valid:
		kept.keepValid(t, r)
	case r.Outcome != record.Cancelled:
		kept.state = stateFailed
	}
}

func (t *tally) addSent(r *record.Record) {
	t.starts.add(r.Start)
	if r.Due.IsSet() {
		t.dues.add(r.Due)
	}
	if r.Shifted > 0 {
		t.shifted++
	}
	t.served.add(r)
	end := r.Start
	if last, ok := r.LastOutput(); ok {
		end = max(end, last)
	}
	end = max(end, r.End)
	t.inFlight += end.Sub(r.Start)
	t.lastEnd = max(t.lastEnd, end)
	// Without a wait no connection was there, new or old.
	if r.Conn.Reused {
		t.connReused++
	} else if r.Conn.Wait > 0 || r.Conn.Connect > 0 {
		t.connNew++
	}
	t.wait.addStep(r.Conn.Wait)
	t.dns.addStep(r.Conn.DNS)
	t.connect.addStep(r.Conn.Connect)
	t.tls.addStep(r.Conn.TLS)
	for i, m := range metrics {
		if m.Scope == PerSent {
			if v, ok := m.of(r); ok {
				t.samples[i].Add(v)
			}
		}
	}
}

func (t *tally) addOutcome(r *record.Record, valid bool) {
	outcome := r.Outcome
	switch {
	case valid:
		t.valid++
	case outcome == record.Cancelled:
		t.cancelled++
	case outcome == record.Dropped:
		t.dropped++
	default:
		// An OK without output later than its start is none.
		if outcome == record.OK {
			outcome = record.Empty
		}
		t.errors++
	}
	var message string
	if r.Failure != nil {
		message = cmp.Or(r.Failure.Message, r.Failure.Body)
	}
	share := t.outcomes[outcome]
	if share == nil {
		share = &OutcomeShare{Outcome: outcome}
		t.outcomes[outcome] = share
	}
	share.Count++
	if share.Example == "" {
		share.Example = message
	}
	if !valid && outcome.IsError() {
		g := ErrorGroup{Status: r.Status, Outcome: outcome, Message: message}
		if _, known := t.groups[g]; !known && len(t.groups) >= maxGroups {
			g.Message = "(other messages)"
		}
		t.groups[g]++
	}
}

func (t *tally) addValid(r *record.Record) {
	cn, _ := r.LastOutput()
	if t.valid == 1 {
		t.first, t.last = r.Start, cn
	}
	t.first, t.last = min(t.first, r.Start), max(t.last, cn)

	for i, m := range metrics {
		if m.Scope == PerRequest {
			if v, ok := m.of(r); ok {
				t.samples[i].Add(v)
			}
		}
	}
	if meets(t.goals, func(m Metric) (float64, bool) { return m.Of(r) }) {
		t.good++
	}
	t.scratch = r.Gaps(t.scratch[:0])
	for _, gap := range t.scratch {
		t.gaps.Add(gap)
		t.histogram("ICL", gap, true)
	}
	ttft, ok := r.TTFT()
	t.histogram("TTFT", ttft, ok)
	itl, ok := r.ITL()
	t.histogram("ITL", time.Duration(itl+0.5), ok)
	latency, ok := r.RequestLatency()
	t.histogram("E2E", latency, ok)

	isl, islKnown := r.ISL()
	t.isl.addKnown(isl, islKnown)
	osl, oslKnown := r.OSL()
	t.osl.addKnown(osl, oslKnown)
	t.output.addKnown(int64(r.Tokens.Output), r.Tokens.Output.IsKnown())
	if ok := r.StructureOK; ok != nil {
		t.structured++
		if *ok {
			t.fitting++
		}
	}
	t.reasoning.addKnown(int64(r.Tokens.Reasoning), r.Tokens.Reasoning.IsKnown())
	source := r.Tokens.Source
	vectors := islKnown && r.Chunks[0].Kind == record.KindVector // which have no tokens of output
	if !oslKnown && !vectors {
		source = record.SourceNone
	}
	t.sources[source]++
	t.addOddities(r, osl, oslKnown)
	t.addLengths(r)
	t.addCache(r)
	t.served.addValid(r)
	t.addStream(r)
	t.addWaterfall(r)
	t.addAnswered(r)
}

func (t *tally) histogram(tag string, d time.Duration, ok bool) {
	if !ok {
		return
	}
	h := t.histograms[tag]
	if h == nil {
		h = hist.New()
		t.histograms[tag] = h
	}
	h.Record(int64(d))
}

// addOddities counts what the warnings speak of.
func (t *tally) addOddities(r *record.Record, osl int64, oslKnown bool) {
	when := func(n *int64, b bool) {
		if b {
			*n++
		}
	}
	when(&t.unstreamed, r.Streaming && !r.Streamed)
	when(&t.noUsage, r.Usage.IsZero() && r.Tokens.Source != record.SourceUsage)
	when(&t.missingDone, slices.Contains(r.Notes, "missing_done"))
	when(&t.afterDone, r.AfterDone)
	when(&t.usageFell, slices.Contains(r.Notes, "usage_fell"))
	exact := r.ExactOutput && r.AskedOutput.IsKnown() && oslKnown && !r.Tokens.Source.FromText()
	when(&t.exact, exact)
	when(&t.short, exact && osl < int64(r.AskedOutput))
	if !r.Streamed {
		return
	}
	decode, _ := r.DecodeDuration()
	when(&t.oneChunk, oslKnown && osl >= 2 && decode == 0)
	hidden := max(r.Tokens.Reasoning, r.Usage.Reasoning) > 0
	for _, c := range r.Chunks {
		if c.Kind&record.KindReasoning != 0 {
			hidden = false
			break
		}
	}
	when(&t.hiddenReasoning, hidden)
	if len(r.Chunks) >= 4 {
		t.longStreams++
		t.longGaps += int64(len(r.Chunks) - 1)
		for i := 1; i < len(r.Chunks); i++ {
			when(&t.merged, r.Chunks[i].Kind&record.SameRead != 0 || r.Chunks[i].At == r.Chunks[i-1].At)
		}
	}
}

// measured is how many records the metrics could have been made of.
func (t *tally) measured() int64 { return t.valid + t.errors + t.cancelled + t.dropped }

func (t *tally) outcomeShares() []OutcomeShare {
	var out []OutcomeShare
	for _, o := range record.Outcomes {
		if share := t.outcomes[o]; share != nil {
			share.Share = float64(share.Count) / float64(t.measured())
			out = append(out, *share)
		}
	}
	return out
}

func (t *tally) errorGroups() []ErrorGroup {
	out := make([]ErrorGroup, 0, len(t.groups))
	for g, n := range t.groups {
		g.Count = n
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b ErrorGroup) int {
		return cmp.Or(
			cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Outcome, b.Outcome),
			cmp.Compare(a.Status, b.Status),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return out
}

func (t *tally) tokenSources() []TokenSource {
	var out []TokenSource
	for _, src := range record.Sources {
		if n := t.sources[src]; n > 0 {
			out = append(out, TokenSource{src, n})
		}
	}
	return out
}

// of writes "3 of 10" and what they are.
func of(part, whole int64, what string) string {
	return strconv.FormatInt(part, 10) + " of " + strconv.FormatInt(whole, 10) + " " + what
}
