package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/record"
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
	margin   string
	level    string
	pairs    int
	null     int
	budget   time.Duration
	jsonFile string
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

--a and --b may be the same server, with other models, body fields or headers.

Exit codes: 0 B is the same or better · 3 B is worse · 4 cannot tell`,
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
	groups := o.bind(fs)
	own := group(fs, "Comparison", func(fs *pflag.FlagSet) {
		ab.a.bind(fs, "a")
		ab.b.bind(fs, "b")
		fs.StringVar(&ab.margin, "margin", "5%", "change that is of no account")
		fs.StringVar(&ab.level, "level", "95%", "confidence that no verdict is wrong")
		fs.IntVar(&ab.pairs, "max-pairs", 24, "most pairs of blocks")
		fs.IntVar(&ab.null, "null-pairs", 3, "pairs of A with itself, before")
		fs.DurationVar(&ab.budget, "max-time", 15*time.Minute, "longest time for all of it")
		fs.StringVar(&ab.jsonFile, "json", "", "write the result to a `file` as well")
	})
	showGroups(c, append([]flagGroup{own}, groups...))
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
// a side (0 or 1); n numbers the blocks. The order within a pair is random.
func interleave(ab *abOptions, opt compare.PairOptions, seed uint64, block func(side, n int) (compare.Block, error), over func() bool) (*compare.Paired, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var null [][2]compare.Block
	var a, b []compare.Block
	n := 0
	measure := func(side int) (compare.Block, error) {
		n++
		return block(side, n-1)
	}
	for range ab.null {
		x, err := measure(0)
		if err != nil {
			return nil, err
		}
		y, err := measure(0)
		if err != nil {
			return nil, err
		}
		null = append(null, [2]compare.Block{x, y})
	}
	result := compare.Pair(a, b, null, opt)
	for _, at := range looks(ab.pairs) {
		for len(a) < at && !over() {
			first := rng.IntN(2)
			var pair [2]compare.Block
			for _, side := range []int{first, 1 - first} {
				var err error
				if pair[side], err = measure(side); err != nil {
					return nil, err
				}
			}
			a, b = append(a, pair[0]), append(b, pair[1])
		}
		result = compare.Pair(a, b, null, opt)
		if result.Decided || over() {
			break
		}
	}
	return result, nil
}

func runAB(ctx context.Context, w *world, o *options, ab *abOptions) error {
	opt, err := ab.options()
	if err != nil {
		return usage(err)
	}
	o.serverMetrics, o.selftest = false, false // between blocks there is nothing to be read
	var sides [2]*prepared
	var bases [2]record.Manifest
	for i, s := range []*side{&ab.a, &ab.b} {
		bases[i] = *newManifest(w, s.of(o))
		if sides[i], err = prepare(ctx, w, s.of(o), &bases[i]); err != nil {
			return err
		}
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
			return nil, err
		}
		if m.Outcome != record.RunCompleted {
			return nil, &exitError{code: exitInterrupted}
		}
		var records []*record.Record
		for r, err := range dir.Records() {
			if err != nil {
				return nil, &exitError{code: exitFailed, err: err}
			}
			records = append(records, r)
		}
		return compare.BlockOf(records), nil
	}
	result, err := interleave(ab, opt, o.randomSeed, block, func() bool { return time.Since(began) > ab.budget })
	if err != nil {
		return err
	}
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
	case p.Pairs == 0 || len(p.Figures) == 0:
		return &exitError{code: exitFailed}
	case worse:
		return &exitError{code: exitGate}
	case !p.Decided:
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
