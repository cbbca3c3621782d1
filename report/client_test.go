package report_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

// clientRun is a closed loop of two streams: 200 requests of 10 events, 100 ms
// each, the next one due when a place becomes free.
func clientRun() (*record.Manifest, []*record.Record, []record.Sample) {
	m := manifest()
	m.Load = record.Load{Concurrency: 2, Requests: 200}
	m.Stamps = record.StampsKernel
	m.Host = record.Host{Procs: 4, NoFile: 1000}
	var recs []*record.Record
	free := [2]record.Time{}
	for i := range 200 {
		place := i % 2
		r := stream(int64(i), free[place], 55*msec, 5*msec, 10)
		r.Due = r.Start
		for k := range r.Chunks {
			r.Chunks[k].Lag = uint32(30 * time.Microsecond)
		}
		r.End = r.Chunks[9].At
		free[place] = r.End
		recs = append(recs, r)
	}
	var samples []record.Sample
	for i := range 40 {
		samples = append(samples, record.Sample{At: record.Time(i+1) * 250 * msec, From: record.FromClient, Values: map[string]float64{
			record.ClientCPU: 0.4, record.ClientMachineCPU: 0.3, record.ClientSchedP99: 50e-6, record.ClientSchedMax: 400e-6,
			record.ClientGCPauseMax: 100e-6, record.ClientGoroutines: 20, record.ClientWaiting: 1, record.ClientWaitingRoom: 100,
			record.ClientOpenFiles: 12, record.ClientInFlight: 2,
		}})
	}
	return m, recs, samples
}

// delay moves a whole request later.
func delay(r *record.Record, d time.Duration) {
	r.Start += record.Time(d)
	r.End += record.Time(d)
	for k := range r.Chunks {
		r.Chunks[k].At += record.Time(d)
	}
}

