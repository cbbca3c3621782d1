package synthetic

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// stream is a family of random sources, one for each name and index, that do
// not depend on each other's use.
type stream struct{ a, b, c uint64 }

func newStream(seed uint64, names ...string) stream {
	buf := binary.LittleEndian.AppendUint64(nil, seed)
	for _, name := range names {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(len(name)))
		buf = append(buf, name...)
	}
	sum := sha256.Sum256(buf)
	return stream{binary.LittleEndian.Uint64(sum[0:]), binary.LittleEndian.Uint64(sum[8:]), binary.LittleEndian.Uint64(sum[16:])}
}

// at returns the source of one name and index.
func (s stream) at(name string, i int64) *rand.Rand {
	h := s.a
	for _, b := range []byte(name) {
		h = mix64(h ^ uint64(b))
	}
	return rand.New(rand.NewPCG(h, mix64(h+mix64(s.b^uint64(i)))))
}

// unique is a number that no other index has in this stream, and that looks
// random. mix64 is one-to-one.
func (s stream) unique(i int) uint64 { return mix64(uint64(i) ^ s.c) }

// mix64 is the finalizer of SplitMix64: one-to-one, each bit of the result
// depends on each bit of x.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// pick draws an index by weight.
func pick(r *rand.Rand, weights []float64) int {
	var sum float64
	for _, w := range weights {
		sum += w
	}
	x := r.Float64() * sum
	for i, w := range weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(weights) - 1
}
