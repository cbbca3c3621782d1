package transport

import (
	"context"
	"crypto/tls"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Trace takes the times of the steps before an answer. The hooks run on other
// goroutines than the request's, and some after it has ended; every field is
// atomic, and a Trace serves one request.
type Trace struct {
	clock func() record.Time

	start                record.Time
	dnsStart, dnsDone    atomic.Int64
	dialStart, dialDone  atomic.Int64
	tlsStart, tlsDone    atomic.Int64
	gotConn, reused      atomic.Int64
	written, firstByte   atomic.Int64
	remote               atomic.Pointer[string]
	dnsFailed, tlsFailed atomic.Bool
	arrivals             atomic.Pointer[arrivals]
	firstArrival         atomic.Int64 // wall time in nanoseconds; 0: not told
}

// NewTrace returns a Trace that reads the given clock.
func NewTrace(clock func() record.Time) *Trace { return &Trace{clock: clock} }

// Attach returns a context whose request is traced, and takes its start.
func (t *Trace) Attach(ctx context.Context) context.Context {
	t.start = t.clock()
	stamp := func(a *atomic.Int64) { a.Store(int64(t.clock()) + 1) } // + 1: 0 is "never"
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { stamp(&t.dnsStart) },
		DNSDone: func(i httptrace.DNSDoneInfo) {
			stamp(&t.dnsDone)
			t.dnsFailed.Store(i.Err != nil)
		},
		ConnectStart: func(_, _ string) { t.dialStart.CompareAndSwap(0, int64(t.clock())+1) },
		ConnectDone: func(_, _ string, err error) {
			if err == nil {
				stamp(&t.dialDone)
			}
		},
		TLSHandshakeStart: func() { stamp(&t.tlsStart) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			stamp(&t.tlsDone)
			t.tlsFailed.Store(err != nil)
		},
		GotConn: func(i httptrace.GotConnInfo) {
			if i.Reused {
				t.reused.Store(1)
			}
			if a := i.Conn.RemoteAddr(); a != nil {
				s := a.String()
				t.remote.Store(&s)
			}
			conn := i.Conn
			for { // TLS to the server may lie within TLS to a proxy
				secure, ok := conn.(*tls.Conn)
				if !ok {
					break
				}
				conn = secure.NetConn()
			}
			if a, ok := conn.(arrivals); ok {
				t.arrivals.Store(&a)
			}
			stamp(&t.gotConn)
		},
		WroteRequest:         func(httptrace.WroteRequestInfo) { stamp(&t.written) },
		GotFirstResponseByte: t.gotFirstByte,
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			t.firstByte.Store(0) // it was of an interim answer; see Answered
			t.firstArrival.Store(0)
			return nil
		},
	})
}

// Start is when the request was handed over: the time of Attach.
func (t *Trace) Start() record.Time { return t.start }

func (t *Trace) gotFirstByte() {
	t.firstByte.Store(int64(t.clock()) + 1)
	if wall, ok := t.Arrival(); ok {
		t.firstArrival.Store(wall)
	}
}

// Answered is to be called once the header of the answer is there. After an
// interim answer (1xx) nobody else tells when the final one began.
func (t *Trace) Answered() {
	if t.firstByte.Load() == 0 {
		t.gotFirstByte()
	}
}

// Fill writes what is known so far into the record.
func (t *Trace) Fill(r *record.Record) {
	at := func(a *atomic.Int64) record.Time { return record.Time(a.Load() - 1) }
	span := func(from, to *atomic.Int64) time.Duration {
		if f, u := from.Load(), to.Load(); f > 0 && u >= f {
			return time.Duration(u - f)
		}
		return 0
	}
	r.Start = t.start
	r.Written, r.FirstByte = at(&t.written), at(&t.firstByte)
	r.Conn.Reused = t.reused.Load() == 1
	if got := at(&t.gotConn); got.IsSet() {
		r.Conn.Wait = got.Sub(t.start)
	}
	if !r.Conn.Reused {
		// A dial may be begun for one request and carry another: only a
		// request that waited for its own set-up shows it.
		r.Conn.DNS = span(&t.dnsStart, &t.dnsDone)
		r.Conn.Connect = span(&t.dialStart, &t.dialDone)
		r.Conn.TLS = span(&t.tlsStart, &t.tlsDone)
	}
	if s := t.remote.Load(); s != nil {
		r.Conn.Remote = *s
	}
}

// Arrival is when the kernel received what the connection's last read brought,
// as wall time in nanoseconds since 1970; ok is false if nobody tells.
func (t *Trace) Arrival() (wall int64, ok bool) {
	a := t.arrivals.Load()
	if a == nil {
		return 0, false
	}
	wall = (*a).lastArrival()
	return wall, wall != 0
}

// FirstArrival is Arrival for the first byte of the answer.
func (t *Trace) FirstArrival() (wall int64, ok bool) {
	wall = t.firstArrival.Load()
	return wall, wall != 0
}

// Stage names the step that a request without an answer got to.
func (t *Trace) Stage() string {
	switch {
	case t.firstByte.Load() > 0, t.written.Load() > 0:
		return "headers"
	case t.gotConn.Load() > 0:
		return "write"
	case t.tlsFailed.Load(), t.tlsStart.Load() > 0:
		return "tls"
	case t.dnsFailed.Load():
		return "dns"
	default:
		return "connect"
	}
}
