package main

import (
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
)

// TestWaysToTheServer: every request of a run, those before and beside it too,
// goes the way that the options say, and the run directory names that way, the
// clock, and no secret.
func TestWaysToTheServer(t *testing.T) {
	const user, password = "sk-proxy-user", "sk-proxy-password"
	kernel := record.StampsRead
	if runtime.GOOS == "linux" {
		kernel = record.StampsKernel
	}
	serve := func(h http.Handler, start func(*httptest.Server)) *httptest.Server {
		server := httptest.NewUnstartedServer(h)
		start(server)
		t.Cleanup(server.Close)
		return server
	}
	// only lets requests through that came the right way.
	only := func(came func(*http.Request) bool) (http.Handler, string) {
		var handler http.Handler
		_, url := simulator(t, nil, func(sim *mockserver.Server) http.Handler {
			handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !came(r) {
					t.Errorf("%s %s came another way", r.Method, r.URL)
				}
				sim.ServeHTTP(w, r)
			})
			return handler
		})
		return handler, url
	}

	direct, plainURL := only(func(*http.Request) bool { return true })
	_, behindProxy := only(func(r *http.Request) bool { return r.Header.Get("Via") == "1.1 test" })
	secure := serve(direct, (*httptest.Server).StartTLS)
	overHTTP2, _ := only(func(r *http.Request) bool { return r.ProtoMajor == 2 })
	http2 := serve(overHTTP2, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
	proxy := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, pass, ok := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		if !ok || name != user || pass != password {
			http.Error(w, "who are you? "+r.Header.Get("Proxy-Authorization"), http.StatusProxyAuthRequired)
			return
		}
		(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header.Set("Via", "1.1 test")
		}}).ServeHTTP(w, r)
	}), (*httptest.Server).Start)
	proxyAddr := proxy.Listener.Addr().String()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Skip(err)
	}
	serve(direct, func(s *httptest.Server) {
		_ = s.Listener.Close()
		s.Listener = ln
		s.Start()
	})

	for _, way := range []struct {
		name, url             string
		args                  []string
		stamps, via, protocol string
	}{
		{"direct", plainURL, nil, kernel, "", "HTTP/1.1"},
		{"own clock", plainURL, []string{"--kernel-stamps=false"}, record.StampsRead, "", "HTTP/1.1"},
		{"TLS", secure.URL, []string{"--insecure"}, kernel, "", "HTTP/1.1"},
		{"Unix socket", "http://server", []string{"--unix-socket", socket}, record.StampsRead, "unix:" + socket, "HTTP/1.1"},
		{"proxy", behindProxy, []string{"--proxy", user + ":" + password + "@" + proxyAddr}, kernel, "http://" + proxyAddr, "HTTP/1.1"},
		{"HTTP/2", http2.URL, []string{"--http2", "--insecure"}, record.StampsRead, "", "HTTP/2.0"},
	} {
		t.Run(way.name, func(t *testing.T) {
			s, stdout, stderr := summarized(t, way.url, append(way.args, "--concurrency", "4", "--request-count", "8", "--osl", "4")...)
			_, dir, _ := strings.Cut(strings.TrimSpace(stderr), "run directory: ")
			m := s.Manifest
			if s.Counts.Valid != 8 || m.Stamps != way.stamps || m.Target.Via != way.via || m.Dialect == "generic" {
				t.Errorf("%d valid requests, stamps %q, via %q, dialect %s; stderr: %s", s.Counts.Valid, m.Stamps, m.Target.Via, m.Dialect, stderr)
			}
			if !strings.Contains(stdout, m.Target.Address()) {
				t.Errorf("the report does not name %q:\n%s", m.Target.Address(), stdout)
			}
			stamped := 0
			for r, err := range record.Dir(dir).Records() {
				if err != nil {
					t.Fatal(err)
				}
				if r.Conn.Protocol != way.protocol {
					t.Errorf("request %d: %s, want %s", r.ID, r.Conn.Protocol, way.protocol)
				}
				for _, c := range r.Chunks {
					if c.Lag > 0 {
						stamped++
					}
				}
			}
			if (stamped > 0) != (way.stamps == record.StampsKernel) {
				t.Errorf("%d events with a stamp of the kernel, and the manifest says %s", stamped, m.Stamps)
			}
			texts := map[string]string{"stdout": stdout, "stderr": stderr}
			if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				b, err := os.ReadFile(filepath.Join(dir, path))
				texts[path] = string(b)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			for name, text := range texts {
				if strings.Contains(text, password) {
					t.Errorf("%s shows the proxy's password", name)
				}
			}
		})
	}

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	moved := serve(http.RedirectHandler("https://u:"+password+"@other/v1/models", http.StatusMovedPermanently), (*httptest.Server).Start)
	nobody := free.Addr().String()
	free.Close()
	for _, wrong := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-u", plainURL, "--proxy", "http://sk-a:" + password + "@" + nobody}, exitFailed, "reach the proxy http://" + nobody + ": nothing listens there (connection refused): is the server up, and --proxy right?"},
		{[]string{"-u", plainURL, "--proxy", "https://" + proxyAddr}, exitFailed, "reach the proxy https://" + proxyAddr + ": it does not speak TLS"},
		{[]string{"-u", secure.URL, "--proxy", "http://sk-a:" + password + "@" + proxyAddr + "/"}, exitFailed, " via http://" + proxyAddr + ": "},
		{[]string{"-u", moved.URL}, exitUsage, "301 Moved Permanently, to https://***@other/v1/models: redirects are not followed: give one with --model"},
		{[]string{"-u", moved.URL, "-m", "m"}, exitFailed, "301 Moved Permanently, to https://u:xxxxx@other/v1/models: redirects are not followed"},
		{[]string{"-u", plainURL, "-m", "m", "--proxy", "http://sk-a:" + password + "@" + proxyAddr}, exitFailed, "who are you? Basic ***"},
		{[]string{"-u", "x", "--unix-socket", socket + "x"}, exitFailed, "reach unix:" + socket + "x: nothing is there: is --unix-socket right?"},
		{[]string{"-u", "x", "--unix-socket", "a", "--proxy", "b"}, exitUsage, "--proxy and --unix-socket exclude each other"},
		{[]string{"--simulate", "--unix-socket", "a"}, exitUsage, "--simulate and --unix-socket exclude each other"},
		{[]string{"-u", "x", "--proxy", "ftp://sk-a:" + password + "@b"}, exitUsage, "--proxy ftp://***@b: give host:port, or an http, https or socks5 URL"},
		{[]string{"-u", "https://x", "--http2", "--proxy", "https://b"}, exitUsage, "--http2 does not go through a proxy that is TLS itself"},
		{[]string{"-u", "http://x", "--http2"}, exitUsage, "--http2: it is agreed on over TLS, and http://x has none"},
		{[]string{"-u", "http://x", "--proxy", "http://sk-a:" + password + "@b:1", "--print-config"}, exitOK, `proxy: http://***@b:1`},
	} {
		code, stdout, stderr := program("", append([]string{"run"}, wrong.args...)...)
		if out := stdout + stderr; code != wrong.code || !strings.Contains(out, wrong.want) || strings.Contains(out, password) {
			t.Errorf("%q: exit code %d, %s\nwant %q", wrong.args, code, out, wrong.want)
		}
	}
}
