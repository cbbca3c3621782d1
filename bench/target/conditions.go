package target

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	dto "github.com/prometheus/client_model/go"

	"github.com/tokmark/tokmark/bench/record"
)

// The sources of a condition.
const (
	Probed   = "probed"   // the server told it
	Declared = "declared" // the user told it
	Unknown  = "unknown"
)

// The names of conditions.
const (
	Model             = "model"
	ModelRoot         = "model_root" // the name or path that it was loaded from
	Revision          = "model_revision"
	WeightVersion     = "weight_version"
	Parameters        = "parameters"
	ModelBytes        = "model_bytes"
	MaxModelLen       = "max_model_len" // tokens of prompt and output
	Tokenizer         = "tokenizer"
	ChatTemplate      = "chat_template" // the start of its SHA-256
	Engine            = "engine"        // the dialect
	EngineVersion     = "engine_version"
	Front             = "front_end" // the dialect of what stands before the engine
	FrontVersion      = "front_end_version"
	Build             = "build"
	Profile           = "profile"
	Precision         = "precision"
	Quantization      = "quantization"
	TensorParallel    = "tensor_parallel"
	PipelineParallel  = "pipeline_parallel"
	DataParallel      = "data_parallel"
	ExpertParallel    = "expert_parallel"
	PrefixCache       = "prefix_cache" // on, off
	BlockSize         = "kv_block_size"
	CachePrecision    = "kv_cache_precision"
	CacheCapacity     = "kv_cache_capacity" // blocks, or tokens with SGLang
	MemoryShare       = "gpu_memory_share"
	MaxBatch          = "max_batch"        // requests
	MaxBatchTokens    = "max_batch_tokens" // a step
	PrefillChunk      = "prefill_chunk"
	SpeculativeMethod = "speculative_method" // none: no speculation
	SpeculativeTokens = "speculative_tokens"
	StreamInterval    = "stream_interval"
	AttentionBackend  = "attention_backend"
	Deterministic     = "deterministic"
	GPU               = "gpu"
	GPUCount          = "gpu_count"
	Driver            = "driver"
	ProcessStart      = "process_start" // Unix seconds
)

// order is the order of conditions, and says which of them are listed as
// unknown: those that any comparison asks for.
var order = []struct {
	name   string
	always bool
}{
	{Model, true},
	{ModelRoot, true},
	{Revision, true},
	{WeightVersion, false},
	{Parameters, false},
	{ModelBytes, false},
	{MaxModelLen, true},
	{Tokenizer, true},
	{ChatTemplate, true},
	{Engine, true},
	{EngineVersion, true},
	{Front, false},
	{FrontVersion, false},
	{Build, false},
	{Profile, false},
	{Precision, true},
	{Quantization, true},
	{TensorParallel, true},
	{PipelineParallel, true},
	{DataParallel, true},
	{ExpertParallel, false},
	{PrefixCache, true},
	{BlockSize, true},
	{CachePrecision, true},
	{CacheCapacity, false},
	{MemoryShare, false},
	{MaxBatch, true},
	{MaxBatchTokens, false},
	{PrefillChunk, false},
	{SpeculativeMethod, true},
	{SpeculativeTokens, false},
	{StreamInterval, false},
	{AttentionBackend, false},
	{Deterministic, false},
	{GPU, true},
	{GPUCount, true},
	{Driver, true},
	{ProcessStart, false},
}

// document is one answer about the server, and what of it is kept: nothing but
// the keys leaves it.
type document struct {
	path string
	keys []key
}

// key is a place in a document (a path) or in the metrics (a series, or
// series{label}), and the condition that it tells.
type key struct {
	at, name string
	form     form
}

// form is how a value is written as a condition.
type form uint8

const (
	asIs     form = iota
	onOff         // a truth value as on or off
	inverted      // the same, the other way round
	orNone        // null means that there is none
	hashed        // long text as the start of its SHA-256
)

// renamed are documents that were moved, by the path that is asked first.
var renamed = map[string]string{
	"/get_server_info": "/server_info",
	"/get_model_info":  "/model_info",
}

