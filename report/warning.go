package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Level says how far the numbers of a run may be believed.
type Level string

// The levels of a verdict, best first.
const (
	Valid   Level = "valid"
	Suspect Level = "suspect" // something touches the numbers; read the reasons first
	Invalid Level = "invalid" // the numbers do not say what was asked
)

// Verdict says whether the numbers of a run may be believed. Reasons are the
// messages of the warnings that keep it from being valid, worst first. Headroom
// is how many times the run's load the client was shown to keep up with, at
// least; nil: that was not tried, or not shown for the run's own.
type Verdict struct {
	Level    Level    `json:"level"`
	Reasons  []string `json:"reasons,omitempty"`
	Headroom *float64 `json:"headroom,omitempty"`
}

// Warning is one thing that a reader of the numbers has to know.
type Warning struct {
	Code    string `json:"code"`
	Message string `json:"message"` // what was seen, with its figure
	Advice  string `json:"advice,omitempty"`
	// Effect is the best level that a run with this warning can have.
	Effect Level `json:"effect"`
}

// The codes of warnings.
const (
	AllFailed           = "all_failed"
	NoValidRequests     = "no_valid_requests"
	ScheduleLag         = "schedule_lag"
	UsersBehind         = "users_behind"
	PartialRun          = "partial_run"
	DamagedRecords      = "damaged_records"
	MissingRecords      = "missing_records"
	Errors              = "errors"
	NoUsage             = "no_usage"
	MixedTokenSources   = "mixed_token_sources"
	UsageFell           = "usage_fell"
	NotStreaming        = "not_streaming"
	CoalescedStream     = "coalesced_stream"
	ZeroITL             = "zero_itl"
	HiddenReasoning     = "hidden_reasoning"
	ShortOutput         = "short_output"
	MissingDone         = "missing_done"
	DataAfterDone       = "data_after_done"
	ParameterDropped    = "parameter_dropped"
	DatasetLinesSkipped = "dataset_lines_skipped"
	TraceRowsSkipped    = "trace_rows_skipped"
	TraceReordered      = "trace_reordered"
	FirstRequestSlow    = "first_request_slow"
	FewSamples          = "few_samples"
	Imported            = "imported"
	SelfTestFailed      = "self_test_failed"

	ClientLate            = "client_late"
	ConcurrencyNotReached = "concurrency_not_reached"
	LostStamps            = "lost_stamps"
	ReceiveLag            = "receive_lag"
	ClientCPU             = "client_cpu"
	MachineCPU            = "machine_cpu"
	WriterStalled         = "writer_stalled"
	ClockStep             = "clock_step"
	OpenFiles             = "open_files"
	ImpossibleRate        = "impossible_rate"
	InputLengthOff        = "input_length_off"
	CacheHitsInColdRun    = "cache_hits_in_cold_run"
	CacheRateOff          = "cache_rate_off"
	CacheNotWarm          = "cache_not_warm"

	CacheCountsDiffer = "cache_counts_differ"
	ConditionsChanged = "conditions_changed"
	OtherTraffic      = "other_traffic"
	ServerCountsOff   = "server_counts_off"
	ServerTimesApart  = "server_times_apart"
	ServerMetrics     = "server_metrics"
	TTFTUnexplained   = "ttft_unexplained"
)

// The bounds that the rules use.
const (
	rateReached      = 0.95                   // share of the scheduled rate that counts as reached
	minLateness      = 5 * time.Millisecond   // lateness below it is never complained about,
	maxLateness      = 100 * time.Millisecond // above it always; between, half an interval is
	errorsTouch      = 0.01                   // share of failures from which the rest is a selection
	mergedShare      = 0.5                    // share of gaps that are none
	oneMoment        = 0.01                   // share of answers without ITL, short ones by chance, that touch no figure
	slowFirst        = 5                      // times the median TTFT
	slowFirstSamples = 5                      // valid requests that such a median needs
)

// rule decides on one warning. check returns what was seen, or "".
type rule struct {
	code   string
	advice string
	check  func(*tally, *Summary) (message string, effect Level)
}

