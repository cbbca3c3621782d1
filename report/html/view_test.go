package html

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
)

// TestBins: no value is lost, and each bar holds what lies between its ends.
func TestBins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 4e12), 1, 200).Draw(t, "values")
		n := rapid.IntRange(1, 80).Draw(t, "n")
		var b bins
		for _, v := range values {
			b.add(v)
		}
		first, last, ok := b.extent()
		if !ok {
			if slices.Max(values) > smallest {
				t.Fatal("values have no extent")
			}
			return
		}
		all := b.bars(first, last, n)
		if len(all) > n {
			t.Fatalf("%d bars, %d asked for", len(all), n)
		}
		total := b.none()
		for i, one := range all {
			total += one.count
			if i > 0 && one.low != all[i-1].high {
				t.Fatalf("bar %d begins at %g, the one before ends at %g", i, one.low, all[i-1].high)
			}
			const exact = 1e-9
			inside := int64(0)
			for _, v := range values {
				if v > smallest && v >= one.low*(1-exact) && v <= one.high*(1+exact) {
					inside++
				}
			}
			if one.count > inside {
				t.Fatalf("bar %g to %g counts %d, there are %d", one.low, one.high, one.count, inside)
			}
		}
		if total != int64(len(values)) {
			t.Fatalf("%d of %d values", total, len(values))
		}
	})
}

// TestTimelineKeepsTotals: however often the bins grow, and however they are
// cut, what came is what is shown.
func TestTimelineKeepsTotals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SliceOfN(rapid.Int64Range(0, 1e13), 1, 100).Draw(t, "at")
		n := rapid.IntRange(1, 300).Draw(t, "n")
		var line timeline
		for _, x := range at {
			line.add(record.Time(x), 1)
		}
		first, last := record.Time(slices.Min(at)), record.Time(slices.Max(at))+1
		total := 0.0
		for _, rate := range line.rates(first, last, n) {
			total += rate * float64(last-first) / float64(n) / 1e9
		}
		if math.Abs(total-float64(len(at))) > 1e-6*float64(len(at)) {
			t.Fatalf("%g of %d", total, len(at))
		}
		if len(line.sums) > timelineBins {
			t.Fatalf("%d bins", len(line.sums))
		}
	})
}

func TestTimelineRates(t *testing.T) {
	var line timeline
	for i := range 1000 { // 100 a second in the first half, then 300
		line.add(record.Time(i)*10*msec, 1)
		if i >= 500 {
			line.add(record.Time(i)*10*msec, 2)
		}
	}
	if d := cmp.Diff([]float64{100, 300}, line.rates(0, 10_000*msec, 2)); d != "" {
		t.Error(d)
	}
}

// TestThin: what is left are points of the cloud, few enough, with its
// outliers.
func TestThin(t *testing.T) {
	var cloud []point
	for i := range 100_000 {
		cloud = append(cloud, point{float64(i), float64(i * 7919 % 1000)})
	}
	cloud[500].y, cloud[501].y = 1e6, math.NaN()
	kept := thin(cloud)
	if len(kept) > cloudPoints || len(kept) < 100 {
		t.Errorf("%d points", len(kept))
	}
	if !slices.Contains(kept, point{500, 1e6}) {
		t.Error("the outlier is gone")
	}
	for _, p := range kept {
		if cloud[int(p.x)] != p {
			t.Fatalf("%v is not a point of the cloud", p)
		}
	}
	if few := cloud[:100]; len(thin(few)) != 100 {
		t.Error("of a small cloud points are gone")
	}
}

// TestOutline: the ends stay, and so does a spike.
func TestOutline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 60).Draw(t, "n")
		size := rapid.IntRange(2, 2000).Draw(t, "size")
		spike := rapid.IntRange(0, size-1).Draw(t, "spike")
		points := make([]point, size)
		for i := range points {
			points[i] = point{float64(i), math.Sin(float64(i))}
		}
		points[spike].y = 1e6
		kept := outline(points, n)
		if len(kept) != min(n, size) || kept[0] != points[0] || kept[len(kept)-1] != points[size-1] {
			t.Fatalf("%d points, from %v to %v", len(kept), kept[0], kept[len(kept)-1])
		}
		if !slices.Contains(kept, points[spike]) {
			t.Fatal("the spike is gone")
		}
	})
}

// stream has events every 10 ms from start on, but for a longer gap after some
// of them.
func stream(id int64, start record.Time, long map[int]record.Time) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Outcome, r.Streaming, r.Streamed, r.Start = record.OK, true, true, start
	at := start + 50*msec
	for i := range 30 {
		r.Chunks = append(r.Chunks, record.Chunk{At: at, Tokens: 1, Kind: record.KindText})
		at += 10*msec + long[i]
	}
	r.End = at
	r.Tokens.Output = 30
	return r
}

