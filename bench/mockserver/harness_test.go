package mockserver

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// exact is a configuration whose times can be computed by hand.
func exact() Config {
	c := Default()
	c.Noise = 0
	c.PrefillBase = 10 * time.Millisecond
	c.PrefillPerToken = time.Millisecond
	c.DecodeBase = 20 * time.Millisecond
	c.DecodePerSequence = 2 * time.Millisecond
	return c
}

// pipes is a listener whose connections are in memory, so that synctest knows
// when everybody waits.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// lab is a server with a client.
type lab struct {
	t      testing.TB
	srv    *Server
	client *http.Client
	url    string
}

// newLab serves over pipes, for use in a synctest bubble.
func newLab(t testing.TB, cfg Config) *lab {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	return serveLab(t, cfg, p, &http.Transport{DialContext: p.dial, DisableCompression: true}, "http://sim")
}

// newLoopbackLab serves over TCP.
func newLoopbackLab(t testing.TB, cfg Config) *lab {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveLab(t, cfg, ln, &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}, "http://"+ln.Addr().String())
}

func serveLab(t testing.TB, cfg Config, ln net.Listener, tr *http.Transport, url string) *lab {
	t.Helper()
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: srv}
	go func() { _ = hs.Serve(ln) }()
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		_ = hs.Close()
		if err := srv.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &lab{t: t, srv: srv, client: &http.Client{Transport: tr}, url: url}
}

// sse is one event with data.
type sse struct {
	at   time.Duration // from the start of the request
	data string
}

// reply is all that came back.
type reply struct {
	status int
	header http.Header
	body   string
	events []sse
	err    error // of reading the body or of the exchange
}

type delta struct {
	Role      *string `json:"role"`
	Content   *string `json:"content"`
	Reasoning *string `json:"reasoning_content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type usageObject struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	PromptD    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionD struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

type chunk struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Model   string `json:"model"`
	Choices []struct {
		Index      int     `json:"index"`
		Delta      delta   `json:"delta"`
		Message    delta   `json:"message"`
		Text       string  `json:"text"`
		Finish     *string `json:"finish_reason"`
		StopReason *string `json:"stop_reason"`
	} `json:"choices"`
	Usage *usageObject `json:"usage"`
	Error *struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	} `json:"error"`
}

func (l *lab) decode(s string) chunk {
	l.t.Helper()
	var c chunk
	if err := json.Unmarshal([]byte(s), &c); err != nil {
		l.t.Fatalf("%v in %q", err, s)
	}
	return c
}

// answer is a reply understood.
type answer struct {
	reply
	tokenAt         []time.Duration // of events with choices but not only a role, the end token's included
	textAt          []time.Duration // of events with output
	text, reasoning map[int]string
	tool, args      string
	finish          map[int]string
	stopReason      string
	usage           *usageObject // the last
	done            bool
}

func (l *lab) post(ctx context.Context, path, id, body string) reply {
	l.t.Helper()
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("X-Request-ID", id)
	resp, err := l.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	r := reply{status: resp.StatusCode, header: resp.Header}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		b, err := io.ReadAll(resp.Body)
		r.body, r.err = string(b), err
		return r
	}
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadString('\n')
		if data, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "data: "); ok {
			r.events = append(r.events, sse{time.Since(start), data})
		}
		if err == io.EOF {
			return r
		}
		if err != nil {
			r.err = err
			return r
		}
	}
}

// ask posts a body to the chat endpoint and understands the answer.
func (l *lab) ask(body string) answer { return l.askAt("/v1/chat/completions", body) }

func (l *lab) askAt(path, body string) answer {
	l.t.Helper()
	return l.understand(l.post(context.Background(), path, "", body))
}

func (l *lab) understand(r reply) answer {
	l.t.Helper()
	a := answer{reply: r, text: map[int]string{}, reasoning: map[int]string{}, finish: map[int]string{}}
	events := r.events
	if events == nil && r.body != "" {
		events = []sse{{0, r.body}}
	}
	for _, e := range events {
		if e.data == "[DONE]" {
			a.done = true
			continue
		}
		c := l.decode(e.data)
		if c.Usage != nil {
			a.usage = c.Usage
		}
		for _, ch := range c.Choices {
			d := ch.Delta
			if d.Role == nil {
				d2 := ch.Message
				if d2.Role != nil {
					d = d2
				}
				a.tokenAt = append(a.tokenAt, e.at)
			}
			output := false
			if d.Content != nil {
				a.text[ch.Index] += *d.Content
				output = output || *d.Content != ""
			}
			if d.Reasoning != nil {
				a.reasoning[ch.Index] += *d.Reasoning
				output = true
			}
			a.text[ch.Index] += ch.Text
			output = output || ch.Text != ""
			for _, tc := range d.ToolCalls {
				a.tool += tc.Function.Name
				a.args += tc.Function.Arguments
				output = true
			}
			if output {
				a.textAt = append(a.textAt, e.at)
			}
			if ch.Finish != nil {
				a.finish[ch.Index] = *ch.Finish
			}
			if ch.StopReason != nil {
				a.stopReason = *ch.StopReason
			}
		}
	}
	return a
}

// mustOK fails the test unless the answer is a whole one.
func (l *lab) mustOK(a answer) answer {
	l.t.Helper()
	if a.err != nil || a.status != 200 || len(a.finish) == 0 {
		l.t.Fatalf("status %d, error %v, finish %v, body %q, %d events", a.status, a.err, a.finish, a.body, len(a.events))
	}
	return a
}
