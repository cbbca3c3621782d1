package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/report"
)

// options are the settings of a run. Each has one definition: the flag that
// bind makes, whose name is also the key in a scenario file.
type options struct {
	// target
	models                          []string
	modelSelection                  string
	modelWeights                    []float64
	url, endpointType, endpoint     string
	streaming                       bool
	headers                         []string
	apiKey                          string
	extraInputs                     []string
	responseFormat                  string
	schema                          *answerSchema // of responseFormat, once it is read
	usage, perChunkUsage, legacyMax bool
	simulate                        bool
	preflight, strict               bool
	dialect                         string
	conditions                      []string
	serverMetrics                   bool
	gpuTelemetry                    string
	exactOutput                     bool
	selftest                        bool
	greedy                          bool // set by commands that compare answers
	cacheSalt                       string
	cacheReset                      bool

	// load
	loadOptions
	transportOptions
	idleTimeout  time.Duration
	totalSeconds float64

	workloadOptions

	goodput, slo            string
	from                    string   // file of a capsule
	capsule                 *capsule // that was opened; nil: none
	artifactDir, exportData string
	ui, window              string
	printConfig             bool
}

// aliases are names that AIPerf and GenAI-Perf have for our flags.
var aliases = map[string]string{
	"model-names":       "model",
	"custom-endpoint":   "endpoint",
	"request-rate-mode": "arrival-pattern",
	"vllm-burstiness":   "arrival-smoothness",
	"seq-dist":          "sequence-distribution",
	"num-conversations": "num-sessions", "conversation-num": "num-sessions",
	"num-prompts":             "num-dataset-entries",
	"prefix-prompt-pool-size": "num-prefix-prompts",
	"conversation-turn-mean":  "session-turns-mean", "conversation-turn-stddev": "session-turns-stddev",
	"conversation-turn-delay-mean": "session-turn-delay-mean", "conversation-turn-delay-stddev": "session-turn-delay-stddev",
	"conversation-turn-delay-ratio": "session-delay-ratio",
	"num-requests":                  "request-count",
	"num-warmup-requests":           "warmup-request-count",
	"synthetic-input-tokens-mean":   "isl", "prompt-input-tokens-mean": "isl",
	"synthetic-input-tokens-stddev": "isl-stddev", "prompt-input-tokens-stddev": "isl-stddev",
	"output-tokens-mean": "osl", "prompt-output-tokens-mean": "osl",
	"output-tokens-stddev": "osl-stddev", "prompt-output-tokens-stddev": "osl-stddev",
	"output-artifact-dir": "artifact-dir",
	"ui-type":             "ui",
}

func (o *options) bind(fs *pflag.FlagSet) []flagGroup {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if to, ok := aliases[name]; ok {
			name = to
		}
		return pflag.NormalizedName(name)
	})
	return []flagGroup{
		group(fs, "Server", o.bindTarget),
		group(fs, "Load: when requests are sent, and how many", o.bindLoad),
		group(fs, "Workload: what is asked", o.bindWorkload),
		group(fs, "Result", o.bindResult),
	}
}

