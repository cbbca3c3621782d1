package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/hist"
	"github.com/tokmark/tokmark/bench/record"
)

// Client says how the client itself did while it measured: a server is not
// slow because its client was. Times are in milliseconds; nil is unknown.
type Client struct {
	// Lateness is how late requests started by our own doing: from due to
	// start, without what they waited for a cap. The first requests of a
	// closed loop, which are all due at one moment, are left out if others
	// follow.
	Lateness *Spread `json:"own_lateness_ms,omitempty"`
	// LatenessShare is the sum of it over the time that requests should have
	// been in flight, which is it and the exchanges; closed loop only.
	LatenessShare *float64 `json:"own_lateness_share,omitempty"`
	// InFlight is the mean number of requests in flight of a closed loop,
	// from the start that filled its last place to its last start. Stages of
	// the plan and pauses in conversations lower it.
	InFlight *float64 `json:"steady_in_flight,omitempty"`

	// Events counts the events with output. ReceiveLag is how much later than
	// the kernel the program saw them, of those with a kernel stamp.
	Events     int64   `json:"events"`
	ReceiveLag *Spread `json:"receive_lag_ms,omitempty"`
	// SharedReads is the share of events that one read brought together with
	// an earlier one, LostStamps the share whose arrival is not known since
	// the client came too late to read them one by one. Beyond what the server
	// joins by itself, events that were read more than 1 ms late count.
	SharedReads *float64 `json:"shared_reads,omitempty"`
	LostStamps  *float64 `json:"lost_stamps,omitempty"`

	// Samples is how often the client looked at itself. Of the scheduler's
	// latency it gives the median of the samples' p99, and the longest.
	Samples      int      `json:"samples"`
	SchedP99     *float64 `json:"sched_latency_p99_ms,omitempty"`
	SchedMax     *float64 `json:"sched_latency_max_ms,omitempty"`
	GCPauseMax   *float64 `json:"gc_pause_max_ms,omitempty"`
	Procs        int      `json:"gomaxprocs,omitempty"`
	CPU          *float64 `json:"cpu_cores_avg,omitempty"`
	CPUMax       *float64 `json:"cpu_cores_max,omitempty"`
	MachineCPU   *float64 `json:"machine_cpu_share_avg,omitempty"`
	MachineMax   *float64 `json:"machine_cpu_share_max,omitempty"`
	WaitingMax   *float64 `json:"records_waiting_share_max,omitempty"`
	OpenFilesMax *float64 `json:"open_files_max,omitempty"`
	OpenFiles    uint64   `json:"open_files_limit,omitempty"`
	ClockSteps   int64    `json:"clock_steps"`
}

// The bounds of the rules about the client. Each relative one has an absolute
// one beside it, so that a machine's ordinary noise is never complained about.
const (
	clientLateAbsolute = 10.0 // ms of own lateness
	clientLateRelative = 0.1  // of the mean gap between requests, or of the median TTFT
	clientLateRequests = 3    // fewer are chance
	inFlightLost       = 0.05 // share of the in-flight time asked for
	inFlightFloor      = time.Millisecond
	inFlightRequests   = 20 // fewer say nothing about a mean

	behind           = time.Millisecond // lag from which an event was read too late
	lostSuspect      = 0.01
	lostInvalid      = 0.1
	lostEvents       = 20  // fewer are chance
	inTimeTells      = 0.1 // share of events read in time that tells what the server joins
	lagNamed         = 10.0
	schedSuspect     = 0.05 // of the median inter token latency
	schedInvalid     = 0.25
	schedFloor       = 1.0 // ms
	someSamples      = 4   // a second's
	cpuBusy          = 0.9 // of GOMAXPROCS
	cpuBusySamples   = 0.1
	machineBusy      = 0.95
	machineSamples   = 0.25
	waitingSuspect   = 0.5
	openFilesSuspect = 0.9
)

// health is what is kept for Client while the records pass by.
type health struct {
	lag                 *hist.Histogram
	events, shared      int64
	stamped, late       int64 // with a kernel stamp; of them read late
	lateShared          int64
	backward, instantly int64 // gaps and TTFTs that cannot be
}

