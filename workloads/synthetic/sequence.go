package synthetic

import (
	"fmt"
	"iter"
	"sync"

	"github.com/tokmark/tokmark/workloads"
)

// Sequence takes each session from the part that an order names: of the
// workload classes, say, that whose arrival it is. It is safe for concurrent
// use. Close it.
type Sequence struct {
	parts []workloads.Source

	mu     sync.Mutex
	next   func() (int, bool)
	stop   func()
	places []int // those known so far
}

var _ workloads.Source = (*Sequence)(nil)

// NewSequence returns the sources in the order of their places among parts.
func NewSequence(order iter.Seq[int], parts ...workloads.Source) *Sequence {
	s := &Sequence{parts: parts}
	s.next, s.stop = iter.Pull(order)
	return s
}

// Close frees the order. It never fails.
func (s *Sequence) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	return nil
}

// Len is 0: there is no end but that of the order.
func (s *Sequence) Len() int { return 0 }

// At returns session i of the part that is i-th in the order; warmup (i < 0)
// goes through the same order. Sessions of a part are not renumbered.
func (s *Sequence) At(i int) (workloads.Session, error) {
	place, err := s.place(max(i, -1-i))
	if err != nil {
		return workloads.Session{}, err
	}
	return s.parts[place].At(i)
}

func (s *Sequence) place(i int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.places) <= i {
		place, ok := s.next()
		if !ok {
			return 0, fmt.Errorf("session %d: the order ends before it", i)
		}
		s.places = append(s.places, place)
	}
	return s.places[i], nil
}
