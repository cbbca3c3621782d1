package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"
)

// maxLine bounds one entry, in bytes.
const maxLine = 256 << 20

// scan is one pass over the files that fills a Dataset's index.
type scan struct {
	d     *Dataset
	found []found
	known map[string]int32 // sessions by name
	// sessions hold the times. That one has none is a fault only if another
	// has one, which is known at the end.
	sessions []session
}

type found struct {
	span
	session int32
}

type session struct {
	at    time.Duration
	timed bool
}

var (
	utf8BOM = []byte("\xef\xbb\xbf")
	// unreadable names files of another kind by their first bytes.
	unreadable = []struct{ magic, what string }{
		{"\xff\xfe", "it is UTF-16: convert it to UTF-8"},
		{"\xfe\xff", "it is UTF-16: convert it to UTF-8"},
		{"\x1f\x8b", "it is compressed with gzip: unpack it first"},
		{"\x28\xb5\x2f\xfd", "it is compressed with zstd: unpack it first"},
		{"PAR1", "it is a Parquet file: convert it to JSON lines"},
		{"PK\x03\x04", "it is a zip file: unpack it first"},
	}
)

func (s *scan) run(path string) error {
	d := s.d
	s.known = map[string]int32{}
	paths, err := s.paths(path)
	if err != nil {
		return err
	}
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return fmt.Errorf("read dataset: %w", err)
		}
		d.files = append(d.files, f)
		if err := s.file(f); err != nil {
			return err
		}
		if d.format == RandomPool {
			if n := len(s.found); n == 0 || len(d.pools) > 0 && d.pools[len(d.pools)-1] == n {
				return s.nothing(p)
			}
			d.pools = append(d.pools, len(s.found))
		}
	}
	if err := s.order(); err != nil {
		return err
	}
	if len(d.spans) == 0 {
		return s.nothing(path)
	}
	if d.report.Usable = len(d.spans); d.format == RandomPool {
		d.first = nil
	}
	return nil
}

// paths are the files to read: several only for a random pool.
func (s *scan) paths(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	if s.d.format != "" && s.d.format != RandomPool {
		return nil, fmt.Errorf("read dataset: %s is a folder: only %s reads one", path, RandomPool)
	}
	s.d.format = RandomPool
	paths, err := filepath.Glob(filepath.Join(path, "*.jsonl"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("read dataset: the folder %s holds no .jsonl file", path)
	}
	sort.Strings(paths)
	return paths, nil
}

func (s *scan) nothing(path string) error {
	r := s.d.report
	switch {
	case len(r.Skipped) > 0:
		return fmt.Errorf("read %s: none of its entries can be used, %d are bad; the first: %s", path, r.SkippedCount(), r.Skipped[0])
	case r.Cut > 0:
		return fmt.Errorf("read %s: none of its %d entries lies between the start and end offsets", path, r.Cut)
	}
	return fmt.Errorf("read %s: it is empty", path)
}

// file indexes one file.
func (s *scan) file(f *os.File) error {
	d := s.d
	head, err := headOf(f)
	if err != nil {
		return err
	}
	for _, u := range unreadable {
		if bytes.HasPrefix(head, []byte(u.magic)) {
			return fmt.Errorf("read %s: %s", f.Name(), u.what)
		}
	}
	if d.format == "" {
		if d.format, err = guess(f, head); err != nil {
			return fmt.Errorf("read %s: %w", f.Name(), err)
		}
	}
	if d.format == ShareGPT && bytes.HasPrefix(trimLeft(head), []byte("[")) {
		d.parse = d.o.newParser(d.format)
		return s.array(f)
	}
	if d.parse == nil && !d.format.csv() {
		d.parse = d.o.newParser(d.format)
	}
	return s.lines(f)
}

// lines indexes a file of lines.
func (s *scan) lines(f *os.File) error {
	d := s.d
	in := newLineReader(f)
	for {
		at, line, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, errLong) {
			return fmt.Errorf("read %s: %w", f.Name(), err)
		}
		where := span{at: at, size: int32(len(line)), line: int32(in.line), file: int32(len(d.files) - 1)}
		switch {
		case err != nil:
			err = s.bad(where, &fault{BadShape, err.Error()})
		case len(bytes.TrimSpace(line)) == 0:
		case d.parse == nil: // this is the header of a table
			if d.parse, err = d.o.newTable(d.format, line); err != nil {
				err = fmt.Errorf("read %s:%d: %w", f.Name(), in.line, err)
			}
		default:
			err = s.entry(where, line)
		}
		if err != nil {
			return err
		}
	}
}

