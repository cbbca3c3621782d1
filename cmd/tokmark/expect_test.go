package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tokmark/tokmark/bench/record"
)

// classes are the names that the cases have for our outcomes.
var classes = map[record.Outcome]string{
	record.RateLimited: "rate_limited", record.Rejected: "rejected_parameter",
	record.ClientError: "http_status", record.ServerError: "http_status",
	record.ErrorBody: "error_body", record.StreamError: "in_stream_error", record.NotStreaming: "not_streaming",
	record.Malformed: "malformed_event", record.Truncated: "truncated_stream", record.BadEncoding: "unsupported_encoding",
	record.Reset: "connection_reset", record.IdleTimeout: "idle_timeout", record.TotalTimeout: "request_timeout",
}

// metricTags are our names for the metrics of the cases.
var metricTags = map[string]string{
	"ttft_ms": "time_to_first_token", "itl_ms": "inter_chunk_latency", "tpot_ms": "inter_token_latency", "e2e_ms": "request_latency",
}

// ofRun checks one expectation of a run.
func (k *checker) ofRun(key string, want json.RawMessage) {
	got := k.got
	switch key {
	case "requests":
		var each []json.RawMessage
		k.decode(want, &each)
		for i, r := range got.records {
			for key, w := range k.object(each[min(i, len(each)-1)]) {
				k.ofRequest(r, key, w)
			}
		}
	case "any_of":
		k.anyOf(want)
	case "completed":
		k.equal(key, got.at("request_count.avg"), want)
	case "failed":
		k.equal(key, got.at("error_request_count.avg"), want)
	case "exit_code":
		k.exitCode(got.code, want)
	case "server_requests":
		k.equal(key, len(got.posts), want)
	case "run_ms":
		last := record.Unset
		for _, r := range got.records {
			last = max(last, r.End)
		}
		k.equal(key, milliseconds(last.Sub(got.manifest.MeasureStart)), want)
	case "total_output_tokens":
		k.equal(key, got.at("total_osl.avg"), want)
	case "achieved_rate_per_s":
		k.equal(key, got.at("load.achieved_rate"), want)
	case "warnings":
		k.warnings(want)
	case "warnings_allowed":
	case "request_headers":
		for name, w := range k.object(want) {
			for _, p := range got.posts {
				k.equal("header "+name, p.header.Get(name), w)
			}
		}
	case "schedule":
		k.schedule(want)
	case "latency_from_intended_ms":
		var w struct {
			Each        []float64 `json:"each"`
			ToleranceMS float64   `json:"tolerance_ms"`
		}
		k.decode(want, &w)
		k.near(key, got.each((*record.Record).LatencyFromDue), w.Each, w.ToleranceMS)
	case "latency_from_send_ms":
		for _, v := range got.each((*record.Record).RequestLatency) {
			k.equal(key, v, want)
		}
	case "dataset":
		k.dataset(want)
	case "trace":
		k.trace(want)
	case "strict":
		k.strict(want)
	case "report":
		for key, w := range k.object(want) {
			k.ofReport(key, w)
		}
	case "console_absent_text":
		k.absent("the console", got.stdout+got.stderr+got.report, want)
	default:
		k.problem("expectation %q of a run is not known to this test", key)
	}
}

// anyOf passes if one of the alternatives holds whole.
func (k *checker) anyOf(want json.RawMessage) {
	var alternatives []json.RawMessage
	k.decode(want, &alternatives)
	var problems []string
	for i, w := range alternatives {
		one := &checker{got: k.got, strictRun: k.strictRun}
		one.expect(w)
		if one.problems == nil {
			k.timing = append(k.timing, one.timing...)
			return
		}
		problems = append(problems, "alternative "+string(rune('1'+i))+": "+strings.Join(one.problems, "; "))
	}
	k.problem("none of the alternatives holds:\n%s", strings.Join(problems, "\n"))
}

