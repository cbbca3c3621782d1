package report

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
)

func steps(seq iter.Seq2[*record.Record, error]) []string {
	var out []string
	for r, err := range seq {
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		out = append(out, fmt.Sprintf("record %d", r.ID))
	}
	return out
}

// However the file is cut into blocks, records, errors and line numbers are
// those of a plain reading.
func TestDecodeIsReadRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{
			`{"id":1,"phase":"measure","outcome":"ok"}`,
			`{"id":22,"phase":"measure","outcome":"ok","chunks":{"at":[1,2,3]}}`,
			`{"id":oops}`, ``, ` `, "{\"id\":3,\r",
		}), 0, 30).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		if rapid.Bool().Draw(t, "last line ends") {
			text += "\n"
		}
		size := rapid.IntRange(1, 200).Draw(t, "block size")
		want := steps(record.ReadRecords(strings.NewReader(text), "f"))
		got := steps(decode(iotest.HalfReader(strings.NewReader(text)), "f", size))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("-plain +in blocks\n%s", diff)
		}
	})
}

func TestDecodeStopsAndFails(t *testing.T) {
	line := `{"id":1,"phase":"measure","outcome":"ok"}` + "\n"
	for range decode(strings.NewReader(strings.Repeat(line, 1000)), "f", 10) {
		break // must not hang, nor leave goroutines that do
	}
	broken := errors.New("disk on fire")
	n := 0
	var last error
	for r, err := range decode(io.MultiReader(strings.NewReader(line+line), iotest.ErrReader(broken)), "f", 10) {
		if r != nil {
			n++
		}
		last = err
	}
	if n != 2 || !errors.Is(last, broken) {
		t.Errorf("%d records, then %v; want 2, then the reader's error", n, last)
	}
}
