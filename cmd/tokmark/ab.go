package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/compare"
	"github.com/tokmark/tokmark/workloads"
)

// side is what one of two servers, or two ways to ask one server, has of its
// own.
type side struct {
	url, model string
	inputs     []string
	headers    []string
}

func (s *side) bind(fs *pflag.FlagSet, name string) {
	fs.StringVar(&s.url, name, "", "server "+name+" (may be the same as the other)")
	fs.StringVar(&s.model, name+"-model", "", "model of "+name)
	fs.StringArrayVar(&s.inputs, name+"-inputs", nil, "further body fields of "+name+", `name:value` as --extra-inputs")
	fs.StringArrayVar(&s.headers, name+"-header", nil, "further header of "+name+", `name:value`")
}

// of returns the options of the side.
func (s *side) of(o *options) *options {
	one := *o
	one.url = s.url
	if s.model != "" {
		one.models = []string{s.model}
	}
	one.extraInputs = append(append([]string{}, o.extraInputs...), s.inputs...)
	one.headers = append(append([]string{}, o.headers...), s.headers...)
	return &one
}

// abOptions bound an interleaved comparison.
type abOptions struct {
	a, b     side
	vary     []string
	allow    []string
	margin   string
	level    string
	pairs    int
	null     int
	budget   time.Duration
	jsonFile string
	groups   []flagGroup // of the options that both sides have
}

// config is the effective configuration of a side.
func (ab *abOptions) config(one *options) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for _, g := range ab.groups {
		maps.Copy(out, effective(g.flags, one))
	}
	inputs, err := json.Marshal(one.extraInputs)
	models, err2 := json.Marshal(append([]string{}, one.models...))
	out["extra-inputs"], out["model"] = inputs, models
	return out, errors.Join(err, err2)
}

func newAB(w *world) *cobra.Command {
	o, ab := &options{}, &abOptions{}
	c := &cobra.Command{
		Use:   "ab --a URL --b URL",
		Short: "Compare two servers, interleaved",
		Long: `Measure two servers in short blocks that take turns, in random order, never both at once, with
the same prompts under fresh salts; first A against itself, to see the noise. What changes over
time hits both sides of a pair, so it does not pass for a difference. The comparison ends as soon
as every figure that decides lies within the margin or beyond it, or the budget is used up.

--a and --b may be the same server, with other models, body fields or headers. Other differences
in what a comparison depends on are refused, as by compare; a block whose report is invalid, since
the client was the limit, say, is left out with its pair and measured again.

Exit codes: 0 B is the same or better · 3 B is worse, or fails more often · 4 cannot tell, or
what is gained is in doubt: more requests fail, or answers are shorter ·
5 not valid: the sides must not be compared, or too few pairs are valid`,
		Example: `  tokmark ab --a localhost:8000 --b localhost:8001 --concurrency 8 --osl 64
  tokmark ab --a localhost:8000 --b localhost:8000 --b-inputs min_p:0.1 --osl 64`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			fs := c.Flags()
			o.url = ab.a.url
			o.complete(fs, w.Getenv)
			if !fs.Changed("request-count") && o.duration == 0 {
				o.requestCount = max(16, 4*int64(o.concurrency))
			}
			if err := errors.Join(o.validate(fs), ab.validate(o), ownServers(fs)); err != nil {
				return usage(err)
			}
			return runAB(c.Context(), w, o, ab)
		},
	}
	fs := c.Flags()
	ab.groups = o.bind(fs)
	own := group(fs, "Comparison", func(fs *pflag.FlagSet) {
		ab.a.bind(fs, "a")
		ab.b.bind(fs, "b")
		bindConditions(fs, &ab.vary, &ab.allow)
		fs.StringVar(&ab.margin, "margin", "5%", "change that is of no account")
		fs.StringVar(&ab.level, "level", "95%", "confidence that no verdict is wrong")
		fs.IntVar(&ab.pairs, "max-pairs", 24, "most pairs of blocks")
		fs.IntVar(&ab.null, "null-pairs", 3, "pairs of A with itself, before")
		fs.DurationVar(&ab.budget, "max-time", 15*time.Minute, "longest time for all of it")
		fs.StringVar(&ab.jsonFile, "json", "", "write the result to a `file` as well")
	})
	showGroups(c, append([]flagGroup{own}, ab.groups...))
	return c
}

// ownServers refuses the options that name the server of other commands.
func ownServers(fs *pflag.FlagSet) error {
	var errs []error
	for _, name := range []string{"url", "simulate"} {
		if fs.Changed(name) {
			errs = append(errs, fmt.Errorf("--a and --%s exclude each other: --a and --b name the servers", name))
		}
	}
	return errors.Join(errs...)
}