// rules stand in the order of reports.
var rules = []rule{
	{AllFailed, "Look at the outcomes: the messages are the server's own.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.valid > 0 || t.errors == 0 {
				return "", Valid
			}
			return fmt.Sprintf("All %d requests failed; there is nothing to measure.", t.errors), Invalid
		}},
	{NoValidRequests, "Let the run last until requests are answered.",
		func(t *tally, s *Summary) (string, Level) {
			if t.valid > 0 || t.errors > 0 {
				return "", Valid
			}
			return fmt.Sprintf("No measured request was answered (%d cancelled, %d not sent, %d too late).",
				t.cancelled, s.Counts.Unsent, t.excluded), Invalid
		}},
	{Imported, "Measure with tokmark where it matters.",
		func(t *tally, s *Summary) (string, Level) {
			in := s.Manifest.Imported
			if in == nil {
				return "", Valid
			}
			text := fmt.Sprintf("The run was imported (%s): nothing tells whether its client was the limit.", in.Format)
			if len(in.Missing) > 0 {
				text += " Missing in the file: " + strings.Join(in.Missing, "; ") + "."
			}
			return text, Suspect
		}},
	{SelfTestFailed, "Give the client more CPU, or use another machine; the simulator needs about as much of it as the client.",
		func(_ *tally, s *Summary) (string, Level) {
			test := s.Manifest.SelfTest
			if test == nil {
				return "", Valid
			}
			tries := []*record.ClientTry{test.After}
			// The load before the run may have been more than the run's own.
			if b, a := test.Before, test.After; a == nil || b != nil && b.Streams <= a.Streams && b.Events <= a.Events {
				tries = append(tries, b)
			}
			for _, try := range tries {
				if try != nil && !try.Well {
					return failedTry(try), Suspect
				}
			}
			return "", Valid
		}},
	{ScheduleLag, "Latencies from due count the wait; ask for a lower rate, allow more in flight, or give the client more CPU.",
		scheduleLag},
	{UsersBehind, "Give more users if the rate is what counts, or ask for less: what was measured is what so many users get out of this server.", usersBehind},
	{ClientLate, "Give the client more CPU, ask for less, or spread the load over several clients.", clientLate},
	{ConcurrencyNotReached, "Give the client more CPU, ask for less, or spread the load over several clients.", concurrencyNotReached},
	{ImpossibleRate, "Look at the clock of the client, at what stands between client and server, and at the server's token counts.", impossible},
	{LostStamps, "Give the client more CPU or fewer streams; gaps between events are wrong, and TTFT may be.", lostStamps},
	{ReceiveLag, "Give the client more CPU; on Linux the kernel's stamps make its times exact.", receiveLag},
	{ClientCPU, "Give the client more processors, or spread the load over several clients.", clientCPU},
	{MachineCPU, "Something beside the client, perhaps the server, shares its machine; give each its own.", machineCPU},
	{WriterStalled, "Write to a faster disk.", writerStalled},
	{ClockStep, "Keep the clock from being set while measuring (slew it), and run again.", clockStep},
	{OpenFiles, "Raise the limit (ulimit -n), or cap the requests in flight.", openFiles},
	{InputLengthOff, "The figures hold for the length that the server counts; give the model's own tokenizer, or calibrate the prompts.", inputLengthOff},
	{CacheHitsInColdRun, "TTFT is too good: clear the cache, use a fresh salt, or do not repeat a seed and salt on a running server.", cacheHitsInColdRun},
	{CacheRateOff, "Warm up so that the shared prefixes are cached, check that they fit in the cache, and that it is on.", cacheRateOff},
	{CacheNotWarm, "TTFT is not that of a warm cache: check that prefix caching is on and that the prompts fit in.", cacheNotWarm},
	{CacheCountsDiffer, "One of the two is wrong, or counts the prompts of others; do not compare TTFT by either before that is settled.", cacheCountsDiffer},
	{ConditionsChanged, "What was measured is no one system: keep the server as it is, and run again.", conditionsChanged},
	{OtherTraffic, "Measure when nobody else uses the server; its own counters and means hold the others too.", otherTraffic},
	{ServerCountsOff, "A proxy's cache or another replica may have answered, the server may count a moment later, or its tokens by another rule.", serverCountsOff},
	{TTFTUnexplained, "The report's table of the first token has the parts.", ttftUnexplained},
	{ServerTimesApart, "Its clock starts at arrival and stops before the network: look for a proxy, a queue before the server, buffering, or failed requests in its means.", serverTimesApart},
	{ServerMetrics, "Nothing of the server's own figures is shown that may be wrong.", serverMetrics},
	{PartialRun, "The numbers hold for what was measured until then; run again for a whole result.",
		func(t *tally, s *Summary) (string, Level) {
			switch {
			case !s.Partial:
				return "", Valid
			case t.m.Outcome == record.RunRunning:
				return "The run did not end: it is still going on, or was killed.", Suspect
			}
			return fmt.Sprintf("The run was %s before its planned end.", t.m.Outcome), Suspect
		}},
	{DamagedRecords, "The requests in these lines are missing from every number.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.damaged == 0 {
				return "", Valid
			}
			return fmt.Sprintf("%d lines of the records file could not be read, first %s.", t.damaged, t.firstDamage), Suspect
		}},
	{MissingRecords, "Take the run directory as it was written, or run again.",
		func(t *tally, _ *Summary) (string, Level) {
			missing := t.m.Sent - t.starts.n - t.damaged
			if missing <= 0 || t.m.Outcome == record.RunRunning {
				return "", Valid
			}
			return fmt.Sprintf("%s that were sent are not in the records file: it was cut off, or lines were taken out.",
				of(missing, t.m.Sent, "requests")), Invalid
		}},
	{Errors, "Latencies are of the requests that came through; the adj_ metrics take a failure as infinitely slow.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.errors == 0 || t.valid == 0 {
				return "", Valid
			}
			share := float64(t.errors) / float64(t.valid+t.errors)
			message := fmt.Sprintf("%s failed (%.3g %%).", of(t.errors, t.valid+t.errors, "requests"), 100*share)
			if share < errorsTouch {
				return message, Valid
			}
			return message, Suspect
		}},
	{NoUsage, "Ask the server for usage (stream_options.include_usage), or give a tokenizer; events are never counted as tokens.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.noUsage == 0 {
				return "", Valid
			}
			message := of(t.noUsage, t.valid, "answers came without usage")
			switch missing := t.sources[record.SourceNone]; missing {
			case 0:
				return message + "; their tokens were counted otherwise.", Valid
			case t.valid:
				return message + "; there are no token counts, so nothing that needs them is shown.", Valid
			default:
				return message + fmt.Sprintf("; %d have no token count and are missing from token throughput.", missing), Suspect
			}
		}},
	{MixedTokenSources, "Compare token metrics only between runs with one and the same source.",
		func(t *tally, s *Summary) (string, Level) {
			var parts []string
			for _, src := range s.Tokens {
				if src.Source != record.SourceNone {
					parts = append(parts, fmt.Sprintf("%s (%d)", src.Source, src.Count))
				}
			}
			if len(parts) < 2 {
				return "", Valid
			}
			return "Token counts come from different sources: " + strings.Join(parts, ", ") + ".", Suspect
		}},
	{UsageFell, "The server's running token counts are wrong; do not ask for usage, and give a tokenizer.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.usageFell == 0 {
				return "", Valid
			}
			return "In " + of(t.usageFell, t.valid, "answers the usage count fell while tokens came."), Suspect
		}},
	{NotStreaming, "Check that the server, or a proxy before it, supports stream: true for this endpoint.",
		func(t *tally, _ *Summary) (string, Level) {
			n := t.unstreamed
			if share := t.outcomes[record.NotStreaming]; share != nil {
				n += share.Count
			}
			if n == 0 {
				return "", Valid
			}
			return of(n, t.valid+t.errors, "answers came as one JSON body though a stream was asked for; they have no TTFT and no gaps."), Suspect
		}},
	{CoalescedStream, "Something between server and client buffers the stream (proxy, compression, batching of events): TTFT and gaps are its, not the server's.",
		func(t *tally, s *Summary) (string, Level) {
			if late, _ := lostStamps(t, s); late != "" {
				return "", Valid // it was the client that joined them
			}
			if t.longGaps == 0 || float64(t.merged) <= mergedShare*float64(t.longGaps) {
				return "", Valid
			}
			return fmt.Sprintf("%.3g %% of the events in %d streams arrived together with the one before.",
				100*float64(t.merged)/float64(t.longGaps), t.longStreams), Suspect
		}},
	{ZeroITL, "Their inter token latency is 0 and pulls the average down; look at tokens per chunk and at what buffers the answer.",
		func(t *tally, s *Summary) (string, Level) {
			if late, _ := lostStamps(t, s); late != "" || t.oneChunk == 0 {
				return "", Valid
			}
			message := of(t.oneChunk, t.valid, "answers of several tokens came at one moment.")
			if float64(t.oneChunk) <= oneMoment*float64(t.valid) {
				return message, Valid
			}
			return message, Suspect
		}},
	{HiddenReasoning, "TTFT then includes the thinking, and inter token latency divides by tokens that were never streamed; let the server stream its reasoning.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.hiddenReasoning == 0 {
				return "", Valid
			}
			return of(t.hiddenReasoning, t.valid, "answers hold reasoning tokens that were counted but not streamed."), Suspect
		}},
	{ShortOutput, "The server does not honour ignore_eos or min_tokens; lengths differ from what was asked, so compare with care.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.short == 0 {
				return "", Valid
			}
			return of(t.short, t.exact, "answers are shorter than the exact length asked for."), Suspect
		}},
	{MissingDone, "The answers are whole by their finish_reason; the server breaks the protocol.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.missingDone == 0 {
				return "", Valid
			}
			return of(t.missingDone, t.valid, "streams ended without [DONE]."), Valid
		}},
	{DataAfterDone, "What came after [DONE] was ignored.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.afterDone == 0 {
				return "", Valid
			}
			return of(t.afterDone, t.valid, "streams went on after [DONE]."), Valid
		}},
	{ParameterDropped, "Every measured request was sent without; check that the load is still what you want.",
		func(t *tally, _ *Summary) (string, Level) {
			if len(t.m.Dropped) == 0 {
				return "", Valid
			}
			var parts []string
			for _, d := range t.m.Dropped {
				parts = append(parts, fmt.Sprintf("%s (%s)", d.Field, d.Reason))
			}
			return "The server refused request fields: " + strings.Join(parts, ", ") + ".", Valid
		}},
	{DatasetLinesSkipped, "The skipped lines and the reasons are in the manifest under input.",
		func(t *tally, _ *Summary) (string, Level) { return skipped(t.m.Input, false), Valid }},
	{TraceRowsSkipped, "The skipped rows and the reasons are in the manifest under input.",
		func(t *tally, _ *Summary) (string, Level) { return skipped(t.m.Input, true), Valid }},
	{TraceReordered, "They were sent in the order of their times.",
		func(t *tally, _ *Summary) (string, Level) {
			if t.m.Input == nil || !t.m.Input.Reordered {
				return "", Valid
			}
			return fmt.Sprintf("The rows of %s were not in the order of their times.", t.m.Input.File), Valid
		}},
	{FirstRequestSlow, "The first request met a cold server; warm up (--warmup-request-count) to keep it out.",
		func(t *tally, s *Summary) (string, Level) {
			ttft, ok := s.Metric("time_to_first_token")
			if !ok || s.First == nil || s.First.TTFT == nil || s.First.Phase != record.PhaseMeasure || ttft.Statistic.Count < slowFirstSamples {
				return "", Valid
			}
			median, _ := ttft.Statistic.Percentile(50)
			if *s.First.TTFT <= slowFirst*median {
				return "", Valid
			}
			return fmt.Sprintf("The first request took %.4g ms to its first token, the median is %.4g ms.", *s.First.TTFT, median), Valid
		}},
	{FewSamples, "Percentiles marked * would move much with a few more requests.",
		func(t *tally, s *Summary) (string, Level) {
			latency, ok := s.Metric("request_latency")
			if !ok || !latency.Statistic.Few(99) {
				return "", Valid
			}
			return fmt.Sprintf("There are %d valid requests; a p99 needs 1000, a p90 100: send %d more for the p99.",
				t.valid, moreFor(t.valid, latency.Intervals)), Valid
		}},
}

