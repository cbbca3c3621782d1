//go:build linux

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How the server answers.
const (
	modePaced = "paced" // each open stream gets its event in turn, at a fixed rate
	modeFlat  = "flat"  // as fast as the sockets take them
	modeShort = "short" // the whole answer in one write, at once
)

// server answers POST with a stream and GET with a list of models. It is one
// loop that never sleeps and never asks the Go scheduler, so that it is never
// the limit and knows the moment of each write.
type server struct {
	clock  clock
	mode   string
	rate   float64 // of one slot, writes per second
	tokens int     // of an answer
	join   int     // events in one write
	spread bool    // the first answers have different lengths, so that ends do not coincide

	epoll, listen int
	conns         []*conn // by descriptor
	slots         []*conn // streams that get events, one each turn
	free          []int   // slots
	queue         []*conn // streams that wait for one
	admitted      int
	told          bool // that all slots were taken
	log           []*exchange

	event, joined, role []byte
}

// conn is one connection and the answer that goes over it.
type conn struct {
	fd     int
	in     []byte
	out    []byte // what the socket did not take
	x      *exchange
	slot   int
	tokens int
}

// frame is a part of a body in chunked encoding.
func frame(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// The events are shaped as those of vLLM: some 270 bytes with their frame.
const (
	eventHead  = `data: {"id":"chatcmpl-8f2c1b8e6c3f4a0d9e7b5a1c2d3e4f50","object":"chat.completion.chunk","created":1764450000,"model":"perf","choices":[{"index":0,"delta":`
	eventTail  = `,"logprobs":null,"finish_reason":null,"token_ids":null}],"system_fingerprint":"fp_0123456789"}` + "\n\n"
	answerHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
	models     = `{"object":"list","data":[{"id":"perf","object":"model"}]}`
)

// ending is what follows the last token: finish reason, usage, end.
func ending(tokens int) string {
	return frame(eventHead[:len(eventHead)-len(`"delta":`)]+`"delta":{},"finish_reason":"length"}]}`+"\n\n") +
		frame(fmt.Sprintf(`data: {"id":"chatcmpl-8f2c","object":"chat.completion.chunk","created":1764450000,"model":"perf","choices":[],"usage":{"prompt_tokens":16,"total_tokens":%d,"completion_tokens":%d}}`+"\n\n", 16+tokens, tokens)) +
		frame("data: [DONE]\n\n") + "0\r\n\r\n"
}

func serveMain(args []string) error {
	fs := flag.NewFlagSet("server", flag.ContinueOnError)
	s := &server{clock: newClock()}
	fs.StringVar(&s.mode, "mode", modePaced, "paced, flat or short")
	fs.Float64Var(&s.rate, "rate", 50, "writes per second of one stream")
	fs.IntVar(&s.tokens, "tokens", 500, "events with output in an answer")
	fs.IntVar(&s.join, "join", 1, "events in one write")
	fs.BoolVar(&s.spread, "spread", false, "first answers of different lengths")
	slots := fs.Int("slots", 1000, "streams that get events at one time")
	log := fs.String("log", "", "file for what was sent when")
	if err := fs.Parse(args); err != nil {
		return err
	}
	s.slots = make([]*conn, *slots)
	for i := range s.slots {
		s.free = append(s.free, *slots-1-i)
	}
	s.role = []byte(answerHead + frame(eventHead+`{"role":"assistant","content":""}`+eventTail))
	s.event = []byte(frame(eventHead + `{"content":" token"}` + eventTail))
	s.joined = bytes.Repeat(s.event, s.join)

	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	port, err := s.open()
	if err != nil {
		return err
	}
	fmt.Printf("ready 127.0.0.1:%d\n", port)
	s.loop()
	if *log == "" {
		return nil
	}
	return writeLog(*log, s.log)
}

func (s *server) open() (port int, err error) {
	if s.listen, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err = unix.Bind(s.listen, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	if err = unix.Listen(s.listen, 4096); err != nil {
		return 0, err
	}
	name, err := unix.Getsockname(s.listen)
	if err != nil {
		return 0, err
	}
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return 0, err
	}
	for _, fd := range []int{s.listen, 0} { // stdin: its end is ours
		if err := watch(s.epoll, fd); err != nil {
			return 0, err
		}
	}
	return name.(*unix.SockaddrInet4).Port, nil
}

func watch(epoll, fd int) error {
	return unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// loop runs until stdin ends. Its system calls are raw: they never block, and
// the runtime need not know of them.
func (s *server) loop() {
	const between = 16 // writes between two looks at the sockets, at most
	var (
		turn    int
		start   = s.clock.now()
		step    = 1e9 / (s.rate * float64(len(s.slots)))
		ticks   float64
		since   = between
		idle    int
		polling = true
	)
	for polling {
		switch {
		case s.mode == modePaced && float64(s.clock.now()-start) >= ticks*step:
			ticks++
			if c := s.slots[turn]; c != nil {
				s.send(c)
				since++
			}
			if turn++; turn == len(s.slots) {
				turn = 0
			}
			if since < between {
				continue
			}
		case s.mode == modeFlat && idle < len(s.slots):
			if c := s.slots[turn]; c != nil && s.send(c) {
				since++
				idle = 0
			} else {
				idle++
			}
			if turn++; turn == len(s.slots) {
				turn = 0
			}
			if since < between {
				continue
			}
		}
		since, idle = 0, 0
		polling = s.poll()
	}
}

// poll looks at the sockets once; false: stdin has ended.
func (s *server) poll() bool {
	var events [128]unix.EpollEvent
	n := rawCall(unix.SYS_EPOLL_WAIT, s.epoll, unsafe.Pointer(&events[0]), len(events))
	for _, e := range events[:max(n, 0)] {
		switch fd := int(e.Fd); fd {
		case 0:
			return false
		case s.listen:
			s.accept()
		default:
			s.read(s.conns[fd])
		}
	}
	return true
}

// rawCall is a system call on a descriptor, a place in memory and a length that
// does not block. It returns -1 for any error.
func rawCall(call uintptr, fd int, p unsafe.Pointer, n int) int {
	r, _, errno := syscall.RawSyscall6(call, uintptr(fd), uintptr(p), uintptr(n), 0, 0, 0)
	if errno != 0 {
		return -1
	}
	return int(r)
}

func (s *server) accept() {
	for {
		fd, _, err := unix.Accept4(s.listen, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		for len(s.conns) <= fd {
			s.conns = append(s.conns, nil)
		}
		s.conns[fd] = &conn{fd: fd, slot: -1}
		if watch(s.epoll, fd) != nil {
			s.close(s.conns[fd])
		}
	}
}

func (s *server) close(c *conn) {
	if c.slot >= 0 {
		s.slots[c.slot] = nil
		s.free = append(s.free, c.slot)
	}
	c.x, c.slot = nil, -1
	s.conns[c.fd] = nil
	_ = unix.Close(c.fd)
	for i, q := range s.queue {
		if q == c {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			break
		}
	}
	s.admit()
}

func (s *server) read(c *conn) {
	if c == nil {
		return
	}
	var buf [16 << 10]byte
	n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	if errno == unix.EAGAIN {
		return
	}
	if errno != 0 || n == 0 {
		s.close(c)
		return
	}
	now := s.clock.now()
	data := buf[:n]
	if len(c.in) > 0 {
		c.in = append(c.in, data...)
		data = c.in
	}
	end := bytes.Index(data, []byte("\r\n\r\n"))
	if end < 0 || len(data) < end+4+contentLength(data[:end]) {
		if len(c.in) == 0 {
			c.in = append(c.in, data...)
		}
		return // the rest comes later
	}
	s.request(c, data[:end], now)
	c.in = c.in[:0]
}

func contentLength(head []byte) int {
	n, _ := strconv.Atoi(string(field(head, "\r\nContent-Length: ")))
	return n
}

// field is the value of a header field, in the spelling of net/http.
func field(head []byte, name string) []byte {
	i := bytes.Index(head, []byte(name))
	if i < 0 {
		return nil
	}
	v := head[i+len(name):]
	if i := bytes.IndexByte(v, '\r'); i >= 0 {
		v = v[:i]
	}
	return v
}

func (s *server) request(c *conn, head []byte, now int64) {
	if bytes.HasPrefix(head, []byte("GET ")) {
		s.write(c, fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(models), models))
		return
	}
	c.x = &exchange{ID: string(field(head, "\r\nX-Request-Id: ")), Start: now}
	s.log = append(s.log, c.x)
	if s.mode == modeShort {
		answer := append(append([]byte{}, s.role...), bytes.Repeat(s.event, s.tokens)...)
		s.write(c, append(answer, ending(s.tokens)...))
		c.x.Over = true
		return
	}
	s.queue = append(s.queue, c)
	s.admit()
}

// admit gives free slots to streams that wait.
func (s *server) admit() {
	for len(s.queue) > 0 && len(s.free) > 0 {
		c := s.queue[0]
		s.queue = s.queue[1:]
		c.slot = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		s.slots[c.slot] = c
		c.tokens = s.tokens
		if s.spread && s.admitted < len(s.slots) {
			const scatter = 7919 // a prime: neighbours end far apart
			c.tokens = max(s.join, s.admitted*scatter%len(s.slots)*s.tokens/len(s.slots))
		}
		s.admitted++
		c.x.Events = make([]int64, 0, c.tokens)
		s.write(c, s.role)
	}
	if len(s.free) == 0 && !s.told {
		s.told = true
		_, _ = os.Stdout.WriteString("full\n")
	}
}

// send writes the next events of a stream; false: the socket is full.
func (s *server) send(c *conn) bool {
	if len(c.out) > 0 && !s.write(c, nil) {
		return false
	}
	n := min(s.join, c.tokens-len(c.x.Events))
	part := s.joined[:n*len(s.event)]
	now := s.clock.now()
	if len(c.x.Events)+n == c.tokens {
		part = append(append([]byte{}, part...), ending(c.tokens)...)
	}
	if !s.write(c, part) {
		return false
	}
	for range n {
		c.x.Events = append(c.x.Events, now)
	}
	if len(c.x.Events) == c.tokens {
		c.x.Over = true
		s.slots[c.slot] = nil
		s.free = append(s.free, c.slot)
		c.slot, c.x = -1, nil
		s.admit()
	}
	return true
}

// write sends b after what is left from before. It is true if the socket took
// any of it: the rest then goes first the next time.
func (s *server) write(c *conn, b []byte) bool {
	whole := b
	if len(c.out) > 0 {
		c.out = append(c.out, b...)
		whole = c.out
	}
	if len(whole) == 0 {
		return true
	}
	n, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(c.fd), uintptr(unsafe.Pointer(&whole[0])), uintptr(len(whole)))
	if errno != 0 {
		// Full; if it is broken, the next read finds out.
		c.out = c.out[:max(0, len(c.out)-len(b))]
		return false
	}
	if int(n) < len(whole) {
		c.out = append(c.out[:0], whole[n:]...)
	} else {
		c.out = c.out[:0]
	}
	return true
}
