package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/workloads"
)

func newProbe(w *world) *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "probe",
		Short: "Say what a server is: dialect, versions, conditions, one timed request",
		Long: `Ask a server what it is, with a handful of GETs and two short requests (the second finds the
connection open). Nothing is measured that deserves the name; it shows what "run" would find.`,
		Example: `  tokmark probe -u localhost:8000`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.complete(c.Flags(), w.Getenv)
			if err := o.validate(c.Flags()); err != nil {
				return usage(err)
			}
			return probe(c.Context(), w, o)
		},
	}
	showGroups(c, o.bind(c.Flags())[:1])
	return c
}

func probe(ctx context.Context, w *world, o *options) error {
	if o.simulate {
		stop, err := o.startSimulator()
		if err != nil {
			return err
		}
		defer stop()
	}
	m := &record.Manifest{Origin: time.Now()}
	endpoint, header, err := o.address(ctx)
	if err != nil {
		return err
	}
	plan, err := o.plan(endpoint, header, m)
	if err != nil {
		return usage(err)
	}
	o.tokenizer = "none" // there is nothing to be counted
	// What the dialect can do is asked for, so that it is known to be accepted.
	o.osl, o.cacheSalt = probeOutput, "tokmark-"+o.freshSalt()
	known, err := o.settle(ctx, w, &plan, m)
	if err != nil {
		return err
	}
	var out strings.Builder
	row := func(name, format string, a ...any) { fmt.Fprintf(&out, "%-12s %s\n", name, fmt.Sprintf(format, a...)) }
	row("server", "%s", maskURL(endpoint.String()))
	row("models", "%s", strings.Join(o.models, ", "))
	row("dialect", "%s (%s)", m.Dialect, m.DialectBy)
	printAbilities(row, known, o.wants(o.probeLength(&plan), o.asksExact()).Exact)
	fmt.Fprintln(&out)
	printConditions(&out, m.Conditions)
	if rec := known.answered.Record; rec != nil {
		again, err := secondRequest(ctx, o, &plan, known)
		if err != nil {
			return &exitError{code: exitFailed, err: err}
		}
		fmt.Fprintln(&out)
		printTimes(&out, rec, again)
	}
	_, err = io.WriteString(w.Stdout, out.String())
	return err
}

// secondRequest asks once more over an open connection.
func secondRequest(ctx context.Context, o *options, plan *bench.Plan, known *settled) (*record.Record, error) {
	p, err := bench.NewProbe(*plan)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	ask := workloads.Request{Messages: []workloads.Message{{Role: "user", Content: "Say hello again."}}, OutputTokens: 2 * probeOutput}
	if ask.Extra, err = known.dialect.Fields(o.wants(ask.OutputTokens, o.asksExact())); err != nil {
		return nil, err
	}
	body, err := openai.Body(plan.Type, known.answered.Without(ask), plan.Body)
	if err != nil {
		return nil, err
	}
	p.Send(ctx, body) // opens the connection
	return p.Send(ctx, body), nil
}

