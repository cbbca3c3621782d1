// Package sse turns the bytes of a server-sent event stream into events, each
// with the arrival of the read that completed it.
//
// It follows the parsing rules of the WHATWG HTML standard (section "Server-sent
// events") but for three things that a client of inference servers needs. A CR
// at the end of a read ends its line at once, so that no event waits for bytes
// that come later. An event that a proper end of the stream leaves open is
// handed out, marked Unterminated. An event whose data is empty, which the
// standard would dispatch, is dropped: it can carry nothing.
//
// The package imports nothing of this module.
package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// DefaultMaxEvent is a limit for one event that no honest server reaches: 64 MiB.
const DefaultMaxEvent = 64 << 20

const (
	firstBuffer = 16 << 10 // room for a read of a usual transport
	keepBuffer  = 1 << 20  // Reset drops larger buffers
	maxNoBytes  = 100      // reads in a row that may bring nothing
)

// ErrTooLarge is what an error wraps if one event, or the body, passes its
// limit. The text of the error names the limit.
var ErrTooLarge = errors.New("too large")

// Stamp says when a read returned.
type Stamp struct {
	// At is the arrival as an offset in nanoseconds from an origin that the
	// caller knows.
	At int64
	// Lag is how many nanoseconds after At the program saw it.
	Lag uint32
}

// Event is one event with data. Name and Data are valid until the next call of
// a method of the Reader.
type Event struct {
	Name []byte // value of the last event field; empty: there was none
	Data []byte // the data lines, joined with LF; never empty
	Stamp
	// SameRead: an earlier event was completed by the same read.
	SameRead bool
	// Unterminated: the stream ended properly before the blank line that
	// completes the event.
	Unterminated bool
}

// Reader reads events. It is not safe for concurrent use.
type Reader struct {
	src      io.Reader
	stamp    func() Stamp
	maxEvent int

	// Bytes buf[:end] have been read. Of these, buf[:open] are done with, the
	// lines before line are parsed, and no line ends before scan. A line feed
	// lies at lf, if lf < end; if lf < scan nobody has looked yet.
	buf                       []byte
	open, line, scan, lf, end int

	last     Stamp // of the last read that brought bytes
	reads    int   // how many brought bytes
	lastRead int   // the read that completed the last event
	err      error // what ended the stream
	failed   bool  // we ended it: no event comes any more

	name             []byte
	hasData          bool
	dataFrom, dataTo int

	comments int
	comment  Stamp // of the read that brought the first one
	started  bool  // the byte order mark, if any, is behind us
	skipLF   bool  // the line before ended with CR: an LF belongs to it
}

// NewReader returns a Reader of r. It calls stamp exactly once right after each
// Read of r that brought bytes, before it looks at them; every event that the
// read completed carries that stamp. One event, its other fields and comments
// included, may hold maxEvent bytes; 0 stands for DefaultMaxEvent.
func NewReader(r io.Reader, stamp func() Stamp, maxEvent int) *Reader {
	d := new(Reader)
	d.Reset(r, stamp, maxEvent)
	return d
}

// Reset makes d read from r as if it were new. It keeps its buffers, unless a
// huge event has made them large.
func (d *Reader) Reset(r io.Reader, stamp func() Stamp, maxEvent int) {
	if maxEvent <= 0 {
		maxEvent = DefaultMaxEvent
	}
	buf, name := d.buf, d.name[:0]
	if len(buf) > keepBuffer {
		buf = nil
	}
	if cap(name) > keepBuffer {
		name = nil
	}
	*d = Reader{src: r, stamp: stamp, maxEvent: maxEvent, buf: buf, name: name, lf: -1}
}

// Next returns the next event with data. At a proper end of the stream it
// returns io.EOF; any other error of the underlying reader is returned as it
// is, after the events that were completed before it. An error is final.
func (d *Reader) Next() (Event, error) {
	d.start()
	for {
		from, to, ok := d.nextLine()
		if !ok {
			to = d.end
		}
		if to-d.open > d.maxEvent {
			d.fail("an event", d.maxEvent)
		}
		switch {
		case !ok && d.err == nil:
			d.fill()
		case !ok, d.failed:
			return d.rest()
		case from < to:
			d.field(from, to)
			if !d.hasData && len(d.name) == 0 {
				d.open = d.line // nothing of it is needed any more
			}
		default:
			e, has := d.event()
			d.open = d.line
			if has {
				return e, nil
			}
		}
	}
}

// Peek returns the first byte of the stream that is no white space (a byte
// order mark is skipped as well), and consumes nothing that Next or Whole
// needs. It is meant to be called before them, and shows whether a whole JSON
// value comes in place of a stream.
func (d *Reader) Peek() (byte, error) {
	d.start()
	for i := d.line; ; {
		for ; i < d.end; i++ {
			switch b := d.buf[i]; b {
			case ' ', '\t', '\r', '\n':
			default:
				return b, nil
			}
		}
		if d.end-d.open > d.maxEvent {
			d.fail("white space before the first event", d.maxEvent)
		}
		if d.err != nil {
			return 0, d.err
		}
		i -= d.open
		d.fill()
		i += d.open
	}
}

// Whole reads the rest of the stream as one body of at most maxBody bytes (0
// stands for DefaultMaxEvent), what Peek has buffered included, and returns it
// with the stamp of the last read that brought bytes. The body is valid until
// the next call of Reset. A proper end is a nil error; at any other what came
// before it is returned with the error.
func (d *Reader) Whole(maxBody int) ([]byte, Stamp, error) {
	if maxBody <= 0 {
		maxBody = DefaultMaxEvent
	}
	d.start()
	for d.err == nil && d.end-d.open <= maxBody {
		d.fill()
	}
	body := d.buf[d.open:d.end]
	if len(body) > maxBody {
		body = body[:maxBody]
		d.fail("the body", maxBody)
	}
	d.skip(d.end)
	if d.err == io.EOF {
		return body, d.last, nil
	}
	return body, d.last, d.err
}

