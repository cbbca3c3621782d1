package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	gosse "github.com/tmaxmax/go-sse"
	"pgregory.net/rapid"
)

// got is an Event that outlives the next call.
type got struct {
	Name, Data   string
	At           int64
	SameRead     bool
	Unterminated bool
}

// chunks is a reader that gives one of its pieces a Read, then err.
type chunks struct {
	pieces []string
	err    error
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.pieces) == 0 {
		return 0, c.err
	}
	n := copy(p, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; c.pieces[0] == "" {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

// counting returns a stamp function whose n-th call says n, from 1.
func counting() func() Stamp {
	var n int64
	return func() Stamp { n++; return Stamp{At: n, Lag: uint32(10 * n)} }
}

func readAll(t testing.TB, d *Reader) ([]got, error) {
	t.Helper()
	var all []got
	for {
		e, err := d.Next()
		if err != nil {
			return all, err
		}
		if int64(e.Lag) != 10*e.At {
			t.Fatalf("lag %d does not belong to the stamp of read %d", e.Lag, e.At)
		}
		all = append(all, got{string(e.Name), string(e.Data), e.At, e.SameRead, e.Unterminated})
	}
}

func read(t testing.TB, err error, pieces ...string) ([]got, error) {
	t.Helper()
	return readAll(t, NewReader(&chunks{pieces, err}, counting(), 0))
}

// content drops what depends on how the stream was cut.
func content(events []got) []got {
	out := slices.Clone(events)
	for i := range out {
		out[i].At, out[i].SameRead = 0, false
	}
	return out
}

var forms = []struct {
	name, in string
	want     []got
	comments int
}{
	{name: "nothing", in: ""},
	{name: "blank lines only", in: "\n\n\r\n\r\r\n"},
	{name: "LF", in: "data: a\n\ndata: b\n\n", want: []got{{Data: "a"}, {Data: "b"}}},
	{name: "CRLF", in: "data: a\r\n\r\ndata: b\r\n\r\n", want: []got{{Data: "a"}, {Data: "b"}}},
	{name: "CR", in: "data: a\r\rdata: b\r\r", want: []got{{Data: "a"}, {Data: "b"}}},
	{name: "mixed ends", in: "data: a\r\ndata: b\n\rdata: c\r\n\n", want: []got{{Data: "a\nb"}, {Data: "c"}}},
	{name: "CR LF LF", in: "data: a\r\n\ndata: b\n\n", want: []got{{Data: "a"}, {Data: "b"}}},
	{name: "no space", in: "data:a\n\n", want: []got{{Data: "a"}}},
	{name: "one space is cut, not two", in: "data:  a \n\n", want: []got{{Data: " a "}}},
	{name: "a tab stays", in: "data:\ta\n\n", want: []got{{Data: "\ta"}}},
	{name: "colon in data", in: "data: a: b\n\n", want: []got{{Data: "a: b"}}},
	{name: "BOM", in: "\xEF\xBB\xBFdata: a\n\n", want: []got{{Data: "a"}}},
	{name: "BOM only at the start", in: "data: a\n\n\xEF\xBB\xBFdata: b\n\n", want: []got{{Data: "a"}}},
	{name: "two BOMs", in: "\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n"},
	{name: "half a BOM", in: "\xEF\xBB"},
	{name: "half a BOM and more", in: "\xEF\xBBdata: a\n\ndata: b\n\n", want: []got{{Data: "b"}}},
	{name: "comments", in: ": one\n\n:two\ndata: a\n:\n: four\n\n:", want: []got{{Data: "a"}}, comments: 5},
	{name: "lines are joined", in: "data: {\ndata:  1\ndata\ndata: }\n\n", want: []got{{Data: "{\n 1\n\n}"}}},
	{name: "CRLF lines are joined with LF", in: "data: a\r\ndata: b\r\n\r\n", want: []got{{Data: "a\nb"}}},
	{name: "name", in: "event: error\ndata: a\n\ndata: b\n\n", want: []got{{Name: "error", Data: "a"}, {Data: "b"}}},
	{name: "name between long lines", in: "data: a\nevent: error\ndata: bbbbbbbbbbbbbbbbbbbbbb\n\n",
		want: []got{{Name: "error", Data: "a\nbbbbbbbbbbbbbbbbbbbbbb"}}},
	{name: "last name wins", in: "event: x\nevent: y\ndata: a\n\n", want: []got{{Name: "y", Data: "a"}}},
	{name: "name without data is dropped with its block", in: "event: x\n: y\n\ndata: a\n\n", want: []got{{Data: "a"}}, comments: 1},
	{name: "other fields", in: "id: 1\nretry: 5\nfoo: bar\nfoo\n\nid: 2\ndata: a\nretry: 1\n\n", want: []got{{Data: "a"}}},
	{name: "case matters", in: "Data: a\nDATA: b\n\n"},
	{name: "space before the name", in: " data: a\n\n"},
	{name: "space before the colon", in: "data : a\n\n"},
	{name: "empty data", in: "data\n\ndata:\n\ndata: \n\n"},
	{name: "two empty data lines", in: "data\ndata:\n\n", want: []got{{Data: "\n"}}},
	{name: "empty first line", in: "data:\ndata: a\n\n", want: []got{{Data: "\na"}}},
	{name: "NUL and bad UTF-8 pass", in: "data: a\x00\xff\n\n", want: []got{{Data: "a\x00\xff"}}},
	{name: "open event", in: "data: a\n\ndata: b\n", want: []got{{Data: "a"}, {Data: "b", Unterminated: true}}},
	{name: "open line", in: "data: a\n\nevent: e\ndata: b\ndata: c", want: []got{{Data: "a"}, {Name: "e", Data: "b\nc", Unterminated: true}}},
	{name: "open line ended with CR", in: "data: b\r", want: []got{{Data: "b", Unterminated: true}}},
	{name: "open event without data", in: "data: a\n\nevent: b\ndata", want: []got{{Data: "a"}}},
	{name: "DONE", in: "data: [DONE]\n\n", want: []got{{Data: "[DONE]"}}},
}

// Each form gives the same events in one read, in every cut into two reads, in
// every cut into three, and byte by byte.
func TestForms(t *testing.T) {
	for _, c := range forms {
		t.Run(c.name, func(t *testing.T) {
			check := func(pieces ...string) {
				t.Helper()
				d := NewReader(&chunks{pieces, io.EOF}, counting(), 0)
				events, err := readAll(t, d)
				if err != io.EOF {
					t.Fatalf("%q: error %v, want EOF", pieces, err)
				}
				if diff := cmp.Diff(c.want, content(events)); diff != "" {
					t.Fatalf("%q: (-want +got)\n%s", pieces, diff)
				}
				if d.Comments() != c.comments {
					t.Fatalf("%q: %d comments, want %d", pieces, d.Comments(), c.comments)
				}
			}
			check(c.in)
			check(strings.Split(c.in, "")...)
			for i := 1; i < len(c.in); i++ {
				check(c.in[:i], c.in[i:])
				for j := i + 1; j < len(c.in); j++ {
					check(c.in[:i], c.in[i:j], c.in[j:])
				}
			}
		})
	}
}

func TestStamps(t *testing.T) {
	tests := []struct {
		name   string
		pieces []string
		want   []got
	}{
		{"one read each", []string{"data: a\n\n", "data: b\n\n"},
			[]got{{Data: "a", At: 1}, {Data: "b", At: 2}}},
		{"events of one read share its stamp", []string{"data: a\n\ndata: b\n\n", "data: c\n\n"},
			[]got{{Data: "a", At: 1}, {Data: "b", At: 1, SameRead: true}, {Data: "c", At: 2}}},
		{"the read of the last newline counts", []string{"data: a", "\n", "\n"},
			[]got{{Data: "a", At: 3}}},
		{"tail and head in one read", []string{"data: a\n", "\ndata: b", "\n\n"},
			[]got{{Data: "a", At: 2}, {Data: "b", At: 3}}},
		{"a CR at the end of a read completes", []string{"data: a\r\n\r", "\ndata: b\r\n\r\n"},
			[]got{{Data: "a", At: 1}, {Data: "b", At: 2}}},
		{"comments are no events", []string{": x\n\ndata: a\n\n", ": y\n\n", "data: b\n\n"},
			[]got{{Data: "a", At: 1}, {Data: "b", At: 3}}},
		{"an open event has the last read", []string{"data: a\n\nda", "ta: b"},
			[]got{{Data: "a", At: 1}, {Data: "b", At: 2, Unterminated: true}}},
		{"an open event may share a read", []string{"data: a\n\ndata: b"},
			[]got{{Data: "a", At: 1}, {Data: "b", At: 1, SameRead: true, Unterminated: true}}},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			events, _ := read(t, io.EOF, c.pieces...)
			if diff := cmp.Diff(c.want, events); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// The stamp is taken once for each read that brought bytes, and none for the
// others.
func TestStampOnceARead(t *testing.T) {
	stamps := 0
	src := &chunks{[]string{"data: a\n\ndata: b\n\n", "", ": c\n", "data: d\n\n"}, io.EOF}
	d := NewReader(src, func() Stamp { stamps++; return Stamp{} }, 0)
	for {
		if _, err := d.Next(); err != nil {
			break
		}
	}
	if stamps != 3 {
		t.Errorf("%d stamps, want 3", stamps)
	}
}

// Any error but EOF says that the end is missing: what is open is no event.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, err := range []error{io.ErrUnexpectedEOF, broken, fmt.Errorf("wrapped: %w", io.EOF)} {
		events, end := read(t, err, "data: a\n\ndata: b\n")
		if end != err {
			t.Errorf("error %v, want %v unchanged", end, err)
		}
		if diff := cmp.Diff([]got{{Data: "a", At: 1}}, events); diff != "" {
			t.Errorf("%v: (-want +got)\n%s", err, diff)
		}
	}

	// Bytes that come together with an error count before it.
	d := NewReader(iotest.DataErrReader(strings.NewReader("data: a\n\ndata: b")), counting(), 0)
	events, err := readAll(t, d)
	want := []got{{Data: "a", At: 1}, {Data: "b", At: 1, SameRead: true, Unterminated: true}}
	if diff := cmp.Diff(want, events); diff != "" || err != io.EOF {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
	if _, err := d.Next(); err != io.EOF {
		t.Errorf("second end: %v, want EOF", err)
	}

	if _, err := read(t, nil, "data: a\n\n"); err != io.ErrNoProgress {
		t.Errorf("a reader that brings nothing: %v, want %v", err, io.ErrNoProgress)
	}
}

func TestTooLarge(t *testing.T) {
	in := "data: a\n\n: a comment of some length\ndata: " + strings.Repeat("x", 34) + "\n\ndata: b\n\n"
	fits := len("data: \n") + 34
	for _, limit := range []int{fits, fits - 1} {
		for _, pieces := range [][]string{{in}, strings.Split(in, ""), {in[:50], in[50:]}} {
			d := NewReader(&chunks{slices.Clone(pieces), io.EOF}, counting(), limit)
			events, err := readAll(t, d)
			switch {
			case limit == fits:
				if len(events) != 3 || err != io.EOF {
					t.Errorf("limit %d, %d reads: %d events, %v; want 3, EOF", limit, len(pieces), len(events), err)
				}
			case len(events) != 1 || !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprint(limit)):
				t.Errorf("limit %d, %d reads: %d events, %v; want 1 and an error that names the limit", limit, len(pieces), len(events), err)
			}
			if _, again := d.Next(); again != err {
				t.Errorf("second call: %v, want %v again", again, err)
			}
		}
	}
	// Comments while the server waits do not add up to an event.
	if _, err := readAll(t, NewReader(strings.NewReader(strings.Repeat(": ping\n\n", 1000)), counting(), 16)); err != io.EOF {
		t.Errorf("many comments: %v, want EOF", err)
	}
}

func TestPeekAndWhole(t *testing.T) {
	tests := []struct {
		name   string
		pieces []string
		first  byte
		body   string
		at     int64
	}{
		{"JSON", []string{`{"a":`, `1}`}, '{', `{"a":1}`, 2},
		{"blank lines first", []string{"\n", "\r\n \t", "{}", "\n"}, '{', "\n\r\n \t{}\n", 4},
		{"BOM", []string{"\xEF", "\xBB\xBF", " [1]"}, '[', " [1]", 3},
		{"stream", []string{"data: x\n\n"}, 'd', "data: x\n\n", 1},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			d := NewReader(&chunks{slices.Clone(c.pieces), io.EOF}, counting(), 0)
			for range 2 { // twice: nothing is consumed
				if b, err := d.Peek(); b != c.first || err != nil {
					t.Fatalf("Peek: %q, %v; want %q", b, err, c.first)
				}
			}
			body, stamp, err := d.Whole(0)
			if string(body) != c.body || stamp.At != c.at || err != nil {
				t.Errorf("Whole: %q at %d, %v; want %q at %d", body, stamp.At, err, c.body, c.at)
			}
			if e, err := d.Next(); err != io.EOF {
				t.Errorf("Next after Whole: %q, %v; want EOF", e.Data, err)
			}
		})
	}

	t.Run("events after Peek", func(t *testing.T) {
		d := NewReader(&chunks{[]string{"\xEF\xBB\xBF", "\r", "\nda", "ta: a\n\ndata: b\n\n"}, io.EOF}, counting(), 0)
		if b, err := d.Peek(); b != 'd' || err != nil {
			t.Fatalf("Peek: %q, %v", b, err)
		}
		events, _ := readAll(t, d)
		want := []got{{Data: "a", At: 4}, {Data: "b", At: 4, SameRead: true}}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
	t.Run("nothing but blanks", func(t *testing.T) {
		d := NewReader(&chunks{[]string{"\n", " "}, io.EOF}, counting(), 0)
		if _, err := d.Peek(); err != io.EOF {
			t.Errorf("Peek: %v, want EOF", err)
		}
	})
	t.Run("broken body", func(t *testing.T) {
		d := NewReader(&chunks{[]string{"{", "}"}, io.ErrUnexpectedEOF}, counting(), 0)
		body, _, err := d.Whole(0)
		if string(body) != "{}" || err != io.ErrUnexpectedEOF {
			t.Errorf("%q, %v", body, err)
		}
	})
	t.Run("too large", func(t *testing.T) {
		d := NewReader(strings.NewReader(strings.Repeat("x", 100)), counting(), 0)
		body, _, err := d.Whole(99)
		if len(body) != 99 || !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "99") {
			t.Errorf("%d bytes, %v", len(body), err)
		}
		d.Reset(strings.NewReader(strings.Repeat("x", 99)), counting(), 0)
		if body, _, err := d.Whole(99); len(body) != 99 || err != nil {
			t.Errorf("at the limit: %d bytes, %v", len(body), err)
		}
	})
}

// The first comment has the stamp of the read that ended its line.
func TestFirstComment(t *testing.T) {
	d := NewReader(&chunks{[]string{"\n", ": a", "\n\n", ": b\n\ndata: c\n\n", ": d\n"}, io.EOF}, counting(), 0)
	if _, ok := d.FirstComment(); ok {
		t.Error("there is a comment before anything was read")
	}
	readAll(t, d)
	if at, ok := d.FirstComment(); !ok || at.At != 3 {
		t.Errorf("first comment at %v, %v", at, ok)
	}
}

// A reader that is used again behaves like a new one, whatever it read before.
func TestReset(t *testing.T) {
	d := NewReader(strings.NewReader(""), counting(), 0)
	for _, before := range []string{"data: a\r", "event: x\n", ": c\ndata", "\xEF", "data: " + strings.Repeat("x", 3<<20)} {
		d.Reset(&chunks{[]string{before}, io.ErrUnexpectedEOF}, counting(), 0)
		readAll(t, d)
		d.Reset(strings.NewReader("\ndata: b\n\n"), counting(), 0)
		events, err := readAll(t, d)
		if diff := cmp.Diff([]got{{Data: "b", At: 1}}, events); diff != "" || err != io.EOF || d.Comments() != 0 {
			t.Errorf("after %.10q: %v, %d comments, (-want +got)\n%s", before, err, d.Comments(), diff)
		}
	}
}

// An event much larger than the buffer, in small reads, comes through whole.
func TestLargeEvent(t *testing.T) {
	const size = 1 << 20
	// The event does not start where the buffer does, and has a line before the
	// one that makes it grow.
	in := "data: a\n\ndata: begin\ndata: " + strings.Repeat("xyz ", size/4) + "\ndata: end\n\ndata: b\n\n"
	d := NewReader(&chunks{slices.Collect(cuts(in, 700)), io.EOF}, counting(), 0)
	events, err := readAll(t, d)
	if err != io.EOF || len(events) != 3 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if got := events[1].Data; len(got) != size+10 || !strings.HasPrefix(got, "begin\nxyz ") || !strings.HasSuffix(got, "xyz \nend") {
		t.Errorf("the large event has %d bytes", len(got))
	}
	if events[2].Data != "b" {
		t.Errorf("after it: %q", events[2].Data)
	}
}

func cuts(s string, n int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for len(s) > 0 {
			k := min(n, len(s))
			if !yield(s[:k]) {
				return
			}
			s = s[k:]
		}
	}
}