func (o *options) bindTarget(fs *pflag.FlagSet) {
	fs.StringArrayVarP(&o.models, "model", "m", nil, "`model` to ask for (default: the only one that /v1/models lists); given again: a mix of models or LoRA adapters")
	fs.StringVarP(&o.url, "url", "u", "localhost:8000", "server: host:port, base URL, or the whole endpoint, whose path says its type")
	fs.StringVar(&o.endpointType, "endpoint-type", "chat", "chat, completions, responses, or embeddings (whole answers: latency alone)")
	fs.StringVar(&o.endpoint, "endpoint", "", "path in place of the type's own (as /v1/chat/completions, /v1/responses)")
	fs.BoolVar(&o.streaming, "streaming", true, "ask for streams; false measures whole answers")
	fs.StringArrayVarP(&o.headers, "header", "H", nil, "further request header `name:value`; may be given again")
	fs.StringVar(&o.apiKey, "api-key", "", "bearer token (default: $OPENAI_API_KEY); never written anywhere")
	fs.StringArrayVar(&o.extraInputs, "extra-inputs", nil, "further body fields: `name:value` or a JSON object; may be given again")
	fs.StringVar(&o.responseFormat, "response-format", "", "`file` with a JSON schema that answers are asked to fit; the report says how many do")
	fs.BoolVar(&o.usage, "usage", true, "ask for token counts in the stream (stream_options.include_usage)")
	fs.BoolVar(&o.perChunkUsage, "per-chunk-usage", false, "ask for token counts in every event (continuous_usage_stats)")
	fs.BoolVar(&o.legacyMax, "use-legacy-max-tokens", false, "limit chat output by max_tokens instead of max_completion_tokens")
	fs.BoolVar(&o.exactOutput, "exact-output", true, "where the dialect can, make answers go on to exactly the tokens asked for (--osl, drawn lengths, those of a trace)")
	fs.BoolVar(&o.simulate, "simulate", false, "measure the embedded simulator instead of a server")
	fs.StringVar(&o.modelSelection, "model-selection-strategy", "round_robin", "with several models: round_robin or random")
	fs.Float64SliceVar(&o.modelWeights, "model-weights", nil, "`shares` of the models, in their order; makes the selection random")
	fs.Lookup("model-weights").DefValue = "" // else help shows []
	fs.StringVar(&o.dialect, "dialect", "", "how the server speaks (default: found out): "+strings.Join(target.Names(), ", "))
	fs.StringArrayVar(&o.conditions, "condition", nil, "a fact about the server that it does not tell, as `name=value` (precision=fp8); may be given again")
	fs.BoolVar(&o.preflight, "preflight", true, "ask a few short questions before the run: is the request accepted, and how does the server count tokens?")
	fs.BoolVar(&o.strict, "strict", false, "end before the run if the server refuses a field of the request, instead of leaving it out")
	fs.BoolVar(&o.cacheReset, "cache-reset", false, "empty the server's prefix cache before the run, where the dialect can, and verify by its cached tokens that it is empty")
	o.bindTransport(fs)
	fs.DurationVar(&o.idleTimeout, "idle-timeout", 2*time.Minute, "limit on the gap between two reads of an answer; 0: none")
	fs.Float64Var(&o.totalSeconds, "request-timeout-seconds", 600, "limit on a whole request in `seconds`; 0: none")
}

func (o *options) bindResult(fs *pflag.FlagSet) {
	fs.StringVar(&o.artifactDir, "artifact-dir", "", "directory for the run (default: a new one in artifacts/)")
	fs.StringVar(&o.exportData, "export-level", "records", "records, or raw: with the text of the answers")
	fs.StringVar(&o.goodput, "goodput", "", "`objectives` that make a request good, as \"time_to_first_token:300 inter_token_latency:30\"")
	bindSLO(fs, &o.slo)
	fs.StringVar(&o.window, "window", "auto", "steady-state window shown beside the whole run: auto, all, or FROM:TO in seconds")
	fs.BoolVar(&o.serverMetrics, "server-metrics", true, "read the server's own metrics during the run, where the dialect has them")
	fs.StringVar(&o.gpuTelemetry, "gpu-telemetry", "", "GPUs to read during the run: the `URL` of a DCGM exporter, or nvidia-smi for those of this machine")
	fs.BoolVar(&o.selftest, "selftest", false, "try this machine as a client at the run's own load, before and after, and say how much room it has")
	fs.StringVar(&o.ui, "ui", "auto", "progress on stderr: auto, simple (log lines) or none")
	fs.BoolVar(&o.printConfig, "print-config", false, "print the effective configuration and stop")
}

// loadTouched reports whether the load was set in any way.
func loadTouched(fs *pflag.FlagSet) bool {
	for _, name := range []string{
		"concurrency", "request-rate", "request-rate-stages", "concurrency-stages", "user-centric-rate", "request-count", "num-sessions",
		"benchmark-duration", "isl", "osl", "sequence-distribution", "class", "input-file",
	} {
		if fs.Changed(name) {
			return true
		}
	}
	return false
}

