package tokens

// trie maps byte strings to non-negative values, to find those that a text
// has at one place.
type trie struct {
	next   map[uint64]int32 // node and byte to node
	value  []int32          // by node; -1: nothing ends here
	starts [256]bool        // bytes that something begins with
}

func newTrie() *trie {
	return &trie{next: map[uint64]int32{}, value: []int32{-1}}
}

func (t *trie) child(node int32, c byte) (int32, bool) {
	n, ok := t.next[uint64(node)<<8|uint64(c)]
	return n, ok
}

// insert adds s, which is not empty; the value of an s that is there already
// is replaced.
func (t *trie) insert(s string, value int32) {
	t.starts[s[0]] = true
	node := int32(0)
	for i := range len(s) {
		n, ok := t.child(node, s[i])
		if !ok {
			n = int32(len(t.value))
			t.value = append(t.value, -1)
			t.next[uint64(node)<<8|uint64(s[i])] = n
		}
		node = n
	}
	t.value[node] = value
}

// longest returns the length and value of the longest entry that s starts
// with, or length 0.
func (t *trie) longest(s string) (length int, value int32) {
	if s == "" || !t.starts[s[0]] {
		return 0, -1
	}
	node, value := int32(0), int32(-1)
	for i := range len(s) {
		n, ok := t.child(node, s[i])
		if !ok {
			break
		}
		node = n
		if t.value[node] >= 0 {
			length, value = i+1, t.value[node]
		}
	}
	return length, value
}
