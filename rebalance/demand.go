package rebalance

// How many copies of each task, and on each worker, the plan ends with, and which
// copies are pinned.

import (
	"math"
	"slices"
)

// forbidden sorts the forbidden pairs by worker, and counts for each task the
// open workers that have no copy and may gain none. O(tasks + pairs), and a pass
// over the lists of the workers in them.
func (p *Planner) forbidden() {
	p.forbid.reset()
	if len(p.Forbidden) == 0 {
		return
	}
	p.barred = sized(p.barred, len(p.Want))
	p.forbid.fill(len(p.States), p.Forbidden)
	for _, w := range p.open {
		row := p.forbid.row(w)
		if len(row) == 0 {
			continue
		}
		round := p.mark()
		for k, t := range p.Held[w] {
			if p.flags[p.offset[w]+int32(k)].runs() {
				p.marks[t] = round
			}
		}
		for _, t := range row {
			if p.marks[t] != round { // neither held nor counted before
				p.marks[t] = round
				p.barred[t]++
			}
		}
	}
}

// places returns how many open workers can hold a copy of t.
func (p *Planner) places(t int32) int32 {
	n := int32(len(p.open))
	if len(p.Forbidden) > 0 {
		n -= p.barred[t]
	}
	return n
}

// answering returns how many copies of t run on workers that are not frozen, before
// demand.
func (p *Planner) answering(t int32) int32 {
	a := p.Want[t] - p.tasks[t].lack
	if p.has[Draining] {
		a += p.drained[t]
	}
	if p.staying {
		a += p.stays[t]
	}
	return a
}

// targets decides how many copies of each task the workers that are not frozen run: as
// many as are wanted beside the frozen copies. A wanted copy that answers does not stop
// because of a frozen one (P4).
func (p *Planner) targets() {
	p.target = p.Want
	if !p.has[Frozen] {
		return
	}
	p.aimed = append(p.aimed[:0], p.Want...)
	p.target = p.aimed
	for t, frozen := range p.frozen {
		if want := p.Want[t]; frozen > 0 && want > 0 {
			p.target[t] = max(want-frozen, min(want, p.answering(int32(t))))
		}
	}
}

// demand decides how many copies of each task the open workers run.
func (p *Planner) demand() {
	p.need, p.isShort = p.Want, false
	if !p.has[Frozen] && !p.staying && len(p.Forbidden) == 0 && int(p.most) <= len(p.open) {
		return
	}
	p.needed = append(p.needed[:0], p.target...)
	p.need = p.needed
	if p.staying {
		for t, stays := range p.stays {
			p.need[t] = max(0, p.need[t]-stays) // copies of unexpected tasks count too
		}
	}
	places := int32(len(p.open))
	wanted, all := 0, int32(0)
	for t, need := range p.need {
		if len(p.Forbidden) > 0 {
			places = p.places(int32(t))
		}
		if need > places {
			need, p.isShort = places, true
			p.need[t] = need
		}
		wanted += int(need)
		s := &p.tasks[t]
		s.lack += need - p.Want[t]
		all |= s.lack
	}
	p.wanted, p.hasSurplus = wanted, all < 0
}

// rows holds a list of tasks for each worker.
type rows struct {
	start []int32
	items []int32
}

func (r *rows) reset() { r.start = r.start[:0] }

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

// pin marks the pinned copies, which count in the load and do not move, and counts them
// by task and by worker. Those on
// draining workers count as copies that stay. O(tasks + workers + pinned copies),
// and a pass over each list with a pinned task that it names twice.
func (p *Planner) pin() {
	if p.Pinned == nil {
		return
	}
	p.pinned = sized(p.pinned, len(p.Want))
	p.fixed = sized(p.fixed, len(p.States))
	isSurplus := false
	for w, n := range p.Pinned {
		if n == 0 || p.States[w] == Frozen {
			continue
		}
		list := p.Held[w]
		first, flags, again := len(list)-int(n), p.flags[p.offset[w]:], uint32(0)
		pinAt := func(k int) {
			t := list[k]
			flags[k] = pinned
			p.pinned[t]++
			p.fixed[w]++
			isSurplus = isSurplus || p.pinned[t] > p.target[t]
		}
		for k := first; k < len(list); k++ {
			switch flags[k] {
			case kept:
				pinAt(k)
			case repeated:
				if again == 0 {
					again = p.mark()
				}
				p.marks[list[k]] = again
			}
		}
		if again == 0 {
			continue
		}
		for k, t := range list[:first] { // the first position of a repeated task
			if p.marks[t] == again && flags[k] == kept {
				pinAt(k)
			}
		}
	}
	if isSurplus {
		p.stopPinned()
	}
	for w, n := range p.fixed {
		if n == 0 || p.States[w] == Open {
			continue
		}
		for k, t := range p.Held[w] {
			if p.flags[p.offset[w]+int32(k)] != pinned {
				continue
			}
			p.pinned[t]--
			if p.States[w] == Draining {
				p.drained[t]--
				p.stays[t]++
				p.waiting++
			}
		}
	}
}

