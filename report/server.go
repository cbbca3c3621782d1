package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Server is the server's side of the story: who it is, what it counted while
// we measured, and how that compares with what we counted. Warmup and
// preflight lie before its window and are in none of it.
type Server struct {
	Dialect   string `json:"dialect,omitempty"`
	DialectBy string `json:"dialect_by,omitempty"` // what told
	// Changed lists conditions that were another after the run than before, and
	// models whose requests were answered under several names.
	Changed []string `json:"conditions_changed,omitempty"`
	// Metrics: its own metrics cover the measurement. If not, MetricsError
	// tells why; it is empty where nobody asked for them.
	Metrics      bool     `json:"metrics"`
	MetricsError string   `json:"metrics_error,omitempty"`
	Left         []string `json:"metrics_left_out,omitempty"` // and why
	// Means holds the mean of each interval that it timed, in milliseconds, by
	// the name of the metric.
	Means map[string]float64 `json:"means_ms,omitempty"`
	// Gauges are the moments of its state that were sampled during the
	// measurement, and those of GPUs, by the name of the metric.
	Gauges map[string]Gauge `json:"gauges,omitempty"`
	// Counts and Times set its figures beside ours.
	Counts []ServerCount `json:"counts,omitempty"`
	Times  []ServerTime  `json:"times,omitempty"`
}

// Gauge is what samples of one value came to.
type Gauge struct {
	Mean    float64 `json:"mean"`
	Max     float64 `json:"max"`
	Samples int64   `json:"samples"`
}

func (g Gauge) with(v float64) Gauge {
	n := g.Samples + 1
	if g.Samples == 0 {
		g.Max = v
	}
	return Gauge{Mean: g.Mean + (v-g.Mean)/float64(n), Max: max(g.Max, v), Samples: n}
}

// ServerCount is a number that both sides counted.
type ServerCount struct {
	What   string  `json:"what"`
	Server float64 `json:"server"`
	// Ours is what it must have counted at the least: requests that came
	// through, tokens that usage told. AtMost adds what may have reached it,
	// nil if that is not known.
	Ours   float64  `json:"ours"`
	AtMost *float64 `json:"ours_at_most,omitempty"`
}

// extra is the share that the server counted more than we can have caused.
func (c ServerCount) extra() float64 {
	if c.AtMost == nil || *c.AtMost <= 0 {
		return 0
	}
	return max(0, c.Server / *c.AtMost - 1)
}

// missing is the share that we caused and the server did not count.
func (c ServerCount) missing() float64 {
	if c.Ours <= 0 {
		return 0
	}
	return max(0, 1-c.Server/c.Ours)
}

// ServerTime is a mean time that both sides measured, in milliseconds.
type ServerTime struct {
	What   string  `json:"what"`
	Server float64 `json:"server_ms"`
	Ours   float64 `json:"ours_ms"`
}

// What ServerCount and ServerTime speak of.
const (
	CountRequests = "requests"
	CountInput    = "input tokens"
	CountOutput   = "output tokens"

	TimeTTFT    = "time to first token"
	TimeITL     = "gap between tokens"
	TimeGap     = "gap between events"
	TimeLatency = "request latency"
)

// The names of a server's metrics, as package target writes them into the
// manifest and the samples, which is the only way between the two packages.
const (
	metricFinished   = "request_success"
	metricPrompt     = "prompt_tokens"
	metricGenerated  = "generation_tokens"
	metricQueries    = "prefix_queries"
	metricHits       = "prefix_hits"
	metricDrafts     = "spec_drafts"
	metricDrafted    = "spec_drafted"
	metricAccepted   = "spec_accepted"
	metricAcceptLen  = "spec_accept_length"
	metricAcceptRate = "spec_accept_rate"
	metricQueue      = "queue_time"
	metricPrefill    = "prefill_time"
	metricTTFT       = "ttft"
	metricITL        = "itl"
	metricTPOT       = "tpot"
	metricE2E        = "e2e"
)

// The names of the gauges that a Server may have.
const (
	GaugeRunning = "running" // requests
	GaugeWaiting = "waiting" // requests
	GaugeKVUsage = "kv_usage"
	GaugeGPU     = "gpu_utilization"
	GaugePower   = "gpu_power_watts"
)

var gauges = []string{
	GaugeRunning, GaugeWaiting, GaugeKVUsage, metricAcceptLen, metricAcceptRate,
	GaugeGPU, GaugePower, "gpu_memory_bytes", "gpu_memory_free_bytes", "gpu_clock_hertz",
}

// What target says of two samples between which counters began anew.
var resetWords = []string{"counters were reset", "engines changed"}

