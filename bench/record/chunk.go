package record

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Kind says what output an event carried; several may hold at once.
type Kind uint8

// The kinds of output, and one flag about the event's arrival.
const (
	KindText      Kind = 1 << iota // content or text
	KindReasoning                  // reasoning_content or reasoning
	KindTool                       // a tool call's name or arguments
	KindRefusal                    // refusal
	KindTokenIDs                   // token ids
	// SameRead: an earlier event was completed by the same read, so the two
	// share their time.
	SameRead
	KindVector // embeddings, which come as a whole
)

// Answer reports whether the kind is part of the answer, not of the reasoning.
func (k Kind) Answer() bool { return k&(KindText|KindTool|KindRefusal) != 0 }

// Output reports whether the kind holds any output.
func (k Kind) Output() bool { return k&^SameRead != 0 }

// UnknownTokens is Chunk.Tokens of an event whose token count nobody told.
const UnknownTokens = math.MaxUint16

// Chunk is one SSE event that carried output. It holds no pointer, and is kept
// at 16 bytes: there is one for each event of a run.
type Chunk struct {
	// At is the arrival of the read that completed the event.
	At Time
	// Lag is how many nanoseconds later the program saw it, at most 4.2 s; 0
	// where there is no kernel stamp to tell.
	Lag uint32
	// Tokens is how many tokens the event brought, or UnknownTokens.
	Tokens uint16
	Kind   Kind
	Choice uint8
}

// Chunks are the events of one answer that carried output.
type Chunks []Chunk

// IsZero tells omitzero to leave out an answer without output.
func (c Chunks) IsZero() bool { return len(c) == 0 }

// In a file, chunks stand as columns: one array of integers a field, so that a
// line stays short and any tool can read it. at holds the first arrival as an
// offset from the origin, then the gaps. A column whose entries are all the
// usual value is left out.
var columns = []struct {
	name           string
	usual, highest int64
	get            func(*Chunk) int64
	set            func(*Chunk, int64)
}{
	{"lag", 0, math.MaxUint32, func(c *Chunk) int64 { return int64(c.Lag) }, func(c *Chunk, v int64) { c.Lag = uint32(v) }},
	{"tokens", -1, UnknownTokens - 1, func(c *Chunk) int64 {
		if c.Tokens == UnknownTokens {
			return -1
		}
		return int64(c.Tokens)
	}, func(c *Chunk, v int64) {
		if c.Tokens = uint16(v); v < 0 {
			c.Tokens = UnknownTokens
		}
	}},
	{"kind", int64(KindText), math.MaxUint8, func(c *Chunk) int64 { return int64(c.Kind) }, func(c *Chunk, v int64) { c.Kind = Kind(v) }},
	{"choice", 0, math.MaxUint8, func(c *Chunk) int64 { return int64(c.Choice) }, func(c *Chunk, v int64) { c.Choice = uint8(v) }},
}

// MarshalJSON writes the chunks as columns, arrivals as gaps in nanoseconds.
func (c Chunks) MarshalJSON() ([]byte, error) {
	const perChunk = 12 // bytes, about
	return c.appendJSON(make([]byte, 0, 64+perChunk*len(c))), nil
}

func (c Chunks) appendJSON(b []byte) []byte {
	b = append(b, `{"at":[`...)
	var last Time
	for i := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(c[i].At-last), 10)
		last = c[i].At
	}
	for _, col := range columns {
		usual := true
		for i := range c {
			usual = usual && col.get(&c[i]) == col.usual
		}
		if usual {
			continue
		}
		b = append(append(append(b, `],"`...), col.name...), `":[`...)
		for i := range c {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, col.get(&c[i]), 10)
		}
	}
	return append(b, "]}"...)
}

// parseChunks reads what appendJSON writes, to the byte. Anything else is not
// ok, be it right or wrong, and is left to UnmarshalJSON, which takes ten times
// as long.
func parseChunks(b []byte) (c Chunks, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(`{"at":[`))
	end := bytes.IndexByte(b, ']')
	if !ok || end < 1 {
		return nil, false
	}
	c = make(Chunks, bytes.Count(b[:end], []byte(","))+1)
	var sum, v int64
	for i := range c {
		if v, b, ok = cutInteger(b, i == len(c)-1); !ok {
			return nil, false
		}
		if sum += v; sum < 0 {
			return nil, false
		}
		c[i] = Chunk{At: Time(sum), Tokens: UnknownTokens, Kind: KindText}
	}
	for _, col := range columns {
		rest, has := bytes.CutPrefix(b, []byte(`,"`+col.name+`":[`))
		if !has {
			continue
		}
		b = rest
		for i := range c {
			if v, b, ok = cutInteger(b, i == len(c)-1); !ok || v < min(col.usual, 0) || v > col.highest {
				return nil, false
			}
			col.set(&c[i], v)
		}
	}
	return c, string(b) == "}"
}

