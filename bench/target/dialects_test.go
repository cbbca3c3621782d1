package target

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/workloads"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The shape of dialects.json, as far as the table must agree with it.
type (
	knownDialect struct {
		ID     string `json:"id"`
		Detect []struct {
			Host     string          `json:"host"`
			Header   string          `json:"header"`
			Path     string          `json:"path"`
			JSON     string          `json:"json"`
			Equals   json.RawMessage `json:"equals"`
			Contains string          `json:"contains"`
		} `json:"detect"`
		Length struct {
			Max       []string       `json:"max"`
			Min       string         `json:"min"`
			IgnoreEOS string         `json:"ignore_eos"`
			Exact     map[string]any `json:"exact"`
		} `json:"length_fields"`
		Determinism struct {
			Seed  string         `json:"seed"`
			TopK  string         `json:"top_k"`
			Extra map[string]any `json:"extra"`
		} `json:"determinism_fields"`
		Cache struct {
			Salt  string `json:"salt"`
			Flush *struct {
				Method   string          `json:"method"`
				Path     string          `json:"path"`
				Requires string          `json:"requires"`
				Body     json.RawMessage `json:"body"`
			} `json:"flush"`
			Disable map[string]any `json:"per_request_disable"`
		} `json:"cache_control"`
		Stream struct {
			Usage *struct {
				Options json.RawMessage `json:"stream_options"`
			} `json:"usage_request"`
			Unknown string `json:"unknown_fields"`
		} `json:"stream"`
		Timings *struct {
			Where string `json:"where"`
		} `json:"server_timings"`
		Metadata []struct {
			Path   string `json:"path"`
			Method string `json:"method"`
		} `json:"metadata_endpoints"`
		Prometheus map[string]json.RawMessage `json:"prometheus"`
	}
	knownSeries struct {
		Name    string   `json:"name"`
		Type    string   `json:"type"`
		Unit    string   `json:"unit"`
		Label   string   `json:"label"`
		Aliases []string `json:"aliases"`
	}
)

func knownDialects(t *testing.T) []knownDialect {
	t.Helper()
	b, err := os.ReadFile("testdata/dialects.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Dialects []knownDialect `json:"dialects"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Dialects) < 20 {
		t.Fatalf("only %d dialects in the file", len(file.Dialects))
	}
	return file.Dialects
}

// firstWord drops the remarks that follow a field's name.
func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