func (ab *abOptions) validate(o *options) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if ab.a.url == "" || ab.b.url == "" {
		bad("give both --a and --b")
	}
	if ab.pairs < leastLook || ab.null < 0 {
		bad("--max-pairs %d, --null-pairs %d: at least %d pairs are needed", ab.pairs, ab.null, leastLook)
	}
	if _, err := ab.options(); err != nil {
		errs = append(errs, err)
	}
	if o.inputFile == "" && o.cache != "" && o.cache != record.CacheCold {
		bad("--cache %s: blocks of a comparison have fresh prompts", o.cache)
	}
	if len(o.concurrencies) > 1 || len(o.rates) > 1 || o.repeat > 1 {
		bad("ab compares at one load")
	}
	return errors.Join(errs...)
}

func (ab *abOptions) options() (compare.PairOptions, error) {
	opt := compare.PairOptions{Looks: len(looks(ab.pairs))}
	return opt, errors.Join(setShare(&opt.Margin, "margin", ab.margin), setShare(&opt.Level, "level", ab.level))
}

// conditions say which conditions may differ: what the options of the sides name
// is meant to.
func (ab *abOptions) conditions() compare.Options {
	opt := compare.Options{Vary: ab.vary, Allow: ab.allow}
	if ab.a.model != "" || ab.b.model != "" {
		opt.Vary = append(opt.Vary, "model", "model_revision", "weight_version", "parameters", "model_bytes", "precision", "quantization", "tokenizer", "chat_template")
	}
	if len(ab.a.inputs)+len(ab.b.inputs) > 0 {
		opt.Vary = append(opt.Vary, "sampling", "dropped_fields")
	}
	return opt
}

// leastLook is the number of pairs at which the data are first looked at.
const leastLook = 6

// looks are the numbers of pairs after which the data are looked at: few, since
// each look costs confidence.
func looks(most int) []int {
	var out []int
	for n := leastLook; n < most; n += (n + 1) / 2 {
		out = append(out, n)
	}
	return append(out, most)
}

// interleave measures pairs of blocks until the comparison is decided, the
// pairs are used up, or over says that the time is. block measures one block of
// a side (0 or 1); n numbers the blocks. The order within a pair is random. A
// pair with an invalid block does not count.
func interleave(ab *abOptions, opt compare.PairOptions, seed uint64, block func(side, n int) (compare.Block, error), over func() bool) (*compare.Paired, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var null [][2]compare.Block
	var a, b []compare.Block
	var leftOut []string
	n := 0
	measure := func(sides ...int) (pair [2]compare.Block, valid bool, err error) {
		defer func() { n += 2 }()
		for i, side := range sides {
			var bad *blockError
			switch pair[i], err = block(side, n+i); {
			case errors.As(err, &bad):
				leftOut = append(leftOut, bad.Error())
				return pair, false, nil
			case err != nil:
				return pair, false, err
			}
		}
		return pair, true, nil
	}
	for range ab.null {
		pair, valid, err := measure(0, 0)
		if err != nil {
			return nil, err
		}
		if valid {
			null = append(null, pair)
		}
	}
	// What is left out is measured again, as long as that promises anything.
	end := func() bool { return over() || len(leftOut) >= len(a)+leastLook }
	result := compare.Pair(a, b, null, opt)
	for _, at := range looks(ab.pairs) {
		for len(a) < at && !end() {
			first := rng.IntN(2)
			pair, valid, err := measure(first, 1-first)
			if err != nil {
				return nil, err
			}
			if valid {
				a, b = append(a, pair[first]), append(b, pair[1-first])
			}
		}
		result = compare.Pair(a, b, null, opt)
		if result.Decided || end() {
			break
		}
	}
	result.LeaveOut(leftOut)
	return result, nil
}

// blockError tells of a block that says nothing of its server.
type blockError struct{ name, why string }

func (e *blockError) Error() string { return "block " + e.name + ": " + e.why }

// spoilt is why the report calls a run invalid, or "". That all requests failed
// is a result, too.
func spoilt(r *compare.Run) string {
	for _, w := range r.Warnings {
		if w.Effect == report.Invalid && w.Code != report.AllFailed {
			return w.Message
		}
	}
	return ""
}

// errUnlike ends a comparison of sides that must not be compared.
var errUnlike = errors.New("the sides must not be compared")

