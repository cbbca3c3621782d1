package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/verify"
)

// verifyOptions say which sides are compared.
type verifyOptions struct {
	a, b       side
	coldWarm   bool
	idleLoaded int
	logProbs   bool
	jsonFile   string
}

func newVerify(w *world) *cobra.Command {
	o, v := &options{}, &verifyOptions{}
	c := &cobra.Command{
		Use:   "verify --a URL [--b URL | --cold-warm | --idle-loaded N]",
		Short: "See whether two servers, or two states of one, give the same answers",
		Long: `Ask the same prompts, with greedy decoding, and compare the answers: A with B, one server with a
cold and a warm prefix cache, idle and loaded, or --a alone with itself. A is asked twice first:
where it differs from itself (the arithmetic of a batch differs from that of one sequence), only
more than that counts: other answers, failures of one side alone, other finish reasons. Where the
answers part, the gap of A's log-probs between the two tokens tells a tie from a fault, if the
server gives log-probs.

Exit codes: 0 the same · 3 differs · 4 cannot tell`,
		Example: `  tokmark verify --a localhost:8000 --b localhost:8001 --request-count 40 --osl 64
  tokmark verify --a localhost:8000 --cold-warm`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			fs := c.Flags()
			o.url = v.a.url
			o.complete(fs, w.Getenv)
			if !fs.Changed("request-count") {
				o.requestCount, o.duration = 32, 0
			}
			if o.osl == 0 {
				o.osl = 64
			}
			o.greedy, o.exportData = true, "raw"
			if err := errors.Join(v.validate(), o.validate(fs), ownServers(fs)); err != nil {
				return usage(err)
			}
			if v.logProbs {
				v.a.askLogProbs(o)
				v.b.askLogProbs(o)
			}
			return runVerify(c.Context(), w, o, v)
		},
	}
	fs := c.Flags()
	groups := o.bind(fs)
	own := group(fs, "Comparison", func(fs *pflag.FlagSet) {
		v.a.bind(fs, "a")
		v.b.bind(fs, "b")
		fs.BoolVar(&v.coldWarm, "cold-warm", false, "compare A with a cold prefix cache and A with a warm one")
		fs.IntVar(&v.idleLoaded, "idle-loaded", 0, "compare A idle and A with so many requests in flight")
		fs.BoolVar(&v.logProbs, "log-probs", true, "ask for log-probs where the endpoint has them and no field of yours is about them")
		fs.StringVar(&v.jsonFile, "json", "", "write the result to a `file` as well")
	})
	showGroups(c, append([]flagGroup{own}, groups...))
	return c
}

func (v *verifyOptions) validate() error {
	ways := 0
	for _, given := range []bool{v.b.url != "", v.coldWarm, v.idleLoaded != 0} {
		if given {
			ways++
		}
	}
	switch {
	case v.a.url == "":
		return errors.New("give --a")
	case ways > 1:
		return errors.New("give one of --b, --cold-warm and --idle-loaded, or none")
	case v.idleLoaded < 0:
		return fmt.Errorf("--idle-loaded %d: it must be at least 1", v.idleLoaded)
	}
	return nil
}

// askLogProbs makes the requests of a side ask for the likeliest two tokens at
// each place, unless they have fields about that.
func (s *side) askLogProbs(o *options) {
	own, err := s.of(o).extra()
	if err != nil || own["logprobs"] != nil || own["top_logprobs"] != nil {
		return // an error is told when the fields are used
	}
	switch openai.EndpointType(o.endpointType) {
	case openai.Chat:
		s.inputs = append(s.inputs, `{"logprobs":true,"top_logprobs":2}`)
	case openai.Completions:
		s.inputs = append(s.inputs, `{"logprobs":2}`)
	}
}

// pass is one time that all prompts are asked.
type pass struct {
	name        string
	side        int    // 0: A, 1: B
	cacheSalt   string // keeps prefixes of passes apart, where the dialect can
	concurrency int
}

