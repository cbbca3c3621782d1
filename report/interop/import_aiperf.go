package interop

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
)

type aiperfMeta struct {
	ConversationID *string `json:"conversation_id"`
	Turn           int     `json:"turn_index"`
	Issued         *int64  `json:"credit_issued_ns"`
	Start          *int64  `json:"request_start_ns"`
	Ack            *int64  `json:"request_ack_ns"`
	End            *int64  `json:"request_end_ns"`
	Phase          string  `json:"benchmark_phase"`
	Cancelled      bool    `json:"was_cancelled"`
}

type aiperfError struct {
	Code    *int   `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

// record starts a record from the metadata.
func (im *importer) aiperfMeta(meta *aiperfMeta) (*record.Record, error) {
	if meta == nil || meta.Start == nil {
		return nil, errors.New("metadata.request_start_ns is missing")
	}
	im.wall = true
	r := record.New(record.PhaseMeasure, 0)
	switch meta.Phase {
	case "warmup":
		r.Phase = record.PhaseWarmup
	case "profiling", "":
	default:
		return nil, fmt.Errorf("metadata.benchmark_phase %q is not known", meta.Phase)
	}
	r.Start, r.Turn = record.Time(*meta.Start), meta.Turn
	if meta.ConversationID != nil {
		r.Session = *meta.ConversationID
	}
	for _, t := range []struct {
		from *int64
		to   *record.Time
	}{{meta.Issued, &r.Due}, {meta.Ack, &r.FirstByte}, {meta.End, &r.End}} {
		if t.from != nil {
			*t.to = record.Time(*t.from)
		}
	}
	if r.Start < 0 || r.End.IsSet() && r.End < r.Start {
		return nil, fmt.Errorf("metadata: the request ends at %d, before its start at %d", r.End, r.Start)
	}
	return r, nil
}

// aiperfFailure maps an error of AIPerf to an outcome.
func aiperfFailure(r *record.Record, e *aiperfError, cancelled bool) {
	outcome, code := record.Reset, 0
	if e != nil && e.Code != nil {
		code = *e.Code
	}
	kind := ""
	if e != nil {
		kind = e.Type
	}
	switch {
	case cancelled || code == 499:
		outcome, code = record.Cancelled, 0
	case isOutcome(kind):
		outcome = record.Outcome(kind) // written by us
	case code == 429:
		outcome = record.RateLimited
	case code >= 500:
		outcome = record.ServerError
	case code >= 300:
		outcome = record.ClientError
	case strings.Contains(kind, "Timeout"):
		outcome = record.TotalTimeout
	case strings.Contains(kind, "Connect"):
		outcome = record.ConnectFailed
	case strings.Contains(kind, "InvalidInferenceResult"):
		outcome = record.Empty
	}
	r.Outcome, r.Status = outcome, code
	if e != nil {
		r.Failure = &record.Failure{Message: e.Message, Type: kind}
		if isOutcome(kind) {
			r.Failure.Type = ""
		}
	}
}

func isOutcome(s string) bool {
	for _, o := range record.Outcomes {
		if string(o) == s && o != record.OK {
			return true
		}
	}
	return false
}

// aiperfRecord reads a line of profile_export.jsonl.
func (im *importer) aiperfRecord(line []byte) error {
	var in struct {
		Metadata *aiperfMeta `json:"metadata"`
		Metrics  map[string]struct {
			Value json.RawMessage `json:"value"`
			Unit  string          `json:"unit"`
		} `json:"metrics"`
		Error *aiperfError `json:"error"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return err
	}
	r, err := im.aiperfMeta(in.Metadata)
	if err != nil {
		return err
	}
	im.lacks("which event carried what: kinds are told apart by the time to the first output token alone")
	im.lacks("connections, the time that the request was written, and events without output")
	number := func(tag string) (float64, bool) {
		var v *float64
		if m, ok := in.Metrics[tag]; !ok || json.Unmarshal(m.Value, &v) != nil || v == nil {
			return 0, false
		}
		return *v, true
	}
	// ns is a time in nanoseconds: the tool writes milliseconds, as floats.
	ns := func(tag string) (record.Time, bool, error) {
		v, ok := number(tag)
		if !ok {
			return 0, false, nil
		}
		scale, known := map[string]float64{"ms": 1e6, "ns": 1, "s": 1e9, "sec": 1e9, "us": 1e3}[in.Metrics[tag].Unit]
		if t := math.Round(v * scale); known && t >= 0 && t < 1e18 {
			return record.Time(t), true, nil
		}
		return 0, false, fmt.Errorf("metrics.%s is %v %s: no time", tag, v, in.Metrics[tag].Unit)
	}
	count := func(tag string) record.Count {
		if v, ok := number(tag); ok && v >= 0 && v < 1e15 {
			return record.Count(v)
		}
		return record.Unknown
	}
	if in.Error != nil || in.Metadata.Cancelled {
		aiperfFailure(r, in.Error, in.Metadata.Cancelled)
		r.Tokens.Input = count("error_isl")
		im.add(r)
		return nil
	}
	latency, known, err := ns("request_latency")
	if err == nil && !known {
		err = errors.New("metrics.request_latency is missing")
	}
	ttft, streamed, err2 := ns("time_to_first_token")
	ttst, hasSecond, err3 := ns("time_to_second_token")
	ttfo, hasAnswer, err4 := ns("time_to_first_output_token")
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return err
	}
	var at []record.Time
	if streamed {
		var gaps []float64
		if m, ok := in.Metrics["inter_chunk_latency"]; ok {
			if err := json.Unmarshal(m.Value, &gaps); err != nil || m.Unit != "ms" {
				return errors.New("metrics.inter_chunk_latency is no list of milliseconds")
			}
		}
		next := r.Start + ttft
		at = append(at, next)
		for i, g := range gaps {
			if !(g >= 0) || g > 1e12 {
				return fmt.Errorf("metrics.inter_chunk_latency[%d] = %v is no gap", i, g)
			}
			next += record.Time(math.Round(g * 1e6))
			at = append(at, next)
		}
		end := r.Start + latency
		switch {
		case len(gaps) > 0:
			if d := at[len(at)-1] - end; d > 1000 || d < -1000 {
				return fmt.Errorf("metrics: first token and gaps end %d ns from the request latency", d)
			}
			at[len(at)-1] = end
		case end > r.Start+ttft:
			im.lacks("the gaps between events of some requests: only the first, second and last are there")
			if second := r.Start + ttft + ttst; hasSecond && second < end {
				at = append(at, second)
			}
			at = append(at, end)
		case hasSecond: // two events at once
			at = append(at, end)
		}
	} else {
		at = []record.Time{r.Start + latency}
	}
	received(r, at, streamed)
	r.Tokens = record.Tokens{
		Input: count("input_sequence_length"), Output: count("output_token_count"),
		Reasoning: count("reasoning_token_count"), Cached: count("cached_token_count"),
	}
	if osl := count("output_sequence_length"); osl.IsKnown() && !r.Tokens.Output.IsKnown() && !r.Tokens.Reasoning.IsKnown() {
		r.Tokens.Output = osl
	}
	r.Usage = record.Usage{
		Prompt: count("usage_prompt_tokens"), Completion: count("usage_completion_tokens"), Total: count("usage_total_tokens"),
		Reasoning: count("usage_reasoning_tokens"), Cached: record.Unknown,
	}
	if osl, ok := r.OSL(); ok {
		r.Tokens.Source = record.SourceTokenizer
		if r.Usage.Completion.IsKnown() && int64(r.Usage.Completion) == osl {
			r.Tokens.Source = record.SourceUsage
		}
	}
	im.answers = im.answers || hasAnswer
	if streamed && !hasAnswer {
		im.unanswered = append(im.unanswered, r)
	}
	for i := range r.Chunks {
		if hasAnswer && r.Chunks[i].At < r.Start+ttfo {
			r.Chunks[i].Kind = record.KindReasoning
		}
	}
	im.add(r)
	return nil
}

