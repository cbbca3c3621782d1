package stats

import (
	"math"
	"slices"
	"sync"
)

// blockSize is how many values are kept, and sorted, together.
const blockSize = 1 << 18

// Sample collects values to be described: memory is that of the values and no
// more, also for many millions. Blocks of them are sorted in the background
// while more are added. The zero value is an empty sample. It is not safe for
// concurrent use.
type Sample[T Number] struct {
	full    [][]T // sorted once sorting is done
	last    []T   // not sorted
	sorting sync.WaitGroup
	n       int
}

// Add adds a value.
func (s *Sample[T]) Add(v T) {
	if len(s.last) == blockSize {
		s.seal()
	}
	s.last = append(s.last, v)
	s.n++
}

// Len is the number of values.
func (s *Sample[T]) Len() int { return s.n }

// seal closes the last block.
func (s *Sample[T]) seal() {
	if len(s.last) == 0 {
		return
	}
	block := s.last
	s.full, s.last = append(s.full, block), nil
	s.sorting.Go(func() { slices.Sort(block) })
}

// Describe returns the statistic of the values, each divided by unit, or false
// if there are none. Percentiles are interpolated linearly at rank p/100 *
// (n-1). More values may be added afterwards.
func (s *Sample[T]) Describe(unit float64) (Statistic, bool) {
	if s.n == 0 {
		return Statistic{}, false
	}
	s.settle()
	sum := s.sum()
	mean := sum / float64(s.n)
	var squares float64
	for _, block := range s.full {
		for _, v := range block {
			d := float64(v) - mean
			squares += d * d
		}
	}
	out := Statistic{
		Count: int64(s.n),
		Sum:   sum / unit,
		Avg:   mean / unit,
		Min:   float64(s.at(0)) / unit,
		Max:   float64(s.at(s.n-1)) / unit,
		Std:   math.Sqrt(squares/float64(s.n)) / unit,
	}
	for i, p := range Percents {
		out.Percentiles[i] = s.linear(p) / unit
	}
	return out, true
}

// WithFailures returns the statistic of the values and one infinity for each
// of failures, as AIPerf's adj_ metrics have it: percentiles are the value at
// the nearest rank, halves to even, and everything that an infinity enters is
// +Inf. Without failures it is Describe. It returns false if there is no
// value.
func (s *Sample[T]) WithFailures(failures int64, unit float64) (Statistic, bool) {
	if s.n == 0 || failures == 0 {
		return s.Describe(unit)
	}
	s.settle()
	inf := math.Inf(1)
	out := Statistic{
		Count: int64(s.n) + failures,
		Sum:   inf, Avg: inf, Max: inf, Std: inf,
		Min: float64(s.at(0)) / unit,
	}
	for i, p := range Percents {
		out.Percentiles[i] = inf
		if rank := math.RoundToEven(p / 100 * float64(out.Count-1)); rank < float64(s.n) {
			out.Percentiles[i] = float64(s.at(int(rank))) / unit
		}
	}
	return out, true
}

// settle makes every value part of a sorted block.
func (s *Sample[T]) settle() {
	s.seal()
	s.sorting.Wait()
}

// at returns the value of rank k, from 0. It keeps, in each block, the range
// that can hold it, and narrows all of them by the middle of the longest.
func (s *Sample[T]) at(k int) T {
	if len(s.full) == 1 {
		return s.full[0][k]
	}
	rest := slices.Clone(s.full)
	for {
		longest := 0
		for i, block := range rest {
			if len(block) > len(rest[longest]) {
				longest = i
			}
		}
		pivot := rest[longest][len(rest[longest])/2]
		below, upTo := 0, 0 // how many values of rest are < pivot, <= pivot
		type cut struct{ below, upTo int }
		cuts := make([]cut, len(rest))
		for i, block := range rest {
			b, found := slices.BinarySearch(block, pivot)
			u := b
			if found {
				u += countPrefix(block[b:], pivot)
			}
			cuts[i] = cut{b, u}
			below += b
			upTo += u
		}
		switch {
		case k < below:
			for i := range rest {
				rest[i] = rest[i][:cuts[i].below]
			}
		case k < upTo:
			return pivot
		default:
			for i := range rest {
				rest[i] = rest[i][cuts[i].upTo:]
			}
			k -= upTo
		}
	}
}

// countPrefix is how many values at the start of sorted are v.
func countPrefix[T Number](sorted []T, v T) int {
	n, _ := slices.BinarySearchFunc(sorted, v, func(x, v T) int {
		if x <= v {
			return -1
		}
		return 1
	})
	return n
}

// linear interpolates between the two values next to rank p/100 * (n-1).
// Neighbours are subtracted in their own type, so large integers lose nothing.
func (s *Sample[T]) linear(p float64) float64 {
	h := p / 100 * float64(s.n-1)
	low := int(h)
	v := s.at(low)
	f := h - float64(low)
	if f == 0 || low+1 >= s.n {
		return float64(v)
	}
	return float64(v) + f*float64(s.at(low+1)-v)
}

// sum is Neumaier's compensated sum: its error does not grow with n.
func (s *Sample[T]) sum() float64 {
	var sum, lost float64
	for _, block := range s.full {
		for _, v := range block {
			x := float64(v)
			t := sum + x
			if math.Abs(sum) >= math.Abs(x) {
				lost += (sum - t) + x
			} else {
				lost += (x - t) + sum
			}
			sum = t
		}
	}
	return sum + lost
}
