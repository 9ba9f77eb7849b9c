package rebalance

import "slices"

// Step 2: tasks with too many copies on open workers. Which ones go decides how
// many others can stay.

// trim drops as many copies of each task as it has too many, and gives out the
// extra units. Which ones go first is for relieve to put right; the better the
// choice here, the less it has to do. So workers with too many are relieved as
// far as it goes in order, then the others are brought down to about what they
// would have if all had the same, and what is then left goes as it comes. Each
// copy is looked at once: it stays if its task has no surplus by then.
//
// O(copies of tasks with too many), after a pass over the lists.
func (p *Planner) trim() {
	if !p.once {
		p.overs.copies = p.overs.copies[:0]
		if p.isOver {
			p.overs.collect(p)
		}
	}
	if p.isOver {
		left := p.running() - p.overs.total
		p.overs.next = append(p.overs.next[:0], p.overs.first...)
		p.dropOvers(p.level)
		if average := int32(left / len(p.open)); average < p.level { // else it has been done
			p.dropOvers(average)
		}
		p.dropOvers(0)
	}
	p.extras()
}

// dropOvers drops copies of tasks with too many from each worker with more
// than its base, or more than load.
func (p *Planner) dropOvers(load int32) {
	o := &p.overs
	copies, excess, flags := o.copies, o.excess, p.flags
	for _, w := range p.open {
		if o.total == 0 {
			return
		}
		above := int(p.load[w] - min(load, p.base[w]))
		if above <= 0 {
			continue
		}
		list, start := p.Held[w], p.offset[w]
		next, end, n := o.next[w], o.first[w+1], 0
		p.drops = slices.Grow(p.drops, above)
		drops := p.drops[len(p.drops):][:above]
		for ; n < len(drops) && next < end; next++ {
			// Without a branch on it, as nothing predicts whether the task has too many.
			c, one := copies[next], 0
			if excess[c.number] > 0 {
				one = 1
			}
			excess[c.number] -= int32(one)
			drops[n] = drop{task: list[c.position-start], worker: w, position: c.position}
			flags[c.position] = dropped * flag(one) // or kept
			n += one
		}
		p.drops, o.next[w] = p.drops[:len(p.drops)+n], next
		p.load[w] -= int32(n)
		o.total -= n
	}
}

// relieve exchanges drops as long as that relieves a worker that has too many:
// this is the search for a maximum zero-cost flow. It goes in rounds, and in each
// round it tries nothing twice that led nowhere. It ends when no worker has too
// many, or after a round without success, which proves that there is no more to
// gain.
//
// A round goes through each worker and each copy of a task with too many once.
// There is at most one round more than copies saved: a copy is saved in each but
// the last.
func (p *Planner) relieve() {
	if len(p.overs.copies) == 0 {
		return
	}
	for success := true; success && p.anyOverfull(); {
		success = false
		p.search.begin(p)
		for _, w := range p.open {
			if p.room(w) >= 0 {
				continue
			}
			for p.room(w) < 0 && p.vacate(w) {
				success = true
			}
		}
	}
}

// anyOverfull reports whether a worker has more than it ends with.
func (p *Planner) anyOverfull() bool {
	for _, w := range p.open {
		if p.room(w) < 0 {
			return true
		}
	}
	return false
}