// addEvents takes the events of a measured request that was sent.
func (h *health) addEvents(r *record.Record) {
	for i, c := range r.Chunks {
		shared := c.Kind&record.SameRead != 0
		h.events++
		if shared {
			h.shared++
		}
		// A slew of the wall clock may shift neighbours by some microseconds.
		if i > 0 && c.At.Sub(r.Chunks[i-1].At) < -time.Millisecond {
			h.backward++
		}
		if c.Lag == 0 {
			continue
		}
		if h.lag == nil {
			h.lag = hist.New()
		}
		h.lag.Record(int64(c.Lag))
		h.stamped++
		if time.Duration(c.Lag) > behind {
			h.late++
			if shared {
				h.lateShared++
			}
		}
	}
	if ttft, ok := r.TTFT(); ok && ttft <= 0 {
		h.instantly++
	}
}

// lost estimates how many events were joined because the client was behind:
// of those read late, what is joined more often than of those read in time, if
// these are enough to tell what is usual.
func (h *health) lost() float64 {
	inTime := float64(h.stamped - h.late)
	usual := 0.0
	if inTime > 0 && inTime >= inTimeTells*float64(h.stamped) {
		// Events without a stamp are as good as none here.
		usual = max(0, float64(h.shared-h.lateShared)/float64(h.events-h.late))
	}
	return max(0, float64(h.lateShared)-usual*float64(h.late))
}

// kernelStamps reports whether the times of events are the kernel's.
func (t *tally) kernelStamps() bool {
	return t.m.Stamps == record.StampsKernel && t.health.stamped > 0
}

func (t *tally) client() Client {
	c := Client{Events: t.health.events, Procs: t.m.Host.Procs, OpenFiles: t.m.Host.NoFile, ClockSteps: t.m.ClockSteps}
	var late []float64
	for i := range t.afterBurst() {
		if own := t.afterBurst()[i].own; own != noLateness {
			late = append(late, float64(own)/ms)
		}
	}
	c.Lateness = spreadOf(late)
	if !t.openLoop {
		own, asked := t.ownTime(t.afterBurst())
		if own >= 0 {
			c.LatenessShare = ratio(float64(own), float64(asked))
		}
		if inFlight, _, ok := t.steadyInFlight(); ok {
			c.InFlight = &inFlight
		}
	}
	if h := &t.health; h.events > 0 {
		c.SharedReads = ratio(float64(h.shared), float64(h.events))
		if t.kernelStamps() {
			p50, _ := h.lag.Quantile(0.5)
			p99, _ := h.lag.Quantile(0.99)
			most, _ := h.lag.Max()
			c.ReceiveLag = &Spread{P50: float64(p50) / ms, P99: float64(p99) / ms, Max: float64(most) / ms, Count: h.lag.Count()}
			c.LostStamps = ratio(h.lost(), float64(h.events))
		}
	}
	t.addSamples(&c)
	return c
}

// addSamples fills in what the client's samples of the measured phase tell.
func (t *tally) addSamples(c *Client) {
	c.Samples = len(t.samplesOf(record.ClientGoroutines))
	const second = 1e3 // in ms
	if p99 := t.samplesOf(record.ClientSchedP99); len(p99) > 0 {
		slices.Sort(p99)
		v := p99[len(p99)/2] * second
		c.SchedP99 = &v
	}
	c.SchedMax = most(t.samplesOf(record.ClientSchedMax), second)
	c.GCPauseMax = most(t.samplesOf(record.ClientGCPauseMax), second)
	cpu, machine := t.samplesOf(record.ClientCPU), t.samplesOf(record.ClientMachineCPU)
	c.CPU, c.CPUMax = average(cpu), most(cpu, 1)
	c.MachineCPU, c.MachineMax = average(machine), most(machine, 1)
	c.OpenFilesMax = most(t.samplesOf(record.ClientOpenFiles), 1)
	for _, s := range t.clientSamples {
		waiting, ok := s.Values[record.ClientWaiting]
		if room := s.Values[record.ClientWaitingRoom]; ok && room > 0 && (c.WaitingMax == nil || waiting/room > *c.WaitingMax) {
			c.WaitingMax = ratio(waiting, room)
		}
	}
}

