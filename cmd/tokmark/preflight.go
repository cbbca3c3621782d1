package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/bench/transport"
	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/dataset"
	"github.com/tokmark/tokmark/workloads/synthetic"
)

// calibrationWords are the lengths of the prompts that the server's counting is
// learned from. The tokens of a short text scatter by some percent, so there are
// more of them.
var calibrationWords = []int{64, 64, 64, 64, 64, 64, 64, 64, 1024, 1024}

// probeOutput is how many tokens a question before the run asks for, if the
// run does not say.
const probeOutput = 4

// settled is what is known of the server before the run.
type settled struct {
	count    counter
	server   *target.Server
	dialect  target.Dialect
	facts    target.Facts
	answered target.Settled
	metrics  *target.Scraper // nil: it has none that are to be read
	gpus     *target.Scraper // nil: they are not to be read
	connects []time.Duration // of TCP, before the run
}

// settle finds out, before anything is measured, how the server speaks, whether
// it accepts the run's requests and how it counts tokens. What it refuses is
// left out of all requests and written into the manifest.
func (o *options) settle(ctx context.Context, w *world, plan *bench.Plan, m *record.Manifest) (*settled, error) {
	s := &settled{server: &target.Server{
		Base: target.Root(plan.URL), Header: plan.Header, Client: &http.Client{Transport: transport.New(plan.Transport)},
	}}
	if err := o.openCounter(ctx, s, plan, m); err != nil {
		return s, err
	}
	if err := o.findDialect(ctx, w, s, plan, m); err != nil {
		return s, err
	}
	if !o.preflight {
		return s, nil
	}
	s.connects = connects(ctx, plan)
	m.RoundTrip = roundTrip(s.connects)
	probe, err := bench.NewProbe(*plan)
	if err != nil {
		return s, err
	}
	defer probe.Close()
	ask := workloads.Request{Messages: []workloads.Message{{Role: "user", Content: "Say hello."}}, OutputTokens: o.probeLength(plan)}
	if ask.Extra, err = s.dialect.Fields(o.wants(ask.OutputTokens, o.asksExact())); err != nil {
		return s, usage(err)
	}
	s.answered, err = target.Preflight{Type: plan.Type, Request: ask, Body: plan.Body, Tokenizer: s.count.Counter != nil, Send: probe.Send}.Run(ctx)
	if err != nil {
		if err := preflightError(ctx, plan.URL.String(), err, s.answered.Record); err != nil {
			return s, err
		}
		fmt.Fprintf(w.Stderr, "tokmark: %v; the run goes on\n", err)
		return s, nil
	}
	plan.Body, m.Dropped = s.answered.Body, s.answered.Dropped
	if o.strict && len(m.Dropped) > 0 {
		return s, strictError(m.Dropped)
	}
	for _, d := range s.answered.Dropped {
		fmt.Fprintf(w.Stderr, "tokmark: the server refuses %s, so no request has it: %s\n", d.Field, d.Reason)
	}
	for _, text := range s.answered.Warnings {
		fmt.Fprintf(w.Stderr, "tokmark: %s\n", text)
	}
	estimated := o.makesPrompts() && o.tokenizer == "" && o.promptAs == "text"
	if o.capsule == nil && (estimated || s.count.Counter != nil) {
		s.count.perWord = o.calibrate(ctx, w, plan, probe, m, s.count.Counter)
	}
	return s, nil
}

// openCounter opens what counts our own tokens, if anything does.
func (o *options) openCounter(ctx context.Context, s *settled, plan *bench.Plan, m *record.Manifest) error {
	tokenizer, err := o.openTokenizer()
	if err != nil {
		return usage(err)
	}
	if tokenizer != nil {
		m.Tokenizer, s.count.Counter = tokenizer.Name(), tokenizer
	}
	if o.tokenizer == "server" {
		remote, err := s.server.TokenCounter(ctx, plan.Body.Model)
		if err != nil {
			return usagef("--tokenizer server: %w", mask(err, plan.Secrets))
		}
		m.Tokenizer, s.count.Counter, s.count.check = remote.Name(), remote, remote.Err
	}
	return nil
}

