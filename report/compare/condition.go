package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

// Kind is what a condition means for a comparison.
type Kind string

// The kinds of a condition.
const (
	Same          Kind = "same"
	Intended      Kind = "intended"      // differs, and was named as what varies
	Harmless      Kind = "harmless"      // differs, and does not keep the runs from being compared
	Unknown       Kind = "unknown"       // nobody told, on one side or both
	Disqualifying Kind = "disqualifying" // differs: the figures would not compare the same thing
)

// Condition is one fact that a comparison depends on, on both sides.
type Condition struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	A    string `json:"a,omitempty"` // empty: unknown
	B    string `json:"b,omitempty"`
	Why  string `json:"why,omitempty"`
	// Allowed: it disqualifies, and was allowed to all the same.
	Allowed bool `json:"allowed,omitempty"`
}

// Blocks reports whether the condition keeps the runs from being compared.
func (c Condition) Blocks() bool { return c.Kind == Disqualifying && !c.Allowed }

// fact is one row of the table of conditions.
type fact struct {
	name string
	kind Kind // of a difference
	// asked: it is listed as unknown where nobody tells it.
	asked bool
	why   string
	text  func(*Run) string  // "" is unknown
	num   func(*Run) float64 // in place of text; NaN is unknown
	alike func(a, b float64) bool
	load  bool // may be the level of the load, which differs between the points of a curve
}

const (
	lengthsApart = 0.05 // of the mean length
	hitsApart    = 0.05 // in hit rate
)

// asLong reports whether two mean lengths are nearly the same.
func asLong(a, b float64) bool {
	return math.Abs(a-b) <= lengthsApart*math.Max(math.Abs(a), math.Abs(b))
}

