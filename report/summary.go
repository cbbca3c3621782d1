// Package report turns the records of a run into a Summary, which every
// renderer works from. It reads run directories and cannot start a load.
//
// A number is defined once: what concerns one request as a method of
// record.Record, everything else in the table of metrics in metric.go.
package report

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/tokmark/tokmark/bench/hist"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/stats"
)

// Schema is the version of summary.json. Additions do not raise it.
const Schema = 1

// Summary is all that is said of a run. It depends on the run directory
// alone, so making it again gives the same. It is not changed after it was
// made and may then be read concurrently.
type Summary struct {
	// Manifest is the run's own; the summary does not own it.
	Manifest *record.Manifest
	// Partial: the run did not come to its planned end.
	Partial bool
	// Damaged counts lines of the records file that could not be read;
	// FirstDamage tells of the first of them.
	Damaged     int64
	FirstDamage string

	Counts Counts
	Load   LoadFacts
	// Outcomes holds the classes that occurred, in the order of
	// record.Outcomes, and Errors the failures by what was said.
	Outcomes []OutcomeShare
	Errors   []ErrorGroup
	// Metrics holds what the run has a value for, in the order of Metrics();
	// the adj_ ones follow. A metric that is missing has no value.
	Metrics []Result
	// Tokens tells where the token counts of valid requests come from.
	Tokens      []TokenSource
	Connections Connections
	// First is the first request of the run that was answered, nil if none
	// was.
	First *FirstRequest

	Warnings []Warning
	Verdict  Verdict

	// Histograms holds TTFT, ITL, ICL and E2E of the valid requests, those
	// with values, in this order.
	Histograms []Histogram

	// Groups compares parts of the requests: turns, classes, models; each only
	// if there are several.
	Groups []Group
	// Lengths compares lengths asked for with those that came; nil if none was
	// asked for.
	Lengths *Lengths
	// Cache tells of the server's prefix cache; nil if nobody did.
	Cache  *Cache
	Client Client
	// Server is the server's side; nil if nothing is known of it.
	Server *Server
	// Waterfall says where the TTFT went; nil if no stream was valid.
	Waterfall *Waterfall
	// Prefill is nil where the lengths do not vary enough to tell.
	Prefill *PrefillCost
	// Events is nil if no stream has token counts, Speculation and Reasoning
	// if there was none.
	Events      *Events
	Speculation *Speculation
	Reasoning   *Reasoning
	// Structure tells how many answers were of the structure asked for; nil:
	// none was.
	Structure *Structure
	// Window is the steady part of the run; nil if no request was valid.
	Window *Window
}

// Counts says how many records of each kind there were.
type Counts struct {
	Valid     int64 `json:"valid"`     // enter the metrics
	Failed    int64 `json:"failed"`    // measured, in error
	Cancelled int64 `json:"cancelled"` // measured, cancelled by us
	Unsent    int64 `json:"unsent"`    // were due and never sent
	Excluded  int64 `json:"excluded"`  // ended after duration and grace
	Warmup    int64 `json:"warmup"`
	Cooldown  int64 `json:"cooldown"`
}

// LoadFacts compares what was asked for with what was done. Rates are in requests
// per second; nil is unknown.
type LoadFacts struct {
	Asked    record.Load `json:"asked"`
	OpenLoop bool        `json:"open_loop"` // the schedule does not wait for answers
	Sent     int64       `json:"sent"`
	// ScheduledRate is what the schedule came to, which a random one does not
	// hit exactly; AchievedRate is that of the real starts. Both are (n-1) /
	// (last - first) over the measured requests that were sent.
	ScheduledRate *float64 `json:"scheduled_rate,omitempty"`
	AchievedRate  *float64 `json:"achieved_rate,omitempty"`
	// MaxInFlight is the most requests at one time, 0 if not known.
	// MeanInFlight is the sum of all exchanges' durations over the time from
	// the first start to the last end.
	MaxInFlight  int64    `json:"max_in_flight,omitempty"`
	MeanInFlight *float64 `json:"mean_in_flight,omitempty"`
	// Shifted counts the turns of users that were due later than the user's
	// gap wanted, as the answer before took longer.
	Shifted int64 `json:"shifted,omitempty"`
	// Held tells of requests that waited for a cap of the plan; nil: none did.
	Held *Held `json:"held,omitempty"`
}