// findDialect settles the dialect and puts its ways into the plan and what it
// tells of the server into the manifest.
func (o *options) findDialect(ctx context.Context, w *world, s *settled, plan *bench.Plan, m *record.Manifest) error {
	var err error
	switch {
	case o.dialect != "":
		s.dialect, err = target.ByName(o.dialect)
		s.facts.Evidence = "--dialect"
	case o.preflight:
		const patience = 20 * time.Second
		dctx, cancel := context.WithTimeout(ctx, patience)
		s.dialect, s.facts, err = s.server.Detect(dctx)
		cancel()
		if err := stopped(ctx); err != nil {
			return err
		}
		if err != nil {
			fmt.Fprintf(w.Stderr, "tokmark: %v\n", mask(err, plan.Secrets))
			s.dialect, err = target.ByName("generic")
		}
	default:
		s.dialect, err = target.ByName("generic")
		s.facts.Evidence = "not asked"
	}
	if err != nil {
		return usage(err)
	}
	m.Dialect, m.DialectBy = s.dialect.Name, s.facts.Evidence
	if s.dialect.Closes {
		plan.Header = plan.Header.Clone()
		plan.Header.Set("Connection", "close")
		fmt.Fprintf(w.Stderr, "tokmark: %s closes its connections after an answer without saying so: each request gets a new one\n", s.dialect.Title)
	}
	if o.schema != nil {
		field, format, err := s.dialect.ResponseFormat(plan.Type, o.schema.text)
		if err != nil {
			return usagef("--response-format: %w", err)
		}
		if plan.Body.Extra[field] != nil {
			return usagef("--response-format is sent as %s, which --extra-inputs gives too: leave one of them out", field)
		}
		plan.Body.Extra = maps.Clone(plan.Body.Extra)
		plan.Body.Extra[field] = format
		plan.Check = o.schema.fits
	}
	clock := func() record.Time { return record.Time(time.Since(m.Origin)) } // read only during the run
	if s.gpus, err = gpuScraper(o.gpuTelemetry, clock); err != nil {
		return usage(err)
	}
	known := o.preflight || o.dialect != ""
	if known {
		plan.Body = s.dialect.Options(plan.Type, plan.Body)
	}
	if o.preflight {
		var warnings []string
		if m.Conditions, warnings, err = s.conditions(ctx, o); err != nil {
			return usage(err)
		}
		for _, text := range warnings {
			fmt.Fprintf(w.Stderr, "tokmark: %s\n", text)
		}
	} else if m.Conditions, err = target.DeclaredConditions(o.conditions); err != nil {
		return usage(err)
	}
	if o.serverMetrics && known {
		if scraper, ok := s.server.Scraper(s.dialect, o.models[0], clock); ok {
			_, err := scraper.Scrape(ctx)
			if err != nil && !errors.Is(err, target.ErrNoMetrics) {
				_, err = scraper.Scrape(ctx) // once may be chance
			}
			if err == nil {
				s.metrics = scraper
			} else {
				m.Server = &record.ServerWindow{Error: maskText(err.Error(), plan.Secrets), Absent: errors.Is(err, target.ErrNoMetrics)}
				fmt.Fprintf(w.Stderr, "tokmark: no server metrics: %s\n", m.Server.Error)
			}
		}
	}
	return nil
}

func (s *settled) conditions(ctx context.Context, o *options) ([]record.Condition, []string, error) {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.server.Conditions(ctx, s.dialect, s.facts, o.models[0], s.gpus, o.conditions)
}

// wants is what a request of so many output tokens asks of the dialect; exact:
// its answer is to be just as long.
func (o *options) wants(output int, exact bool) target.Ask {
	if openai.EndpointType(o.endpointType) == openai.Embeddings {
		return target.Ask{} // it generates nothing that fields could shape
	}
	ask := target.Ask{Timings: true, Greedy: o.greedy, CacheSalt: o.cacheSalt}
	if exact {
		ask.Exact = output
	}
	return ask
}

// asksExact reports whether answers are to be of just the length asked for:
// where that is the workload's, not the text's of a file.
func (o *options) asksExact() bool {
	return o.exactOutput && (o.osl > 0 || o.makesPrompts() && o.drawsOutput())
}

