// Package hdrlog writes the latency distributions of a run as an HdrHistogram
// log, for HdrHistogram's own tools and plotters.
package hdrlog

import (
	"io"
	"time"

	"github.com/tokmark/tokmark/bench/hist"
	"github.com/tokmark/tokmark/report"
)

// Write writes one interval, from the start to the end of measuring, with a
// histogram for each of the tags TTFT, ITL, ICL (gaps between events) and E2E
// that has values, in nanoseconds. The same summary gives the same bytes.
func Write(w io.Writer, s *report.Summary) error {
	m := s.Manifest
	at := func(ns int64) time.Time {
		if m.Origin.IsZero() {
			return time.Unix(0, ns)
		}
		return m.Origin.Add(time.Duration(ns))
	}
	start := at(int64(max(m.MeasureStart, 0)))
	end := at(int64(max(m.MeasureEnd, m.MeasureStart, 0)))
	log, err := hist.NewLog(w, "tokmark latencies in nanoseconds by tag", start)
	if err != nil {
		return err
	}
	for _, h := range s.Histograms {
		if err := log.Write(h.Tag, start, end, h.Histogram); err != nil {
			return err
		}
	}
	return nil
}
