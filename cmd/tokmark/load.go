package main

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/workloads/arrival"
)

// loadOptions say when requests are sent, and how many.
type loadOptions struct {
	concurrencies, rates       levels // several make a sweep
	concurrency                int    // of this run
	concurrencyGiven           bool   // it caps a schedule too
	concurrencyRamp, rateRamp  float64
	concurrencyStages          []string
	requestRate                float64 // of this run
	repeat                     int
	rateStages                 []string
	arrivalPattern             string
	arrivalSmoothness          float64
	userRate                   float64
	users                      int
	prefillConcurrency         int
	requestCount, sessions     int64
	duration, grace            float64
	warmup                     int64
	fixedSchedule, noSchedule  bool
	autoOffset                 bool
	scheduleStart, scheduleEnd float64
	speedup                    float64
	classArrivals              []arrival.Plan // of the classes, if they have their own
	needsTimes                 string         // option given that needs a file with times; empty: none
	bounds                     int            // who says how much is sent: the user, or byDefault
}

// byDefault marks a bound that nobody gave.
const byDefault = 1

func (o *loadOptions) bindLoad(fs *pflag.FlagSet) {
	o.concurrencies = levels{1}
	fs.Var(&o.concurrencies, "concurrency", "sessions in flight (a session of one turn is a request); with a rate or a trace: the most in flight; several, as 1,8,64: a sweep")
	fs.Float64Var(&o.concurrencyRamp, "concurrency-ramp-duration", 0, "`seconds` over which the concurrency grows from 1")
	fs.StringSliceVar(&o.concurrencyStages, "concurrency-stages", nil, "concurrency over time, as `30s:1-64,60s:64,10s:8`: each a duration and a level, or a ramp between two")
	fs.Var(&o.rates, "request-rate", "requests per second, sent when due whether or not others have ended; several: a sweep")
	fs.IntVar(&o.repeat, "repeat", 1, "make the run so many times, each with fresh prompts, and show how far they lie apart")
	fs.Float64Var(&o.rateRamp, "request-rate-ramp-duration", 0, "`seconds` over which the rate grows from 0")
	fs.StringSliceVar(&o.rateStages, "request-rate-stages", nil, "rate over time, as `30s:1-20,60s:20`")
	fs.StringVar(&o.arrivalPattern, "arrival-pattern", "poisson", "with a rate: constant, poisson or gamma")
	fs.Float64Var(&o.arrivalSmoothness, "arrival-smoothness", 1, "shape of gamma arrivals: 1 is poisson, above 1 smoother, below 1 burstier (vLLM's burstiness)")
	fs.Float64Var(&o.userRate, "user-centric-rate", 0, "requests per second of --num-users together, each with one in flight and a gap of its own between two")
	fs.IntVar(&o.users, "num-users", 0, "users of --user-centric-rate")
	fs.IntVar(&o.prefillConcurrency, "prefill-concurrency", 0, "most requests that wait for their first token; 0: no cap")
	fs.Int64Var(&o.requestCount, "request-count", 0, "requests to measure (default: 10 or 2 × concurrency, the larger)")
	fs.Int64Var(&o.sessions, "num-sessions", 0, "sessions to measure, in place of a count of requests")
	fs.Float64Var(&o.duration, "benchmark-duration", 0, "`seconds` to send for, in place of a count")
	fs.Float64Var(&o.grace, "benchmark-grace-period", 30, "`seconds` that requests in flight may take after the duration or an interrupt")
	fs.Int64Var(&o.warmup, "warmup-request-count", 0, "requests before the measurement, not measured")
	fs.BoolVar(&o.fixedSchedule, "fixed-schedule", false, "send when the input file says (default if it has times)")
	fs.BoolVar(&o.noSchedule, "no-fixed-schedule", false, "pay no heed to times in the input file")
	fs.BoolVar(&o.autoOffset, "fixed-schedule-auto-offset", true, "the first time in the file is the start; false: its time 0 is")
	fs.Float64Var(&o.scheduleStart, "fixed-schedule-start-offset", 0, "leave out what the file wants before this time in `ms`; it becomes the start")
	fs.Float64Var(&o.scheduleEnd, "fixed-schedule-end-offset", 0, "leave out what the file wants after this time in `ms`; 0: nothing")
	fs.Float64Var(&o.speedup, "fixed-schedule-speedup", 1, "divides the gaps of the file's schedule")
}

