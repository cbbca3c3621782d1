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
	try := fmt.Sprintf("raise it (ulimit -n %d)", conns+reservedFiles)
	if have > 0 {
		try += fmt.Sprintf(", or ask for no more than %d in flight", have)
	}
	limit := "the limit on open files"
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		limit += fmt.Sprintf(" is %d, of which the run itself needs %d: it", lim.Cur, reservedFiles)
	}
	return fmt.Errorf("open %d connections: %s allows %d; %s", conns, limit, have, try)
}
