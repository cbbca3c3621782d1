package html

import (
	"cmp"
	"slices"
	"time"

	"github.com/tokmark/tokmark/bench/record"
)

// What a stall is: a gap so many times the median gap of its own stream, and
// so much above it.
const (
	stallTimes = 5
	stallFloor = 10 * time.Millisecond
	stallGaps  = 8      // a stream needs for a median
	stallsKept = 50_000 // the longest; a bound for memory
)

// stall is one gap far above its stream's median.
type stall struct {
	from, to record.Time
	stream   int64
	// together is how many other streams stalled in the middle of it, of how
	// many that were at work.
	together, others int
}

func (s stall) length() time.Duration { return s.to.Sub(s.from) }

// stalls are those of a run. The zero value is ready for use.
type stalls struct {
	list    []stall // in the order of time once settled
	streams int64   // that were long enough to be looked at
	touched int64   // that stalled
	total   int64
	lost    time.Duration // sum of the stalls' lengths
	decode  time.Duration // sum of the streams' times from first to last event
	gaps    []time.Duration
}

// addStream looks at the gaps of a stream.
func (s *stalls) addStream(r *record.Record) {
	s.gaps = r.Gaps(s.gaps[:0])
	if len(s.gaps) < stallGaps {
		return
	}
	s.streams++
	d, _ := r.DecodeDuration()
	s.decode += d
	slices.Sort(s.gaps)
	median := s.gaps[len(s.gaps)/2]
	limit := max(stallTimes*median, median+stallFloor)
	if s.gaps[len(s.gaps)-1] < limit {
		return
	}
	s.touched++
	for i := 1; i < len(r.Chunks); i++ {
		gap := r.Chunks[i].At.Sub(r.Chunks[i-1].At)
		if gap < limit {
			continue
		}
		s.total++
		s.lost += gap
		one := stall{from: r.Chunks[i-1].At, to: r.Chunks[i].At, stream: r.ID}
		s.list = append(s.list, one)
	}
	if len(s.list) >= 2*stallsKept {
		s.cut()
	}
}

// cut keeps the longest.
func (s *stalls) cut() {
	slices.SortFunc(s.list, func(a, b stall) int {
		return cmp.Or(cmp.Compare(b.length(), a.length()), cmp.Compare(a.from, b.from), cmp.Compare(a.stream, b.stream))
	})
	s.list = s.list[:min(len(s.list), stallsKept)]
}

// settle finds out which stalls coincide.
func (s *stalls) settle(requests []request) {
	s.cut()
	s.gaps = nil
	slices.SortFunc(s.list, func(a, b stall) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.stream, b.stream))
	})
	var stalled, working overlap
	for _, one := range s.list {
		stalled.add(one.from, one.to)
	}
	for _, q := range requests {
		if q.valid && q.last > q.first {
			working.add(q.first, q.last)
		}
	}
	stalled.settle()
	working.settle()
	for i := range s.list {
		one := &s.list[i]
		middle := one.from + (one.to-one.from)/2
		// The stall itself, and its stream, are among those counted.
		one.together, one.others = stalled.at(middle)-1, working.at(middle)-1
	}
}

// coincide reports whether at least half of the other streams stalled at the
// same time: two of them, if there were two.
func (s stall) coincide() bool {
	return s.others > 0 && s.together >= min(2, s.others) && 2*s.together >= s.others
}

// coinciding counts the stalls that do.
func (s *stalls) coinciding() (n, most int) {
	for _, one := range s.list {
		if one.coincide() {
			n++
		}
		most = max(most, one.together+1)
	}
	return n, most
}

// overlap counts intervals at a moment.
type overlap struct{ from, to []record.Time }

func (o *overlap) add(from, to record.Time) { o.from, o.to = append(o.from, from), append(o.to, to) }

func (o *overlap) settle() {
	slices.Sort(o.from)
	slices.Sort(o.to)
}

// at is how many intervals hold the moment, their ends not among them.
func (o *overlap) at(t record.Time) int {
	begun, _ := slices.BinarySearch(o.from, t+1)
	ended, _ := slices.BinarySearch(o.to, t+1)
	return begun - ended
}