// Held are the requests that waited for a cap on those in flight, or in
// prefill, and were then sent; times are in milliseconds.
type Held struct {
	Requests int64   `json:"requests"`
	Mean     float64 `json:"wait_ms_avg"`
	Max      float64 `json:"wait_ms_max"`
}

// OutcomeShare is how many measured requests ended in one way.
type OutcomeShare struct {
	Outcome record.Outcome `json:"outcome"`
	Count   int64          `json:"count"`
	Share   float64        `json:"share"`             // of all measured requests, 0 to 1
	Example string         `json:"example,omitempty"` // the first message
}

// ErrorGroup counts failures that said the same.
type ErrorGroup struct {
	Status  int // HTTP status, 0 if there was none
	Outcome record.Outcome
	Message string
	Count   int64
}

// Result is the value of a metric in this run: Statistic unless the scope is
// PerRun, then Whole if the metric is Integer, else Value.
type Result struct {
	Metric
	Statistic *stats.Statistic
	Value     float64
	Whole     int64
	// Intervals of the percentiles; nil if they are not told of this metric.
	Intervals *Intervals
}

// TokenSource is how many valid requests have their token counts from where.
type TokenSource struct {
	Source record.Source `json:"source"` // empty: they have none
	Count  int64         `json:"count"`
}

// Connections says how many of the measured requests needed a new connection,
// and what the steps of setting one up took on average, in milliseconds; nil
// if no request needed the step.
type Connections struct {
	New     int64    `json:"new"`
	Reused  int64    `json:"reused"`
	Wait    *float64 `json:"wait_ms_avg,omitempty"` // of all requests, set-up included
	DNS     *float64 `json:"dns_ms_avg,omitempty"`
	Connect *float64 `json:"connect_ms_avg,omitempty"`
	TLS     *float64 `json:"tls_ms_avg,omitempty"`
}

// FirstRequest is the first answered request, which met a cold server. Times
// are in milliseconds; nil if it has none.
type FirstRequest struct {
	Phase   record.Phase `json:"phase"`
	TTFT    *float64     `json:"time_to_first_token_ms,omitempty"`
	Latency *float64     `json:"request_latency_ms,omitempty"`
}

// Histogram is one latency distribution.
type Histogram struct {
	Tag string
	*hist.Histogram
}

// Metric returns the result with the tag; ok is false if the run has none.
func (s *Summary) Metric(tag string) (r Result, ok bool) {
	for _, r := range s.Metrics {
		if r.Tag == tag {
			return r, true
		}
	}
	return Result{}, false
}

// Warned reports whether there is a warning with the code.
func (s *Summary) Warned(code string) bool {
	for _, w := range s.Warnings {
		if w.Code == code {
			return true
		}
	}
	return false
}