// loop gives the same bytes over and over, one piece a Read.
type loop struct {
	pieces   []string
	next, at int
}

func (l *loop) Read(p []byte) (int, error) {
	n := copy(p, l.pieces[l.next][l.at:])
	if l.at += n; l.at == len(l.pieces[l.next]) {
		l.next, l.at = (l.next+1)%len(l.pieces), 0
	}
	return n, nil
}

const chunk = `data: {"id":"gen-1","object":"chat.completion.chunk","created":1700000000,"model":"demo-8b","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"

func TestNoAllocations(t *testing.T) {
	for _, pieces := range [][]string{
		{chunk},
		{chunk[:40], chunk[40:]},
		{strings.Repeat(chunk, 20)},
		{"event: error\ndata: a\ndata: b\n\n"},
	} {
		d := NewReader(&loop{pieces: pieces}, func() Stamp { return Stamp{} }, 0)
		d.Next()
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := d.Next(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%.20q: %v allocations an event, want 0", pieces[0], n)
		}
	}
}

// oracle reads with an independent parser. It differs on purpose in three
// things: it knows no open event at the end, it gives events of blocks that
// hold only an id or an event name, and events whose data is empty; those are
// left out of both sides.
func oracle(t testing.TB, in []byte) []got {
	var all []got
	gosse.Read(bytes.NewReader(in), &gosse.ReadConfig{MaxEventSize: 1 << 24})(func(e gosse.Event, err error) bool {
		if err != nil {
			t.Fatalf("oracle: %v", err)
		}
		if e.Data != "" {
			all = append(all, got{Name: e.Type, Data: e.Data})
		}
		return true
	})
	return all
}

// agree compares the reader with the oracle, and the stream in one read with
// the same stream cut at the given sizes.
func agree(t testing.TB, in []byte, sizes []byte) {
	whole, err := read(t, io.EOF, string(in))
	if len(in) == 0 {
		whole, err = read(t, io.EOF)
	}
	if err != io.EOF {
		t.Fatalf("%q: %v", in, err)
	}
	var pieces []string
	rest := string(in)
	for i := 0; len(rest) > 0; i++ {
		k := len(rest)
		if i < len(sizes) {
			k = min(k, int(sizes[i])%40+1)
		}
		pieces = append(pieces, rest[:k])
		rest = rest[k:]
	}
	cut, _ := read(t, io.EOF, pieces...)
	if diff := cmp.Diff(content(whole), content(cut)); diff != "" {
		t.Fatalf("%q cut into %q: (-whole +cut)\n%s", in, pieces, diff)
	}
	if bytes.HasPrefix(bytes.TrimLeft(in, "\r\n"), []byte("\xEF\xBB\xBF")) && !bytes.HasPrefix(in, []byte("\xEF\xBB\xBF")) {
		return // the oracle takes a byte order mark after blank lines for one at the start
	}
	closed := content(whole)
	if n := len(closed); n > 0 && closed[n-1].Unterminated {
		closed = closed[:n-1]
	}
	if diff := cmp.Diff(oracle(t, in), closed, cmp.Transformer("len", func(s []got) []got { return append([]got{}, s...) })); diff != "" {
		t.Fatalf("%q: (-oracle +got)\n%s", in, diff)
	}
}

func TestAgainstOracle(t *testing.T) {
	line := rapid.SampledFrom([]string{
		"data: a", "data:b", "data", "data: ", "event: e", "event", "id: 1", "retry: 1", ": c", ":", "", "", "",
		"data: long enough to be cut", "x", " data: y", "\xEF\xBB\xBFdata: z",
	})
	end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"})
	rapid.Check(t, func(rt *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(0, 20).Draw(rt, "lines") {
			b.WriteString(line.Draw(rt, "line"))
			b.WriteString(end.Draw(rt, "end"))
		}
		agree(t, []byte(b.String()), rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(rt, "sizes"))
	})
}

func FuzzReader(f *testing.F) {
	for _, c := range forms {
		f.Add([]byte(c.in), []byte{3, 1, 4, 1, 5})
	}
	f.Fuzz(func(t *testing.T, in, sizes []byte) { agree(t, in, sizes) })
}

func BenchmarkReader(b *testing.B) {
	for _, c := range []struct {
		name   string
		pieces []string
		events int
	}{
		{"event_a_read", []string{chunk}, 1},
		{"many_a_read", []string{strings.Repeat(chunk, 90)}, 90},
		{"1MiB_in_1400", slices.Collect(cuts("data: "+strings.Repeat("x", 1<<20)+"\n\n", 1400)), 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			size := 0
			for _, p := range c.pieces {
				size += len(p)
			}
			b.SetBytes(int64(size / c.events))
			b.ReportAllocs()
			d := NewReader(&loop{pieces: c.pieces}, func() Stamp { return Stamp{} }, 0)
			for b.Loop() {
				if _, err := d.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The end may come with the last bytes, or by itself later.
func TestEnded(t *testing.T) {
	const stream = "data: a\n\n"
	for name, c := range map[string]struct {
		r    io.Reader
		want bool
	}{
		"with the last bytes": {iotest.DataErrReader(strings.NewReader(stream)), true},
		"later":               {strings.NewReader(stream), false},
		"broken":              {io.MultiReader(strings.NewReader(stream), iotest.ErrReader(io.ErrUnexpectedEOF)), false},
	} {
		d := NewReader(c.r, func() Stamp { return Stamp{} }, 0)
		if _, err := d.Next(); err != nil {
			t.Fatal(name, err)
		}
		if got := d.Ended(); got != c.want {
			t.Errorf("%s: after the event, ended is %v", name, got)
		}
		_, err := d.Next()
		if got := d.Ended(); got != (err == io.EOF) {
			t.Errorf("%s: after %v, ended is %v", name, err, got)
		}
	}
}
