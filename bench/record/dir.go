package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
)

// The files of a run directory.
const (
	ManifestFile    = "manifest.json"
	RecordsFile     = "records.jsonl"
	SamplesFile     = "samples.jsonl"
	SummaryJSONFile = "summary.json"
	SummaryCSVFile  = "summary.csv"
	HDRLogFile      = "hdr.log"
	ReportHTMLFile  = "report.html"
)

// ErrHoldsRun tells that the directory holds a run already. Nothing is ever overwritten.
var ErrHoldsRun = errors.New("the directory already holds a run")

// ErrNoRun tells that there is no run in the directory.
var ErrNoRun = errors.New("the directory holds no run")

// Dir is the path of a run directory.
type Dir string

// Create makes the directory, with its parents. It fails with ErrHoldsRun if
// there is a manifest or a records file in it.
func (d Dir) Create() error {
	for _, name := range []string{ManifestFile, RecordsFile} {
		switch _, err := os.Lstat(d.Path(name)); {
		case err == nil:
			return fmt.Errorf("create run directory %s: %w", d, ErrHoldsRun)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("create run directory: %w", err)
		}
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	return nil
}

// Path returns the path of a file in the directory.
func (d Dir) Path(name string) string { return filepath.Join(string(d), name) }

// Runs returns the run directories that d stands for: itself or, if it holds no
// run, those in it, in the order of their names. It fails with ErrNoRun if
// there is none.
func (d Dir) Runs() ([]Dir, error) {
	holds := func(d Dir) bool {
		_, err := os.Stat(d.Path(ManifestFile))
		return err == nil
	}
	if holds(d) {
		return []Dir{d}, nil
	}
	var runs []Dir
	inside, _ := os.ReadDir(string(d)) // what is no directory holds no run
	for _, entry := range inside {
		if one := Dir(d.Path(entry.Name())); holds(one) {
			runs = append(runs, one)
		}
	}
	if runs == nil {
		_, err := d.ReadManifest() // says what is there instead
		return nil, err
	}
	return runs, nil
}

// WriteFile replaces a file of the directory in one step: a reader sees the
// old or the new content, never a part.
func (d Dir) WriteFile(name string, content []byte) error {
	tmp, err := os.CreateTemp(string(d), "."+name+".*")
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err // its path is the temporary file's
		}
		return fmt.Errorf("write %s: %w", d.Path(name), err)
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), d.Path(name))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", d.Path(name), err), os.Remove(tmp.Name()))
	}
	return nil
}

// WriteManifest replaces the manifest.
func (d Dir) WriteManifest(m *Manifest) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(m); err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	return d.WriteFile(ManifestFile, buf.Bytes())
}

// ReadManifest reads the manifest. It fails with ErrNoRun if there is none,
// and with a plain error if it is damaged or of a newer schema.
func (d Dir) ReadManifest() (*Manifest, error) {
	b, err := os.ReadFile(d.Path(ManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read run directory %s: %w (no %s)", d, ErrNoRun, ManifestFile)
	}
	if info, serr := os.Stat(string(d)); err != nil && serr == nil && !info.IsDir() {
		return nil, fmt.Errorf("read run directory %s: %w: it is a file", d, ErrNoRun)
	}
	if err != nil {
		return nil, fmt.Errorf("read run directory: %w", err)
	}
	m := &Manifest{MeasureStart: Unset, MeasureEnd: Unset}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.Path(ManifestFile), err)
	}
	if m.Schema > ManifestSchema {
		return nil, fmt.Errorf("read %s: it has schema version %d and this tokmark knows up to %d: use a newer tokmark", d.Path(ManifestFile), m.Schema, ManifestSchema)
	}
	return m, nil
}

// Writer appends records to the records file. It is not safe for concurrent
// use.
type Writer struct {
	f    *os.File
	buf  *bufio.Writer
	line lineEncoder
}

// NewWriter creates the records file, which must not exist yet.
func (d Dir) NewWriter() (*Writer, error) {
	f, err := os.OpenFile(d.Path(RecordsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create records file: %w", err)
	}
	return &Writer{f: f, buf: bufio.NewWriterSize(f, 1<<16)}, nil
}

// Write appends one record. It is on disk only after Flush.
func (w *Writer) Write(r *Record) error {
	line, err := w.line.encode(r)
	if err == nil {
		_, err = w.buf.Write(line)
	}
	if err != nil {
		return fmt.Errorf("write record %d: %w", r.ID, err)
	}
	return nil
}

// Flush hands everything to the operating system: a process killed after it
// loses nothing written before.
func (w *Writer) Flush() error {
	if err := w.buf.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", w.f.Name(), err)
	}
	return nil
}

// Close flushes and closes the file.
func (w *Writer) Close() error { return errors.Join(w.Flush(), w.f.Close()) }

// LineError is a line of a records file that could not be read. Reading goes
// on after it.
type LineError struct {
	File string
	Line int // from 1
	// Last: it is the last line and has no line end, as in a file that is
	// still being written or was cut off.
	Last bool
	Err  error
}

func (e *LineError) Error() string {
	what := "damaged"
	if e.Last {
		what = "cut off"
	}
	return fmt.Sprintf("%s:%d: record is %s: %v", e.File, e.Line, what, e.Err)
}

func (e *LineError) Unwrap() error { return e.Err }

// Records reads the records file in the order of the lines. A line that cannot
// be read comes as (nil, *LineError) and reading goes on; any other error ends
// it. Memory is bounded by the longest line.
func (d Dir) Records() iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		f, err := os.Open(d.Path(RecordsFile))
		if err != nil {
			yield(nil, fmt.Errorf("read records: %w", err))
			return
		}
		defer f.Close()
		ReadRecords(f, d.Path(RecordsFile))(yield)
	}
}

// ReadRecords is Dir.Records over any reader; name stands in errors.
func ReadRecords(r io.Reader, name string) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		in := bufio.NewReaderSize(r, 1<<16)
		var line []byte
		for n := 1; ; n++ {
			line = line[:0]
			var err error
			for {
				var part []byte
				part, err = in.ReadSlice('\n')
				line = append(line, part...)
				if !errors.Is(err, bufio.ErrBufferFull) {
					break
				}
			}
			last := errors.Is(err, io.EOF)
			if err != nil && !last {
				yield(nil, fmt.Errorf("read %s: %w", name, err))
				return
			}
			if len(bytes.TrimSpace(line)) > 0 {
				rec := &Record{}
				if jerr := rec.UnmarshalJSON(line); jerr != nil {
					if !yield(nil, &LineError{File: name, Line: n, Last: last, Err: jerr}) {
						return
					}
				} else if !yield(rec, nil) {
					return
				}
			}
			if last {
				return
			}
		}
	}
}
