package synthetic

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Length is a distribution of lengths in tokens. Draws are at least 1. A draw
// uses nothing but r.
type Length interface {
	Draw(r *rand.Rand) int
	Validate() error
}

// Lengths is a class of requests with their lengths.
type Lengths struct {
	// Input is required; Output nil: no limit is sent.
	Input, Output Length
	// Weight is the class's share, relative to the others; 0: 1.
	Weight float64
	// Class names it; it may be empty.
	Class string
}

func (l Lengths) validate() error {
	var errs []error
	if l.Input == nil {
		errs = append(errs, errors.New("no input length"))
	} else if err := l.Input.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("input length: %w", err))
	}
	if l.Output != nil {
		if err := l.Output.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("output length: %w", err))
		}
	}
	if !(l.Weight >= 0) || math.IsInf(l.Weight, 0) {
		errs = append(errs, fmt.Errorf("weight %v: it must be a number above 0", l.Weight))
	}
	return errors.Join(errs...)
}

// Fixed is one length.
type Fixed int

// Draw returns f.
func (f Fixed) Draw(*rand.Rand) int { return int(f) }

// Validate wants 1 or more.
func (f Fixed) Validate() error { return inTokens(float64(f)) }

// Normal is rounded, and clamped to at least 1 (AIPerf's --isl, --isl-stddev).
type Normal struct{ Mean, Stddev float64 }

// Draw returns a length.
func (n Normal) Draw(r *rand.Rand) int { return whole(n.Mean + float64(n.Stddev*r.NormFloat64())) }

// Validate wants a mean of 1 or more.
func (n Normal) Validate() error { return moments(n.Mean, n.Stddev) }

// LogNormal is rounded, and clamped to at least 1. Mean and Stddev are those
// of the lengths, not of their logarithms.
type LogNormal struct{ Mean, Stddev float64 }

// Draw returns a length.
func (n LogNormal) Draw(r *rand.Rand) int {
	variance := math.Log1p(n.Stddev * n.Stddev / (n.Mean * n.Mean))
	return whole(math.Exp(math.Log(n.Mean) - variance/2 + float64(math.Sqrt(variance)*r.NormFloat64())))
}

// Validate wants a mean of 1 or more.
func (n LogNormal) Validate() error { return moments(n.Mean, n.Stddev) }

// Uniform has both ends in it.
type Uniform struct{ Min, Max int }

// Draw returns a length.
func (u Uniform) Draw(r *rand.Rand) int { return u.Min + r.IntN(u.Max-u.Min+1) }

// Validate wants 1 <= Min <= Max.
func (u Uniform) Validate() error {
	if u.Max < u.Min {
		return fmt.Errorf("from %d to %d: the end is below the start", u.Min, u.Max)
	}
	return errors.Join(inTokens(float64(u.Min)), inTokens(float64(u.Max)))
}

// Histogram draws a bucket by weight, and a length in it evenly.
type Histogram []Bucket

// Bucket is a range of lengths with both ends in it.
type Bucket struct {
	Low, High int
	Weight    float64
}

// Draw returns a length.
func (h Histogram) Draw(r *rand.Rand) int {
	var sum float64
	for _, b := range h {
		sum += b.Weight
	}
	x := r.Float64() * sum
	at := h[len(h)-1]
	for _, b := range h {
		if x -= b.Weight; x < 0 {
			at = b
			break
		}
	}
	return Uniform{at.Low, at.High}.Draw(r)
}