// scheduleOptions are about the schedule of a file.
var scheduleOptions = []string{
	"fixed-schedule", "fixed-schedule-auto-offset", "fixed-schedule-start-offset", "fixed-schedule-end-offset", "fixed-schedule-speedup",
}

// given reports whether the user asked for the option; a switch that is off is
// not asked for.
func given(fs *pflag.FlagSet, name string) bool {
	f := fs.Lookup(name)
	return f.Changed && (f.Value.Type() != "bool" || f.Value.String() == "true")
}

// scheduled reports whether a rate decides when requests are sent.
func (o *loadOptions) scheduled() bool {
	return o.requestRate > 0 || len(o.rateStages) > 0 || len(o.classArrivals) > 0
}

func (o *loadOptions) completeLoad(fs *pflag.FlagSet) {
	if len(o.concurrencies) > 0 && o.concurrency == 0 {
		o.concurrency = int(o.concurrencies[0])
	}
	if len(o.rates) > 0 {
		o.requestRate = o.rates[0]
	}
	for _, name := range scheduleOptions {
		if fs.Changed(name) && (name != "fixed-schedule" || o.fixedSchedule) {
			o.needsTimes = name
		}
	}
	o.concurrencyGiven = fs.Changed("concurrency") || fs.Changed("concurrency-stages")
	if (o.scheduled() || o.users > 0) && !fs.Changed("concurrency") {
		o.concurrency = 0
	}
	if levels, err := stages(o.concurrencyStages); err == nil && len(levels) > 0 && !fs.Changed("concurrency") {
		for _, s := range levels {
			o.concurrency = max(o.concurrency, int(max(s.From, s.To)))
		}
	}
	given := fs.Changed("request-count") || fs.Changed("num-sessions") || fs.Changed("benchmark-duration")
	if !given && o.requestCount == 0 && o.sessions == 0 && o.duration == 0 {
		o.bounds = byDefault
		switch d := o.stagesDuration(); {
		case d > 0:
			o.duration = d.Seconds()
		default:
			o.requestCount = defaultRequests(max(o.concurrency, o.users))
		}
	}
}

// defaultRequests is AIPerf's default number of requests.
func defaultRequests(concurrency int) int64 { return max(10, 2*int64(concurrency)) }

// stagesDuration is how long the stages given take; 0: there are none, or the
// last has no end.
func (o *loadOptions) stagesDuration() time.Duration {
	for _, given := range [][]string{o.rateStages, o.concurrencyStages} {
		if p, err := stages(given); err == nil && len(p) > 0 {
			if d, ends := p.Duration(); ends {
				return d
			}
		}
	}
	return 0
}

