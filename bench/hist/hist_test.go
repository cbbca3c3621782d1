package hist

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"pgregory.net/rapid"
)

func TestEmptyHasNothing(t *testing.T) {
	h := New()
	_, minOK := h.Min()
	_, maxOK := h.Max()
	_, meanOK := h.Mean()
	_, quantileOK := h.Quantile(0.5)
	if minOK || maxOK || meanOK || quantileOK || h.Count() != 0 || h.Sum() != 0 {
		t.Error("an empty histogram claims to know something")
	}
}

func TestExactBesideTheBuckets(t *testing.T) {
	h := New()
	for _, ns := range []int64{123_456_789, 987_654_321, 1} {
		h.Record(ns)
	}
	lo, _ := h.Min()
	hi, _ := h.Max()
	mean, _ := h.Mean()
	if lo != 1 || hi != 987_654_321 || h.Sum() != 1_111_111_111 || mean != 1_111_111_111/3.0 || h.Clamped() != 0 {
		t.Errorf("min %d max %d sum %d mean %v clamped %d", lo, hi, h.Sum(), mean, h.Clamped())
	}
}

func TestClamped(t *testing.T) {
	h := New()
	for _, ns := range []int64{-5, 0, Highest, Highest + 1, 1 << 62} {
		h.Record(ns)
	}
	lo, _ := h.Min()
	hi, _ := h.Max()
	if h.Count() != 5 || h.Clamped() != 3 || lo != -5 || hi != 1<<62 {
		t.Errorf("count %d clamped %d min %d max %d", h.Count(), h.Clamped(), lo, hi)
	}
	if h.h.TotalCount() != 5 {
		t.Errorf("%d of 5 values are in buckets", h.h.TotalCount())
	}
}

func TestQuantileIsPreciseAndMergeIsRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Int64Range(0, Highest)
		a := rapid.SliceOfN(value, 1, 100).Draw(t, "a")
		b := rapid.SliceOfN(value, 0, 100).Draw(t, "b")
		whole, part, rest := New(), New(), New()
		for _, v := range a {
			whole.Record(v)
			part.Record(v)
		}
		for _, v := range b {
			whole.Record(v)
			rest.Record(v)
		}
		before := rest.Clone()
		part.Merge(rest)
		if rest.Count() != before.Count() || rest.Sum() != before.Sum() {
			t.Fatal("merge changed what was merged")
		}
		all := slices.Sorted(slices.Values(append(slices.Clone(a), b...)))
		for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.999, 1} {
			got, _ := whole.Quantile(q)
			merged, _ := part.Quantile(q)
			if got != merged {
				t.Fatalf("quantile %v: recorded %d, merged %d", q, got, merged)
			}
			rank := q * float64(len(all))
			low := all[max(int(rank-0.5)-1, 0)]
			high := all[min(int(math.Ceil(rank+0.5))-1, len(all)-1)]
			if float64(got) < float64(low)*0.999-Lowest || float64(got) > float64(high)*1.001+Lowest {
				t.Fatalf("quantile %v = %d, exact %d to %d", q, got, low, high)
			}
		}
	})
}

func TestResetAndClone(t *testing.T) {
	h := New()
	h.Record(5_000)
	c := h.Clone()
	h.Reset()
	h.Record(9_000_000)
	lo, _ := h.Min()
	if h.Count() != 1 || lo != 9_000_000 || h.Sum() != 9_000_000 {
		t.Errorf("after reset: count %d min %d sum %d", h.Count(), lo, h.Sum())
	}
	if v, _ := c.Max(); c.Count() != 1 || v != 5_000 {
		t.Errorf("the clone changed: count %d max %d", c.Count(), v)
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	h := New()
	if n := testing.AllocsPerRun(100, func() { h.Record(1_234_567) }); n != 0 {
		t.Errorf("%v allocations a value", n)
	}
}

// What is written has to come back out of HdrHistogram's own reader.
func TestLogReadsBack(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 500e6, time.UTC)
	write := func() string {
		var buf bytes.Buffer
		log, err := NewLog(&buf, "test", start)
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range []string{"TTFT", "E2E"} {
			h := New()
			for i := range int64(1000) {
				h.Record((i + 1) * 1_000_000)
			}
			if err := log.Write(tag, start, start.Add(30*time.Second), h); err != nil {
				t.Fatal(err)
			}
		}
		return buf.String()
	}
	text := write()
	if again := write(); again != text {
		t.Error("the same histograms gave different bytes")
	}
	r := hdrhistogram.NewHistogramLogReader(strings.NewReader(text))
	for _, tag := range []string{"TTFT", "E2E"} {
		h, err := r.NextIntervalHistogram()
		if err != nil || h == nil {
			t.Fatalf("read %s: %v, %v", tag, h, err)
		}
		if h.Tag() != tag || h.TotalCount() != 1000 {
			t.Errorf("tag %q with %d values, want %q with 1000", h.Tag(), h.TotalCount(), tag)
		}
		if got := h.ValueAtPercentile(50); math.Abs(float64(got)-500e6) > 1e6 {
			t.Errorf("p50 = %d ns, want about 500 ms", got)
		}
		if h.StartTimeMs() != start.UnixMilli() || h.EndTimeMs() != start.UnixMilli()+30_000 {
			t.Errorf("interval %d to %d ms", h.StartTimeMs(), h.EndTimeMs())
		}
	}
}

func TestLogRefusesBadTags(t *testing.T) {
	var buf bytes.Buffer
	log, err := NewLog(&buf, "test", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"", "a,b", ",", "a b", "a\nb"} {
		if err := log.Write(tag, time.Unix(0, 0), time.Unix(1, 0), New()); err == nil {
			t.Errorf("tag %q is accepted", tag)
		}
	}
	if _, err := NewLog(&buf, "two\nlines", time.Unix(0, 0)); err == nil {
		t.Error("a comment of two lines is accepted")
	}
}
