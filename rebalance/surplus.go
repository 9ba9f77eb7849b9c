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

// trim drops the surplus copies of each task, and assigns the extra units. relieve
// corrects the choice of copies, and has less to do if the choice is good. So trim first
// drops copies on workers that have too many, in order. Then it brings the others down to
// about the average load, and drops the rest in order. It visits each copy once: the
// copy stays if its task has no surplus at that point.
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

// dropSurplus drops copies of tasks with too many from each worker that has more than the
// lower of its base and load.
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
			// Without a branch, because it would be unpredictable.
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

// relieve exchanges drops as long as that relieves a worker that has too many copies. This
// is the search for a maximum zero-cost flow. It works in rounds, and in a round it does
// not repeat a step that has failed. It ends when no worker has too many, or after a
// round without success, which proves that no more copies can be saved.
//
// A round visits each worker, and each copy of a task with too many, once. Every round but
// the last saves a copy.
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

// anyOverfull reports whether a worker has more copies than its limit.
func (p *Planner) anyOverfull() bool {
	for _, w := range p.open {
		if p.room(w) < 0 {
			return true
		}
	}
	return false
}

// The search for paths: how a full worker can take one more copy at the cost of one start.

// search holds the marks of one round. The search for a path marks what it visits. If it
// fails, the marks stay, because no path leads on from there. If it succeeds, it removes
// them, because another path may use the same workers and tasks. So in a round without
// success every mark is valid, which proves that there are no more paths.
type search struct {
	round uint32
	tasks []uint32 // by task: the round in which it was expanded

	// A bit for each worker. No path needs to lead through a worker that has too many: a
	// search of its own starts there.
	unvisited set // open, without too many, and not visited
	roomy     set // with room
	free      set // of one step, until the next

	// How many of the open workers takeExtra has visited.
	extras int

	// By worker: the progress through its adds, and through its copies of tasks with too
	// many. What was passed leads nowhere in this round.
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

// pick returns a worker to which a path from t may lead, one with room if there is one, or
// None. The index must contain t.
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

// expand marks a task that lacks a copy, and reports whether it was unmarked.
func (s *search) expand(t int32) bool {
	if s.tasks[t] == s.round {
		return false
	}
	s.tasks[t] = s.round
	return true
}

func (s *search) collapse(t int32) { s.tasks[t] = 0 }

// vacate makes room for one copy on w, which was visited and has no room, without another
// start: a start planned for w moves to another worker, or another worker keeps a copy of
// a task with too many, or w gets the extra unit of another worker.
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

// keepElsewhere keeps a dropped copy of the task with this number on another worker.
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

// enter visits w, and reports whether it has room or could make room. The caller uses that
// room.
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

// takeExtra gives w the extra unit of a worker that can do without it. It visits each
// worker once in a round: a worker that was passed has no extra unit any more, leads
// nowhere, or is on the path.
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

// findPlace plans a start of t on some worker, at the cost of one start, and reports
// whether it could. The index must contain t.
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

// undo cancels start i on w.
func (p *Planner) undo(i, w int32) {
	p.cancel(i)
	p.index.take(p.changes[i].Task, w)
}
