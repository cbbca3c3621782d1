package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/like"
)

// serving reads the result of vLLM's or SGLang's serving benchmark. It needs
// the details of each request. Where start times are missing they follow from
// the order and the cap on requests in flight, if all were due at once, and the
// run's duration tells whether that is right.
func (im *importer) serving(in io.Reader, format Input) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("import %s: %w", im.name, err)
	}
	var file struct {
		Model       string          `json:"model_id"`
		Backend     string          `json:"backend"`
		Rate        json.RawMessage `json:"request_rate"`
		Cap         *float64        `json:"max_concurrency"`
		Duration    float64         `json:"duration"`
		InputLens   []*int64        `json:"input_lens"`
		OutputLens  []*int64        `json:"output_lens"`
		TTFTs       []float64       `json:"ttfts"`
		ITLs        [][]float64     `json:"itls"`
		Starts      []float64       `json:"start_times"`
		Errors      []string        `json:"errors"`
		MeanTTFT    *float64        `json:"mean_ttft_ms"`
		Completions *int64          `json:"completed"`
	}
	dec := json.NewDecoder(bytes.NewReader(like.StandardJSON(text)))
	if err := dec.Decode(&file); err != nil {
		return fmt.Errorf("import %s: %w", im.name, err)
	}
	if dec.More() {
		return fmt.Errorf("import %s: it holds several runs; give a file with the line of one", im.name)
	}
	n := len(file.TTFTs)
	if n == 0 || len(file.ITLs) != n {
		option := "--save-result --save-detailed"
		if format == SGLangResult {
			option = "--output-details"
		}
		return fmt.Errorf("import %s: it holds the figures of the run, but no request; make it with %s", im.name, option)
	}
	for _, list := range []struct {
		name string
		n    int
	}{{"input_lens", len(file.InputLens)}, {"output_lens", len(file.OutputLens)}, {"start_times", len(file.Starts)}, {"errors", len(file.Errors)}} {
		if list.n != 0 && list.n != n {
			return fmt.Errorf("import %s: %d ttfts, but %d %s", im.name, n, list.n, list.name)
		}
	}
	if file.Cap != nil {
		im.m.Load.Concurrency = int(min(max(*file.Cap, 0), 1<<30))
	}
	unlimited := true
	var rate float64
	if json.Unmarshal(file.Rate, &rate) == nil && !math.IsInf(rate, 0) && rate > 0 {
		im.m.Load.Rate, unlimited = rate, false
	}
	im.m.Target.Model = file.Model
	im.m.Target.EndpointType = "completions"
	if bytes.Contains([]byte(file.Backend), []byte("chat")) {
		im.m.Target.EndpointType = "chat"
	}
	if format == VLLMResult {
		im.lacks("events apart: the first event, mostly the role event, and the finish event are among those with output")
	} else {
		im.lacks("the time of [DONE]: the last event with output ends a request")
	}
	im.lacks("kinds of output, connections, and when a failed request ended")
	var faults []error
	for i := range n {
		r := record.New(record.PhaseMeasure, 0)
		r.Start, r.Model = 0, file.Model
		problem := ""
		if file.Errors != nil {
			problem = file.Errors[i]
		}
		if len(file.InputLens) > 0 && file.InputLens[i] != nil {
			r.Tokens.Input = record.Count(*file.InputLens[i])
		}
		if problem != "" || file.TTFTs[i] == 0 && len(file.ITLs[i]) == 0 {
			r.Outcome, r.Failure = record.Reset, &record.Failure{Message: problem}
			if problem == "" {
				r.Failure.Message = "the result says nothing of an answer"
			}
			r.End = r.Start
			im.add(r)
			continue
		}
		next, ok := nanoseconds(file.TTFTs[i])
		at := []record.Time{next}
		for _, gap := range file.ITLs[i] {
			d, fine := nanoseconds(gap)
			ok = ok && fine
			next += d
			at = append(at, next)
		}
		if !ok {
			faults = append(faults, fmt.Errorf("request %d: a time is negative or no number", i))
			continue
		}
		received(r, at, true)
		if len(file.OutputLens) > 0 && file.OutputLens[i] != nil {
			r.Tokens.Output, r.Tokens.Source = record.Count(*file.OutputLens[i]), record.SourceUsage
		}
		im.add(r)
	}
	if len(faults) > 0 {
		return fmt.Errorf("import %s: %w", im.name, errors.Join(faults...))
	}
	starts := make([]record.Time, n)
	switch {
	case file.Starts != nil:
		for i, s := range file.Starts {
			var ok bool
			if starts[i], ok = nanoseconds(s); !ok {
				return fmt.Errorf("import %s: start_times[%d] is no time", im.name, i)
			}
		}
	case !unlimited:
		return fmt.Errorf("import %s: there are no start times, and at a request rate they follow from nothing: throughput would be invented. Newer versions of the tool write start_times", im.name)
	default:
		total := im.rebuild(starts)
		const tolerance = 0.05
		if file.Duration > 0 && math.Abs(total-file.Duration) > tolerance*file.Duration {
			return fmt.Errorf("import %s: there are no start times; rebuilt from the cap on requests in flight the run takes %.3f s, but it took %.3f s, so they are wrong", im.name, total, file.Duration)
		}
		im.lacks(fmt.Sprintf("start times: rebuilt from the order and the cap on requests in flight; so the run takes %.3f s, and the file says %.3f s", total, file.Duration))
	}
	for i, r := range im.records {
		shift(r, starts[i])
	}
	return nil
}

// rebuild finds the start times of requests that were all due at once and
// waited for a place, and returns how long the run takes, in seconds.
func (im *importer) rebuild(starts []record.Time) float64 {
	places := im.m.Load.Concurrency
	if places <= 0 || places > len(starts) {
		places = len(starts)
	}
	free := make([]record.Time, places)
	var last record.Time
	for i, r := range im.records {
		k := 0
		for p, at := range free {
			if at < free[k] {
				k = p
			}
		}
		starts[i] = free[k]
		free[k] += max(r.End, 0)
		last = max(last, free[k])
	}
	return last.Sub(0).Seconds()
}

// shift moves a record that starts at 0.
func shift(r *record.Record, by record.Time) { rebase(r, -by) }

// nanoseconds is a time in seconds, rounded.
func nanoseconds(s float64) (record.Time, bool) {
	ns := math.Round(s * 1e9)
	return record.Time(ns), ns >= 0 && ns < 1e19/2
}
