package worker

// A doubly linked list, for orders from whose middle things are taken out.
// container/list would do, but for its values of type any.

import "iter"

// chain is a list of values in the order they were pushed. The zero chain is
// empty.
type chain[V any] struct {
	first, last *link[V]
}

// link is a value's place in a chain.
type link[V any] struct {
	value      V
	prev, next *link[V]
}

// push puts v at the end, and returns its place.
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

// remove takes l, which must be in the chain, out of it.
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

// all goes through the values in order; the one at hand may be removed.
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
