package interop_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/sse"
	"github.com/tokmark/tokmark/report"
	"github.com/tokmark/tokmark/report/interop"
	"github.com/tokmark/tokmark/report/slo"
)

var update = flag.Bool("update", false, "write the golden files anew")

const ms = record.Time(time.Millisecond)

// request is a streamed answer of five tokens: role event at 40 ms, output at
// 100, 110, 120 and 150 ms, finish event and end at 152 ms.
func request(id int64, start record.Time) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Outcome, r.Streaming, r.Streamed, r.Done, r.Status = record.OK, true, true, true, 200
	r.Due, r.Start, r.FirstByte, r.FirstEvent, r.End = start, start, start+30*ms, start+40*ms, start+152*ms
	for _, at := range []record.Time{100, 110, 120, 150} {
		r.Chunks = append(r.Chunks, record.Chunk{At: start + at*ms, Tokens: record.UnknownTokens, Kind: record.KindText})
	}
	r.Events, r.FirstTokenEvent, r.FirstAnswerEvent, r.LastTokenEvent = 7, 1, 1, 4
	r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 8, Output: 5, Reasoning: record.Unknown, Cached: record.Unknown}
	r.Usage = record.Usage{Prompt: 8, Completion: 5, Total: 13, Reasoning: record.Unknown, Cached: record.Unknown}
	return r
}

func failed(id int64, start record.Time, message string) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Streaming, r.Status, r.Start, r.End = true, 503, start, start+2*ms
	r.Fail(record.ServerError, record.Failure{Message: message})
	return r
}

func manifest(id string) *record.Manifest {
	return &record.Manifest{
		Schema: record.ManifestSchema, ID: id, Outcome: record.RunCompleted,
		Target: record.Target{URL: "http://host/v1/chat/completions", Model: "m", EndpointType: "chat", Streaming: true},
		Load:   record.Load{Concurrency: 2}, Origin: time.Unix(1_700_000_000, 0).UTC(), MeasureStart: 0, MeasureEnd: 100 * ms,
		MaxInFlight: 2,
	}
}

const hostile = "</testcase><script>alert(1)</script>\"|`x`\n=cmd()\x1b[31m\u202e,]]>"

// runs are the shapes of runs that every renderer has to bear.
func runs() map[string]interop.Source {
	bad := manifest(hostile)
	bad.Target.Model, bad.Target.URL = hostile, hostile
	warmup := request(0, 0)
	warmup.Phase = record.PhaseWarmup
	return map[string]interop.Source{
		"one":     source(manifest("one"), request(0, 0)),
		"mixed":   source(manifest("mixed"), warmup, request(1, 200*ms), request(2, 250*ms), failed(3, 260*ms, "overloaded")),
		"failed":  source(manifest("failed"), failed(0, 0, "overloaded"), failed(1, ms, "overloaded")),
		"hostile": source(bad, request(0, 0), failed(1, ms, hostile)),
	}
}

