package rebalance

import "math/bits"

// Sets of tasks and of workers: a bit for each. Small beside what is kept of
// each task, they stay close at hand where that would not.

type set []uint64

// emptied returns s for numbers below n, with none in it.
func (s set) emptied(n int) set { return sized(s, (n+63)/64) }

func (s set) has(i int32) bool { return s[uint32(i)/64]>>(uint32(i)%64)&1 != 0 }
func (s set) add(i int32)      { s[uint32(i)/64] |= 1 << (uint32(i) % 64) }
func (s set) remove(i int32)   { s[uint32(i)/64] &^= 1 << (uint32(i) % 64) }

// with adds the members of o, which is for as many numbers.
func (s set) with(o set) {
	for k, word := range o {
		s[k] |= word
	}
}

// without removes the members of o.
func (s set) without(o set) {
	for k, word := range o {
		s[k] &^= word
	}
}

func (s set) contains(o set) bool {
	for k, word := range o {
		if word&^s[k] != 0 {
			return false
		}
	}
	return true
}

func (s set) isEmpty() bool {
	for _, word := range s {
		if word != 0 {
			return false
		}
	}
	return true
}

// all calls visit with each member, in order.
func (s set) all(visit func(i int32)) {
	for k, word := range s {
		for ; word != 0; word &= word - 1 {
			visit(int32(k*64 + bits.TrailingZeros64(word)))
		}
	}
}

// numbering numbers the members of a set from 0, in order.
type numbering struct {
	set
	ranks []rank // by word
	count int
}

// rank is a word of a numbered set, and how many members are in those before it.
type rank struct {
	word   uint64
	before int
}

// number gives the numbers, once all are in.
func (n *numbering) number() {
	n.ranks, n.count = n.ranks[:0], 0
	for _, word := range n.set {
		n.ranks = append(n.ranks, rank{word, n.count})
		n.count += bits.OnesCount64(word)
	}
}

// of returns the number of a member.
func (n *numbering) of(i int32) int32 {
	r := &n.ranks[uint32(i)/64]
	return int32(r.before + bits.OnesCount64(r.word&(1<<(uint32(i)%64)-1)))
}