// LatenessBound is the lateness at p99 above which a load of that rate, in
// requests a second, is complained about.
func LatenessBound(rate float64) time.Duration {
	return min(max(time.Duration(1e9/rate/2), minLateness), maxLateness)
}

// scheduleLag compares the schedule with what was sent. If waiting for a cap
// explains it, that was asked for, and the latencies from due tell what it
// cost; if not, the client was the limit.
func scheduleLag(t *tally, s *Summary) (string, Level) {
	if !t.openLoop || t.starts.n == 0 {
		return "", Valid
	}
	var seen []string
	behind := false
	if a, d := s.Load.AchievedRate, s.Load.ScheduledRate; a != nil && d != nil && *a < rateReached**d {
		seen = append(seen, fmt.Sprintf("%.4g requests/s were sent where the schedule wanted %.4g", *a, *d))
		behind = true
	}
	if s.Counts.Unsent > 0 {
		seen = append(seen, fmt.Sprintf("%d requests were due and never sent", s.Counts.Unsent))
		behind = true
	}
	if late, ok := s.Metric("schedule_lateness"); ok {
		p99, _ := late.Statistic.Percentile(99)
		bound := maxLateness
		if d := s.Load.ScheduledRate; d != nil {
			bound = LatenessBound(*d)
		}
		if p99 > float64(bound)/ms {
			seen = append(seen, fmt.Sprintf("requests started up to %.4g ms (p99) after they were due", p99))
		}
	}
	if len(seen) == 0 {
		return "", Valid
	}
	message := "The load was not sent as scheduled: " + strings.Join(seen, "; ")
	asked := capsAsked(t.m.Load) // the limit on open files is none
	switch {
	case t.caps.decide() && asked != "":
		return message + fmt.Sprintf("; the cap of %s held requests back.", asked), Suspect
	case behind && !s.Partial:
		return message + "; no cap was reached, so the client was the limit.", Invalid
	}
	return message + ".", Suspect
}

