package hist

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Log writes histograms in the HdrHistogram log format, version 1.3, which
// HdrHistogram's own tools read. It is not safe for concurrent use.
type Log struct {
	w *hdrhistogram.HistogramLogWriter
}

// NewLog writes the head of a log to w: a comment of one line, the format's
// version, the start time and the legend. The same arguments give the same
// bytes.
func NewLog(w io.Writer, comment string, start time.Time) (*Log, error) {
	l := &Log{w: hdrhistogram.NewHistogramLogWriter(w)}
	if strings.ContainsAny(comment, "\r\n") {
		return nil, fmt.Errorf("write histogram log: the comment %q has more than one line", comment)
	}
	err := errors.Join(
		l.w.OutputComment("["+comment+"]"),
		l.w.OutputLogFormatVersion(),
		l.w.OutputStartTime(start.UnixMilli()),
		l.w.OutputLegend(),
	)
	if err != nil {
		return nil, fmt.Errorf("write histogram log: %w", err)
	}
	return l, nil
}

// Write adds one histogram of the interval from start to end under a tag,
// which must not be empty nor hold a comma or white space. Values stay in
// nanoseconds; the interval's largest is shown in milliseconds, as
// HdrHistogram's tools expect.
func (l *Log) Write(tag string, start, end time.Time, h *Histogram) error {
	if tag == "" || strings.ContainsAny(tag, ", \t\r\n") {
		return fmt.Errorf("write histogram log: tag %q is empty or holds a comma or white space", tag)
	}
	// Tag and times belong to the histogram in that library, and are set only
	// while it is written.
	h.h.SetTag(tag)
	h.h.SetStartTimeMs(start.UnixMilli())
	h.h.SetEndTimeMs(end.UnixMilli())
	if err := l.w.OutputIntervalHistogram(h.h); err != nil {
		return fmt.Errorf("write histogram log: %s: %w", tag, err)
	}
	return nil
}
