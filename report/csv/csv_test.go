package csv

import (
	"bytes"
	stdcsv "encoding/csv"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report"
)

const msec = record.Time(time.Millisecond)

func sequence(recs []*record.Record) iter.Seq2[*record.Record, error] {
	return func(yield func(*record.Record, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func render(t testing.TB, model string, recs ...*record.Record) string {
	t.Helper()
	m := &record.Manifest{
		ID: "run-1", Outcome: record.RunCompleted,
		Target: record.Target{URL: "http://localhost:8000/v1/chat/completions", Model: model, Streaming: true},
		Load:   record.Load{Concurrency: 1}, Origin: time.Unix(1_700_000_000, 0),
		MeasureStart: record.Unset, MeasureEnd: record.Unset,
	}
	s, err := report.Summarize(m, sequence(recs), nil, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := Write(&buf, s); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func good(id int64) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Outcome, r.Streaming, r.Streamed, r.Done = record.OK, true, true, true
	r.Start, r.End = 0, 41*msec
	r.Chunks = record.Chunks{{At: 20 * msec, Kind: record.KindText}, {At: 30 * msec, Kind: record.KindText}, {At: 40 * msec, Kind: record.KindText}}
	r.Tokens = record.Tokens{Source: record.SourceUsage, Input: 550, Output: 3, Reasoning: record.Unknown, Cached: record.Unknown}
	r.Usage.Prompt = 550
	return r
}

func failed(id int64, message string) *record.Record {
	r := record.New(record.PhaseMeasure, id)
	r.Start, r.End = 0, msec
	r.Fail(record.ServerError, record.Failure{Message: message})
	return r
}

func parse(t testing.TB, s string) [][]string {
	t.Helper()
	rows, err := stdcsv.NewReader(strings.NewReader(s)).ReadAll() // refuses rows of unequal length
	if err != nil {
		t.Fatalf("%v in\n%s", err, s)
	}
	return rows
}

func TestLayout(t *testing.T) {
	got := render(t, "demo-8b", good(0), good(1))
	pad := strings.Repeat(",", columns-2)
	sections := strings.Split(got, "\r\n\r\n")
	if len(sections) != 5 {
		t.Fatalf("%d sections, want 5", len(sections))
	}
	for i, want := range []string{"Fact,Value", "Metric,Percentile,Low,High,Level,Method,Worth", "Warning,Effect,Message,Advice"} {
		if head, _, _ := strings.Cut(sections[2+i], "\r\n"); strings.TrimRight(head, ",") != want {
			t.Errorf("head %s, want %s", head, want)
		}
	}
	first := strings.Split(sections[0], "\r\n")
	if want := "Metric,avg,min,max,p1,p5,p10,p25,p50,p75,p90,p95,p99,std"; first[0] != want {
		t.Errorf("head\n%s, want\n%s", first[0], want)
	}
	if want := "Input Sequence Length (tokens)" + strings.Repeat(",550.00", 12) + ",0.00"; !slices.Contains(first, want) {
		t.Errorf("no row\n%s in\n%s", want, sections[0])
	}
	if !slices.IsSorted(first[1:]) { // here labels sort as tags do
		t.Errorf("rows are not sorted by tag:\n%s", sections[0])
	}
	second := strings.Split(sections[1], "\r\n")
	if want := "Metric,Value" + pad; second[0] != want {
		t.Errorf("head %s, want %s", second[0], want)
	}
	for _, want := range []string{
		"Benchmark Duration (sec),0.04", "Request Count,2", "Total Input Sequence Length (tokens),1100",
		"Minimum Request Timestamp (ns),1700000000000000000", "Output Token Throughput (tokens/sec),150.00",
	} {
		if !slices.Contains(second, want+pad) {
			t.Errorf("no row %s in\n%s", want, sections[1])
		}
	}
	if strings.Contains(strings.ReplaceAll(got, "\r\n", ""), "\n") || !strings.HasSuffix(got, "\r\n") {
		t.Error("a line does not end with CR LF")
	}
	if again := render(t, "demo-8b", good(1), good(0)); again != got {
		t.Errorf("another time, other bytes:\n%s", cmp.Diff(got, again))
	}
}

func TestHeadroomIsThereIfItWasTried(t *testing.T) {
	m := &record.Manifest{ID: "run-1", SelfTest: &record.SelfTest{Headroom: 2}, MeasureStart: record.Unset, MeasureEnd: record.Unset}
	s, err := report.Summarize(m, sequence(nil), nil, report.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := Write(&buf, s); err != nil {
		t.Fatal(err)
	}
	if got := find(t, parse(t, buf.String()), "Client Headroom"); got != "2.00" {
		t.Errorf("headroom %q, want 2.00", got)
	}
	if strings.Contains(render(t, "demo-8b", good(0)), "Headroom") {
		t.Error("a run without self-test has a headroom")
	}
}

func find(t testing.TB, rows [][]string, name string) string {
	t.Helper()
	for _, row := range rows {
		if row[0] == name {
			return row[1]
		}
	}
	t.Errorf("no row %q", name)
	return ""
}

// cases/031: an awkward name and message.
func TestAwkwardNames(t *testing.T) {
	model := "acme/\"fast, cheap\"\nv2;<script>alert(1)</script>/../=1+1 very-long-name-终"
	rows := parse(t, render(t, model, good(0), failed(1, "=HYPERLINK(\"http://x.invalid\",\"bad\")\nline two")))
	if got := find(t, rows, "Model"); got != model {
		t.Errorf("model %q, want %q", got, model)
	}
}

func TestFormulasAreNeutralised(t *testing.T) {
	for _, model := range []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"} {
		got := render(t, model, good(0))
		if !strings.Contains(got, "'"+model) {
			t.Errorf("model %q is not neutralised in\n%q", model, got)
		}
		for _, row := range parse(t, got) {
			for _, c := range row {
				if c != "" && strings.ContainsRune("=+-@\t\r", rune(c[0])) {
					t.Errorf("cell %q", c)
				}
			}
		}
	}
}

// What the text report says of the worth of its numbers is in the file too.
func TestWorth(t *testing.T) {
	var recs []*record.Record
	for i := range 40 {
		r := good(int64(i))
		r.Start += record.Time(i) * 50 * msec
		r.Due, r.End = r.Start-msec/2, r.End+r.Start
		for k := range r.Chunks {
			r.Chunks[k].At += r.Start + record.Time((i*7)%11)*msec
		}
		recs = append(recs, r)
	}
	rows := parse(t, render(t, "demo-8b", recs...))
	for name, want := range map[string]string{
		"Client Events": "120", "Client Lateness p50 (ms)": "0.500000", "Client Lateness max (ms)": "0.500000",
		"Client Receive Lag p99 (ms)": "", "Client Shared Reads (ratio)": "0.000000", "Client CPU avg (cores)": "",
	} {
		if got := find(t, rows, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// P(Bin(40, 0.5) <= 13) = 0.019 and P(Bin(40, 0.99) <= 37) = 0.007: from the
	// 14th to the 27th value, and from the 38th to where nobody knows.
	for percent, want := range map[string][]string{"p50": {"23.000000", "27.000000"}, "p99": {"30.000000", ""}} {
		found := slices.ContainsFunc(rows, func(row []string) bool {
			return slices.Equal(row[:7], slices.Concat([]string{"Time to First Token (ms)", percent}, want, []string{"0.95", "order_statistics", "40.000000"}))
		})
		if !found {
			t.Errorf("no interval %v of %s", want, percent)
		}
	}
	if w := find(t, rows, "few_samples"); w != "valid" {
		t.Errorf("effect %q", w)
	}
}

// Missing and infinite figures are empty cells, never 0, NaN or Inf.
func TestMissingIsEmpty(t *testing.T) {
	got := render(t, "demo-8b", failed(0, "boom"))
	rows := parse(t, got)
	for _, row := range rows {
		if strings.Contains(row[0], "Latency") || strings.Contains(row[0], "Throughput") {
			t.Errorf("row %v after failures only", row)
		}
	}
	if n := find(t, rows, "Error Request Count"); n != "1" {
		t.Errorf("errors %s, want 1", n)
	}
	if v := find(t, rows, "Verdict"); v != "invalid" {
		t.Errorf("verdict %s, want invalid", v)
	}
	got = render(t, "demo-8b", good(0), failed(1, "boom"))
	for _, row := range parse(t, got) {
		if strings.HasPrefix(row[0], "Adjusted Request Latency") && (row[1] != "" || row[2] != "40.00") {
			t.Errorf("adjusted latency %v, want no average", row)
		}
	}
	if s := strings.ToLower(got); strings.Contains(s, "inf,") || strings.Contains(s, "nan") {
		t.Errorf("NaN or Inf in\n%s", got)
	}
}

func TestAnyNameReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A reader of CSV cannot tell CR LF in a cell from LF.
		model := strings.ReplaceAll(rapid.String().Draw(t, "model"), "\r\n", "\n")
		var out rows
		if err := out.Write([]string{"Model", cell(model)}); err != nil {
			t.Fatal(err)
		}
		read, err := stdcsv.NewReader(&out.buf).Read()
		if err != nil || len(read) != columns {
			t.Fatalf("%q, %v", read, err)
		}
		if got := strings.TrimPrefix(read[1], "'"); got != strings.TrimPrefix(model, "'") {
			t.Fatalf("%s reads back as %s", strconv.Quote(model), strconv.Quote(got))
		}
	})
}
