package phrase

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

func TestFigure(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		want string
	}{
		{0, "0"}, {1, "1"}, {-3, "-3"}, {1000, "1,000"}, {76800, "76,800"}, {-1234567, "-1,234,567"}, {999999999, "999,999,999"},
		{0.0004, "4.00e-04"}, {0.0005, "0.001"}, {0.1234, "0.123"}, {9.9994, "9.999"}, {9.9996, "10.00"}, {99.994, "99.99"},
		{99.996, "100.0"}, {123.45, "123.5"}, {999.96, "1,000"}, {1234.5, "1,234"}, {76800.4, "76,800"}, {1.5e12, "1.50e+12"},
		{math.NaN(), Unknown}, {math.Inf(1), Unknown}, {math.Inf(-1), Unknown},
	} {
		if got := Figure(tt.v); got != tt.want {
			t.Errorf("Figure(%v) = %q, want %q", tt.v, got, tt.want)
		}
	}
	if got := Maybe(nil); got != Unknown {
		t.Errorf("an unknown figure is %q", got)
	}
	if got := Signed(0.05) + Signed(-0.05) + Signed(0); got != "+5 %-5 %0 %" {
		t.Errorf("signs: %q", got)
	}
}

func TestCleanIsOneHarmlessLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		got := Clean(rapid.String().Draw(t, "s"), 20)
		if strings.ContainsAny(got, "\n\r\t\x00\x1b\u202e\u2066\u2028") || len([]rune(got)) > 21 {
			t.Fatalf("%q", got)
		}
	})
	if got := Clean("a\x1b[31m\u202eb\nc", 100); got != "a?[31m?b c" {
		t.Errorf("%q", got)
	}
}

func TestLoad(t *testing.T) {
	for want, l := range map[string]record.Load{
		"4 in flight, 200 requests, after 4 for warmup":                                         {Concurrency: 4, Requests: 200, Warmup: 4},
		"10 requests/s (poisson), at most 4 in flight, for 20s, then 5s for requests in flight": {Rate: 10, Arrival: "poisson", Concurrency: 4, Duration: 20 * time.Second, Grace: 5 * time.Second},
		"8 users, together 2.500 requests/s":                                                    {Users: 8, Rate: 2.5},
		"3 requests/s, at most 2 before their first token":                                      {Rate: 3, PrefillConcurrency: 2},
		"as the schedule says":                                                                  {},
		"as the schedule says (trace, speed-up 2), 12 requests":                                 {Arrival: "trace, speed-up 2", Requests: 12},
		"as the schedule says (trace), at most 4 in flight":                                     {Arrival: "trace", Concurrency: 4},
	} {
		if got := Load(l, Figure); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestClient(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	for want, c := range map[string]report.Client{
		"": {},
		"sent p50 0.010, p99 0.300, max 2 ms late by our own doing; events seen p50 0.003, p99 0.170, max 1.500 ms after the kernel, whose times are used; 12.50 % of events shared a read, 0.250 % because we were behind; 0.400 of 4 cores used": {
			Lateness: &report.Spread{P50: 0.01, P99: 0.3, Max: 2}, ReceiveLag: &report.Spread{P50: 0.003, P99: 0.17, Max: 1.5},
			Events: 100, SharedReads: v(0.125), LostStamps: v(0.0025), CPU: v(0.4), Procs: 4,
		},
		"event times are our own, without kernel stamps; 0 % of events shared a read": {Events: 1, SharedReads: v(0)},
	} {
		if got := Client(&report.Summary{Client: c}, Figure); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestHeld(t *testing.T) {
	got := Held(&report.Held{Requests: 35, Mean: 120.25, Max: 300})
	if want := "35 requests waited for a cap, 120.2 ms on average, at most 300 ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestObjectives(t *testing.T) {
	got := Objectives(map[string]float64{"time_to_first_token": 300, "output_token_throughput_per_user": 20})
	if want := "Output Token Throughput Per User ≥ 20 tok/s/user, Time to First Token ≤ 300 ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCacheReset(t *testing.T) {
	for want, r := range map[string]record.CacheReset{
		"emptied before the run by POST /x (verified: a prompt of 600 tokens had 592 cached before, 0 after)": {Request: "POST /x", Prompt: 600, Before: 592, After: record.Unknown, Verified: true},
		"emptied before the run by POST /x (not verified: nothing hit before it)":                             {Request: "POST /x", Prompt: 600},
		"emptied before the run by POST /x (not verified: the server does not tell of hits)":                  {Request: "POST /x", Before: record.Unknown, After: record.Unknown},
	} {
		if got := CacheReset(&r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
