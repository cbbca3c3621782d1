package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// parts answers with three parts, 60 ms apart.
func parts(w http.ResponseWriter, _ *http.Request) {
	for i := range 3 {
		fmt.Fprintf(w, "part %d\n", i)
		w.(http.Flusher).Flush()
		time.Sleep(60 * time.Millisecond)
	}
}

// path is one way to a server of parts.
type path struct {
	url string
	Options
	protocol, remote string
}

// paths starts servers and proxies for every way there is to them.
func paths(t *testing.T) map[string]path {
	serve := func(h http.Handler, start func(*httptest.Server)) *httptest.Server {
		srv := httptest.NewUnstartedServer(h)
		start(srv)
		t.Cleanup(srv.Close)
		return srv
	}
	plainHTTP, overTLS := (*httptest.Server).Start, (*httptest.Server).StartTLS
	plain, secure := serve(http.HandlerFunc(parts), plainHTTP), serve(http.HandlerFunc(parts), overTLS)
	http2 := serve(http.HandlerFunc(parts), func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	serve(http.HandlerFunc(parts), func(s *httptest.Server) {
		_ = s.Listener.Close()
		s.Listener = ln
		s.Start()
	})
	via := func(address string) Options {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return Options{Proxy: u}
	}
	proxy, secureProxy := serve(http.HandlerFunc(forward), plainHTTP), serve(http.HandlerFunc(forward), overTLS)
	socks := socksProxy(t)
	h1 := "HTTP/1.1"
	return map[string]path{
		"plain":                  {plain.URL, Options{}, h1, addr(plain.URL)},
		"plain without stamps":   {plain.URL, Options{NoKernelStamps: true}, h1, addr(plain.URL)},
		"TLS":                    {secure.URL, Options{}, h1, addr(secure.URL)},
		"TLS without stamps":     {secure.URL, Options{NoKernelStamps: true}, h1, addr(secure.URL)},
		"Unix socket":            {"http://server", Options{UnixSocket: socket}, h1, socket},
		"HTTP/2":                 {http2.URL, Options{HTTP2: true}, "HTTP/2.0", addr(http2.URL)},
		"HTTP/2 not offered":     {http2.URL, Options{}, h1, addr(http2.URL)},
		"HTTP/2 not spoken":      {secure.URL, Options{HTTP2: true}, h1, addr(secure.URL)},
		"HTTP proxy":             {plain.URL, via(proxy.URL), h1, addr(proxy.URL)},
		"HTTP proxy, TLS":        {secure.URL, via(proxy.URL), h1, addr(proxy.URL)},
		"proxy over TLS":         {plain.URL, via(secureProxy.URL), h1, addr(secureProxy.URL)},
		"proxy over TLS, TLS":    {secure.URL, via(secureProxy.URL), h1, addr(secureProxy.URL)},
		"SOCKS proxy":            {plain.URL, via("socks5://" + socks), h1, socks},
		"SOCKS proxy, TLS":       {secure.URL, via("socks5://" + socks), h1, socks},
		"HTTP proxy, HTTP/2":     {http2.URL, Options{HTTP2: true, Proxy: via(proxy.URL).Proxy}, "HTTP/2.0", addr(proxy.URL)},
		"HTTP proxy, no stamps":  {plain.URL, Options{NoKernelStamps: true, Proxy: via(proxy.URL).Proxy}, h1, addr(proxy.URL)},
		"Unix socket, no stamps": {"http://server", Options{UnixSocket: socket, NoKernelStamps: true}, h1, socket},
		"SOCKS proxy, no stamps": {plain.URL, Options{NoKernelStamps: true, Proxy: via("socks5://" + socks).Proxy}, h1, socks},
	}
}

func addr(serverURL string) string { _, a, _ := strings.Cut(serverURL, "://"); return a }

// forward is an HTTP proxy.
func forward(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, FlushInterval: -1}).ServeHTTP(w, r)
		return
	}
	to, err := net.Dial("tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		to.Close()
		return
	}
	_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
	join(from, to)
}

// join carries bytes both ways until either side ends.
func join(a, b net.Conn) {
	go func() {
		_, _ = io.Copy(a, b)
		a.Close()
	}()
	_, _ = io.Copy(b, a)
	b.Close()
}

// socksProxy starts a SOCKS5 proxy for IPv4 addresses and returns its address.
func socksProxy(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				head := make([]byte, 2) // version, number of methods
				if _, err := io.ReadFull(from, head); err != nil {
					return
				}
				ask := make([]byte, int(head[1])+10) // methods; then version, command, 0, 1, address, port
				if _, err := io.ReadFull(from, ask[:head[1]]); err != nil {
					return
				}
				_, _ = from.Write([]byte{5, 0})
				if _, err := io.ReadFull(from, ask[head[1]:]); err != nil {
					return
				}
				ask = ask[head[1]+4:]
				to, err := net.Dial("tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte(ask[:4])), binary.BigEndian.Uint16(ask[4:])).String())
				if err != nil {
					return
				}
				_, _ = from.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
				join(from, to)
			}()
		}
	}()
	return ln.Addr().String()
}

// TestClockOfEachPath: data that has lain in the socket for 30 ms before it was
// read is stamped with its arrival wherever the kernel can tell, through TLS and
// proxies too; where it cannot, nothing pretends to.
func TestClockOfEachPath(t *testing.T) {
	t.Cleanup(KeepStamping())
	time.Sleep(50 * time.Millisecond) // the kernel begins a little later
	stamped := map[string]bool{
		"plain": true, "TLS": true, "HTTP/2 not offered": true,
		"HTTP proxy": true, "HTTP proxy, TLS": true, "proxy over TLS": true, "proxy over TLS, TLS": true,
		"SOCKS proxy": true, "SOCKS proxy, TLS": true,
	}
	for name, p := range paths(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p.Insecure = true
			want := stamped[name] && runtime.GOOS == "linux"
			if p.Stamped() != want {
				t.Errorf("the options say stamps: %v", p.Stamped())
			}
			origin := time.Now()
			clock := func() record.Time { return record.Time(time.Since(origin)) }
			wall := NewWallClock(origin)
			tr := New(p.Options)
			defer tr.CloseIdleConnections()
			trace := NewTrace(clock)
			req, err := http.NewRequestWithContext(trace.Attach(t.Context()), http.MethodGet, p.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			rec := record.New(record.PhaseMeasure, 0)
			trace.Fill(rec)
			if resp.Proto != p.protocol || rec.Conn.Remote != p.remote {
				t.Errorf("%s from %s, want %s from %s", resp.Proto, rec.Conn.Remote, p.protocol, p.remote)
			}
			if _, ok := trace.FirstArrival(); ok != want {
				t.Errorf("stamp of the first byte: %v", ok)
			}
			buf := make([]byte, len("part 0\n"))
			last := record.Time(0)
			for i := range 3 {
				time.Sleep(30 * time.Millisecond) // the client is slow
				_, err := io.ReadFull(resp.Body, buf)
				now := clock()
				if err != nil || string(buf) != fmt.Sprintf("part %d\n", i) {
					t.Fatalf("read %q, %v", buf, err)
				}
				stamp, ok := trace.Arrival()
				if ok != want {
					t.Fatalf("part %d: kernel stamp: %v", i, ok)
				}
				if !ok {
					continue
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
