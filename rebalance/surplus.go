package rebalance

// Step 2: tasks with too many copies on open workers. The choice of the copies that
// stop decides how many others can stay.

import (
	"math/bits"
	"slices"
)

// surplus holds the copies, on open workers, of the tasks that have too many there.
// Those tasks are numbered in order, so that their data is small and close together if
// they are few.
type surplus struct {
	total int // the number of surplus copies
	tasks numbering

	// By number of a task.
	excess []int32  // the number of its surplus copies
	met    []uint32 // the round of the search that met it last; see link
	head   []int32  // the latest of its copies, plus one; see link

	copies []surplusCopy // by worker
	links  []surplusLink // parallel to copies; see link
	first  []int32       // by worker: its first in copies; one more at the end
	next   []int32       // by worker: trim: the first that was not visited yet
	linked bool
	found  []int32 // single: the positions of these tasks in one list
	listed set     // single: by number: the tasks that one list has named so far
}

// surplusCopy is small: there may be as many as copies in all.
type surplusCopy struct{ number, position int32 }

type surplusLink struct {
	worker int32
	next   int32 // the previous copy of the same task, plus one
}

// reset empties o.
func (o *surplus) reset(tasks int) {
	o.tasks.set, o.total = o.tasks.emptied(tasks), 0
	o.excess = o.excess[:0]
}

// add adds a task with n surplus copies. Tasks are added in order.
func (o *surplus) add(t, n int32) {
	o.tasks.add(t)
	o.excess = append(o.excess, n)
	o.total += int(n)
}

// collect collects the copies. One pass over the lists of the open workers.
func (o *surplus) collect(p *Planner) {
	o.tasks.number()
	o.first, o.copies, o.linked = o.first[:0], o.copies[:0], false
	tasks := o.tasks.set
	for w, list := range p.Held {
		o.first = append(o.first, int32(len(o.copies)))
		if p.States[w] != Open {
			continue
		}
		for k, t := range list {
			if !tasks.has(t) {
				continue
			}
			if at := p.offset[w] + int32(k); p.flags[at] == kept {
				o.copies = append(o.copies, surplusCopy{o.tasks.of(t), at})
			}
		}
	}
	o.first = append(o.first, int32(len(o.copies)))
}

// on returns the copies on w.
func (o *surplus) on(w int32) []surplusCopy {
	if len(o.copies) == 0 {
		return nil
	}
	return o.copies[o.first[w]:o.first[w+1]]
}

// link links the copies of each task, for searches.
func (o *surplus) link() {
	if o.linked || len(o.copies) == 0 {
		return
	}
	o.linked = true
	o.head = sized(o.head, len(o.excess))
	o.met = sized(o.met, len(o.excess))
	o.links = sized(o.links, len(o.copies))
	for w := range len(o.first) - 1 {
		for i := o.first[w]; i < o.first[w+1]; i++ {
			head := &o.head[o.copies[i].number]
			o.links[i] = surplusLink{int32(w), *head}
			*head = i + 1
		}
	}
}

// trim drops as many copies of each task as it has too many, and gives out the
// extra units. Which ones go first is for relieve to put right; the better the
// choice here, the less it has to do. So workers with too many are relieved as
// far as it goes in order, then the others are brought down to about what they
// would have if all had the same, and what is then left goes as it comes. Each
// copy is looked at once: it stays if its task has no surplus by then.
//
// O(copies of tasks with too many), after a pass over the lists.
func (p *Planner) trim() {
	if !p.single {
		p.surplus.copies = p.surplus.copies[:0]
		if p.hasSurplus {
			p.surplus.collect(p)
		}
	}
	if p.hasSurplus {
		left := p.running() - p.surplus.total
		p.surplus.next = append(p.surplus.next[:0], p.surplus.first...)
		p.dropSurplus(p.level)
		if average := int32(left / len(p.open)); average < p.level { // else it has been done
			p.dropSurplus(average)
		}
		p.dropSurplus(0)
	}
	p.extras()
}