func (o *loadOptions) validateLoad(fs *pflag.FlagSet) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	for _, c := range o.concurrencies {
		if !(c >= 1 && c == math.Trunc(c) && c < math.MaxInt32) {
			bad("--concurrency %v: it must be a whole number of at least 1, and below %d", c, math.MaxInt32)
		}
	}
	for _, r := range o.rates {
		switch {
		case math.IsInf(r, 1):
			bad("--request-rate %v: it must be a number above 0; for no rate, where --concurrency alone bounds the load, leave it out", r)
		case !(r > 0):
			bad("--request-rate %v: it must be above 0", r)
		}
	}
	if len(o.rates) > 1 && len(o.concurrencies) > 1 {
		bad("--request-rate and --concurrency: only one of the two can be swept")
	}
	if o.repeat < 1 {
		bad("--repeat %d: it must be at least 1", o.repeat)
	}
	if p := arrival.Pattern(o.arrivalPattern); p != arrival.Constant && p != arrival.Poisson && p != arrival.Gamma {
		bad("--arrival-pattern %s: use constant, poisson or gamma", o.arrivalPattern)
	}
	for _, name := range []string{"arrival-pattern", "arrival-smoothness", "request-rate-ramp-duration"} {
		if fs.Changed(name) && !o.scheduled() {
			bad("--%s needs --request-rate", name)
		}
	}
	for _, name := range []string{
		"request-rate", "request-rate-stages", "user-centric-rate", "arrival-pattern", "arrival-smoothness", "request-rate-ramp-duration",
		"concurrency-ramp-duration", "concurrency-stages",
	} {
		if fs.Changed(name) && len(o.classArrivals) > 0 {
			bad("--%s and a request-rate of classes exclude each other", name)
		}
	}
	if fs.Changed("arrival-smoothness") && o.scheduled() && o.arrivalPattern != string(arrival.Gamma) {
		bad("--arrival-smoothness is for --arrival-pattern gamma, not %s", o.arrivalPattern)
	}
	if fs.Changed("concurrency-ramp-duration") && !fs.Changed("concurrency") {
		bad("--concurrency-ramp-duration needs --concurrency: it grows from 1 to that")
	}
	if _, err := stages(o.rateStages); err != nil {
		bad("--request-rate-stages: %w", err)
	}
	if _, err := stages(o.concurrencyStages); err != nil {
		bad("--concurrency-stages: %w", err)
	}
	exclusive := func(names ...string) {
		names = slices.DeleteFunc(names, func(n string) bool { return !given(fs, n) })
		if len(names) > 1 {
			bad("--%s exclude each other", strings.Join(names, " and --"))
		}
	}
	exclusive("request-rate", "request-rate-stages", "user-centric-rate", "fixed-schedule")
	for _, name := range scheduleOptions[1:] {
		for _, other := range []string{"request-rate", "request-rate-stages", "user-centric-rate", "no-fixed-schedule"} {
			if fs.Changed(name) && given(fs, other) {
				bad("--%s is for the schedule of a file, and --%s sends by another", name, other)
			}
		}
	}
	for _, name := range []string{"concurrency", "concurrency-stages", "concurrency-ramp-duration", "session-turn-delay-mean", "session-turn-delay-stddev", "session-delay-ratio"} {
		if fs.Changed(name) && fs.Changed("user-centric-rate") {
			bad("--%s and --user-centric-rate exclude each other: each user has one request in flight, and a gap of its own", name)
		}
	}
	exclusive("request-rate-ramp-duration", "request-rate-stages")
	exclusive("concurrency-ramp-duration", "concurrency-stages", "request-rate")
	exclusive("request-count", "benchmark-duration")
	exclusive("num-sessions", "benchmark-duration")
	exclusive("fixed-schedule", "no-fixed-schedule")
	if (o.users > 0) != (o.userRate > 0) {
		bad("--user-centric-rate and --num-users need each other")
	}
	if fs.Changed("user-centric-rate") && !(o.userRate > 0) {
		bad("--user-centric-rate %v: it must be above 0", o.userRate)
	}
	for name, n := range map[string]int64{"request-count": o.requestCount, "num-sessions": o.sessions, "num-users": int64(o.users)} {
		if fs.Changed(name) && n < 1 {
			bad("--%s %d: it must be at least 1; leave it out for the default", name, n)
		}
	}
	if fs.Changed("benchmark-duration") && !(o.duration > 0) {
		bad("--benchmark-duration %v: it must be above 0", o.duration)
	} else {
		errs = append(errs, notNegative(map[string]float64{"benchmark-duration": o.duration}))
	}
	if !(o.speedup > 0 && o.speedup <= mostNumber) {
		bad("--fixed-schedule-speedup %v: it must be above 0, and at most %.0f", o.speedup, float64(mostNumber))
	}
	errs = append(errs, notNegative(map[string]float64{
		"benchmark-grace-period": o.grace, "warmup-request-count": float64(o.warmup), "prefill-concurrency": float64(o.prefillConcurrency),
		"concurrency-ramp-duration": o.concurrencyRamp, "request-rate-ramp-duration": o.rateRamp,
		"fixed-schedule-start-offset": o.scheduleStart, "fixed-schedule-end-offset": o.scheduleEnd,
	}))
	return errors.Join(errs...)
}

// stages reads levels over time: "30s:1-64" grows from 1 to 64 in half a
// minute, "60s:64" stays there for a minute.
func stages(given []string) (arrival.Profile, error) {
	var p arrival.Profile
	for _, s := range given {
		length, level, ok := strings.Cut(strings.TrimSpace(s), ":")
		d, err := time.ParseDuration(length)
		if !ok || err != nil || d <= 0 {
			return nil, fmt.Errorf("%s: give a duration and a level, as 30s:8 or 30s:1-8", s)
		}
		from, to, ramp := strings.Cut(level, "-")
		if !ramp {
			to = from
		}
		a, err1 := strconv.ParseFloat(from, 64)
		b, err2 := strconv.ParseFloat(to, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%s: the level is no number", s)
		}
		p = append(p, arrival.Stage{Duration: d, From: a, To: b})
	}
	if len(p) > 0 {
		return p, p.Validate()
	}
	return nil, nil
}

