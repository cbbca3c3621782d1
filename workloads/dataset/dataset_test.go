package dataset_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/arrival"
	"github.com/tokmark/tokmark/workloads/dataset"
	"github.com/tokmark/tokmark/workloads/synthetic"
)

var _ dataset.Prompter = (*synthetic.Generator)(nil)

// lengths makes prompts that tell what was asked for.
type lengths struct{}

func (lengths) Prompt(i, tokens int) (string, int, error) {
	return fmt.Sprintf("#%d %d", i, tokens), 0, nil
}
func (lengths) Blocks(ids []int64, tokens, block int) (string, int, error) {
	return fmt.Sprintf("%v %d/%d", ids, tokens, block), 0, nil
}

type wordCount struct{}

func (wordCount) Count(s string) int { return len(strings.Fields(s)) }

func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string, o dataset.Options) *dataset.Dataset {
	t.Helper()
	if o.Prompter == nil {
		o.Prompter = lengths{}
	}
	d, err := dataset.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func sessions(t testing.TB, d *dataset.Dataset) []workloads.Session {
	t.Helper()
	var out []workloads.Session
	for i := range d.Len() {
		s, err := d.At(i)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// corpusCase is the part of a case.json that concerns the reader.
type corpusCase struct {
	Expect struct {
		Dataset struct {
			Usable  int
			Lines   []int             `json:"usable_lines"`
			Skipped []corpusSkip      `json:"skipped"`
			Prompts map[string]string `json:"prompts_sent"`
			Lengths map[string]int    `json:"prompt_length_chars"`
		}
		Trace struct {
			Lines     []int        `json:"usable_lines_in_send_order"`
			Skipped   []corpusSkip `json:"skipped"`
			Unscaled  []float64    `json:"offsets_ms_unscaled"`
			Offsets   []float64    `json:"offsets_ms"`
			MaxTokens []int        `json:"max_tokens_sent"`
		}
	}
}

type corpusSkip struct {
	Line   int
	Reason dataset.Reason
}

func readCase(t *testing.T, dir string) corpusCase {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", dir, "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c corpusCase
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func skips(r dataset.Report) []corpusSkip {
	var out []corpusSkip
	for _, s := range r.Skipped {
		out = append(out, corpusSkip{s.Line, s.Reason})
	}
	return out
}

func TestCaseDirtyJSONL(t *testing.T) {
	want := readCase(t, "028-dataset-dirty-jsonl").Expect.Dataset
	path := filepath.Join("testdata", "028-dataset-dirty-jsonl", "prompts.jsonl")
	for _, format := range []dataset.Format{"", dataset.Prompts} {
		d := open(t, path, dataset.Options{Format: format, SkipBadLines: true})
		if d.Report().Usable != want.Usable || d.Format() != dataset.Prompts || d.Offsets() != nil {
			t.Errorf("%d usable as %s, offsets %v", d.Report().Usable, d.Format(), d.Offsets())
		}
		if diff := cmp.Diff(want.Skipped, skips(d.Report())); diff != "" {
			t.Error(diff)
		}
		var lines []int
		for _, s := range sessions(t, d) {
			var line int
			_, _ = fmt.Sscan(s.ID, &line)
			lines = append(lines, line)
			r := s.Turns[0]
			if p, ok := want.Prompts[s.ID]; ok && r.Prompt != p {
				t.Errorf("line %s: prompt %q, want %q", s.ID, r.Prompt, p)
			}
			if n, ok := want.Lengths[s.ID]; ok && utf8.RuneCountInString(r.Prompt) != n {
				t.Errorf("line %s: %d characters, want %d", s.ID, utf8.RuneCountInString(r.Prompt), n)
			}
			if r.OutputTokens != 8 {
				t.Errorf("line %s: output %d", s.ID, r.OutputTokens)
			}
		}
		if diff := cmp.Diff(want.Lines, lines); diff != "" {
			t.Error(diff)
		}
	}
	_, err := dataset.Open(path, dataset.Options{})
	if err == nil || !strings.Contains(err.Error(), "prompts.jsonl:4: json: ") {
		t.Errorf("strict: %v", err)
	}
}

func TestCaseTraceUnsorted(t *testing.T) {
	want := readCase(t, "029-trace-unsorted").Expect.Trace
	path := filepath.Join("testdata", "029-trace-unsorted", "trace.jsonl")
	for speedup, offsets := range map[float64][]float64{0: want.Unscaled, 10: want.Offsets} {
		d := open(t, path, dataset.Options{SkipBadLines: true, Trace: arrival.Trace{Speedup: speedup}})
		if diff := cmp.Diff(want.Skipped, skips(d.Report())); diff != "" {
			t.Error(diff)
		}
		if !d.Report().Reordered {
			t.Error("reordered is not reported")
		}
		var got []float64
		for _, at := range d.Offsets() {
			got = append(got, float64(at)/1e6)
		}
		if diff := cmp.Diff(offsets, got); diff != "" {
			t.Error(diff)
		}
		var lines, out []int
		for _, s := range sessions(t, d) {
			var line int
			_, _ = fmt.Sscan(s.ID, &line)
			lines = append(lines, line)
			out = append(out, s.Turns[0].OutputTokens)
		}
		if diff := cmp.Diff(want.Lines, lines); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want.MaxTokens, out); diff != "" {
			t.Error(diff)
		}
		s, _ := d.At(2)
		if s.Turns[0].Prompt != "[1 2] 640/512" || s.Turns[0].InputTokens != 640 {
			t.Errorf("prompt %+v", s.Turns[0])
		}
	}
	if _, err := dataset.Open(path, dataset.Options{Prompter: lengths{}}); err == nil || !strings.Contains(err.Error(), "trace.jsonl:4: zero_input: ") {
		t.Errorf("strict: %v", err)
	}
	if _, err := dataset.Open(path, dataset.Options{SkipBadLines: true}); err == nil || !strings.Contains(err.Error(), "make prompts") {
		t.Errorf("without a prompter: %v", err)
	}
}

// user is a request with one message of the user.
func user(text string) workloads.Request {
	return workloads.Request{Messages: []workloads.Message{{Role: "user", Content: text}}}
}

func TestFormats(t *testing.T) {
	const ms = time.Millisecond
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	with := func(r workloads.Request, f func(*workloads.Request)) workloads.Request { f(&r); return r }
	out := func(n int) func(*workloads.Request) { return func(r *workloads.Request) { r.OutputTokens = n } }
	one := func(id string, turns ...workloads.Request) workloads.Session {
		return workloads.Session{ID: id, Turns: turns}
	}
	tests := []struct {
		name, file, content string
		o                   dataset.Options
		format              dataset.Format
		want                []workloads.Session
		offsets             []time.Duration
	}{
		{name: "single turn", file: "a.jsonl", format: dataset.SingleTurn,
			content: `{"text":"Who?"}` + "\n" + `{"texts":["a",{"name":"q","contents":["b","c"]}],"role":"system","output_length":3}`,
			want: []workloads.Session{one("1", user("Who?")),
				one("2", workloads.Request{Messages: []workloads.Message{{Role: "system", Content: "a\nb\nc"}}, OutputTokens: 3})}},
		{name: "single turn with times", file: "a.jsonl", format: dataset.SingleTurn,
			content: `{"text":"a","timestamp":1000.25}` + "\n" + `{"text":"b","timestamp":1500}`,
			want:    []workloads.Session{one("1", user("a")), one("2", user("b"))},
			offsets: []time.Duration{0, 499750 * time.Microsecond}},
		{name: "times not wanted", file: "a.jsonl", format: dataset.SingleTurn, o: dataset.Options{Untimed: true},
			content: `{"text":"a","timestamp":2000}` + "\n" + `{"text":"b","timestamp":1500}` + "\n" + `{"text":"c"}`,
			want:    []workloads.Session{one("1", user("a")), one("2", user("b")), one("3", user("c"))}},
		{name: "multi turn", file: "a.jsonl", format: dataset.MultiTurn,
			content: `{"session_id":"c1","turns":[{"text":"Hi","timestamp":50},{"text":"More","delay":1000.5},{"text":"End"}]}` + "\n" + `{"turns":[{"text":"x","timestamp":0},{"text":"y","timestamp":70}]}`,
			want: []workloads.Session{
				one("2", user("x"), with(user("y"), func(r *workloads.Request) { r.Delay = 70 * ms })),
				one("c1", user("Hi"), with(user("More"), func(r *workloads.Request) { r.Delay = 1000*ms + 500*time.Microsecond }), user("End"))},
			offsets: []time.Duration{0, 50 * ms}},
		{name: "mooncake sessions", file: "a.jsonl", format: dataset.MooncakeTrace, o: dataset.Options{BlockTokens: 100},
			content: `{"session_id":"a","input_length":300,"output_length":40}
{"session_id":7,"input_length":5}
{"session_id":"a","delay":2000,"input_length":150,"output_length":20,"hash_ids":[4,5]}
{"text_input":"Hello","output_length":4}`,
			want: []workloads.Session{
				one("a", workloads.Request{Prompt: "#0 300", InputTokens: 300, OutputTokens: 40},
					workloads.Request{Prompt: "[4 5] 150/100", InputTokens: 150, OutputTokens: 20, Delay: 2 * time.Second}),
				one("7", workloads.Request{Prompt: "#1 5", InputTokens: 5}),
				one("4", workloads.Request{Prompt: "Hello", OutputTokens: 4})}},
		{name: "mooncake turns with times", file: "a.jsonl", format: dataset.MooncakeTrace,
			content: `{"session_id":"a","input_length":3,"timestamp":10}
{"session_id":"b","input_length":4,"timestamp":5}
{"session_id":"a","input_length":5,"timestamp":40}`,
			want: []workloads.Session{
				one("b", workloads.Request{Prompt: "#0 4", InputTokens: 4}),
				one("a", workloads.Request{Prompt: "#1 3", InputTokens: 3}, workloads.Request{Prompt: "#3 5", InputTokens: 5, Delay: 30 * ms})},
			offsets: []time.Duration{0, 5 * ms}},
		{name: "burstgpt", file: "b.csv", format: dataset.BurstGPT,
			content: "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n5,ChatGPT,472,18,490,Conversation log\r\n\r\n45.5,GPT-4,1087,230.0,1317,API log",
			want: []workloads.Session{one("2", workloads.Request{Prompt: "#0 472", InputTokens: 472, OutputTokens: 18}),
				one("4", workloads.Request{Prompt: "#1 1087", InputTokens: 1087, OutputTokens: 230})},
			offsets: []time.Duration{0, 40500 * ms}},
		{name: "azure, cut", file: "b.csv", format: dataset.AzureTrace, o: dataset.Options{Trace: arrival.Trace{Start: time.Second, KeepOrigin: true}},
			content: "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.0,8,2\n",
			want:    []workloads.Session{one("3", workloads.Request{Prompt: "#0 8", InputTokens: 8, OutputTokens: 2})},
			offsets: []time.Duration{20040 * time.Microsecond}},
		{name: "prompts", file: "a.jsonl", format: dataset.Prompts,
			content: `{"prompt":"a","output_tokens":5,"category":"x"}
{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"}]}],"max_completion_tokens":2,"model":"m","temperature":0.50}`,
			want: []workloads.Session{one("1", workloads.Request{Prompt: "a", OutputTokens: 5}),
				one("2", workloads.Request{Messages: []workloads.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "u"}}, OutputTokens: 2, Model: "m",
					Extra: map[string]json.RawMessage{"temperature": raw("0.50")}})}},
		{name: "batch", file: "a.jsonl", format: dataset.OpenAIBatch,
			content: `{"custom_id":"r-1","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"u"}],"max_tokens":9,"stream":true,"foo":1}}`,
			want: []workloads.Session{one("r-1", with(user("u"), func(r *workloads.Request) {
				r.OutputTokens, r.Model, r.Extra = 9, "m", map[string]json.RawMessage{"foo": raw("1")}
			}))}},
		{name: "raw", file: "a.jsonl", format: dataset.RawPayload, o: dataset.Options{Format: dataset.RawPayload},
			content: " {\"b\": 1,  \"max_tokens\":3}\t\r\n",
			want:    []workloads.Session{one("1", workloads.Request{Body: raw(`{"b": 1,  "max_tokens":3}`), OutputTokens: 3})}},
		{name: "sharegpt, first turn", file: "s.json", format: dataset.ShareGPT, o: dataset.Options{Counter: wordCount{}},
			content: "\xef\xbb\xbf[\n" + `{"id":"x","conversations":[{"from":"human","value":"hello you"},{"from":"gpt","value":"one two three"},{"from":"human","value":"z"},{"from":"gpt","value":"y"}]},
  {"conversations":[{"from":"gpt","value":"left over"},{"from":"system","value":"sys"},{"from":"user","value":"q"},{"from":"bard","value":"a b"}]},
  {"conversation":[{"role":"user","content":"q1"},{"role":"user","content":"q2"},{"role":"assistant","content":"a"}]}]`,
			want: []workloads.Session{
				one("x", with(user("hello you"), func(r *workloads.Request) { r.OwnTokens, r.OutputTokens = 2, 3 })),
				one("1", workloads.Request{Messages: []workloads.Message{{Role: "system", Content: "sys"}, {Role: "user", Content: "q"}}, OwnTokens: 2, OutputTokens: 2}),
				one("2", workloads.Request{Messages: []workloads.Message{{Role: "user", Content: "q1"}, {Role: "user", Content: "q2"}}, OwnTokens: 2, OutputTokens: 1})}},
		{name: "sharegpt, all turns, no counter", file: "s.jsonl", format: dataset.ShareGPT, o: dataset.Options{WholeConversation: true},
			content: `{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"},{"from":"human","value":"c"},{"from":"gpt","value":"d"},{"from":"human","value":"e"}]}`,
			want:    []workloads.Session{one("1", user("a"), user("c"))}},
		{name: "sharegpt, all turns", file: "s.jsonl", format: dataset.ShareGPT, o: dataset.Options{WholeConversation: true, Counter: wordCount{}},
			content: `{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"},{"from":"human","value":"c"},{"from":"gpt","value":"d d d"}]}`,
			want: []workloads.Session{one("1", with(user("a"), func(r *workloads.Request) { r.OwnTokens, r.OutputTokens = 1, 1 }),
				with(user("c"), func(r *workloads.Request) { r.OwnTokens, r.OutputTokens = 1, 3 }))}},
		{name: "escapes are kept", file: "a.jsonl", format: dataset.Prompts, content: `{"prompt":"\ud83d\ude42 \\ud800 \u0000 \/"}`,
			want: []workloads.Session{one("1", workloads.Request{Prompt: "🙂 \\ud800 \x00 /"})}},
	}
	_ = out
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t, write(t, tt.file, tt.content), tt.o)
			if d.Format() != tt.format {
				t.Errorf("format %s, want %s", d.Format(), tt.format)
			}
			if diff := cmp.Diff(tt.want, sessions(t, d)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.offsets, d.Offsets()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBadEntries(t *testing.T) {
	tests := []struct {
		format dataset.Format
		line   string
		want   dataset.Reason
		say    string
	}{
		{dataset.SingleTurn, `{"text":"a","image":"x.png"}`, dataset.BadShape, "image is not supported"},
		{dataset.SingleTurn, `{"text":"a","audios":["x"]}`, dataset.BadShape, "audios is not supported"},
		{dataset.SingleTurn, `{"text":"a","texts":["b"]}`, dataset.BadShape, "both text and texts"},
		{dataset.SingleTurn, `{"text":"a","timestamp":1,"delay":1}`, dataset.BadShape, "both a timestamp and a delay"},
		{dataset.SingleTurn, `{"text":"a","timestamp":"1"}`, dataset.BadShape, "timestamp is a string"},
		{dataset.SingleTurn, `{"text":"a","timestamp":-0.5}`, dataset.NegativeTimestamp, "-0.5"},
		{dataset.SingleTurn, `{"text":"a","timestamp":1e300}`, dataset.BadShape, "out of range"},
		{dataset.SingleTurn, `{"text":" \n"}`, dataset.Empty, "empty"},
		{dataset.SingleTurn, `{"texts":[]}`, dataset.Empty, "empty"},
		{dataset.SingleTurn, `{"text":null}`, dataset.BadShape, "no text"},
		{dataset.SingleTurn, `{}`, dataset.BadShape, "it is empty"},
		{dataset.SingleTurn, `null`, dataset.BadShape, "null"},
		{dataset.SingleTurn, `{"text":"a"} x`, dataset.BadJSON, "invalid character"},
		{dataset.SingleTurn, `{"prompt":"a","zeta":1}`, dataset.BadShape, "it has prompt, zeta"},
		{dataset.RandomPool, `{"text":"a","timestamp":1}`, dataset.BadShape, "timestamp"},
		{dataset.MultiTurn, `{"turns":[]}`, dataset.Empty, "turns"},
		{dataset.MultiTurn, `{"turns":[{"text":"a"},{"text":""}]}`, dataset.Empty, "turn 2"},
		{dataset.MultiTurn, `{"turns":[{"text":"a","timestamp":5},{"text":"b","timestamp":4}]}`, dataset.BadShape, "turn 2: its timestamp"},
		{dataset.MultiTurn, `{"turns":"a"}`, dataset.BadShape, "turns is a string"},
		{dataset.MooncakeTrace, `{"input_length":1024,"hash_ids":[1]}`, dataset.BadShape, "2 blocks of 512"},
		{dataset.MooncakeTrace, `{"input_length":10,"hash_ids":[1.5]}`, dataset.BadShape, "1.5"},
		{dataset.MooncakeTrace, `{"input_length":1.5}`, dataset.BadShape, "1.5"},
		{dataset.MooncakeTrace, `{"input_length":-1}`, dataset.BadShape, "-1"},
		{dataset.MooncakeTrace, `{"text_input":"a","hash_ids":[1]}`, dataset.BadShape, "hash_ids need"},
		{dataset.MooncakeTrace, `{"output_length":1}`, dataset.BadShape, "no input_length"},
		{dataset.Prompts, `{"prompt":"a","max_tokens":0}`, dataset.ZeroOutput, "max_tokens"},
		{dataset.Prompts, `{"prompt":["a"]}`, dataset.BadShape, "an array, not a string"},
		{dataset.Prompts, `{"prompt":"a\ud800"}`, dataset.BadEncoding, "surrogate"},
		{dataset.Prompts, `{"prompt":"\udc00\ud800"}`, dataset.BadEncoding, "surrogate"},
		{dataset.Prompts, `{"messages":[]}`, dataset.Empty, "no text"},
		{dataset.Prompts, `{"messages":[{"content":"a"}]}`, dataset.BadShape, "messages[0] has no role"},
		{dataset.Prompts, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, dataset.BadShape, "image_url"},
		{dataset.Prompts, `{"messages":[{"role":"assistant","tool_calls":[]}]}`, dataset.BadShape, "raw_payload"},
		{dataset.OpenAIBatch, `{"custom_id":"a","body":"x"}`, dataset.BadShape, "body is a string"},
		{dataset.OpenAIBatch, `{"custom_id":"a","body":{"input":"x"}}`, dataset.BadShape, "it has input"},
		{dataset.RawPayload, `{}`, dataset.Empty, "{}"},
		{dataset.RawPayload, `[1]`, dataset.BadShape, "an array"},
		{dataset.ShareGPT, `{"conversations":[]}`, dataset.Empty, "empty"},
		{dataset.ShareGPT, `{"id":"a"}`, dataset.BadShape, "no conversations"},
		{dataset.ShareGPT, `{"conversations":[{"from":"human","value":"a"}]}`, dataset.NoReply, "no reply"},
		{dataset.ShareGPT, `{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":""}]}`, dataset.NoReply, "reply is empty"},
		{dataset.ShareGPT, `{"conversations":[{"from":"gpt","value":"a"}]}`, dataset.Empty, "nobody asks"},
		{dataset.ShareGPT, `{"conversations":[{"from":"martian","value":"a"}]}`, dataset.BadShape, "martian"},
		{dataset.ShareGPT, `{"conversations":[{"from":"human","value":1}]}`, dataset.BadShape, "no string"},
		{dataset.BurstGPT, `5,m,0,1`, dataset.ZeroInput, "request tokens"},
		{dataset.BurstGPT, `5,m,1,0`, dataset.ZeroOutput, "response tokens"},
		{dataset.BurstGPT, `5,m,1`, dataset.BadShape, "3 fields"},
		{dataset.BurstGPT, `,m,1,1`, dataset.NoTimestamp, "blank"},
		{dataset.BurstGPT, `-1,m,1,1`, dataset.NegativeTimestamp, "-1"},
		{dataset.BurstGPT, `NaN,m,1,1`, dataset.BadShape, "NaN"},
		{dataset.BurstGPT, `5,m,x,1`, dataset.BadShape, `"x"`},
		{dataset.BurstGPT, `5,"m,1,1`, dataset.BadShape, "row"},
		{dataset.BurstGPT, "5,\xff,1,1", dataset.BadEncoding, "byte 3"},
		{dataset.AzureTrace, `5,1,1`, dataset.BadShape, "no date"},
	}
	good := map[dataset.Format]string{
		dataset.SingleTurn: `{"text":"ok"}`, dataset.RandomPool: `{"text":"ok"}`, dataset.MultiTurn: `{"turns":[{"text":"ok"}]}`,
		dataset.MooncakeTrace: `{"input_length":1}`, dataset.Prompts: `{"prompt":"ok"}`, dataset.OpenAIBatch: `{"body":{"prompt":"ok"}}`,
		dataset.RawPayload: `{"a":1}`, dataset.ShareGPT: `{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}`,
		dataset.BurstGPT: "Timestamp,Model,Request tokens,Response tokens\n5,m,1,1", dataset.AzureTrace: "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1",
	}
	for _, tt := range tests {
		t.Run(string(tt.format)+" "+tt.line, func(t *testing.T) {
			first := good[tt.format]
			path := write(t, "f.jsonl", first+"\n\n"+tt.line+"\n")
			d := open(t, path, dataset.Options{Format: tt.format, SkipBadLines: true})
			r := d.Report()
			line := strings.Count(first, "\n") + 3
			if r.Usable != 1 || len(r.Skipped) != 1 || r.Reasons[tt.want] != 1 || r.Skipped[0].Line != line || r.Skipped[0].Reason != tt.want || !strings.Contains(r.Skipped[0].Detail, tt.say) {
				t.Errorf("report %+v, want line %d: %s: …%s…", r, line, tt.want, tt.say)
			}
			_, err := dataset.Open(path, dataset.Options{Format: tt.format, Prompter: lengths{}})
			if want := fmt.Sprintf("%s:%d: %s: ", path, line, tt.want); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("strict: %v, want %s", err, want)
			}
		})
	}
}

func TestFilesRefused(t *testing.T) {
	tests := []struct {
		name, file, content string
		o                   dataset.Options
		say                 string
	}{
		{"empty", "a.jsonl", "\n\n", dataset.Options{Format: dataset.Prompts}, "it is empty"},
		{"format unknown", "a.jsonl", `{"foo":1,"bar":2}`, dataset.Options{}, "keys bar, foo"},
		{"no header", "a.csv", "1,2,3\n", dataset.Options{}, "line 1 names neither"},
		{"other header", "a.csv", "Timestamp,foo\n1,2\n", dataset.Options{Format: dataset.BurstGPT}, `no column "response tokens"; it has Timestamp, foo`},
		{"all bad", "a.jsonl", "{\n{\n", dataset.Options{Format: dataset.Prompts, SkipBadLines: true}, "2 are bad; the first: "},
		{"utf-16", "a.jsonl", "\xff\xfe{\x00", dataset.Options{}, "UTF-16"},
		{"gzip", "a.jsonl", "\x1f\x8b\x08", dataset.Options{}, "gzip"},
		{"cut away", "a.jsonl", `{"text":"a","timestamp":5}`, dataset.Options{Trace: arrival.Trace{Start: time.Second}}, "none of its 1 entries lies between"},
		{"speed-up", "a.jsonl", `{"text":"a"}`, dataset.Options{Trace: arrival.Trace{Speedup: -2}}, "speed-up -2"},
		{"cut JSON array", "s.json", `[{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]},{"conv`, dataset.Options{}, "s.json:1: json: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := dataset.Open(write(t, tt.file, tt.content), tt.o); err == nil || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("error %v, want one that says %q", err, tt.say)
			}
		})
	}
	if _, err := dataset.Open(filepath.Join(t.TempDir(), "none"), dataset.Options{}); err == nil {
		t.Error("a missing file is accepted")
	}
}