func TestClientRules(t *testing.T) {
	type run struct {
		m       *record.Manifest
		recs    []*record.Record
		samples []record.Sample
	}
	set := func(name string, v float64, n int) func(*run) {
		return func(r *run) {
			for i := range n {
				r.samples[i].Values[name] = v
			}
		}
	}
	late := func(n int, d time.Duration) func(*run) {
		return func(r *run) {
			for _, rec := range r.recs[100 : 100+n] {
				delay(rec, d)
			}
		}
	}
	// An open loop at 20/s, where n requests are late.
	open := func(n int, d time.Duration) func(*run) {
		return func(r *run) {
			r.m.Load = record.Load{Rate: 20, Requests: 200}
			late(n, d)(r)
		}
	}
	noKernel := func(then func(*run)) func(*run) {
		return func(r *run) {
			r.m.Stamps = record.StampsRead
			for _, rec := range r.recs {
				for k := range rec.Chunks {
					rec.Chunks[k].Lag = 0
				}
			}
			then(r)
		}
	}
	// Of 2 000 events so many share a read, lag after the kernel.
	joined := func(n int, lag time.Duration) func(*run) {
		return func(r *run) {
			for i := range n {
				c := &r.recs[i/9].Chunks[1+i%9]
				c.Kind |= record.SameRead
				c.Lag = uint32(lag)
			}
		}
	}
	lagged := func(n int, lag time.Duration) func(*run) {
		return func(r *run) {
			for i := range n {
				r.recs[i/10].Chunks[i%10].Lag = uint32(lag)
			}
		}
	}
	both := func(fs ...func(*run)) func(*run) {
		return func(r *run) {
			for _, f := range fs {
				f(r)
			}
		}
	}
	// Each place is idle for idle before each request, because of us or not.
	idle := func(idle time.Duration, ours bool) func(*run) {
		return func(r *run) {
			for i, rec := range r.recs {
				delay(rec, time.Duration(i/2)*idle)
				if rec.Due = rec.Start; ours && i >= 2 {
					rec.Due = rec.Start - record.Time(idle)
				}
			}
		}
	}
	const us, mil = time.Microsecond, time.Millisecond
	tests := []struct {
		name   string
		change func(*run)
		codes  []string
		level  report.Level
	}{
		{"clean", func(*run) {}, nil, report.Valid},

		{"late at p99, at the limit", open(10, 10*mil), nil, report.Valid},
		{"late at p99, above", open(10, 10*mil+us), []string{report.ClientLate}, report.Suspect},
		{"two late ones are chance", func(r *run) { open(2, 15*mil)(r); r.recs = r.recs[50:150] }, nil, report.Valid},
		{"late at p99 in a closed loop", late(10, 10*mil+us), []string{report.ClientLate}, report.Suspect},
		{"late, but little against gaps and TTFT", func(r *run) {
			open(10, 11*mil)(r)
			for i, rec := range r.recs {
				rec.Start, rec.Due = record.Time(i)*1000*msec, record.Time(i)*1000*msec
				if i < 10 {
					rec.Start += 11 * msec
				}
				for k := range rec.Chunks {
					rec.Chunks[k].At = rec.Start + 400*msec + record.Time(k)*5*msec
				}
				rec.End = rec.Chunks[9].At
			}
		}, nil, report.Valid},
		{"late at the median, at the limit", open(100, 10*mil), nil, report.Valid},
		{"late at the median, above", open(100, 11*mil), []string{report.ClientLate}, report.Suspect},
		{"more than half late", func(r *run) {
			open(100, 11*mil)(r)
			r.recs = r.recs[90:]
		}, []string{report.ClientLate}, report.Invalid},
		{"late for the cap is not our doing", func(r *run) {
			open(100, 90*mil)(r)
			r.m.Load.Concurrency, r.m.MaxInFlight = 2, 2
			for _, rec := range r.recs {
				rec.CapWait = rec.Start.Sub(rec.Due)
			}
		}, []string{report.ScheduleLag}, report.Suspect},
		{"the burst of a closed loop is not late", func(r *run) {
			r.m.Load.Concurrency = 100
			for i, rec := range r.recs {
				rec.Due = rec.Start
				if i < 100 {
					rec.Due = 0
				}
			}
		}, nil, report.Valid},

		// 100 ms each: 5.26 ms of idleness before each are 5 %.
		{"idle places, at the limit", idle(5*mil, true), nil, report.Valid},
		{"idle places, above", idle(6*mil, true), []string{report.ClientLate, report.ConcurrencyNotReached}, report.Invalid},
		{"idle places that were asked for", idle(60*mil, false), nil, report.Valid},
		{"idle places that were asked for, and a little of ours", func(r *run) {
			idle(60*mil, false)(r)
			for _, rec := range r.recs[2:] {
				rec.Due -= 2 * msec
			}
		}, nil, report.Valid},
		{"idle for a moment beside short requests", func(r *run) {
			for i, rec := range r.recs {
				start := record.Time(i/2) * 8 * msec
				rec.Start, rec.Due = start, start-900*record.Time(us)
				rec.Chunks = rec.Chunks[:2]
				rec.Chunks[0].At, rec.Chunks[1].At = start+3*msec, start+7*msec
				rec.End = start + 7100*record.Time(us)
			}
			r.recs[0].Due, r.recs[1].Due = 0, 0
		}, nil, report.Valid},

		{"lost stamps, at the limit", joined(20, 2*mil), nil, report.Valid},
		{"lost stamps, above", joined(21, 2*mil), []string{report.LostStamps}, report.Suspect},
		{"lost stamps, far above", joined(201, 2*mil), []string{report.LostStamps}, report.Invalid},
		{"joined, but read in time", joined(201, mil), nil, report.Valid},
		{"late, but not joined", lagged(201, 2*mil), nil, report.Valid},
		{"joined by the server, and some of it read late", func(r *run) {
			joined(600, 30*us)(r)
			for i := range 2000 { // a fifth of what is joined is late, and of what is not
				if i%5 == i/10%5 {
					r.recs[i/10].Chunks[i%10].Lag = uint32(2 * mil)
				}
			}
		}, nil, report.Valid},
		{"joined, and read in time so rarely that it tells nothing", func(r *run) {
			joined(1800, 30*us)(r)
			for i := range 1980 {
				r.recs[i/10].Chunks[i%10].Lag = uint32(2 * mil)
			}
		}, []string{report.LostStamps}, report.Invalid},
		{"few events say nothing", func(r *run) { joined(15, 2*mil)(r); r.recs = r.recs[:22] }, nil, report.Valid},

		{"receive lag, below", lagged(40, 10*mil-us), nil, report.Valid},
		{"receive lag is harmless with kernel stamps", lagged(40, 12*mil), []string{report.ReceiveLag}, report.Valid},
		// The inter token latency is 5 ms.
		{"scheduler, below the floor", noKernel(set(record.ClientSchedP99, 0.001, 40)), nil, report.Valid},
		{"scheduler, above", noKernel(set(record.ClientSchedP99, 0.00101, 40)), []string{report.ReceiveLag}, report.Suspect},
		{"scheduler, at the upper limit", noKernel(set(record.ClientSchedP99, 0.00125, 40)), []string{report.ReceiveLag}, report.Suspect},
		{"scheduler, far above", noKernel(set(record.ClientSchedP99, 0.00126, 40)), []string{report.ReceiveLag}, report.Invalid},
		{"scheduler, but in less than half of the run", noKernel(set(record.ClientSchedP99, 0.1, 19)), nil, report.Valid},
		{"scheduler, with kernel stamps", set(record.ClientSchedP99, 0.1, 40), nil, report.Valid},

		{"cpu, at the limit", set(record.ClientCPU, 3.7, 4), nil, report.Valid},
		{"cpu, above", set(record.ClientCPU, 3.7, 5), []string{report.ClientCPU}, report.Valid},
		{"cpu, full but not too full", set(record.ClientCPU, 3.6, 40), nil, report.Valid},
		{"cpu, without kernel stamps", noKernel(set(record.ClientCPU, 3.7, 5)), []string{report.ClientCPU}, report.Suspect},
		{"machine, at the limit", set(record.ClientMachineCPU, 0.96, 10), nil, report.Valid},
		{"machine, above", set(record.ClientMachineCPU, 0.96, 11), []string{report.MachineCPU}, report.Valid},
		{"machine of a short run", func(r *run) { set(record.ClientMachineCPU, 1, 3)(r); r.samples = r.samples[:3] }, nil, report.Valid},

		{"writer, at the limit", set(record.ClientWaiting, 50, 1), nil, report.Valid},
		{"writer, above", set(record.ClientWaiting, 51, 1), []string{report.WriterStalled}, report.Suspect},
		{"writer, full", set(record.ClientWaiting, 100, 1), []string{report.WriterStalled}, report.Invalid},
		{"clock", func(r *run) { r.m.ClockSteps = 1 }, []string{report.ClockStep}, report.Suspect},
		{"clock, of which no time is", noKernel(func(r *run) { r.m.ClockSteps = 1 }), []string{report.ClockStep}, report.Valid},
		{"files, at the limit", set(record.ClientOpenFiles, 900, 1), nil, report.Valid},
		{"files, above", set(record.ClientOpenFiles, 901, 1), []string{report.OpenFiles}, report.Suspect},
		{"files, no limit known", both(set(record.ClientOpenFiles, 901, 1), func(r *run) { r.m.Host.NoFile = 0 }), nil, report.Valid},

		{"the slew of a clock", func(r *run) { r.recs[5].Chunks[4].At = r.recs[5].Chunks[3].At - msec }, nil, report.Valid},
		{"back in time", func(r *run) { r.recs[5].Chunks[4].At = r.recs[5].Chunks[3].At - msec - 1 }, []string{report.ImpossibleRate}, report.Invalid},
		{"an answer before the request", func(r *run) { r.recs[5].Chunks[0].At = r.recs[5].Start }, []string{report.ImpossibleRate}, report.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r run
			r.m, r.recs, r.samples = clientRun()
			tt.change(&r)
			s := summarizeAll(t, r.m, r.samples, "", r.recs)
			if diff := cmp.Diff(tt.codes, codes(s)); diff != "" {
				t.Errorf("warnings: -want +got\n%s", diff)
			}
			if s.Verdict.Level != tt.level {
				t.Errorf("verdict %s (%q), want %s", s.Verdict.Level, s.Verdict.Reasons, tt.level)
			}
			for _, w := range s.Warnings {
				if w.Message == "" || w.Advice == "" {
					t.Errorf("warning %s lacks its figure or advice", w.Code)
				}
			}
		})
	}
}

