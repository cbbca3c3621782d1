// Package mockserver is a simulated inference server that speaks the OpenAI
// API as vLLM does. It stands in for a GPU in tests, demonstrations and checks
// of the client: it batches continuously, caches prefixes, speculates, commits
// faults on purpose, and keeps a log of when each token really left.
//
// It is an http.Handler, and does not listen by itself:
//
//	srv, err := mockserver.New(mockserver.Default())
//	…
//	go http.Serve(listener, srv)
package mockserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Server is the simulated server. It is safe for concurrent use.
type Server struct {
	cfg       Config
	created   int64 // wall time in seconds
	monotonic int64 // CLOCK_MONOTONIC at the origin
	engine    *engine
	truth     truthLog
	mux       *http.ServeMux
	requests  atomic.Int64
	closeOnce sync.Once
}

// New starts the engine of a server. The caller must Close it.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure simulated server: %w", err)
	}
	if cfg.Origin.IsZero() {
		cfg.Origin = time.Now()
	}
	s := &Server{
		cfg:       cfg,
		created:   time.Now().Unix(),
		monotonic: MonotonicAt(cfg.Origin),
		truth:     truthLog{out: cfg.TruthLog, keep: cfg.KeepTruth},
		mux:       http.NewServeMux(),
	}
	s.engine = newEngine(&s.cfg, cfg.Origin)
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, chatAPI) })
	s.mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, completionsAPI) })
	s.mux.HandleFunc("POST /v1/responses", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, responsesAPI) })
	s.mux.HandleFunc("POST /v1/embeddings", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, embeddingsAPI) })
	s.mux.HandleFunc("POST /reset_prefix_cache", func(http.ResponseWriter, *http.Request) { s.engine.resetCache() })
	s.mux.HandleFunc("POST /tokenize", serveTokenize)
	s.mux.HandleFunc("GET /v1/models", s.serveModels)
	s.mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, []byte(`{"version":"`+version+`"}`))
	})
	s.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, s.engine.exposition())
	})
	go s.engine.run()
	return s, nil
}

// version cannot be taken for one of vLLM, so that no report of a simulated
// run passes for a real one.
const version = "0.0.0+tokmark.simulator"

// api is one of the OpenAI APIs.
type api uint8

const (
	chatAPI api = iota
	completionsAPI
	responsesAPI
	embeddingsAPI
)

// chats reports whether the answer is that of a chat: with tools and reasoning.
func (a api) chats() bool { return a == chatAPI || a == responsesAPI }

// ServeHTTP answers POST /v1/chat/completions, /v1/completions, /v1/responses,
// /v1/embeddings, /tokenize and /reset_prefix_cache, and GET /v1/models, /health, /version and /metrics.
//
// Metrics have vLLM's names. After Close, and after some faults, it panics with
// http.ErrAbortHandler to cut the connection, as net/http provides for.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "tokmark-simulator")
	s.mux.ServeHTTP(w, r)
}