// Summarize makes the summary of a run from its manifest and records, in any
// order, each used once, and from the samples of the client and the server, which
// may be none. A *record.LineError among the records is counted as a damaged line; any
// other error ends it. Memory grows with 8 bytes for each gap between events
// and some 200 for each request.
func Summarize(m *record.Manifest, records iter.Seq2[*record.Record, error], samples []record.Sample, opt Options) (*Summary, error) {
	errs := []error{opt.Validate(), CheckGoodput(m.Goodput, m.Target.Streaming)}
	for _, c := range m.Classes {
		if err := CheckGoodput(c.Goodput, m.Target.Streaming); err != nil {
			errs = append(errs, fmt.Errorf("class %s: %w", c.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("summarize run %s: %w", m.ID, err)
	}
	t := newTally(m)
	t.keepSamples(samples)
	t.readServer(samples)
	for r, err := range records {
		var damaged *record.LineError
		switch {
		case errors.As(err, &damaged):
			if t.damaged == 0 {
				t.firstDamage = damaged.Error()
			}
			t.damaged++
		case err != nil:
			return nil, fmt.Errorf("summarize run %s: %w", m.ID, err)
		default:
			t.add(r)
		}
	}
	return t.summary(opt), nil
}

func (t *tally) summary(opt Options) *Summary {
	t.sortRequests()
	s := &Summary{
		Manifest: t.m,
		Partial:  t.m.Outcome != record.RunCompleted,
		Damaged:  t.damaged, FirstDamage: t.firstDamage,
		Counts: Counts{
			Valid: t.valid, Failed: t.errors, Cancelled: t.cancelled,
			Unsent: max(t.dropped, t.m.Unsent), Excluded: t.excluded,
			Warmup: t.warmup, Cooldown: t.cooldown,
		},
		Load: LoadFacts{
			Asked: t.m.Load, OpenLoop: t.openLoop,
			Sent:          t.starts.n,
			ScheduledRate: t.dues.rate(), AchievedRate: t.starts.rate(),
			MaxInFlight: t.m.MaxInFlight, Held: t.caps.result(), Shifted: t.shifted,
		},
		Outcomes: t.outcomeShares(),
		Errors:   t.errorGroups(),
		Tokens:   t.tokenSources(),
		Connections: Connections{
			New: t.connNew, Reused: t.connReused,
			Wait: t.wait.mean(), DNS: t.dns.mean(), Connect: t.connect.mean(), TLS: t.tls.mean(),
		},
	}
	if span := t.lastEnd - t.starts.first; t.starts.n > 0 && span > 0 {
		mean := float64(t.inFlight) / float64(span)
		s.Load.MeanInFlight = &mean
	}
	if t.earliest != nil {
		s.First = &FirstRequest{Phase: t.earliest.Phase}
		if d, ok := t.earliest.TTFT(); ok {
			s.First.TTFT = milliseconds(d)
		}
		if d, ok := t.earliest.RequestLatency(); ok {
			s.First.Latency = milliseconds(d)
		}
	}
	for _, tag := range histogramTags {
		if h := t.histograms[tag]; h != nil {
			s.Histograms = append(s.Histograms, Histogram{Tag: tag, Histogram: h})
		}
	}
	s.Metrics = t.results()
	t.addIntervals(s.Metrics)
	s.Groups = t.requestGroups()
	s.Lengths = t.lengths.result(t.m)
	s.Cache = t.cacheResult()
	s.Client = t.client()
	s.Window = t.steadyWindow(opt, s)
	s.Server = t.serverResult(s)
	s.Waterfall = t.waterfallResult()
	s.Prefill = t.prefillCost()
	s.Events = t.eventsResult()
	s.Speculation, s.Reasoning = t.speculation(), t.reasoningResult()
	if t.structured > 0 {
		s.Structure = &Structure{Answers: t.structured, Fitting: t.fitting}
	}
	s.judge(t)
	return s
}

func (t *tally) results() []Result {
	var out, adjustedOut []Result
	for i, m := range metrics {
		if t.leavesOut(m) {
			continue
		}
		r := Result{Metric: m}
		var ok bool
		switch {
		case m.whole != nil:
			r.Whole, ok = m.whole(t)
			r.Value = float64(r.Whole)
		case m.run != nil:
			r.Value, ok = m.run(t)
		case m.Scope == PerGap:
			var st stats.Statistic
			st, ok = t.gaps.Describe(m.per)
			r.Statistic = &st
		default:
			var st stats.Statistic
			st, ok = t.samples[i].Describe(m.per)
			r.Statistic = &st
		}
		if !ok {
			continue
		}
		out = append(out, r)
		if t.errors > 0 && m.adjustable() {
			if st, ok := t.samples[i].WithFailures(t.errors, m.per); ok {
				adjustedOut = append(adjustedOut, Result{Metric: m.adjust(), Statistic: &st})
			}
		}
	}
	return append(out, adjustedOut...)
}

// leavesOut reports whether the metric means nothing in such a run.
func (t *tally) leavesOut(m Metric) bool {
	return m.StreamingOnly && !t.m.Target.Streaming || m.OpenLoopOnly && !t.openLoop
}

func milliseconds(d time.Duration) *float64 {
	v := float64(d) / ms
	return &v
}

// Structure counts the valid answers of which a structure was asked, and those
// that have it.
type Structure struct {
	Answers int64 `json:"answers"`
	Fitting int64 `json:"fitting"`
}
