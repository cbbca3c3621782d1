package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/sse"
	"github.com/tokmark/tokmark/bench/transport"
)

const (
	// keptBody is how much of a failed answer is read and kept.
	readErrorBody = 64 << 10
	keptBody      = 512
	// drainPatience is how long a finished request waits for the end of its
	// body, so that its connection can carry the next one; drainLimit is how
	// long the draining goes on in the background before the connection is
	// closed.
	drainPatience = 2 * time.Millisecond
	drainLimit    = time.Second
)

// Why a request was ended from our side, as causes of its context.
var (
	errIdle      = errors.New("no byte for longer than the idle timeout")
	errTotal     = errors.New("not over within the total timeout")
	errInterrupt = errors.New("interrupted")
	errGrace     = errors.New("in flight at the end of the grace period")
)

// exchanger carries single requests: body out, answer in, record filled. It is
// safe for concurrent use.
type exchanger struct {
	plan   *Plan
	clock  func() record.Time
	wall   *transport.WallClock
	trip   *http.Transport
	header http.Header
	mask   *strings.Replacer
	pool   sync.Pool // of *scratch
}

// scratch is what a request needs and the next one can use again.
type scratch struct {
	reader *sse.Reader
	answer openai.Answer
}

func newExchanger(p *Plan, clock func() record.Time, maxConns int) *exchanger {
	o := p.Transport
	o.MaxConns = maxConns
	x := &exchanger{plan: p, clock: clock, wall: transport.NewWallClock(p.Origin), trip: transport.New(o), header: http.Header{}}
	x.header.Set("Content-Type", "application/json")
	x.header.Set("User-Agent", "tokmark")
	x.header.Set("Accept-Encoding", "identity")
	for k, v := range p.Header {
		x.header[k] = v
	}
	pairs := make([]string, 0, 2*len(p.Secrets))
	for _, s := range p.Secrets {
		if s != "" {
			pairs = append(pairs, s, "***")
		}
	}
	x.mask = strings.NewReplacer(pairs...)
	x.pool.New = func() any { return &scratch{reader: sse.NewReader(nil, nil, p.MaxEvent)} }
	return x
}

