package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// The places that a Sample may come from.
const (
	FromClient = "client" // this process and its machine
	FromServer = "server" // the server's metrics endpoint
	FromGPU    = "gpu"    // a GPU exporter or nvidia-smi
)

// Sample is what was seen of one place at one moment. A value that could not
// be had is not in Values. The names of the client's values are the constants
// Client…; those of a server are in package target.
type Sample struct {
	At     Time               `json:"at"`
	From   string             `json:"from"`
	Values map[string]float64 `json:"values"`
}

// The client's own telemetry. Shares and rates are over the time since the
// sample before.
const (
	ClientCPU         = "cpu_cores"            // cores that the process used
	ClientMachineCPU  = "machine_cpu_share"    // share of all cores in use, by anybody
	ClientSchedP99    = "sched_latency_p99_s"  // wait of a runnable goroutine for a processor
	ClientSchedMax    = "sched_latency_max_s"  // the bucket of the longest such wait
	ClientGCPauseMax  = "gc_pause_max_s"       // the bucket of the longest stop of the world
	ClientGCCycles    = "gc_cycles"            // collections finished
	ClientHeap        = "heap_bytes"           // live and dead objects
	ClientGoroutines  = "goroutines"           // now
	ClientOpenFiles   = "open_files"           // now
	ClientWaiting     = "records_waiting"      // finished records that wait for the collector
	ClientWaitingRoom = "records_waiting_room" // how many may
	ClientInFlight    = "in_flight"            // requests, now
	ClientSent        = "sent"                 // requests of the phase so far
	ClientChunks      = "chunks"               // events with output so far
	ClientClockSteps  = "clock_steps"          // times that the wall clock was set, so far
	ClientLateMean    = "lateness_mean_s"      // of requests started, by our own doing
	ClientLateMax     = "lateness_max_s"
	ClientLagMean     = "receive_lag_mean_s" // of reads with output, after the kernel
	ClientLagMax      = "receive_lag_max_s"
	ClientSharedReads = "shared_reads"    // share of events with output that one read brought with an earlier one
	ClientDue         = "due"             // sessions that the schedule wanted to be sent so far, of the measured ones
	ClientAsked       = "asked_in_flight" // requests that may be in flight, now
)

// SampleWriter appends samples to the samples file. It is not safe for
// concurrent use.
type SampleWriter struct {
	f   *os.File
	buf *bufio.Writer
	enc *json.Encoder
}

// NewSampleWriter creates the samples file, which must not exist yet.
func (d Dir) NewSampleWriter() (*SampleWriter, error) {
	f, err := os.OpenFile(d.Path(SamplesFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create samples file: %w", err)
	}
	buf := bufio.NewWriter(f)
	return &SampleWriter{f: f, buf: buf, enc: json.NewEncoder(buf)}, nil
}

// Write appends a sample and hands it to the operating system: there are few.
func (w *SampleWriter) Write(s Sample) error {
	if err := errors.Join(w.enc.Encode(s), w.buf.Flush()); err != nil {
		return fmt.Errorf("write %s: %w", w.f.Name(), err)
	}
	return nil
}

// Close closes the file.
func (w *SampleWriter) Close() error { return w.f.Close() }

// Samples reads the samples file; a directory without one has no samples.
// Lines that cannot be read are left out and counted.
func (d Dir) Samples() (samples []Sample, damaged int, err error) {
	b, err := os.ReadFile(d.Path(SamplesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read samples: %w", err)
	}
	for line := range bytes.Lines(b) {
		var s Sample
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if json.Unmarshal(line, &s) != nil {
			damaged++
			continue
		}
		samples = append(samples, s)
	}
	return samples, damaged, nil
}
