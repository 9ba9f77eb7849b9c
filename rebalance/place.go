package rebalance

import "slices"

// Steps 2 to 4: what is missing is placed, what is too much is shed, and what
// is stuck is exchanged.

// pending is a task and how many of its copies are still to be placed.
type pending struct{ task, copies int32 }

// place starts what is missing on workers with room, where that costs one start
// a copy.
//
// Each worker with room looks through what is pending and takes what it can:
// what it has to pass over it has already, so a worker costs no more than its
// list and what it takes. What no worker with room can take is stuck, and gets
// a search. O(copies on workers with room + starts); a round of the search
// costs no more than all that can be moved without another start, and the
// places of the tasks involved.
func (p *Planner) place() {
	if len(p.pending) == 0 {
		return
	}
	p.placeWide()
	conflicts := p.deal() || len(p.Forbidden) > 0 || len(p.changes) > 0
	for _, w := range p.open {
		if len(p.left) == 0 {
			break
		}
		if p.room(w) > 0 {
			p.fillUp(w, conflicts)
		}
	}
	p.collect()
	if len(p.pending) > 0 {
		p.unstick()
	}
}

// placeWide places tasks that lack a copy on so many of the workers with room
// that it matters which: those that run on most of them, and those of which the
// second and later copies are few beside the room that there is, but need one
// worker each. Each goes to the workers with the most room. If they waited for
// their turn, most workers would be full by then.
//
// O(n) where there are any, and O(w · log w) for each.
func (p *Planner) placeWide() {
	takers, rooms, more := p.scratch[:0], 0, 0
	for _, w := range p.open {
		if room := p.room(w); room > 0 {
			takers = append(takers, w)
			rooms += int(room)
		}
	}
	p.scratch = takers
	for _, x := range p.pending {
		more += int(x.copies - 1)
	}
	isWide := func(x pending) bool {
		n := int(x.copies)
		return n > 1 && (2*n > len(takers) || n*rooms > more*len(takers))
	}
	if !slices.ContainsFunc(p.pending, isWide) {
		return
	}
	wide := p.mark()
	for _, x := range p.pending {
		if isWide(x) {
			p.marks[x.task] = wide
		}
	}
	p.index.build(p, p.marked(wide))
	for i := range p.pending {
		x := &p.pending[i]
		if !isWide(*x) {
			continue
		}
		slices.SortStableFunc(takers, func(v, w int32) int { return int(p.room(w) - p.room(v)) })
		for _, w := range takers {
			if x.copies > 0 && p.room(w) > 0 && !p.index.blocks(x.task, w) {
				p.gain(x.task, w)
				x.copies--
			}
		}
	}
	p.pending = slices.DeleteFunc(p.pending, func(x pending) bool { return x.copies == 0 })
}

// marked returns a function that says which tasks bear a mark now.
func (p *Planner) marked(round uint32) func(t int32) bool {
	p.chosen = sized(p.chosen, len(p.Want))
	for t := range p.chosen {
		p.chosen[t] = p.marks[t] == round
	}
	return func(t int32) bool { return p.chosen[t] }
}

// deal lists each pending copy by itself: the first of every task, in order,
// then the second, and so on. From the second ones on the order is another
// each time, so that no two workers end up with the same tasks, and to lose
// both would lose those. It reports whether some worker may have to pass over
// some copy.
func (p *Planner) deal() (conflicts bool) {
	p.units = p.units[:0]
	tier := p.tier[:0]
	for _, x := range p.pending {
		conflicts = conflicts || x.copies > 1 || p.need[x.task] > x.copies
		p.units = append(p.units, x.task)
		if x.copies > 1 {
			tier = append(tier, x)
		}
	}
	p.tier = tier
	for copies := int32(2); len(tier) > 0; copies++ {
		n := len(tier)
		step := stride(n, int(copies))
		for i, at := 0, 0; i < n; i, at = i+1, (at+step)%n {
			p.units = append(p.units, tier[at].task)
		}
		tier = slices.DeleteFunc(tier, func(x pending) bool { return x.copies == copies })
	}
	p.left = p.units
	return conflicts
}

