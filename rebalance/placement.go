package rebalance

// Step 3: missing copies are placed.

import "slices"

// pending is a task and how many of its copies are still to be placed.
type pending struct{ task, copies int32 }

// placement is the step that starts missing copies.
type placement struct {
	*draft
	search *search

	// One deal.
	dealt []pending // the pending copies, in this turn
	left  []pending // those of dealt without a place
	again []pending // further copies, for the next turn
	taken []pending // the copies for one worker
	spare []pending // memory of the next turn
	turn  int

	// placeWide.
	takers, others []int32 // workers with room, and those passed over for a task
}

// place starts missing copies on workers with room, if that costs one start a
// copy.
//
// Each worker with room passes over the pending tasks and takes those that it can. A task
// is pending once, for any number of copies. The worker passes over tasks that it has or
// has just taken, so the pass costs at most its list and twice what it takes. A copy that
// no worker with room can take is stuck, and gets a search. O(copies on workers with room
// + starts), and the search.
func (p *placement) place() {
	if len(p.pending) == 0 {
		return
	}
	p.placeWide()
	conflicts := len(p.Forbidden) > 0 || len(p.changes) > 0 // whether a worker may have to pass over a task
	for _, x := range p.pending {
		conflicts = conflicts || x.copies > 1 || p.need[x.task] > x.copies
	}
	p.deal(p.choosy(), conflicts)
	if len(p.pending) > 0 {
		p.unstick()
	}
}

// placeWide places the wide tasks: those that lack copies for more than half of the
// workers with room, and those with several copies if the second and later copies of all
// tasks are few beside the room. Each copy goes to the worker with the most room. If wide
// tasks waited for their turn, most workers would be full by then.
//
// A wide task costs as much as there are workers with room. It needs half of them, or
// there are at most twice as many such tasks as a worker has room on average: O(n +
// starts + room), with the pass over the lists.
func (p *placement) placeWide() {
	takers, rooms, more := p.takers[:0], 0, 0
	for _, w := range p.open {
		if room := p.room(w); room > 0 {
			takers = append(takers, w)
			rooms += int(room)
		}
	}
	p.takers = takers
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
	p.search.index.begin(len(p.Want))
	for _, x := range p.pending {
		if isWide(x) {
			p.search.index.tasks.add(x.task)
		}
	}
	p.search.index.build(p.draft)
	slices.SortStableFunc(takers, func(v, w int32) int { return int(p.room(w) - p.room(v)) })
	for i := range p.pending {
		if x := &p.pending[i]; isWide(*x) {
			p.spread(x)
		}
	}
	p.pending = slices.DeleteFunc(p.pending, func(x pending) bool { return x.copies == 0 })
}

// spread starts copies of a task on the workers with the most room among takers, which
// are sorted by room and stay so.
func (p *placement) spread(x *pending) {
	chosen, others := p.scratch[:0], p.others[:0]
	for _, w := range p.takers {
		switch {
		case p.room(w) == 0:
		case x.copies > 0 && !p.search.index.blocks(x.task, w):
			p.gain(x.task, w)
			x.copies--
			chosen = append(chosen, w)
		default:
			others = append(others, w)
		}
	}
	p.scratch, p.others = chosen, others
	// Both are still sorted.
	takers := p.takers[:0]
	for _, w := range chosen {
		for len(others) > 0 && p.room(others[0]) >= p.room(w) {
			takers, others = append(takers, others[0]), others[1:]
		}
		takers = append(takers, w)
	}
	p.takers = append(takers, others...)
}

// deal lets workers with room take pending copies in turns: the first copies of every
// task, in order, then the second ones, and so on. From the second turn on, each turn has
// a different order. Otherwise two workers could end up with the same tasks, and losing
// both would lose those. conflicts: a worker may have to pass over a task.
func (p *placement) deal(workers []int32, conflicts bool) {
	p.dealt = append(p.dealt[:0], p.pending...)
	p.left, p.again, p.turn = p.dealt, p.again[:0], 1
	for _, w := range workers {
		if len(p.left) == 0 && len(p.again) == 0 {
			break
		}
		if p.room(w) <= 0 {
			continue
		}
		if conflicts {
			p.fillUp(w)
			continue
		}
		n := min(int(p.room(w)), len(p.left))
		p.gainAll(p.left[:n], w)
		p.left = p.left[n:]
	}
	p.pending = append(append(p.pending[:0], p.left...), p.again...)
	slices.SortFunc(p.pending, func(x, y pending) int { return int(x.task - y.task) })
}

// fillUp starts pending copies on w until it is full.
func (p *placement) fillUp(w int32) {
	blocked := p.block(w)
	for {
		p.takeTurn(w, blocked)
		if p.room(w) == 0 || len(p.again) == 0 {
			return
		}
		p.nextTurn()
	}
}

// takeTurn starts on w the copies that it can take in this turn. Those that it passes over
// stay, in order.
func (p *placement) takeTurn(w int32, blocked uint32) {
	left, marks, room := p.left, p.marks, int(p.room(w))
	taken := slices.Grow(p.taken[:0], room)[:room]
	looked, n := sift(left, taken, marks, blocked)
	// The tasks that were passed over move up to the rest, because they are fewer.
	copy(left[n:looked], left[:looked-n])
	p.left, p.taken = left[n:], taken
	p.gainAll(taken[:n], w)
	for _, x := range taken[:n] {
		if x.copies > 1 {
			p.again = append(p.again, pending{x.task, x.copies - 1})
		}
	}
}

// sift moves tasks that are not blocked from left to taken until taken is full, and tasks
// that it passes over to the front of left. It blocks the tasks that it takes. It returns
// how many it visited, and how many of these it took. Like tally it is not inlined.
//
//go:noinline
func sift(left, taken []pending, marks []uint32, blocked uint32) (looked, n int) {
	for ; looked < len(left) && n < len(taken); looked++ {
		// Without a branch, because it would be unpredictable.
		x, free := left[looked], 1
		if marks[x.task] == blocked {
			free = 0
		}
		marks[x.task] = blocked
		left[looked-n], taken[n] = x, x
		n += free
	}
	return looked, n
}

// nextTurn appends the further copies to those that were passed over.
func (p *placement) nextTurn() {
	p.turn++
	left := append(p.spare[:0], p.left...)
	n := len(p.again)
	step, at := stride(n, p.turn), 0
	for range n {
		left = append(left, p.again[at])
		if at += step; at >= n {
			at -= n
		}
	}
	p.dealt, p.spare = left, p.dealt
	p.left, p.again = left, p.again[:0]
}

// stride returns a step of at most n that visits each of n positions once, each far from
// the last. It differs from turn to turn.
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

// unstick searches for a place for each copy that no worker with room can take, in rounds
// like those of relieve. A round searches once for each task that starts, at w/64 each
// and as much again for each worker on the way: O((starts + w) · w/64), after a pass over
// the lists.
func (p *placement) unstick() {
	p.search.index.begin(len(p.Want))
	for _, x := range p.pending {
		p.search.index.tasks.add(x.task)
	}
	for i := range p.changes {
		p.search.index.tasks.add(p.changes[i].Task)
	}
	p.search.index.build(p.draft)
	for success := true; success; {
		success = false
		p.search.begin()
		for i := range p.pending {
			for x := &p.pending[i]; x.copies > 0 && p.search.findPlace(x.task); {
				x.copies--
				success = true
			}
		}
	}
	p.pending = slices.DeleteFunc(p.pending, func(x pending) bool { return x.copies == 0 })
}