// The bound on tokens/s of a user is far above any server but a simulated one.
func TestImpossibleRate(t *testing.T) {
	run := func(gap record.Time, n int, simulated bool) *report.Summary {
		m := manifest()
		m.Target.Simulated = simulated
		var recs []*record.Record
		for i := range n {
			recs = append(recs, stream(int64(i), record.Time(i)*10*msec, 2*msec, gap, 20))
		}
		return summarize(t, m, recs...)
	}
	for _, tt := range []struct {
		name      string
		gap       record.Time
		n         int
		simulated bool
		want      bool
	}{
		{"at the limit", 10_000, 30, false, false},
		{"above", 9_990, 30, false, true},
		{"simulated", 9_990, 30, true, false},
		{"few", 9_990, 19, false, false},
	} {
		if got := run(tt.gap, tt.n, tt.simulated).Warned(report.ImpossibleRate); got != tt.want {
			t.Errorf("%s: warned %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestPhysicalBounds: each rate has a bound of its own, whatever the number of
// requests, and the warning names every figure beyond its bound.
func TestPhysicalBounds(t *testing.T) {
	figures := regexp.MustCompile(`(?:: |, )(.+?)(?: \(median\)| \(largest\))? [0-9][^ ]* tokens[^ ]* \(bound`)
	for _, tt := range []struct {
		name          string
		n             int
		input, output record.Count
		labels        []string
	}{
		{"long and fast, as may be", 1, 1_000_000, 20_000, nil},
		{"a prompt computed too fast", 3, 5_000_000, 20, []string{"Prefill Throughput Per User"}},
		{"answers told too fast", 3, 100, 600_000, []string{"Output Token Throughput Per User", "E2E Output Token Throughput"}},
		{"many told too fast", 20, 100, 5_000, []string{"Output Token Throughput Per User", "E2E Output Token Throughput"}},
		{"all of it", 1, 900_000_000, 5_000_000, []string{
			"Output Token Throughput Per User", "E2E Output Token Throughput", "Prefill Throughput Per User", "Output Token Throughput",
			"Input Token Throughput", "Total Token Throughput", "Input Sequence Length",
		}},
		{"a deployment", 1, 100, 5_000_000_000, []string{
			"Output Token Throughput Per User", "E2E Output Token Throughput", "Output Token Throughput", "Total Token Throughput", "Output Sequence Length",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var recs []*record.Record
			for i := range tt.n {
				r := stream(int64(i), record.Time(i)*100*msec, 20*msec, 2*msec, 10) // 38 ms
				r.Tokens.Input, r.Tokens.Output, r.Tokens.Reasoning = tt.input, tt.output, record.Unknown
				recs = append(recs, r)
			}
			s := summarize(t, manifest(), recs...)
			if s.Warned(report.ImpossibleRate) != (tt.labels != nil) {
				t.Fatalf("warnings %v", s.Warnings)
			}
			for _, w := range s.Warnings {
				if w.Code != report.ImpossibleRate {
					continue
				}
				var got []string
				for _, m := range figures.FindAllStringSubmatch(w.Message, -1) {
					got = append(got, m[1])
				}
				if diff := cmp.Diff(tt.labels, got); diff != "" {
					t.Errorf("%s\n-want +got\n%s", w.Message, diff)
				}
				if w.Effect != report.Invalid {
					t.Errorf("effect %s", w.Effect)
				}
			}
		})
	}
}

// A single answer out of a buffer, all of it within milliseconds, has a rate
// that says nothing; its length is bounded nevertheless.
func TestPhysicalBoundsOfAMoment(t *testing.T) {
	for output, want := range map[record.Count]bool{5_000_000: false, 100_000_001: true} {
		r := stream(0, 0, 2*msec, msec/10, 10)
		r.Tokens.Input, r.Tokens.Output, r.Tokens.Reasoning = 100, output, record.Unknown
		if got := summarize(t, manifest(), r).Warned(report.ImpossibleRate); got != want {
			t.Errorf("%d tokens: warned %v, want %v", output, got, want)
		}
	}
}

// noisyRun is what a healthy client on a busy little machine sees: latencies
// that vary, late wake-ups with a long tail, reads that join.
func noisyRun(seed uint64, openLoop, kernel bool) (*record.Manifest, []*record.Record, []record.Sample) {
	rng := rand.New(rand.NewPCG(seed, 7))
	tail := func(median, worst time.Duration) record.Time {
		return record.Time(min(float64(median)*math.Exp(1.2*rng.NormFloat64()), float64(worst)))
	}
	const places = 8
	m := manifest()
	m.Load = record.Load{Concurrency: places, Requests: 400}
	if openLoop {
		m.Load = record.Load{Rate: 25, Arrival: "poisson", Requests: 400}
	}
	m.Host = record.Host{Procs: 2, NoFile: 1024}
	m.Cache = record.Cache{Mode: record.CacheCold, Block: 16}
	m.MaxInFlight = places
	m.Stamps = record.StampsRead
	if kernel {
		m.Stamps = record.StampsKernel
	}
	var recs []*record.Record
	var free [places]record.Time
	due := record.Time(0)
	for i := range 400 {
		place := 0
		for k := range free {
			if free[k] < free[place] {
				place = k
			}
		}
		if openLoop {
			due += record.Time(rng.ExpFloat64() * float64(40*msec))
		} else {
			due = free[place]
		}
		r := record.New(record.PhaseMeasure, int64(i))
		r.Outcome, r.Status, r.Streaming, r.Streamed, r.Done = record.OK, 200, true, true, true
		r.Due = due
		r.Start = due + tail(60*time.Microsecond, 6*time.Millisecond)
		if !openLoop && i < places {
			r.Start += record.Time(i) * 50_000
		}
		at := r.Start + 40*msec + tail(15*time.Millisecond, 200*time.Millisecond)
		for k := range 30 {
			c := record.Chunk{At: at, Tokens: 1, Kind: record.KindText}
			if lag := tail(40*time.Microsecond, 5*time.Millisecond); kernel {
				c.Lag = uint32(lag)
			}
			if k > 0 && rng.IntN(20) == 0 { // the server joins two
				c.At, c.Lag, c.Kind = r.Chunks[k-1].At, r.Chunks[k-1].Lag, c.Kind|record.SameRead
			} else if k > 0 {
				at += 6*msec + tail(time.Millisecond, 30*time.Millisecond)
				c.At = at
			}
			r.Chunks = append(r.Chunks, c)
		}
		r.End = r.Chunks[29].At + tail(100*time.Microsecond, time.Millisecond)
		free[place] = r.End
		r.AskedInput, r.AskedOutput = 500, 30
		r.Tokens = record.Tokens{Source: record.SourceUsage, Input: record.Count(525 + rng.IntN(10)), Output: 30, Reasoning: record.Unknown, Cached: record.Count(16 * rng.IntN(3))}
		r.Usage = record.Usage{Prompt: r.Tokens.Input, Completion: 30, Total: r.Tokens.Input + 30, Reasoning: record.Unknown, Cached: r.Tokens.Cached}
		recs = append(recs, r)
	}
	var samples []record.Sample
	for i := range 60 {
		v := map[string]float64{
			record.ClientCPU: 0.3 + rng.Float64(), record.ClientMachineCPU: min(1, 0.4+0.4*rng.Float64()),
			record.ClientSchedP99: float64(tail(100*time.Microsecond, 5*time.Millisecond)) / 1e9, record.ClientSchedMax: 0.012,
			record.ClientGCPauseMax: 0.0005, record.ClientGoroutines: 30, record.ClientWaiting: float64(rng.IntN(20)), record.ClientWaitingRoom: 16384,
			record.ClientOpenFiles: 20,
		}
		if i%10 == 0 { // a neighbour takes the machine for a moment
			v[record.ClientMachineCPU], v[record.ClientSchedP99], v[record.ClientCPU] = 1, 0.02, 1.1
		}
		samples = append(samples, record.Sample{At: record.Time(i+1) * 250 * msec, From: record.FromClient, Values: v})
	}
	return m, recs, samples
}

// A clean run never gets a code, however noisy the machine.
func TestCleanRunsHaveNoWarnings(t *testing.T) {
	for seed := range uint64(10) {
		for _, openLoop := range []bool{false, true} {
			for _, kernel := range []bool{false, true} {
				t.Run(fmt.Sprintf("seed %d open %v kernel %v", seed, openLoop, kernel), func(t *testing.T) {
					m, recs, samples := noisyRun(seed, openLoop, kernel)
					s := summarizeAll(t, m, samples, "", recs)
					if got := codes(s); got != nil || s.Verdict.Level != report.Valid {
						t.Errorf("warnings %q, verdict %+v", got, s.Verdict)
					}
				})
			}
		}
	}
}

// What the block says is what the samples and records hold.
func TestClientFigures(t *testing.T) {
	m, recs, samples := clientRun()
	for _, r := range recs[100:] {
		delay(r, 4*time.Millisecond)
		r.CapWait = 1 * time.Millisecond
	}
	recs[3].Chunks[5].Kind |= record.SameRead
	recs[3].Chunks[5].Lag = uint32(5 * time.Millisecond)
	samples[2].Values[record.ClientSchedMax] = 0.5
	samples[4].Values[record.ClientCPU] = 2
	delete(samples[5].Values, record.ClientCPU)
	// Before the measurement, and of the server: not looked at.
	m.MeasureStart = 0
	samples = append(samples,
		record.Sample{At: 0, From: record.FromClient, Values: map[string]float64{record.ClientWaiting: 99, record.ClientWaitingRoom: 100, record.ClientGoroutines: 1}},
		record.Sample{At: 250 * msec, From: record.FromServer, Values: map[string]float64{record.ClientCPU: 77}})
	c := summarizeAll(t, m, samples, "", recs).Client
	ptr := func(v float64) *float64 { return &v }
	want := report.Client{
		Lateness:      &report.Spread{P50: 3, P99: 3, Max: 3, Count: 198},
		LatenessShare: ptr(300.0 / (300 + 198*100)),
		Events:        2000, ReceiveLag: &report.Spread{P50: 0.03, P99: 0.03, Max: 5, Count: 2000},
		SharedReads: ptr(1.0 / 2000), LostStamps: ptr(1.0 / 2000),
		Samples: 40, SchedP99: ptr(0.05), SchedMax: ptr(500), GCPauseMax: ptr(0.1),
		Procs: 4, CPU: ptr((38*0.4 + 2) / 39), CPUMax: ptr(2), MachineCPU: ptr(0.3), MachineMax: ptr(0.3),
		WaitingMax: ptr(0.01), OpenFilesMax: ptr(12), OpenFiles: 1000,
	}
	c.InFlight = nil // has its own test
	about := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 0.01*math.Abs(b) })
	if diff := cmp.Diff(want, c, about); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	t.Run("through the directory", func(t *testing.T) {
		dir := record.Dir(t.TempDir())
		w, err := dir.NewWriter()
		if err != nil {
			t.Fatal(err)
		}
		file, err := dir.NewSampleWriter()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			err = errors.Join(err, w.Write(r))
		}
		for _, s := range samples {
			err = errors.Join(err, file.Write(s))
		}
		if err := errors.Join(err, w.Close(), file.Close(), dir.WriteManifest(m)); err != nil {
			t.Fatal(err)
		}
		s, err := report.Load(dir, report.Options{Window: "all"})
		if err != nil {
			t.Fatal(err)
		}
		if s.Client.InFlight = nil; s.Window.Mode != report.WindowAll {
			t.Errorf("window %+v", s.Window)
		}
		if diff := cmp.Diff(want, s.Client, about); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})

	none := summarize(t, manifest(), many(5)...).Client
	if none.SchedP99 != nil || none.CPU != nil || none.ReceiveLag != nil || none.LostStamps != nil || none.Lateness != nil {
		t.Errorf("figures without samples, stamps and due times: %+v", none)
	}
}