// usersBehind: users who wait for answers longer than their gap send less than
// was asked for. The schedule gives way, so nothing is ever late.
func usersBehind(t *tally, s *Summary) (string, Level) {
	asked, achieved := t.m.Load, s.Load.AchievedRate
	if asked.Users == 0 || t.shifted == 0 || achieved == nil || *achieved >= rateReached*asked.Rate {
		return "", Valid
	}
	answer := float64(t.inFlight) / float64(t.starts.n)
	return fmt.Sprintf("%d users sent %.4g requests/s where %.4g were asked for: %s were put off, as the answer before took longer than the user's gap of %.4g ms. At the %.4g ms that answers took, it takes %d users or more.",
		asked.Users, *achieved, asked.Rate, of(t.shifted, t.starts.n, "turns"), float64(asked.Users)*1e3/asked.Rate, answer/ms, max(asked.Users+1, int(math.Ceil(answer/1e9*asked.Rate)))), Suspect
}

// capsAsked names the caps of a load; empty: it has none.
func capsAsked(l record.Load) string {
	var parts []string
	if l.Concurrency > 0 {
		parts = append(parts, fmt.Sprintf("%d in flight", l.Concurrency))
	}
	if l.PrefillConcurrency > 0 {
		parts = append(parts, fmt.Sprintf("%d in prefill", l.PrefillConcurrency))
	}
	return strings.Join(parts, ", or of ")
}

