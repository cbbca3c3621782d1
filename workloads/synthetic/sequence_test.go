package synthetic

import (
	"slices"
	"strings"
	"testing"
)

// A session is that of the generator of its class alone, whoever asks first,
// and its text begins as the whole generator's does.
func TestSequence(t *testing.T) {
	all, err := New(Options{Salt: "s", Lengths: []Lengths{{Input: Fixed(20), Class: "short"}, {Input: Fixed(60), Class: "long"}}})
	if err != nil {
		t.Fatal(err)
	}
	order := []int{0, 1, 1, 0}
	s := NewSequence(slices.Values(order), all.Only(0), all.Only(1))
	defer func() { _ = s.Close() }()
	for _, i := range []int{3, 0, 1, 2, -1, -2} {
		place := order[max(i, -1-i)]
		session, err := s.At(i)
		if err != nil {
			t.Fatal(err)
		}
		r := session.Turns[0]
		if want := []string{"short", "long"}[place]; r.Class != want || r.InputTokens != []int{20, 60}[place] {
			t.Errorf("session %d is of class %s with %d tokens, want %s", i, r.Class, r.InputTokens, want)
		}
		whole, err := all.At(i)
		if err != nil {
			t.Fatal(err)
		}
		a, b := r.Messages[0].Content, whole.Turns[0].Messages[0].Content
		if n := min(len(a), len(b)) / 2; a[:n] != b[:n] { // the end is of its own
			t.Errorf("session %d begins %q, of all classes %q", i, a[:n], b[:n])
		}
	}
	if _, err := s.At(4); err == nil || !strings.Contains(err.Error(), "session 4") {
		t.Errorf("past the end: %v", err)
	}
}