// dropSurplus drops copies of tasks with too many from each worker with more
// than its base, or more than load.
func (p *Planner) dropSurplus(load int32) {
	o := &p.surplus
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
	if len(p.surplus.copies) == 0 {
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

// The search for paths: how a worker that is full can take one more copy
// without costing more than that one start.

// search holds the marks of one round. What a path has gone through is marked
// while it is looked for, and stays so if that fails: nothing leads on from
// there. If it succeeds the marks on it are taken back, as what it went
// through may serve another. A round in which nothing succeeds has no mark that
// is out of date: it proves that there are no more paths.
type search struct {
	round uint32
	tasks []uint32 // by task: the round in which it was expanded

	// A bit for each worker. A path need not go through one that has too many:
	// what that can give away is looked for from there.
	unvisited set // open, not too many, and not gone through
	roomy     set // with room
	free      set // of one step, until the next

	// How many workers have been asked for their extra unit.
	extras int

	// How far the adds and the copies of tasks with too many have been gone
	// through on each worker: what was passed leads nowhere in this round.
	adds   []int32
	copies []int32
}

func (s *search) begin(p *Planner) {
	if len(s.tasks) < len(p.Want) || s.round+1 == 0 {
		s.tasks = make([]uint32, len(p.Want))
		s.round = 0
	}
	p.surplus.link()
	s.round++
	s.extras = 0
	s.unvisited = s.unvisited.emptied(len(p.States))
	s.roomy = s.roomy.emptied(len(p.States))
	s.free = s.free.emptied(len(p.States))
	for _, w := range p.open {
		room := p.room(w)
		if room >= 0 {
			s.unvisited.add(w)
		}
		if room > 0 {
			s.roomy.add(w)
		}
	}
	s.adds = append(s.adds[:0], p.addHead...)
	s.copies = sized(s.copies, len(p.States))
}

// pick returns a worker that a path from t may go to: one with room if there
// is any. The index must contain t.
func (s *search) pick(x *index, t int32) int32 {
	x.free(t, s.unvisited, s.free)
	through := None
	for i, word := range s.free {
		if room := word & s.roomy[i]; room != 0 {
			return int32(i*64 + bits.TrailingZeros64(room))
		}
		if through == None && word != 0 {
			through = int32(i*64 + bits.TrailingZeros64(word))
		}
	}
	return through
}

// expand marks a task that lacks a copy, and reports whether it was not yet.
func (s *search) expand(t int32) bool {
	if s.tasks[t] == s.round {
		return false
	}
	s.tasks[t] = s.round
	return true
}

func (s *search) collapse(t int32) { s.tasks[t] = 0 }

// vacate makes room for one copy on w, which was visited and has none, without
// a start more than there are: a start planned for w goes elsewhere, or a copy
// of a task with too many is kept elsewhere, or w gets the extra unit of
// another.
func (p *Planner) vacate(w int32) bool {
	for at := &p.search.adds[w]; *at > 0; {
		i := *at - 1
		c := p.changes[i]
		*at = p.adds[i].next
		if c.To != None && p.findPlace(c.Task) {
			p.undo(i, w)
			return true
		}
	}
	copies := p.surplus.on(w)
	for at := &p.search.copies[w]; int(*at) < len(copies); {
		c := &copies[*at]
		*at++
		if p.flags[c.position] == kept && p.keepElsewhere(c.number) {
			p.lose(p.Held[w][c.position-p.offset[w]], w, c.position)
			return true
		}
	}
	return p.takeExtra(w)
}

// keepElsewhere keeps a copy that was dropped of the task of some number.
func (p *Planner) keepElsewhere(number int32) bool {
	o := &p.surplus
	if o.met[number] == p.search.round {
		return false
	}
	o.met[number] = p.search.round
	for i := o.head[number]; i > 0; i = o.links[i-1].next {
		position, worker := o.copies[i-1].position, o.links[i-1].worker
		if p.flags[position] == dropped && p.search.unvisited.has(worker) && p.enter(worker) {
			p.flags[position] = kept
			p.load[worker]++
			o.met[number] = 0
			return true
		}
	}
	return false
}

// enter visits w, and reports whether it has room, or room could be made. The
// caller takes it.
func (p *Planner) enter(w int32) bool {
	s := &p.search
	s.unvisited.remove(w)
	if p.room(w) <= 0 && !p.vacate(w) {
		return false
	}
	s.unvisited.add(w)
	if p.room(w) == 1 {
		s.roomy.remove(w)
	}
	return true
}

// takeExtra gives w the extra unit of a worker that can do without it. It looks at each
// worker once in a round: one that is passed has none any more, leads nowhere, or is on
// the path already.
func (p *Planner) takeExtra(w int32) bool {
	if !p.takesExtra(w) {
		return false
	}
	for s := &p.search; s.extras < len(p.open); {
		v := p.open[s.extras]
		s.extras++
		if p.limit[v] > p.base[v] && s.unvisited.has(v) && p.enter(v) {
			p.limit[v]--
			p.limit[w]++
			return true
		}
	}
	return false
}

// findPlace plans the start of a copy of t on some worker, at the cost of that
// one start. The index must contain t.
func (p *Planner) findPlace(t int32) bool {
	if !p.search.expand(t) {
		return false
	}
	for {
		w := p.search.pick(&p.index, t)
		if w == None {
			return false
		}
		if p.enter(w) {
			p.gain(t, w)
			p.index.put(t, w)
			p.search.collapse(t)
			return true
		}
	}
}

// undo takes back a planned start.
func (p *Planner) undo(i, w int32) {
	p.cancel(i)
	p.index.take(p.changes[i].Task, w)
}
