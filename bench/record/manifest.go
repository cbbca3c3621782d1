package record

import (
	"encoding/json"
	"time"
)

// ManifestSchema is the version of the run directory. A reader refuses a newer
// one; additions that old readers can overlook do not raise it.
const ManifestSchema = 1

// RunOutcome is how a whole run ended.
type RunOutcome string

// The outcomes of a run. A directory whose manifest says RunRunning was left
// by a process that is still at work or was killed.
const (
	RunRunning     RunOutcome = "running"
	RunCompleted   RunOutcome = "completed"
	RunInterrupted RunOutcome = "interrupted"
	RunAborted     RunOutcome = "aborted" // interrupted twice, or a fault of ours
)

// Where the times of events come from.
const (
	StampsRead   = "read"   // our own clock, right after the read
	StampsKernel = "kernel" // the kernel's receive stamp, where it gave one
)

// Manifest says under which conditions a run was made. It never holds a
// secret: header values are left out, the command line is masked.
type Manifest struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	// RequestIDs begins the X-Request-Id of every request; its phase's first
	// letter and its record's number follow.
	RequestIDs string `json:"request_ids,omitempty"`

	Tool    Build  `json:"tool"`
	Command string `json:"command"`
	// Config is the effective configuration, by option name.
	Config map[string]json.RawMessage `json:"config,omitempty"`

	Target Target `json:"target"`
	Load   Load   `json:"load"`

	Seed         uint64 `json:"seed"`
	Salt         string `json:"salt,omitempty"` // empty: no prompt was made
	WorkloadHash string `json:"workload_hash,omitempty"`
	Workload     string `json:"workload,omitempty"` // in words
	// Cache says what the prompts do to a prefix cache.
	Cache Cache `json:"cache,omitzero"`
	// Classes are the workload classes, if there are several.
	Classes []Class `json:"classes,omitempty"`
	// Tokenizer names what counts our own tokens; empty: nothing does.
	Tokenizer string `json:"tokenizer,omitempty"`
	// Calibration tells what the server counts in prompts; nil: it was not
	// measured.
	Calibration *Calibration `json:"calibration,omitempty"`
	// Goodput holds the service level objectives by metric tag, in the unit
	// the metric is shown in.
	Goodput map[string]float64 `json:"goodput,omitempty"`

	Host Host `json:"host"`
	// Stamps names where event times come from: StampsRead or StampsKernel.
	Stamps string `json:"stamps"`

	Conditions []Condition `json:"conditions,omitempty"`
	// Dialect is how the server speaks, and DialectBy what told.
	Dialect   string `json:"dialect,omitempty"`
	DialectBy string `json:"dialect_by,omitempty"`
	// Changed lists conditions that were another after the run than before.
	Changed []string `json:"conditions_changed,omitempty"`
	// Server is what the server counted of itself during the measurement; nil:
	// nobody asked for it, or its dialect has no metrics.
	Server *ServerWindow `json:"server_window,omitempty"`
	// RoundTrip is the network's, measured beside the requests; nil: it was not.
	RoundTrip *RoundTrip `json:"network_round_trip,omitempty"`
	// GPUError tells why figures of the GPUs are missing, or some of them.
	GPUError string `json:"gpu_telemetry_error,omitempty"`
	// Dropped lists request fields that the server refused in the preflight
	// and that no measured request carries.
	Dropped []DroppedField `json:"dropped_fields,omitempty"`
	// Input lists what was skipped in the input file.
	Input *Input `json:"input,omitempty"`
	// Imported tells that another tool made the measurement; nil: we did.
	Imported *Import `json:"imported,omitempty"`

	// Origin is the wall time of offset 0. It serves people only: no interval
	// is ever computed from it.
	Origin time.Time `json:"origin"`
	// MeasureStart and MeasureEnd bound the sending of measured requests.
	MeasureStart Time `json:"measure_start,omitzero"`
	MeasureEnd   Time `json:"measure_end,omitzero"`

	Outcome RunOutcome `json:"outcome"`
	// SelfTest tells how good the client was at this load, if it was tried.
	SelfTest *SelfTest `json:"self_test,omitempty"`
	// Sent counts the measured requests handed to the transport, Unsent those
	// that were due and never sent, MaxInFlight the most at one time.
	Sent        int64 `json:"sent"`
	Unsent      int64 `json:"unsent"`
	MaxInFlight int64 `json:"max_in_flight"`
	// ClockSteps is how often the wall clock, which kernel stamps are of, was
	// set during the run.
	ClockSteps int64 `json:"clock_steps,omitempty"`
}

