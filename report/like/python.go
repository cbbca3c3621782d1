package like

import "bytes"

// StandardJSON returns a document of Python's json module as standard JSON: its
// Infinity, -Infinity and NaN outside of strings, which no standard knows,
// become null. Other documents are returned as they are.
func StandardJSON(b []byte) []byte {
	words := [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")}
	var out []byte // nil until something is replaced
	from, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch {
		case quoted && b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case quoted:
		default:
			for _, w := range words {
				if bytes.HasPrefix(b[i:], w) {
					out = append(append(out, b[from:i]...), "null"...)
					from = i + len(w)
					i = from - 1
					break
				}
			}
		}
	}
	if out == nil {
		return b
	}
	return append(out, b[from:]...)
}
