// Package bench puts one load on one server and times what comes back.
//
// Run is the whole of it: requests come from a workloads.Source, are due when
// an arrival.Schedule says (or when a request in flight has ended), are carried
// by one goroutine each, and leave as records on a channel. It draws no
// conclusions and writes no files.
package bench

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/arrival"
)

// Plan says what one run does. Build it, Validate it, hand it to Run once.
type Plan struct {
	// URL is the address of the endpoint itself, Type how it is spoken to.
	URL    *url.URL
	Type   openai.EndpointType
	Body   openai.BodyOptions
	Header http.Header
	// Secrets are values that must never be kept: they are masked wherever a
	// server's words go into a record.
	Secrets []string

	Transport transport.Options
	// IdleTimeout bounds the gap between two reads of an answer, TotalTimeout
	// a whole request; 0: no bound. The limits on connecting and on the first
	// byte are the transport's.
	IdleTimeout  time.Duration
	TotalTimeout time.Duration
	// MaxEvent bounds one event, or a whole JSON answer, in bytes; 0: the
	// default of package sse.
	MaxEvent int

	Source workloads.Source
	// Schedule yields when requests are due, as offsets from the start of the
	// measurement that never fall. Nil: closed loop, Concurrency requests in
	// flight at all times.
	Schedule iter.Seq[time.Duration]
	// WarmupSchedule is the same for the warmup; nil: closed loop.
	WarmupSchedule iter.Seq[time.Duration]
	// Concurrency is the number of sessions in flight in a closed loop, and
	// the cap on it under a Schedule (0: only the limit on open files).
	Concurrency int
	// Ramp, if set, is the number of sessions in flight over the time of the
	// measurement, at most Concurrency.
	Ramp arrival.Profile
	// Users, if their Count is not 0, make a user-centric load, in place of a
	// Schedule and Concurrency.
	Users arrival.Users
	// PrefillConcurrency caps the requests that have no output yet; 0: no cap.
	PrefillConcurrency int
	// Requests and Sessions bound the measurement by count, Duration by time;
	// 0: not. Sessions are what a Source yields; each has at least one request.
	Requests, Sessions int64
	Duration           time.Duration
	// Grace is how long requests in flight may go on after Duration, or after
	// an interrupt.
	Grace time.Duration
	// Warmup requests are sent before the measurement, and end before it. With
	// WarmupRepeats it counts whole sessions, the first that will be measured,
	// which fills a prefix cache with them; otherwise they are others.
	Warmup        int64
	WarmupRepeats bool

	// KeepOutput keeps the text of the answers in the records.
	KeepOutput bool
	// KeepUncounted keeps the text of answers that tell no number of tokens, for
	// a tokenizer to count; see record.Record.Uncounted.
	KeepUncounted bool
	// Check, if set, judges the text of each answer that went well. It must be
	// safe for concurrent use.
	Check func(text string) bool
	// RequestIDPrefix makes the X-Request-ID of each request, before its
	// phase and number.
	RequestIDPrefix string

	// Origin is offset 0 of every time in the records; it must carry a
	// monotonic reading. Zero: the moment Run is called.
	Origin time.Time
	// Interrupt, once closed, ends the sending; what is in flight has Grace to
	// end. (Cancel the context to end all at once.)
	Interrupt <-chan struct{}
	// PhaseStart, if set, is called before the first request of each phase is
	// sent, and may take its time.
	PhaseStart func(record.Phase)
	// Gauge, if set, shows the run from outside while it goes on.
	Gauge *Gauge
	// CoarseWait waits for due times with the runtime's timers alone. They are
	// half a millisecond late on Linux; tests under fake time need it.
	CoarseWait bool
}

// Validate reports every fault of the plan.
func (p *Plan) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if p.URL == nil || p.URL.Host == "" {
		bad("no URL")
	}
	if p.Type.Path() == "" {
		bad("endpoint type %q is not known: use one of %q", p.Type, openai.EndpointTypes())
	}
	if p.Source == nil {
		bad("no source of requests")
	}
	if p.Users.Count != 0 {
		if err := p.Users.Validate(); err != nil {
			errs = append(errs, err)
		}
		if p.Schedule != nil {
			bad("a user-centric load has its own schedule")
		}
	} else if p.Concurrency < 0 || p.Schedule == nil && p.Concurrency == 0 {
		bad("concurrency must be at least 1, not %d", p.Concurrency)
	}
	if len(p.Ramp) > 0 {
		if err := p.Ramp.Validate(); err != nil {
			bad("concurrency over time: %w", err)
		}
	}
	if p.Requests < 0 || p.Sessions < 0 || p.Warmup < 0 || p.PrefillConcurrency < 0 {
		bad("counts must not be negative")
	}
	if p.Requests == 0 && p.Sessions == 0 && p.Duration == 0 {
		bad("neither a number of requests nor a duration bounds the run")
	}
	for name, d := range map[string]time.Duration{
		"duration": p.Duration, "grace period": p.Grace, "idle timeout": p.IdleTimeout, "total timeout": p.TotalTimeout,
		"connect timeout": p.Transport.ConnectTimeout, "first byte timeout": p.Transport.FirstByteTimeout,
	} {
		if d < 0 {
			bad("%s must not be negative", name)
		}
	}
	return errors.Join(errs...)
}

// Result is what Run knows beside the records.
type Result struct {
	Outcome record.RunOutcome
	// MeasureStart and MeasureEnd bound the sending of measured requests.
	MeasureStart, MeasureEnd record.Time
	// Sent counts the measured requests handed to the transport, Unsent those
	// that were due and never sent, MaxInFlight the most at one time.
	Sent, Unsent, MaxInFlight int64
	// ClockSteps is how often the wall clock was set during the run; kernel
	// stamps taken around such a moment may be wrong.
	ClockSteps int64
}