// SelfTest is what tries of the client against the simulator showed, before and
// after the run.
type SelfTest struct {
	Before *ClientTry `json:"before,omitempty"`
	After  *ClientTry `json:"after,omitempty"`
	// Headroom is how many times the load of the run the client was shown to
	// keep up with: its streams, events and requests; 0: not even the run's own.
	Headroom float64 `json:"headroom"`
}

// ClientTry is one try at a load: how long after they were sent events were
// said to have come, and how late requests were sent.
type ClientTry struct {
	Streams int `json:"streams"`
	// Events is the rate of events of all streams that was asked for,
	// EventsReached the rate while all were open; 0: they never were.
	Events        float64 `json:"events_per_s"`
	EventsReached float64 `json:"events_per_s_reached,omitempty"`
	// Tokens is the payload of an event; 0: 1.
	Tokens int `json:"tokens_per_event,omitempty"`
	// Requests is the rate of requests, of a load that has one.
	Requests        float64       `json:"requests_per_s,omitempty"`
	RequestsReached float64       `json:"requests_per_s_reached,omitempty"`
	ErrorP50        time.Duration `json:"event_error_p50_ns"`
	ErrorP99        time.Duration `json:"event_error_p99_ns"`
	TTFTP99         time.Duration `json:"ttft_error_p99_ns"`
	LateP99         time.Duration `json:"lateness_p99_ns,omitempty"`
	Lost            int           `json:"events_lost"`
	// Well: the rates were reached, nothing was lost, and the errors at p99
	// were within the limit. Fault says what was not.
	Well  bool   `json:"well"`
	Fault string `json:"fault,omitempty"`
}

// Build identifies the tool.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// Target is the system under test, as it was addressed.
type Target struct {
	URL string `json:"url"` // of the endpoint, without user info and query values
	// Via names the Unix socket (unix:PATH) or the proxy that it was reached
	// through, without user info; empty: none.
	Via          string `json:"via,omitempty"`
	Model        string `json:"model"`
	EndpointType string `json:"endpoint_type"`
	Streaming    bool   `json:"streaming"`
	Simulated    bool   `json:"simulated,omitempty"`
}

// Address is where the target is, in words: its URL and the way there.
func (t Target) Address() string {
	if t.Via == "" {
		return t.URL
	}
	return t.URL + " via " + t.Via
}

// Load is what was asked for.
type Load struct {
	// Concurrency is the number of requests in flight (closed loop), or the
	// cap on it if there is a rate; 0: no cap.
	Concurrency int     `json:"concurrency,omitempty"`
	Rate        float64 `json:"request_rate,omitempty"` // requests per second
	// PrefillConcurrency caps the requests that have no output yet; 0: no cap.
	PrefillConcurrency int `json:"prefill_concurrency,omitempty"`
	// Users send that rate together, each with one request in flight.
	Users   int    `json:"num_users,omitempty"`
	Arrival string `json:"arrival_pattern,omitempty"`
	// Ramp says how the level changes over time, if it does.
	Ramp     string `json:"ramp,omitempty"`
	Requests int64  `json:"request_count,omitempty"` // 0: bounded by the duration
	Sessions int64  `json:"num_sessions,omitempty"`  // conversations
	Warmup   int64  `json:"warmup_request_count,omitempty"`
	// Duration and Grace bound a run by time.
	Duration time.Duration `json:"benchmark_duration_ns,omitempty"`
	Grace    time.Duration `json:"benchmark_grace_period_ns,omitempty"`
}

// Level is what tells the loads of a sweep apart: the option it is of, and its
// value, in users, requests per second or requests in flight.
func (l Load) Level() (name string, value float64) {
	switch {
	case l.Users > 0:
		return "num_users", float64(l.Users)
	case l.Rate > 0:
		return "request_rate", l.Rate
	default:
		return "concurrency", float64(l.Concurrency)
	}
}

// The cache modes of a workload.
const (
	CacheCold    = "cold"     // every prompt is new from its first block on
	CacheWarm    = "warm"     // every prompt was sent before the measurement
	CacheHitRate = "hit-rate" // prompts share prefixes for a set share of hits
	CacheAsIs    = "as-is"    // the prompts are what they are
)

// Cache says what the prompts of a run do to a server's prefix cache.
type Cache struct {
	Mode string `json:"mode,omitempty"`
	// HitRate is the share of input tokens that should hit (CacheHitRate).
	HitRate float64 `json:"hit_rate,omitempty"`
	Block   int     `json:"block,omitempty"` // tokens a block
	// Reset tells how the server's cache was emptied before the run; nil: it
	// was not.
	Reset *CacheReset `json:"reset,omitempty"`
}