// printAbilities says what the dialect can do for a measurement, without what
// the server refused; exact is the length of the answer that was asked for.
func printAbilities(row func(string, string, ...any), known *settled, exact int) {
	d, rec := known.dialect.Without(known.answered.Dropped), known.answered.Record
	say := func(name, yes, no string, can bool) {
		if can {
			row(name, "%s", yes)
		} else {
			row(name, "%s", no)
		}
	}
	tried := rec != nil && rec.Outcome == record.OK
	say("length", "answers of exactly N tokens can be asked for", "the length of an answer can be limited, not forced", d.CanExact())
	if tried && d.CanExact() && exact > 0 {
		if got, ok := rec.OSL(); ok && got != int64(exact) {
			row("", "but the answer has %d, where %d were asked for", got, exact)
		}
	}
	say("cache", "the prefix cache can be emptied between runs (--cache-reset)", "the prefix cache cannot be emptied by a request", d.Reset.Path != "")
	say("salt", "prefixes can be kept apart in the cache ("+d.CacheSalt+")", "no field keeps prefixes apart in the cache", d.CacheSalt != "")
	say("metrics", "read during a run", "not read: the dialect has none, or they are not switched on", known.metrics != nil)
	switch {
	case tried && rec.ServerTimings != nil:
		row("timings", "told per request (%s)", rec.ServerTimings.Source)
	case d.TellsTimings():
		row("timings", "%s, where that is switched on", d.Timings)
	case d.Timings != "":
		row("timings", "not told in answers, and not read elsewhere (%s)", d.Timings)
	default:
		row("timings", "not told per request")
	}
	if !tried {
		row("not tried", "what the server accepts: this is what its dialect has")
	}
	for _, f := range known.answered.Dropped {
		row("refused", "%s: %s", f.Field, f.Reason)
	}
}

func printConditions(w io.Writer, list []record.Condition) {
	fmt.Fprintln(w, "CONDITIONS")
	var unknown []string
	for _, c := range list {
		if c.Source == "unknown" {
			unknown = append(unknown, c.Name)
			continue
		}
		from := c.Source
		if c.From != "" {
			from += ", " + c.From
		}
		fmt.Fprintf(w, "  %-22s %-32s %s\n", c.Name, c.Value, from)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(w, "  not found out: %s\n  (declare them in a run: --condition name=value)\n", strings.Join(unknown, ", "))
	}
}

// printTimes shows the moments of two requests, from the start of each.
func printTimes(w io.Writer, recs ...*record.Record) {
	fmt.Fprintf(w, "%-22s %16s %16s\n", "TWO REQUESTS (ms)", "new connection", "open connection")
	line := func(name string, of func(*record.Record) (time.Duration, bool)) {
		fmt.Fprintf(w, "  %-20s", name)
		for _, r := range recs {
			text := "-"
			if d, ok := of(r); ok {
				text = fmt.Sprintf("%.3f", float64(d)/float64(time.Millisecond))
			}
			fmt.Fprintf(w, " %16s", text)
		}
		fmt.Fprintln(w)
	}
	since := func(t func(*record.Record) record.Time) func(*record.Record) (time.Duration, bool) {
		return func(r *record.Record) (time.Duration, bool) { return t(r).Sub(r.Start), t(r).IsSet() }
	}
	span := func(d func(*record.Record) time.Duration) func(*record.Record) (time.Duration, bool) {
		return func(r *record.Record) (time.Duration, bool) { return d(r), d(r) > 0 }
	}
	line("DNS", span(func(r *record.Record) time.Duration { return r.Conn.DNS }))
	line("connect", span(func(r *record.Record) time.Duration { return r.Conn.Connect }))
	line("TLS", span(func(r *record.Record) time.Duration { return r.Conn.TLS }))
	line("request written", since(func(r *record.Record) record.Time { return r.Written }))
	line("first byte", since(func(r *record.Record) record.Time { return r.FirstByte }))
	line("first event", since(func(r *record.Record) record.Time { return r.FirstEvent }))
	line("first token", (*record.Record).TTFT)
	line("last token", (*record.Record).RequestLatency)
	line("end", since(func(r *record.Record) record.Time { return r.End }))
	for _, r := range recs {
		if r.Outcome != record.OK && r.Failure != nil {
			fmt.Fprintf(w, "  %s: %s\n", r.Outcome, r.Failure.Message)
		}
	}
	tokens := func(r *record.Record) string {
		osl, ok := r.OSL()
		if !ok {
			return "no token counts"
		}
		return fmt.Sprintf("%d in, %d out (%s), %d events", r.Tokens.Input, osl, r.Tokens.Source, len(r.Chunks))
	}
	fmt.Fprintf(w, "  %-20s %s\n", "tokens", tokens(recs[len(recs)-1]))
}
