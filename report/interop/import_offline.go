package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
)

// offlineLine is one line of the neutral format: a request of an engine that
// has no server, or the head of the file. Times are on one clock whose zero
// does not matter: the monotonic clock, or since 1970. Each is either an integer
// of nanoseconds (…_ns) or a number of seconds (…_s).
type offlineLine struct {
	// The head, if there is one, is the first line.
	Head       *int              `json:"tokmark_offline"` // version: 1
	Engine     string            `json:"engine"`
	Clock      string            `json:"clock"`      // unix, if times count from 1970
	Conditions map[string]string `json:"conditions"` // gpu, dtype, …

	StartNS *int64   `json:"start_ns"`
	StartS  *float64 `json:"start_s"`
	DueNS   *int64   `json:"due_ns"`
	DueS    *float64 `json:"due_s"`
	EndNS   *int64   `json:"end_ns"`
	EndS    *float64 `json:"end_s"`
	// TokenTimes are the times at which output appeared, ascending; without
	// them the request was not streamed and its output came at its end.
	TokenTimesNS []int64   `json:"token_times_ns"`
	TokenTimesS  []float64 `json:"token_times_s"`
	// Tokens are how many tokens came at each of these times; absent: not
	// known.
	Tokens []int64 `json:"tokens"`
	// Counts of the whole request.
	Input     *int64 `json:"input_tokens"`
	Output    *int64 `json:"output_tokens"` // without reasoning
	Reasoning *int64 `json:"reasoning_tokens"`
	Cached    *int64 `json:"cached_tokens"`
	Asked     *int64 `json:"max_tokens"`

	Model   string `json:"model"`
	Session string `json:"session"`
	Turn    int    `json:"turn"`
	Class   string `json:"class"`
	Phase   string `json:"phase"` // warmup, or measure (the default)
	Error   string `json:"error"` // the request failed
}

// OfflineFields lists the fields of a line, for the help.
var OfflineFields = []string{
	"start_ns", "due_ns", "end_ns", "token_times_ns", "tokens", "input_tokens", "output_tokens", "reasoning_tokens",
	"cached_tokens", "max_tokens", "model", "session", "turn", "class", "phase", "error",
}

