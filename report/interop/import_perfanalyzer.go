package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
)

// perfAnalyzer reads the raw file of perf_analyzer, which GenAI-Perf makes its
// figures from. Each response is what one read of the socket brought.
func (im *importer) perfAnalyzer(in io.Reader) error {
	var file struct {
		Experiments []struct {
			Experiment struct {
				Mode  string  `json:"mode"`
				Value float64 `json:"value"`
			} `json:"experiment"`
			Requests []struct {
				At     int64 `json:"timestamp"`
				Inputs struct {
					Payload   json.RawMessage `json:"payload"`
					SessionID string          `json:"session_id"`
				} `json:"request_inputs"`
				Times   []int64 `json:"response_timestamps"`
				Outputs []struct {
					Response string `json:"response"`
				} `json:"response_outputs"`
			} `json:"requests"`
		} `json:"experiments"`
		Service  string `json:"service_kind"`
		Endpoint string `json:"endpoint"`
	}
	if err := json.NewDecoder(in).Decode(&file); err != nil {
		return fmt.Errorf("import %s: %w", im.name, err)
	}
	if n := len(file.Experiments); n != 1 {
		return fmt.Errorf("import %s: it holds %d experiments; give a file of one", im.name, n)
	}
	if file.Service != "" && file.Service != "openai" {
		return fmt.Errorf("import %s: the service kind is %s; only openai is read", im.name, file.Service)
	}
	im.wall = true
	im.lacks("failed requests: perf_analyzer stops at the first")
	im.lacks("connections, and the time that the request was written")
	ex := file.Experiments[0]
	if ex.Experiment.Mode == "concurrency" {
		im.m.Load.Concurrency = int(min(max(ex.Experiment.Value, 0), 1<<30))
	} else {
		im.m.Load.Rate = ex.Experiment.Value
	}
	for i, q := range ex.Requests {
		im.line = 1 // the file is one line; the request is what helps
		if len(q.Times) != len(q.Outputs) {
			im.fault(fmt.Errorf("request %d: %d times for %d responses", i, len(q.Times), len(q.Outputs)))
			continue
		}
		r := record.New(record.PhaseMeasure, 0)
		r.Start, r.End, r.Session = record.Time(q.At), record.Time(q.At), q.Inputs.SessionID
		payload := []byte(q.Inputs.Payload)
		var text string
		if json.Unmarshal(payload, &text) == nil {
			payload = []byte(text)
		}
		var body struct {
			Model     string `json:"model"`
			Stream    *bool  `json:"stream"`
			MaxTokens *int64 `json:"max_tokens"`
		}
		_ = json.Unmarshal(payload, &body) // one that is not understood tells nothing
		r.Model = body.Model
		if body.MaxTokens != nil {
			r.AskedOutput = record.Count(*body.MaxTokens)
		}
		var reads []Read
		early := false
		for k, out := range q.Outputs {
			early = early || q.Times[k] < q.At
			reads = append(reads, Read{record.Time(q.Times[k]), []byte(out.Response)})
		}
		if early {
			im.fault(fmt.Errorf("request %d: a response came before the request", i))
			continue
		}
		r.Streaming = len(q.Outputs) > 0 && strings.Contains(q.Outputs[0].Response, "data:")
		if body.Stream != nil {
			r.Streaming = *body.Stream
		}
		r.Status = 200
		im.decode(r, strings.Contains(file.Endpoint, "chat"), reads)
		im.add(r)
	}
	return nil
}
