package report_test

import (
	"os"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

// A million gaps, and one record after the other: what is kept is the gaps.
func TestMillionGaps(t *testing.T) {
	s, err := report.Summarize(manifest(), func(yield func(*record.Record, error) bool) {
		for i := range int64(1000) {
			if !yield(stream(i, record.Time(i)*msec, 20*msec, 5*msec+record.Time(i), 1001), nil) {
				return
			}
		}
	}, nil, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, ok := s.Metric("inter_chunk_latency")
	if !ok || r.Statistic.Count != 1_000_000 || !near(r.Statistic.Avg, 5.0004995) || r.Statistic.Max != 5.000999 {
		t.Errorf("gaps: %+v", r.Statistic)
	}
}

// BenchmarkLoad reads a run directory of 2 000 records with 256 events each,
// with a lag, as a kernel's stamps give it.
func BenchmarkLoad(b *testing.B) {
	dir := record.Dir(b.TempDir())
	if err := dir.WriteManifest(manifest()); err != nil {
		b.Fatal(err)
	}
	w, err := dir.NewWriter()
	if err != nil {
		b.Fatal(err)
	}
	for i := range int64(2000) {
		r := stream(i, record.Time(i)*msec, 20*msec+record.Time(i)*977, 5*msec+record.Time(i)*31, 256)
		for j := range r.Chunks {
			r.Chunks[j].Lag = uint32(2000 + j*13)
		}
		if err := w.Write(r); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	if info, err := os.Stat(dir.Path(record.RecordsFile)); err == nil {
		b.SetBytes(info.Size())
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := report.Load(dir, report.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*2000/b.Elapsed().Seconds(), "records/s")
}
