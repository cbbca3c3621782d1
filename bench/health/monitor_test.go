package health

import (
	"math"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

func TestDeltaCoversOnlyWhatIsNew(t *testing.T) {
	bounds := []float64{0, 1, 2, 4, math.Inf(1)}
	d := &delta{}
	d.next(&metrics.Float64Histogram{Counts: []uint64{100, 0, 0, 0}, Buckets: bounds})
	if q := d.quantile(0.5); q != 1 {
		t.Errorf("median %v, want the upper bound 1", q)
	}
	d.next(&metrics.Float64Histogram{Counts: []uint64{100, 98, 1, 1}, Buckets: bounds})
	for q, want := range map[float64]float64{0: 2, 0.5: 2, 0.98: 2, 0.99: 4, 1: 4} {
		if got := d.quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	d.next(&metrics.Float64Histogram{Counts: []uint64{100, 98, 1, 1}, Buckets: bounds})
	if q := d.quantile(0.5); !math.IsNaN(q) {
		t.Errorf("nothing came in and the median is %v", q)
	}
}

func TestSampleSeesABusyProcess(t *testing.T) {
	m := NewMonitor()
	end := time.Now().Add(100 * time.Millisecond)
	for time.Now().Before(end) {
	}
	runtime.GC()
	v := m.Sample()
	if runtime.GOOS == "linux" {
		for _, name := range []string{record.ClientCPU, record.ClientMachineCPU, record.ClientOpenFiles} {
			if v[name] <= 0 {
				t.Errorf("%s is %v after 100 ms of work", name, v[name])
			}
		}
	}
	if v[record.ClientGCCycles] < 1 || v[record.ClientGCPauseMax] <= 0 {
		t.Errorf("%v collections, longest pause %v, after a collection", v[record.ClientGCCycles], v[record.ClientGCPauseMax])
	}
	if v[record.ClientHeap] <= 0 || v[record.ClientGoroutines] <= 0 {
		t.Errorf("heap %v, goroutines %v", v[record.ClientHeap], v[record.ClientGoroutines])
	}
}
