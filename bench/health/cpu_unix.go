//go:build unix

package health

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU is the processor time that this process has used.
func processCPU() (time.Duration, bool) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}

// openFiles counts the descriptors of this process.
func openFiles() (int, bool) {
	f, err := os.Open("/dev/fd")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return 0, false
	}
	return len(names) - 1, true // one is the listing itself
}
