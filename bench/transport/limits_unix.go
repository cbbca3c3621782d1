//go:build unix

package transport

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// reservedFiles are descriptors that a run needs beside its connections.
const reservedFiles = 64

// OpenFiles returns how many connections the process may hold open at once,
// after raising its limit as far as it is allowed to. ok is false where the
// system does not tell.
func OpenFiles() (conns int, ok bool) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 0, false
	}
	if lim.Cur < lim.Max {
		raised := lim
		raised.Cur = lim.Max
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			lim = raised
		}
	}
	const most = 1 << 20
	if lim.Cur > most {
		return most, true
	}
	return max(0, int(lim.Cur)-reservedFiles), true
}

// CheckOpenFiles reports an error if so many connections at once are more than
// the process may hold.
func CheckOpenFiles(conns int) error {
	have, ok := OpenFiles()
	if !ok || conns <= have {
		return nil
	}
	return fmt.Errorf("open %d connections: the limit on open files allows %d; raise it (ulimit -n %d) or lower the concurrency", conns, have, conns+reservedFiles)
}
