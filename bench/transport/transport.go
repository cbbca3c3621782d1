// Package transport makes the HTTP transport that carries measured requests,
// and times the steps of getting a connection and sending over it.
//
// It is net/http over HTTP/1.1 with everything switched off that would change
// a measurement unseen: retries, redirects, compression, proxies from the
// environment.
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// dialsInFlight bounds the connections that are being set up at one time. More
// overrun the accept queue of the server, whose lost SYNs come back a second
// later.
const dialsInFlight = 64

// Options say how to reach the server. The zero value dials TCP with no limit
// on connections or time.
type Options struct {
	// MaxConns bounds the connections to the server, which is also how many
	// are kept idle; 0: no bound.
	MaxConns int
	// ConnectTimeout bounds DNS and dial together, and then TLS; 0: no bound.
	ConnectTimeout time.Duration
	// FirstByteTimeout bounds the wait for the answer's first byte after the
	// request is written; 0: no bound.
	FirstByteTimeout time.Duration
	// Insecure accepts any certificate.
	Insecure bool
	// UnixSocket is dialled in place of the host in the URL.
	UnixSocket string
	// Proxy is the proxy to use: http, https or socks5. The environment's are
	// not.
	Proxy *url.URL
	// HTTP2 offers HTTP/2 to servers that speak TLS. Its streams share a
	// connection, whose last arrival may be another stream's, so the times of
	// events are the program's own.
	HTTP2 bool
	// NoKernelStamps leaves the time of an event to the program's own clock.
	NoKernelStamps bool
	// Dial replaces the dialler; nil: TCP, or UnixSocket.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Stamped reports whether events carry the kernel's receive stamps.
func (o Options) Stamped() bool {
	return kernelStamps && !o.NoKernelStamps && !o.HTTP2 && o.UnixSocket == ""
}

// Via names what the server is reached through, without user info: the Unix
// socket, as unix:PATH, or the proxy's URL; empty: it is reached directly.
func (o Options) Via() string {
	switch {
	case o.UnixSocket != "":
		return "unix:" + o.UnixSocket
	case o.Proxy != nil:
		return (&url.URL{Scheme: o.Proxy.Scheme, Host: o.Proxy.Host}).String()
	}
	return ""
}

// New returns a transport. Close its idle connections when done.
func New(o Options) *http.Transport {
	dial := o.Dial
	if dial == nil {
		d := &net.Dialer{KeepAlive: 15 * time.Second}
		dial = d.DialContext
		if o.UnixSocket != "" {
			dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return d.DialContext(ctx, "unix", o.UnixSocket)
			}
		}
	}
	slots := make(chan struct{}, dialsInFlight)
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			if o.ConnectTimeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, o.ConnectTimeout, &ConnectTimeoutError{After: o.ConnectTimeout, Addr: addr})
				defer cancel()
			}
			conn, err := dial(ctx, network, addr)
			if err != nil {
				var limit *ConnectTimeoutError
				if errors.As(context.Cause(ctx), &limit) {
					err = limit
				}
				return nil, err
			}
			if !o.Stamped() {
				return conn, nil
			}
			return withArrivals(conn), nil
		},
		TLSHandshakeTimeout:   o.ConnectTimeout,
		TLSClientConfig:       &tls.Config{InsecureSkipVerify: o.Insecure}, //nolint:gosec // the user's explicit choice
		DisableCompression:    true,                                        // a compressed stream is buffered by somebody
		MaxConnsPerHost:       o.MaxConns,
		MaxIdleConnsPerHost:   o.MaxConns,
		ResponseHeaderTimeout: o.FirstByteTimeout,
		WriteBufferSize:       16 << 10,
		ReadBufferSize:        4 << 10,
		Protocols:             new(http.Protocols),
	}
	if o.MaxConns == 0 {
		t.MaxIdleConnsPerHost = 1 << 16
	}
	if o.Proxy != nil {
		t.Proxy = http.ProxyURL(o.Proxy)
		t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("the proxy refuses the way to the server: %s", answer.Status)
			}
			return nil
		}
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(o.HTTP2)
	return t
}

// ConnectTimeoutError tells that the connection was not there within the limit.
type ConnectTimeoutError struct {
	After time.Duration
	Addr  string
}

func (e *ConnectTimeoutError) Error() string {
	return fmt.Sprintf("connect to %s: no connection within %v", e.Addr, e.After)
}

// Timeout marks it as a timeout for net.Error.
func (e *ConnectTimeoutError) Timeout() bool { return true }