// keepSamples keeps those of the client that cover the measured phase.
func (t *tally) keepSamples(samples []record.Sample) {
	for _, s := range samples {
		if s.From == record.FromClient && s.At > t.m.MeasureStart {
			t.clientSamples = append(t.clientSamples, s)
		}
	}
}

func (t *tally) samplesOf(name string) []float64 {
	var out []float64
	for _, s := range t.clientSamples {
		if v, ok := s.Values[name]; ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, v)
		}
	}
	return out
}

// most is the largest value times unit, nil if there is none.
func most(values []float64, unit float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	v := slices.Max(values) * unit
	return &v
}

func average(values []float64) *float64 {
	var total float64
	for _, v := range values {
		total += v
	}
	return ratio(total, float64(len(values)))
}

// afterBurst returns the requests without the first ones of a closed loop, all
// if none would be left.
func (t *tally) afterBurst() []request {
	if n := t.m.Load.Concurrency; !t.openLoop && n < len(t.requests) {
		return t.requests[n:]
	}
	return t.requests
}

// ownTime returns the sum of own lateness, negative if it is not known, and
// that sum with the exchanges.
func (t *tally) ownTime(requests []request) (own, asked time.Duration) {
	own = noLateness
	for i := range requests {
		q := &requests[i]
		if q.own != noLateness {
			own = max(own, 0) + q.own
		}
		asked += q.end.Sub(q.start)
	}
	return own, asked + max(own, 0)
}

// steadyInFlight returns the mean number of requests in flight of a closed loop
// and the mean own lateness of its requests, in the time from the start that
// filled the last place to the last start of all. ok is false if that is not
// enough to tell.
func (t *tally) steadyInFlight() (mean float64, shareOurs float64, ok bool) {
	places := t.m.Load.Concurrency
	n := len(t.requests)
	if t.openLoop || places < 1 || n < places+inFlightRequests {
		return 0, 0, false
	}
	from, to := t.requests[places-1].start, t.requests[n-1].start
	if to <= from {
		return 0, 0, false
	}
	var inFlight, own time.Duration
	for i := range t.requests {
		q := &t.requests[i]
		inFlight += max(0, min(q.end, to).Sub(max(q.start, from)))
		if i >= places && q.own != noLateness {
			own += q.own
		}
	}
	span := float64(to.Sub(from))
	return float64(inFlight) / span, float64(own) / (span * float64(places)), true
}

// clientLate: a request that starts late measures another load than the one
// asked for, whatever its own times say.
func clientLate(t *tally, s *Summary) (string, Level) {
	late := s.Client.Lateness
	if late == nil {
		return "", Valid
	}
	requests := t.afterBurst()
	own, _ := t.ownTime(requests)
	if share := s.Client.LatenessShare; share != nil && *share > inFlightLost &&
		len(requests) >= inFlightRequests && own > time.Duration(len(requests))*inFlightFloor {
		return fmt.Sprintf("Requests started late by our own doing: %.3g %% of the time asked to be in flight was lost to it.", 100**share), Invalid
	}
	overdue := int64(0)
	for i := range requests {
		if float64(requests[i].own)/ms > clientLateAbsolute {
			overdue++
		}
	}
	if late.P99 <= clientLateAbsolute || overdue < clientLateRequests {
		return "", Valid
	}
	message := fmt.Sprintf("Requests started late by our own doing: %.4g ms at the median, %.4g ms at p99.", late.P50, late.P99)
	if late.P50 > clientLateAbsolute {
		return message, Invalid
	}
	if d := s.Load.ScheduledRate; t.openLoop && d != nil && late.P99 > clientLateRelative*1e3 / *d {
		return message, Suspect
	}
	for _, tag := range []string{"time_to_first_token", "request_latency"} {
		if r, ok := s.Metric(tag); ok {
			if median, _ := r.Statistic.Percentile(50); late.P99 > clientLateRelative*median {
				return message, Suspect
			}
			break
		}
	}
	return "", Valid
}

