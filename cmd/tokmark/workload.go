package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/collect"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/arrival"
	"github.com/tokmark/tokmark/workloads/dataset"
	"github.com/tokmark/tokmark/workloads/synthetic"
	"github.com/tokmark/tokmark/workloads/tokens"
)

// workloadOptions say what is asked.
type workloadOptions struct {
	isl, islStddev, osl, oslStddev float64
	islDistribution                string
	oslDistribution                string
	sequenceDistribution           string
	promptAs                       string
	tokenizer                      string
	entries                        int
	systemTokens, contextTokens    int
	prefixes, prefixTokens         int
	turnsMean, turnsStddev         float64
	delayMean, delayStddev         float64
	delayRatio                     float64

	cache                     string
	hitRate                   float64
	cacheBlock, cachePrefixes int

	classes []string

	inputFile, datasetType string
	blockTokens            int
	skipBadLines           bool
	wholeConversation      bool

	randomSeed uint64
	salt       string
	first      int // session that the measurement begins with
}

func (o *workloadOptions) bindWorkload(fs *pflag.FlagSet) {
	fs.Float64Var(&o.isl, "isl", 550, "synthetic prompts: mean input tokens")
	fs.Float64Var(&o.islStddev, "isl-stddev", 0, "synthetic prompts: standard deviation of the input tokens")
	fs.StringVar(&o.islDistribution, "isl-distribution", "normal", "of the input tokens: normal, lognormal, uniform:MIN-MAX, histogram:FILE")
	fs.Float64Var(&o.osl, "osl", 0, "mean output tokens to ask for (default: no limit is sent)")
	fs.Float64Var(&o.oslStddev, "osl-stddev", 0, "standard deviation of the output tokens")
	fs.StringVar(&o.oslDistribution, "osl-distribution", "normal", "of the output tokens, as --isl-distribution")
	fs.StringVar(&o.sequenceDistribution, "sequence-distribution", "", "`mixture` of input and output lengths, as \"256,128:60;512|50,256|20:40\" (percent, 100 in all; |stddev); in place of --isl and --osl")
	fs.StringVar(&o.promptAs, "prompt-as", "text", "text, or token-ids (completions): of exact length without a tokenizer")
	fs.StringVar(&o.tokenizer, "tokenizer", "", "what counts prompts, and answers that tell no count: `PATH` of a tokenizer.json, cl100k_base, o200k_base, server (its /tokenize), or none (default: calibrate by the server's own counts)")
	fs.IntVar(&o.entries, "num-dataset-entries", 0, "number of different prompts, which then start over (default: no end of new ones)")
	fs.IntVar(&o.systemTokens, "shared-system-prompt-length", 0, "tokens of a system prompt that all requests share")
	fs.IntVar(&o.contextTokens, "user-context-prompt-length", 0, "tokens of a text of its own in front of each session")
	fs.IntVar(&o.prefixes, "num-prefix-prompts", 0, "size of a pool of prompts, one of which is put in front of each session")
	fs.IntVar(&o.prefixTokens, "prefix-prompt-length", 0, "tokens of each of them")
	fs.Float64Var(&o.turnsMean, "session-turns-mean", 1, "turns of a session")
	fs.Float64Var(&o.turnsStddev, "session-turns-stddev", 0, "standard deviation of the turns")
	fs.Float64Var(&o.delayMean, "session-turn-delay-mean", 0, "think time before each further turn in `ms`")
	fs.Float64Var(&o.delayStddev, "session-turn-delay-stddev", 0, "its standard deviation in `ms`")
	fs.Float64Var(&o.delayRatio, "session-delay-ratio", 1, "factor on all think times")

	fs.StringVar(&o.cache, "cache", "", "what the prompts do to a prefix cache: cold (each is new from its first token; the default of synthetic prompts), warm (each is sent once before), as-is (the default of files)")
	fs.Float64Var(&o.hitRate, "cache-hit-rate", 0, "build prompts so that this share of the input tokens should hit the cache, from shared prefixes")
	fs.IntVar(&o.cacheBlock, "cache-block", 16, "tokens of a block of the server's cache")
	fs.IntVar(&o.cachePrefixes, "cache-prefixes", 4, "shared prefixes that --cache-hit-rate takes from")

	fs.StringArrayVar(&o.classes, "class", nil, "one class of a mixed workload as a `JSON` object: name, weight, isl, isl-stddev, osl, osl-stddev, goodput; in place of a weight: request-rate, arrival-pattern, arrival-smoothness; in a file: classes")

	fs.StringVar(&o.inputFile, "input-file", "", "prompts from a `file` instead of synthetic ones")
	fs.StringVar(&o.datasetType, "custom-dataset-type", "", "format of the input file (default: by its content): single_turn, multi_turn, random_pool, mooncake_trace, burst_gpt_trace, azure_trace, jsonl, openai_batch, sharegpt, raw_payload")
	fs.IntVar(&o.blockTokens, "isl-block-size", 512, "tokens behind a hash id of a trace")
	fs.BoolVar(&o.skipBadLines, "skip-bad-lines", false, "leave unusable lines of the input file out instead of stopping")
	fs.BoolVar(&o.wholeConversation, "whole-conversation", false, "take all turns of a ShareGPT record, not only the first")
	fs.Uint64Var(&o.randomSeed, "random-seed", 0, "seed of prompts, lengths and arrivals")
	fs.StringVar(&o.salt, "salt", "", "makes the prompts of this run differ from all others (default: a fresh one); give one to repeat a run")
}