// makesPrompts reports whether prompts are made to lengths: drawn ones, or those
// of a trace.
func (o *options) makesPrompts() bool {
	if o.inputFile == "" {
		return true
	}
	format, err := dataset.ParseFormat(o.datasetType)
	if err == nil && format == "" {
		format, err = dataset.Guess(o.inputFile)
	}
	return err == nil && format.Lengths() // what is wrong is told when the file is read
}

// drawsOutput reports whether the lengths of answers come from elsewhere than
// --osl.
func (o *options) drawsOutput() bool {
	return o.inputFile != "" || o.sequenceDistribution != "" || len(o.classes) > 0 || !strings.HasSuffix(o.oslDistribution, "normal")
}

// calibrate learns tokens a word, and the length of the chat template, from the
// server's own counts; 0: it did not tell. Prompts are then of an estimated
// length, and the report says how far off they are. With a counter only the
// template is to be learned.
func (o *options) calibrate(ctx context.Context, w *world, plan *bench.Plan, probe *bench.Probe, m *record.Manifest, counter synthetic.Counter) float64 {
	words, err := synthetic.New(synthetic.Options{
		Seed: o.randomSeed, Salt: o.freshSalt() + " calibration", Lengths: []synthetic.Lengths{{Input: synthetic.Fixed(1)}},
	})
	if err != nil {
		return 0
	}
	body := plan.Body
	var points []target.Measured
	for i, n := range calibrationWords {
		text, _, err := words.Prompt(i, n)
		if err != nil {
			return 0
		}
		ask := workloads.Request{Messages: []workloads.Message{{Role: "user", Content: text}}, OutputTokens: o.probeLength(plan)}
		b, err := openai.Body(plan.Type, ask, body)
		if err != nil {
			return 0
		}
		if counter != nil {
			n = counter.Count(text)
		}
		points = append(points, target.Measured{Words: n, Tokens: probe.Send(ctx, b).Tokens.Input})
	}
	c, err := target.Calibrate(points)
	switch {
	case err != nil && counter != nil:
		fmt.Fprintf(w.Stderr, "tokmark: %v; the length of the chat template is not known\n", err)
		return 0
	case err != nil:
		fmt.Fprintf(w.Stderr, "tokmark: %v; prompt lengths are estimates (--tokenizer makes them exact)\n", err)
		return 0
	case counter != nil:
		c.TokensPerWord = 0 // the points were tokens already
	}
	m.Calibration = &c
	return c.TokensPerWord
}

// probeLength is how long an answer a question before the run asks for: short,
// unless the user's own fields ask for a least length.
func (o *options) probeLength(plan *bench.Plan) int {
	for _, name := range []string{"min_tokens", "min_new_tokens"} {
		if _, ok := plan.Body.Extra[name]; ok && o.osl > 0 {
			return int(math.Round(o.osl))
		}
	}
	return probeOutput
}

// preflightError decides what an unanswered question means: a wrong path, key
// or field ends the run before it begins; of a server that is only busy, or
// broken now and then, the run is to tell.
func preflightError(ctx context.Context, endpoint string, err error, rec *record.Record) error {
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted}
	}
	if rec != nil && (rec.Status == 429 || rec.Status >= 500 || slices.Contains([]record.Outcome{record.StreamError, record.Truncated, record.Reset}, rec.Outcome)) {
		return nil
	}
	e := &exitError{code: exitFailed, err: err}
	switch {
	case rec == nil:
	case rec.Status == 404:
		e.hint = "is --url right, and the model's name? Requests go to " + maskURL(endpoint)
	case rec.Status == 401 || rec.Status == 403:
		e.hint = "give the key by OPENAI_API_KEY or --api-key"
	default:
		e.hint = "--preflight=false measures all the same"
	}
	return e
}

// strictError names the fields that --strict wants accepted.
func strictError(dropped []record.DroppedField) error {
	var list []string
	for _, d := range dropped {
		list = append(list, d.Field+": "+d.Reason)
	}
	return &exitError{
		code: exitUsage, err: fmt.Errorf("--strict: the server refuses %s", strings.Join(list, "; ")),
		hint: "without --strict no request has what is refused, and the run says so",
	}
}