func concurrencyNotReached(t *tally, _ *Summary) (string, Level) {
	mean, ours, ok := t.steadyInFlight()
	asked := float64(t.m.Load.Concurrency)
	if !ok || mean >= (1-inFlightLost)*asked {
		return "", Valid
	}
	// What else leaves a place empty, as the pauses of conversations, was
	// asked for.
	own, _ := t.ownTime(t.afterBurst())
	if missing := 1 - mean/asked; ours < missing/2 || own <= time.Duration(len(t.afterBurst()))*inFlightFloor {
		return "", Valid
	}
	return fmt.Sprintf("%.4g requests were in flight on average where %d were asked for; the client did not keep up.", mean, t.m.Load.Concurrency), Invalid
}

func lostStamps(t *tally, s *Summary) (string, Level) {
	lost := s.Client.LostStamps
	if lost == nil || *lost <= lostSuspect || t.health.lost() < lostEvents {
		return "", Valid
	}
	message := fmt.Sprintf("The client came too late to read %.3g %% of the events one by one; the arrivals of these are lost.", 100**lost)
	if *lost > lostInvalid {
		return message, Invalid
	}
	return message, Suspect
}

// receiveLag: with the kernel's stamps our own lag enters no number.
func receiveLag(t *tally, s *Summary) (string, Level) {
	if t.kernelStamps() {
		if lag := s.Client.ReceiveLag; lag != nil && lag.P99 > lagNamed {
			message := fmt.Sprintf("The client saw events up to %.4g ms (p99) after they arrived; the times are the kernel's and do not suffer", lag.P99)
			if lost, _ := lostStamps(t, s); lost != "" {
				message += ", but for those of events that were read together"
			}
			return message + ".", Valid
		}
		return "", Valid
	}
	sched := s.Client.SchedP99
	if sched == nil || s.Client.Samples < someSamples || *sched <= schedFloor {
		return "", Valid
	}
	for _, tag := range []string{"inter_token_latency", "inter_chunk_latency"} {
		r, ok := s.Metric(tag)
		if !ok {
			continue
		}
		median, _ := r.Statistic.Percentile(50)
		message := fmt.Sprintf("The client's scheduler let events wait %.4g ms (p99), and the median %s is %.4g ms; there are no kernel stamps to tell what came of it.",
			*sched, strings.ToLower(r.Label), median)
		switch {
		case *sched > schedInvalid*median:
			return message, Invalid
		case *sched > schedSuspect*median:
			return message, Suspect
		}
		return "", Valid
	}
	return "", Valid
}

func clientCPU(t *tally, s *Summary) (string, Level) {
	procs := float64(s.Client.Procs)
	share, ok := busy(t.samplesOf(record.ClientCPU), cpuBusy*procs, cpuBusySamples)
	if !ok || procs == 0 {
		return "", Valid
	}
	message := fmt.Sprintf("The client used over %.3g of its %d processors in %.3g %% of the run.", cpuBusy*procs, s.Client.Procs, 100*share)
	if t.kernelStamps() {
		return message, Valid
	}
	return message, Suspect
}

func machineCPU(t *tally, _ *Summary) (string, Level) {
	share, ok := busy(t.samplesOf(record.ClientMachineCPU), machineBusy, machineSamples)
	if !ok {
		return "", Valid
	}
	return fmt.Sprintf("The processors of the client's machine were over %.3g %% busy in %.3g %% of the run.", 100*machineBusy, 100*share), Valid
}

// busy returns the share of the values above the bound, and whether it is
// above the given one and more than a moment.
func busy(values []float64, above, atMost float64) (float64, bool) {
	n := 0
	for _, v := range values {
		if v > above {
			n++
		}
	}
	share := float64(n) / float64(max(1, len(values)))
	return share, n > 1 && len(values) >= someSamples && share > atMost
}

func writerStalled(_ *tally, s *Summary) (string, Level) {
	switch w := s.Client.WaitingMax; {
	case w == nil || *w <= waitingSuspect:
		return "", Valid
	case *w >= 1:
		return "Finished records filled all the room there is; requests had to wait for the disk.", Invalid
	default:
		return fmt.Sprintf("Finished records filled up to %.3g %% of the room there is before the disk took them.", 100**w), Suspect
	}
}

