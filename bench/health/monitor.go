// Package health watches the client itself while it measures: a server is
// not slow because its client was.
package health

import (
	"math"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Every is how often the client is looked at; its open files, which are costly
// to count, only every filesEvery-th time.
const (
	Every      = 250 * time.Millisecond
	filesEvery = 4
)

// The runtime's own figures that are read.
const (
	schedLatencies = "/sched/latencies:seconds"
	gcPauses       = "/sched/pauses/total/gc:seconds"
	gcCycles       = "/gc/cycles/total:gc-cycles"
	heapBytes      = "/memory/classes/heap/objects:bytes"
)

// Monitor takes samples of the client. It serves one goroutine.
type Monitor struct {
	read  []metrics.Sample
	sched *delta
	pause *delta

	last       time.Time
	lastCPU    time.Duration
	lastBusy   float64
	lastTotal  float64
	lastCycles uint64
	taken      int
}

// NewMonitor returns a monitor whose first sample covers the time from now on.
func NewMonitor() *Monitor {
	m := &Monitor{
		read:  []metrics.Sample{{Name: schedLatencies}, {Name: gcPauses}, {Name: gcCycles}, {Name: heapBytes}},
		sched: &delta{}, pause: &delta{},
	}
	m.Sample()
	return m
}

// Sample returns what happened since the one before. Values that this system
// does not give are missing.
func (m *Monitor) Sample() map[string]float64 {
	now := time.Now()
	span := now.Sub(m.last).Seconds()
	v := map[string]float64{record.ClientGoroutines: float64(runtime.NumGoroutine())}
	if cpu, ok := processCPU(); ok {
		if span > 0 {
			v[record.ClientCPU] = (cpu - m.lastCPU).Seconds() / span
		}
		m.lastCPU = cpu
	}
	if busy, total, ok := machineCPU(); ok {
		if total > m.lastTotal {
			v[record.ClientMachineCPU] = (busy - m.lastBusy) / (total - m.lastTotal)
		}
		m.lastBusy, m.lastTotal = busy, total
	}
	if m.taken%filesEvery == 1 {
		if n, ok := openFiles(); ok {
			v[record.ClientOpenFiles] = float64(n)
		}
	}
	m.taken++
	metrics.Read(m.read)
	for _, s := range m.read {
		switch s.Name {
		case schedLatencies:
			if h := histogram(s); h != nil {
				m.sched.next(h)
				put(v, record.ClientSchedP99, m.sched.quantile(0.99))
				put(v, record.ClientSchedMax, m.sched.quantile(1))
			}
		case gcPauses:
			if h := histogram(s); h != nil {
				m.pause.next(h)
				put(v, record.ClientGCPauseMax, m.pause.quantile(1))
			}
		case gcCycles:
			if s.Value.Kind() == metrics.KindUint64 {
				n := s.Value.Uint64()
				v[record.ClientGCCycles] = float64(n - m.lastCycles)
				m.lastCycles = n
			}
		case heapBytes:
			if s.Value.Kind() == metrics.KindUint64 {
				v[record.ClientHeap] = float64(s.Value.Uint64())
			}
		}
	}
	m.last = now
	return v
}

func put(v map[string]float64, name string, x float64) {
	if !math.IsNaN(x) {
		v[name] = x
	}
}

func histogram(s metrics.Sample) *metrics.Float64Histogram {
	if s.Value.Kind() != metrics.KindFloat64Histogram {
		return nil
	}
	return s.Value.Float64Histogram()
}

// delta is what came into a runtime histogram between two readings.
type delta struct {
	before, since []uint64
	bounds        []float64
}

func (d *delta) next(h *metrics.Float64Histogram) {
	if len(d.before) != len(h.Counts) {
		d.before = make([]uint64, len(h.Counts))
		d.since = make([]uint64, len(h.Counts))
	}
	d.bounds = h.Buckets
	for i, n := range h.Counts {
		d.since[i] = n - d.before[i]
		d.before[i] = n
	}
}

// quantile returns the upper bound of the bucket that holds the quantile: the
// truth is no worse. NaN: nothing came in.
func (d *delta) quantile(q float64) float64 {
	var total uint64
	for _, n := range d.since {
		total += n
	}
	if total == 0 {
		return math.NaN()
	}
	rank := uint64(math.Ceil(q * float64(total)))
	var seen uint64
	for i, n := range d.since {
		if seen += n; seen >= max(rank, 1) {
			if up := d.bounds[i+1]; !math.IsInf(up, 1) {
				return up
			}
			return d.bounds[i]
		}
	}
	return math.NaN()
}