// stopPinned drops the pinned copies that exceed the target even if all others stop:
// first on draining workers, last on open ones, and in each state first on the fullest.
func (p *Planner) stopPinned() {
	workers := p.scratch[:0]
	for w, n := range p.fixed {
		if n > 0 {
			workers = append(workers, int32(w))
		}
	}
	p.scratch = workers
	p.byLoad(workers)
	for _, s := range [...]State{Draining, Quarantined, Open} {
		for _, w := range workers {
			if p.States[w] != s {
				continue
			}
			for k, t := range p.Held[w] {
				at := p.offset[w] + int32(k)
				if p.flags[at] != pinned || p.pinned[t] <= p.target[t] {
					continue
				}
				p.lose(t, w, at)
				p.pinned[t]--
				p.fixed[w]--
				if s == Open {
					p.tasks[t].lack++
				} else {
					p.countOf(w)[t]--
				}
			}
		}
	}
}

// pinnedOn returns how many pinned copies w has.
func (p *Planner) pinnedOn(w int32) int32 {
	if p.Pinned == nil {
		return 0
	}
	return p.fixed[w]
}

// pinnedOf returns how many pinned copies of t the open workers have.
func (p *Planner) pinnedOf(t int32) int32 {
	if p.Pinned == nil {
		return 0
	}
	return p.pinned[t]
}

// fill distributes n copies over workers as evenly as floors and ceilings allow: each
// worker gets level, or its bound nearest to level, and extra of those below their
// ceilings get one more. If the workers take less than n in all, level is n.
//
// It finds the level by binary search, in O(workers · log n).
func fill(floors, ceilings []int32, n int) (level, extra int32) {
	poured := func(level int) int {
		sum := 0
		for w, least := range floors {
			sum += min(max(level, int(least)), int(ceilings[w]))
		}
		return sum
	}
	low, high := 0, n+1 // poured(low) <= n; at high it is more, or no level is
	for high-low > 1 {
		if mid := (low + high) / 2; poured(mid) <= n {
			low = mid
		} else {
			high = mid
		}
	}
	if poured(low+1) > n {
		extra = int32(n - poured(low))
	}
	return int32(low), extra
}

// levels decides with how many copies each open worker ends, without the extra units. A
// worker with more pinned copies than the level keeps these.
func (p *Planner) levels() {
	p.level, p.extra = p.levelOf(p.wanted)
	for _, w := range p.open {
		p.base[w] = max(p.level, p.pinnedOn(w))
		p.limit[w] = p.base[w]
	}
}

// levelOf returns the level of the open workers with n copies, and how many of them
// get one more.
func (p *Planner) levelOf(n int) (level, extra int32) {
	workers := len(p.open)
	switch {
	case workers == 0:
		return 0, 0
	case p.Pinned == nil:
		return int32(n / workers), int32(n % workers)
	}
	p.floors, p.ceilings = p.floors[:0], p.ceilings[:0]
	for _, w := range p.open {
		p.floors, p.ceilings = append(p.floors, p.fixed[w]), append(p.ceilings, math.MaxInt32)
	}
	return fill(p.floors, p.ceilings, n)
}

// extras assigns the extra units: first to workers that would otherwise have too many,
// then in order.
func (p *Planner) extras() {
	left := p.extra
	for _, above := range []bool{true, false} {
		for _, w := range p.open {
			if left > 0 && (p.load[w] > p.level) == above && p.takesExtra(w) {
				p.limit[w]++
				left--
			}
		}
	}
}

// takesExtra reports whether w may have an extra unit and has none.
func (p *Planner) takesExtra(w int32) bool { return p.limit[w] == p.level }

// bound computes the lower bound on adds, as far as it is known before they are chosen:
// each missing copy needs one, and so does each copy beyond a worker's limit. After
// relieve no choice of drops needs fewer.
func (p *Planner) bound() {
	p.grown = len(p.changes)
	p.plan.LowerBound = p.grown
	for _, x := range p.pending {
		p.plan.LowerBound += int(x.copies)
	}
	for _, w := range p.open {
		p.plan.LowerBound += int(max(0, -p.room(w)))
	}
}

// isConstrained reports whether some worker may be unable to take copies that it lacks,
// or to give copies that it has. Then the exchange may fail, and the bound may be too
// high.
//
// Pinned copies alone are not a constraint if no task wants more than one copy: a worker
// with too many copies has some that are not pinned, and any other worker may take any of
// them.
func (p *Planner) isConstrained() bool {
	return p.has[Quarantined] || p.Pinned != nil && p.most > 1 || len(p.Forbidden) > 0
}

// plainBound returns the lower bound that holds under any constraints: a start for each
// copy that a task gains, and, if the spread ends even, one for each copy that an open
// worker lacks for that.
func (p *Planner) plainBound() int {
	gained := p.missing
	least, most := int32(math.MaxInt32), int32(0)
	lacking, above, n := 0, 0, 0
	for _, w := range p.open {
		least, most = min(least, p.load[w]), max(most, p.load[w])
		n += int(p.load[w])
	}
	if most-least > 1 {
		return p.grown + gained
	}
	for _, w := range p.open {
		before := p.before[w]
		lacking += int(max(0, least-before))
		if before > least {
			above++
		}
	}
	extra := n - int(least)*len(p.open)
	return p.grown + max(gained, lacking+max(0, extra-above))
}

// byLoad sorts workers by load, the highest first, equals by number.
func (p *Planner) byLoad(workers []int32) {
	slices.SortFunc(workers, func(v, w int32) int {
		if p.load[v] != p.load[w] {
			return int(p.load[w] - p.load[v])
		}
		return int(v - w)
	})
}
