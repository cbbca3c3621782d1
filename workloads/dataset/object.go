package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fault is why an entry is of no use.
type fault struct {
	reason Reason
	detail string
}

func (f *fault) Error() string { return string(f.reason) + ": " + f.detail }

func bad(reason Reason, format string, args ...any) error {
	return &fault{reason, fmt.Sprintf(format, args...)}
}

// inPart names the part of an entry that a fault is in.
func inPart(err error, format string, args ...any) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	return &fault{f.reason, fmt.Sprintf(format, args...) + ": " + f.detail}
}

// object is a JSON object, its values still to be read. The getters return the
// zero value for a key that is missing or null, and a fault for a wrong type.
type object map[string]json.RawMessage

// newObject checks the encoding and reads the outer level of an object.
func newObject(raw []byte) (object, error) {
	if !utf8.Valid(raw) {
		return nil, bad(BadEncoding, "byte %d is not UTF-8", invalidAt(raw)+1)
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		if !json.Valid(raw) {
			return nil, bad(BadJSON, "%v", err)
		}
		return nil, bad(BadShape, "it is %s, not an object", kind(raw))
	}
	if o == nil {
		return nil, bad(BadShape, "it is null, not an object")
	}
	for k, v := range o {
		if string(v) == "null" {
			delete(o, k)
		}
	}
	if bytes.Contains(raw, []byte(`\u`)) && loneSurrogate(raw) {
		return nil, bad(BadEncoding, `a \u escape is half of a surrogate pair`)
	}
	return o, nil
}

func invalidAt(raw []byte) int {
	for i := 0; i < len(raw); {
		r, n := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(raw)
}

// loneSurrogate finds escapes that stand for no character: decoding would
// silently put another one in their place. raw is valid JSON.
func loneSurrogate(raw []byte) bool {
	code := func(i int) uint64 {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 32)
		return n
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		switch c := code(i); {
		case c >= 0xd800 && c < 0xdc00:
			if low := code(i + 6); low < 0xdc00 || low >= 0xe000 {
				return true
			}
			i += 11
		case c >= 0xdc00 && c < 0xe000:
			return true
		case c != 0:
			i += 5
		default:
			i++
		}
	}
	return false
}

func kind(raw []byte) string {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '"':
		return "a string"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == 't', raw[0] == 'f':
		return "a boolean"
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}

func (o object) keys() []string {
	var keys []string
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if len(keys) > 20 {
		keys = append(keys[:20], "…")
	}
	return keys
}

func (o object) has(key string) bool { return o[key] != nil }

// lacks is the fault of an object without the keys it needs.
func (o object) lacks(what string) error {
	if len(o) == 0 {
		return bad(BadShape, "it has no %s: it is empty", what)
	}
	return bad(BadShape, "it has no %s; it has %s", what, strings.Join(o.keys(), ", "))
}

func (o object) text(key string) (string, error) {
	raw, ok := o[key]
	if !ok {
		return "", nil
	}
	if raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil // long texts, fast
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", bad(BadShape, "%s is %s, not a string", key, kind(raw))
	}
	return s, nil
}

func (o object) number(key string) (float64, error) {
	raw, ok := o[key]
	if !ok {
		return 0, nil
	}
	if kind(raw) != "a number" {
		return 0, bad(BadShape, "%s is %s, not a number", key, kind(raw))
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(v) > 1e15 {
		return 0, bad(BadShape, "%s %s is out of range", key, raw)
	}
	return v, nil
}

// count is a number of tokens: a whole number.
func (o object) count(key string) (int, error) {
	v, err := o.number(key)
	if err != nil {
		return 0, err
	}
	if v < 0 || v != math.Trunc(v) || v > math.MaxInt32 {
		return 0, bad(BadShape, "%s %s is no number of tokens", key, o[key])
	}
	return int(v), nil
}

func (o object) list(key string) ([]json.RawMessage, error) {
	raw, ok := o[key]
	if !ok {
		return nil, nil
	}
	var l []json.RawMessage
	if json.Unmarshal(raw, &l) != nil {
		return nil, bad(BadShape, "%s is %s, not an array", key, kind(raw))
	}
	return l, nil
}
