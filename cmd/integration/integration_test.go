package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/report"
)

func TestFloat16(t *testing.T) {
	for f, want := range map[float32]uint16{0: 0, 1: 0x3c00, -2: 0xc000, 0.5: 0x3800, 65504: 0x7bff, 1e9: 0x7bff, 1e-9: 0, 1.5: 0x3e00} {
		if got := float16(f); got != want {
			t.Errorf("%v: %#x, want %#x", f, got, want)
		}
	}
}

// The file is as long as its tensors say, and the same each time.
func TestGGUF(t *testing.T) {
	v := vocabulary{tokens: []string{"a", "b", "ab", "<|endoftext|>"}, merges: []string{"a b"}}
	var one, two bytes.Buffer
	for _, w := range []*bytes.Buffer{&one, &two} {
		if err := writeGGUF(w, v, shape{width: 64, layers: 1, context: 128}); err != nil {
			t.Fatal(err)
		}
	}
	b := one.Bytes()
	if !bytes.Equal(b, two.Bytes()) {
		t.Error("two files differ")
	}
	if string(b[:4]) != "GGUF" || binary.LittleEndian.Uint32(b[4:]) != 3 || binary.LittleEndian.Uint64(b[8:]) != 12 {
		t.Errorf("header % x", b[:16])
	}
	// Two embeddings, seven matrices, and three vectors of ones at full width.
	const matrices, vectors = 2 * (2*64*4 + 4*64*64 + 3*64*128), 3 * 4 * 64
	data := bytes.Index(b, []byte("blk.0.ffn_down.weight")) + len("blk.0.ffn_down.weight") + 4 + 8 + 8 + 4 + 8
	if got, want := len(b)-aligned(data), matrices+vectors; got != want {
		t.Errorf("%d bytes of tensors, want %d", got, want)
	}
	ones := 0
	for at := aligned(data); at+4 <= len(b); at += 4 {
		if math.Float32frombits(binary.LittleEndian.Uint32(b[at:])) == 1 {
			ones++
		}
	}
	if ones < 3*64 {
		t.Errorf("%d ones", ones)
	}
	if err := writeGGUF(&one, v, shape{width: 60, layers: 1}); err == nil {
		t.Error("a width that heads do not divide")
	}
}

// A disagreement with the server is found, whichever it is.
func TestCheck(t *testing.T) {
	n := 2.0
	run := func() (server, report.Verdict, *record.Manifest, []*record.Record) {
		m := &record.Manifest{
			Dialect:    "vllm",
			Conditions: []record.Condition{{Name: "model", Value: "m", Source: target.Probed}},
			Server: &record.ServerWindow{
				Counters: map[string]float64{"request_success": 2, "generation_tokens": 6, "prompt_tokens": 20},
				Times:    map[string]record.ServerTimes{"ttft": {Seconds: 0.2, Count: &n}},
			},
		}
		var records []*record.Record
		for i := range int64(2) {
			r := record.New(record.PhaseMeasure, i)
			d := 100 * time.Millisecond
			r.Outcome, r.Streamed, r.Start = record.OK, true, 0
			r.Chunks = record.Chunks{{At: 110e6}, {At: 150e6}}
			r.Tokens.Input, r.Tokens.Output, r.Tokens.Cached = 10, 3, 0
			r.ServerTimings = &record.ServerTimings{Prefill: &d, Source: "metrics"}
			records = append(records, r)
		}
		return server{dialect: "vllm", conditions: 1, counts: true, timings: "metrics"}, report.Verdict{Level: report.Valid}, m, records
	}
	bad := func(s server, v report.Verdict, m *record.Manifest, records []*record.Record) string {
		var out []string
		for _, f := range check(s, v, m, records) {
			if !f.ok {
				out = append(out, f.text)
			}
		}
		return strings.Join(out, "\n")
	}
	if s := bad(run()); s != "" {
		t.Fatalf("in agreement: %s", s)
	}
	for name, c := range map[string]struct {
		spoil func(s *server, v *report.Verdict, m *record.Manifest, r []*record.Record)
		want  string
	}{
		"verdict":    {func(_ *server, v *report.Verdict, _ *record.Manifest, _ []*record.Record) { v.Level = report.Invalid }, "verdict"},
		"dialect":    {func(_ *server, _ *report.Verdict, m *record.Manifest, _ []*record.Record) { m.Dialect = "generic" }, "want vllm"},
		"conditions": {func(_ *server, _ *report.Verdict, m *record.Manifest, _ []*record.Record) { m.Conditions = nil }, "0 conditions"},
		"failed": {func(_ *server, _ *report.Verdict, _ *record.Manifest, r []*record.Record) {
			r[1].Outcome, r[1].Failure = record.Reset, &record.Failure{Message: "EOF"}
		}, "1 of 2 requests ok: EOF"},
		"output": {func(_ *server, _ *report.Verdict, m *record.Manifest, _ []*record.Record) {
			m.Server.Counters["generation_tokens"] = 7
		}, "6 output tokens, and 7"},
		"input": {func(_ *server, _ *report.Verdict, m *record.Manifest, _ []*record.Record) {
			m.Server.Counters["prompt_tokens"] = 19
		}, "20 input tokens"},
		"too fast": {func(_ *server, _ *report.Verdict, _ *record.Manifest, r []*record.Record) {
			r[0].Chunks[0].At = 1e6
		}, "mean TTFT"},
		"no timings": {func(_ *server, _ *report.Verdict, _ *record.Manifest, r []*record.Record) { r[0].ServerTimings = nil }, "1 answers tell"},
		"no metrics": {func(_ *server, _ *report.Verdict, m *record.Manifest, _ []*record.Record) { m.Server = nil }, "no figures"},
	} {
		s, v, m, records := run()
		c.spoil(&s, &v, m, records)
		if got := bad(s, v, m, records); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestUnknownServer(t *testing.T) {
	if err := run(t.Context(), t.TempDir(), []string{"other"}); err == nil || !strings.Contains(err.Error(), "llamacpp") {
		t.Errorf("%v", err)
	}
	if !slices.Contains(serverNames(), "llamacpp") {
		t.Error(serverNames())
	}
}