// The bounds of the rules about the server.
const (
	trafficSuspect = 0.05 // share of requests or tokens that are not ours
	countsNamed    = 0.01 // share that the server did not count
	apart          = 0.2  // of two means
	apartFloor     = 20.0 // ms, of TTFT and latency,
	apartGapFloor  = 1.0  // and of gaps
	mostNamed      = 5    // models in one message
)

// served is what the server should have counted: all measured requests that
// were sent.
type served struct {
	ok             int64
	prompt, output tokenSum
	cached         tokenSum
	// Of valid streams.
	decode               time.Duration
	tokenGaps, eventGaps int64
}

// tokenSum is a sum of counts, of which some are missing.
type tokenSum struct{ sum, missing int64 }

func (s *tokenSum) add(c record.Count) {
	if c.IsKnown() {
		s.sum += int64(c)
	} else {
		s.missing++
	}
}

func (v *served) add(r *record.Record) {
	if r.Outcome == record.OK {
		v.ok++
	}
	v.prompt.add(r.Usage.Prompt)
	v.output.add(r.Usage.Completion)
	v.cached.add(r.Usage.Cached)
}

// addValid takes the gaps of a valid stream whose tokens are known.
func (v *served) addValid(r *record.Record) {
	decode, ok := r.DecodeDuration()
	if osl, known := r.OSL(); ok && known && osl > 1 {
		v.decode += decode
		v.tokenGaps += osl - 1
		v.eventGaps += int64(len(r.Chunks) - 1)
	}
}

// serverWindow is what the server's metrics say of the measurement; counters
// and times are empty if they are of no use.
type serverWindow struct {
	counters map[string]float64
	times    map[string]record.ServerTimes
	gauges   map[string]Gauge
	err      string // why there are no counters
	reset    bool   // since they began anew
}

// readServer takes the window from the manifest and looks through the samples
// between its ends: a counter that fell and rose again shows only there.
func (t *tally) readServer(samples []record.Sample) {
	w := t.m.Server
	from, to := t.m.MeasureStart, t.m.MeasureEnd
	if w != nil && w.Error == "" {
		from, to = w.From, w.To
	}
	within := slices.DeleteFunc(slices.Clone(samples), func(s record.Sample) bool {
		return s.From == record.FromClient || s.At < from || s.At > to
	})
	for _, s := range within {
		for _, name := range gauges {
			if v, ok := s.Values[name]; ok && v >= 0 && !math.IsInf(v, 0) {
				if t.server.gauges == nil {
					t.server.gauges = map[string]Gauge{}
				}
				t.server.gauges[name] = t.server.gauges[name].with(v)
			}
		}
	}
	if w == nil {
		return
	}
	if w.Error != "" {
		t.server.err = w.Error
		t.server.reset = slices.ContainsFunc(resetWords, func(s string) bool { return strings.Contains(w.Error, s) })
		return
	}
	within = slices.DeleteFunc(within, func(s record.Sample) bool { return s.From != record.FromServer })
	slices.SortStableFunc(within, func(a, b record.Sample) int { return int(max(-1, min(1, a.At-b.At))) })
	if what := fell(w, within); what != "" {
		t.server.err, t.server.reset = what, true
		return
	}
	t.server.counters, t.server.times = map[string]float64{}, map[string]record.ServerTimes{}
	for name, v := range w.Counters {
		if v >= 0 && !math.IsInf(v, 0) {
			t.server.counters[name] = v
		}
	}
	for name, v := range w.Times {
		if v.Seconds >= 0 && !math.IsInf(v.Seconds, 0) {
			t.server.times[name] = v
		}
	}
}

// fell names the first counter of the window that fell from one sample to the
// next.
func fell(w *record.ServerWindow, samples []record.Sample) string {
	names := slices.Sorted(maps.Keys(w.Counters))
	for _, name := range slices.Sorted(maps.Keys(w.Times)) {
		names = append(names, name+"_seconds", name+"_count")
	}
	for _, name := range names {
		last := math.Inf(-1)
		for _, s := range samples {
			v, ok := s.Values[name]
			if !ok {
				continue
			}
			if v < last {
				return fmt.Sprintf("the server's counters were reset in mid-run: %s fell from %g to %g", name, last, v)
			}
			last = v
		}
	}
	return ""
}

// mean returns the mean interval of a metric in milliseconds, and the number
// of intervals.
func (w *serverWindow) mean(name string) (v, n float64, ok bool) {
	s, known := w.times[name]
	if !known || s.Count == nil || !(*s.Count > 0) || math.IsInf(*s.Count, 0) {
		return 0, 0, false
	}
	return 1e3 * s.Seconds / *s.Count, *s.Count, true
}

