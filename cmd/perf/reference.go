//go:build linux

package main

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reference is the least that a reader of many streams can do: one thread, one
// epoll, one read for each that is ready, a stamp right after it, and a search
// for the ends of events. It parses nothing and writes nothing before its end.
type reference struct {
	clock clock
	to    unix.SockaddrInet4
	epoll int
	conns []*refConn // by descriptor
	log   []*exchange
	stop  int64
}

type refConn struct {
	fd    int
	carry []byte // the start of an event
	x     *exchange
	done  bool // [DONE] came
}

func referenceMain(args []string) error {
	fs := flag.NewFlagSet("reference", flag.ContinueOnError)
	r := &reference{clock: newClock()}
	addr := fs.String("addr", "", "server")
	streams := fs.Int("streams", 1000, "open at one time")
	duration := fs.Duration("duration", 0, "how long")
	log := fs.String("log", "", "file for what was seen when")
	if err := fs.Parse(args); err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(*addr)
	if err != nil {
		return err
	}
	r.to = unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	r.stop = r.clock.now() + int64(*duration)
	for range *streams {
		if err := r.connect(); err != nil {
			return err
		}
	}
	var (
		events [128]unix.EpollEvent
		buf    = make([]byte, 64<<10)
	)
	for r.clock.now() < r.stop {
		// The wait is a raw call as well: no other goroutine has work.
		n := rawWait(r.epoll, unsafe.Pointer(&events[0]), len(events))
		for _, e := range events[:max(n, 0)] {
			if err := r.read(r.conns[e.Fd], buf); err != nil {
				return err
			}
		}
	}
	return writeLog(*log, r.log)
}

func (r *reference) connect() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &r.to); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	for len(r.conns) <= fd {
		r.conns = append(r.conns, nil)
	}
	c := &refConn{fd: fd}
	r.conns[fd] = c
	if err := watch(r.epoll, fd); err != nil {
		return err
	}
	return r.send(c)
}

func (r *reference) send(c *refConn) error {
	const body = `{"model":"perf","stream":true,"messages":[{"role":"user","content":"Say something."}]}`
	c.x = &exchange{ID: fmt.Sprintf("reference-%d", len(r.log)), Events: make([]int64, 0, 1024)}
	c.done, c.carry = false, c.carry[:0]
	r.log = append(r.log, c.x)
	request := fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: perf\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n\r\n%s", c.x.ID, len(body), body)
	c.x.Start = r.clock.now()
	if rawCall(unix.SYS_WRITE, c.fd, unsafe.Pointer(&request[0]), len(request)) != len(request) {
		return fmt.Errorf("the request was not taken in one write")
	}
	return nil
}

func (r *reference) read(c *refConn, buf []byte) error {
	n := rawCall(unix.SYS_READ, c.fd, unsafe.Pointer(&buf[0]), len(buf))
	now := r.clock.now()
	if n == 0 {
		return fmt.Errorf("the server closed a connection")
	}
	if n < 0 {
		return nil
	}
	data := buf[:n]
	if len(c.carry) > 0 {
		c.carry = append(c.carry, data...)
		data = c.carry
	}
	for {
		end := bytes.Index(data, []byte("\n\n"))
		if end < 0 {
			break
		}
		switch event := data[:end]; {
		case bytes.Contains(event, []byte(`"content":" `)):
			c.x.Events = append(c.x.Events, now)
		case bytes.HasSuffix(event, []byte("[DONE]")):
			c.done = true
		}
		data = data[end+2:]
	}
	if c.done && bytes.HasSuffix(data, []byte("0\r\n\r\n")) {
		c.x.Over = true
		return r.send(c)
	}
	c.carry = append(c.carry[:0], data...)
	return nil
}

// rawWait waits for events, up to 20 ms.
func rawWait(epoll int, events unsafe.Pointer, n int) int {
	const ms = 20
	r, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_WAIT, uintptr(epoll), uintptr(events), uintptr(n), ms, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(r)
}
