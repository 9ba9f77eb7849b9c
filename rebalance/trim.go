package rebalance

// Step 1: tasks with too many copies on open workers. Which ones go decides how
// many others can stay.

// overs holds every copy, on open workers, of the tasks that have too many.
type overs struct {
	tasks  []uint64 // a bit for each task
	excess int      // how many copies are too much
	copies []overCopy
	first  []int32 // by worker: its first in copies; one more at the end
	head   []int32 // by task: the latest in copies, plus one; see link
	linked bool
}

type overCopy struct {
	task, worker, position int32
	next                   int32 // the one before of the same task, plus one; see link
}

// trim drops as many copies of each task as it has too many, and gives out the
// extra units. Which ones go first is for relieve to put right; the better the
// choice here, the less it has to do. So workers with too many are relieved as
// far as it goes in order, then the others are brought down to about what they
// would have if all had the same, and what is then left goes as it comes.
//
// O(copies of tasks with too many), after a pass over the lists.
func (p *Planner) trim() {
	p.overs.copies = p.overs.copies[:0]
	if p.isOver {
		p.collectOvers()
		left := p.running() - p.overs.excess
		p.dropOvers(p.level)
		p.dropOvers(int32(left / len(p.open)))
		p.dropOvers(0)
	}
	p.extras()
}

// dropOvers drops copies of tasks with too many from each worker with more
// than its base, or more than load.
func (p *Planner) dropOvers(load int32) {
	for _, w := range p.open {
		if p.overs.excess == 0 {
			return
		}
		least := min(load, p.base[w])
		for _, c := range p.overs.of(w) {
			if p.load[w] <= least {
				break
			}
			if lack := &p.tasks[c.task].lack; *lack < 0 && p.flags[c.position] == kept {
				*lack++
				p.overs.excess--
				p.lose(c.task, w, c.position)
			}
		}
	}
}

func (p *Planner) collectOvers() {
	o := &p.overs
	o.first, o.linked = o.first[:0], false
	for w, list := range p.Held {
		o.first = append(o.first, int32(len(o.copies)))
		if p.States[w] != Open {
			continue
		}
		for k, t := range list {
			if !o.has(t) {
				continue
			}
			if at := p.offset[w] + int32(k); p.flags[at] == kept {
				o.copies = append(o.copies, overCopy{task: t, worker: int32(w), position: at})
			}
		}
	}
	o.first = append(o.first, int32(len(o.copies)))
}

// reset forgets the tasks.
func (o *overs) reset(tasks int) {
	o.tasks, o.excess = sized(o.tasks, (tasks+63)/64), 0
}

// add notes that a task has n copies too many.
func (o *overs) add(t, n int32) {
	o.tasks[t/64] |= 1 << (t % 64)
	o.excess += int(n)
}

func (o *overs) has(t int32) bool { return o.tasks[t/64]>>(t%64)&1 != 0 }

// link makes the copies of a task known by the task, for searches.
func (o *overs) link(tasks int) {
	if o.linked || len(o.copies) == 0 {
		return
	}
	o.linked = true
	o.head = sized(o.head, tasks)
	for i := range o.copies {
		c := &o.copies[i]
		c.next = o.head[c.task]
		o.head[c.task] = int32(i) + 1
	}
}

// of returns the copies on w.
func (o *overs) of(w int32) []overCopy {
	if len(o.copies) == 0 {
		return nil
	}
	return o.copies[o.first[w]:o.first[w+1]]
}

// relieve exchanges drops as long as that relieves a worker that has too many:
// this is the search for a maximum zero-cost flow. It goes in rounds; in each,
// what led nowhere is not tried again. A round without success proves that
// there is no more to gain.
//
// O(copies of tasks with too many) a round.
func (p *Planner) relieve() {
	if len(p.overs.copies) == 0 || !p.anyOverfull() {
		return
	}
	for success := true; success; {
		success = false
		p.search.begin(p)
		for _, w := range p.open {
			if p.room(w) >= 0 {
				continue
			}
			p.search.visit(w)
			for p.room(w) < 0 && p.vacate(w) {
				success = true
			}
		}
	}
}

// anyOverfull says whether a worker has more than it shall end with.
func (p *Planner) anyOverfull() bool {
	for _, w := range p.open {
		if p.room(w) < 0 {
			return true
		}
	}
	return false
}
