package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/collect"
	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/workloads/arrival"
)

// fakeManifest is that of a run by fakeRun.
func fakeManifest(load record.Load, origin time.Time, res bench.Result) *record.Manifest {
	return &record.Manifest{
		Schema: record.ManifestSchema, ID: "fake", Outcome: res.Outcome,
		Target: record.Target{URL: "http://memory/v1/chat/completions", Model: mockserver.Default().Model, EndpointType: "chat", Streaming: true, Simulated: true},
		Load:   load, Stamps: record.StampsRead, Host: record.Host{Procs: 2, NoFile: 1024}, Origin: origin,
		MeasureStart: res.MeasureStart, MeasureEnd: res.MeasureEnd, Sent: res.Sent, Unsent: res.Unsent,
		MaxInFlight: res.MaxInFlight, ClockSteps: res.ClockSteps,
	}
}

// clientCodes are the warnings that blame the client.
var clientCodes = []string{
	report.ScheduleLag, report.ClientLate, report.ConcurrencyNotReached, report.ImpossibleRate, report.LostStamps, report.ReceiveLag,
	report.ClientCPU, report.MachineCPU, report.WriterStalled, report.ClockStep, report.OpenFiles,
}

// In fake time the client is as fast as can be: it is never blamed, however the
// server and the arrivals vary.
func TestCleanRunsBlameNobody(t *testing.T) {
	const requests = 150
	for seed := range uint64(10) {
		for _, load := range []record.Load{
			{Concurrency: 4, Requests: requests},
			{Rate: 12, Arrival: string(arrival.Poisson), Requests: requests},
		} {
			t.Run(fmt.Sprintf("seed %d rate %v", seed, load.Rate), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					plan := bench.Plan{Concurrency: load.Concurrency, Requests: requests, Origin: time.Now()}
					if load.Rate > 0 {
						var err error
						if plan.Schedule, err = (arrival.Plan{Pattern: arrival.Poisson, Rate: arrival.Steady(load.Rate), Seed: seed}).Schedule(); err != nil {
							t.Fatal(err)
						}
					}
					// An answer of one word and an end has no gaps, which is told.
					plan.Body.Extra = map[string]json.RawMessage{"ignore_eos": json.RawMessage("true")}
					cfg := mockserver.Default()
					cfg.Noise = 0.2
					out := make(chan *record.Record, requests)
					m := fakeManifest(load, plan.Origin, fakeRun(t, cfg, seed, plan, out))
					close(out)
					s, err := report.Summarize(m, func(yield func(*record.Record, error) bool) {
						for r := range out {
							if !yield(r, nil) {
								return
							}
						}
					}, nil, report.Options{})
					if err != nil {
						t.Fatal(err)
					}
					if s.Verdict.Level != report.Valid || s.Counts.Valid != requests {
						t.Errorf("verdict %+v, %d requests of %d", s.Verdict, s.Counts.Valid, requests)
					}
					for _, w := range s.Warnings {
						if slices.Contains(clientCodes, w.Code) {
							t.Errorf("%s: %s", w.Code, w.Message)
						}
					}
				})
			})
		}
	}
}

// stallingDisk is the records file of a run, on a disk that does nothing for a
// while.
type stallingDisk struct {
	*record.Writer
	after int // records
	stall time.Duration
}

func (d *stallingDisk) Write(r *record.Record) error {
	if d.after--; d.after == 0 {
		time.Sleep(d.stall)
	}
	return d.Writer.Write(r)
}

// TestSlowDisk takes a run through the collector, the samples and the run
// directory to the report, as the program does, in fake time: a request takes
// some 0.13 s, and there are two at a time.
func TestSlowDisk(t *testing.T) {
	const requests, room = 300, 64
	for _, tt := range []struct {
		name  string
		stall time.Duration
		level report.Level
		codes []string
	}{
		{"fast", 0, report.Valid, nil},
		{"a moment", 500 * time.Millisecond, report.Valid, nil},
		{"most of the room is used", 3 * time.Second, report.Suspect, []string{report.WriterStalled}},
		{"requests wait for the disk", 20 * time.Second, report.Invalid, []string{report.ClientLate, report.ConcurrencyNotReached, report.WriterStalled}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := record.Dir(t.TempDir())
			synctest.Test(t, func(t *testing.T) {
				writer, err := dir.NewWriter()
				if err != nil {
					t.Fatal(err)
				}
				records := make(chan *record.Record, room)
				kept := make(chan error, 1)
				go func() {
					kept <- new(collect.Collector).Collect(records, &stallingDisk{Writer: writer, after: 50, stall: tt.stall}, nil)
				}()
				plan := bench.Plan{Concurrency: 2, Requests: requests, Origin: time.Now(), Gauge: &bench.Gauge{}}
				samples, err := startSampling(t.Context(), dir, &plan, records, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				res := fakeRun(t, mockserver.Default(), 1, plan, records)
				_, err = samples.end(t.Context())
				close(records)
				m := fakeManifest(record.Load{Concurrency: 2, Requests: requests}, plan.Origin, res)
				if err := errors.Join(err, <-kept, writer.Close(), dir.WriteManifest(m)); err != nil {
					t.Fatal(err)
				}
			})
			s, err := report.Load(dir, report.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if s.Counts.Valid != requests || s.Damaged > 0 {
				t.Errorf("%d requests of %d, %d damaged", s.Counts.Valid, requests, s.Damaged)
			}
			// The samples' times of processors and schedulers are real, and so
			// say nothing of fake time.
			real := []string{report.ClientCPU, report.MachineCPU, report.ReceiveLag}
			var codes []string
			for _, w := range s.Warnings {
				if slices.Contains(clientCodes, w.Code) && !slices.Contains(real, w.Code) {
					codes = append(codes, w.Code)
					t.Logf("%s (%s): %s", w.Code, w.Effect, w.Message)
				}
			}
			if !slices.Equal(codes, tt.codes) {
				t.Errorf("warnings %q, want %q", codes, tt.codes)
			}
			level := report.Valid
			for _, w := range s.Warnings {
				if w.Code == report.WriterStalled {
					level = w.Effect
				}
			}
			if level != tt.level {
				t.Errorf("the disk makes it %s, want %s; %.3g of the room was used", level, tt.level, *s.Client.WaitingMax)
			}
		})
	}
}