func TestCutArrayKeepsWhatCameBefore(t *testing.T) {
	d := open(t, write(t, "s.json", `[{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]},{"conv`), dataset.Options{SkipBadLines: true})
	if diff := cmp.Diff([]corpusSkip{{1, dataset.BadJSON}}, skips(d.Report())); diff != "" || d.Len() != 1 {
		t.Error(d.Len(), diff)
	}
}

func TestSourceStartsOver(t *testing.T) {
	d := open(t, write(t, "a.jsonl", `{"prompt":"0"}`+"\n"+`{"prompt":"1"}`+"\n"+`{"prompt":"2"}`), dataset.Options{})
	for i, want := range map[int]string{0: "0", 3: "0", 5: "2", -1: "2", -3: "0", -4: "2", math.MinInt: "1"} {
		s, err := d.At(i)
		if err != nil || s.Turns[0].Prompt != want {
			t.Errorf("session %d: %+v, %v, want %s", i, s, err, want)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.At(0); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
}

func TestRandomPool(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"b.jsonl": `{"text":"b0"}` + "\n" + `{"text":"b1"}`, "a.jsonl": `{"text":"a0"}` + "\n" + `{"text":"a1"}` + "\n" + `{"text":"a2"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, dir, dataset.Options{Sessions: 600, Seed: 4})
	if d.Len() != 600 || d.Report().Usable != 5 {
		t.Fatalf("%d sessions of %d entries", d.Len(), d.Report().Usable)
	}
	seen := map[string]int{}
	for _, s := range sessions(t, d) {
		seen[s.Turns[0].Messages[0].Content]++
	}
	for _, a := range []string{"a0", "a1", "a2"} {
		for _, b := range []string{"b0", "b1"} {
			if n := seen[a+"\n"+b]; n < 65 || n > 135 { // 100 ± 3.8 sigma
				t.Errorf("%s with %s: %d of 600 times", a, b, n)
			}
		}
	}
	again := open(t, dir, dataset.Options{Sessions: 600, Seed: 4})
	if diff := cmp.Diff(sessions(t, d), sessions(t, again)); diff != "" {
		t.Error(diff)
	}
}

func TestHashIsThatOfWhatIsSent(t *testing.T) {
	hash := func(content string, o dataset.Options) string {
		t.Helper()
		h, err := open(t, write(t, "a.jsonl", content), o).Hash()
		if err != nil || len(h) != 64 {
			t.Fatal(h, err)
		}
		return h
	}
	a := hash("{\"prompt\":\"x\",\"max_tokens\":1}\n{\"prompt\":\"é\"}\n", dataset.Options{})
	if b := hash("\xef\xbb\xbf\r\n{ \"max_tokens\": 1, \"note\":\"n\", \"prompt\":\"x\"}\r\n{bad\r\n{\"prompt\":\"\\u00e9\"}", dataset.Options{SkipBadLines: true}); a != b {
		t.Error("the layout of the file changed the hash")
	}
	for name, other := range map[string]string{
		"order":  "{\"prompt\":\"é\"}\n{\"prompt\":\"x\",\"max_tokens\":1}\n",
		"text":   "{\"prompt\":\"y\",\"max_tokens\":1}\n{\"prompt\":\"é\"}\n",
		"length": "{\"prompt\":\"x\",\"max_tokens\":2}\n{\"prompt\":\"é\"}\n",
		"more":   "{\"prompt\":\"x\",\"max_tokens\":1}\n{\"prompt\":\"é\"}\n{\"prompt\":\"é\"}\n",
	} {
		if hash(other, dataset.Options{}) == a {
			t.Errorf("%s does not count", name)
		}
	}
	trace := "{\"timestamp\":0,\"input_length\":5}\n{\"timestamp\":10,\"input_length\":5}\n"
	if hash(trace, dataset.Options{}) == hash(trace, dataset.Options{Trace: arrival.Trace{Speedup: 2}}) {
		t.Error("the offsets do not count")
	}
	two := func(salt string) string {
		g, err := synthetic.New(synthetic.Options{Salt: salt, Lengths: []synthetic.Lengths{{Input: synthetic.Fixed(1)}}})
		if err != nil {
			t.Fatal(err)
		}
		return hash(trace, dataset.Options{Prompter: g})
	}
	if two("a") != two("b") {
		t.Error("the salt of made prompts counts")
	}
}

func TestTraceWithSyntheticPrompts(t *testing.T) {
	g, err := synthetic.New(synthetic.Options{Counter: wordCount{}, Lengths: []synthetic.Lengths{{Input: synthetic.Fixed(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, write(t, "a.jsonl", `{"input_length":700,"hash_ids":[1,2]}
{"input_length":600,"hash_ids":[1,3]}
{"input_length":90}`), dataset.Options{Prompter: g})
	all := sessions(t, d)
	a, b := strings.Fields(all[0].Turns[0].Prompt), strings.Fields(all[1].Turns[0].Prompt)
	if len(a) != 700 || len(b) != 600 || len(strings.Fields(all[2].Turns[0].Prompt)) != 90 {
		t.Errorf("lengths %d, %d", len(a), len(b))
	}
	n := 0
	for n < len(b) && a[n] == b[n] {
		n++
	}
	if n < 512 || n > 515 {
		t.Errorf("the prompts share %d tokens, want a block of 512", n)
	}
}

func TestManyBadLinesAreCountedAndSomeListed(t *testing.T) {
	d := open(t, write(t, "a.jsonl", strings.Repeat("{\n", 3000)+`{"prompt":"a"}`), dataset.Options{Format: dataset.Prompts, SkipBadLines: true})
	r := d.Report()
	if r.SkippedCount() != 3000 || len(r.Skipped) != dataset.MaxListed || r.Skipped[999].Line != 1000 {
		t.Errorf("%d counted, %d listed", r.SkippedCount(), len(r.Skipped))
	}
}

func TestAtFromManyGoroutines(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, "{\"prompt\":\"p%d\"}\n", i)
	}
	d := open(t, write(t, "a.jsonl", b.String()), dataset.Options{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for k := range 300 {
				i := (k*7 + w) % 300
				s, err := d.At(i)
				if err != nil || s.Turns[0].Prompt != fmt.Sprint("p", i) {
					t.Errorf("session %d: %+v, %v", i, s, err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzOpen(f *testing.F) {
	formats := []dataset.Format{"", dataset.SingleTurn, dataset.MultiTurn, dataset.RandomPool, dataset.MooncakeTrace, dataset.BurstGPT,
		dataset.AzureTrace, dataset.Prompts, dataset.OpenAIBatch, dataset.ShareGPT, dataset.RawPayload}
	for _, s := range []string{
		`{"prompt":"a"}`, `{"text":"a","timestamp":1}` + "\n" + `{"text":"b"}`, `{"turns":[{"text":"a"},{"text":"b","delay":2}]}`,
		`{"session_id":"a","input_length":600,"hash_ids":[1,2],"timestamp":3}` + "\r\n" + `{"session_id":"a","input_length":6,"delay":3}`,
		"Timestamp,Request tokens,Response tokens\n1,2,3\n,1,1\n0.5,2,2", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10",
		`[{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]},1,{"conv`, `{"body":{"messages":[{"role":"user","content":"\ud83d"}]}}`,
		"\xef\xbb\xbf\n[1]\n{", "[", "[{}", "\"", `{"prompt":"\u`,
	} {
		for i := range formats {
			f.Add([]byte(s), uint8(i))
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, format uint8) {
		path := filepath.Join(dir, fmt.Sprint("f", os.Getpid(), ".jsonl"))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		o := dataset.Options{Format: formats[int(format)%len(formats)], SkipBadLines: true, Prompter: lengths{}, Counter: wordCount{}, WholeConversation: true, Sessions: 3}
		d, err := dataset.Open(path, o)
		if err != nil {
			return
		}
		defer d.Close()
		r := d.Report()
		if d.Len() < 1 || r.Usable < 1 {
			t.Fatalf("opened with %d sessions of %d entries", d.Len(), r.Usable)
		}
		if d.Format() != dataset.ShareGPT {
			lines := 0
			for _, l := range strings.Split(strings.TrimPrefix(string(content), "\xef\xbb\xbf"), "\n") {
				if strings.TrimSpace(l) != "" {
					lines++
				}
			}
			if d.Format() == dataset.BurstGPT || d.Format() == dataset.AzureTrace {
				lines--
			}
			if got := r.Usable + r.SkippedCount() + r.Cut; got != lines {
				t.Fatalf("%d usable, %d skipped, %d cut of %d lines", r.Usable, r.SkippedCount(), r.Cut, lines)
			}
		}
		if off := d.Offsets(); off != nil && len(off) != d.Len() {
			t.Fatalf("%d offsets for %d sessions", len(off), d.Len())
		}
		for i, at := range d.Offsets() {
			if at < 0 || i > 0 && at < d.Offsets()[i-1] {
				t.Fatalf("offset %d is %v", i, at)
			}
		}
		for i := range min(d.Len(), 20) {
			s, err := d.At(i)
			if err != nil || len(s.Turns) == 0 {
				t.Fatalf("session %d: %+v, %v", i, s, err)
			}
			for _, q := range s.Turns {
				if len(q.Messages) == 0 && q.Prompt == "" && q.Body == nil || q.InputTokens < 0 || q.OutputTokens < 0 || q.Delay < 0 {
					t.Fatalf("session %d: %+v", i, q)
				}
			}
		}
		if _, err := d.Hash(); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "{\"prompt\":\"%d %s\",\"max_tokens\":8}\n", i, strings.Repeat("some words ", 80))
	}
	path := write(b, "a.jsonl", text.String())
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		d, err := dataset.Open(path, dataset.Options{})
		if err != nil {
			b.Fatal(err)
		}
		_ = d.Close()
	}
}

func TestEqualTimesKeepTheOrderOfTheFile(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "{\"text\":\"%d\",\"timestamp\":%d}\n", i, 9-i/100)
	}
	d := open(t, write(t, "a.jsonl", b.String()), dataset.Options{})
	for i, s := range sessions(t, d) {
		if want := fmt.Sprint((i + 100) % 200); s.Turns[0].Messages[0].Content != want {
			t.Fatalf("session %d is entry %s, want %s", i, s.Turns[0].Messages[0].Content, want)
		}
	}
}

func TestTurnsKeepTheOrderOfTheFile(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "{\"session_id\":\"s%d\",\"input_length\":%d,\"timestamp\":%d}\n", i%2, i+1, 1000-i%2+i*10)
	}
	d := open(t, write(t, "a.jsonl", b.String()), dataset.Options{})
	for k, s := range sessions(t, d) {
		for i, r := range s.Turns {
			if len(s.Turns) != 100 || r.InputTokens != 2*i+k+1 {
				t.Fatalf("session %s, turn %d of %d is entry %d", s.ID, i, len(s.Turns), r.InputTokens)
			}
		}
	}
}
