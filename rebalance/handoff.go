package rebalance

// Steps 4 and 5: workers that have too many copies hand them to workers with room, and
// pairs that cannot do so exchange copies.

import (
	"slices"
)

// handOff moves copies from workers that have too many to workers with room. It never
// fails if every worker may have every task: the giver runs more tasks than the taker, so
// it runs one that the taker lacks.
//
// Givers and takers advance side by side. A pair costs the number of copies that it
// moves, and of those that the giver shares with this taker or the one before. O(copies on
// givers and takers).
func (p *Planner) handOff() {
	takers := p.choosy()
	alone := p.most <= 1 && len(p.Forbidden) == 0 // what a giver has no taker has
	blocked := uint32(0)                          // what the first of takers cannot gain, once that is known
	for _, giver := range p.open {
		if p.room(giver) >= 0 {
			continue
		}
		next := 0 // in the giver's list
		p.passed = p.passed[:0]
		for len(takers) > 0 && p.room(giver) < 0 {
			taker := takers[0]
			if p.room(taker) <= 0 {
				takers, blocked = takers[1:], 0
				continue
			}
			if blocked == 0 && !alone {
				blocked = p.block(taker)
			}
			next = p.hand(giver, taker, next, blocked)
			if p.room(giver) != 0 && p.room(taker) != 0 {
				if !p.isConstrained() {
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
func (p *Planner) hand(giver, taker int32, next int, blocked uint32) int {
	list := p.Held[giver]
	flags := p.flags[p.offset[giver]:]
	left := int(min(-p.room(giver), p.room(taker)))
	handed, passed := p.handed[:0], p.passed[:0]
	for i, k := range p.passed {
		if len(handed) == left {
			passed = append(passed, p.passed[i:]...)
			break
		}
		if t := list[k]; p.marks[t] == blocked {
			passed = append(passed, k)
		} else {
			p.marks[t] = blocked
			handed = append(handed, k)
		}
	}
	for ; len(handed) < left && next < len(list); next++ {
		if flags[next] != kept {
			continue
		}
		if blocked != 0 {
			t := list[next]
			if p.marks[t] == blocked {
				passed = append(passed, int32(next))
				continue
			}
			p.marks[t] = blocked
		}
		handed = append(handed, int32(next))
	}
	p.move(handed, giver, taker)
	p.handed, p.passed = handed, passed
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
func (p *Planner) exchange() {
	if len(p.pending) == 0 {
		return
	}
	p.cursors = sized(p.cursors, len(p.States))
	u, v := 0, 0 // places of the workers
	var blocked uint32
	for i := range p.pending {
		x := &p.pending[i]
		for failed := 0; x.copies > 0 && failed < len(p.open); {
			for u < len(p.open) && p.room(p.open[u]) <= 0 {
				u, blocked = u+1, 0
			}
			if u == len(p.open) {
				return
			}
			if blocked == 0 {
				blocked = p.block(p.open[u])
			}
			if p.exchangeAt(x.task, p.open[v], p.open[u], blocked) {
				x.copies--
				failed = 0
				continue
			}
			v = (v + 1) % len(p.open)
			failed++
		}
	}
	p.pending = slices.DeleteFunc(p.pending, func(x pending) bool { return x.copies == 0 })
}

// exchangeAt places a copy of t on v, which hands a copy of another task to u.
func (p *Planner) exchangeAt(t, v, u int32, blocked uint32) bool {
	if v == u || p.room(v) != 0 || p.index.blocks(t, v) || !p.handOver(v, u, blocked) {
		return false
	}
	p.gain(t, v)
	p.index.put(t, v)
	p.exchanged++
	return true
}

// handOver moves one copy from v to u that u can gain.
func (p *Planner) handOver(v, u int32, blocked uint32) bool {
	list, flags := p.Held[v], p.flags[p.offset[v]:]
	c := &p.cursors[v]
	if c.round != blocked { // not yet for this u
		for int(c.first) < len(list) && flags[c.first] != kept {
			c.first++
		}
		c.round, c.next, c.add = blocked, c.first, p.addHead[v]
	}
	for ; int(c.next) < len(list); c.next++ {
		t := list[c.next]
		if flags[c.next] != kept || p.marks[t] == blocked {
			continue
		}
		p.lose(t, v, p.offset[v]+c.next)
		p.handTo(u, t, v, blocked)
		return true
	}
	// No copy that v ran before is suitable, so this is one that it was to start. u cannot
	// gain those that v got since the round began, because they were stuck.
	for ; c.add > 0; c.add = p.adds[c.add-1].next {
		if start := p.changes[c.add-1]; start.To != None && p.marks[start.Task] != blocked {
			p.cancel(c.add - 1)
			p.handTo(u, start.Task, v, blocked)
			return true
		}
	}
	return false
}

func (p *Planner) handTo(u, t, v int32, blocked uint32) {
	p.gain(t, u)
	p.marks[t] = blocked
	if p.index.tasks.has(t) {
		p.index.take(t, v)
		p.index.put(t, u)
	}
}