func TestTableAgreesWithKnownDialects(t *testing.T) {
	seen := map[string]bool{}
	for _, want := range knownDialects(t) {
		seen[want.ID] = true
		t.Run(want.ID, func(t *testing.T) {
			d, err := ByName(want.ID)
			if want.Detect == nil {
				if err == nil || !strings.Contains(err.Error(), "offline") {
					t.Fatalf("a dialect without a server: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkFields(t, d, want)
			checkDetection(t, d, want)
			checkMetrics(t, d, want)
		})
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("dialect %s stands in no file: add it to dialects.json", name)
		}
	}
	if _, err := ByName("vllmm"); err == nil || !strings.Contains(err.Error(), "sglang") {
		t.Errorf("a misspelt name does not list those known: %v", err)
	}
}

func checkFields(t *testing.T, d Dialect, want knownDialect) {
	const n = 7
	fields := decode(t, d, Ask{Exact: n}, n)
	if want.Length.Exact == nil {
		if d.CanExact() {
			t.Error("the length cannot be forced there")
		}
	} else {
		exact := map[string]any{}
		for k, v := range want.Length.Exact {
			if v == "N" {
				v = float64(n)
			}
			exact[k] = v
		}
		if diff := cmp.Diff(exact, fields); diff != "" {
			t.Errorf("exact length (-known +sent): %s", diff)
		}
	}
	var limits []string
	for _, l := range want.Length.Max {
		limits = append(limits, firstWord(l))
	}
	slices.Sort(limits)
	if diff := cmp.Diff(limits, slices.Sorted(slices.Values(d.ChatLimits))); diff != "" {
		t.Errorf("output limits (-known +table): %s", diff)
	}
	if got := want.Determinism.Seed; !strings.HasPrefix(got, "--") && firstWord(got) != d.Seed {
		t.Errorf("seed is %q, known is %q", d.Seed, got)
	}
	greedy := map[string]any{"temperature": 0.0}
	if want.Determinism.TopK != "" {
		greedy[want.Determinism.TopK] = 1.0
	}
	for k, v := range want.Determinism.Extra {
		if k != "provider" { // which one, only the user knows
			greedy[k] = v
		}
	}
	if diff := cmp.Diff(greedy, decode(t, d, Ask{Greedy: true}, 0)); diff != "" {
		t.Errorf("greedy (-known +sent): %s", diff)
	}
	if got := firstWord(want.Cache.Salt); got != d.CacheSalt {
		t.Errorf("cache salt is %q, known is %q", d.CacheSalt, got)
	}
	none := decode(t, d, Ask{NoCache: true}, 0)
	if diff := cmp.Diff(want.Cache.Disable, none); diff != "" && len(none)+len(want.Cache.Disable) > 0 {
		t.Errorf("without cache (-known +sent): %s", diff)
	}
	// A call for each slot is not one call.
	if f := want.Cache.Flush; f != nil && !strings.Contains(f.Path, "{") {
		if f.Method != d.Reset.Method || f.Path != d.Reset.Path || f.Requires != "" && f.Requires != d.Reset.Requires {
			t.Errorf("cache reset is %+v, known is %+v", d.Reset, *f)
		}
		if f.Body != nil && !sameJSON(t, f.Body, []byte(d.Reset.Body)) {
			t.Errorf("body of the reset is %s, known is %s", d.Reset.Body, f.Body)
		}
	} else if d.Reset.Path != "" {
		t.Errorf("cache reset %+v is not known", d.Reset)
	}
	switch u := want.Stream.Usage; {
	case u == nil && d.StreamOptions != "":
		t.Errorf("sends stream_options %s, none is known", d.StreamOptions)
	case u != nil && !sameJSON(t, u.Options, []byte(d.StreamOptions)):
		t.Errorf("stream_options is %s, known is %s", d.StreamOptions, u.Options)
	}
	refuses := strings.Contains(want.Stream.Unknown, "REJECTED") || strings.Contains(want.Stream.Unknown, "400")
	if refuses != d.Strict {
		t.Errorf("strict is %v, known is %q", d.Strict, want.Stream.Unknown)
	}
	switch {
	case want.Timings == nil && d.Timings != "":
		t.Errorf("timings in %q are not known", d.Timings)
	case want.Timings != nil && want.Timings.Where != d.Timings:
		t.Errorf("timings in %q, known is %q", d.Timings, want.Timings.Where)
	}
}

// decode builds a chat body and returns what is not in every body.
func decode(t *testing.T, d Dialect, ask Ask, tokens int) map[string]any {
	t.Helper()
	fields, err := d.Fields(ask)
	if err != nil {
		t.Fatal(err)
	}
	body, err := openai.Body(openai.Chat, workloads.Request{Prompt: "x", OutputTokens: tokens, Extra: fields}, d.Options(openai.Chat, openai.BodyOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatal(err)
	}
	delete(out, "messages")
	return out
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return cmp.Equal(x, y)
}

// What Detect does not ask, since one of the dialect's other clues is enough,
// or since it would prove too little.
var unasked = []string{"/version", "/health/ready", "/health/liveliness", "/api/version", "/v1/health/ready", "/v1/metrics"}

func checkDetection(t *testing.T, d Dialect, want knownDialect) {
	for _, c := range want.Detect {
		switch {
		case c.Host != "":
			if !slices.Contains(d.Hosts, c.Host) {
				t.Errorf("host %s is not in the table", c.Host)
			}
		case c.Path != "" && !slices.Contains(unasked, c.Path):
			var equals string
			_ = json.Unmarshal(c.Equals, &equals)
			if !slices.ContainsFunc(d.clues, func(have clue) bool {
				return have.path == c.Path && (have.header != "" || have.equals == equals && have.contains == c.Contains && (c.JSON == "" || c.JSON == have.json))
			}) {
				t.Errorf("the clue %+v is not in the table", c)
			}
		}
	}
	for _, c := range d.clues {
		if strings.EqualFold(c.header, "server") && c.and == nil {
			t.Error("the Server header alone decides")
		}
		if !slices.Contains(probes, c.path) {
			t.Errorf("nobody asks %s", c.path)
		}
	}
	asked := map[string]bool{}
	for _, m := range want.Metadata {
		asked[m.Path] = true
	}
	for _, doc := range d.documents {
		// The generic list may be asked of anybody.
		if !asked[doc.path] && doc.path != models && !asked["/openai"+doc.path] && !asked["/api"+doc.path] {
			t.Errorf("document %s is not known", doc.path)
		}
	}
}

// Series that the table leaves out on purpose.
var leftOut = map[string]string{
	"spec_accepted_per_pos":   "a series for each position",
	"iteration_tokens":        "another quantity with each server",
	"sglang cached_tokens":    "needs three of its labels; prefix_hits has the sum",
	"dynamo cached_tokens":    "a rate that the router predicts",
	"litellm queue_time":      "its own overhead, in a unit that changed",
	"trtllm preemptions":      "a gauge of the moment",
	"llm-d-sim spec_drafts":   "the table is vLLM's",
	"llm-d-sim cached_tokens": "the table is vLLM's",
}

func checkMetrics(t *testing.T, d Dialect, want knownDialect) {
	var path string
	_ = json.Unmarshal(want.Prometheus["path"], &path)
	if path != d.Metrics.Path {
		t.Errorf("metrics path is %q, known is %q", d.Metrics.Path, path)
	}
	for name, raw := range want.Prometheus {
		var s knownSeries
		if json.Unmarshal(raw, &s) != nil || s.Name == "" || leftOut[name] != "" || leftOut[d.Name+" "+name] != "" {
			continue
		}
		have, ok := d.Metrics.Series[Metric(name)]
		if !ok {
			t.Errorf("%s: %s is not in the table", name, s.Name)
			continue
		}
		if diff := cmp.Diff(s.Name, seriesText(have, s)); diff != "" {
			t.Errorf("%s (-known +table): %s", name, diff)
		}
		var aliases []string
		for _, a := range s.Aliases {
			aliases = append(aliases, firstWord(a))
		}
		if d.Name != "llm-d-sim" || aliases != nil { // its table is vLLM's, with all that had other names
			if diff := cmp.Diff(aliases, append([]string(nil), have.Names[1:]...)); diff != "" {
				t.Errorf("aliases of %s (-known +table): %s", name, diff)
			}
		}
		scale := map[string]float64{"us,": 1e-6, "ms": 1e-3}[firstWord(s.Unit)]
		if have.Scale != scale {
			t.Errorf("%s: scale is %g for the unit %s", name, have.Scale, s.Unit)
		}
		if have.Label != "" && !strings.Contains(s.Name+s.Label, fmt.Sprintf("%s=%q", have.Label, have.Value)) {
			t.Errorf("%s: the label %s=%q is not known (%s)", name, have.Label, have.Value, s.Label)
		}
	}
	if d.Name == "llm-d-sim" {
		return
	}
	for m := range d.Metrics.Series {
		if raw := want.Prometheus[string(m)]; len(raw) == 0 || string(raw) == "null" {
			t.Errorf("%s is in the table and not known", m)
		}
	}
}

func seriesText(s Series, known knownSeries) string {
	text := s.Names[0]
	if strings.Contains(known.Name, "{") {
		text += fmt.Sprintf("{%s=%q}", s.Label, s.Value)
	}
	if s.Plus != "" {
		text += " + " + s.Plus
	}
	if s.Over != "" {
		text += " / " + s.Over
	}
	return text
}

func TestEachMetricHasAKind(t *testing.T) {
	for _, d := range append(slices.Clone(dialects), Dialect{Name: "dcgm", Metrics: DCGM()}) {
		for m, s := range d.Metrics.Series {
			if kinds[m] == 0 || len(s.Names) == 0 {
				t.Errorf("%s: %s has no kind or no name", d.Name, m)
			}
		}
	}
}

func TestBodies(t *testing.T) {
	var out bytes.Buffer
	seed := int64(42)
	for _, name := range Names() {
		d := mustBe(name)
		for _, endpoint := range []openai.EndpointType{openai.Chat, openai.Completions} {
			for _, c := range []struct {
				name string
				ask  Ask
			}{
				{"plain", Ask{}},
				{"exact", Ask{Exact: 128}},
				{"greedy with seed", Ask{Greedy: true, Seed: &seed}},
				{"all", Ask{Exact: 128, Greedy: true, Seed: &seed, CacheSalt: "run-1", NoCache: true, Timings: true}},
			} {
				fields, err := d.Fields(c.ask)
				if err != nil {
					t.Fatal(err)
				}
				req := workloads.Request{Prompt: "Hi", OutputTokens: 128, Extra: fields}
				body, err := openai.Body(endpoint, req, d.Options(endpoint, openai.BodyOptions{Model: "m", Stream: true, IncludeUsage: true}))
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&out, "%s, %s, %s\n%s\n", name, endpoint, c.name, body)
				if lacks := d.Lacks(c.ask); len(lacks) > 0 {
					fmt.Fprintf(&out, "lacks %s\n", strings.Join(lacks, ", "))
				}
				out.WriteByte('\n')
			}
		}
	}
	const file = "testdata/bodies.golden"
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("bodies (-golden +got; -update writes them): %s", d)
	}
}

func TestUsersFieldsWin(t *testing.T) {
	d := mustBe("openai")
	opt := d.Options(openai.Chat, openai.BodyOptions{
		Stream: true, IncludeUsage: true, MaxTokensField: "max_tokens",
		Extra: map[string]json.RawMessage{"stream_options": json.RawMessage(`{}`), "seed": json.RawMessage("1")},
	})
	if opt.MaxTokensField != "max_tokens" || string(opt.Extra["stream_options"]) != "{}" {
		t.Errorf("the user's own options are %+v", opt)
	}
	if _, err := d.Fields(Ask{CacheSalt: "a/b"}); err != nil {
		t.Errorf("a salt that is not sent need not be valid: %v", err)
	}
	for _, salt := range []string{"a/b", "a@b", strings.Repeat("x", 129)} {
		if _, err := mustBe("vllm").Fields(Ask{CacheSalt: salt}); err == nil {
			t.Errorf("salt %.10q… is let through, and the server would refuse it", salt)
		}
	}
}

func TestRoot(t *testing.T) {
	for in, want := range map[string]string{
		"http://h:8000/v1/chat/completions":            "http://h:8000",
		"http://h:8000/v1/":                            "http://h:8000",
		"http://h:8000":                                "http://h:8000",
		"https://h/gateway/v1/completions?key=s":       "https://h/gateway?key=s",
		"https://api.groq.com/openai/v1/models":        "https://api.groq.com/openai",
		"https://api.deepseek.com/chat/completions":    "https://api.deepseek.com",
		"https://h/openai/deployments/d/v1/x/v1/chat/": "https://h/openai/deployments/d/v1/x",
		"https://h/openai/deployments/d/embeddings":    "https://h/openai/deployments/d",
		"https://h/openai/responses?api-version=1":     "https://h/openai?api-version=1",
		"https://h/embeddings/v1/chat/completions":     "https://h/embeddings",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := Root(u).String(); got != want {
			t.Errorf("Root(%s) = %s, want %s", in, got, want)
		}
	}
}

// TestTellsTimings: only what is read is claimed.
func TestTellsTimings(t *testing.T) {
	want := []string{"vllm", "nim", "dynamo", "llamacpp", "groq"}
	for _, name := range Names() {
		if got := mustBe(name).TellsTimings(); got != slices.Contains(want, name) {
			t.Errorf("%s tells timings: %v", name, got)
		}
	}
}

func TestDialectWithout(t *testing.T) {
	refused := func(fields ...string) (list []record.DroppedField) {
		for _, f := range fields {
			list = append(list, record.DroppedField{Field: f})
		}
		return list
	}
	type able struct{ exact, salt, timings bool }
	for _, c := range []struct {
		dialect string
		refused []string
		want    able
	}{
		{"vllm", nil, able{true, true, true}},
		{"vllm", []string{"min_tokens"}, able{true, true, true}},
		{"vllm", []string{"min_tokens", "ignore_eos", "cache_salt"}, able{timings: true}},
		{"dynamo", []string{"nvext"}, able{exact: true}},
		{"tgi", []string{"max_completion_tokens"}, able{}},
	} {
		d := mustBe(c.dialect).Without(refused(c.refused...))
		if got := (able{d.CanExact(), d.CacheSalt != "", d.TellsTimings()}); got != c.want {
			t.Errorf("%s without %v: %+v, want %+v", c.dialect, c.refused, got, c.want)
		}
		if before := mustBe(c.dialect); c.dialect == "vllm" && (before.MinTokens == "" || before.CacheSalt == "") {
			t.Fatal("the table was changed")
		}
	}
}
