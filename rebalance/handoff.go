package rebalance

// Steps 4 and 5: workers that have too many copies hand them to workers with room, and
// pairs that cannot do so exchange copies.

import (
	"slices"
)

// handOff moves copies from workers that have too many to workers with room. It
// never fails, as long as every worker may have every task: the one that has
// too many runs more tasks than the other, so one that the other lacks.
//
// Givers and takers advance side by side. A pair costs what it moves, and what
// the giver and this taker or the last both have. O(copies on givers and takers).
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

// hand moves copies from giver to taker until one of them has as many as it
// shall have: first such as were passed over for an earlier taker, then such as
// follow in the giver's list from next on. It returns where it stopped. Blocked
// marks what the taker cannot gain; 0: it can gain all.
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

// exchange places what is left at a cost of two starts each. Every worker with
// room has a copy of each of the stuck tasks. Worker v has none, and is full: it
// takes the copy, and hands something to worker u with room that u lacks. That
// exists, since v runs at least as many tasks as u, and u runs the stuck one,
// which v does not.
//
// For each u what a v runs and starts is gone through once at most: O(n) for each worker
// with room at worst. Usually v has something for u among the first few that u
// does not run, and it is O(what u runs). In all it also looks at up to all
// workers for each stuck task; without constraints these are no more than u runs.
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

// exchangeAt places a copy of t on v, which hands something to u.
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
	// Nothing that v ran before: something that it was to start. What it was given
	// since the round began was stuck, so that u cannot gain it.
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
