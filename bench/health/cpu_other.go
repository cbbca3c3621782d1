//go:build !unix

package health

import "time"

func processCPU() (time.Duration, bool) { return 0, false }

func openFiles() (int, bool) { return 0, false }
