package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// script is the server part of a case: see testdata/cases/README.md.
type script struct {
	Responses []response `json:"responses"`
	Select    string     `json:"select"`
}

type response struct {
	When *struct {
		BodyHas string `json:"body_has"`
	} `json:"when"`
	Status        int               `json:"status"`
	Headers       map[string]string `json:"headers"`
	Body          string            `json:"body"`
	HeaderDelayMS int               `json:"header_delay_ms"`
	Chunks        []struct {
		Upto    int `json:"upto"`
		DelayMS int `json:"delay_ms"`
	} `json:"chunks"`
	End        string `json:"end"`
	EndDelayMS int    `json:"end_delay_ms"`
	NoResponse bool   `json:"no_response"`
}

// replay is a server that follows a script, and remembers the POSTs it got.
type replay struct {
	*httptest.Server
	t      *testing.T
	script *script
	path   string // of the endpoint
	bodies map[string][]byte
	closed chan struct{} // ends every stall

	mu    sync.Mutex
	posts []post
	slip  time.Duration // how much longer than scripted the waits were
}

type post struct {
	header http.Header
	body   []byte
}

// newReplay starts a server whose body files lie in dir.
func newReplay(t *testing.T, dir, path string, s *script) *replay {
	r := &replay{t: t, script: s, path: path, bodies: map[string][]byte{}, closed: make(chan struct{})}
	for _, resp := range s.Responses {
		if resp.Body == "" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, resp.Body))
		if err != nil {
			t.Fatal(err)
		}
		r.bodies[resp.Body] = b
	}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		close(r.closed)
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// taken returns the POSTs so far, in the order of their arrival, and how many
// milliseconds the waits in the answers were too long.
func (r *replay) taken() (posts []post, slip float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]post(nil), r.posts...), milliseconds(r.slip)
}

func (r *replay) choose(n int, body string) *response {
	if r.script.Select != "first-match" {
		return &r.script.Responses[min(n, len(r.script.Responses)-1)]
	}
	for i := range r.script.Responses {
		if resp := &r.script.Responses[i]; resp.When == nil || strings.Contains(body, resp.When.BodyHas) {
			return resp
		}
	}
	r.t.Errorf("no answer of the script fits the request %s", body)
	return &response{Status: http.StatusTeapot}
}

func (r *replay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost || req.URL.Path != r.path {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"message":"no such path","code":404}}`)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.t.Errorf("read request: %v", err)
	}
	r.mu.Lock()
	n := len(r.posts)
	r.posts = append(r.posts, post{req.Header.Clone(), body})
	r.mu.Unlock()
	resp := r.choose(n, string(body))

	if !resp.NoResponse {
		r.pause(resp.HeaderDelayMS)
		for name, value := range resp.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(resp.Status)
		flush := http.NewResponseController(w).Flush
		_ = flush() // what fails from here on failed because the client left
		rest, sent := r.bodies[resp.Body], 0
		for _, c := range resp.Chunks {
			r.pause(c.DelayMS)
			_, _ = w.Write(rest[:c.Upto-sent])
			rest, sent = rest[c.Upto-sent:], c.Upto
			_ = flush()
		}
		_, _ = w.Write(rest)
		_ = flush()
	}
	r.pause(resp.EndDelayMS)
	switch resp.End {
	case "", "eof":
	case "abort":
		panic(http.ErrAbortHandler)
	case "reset":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			r.t.Errorf("take over the connection: %v", err)
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	case "stall":
		select {
		case <-req.Context().Done():
		case <-r.closed:
		}
	default:
		r.t.Errorf("end %q of a script is not known", resp.End)
	}
}

func (r *replay) pause(ms int) {
	if ms == 0 {
		return
	}
	wanted, start := time.Duration(ms)*time.Millisecond, time.Now()
	time.Sleep(wanted)
	r.mu.Lock()
	r.slip += time.Since(start) - wanted
	r.mu.Unlock()
}
