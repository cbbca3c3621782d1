package target

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
)

// Dialect is how one family of servers speaks: which request fields it knows,
// and where it tells what. It is a row of a table and is never changed; what
// its maps and slices hold belongs to the table.
type Dialect struct {
	Name  string // as in --dialect
	Title string
	// Hosts are the host names of a hosted API; "*.x" stands for any name
	// below x.
	Hosts []string

	// ChatLimits are the fields that limit the output of a chat, the one to
	// send first. Completions take max_tokens everywhere.
	ChatLimits []string
	// MinTokens and IgnoreEOS are the fields that make an answer go on to its
	// limit; empty: there is none.
	MinTokens string
	IgnoreEOS string
	// Greedy are the fields that ask for greedy decoding, beside temperature 0.
	// A key may be a path, as nvext.greed_sampling.
	Greedy map[string]any
	// Seed is the field of the sampling seed; empty: there is none.
	Seed string
	// StreamOptions is the object that asks for the usage of a stream; empty:
	// nothing is to be sent for it.
	StreamOptions string
	// CacheSalt is the field (or path) that keeps prefixes of different salts
	// apart in the prefix cache; empty: there is none.
	CacheSalt string
	// NoCache are the fields that keep a request off the cache.
	NoCache map[string]any
	// Reset empties the prefix cache; zero: it cannot be done by a request.
	Reset Call
	// Timings says where the server tells the phases of a request, beginning
	// with the object in the answer if they are there (see TellsTimings);
	// AskTimings are the fields that ask for them.
	Timings    string
	AskTimings map[string]any
	// Strict: fields that the server does not know are refused.
	Strict bool
	// Closes: the server closes its connection after a streamed answer without
	// having said so. A request sent over it before that is noticed is lost, so
	// each one has to have a connection of its own.
	Closes bool
	// Metrics is what its Prometheus endpoint tells.
	Metrics Metrics

	clues []clue
	// fronts: servers of this dialect can stand in front of engines of these,
	// and then look like them.
	fronts    []string
	documents []document
	infos     []key
	// offline tells why no server speaks it.
	offline string
}

// Call is a request that makes the server do something. NAME in Body stands
// for the model.
type Call struct {
	Method, Path, Body string
	// Requires says which server option it needs; empty: none.
	Requires string
}

// ByName returns the dialect of that name.
func ByName(name string) (Dialect, error) {
	names := make([]string, 0, len(dialects))
	for _, d := range dialects {
		if d.Name == name {
			if d.offline != "" {
				return Dialect{}, fmt.Errorf("dialect %q: %s", name, d.offline)
			}
			return d, nil
		}
		if d.offline == "" {
			names = append(names, d.Name)
		}
	}
	return Dialect{}, fmt.Errorf("dialect %q is not known: use one of %s", name, strings.Join(names, ", "))
}

// Names lists the dialects that a server can speak, in the order of detection.
func Names() []string {
	var names []string
	for _, d := range dialects {
		if d.offline == "" {
			names = append(names, d.Name)
		}
	}
	return names
}

// mustBe returns a row that is in the table.
func mustBe(name string) Dialect {
	for _, d := range dialects {
		if d.Name == name {
			return d
		}
	}
	return Dialect{}
}

// WithEngine is the dialect as spoken in front of an engine, as NIM 2 does:
// paths are its own, series and configuration those of the engine. Detect has
// done it already where it is needed.
func (d Dialect) WithEngine(e Dialect) Dialect {
	path, enable := d.Metrics.Path, d.Metrics.Enable
	d.Metrics = e.Metrics
	d.Metrics.Path, d.Metrics.Enable = path, enable
	d.infos = e.infos
	d.documents = slices.Concat(d.documents, e.documents)
	return d
}

// CanExact reports whether an answer can be made to have an exact length.
func (d Dialect) CanExact() bool { return d.MinTokens != "" || d.IgnoreEOS != "" }

// TellsTimings reports whether answers can tell the phases of their request in a
// place that is read. What Timings says of others is only known.
func (d Dialect) TellsTimings() bool {
	place, _, _ := strings.Cut(d.Timings, " ")
	return slices.Contains(openai.TimingSources(), place)
}

// Without is the dialect as a server speaks it that refuses these fields: what
// only they could ask for it cannot do.
func (d Dialect) Without(dropped []record.DroppedField) Dialect {
	for _, f := range dropped {
		in := func(path string) bool {
			root, _, _ := strings.Cut(path, ".")
			return root == f.Field
		}
		for _, field := range []*string{&d.MinTokens, &d.IgnoreEOS, &d.CacheSalt} {
			if in(*field) {
				*field = ""
			}
		}
		for path := range d.AskTimings {
			if in(path) {
				d.Timings = ""
			}
		}
	}
	return d
}

