package health

import (
	"bytes"
	"os"
	"strconv"
)

// machineCPU is the time that all processors together were busy, and all of
// their time, in ticks.
func machineCPU() (busy, total float64, ok bool) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := bytes.Fields(line)
	const idle, iowait, steal = 4, 5, 8 // columns of the line "cpu"
	if len(fields) <= steal || string(fields[0]) != "cpu" {
		return 0, 0, false
	}
	for i, f := range fields[1 : steal+1] {
		n, err := strconv.ParseFloat(string(f), 64)
		if err != nil {
			return 0, 0, false
		}
		total += n
		if col := i + 1; col != idle && col != iowait {
			busy += n
		}
	}
	return busy, total, true
}
