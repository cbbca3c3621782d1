package transport

import (
	"context"
	"net"
	"net/url"
	"time"
)

// Connects opens n TCP connections to where requests for u go, one after the
// other and by the same dialler, closes each at once, and returns how long each
// took to be there: one round trip of the network, and some microseconds of
// this machine. The name is resolved before, so DNS is in none. The round trip
// is to whatever ends the connection: with a proxy or a TLS terminator in front
// that is it, and the way from there to the server is not seen.
//
// What cannot be dialled is left out: there are fewer than n times, and none
// over a Unix socket. It is safe for concurrent use.
func Connects(ctx context.Context, o Options, u *url.URL, n int) []time.Duration {
	if o.Proxy != nil {
		u = o.Proxy
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080"}[u.Scheme]
	}
	t := New(o)
	first, err := t.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil
	}
	to, ok := first.RemoteAddr().(*net.TCPAddr)
	_ = first.Close()
	if !ok {
		return nil
	}
	var took []time.Duration
	for range n {
		start := time.Now()
		conn, err := t.DialContext(ctx, "tcp", to.String())
		if err != nil {
			continue
		}
		took = append(took, time.Since(start))
		_ = conn.Close()
	}
	return took
}