// facts says what a comparison depends on. Conditions of the target that are
// not in it are harmless: they may well be the reason of a difference, but
// the runs still measure the same thing.
var facts = []fact{
	{name: "model", kind: Disqualifying, asked: true, why: "another model", text: func(r *Run) string { return r.Manifest.Target.Model }},
	condition("model_revision", true, "another revision of the model"),
	condition("weight_version", false, "other weights"),
	condition("parameters", false, "another model size"),
	condition("model_bytes", false, "another model file"),
	condition("precision", true, "another precision"),
	condition("quantization", true, "another quantization"),
	condition("kv_cache_precision", true, "another precision of the cache"),
	condition("tokenizer", true, "another tokenizer: tokens are not the same thing"),
	condition("chat_template", true, "another chat template: other prompts"),
	condition("speculative_method", true, "other speculative decoding"),
	condition("speculative_tokens", false, "other speculative decoding"),
	condition("prefix_cache", true, "prefix caching on and off"),
	{name: "endpoint_type", kind: Disqualifying, asked: true, why: "another API", text: func(r *Run) string { return r.Manifest.Target.EndpointType }},
	{name: "streaming", kind: Disqualifying, asked: true, why: "streams and whole answers", text: func(r *Run) string { return strconv.FormatBool(r.Manifest.Target.Streaming) }},
	{name: "workload", kind: Disqualifying, asked: true, why: "other prompts", text: workload},
	{name: "asked_input_length", kind: Disqualifying, why: "prompts of other lengths were asked for", alike: asLong,
		num: func(r *Run) float64 { return lengthOf(r, func(l *report.Lengths) *float64 { return l.AskedInput }) }},
	{name: "asked_output_length", kind: Disqualifying, why: "answers of other lengths were asked for", alike: asLong,
		num: func(r *Run) float64 { return lengthOf(r, func(l *report.Lengths) *float64 { return l.AskedOutput }) }},
	{name: "input_length", kind: Disqualifying, asked: true, why: "prompts are more than 5 % apart in length", alike: asLong,
		num: func(r *Run) float64 { return valueOrNaN(r, "input_sequence_length", "avg") }},
	{name: "output_length", kind: Disqualifying, asked: true, why: "answers are more than 5 % apart in length", alike: asLong,
		num: func(r *Run) float64 { return valueOrNaN(r, outputMean, "avg") }},
	{name: "cache_mode", kind: Disqualifying, asked: true, why: "prompts treat the prefix cache in another way", text: func(r *Run) string {
		c := r.Manifest.Cache
		if c.Mode == record.CacheHitRate && c.HitRate > 0 {
			return fmt.Sprintf("%s %g", c.Mode, c.HitRate)
		}
		return c.Mode
	}},
	{name: "cache_hit_rate", kind: Disqualifying, why: "the prefix cache served another share of the input (more than 0.05 apart)",
		alike: func(a, b float64) bool { return math.Abs(a-b) <= hitsApart },
		num: func(r *Run) float64 {
			switch {
			case r.Cache == nil:
			case r.Cache.HitRate != nil:
				return *r.Cache.HitRate
			case r.Cache.Server != nil: // usage does not tell
				return *r.Cache.Server
			}
			return math.NaN()
		}},
	{name: "concurrency", kind: Disqualifying, load: true, why: "another load", text: func(r *Run) string { return orNone(float64(r.Manifest.Load.Concurrency)) }},
	{name: "request_rate", kind: Disqualifying, load: true, why: "another load", text: func(r *Run) string { return orNone(r.Manifest.Load.Rate) }},
	{name: "num_users", kind: Disqualifying, load: true, why: "another load", text: func(r *Run) string { return orNone(float64(r.Manifest.Load.Users)) }},
	{name: "arrivals", kind: Disqualifying, why: "other arrivals", text: arrivals},
	{name: "sampling", kind: Disqualifying, asked: true, why: "other fields in the requests", text: func(r *Run) string { return config(r, "extra-inputs") }},
	{name: "output_form", kind: Disqualifying, why: "answers of another form were asked for", text: outputForm},
	{name: "dropped_fields", kind: Disqualifying, why: "the server refused fields of the requests", text: func(r *Run) string {
		names := make([]string, 0, len(r.Manifest.Dropped))
		for _, d := range r.Manifest.Dropped {
			names = append(names, d.Field)
		}
		slices.Sort(names)
		if len(names) == 0 {
			return "none"
		}
		return strings.Join(names, ", ")
	}},
	{name: "token_source", kind: Disqualifying, asked: true, why: "tokens were counted in another way", text: tokenSource},
	{name: "tool_version", kind: Disqualifying, asked: true, why: "another major version of tokmark", text: func(r *Run) string { return major(r.Manifest.Tool.Version) }},
	{name: "stamps", kind: Harmless, why: "times from the kernel are a little earlier than our own", text: func(r *Run) string { return r.Manifest.Stamps }},
	{name: "server", kind: Harmless, text: func(r *Run) string { return r.Manifest.Target.Address() }},
	{name: "client_host", kind: Harmless, why: "the client ran on another machine: its path to the server may differ", text: func(r *Run) string {
		h := r.Manifest.Host
		if h.OS == "" {
			return ""
		}
		return strings.TrimSpace(fmt.Sprintf("%s/%s, %d cores, %s", h.OS, h.Arch, h.Cores, h.CPU))
	}},
	{name: "request_count", kind: Harmless, text: func(r *Run) string { return orNone(float64(r.Manifest.Load.Requests)) }},
	{name: "warmup", kind: Harmless, text: func(r *Run) string { return orNone(float64(r.Manifest.Load.Warmup)) }},
	{name: "benchmark_duration", kind: Harmless, text: func(r *Run) string { return orNone(r.Manifest.Load.Duration.Seconds()) }},
}

// The conditions of single runs.
const (
	saltReuse     = "salt_reuse"
	notValid      = "verdict"
	clientLimited = "client_limited"
	partialRun    = "partial_run"
)

// groups are names for several conditions.
var groups = map[string][]string{
	"version": {"engine_version", "front_end_version", "build"},
	"gpu":     {"gpu", "gpu_count", "driver"},
	"load":    {"concurrency", "request_rate", "num_users", "arrivals"},
	"lengths": {"asked_input_length", "asked_output_length", "input_length", "output_length"},
}

func condition(name string, asked bool, why string) fact {
	return fact{name: name, kind: Disqualifying, asked: asked, why: why, text: func(r *Run) string { return told(r, name) }}
}