// complete sets the defaults that depend on other settings.
func (o *options) complete(fs *pflag.FlagSet, getenv func(string) string) {
	if o.apiKey == "" {
		o.apiKey = getenv("OPENAI_API_KEY")
	}
	if o.simulate && !loadTouched(fs) {
		// Enough to see the whole report in some ten seconds.
		o.concurrencies, o.requestCount, o.osl = levels{8}, 80, 100
	}
	if t := o.typeOfURL(); t != "" && o.capsule == nil && !fs.Changed("endpoint-type") {
		o.endpointType = string(t)
	}
	if !openai.EndpointType(o.endpointType).Streams() {
		o.streaming, o.osl = false, 0
	}
	o.classArrivals = o.arrivalsOfClasses()
	o.completeLoad(fs)
}

// validate reports every fault of the settings, before anything is sent.
func (o *options) validate(fs *pflag.FlagSet) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if t := openai.EndpointType(o.endpointType); t.Path() == "" {
		bad("--endpoint-type %s: use chat, completions, responses or embeddings", o.endpointType)
	} else if !t.Streams() && (fs.Changed("osl") || o.turnsMean > 1) {
		bad("--endpoint-type %s: its answers have no length, and it knows no conversations: leave out --osl and turns", t)
	} else if fs.Changed("osl") && o.osl == 0 {
		bad("--osl 0: it must be above 0; leave it out for answers without a limit")
	}
	errs = append(errs, o.validateLoad(fs), o.validateWorkload(fs), o.validateTransport(), notNegative(map[string]float64{
		"request-timeout-seconds": o.totalSeconds, "connect-timeout": o.connectTimeout.Seconds(),
		"first-byte-timeout": o.firstByteTimeout.Seconds(), "idle-timeout": o.idleTimeout.Seconds(),
	}))
	if o.exportData != "records" && o.exportData != "raw" {
		bad("--export-level %s: use records or raw", o.exportData)
	}
	if err := (report.Options{Window: o.window}).Validate(); err != nil {
		bad("--window: %w", err)
	}
	if _, err := parseSLO(o.slo); err != nil {
		errs = append(errs, err)
	}
	if !slices.Contains([]string{"auto", "simple", "none", "dashboard"}, o.ui) {
		bad("--ui %s: use auto, simple or none", o.ui)
	}
	if o.modelSelection != "round_robin" && o.modelSelection != "random" {
		bad("--model-selection-strategy %s: use round_robin or random", o.modelSelection)
	}
	if n := len(o.modelWeights); n > 0 && n != len(o.models) {
		bad("--model-weights: %d weights for %d models", n, len(o.models))
	}
	if o.responseFormat != "" {
		var err error
		if o.schema, err = readSchema(o.responseFormat); err != nil {
			bad("--response-format: %w", err)
		}
		o.exactOutput = false // a structure ends where it is whole
	}
	if o.dialect != "" {
		if _, err := target.ByName(o.dialect); err != nil {
			bad("--dialect: %w", err)
		}
	}
	if o.promptAs == "token-ids" && o.endpointType != string(openai.Completions) {
		bad("--prompt-as token-ids: only --endpoint-type completions takes token ids for a prompt")
	}
	if o.strict && !o.preflight {
		bad("--strict and --preflight=false exclude each other: only the questions before the run tell what the server refuses")
	}
	if o.gpuTelemetry != "" && o.gpuTelemetry != nvidiaSMI {
		if u, err := url.Parse(o.gpuTelemetry); err != nil || u.Host == "" {
			bad("--gpu-telemetry %s: give the URL of a DCGM exporter, or nvidia-smi", maskURL(o.gpuTelemetry))
		}
	}
	if _, err := target.DeclaredConditions(o.conditions); err != nil {
		bad("--%w", err)
	}
	if o.simulate && fs.Changed("url") {
		bad("--simulate and --url exclude each other")
	}
	if o.simulate && o.unixSocket != "" {
		bad("--simulate and --unix-socket exclude each other")
	}
	if o.url == "" && !fs.Changed("url") {
		// A command with servers of its own says that they are missing.
	} else if _, err := o.endpointURL(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.header(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.extra(); err != nil {
		errs = append(errs, err)
	}
	if _, err := report.ParseGoodput(o.goodput, o.streaming); err != nil {
		bad("--goodput: %w", err)
	}
	return errors.Join(errs...)
}

// The largest values of options: times in seconds and in milliseconds, some 126
// years, two of which still fit a time.Duration; so far for all other numbers.
const (
	mostNumber       = 4e9
	mostMilliseconds = 4e12
)

// notNegative reports the options whose value is below 0, no number, or too
// large to count with.
func notNegative(values map[string]float64) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		most := float64(mostNumber)
		if strings.Contains(name, "delay-mean") || strings.Contains(name, "delay-stddev") || strings.HasSuffix(name, "-offset") {
			most = mostMilliseconds
		}
		switch v := values[name]; {
		case v > most:
			errs = append(errs, fmt.Errorf("--%s %v: it must be at most %.0f", name, v, most))
		case math.IsNaN(v):
			errs = append(errs, fmt.Errorf("--%s %v: it must be a number of at least 0", name, v))
		case v < 0:
			errs = append(errs, fmt.Errorf("--%s %v: it must not be negative", name, v))
		}
	}
	return errors.Join(errs...)
}