// ratio is the quotient of two counters.
func (w *serverWindow) ratio(above, below string) *float64 {
	a, ok := w.counters[above]
	b, ok2 := w.counters[below]
	if !ok || !ok2 {
		return nil
	}
	return ratio(a, b)
}

// answeredAs is a model that was asked for and the name in its answers. One name
// that is another is usual, as that of a dated snapshot; several are several
// models.
type answeredAs struct{ asked, name string }

func (t *tally) addAnswered(r *record.Record) {
	if r.ResponseModel == "" {
		return
	}
	key := answeredAs{cmp.Or(r.Model, t.m.Target.Model), r.ResponseModel}
	if _, known := t.answered[key]; known || len(t.answered) < maxGroups {
		t.answered[key]++
	}
}

// changed lists what did not stay the same during the run.
func (t *tally) changed() []string {
	names := map[string][]string{} // by the model asked for
	for key := range t.answered {
		names[key.asked] = append(names[key.asked], key.name)
	}
	out := slices.Clone(t.m.Changed)
	for _, asked := range slices.Sorted(maps.Keys(names)) {
		named := names[asked]
		if len(named) < 2 {
			continue
		}
		slices.SortFunc(named, func(a, b string) int {
			return cmp.Or(cmp.Compare(t.answered[answeredAs{asked, b}], t.answered[answeredAs{asked, a}]), cmp.Compare(a, b))
		})
		var parts []string
		for i, name := range named {
			if i == mostNamed {
				parts = append(parts, fmt.Sprintf("%d more", len(named)-i))
				break
			}
			parts = append(parts, fmt.Sprintf("%.80s (%d)", name, t.answered[answeredAs{asked, name}]))
		}
		out = append(out, fmt.Sprintf("model: the answers to requests for %.80s name %s", asked, strings.Join(parts, ", ")))
	}
	return out
}

// serverResult tells of the server; nil if nothing is known.
func (t *tally) serverResult(s *Summary) *Server {
	m, w, changed := t.m, &t.server, t.changed()
	if m.Dialect == "" && m.Server == nil && len(m.Conditions) == 0 && len(changed) == 0 && w.gauges == nil {
		return nil
	}
	out := &Server{Dialect: m.Dialect, DialectBy: m.DialectBy, Changed: changed, MetricsError: w.err, Gauges: w.gauges}
	if m.Server == nil {
		return out
	}
	for _, text := range m.Server.Warnings {
		if !slices.Contains(out.Left, text) {
			out.Left = append(out.Left, text)
		}
	}
	if w.err != "" {
		return out
	}
	out.Metrics = len(w.counters)+len(w.times) > 0
	for _, name := range slices.Sorted(maps.Keys(w.times)) {
		if v, _, ok := w.mean(name); ok {
			if out.Means == nil {
				out.Means = map[string]float64{}
			}
			out.Means[name] = v
		}
	}
	out.Counts, out.Times = t.counts(), t.times(s)
	return out
}

// counts sets the server's counters beside ours.
func (t *tally) counts() []ServerCount {
	var out []ServerCount
	add := func(what, name string, ours int64, most *float64) {
		if v, ok := t.server.counters[name]; ok {
			out = append(out, ServerCount{What: what, Server: v, Ours: float64(ours), AtMost: most})
		}
	}
	sent := float64(t.starts.n)
	add(CountRequests, metricFinished, t.served.ok, &sent)
	prompt, output := t.served.prompt, t.served.output
	if t.m.Dialect == "llamacpp" { // its prompt tokens are those that it computed
		prompt.sum -= t.served.cached.sum
		prompt.missing = max(prompt.missing, t.served.cached.missing)
	}
	for _, one := range []struct {
		what, name string
		ours       tokenSum
	}{{CountInput, metricPrompt, prompt}, {CountOutput, metricGenerated, output}} {
		if one.ours.sum <= 0 {
			continue // usage told nothing
		}
		var most *float64
		if v := float64(one.ours.sum); one.ours.missing == 0 {
			most = &v
		}
		add(one.what, one.name, one.ours.sum, most)
	}
	return out
}