// apply puts the load into the plan. offsets, if not nil, is a schedule that
// came with the requests.
func (o *loadOptions) apply(p *bench.Plan, seed uint64, offsets []time.Duration) error {
	p.Concurrency, p.PrefillConcurrency = o.concurrency, o.prefillConcurrency
	p.Requests, p.Sessions = o.requestCount, o.sessions
	p.Duration, p.Grace, p.Warmup = seconds(o.duration), seconds(o.grace), o.warmup
	switch {
	case o.users > 0:
		p.Users = arrival.Users{Count: o.users, Rate: o.userRate}
	case offsets != nil:
		if !o.concurrencyGiven {
			o.concurrency, p.Concurrency = 0, 0
		}
		p.Schedule = arrival.Fixed(offsets)
	case len(o.classArrivals) > 0:
		arrivals, err := o.arrivals(seed)
		if err != nil {
			return err
		}
		p.Schedule = func(yield func(time.Duration) bool) {
			for at := range arrivals {
				if !yield(at) {
					return
				}
			}
		}
	case o.scheduled():
		rate, err := stages(o.rateStages)
		if err != nil {
			return err
		}
		if len(rate) == 0 {
			rate = arrival.Steady(o.requestRate)
			if o.rateRamp > 0 {
				rate = arrival.Ramp(0, o.requestRate, seconds(o.rateRamp))
			}
		}
		schedule := func(rate arrival.Profile, seed uint64) (iter.Seq[time.Duration], error) {
			return arrival.Plan{Pattern: arrival.Pattern(o.arrivalPattern), Rate: rate, Smoothness: o.arrivalSmoothness, Seed: seed}.Schedule()
		}
		if p.Schedule, err = schedule(rate, seed); err != nil {
			return err
		}
		if o.requestRate > 0 {
			if p.WarmupSchedule, err = schedule(arrival.Steady(o.requestRate), seed+1); err != nil {
				return err
			}
		}
	}
	var err error
	if p.Ramp, err = stages(o.concurrencyStages); err != nil {
		return err
	}
	if o.concurrencyRamp > 0 {
		p.Ramp = arrival.Ramp(1, float64(o.concurrency), seconds(o.concurrencyRamp))
	}
	return nil
}

// arrivals are those of all classes that have their own, each with the place of
// its class.
func (o *loadOptions) arrivals(seed uint64) (iter.Seq2[time.Duration, int], error) {
	schedules := make([]arrival.Schedule, len(o.classArrivals))
	for k, plan := range o.classArrivals {
		plan.Seed = seed + uint64(k)
		var err error
		if schedules[k], err = plan.Schedule(); err != nil {
			return nil, err
		}
	}
	return arrival.Merge(schedules...), nil
}

// describe says what load was asked for; traced: when is said by the file.
func (o *loadOptions) describe(traced bool) record.Load {
	l := record.Load{Concurrency: o.concurrency, PrefillConcurrency: o.prefillConcurrency, Rate: o.requestRate, Duration: seconds(o.duration)}
	switch {
	case o.users > 0:
		l.Users, l.Rate = o.users, o.userRate
	case traced:
		if l.Arrival = "trace"; o.speedup != 1 {
			l.Arrival += ", speed-up " + strconv.FormatFloat(o.speedup, 'g', -1, 64)
		}
	case len(o.classArrivals) > 0:
		var parts []string
		for _, plan := range o.classArrivals {
			rate := plan.Rate[0].To
			l.Rate += rate
			parts = append(parts, fmt.Sprintf("%g %s", rate, plan.Pattern))
		}
		l.Arrival = strings.Join(parts, " + ")
	case len(o.rateStages) > 0:
		l.Arrival = o.arrivalPattern + ", " + strings.Join(o.rateStages, ",")
	case o.requestRate > 0:
		l.Arrival = o.arrivalPattern
	}
	switch {
	case len(o.concurrencyStages) > 0:
		l.Ramp = "by stages " + strings.Join(o.concurrencyStages, ",")
	case o.concurrencyRamp > 0:
		l.Ramp = fmt.Sprintf("reached over %g s", o.concurrencyRamp)
	case o.rateRamp > 0:
		l.Ramp = fmt.Sprintf("reached over %g s", o.rateRamp)
	}
	if o.duration > 0 {
		l.Grace = seconds(o.grace)
	}
	return l
}
