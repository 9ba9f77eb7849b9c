package rebalance

// Steps 4 and 5: workers that have too many copies hand them to workers with room, and
// pairs that cannot do so exchange copies.

import (
	"slices"
)

// transfer is the step that makes workers with too many copies hand some to others.
type transfer struct {
	*draft
	index *index // of the stuck tasks, made by placement

	// handOff: positions in the giver's list.
	handed []int32 // of the copies for the taker
	passed []int32 // of the copies that were passed over

	cursors   []cursor // exchange: by worker
	exchanged int      // copies that cost two starts
}

// cursor is the progress through a list, for the worker of a round of marks.
type cursor struct {
	round uint32
	next  int32
	add   int32 // the progress through the worker's starts: the next of adds, plus one
	first int32 // all copies before it were dropped, for any worker
}

// handOff moves copies from workers that have too many to workers with room. It never
// fails if every worker may have every task: the giver runs more tasks than the taker, so
// it runs one that the taker lacks.
//
// Givers and takers advance side by side. A pair costs the number of copies that it
// moves, and of those that the giver shares with this taker or the one before. O(copies on
// givers and takers).
func (tr *transfer) handOff() {
	takers := tr.choosy()
	alone := tr.most <= 1 && len(tr.Forbidden) == 0 // what a giver has no taker has
	blocked := uint32(0)                            // what the first of takers cannot gain, once that is known
	for _, giver := range tr.open {
		if tr.room(giver) >= 0 {
			continue
		}
		next := 0 // in the giver's list
		tr.passed = tr.passed[:0]
		for len(takers) > 0 && tr.room(giver) < 0 {
			taker := takers[0]
			if tr.room(taker) <= 0 {
				takers, blocked = takers[1:], 0
				continue
			}
			if blocked == 0 && !alone {
				blocked = tr.block(taker)
			}
			next = tr.hand(giver, taker, next, blocked)
			if tr.room(giver) != 0 && tr.room(taker) != 0 {
				if !tr.isConstrained() {
					panic("rebalance: a worker with too many has nothing for one with room") //nolint:forbidigo // an invariant is broken
				}
				break // repair sees to it
			}
		}
	}
}

// hand moves copies from giver to taker until one of them is at its limit: first those that
// were passed over for an earlier taker, then those from position next of the giver's
// list. It returns the position at which it stopped. blocked is the round of marks on the
// tasks that the taker cannot gain; 0 means that it can gain all.
func (tr *transfer) hand(giver, taker int32, next int, blocked uint32) int {
	list, marks := tr.Running[giver], tr.marks
	flags := tr.flags[tr.offset[giver]:]
	left := int(min(-tr.room(giver), tr.room(taker)))
	handed, passed := tr.handed[:0], tr.passed[:0]
	for i, k := range tr.passed {
		if len(handed) == left {
			passed = append(passed, tr.passed[i:]...)
			break
		}
		if t := list[k]; marks[t] == blocked {
			passed = append(passed, k)
		} else {
			marks[t] = blocked
			handed = append(handed, k)
		}
	}
	for ; len(handed) < left && next < len(list); next++ {
		if flags[next] != kept {
			continue
		}
		if blocked != 0 {
			t := list[next]
			if marks[t] == blocked {
				passed = append(passed, int32(next))
				continue
			}
			marks[t] = blocked
		}
		handed = append(handed, int32(next))
	}
	tr.move(handed, giver, taker)
	tr.handed, tr.passed = handed, passed
	return next
}

// exchange places the stuck copies at a cost of two starts each. Every worker with room has
// a copy of each stuck task. A full worker v without one takes the copy, and hands a copy
// of another task to a worker u with room. Such a task exists, because v runs at least as
// many tasks as u, and u runs the stuck one.
//
// For each u it visits the copies and starts of a v at most once: O(n) for each worker with
// room at worst. Usually one of the first tasks that u does not run is suitable, and it is
// O(copies on u). It also visits up to all workers for each stuck task; without
// constraints these are no more than the copies on u.
func (tr *transfer) exchange() {
	tr.exchanged = 0
	if len(tr.pending) == 0 {
		return
	}
	tr.cursors = sized(tr.cursors, len(tr.States))
	u, v := 0, 0 // places of the workers
	var blocked uint32
	for i := range tr.pending {
		x := &tr.pending[i]
		for failed := 0; x.copies > 0 && failed < len(tr.open); {
			for u < len(tr.open) && tr.room(tr.open[u]) <= 0 {
				u, blocked = u+1, 0
			}
			if u == len(tr.open) {
				return
			}
			if blocked == 0 {
				blocked = tr.block(tr.open[u])
			}
			if tr.exchangeAt(x.task, tr.open[v], tr.open[u], blocked) {
				x.copies--
				failed = 0
				continue
			}
			v = (v + 1) % len(tr.open)
			failed++
		}
	}
	tr.pending = slices.DeleteFunc(tr.pending, func(x pending) bool { return x.copies == 0 })
}

// exchangeAt places a copy of t on v, which hands a copy of another task to u.
func (tr *transfer) exchangeAt(t, v, u int32, blocked uint32) bool {
	if v == u || tr.room(v) != 0 || tr.index.blocks(t, v) || !tr.handOver(v, u, blocked) {
		return false
	}
	tr.gain(t, v)
	tr.index.put(t, v)
	tr.exchanged++
	return true
}

// handOver moves one copy from v to u that u can gain.
func (tr *transfer) handOver(v, u int32, blocked uint32) bool {
	list, flags, marks := tr.Running[v], tr.flags[tr.offset[v]:], tr.marks
	c := &tr.cursors[v]
	if c.round != blocked { // not yet for this u
		for int(c.first) < len(list) && flags[c.first] != kept {
			c.first++
		}
		c.round, c.next, c.add = blocked, c.first, tr.addHead[v]
	}
	for ; int(c.next) < len(list); c.next++ {
		t := list[c.next]
		if flags[c.next] != kept || marks[t] == blocked {
			continue
		}
		tr.lose(t, v, tr.offset[v]+c.next)
		tr.handTo(u, t, v, blocked)
		return true
	}
	// No copy that v ran before is suitable, so this is one that it was to start. u cannot
	// gain those that v got since the round began, because they were stuck.
	for ; c.add > 0; c.add = tr.adds[c.add-1].next {
		if start := tr.changes[c.add-1]; start.To != None && marks[start.Task] != blocked {
			tr.cancel(c.add - 1)
			tr.handTo(u, start.Task, v, blocked)
			return true
		}
	}
	return false
}

func (tr *transfer) handTo(u, t, v int32, blocked uint32) {
	tr.gain(t, u)
	tr.marks[t] = blocked
	if tr.index.tasks.has(t) {
		tr.index.take(t, v)
		tr.index.put(t, u)
	}
}