func (o *workloadOptions) validateWorkload(fs *pflag.FlagSet) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if !(o.isl >= 1) {
		bad("--isl %v: a prompt has at least 1 token", o.isl)
	}
	for _, z := range []struct {
		name  string
		value float64
		usual string
	}{
		{"num-dataset-entries", float64(o.entries), "for no end of new prompts"},
		{"session-turns-mean", o.turnsMean, "for sessions of one turn"},
	} {
		if fs.Changed(z.name) && z.value == 0 {
			bad("--%s 0: it must be above 0; leave it out %s", z.name, z.usual)
		}
	}
	exclude := func(name, why string, others ...string) {
		for _, other := range others {
			if fs.Changed(name) && fs.Changed(other) {
				bad("--%s and --%s exclude each other%s", name, other, why)
			}
		}
	}
	exclude("sequence-distribution", "", "isl", "isl-stddev", "isl-distribution", "osl", "osl-stddev", "osl-distribution")
	exclude("class", ": a class has its own lengths", "isl", "isl-stddev", "isl-distribution", "osl-stddev", "osl-distribution", "sequence-distribution")
	for _, l := range []struct{ name, distribution string }{{"isl", o.islDistribution}, {"osl", o.oslDistribution}} {
		if !strings.HasSuffix(l.distribution, "normal") { // it has its own mean and deviation
			exclude(l.name+"-distribution", "", l.name, l.name+"-stddev")
		}
	}
	if o.oslStddev > 0 && o.osl == 0 {
		bad("--osl-stddev needs --osl")
	}
	if (o.prefixes > 0) != (o.prefixTokens > 0) {
		bad("--num-prefix-prompts and --prefix-prompt-length need each other, both above 0")
	}
	for _, name := range []string{"cache-block", "cache-prefixes"} {
		if fs.Changed(name) && o.hitRate == 0 {
			bad("--%s needs --cache-hit-rate", name)
		}
	}
	errs = append(errs, notNegative(map[string]float64{
		"isl": max(o.isl, 0), "isl-stddev": o.islStddev, "osl": o.osl, "osl-stddev": o.oslStddev, "num-dataset-entries": float64(o.entries),
		"session-turns-mean": o.turnsMean, "session-turns-stddev": o.turnsStddev, "session-delay-ratio": o.delayRatio,
		"session-turn-delay-mean": o.delayMean, "session-turn-delay-stddev": o.delayStddev,
	}))
	if !(o.hitRate >= 0 && o.hitRate < 1) {
		bad("--cache-hit-rate %v: it must lie between 0 and 1", o.hitRate)
	}
	if !slices.Contains([]string{"", record.CacheCold, record.CacheWarm, record.CacheAsIs}, o.cache) {
		bad("--cache %s: use cold, warm or as-is", o.cache)
	}
	if o.cache == record.CacheWarm && fs.Changed("warmup-request-count") {
		bad("--cache warm and --warmup-request-count exclude each other: every prompt is sent once before")
	}
	if o.hitRate > 0 && o.cache != "" {
		bad("--cache-hit-rate and --cache exclude each other")
	}
	if o.promptAs != "text" && o.promptAs != "token-ids" {
		bad("--prompt-as %s: use text or token-ids", o.promptAs)
	}
	if o.promptAs == "token-ids" {
		for _, name := range []string{"session-turns-mean", "cache-hit-rate", "num-prefix-prompts", "prefix-prompt-length", "shared-system-prompt-length", "user-context-prompt-length", "tokenizer"} {
			if fs.Changed(name) {
				bad("--%s is for prompts of text: --prompt-as token-ids sends ids that are drawn at random", name)
			}
		}
	}
	if o.inputFile != "" {
		for _, name := range []string{
			"isl", "isl-stddev", "isl-distribution", "osl-stddev", "osl-distribution", "sequence-distribution", "class", "prompt-as",
			"session-turns-mean", "session-turns-stddev", "session-turn-delay-mean", "session-turn-delay-stddev", "cache-hit-rate",
			"shared-system-prompt-length", "user-context-prompt-length", "num-prefix-prompts", "prefix-prompt-length",
		} {
			if fs.Changed(name) {
				bad("--%s is for synthetic prompts: the input file has its own", name)
			}
		}
		if o.cache == record.CacheCold {
			bad("--cache cold: the prompts of a file are what they are; use warm or as-is")
		}
	} else {
		for _, name := range slices.Concat([]string{"custom-dataset-type", "isl-block-size", "skip-bad-lines", "whole-conversation"}, scheduleOptions) {
			if fs.Changed(name) {
				bad("--%s needs --input-file", name)
			}
		}
	}
	if o.datasetType != "" {
		if _, err := dataset.ParseFormat(o.datasetType); err != nil {
			bad("--custom-dataset-type: %w", err)
		}
	}
	if _, err := o.lengths(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.classList(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// lengths are the classes of input and output lengths asked for.
func (o *workloadOptions) lengths() ([]synthetic.Lengths, error) {
	if o.sequenceDistribution != "" {
		l, err := synthetic.ParseLengths(o.sequenceDistribution)
		if err != nil {
			return nil, fmt.Errorf("--sequence-distribution: %w", err)
		}
		return l, nil
	}
	in, err := length("isl", o.islDistribution, o.isl, o.islStddev)
	if err != nil {
		return nil, err
	}
	out, err := length("osl", o.oslDistribution, o.osl, o.oslStddev)
	if err != nil {
		return nil, err
	}
	return []synthetic.Lengths{{Input: in, Output: out}}, nil
}

// length is a distribution as the options give it; nil: none.
func length(name, distribution string, mean, stddev float64) (synthetic.Length, error) {
	kind, arg, _ := strings.Cut(distribution, ":")
	switch kind {
	case "normal", "lognormal":
		switch {
		case mean == 0:
			return nil, nil
		case stddev == 0:
			return synthetic.Fixed(int(math.Round(mean))), nil
		case kind == "normal":
			return synthetic.Normal{Mean: mean, Stddev: stddev}, nil
		default:
			return synthetic.LogNormal{Mean: mean, Stddev: stddev}, nil
		}
	case "uniform":
		lo, hi, ok := strings.Cut(arg, "-")
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("--%s-distribution %s: give uniform:MIN-MAX", name, distribution)
		}
		u := synthetic.Uniform{Min: a, Max: b}
		if err := u.Validate(); err != nil {
			return nil, fmt.Errorf("--%s-distribution %s: %w", name, distribution, err)
		}
		return u, nil
	case "histogram":
		f, err := os.Open(arg)
		if err != nil {
			return nil, fmt.Errorf("--%s-distribution: %w", name, err)
		}
		defer f.Close()
		return synthetic.ReadHistogram(f, arg)
	}
	return nil, fmt.Errorf("--%s-distribution %s: use normal, lognormal, uniform:MIN-MAX or histogram:FILE", name, distribution)
}

// class is one entry of --class, or of classes in a scenario file.
type class struct {
	Name      string  `json:"name"`
	Weight    float64 `json:"weight"`
	ISL       float64 `json:"isl"`
	ISLStddev float64 `json:"isl-stddev"`
	OSL       float64 `json:"osl"`
	OSLStddev float64 `json:"osl-stddev"`
	Goodput   string  `json:"goodput"`
	// Arrivals of its own; then all classes have some.
	Rate       float64 `json:"request-rate"`
	Pattern    string  `json:"arrival-pattern"`
	Smoothness float64 `json:"arrival-smoothness"`
}

// arrivals is the class's own load.
func (c class) arrivals() arrival.Plan {
	return arrival.Plan{Pattern: arrival.Pattern(c.Pattern), Rate: arrival.Steady(c.Rate), Smoothness: c.Smoothness}
}

// arrivalsOfClasses are the loads of the classes; nil: they have none of their
// own, or faults, which validate tells.
func (o *workloadOptions) arrivalsOfClasses() []arrival.Plan {
	classes, err := o.classList()
	if err != nil || len(classes) == 0 || classes[0].Rate == 0 {
		return nil
	}
	var out []arrival.Plan
	for _, c := range classes {
		out = append(out, c.arrivals())
	}
	return out
}

func (o *workloadOptions) classList() ([]class, error) {
	var out []class
	for i, s := range o.classes {
		c := class{Weight: math.NaN(), Pattern: string(arrival.Poisson), Smoothness: 1}
		dec := json.NewDecoder(strings.NewReader(s))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&c); err != nil {
			return nil, fmt.Errorf("class %d: %w", i+1, err)
		}
		switch weighted := !math.IsNaN(c.Weight); {
		case c.Rate != 0 && weighted:
			return nil, fmt.Errorf("class %d (%s): weight and request-rate exclude each other", i+1, c.Name)
		case i > 0 && (c.Rate != 0) != (out[0].Rate != 0):
			return nil, fmt.Errorf("class %d (%s): either all classes have a request-rate or none", i+1, c.Name)
		case c.Rate != 0:
			if err := c.arrivals().Validate(); err != nil {
				return nil, fmt.Errorf("class %d (%s): %w", i+1, c.Name, err)
			}
			c.Weight = c.Rate
		case c.Pattern != string(arrival.Poisson) || c.Smoothness != 1:
			return nil, fmt.Errorf("class %d (%s): arrival-pattern and arrival-smoothness need a request-rate", i+1, c.Name)
		case !weighted:
			c.Weight = 1
		}
		if c.Name == "" || !(c.Weight > 0) || !(c.ISL >= 1) || !(c.OSL >= 0) {
			return nil, fmt.Errorf("class %d (%s): it needs a name, a weight above 0 and an isl of 1 or more", i+1, c.Name)
		}
		if slices.ContainsFunc(out, func(o class) bool { return o.Name == c.Name }) {
			return nil, fmt.Errorf("class %d (%s): there is another of this name", i+1, c.Name)
		}
		out = append(out, c)
	}
	return out, nil
}

