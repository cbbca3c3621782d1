package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// slowly decodes a line with encoding/json alone.
func slowly(line []byte) (*Record, error) {
	type plain Record
	r := New("", 0)
	if err := json.Unmarshal(line, (*plain)(r)); err != nil {
		return nil, err
	}
	if !r.Outcome.known() {
		return nil, fmt.Errorf("outcome %q", r.Outcome)
	}
	return r, nil
}

// A line is valid JSON that anybody can read, and the short cut for its chunks
// is taken and right.
func TestLine(t *testing.T) {
	var enc lineEncoder // serves all of them, one after the other
	rapid.Check(t, func(t *rapid.T) {
		want := anyRecord(t)
		line, err := enc.encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(line, []byte("\n")) != 1 || !bytes.HasSuffix(line, []byte("}\n")) {
			t.Fatalf("no line: %q", line)
		}
		if _, _, ok := cutChunks(line); ok != (len(want.Chunks) > 0) {
			t.Errorf("the short cut is taken: %v, with %d chunks: %s", ok, len(want.Chunks), line)
		}
		for name, decode := range map[string]func([]byte) (*Record, error){
			"slowly": slowly,
			"short cut": func(b []byte) (*Record, error) {
				r := &Record{}
				return r, r.UnmarshalJSON(b)
			},
		} {
			got, err := decode(line)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, line)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: -written +read\n%s\n%s", name, d, line)
			}
		}
	})
}

// What looks like the end of a line but is not one that we wrote is decoded as
// JSON, or refused as such.
func TestNoShortCut(t *testing.T) {
	for _, line := range []string{
		`{"outcome":"ok","chunks":{"at":[1,2]},"id":4}`,
		`{"outcome":"ok","chunks": {"at":[1,2]}}`,
		`{"outcome":"ok","future":{"id":1,"chunks":{"at":[1,2]}}}`,
		`{"outcome":"ok","chunks":{"at":[01]}}`,
		`{"outcome":"ok","chunks":{"at":[1,]}}`,
		`{"outcome":"ok","chunks":{"at":[-]}}`,
		`{"outcome":"ok","chunks":{"at":[1.5]}}`,
		`{"outcome":"ok","chunks":{"at":[1,-2]}}`,
		`{"outcome":"ok","chunks":{"at":[1],"lag":[1,2]}}`,
		`{"outcome":"ok","chunks":{"at":[1],"choice":[256]}}`,
		`{"outcome":"ok","chunks":{"at":[1],"lag":[4294967296]}}`,
		`{"outcome":"ok","chunks":{"at":[99999999999999999999]}}`,
		`{"outcome":"ok","chunks":{"at":[]}}`,
		`{"outcome":"ok","chunks":{"at":[1],"new":[1]}}`,
		`{"outcome":"ok","model":"a,\"chunks\":{"at":[1]}}`,
	} {
		if _, _, ok := cutChunks([]byte(line)); ok {
			t.Errorf("the short cut takes %s", line)
		}
		agree(t, []byte(line))
	}
}

func agree(t *testing.T, line []byte) {
	t.Helper()
	want, slowErr := slowly(line)
	got := &Record{}
	err := got.UnmarshalJSON(line)
	if (err == nil) != (slowErr == nil) {
		t.Fatalf("%s: %v, by encoding/json alone %v", line, err, slowErr)
	}
	if err == nil {
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s\n%s", line, d)
		}
	}
}

func FuzzLine(f *testing.F) {
	for _, line := range []string{
		`{"outcome":"ok","chunks":{"at":[5,4],"lag":[1,2],"tokens":[-1,2],"kind":[1,33],"choice":[0,255]}}`,
		`{"outcome":"ok","chunks":{"at":[1]},"chunks":{"at":[2]}}`,
		`{"outcome":"ok","x":{"chunks":{"at":[1]}},"chunks":{"at":[0]}}`,
		`{"outcome":"ok","x":",\"chunks\":{\"at\":[1]}}"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if !bytes.Contains(line, []byte("\n")) {
			agree(t, line)
		}
	})
}
