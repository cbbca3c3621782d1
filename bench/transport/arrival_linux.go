package transport

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stampedConn is a TCP connection whose Read asks the kernel for the arrival
// of what it returns. As any connection under net/http it has one reader at a
// time.
type stampedConn struct {
	net.Conn
	raw  syscall.RawConn
	read func(fd uintptr) bool // made once, so that a Read allocates nothing

	arrival atomic.Int64

	// What one Read passes to recvmsg and gets back.
	msg     unix.Msghdr
	iov     unix.Iovec
	control [128]byte
	n       int
	errno   syscall.Errno
}

// kernelStamps tells whether this system's kernel gives receive stamps.
const kernelStamps = true

// KeepStamping makes the kernel stamp what the machine receives until the
// returned function is called. Without it the kernel begins some milliseconds
// after the first connection asks for stamps, and the first events have none.
func KeepStamping() (stop func()) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	_ = askForStamps(uintptr(fd)) // without them there is nothing to keep
	return func() { _ = unix.Close(fd) }
}

func askForStamps(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPING_NEW,
		unix.SOF_TIMESTAMPING_RX_SOFTWARE|unix.SOF_TIMESTAMPING_SOFTWARE)
}

// withArrivals returns the connection with kernel stamps, or as it is if the
// system does not give them.
func withArrivals(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn // Unix sockets have no receive stamps
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	var serr error
	err = raw.Control(func(fd uintptr) { serr = askForStamps(fd) })
	if err != nil || serr != nil {
		return conn
	}
	c := &stampedConn{Conn: conn, raw: raw}
	c.msg.Iov = &c.iov
	c.msg.SetIovlen(1)
	c.msg.Control = &c.control[0]
	c.read = func(fd uintptr) bool {
		for {
			c.msg.SetControllen(len(c.control))
			n, _, errno := syscall.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&c.msg)), 0)
			if errno == unix.EINTR {
				continue
			}
			c.n, c.errno = int(n), errno
			return errno != unix.EAGAIN
		}
	}
	return c
}

// Read reads as any connection does, and keeps the arrival.
func (c *stampedConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.Conn.Read(p)
	}
	c.iov.Base = &p[0]
	c.iov.SetLen(len(p))
	err := c.raw.Read(c.read)
	c.iov.Base = nil
	switch {
	case err != nil:
		return 0, err // closed, or past the deadline
	case c.errno != 0:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: c.errno}
	case c.n == 0:
		return 0, io.EOF
	}
	c.arrival.Store(c.stamp())
	return c.n, nil
}

// stamp finds the receive stamp in the control message; 0: there is none.
func (c *stampedConn) stamp() int64 {
	const header = unix.SizeofCmsghdr
	b := c.control[:min(int(c.msg.Controllen), len(c.control))]
	for len(b) >= header {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		size := int(h.Len)
		if size < header || size > len(b) {
			return 0
		}
		if h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPING_NEW && size >= header+16 {
			sec := int64(binary.NativeEndian.Uint64(b[header:]))
			nsec := int64(binary.NativeEndian.Uint64(b[header+8:]))
			if sec == 0 {
				return 0
			}
			return sec*1e9 + nsec
		}
		next := unix.CmsgSpace(size - unix.CmsgLen(0))
		if next > len(b) {
			return 0
		}
		b = b[next:]
	}
	return 0
}

func (c *stampedConn) lastArrival() int64 { return c.arrival.Load() }
