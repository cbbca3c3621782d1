package bench

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tokmark/tokmark/bench/record"
)

// spinFor is how long before the due time the timer fires; a tight loop covers
// the rest. A yielding loop would keep the poller, and with it every read, off
// the processor.
const spinFor = 30 * time.Microsecond

// alarm waits on a timerfd that the runtime's own poller watches: some 20 µs
// late where a runtime timer is 500, without a thread of its own.
type alarm struct {
	clock func() record.Time
	stop  <-chan struct{}
	f     *os.File
	fd    int
	ended chan struct{}
}

func newPreciseWaiter(clock func() record.Time, stop <-chan struct{}) (waiter, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create timer for due times: %w", err)
	}
	a := &alarm{clock: clock, stop: stop, f: os.NewFile(uintptr(fd), "timerfd"), fd: fd, ended: make(chan struct{})}
	go func() {
		select {
		case <-stop:
			_ = a.f.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
		case <-a.ended:
		}
	}()
	return a, nil
}

func (a *alarm) until(t record.Time) bool {
	if d := t.Sub(a.clock()) - spinFor; d > 0 {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
		if err := unix.TimerfdSettime(a.fd, 0, &spec, nil); err != nil {
			return sleeper{clock: a.clock, stop: a.stop}.until(t)
		}
		var ticks [8]byte
		if _, err := a.f.Read(ticks[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return sleeper{clock: a.clock, stop: a.stop}.until(t)
		}
	}
	if closed(a.stop) {
		return false
	}
	for a.clock() < t {
	}
	return true
}

func (a *alarm) close() {
	close(a.ended)
	_ = a.f.Close()
}
