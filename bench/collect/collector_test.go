package collect

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

const msec = record.Time(time.Millisecond)

// answered is a good request of four tokens: TTFT 20 ms, ITL 5 ms.
func answered(id int64) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Outcome, r.Streaming, r.Streamed, r.Done = record.OK, true, true, true
	r.Start = record.Time(id) * msec
	for i := range record.Time(4) {
		r.Chunks = append(r.Chunks, record.Chunk{At: r.Start + 20*msec + 5*i*msec, Tokens: 1, Kind: record.KindText})
	}
	r.End = r.Start + 35*msec
	r.Tokens.Source, r.Tokens.Output = record.SourceUsage, 4
	return r
}

func ended(id int64, o record.Outcome) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Start, r.End = 0, msec
	r.Fail(o, record.Failure{Message: "as told"})
	return r
}

// memory keeps records, and remembers what was asked of it.
type memory struct {
	ids     []int64
	flushed int // of ids
	flushes int
	// These, if set, are called first, with the number of the records kept or
	// of the flushes; their error is the answer.
	beforeWrite func(n int) error
	beforeFlush func(n int) error
}

func (m *memory) Write(r *record.Record) error {
	if m.beforeWrite != nil {
		if err := m.beforeWrite(len(m.ids)); err != nil {
			return err
		}
	}
	m.ids = append(m.ids, r.ID)
	return nil
}

func (m *memory) Flush() error {
	m.flushes++
	if m.beforeFlush != nil {
		if err := m.beforeFlush(m.flushes); err != nil {
			return err
		}
	}
	m.flushed = len(m.ids)
	return nil
}

func numbers(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(i)
	}
	return ids
}

func TestEveryRecordIsKeptInOrder(t *testing.T) {
	const n = 5000
	for _, room := range []int{0, 1, 100, n} {
		in := make(chan *record.Record, room)
		go func() {
			for i := range int64(n) {
				in <- answered(i)
			}
			close(in)
		}()
		var c Collector
		var kept memory
		if err := c.Collect(in, &kept, func(err error) { t.Errorf("failed: %v", err) }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(kept.ids, numbers(n)) {
			t.Errorf("room %d: %d records of %d were kept, or in another order", room, len(kept.ids), n)
		}
		if kept.flushed != n {
			t.Errorf("room %d: %d records were flushed at the end, want %d", room, kept.flushed, n)
		}
		if s := c.Snapshot(); s.Ended != n || s.OK != n || s.OutputTokens != 4*n {
			t.Errorf("room %d: the last snapshot is %+v", room, s)
		}
	}
}

func TestSnapshotCounts(t *testing.T) {
	var c Collector
	if s := c.Snapshot(); s != (Snapshot{}) {
		t.Errorf("before anything: %+v", s)
	}
	warm := answered(0)
	warm.Phase = record.PhaseWarmup
	short := answered(5) // one token: no ITL; and nobody told how many
	short.Chunks, short.Tokens = short.Chunks[:1], record.New("", 0).Tokens
	records := []*record.Record{warm, answered(1), answered(2), ended(3, record.ServerError), ended(4, record.Cancelled), short}
	in := make(chan *record.Record, len(records))
	for _, r := range records {
		in <- r
	}
	close(in)
	if err := c.Collect(in, &memory{}, nil); err != nil {
		t.Fatal(err)
	}
	s := c.Snapshot()
	near := func(got time.Duration, want record.Time) bool {
		return max(got-time.Duration(want), time.Duration(want)-got) <= time.Duration(want)/500
	}
	if !near(s.TTFT50, 20*msec) || !near(s.TTFT99, 20*msec) || !near(s.ITL50, 5*msec) || !near(s.ITL99, 5*msec) {
		t.Errorf("quantiles: %+v", s)
	}
	s.TTFT50, s.TTFT99, s.ITL50, s.ITL99 = 0, 0, 0, 0
	if want := (Snapshot{Ended: 5, OK: 3, Failed: 1, OutputTokens: 8, Events: 9, First: msec, Last: 37 * msec, Warmup: 1}); s != want {
		t.Errorf("counts: %+v, want %+v", s, want)
	}
}

// While the run goes on: the figures are renewed, and no record is held back
// longer than promised, be they few or many.
func TestRenewsAndFlushesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := make(chan *record.Record, 10)
		var c Collector
		var kept memory
		done := make(chan error)
		go func() { done <- c.Collect(in, &kept, nil) }()
		time.Sleep(10 * time.Second)
		if synctest.Wait(); kept.flushes != 0 {
			t.Errorf("%d flushes of nothing", kept.flushes)
		}

		in <- answered(0)
		time.Sleep(snapshotEvery)
		if synctest.Wait(); c.Snapshot().OK != 1 || c.Snapshot().TTFT50 == 0 {
			t.Errorf("%v after the first record: %+v", snapshotEvery, c.Snapshot())
		}
		time.Sleep(flushEvery)
		if synctest.Wait(); kept.flushed != 1 || kept.flushes != 1 {
			t.Errorf("%v after the first record: %d flushed", flushEvery, kept.flushed)
		}
		time.Sleep(10 * flushEvery)
		if synctest.Wait(); kept.flushes != 1 {
			t.Errorf("%d flushes, of one record", kept.flushes)
		}

		var sent []time.Time
		for i := range 3000 {
			in <- answered(int64(1 + i))
			sent = append(sent, time.Now())
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if n := kept.flushed - 1; n < len(sent) {
				if age := time.Since(sent[n]); age > flushEvery+time.Millisecond {
					t.Fatalf("record %d is not flushed after %v", n, age)
				}
			}
			if shown := int(c.Snapshot().OK) - 1; i > 0 && time.Since(sent[max(0, min(shown, i))]) > snapshotEvery+time.Millisecond {
				t.Fatalf("%d records, %d of them shown", i, shown)
			}
		}
		close(in)
		if err := <-done; err != nil || kept.flushed != 3001 {
			t.Errorf("%d flushed at the end, %v", kept.flushed, err)
		}
	})
}