// Buffered returns what has been read and is not yet part of an event. It is
// valid until the next call.
func (d *Reader) Buffered() []byte { return d.buf[d.open:d.end] }

// Ended reports whether the last read came upon the proper end of the stream:
// nothing is left to read.
func (d *Reader) Ended() bool { return d.err == io.EOF }

// Comments returns how many comment lines have been read.
func (d *Reader) Comments() int { return d.comments }

// FirstComment returns when the first comment line was read; ok is false if
// there was none.
func (d *Reader) FirstComment() (at Stamp, ok bool) { return d.comment, d.comments > 0 }

// fail ends the stream for good: what is buffered is given up.
func (d *Reader) fail(what string, limit int) {
	d.failed = true
	d.err = fmt.Errorf("read event stream: %s of more than %d bytes: %w", what, limit, ErrTooLarge)
	d.skip(d.end)
}

// skip moves on to buf[to:], as the start of an event.
func (d *Reader) skip(to int) { d.open, d.line, d.scan, d.lf = to, to, to, to-1 }

// start skips a byte order mark, once.
func (d *Reader) start() {
	const bom = "\xEF\xBB\xBF"
	for !d.started {
		have := d.buf[:min(d.end, len(bom))]
		if d.err == nil && len(have) < len(bom) && string(have) == bom[:len(have)] {
			d.fill()
			continue
		}
		d.started = true
		if string(have) == bom {
			d.skip(len(bom))
		}
	}
}

// nextLine takes the next whole line out of the buffer and returns its place,
// without its end; ok is false if there is none.
func (d *Reader) nextLine() (from, to int, ok bool) {
	if d.skipLF && d.line < d.end {
		d.skipLF = false
		if d.buf[d.line] == '\n' {
			if d.open == d.line {
				d.open++
			}
			d.line++
			d.scan = max(d.scan, d.line)
		}
	}
	if d.lf < d.scan {
		d.lf = d.end
		if i := bytes.IndexByte(d.buf[d.scan:d.end], '\n'); i >= 0 {
			d.lf = d.scan + i
		}
	}
	to = d.lf
	if i := bytes.IndexByte(d.buf[d.scan:d.lf], '\r'); i >= 0 {
		to = d.scan + i
		d.skipLF = true
	} else if d.lf == d.end {
		d.scan = d.end
		return 0, 0, false
	}
	from = d.line
	d.line, d.scan = to+1, to+1
	return from, to, true
}

// field takes one line that is not blank.
func (d *Reader) field(from, to int) {
	line := d.buf[from:to]
	colon := bytes.IndexByte(line, ':')
	name, value := line, to
	switch {
	case colon == 0:
		if d.comments++; d.comments == 1 {
			d.comment = d.last
		}
		return
	case colon > 0:
		name, value = line[:colon], from+colon+1
		if value < to && d.buf[value] == ' ' {
			value++
		}
	}
	switch string(name) {
	case "data":
		if !d.hasData {
			d.hasData, d.dataFrom, d.dataTo = true, value, to
			return
		}
		// Lines are joined in place: what is overwritten has been parsed.
		d.buf[d.dataTo] = '\n'
		d.dataTo++
		d.dataTo += copy(d.buf[d.dataTo:], d.buf[value:to])
	case "event":
		// A copy, since the joining may overwrite the line.
		d.name = append(d.name[:0], d.buf[value:to]...)
	}
}

// event ends the open event; ok is false if it has no data.
func (d *Reader) event() (e Event, ok bool) {
	if d.hasData && d.dataTo > d.dataFrom {
		e = Event{
			Name:     d.name,
			Data:     d.buf[d.dataFrom:d.dataTo:d.dataTo],
			Stamp:    d.last,
			SameRead: d.lastRead == d.reads,
		}
		d.lastRead = d.reads
		ok = true
	}
	d.hasData = false
	d.name = d.name[:0]
	return e, ok
}

// rest returns the event that the end of the stream left open, if the end was
// a proper one, and else the error that ended it.
func (d *Reader) rest() (Event, error) {
	if d.err != io.EOF {
		return Event{}, d.err
	}
	if d.line < d.end {
		d.field(d.line, d.end)
	}
	d.skip(d.end)
	if e, ok := d.event(); ok {
		e.Unterminated = true
		return e, nil
	}
	return Event{}, d.err
}

// fill reads once, after making room.
func (d *Reader) fill() {
	if d.open == d.end {
		d.move(d.buf)
	} else if d.end == len(d.buf) {
		// Moving only if at least half is free keeps the cost of a byte constant.
		if d.end-d.open <= len(d.buf)/2 {
			d.move(d.buf)
		} else {
			d.move(make([]byte, 2*len(d.buf)))
		}
	}
	if len(d.buf) == 0 {
		d.buf = make([]byte, firstBuffer)
	}
	d.lf = d.scan - 1
	for range maxNoBytes {
		n, err := d.src.Read(d.buf[d.end:])
		if n > 0 {
			d.last = d.stamp()
			d.reads++
			d.end += n
		}
		if n > 0 || err != nil {
			d.err = err
			return
		}
	}
	d.err = io.ErrNoProgress
}

// move puts the bytes that are still needed at the start of to.
func (d *Reader) move(to []byte) {
	copy(to, d.buf[d.open:d.end])
	by := d.open
	d.buf = to
	d.open, d.line, d.scan, d.end = 0, d.line-by, d.scan-by, d.end-by
	d.dataFrom, d.dataTo = d.dataFrom-by, d.dataTo-by
}
