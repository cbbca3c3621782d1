package record

import (
	"bytes"
	"encoding/json"
)

// lineEncoder makes the lines of a records file. The chunks, which are most of
// a line, come last: so they can be written and read without the help of
// encoding/json, which looks at every byte three times. The zero value is
// ready.
type lineEncoder struct {
	out   bytes.Buffer
	enc   *json.Encoder
	short Record // the last record without its chunks
}

const (
	chunksKey = `,"chunks":`
	lineEnd   = "}\n"
)

// encode returns the line of a record, which is valid until the next call.
func (e *lineEncoder) encode(r *Record) ([]byte, error) {
	const keep = 1 << 20 // a longer line does not leave its buffer behind
	if e.out.Cap() > keep {
		e.out, e.enc = bytes.Buffer{}, nil
	}
	if e.enc == nil {
		e.enc = json.NewEncoder(&e.out)
		e.enc.SetEscapeHTML(false)
	}
	e.out.Reset()
	e.short = *r
	e.short.Chunks = nil
	err := e.enc.Encode(&e.short)
	e.short = Record{} // the record is not ours to keep
	if err != nil {
		return nil, err
	}
	if len(r.Chunks) > 0 {
		e.out.Truncate(e.out.Len() - len(lineEnd))
		e.out.WriteString(chunksKey)
		e.out.Write(r.Chunks.appendJSON(e.out.AvailableBuffer()))
		e.out.WriteString(lineEnd)
	}
	return e.out.Bytes(), nil
}

// cutChunks parts a line that a lineEncoder has made into the chunks and the
// rest. In any other it finds nothing: a text with the chunks in the middle, or
// inside of something else, does not end as parseChunks wants.
func cutChunks(line []byte) (rest []byte, c Chunks, ok bool) {
	line, ok = bytes.CutSuffix(bytes.TrimSpace(line), []byte("}"))
	at := bytes.LastIndex(line, []byte(chunksKey))
	if !ok || at < 0 {
		return nil, nil, false
	}
	if c, ok = parseChunks(line[at+len(chunksKey):]); !ok {
		return nil, nil, false
	}
	return append(line[:at:at], '}'), c, true
}