// Conditions collects the facts that a comparison of runs depends on, in a
// fixed order: what the server tells, what the user declares as name=value, and
// what nobody does, as unknown. What the server tells wins over a declaration;
// where they differ there is a warning. A declaration of another name than
// those of this package is kept at the end. modelName is the model asked for;
// gpus, if not nil, reads a DCGM exporter or nvidia-smi.
//
// A source that does not answer is left out. The only error is a declaration
// that is none.
func (s *Server) Conditions(ctx context.Context, d Dialect, f Facts, modelName string, gpus *Scraper, declared []string) (list []record.Condition, warnings []string, err error) {
	c := conditions{}
	if f.Engine != "" {
		c.add(Front, d.Name, "detection")
		c.add(Engine, f.Engine, "detection")
	} else if d.Name != generic {
		c.add(Engine, d.Name, "detection")
	}
	answers := map[string]*answer{}
	for _, doc := range d.documents {
		a, path := s.document(ctx, doc.path, answers)
		v := a.json()
		for _, k := range doc.keys {
			if found, ok := lookup(v, k.at, modelName); ok {
				c.add(k.name, k.form.text(found), "GET "+path)
			} else if k.name == Model && lists(v, k.at) {
				c.unlisted("GET " + path)
			}
		}
	}
	if d.Metrics.Path != "" && len(d.infos) > 0 {
		if a, err := s.get(ctx, d.Metrics.Path); err == nil {
			if families, err := parse(a); err == nil {
				for _, k := range d.infos {
					if found, ok := info(families, k.at); ok {
						c.add(k.name, k.form.text(found), "GET "+d.Metrics.Path)
					}
				}
			}
		}
	}
	if gpus != nil {
		c.addGPUs(ctx, gpus)
	}
	return c.list(declared)
}

// DeclaredConditions are what the user declares as name=value, of a server that
// is not asked.
func DeclaredConditions(declared []string) ([]record.Condition, error) {
	list, _, err := conditions{}.list(declared)
	return slices.DeleteFunc(list, func(c record.Condition) bool { return c.Source == Unknown }), err
}

// document gets a document from where it is now or where it was.
func (s *Server) document(ctx context.Context, path string, answers map[string]*answer) (*answer, string) {
	for {
		a, ok := answers[path]
		if !ok {
			a, _ = s.get(ctx, path) // no answer, no conditions
			answers[path] = a
		}
		bare, _, _ := strings.Cut(path, "?")
		other, moved := renamed[path]
		if a.ok() || !moved {
			return a, bare
		}
		path = other
	}
}

// conditions are those found, by name; the first source of each counts.
type conditions map[string]record.Condition

func (c conditions) add(name, value, from string) {
	if c[name].Value != "" || value == "" {
		return
	}
	c[name] = record.Condition{Name: name, Value: value, Source: Probed, From: from}
}

// unlisted keeps that a list of models was read which does not have the one
// asked for: an unknown that says from where. Servers answer to names that they
// do not list, so this is no fault; Changes tells if it was listed before.
func (c conditions) unlisted(from string) {
	if c[Model].Value == "" {
		c[Model] = record.Condition{Name: Model, Source: Unknown, From: from}
	}
}

// lists reports whether the list that a path leads through is there.
func lists(v any, path string) bool {
	before, _, ok := strings.Cut(path, "[*]")
	found, _ := lookup(v, before, "")
	_, list := found.([]any)
	return ok && list
}

// addGPUs reads what the labels say of the GPUs.
func (c conditions) addGPUs(ctx context.Context, gpus *Scraper) {
	families, err := gpus.families(ctx)
	if err != nil {
		return
	}
	names, drivers, cards := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, series := range gpus.Metrics.Series {
		for _, name := range series.Names {
			for _, m := range families[name].GetMetric() {
				for _, l := range m.GetLabel() {
					switch l.GetName() {
					case "modelName":
						names[l.GetValue()] = true
					case "DCGM_FI_DRIVER_VERSION":
						drivers[l.GetValue()] = true
					case "UUID":
						cards[l.GetValue()] = true
					}
				}
			}
		}
	}
	from := "DCGM exporter"
	if gpus.smi != "" {
		from = "nvidia-smi"
	}
	c.add(GPU, joined(names), from)
	c.add(Driver, joined(drivers), from)
	if len(cards) > 0 {
		c.add(GPUCount, strconv.Itoa(len(cards)), from)
	}
}