// A disk that stalls holds up nothing until the room is used up; how full it
// is can be seen; then senders wait, and nothing is lost.
func TestStalledKeeper(t *testing.T) {
	for _, what := range []string{"write", "flush"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const room, n = 16, 60
				stall := make(chan struct{})
				once := func(int) error { <-stall; return nil }
				kept := memory{beforeWrite: once}
				if what == "flush" {
					kept = memory{beforeFlush: once}
				}
				in := make(chan *record.Record, room)
				var sent atomic.Int64
				var c Collector
				done := make(chan error)
				go func() { done <- c.Collect(in, &kept, func(err error) { t.Errorf("failed: %v", err) }) }()
				in <- answered(0)
				sent.Add(1)
				time.Sleep(2 * flushEvery) // now it is stalled
				go func() {
					for i := int64(1); i < n; i++ {
						time.Sleep(10 * time.Millisecond)
						in <- answered(i)
						sent.Add(1)
					}
					close(in)
				}()
				last := 0
				for i := range room {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
					if len(in) != i+1 || len(in) <= last {
						t.Fatalf("%d records wait after %d were sent", len(in), i+1)
					}
					last = len(in)
				}
				time.Sleep(time.Hour)
				if synctest.Wait(); len(in) != room || sent.Load() != room+1 {
					t.Errorf("%d records wait and %d were sent, where there is room for %d and one is with the keeper", len(in), sent.Load(), room)
				}
				_ = c.Snapshot() // does not wait for the disk
				close(stall)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if !slices.Equal(kept.ids, numbers(n)) || kept.flushed != n || c.Snapshot().OK != n {
					t.Errorf("%d kept, %d flushed, %+v; want %d", len(kept.ids), kept.flushed, c.Snapshot(), n)
				}
			})
		})
	}
}

var errDisk = errors.New("no space left on device")

// The first error is told at once, once, and returned; the rest of the run is
// still taken and counted, and the keeper is left alone.
func TestErrorOfTheKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := memory{beforeWrite: func(n int) error {
			if n == 3 {
				return errDisk
			}
			return nil
		}}
		in := make(chan *record.Record)
		var told []error
		var c Collector
		done := make(chan error)
		go func() { done <- c.Collect(in, &kept, func(err error) { told = append(told, err) }) }()
		for i := range int64(10) {
			in <- answered(i)
			synctest.Wait()
			if want := min(1, max(0, int(i)-2)); len(told) != want {
				t.Fatalf("after record %d the error was told %d times, want %d", i, len(told), want)
			}
		}
		time.Sleep(4 * flushEvery)
		close(in)
		if err := <-done; !errors.Is(err, errDisk) || !errors.Is(told[0], errDisk) {
			t.Errorf("returned %v, told %v", err, told)
		}
		if !slices.Equal(kept.ids, numbers(3)) || kept.flushes != 0 {
			t.Errorf("kept %v and flushed %d times; nothing is to be asked of the keeper after its error", kept.ids, kept.flushes)
		}
		if s := c.Snapshot(); s.Ended != 10 {
			t.Errorf("%d of 10 records counted", s.Ended)
		}
	})
}

func TestErrorOfAFlush(t *testing.T) {
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			kept := memory{beforeFlush: func(int) error { return errDisk }}
			in := make(chan *record.Record, 2)
			told := 0
			done := make(chan error)
			go func() { done <- new(Collector).Collect(in, &kept, func(error) { told++ }) }()
			in <- answered(0)
			if early {
				time.Sleep(2 * flushEvery)
				if synctest.Wait(); told != 1 {
					t.Errorf("the error of a flush was told %d times while the run went on", told)
				}
				in <- answered(1)
			}
			close(in)
			if err := <-done; !errors.Is(err, errDisk) || told != 1 || kept.flushes != 1 || len(kept.ids) != 1 {
				t.Errorf("early %v: returned %v, told %d times, %d flushes, kept %v", early, err, told, kept.flushes, kept.ids)
			}
		})
	}
}

// Without anyone to tell, the error is still returned.
func TestErrorWithNobodyToTell(t *testing.T) {
	in := make(chan *record.Record, 1)
	in <- answered(0)
	close(in)
	if err := new(Collector).Collect(in, &memory{beforeWrite: func(int) error { return errDisk }}, nil); !errors.Is(err, errDisk) {
		t.Errorf("returned %v", err)
	}
}
