package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
)

// Probe sends single requests outside of a run, exactly as the run does: the
// questions before a measurement. Safe for concurrent use.
type Probe struct {
	x     *exchanger
	plan  Plan
	clock func() record.Time
	n     atomic.Int64
}

// NewProbe returns a probe that sends to the plan's server. The plan needs no
// source and no load. Close it when done.
func NewProbe(plan Plan) (*Probe, error) {
	if plan.URL == nil || plan.Type.Path() == "" {
		return nil, fmt.Errorf("probe: no URL, or no endpoint type")
	}
	origin := time.Now()
	p := &Probe{plan: plan, clock: func() record.Time { return record.Time(time.Since(origin)) }}
	p.plan.Origin, p.plan.Gauge = origin, &Gauge{}
	p.x = newExchanger(&p.plan, p.clock, 1)
	return p, nil
}

// Send carries one body and returns its record, with the text of the answer.
func (p *Probe) Send(ctx context.Context, body []byte) *record.Record {
	n := p.n.Add(1) - 1
	rec := record.New(record.PhaseWarmup, n)
	rec.Due, rec.Model, rec.Streaming = p.clock(), p.plan.Body.Model, p.plan.Body.Stream
	p.x.do(ctx, rec, p.plan.RequestIDPrefix+"p"+strconv.FormatInt(n, 10), body, openai.KeepOutput, func() {})
	return rec
}

// Close closes the probe's connections.
func (p *Probe) Close() { p.x.trip.CloseIdleConnections() }
