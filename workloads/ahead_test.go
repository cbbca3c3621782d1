package workloads_test

import (
	"strconv"
	"testing"

	"github.com/tokmark/tokmark/workloads"
)

// counted counts how often a session is made.
type counted struct {
	len  int
	made map[int]int
}

func (c *counted) Len() int { return c.len }

func (c *counted) At(i int) (workloads.Session, error) {
	c.made[i]++
	return workloads.Session{ID: strconv.Itoa(i)}, nil
}

func TestAheadMakesEachOnce(t *testing.T) {
	for _, c := range []struct{ len, n, warmup, made int }{{0, 5, 2, 7}, {3, 5, 2, 3}, {0, 0, 0, 0}} {
		source := &counted{len: c.len, made: map[int]int{}}
		a, err := workloads.NewAhead(source, c.n, c.warmup)
		if err != nil || len(source.made) != c.made {
			t.Fatalf("%+v: %d were made ahead, %v", c, len(source.made), err)
		}
		for i := -c.warmup; i < c.n; i++ {
			s, err := a.At(i)
			want := i
			if c.len > 0 {
				want = (i + c.len) % c.len
			}
			if err != nil || s.ID != strconv.Itoa(want) {
				t.Errorf("%+v: session %d is %q, %v", c, i, s.ID, err)
			}
		}
		for i, n := range source.made {
			if n != 1 {
				t.Errorf("%+v: session %d was made %d times", c, i, n)
			}
		}
		if s, err := a.At(100); err != nil || c.len == 0 && s.ID != "100" {
			t.Errorf("%+v: session 100 is %q, %v", c, s.ID, err)
		}
	}
}