// array indexes the records of a JSON array.
func (s *scan) array(f *os.File) error {
	in := bufio.NewReaderSize(f, 1<<20)
	base := int64(0)
	if b, _ := in.Peek(3); bytes.Equal(b, utf8BOM) {
		base = 3
		_, _ = in.Discard(3)
	}
	dec := json.NewDecoder(in)
	where := span{file: int32(len(s.d.files) - 1)}
	_, err := dec.Token() // [
	for err == nil && dec.More() {
		var raw json.RawMessage
		if err = dec.Decode(&raw); err != nil {
			break
		}
		where.at, where.size = base+dec.InputOffset()-int64(len(raw)), int32(len(raw))
		if len(raw) > maxLine {
			err = s.bad(where, &fault{BadShape, errLong.Error()})
		} else {
			err = s.entry(where, raw)
		}
		if err != nil {
			return err
		}
		where.line++
	}
	if err == nil {
		_, err = dec.Token() // ]
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	// What follows a broken record cannot be told apart.
	return s.bad(where, &fault{BadJSON, fmt.Sprintf("%v at byte %d: the rest of the file is lost", err, base+dec.InputOffset())})
}

// entry checks one entry and adds it to the index.
func (s *scan) entry(where span, raw []byte) error {
	d := s.d
	e, err := d.parse(raw)
	if err != nil {
		return s.bad(where, err)
	}
	if e.lengths && d.o.Prompter == nil {
		return fmt.Errorf("read %s:%d: it has only the length of a prompt, and nothing is there to make prompts", d.files[where.file].Name(), where.line)
	}
	number, again := int32(len(s.sessions)), false
	if e.session != "" && d.format == MooncakeTrace {
		if number, again = s.known[e.session]; !again {
			number = int32(len(s.sessions))
			s.known[e.session] = number
		}
	}
	if !again {
		s.sessions = append(s.sessions, session{at: e.at, timed: e.timed && !d.o.Untimed})
	}
	s.found = append(s.found, found{where, number})
	return nil
}

// bad notes a bad entry; it is an error unless bad lines are skipped.
func (s *scan) bad(where span, err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	d := s.d
	skip := Skip{d.files[where.file].Name(), int(where.line), f.reason, f.detail}
	if !d.o.SkipBadLines {
		return fmt.Errorf("read %s", skip)
	}
	if d.report.Reasons == nil {
		d.report.Reasons = map[Reason]int{}
	}
	d.report.Reasons[f.reason]++
	// Entries without a time come late, so the list is kept in order here.
	list := d.report.Skipped
	i := sort.Search(len(list), func(i int) bool {
		return list[i].File == skip.File && list[i].Line > skip.Line
	})
	if i < MaxListed {
		list = slices.Insert(list, i, skip)
		d.report.Skipped = list[:min(len(list), MaxListed)]
	}
	return nil
}

// order sorts the sessions by time, cuts them, and makes the final index.
func (s *scan) order() error {
	d := s.d
	timed := slices.ContainsFunc(s.sessions, func(x session) bool { return x.timed })
	if timed {
		keep := s.found[:0]
		for _, f := range s.found {
			if !s.sessions[f.session].timed {
				if err := s.bad(f.span, &fault{NoTimestamp, "it has no time, and other entries have one"}); err != nil {
					return err
				}
				continue
			}
			keep = append(keep, f)
		}
		s.found = keep
		s.zeroDates()
		keep = s.found[:0]
		for _, f := range s.found {
			if d.o.Trace.Keeps(s.sessions[f.session].at) {
				keep = append(keep, f)
			} else {
				d.report.Cut++
			}
		}
		s.found = keep
	}
	before := func(a, b found) int {
		if x, y := s.sessions[a.session].at, s.sessions[b.session].at; timed && x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return int(a.session) - int(b.session)
	}
	d.report.Reordered = timed && s.outOfOrder()
	slices.SortStableFunc(s.found, before)
	for i, f := range s.found {
		if i == 0 || f.session != s.found[i-1].session {
			d.first = append(d.first, int32(i))
			if timed {
				d.offsets = append(d.offsets, d.o.Trace.Offset(s.sessions[f.session].at, s.sessions[s.found[0].session].at))
			}
		}
		d.spans = append(d.spans, f.span)
	}
	d.first = append(d.first, int32(len(s.found)))
	s.found, s.sessions, s.known = nil, nil, nil
	return nil
}

// outOfOrder reports whether the first entries of the sessions, in the order
// of the file, fall in time.
func (s *scan) outOfOrder() bool {
	last, seen := time.Duration(-1), int32(-1)
	for _, f := range s.found {
		if f.session <= seen {
			continue // a later turn
		}
		if s.sessions[f.session].at < last {
			return true
		}
		seen, last = f.session, s.sessions[f.session].at
	}
	return false
}

// zeroDates moves times that are dates so that the first usable one is 0.
func (s *scan) zeroDates() {
	if s.d.format != AzureTrace || len(s.found) == 0 {
		return
	}
	first := s.sessions[s.found[0].session].at
	for _, f := range s.found {
		first = min(first, s.sessions[f.session].at)
	}
	for i := range s.sessions {
		s.sessions[i].at -= first
	}
}

var errLong = fmt.Errorf("the line is longer than %d MiB", maxLine>>20)

// lineReader cuts a file into lines and knows their place. Line ends are LF or
// CR LF; the last line needs none. A byte-order mark is passed over.
type lineReader struct {
	in   *bufio.Reader
	buf  []byte
	at   int64
	line int
}

func newLineReader(r io.Reader) *lineReader {
	l := &lineReader{in: bufio.NewReaderSize(r, 1<<18)}
	if b, _ := l.in.Peek(3); bytes.Equal(b, utf8BOM) {
		n, _ := l.in.Discard(3)
		l.at = int64(n)
	}
	return l
}

// next returns the next line without its end, valid until the next call. After
// errLong, reading goes on with the line after.
func (l *lineReader) next() (at int64, line []byte, err error) {
	l.buf = l.buf[:0]
	at = l.at
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		l.at += int64(len(part))
		if len(l.buf)+len(part) > maxLine {
			long = true
		} else {
			l.buf = append(l.buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && (!errors.Is(err, io.EOF) || l.at == at) {
			return at, nil, err
		}
		l.line++
		if long {
			return at, nil, errLong
		}
		line = bytes.TrimSuffix(l.buf, []byte("\n"))
		return at, bytes.TrimSuffix(line, []byte("\r")), nil
	}
}

func trimLeft(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// headOf is how the file begins, behind a byte order mark.
func headOf(f *os.File) ([]byte, error) {
	head := make([]byte, 64<<10)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	return bytes.TrimPrefix(head[:n], utf8BOM), nil
}

// Guess tells the format of a file from its name and its first lines, as Open
// does where none is given.
func Guess(path string) (Format, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read dataset: %w", err)
	}
	defer f.Close()
	head, err := headOf(f)
	if err != nil {
		return "", err
	}
	format, err := guess(f, head)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return format, nil
}

// guess tells the format from the name and the first lines; head is how the
// file begins.
func guess(f *os.File, head []byte) (Format, error) {
	if len(trimLeft(head)) == 0 {
		return "", errors.New("the file is empty")
	}
	if rest, ok := bytes.CutPrefix(trimLeft(head), []byte("[")); ok && bytes.HasPrefix(trimLeft(rest), []byte("{")) {
		return ShareGPT, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	defer func() { _, _ = f.Seek(0, io.SeekStart) }()
	in := newLineReader(f)
	var keys []string
	for range 50 {
		_, line, err := in.next()
		if err != nil {
			break
		}
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0, line[0] == '[':
			continue
		case line[0] != '{' && utf8.Valid(line):
			if format, ok := guessTable(line); ok {
				return format, nil
			}
			if strings.EqualFold(filepath.Ext(f.Name()), ".csv") {
				return "", fmt.Errorf("line %d names neither BurstGPT's columns nor Azure's: %.200q", in.line, line)
			}
			continue
		}
		o, err := newObject(line)
		if err != nil {
			continue
		}
		has := func(key string) bool { return o[key] != nil }
		switch {
		case has("body"):
			return OpenAIBatch, nil
		case has("turns"):
			return MultiTurn, nil
		case has("conversations"):
			return ShareGPT, nil
		case has("input_length"), has("text_input"), has("hash_ids"):
			return MooncakeTrace, nil
		case has("prompt"), has("messages"):
			return Prompts, nil
		case has("text"), has("texts"):
			return SingleTurn, nil
		}
		if keys == nil {
			keys = o.keys()
		}
	}
	if keys != nil {
		return "", fmt.Errorf("%w from the keys %s", ErrUnknownFormat, strings.Join(keys, ", "))
	}
	return "", fmt.Errorf("%w from its first lines", ErrUnknownFormat)
}
