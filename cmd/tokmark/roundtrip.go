package main

import (
	"context"
	"slices"
	"time"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/transport"
)

// connectsBeside is how many TCP connects tell the network's round trip, before
// a run and after it.
const connectsBeside = 5

// connects times TCP connects to the server while nothing is measured.
func connects(ctx context.Context, plan *bench.Plan) []time.Duration {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return transport.Connects(ctx, plan.Transport, plan.URL, connectsBeside)
}

// roundTrip is what connects tell; nil: there were none.
func roundTrip(took []time.Duration) *record.RoundTrip {
	n := len(took)
	if n == 0 {
		return nil
	}
	took = slices.Sorted(slices.Values(took))
	return &record.RoundTrip{Median: (took[(n-1)/2] + took[n/2]) / 2, Connects: n}
}
