package like_test

import (
	"encoding/json"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/like"
	"github.com/tokmark/tokmark/report/stats"
)

// conformanceCase is one file of report/testdata/conformance, whose README
// says what the fields mean.
type conformanceCase struct {
	Name      string `json:"name"`
	Endpoint  string `json:"endpoint"`
	Streaming bool   `json:"streaming"`
	Config    struct {
		Goodput map[string]float64 `json:"goodput"`
	} `json:"config"`
	Records []struct {
		StartNS   int64 `json:"request_start_ns"`
		Responses []struct {
			RecvNS int64  `json:"recv_ns"`
			Data   string `json:"data"`
			Event  string `json:"event"`
		} `json:"responses"`
		Phase     string `json:"phase"`
		Input     *int64 `json:"input_tokens"`
		Output    *int64 `json:"output_tokens"`
		Reasoning *int64 `json:"reasoning_tokens"`
		GenAIPerf *int64 `json:"genai_perf_output_tokens"`
	} `json:"records"`
	GenAIPerf       string                     `json:"genai_perf"`
	Expect          map[string]json.RawMessage `json:"expect"`
	ExpectGenAIPerf map[string]json.RawMessage `json:"expect_genai_perf"`
}

// TestGenAIPerf: the records of each case, under the definitions of
// GenAI-Perf, give the figures that its own parser gives.
func TestGenAIPerf(t *testing.T) {
	files, err := filepath.Glob("../testdata/conformance/*.json")
	if err != nil || len(files) != 41 {
		t.Fatalf("found %d cases (%v), want 41", len(files), err)
	}
	checked := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c conformanceCase
			if err := json.Unmarshal(b, &c); err != nil {
				t.Fatal(err)
			}
			if c.GenAIPerf == "not_applicable" {
				t.Skip("GenAI-Perf has no such situation")
			}
			run := c.run(t)
			view := run.As(like.GenAIPerf)
			if c.Name == "malformed_and_unknown_messages" {
				// Our decoder ends at data that is no JSON, so the text after
				// it is not in the record; the view has to say so.
				if !slices.ContainsFunc(view.Notes, func(s string) bool { return strings.Contains(s, "no JSON") }) {
					t.Errorf("notes = %q; want one about the data that is no JSON", view.Notes)
				}
				return
			}
			for tag, name := range map[string]string{
				"time_to_first_token": "", "time_to_second_token": "", "request_latency": "", "inter_token_latency": "",
				"output_token_throughput_per_user": "", "output_sequence_length": "", "input_sequence_length": "",
				"output_token_throughput": "", "request_throughput": "", "request_count": "", "goodput": "request_goodput",
			} {
				tolerance := 1e-9
				want, ok := c.ExpectGenAIPerf[tag]
				if !ok {
					if want, ok = c.Expect[tag]; !ok {
						continue
					}
					// AIPerf's figure, which the corpus calls the same: what
					// is left is GenAI-Perf's rounding to whole nanoseconds.
					if tag == "inter_token_latency" || tag == "output_token_throughput_per_user" {
						tolerance = 1e-6
					}
				}
				if name == "" {
					name = tag
				}
				f, has := view.Figure(name)
				checked++
				checkFigure(t, tag, want, f, has, tolerance)
			}
		})
	}
	if checked < 300 {
		t.Errorf("%d figures were compared, want over 300", checked)
	}
}

func (c *conformanceCase) run(t *testing.T) *like.Run {
	base := int64(math.MaxInt64)
	for _, r := range c.Records {
		base = min(base, r.StartNS)
	}
	m := &record.Manifest{
		ID: c.Name, Goodput: c.Config.Goodput, Target: record.Target{EndpointType: c.Endpoint, Streaming: c.Streaming},
		MeasureStart: record.Unset, MeasureEnd: record.Unset,
	}
	known := func(n *int64) record.Count {
		if n == nil {
			return record.Unknown
		}
		return record.Count(*n)
	}
	var recs []*record.Record
	for i, in := range c.Records {
		r := record.New(record.PhaseMeasure, int64(i))
		if in.Phase == "warmup" {
			r.Phase = record.PhaseWarmup
		}
		r.Streaming, r.Start = c.Streaming, record.Time(in.StartNS-base)
		var a openai.Answer
		a.Reset(r, openai.EndpointType(c.Endpoint), 0)
		for _, msg := range in.Responses {
			r.End = record.Time(msg.RecvNS - base)
			if !c.Streaming {
				a.Whole([]byte(msg.Data), r.End, 0)
				continue
			}
			r.Streamed = true
			if !a.Event([]byte(msg.Event), []byte(msg.Data), r.End, 0, false) {
				break
			}
		}
		a.Close()
		// What a tokenizer of our own would have counted.
		r.Tokens = record.Tokens{
			Source: record.SourceTokenizer, Cached: record.Unknown,
			Input: known(in.Input), Output: known(in.Output), Reasoning: known(in.Reasoning),
		}
		if in.GenAIPerf != nil {
			text := uint16(*in.GenAIPerf)
			for k := range r.Chunks {
				if r.Chunks[k].Kind&record.KindText != 0 {
					r.Chunks[k].Tokens, text = text, 0
				}
			}
		}
		recs = append(recs, r)
	}
	run, err := like.New(m, sequence(recs))
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func checkFigure(t *testing.T, tag string, section json.RawMessage, f like.Figure, has bool, tolerance float64) {
	t.Helper()
	var want map[string]any
	if err := json.Unmarshal(section, &want); err != nil {
		t.Fatal(err)
	}
	if want == nil {
		if has && f.Avg() != 0 {
			t.Errorf("%s is reported (%v), want none", tag, f.Avg())
		}
		return
	}
	if !has {
		t.Errorf("%s is missing", tag)
		return
	}
	for key, w := range want {
		if key == "unit" || key == "per_record" {
			continue
		}
		got := math.NaN()
		switch st := f.Statistic; {
		case key == "avg":
			got = f.Avg()
		case st == nil:
		case key == "count":
			got = float64(st.Count)
		case key == "sum":
			got = st.Sum
		case key == "min":
			got = st.Min
		case key == "max":
			got = st.Max
		case key == "std":
			got = st.Std
		default:
			for i, p := range stats.Percents {
				if report.PercentileKey(p) == key {
					got = st.Percentiles[i]
				}
			}
		}
		w, _ := w.(float64)
		if !(math.Abs(got-w) <= max(1e-12, tolerance*math.Abs(w))) {
			t.Errorf("%s.%s = %v, want %v", tag, key, got, w)
		}
	}
}

func sequence(recs []*record.Record) iter.Seq2[*record.Record, error] {
	return func(yield func(*record.Record, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	}
}
