package main

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/tokmark/tokmark/bench/mockserver"
	"github.com/tokmark/tokmark/bench/record"
)

// llama.cpp's server closes its connection after each stream without having
// said so. A client that takes it for one to be used again loses requests.
func TestNoConnectionIsUsedTwiceWhereTheServerCloses(t *testing.T) {
	for owner, want := range map[string]bool{"llamacpp": true, "vllm": false} {
		var kept, closed atomic.Int64
		_, url := simulator(t, nil, func(sim *mockserver.Server) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/v1/models":
					_, _ = io.WriteString(w, `{"data":[{"id":"tokmark-sim","owned_by":"`+owner+`"}]}`)
					return
				case r.Method == http.MethodPost && r.Close:
					closed.Add(1)
				case r.Method == http.MethodPost:
					kept.Add(1)
				}
				sim.ServeHTTP(w, r)
			})
		})
		s, _, _ := summarized(t, url, "--concurrency", "2", "--request-count", "6", "--osl", "3")
		if s.Counts.Valid != 6 || s.Outcomes[0].Outcome != record.OK {
			t.Errorf("%s: %+v", owner, s.Counts)
		}
		if (kept.Load() == 0) != want || (closed.Load() > 0) != want {
			t.Errorf("%s: %d requests over a connection to be kept, %d over one to be closed", owner, kept.Load(), closed.Load())
		}
	}
}
