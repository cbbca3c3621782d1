package workloads

// Ahead holds the first sessions of a source, made before the run: for sources
// that ask somebody who must not be asked during it. It is safe for concurrent
// use.
type Ahead struct {
	Source
	made map[int]Session
}

// NewAhead makes the measured sessions 0 to n-1 and as many of the warmup as
// said. Others are made when they are asked for.
func NewAhead(source Source, n, warmup int) (*Ahead, error) {
	a := &Ahead{Source: source, made: make(map[int]Session, n+warmup)}
	for i := -warmup; i < n; i++ {
		at := a.place(i)
		if _, made := a.made[at]; made {
			continue
		}
		s, err := source.At(at)
		if err != nil {
			return nil, err
		}
		a.made[at] = s
	}
	return a, nil
}

// place is where session i is kept: a source with an end starts over.
func (a *Ahead) place(i int) int {
	if n := a.Len(); n > 0 {
		return ((i % n) + n) % n
	}
	return i
}

// At returns a session. The caller must not change it.
func (a *Ahead) At(i int) (Session, error) {
	if s, ok := a.made[a.place(i)]; ok {
		return s, nil
	}
	return a.Source.At(i)
}