// cutInteger takes an integer and what follows it off b: a comma or, after the
// last one, a bracket.
func cutInteger(b []byte, last bool) (v int64, rest []byte, ok bool) {
	const longest = 18 // digits that fit for sure
	i, negative := 0, len(b) > 0 && b[0] == '-'
	if negative {
		i = 1
	}
	from := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		v = v*10 + int64(b[i]-'0')
		i++
	}
	after := byte(',')
	if last {
		after = ']'
	}
	if i == from || i-from > longest || b[from] == '0' && i-from > 1 || i == len(b) || b[i] != after {
		return 0, nil, false
	}
	if negative {
		v = -v
	}
	return v, b[i+1:], true
}

// UnmarshalJSON reads what MarshalJSON writes. Columns of unequal length or
// values out of range are an error; columns of another name are passed over.
func (c *Chunks) UnmarshalJSON(b []byte) error {
	var at column
	cols := make([]column, len(columns))
	fields := []field{{"at", &at}}
	for i, col := range columns {
		fields = append(fields, field{col.name, &cols[i]})
	}
	if err := unmarshalColumns(b, fields); err != nil {
		return fmt.Errorf("chunks: %w", err)
	}
	out := make(Chunks, len(at))
	var sum int64
	for i, gap := range at {
		if sum += gap; sum < 0 || gap < 0 && i == 0 {
			return fmt.Errorf("chunks: at[%d] lies before the origin", i)
		}
		out[i] = Chunk{At: Time(sum), Tokens: UnknownTokens, Kind: KindText}
	}
	for k, col := range columns {
		if cols[k] == nil {
			continue
		}
		if len(cols[k]) != len(at) {
			return fmt.Errorf("chunks: %s has %d entries, at has %d", col.name, len(cols[k]), len(at))
		}
		for i, v := range cols[k] {
			if v < min(col.usual, 0) || v > col.highest {
				return fmt.Errorf("chunks: %s[%d] = %d is out of range", col.name, i, v)
			}
			col.set(&out[i], v)
		}
	}
	if len(out) == 0 {
		out = nil
	}
	*c = out
	return nil
}

// column is an array of integers that decodes itself: with encoding/json alone
// most of the time of reading a run goes here.
type column []int64

type field struct {
	name string
	into *column
}

// unmarshalColumns decodes an object of integer arrays. b is valid JSON, as
// encoding/json has looked it through before it calls UnmarshalJSON: looking
// again would double the time of reading a run.
func unmarshalColumns(b []byte, fields []field) error {
	b = bytes.TrimSpace(b)
	if string(b) == "null" {
		return nil
	}
	if len(b) == 0 || b[0] != '{' {
		return errors.New("no object")
	}
	for b = b[1:]; ; {
		from := bytes.IndexByte(b, '"')
		if from < 0 {
			return nil
		}
		b = b[from:]
		to := valueEnd(b)
		name := string(b[1 : to-1])
		b = bytes.TrimLeft(b[to:], " \t\r\n:")
		to = valueEnd(b)
		for _, f := range fields {
			if f.name == name {
				if err := f.into.parse(b[:to]); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		b = b[to:]
	}
}

// valueEnd is the length of the JSON value that b begins with.
func valueEnd(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch ch := b[i]; {
		case quoted && ch == '\\':
			i++
		case ch == '"':
			quoted = !quoted
			if !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case ch == '[' || ch == '{':
			depth++
		case ch == ']' || ch == '}':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i
			}
		case ch == ',' && depth == 0:
			return i
		}
	}
	return len(b)
}

// parse reads a valid JSON text that must be an array of integers, or null.
func (c *column) parse(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || string(b) == "null" {
		return nil
	}
	if b[0] != '[' {
		return errors.New("no array")
	}
	out := make(column, 0, bytes.Count(b, []byte(","))+1)
	for i := 1; i < len(b); {
		switch ch := b[i]; {
		case ch == '-' || ch >= '0' && ch <= '9':
			from := i
			for i++; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
			}
			v, err := strconv.ParseInt(string(b[from:i]), 10, 64)
			if err != nil {
				return err
			}
			out = append(out, v)
		case ch == ',' || ch == ' ' || ch == '\t' || ch == '\r' || ch == '\n' || ch == ']':
			i++
		default:
			return fmt.Errorf("entry %d is no integer", len(out))
		}
	}
	*c = out
	return nil
}