func TestStalls(t *testing.T) {
	for _, tt := range []struct {
		name                          string
		recs                          []*record.Record
		total, touched, together, top int
	}{
		{"none", []*record.Record{stream(0, 0, nil), stream(1, 0, nil)}, 0, 0, 0, 0},
		{"below the limit", []*record.Record{stream(0, 0, map[int]record.Time{4: 39 * msec})}, 0, 0, 0, 0},
		{"at the limit", []*record.Record{stream(0, 0, map[int]record.Time{4: 40 * msec})}, 1, 1, 0, 1},
		{"twice in one stream", []*record.Record{stream(0, 0, map[int]record.Time{4: 90 * msec, 9: 90 * msec}), stream(1, 0, nil)}, 2, 1, 0, 1},
		{"all at once", []*record.Record{
			stream(0, 0, map[int]record.Time{9: 100 * msec}), stream(1, 10*msec, map[int]record.Time{8: 100 * msec}),
			stream(2, 20*msec, map[int]record.Time{7: 100 * msec}), stream(3, 0, nil),
		}, 3, 3, 3, 3},
		{"two of many", []*record.Record{
			stream(0, 0, map[int]record.Time{9: 100 * msec}), stream(1, 0, map[int]record.Time{9: 100 * msec}),
			stream(2, 0, nil), stream(3, 0, nil), stream(4, 0, nil), stream(5, 0, nil),
		}, 2, 2, 0, 2},
		{"both of two", []*record.Record{stream(0, 0, map[int]record.Time{9: 100 * msec}), stream(1, 0, map[int]record.Time{9: 100 * msec})}, 2, 2, 2, 2},
		{"one after the other", []*record.Record{stream(0, 0, map[int]record.Time{3: 50 * msec}), stream(1, 0, map[int]record.Time{15: 50 * msec})}, 2, 2, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := NewView(manifest(4), sequence(tt.recs), nil)
			if err != nil {
				t.Fatal(err)
			}
			together, top := v.stalls.coinciding()
			got := []int{int(v.stalls.total), int(v.stalls.touched), together, top}
			if d := cmp.Diff([]int{tt.total, tt.touched, tt.together, tt.top}, got); d != "" {
				t.Errorf("total, streams, together, at one moment (-want +got):\n%s", d)
			}
		})
	}
}

// TestSlowest keeps the longest of many, in order, with their longest gaps.
func TestSlowest(t *testing.T) {
	var recs []*record.Record
	for i := range 50 {
		k := (i*7 + 3) % 50
		recs = append(recs, stream(int64(k), record.Time(i)*msec, map[int]record.Time{3: record.Time(k) * msec}))
	}
	v, err := NewView(manifest(4), sequence(recs), nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for _, q := range v.slowest {
		ids = append(ids, q.id)
		if want := 10*time.Millisecond + time.Duration(q.id)*time.Millisecond; q.gap != want {
			t.Errorf("request %d: longest gap %v, want %v", q.id, q.gap, want)
		}
	}
	if d := cmp.Diff([]int64{49, 48, 47, 46, 45, 44, 43, 42, 41, 40}, ids); d != "" {
		t.Error(d)
	}
}

// TestSampledSeries: gauges as they are, counters as growth a second and as
// shares of another counter; a server that starts again gives no negative
// rate.
func TestSampledSeries(t *testing.T) {
	at := func(second int, values map[string]float64) record.Sample {
		return record.Sample{At: record.Time(second) * 1000 * msec, From: record.FromServer, Values: values}
	}
	samples := []record.Sample{
		at(1, map[string]float64{"waiting": 3, "preemptions": 10, "prefix_hits": 0, "prefix_queries": 0}),
		at(3, map[string]float64{"waiting": 0, "preemptions": 14, "prefix_hits": 30, "prefix_queries": 60}),
		{At: 3500 * msec, From: record.FromClient, Values: map[string]float64{"waiting": 99}},
		at(4, map[string]float64{"preemptions": 0, "prefix_hits": 30, "prefix_queries": 60}),
	}
	m := manifest(1)
	m.MeasureStart = 0
	recs := []*record.Record{stream(0, 0, nil), stream(1, 4000*msec, nil)}
	tc := newTimeCharts(summarize(t, m, recs, nil).Summary, &View{origin: 0, end: 5000 * msec, samples: samples})
	type xy struct{ X, Y []num }
	var got []xy
	for _, s := range tc.sampled(
		sampled{from: record.FromServer, value: serverWaiting, scale: 1},
		sampled{from: record.FromServer, value: serverPreemptions, perSecond: true, scale: 1},
		sampled{from: record.FromServer, value: serverPrefixHits, over: serverPrefixQueries, scale: 100},
		sampled{from: record.FromGPU, value: gpuPower, scale: 1},
	) {
		got = append(got, xy{s.X, s.Y})
	}
	want := []xy{{[]num{1, 3}, []num{3, 0}}, {[]num{3}, []num{2}}, {[]num{3}, []num{50}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
