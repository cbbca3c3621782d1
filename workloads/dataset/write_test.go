package dataset

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokmark/tokmark/workloads"
)

type listed []workloads.Session

func (l listed) Len() int { return len(l) }
func (l listed) At(i int) (workloads.Session, error) {
	return l[((i%len(l))+len(l))%len(l)], nil
}

func user(texts ...string) []workloads.Message {
	var out []workloads.Message
	for _, s := range texts {
		out = append(out, workloads.Message{Role: "user", Content: s})
	}
	return out
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	text := "line\nbreak \"quoted\" <b> \u00e9\u6c34"
	fields := map[string]json.RawMessage{"temperature": json.RawMessage("0.5"), "own": json.RawMessage(`{"a":[1,2]}`)}
	for name, c := range map[string]struct {
		source  listed
		offsets []time.Duration
		format  Format
	}{
		"single": {listed{
			{ID: "0", Turns: []workloads.Request{{Messages: user(text), OutputTokens: 5}}},
			{ID: "1", Turns: []workloads.Request{{Messages: user("b"), Model: "m", Extra: fields}}},
		}, nil, SingleTurn},
		"timed": {listed{
			{ID: "0", Turns: []workloads.Request{{Messages: user("a")}}},
			{ID: "1", Turns: []workloads.Request{{Messages: user("b")}}},
		}, []time.Duration{0, 1500500 * time.Microsecond}, SingleTurn},
		"sessions": {listed{
			{ID: "0", Turns: []workloads.Request{{Messages: user("a")}, {Messages: user("b"), Delay: 250 * time.Millisecond, OutputTokens: 7, Extra: fields}}},
			{ID: "1", Turns: []workloads.Request{{Messages: user("c")}}},
		}, nil, MultiTurn},
		"messages": {listed{
			{ID: "0", Turns: []workloads.Request{{Messages: []workloads.Message{{Role: "system", Content: "be brief"}, {Role: "user", Content: text}}, OutputTokens: 9, Extra: fields}}},
		}, nil, Prompts},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out.jsonl")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			format, err := Write(f, c.source, len(c.source), c.offsets)
			if err != nil || format != c.format {
				t.Fatalf("format %s, %v, want %s", format, err, c.format)
			}
			f.Close()
			d, err := Open(path, Options{Format: format})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if d.Len() != len(c.source) {
				t.Fatalf("%d sessions read, %d written", d.Len(), len(c.source))
			}
			for i := range c.source {
				got, err := d.At(i)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.source[i].Turns, got.Turns); diff != "" {
					t.Errorf("session %d: -written +read\n%s", i, diff)
				}
			}
			if diff := cmp.Diff(c.offsets, d.Offsets()); diff != "" {
				t.Error(diff)
			}
		})
	}
	mixed := listed{{ID: "0", Turns: []workloads.Request{{Messages: user("a", "b")}, {Messages: user("c")}}}}
	if _, err := Write(os.Stderr, mixed, 1, nil); err == nil {
		t.Error("turns of several messages are written in a format that cannot hold them")
	}
}
