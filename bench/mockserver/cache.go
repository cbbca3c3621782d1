package mockserver

import "container/list"

// prefixCache remembers blocks of tokens, the least recently used forgotten
// first. It is not safe for concurrent use.
type prefixCache struct {
	capacity int // blocks
	order    *list.List
	index    map[uint64]*list.Element
}

func newPrefixCache(capacity int) *prefixCache {
	return &prefixCache{capacity: capacity, order: list.New(), index: map[uint64]*list.Element{}}
}

// hits returns how many of the leading blocks are known. They count as used
// only by the add that follows prefill.
func (c *prefixCache) hits(blocks []uint64, salt uint64) int {
	for i, b := range blocks {
		if _, ok := c.index[mix(b^salt)]; !ok {
			return i
		}
	}
	return len(blocks)
}

// add remembers the blocks, as the most recently used.
func (c *prefixCache) add(blocks []uint64, salt uint64) {
	// The last block first: a chain is useless without its beginning, which
	// must therefore be forgotten last.
	for i := len(blocks) - 1; i >= 0; i-- {
		key := mix(blocks[i] ^ salt)
		if e, ok := c.index[key]; ok {
			c.order.MoveToFront(e)
			continue
		}
		c.index[key] = c.order.PushFront(key)
	}
	for c.order.Len() > c.capacity {
		delete(c.index, c.order.Remove(c.order.Back()).(uint64))
	}
}

func (c *prefixCache) reset() {
	c.order.Init()
	clear(c.index)
}