// offline reads a line of the neutral format.
func (im *importer) offline(line []byte) error {
	var in offlineLine
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return fmt.Errorf("the field %s is not known; there are %s (or …_s in seconds)", name, strings.Join(OfflineFields, ", "))
		}
		return err
	}
	if in.Head != nil {
		return im.offlineHead(&in)
	}
	start, err := offlineTime("start", in.StartNS, in.StartS)
	due, err2 := offlineTime("due", in.DueNS, in.DueS)
	end, err3 := offlineTime("end", in.EndNS, in.EndS)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	if !start.IsSet() {
		return errors.New("start_ns is missing")
	}
	at := make([]record.Time, 0, len(in.TokenTimesNS)+len(in.TokenTimesS))
	for _, ns := range in.TokenTimesNS {
		at = append(at, record.Time(ns))
	}
	for _, s := range in.TokenTimesS {
		ns, ok := nanoseconds(s)
		if !ok {
			return fmt.Errorf("token_times_s holds %v, which is no time", s)
		}
		at = append(at, ns)
	}
	switch {
	case in.TokenTimesNS != nil && in.TokenTimesS != nil:
		return errors.New("token_times_ns and token_times_s exclude each other")
	case !slices.IsSorted(at):
		return errors.New("token times do not ascend")
	case len(at) > 0 && at[0] < start:
		return fmt.Errorf("the first token comes %v before the start", start.Sub(at[0]))
	case end.IsSet() && len(at) > 0 && end < at[len(at)-1]:
		return fmt.Errorf("the end comes %v before the last token", at[len(at)-1].Sub(end))
	case end.IsSet() && end < start:
		return fmt.Errorf("the end comes %v before the start", start.Sub(end))
	case in.Tokens != nil && len(in.Tokens) != len(at):
		return fmt.Errorf("%d counts in tokens for %d token times", len(in.Tokens), len(at))
	}
	counts := [5]record.Count{}
	for i, c := range []*int64{in.Input, in.Output, in.Reasoning, in.Cached, in.Asked} {
		counts[i] = record.Unknown
		if c != nil {
			if *c < 0 {
				return fmt.Errorf("a count of tokens is %d", *c)
			}
			counts[i] = record.Count(*c)
		}
	}
	r := record.New(record.PhaseMeasure, 0)
	switch in.Phase {
	case "", string(record.PhaseMeasure):
	case string(record.PhaseWarmup):
		r.Phase = record.PhaseWarmup
	default:
		return fmt.Errorf("the phase is %q: use measure or warmup", in.Phase)
	}
	r.Start, r.Due, r.End = start, due, end
	r.Model, r.Session, r.Turn, r.Class = in.Model, in.Session, in.Turn, in.Class
	r.AskedOutput = counts[4]
	switch {
	case in.Error != "":
		r.Outcome, r.Failure = record.ServerError, &record.Failure{Message: in.Error}
	case len(at) > 0:
		received(r, at, true)
	case end.IsSet():
		received(r, []record.Time{end}, false)
	default:
		return errors.New("neither token_times_ns nor end_ns nor error is given")
	}
	var sum record.Count
	for i, n := range in.Tokens {
		if n < 0 || n >= record.UnknownTokens {
			return fmt.Errorf("tokens[%d] is %d", i, n)
		}
		sum += record.Count(n)
		if i < len(r.Chunks) {
			r.Chunks[i].Tokens = uint16(n)
		}
	}
	if in.Tokens != nil && counts[1] < 0 && counts[2] < 0 {
		counts[1] = sum
	}
	r.Tokens = record.Tokens{Input: counts[0], Output: counts[1], Reasoning: counts[2], Cached: counts[3]}
	if r.Tokens != unknownTokens() {
		r.Tokens.Source = record.SourceTokenIDs // the engine's own ids
	}
	im.add(r)
	return nil
}

func (im *importer) offlineHead(in *offlineLine) error {
	switch {
	case *in.Head != 1:
		return fmt.Errorf("version %d of the format is not known: this tokmark knows 1", *in.Head)
	case len(im.records) > 0:
		return errors.New("the head is not the first line")
	case in.Clock != "" && in.Clock != "unix" && in.Clock != "monotonic":
		return fmt.Errorf("the clock is %q: use unix or monotonic", in.Clock)
	}
	im.wall = in.Clock == "unix"
	im.m.Target.Model = in.Model
	if in.Engine != "" {
		im.m.Conditions = append(im.m.Conditions, record.Condition{Name: "engine", Value: in.Engine, Source: "declared", From: im.m.Imported.File})
	}
	names := make([]string, 0, len(in.Conditions))
	for name := range in.Conditions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		im.m.Conditions = append(im.m.Conditions, record.Condition{Name: name, Value: in.Conditions[name], Source: "declared", From: im.m.Imported.File})
	}
	return nil
}

// offlineTime is a time that is given in one of two ways, or Unset.
func offlineTime(name string, ns *int64, s *float64) (record.Time, error) {
	switch {
	case ns != nil && s != nil:
		return record.Unset, fmt.Errorf("%s_ns and %s_s exclude each other", name, name)
	case ns != nil && *ns >= 0:
		return record.Time(*ns), nil
	case ns != nil:
		return record.Unset, fmt.Errorf("%s_ns is %d: times are not negative", name, *ns)
	case s != nil:
		t, ok := nanoseconds(*s)
		if !ok {
			return record.Unset, fmt.Errorf("%s_s is %v, which is no time", name, *s)
		}
		return t, nil
	default:
		return record.Unset, nil
	}
}