// times sets the server's means beside ours.
func (t *tally) times(s *Summary) []ServerTime {
	var out []ServerTime
	ours := func(tag string) (float64, bool) {
		r, ok := s.Metric(tag)
		if !ok {
			return 0, false
		}
		return r.Statistic.Avg, true
	}
	if v, _, ok := t.server.mean(metricTTFT); ok {
		if our, ok := ours("time_to_first_token"); ok {
			out = append(out, ServerTime{TimeTTFT, v, our})
		}
	}
	v := &t.served
	if mean, n, ok := t.server.mean(metricITL); ok && v.tokenGaps > 0 && v.eventGaps > 0 {
		// Some servers time tokens, some the steps that make one or several:
		// their number tells which of the two it is.
		what, gaps := TimeITL, v.tokenGaps
		if math.Abs(n-float64(v.eventGaps)) < math.Abs(n-float64(v.tokenGaps)) {
			what, gaps = TimeGap, v.eventGaps
		}
		out = append(out, ServerTime{what, mean, float64(v.decode) / float64(gaps) / ms})
	} else if mean, _, ok := t.server.mean(metricTPOT); ok {
		if our, ok := ours("inter_token_latency"); ok {
			out = append(out, ServerTime{TimeITL, mean, our})
		}
	}
	if mean, _, ok := t.server.mean(metricE2E); ok {
		if our, ok := ours("request_latency"); ok {
			out = append(out, ServerTime{TimeLatency, mean, our})
		}
	}
	return out
}

// foreign is the largest share that the server counted beyond what can be ours:
// of requests, or of tokens where it counts no requests.
func (s *Server) foreign() (c ServerCount, share float64) {
	if s == nil {
		return c, 0
	}
	for i, one := range s.Counts {
		if i > 0 && s.Counts[0].What == CountRequests {
			break
		}
		if e := one.extra(); e > share {
			c, share = one, e
		}
	}
	return c, share
}

func otherTraffic(_ *tally, s *Summary) (string, Level) {
	c, share := s.Server.foreign()
	// Without a count of requests, a few tokens more may be counted otherwise.
	if share == 0 || c.What != CountRequests && share <= countsNamed {
		return "", Valid
	}
	message := fmt.Sprintf("The server counted %.6g %s during the measurement where ours are at most %.6g (%+.3g %%): others used it.",
		c.Server, c.What, *c.AtMost, 100*share)
	if share > trafficSuspect {
		return message, Suspect
	}
	return message, Valid
}

// serverCountsOff: where the requests agree, tokens that do not were counted by
// another rule; where the server counted less, something else answered.
func serverCountsOff(_ *tally, s *Summary) (string, Level) {
	if s.Server == nil {
		return "", Valid
	}
	var seen []string
	effect := Valid
	_, foreign := s.Server.foreign()
	for _, c := range s.Server.Counts {
		switch more, less := c.extra(), c.missing(); {
		case less > countsNamed:
		case more > countsNamed && foreign == 0:
			if more > trafficSuspect {
				effect = Suspect
			}
		default:
			continue
		}
		seen = append(seen, fmt.Sprintf("%.6g %s where we count %.6g", c.Server, c.What, c.Ours))
	}
	if seen == nil {
		return "", Valid
	}
	return "The server's own counters say " + strings.Join(seen, ", ") + ".", effect
}

// serverTimesApart: the two clocks stand at different places, so means differ;
// by a fifth they should not.
func serverTimesApart(_ *tally, s *Summary) (string, Level) {
	if s.Server == nil {
		return "", Valid
	}
	if _, foreign := s.Server.foreign(); foreign > trafficSuspect {
		return "", Valid // they are the means of other requests too
	}
	var seen []string
	for _, one := range s.Server.Times {
		floor := apartFloor
		if one.What == TimeITL || one.What == TimeGap {
			floor = apartGapFloor
		}
		far := math.Abs(one.Ours - one.Server)
		if far <= floor || far <= apart*max(one.Ours, one.Server) || one.What == TimeTTFT && s.Warned(TTFTUnexplained) {
			continue
		}
		seen = append(seen, fmt.Sprintf("mean %s %.4g ms where we measured %.4g ms", one.What, one.Server, one.Ours))
	}
	if seen == nil {
		return "", Valid
	}
	return "The server's own metrics say " + strings.Join(seen, ", ") + ".", Valid
}

func conditionsChanged(t *tally, _ *Summary) (string, Level) {
	parts := t.changed()
	if t.server.reset {
		parts = append(parts, t.server.err)
	}
	if len(parts) == 0 {
		return "", Valid
	}
	return "The server did not stay the same during the run: " + strings.Join(parts, "; ") + ".", Suspect
}

func serverMetrics(t *tally, s *Summary) (string, Level) {
	var out []string
	if t.server.err != "" && !t.server.reset && !t.m.Server.Absent {
		out = append(out, "The server's metrics do not cover the measurement: "+t.server.err+".")
	}
	if s.Server != nil && len(s.Server.Left) > 0 {
		out = append(out, "Some of the server's metrics are left out: "+strings.Join(s.Server.Left, "; ")+".")
	}
	if why := s.Manifest.GPUError; why != "" {
		out = append(out, "The GPU figures (--gpu-telemetry) are missing or have gaps: "+why+".")
	}
	return strings.Join(out, " "), Valid
}