// CacheReset is the emptying of a server's prefix cache, and what a prompt of
// Prompt tokens, sent again, found in it Before and After.
type CacheReset struct {
	Request string `json:"request"` // as POST /reset_prefix_cache
	Prompt  Count  `json:"prompt_tokens,omitzero"`
	Before  Count  `json:"cached_before,omitzero"`
	After   Count  `json:"cached_after,omitzero"`
	// Verified: the server told of hits before, and of none after.
	Verified bool `json:"verified"`
}

// Class is one of several workload classes of a run.
type Class struct {
	Name    string             `json:"name"`
	Weight  float64            `json:"weight"`
	Goodput map[string]float64 `json:"goodput,omitempty"`
}

// Calibration is what the server's own counts of some probing requests say
// about prompts: tokens = TokensPerWord × words + Template.
type Calibration struct {
	// TokensPerWord is 0 where a tokenizer made the prompts.
	TokensPerWord float64 `json:"tokens_per_word,omitempty"`
	Template      float64 `json:"template_tokens"`
	// Error is the standard error of a prompt's tokens by this line, at the
	// shortest prompt measured.
	Error    float64 `json:"error_tokens,omitempty"`
	Requests int     `json:"requests"`
}

// Host is the machine that the client ran on.
type Host struct {
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Cores   int    `json:"cores"`
	Procs   int    `json:"gomaxprocs"`
	NoFile  uint64 `json:"open_files_limit,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	CPU     string `json:"cpu,omitempty"`
	MemByte uint64 `json:"memory_bytes,omitempty"`
}

// Condition is a fact about the system under test that a comparison depends
// on.
type Condition struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Source string `json:"source"` // probed, declared or unknown
	From   string `json:"from,omitempty"`
}

// ServerWindow is what a server's metrics say of the time between two moments,
// by the names of package target. What it did not tell is not there.
type ServerWindow struct {
	From     Time                   `json:"from"`
	To       Time                   `json:"to"`
	Counters map[string]float64     `json:"counters,omitempty"`
	Times    map[string]ServerTimes `json:"times,omitempty"`
	Warnings []string               `json:"warnings,omitempty"`
	// Error tells why there are no figures. Absent: because the server has no
	// metrics where its dialect has them, which is no failure.
	Error  string `json:"error,omitempty"`
	Absent bool   `json:"absent,omitempty"`
}

// ServerTimes are intervals that a server timed: their sum, and their number
// if it was told.
type ServerTimes struct {
	Seconds float64  `json:"seconds"`
	Count   *float64 `json:"count,omitempty"`
}

// RoundTrip is the median time of a TCP connect, made before and after the run
// to where its requests go: one round trip of the network to what ends the
// connection, which is a proxy or a TLS terminator if there is one in front.
type RoundTrip struct {
	Median   time.Duration `json:"median_ns"`
	Connects int           `json:"tcp_connects"`
}

// DroppedField is a request field that the server refused.
type DroppedField struct {
	Field  string `json:"field"`
	Reason string `json:"reason"` // the server's words, masked
}

// Input tells what came of an input file.
type Input struct {
	File   string `json:"file"`
	Format string `json:"format"`
	Usable int    `json:"usable"`
	// Skipped lists the first bad lines, Unlisted counts those after them.
	Skipped  []SkippedLine `json:"skipped,omitempty"`
	Unlisted int           `json:"skipped_unlisted,omitempty"`
	// Reordered: the rows of a trace were not in the order of their times.
	Reordered bool `json:"reordered,omitempty"`
}

// SkippedCount is the number of all lines that were not used.
func (i *Input) SkippedCount() int { return len(i.Skipped) + i.Unlisted }

// Import says where the records of a run come from that tokmark did not make.
type Import struct {
	File   string `json:"file"`
	Format string `json:"format"`
	// Missing tells what the file does not, in words.
	Missing []string `json:"missing,omitempty"`
}

// SkippedLine is one line (or record) of an input file that was not used.
type SkippedLine struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Detail string `json:"detail,omitempty"`
}

// Late reports whether a measured request ended after the duration and grace of
// its run: such a request enters no metric.
func (m *Manifest) Late(r *Record) bool {
	if m.Load.Duration <= 0 || !m.MeasureStart.IsSet() {
		return false
	}
	end := r.End
	if last, ok := r.LastOutput(); ok && !end.IsSet() {
		end = last
	}
	return end.Sub(m.MeasureStart) > m.Load.Duration+m.Load.Grace
}