// clockStep: only the kernel's stamps are of the wall clock.
func clockStep(t *tally, s *Summary) (string, Level) {
	switch n := s.Client.ClockSteps; {
	case n == 0:
		return "", Valid
	case t.m.Stamps == record.StampsKernel:
		return fmt.Sprintf("The wall clock was set during the run (%d); the kernel's stamps around that moment are off.", n), Suspect
	default:
		return fmt.Sprintf("The wall clock was set during the run (%d); no time here is of it.", n), Valid
	}
}

func openFiles(_ *tally, s *Summary) (string, Level) {
	c := &s.Client
	if c.OpenFilesMax == nil || c.OpenFiles == 0 || *c.OpenFilesMax <= openFilesSuspect*float64(c.OpenFiles) {
		return "", Valid
	}
	return fmt.Sprintf("The client had %.0f files open and may have %d.", *c.OpenFilesMax, c.OpenFiles), Suspect
}

// impossible finds figures that no server can give.
func impossible(t *tally, s *Summary) (string, Level) {
	if n := t.health.backward; n > 0 {
		return fmt.Sprintf("%d events arrived before the ones that were sent before them.", n), Invalid
	}
	if n := t.health.instantly; n > 0 {
		return fmt.Sprintf("%d answers began when their requests did, or before.", n), Invalid
	}
	if t.m.Target.Simulated {
		return "", Valid // it may be as fast as it likes
	}
	span, _ := t.window()
	var seen []string
	for _, b := range physical {
		r, ok := s.Metric(b.tag)
		if !ok {
			continue
		}
		v, most, which, few := r.Value, b.most, "", true
		if st := r.Statistic; st != nil {
			which = " (median)"
			if v, _ = st.Percentile(50); b.each {
				which, v = " (largest)", st.Max
			}
			if few = st.Count < enoughRates; few {
				most = max(most, b.ofFew)
			}
		}
		if short := few && !b.each && span < briefest; v > most && !short {
			seen = append(seen, fmt.Sprintf("%s%s %.3g %s (bound %.3g)", r.Label, which, v, r.Unit, most))
		}
	}
	if seen == nil {
		return "", Valid
	}
	return "No model or deployment reaches this: " + strings.Join(seen, ", ") + ".", Invalid
}

// physical bounds what a server can truly do, far above any that is known, so
// that a figure beyond is a fault of its token counts, of a cache in between or
// of a clock. Medians are bounded where one request may be an accident.
var physical = []struct {
	tag   string
	most  float64
	ofFew float64 // in place of most for fewer values than enoughRates
	each  bool    // the largest value is bounded, not the median
}{
	// A model in hardware of its own gives one user some 2e4 tokens/s. The last
	// reads of a short answer may lie microseconds apart by chance.
	{tag: "output_token_throughput_per_user", most: 1e5, ofFew: 1e7},
	{tag: "e2e_output_token_throughput", most: 1e5, ofFew: 1e7},
	// A million tokens from the cache in 10 ms; computed ones come to some 1e5.
	{tag: "prefill_throughput_per_user", most: 1e8},
	// A rack of the largest accelerators gives some 1e6; thousands of racks would
	// have to stream to this client, at over 10 GB/s.
	{tag: "output_token_throughput", most: 1e8},
	// Input may come from the cache but has to be sent: 1e9 tokens/s are 4 GB/s
	// of text, which the server has to tokenize too.
	{tag: "input_token_throughput", most: 1e9},
	{tag: "total_token_throughput", most: 1e9},
	// A hundred times what a client can send.
	{tag: "request_throughput", most: 1e6},
	// The longest context that a model was ever announced with.
	{tag: "input_sequence_length", most: 1e8, each: true},
	{tag: "output_sequence_length", most: 1e8, each: true},
}

const (
	enoughRates = 20
	// Over a shorter run a few answers tell how a buffer was emptied, in seconds.
	briefest = 0.01
)