func joined(set map[string]bool) string {
	var out []string
	for v := range set {
		out = append(out, plain(v))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// list puts all in order.
func (c conditions) list(declared []string) (list []record.Condition, warnings []string, err error) {
	said := map[string]string{}
	var own []string // names of the user's own
	for _, text := range declared {
		name, value, ok := strings.Cut(text, "=")
		name, value = strings.TrimSpace(name), plain(value)
		if !ok || name == "" || value == "" {
			return nil, nil, fmt.Errorf("condition %q: want name=value, as %s=H100", text, GPU)
		}
		if old, twice := said[name]; twice && old != value {
			return nil, nil, fmt.Errorf("condition %q: declared twice, as %q and %q", name, old, value)
		}
		if _, twice := said[name]; !twice && !slices.ContainsFunc(order, func(o struct {
			name   string
			always bool
		}) bool {
			return o.name == name
		}) {
			own = append(own, name)
		}
		said[name] = value
	}
	for _, o := range order {
		found := c[o.name]
		value, told := said[o.name]
		switch {
		case found.Value != "":
			list = append(list, found)
			if told && !strings.EqualFold(value, found.Value) {
				warnings = append(warnings, fmt.Sprintf("condition %s is declared as %q, and %s tells %q", o.name, value, found.From, found.Value))
			}
		case told:
			list = append(list, record.Condition{Name: o.name, Value: value, Source: Declared})
		case o.always:
			list = append(list, record.Condition{Name: o.name, Source: Unknown, From: found.From})
		}
	}
	for _, name := range own {
		list = append(list, record.Condition{Name: name, Value: said[name], Source: Declared})
	}
	return list, warnings, nil
}

// info reads a series' value, or one of its labels. Engines that differ in it
// are all named.
func info(families map[string]*dto.MetricFamily, at string) (any, bool) {
	name, label, labelled := strings.Cut(strings.TrimSuffix(at, "}"), "{")
	values := map[string]bool{}
	for _, m := range families[name].GetMetric() {
		if !labelled {
			if v, ok := number(m); ok {
				values[strconv.FormatFloat(v, 'f', -1, 64)] = true
			}
			continue
		}
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				values[l.GetValue()] = true
			}
		}
	}
	return joined(values), len(values) > 0
}

// text writes a value; empty: it says nothing.
func (f form) text(v any) string {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case json.Number:
		s = v.String()
	case bool:
		s = strconv.FormatBool(v)
	case nil:
		if f == orNone {
			return "none"
		}
		return ""
	default:
		return ""
	}
	switch f {
	case hashed:
		if s == "" {
			return ""
		}
		sum := sha256.Sum256([]byte(s))
		return "sha256:" + hex.EncodeToString(sum[:8])
	case onOff, inverted:
		switch on, err := strconv.ParseBool(strings.ToLower(s)); {
		case err != nil:
		case on == (f == onOff):
			return "on"
		default:
			return "off"
		}
	}
	if s == "None" || s == "null" {
		return ""
	}
	return plain(s)
}

// plain is a value in one line of bounded length.
func plain(s string) string {
	const longest = 200 // characters
	var out strings.Builder
	n := 0
	for _, r := range strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD")) {
		if n++; n > longest {
			out.WriteRune('…')
			break
		}
		if unicode.IsControl(r) || unicode.IsSpace(r) {
			r = ' '
		}
		out.WriteRune(r)
	}
	return out.String()
}

// Change is a condition that differs between two moments or runs. After is
// empty if the server then no longer listed it.
type Change struct {
	Name          string
	Before, After string
}

func (c Change) String() string {
	if c.After == "" {
		return fmt.Sprintf("%s: %s is no longer listed", c.Name, c.Before)
	}
	return fmt.Sprintf("%s: %s became %s", c.Name, c.Before, c.After)
}

// Changes returns the conditions that have another value after than before, in
// the order of before. What is unknown at one of the two moments has not
// changed: nobody knows. A model that was listed and is missing from a list
// that could be read has.
func Changes(before, after []record.Condition) []Change {
	then := map[string]record.Condition{}
	for _, c := range after {
		then[c.Name] = c
	}
	var out []Change
	for _, c := range before {
		now := then[c.Name]
		gone := now.Value == "" && now.From != ""
		if c.Value == "" || c.Value == now.Value || now.Value == "" && !(gone && c.Source == Probed) {
			continue
		}
		out = append(out, Change{c.Name, c.Value, now.Value})
	}
	return out
}
