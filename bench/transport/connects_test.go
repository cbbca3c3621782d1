package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestConnects(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	byName := *u
	byName.Host = net.JoinHostPort("localhost", u.Port())
	elsewhere := &url.URL{Scheme: "http", Host: "server.invalid"}
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, c := range []struct {
		name string
		o    Options
		u    *url.URL
		want int
	}{
		{"by address", Options{}, u, 3},
		{"by name", Options{}, &byName, 3},
		{"the proxy, not the server", Options{Proxy: u}, elsewhere, 3},
		{"nobody there", Options{}, &url.URL{Scheme: "http", Host: closed.Addr().String()}, 0},
		{"a Unix socket", Options{UnixSocket: socket.Addr().String()}, u, 0},
	} {
		took := Connects(t.Context(), c.o, c.u, 3)
		if len(took) != c.want || slices.ContainsFunc(took, func(d time.Duration) bool { return d <= 0 }) {
			t.Errorf("%s: %v, want %d times", c.name, took, c.want)
		}
	}
}

// Only the first connect is by name, and one that fails is left out.
func TestConnectsDialTheAddress(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	var asked []string
	o := Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if asked = append(asked, addr); len(asked) == 3 {
			return nil, errors.New("no")
		}
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}}
	took := Connects(t.Context(), o, &url.URL{Scheme: "https", Host: "server.test"}, 3)
	addr := srv.Listener.Addr().String()
	if want := []string{"server.test:443", addr, addr, addr}; !slices.Equal(asked, want) || len(took) != 2 {
		t.Errorf("dialled %v, %d times; want %v", asked, len(took), want)
	}
}