func skipped(in *record.Input, trace bool) string {
	if in == nil || len(in.Skipped) == 0 || isTrace(in.Format) != trace {
		return ""
	}
	first := in.Skipped[0]
	what := "lines"
	if trace {
		what = "rows"
	}
	return fmt.Sprintf("%d %s of %s were skipped and %d used; first line %d: %s.",
		in.SkippedCount(), what, in.File, in.Usable, first.Line, strings.TrimSpace(first.Reason+" "+first.Detail))
}

// failedTry tells of a try of the client that did not go well.
func failedTry(t *record.ClientTry) string {
	text := fmt.Sprintf("It is not shown that the client keeps up: against the simulator, %.0f of %.0f events/s over %d streams were timed, off by %v at p99, with %d events lost",
		t.EventsReached, t.Events, t.Streams, t.ErrorP99.Round(time.Microsecond), t.Lost)
	if t.Requests > 0 {
		text += fmt.Sprintf("; %.4g of %.4g requests/s were sent, late by %v at p99", t.RequestsReached, t.Requests, t.LateP99.Round(time.Microsecond))
	}
	if t.Fault != "" {
		text += " (" + t.Fault + ")"
	}
	return text + "."
}

// isTrace tells a format with times from one without.
func isTrace(format string) bool {
	return strings.Contains(format, "trace") || strings.Contains(format, "mooncake") || strings.Contains(format, "burstgpt")
}

// judge fills in warnings and verdict.
func (s *Summary) judge(t *tally) {
	s.Verdict.Level = Valid
	if test := s.Manifest.SelfTest; test != nil && test.Headroom > 0 {
		s.Verdict.Headroom = &test.Headroom
	}
	var suspect, invalid []string
	for _, r := range rules {
		message, effect := r.check(t, s)
		if message == "" {
			continue
		}
		s.Warnings = append(s.Warnings, Warning{Code: r.code, Message: message, Advice: r.advice, Effect: effect})
		switch effect {
		case Suspect:
			suspect = append(suspect, message)
		case Invalid:
			invalid = append(invalid, message)
		}
	}
	switch {
	case len(invalid) > 0:
		s.Verdict.Level = Invalid
	case len(suspect) > 0:
		s.Verdict.Level = Suspect
	}
	s.Verdict.Reasons = slices.Concat(invalid, suspect)
}
