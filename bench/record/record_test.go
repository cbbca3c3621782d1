package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestChunkStaysSmall(t *testing.T) {
	if size := unsafe.Sizeof(Chunk{}); size != 16 {
		t.Errorf("a chunk takes %d bytes, want 16: a run keeps one for each event", size)
	}
}

// anyRecord draws a record with every field set at random.
func anyRecord(t *rapid.T) *Record {
	count := func(name string) Count { return Count(rapid.Int64Range(-1, 1e6).Draw(t, name)) }
	moment := func(name string) Time { return Time(rapid.Int64Range(-1, 1e15).Draw(t, name)) }
	r := New(rapid.SampledFrom([]Phase{PhaseWarmup, PhaseMeasure, PhaseCooldown}).Draw(t, "phase"), rapid.Int64Range(0, 1e9).Draw(t, "id"))
	r.Session, r.Class, r.Model = rapid.String().Draw(t, "session"), rapid.String().Draw(t, "class"), rapid.String().Draw(t, "model")
	r.Due, r.Start, r.Written, r.FirstByte, r.FirstComment, r.FirstEvent, r.End = moment("due"), moment("start"), moment("written"), moment("byte"), moment("comment"), moment("event"), moment("end")
	r.Outcome = rapid.SampledFrom(Outcomes).Draw(t, "outcome")
	if r.Outcome != OK {
		r.Failure = &Failure{Stage: "body", Message: rapid.String().Draw(t, "message"), RetryAfter: 2 * time.Second}
	}
	r.Streamed, r.Done = rapid.Bool().Draw(t, "streamed"), rapid.Bool().Draw(t, "done")
	r.Tokens = Tokens{Source: SourceUsage, Input: count("in"), Output: count("out"), Reasoning: count("reasoning"), Cached: count("cached")}
	r.Usage = Usage{Prompt: count("p"), Completion: count("c"), Total: count("t"), Reasoning: count("r"), Cached: count("h")}
	r.AskedInput, r.AskedOutput, r.OwnInput = count("asked in"), count("asked out"), count("own in")
	r.FirstTokenEvent, r.FirstAnswerEvent, r.LastTokenEvent = rapid.IntRange(-1, 9).Draw(t, "f"), rapid.IntRange(-1, 9).Draw(t, "a"), rapid.IntRange(-1, 9).Draw(t, "l")
	if rapid.Bool().Draw(t, "timings") {
		d := time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "prefill"))
		r.ServerTimings = &ServerTimings{Prefill: &d, Source: "timings", DraftTokens: count("drafted"), AcceptedTokens: count("accepted")}
	}
	at := Time(0)
	for range rapid.IntRange(0, 20).Draw(t, "chunks") {
		at += Time(rapid.Int64Range(0, 1e12).Draw(t, "gap"))
		r.Chunks = append(r.Chunks, Chunk{
			At: at, Lag: rapid.Uint32().Draw(t, "lag"), Tokens: rapid.Uint16().Draw(t, "tokens"),
			Kind: Kind(rapid.Uint8().Draw(t, "kind")), Choice: rapid.Uint8().Draw(t, "choice"),
		})
	}
	return r
}

func TestRecordSurvivesTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyRecord(t)
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := &Record{}
		if err := json.Unmarshal(b, got); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-written +read\n%s\n%s", d, b)
		}
	})
}

func TestMissingStaysMissing(t *testing.T) {
	r := New(PhaseMeasure, 3)
	r.Outcome = OK
	r.Due, r.Tokens.Output = 0, 0 // a moment at the origin and a count of 0 are not missing
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(b); strings.Contains(s, "null") || strings.Contains(s, "-1,") && !strings.Contains(s, `_event":-1`) {
		t.Errorf("the line shows what is missing: %s", s)
	}
	for _, key := range []string{"start", "first_byte", "usage", "asked_input", "chunks"} {
		if strings.Contains(string(b), `"`+key+`"`) {
			t.Errorf("%s is in the line: %s", key, b)
		}
	}
	for _, key := range []string{`"due":0`, `"output":0`} {
		if !strings.Contains(string(b), key) {
			t.Errorf("%s is not in the line: %s", key, b)
		}
	}
	if _, ok := r.TTFT(); ok {
		t.Error("a record without output has a TTFT")
	}
	if _, ok := r.ISL(); ok {
		t.Error("a record without usage has an input length")
	}
}

func TestDamagedLines(t *testing.T) {
	line := func(id int64) string {
		r := New(PhaseMeasure, id)
		r.Outcome = OK
		b, _ := json.Marshal(r)
		return string(b)
	}
	long := New(PhaseMeasure, 4)
	long.Outcome, long.Output = OK, []Output{{Text: strings.Repeat("x", 300_000)}}
	lb, _ := json.Marshal(long)
	file := line(1) + "\n" + `{"id":2,"outcome":"fine"}` + "\n\n{broken\n" + line(3) + "\n" + string(lb) + "\n" +
		`{"id":5,"outcome":"ok","chunks":{"at":[1,2],"lag":[1]}}` + "\n" + `{"id":6,"outcome":"ok","chunks":{"at":[-5]}}` + "\n" + line(7)[:30]
	var ids []int64
	var bad []int
	last := false
	for r, err := range ReadRecords(strings.NewReader(file), "records.jsonl") {
		var le *LineError
		switch {
		case errors.As(err, &le):
			bad = append(bad, le.Line)
			last = le.Last
		case err != nil:
			t.Fatal(err)
		default:
			ids = append(ids, r.ID)
		}
	}
	if d := cmp.Diff([]int64{1, 3, 4}, ids); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{2, 4, 7, 8, 9}, bad); d != "" {
		t.Error(d)
	}
	if !last {
		t.Error("the cut line is not named as the last one")
	}
}