func runAB(ctx context.Context, w *world, o *options, ab *abOptions) error {
	opt, err := ab.options()
	if err != nil {
		return usage(err)
	}
	o.serverMetrics, o.selftest = false, false // between blocks there is nothing to be read
	var sides [2]*prepared
	var bases [2]record.Manifest
	for i, s := range []*side{&ab.a, &ab.b} {
		one := s.of(o)
		bases[i] = *newManifest(w, one)
		if bases[i].Config, err = ab.config(one); err != nil {
			return &exitError{code: exitFailed, err: err}
		}
		if sides[i], err = prepare(ctx, w, one, &bases[i]); err != nil {
			return err
		}
	}
	// Names that no condition has are found before there is load.
	if _, err := compare.PairConditions(&compare.Run{Manifest: &bases[0]}, &compare.Run{Manifest: &bases[1]}, ab.conditions()); err != nil {
		return usage(err)
	}
	parent := record.Dir(o.artifactDir)
	if parent == "" {
		parent = freshDir("ab")
	}
	if _, err := os.Lstat(string(parent)); err == nil {
		return usage(fmt.Errorf("%s: %w: give another --artifact-dir", parent, record.ErrHoldsRun))
	}
	salt := o.freshSalt()
	began := time.Now()
	var firsts [2]*compare.Run // of each side, to compare what they depend on
	var conditions *compare.Comparison
	var none compare.Block
	block := func(side, n int) (compare.Block, error) {
		name := fmt.Sprintf("%03d-%c", n+1, 'a'+side)
		fmt.Fprintf(w.Stderr, "block %s\n", name)
		p := *sides[side]
		one := *p.o
		// The same sessions for both sides of a pair, under salts of their own.
		one.salt, one.artifactDir, one.ui = salt+"-"+name, parent.Path(name), "none"
		one.first = n / 2 * int(max(one.requestCount, one.sessions, 1))
		p.o = &one
		m := bases[side]
		dir, err := p.execute(ctx, w, &m)
		if err != nil {
			return none, err
		}
		if m.Outcome != record.RunCompleted {
			return none, &exitError{code: exitInterrupted}
		}
		run, err := compare.Load(string(dir))
		if err != nil {
			return none, &exitError{code: exitFailed, err: err}
		}
		if why := spoilt(run); why != "" {
			return none, &blockError{name, why}
		}
		if firsts[side] == nil {
			if firsts[side] = run; firsts[1-side] != nil {
				conditions, err = compare.PairConditions(firsts[0], firsts[1], ab.conditions())
				if err != nil {
					return none, usage(err)
				}
				if len(conditions.Blocked) > 0 {
					return none, errUnlike
				}
			}
		}
		var records []*record.Record
		for r, err := range dir.Records() {
			if err != nil {
				return none, &exitError{code: exitFailed, err: err}
			}
			records = append(records, r)
		}
		return compare.BlockOf(records), nil
	}
	result, err := interleave(ab, opt, o.randomSeed, block, func() bool { return time.Since(began) > ab.budget })
	if errors.Is(err, errUnlike) {
		result, err = compare.Pair(nil, nil, nil, opt), nil
	}
	if err != nil {
		return err
	}
	result.Under(conditions)
	for i, name := range []*string{&result.A, &result.B} {
		*name = maskURL(sides[i].endpoint.String()) + ", " + sides[i].plan.Body.Model
	}
	if err := result.WriteText(w.Stdout); err != nil {
		return err
	}
	if err := writeJSONFile(ab.jsonFile, result.WriteJSON); err != nil {
		return err
	}
	if err := writePairedPage(w, parent, result); err != nil {
		return err
	}
	return abError(result)
}

// writeJSONFile writes a result to the file of --json, if one was named.
func writeJSONFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return usagef("--json: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return &exitError{code: exitFailed, err: err}
	}
	return nil
}

// abError turns the result into an exit code.
func abError(p *compare.Paired) error {
	worse := false
	for _, f := range p.Figures {
		worse = worse || f.Decides && f.Verdict == compare.Worse
	}
	switch {
	case len(p.Blocked) > 0 || p.TooFew():
		return &exitError{code: exitInvalid}
	case worse:
		return &exitError{code: exitGate}
	case p.Pairs == 0 || !p.Answered():
		return &exitError{code: exitFailed}
	case !p.Decided || len(p.Doubts) > 0:
		return &exitError{code: exitInconclusive}
	}
	return nil
}

// shifted begins a source at another session.
type shifted struct {
	workloads.Source
	by int
}

func (s shifted) At(i int) (workloads.Session, error) {
	if i < 0 { // warmup has its own
		return s.Source.At(i)
	}
	session, err := s.Source.At(i + s.by)
	session.ID = strconv.Itoa(i + s.by)
	return session, err
}
