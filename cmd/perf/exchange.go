//go:build linux

package main

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
)

// exchange is one request as the server or a client saw it. All times are of
// CLOCK_MONOTONIC in nanoseconds.
type exchange struct {
	ID     string
	Start  int64   // server: the request was read; client: it was sent
	Events []int64 // of each event with output: sent, or seen
	// Lag is how much later than Events the program itself saw them.
	Lag  []uint32
	Over bool // the answer came to its end
}

func writeLog(path string, log []*exchange) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(gob.NewEncoder(w).Encode(log), w.Flush(), f.Close())
}

func readLog(path string) ([]*exchange, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var log []*exchange
	if err := gob.NewDecoder(bufio.NewReaderSize(f, 1<<20)).Decode(&log); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return log, nil
}
