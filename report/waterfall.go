package report

import (
	"fmt"
	"math"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// Waterfall says where the time to the first token went, in means over the
// valid streams of which every moment is known: twice over, by what the client saw and by what the server tells.
// Times are in milliseconds; shares are of the mean TTFT.
type Waterfall struct {
	Requests int64 `json:"requests"`
	// TTFT is of these requests, as is everything else.
	TTFT float64 `json:"time_to_first_token_ms"`
	// Late is how late the requests started by the schedule; it lies before
	// TTFT. Nil if the load has no schedule.
	Late *float64 `json:"late_ms,omitempty"`
	// Client are the spans that the client saw; their sum is TTFT.
	Client []Span `json:"client"`
	// Server are the spans that the server tells of the time after the request
	// was written, the last of them what nothing explains: their sum is that of
	// the client's spans after SpanWrite. Empty if it tells none.
	Server []Span `json:"server,omitempty"`
	// RoundTrip is the network's, measured beside the requests; see
	// record.RoundTrip for how and to where. Nil if it was not measured.
	RoundTrip *float64 `json:"network_round_trip_ms,omitempty"`
	// Note says from where to where the server counts.
	Note string `json:"note,omitempty"`
}

// Span is a part of the time to the first token.
type Span struct {
	Name   string  `json:"name"`
	Mean   float64 `json:"mean_ms"`
	Share  float64 `json:"share"`
	Source string  `json:"source"`
}

// The spans of the client, one after the other. SpanHeld begins with the first
// comment before the first event, if one came, and ends SpanFirstEvent there:
// servers send comments while a request waits in their queue.
const (
	SpanDNS        = "dns"
	SpanConnect    = "connect"
	SpanTLS        = "tls"
	SpanPool       = "connection wait" // for a connection, beyond its set-up
	SpanWrite      = "write"
	SpanFirstByte  = "wait to first byte"
	SpanFirstEvent = "first byte to first event"
	SpanHeld       = "held, with comments only"
	SpanFirstToken = "first event to first token"
)

var clientSpans = [...]string{SpanDNS, SpanConnect, SpanTLS, SpanPool, SpanWrite, SpanFirstByte, SpanFirstEvent, SpanHeld, SpanFirstToken}

const writeSpan = 4 // the place of SpanWrite

// The spans of the server.
const (
	SpanQueue       = "queue"
	SpanPrefill     = "prefill"
	SpanFirstStep   = "first decode step"   // where prefill does not hold the first token
	SpanOther       = "other in the server" // its TTFT less queue and prefill
	SpanRest        = "rest of its TTFT"    // where it tells no prefill
	SpanUnexplained = "unexplained"
)

// The sources of spans.
const (
	FromClient        = "client"
	FromServerAnswers = "server, per request"
	FromServerMetrics = "server metrics, mean"
	FromDifference    = "what remains"
)

// Unexplained returns what nothing explains, in milliseconds; it is below 0
// where the server's spans are longer than what the client saw.
func (w *Waterfall) Unexplained() (float64, bool) {
	if w == nil || len(w.Server) == 0 {
		return 0, false
	}
	return w.Server[len(w.Server)-1].Mean, true
}

// metricNotes say from where to where the metrics of a dialect count.
var metricNotes = map[string]string{
	"vllm":     "prefill: from scheduling to the first token; TTFT: from arrival at its API",
	"lmdeploy": "prefill: from scheduling to the first token; TTFT: from arrival",
	"trtllm":   "prefill: from scheduling to the first token; TTFT: from arrival",
	"sglang":   "prefill: the forward pass alone; TTFT: from arrival",
	"dynamo":   "queue: in the request plane; TTFT: from arrival at the front end",
	"tgi":      "prefill: of a batch, not of a request",
	"litellm":  "TTFT: what the proxy saw of the server behind it",
}

// The sources of per-request times whose cuts matter, from record.ServerTimings.
const (
	llamaTimings  = "timings"
	vllmTimings   = "metrics"
	dynamoTimings = "nvext.timing"
	groqTimings   = "x_groq.usage"
	nimTimings    = "stats"
)

// answerNotes say the same of what answers tell, by the object that tells it.
var answerNotes = map[string]string{
	llamaTimings:  "prefill: from the slot's start on the prompt to the first token; the queue is not told",
	vllmTimings:   "prefill: from scheduling to the first token, which is what it calls time to first token",
	dynamoTimings: "queue: the wait for a prefill worker; TTFT: from arrival at the front end",
	groqTimings:   "first decode step: estimated as completion time / output tokens",
	nimTimings:    "its TTFT may count from arrival or from scheduling",
}

// waterfall is what is kept for Waterfall: sums over all valid streams, and
// over those whose answer tells the server's own times.
type waterfall struct{ all, told spans }

type spans struct {
	n      int64
	ttft   time.Duration
	late   sum
	client [len(clientSpans)]time.Duration
	source string // record.ServerTimings.Source
	server serverTimes
	step   sum // decode / output tokens
}

// serverTimes are sums of what answers tell.
type serverTimes struct{ queue, prefill, decode, ttft sum }

func (t *tally) addWaterfall(r *record.Record) {
	ttft, ok := r.TTFT()
	if !ok || !r.Written.IsSet() || !r.FirstByte.IsSet() || !r.FirstEvent.IsSet() {
		return
	}
	t.waterfall.all.add(r, ttft)
	told := r.ServerTimings
	if told != nil && (told.Prefill != nil || told.TTFT != nil || told.Queue != nil) {
		s := &t.waterfall.told
		if s.n == 0 {
			s.source = told.Source
		}
		if told.Source != s.source {
			return // servers cut in different places
		}
		s.add(r, ttft)
		addTold := func(to *sum, d *time.Duration) {
			if d != nil && *d >= 0 {
				to.add(int64(*d))
			}
		}
		addTold(&s.server.queue, told.Queue)
		addTold(&s.server.prefill, told.Prefill)
		addTold(&s.server.decode, told.Decode)
		addTold(&s.server.ttft, told.TTFT)
		if osl, ok := r.OSL(); ok && osl > 0 && told.Decode != nil {
			s.step.add(int64(*told.Decode) / osl)
		}
	}
}

// add cuts the time from the start to the first token at the moments that the
// client saw. A moment that another clock puts out of order is where its
// neighbour before it is, so that the spans always sum to the whole.
func (s *spans) add(r *record.Record, ttft time.Duration) {
	s.n++
	s.ttft += ttft
	if late, ok := r.Lateness(); ok {
		s.late.add(int64(late))
	}
	end := r.Chunks[0].At
	at := r.Start
	next := func(place int, moment record.Time) {
		moment = min(max(moment, at), end)
		s.client[place] += moment.Sub(at)
		at = moment
	}
	ready := r.Start + record.Time(r.Conn.Wait)
	if !r.Conn.Reused { // set-up ends the wait; what of it lies before is not ours
		steps := r.Conn.DNS + r.Conn.Connect + r.Conn.TLS
		next(3, ready-record.Time(min(steps, r.Conn.Wait)))
		next(0, at+record.Time(r.Conn.DNS))
		next(1, at+record.Time(r.Conn.Connect))
		next(2, at+record.Time(r.Conn.TLS))
	}
	next(3, ready)
	next(writeSpan, r.Written)
	next(5, r.FirstByte)
	if r.FirstComment.IsSet() {
		next(6, r.FirstComment)
		next(7, r.FirstEvent)
	}
	next(6, r.FirstEvent)
	next(8, end)
}

func (t *tally) waterfallResult() *Waterfall {
	kept := &t.waterfall.all
	perRequest := t.waterfall.told.n > 0 && 2*t.waterfall.told.n >= kept.n
	if perRequest {
		kept = &t.waterfall.told
	}
	if kept.n == 0 || kept.ttft <= 0 {
		return nil
	}
	n := float64(kept.n)
	w := &Waterfall{Requests: kept.n, TTFT: float64(kept.ttft) / n / ms}
	if trip := t.m.RoundTrip; trip != nil && trip.Median > 0 {
		v := float64(trip.Median) / ms
		w.RoundTrip = &v
	}
	if t.openLoop {
		w.Late = kept.late.mean()
	}
	span := func(name string, mean float64, source string) Span {
		return Span{Name: name, Mean: mean, Share: mean / w.TTFT, Source: source}
	}
	var after float64
	for i, d := range kept.client {
		mean := float64(d) / n / ms
		if i > writeSpan {
			after += mean
		}
		w.Client = append(w.Client, span(clientSpans[i], mean, FromClient))
	}
	queue, prefill, ttft, source := t.metricSpans()
	var step *float64
	if perRequest {
		queue, prefill, ttft = kept.server.queue.mean(), kept.server.prefill.mean(), kept.server.ttft.mean()
		source = FromServerAnswers + " (" + kept.source + ")"
		if kept.source == groqTimings { // its prefill ends before the first token is made
			step = kept.step.mean()
		}
	}
	if queue == nil && prefill == nil && ttft == nil {
		return w
	}
	var known float64
	for _, one := range []struct {
		name string
		mean *float64
	}{{SpanQueue, queue}, {SpanPrefill, prefill}, {SpanFirstStep, step}} {
		if one.mean != nil {
			known += *one.mean
			w.Server = append(w.Server, span(one.name, *one.mean, source))
		}
	}
	// A TTFT below its parts counts from scheduling, not from arrival.
	if ttft != nil && *ttft >= known {
		name := SpanOther
		if prefill == nil {
			name = SpanRest
		}
		w.Server = append(w.Server, span(name, *ttft-known, source))
		known = *ttft
	}
	w.Server = append(w.Server, span(SpanUnexplained, after-known, FromDifference))
	if w.Note = metricNotes[t.m.Dialect]; perRequest {
		w.Note = answerNotes[kept.source]
	}
	return w
}

// metricSpans returns the means of the server's metrics over the window.
func (t *tally) metricSpans() (queue, prefill, ttft *float64, source string) {
	mean := func(name string) *float64 {
		if v, _, ok := t.server.mean(name); ok {
			return &v
		}
		return nil
	}
	return mean(metricQueue), mean(metricPrefill), mean(metricTTFT), FromServerMetrics
}

// ttftUnexplained names where to look for time that neither side accounts for.
func ttftUnexplained(_ *tally, s *Summary) (string, Level) {
	w := s.Waterfall
	rest, ok := w.Unexplained()
	if !ok {
		return "", Valid
	}
	if _, foreign := s.Server.foreign(); foreign > trafficSuspect && w.Server[0].Source == FromServerMetrics {
		return "", Valid // they are the means of other requests too
	}
	large := func(v float64) bool { return v > apartFloor && v > apart*w.TTFT }
	last := w.Server[max(0, len(w.Server)-2)] // what it tells last
	ownTTFT := last.Name == SpanOther || last.Name == SpanRest
	switch {
	case large(rest) && ownTTFT:
		trip := ""
		if w.RoundTrip != nil {
			trip = fmt.Sprintf(", whose round trip takes %.3g ms", *w.RoundTrip)
		}
		return fmt.Sprintf("%.4g ms of the mean TTFT of %.4g ms pass outside the server's own count: in a proxy or in the network%s.", rest, w.TTFT, trip), Valid
	case large(rest):
		queue := ""
		if w.Server[0].Name != SpanQueue {
			queue = "its queue, of which it tells nothing, "
		}
		return fmt.Sprintf("%.4g ms of the mean TTFT of %.4g ms are explained by nothing that the server tells: look at %sits API layer, a proxy, or the network.", rest, w.TTFT, queue), Valid
	case large(-rest):
		return fmt.Sprintf("The spans that the server tells are %.4g ms longer than the mean TTFT of %.4g ms: they hold other requests, or count otherwise.", math.Abs(rest), w.TTFT), Valid
	case last.Name == SpanOther && large(last.Mean):
		return fmt.Sprintf("%.4g ms of the mean TTFT of %.4g ms pass in the server outside its queue and prefill: in its API layer (tokenizer, parsing, hand-over).", last.Mean, w.TTFT), Valid
	}
	return "", Valid
}