func (k *checker) exitCode(got int, want json.RawMessage) {
	switch nonzero := string(want) == `"nonzero"`; {
	case got == exitInvalid && !nonzero: // which a busy machine can make of it
		k.timing = append(k.timing, fmt.Sprintf("the result is not valid: %v", k.got.at("verdict.reasons")))
	case !nonzero:
		k.equal("exit code", got, want)
	case got == exitOK:
		k.problem("exit code = %d, want another", got)
	}
}

func (k *checker) warnings(want json.RawMessage) {
	var wanted, got []string
	k.decode(want, &wanted)
	list, _ := k.got.at("warnings").([]any)
	for _, w := range list {
		code, _ := w.(map[string]any)["code"].(string)
		got = append(got, code)
	}
	for _, code := range wanted {
		if !slices.Contains(got, code) {
			k.problem("warning %s is missing, there are %q", code, got)
		}
		if !strings.Contains(k.got.stdout, code) {
			k.problem("warning %s is not printed", code)
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// each returns a timing of every record that has it, in milliseconds.
func (got *caseResult) each(of func(*record.Record) (time.Duration, bool)) []float64 {
	var out []float64
	for _, r := range got.records {
		if d, ok := of(r); ok {
			out = append(out, milliseconds(d))
		}
	}
	return out
}

func (k *checker) schedule(want json.RawMessage) {
	var w struct {
		IntendedMS  []float64 `json:"intended_ms"`
		DelayMS     []float64 `json:"delay_ms"`
		ToleranceMS float64   `json:"tolerance_ms"`
	}
	k.decode(want, &w)
	start := k.got.manifest.MeasureStart
	due := k.got.each(func(r *record.Record) (time.Duration, bool) { return r.Due.Sub(start), r.Due.IsSet() })
	k.near("due times", due, w.IntendedMS, 0.001)
	k.near("lateness", k.got.each((*record.Record).Lateness), w.DelayMS, w.ToleranceMS)
}

// sent are the parts of a request body that a case can look at.
type sent struct {
	Messages []struct {
		Content string `json:"content"`
	} `json:"messages"`
}

func (k *checker) dataset(want json.RawMessage) {
	var w struct {
		Usable      int   `json:"usable"`
		UsableLines []int `json:"usable_lines"`
		Skipped     []struct {
			Line   int    `json:"line"`
			Reason string `json:"reason"`
		} `json:"skipped"`
		PromptsSent  map[string]string `json:"prompts_sent"`
		PromptLength map[string]int    `json:"prompt_length_chars"`
	}
	k.decode(want, &w)
	in := k.got.manifest.Input
	if in == nil {
		k.problem("the manifest does not tell of the input file")
		return
	}
	if in.Usable != w.Usable {
		k.problem("usable = %d, want %d", in.Usable, w.Usable)
	}
	if len(in.Skipped) != len(w.Skipped) {
		k.problem("skipped = %v, want %v", in.Skipped, w.Skipped)
		return
	}
	for i, s := range in.Skipped {
		if s.Line != w.Skipped[i].Line || s.Reason != w.Skipped[i].Reason {
			k.problem("skipped [%d] = %v, want %v", i, s, w.Skipped[i])
		}
	}
	if len(k.got.posts) != len(w.UsableLines) {
		k.problem("%d requests for %d usable lines", len(k.got.posts), len(w.UsableLines))
		return
	}
	for i, line := range w.UsableLines {
		var body sent
		if err := json.Unmarshal(k.got.posts[i].body, &body); err != nil || len(body.Messages) == 0 {
			k.problem("request %d has no messages (%v): %.200s", i, err, k.got.posts[i].body)
			continue
		}
		prompt := body.Messages[len(body.Messages)-1].Content
		number, _ := json.Marshal(line)
		if text, ok := w.PromptsSent[string(number)]; ok && prompt != text {
			k.problem("prompt of line %d = %q, want %q", line, prompt, text)
		}
		if n, ok := w.PromptLength[string(number)]; ok && utf8.RuneCountInString(prompt) != n {
			k.problem("prompt of line %d has %d characters, want %d", line, utf8.RuneCountInString(prompt), n)
		}
	}
}

// trace checks which rows of a trace were sent, and when.
func (k *checker) trace(want json.RawMessage) {
	var w struct {
		Lines   []int `json:"usable_lines_in_send_order"`
		Skipped []struct {
			Line   int    `json:"line"`
			Reason string `json:"reason"`
		} `json:"skipped"`
		Unscaled  []float64 `json:"offsets_ms_unscaled"`
		Offsets   []float64 `json:"offsets_ms"`
		Tolerance float64   `json:"tolerance_ms"`
		MaxTokens []int     `json:"max_tokens_sent"`
	}
	k.decode(want, &w)
	got := k.got
	n := len(got.records)
	if got.manifest.Input == nil || n != len(w.Lines) || n != len(w.Offsets) || n != len(w.Unscaled) || n != len(w.MaxTokens) {
		k.problem("%d requests for %d usable lines", len(got.records), len(w.Lines))
		return
	}
	var skipped []string
	for _, s := range w.Skipped {
		skipped = append(skipped, fmt.Sprint(s.Line, s.Reason))
	}
	for _, s := range got.manifest.Input.Skipped {
		if !slices.Contains(skipped, fmt.Sprint(s.Line, s.Reason)) {
			k.problem("line %d is skipped (%s), which is not expected", s.Line, s.Reason)
		}
	}
	if have := len(got.manifest.Input.Skipped); have != len(skipped) {
		k.problem("%d lines skipped, want %d", have, len(skipped))
	}
	rows, err := os.ReadFile(filepath.Join("testdata/cases/029-trace-unsorted", "trace.jsonl"))
	if err != nil {
		k.problem("%v", err)
		return
	}
	lines := strings.Split(string(rows), "\n")
	for i, r := range got.records {
		var row struct {
			Input  record.Count `json:"input_length"`
			Output record.Count `json:"output_length"`
		}
		line := w.Lines[i] - 1
		if line < 0 || line >= len(lines) {
			k.problem("the trace has no line %d", line+1)
			continue
		}
		if err := json.Unmarshal([]byte(lines[line]), &row); err != nil || r.AskedInput != row.Input || r.AskedOutput != row.Output {
			k.problem("request %d asks for %d and %d tokens, line %d has %+v", i, r.AskedInput, r.AskedOutput, w.Lines[i], row)
		}
		if r.AskedOutput != record.Count(w.MaxTokens[i]) {
			k.problem("request %d asks for %d output tokens, want %d", i, r.AskedOutput, w.MaxTokens[i])
		}
		due := milliseconds(r.Due.Sub(got.manifest.MeasureStart))
		if math.Abs(due-w.Offsets[i]) > 1e-6 {
			k.problem("request %d is due after %v ms, want %v", i, due, w.Offsets[i])
		}
		if math.Abs(w.Unscaled[i]-10*w.Offsets[i]) > 1e-6 {
			k.problem("offset %d is not the unscaled one divided by 10", i)
		}
	}
	k.near("offsets", got.each(func(r *record.Record) (time.Duration, bool) {
		return r.Start.Sub(got.manifest.MeasureStart), true
	}), w.Offsets, w.Tolerance)
}

// strict checks the same run without tolerance of bad lines.
func (k *checker) strict(want json.RawMessage) {
	got := k.strictRun()
	for key, w := range k.object(want) {
		switch key {
		case "exit_code":
			k.exitCode(got.code, w)
		case "server_requests":
			k.equal("requests of a strict run", len(got.posts), w)
		case "error_message_contains":
			k.contains("the error of a strict run", got.stderr, w)
		default:
			k.problem("expectation %q of a strict run is not known to this test", key)
		}
	}
}

func (k *checker) contains(what, got string, want json.RawMessage) {
	var w string
	k.decode(want, &w)
	if !strings.Contains(got, w) {
		k.problem("%s = %q, want it to contain %q", what, got, w)
	}
}

func (k *checker) absent(what, got string, want json.RawMessage) {
	var texts []string
	k.decode(want, &texts)
	for _, w := range texts {
		if strings.Contains(got, w) {
			k.problem("%s contains %q", what, w)
		}
	}
}

// ofRequest checks one expectation of a request.
func (k *checker) ofRequest(r *record.Record, key string, want json.RawMessage) {
	what := key + " of request " + string(rune('0'+r.ID))
	message := ""
	if r.Failure != nil {
		message = r.Failure.Message
	}
	switch key {
	case "error_message_contains":
		k.contains(what, message, want)
		return
	case "error_class_in":
		var in []string
		k.decode(want, &in)
		if !slices.Contains(in, classes[r.Outcome]) {
			k.problem("%s = %s, want one of %q", what, r.Outcome, in)
		}
		return
	case "itl_ms_each":
		for _, d := range r.Gaps(nil) {
			k.equal(what, milliseconds(d), want)
		}
		return
	case "ttft_in_summary", "output_tokens_in_summary":
		k.inSummary(r, key, want)
		return
	}
	got, known := valueOf(r, key)
	if !known {
		k.problem("expectation %q of a request is not known to this test", key)
		return
	}
	k.equal(what, got, want)
}

// inSummary checks that a failed request adds nothing: the totals are those of
// the requests that went well.
func (k *checker) inSummary(r *record.Record, key string, want json.RawMessage) {
	firsts, tokens := 0, int64(0)
	for _, other := range k.got.records {
		if other != r && other.Outcome == record.OK {
			if _, ok := other.TTFT(); ok {
				firsts++
			}
			if n, ok := other.OSL(); ok {
				tokens += n
			}
		}
	}
	if key == "ttft_in_summary" {
		k.equal(key, k.got.number("time_to_first_token.count") > float64(firsts), want)
		return
	}
	k.equal(key, k.got.number("total_osl.avg")-float64(tokens), want)
}

// valueOf returns what a record says under the name of an expectation, nil if
// it says nothing.
func valueOf(r *record.Record, key string) (v any, known bool) {
	var output record.Output
	if len(r.Output) > 0 {
		output = r.Output[0]
	}
	switch key {
	case "outcome":
		if r.Outcome == record.OK {
			return "ok", true
		}
		return "error", true
	case "error_class":
		return classes[r.Outcome], true
	case "http_status":
		return r.Status, true
	case "retry_after_s":
		if r.Failure == nil || r.Failure.RetryAfter == 0 {
			return nil, true
		}
		return r.Failure.RetryAfter.Seconds(), true
	case "events":
		return r.Events, true
	case "first_token_event":
		return place(r.FirstTokenEvent), true
	case "last_token_event":
		return place(r.LastTokenEvent), true
	case "first_answer_event":
		return place(r.FirstAnswerEvent), true
	case "content_chunks", "partial_content_chunks":
		return len(r.Chunks), true
	case "tokens_by_chunk":
		list := []any{}
		for _, c := range r.Chunks {
			list = append(list, float64(c.Tokens))
		}
		return list, true
	case "text":
		return output.Text, true
	case "text_length":
		return utf8.RuneCountInString(output.Text), true
	case "reasoning_text":
		return output.Reasoning, true
	case "tool_arguments":
		return output.Tools, true
	case "finish_reason":
		if len(r.FinishReasons) == 0 {
			return nil, true
		}
		return r.FinishReasons[0], true
	case "done_seen":
		return r.Done, true
	case "response_model":
		return r.ResponseModel, true
	case "input_tokens":
		return known64(r.ISL()), true
	case "output_tokens":
		return known64(r.OSL()), true
	case "cached_tokens":
		return known64(int64(r.Tokens.Cached), r.Tokens.Cached.IsKnown()), true
	case "reasoning_tokens":
		return known64(int64(r.Tokens.Reasoning), r.Tokens.Reasoning.IsKnown()), true
	case "requested_tokens":
		return known64(int64(r.AskedOutput), r.AskedOutput.IsKnown()), true
	case "output_tokens_source":
		return string(r.Tokens.Source), true
	case "ttft_ms":
		return knownMS(r.TTFT()), true
	case "time_to_first_answer_ms":
		return knownMS(r.TTFO()), true
	case "last_token_ms":
		return knownMS(r.RequestLatency()), true
	case "end_ms", "duration_ms":
		return milliseconds(r.End.Sub(r.Start)), true
	case "itl_samples":
		return len(r.Gaps(nil)), true
	}
	return nil, false
}

func place(n int) any {
	if n < 0 {
		return nil
	}
	return n
}

func known64(n int64, ok bool) any {
	if !ok {
		return nil
	}
	return n
}

func knownMS(d time.Duration, ok bool) any {
	if !ok {
		return nil
	}
	return milliseconds(d)
}

var notANumber = regexp.MustCompile(`(?i)\bnan\b|\binf(inity)?\b`)

// ofReport checks one property of the written files.
func (k *checker) ofReport(key string, want json.RawMessage) {
	got := k.got
	switch key {
	case "json_valid": // it was decoded already
		k.equal(key, got.summary != nil, want)
	case "no_nan_or_inf": // JSON has none; a text or a table could
		var found []string
		for name, text := range k.files() {
			if name == record.ReportHTMLFile { // its scripts know the word; its data are JSON
				_, text, _ = strings.Cut(text, `type="application/json"`)
				text, _, _ = strings.Cut(text, "</script>")
			}
			if bad := notANumber.FindString(text); bad != "" && name != record.RecordsFile && name != record.ManifestFile {
				found = append(found, name+": "+bad)
			}
		}
		k.equal(fmt.Sprintf("%s, found %q", key, found), found == nil, want)
	case "null_metrics":
		var names []string
		k.decode(want, &names)
		for _, name := range names {
			metric, stat, _ := strings.Cut(name, ".")
			tag, ok := metricTags[metric]
			if stat == "mean" {
				stat = "avg"
			}
			if !ok || !slices.Contains([]string{"avg", "p50", "p90", "p99"}, stat) {
				k.problem("metric %s is not known to this test", name)
			}
			if v := got.at(tag + "." + stat); v != nil {
				k.problem("%s = %v, want none", name, v)
			}
		}
	case "error_rate":
		k.equal(key, got.number("request_error_rate.avg")/100, want)
	case "output_tokens_per_s": // 0 of a run without tokens: to us it is missing
		k.equal(key, got.number("output_token_throughput.avg"), want)
	case "contains_text":
		var texts []string
		k.decode(want, &texts)
		for _, text := range texts {
			if !strings.Contains(got.stdout, text) || !strings.Contains(k.files()[record.SummaryJSONFile], text) {
				k.problem("the reports do not contain %q", text)
			}
		}
	case "absent_text":
		for name, text := range k.files() {
			k.absent(name, text, want)
		}
	case "json_model_equals_run_model":
		k.equal(key, got.at("target.model") == got.c.model(), want)
	case "csv_parses":
		found := slices.ContainsFunc(k.table(), func(row []string) bool { return slices.Contains(row, got.c.model()) })
		k.equal("model found in the table", found, want)
	case "csv_constant_columns": // else it would not have been parsed
		k.equal(key, k.table() != nil, want)
	case "csv_no_cell_starts_with":
		var bad []string
		k.decode(want, &bad)
		for _, row := range k.table() {
			for _, cell := range row {
				if slices.ContainsFunc(bad, func(b string) bool { return strings.HasPrefix(cell, b) }) {
					k.problem("a cell of the table is %q", cell)
				}
			}
		}
	case "html_absent":
		for name, text := range k.files() {
			if strings.HasSuffix(name, ".html") {
				k.absent(name, text, want)
			}
		}
	case "file_name_max_bytes", "files_inside_output_folder":
		// Of a directory that the program names itself: see
		// TestRunDirectoryHasASafeName.
	default:
		k.problem("expectation %q of a report is not known to this test", key)
	}
}

// table is summary.csv; encoding/csv refuses rows of unequal length.
func (k *checker) table() [][]string {
	rows, err := csv.NewReader(strings.NewReader(k.files()[record.SummaryCSVFile])).ReadAll()
	if err != nil {
		k.problem("summary.csv: %v", err)
	}
	return rows
}

// files returns the texts of all files of the run directory by name.
func (k *checker) files() map[string]string {
	out := map[string]string{}
	root := string(k.got.dir)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		out[name] = string(text)
		return err
	})
	if err != nil {
		k.problem("read run directory: %v", err)
	}
	return out
}
