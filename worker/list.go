package worker

// A doubly linked list from which any element can be removed. Unlike container/list,
// it is typed.

import "iter"

// chain is a list of values in the order in which they were pushed. The zero chain
// is empty.
type chain[V any] struct {
	first, last *link[V]
}

// link is an element of a chain.
type link[V any] struct {
	value      V
	prev, next *link[V]
}

// push appends v and returns its link.
func (c *chain[V]) push(v V) *link[V] {
	l := &link[V]{value: v, prev: c.last}
	if c.last == nil {
		c.first = l
	} else {
		c.last.next = l
	}
	c.last = l
	return l
}

// remove removes l, which must be in the chain.
func (c *chain[V]) remove(l *link[V]) {
	if l.prev == nil {
		c.first = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		c.last = l.prev
	} else {
		l.next.prev = l.prev
	}
}

// all iterates over the values in order. The current value may be removed.
func (c *chain[V]) all() iter.Seq[V] {
	return func(yield func(V) bool) {
		for l := c.first; l != nil; {
			next := l.next
			if !yield(l.value) {
				return
			}
			l = next
		}
	}
}