// told is what is known of a condition of the target.
func told(r *Run, name string) string {
	for _, c := range r.Manifest.Conditions {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func orNone(v float64) string {
	if v == 0 {
		return "none"
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func valueOrNaN(r *Run, tag, stat string) float64 {
	if v, ok := r.value(tag, stat); ok {
		return v
	}
	return math.NaN()
}

func lengthOf(r *Run, of func(*report.Lengths) *float64) float64 {
	if r.Lengths == nil || of(r.Lengths) == nil {
		return math.NaN()
	}
	return *of(r.Lengths)
}

// workload is the hash of the prompts, which is the same whatever the server
// counts.
func workload(r *Run) string {
	hash := r.Manifest.WorkloadHash
	return hash[:min(len(hash), 16)]
}

// config is an option of the run as it stands in the manifest; "none" is an
// empty list.
func config(r *Run, name string) string {
	v := r.Manifest.Config[name]
	if v == nil {
		return ""
	}
	var list []string
	if json.Unmarshal(v, &list) == nil {
		if len(list) == 0 {
			return "none"
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	return string(v)
}

func arrivals(r *Run) string {
	out := []string{r.Manifest.Load.Arrival}
	if out[0] == "" {
		out[0] = "closed loop"
	}
	for _, name := range []string{"concurrency-stages", "concurrency-ramp-duration", "request-rate-stages", "request-rate-ramp-duration", "prefill-concurrency"} {
		switch v := config(r, name); v {
		case "", "none", "0", "null":
		default:
			out = append(out, name+" "+v)
		}
	}
	if s := config(r, "arrival-smoothness"); s != "" && s != "1" {
		out = append(out, "arrival-smoothness "+s)
	}
	return strings.Join(out, ", ")
}

// outputForm is what options ask of the form of answers, beside their fields.
func outputForm(r *Run) string {
	if config(r, "exact-output") == "" {
		return ""
	}
	var out []string
	var schema string
	if _ = json.Unmarshal(r.Manifest.Config["response-format"], &schema); schema != "" {
		out = append(out, "response-format "+filepath.Base(schema))
	}
	if osl := config(r, "osl"); osl != "" && osl != "0" && config(r, "exact-output") != "true" {
		out = append(out, "exact-output false")
	}
	if config(r, "per-chunk-usage") == "true" {
		out = append(out, "per-chunk-usage")
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

func tokenSource(r *Run) string {
	names := make([]string, 0, len(r.Tokens))
	for _, t := range r.Tokens {
		switch t.Source {
		case record.SourceNone:
		case record.SourceTokenizer:
			names = append(names, string(t.Source)+" "+r.Manifest.Tokenizer)
		default:
			names = append(names, string(t.Source))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// major is what may not differ of the tool: v1.2.3 is 1, what is no version
// stands for itself.
func major(version string) string {
	first, _, found := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if _, err := strconv.Atoi(first); err != nil || !found {
		return version
	}
	return first
}

// clientCodes are the warnings that say that the client was the limit.
var clientCodes = []string{
	report.ScheduleLag, report.ClientLate, report.ConcurrencyNotReached, report.LostStamps, report.ReceiveLag,
	report.ClientCPU, report.MachineCPU, report.WriterStalled, report.OpenFiles,
}

// besideLevel is the fact for the points of a curve: the level may be any.
func (f fact) besideLevel() fact {
	text := f.text
	f.why = "another kind of load"
	f.text = func(r *Run) string {
		if name, _ := r.Manifest.Load.Level(); name == f.name {
			return "varies"
		}
		return text(r)
	}
	return f
}

// conditions compares two sides. curve: the runs of a side are points at
// different levels of one kind of load.
func conditions(a, b Side, opt Options, curve bool) []Condition {
	var out []Condition
	known := map[string]bool{"process_start": true} // says nothing but when
	for _, f := range facts {
		known[f.name] = true
		if f.load && curve {
			f = f.besideLevel()
		}
		c := f.compare(a, b)
		if c.Kind != Unknown || f.asked || c.A != c.B {
			out = append(out, c)
		}
	}
	for _, side := range []Side{a, b} {
		for _, r := range side.Runs {
			for _, k := range r.Manifest.Conditions {
				if known[k.Name] {
					continue
				}
				known[k.Name] = true
				f := fact{name: k.Name, kind: Harmless, text: func(r *Run) string { return told(r, k.Name) }}
				if c := f.compare(a, b); c.A != "" || c.B != "" {
					out = append(out, c)
				}
			}
		}
	}
	out = append(out, ofRuns(a, b)...)
	for i := range out {
		c := &out[i]
		single := c.Name == saltReuse || c.Name == notValid || c.Name == clientLimited || c.Name == partialRun
		switch {
		case c.Kind == Same:
		case named(opt.Vary, c.Name) && !single && c.Kind != Unknown:
			c.Kind, c.Why = Intended, ""
		case c.Kind == Disqualifying && named(opt.Allow, c.Name):
			c.Allowed = true
		}
	}
	return out
}

// named reports whether a condition is among names, by itself or in a group.
func named(names []string, name string) bool {
	for _, n := range names {
		if n == name || slices.Contains(groups[n], name) {
			return true
		}
	}
	return false
}

func (f fact) compare(a, b Side) Condition {
	c := Condition{Name: f.name, Kind: f.kind, Why: f.why}
	if f.num != nil {
		x, y := f.mean(a), f.mean(b)
		if !math.IsNaN(x) {
			c.A = strconv.FormatFloat(x, 'g', 5, 64)
		}
		if !math.IsNaN(y) {
			c.B = strconv.FormatFloat(y, 'g', 5, 64)
		}
		switch {
		case math.IsNaN(x) || math.IsNaN(y):
			c.Kind, c.Why = Unknown, ""
		case f.alike(x, y):
			c.Kind, c.Why = Same, ""
		}
		return c
	}
	xs, ys := f.texts(a), f.texts(b)
	c.A, c.B = strings.Join(xs, " | "), strings.Join(ys, " | ")
	switch {
	case slices.Contains(xs, "") || slices.Contains(ys, ""):
		c.Kind, c.Why = Unknown, ""
	case len(xs) == 1 && len(ys) == 1 && xs[0] == ys[0]:
		c.Kind, c.Why = Same, ""
	case len(xs) > 1 || len(ys) > 1:
		c.Why = strings.TrimPrefix(f.why+"; the runs of one side differ among themselves", "; ")
	}
	return c
}

// texts are the different values of the runs of a side.
func (f fact) texts(s Side) []string {
	var out []string
	for _, r := range s.Runs {
		if v := f.text(r); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

func (f fact) mean(s Side) float64 {
	var sum float64
	for _, r := range s.Runs {
		sum += f.num(r)
	}
	return sum / float64(len(s.Runs))
}

// ofRuns are the conditions that single runs have to fulfil.
func ofRuns(a, b Side) []Condition {
	var out []Condition
	add := func(name, why string, mark func(*Run) string) {
		c := Condition{Name: name, Kind: Same}
		c.A, c.B = marks(a, mark), marks(b, mark)
		if c.A != "ok" || c.B != "ok" {
			c.Kind, c.Why = Disqualifying, why
		}
		out = append(out, c)
	}
	invalidFor := func(r *Run, client bool) string {
		if r.Verdict.Level != report.Invalid {
			return ""
		}
		for _, w := range r.Warnings {
			if w.Effect == report.Invalid && slices.Contains(clientCodes, w.Code) == client {
				return w.Code
			}
		}
		if !client && len(r.Warnings) == 0 {
			return string(report.Invalid)
		}
		return ""
	}
	add(notValid, "a run is not valid", func(r *Run) string { return invalidFor(r, false) })
	add(clientLimited, "the client was the limit", func(r *Run) string { return invalidFor(r, true) })
	add(partialRun, "a run did not come to its end", func(r *Run) string {
		if r.Partial {
			return string(r.Manifest.Outcome)
		}
		return ""
	})
	// The same prompts on one server: the second run finds them in its cache,
	// unless it was started again, or both runs found a warm cache.
	used := map[string]*Run{}
	c := Condition{Name: saltReuse, Kind: Same, A: "ok", B: "ok"}
	for i, r := range slices.Concat(a.Runs, b.Runs) {
		m := r.Manifest
		if m.Salt == "" || m.Cache.Mode == record.CacheWarm {
			continue
		}
		key := fmt.Sprintf("%q %q %q", m.Salt, m.Target.URL, told(r, "process_start"))
		if other := used[key]; other != nil {
			c.Kind, c.Why = Disqualifying, "two runs sent the same prompts to one server: the second one found a warm cache"
			where := &c.A
			if i >= len(a.Runs) {
				where = &c.B
			}
			*where = "salt " + m.Salt + " of " + other.Path
		}
		used[key] = r
	}
	return append(out, c)
}

func marks(s Side, mark func(*Run) string) string {
	var out []string
	for _, r := range s.Runs {
		if m := mark(r); m != "" && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return "ok"
	}
	return strings.Join(out, ", ")
}

// knownName reports whether a name may stand in Vary or Allow.
func knownName(name string, sides ...Side) bool {
	if groups[name] != nil || slices.Contains([]string{saltReuse, notValid, clientLimited, partialRun}, name) ||
		slices.ContainsFunc(facts, func(f fact) bool { return f.name == name }) {
		return true
	}
	for _, s := range sides {
		for _, r := range s.Runs {
			if slices.ContainsFunc(r.Manifest.Conditions, func(c record.Condition) bool { return c.Name == name }) {
				return true
			}
		}
	}
	// What a target package may come to tell, and does not yet of these runs.
	return slices.Contains([]string{
		"engine", "engine_version", "front_end", "front_end_version", "build", "profile", "model_root", "max_model_len",
		"tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "kv_block_size", "kv_cache_capacity",
		"gpu_memory_share", "max_batch", "max_batch_tokens", "prefill_chunk", "stream_interval", "attention_backend",
		"deterministic", "driver", "gpu_count",
	}, name)
}