// serveTokenize counts the tokens of a prompt, as vLLM does.
func serveTokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Prompt string `json:"prompt"`
	}
	const most = 16 << 20
	if err := json.NewDecoder(io.LimitReader(r.Body, most)).Decode(&body); err != nil {
		writeJSON(w, http.StatusBadRequest, []byte(`{"error":{"message":"the body is no JSON","type":"BadRequestError","code":400}}`))
		return
	}
	writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"count":%d}`, CountTokens(body.Prompt)))
}

// Close stops the engine; requests in flight lose their connection. It returns
// the first error of writing the truth log so far. Safe to call again.
func (s *Server) Close() error {
	s.closeOnce.Do(func() { close(s.engine.quit) })
	<-s.engine.ended
	return s.truth.firstError()
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has left is noticed elsewhere
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	type object = map[string]any
	b, err := json.Marshal(object{"object": "list", "data": []object{{
		"id": s.cfg.Model, "object": "model", "created": s.created, "owned_by": "vllm",
		"root": s.cfg.Model, "parent": nil, "max_model_len": s.cfg.MaxModelLen,
	}}})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	writeJSON(w, http.StatusOK, b)
}

// largestBody bounds a request body in bytes.
const largestBody = 256 << 20

// exchange is one request in the hands of its handler.
type exchange struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	fault drawn
	truth Truth
	q     *request
	job   *job
	sent  int // tokens
}

// serve answers a request for tokens.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, of api) {
	x := &exchange{s: s, w: w, r: r, truth: Truth{
		Number: s.requests.Add(1) - 1, RequestID: r.Header.Get("X-Request-ID"), Endpoint: r.URL.Path,
		MonotonicOrigin: s.monotonic, Received: s.engine.now(),
		Queued: record.Unset, Admitted: record.Unset, PrefillEnd: record.Unset, Finished: record.Unset, EngineEnd: record.Unset,
		PromptTokens: record.Unknown, CachedTokens: record.Unknown,
		OutputTokens: record.Unknown, ReasoningTokens: record.Unknown,
	}}
	defer x.end() // even when the handler is aborted
	x.fault = s.cfg.Faults.draw(s.cfg.Seed, x.truth.Number)

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestBody))
	if err != nil {
		x.truth.Disconnected = r.Context().Err() != nil
		x.refuse(badRequest("", "read request body: %v", err))
		return
	}
	if x.fault.slowHeader && !x.sleep(s.cfg.Faults.headerDelay()) {
		x.abort()
	}
	switch x.fault.kind {
	case FaultRateLimited:
		x.truth.Fault = x.fault.kind
		w.Header().Set("Retry-After", strconv.Itoa(s.cfg.Faults.retryAfterSeconds()))
		x.refuse(&apiError{http.StatusTooManyRequests, "RateLimitError", "", "Rate limit exceeded (simulated)."})
		return
	case FaultUnavailable:
		x.truth.Fault = x.fault.kind
		x.refuse(&apiError{http.StatusServiceUnavailable, "ServiceUnavailableError", "", "The server is overloaded (simulated)."})
		return
	}
	q, j, refusal := s.parseRequest(body, of, x.truth.Number)
	if refusal != nil {
		x.refuse(refusal)
		return
	}
	x.q, x.job = q, j
	j.received = x.truth.Received
	x.truth.PromptTokens = record.Count(j.prompt.tokens)
	x.truth.OutputTokens, x.truth.ReasoningTokens = 0, 0

	id := fmt.Sprintf("%016x", mix(s.cfg.Seed^mix(uint64(x.truth.Number))))
	id = [...]string{chatAPI: "chatcmpl-", completionsAPI: "cmpl-", responsesAPI: "resp_", embeddingsAPI: "embd-"}[of] + id
	created := time.Now().Unix()
	streaming := q.Stream && !x.fault.ignoreStream && of != embeddingsAPI
	opts := q.StreamOptions
	continuous := streaming && opts != nil && opts.IncludeUsage && opts.ContinuousUsageStats
	st := newStream(id, created, s.cfg.Model, of, j, continuous)
	if streaming {
		x.stream(st)
	} else {
		x.answer(st, id, created)
	}
}

// end completes the truth and hands it over.
func (x *exchange) end() {
	t := &x.truth
	if x.job != nil {
		t.Queued, t.Admitted, t.PrefillEnd, t.EngineEnd = x.s.engine.times(x.job)
		if t.Admitted.IsSet() {
			t.CachedTokens = record.Count(x.s.engine.cachedTokens(x.job))
		}
	}
	t.Finished = x.s.engine.now()
	x.s.truth.add(t)
}

func (x *exchange) refuse(e *apiError) {
	x.truth.Status = e.status
	writeJSON(x.w, e.status, e.object())
}

// sleep waits, and reports false if the client left or the server was closed
// before the time was over.
func (x *exchange) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.r.Context().Done():
	case <-x.s.engine.quit:
	}
	x.truth.Disconnected = true
	return false
}

// silence waits out a stall.
func (x *exchange) silence() bool {
	if d := x.s.cfg.Faults.StallFor; d > 0 {
		return x.sleep(d)
	}
	select {
	case <-x.r.Context().Done():
	case <-x.s.engine.quit:
	}
	x.truth.Disconnected = true
	return false
}

// abort cuts the connection. It does not return.
func (x *exchange) abort() { panic(http.ErrAbortHandler) }

// reset closes the connection with a TCP reset where it is TCP. It does not
// return.
func (x *exchange) reset() {
	if conn, _, err := http.NewResponseController(x.w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // without it the close is an orderly one
		}
		_ = conn.Close()
	}
	x.abort()
}

// mail waits for steps of the engine, and takes them in exchange for a slice
// that is not needed any more. It reports false if the client left or the
// server was closed.
func (x *exchange) mail(spent []step) ([]step, bool) {
	select {
	case <-x.job.notify:
		return x.s.engine.take(x.job, spent), true
	case <-x.r.Context().Done():
	case <-x.s.engine.quit:
	}
	x.truth.Disconnected = true
	return nil, false
}

// count notes steps that have been sent.
func (x *exchange) count(steps []step) {
	for _, s := range steps {
		o := x.job.seqs[s.choice].out
		x.sent += s.end - s.first
		x.truth.OutputTokens += record.Count(s.end - s.first)
		x.truth.ReasoningTokens += record.Count(o.reasoningIn(s.first, s.end))
		if s.end == o.length {
			if x.truth.FinishReasons == nil {
				x.truth.FinishReasons = make([]string, len(x.job.seqs))
			}
			x.truth.FinishReasons[s.choice] = o.finish
		}
	}
}

// usage is valid once the engine has admitted the job.
func (x *exchange) usage(chat bool) usage {
	u := usage{chat: chat, prompt: x.job.prompt.tokens, cached: x.s.engine.cachedTokens(x.job)}
	for _, s := range x.job.seqs {
		u.completion += s.out.length
		u.reasoning += s.out.reasoning
	}
	return u
}

// stream answers with a stream.
func (x *exchange) stream(st *stream) {
	flusher := http.NewResponseController(x.w)
	x.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	x.truth.Streamed, x.truth.Status = true, http.StatusOK
	flush := func() bool {
		_, err := x.w.Write(st.buf)
		st.buf = st.buf[:0]
		if err == nil {
			err = flusher.Flush()
		}
		if err != nil {
			x.truth.Disconnected = true
		}
		return err == nil
	}
	if x.fault.roleFirst {
		for i := range st.outs {
			st.role(i)
		}
		if !flush() {
			return
		}
	}
	if x.s.truth.wanted() {
		x.truth.Events = make(record.Chunks, 0, min(st.outs[0].length, 1<<12))
	}
	x.s.engine.submit(x.job)
	defer x.s.engine.cancel(x.job)

	var steps []step
	left := len(x.job.seqs)
	for left > 0 {
		var ok bool
		if steps, ok = x.mail(steps); !ok {
			x.abort()
		}
		left -= st.ends(steps)
		if x.strikes(left) && !x.strike(st) {
			if len(st.buf) > 0 {
				flush()
			}
			return
		}
		for _, s := range steps {
			if kinds := st.step(s); x.s.truth.wanted() {
				x.truth.Events = append(x.truth.Events, record.Chunk{
					Tokens: uint16(s.end - s.first), Kind: kinds, Choice: uint8(min(s.choice, 255)),
				})
			}
		}
		if left == 0 {
			switch o := x.q.StreamOptions; {
			case st.of == responsesAPI:
				st.completed(x.usage(st.chat))
			case o != nil && o.IncludeUsage:
				st.usage(x.usage(st.chat))
				fallthrough
			default:
				st.str("data: [DONE]\n\n")
			}
		}
		x.stamp(len(steps))
		if !flush() {
			return
		}
		x.count(steps)
	}
}

// stamp sets the time of the newest n events: one write carries them all.
func (x *exchange) stamp(n int) {
	if len(x.truth.Events) == 0 {
		return
	}
	now := x.s.engine.now()
	events := x.truth.Events[len(x.truth.Events)-n:]
	for i := range events {
		events[i].At = now
	}
}

// strikes reports whether a fault in mid-answer is due; left is the number of
// choices that are not at their end.
func (x *exchange) strikes(left int) bool {
	return x.fault.kind != NoFault && x.truth.Fault == NoFault &&
		(x.sent >= x.s.cfg.Faults.afterTokens() || left == 0)
}

// strike commits the fault, and reports whether the stream goes on.
func (x *exchange) strike(st *stream) bool {
	x.truth.Fault = x.fault.kind
	switch x.fault.kind {
	case FaultReset:
		x.reset()
	case FaultStall:
		if !x.silence() {
			x.abort()
		}
		return true
	case FaultStreamError:
		if st.of == responsesAPI {
			st.failed()
			return false
		}
		st.str("data: ")
		st.buf = append(st.buf, simulatedError().object()...)
		st.str("\n\ndata: [DONE]\n\n")
	}
	return false
}

func simulatedError() *apiError {
	return &apiError{http.StatusInternalServerError, "InternalServerError", "", "The engine failed (simulated)."}
}

// answer answers with one JSON document.
func (x *exchange) answer(st *stream, id string, created int64) {
	x.s.engine.submit(x.job)
	defer x.s.engine.cancel(x.job)
	var all, steps []step
	for left := len(x.job.seqs); left > 0; {
		var ok bool
		if steps, ok = x.mail(steps); !ok {
			x.abort()
		}
		left -= st.ends(steps)
		all = append(all, steps...)
	}
	x.truth.Fault = x.fault.kind
	doc := st.document(id, created, x.s.cfg.Model, x.usage(st.chat))
	switch x.fault.kind {
	case FaultStreamError:
		x.refuse(simulatedError())
		return
	case FaultReset:
		x.reset()
	case FaultStall:
		if !x.silence() {
			x.abort()
		}
	case FaultTruncate:
		x.truth.Status = http.StatusOK
		x.w.Header().Set("Content-Type", "application/json")
		x.w.Header().Set("Content-Length", strconv.Itoa(len(doc)))
		_, _ = x.w.Write(doc[:len(doc)/2])
		_ = http.NewResponseController(x.w).Flush()
		x.abort()
	}
	x.truth.Status = http.StatusOK
	x.count(all)
	writeJSON(x.w, http.StatusOK, doc)
}
