package rebalance

// Sets of tasks and of workers, a bit for each, and lists of tasks by worker.

import "math/bits"

// set is a set of small numbers.
type set []uint64

// emptied returns s for numbers below n, with none in it.
func (s set) emptied(n int) set { return sized(s, (n+63)/64) }

func (s set) has(i int32) bool { return s[uint32(i)/64]>>(uint32(i)%64)&1 != 0 }

func (s set) add(i int32) { s[uint32(i)/64] |= 1 << (uint32(i) % 64) }

func (s set) remove(i int32) { s[uint32(i)/64] &^= 1 << (uint32(i) % 64) }

// addAll adds the members of o, which is for as many numbers.
func (s set) addAll(o set) {
	for k, word := range o {
		s[k] |= word
	}
}

// removeAll removes the members of o.
func (s set) removeAll(o set) {
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

// others calls visit with each number that is not a member, in order. The bits beyond the last
// number must be set.
func (s set) others(visit func(i int32)) {
	for k, word := range s {
		for word = ^word; word != 0; word &= word - 1 {
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

// rows holds a list of tasks for each worker.
type rows struct {
	start []int32
	items []int32
}

// reset empties all lists.
func (r *rows) reset() { r.start = r.start[:0] }

// row returns the list of worker w.
func (r *rows) row(w int32) []int32 {
	if len(r.start) == 0 {
		return nil
	}
	return r.items[r.start[w]:r.start[w+1]]
}

// fill sorts pairs by worker, in time linear in their number.
func (r *rows) fill(workers int, pairs []Pair) {
	r.start = sized(r.start, workers+1)
	r.items = sized(r.items, len(pairs))
	for _, f := range pairs {
		r.start[f.Worker+1]++
	}
	for w := range workers {
		r.start[w+1] += r.start[w]
	}
	for _, f := range pairs {
		r.items[r.start[f.Worker]] = f.Task
		r.start[f.Worker]++
	}
	copy(r.start[1:], r.start[:workers])
	r.start[0] = 0
}
