package report_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

// ramped is a run with a slow, half empty start of 10 s, 40 s of steady load at
// ten requests a second, and a tail of 10 s.
func ramped() (*record.Manifest, []*record.Record) {
	m := manifest()
	m.Load = record.Load{Concurrency: 20, Requests: 500}
	m.MeasureStart = 1000 * msec
	rng := rand.New(rand.NewPCG(1, 9))
	noise := func() record.Time { return record.Time(rng.IntN(10_000_000)) }
	var recs []*record.Record
	add := func(at, ttft, gap record.Time) {
		recs = append(recs, stream(int64(len(recs)), m.MeasureStart+at+noise(), ttft+noise(), gap, 11))
	}
	for at := record.Time(0); at < 10_000*msec; at += 500 * msec {
		add(at, 1000*msec, 10*msec)
	}
	for at := 10_000 * msec; at < 50_000*msec; at += 100 * msec {
		add(at, 100*msec, 50*msec)
	}
	for at := 50_000 * msec; at < 60_000*msec; at += 1000 * msec {
		add(at, 50*msec, 10*msec)
	}
	return m, recs
}

func figures(w *report.Window) map[string]report.WindowFigure {
	out := make(map[string]report.WindowFigure)
	for _, f := range w.Figures {
		name := f.Tag
		if f.Percent > 0 {
			name += " " + report.PercentileKey(f.Percent)
		}
		out[name] = f
	}
	return out
}

func TestSteadyWindow(t *testing.T) {
	m, recs := ramped()
	s := summarizeAll(t, m, nil, "", recs)
	w := s.Window
	if w == nil || w.Whole || w.Mode != report.WindowAuto {
		t.Fatalf("window %+v", w)
	}
	// A group of bins is 1.5 s.
	if w.From < 9 || w.From > 12.5 || w.To < 47 || w.To > 51 {
		t.Errorf("window from %v to %v, want 10 to 50", w.From, w.To)
	}
	f := figures(w)
	if got := f["request_throughput"]; got.Window < 9.7 || got.Window > 10.3 || got.Run > 8 || !got.Differs() {
		t.Errorf("throughput %+v, want 10 in the window and less over all", got)
	}
	if got := f["output_token_throughput"]; got.Window < 106 || got.Window > 114 {
		t.Errorf("tokens %+v, want 110/s in the window", got)
	}
	if got := f["time_to_first_token p99"]; got.Window < 100 || got.Window > 110 || got.Run < 1000 {
		t.Errorf("TTFT %+v, want 100 ms in the window", got)
	}
	if got := f["time_to_first_token p50"]; got.Differs() {
		t.Errorf("median TTFT %+v differs", got)
	}
	// The metrics themselves are the whole run's.
	if r, _ := s.Metric("request_count"); r.Whole != int64(len(recs)) {
		t.Errorf("%d requests, want all %d", r.Whole, len(recs))
	}
}

func TestWindowAsAsked(t *testing.T) {
	m, recs := ramped()
	w := summarizeAll(t, m, nil, "20:30", recs).Window
	if w.Mode != report.WindowSet || w.From != 20 || w.To != 30 || w.Whole || w.Requests != 100 {
		t.Errorf("window %+v", w)
	}
	if got := figures(w)["output_token_throughput"]; got.Window < 108 || got.Window > 112 {
		t.Errorf("tokens %+v", got)
	}
	if w := summarizeAll(t, m, nil, "all", recs).Window; !w.Whole || w.Requests != int64(len(recs)) || w.Figures != nil {
		t.Errorf("the whole run: %+v", w)
	}
	if w := summarizeAll(t, m, nil, "1000:2000", recs).Window; w.Requests != 0 || w.Figures != nil {
		t.Errorf("after the run: %+v", w)
	}
	for _, bad := range []string{"x", "1", "1:", ":1", "5:5", "6:5", "-1:5", "NaN:5", "0:Inf", "0:1:2"} {
		if err := (report.Options{Window: bad}).Validate(); err == nil || !strings.Contains(err.Error(), "FROM:TO") {
			t.Errorf("window %q: error %v", bad, err)
		}
		if _, err := report.Load(record.Dir(t.TempDir()), report.Options{Window: bad}); err == nil {
			t.Errorf("window %q is accepted by Load", bad)
		}
	}
	for _, good := range []string{"", "auto", "all", "0:1", "1.5:1e3"} {
		if err := (report.Options{Window: good}).Validate(); err != nil {
			t.Errorf("window %q: %v", good, err)
		}
	}
}