// do carries one request and fills the record up to its end, with the text of
// the answer for what keep says. It calls output when the first output is there,
// if any comes. Cancelling ctx ends it with the context's cause.
func (x *exchanger) do(ctx context.Context, rec *record.Record, id string, body []byte, keep openai.Keep, output func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	draining := false
	defer func() {
		if !draining {
			cancel(nil)
		}
	}()
	if x.plan.TotalTimeout > 0 {
		total := time.AfterFunc(x.plan.TotalTimeout, func() { cancel(errTotal) })
		defer total.Stop()
	}
	trace := transport.NewTrace(x.clock)
	req := &http.Request{
		Method: http.MethodPost, URL: x.plan.URL, Host: x.plan.URL.Host,
		Header: x.header.Clone(),
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		// No GetBody: without it the transport cannot send a request twice.
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	if req.Header["Accept"] == nil {
		accept := "application/json"
		if rec.Streaming {
			accept = "text/event-stream"
		}
		req.Header.Set("Accept", accept)
	}
	if req.Header.Get("X-Request-ID") == "" {
		req.Header.Set("X-Request-ID", id)
	}
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	traced := req.WithContext(trace.Attach(ctx))
	rec.Start = trace.Start()
	x.plan.Gauge.started(rec)
	resp, err := x.trip.RoundTrip(traced)
	if err != nil {
		rec.End = x.clock()
		trace.Fill(rec)
		x.fail(ctx, rec, err, trace.Stage())
		return
	}
	trace.Answered()
	draining = x.read(ctx, cancel, rec, resp, trace, keep, output)
	trace.Fill(rec)
	if wall, ok := trace.FirstArrival(); ok {
		rec.FirstByte = min(max(x.wall.Offset(wall), rec.Start), rec.FirstByte)
	}
	if f := rec.Failure; f != nil {
		for _, s := range []*string{&f.Message, &f.Body, &f.Type, &f.Code} {
			*s = x.mask.Replace(*s)
		}
	}
	rec.ResponseModel = x.mask.Replace(rec.ResponseModel)
}

// read takes the answer in and sets the record's end and outcome. draining: the
// body is still being drained, and cancel will be called after that.
func (x *exchanger) read(ctx context.Context, cancel context.CancelCauseFunc, rec *record.Record, resp *http.Response, trace *transport.Trace, keep openai.Keep, output func()) (draining bool) {
	rec.Status = resp.StatusCode
	rec.Conn.Protocol = resp.Proto
	var idle *time.Timer
	if x.plan.IdleTimeout > 0 {
		idle = time.AfterFunc(x.plan.IdleTimeout, func() { cancel(errIdle) })
		defer idle.Stop()
	}
	var last record.Time
	stamp := func() sse.Stamp {
		now := x.clock()
		if idle != nil {
			idle.Reset(x.plan.IdleTimeout)
		}
		at := now
		if wall, ok := trace.Arrival(); ok {
			// The two clocks are mapped to within microseconds: an arrival
			// before the last one, or after its own read, is as near as that.
			at = min(max(x.wall.Offset(wall), last), now)
		}
		last = at
		return sse.Stamp{At: int64(at), Lag: uint32(min(now.Sub(at), math.MaxUint32))}
	}

	s := x.pool.Get().(*scratch)
	defer x.pool.Put(s)
	s.reader.Reset(resp.Body, stamp, x.plan.MaxEvent)

	switch encoding := resp.Header.Get("Content-Encoding"); {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		defer resp.Body.Close()
		// What cannot be read of an error's text is not worth another error.
		var text []byte
		if resp.StatusCode != http.StatusSwitchingProtocols { // whose body is the connection, and never ends
			text, _, _ = s.reader.Whole(readErrorBody)
		}
		rec.End = x.clock()
		outcome, failure := openai.HTTPFailure(resp.StatusCode, resp.Header, text)
		failure.Body = head(text)
		rec.Fail(outcome, failure)
	case encoding != "" && encoding != "identity":
		defer resp.Body.Close()
		rec.End = x.clock()
		rec.Fail(record.BadEncoding, record.Failure{Stage: "headers", Message: "the answer is encoded with " + encoding + ", which was not asked for: a stream that is compressed on its way has no times"})
	default:
		s.answer.Reset(rec, x.plan.Type, keep)
		if x.readAnswer(ctx, rec, resp.Header, s, output) && !s.reader.Ended() {
			return drain(resp, cancel)
		}
		resp.Body.Close() // closes the connection as well, if it is not over
	}
	return false
}

// readAnswer takes in the body of a 2xx answer. rest: it was a stream that went
// well, and only what follows its end is left to read.
func (x *exchanger) readAnswer(ctx context.Context, rec *record.Record, header http.Header, s *scratch, output func()) (rest bool) {
	first, err := s.reader.Peek()
	if err == nil && (first == '{' || first == '[' || first == '<' || !rec.Streaming) {
		// A proxy's label may be wrong either way: the first byte decides.
		body, stamp, err := s.reader.Whole(x.plan.MaxEvent)
		if rec.End = record.Time(stamp.At); err != nil {
			rec.End = x.clock()
			x.fail(ctx, rec, err, "body")
			return false
		}
		if text, page := openai.WebPage(header, body); page {
			rec.Fail(record.Malformed, record.Failure{Stage: "body", Message: text})
		} else {
			s.answer.Whole(body, record.Time(stamp.At), stamp.Lag)
		}
		s.answer.Close()
		if rec.Failure != nil {
			rec.Failure.Body = head(body)
		}
		return false
	}
	end := record.Unset
	for more := true; more; {
		e, err := s.reader.Next()
		if err != nil {
			if end = x.clock(); err != io.EOF {
				x.fail(ctx, rec, err, "body")
			}
			break
		}
		end = record.Time(e.At)
		if e.Unterminated {
			s.answer.Unterminated(e.Name, e.Data, end, e.Lag, e.SameRead)
			continue // to the end of the body
		}
		had := len(rec.Chunks)
		more = s.answer.Event(e.Name, e.Data, end, e.Lag, e.SameRead)
		if len(rec.Chunks) > had {
			x.plan.Gauge.chunk(e.Lag, e.SameRead)
			if had == 0 {
				output()
			}
		}
		rec.AfterDone = !more && len(bytes.TrimSpace(s.reader.Buffered())) > 0
	}
	if c, ok := s.reader.FirstComment(); ok && (!rec.FirstEvent.IsSet() || record.Time(c.At) < rec.FirstEvent) {
		rec.FirstComment = record.Time(c.At)
	}
	s.answer.Close()
	rec.End = end
	return rec.Outcome == record.OK
}

// drain reads what follows the end of an answer, so that its connection can be
// used again: for a moment at once, then for a while in the background, after
// which it cancels the request. It reports whether it went to the background.
func drain(resp *http.Response, cancel context.CancelCauseFunc) bool {
	drained := make(chan struct{})
	go func() {
		limit := time.AfterFunc(drainLimit, func() { cancel(nil) })
		_, _ = io.Copy(io.Discard, resp.Body)
		limit.Stop()
		resp.Body.Close()
		cancel(nil)
		close(drained)
	}()
	patience := time.NewTimer(drainPatience)
	defer patience.Stop()
	select {
	case <-drained:
		return false
	case <-patience.C:
		return true
	}
}

// fail names what ended a request that got no whole answer.
func (x *exchanger) fail(ctx context.Context, rec *record.Record, err error, stage string) {
	var (
		outcome = record.Reset
		connect *transport.ConnectTimeoutError
		netErr  net.Error
		broken  *net.OpError
		cause   = context.Cause(ctx)
	)
	if cause != nil {
		err = cause
	}
	switch {
	case errors.Is(cause, errIdle):
		outcome = record.IdleTimeout
	case errors.Is(cause, errTotal):
		outcome = record.TotalTimeout
	case cause != nil:
		outcome = record.Cancelled
	case errors.As(err, &connect):
		outcome = record.ConnectTimeout
	case stage == "connect" || stage == "dns" || stage == "tls":
		outcome = record.ConnectFailed
		if errors.As(err, &netErr) && netErr.Timeout() {
			outcome = record.ConnectTimeout
		}
	case errors.As(err, &netErr) && netErr.Timeout():
		outcome = record.FirstByteTimeout
	case errors.Is(err, sse.ErrTooLarge):
		outcome = record.Malformed
	case errors.As(err, &broken), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), rec.Conn.Protocol == "HTTP/2.0":
		outcome = record.Reset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		if stage == "body" {
			outcome = record.Truncated // cut inside its transfer encoding
		}
		err = fmt.Errorf("the server closed the connection before its answer was over (%w)", err)
	case stage == "body", rec.FirstByte.IsSet():
		outcome = record.Malformed // no HTTP
	}
	rec.Fail(outcome, record.Failure{Stage: stage, Message: x.mask.Replace(err.Error())})
}

// head returns the first bytes of a failed answer, as text.
func head(b []byte) string {
	if len(b) > keptBody {
		b = b[:keptBody]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