// TestRunsOfADirectory: a directory is its own run, or stands for those in it.
func TestRunsOfADirectory(t *testing.T) {
	top := Dir(t.TempDir())
	for _, name := range []string{"02-b", "01-[a*"} {
		dir := Dir(top.Path(name))
		if err := errors.Join(dir.Create(), dir.WriteManifest(&Manifest{Schema: ManifestSchema})); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(top.Path("report.html"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(top.Path("00-empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	runs, err := top.Runs()
	if want := []Dir{Dir(top.Path("01-[a*")), Dir(top.Path("02-b"))}; err != nil || !slices.Equal(runs, want) {
		t.Errorf("%v, %v; want %v", runs, err, want)
	}
	if one, err := runs[0].Runs(); err != nil || len(one) != 1 || one[0] != runs[0] {
		t.Errorf("a run directory is %v, %v", one, err)
	}
	for _, none := range []string{"00-empty", "report.html", "nowhere"} {
		if runs, err := Dir(top.Path(none)).Runs(); !errors.Is(err, ErrNoRun) {
			t.Errorf("%s: %v, %v", none, runs, err)
		}
	}
}

func TestDirIsNeverOverwritten(t *testing.T) {
	dir := Dir(t.TempDir() + "/a/run")
	if err := dir.Create(); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.ReadManifest(); !errors.Is(err, ErrNoRun) {
		t.Errorf("an empty directory: %v", err)
	}
	w, err := dir.NewWriter()
	if err != nil {
		t.Fatal(err)
	}
	r := New(PhaseMeasure, 0)
	r.Outcome = OK
	if err := errors.Join(w.Write(r), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(dir.Path(RecordsFile)); !bytes.HasSuffix(b, []byte("}\n")) {
		t.Errorf("after Flush the file holds %q", b)
	}
	if err := dir.WriteManifest(&Manifest{Schema: ManifestSchema, ID: "x", MeasureStart: Unset, MeasureEnd: 5}); err != nil {
		t.Fatal(err)
	}
	m, err := dir.ReadManifest()
	if err != nil || m.ID != "x" || m.MeasureStart.IsSet() || m.MeasureEnd != 5 {
		t.Errorf("manifest %+v, %v", m, err)
	}
	if err := dir.Create(); !errors.Is(err, ErrHoldsRun) {
		t.Errorf("a second run in the directory: %v", err)
	}
	if _, err := dir.NewWriter(); err == nil {
		t.Error("a second records file in the directory")
	}
	if err := dir.WriteManifest(&Manifest{Schema: ManifestSchema + 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.ReadManifest(); err == nil || !strings.Contains(err.Error(), "newer tokmark") {
		t.Errorf("a manifest of a newer schema: %v", err)
	}
}

// FuzzReadRecords: no file makes the reader panic, and a record that can be
// read can be written and read again.
func FuzzReadRecords(f *testing.F) {
	r := New(PhaseMeasure, 1)
	r.Outcome, r.Chunks = OK, Chunks{{At: 5, Tokens: 2, Kind: KindReasoning}, {At: 9, Tokens: UnknownTokens, Kind: KindText}}
	b, _ := json.Marshal(r)
	f.Add(append(b, '\n'))
	f.Add([]byte("{}\n{\"outcome\":\"ok\",\"chunks\":{\"at\":null}}"))
	f.Fuzz(func(t *testing.T, file []byte) {
		for r, err := range ReadRecords(bytes.NewReader(file), "f") {
			if err != nil {
				continue
			}
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatalf("write %+v: %v", r, err)
			}
			again := &Record{}
			if err := json.Unmarshal(b, again); err != nil {
				t.Fatalf("read %s: %v", b, err)
			}
			if d := cmp.Diff(r, again); d != "" {
				t.Errorf("%s\n%s", d, b)
			}
		}
	})
}

// usualRecord has 256 events, as a kernel's stamps tell of them.
func usualRecord() *Record {
	r := New(PhaseMeasure, 1)
	r.Outcome, r.Streamed, r.Model, r.FinishReasons = OK, true, "model", []string{"length"}
	r.Due, r.Start, r.Written, r.FirstByte, r.End = 1e9, 1e9+20_000, 1e9+90_000, 2e9, 5e9
	r.Usage = Usage{Prompt: 16, Completion: 256, Total: 272, Reasoning: Unknown, Cached: Unknown}
	for i := range 256 {
		r.Chunks = append(r.Chunks, Chunk{At: Time(2e9 + i*10_123_456), Lag: uint32(20_000 + i*77), Tokens: UnknownTokens, Kind: KindText})
	}
	return r
}

func BenchmarkWriteRecord(b *testing.B) {
	r := usualRecord()
	var enc lineEncoder
	line, err := enc.encode(r)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := enc.encode(r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(r.Chunks)), "ns/event")
}

func BenchmarkReadRecord(b *testing.B) {
	r := usualRecord()
	line, err := new(lineEncoder).encode(r)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if err := new(Record).UnmarshalJSON(line); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(r.Chunks)), "ns/event")
}