// endpointURL is the address that requests are posted to, whether the server,
// its base URL with or without /v1, or the whole endpoint was given.
func (o *options) endpointURL() (*url.URL, error) {
	if o.url == "" {
		return nil, errors.New("--url is empty: give host:port or an http(s) URL")
	}
	u, err := url.Parse(withScheme(o.url))
	if err == nil && u.Port() != "" {
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("--url %s: there is no port %s: give one between 1 and 65535", maskURL(o.url), u.Port())
		}
	}
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--url %s: give host:port or an http(s) URL", maskURL(o.url))
	}
	if o.http2 && u.Scheme != "https" {
		return nil, fmt.Errorf("--http2: it is agreed on over TLS, and %s has none: give an https URL", maskURL(o.url))
	}
	path := openai.EndpointType(o.endpointType).Path()
	if o.endpoint != "" {
		path = "/" + strings.TrimPrefix(o.endpoint, "/")
	}
	if t := o.typeOfURL(); t != "" && string(t) != o.endpointType {
		return nil, fmt.Errorf("--url %s is the endpoint of %s, and --endpoint-type is %s: leave one of them out", maskURL(o.url), t, o.endpointType)
	}
	base := strings.TrimRight(u.Path, "/")
	whole := strings.TrimRight(path, "/")
	u.RawPath = ""
	switch {
	case o.typeOfURL() != "": // the whole endpoint was given, with /v1 or, as Azure's, without
		base, path = "", base
	case strings.HasSuffix(base, whole):
		base = strings.TrimSuffix(base, whole)
	case strings.HasSuffix(base, "/v1") && strings.HasPrefix(path, "/v1/"):
		base = strings.TrimSuffix(base, "/v1")
	}
	u.Path = base + path
	return u, nil
}

// typeOfURL is the type that the URL names as a whole endpoint; empty: it is
// none of those known, or --endpoint names the path.
func (o *options) typeOfURL() openai.EndpointType {
	u, err := url.Parse(withScheme(o.url))
	if err != nil || o.endpoint != "" {
		return ""
	}
	path := strings.TrimRight(u.Path, "/")
	for _, t := range openai.EndpointTypes() {
		if strings.HasSuffix(path, strings.TrimPrefix(t.Path(), "/v1")) {
			return t
		}
	}
	return ""
}

// withScheme is an address with http:// if it has no scheme.
func withScheme(s string) string {
	if strings.Contains(s, "://") {
		return s
	}
	return "http://" + s
}

// modelsURL is where the server lists its models.
func modelsURL(endpoint *url.URL) *url.URL {
	u := *endpoint
	if i := strings.LastIndex(u.Path, "/v1/"); i >= 0 {
		u.Path = u.Path[:i]
	} else {
		u.Path = ""
	}
	u.Path += "/v1/models"
	return &u
}