// Validate wants buckets with a weight above 0.
func (h Histogram) Validate() error {
	if len(h) == 0 {
		return errors.New("the histogram is empty")
	}
	var errs []error
	for i, b := range h {
		if err := b.validate(); err != nil {
			errs = append(errs, fmt.Errorf("bucket %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (b Bucket) validate() error {
	err := Uniform{b.Low, b.High}.Validate()
	if !(b.Weight > 0) || math.IsInf(b.Weight, 0) {
		err = errors.Join(err, fmt.Errorf("weight %v: it must be a number above 0", b.Weight))
	}
	return err
}

func whole(x float64) int { return int(min(max(1, math.Round(x)), maxTokens)) }

func inTokens(x float64) error {
	if !(x >= 1 && x <= maxTokens) {
		return fmt.Errorf("%v tokens: it must be 1 to %d", x, maxTokens)
	}
	return nil
}

func moments(mean, stddev float64) error {
	err := inTokens(mean)
	if !(stddev >= 0 && stddev <= maxTokens) {
		err = errors.Join(err, fmt.Errorf("standard deviation %v: it must be a number, 0 or above", stddev))
	}
	return err
}

// ReadHistogram reads lines "LENGTH", "LENGTH,WEIGHT" or "LOW-HIGH,WEIGHT";
// blank lines and lines that start with # are passed over. name stands in
// errors.
func ReadHistogram(r io.Reader, name string) (Histogram, error) {
	var h Histogram
	in := bufio.NewScanner(r)
	line := 0
	for in.Scan() {
		line++
		s := strings.TrimSpace(in.Text())
		if s == "" || s[0] == '#' {
			continue
		}
		b, err := parseBucket(s)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		h = append(h, b)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, line+1, err)
	}
	if len(h) == 0 {
		return nil, fmt.Errorf("%s: it holds no length", name)
	}
	return h, nil
}

func parseBucket(s string) (Bucket, error) {
	lengths, weight, hasWeight := strings.Cut(s, ",")
	low, high, isRange := strings.Cut(lengths, "-")
	b := Bucket{Weight: 1}
	var err error
	if b.Low, err = strconv.Atoi(strings.TrimSpace(low)); err != nil {
		return b, fmt.Errorf("%q is no length: write LENGTH, LENGTH,WEIGHT or LOW-HIGH,WEIGHT", s)
	}
	b.High = b.Low
	if isRange {
		if b.High, err = strconv.Atoi(strings.TrimSpace(high)); err != nil {
			return b, fmt.Errorf("%q is no range of lengths: write LOW-HIGH,WEIGHT", s)
		}
	}
	if hasWeight {
		if b.Weight, err = strconv.ParseFloat(strings.TrimSpace(weight), 64); err != nil {
			return b, fmt.Errorf("%q is no weight", strings.TrimSpace(weight))
		}
	}
	return b, b.validate()
}

// ParseLengths reads AIPerf's --sequence-distribution in its three forms:
//
//	256,128:60;512|20,256|10:40
//	[(256,128):60,(512|20,256|10):40]
//	{"pairs":[{"isl":256,"isl_stddev":0,"osl":128,"osl_stddev":0,"prob":60}]}
//
// Each entry is an input length (|standard deviation), an output length
// (|standard deviation) and a weight in percent: as AIPerf wants it, they sum
// to 100 (or, as shares, to 1). A deviation of 0 is a fixed length, else lengths
// are Normal.
func ParseLengths(s string) ([]Lengths, error) {
	var out []Lengths
	var err error
	switch s = strings.TrimSpace(s); {
	case s == "":
		err = errors.New("it is empty")
	case s[0] == '{':
		out, err = parsePairs(s)
	case s[0] == '[':
		out, err = parseBrackets(s)
	default:
		out, err = parseEntries(strings.Split(s, ";"))
	}
	if err == nil {
		err = checkSum(out)
	}
	if err != nil {
		return nil, fmt.Errorf("sequence distribution: %w", err)
	}
	return out, nil
}

// checkSum holds the weights to their sum, but for rounding as of three times
// 33.3.
func checkSum(lengths []Lengths) error {
	sum := 0.0
	for _, l := range lengths {
		sum += l.Weight
	}
	const rounding = 0.0011 // of the sum
	if math.Abs(sum-100) > 100*rounding && math.Abs(sum-1) > rounding {
		return fmt.Errorf("the weights sum to %g: they are percentages, and must sum to 100", sum)
	}
	return nil
}

func parsePairs(s string) ([]Lengths, error) {
	var doc struct {
		Pairs []struct {
			ISL    float64 `json:"isl"`
			ISLDev float64 `json:"isl_stddev"`
			OSL    float64 `json:"osl"`
			OSLDev float64 `json:"osl_stddev"`
			Prob   float64 `json:"prob"`
		} `json:"pairs"`
	}
	dec := json.NewDecoder(strings.NewReader(s))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the JSON object")
	}
	if len(doc.Pairs) == 0 {
		return nil, errors.New(`"pairs" has no entry`)
	}
	var out []Lengths
	for i, p := range doc.Pairs {
		l, err := newLengths(p.ISL, p.ISLDev, p.OSL, p.OSLDev, p.Prob)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		out = append(out, l)
	}
	return out, nil
}

// parseBrackets turns the form in brackets into the one with semicolons.
func parseBrackets(s string) ([]Lengths, error) {
	inner, ok := strings.CutSuffix(s[1:], "]")
	if !ok {
		return nil, errors.New("the closing ] is missing")
	}
	var entries []string
	for i, part := range strings.Split(inner, "(") {
		part = strings.TrimSpace(part)
		if i == 0 {
			if part != "" {
				return nil, fmt.Errorf("%q stands before the first (", part)
			}
			continue
		}
		pair, weight, ok := strings.Cut(part, ")")
		if !ok {
			return nil, fmt.Errorf("entry %d, %q: the closing ) is missing", i, part)
		}
		weight = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(weight), ","))
		entries = append(entries, pair+weight)
	}
	if len(entries) == 0 {
		return nil, errors.New("there is no entry between [ and ]")
	}
	return parseEntries(entries)
}

func parseEntries(entries []string) ([]Lengths, error) {
	var out []Lengths
	for i, e := range entries {
		e = strings.TrimSpace(e)
		if e == "" && i == len(entries)-1 && i > 0 {
			continue // a semicolon at the end
		}
		l, err := parseEntry(e)
		if err != nil {
			return nil, fmt.Errorf("entry %d, %q: %w", i+1, e, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func parseEntry(e string) (Lengths, error) {
	pair, weight, ok := strings.Cut(e, ":")
	isl, osl, ok2 := strings.Cut(pair, ",")
	if !ok || !ok2 {
		return Lengths{}, errors.New("it must be ISL,OSL:WEIGHT, or ISL|STDDEV,OSL|STDDEV:WEIGHT")
	}
	var numbers [5]float64
	islMean, islDev, _ := strings.Cut(isl, "|")
	oslMean, oslDev, _ := strings.Cut(osl, "|")
	for i, s := range []string{islMean, cmp.Or(islDev, "0"), oslMean, cmp.Or(oslDev, "0"), weight} {
		v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil {
			return Lengths{}, fmt.Errorf("%q is no number", strings.TrimSpace(s))
		}
		numbers[i] = v
	}
	return newLengths(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4])
}

func newLengths(isl, islDev, osl, oslDev, weight float64) (Lengths, error) {
	length := func(mean, dev float64) Length {
		if dev == 0 && mean == math.Trunc(mean) && math.Abs(mean) <= maxTokens {
			return Fixed(mean)
		}
		return Normal{mean, dev}
	}
	l := Lengths{Input: length(isl, islDev), Output: length(osl, oslDev), Weight: weight}
	if !(weight > 0) {
		return l, fmt.Errorf("weight %v: it must be above 0", weight)
	}
	return l, l.validate()
}
