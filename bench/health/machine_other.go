//go:build !linux

package health

func machineCPU() (busy, total float64, ok bool) { return 0, 0, false }