// reasoningOnly marks the output of requests without a time to the first
// output token as reasoning, if the tool had that metric: AIPerf 0.1 had not.
func (im *importer) reasoningOnly() {
	for _, r := range im.unanswered {
		for i := range r.Chunks {
			if im.answers || r.Tokens.Reasoning > 0 {
				r.Chunks[i].Kind = record.KindReasoning
			}
		}
	}
}

// aiperfRaw reads a line of profile_export_raw.jsonl: the answers themselves.
func (im *importer) aiperfRaw(line []byte) error {
	var in struct {
		Metadata *aiperfMeta `json:"metadata"`
		Start    int64       `json:"start_perf_ns"`
		Payload  struct {
			Model     string          `json:"model"`
			Stream    bool            `json:"stream"`
			Messages  json.RawMessage `json:"messages"`
			MaxTokens *int64          `json:"max_completion_tokens"`
			Legacy    *int64          `json:"max_tokens"`
		} `json:"payload"`
		Status    int `json:"status"`
		Responses []struct {
			At      int64 `json:"perf_ns"`
			Packets []struct {
				Name  string  `json:"name"`
				Value *string `json:"value"`
			} `json:"packets"`
			Text string `json:"text"`
		} `json:"responses"`
		Error *aiperfError `json:"error"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return err
	}
	r, err := im.aiperfMeta(in.Metadata)
	if err != nil {
		return err
	}
	im.lacks("connections, and the time that the request was written")
	r.Model, r.Status = in.Payload.Model, in.Status
	if limit := cmp.Or(in.Payload.MaxTokens, in.Payload.Legacy); limit != nil {
		r.AskedOutput = record.Count(*limit)
	}
	r.Streaming = in.Payload.Stream
	var reads []Read
	for i, resp := range in.Responses {
		if resp.At < in.Start {
			return fmt.Errorf("responses[%d] came before the request", i)
		}
		at := r.Start + record.Time(resp.At-in.Start)
		if resp.Packets == nil {
			reads = append(reads, Read{at, []byte(resp.Text)})
			continue
		}
		r.Streaming = true
		var message bytes.Buffer
		for _, p := range resp.Packets {
			if p.Value != nil && p.Name != "comment" {
				for part := range strings.Lines(*p.Value) {
					message.WriteString(p.Name + ": " + strings.TrimRight(part, "\r\n") + "\n")
				}
			}
		}
		message.WriteString("\n")
		reads = append(reads, Read{at, message.Bytes()})
	}
	im.decode(r, in.Payload.Messages != nil, reads)
	if in.Error != nil || in.Metadata.Cancelled {
		aiperfFailure(r, in.Error, in.Metadata.Cancelled)
	}
	im.add(r)
	return nil
}

// decode fills the record from its answer.
func (im *importer) decode(r *record.Record, chat bool, reads []Read) {
	endpoint := "completions"
	if chat {
		endpoint = "chat"
	}
	if im.m.Target.EndpointType == "" {
		im.m.Target.EndpointType = endpoint
	}
	im.lacks("token counts of answers without a usage: nothing here tokenizes them")
	im.opt.Decode(r, endpoint, reads)
	if len(reads) > 0 {
		r.End = max(r.End, reads[len(reads)-1].At)
	}
}
