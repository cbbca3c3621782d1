package synthetic

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/tokmark/tokmark/workloads"
)

// Part is one of the sources of a Mix.
type Part struct {
	Source workloads.Source
	// Weight is the part's share, relative to the others; 0: 1.
	Weight float64
	// Class and Model, if set, are put on every request of the part.
	Class, Model string
}

// Mix draws each session from one of several sources: workload classes, or
// models and LoRA adapters over one source. It is safe for concurrent use.
type Mix struct {
	parts  []Part
	weight []float64
	draw   stream
	rotate bool
}

var _ workloads.Source = (*Mix)(nil)

// NewMix returns a mix that draws the part of session i by weight, from seed
// and i alone.
func NewMix(seed uint64, parts ...Part) (*Mix, error) {
	m := &Mix{parts: parts, draw: newStream(seed, "mix")}
	return m, m.check()
}

// NewRotation returns a mix that takes the parts in turn, whatever their
// weights (AIPerf's round_robin).
func NewRotation(parts ...Part) (*Mix, error) {
	m := &Mix{parts: parts, rotate: true}
	return m, m.check()
}

func (m *Mix) check() error {
	var errs []error
	if len(m.parts) == 0 {
		errs = append(errs, errors.New("mix: it has no part"))
	}
	for i, p := range m.parts {
		if p.Source == nil {
			errs = append(errs, fmt.Errorf("mix: part %d has no source", i+1))
		}
		if !(p.Weight >= 0) || math.IsInf(p.Weight, 0) {
			errs = append(errs, fmt.Errorf("mix: part %d: weight %v: it must be a number above 0", i+1, p.Weight))
		}
		m.weight = append(m.weight, cmp.Or(p.Weight, 1))
	}
	return errors.Join(errs...)
}

// At returns session i of the part drawn for i. Sessions of a part are not
// renumbered, so a source with an end may give one session twice before
// another comes once.
func (m *Mix) At(i int) (workloads.Session, error) {
	n := len(m.parts)
	k := ((i % n) + n) % n
	if !m.rotate {
		k = pick(m.draw.at("part", int64(i)), m.weight)
	}
	p := m.parts[k]
	s, err := p.Source.At(i)
	if err != nil {
		return s, err
	}
	// The source may hand out its own memory.
	turns := make([]workloads.Request, len(s.Turns))
	for t, r := range s.Turns {
		r.Class = cmp.Or(p.Class, r.Class)
		r.Model = cmp.Or(p.Model, r.Model)
		turns[t] = r
	}
	s.Turns = turns
	return s, nil
}

// Len is 0: a mix has no end, even if its sources have.
func (m *Mix) Len() int { return 0 }