// Requests of two seconds, one started a second: what lies in the window of each
// is its throughput, and the tokens of half a request are half its tokens.
func TestWindowCountsShares(t *testing.T) {
	m := manifest()
	var recs []*record.Record
	for i := range 10 {
		recs = append(recs, stream(int64(i), record.Time(i)*1000*msec, 1000*msec, 100*msec, 11))
	}
	w := summarizeAll(t, m, nil, "0:2.5", recs).Window
	f := figures(w)
	// All of the first, three quarters of the second, one of the third.
	if got := f["request_throughput"].Window; w.Requests != 3 || !near(got, 2/2.5) {
		t.Errorf("%d requests, %v a second, want 3 started and 2 in 2.5 s", w.Requests, got)
	}
	if got := f["output_token_throughput"].Window; !near(got, (11+5.5)/2.5) {
		t.Errorf("%v tokens/s, want 16.5 in 2.5 s", got)
	}
}

// Requests that go in waves: the window's edges lie somewhere in a wave, and
// must not make a rate of whole waves.
func TestWindowOfWaves(t *testing.T) {
	m := manifest()
	var recs []*record.Record
	for i := range 60 {
		recs = append(recs, stream(int64(i), record.Time(i/10)*2000*msec, 1000*msec, 100*msec, 11))
	}
	for _, window := range []string{"0:11.9", "1:9", "3.1:10.7"} {
		if got := figures(summarizeAll(t, m, nil, window, recs).Window)["request_throughput"].Window; math.Abs(got-5) > 0.05 {
			t.Errorf("window %s: %v requests/s, want 5", window, got)
		}
	}
}

// A window that reaches beyond the run ends with it.
func TestWindowBeyondTheRun(t *testing.T) {
	m, recs := ramped()
	whole := summarizeAll(t, m, nil, "all", recs).Window
	w := summarizeAll(t, m, nil, "0:1000", recs).Window
	if w.To != whole.Run {
		t.Errorf("window %+v, want it to end with the run at %v s", w, whole.Run)
	}
	if got := figures(w)["request_throughput"]; got.Window < 1 || got.Differs() {
		t.Errorf("throughput %+v, want the run's", got)
	}
}

func TestShortAndSteadyRunsHaveNoWindow(t *testing.T) {
	if w := summarizeAll(t, manifest(), nil, "", many(79)).Window; !w.Whole || w.Note == "" {
		t.Errorf("79 requests: %+v", w)
	}
	if s := summarize(t, manifest(), failed(1, 0, record.ServerError, "boom")); s.Window != nil {
		t.Errorf("no valid request: %+v", s.Window)
	}
}

// A hundred seconds in which only stalled requests wait are very steady, and no
// part of a run to speak of.
func TestWindowWithoutRequests(t *testing.T) {
	m := manifest()
	var recs []*record.Record
	for i := range int64(100) {
		recs = append(recs, stream(i, record.Time(i)*170*msec, 100*msec, 10*msec, 11))
	}
	for i := range int64(8) {
		recs = append(recs, stream(100+i, 16_900*msec+record.Time(i)*msec, 100_000*msec, 10*msec, 11))
	}
	w := summarizeAll(t, m, nil, "", recs).Window
	if w == nil || !w.Whole && w.Requests == 0 {
		t.Errorf("window %+v", w)
	}
}

// Whatever the records, a window lies in the run and its rates are those of
// what lies in it.
func TestWindowOfNoisyRuns(t *testing.T) {
	for seed := range uint64(10) {
		m, recs, samples := noisyRun(seed, seed%2 == 0, true)
		w := summarizeAll(t, m, samples, "", recs).Window
		if w.From < 0 || w.To > w.Run || w.From >= w.To || 2*(w.To-w.From) < 0.9*w.Run {
			t.Errorf("seed %d: window %+v", seed, w)
		}
		for _, f := range w.Figures {
			if f.Percent == 0 && (f.Window < 0.8*f.Run || f.Window > 1.3*f.Run) {
				t.Errorf("seed %d: %+v", seed, f)
			}
		}
	}
}