// Options returns base with what all requests to the server have in common:
// the name of the output limit, unless base has one, and the stream options.
// Usage is asked for only where base asks for it, the dialect knows how, and the
// endpoint type does not tell it unasked.
func (d Dialect) Options(t openai.EndpointType, base openai.BodyOptions) openai.BodyOptions {
	if base.MaxTokensField == "" && t == openai.Chat && len(d.ChatLimits) > 0 {
		base.MaxTokensField = d.ChatLimits[0]
	}
	if t != openai.Chat && t != openai.Completions || d.StreamOptions == "" {
		base.IncludeUsage, base.ContinuousUsage = false, false
	}
	const usual = `{"include_usage":true}`
	if base.Stream && base.IncludeUsage && !base.ContinuousUsage && d.StreamOptions != usual && base.Extra["stream_options"] == nil {
		extra := maps.Clone(base.Extra)
		if extra == nil {
			extra = map[string]json.RawMessage{}
		}
		extra["stream_options"] = json.RawMessage(d.StreamOptions)
		base.Extra = extra
	}
	return base
}

// Ask is what a run wants of an answer beyond its text.
type Ask struct {
	// Exact is the number of output tokens to have exactly; 0: the answer may
	// end by itself.
	Exact int
	// Greedy asks for the likeliest token each time, Seed, if not nil, for
	// sampling that can be repeated. Neither makes a server deterministic.
	Greedy bool
	Seed   *int64
	// CacheSalt keeps the request's prefix apart from those of other salts.
	CacheSalt string
	// NoCache keeps it off the cache altogether.
	NoCache bool
	// Timings asks for the server's own timings of the request.
	Timings bool
}

// Lacks names what of ask the dialect has no field for. Fields leaves it out.
func (d Dialect) Lacks(ask Ask) []string {
	var out []string
	lack := func(asked bool, has bool, what string) {
		if asked && !has {
			out = append(out, what)
		}
	}
	lack(ask.Exact > 0, d.CanExact(), "an exact output length")
	lack(ask.Seed != nil, d.Seed != "", "a seed")
	lack(ask.CacheSalt != "", d.CacheSalt != "", "a cache salt")
	lack(ask.NoCache, len(d.NoCache) > 0, "a request without cache")
	lack(ask.Timings, d.TellsTimings(), "timings by the server")
	return out
}

// Fields returns the body fields for what is asked of one request; they go
// into workloads.Request.Extra, where the fields that a user gave (in
// openai.BodyOptions.Extra) replace them. The output limit is not among them.
func (d Dialect) Fields(ask Ask) (map[string]json.RawMessage, error) {
	root := map[string]any{}
	if ask.Exact > 0 {
		put(root, d.MinTokens, ask.Exact)
		put(root, d.IgnoreEOS, true)
	}
	if ask.Greedy {
		put(root, "temperature", 0)
		for path, v := range d.Greedy {
			put(root, path, v)
		}
	}
	if ask.Seed != nil {
		put(root, d.Seed, *ask.Seed)
	}
	if ask.CacheSalt != "" && d.CacheSalt != "" {
		const longest = 128 // vLLM's rules, the strictest
		if len(ask.CacheSalt) > longest || strings.ContainsAny(ask.CacheSalt, "@/\\\x00") {
			return nil, fmt.Errorf("cache salt %.40q: want at most %d bytes without @, / and \\", ask.CacheSalt, longest)
		}
		put(root, d.CacheSalt, ask.CacheSalt)
	}
	if ask.NoCache {
		for path, v := range d.NoCache {
			put(root, path, v)
		}
	}
	if ask.Timings {
		for path, v := range d.AskTimings {
			put(root, path, v)
		}
	}
	out := make(map[string]json.RawMessage, len(root))
	for name, v := range root {
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
		out[name] = b
	}
	return out, nil
}

// put sets the value at a dotted path; an empty path is no place.
func put(object map[string]any, path string, v any) {
	if path == "" {
		return
	}
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		object[name] = v
		return
	}
	inner, ok := object[name].(map[string]any)
	if !ok {
		inner = map[string]any{}
		object[name] = inner
	}
	put(inner, rest, v)
}

// ResetCache empties the server's prefix cache. An error tells that the server
// refused or that its dialect has no such request. That it was accepted does
// not prove that the cache is empty: look at the cached tokens of the next
// answers.
func (s *Server) ResetCache(ctx context.Context, d Dialect, model string) error {
	c := d.Reset
	if c.Path == "" {
		return fmt.Errorf("empty the prefix cache: %s has no request for it; use a cache salt or prompts that differ from the first token", d.Title)
	}
	var body []byte
	if c.Body != "" {
		name, err := json.Marshal(model)
		if err != nil {
			return fmt.Errorf("empty the prefix cache: %w", err)
		}
		body = bytes.ReplaceAll([]byte(c.Body), []byte(`"NAME"`), name)
	}
	a, err := fetch(ctx, s.Client, c.Method, s.at(c.Path), s.Header, body, s.Timeout)
	if err != nil {
		return fmt.Errorf("empty the prefix cache: %w", err)
	}
	if a.status/100 != 2 {
		hint := ""
		if c.Requires != "" {
			hint = "; it needs " + c.Requires
		}
		return fmt.Errorf("empty the prefix cache: %s %s: status %d %s%s", c.Method, c.Path, a.status, http.StatusText(a.status), hint)
	}
	return nil
}
