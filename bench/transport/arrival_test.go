package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// TestKernelStampIsOlderThanTheRead: data that has lain in the socket for 30 ms
// before it was read is stamped with its arrival, with and without TLS.
func TestKernelStampIsOlderThanTheRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("kernel stamps are Linux's")
	}
	defer KeepStamping()()
	time.Sleep(50 * time.Millisecond) // the kernel begins a little later
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "part %d\n", i)
			w.(http.Flusher).Flush()
			time.Sleep(60 * time.Millisecond)
		}
	})
	for name, start := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "TLS": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			srv := start(handler)
			defer srv.Close()
			origin := time.Now()
			clock := func() record.Time { return record.Time(time.Since(origin)) }
			wall := NewWallClock(origin)
			tr := New(Options{Insecure: true})
			defer tr.CloseIdleConnections()
			trace := NewTrace(clock)
			req, err := http.NewRequestWithContext(trace.Attach(t.Context()), http.MethodGet, srv.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			buf := make([]byte, 100)
			last := record.Time(0)
			for i := range 3 {
				time.Sleep(30 * time.Millisecond) // the client is slow
				n, err := resp.Body.Read(buf)
				now := clock()
				if err != nil && err != io.EOF || !bytes.HasPrefix(buf[:n], fmt.Appendf(nil, "part %d", i)) {
					t.Fatalf("read %q, %v", buf[:n], err)
				}
				stamp, ok := trace.Arrival()
				if !ok {
					t.Fatal("no kernel stamp")
				}
				at := wall.Offset(stamp)
				if at > now+record.Time(time.Millisecond) {
					t.Errorf("part %d arrived %v after it was read", i, at.Sub(now))
				}
				if at < last {
					t.Errorf("part %d arrived before the one before it", i)
				}
				// The first part came with the header, which is read at once; the
				// others lay there until we woke up, unless we were later.
				if lag := now.Sub(at); lag < 0 || i == 0 && lag < 25*time.Millisecond {
					t.Errorf("part %d was read %v after its arrival", i, lag)
				}
				last = at
			}
		})
	}
}

func TestReadErrorsAreThoseOfTheConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	serve := func(do func(*net.TCPConn)) net.Conn {
		go func() {
			c, err := ln.Accept()
			if err == nil {
				do(c.(*net.TCPConn))
			}
		}()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return withArrivals(c)
	}
	buf := make([]byte, 10)

	c := serve(func(c *net.TCPConn) { c.Close() })
	if n, err := c.Read(buf); n != 0 || err != io.EOF {
		t.Errorf("a proper end reads as %d, %v", n, err)
	}
	c.Close()

	c = serve(func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1)) // not before the client is connected
		_ = c.SetLinger(0)
		c.Close()
	})
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(buf); err == nil || err == io.EOF {
		t.Errorf("a reset reads as %v", err)
	}
	c.Close()
	if _, err := c.Read(buf); err == nil {
		t.Error("a closed connection can be read")
	}

	c = serve(func(c *net.TCPConn) { time.Sleep(time.Second); c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := c.Read(buf); err == nil {
		t.Error("no error at the deadline")
	} else if ok := asTimeout(err, &timeout); !ok {
		t.Errorf("at the deadline: %v", err)
	}
	c.Close()
}

func asTimeout(err error, to *net.Error) bool {
	return errors.As(err, to) && (*to).Timeout()
}

func TestReadAllocatesNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		data := make([]byte, 64)
		for err == nil {
			_, err = c.Write(data)
		}
	}()
	tcp, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := withArrivals(tcp)
	defer c.Close()
	buf := make([]byte, 64)
	if n := testing.AllocsPerRun(200, func() {
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a read", n)
	}
}

func TestWallClockNoticesAStep(t *testing.T) {
	w := NewWallClock(time.Now())
	w.Sample()
	if w.Steps() != 0 {
		t.Skip("this machine's clock was set just now")
	}
	w.ahead.Add(int64(time.Second)) // as if it had been set back by a second
	w.Sample()
	if w.Steps() != 1 {
		t.Errorf("%d steps noticed, want 1", w.Steps())
	}
}