// passes are the three times that the prompts are asked, and which of them are
// compared: as A with itself, and as A with B. A cache can be cold twice only
// where the dialect keeps prefixes apart; elsewhere the null is a warm one.
func (v *verifyOptions) passes(o *options, apart bool) (list [3]pass, null, other [2]int) {
	at := max(o.concurrency, 1)
	switch {
	case v.coldWarm && apart:
		return [3]pass{{"cold-1", 0, "1", at}, {"cold-2", 0, "2", at}, {"warm", 0, "2", at}}, [2]int{0, 1}, [2]int{0, 2}
	case v.coldWarm: // the same prompts again find the cache warm
		return [3]pass{{"cold", 0, "", at}, {"warm-1", 0, "", at}, {"warm-2", 0, "", at}}, [2]int{1, 2}, [2]int{0, 1}
	case v.idleLoaded > 0:
		return [3]pass{{"idle-1", 0, "1", at}, {"idle-2", 0, "2", at}, {"loaded", 0, "3", v.idleLoaded}}, [2]int{0, 1}, [2]int{0, 2}
	case v.b.url == "":
		return [3]pass{{"a-1", 0, "1", at}, {"a-2", 0, "2", at}, {"a-3", 0, "3", at}}, [2]int{0, 1}, [2]int{0, 2}
	default:
		return [3]pass{{"a-1", 0, "1", at}, {"a-2", 0, "2", at}, {"b", 1, "1", at}}, [2]int{0, 1}, [2]int{0, 2}
	}
}

func runVerify(ctx context.Context, w *world, o *options, v *verifyOptions) error {
	o.serverMetrics, o.selftest, o.ui = false, false, "none"
	urls := []*side{&v.a}
	if v.b.url != "" {
		urls = append(urls, &v.b)
	}
	sides := make([]*prepared, len(urls))
	bases := make([]record.Manifest, len(urls))
	for i, s := range urls {
		bases[i] = *newManifest(w, s.of(o))
		one := s.of(o)
		if i > 0 && one.tokenizer == "" {
			// The prompts of both sides are those that fit A.
			one.tokenizer = "none"
		}
		var err error
		if sides[i], err = prepare(ctx, w, one, &bases[i]); err != nil {
			return err
		}
		if i > 0 {
			sides[i].known.count = sides[0].known.count
		}
	}
	parent := record.Dir(o.artifactDir)
	if parent == "" {
		parent = freshDir("verify")
	}
	salt := o.freshSalt()
	list, null, other := v.passes(o, sides[0].known.dialect.CacheSalt != "")
	var answers [3][]verify.Answer
	for i, p := range list {
		fmt.Fprintf(w.Stderr, "pass %s\n", p.name)
		side := *sides[p.side]
		one := *side.o
		one.salt, one.artifactDir = salt, parent.Path(p.name)
		one.concurrency, one.concurrencyGiven = p.concurrency, true
		if p.cacheSalt != "" {
			one.cacheSalt = salt + p.cacheSalt
		}
		side.o = &one
		m := bases[p.side]
		dir, err := side.execute(ctx, w, &m)
		if err != nil {
			return err
		}
		if m.Outcome != record.RunCompleted {
			return &exitError{code: exitInterrupted}
		}
		answers[i] = make([]verify.Answer, m.Sent)
		for r, err := range dir.Records() {
			if err != nil {
				return &exitError{code: exitFailed, err: err}
			}
			if r.Phase == record.PhaseMeasure && r.Turn == 0 && r.ID < m.Sent {
				answers[i][r.ID] = verify.AnswerOf(r)
			}
		}
	}
	var count func(string) int
	if c := sides[0].known.count.Counter; c != nil && o.tokenizer != "server" {
		count = c.Count
	}
	result := verify.Judge(verify.Compare(answers[null[0]], answers[null[1]], count), verify.Compare(answers[other[0]], answers[other[1]], count))
	result.A = maskURL(sides[0].endpoint.String()) + ", " + sides[0].plan.Body.Model + ", " + list[other[0]].name
	last := sides[list[other[1]].side]
	result.B = maskURL(last.endpoint.String()) + ", " + last.plan.Body.Model + ", " + list[other[1]].name
	if err := result.WriteText(w.Stdout); err != nil {
		return err
	}
	if err := writeJSONFile(v.jsonFile, result.WriteJSON); err != nil {
		return err
	}
	switch result.Verdict {
	case verify.Same:
		return nil
	case verify.Differs:
		return &exitError{code: exitGate}
	default:
		return &exitError{code: exitInconclusive}
	}
}
