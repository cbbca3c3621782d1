//go:build !linux

package transport

import "net"

// withArrivals returns the connection as it is: this system's kernel gives no
// receive stamps.
func withArrivals(conn net.Conn) net.Conn { return conn }

// kernelStamps tells whether this system's kernel gives receive stamps.
const kernelStamps = false

// KeepStamping does nothing here.
func KeepStamping() (stop func()) { return func() {} }
