//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
)

// TestMain lets the test's own process be started in a role.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestCompare(t *testing.T) {
	served := []*exchange{
		{ID: "a", Start: 90, Events: []int64{95, 100, 110, 120}, Over: true},
		{ID: "b", Start: 105, Events: []int64{115, 200}, Over: true},
		{ID: "nobody saw it", Start: 106, Events: []int64{118}, Over: true},
	}
	seen := []*exchange{
		{ID: "a", Events: []int64{96, 103, 111}, Lag: []uint32{0, 10, 20}},
		{ID: "b", Events: []int64{120}, Lag: []uint32{5}},
	}
	var o observation
	o.compare(served, seen, 100, 150)
	if d := cmp.Diff([]float64{1, 3, 5}, o.stamp); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float64{10, 13, 21}, o.user); d != "" {
		t.Error(d)
	}
	// Sent from 100 on: three of a, one of b and of the other. The last of a,
	// and all of the other, were never seen; b goes on after the window.
	if o.events != 5 || o.taken != 3 || o.requests != 2 || o.lost != 2 {
		t.Errorf("%v events, %v taken, %v requests, %d lost", o.events, o.taken, o.requests, o.lost)
	}
}

func TestArrivals(t *testing.T) {
	var o observation
	// At 1000 per second: the line goes through the earliest, the third.
	o.arrivals([]*exchange{{Start: 5e6 + 300}, {Start: 6e6 + 100}, {Start: 7e6}, {Start: 8e6 + 50}}, 1000, 0, 1e9)
	if d := cmp.Diff([]float64{0, 50, 100, 300}, o.lateness); d != "" {
		t.Error(d)
	}
}

func TestQuantile(t *testing.T) {
	v := []float64{1, 2, 3, 4}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := quantile(v, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}

// The server's account and those of the reference and of the engine agree: each
// event is seen, after it was sent, and the kernel's stamp before our own.
func TestObserve(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{self: self, dir: t.TempDir(), clock: newClock(), free: true}
	const streams, tokens = 8, 10
	l := paced(streams, tokens, 100*time.Millisecond)
	l.settle = 50 * time.Millisecond
	for _, mode := range []string{modePaced, modeFlat} {
		l.server[1] = mode
		for _, c := range []client{h.referenceClient(streams, time.Second/2), h.engineClient(streams, tokens, time.Second/2)} {
			o, err := h.observe(l, c)
			if err != nil {
				t.Fatal(err)
			}
			if o.events == 0 || len(o.stamp) == 0 || o.lost > 0 {
				t.Errorf("%s %s: %v events sent, %d matched, %d lost", mode, c.name, o.events, len(o.stamp), o.lost)
			}
			const clocksApart = 100e3 // ns that two processes may map the wall clock differently
			if len(o.stamp) > 0 && o.stamp[0] < -clocksApart {
				t.Errorf("%s %s: an event was seen %v ns before it was sent", mode, c.name, -o.stamp[0])
			}
			if c.name == "engine" && len(o.lag) != len(o.stamp) {
				t.Errorf("%s: %d lags for %d events", mode, len(o.lag), len(o.stamp))
			}
			if o.cpu <= 0 {
				t.Errorf("%s %s: no processor time", mode, c.name)
			}
		}
	}
}

func TestSyntheticRecordIsValid(t *testing.T) {
	dir := record.Dir(filepath.Join(t.TempDir(), "run"))
	if err := dir.Create(); err != nil {
		t.Fatal(err)
	}
	w, err := dir.NewWriter()
	if err != nil {
		t.Fatal(err)
	}
	r := syntheticRecord(3, 256)
	if err := w.Write(r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for got, err := range dir.Records() {
		if err != nil || !got.Valid() {
			t.Errorf("%v, valid %v", err, got.Valid())
		}
		if d := cmp.Diff(r, got); d != "" {
			t.Error(d)
		}
	}
}