// header returns the headers that the user gave, the key included.
func (o *options) header() (http.Header, error) {
	h := http.Header{}
	for i, s := range o.headers { // no message shows what may be a secret
		name, value, ok := strings.Cut(s, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok || !isToken(name):
			return nil, fmt.Errorf("--header number %d: give name:value, the name of letters, digits and -", i+1)
		case strings.ContainsFunc(value, isControl):
			return nil, fmt.Errorf("--header number %d (%s): the value holds a line end or another control character", i+1, name)
		}
		h.Add(name, value)
	}
	if o.apiKey != "" && h.Get("Authorization") == "" {
		if strings.ContainsFunc(o.apiKey, isControl) {
			return nil, errors.New("--api-key: it holds a line end or another control character")
		}
		h.Set("Authorization", "Bearer "+o.apiKey)
	}
	if u, err := url.Parse(withScheme(o.url)); err == nil && u.User != nil && h.Get("Authorization") == "" {
		h.Set("Authorization", "Basic "+basicAuth(u.User))
	}
	return h, nil
}

// basicAuth is user info as a header has it.
func basicAuth(u *url.Userinfo) string {
	password, _ := u.Password()
	return base64.StdEncoding.EncodeToString([]byte(u.Username() + ":" + password))
}

// isToken reports whether s may be the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// isControl reports whether no value of a header may hold r.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == '\x7f' }

// secrets are the values that must never be kept: the key, every header value
// given by the user, whole and without the scheme before it, and what URLs have
// of them, as it is and as it is written there.
func (o *options) secrets() []string {
	var out []string
	add := func(s string) {
		if len(s) >= 4 && !slices.Contains(out, s) { // shorter ones would mask half of any text
			out = append(out, s)
		}
	}
	add(o.apiKey)
	for _, s := range o.headers {
		_, value, _ := strings.Cut(s, ":")
		value = strings.TrimSpace(value)
		add(value)
		if i := strings.LastIndexByte(value, ' '); i >= 0 {
			add(value[i+1:])
		}
	}
	for _, address := range []string{o.url, o.gpuTelemetry, o.proxy} {
		u, err := url.Parse(withScheme(address))
		if err != nil {
			continue
		}
		if u.User != nil {
			add(basicAuth(u.User))
		}
		if pw, ok := u.User.Password(); ok {
			_, raw, _ := strings.Cut(u.User.String(), ":")
			add(pw)
			add(raw)
		} else if u.User != nil { // a token alone
			add(u.User.Username())
			add(u.User.String())
		}
		for pair := range strings.SplitSeq(u.RawQuery, "&") {
			name, raw, _ := strings.Cut(pair, "=")
			if name == "api-version" {
				continue // Azure's; no secret, and dates are common words
			}
			add(raw)
			if v, err := url.QueryUnescape(raw); err == nil {
				add(v)
			}
		}
	}
	// A longer secret first: it may hold a shorter one.
	slices.SortStableFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// extra returns the body fields of --extra-inputs.
func (o *options) extra() (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	for _, s := range o.extraInputs {
		if strings.HasPrefix(strings.TrimSpace(s), "{") {
			dec := json.NewDecoder(strings.NewReader(s))
			if err := dec.Decode(&out); err != nil || dec.More() {
				return nil, fmt.Errorf("--extra-inputs %s: not a JSON object", s)
			}
			continue
		}
		for _, pair := range strings.Split(s, ",") {
			name, value, ok := strings.Cut(pair, ":")
			if name = strings.TrimSpace(name); !ok || name == "" {
				return nil, fmt.Errorf("--extra-inputs %s: give name:value or a JSON object", pair)
			}
			out[name] = jsonValue(strings.TrimSpace(value))
		}
	}
	return out, nil
}

// jsonValue reads a value as AIPerf does: number, true, false or null as such,
// anything else as a string.
func jsonValue(s string) json.RawMessage {
	if low := strings.ToLower(s); low == "true" || low == "false" || low == "null" {
		return json.RawMessage(low)
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil && json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	b, _ := json.Marshal(s)
	return b
}

// maskURL takes user info and query values out of an address.
func maskURL(s string) string {
	if s == "" {
		return ""
	}
	u, err := url.Parse(withScheme(s))
	if err != nil {
		return "(not a URL)"
	}
	if u.User != nil {
		u.User = url.User("***")
	}
	if u.RawQuery != "" {
		q := u.Query()
		for k := range q {
			q[k] = []string{"***"}
		}
		u.RawQuery = q.Encode()
	}
	out := strings.ReplaceAll(u.String(), "%2A%2A%2A", "***")
	if withScheme(s) != s {
		out = strings.TrimPrefix(out, "http://")
	}
	return out
}
