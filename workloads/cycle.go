package workloads

// Cycle takes only the first N sessions of a source, over and over.
type Cycle struct {
	Source
	N int
}

// Len is N.
func (c Cycle) Len() int { return c.N }

// At returns session i mod N.
func (c Cycle) At(i int) (Session, error) { return c.Source.At(((i % c.N) + c.N) % c.N) }
