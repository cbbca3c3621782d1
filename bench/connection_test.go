package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/transport"
)

// rawServer answers every request with the same bytes, and then waits for the
// next one or ends the connection. It counts connections.
func rawServer(t *testing.T, answer string, end func(*net.TCPConn)) (*url.URL, *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	conns := new(atomic.Int64)
	serve := func(conn net.Conn) {
		defer conn.Close()
		for requests := bufio.NewReader(conn); ; {
			req, err := http.ReadRequest(requests)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(conn, answer)
			if end != nil {
				end(conn.(*net.TCPConn))
				return
			}
		}
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go serve(conn)
		}
	}()
	return &url.URL{Scheme: "http", Host: ln.Addr().String(), Path: "/v1/chat/completions"}, conns
}

// TestAnswersOnTheWire: what servers and proxies may send has one outcome each,
// none keeps a request waiting, and a connection is used again only if it is
// in order.
func TestAnswersOnTheWire(t *testing.T) {
	const (
		token  = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"
		finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
		done   = "data: [DONE]\n\n"
		whole  = token + finish + done

		head    = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
		chunked = head + "Transfer-Encoding: chunked\r\n\r\n"
		last    = "0\r\n\r\n"
	)
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n", n) }
	good := chunked + chunk(whole) + last
	hangUp := func(*net.TCPConn) {}
	reset := func(c *net.TCPConn) {
		time.Sleep(20 * time.Millisecond) // so that what was sent is read before
		_ = c.SetLinger(0)
	}
	halfClose := func(c *net.TCPConn) {
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c) // until the client leaves
	}
	for _, c := range []struct {
		name, answer string
		end          func(*net.TCPConn) // nil: the connection stays
		outcome      record.Outcome
		message      string
		reused       bool // by the second request
	}{
		{"chunked", good, nil, record.OK, "", true},
		{"trailers", head + "Trailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(whole) + "0\r\nX-T: v\r\n\r\n", nil, record.OK, "", true},
		{"content length", head + length(len(whole)) + whole, nil, record.OK, "", true},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n" + whole, hangUp, record.OK, "", false},
		{"HTTP/1.0 kept", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + length(len(whole)) + whole, nil, record.OK, "", true},
		{"Connection: close", head + "Connection: close\r\n\r\n" + whole, hangUp, record.OK, "", false},
		{"Connection: close, never closed", head + "Connection: close\r\n\r\n" + whole, nil, record.OK, "", false},
		{"half-closed", head + "\r\n" + token + finish, halfClose, record.OK, "", false},
		{"half-closed too early", head + "\r\n" + token, halfClose, record.Truncated, "neither a finish reason nor [DONE]", false},
		{"closed without saying so", good, hangUp, record.OK, "", false},
		{"no last chunk after [DONE]", chunked + chunk(whole), hangUp, record.OK, "", false},
		{"no last chunk", chunked + chunk(token+finish), hangUp, record.Truncated, "closed the connection before its answer was over", false},
		{"content length too large", head + length(len(whole)) + token + finish, hangUp, record.Truncated, "closed the connection before its answer was over", false},
		{"content length too small", head + length(len(token)) + whole, nil, record.Truncated, "neither a finish reason nor [DONE]", false},
		{"garbage after", good + "GARBAGE\r\n\r\n", nil, record.OK, "", false},
		{"garbage in the chunks", chunked + chunk(token) + "zz\r\n", nil, record.Malformed, "invalid byte in chunk length", false},
		{"reset", chunked + chunk(token), reset, record.Reset, "reset by peer", false},
		{"no answer", "", hangUp, record.Reset, "closed the connection before its answer was over", false},
		{"half a header", head, hangUp, record.Reset, "closed the connection before its answer was over", false},
		{"no HTTP", "SSH-2.0-OpenSSH_9\r\n", nil, record.Malformed, `malformed HTTP response "SSH-2.0-OpenSSH_9"`, false},
		{"no header line", head + "no colon\r\n\r\n" + whole, nil, record.Malformed, "missing colon", false},
		{"two lengths", head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + whole, nil, record.Malformed, "Content-Length", false},
		{"long header line", head + "X: " + strings.Repeat("x", 300<<10) + "\r\n" + length(len(whole)) + whole, nil, record.OK, "", true},
		{"header without end", head + "X: " + strings.Repeat("x", 11<<20), hangUp, record.Malformed, "response headers exceeded", false},
		{"100", "HTTP/1.1 100 Continue\r\n\r\n" + good, nil, record.OK, "", true},
		{"103 twice", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 2) + good, nil, record.OK, "", true},
		{"101", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", nil, record.ClientError, "101 Switching Protocols", false},
		{"204", "HTTP/1.1 204 No Content\r\n\r\n", nil, record.Truncated, "neither a finish reason nor [DONE]", true},
		{"redirect", "HTTP/1.1 307 Temporary Redirect\r\nLocation: https://other/?key=secret99\r\n" + length(0), nil, record.ClientError,
			"307 Temporary Redirect, to https://other/?key=***: redirects are not followed", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address, conns := rawServer(t, c.answer, c.end)
			p, err := NewProbe(Plan{
				URL: address, Type: openai.Chat, Body: openai.BodyOptions{Model: "m", Stream: true}, Secrets: []string{"secret99"},
				IdleTimeout: time.Minute, TotalTimeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for n := range 2 {
				r := p.Send(t.Context(), []byte("{}"))
				message := ""
				if r.Failure != nil {
					message = r.Failure.Message
				}
				if r.Outcome != c.outcome || !strings.Contains(message, c.message) {
					t.Errorf("request %d: %s %q, want %s %q", n, r.Outcome, message, c.outcome, c.message)
				}
				if r.Outcome == record.OK && (!r.FirstByte.IsSet() || r.FirstByte < r.Start || r.FirstByte > r.FirstEvent) {
					t.Errorf("request %d: start %d, first byte %d, first event %d", n, r.Start, r.FirstByte, r.FirstEvent)
				}
				time.Sleep(50 * time.Millisecond) // for the end of a connection to be seen
			}
			if got := conns.Load() == 1; got != c.reused {
				t.Errorf("%d connections for two requests", conns.Load())
			}
		})
	}
}

// TestFirstByteIsOfTheFinalAnswer: an interim answer is none.
func TestFirstByteIsOfTheFinalAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	const pause = 50 * time.Millisecond
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\n\r\n")
		time.Sleep(pause)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\ndata: [DONE]\n\n")
	}()
	p, err := NewProbe(Plan{
		URL:  &url.URL{Scheme: "http", Host: ln.Addr().String(), Path: "/v1/chat/completions"},
		Type: openai.Chat, Body: openai.BodyOptions{Model: "m", Stream: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if r := p.Send(t.Context(), []byte("{}")); r.FirstByte.Sub(r.Start) < pause {
		t.Errorf("first byte after %v, which is before the answer: %+v", r.FirstByte.Sub(r.Start), r.Failure)
	}
}

// TestStreamResetOverHTTP2: a stream that the server gives up is a broken one,
// not a malformed answer.
func TestStreamResetOverHTTP2(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	address, err := url.Parse(srv.URL + "/v1/chat/completions")
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProbe(Plan{
		URL: address, Type: openai.Chat, Body: openai.BodyOptions{Model: "m", Stream: true},
		Transport: transport.Options{HTTP2: true, Insecure: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if r := p.Send(t.Context(), []byte("{}")); r.Outcome != record.Reset || r.Conn.Protocol != "HTTP/2.0" || len(r.Chunks) != 1 || r.Chunks[0].Lag != 0 {
		t.Errorf("%s over %s, %d chunks, %+v", r.Outcome, r.Conn.Protocol, len(r.Chunks), r.Failure)
	}
}
