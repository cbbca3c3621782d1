package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

func TestParseGoodput(t *testing.T) {
	tests := []struct {
		name, text string
		whole      bool // a run without streams
		want       map[string]float64
		errors     []string // each must be in the error
	}{
		{name: "none", text: "  "},
		{name: "two", text: "time_to_first_token:300 inter_token_latency:30.5",
			want: map[string]float64{"time_to_first_token": 300, "inter_token_latency": 30.5}},
		{name: "throughput", text: "output_token_throughput_per_user:50", want: map[string]float64{"output_token_throughput_per_user": 50}},
		{name: "short name", text: "ttft:300", errors: []string{"ttft", "time_to_first_token"}},
		{name: "slip of the pen", text: "request_latncy:300", errors: []string{"did you mean request_latency"}},
		{name: "hyphens", text: "inter-token-latency:3", errors: []string{"inter_token_latency"}},
		{name: "run metric", text: "request_throughput:3", errors: []string{"not a metric of single requests"}},
		{name: "gap metric", text: "inter_chunk_latency:3", errors: []string{"not a metric of single requests"}},
		{name: "no number", text: "request_latency:fast", errors: []string{"request_latency:fast"}},
		{name: "no colon", text: "request_latency", errors: []string{"metric:number"}},
		{name: "twice", text: "request_latency:1 request_latency:2", errors: []string{"already"}},
		{name: "zero", text: "request_latency:0", errors: []string{"above 0"}},
		{name: "not a number", text: "request_latency:NaN", errors: []string{"above 0"}},
		{name: "infinite", text: "request_latency:Inf", errors: []string{"above 0"}},
		{name: "needs streams", text: "time_to_first_token:300", whole: true, errors: []string{"streamed", "request_latency"}},
		{name: "without streams", text: "request_latency:300", whole: true, want: map[string]float64{"request_latency": 300}},
		{name: "every fault", text: "foo:1 request_latency:x", errors: []string{"foo", "request_latency:x"}},
		{name: "hostile", text: strings.Repeat("é=", 5000) + ":1", errors: []string{"no metric"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := report.ParseGoodput(tt.text, !tt.whole)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if (err != nil) != (len(tt.errors) > 0) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tt.errors {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// Bounds are met, a missing metric is not, and throughputs are met from above.
func TestGoodRequests(t *testing.T) {
	one := stream(0, 0, 20*msec, 0, 1) // has no inter token latency
	two := stream(1, 0, 20*msec, 10*msec, 3)
	slow := stream(2, 0, 20*msec+1, 20*msec, 3)
	tests := []struct {
		goals map[string]float64
		want  int64
	}{
		{map[string]float64{"time_to_first_token": 20}, 2},
		{map[string]float64{"inter_token_latency": 1000}, 2},
		{map[string]float64{"output_token_throughput_per_user": 100}, 1},
		{map[string]float64{"output_token_throughput_per_user": 50, "time_to_first_token": 25}, 2},
	}
	for _, tt := range tests {
		m := manifest()
		m.Goodput = tt.goals
		s := summarize(t, m, one, two, slow)
		if r, _ := s.Metric("good_request_count"); r.Whole != tt.want {
			t.Errorf("%v: %d good requests, want %d", tt.goals, r.Whole, tt.want)
		}
	}
	if _, ok := summarize(t, manifest(), []*record.Record{one}...).Metric("goodput"); ok {
		t.Error("goodput without objectives")
	}
}

func FuzzParseGoodput(f *testing.F) {
	f.Add("time_to_first_token:300 inter_token_latency:30", true)
	f.Add("ttft:1:2 :::: é:-1e999", false)
	f.Fuzz(func(t *testing.T, text string, streaming bool) {
		goals, err := report.ParseGoodput(text, streaming)
		if err == nil && report.CheckGoodput(goals, streaming) != nil {
			t.Errorf("%q gives %v, which is not valid", text, goals)
		}
		if err != nil && goals != nil {
			t.Errorf("%q gives both %v and %v", text, goals, err)
		}
	})
}