func source(m *record.Manifest, recs ...*record.Record) interop.Source {
	for _, r := range recs {
		if r.Phase == record.PhaseMeasure {
			m.Sent++
		}
	}
	s, err := report.Summarize(m, sequence(recs), nil, report.Options{})
	if err != nil {
		panic(err)
	}
	objectives, err := slo.Parse("ttft.p50<200ms, itl.p99<1ms, e2e.p99<1s, error_rate<90%")
	if err != nil {
		panic(err)
	}
	return interop.Source{
		Summary: s, Objectives: slo.Evaluate(s, objectives),
		Records: func() iter.Seq2[*record.Record, error] { return sequence(recs) },
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

func write(t testing.TB, src interop.Source, f interop.Format) map[string][]byte {
	out := map[string][]byte{}
	for _, file := range interop.Files(f, src) {
		var b bytes.Buffer
		if err := file.Write(&b); err != nil {
			t.Fatalf("%s: %v", file.Name, err)
		}
		out[file.Name] = b.Bytes()
	}
	return out
}

func TestGolden(t *testing.T) {
	for name, src := range runs() {
		for _, f := range interop.Formats {
			for file, got := range write(t, src, f) {
				if strings.HasSuffix(file, ".csv") && f == interop.AIPerf || file == "hdr.hlog" {
					continue // of packages that have golden files of their own
				}
				golden(t, filepath.Join(name, file), got)
			}
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; look and then go test -update:\n%s", path, got)
	}
}

// TestHostileNames: what a server sends cannot leave its place in any file.
func TestHostileNames(t *testing.T) {
	src := runs()["hostile"]
	for _, f := range interop.Formats {
		for file, b := range write(t, src, f) {
			// The CSV is report/csv's own.
			if bytes.ContainsAny(b, "\x1b") && !strings.HasSuffix(file, ".csv") {
				t.Errorf("%s holds an escape character", file)
			}
			if f == interop.JUnit || f == interop.GitHub {
				if bytes.Contains(b, []byte("<script>")) {
					t.Errorf("%s holds markup of the server:\n%s", file, b)
				}
			}
		}
	}
	var suite struct {
		Tests int `xml:"tests,attr"`
		Cases []struct {
			Name string `xml:"name,attr"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(write(t, src, interop.JUnit)["junit.xml"], &suite); err != nil || suite.Tests != 5 || len(suite.Cases) != 5 {
		t.Errorf("junit: %+v, %v", suite, err)
	}
}

// TestPrometheus: Prometheus' own parser reads the text, in base units.
func TestPrometheus(t *testing.T) {
	for name, src := range runs() {
		b := write(t, src, interop.Prometheus)["tokmark.prom"]
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(b))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, b)
			continue
		}
		if name == "one" {
			f := families["tokmark_time_to_first_token_seconds"]
			if f == nil || f.Metric[0].Summary.GetQuantile()[0].GetValue() != 0.1 || f.Metric[0].Summary.GetSampleCount() != 1 {
				t.Errorf("time to first token = %v, want 0.1 s of one request", f)
			}
		}
	}
}

// TestManyGaps: a run of a million gaps goes through every renderer.
func TestManyGaps(t *testing.T) {
	var recs []*record.Record
	for i := range manyGaps / 2000 {
		r := request(int64(i), record.Time(i)*ms)
		r.Chunks = make(record.Chunks, 2001)
		for k := range r.Chunks {
			r.Chunks[k] = record.Chunk{At: r.Start + 100*ms + record.Time(k*k%7919)*1000 + record.Time(k)*ms, Kind: record.KindText, Tokens: record.UnknownTokens}
		}
		r.End = r.Chunks[2000].At
		r.Tokens.Output = 2001
		recs = append(recs, r)
	}
	src := source(manifest("gaps"), recs...)
	for _, f := range interop.Formats {
		for _, file := range interop.Files(f, src) {
			var n counting
			if err := file.Write(&n); err != nil || n == 0 {
				t.Errorf("%s: %d bytes, %v", file.Name, n, err)
			}
		}
	}
}

type counting int64

func (c *counting) Write(p []byte) (int, error) {
	*c += counting(len(p))
	return len(p), nil
}

func importText(t testing.TB, name, text string, opt interop.ImportOptions) (*interop.Imported, error) {
	t.Helper()
	opt.Decode = decode
	return interop.Import(strings.NewReader(text), name, opt)
}

// decode reads an answer as a run does.
func decode(r *record.Record, endpoint string, reads []interop.Read) {
	var a openai.Answer
	a.Reset(r, openai.EndpointType(endpoint), 0)
	defer a.Close()
	if !r.Streaming {
		var body []byte
		for _, read := range reads {
			body = append(body, read.Data...)
		}
		if len(reads) > 0 {
			a.Whole(body, reads[len(reads)-1].At, 0)
		}
		return
	}
	in := &chunked{reads: reads}
	events := sse.NewReader(in, func() sse.Stamp { return sse.Stamp{At: int64(in.at)} }, 0)
	for {
		ev, err := events.Next()
		if err != nil {
			return
		}
		if !a.Event(ev.Name, ev.Data, record.Time(ev.At), 0, ev.SameRead) {
			return
		}
	}
}

type chunked struct {
	reads []interop.Read
	at    record.Time
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.reads) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.reads[0].Data)
	c.at = c.reads[0].At
	if c.reads[0].Data = c.reads[0].Data[n:]; len(c.reads[0].Data) == 0 {
		c.reads = c.reads[1:]
	}
	return n, nil
}

// summaryOf the imported run.
func summaryOf(t testing.TB, im *interop.Imported) *report.Summary {
	s, err := report.Summarize(im.Manifest, sequence(im.Records), nil, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// compare wants each metric of a in b as well, with the same figures.
func compare(t interface{ Errorf(string, ...any) }, a, b *report.Summary, leaveOut ...string) {
	for _, want := range a.Metrics {
		skip := false
		for _, tag := range leaveOut {
			skip = skip || tag == want.Tag
		}
		if skip {
			continue
		}
		got, ok := b.Metric(want.Tag)
		switch {
		case want.Adjusted:
		case !ok:
			t.Errorf("%s is lost", want.Tag)
		case want.Statistic == nil && math.Abs(got.Value-want.Value) > 1e-9*math.Abs(want.Value) || got.Whole != want.Whole:
			t.Errorf("%s = %v, %d; want %v, %d", want.Tag, got.Value, got.Whole, want.Value, want.Whole)
		case want.Statistic != nil:
			if d := cmp.Diff(*want.Statistic, *got.Statistic, cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) <= 1e-9*max(math.Abs(x), 1) })); d != "" {
				t.Errorf("%s:\n%s", want.Tag, d)
			}
		}
	}
}

// TestAIPerfRoundTrip: whatever the requests, our AIPerf file tells them all
// again to the nanosecond.
func TestAIPerfRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recs []*record.Record
		for i := range rapid.IntRange(1, 6).Draw(t, "requests") {
			start := record.Time(rapid.Int64Range(0, 1e12).Draw(t, "start"))
			r := record.New(record.PhaseMeasure, int64(i))
			r.Start, r.Streaming = start, true
			// The first has an answer, which shows that the file tells the time
			// to the first output token.
			switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
			case kind == 0 && i > 0:
				r.End = start + 5
				r.Status = rapid.SampledFrom([]int{0, 429, 503}).Draw(t, "status")
				r.Fail(rapid.SampledFrom([]record.Outcome{record.ServerError, record.StreamError, record.Cancelled, record.IdleTimeout}).Draw(t, "outcome"), record.Failure{Message: "m"})
			default:
				r.Outcome, r.Streamed, r.Done = record.OK, true, true
				at := start
				reasoning := rapid.IntRange(0, 3).Draw(t, "reasoning")
				if i == 0 {
					reasoning = 0
				}
				n := rapid.IntRange(1, 6).Draw(t, "events")
				for k := range n {
					at += record.Time(rapid.Int64Range(1, 1e10).Draw(t, "gap"))
					kind := record.KindText
					if k < reasoning {
						kind = record.KindReasoning
					}
					r.Chunks = append(r.Chunks, record.Chunk{At: at, Kind: kind, Tokens: record.UnknownTokens})
				}
				r.End = at + 7
				if rapid.Bool().Draw(t, "counts") {
					r.Tokens = record.Tokens{Source: record.SourceTokenizer, Input: 9, Output: record.Count(n), Reasoning: record.Unknown, Cached: 3}
					if reasoning > 0 {
						r.Tokens.Reasoning = record.Count(reasoning)
					}
				}
			}
			recs = append(recs, r)
		}
		src := source(manifest("run"), recs...)
		var b bytes.Buffer
		for _, f := range interop.Files(interop.AIPerf, src) {
			if f.Name == "profile_export.jsonl" {
				if err := f.Write(&b); err != nil {
					t.Fatal(err)
				}
			}
		}
		im, err := interop.Import(&b, "profile_export.jsonl", interop.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := report.Summarize(im.Manifest, sequence(im.Records), nil, report.Options{})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, src.Summary, s)
		if s.Counts != src.Summary.Counts {
			t.Errorf("counts = %+v, want %+v", s.Counts, src.Summary.Counts)
		}
		if d := cmp.Diff(src.Summary.Errors, s.Errors, cmp.Comparer(func(a, b report.ErrorGroup) bool {
			return a.Outcome == b.Outcome && a.Status == b.Status && a.Message == b.Message && a.Count == b.Count
		})); d != "" {
			t.Error(d)
		}
	})
}

// TestVLLMRoundTrip: a run whose events all hold output comes back whole.
func TestVLLMRoundTrip(t *testing.T) {
	var recs []*record.Record
	for i := range 5 {
		r := request(int64(i), record.Time(i)*37*ms)
		r.FirstEvent, r.End = r.Chunks[0].At, r.Chunks[3].At
		r.Events, r.FirstTokenEvent, r.LastTokenEvent = 5, 0, 3
		recs = append(recs, r)
	}
	src := source(manifest("run"), recs...)
	b := write(t, src, interop.VLLM)["vllm-result.json"]
	im, err := importText(t, "vllm.json", string(b), interop.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, src.Summary, summaryOf(t, im), "min_request_timestamp", "max_response_timestamp",
		"usage_prompt_tokens", "usage_completion_tokens", "usage_total_tokens")
	if im.Manifest.Target.EndpointType != "chat" || im.Manifest.Load.Concurrency != 2 || len(im.Manifest.Imported.Missing) < 3 {
		t.Errorf("manifest = %+v", im.Manifest)
	}
}

// TestVLLMWhole: answers that were asked for as a whole succeeded, too.
func TestVLLMWhole(t *testing.T) {
	r := request(0, 0)
	r.Streaming, r.Streamed = false, false
	r.Chunks = r.Chunks[3:]
	r.FirstEvent, r.End = r.Chunks[0].At, r.Chunks[0].At
	r.Events, r.FirstTokenEvent, r.FirstAnswerEvent, r.LastTokenEvent = 1, 0, 0, 0
	b := write(t, source(manifest("run"), r), interop.VLLM)["vllm-result.json"]
	var got struct{ Completed, Failed int }
	if err := json.Unmarshal(b, &got); err != nil || got.Completed != 1 || got.Failed != 0 {
		t.Errorf("%+v, %v, want one that is completed", got, err)
	}
}

// TestServingStarts: without start times they follow from the cap, and only if
// the run's duration says the same.
func TestServingStarts(t *testing.T) {
	const head = `{"model_id":"m","backend":"openai-chat","max_concurrency":2,"num_prompts":3,`
	const lists = `"input_lens":[4,4,4],"output_lens":[2,2,2],"ttfts":[1,1,0.5],"itls":[[1],[2],[0.5]],"errors":["","",""]}`
	var im *interop.Imported
	for _, rate := range []string{`"inf"`, "Infinity"} { // as vLLM and SGLang write it
		var err error
		im, err = importText(t, "r.json", head+`"request_rate": `+rate+`,"duration":3.0,`+lists, interop.ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var starts []record.Time
		for _, r := range im.Records {
			starts = append(starts, r.Start)
		}
		if d := cmp.Diff([]record.Time{0, 0, 2e9}, starts); d != "" {
			t.Errorf("starts: %s", d)
		}
	}
	if !strings.Contains(strings.Join(im.Manifest.Imported.Missing, "\n"), "start times: rebuilt") {
		t.Errorf("missing = %q", im.Manifest.Imported.Missing)
	}
	for text, want := range map[string]string{
		head + `"request_rate":"inf","duration":9.0,` + lists:                      "it took 9.000 s",
		head + `"request_rate":4.0,"duration":3.0,` + lists:                        "would be invented",
		head + `"mean_ttft_ms":4.0}`:                                               "--save-detailed",
		`{"mean_e2e_latency_ms":1,"request_rate":1}`:                               "--output-details",
		strings.Replace(head+lists, `"ttfts":[1,1,0.5]`, `"ttfts":[1,-1,0.5]`, 1):  "request 1",
		strings.Replace(head+lists, `"input_lens":[4,4,4]`, `"input_lens":[4]`, 1): "input_lens",
		head + lists + "\n" + head + lists:                                         "several runs",
	} {
		if _, err := importText(t, "r.json", text, interop.ImportOptions{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "r.json") {
			t.Errorf("%s:\nerror = %v, want one with %q", text, err, want)
		}
	}
}

func TestOffline(t *testing.T) {
	im, err := importText(t, "deep.jsonl", `{"tokmark_offline":1,"engine":"DeepInfer 0.3","model":"m","conditions":{"gpu":"none","dtype":"bf16"}}
{"start_ns":1000,"token_times_ns":[2000,3000,3000,5000],"tokens":[1,2,1,1],"input_tokens":7}

{"start_s":0.000002,"end_s":0.000009,"output_tokens":4,"model":"m"}
{"start_ns":3000,"error":"out of memory"}
{"start_ns":500,"phase":"warmup","token_times_ns":[600]}
`, interop.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := summaryOf(t, im)
	if c := s.Counts; c.Valid != 2 || c.Failed != 1 || c.Warmup != 1 {
		t.Errorf("counts = %+v", c)
	}
	itl, ok := s.Metric("inter_token_latency")
	if !ok || itl.Statistic.Count != 1 || itl.Statistic.Avg != 3000.0/4/1e6 {
		t.Errorf("inter token latency = %+v, want 750 ns of one request", itl.Statistic)
	}
	m := im.Manifest
	if m.Target.Model != "m" || len(m.Conditions) != 3 || m.Conditions[0].Value != "DeepInfer 0.3" || !m.Origin.IsZero() {
		t.Errorf("manifest = %+v", m)
	}
	if r := im.Records[0]; r.Phase != record.PhaseWarmup || r.Start != 0 {
		t.Errorf("the earliest request = %+v, want the warmup one at 0", r)
	}
}

func TestOfflineFaults(t *testing.T) {
	for line, want := range map[string]string{
		`{"start_ns":1,"token_time_ns":[2]}`:                         `"token_time_ns" is not known`,
		`{"token_times_ns":[2]}`:                                     "start_ns is missing",
		`{"start_ns":1}`:                                             "neither",
		`{"start_ns":5,"token_times_ns":[4]}`:                        "before the start",
		`{"start_ns":5,"token_times_ns":[9,8]}`:                      "do not ascend",
		`{"start_ns":5,"token_times_ns":[9],"end_ns":7}`:             "before the last token",
		`{"start_ns":5,"token_times_ns":[9],"tokens":[1,1]}`:         "2 counts in tokens for 1",
		`{"start_ns":5,"start_s":1,"end_ns":9}`:                      "exclude each other",
		`{"start_ns":5,"end_ns":9,"output_tokens":-1}`:               "is -1",
		`{"start_ns":5,"end_ns":9,"phase":"cooldown"}`:               "use measure or warmup",
		`{"start_ns":5,`:                                             "unexpected EOF",
		`{"start_ns":-5,"end_ns":9}`:                                 "not negative",
		`{"tokmark_offline":2}`:                                      "version 2",
		`{"start_ns":5,"token_times_ns":[9],"tokens":[99999999]}`:    "tokens[0]",
		`{"start_ns":5,"end_ns":9,"end_s":1e30,"token_times_s":[1]}`: "exclude each other",
	} {
		text := `{"start_ns":1,"end_ns":2}` + "\n\n" + line + "\n"
		_, err := importText(t, "x.jsonl", text, interop.ImportOptions{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.jsonl:3: ") {
			t.Errorf("%s: error = %v, want x.jsonl:3 and %q", line, err, want)
		}
		im, err := importText(t, "x.jsonl", text, interop.ImportOptions{SkipBadLines: true})
		if err != nil || len(im.Records) != 1 || len(im.Manifest.Input.Skipped) != 1 || im.Manifest.Input.Skipped[0].Line != 3 {
			t.Errorf("%s: skipped = %+v, %v; want line 3", line, im, err)
		}
	}
}

func TestPerfAnalyzer(t *testing.T) {
	text := `{"experiments":[{"experiment":{"mode":"concurrency","value":2},"requests":[
{"timestamp":1700000000000000000,"request_inputs":{"payload":"{\"model\":\"m\",\"stream\":true,\"max_tokens\":9}"},
 "response_timestamps":[1700000000040000000,1700000000050000000,1700000000070000000,1700000000071000000],
 "response_outputs":[{"response":"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"},
  {"response":"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"index\":0,"},
  {"response":"\"delta\":{\"content\":\"b\"}}]}\n\n"},
  {"response":"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2,\"total_tokens\":6}}\n\ndata: [DONE]\n\n"}]},
{"timestamp":1700000000010000000,"request_inputs":{"payload":"{\"model\":\"m\"}"},
 "response_timestamps":[1700000000090000000],
 "response_outputs":[{"response":"{\"choices\":[{\"index\":0,\"message\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}"}]}
],"window_boundaries":[]}],"version":"1","service_kind":"openai","endpoint":"v1/chat/completions"}`
	im, err := importText(t, "profile_export.json", text, interop.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := im.Records[0]
	if ttft, _ := r.TTFT(); ttft != 50*time.Millisecond || len(r.Chunks) != 2 || r.Chunks[1].At != 70*ms {
		t.Errorf("TTFT = %v, chunks = %+v; an event split over two reads has the time of the second", ttft, r.Chunks)
	}
	if r.Tokens.Output != 2 || r.AskedOutput != 9 || r.End != 71*ms || r.Outcome != record.OK {
		t.Errorf("record = %+v", r)
	}
	if whole := im.Records[1]; whole.Streamed || whole.Outcome != record.OK || whole.Chunks[0].At != 90*ms {
		t.Errorf("whole answer = %+v", whole)
	}
	if m := im.Manifest; m.Load.Concurrency != 2 || m.Target.Model != "m" || m.Target.EndpointType != "chat" || m.Origin.UnixNano() != 1700000000000000000 || m.MaxInFlight != 2 {
		t.Errorf("manifest = %+v", m)
	}
	for bad, want := range map[string]string{
		strings.Replace(text, "[1700000000090000000]", "[]", 1):             "request 1: 0 times for 1",
		strings.Replace(text, "[1700000000090000000]", "[5]", 1):            "before the request",
		strings.Replace(text, `"openai"`, `"triton"`, 1):                    "triton",
		strings.Replace(text, `"experiments":[{`, `"experiments":[{},{`, 1): "2 experiments",
		text[:len(text)/2]: "unexpected EOF",
	} {
		if _, err := importText(t, "p.json", bad, interop.ImportOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want one with %q", err, want)
		}
	}
}

func TestAIPerfRaw(t *testing.T) {
	text := `{"metadata":{"session_num":0,"conversation_id":"c","turn_index":1,"request_start_ns":1700000000000000000,"request_end_ns":1700000000080000000,"worker_id":"w","record_processor_id":"p","benchmark_phase":"profiling"},"start_perf_ns":5000,"payload":{"model":"m","stream":true,"messages":[],"max_completion_tokens":7},"status":200,"responses":[{"perf_ns":40005000,"packets":[{"name":"data","value":"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}"}]},{"perf_ns":60005000,"packets":[{"name":"comment","value":"x"},{"name":"data","value":"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}"}]},{"perf_ns":61005000,"packets":[{"name":"data","value":"[DONE]"}]}],"error":null}
{"metadata":{"session_num":1,"request_start_ns":1700000000010000000,"request_end_ns":1700000000020000000,"worker_id":"w","record_processor_id":"p","benchmark_phase":"profiling"},"start_perf_ns":5000,"payload":{"messages":[]},"status":503,"responses":[],"error":{"code":503,"type":"X","message":"busy"}}
`
	im, err := importText(t, "profile_export_raw.jsonl", text, interop.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := im.Records[0]
	if ttft, _ := r.TTFT(); ttft != 40*time.Millisecond || len(r.Chunks) != 2 || !r.Done || r.Session != "c" || r.Turn != 1 || r.AskedOutput != 7 {
		t.Errorf("record = %+v", r)
	}
	if r := im.Records[1]; r.Outcome != record.ServerError || r.Failure.Message != "busy" {
		t.Errorf("failed record = %+v", r)
	}
}

// TestManyFaults: an error names the first lines and how many more there are.
func TestManyFaults(t *testing.T) {
	_, err := importText(t, "x.jsonl", strings.Repeat("{\"metadata\":{\"request_start_ns\":null}}\n", 50), interop.ImportOptions{})
	if err == nil || !strings.Contains(err.Error(), "x.jsonl:20: ") || strings.Contains(err.Error(), "x.jsonl:21: ") || !strings.Contains(err.Error(), "30 lines more") {
		t.Errorf("error = %v", err)
	}
}

func FuzzImport(f *testing.F) {
	for _, src := range runs() {
		for _, format := range []interop.Format{interop.AIPerf, interop.VLLM} {
			for _, b := range write(f, src, format) {
				f.Add(b)
			}
		}
	}
	f.Add([]byte(`{"start_ns":1,"token_times_ns":[2,9223372036854775807],"tokens":[1,1]}`))
	f.Add([]byte(`{"experiments":[{"experiment":{"mode":"concurrency","value":1e300},"requests":[{"timestamp":1,"response_timestamps":[2],"response_outputs":[{"response":"data: {}"}]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		im, err := interop.Import(bytes.NewReader(b), "f", interop.ImportOptions{Decode: decode, SkipBadLines: true})
		if err != nil {
			return
		}
		dir := record.Dir(t.TempDir())
		w, err := dir.NewWriter()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range im.Records {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, err := range dir.Records() {
			if err != nil {
				t.Fatalf("what was imported cannot be read again: %v\n%s", err, b)
			}
			n++
		}
		if n != len(im.Records) {
			t.Errorf("%d records, want %d", n, len(im.Records))
		}
	})
}