// work is what a run asks, ready to be sent.
type work struct {
	workloads.Source
	close func() error
	// offsets are the times that came with the requests; nil: none.
	offsets []time.Duration
	// all is how many sessions there are to be sent if nothing else bounds
	// the run; 0: no end.
	all int
}

// counter is what counts our own tokens.
type counter struct {
	synthetic.Counter         // nil: nothing does
	perWord           float64 // tokens a word, where nothing counts
	// check, if not nil, tells after some counting whether it went well.
	check func() error
}

// tokenizer counts the tokens of answers as c does, until ctx is done.
func (c counter) tokenizer(ctx context.Context) collect.Tokenizer {
	switch {
	case c.Counter == nil:
		return collect.Tokenizer{}
	case c.check == nil:
		return collect.Tokenizer{Source: record.SourceTokenizer, Count: func(text string) (int, bool) { return c.Count(text), true }}
	}
	return collect.Tokenizer{Source: record.SourceServer, Count: func(text string) (int, bool) {
		if ctx.Err() != nil || c.check() != nil {
			return 0, false
		}
		n := c.Count(text)
		return n, c.check() == nil
	}}
}

// work makes the requests and describes them in the manifest.
func (o *options) work(m *record.Manifest, known *settled) (*work, error) {
	count := known.count
	m.Seed, m.Salt = o.randomSeed, o.freshSalt()
	made, err := o.synthetic(m, count)
	if err != nil {
		return nil, fmt.Errorf("synthetic prompts: %w", err)
	}
	if count.check != nil {
		if err := count.check(); err != nil {
			return nil, fmt.Errorf("--tokenizer: %w", err)
		}
	}
	w := &work{close: func() error { return nil }}
	if o.inputFile == "" {
		m.WorkloadHash = made.Hash()
		m.Cache = record.Cache{Mode: cmp.Or(o.cache, record.CacheCold)}
		if o.hitRate > 0 {
			m.Cache = record.Cache{Mode: record.CacheHitRate, HitRate: o.hitRate, Block: o.cacheBlock}
		}
		if err := o.prompts(w, made); err != nil {
			return nil, err
		}
	} else {
		if err := o.file(w, m, made, count); err != nil {
			return nil, err
		}
		w.Source = o.numbered(w.Source)
	}
	if w.Source, err = o.withModels(w.Source); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if o.tokenizer == "server" {
		// Its /tokenize is not called beside a measurement.
		n := max(int(o.requestCount), int(o.sessions), w.all)
		if n == 0 {
			return nil, errors.Join(errors.New("--tokenizer server counts the prompts before the run: say how many there are by --request-count"), w.close())
		}
		if w.Source, err = workloads.NewAhead(w.Source, n, int(o.warmup)); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	exact := o.asksExact()
	w.Source = adjusted{Source: w.Source, limit: int(math.Round(o.osl)), delay: o.delayRatio, fields: func(r workloads.Request) (workloads.Request, error) {
		fields, err := known.dialect.Fields(o.wants(r.OutputTokens, exact))
		if err != nil {
			return r, err
		}
		for name, v := range r.Extra {
			fields[name] = v // the request's own win
		}
		r.Extra = fields
		return known.answered.Without(r), nil
	}}
	return w, nil
}

// numbered is the source with the numbers of sessions as this run has them.
func (o *options) numbered(source workloads.Source) workloads.Source {
	if o.first > 0 {
		source = shifted{Source: source, by: o.first}
	}
	if o.entries > 0 {
		source = workloads.Cycle{Source: source, N: o.entries}
	}
	return source
}

// prompts puts synthetic prompts into w: each session of the class whose
// arrival it is, if classes have arrivals of their own.
func (o *options) prompts(w *work, made *synthetic.Generator) error {
	of := func(g *synthetic.Generator) workloads.Source {
		if o.promptAs == "token-ids" {
			return o.numbered(synthetic.TokenIDs{Source: g, Seed: o.randomSeed, Salt: o.salt})
		}
		return o.numbered(g)
	}
	if w.Source = of(made); len(o.classArrivals) == 0 {
		return nil
	}
	arrivals, err := o.arrivals(o.randomSeed)
	if err != nil {
		return err
	}
	parts := make([]workloads.Source, len(o.classArrivals))
	for k := range parts {
		parts[k] = of(made.Only(k))
	}
	s := synthetic.NewSequence(func(yield func(int) bool) {
		for _, class := range arrivals {
			if !yield(class) {
				return
			}
		}
	}, parts...)
	w.Source, w.close = s, s.Close
	return nil
}

// synthetic makes the generator of prompts: of the classes if there are some.
func (o *options) synthetic(m *record.Manifest, count counter) (*synthetic.Generator, error) {
	lengths, err := o.lengths()
	if err != nil {
		return nil, err
	}
	m.Workload = fmt.Sprintf("synthetic prompts, %g input tokens", o.isl)
	if o.islStddev > 0 {
		m.Workload += fmt.Sprintf(" ± %g", o.islStddev)
	}
	switch {
	case o.sequenceDistribution != "":
		m.Workload = "synthetic prompts, lengths " + o.sequenceDistribution
	case !strings.HasSuffix(o.islDistribution, "normal"):
		m.Workload = "synthetic prompts, input tokens " + o.islDistribution
	}
	classes, err := o.classList()
	if err != nil {
		return nil, err
	}
	if len(classes) > 0 {
		lengths = nil
		names := make([]string, 0, len(classes))
		for _, c := range classes {
			in, _ := length("isl", "normal", c.ISL, c.ISLStddev)
			out, _ := length("osl", "normal", c.OSL, c.OSLStddev)
			lengths = append(lengths, synthetic.Lengths{Input: in, Output: out, Weight: c.Weight, Class: c.Name})
			goodput, err := report.ParseGoodput(c.Goodput, o.streaming)
			if err != nil {
				return nil, fmt.Errorf("class %s: goodput: %w", c.Name, err)
			}
			m.Classes = append(m.Classes, record.Class{Name: c.Name, Weight: c.Weight, Goodput: goodput})
			names = append(names, c.Name)
		}
		m.Workload = "synthetic prompts of the classes " + strings.Join(names, ", ")
	}
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	s := synthetic.Options{
		Seed: o.randomSeed, Salt: o.salt, Counter: count.Counter, TokensPerWord: count.perWord, Lengths: lengths,
		Completion:   slices.Contains([]openai.EndpointType{openai.Completions, openai.Embeddings}, openai.EndpointType(o.endpointType)),
		SystemTokens: o.systemTokens, ContextTokens: o.contextTokens, Prefixes: o.prefixes, PrefixTokens: o.prefixTokens,
		TurnsMean: o.turnsMean, TurnsStddev: o.turnsStddev, DelayMean: ms(o.delayMean), DelayStddev: ms(o.delayStddev),
	}
	if o.hitRate > 0 {
		s.HitRate, s.Block, s.HitPrefixes = o.hitRate, o.cacheBlock, o.cachePrefixes
		if m.Calibration != nil {
			// Half of a template stands in front of the prompt, and half behind
			// it, more or less.
			s.Template = max(0, int(math.Round(m.Calibration.Template/2)))
		}
	}
	return synthetic.New(s)
}

// file reads the input file into w.
func (o *options) file(w *work, m *record.Manifest, prompter dataset.Prompter, count counter) error {
	format := dataset.Format("")
	if o.datasetType != "" {
		var err error
		if format, err = dataset.ParseFormat(o.datasetType); err != nil {
			return err
		}
	}
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	d := dataset.Options{
		Format: format, SkipBadLines: o.skipBadLines, Prompter: prompter, BlockTokens: o.blockTokens,
		Trace:   arrival.Trace{Speedup: o.speedup, Start: ms(o.scheduleStart), End: ms(o.scheduleEnd), KeepOrigin: !o.autoOffset},
		Untimed: o.noSchedule || o.scheduled() || o.users > 0, WholeConversation: o.wholeConversation,
		Seed: o.randomSeed, Sessions: int(o.sessions),
	}
	if count.Counter != nil {
		d.Counter = count.Counter
	}
	data, err := dataset.Open(o.inputFile, d)
	if errors.Is(err, dataset.ErrUnknownFormat) {
		return fmt.Errorf("%w: name it by --custom-dataset-type: %s", err, dataset.FormatNames())
	}
	if err != nil {
		return err
	}
	w.Source, w.close = data, data.Close
	if m.WorkloadHash, err = data.Hash(); err != nil {
		return errors.Join(err, data.Close())
	}
	if w.offsets = data.Offsets(); o.needsTimes != "" && w.offsets == nil {
		return errors.Join(fmt.Errorf("--%s: %s has no times", o.needsTimes, o.inputFile), data.Close())
	}
	if w.offsets != nil || data.Format() == dataset.MultiTurn {
		w.all = data.Len()
	}
	if !data.Format().Lengths() {
		m.Salt = "" // the prompts are the file's own
	}
	rep := data.Report()
	m.Cache = record.Cache{Mode: cmp.Or(o.cache, record.CacheAsIs)}
	m.Workload = fmt.Sprintf("%d entries of %s", rep.Usable, filepath.Base(o.inputFile))
	m.Input = &record.Input{File: filepath.Base(o.inputFile), Format: string(data.Format()), Usable: rep.Usable, Reordered: rep.Reordered, Unlisted: rep.SkippedCount() - len(rep.Skipped)}
	for _, s := range rep.Skipped {
		m.Input.Skipped = append(m.Input.Skipped, record.SkippedLine{Line: s.Line, Reason: string(s.Reason), Detail: s.Detail})
	}
	return nil
}

// withModels spreads the requests over the models, if there are several.
func (o *options) withModels(source workloads.Source) (workloads.Source, error) {
	if len(o.models) < 2 {
		return source, nil
	}
	parts := make([]synthetic.Part, len(o.models))
	for i, name := range o.models {
		parts[i] = synthetic.Part{Source: source, Model: name}
		if len(o.modelWeights) > 0 {
			parts[i].Weight = o.modelWeights[i]
		}
	}
	if o.modelSelection == "random" || len(o.modelWeights) > 0 {
		return synthetic.NewMix(o.randomSeed, parts...)
	}
	return synthetic.NewRotation(parts...)
}

// adjusted puts a limit on the output of requests that have none of their own,
// a factor on think times, and in the server's dialect what else they ask for.
type adjusted struct {
	workloads.Source
	limit  int
	delay  float64
	fields func(workloads.Request) (workloads.Request, error)
}

func (a adjusted) At(i int) (workloads.Session, error) {
	s, err := a.Source.At(i)
	if err != nil {
		return s, err
	}
	s.Turns = slices.Clone(s.Turns)
	for k := range s.Turns {
		r := &s.Turns[k]
		if r.OutputTokens == 0 {
			r.OutputTokens = a.limit
		}
		r.Delay = time.Duration(a.delay * float64(r.Delay))
		if r.Body == nil {
			if *r, err = a.fields(*r); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// freshSalt draws the salt of this run, unless one was given.
func (o *workloadOptions) freshSalt() string {
	if o.salt == "" {
		var b [5]byte
		_, _ = rand.Read(b[:]) // it never fails
		o.salt = strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
	}
	return o.salt
}

// openTokenizer returns what counts our own tokens, by name; nil: nothing.
func (o *workloadOptions) openTokenizer() (tokens.Tokenizer, error) {
	switch o.tokenizer {
	case "", "none", "server":
		return nil, nil
	}
	t, err := tokens.Open(o.tokenizer)
	if err != nil {
		return nil, fmt.Errorf("--tokenizer: %w", err)
	}
	return t, nil
}
