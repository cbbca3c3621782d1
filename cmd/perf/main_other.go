//go:build !linux

// Command perf measures tokmark itself. It needs Linux: it reads /proc, pins
// processes and takes the system calls of epoll.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "perf: this needs Linux")
	os.Exit(1)
}