// stride returns a step that visits each of n places once, far from the last,
// and another for each turn.
func stride(n, turn int) int {
	step := max(1, n*turn/(turn+1)-turn)
	for gcd(step, n) != 1 {
		step++
	}
	return step
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// fillUp starts on w what it has room for. What it passes over stays pending,
// in order.
func (p *Planner) fillUp(w int32, conflicts bool) {
	left, room := p.left, int(p.room(w))
	if !conflicts {
		n := min(room, len(left))
		p.left = left[n:]
		p.gainAll(left[:n], w)
		return
	}
	blocked, marks := p.block(w), p.marks
	taken := slices.Grow(p.taken[:0], room)[:room]
	i, n, out := 0, 0, 0
	for ; i < len(left) && n < room; i++ {
		// Without a branch on it, as nothing predicts whether w has the task.
		t, passed := left[i], 0
		if marks[t] == blocked {
			passed = 1
		}
		marks[t] = blocked
		left[out], taken[n] = t, t
		out, n = out+passed, n+1-passed
	}
	// What was passed over moves up to the rest, not the rest down.
	copy(left[i-out:i], left[:out])
	p.left, p.taken = left[i-out:], taken
	p.gainAll(taken[:n], w)
}

// collect makes the copies that are left the pending ones.
func (p *Planner) collect() {
	slices.Sort(p.left)
	p.pending = p.pending[:0]
	for _, t := range p.left {
		if n := len(p.pending); n > 0 && p.pending[n-1].task == t {
			p.pending[n-1].copies++
		} else {
			p.pending = append(p.pending, pending{t, 1})
		}
	}
}

// unstick searches a place for each copy that no worker with room can take.
func (p *Planner) unstick() {
	involved := p.mark()
	for _, x := range p.pending {
		p.marks[x.task] = involved
	}
	for i := range p.changes {
		p.marks[p.changes[i].Task] = involved
	}
	p.index.build(p, p.marked(involved))
	for success := true; success; {
		success = false
		p.search.begin(p)
		for i := range p.pending {
			for x := &p.pending[i]; x.copies > 0 && p.findPlace(x.task); {
				x.copies--
				success = true
			}
		}
	}
	p.pending = slices.DeleteFunc(p.pending, func(x pending) bool { return x.copies == 0 })
}

// shed moves copies from workers that have too many to workers with room. It
// never fails, as long as every worker may have every task: the one that has
// too many runs more tasks than the other, so one that the other lacks.
//
// Givers and takers advance side by side. A pair costs what it moves, and what
// the giver and this taker or the last both have. O(copies on givers and takers).
func (p *Planner) shed() {
	takers := p.open
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
// For each u the list of a v is gone through once at most.
func (p *Planner) exchange() {
	if len(p.pending) == 0 {
		return
	}
	p.cursor = sized(p.cursor, len(p.States))
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
				clear(p.cursor)
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
	list, start := p.Held[v], p.offset[v]
	for ; int(p.cursor[v]) < len(list); p.cursor[v]++ {
		t := list[p.cursor[v]]
		at := start + p.cursor[v]
		if p.flags[at] != kept || p.marks[t] == blocked {
			continue
		}
		p.lose(t, v, at)
		p.handTo(u, t, v, blocked)
		return true
	}
	// Nothing that v ran before: something that it was to start.
	for i := p.addHead[v]; i > 0; i = p.adds[i-1].next {
		if c := p.changes[i-1]; c.To != None && p.marks[c.Task] != blocked {
			p.cancel(i - 1)
			p.handTo(u, c.Task, v, blocked)
			return true
		}
	}
	return false
}

func (p *Planner) handTo(u, t, v int32, blocked uint32) {
	p.gain(t, u)
	p.marks[t] = blocked
	if p.index.id[t] > 0 {
		p.index.take(t, v)
		p.index.put(t, u)
	}
}
