package report

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime"
	"sync"

	"github.com/tokmark/tokmark/bench/record"
)

// Load summarizes the run in a run directory, as Summarize does, decoding on
// all processors. It fails with record.ErrNoRun if there is none.
func Load(dir record.Dir, opt Options) (*Summary, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	m, err := dir.ReadManifest()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(dir.Path(record.RecordsFile))
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	defer f.Close()
	// A line that a killed run left half written is no loss among samples.
	samples, _, err := dir.Samples()
	if err != nil {
		return nil, err
	}
	const block = 4 << 20
	return Summarize(m, decode(f, f.Name(), block), samples, opt)
}

// decoded is one step of an iteration over records.
type decoded struct {
	rec *record.Record
	err error
}

// decode yields what record.ReadRecords does, in the same order. The input is
// cut into blocks of whole lines, of blockSize bytes or one line more, that are
// decoded at the same time; a few of them are in memory at once. When the
// iteration ends, no goroutine is left.
func decode(r io.Reader, name string, blockSize int) iter.Seq2[*record.Record, error] {
	return func(yield func(*record.Record, error) bool) {
		blocks := make(chan chan []decoded, runtime.GOMAXPROCS(0))
		stop := make(chan struct{})
		var running sync.WaitGroup
		defer running.Wait()
		defer close(stop)
		running.Go(func() {
			defer close(blocks)
			in := bufio.NewReaderSize(r, 1<<16)
			for line := 0; ; {
				block, err := readBlock(in, blockSize)
				out := make(chan []decoded, 1)
				select {
				case blocks <- out:
				case <-stop:
					return
				}
				before := line
				running.Go(func() { out <- decodeBlock(block, name, before) })
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					failed := make(chan []decoded, 1)
					failed <- []decoded{{err: fmt.Errorf("read %s: %w", name, err)}}
					select {
					case blocks <- failed:
					case <-stop:
					}
					return
				}
				line += bytes.Count(block, []byte("\n"))
			}
		})
		for out := range blocks {
			for _, d := range <-out {
				if !yield(d.rec, d.err) {
					return
				}
			}
		}
	}
}

// readBlock reads size bytes and then up to the end of the line.
func readBlock(in *bufio.Reader, size int) ([]byte, error) {
	block := make([]byte, size)
	n, err := io.ReadFull(in, block)
	block = block[:n]
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	if err != nil || block[n-1] == '\n' {
		return block, err
	}
	rest, err := in.ReadBytes('\n')
	return append(block, rest...), err
}

// decodeBlock decodes whole lines, of which so many come before in the file.
func decodeBlock(block []byte, name string, before int) []decoded {
	var out []decoded
	for rec, err := range record.ReadRecords(bytes.NewReader(block), name) {
		var damaged *record.LineError
		if errors.As(err, &damaged) {
			damaged.Line += before
		}
		out = append(out, decoded{rec, err})
	}
	return out
}
