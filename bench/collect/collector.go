// Package collect receives the records of a run: one goroutine passes them on
// to be kept and owns the live figures.
package collect

import (
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench/hist"
	"github.com/tokmark/tokmark/bench/record"
)

// flushEvery is how often records are handed to the operating system: no more
// than that is lost if the process is killed.
const flushEvery = 500 * time.Millisecond

// snapshotEvery is how often the live figures are renewed.
const snapshotEvery = 200 * time.Millisecond

// Keeper keeps records, as *record.Writer does.
type Keeper interface {
	Write(*record.Record) error
	Flush() error
}

// Snapshot is the state of a run at one moment, over measured requests that
// have ended. Quantiles are approximate (HDR histograms, three digits); final
// figures come from the records.
type Snapshot struct {
	Ended, OK, Failed int64
	OutputTokens      int64 // of valid requests whose count is known
	Events            int64 // with output, of valid requests
	// First is the earliest start, Last the latest output of valid requests; 0
	// while there is none.
	First, Last    record.Time
	TTFT50, TTFT99 time.Duration
	// ITL is over requests, as in the report; 0 while none is known.
	ITL50, ITL99 time.Duration
	Warmup       int64 // warmup requests that have ended
}

// Collector receives the records of one run. Snapshot is safe for concurrent
// use; Collect runs once.
type Collector struct {
	// Tokenizer counts what the answers do not tell, before they are kept. It is
	// to be set before Collect.
	Tokenizer Tokenizer

	last atomic.Pointer[Snapshot]
}

// Snapshot returns the newest state.
func (c *Collector) Snapshot() Snapshot {
	if s := c.last.Load(); s != nil {
		return *s
	}
	return Snapshot{}
}

// Collect hands every record of in to keep until in is closed, and then those
// that had to wait to be counted: they are lost if the process is killed before.
// It returns the first error of keep; records that come after it are still taken
// off in, so that the run can end, and counted, but no longer kept. failed, if
// not nil, is called once at that error.
func (c *Collector) Collect(in <-chan *record.Record, keep Keeper, failed func(error)) error {
	var (
		snap      Snapshot
		ttft, itl = hist.New(), hist.New()
		flush     = time.NewTicker(flushEvery)
		renew     = time.NewTicker(snapshotEvery)
		keepErr   error
		dirty     bool
		late      []*record.Record // to be counted when the run is over
	)
	defer flush.Stop()
	defer renew.Stop()
	check := func(err error) {
		if err != nil && keepErr == nil {
			keepErr = err
			if failed != nil {
				failed(err)
			}
		}
	}
	write := func(r *record.Record) {
		c.Tokenizer.count(r)
		if keepErr == nil {
			check(keep.Write(r))
			dirty = true
		}
	}
	publish := func() {
		s := snap
		s.TTFT50, s.TTFT99 = quantile(ttft, 0.5), quantile(ttft, 0.99)
		s.ITL50, s.ITL99 = quantile(itl, 0.5), quantile(itl, 0.99)
		c.last.Store(&s)
	}
	for {
		select {
		case r, ok := <-in:
			if !ok {
				publish()
				for _, r := range late {
					write(r)
				}
				if keepErr == nil {
					check(keep.Flush())
				}
				return keepErr
			}
			if c.Tokenizer.waits(r) {
				late = append(late, r)
			} else {
				write(r)
			}
			snap.add(r, ttft, itl)
		case <-flush.C:
			if dirty && keepErr == nil {
				check(keep.Flush())
				dirty = false
			}
		case <-renew.C:
			publish()
		}
	}
}

func (s *Snapshot) add(r *record.Record, ttft, itl *hist.Histogram) {
	if r.Phase != record.PhaseMeasure {
		s.Warmup++
		return
	}
	s.Ended++
	switch {
	case r.Valid():
		s.OK++
	case r.Outcome.IsError():
		s.Failed++
		return
	default:
		return
	}
	if s.OK == 1 {
		s.First = r.Start
	}
	last, _ := r.LastOutput()
	s.First, s.Last = min(s.First, r.Start), max(s.Last, last)
	s.Events += int64(len(r.Chunks))
	if n, ok := r.OSL(); ok {
		s.OutputTokens += n
	}
	if d, ok := r.TTFT(); ok {
		ttft.Record(int64(d))
	}
	if d, ok := r.ITL(); ok {
		itl.Record(int64(d))
	}
}

// quantile returns 0 of an empty histogram: nothing is known yet.
func quantile(h *hist.Histogram, q float64) time.Duration {
	ns, _ := h.Quantile(q)
	return time.Duration(ns)
}
