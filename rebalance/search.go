package rebalance

// The search for paths: how a worker that is full can take one more copy
// without costing more than that one start.

// search holds the marks of one round.
type search struct {
	round   uint32
	tasks   []uint32 // by task: the round in which it was expanded
	at      []int32  // by worker: its place in Planner.open
	ahead   []int32  // by place: the next that is perhaps not visited
	extras  bool     // every worker with an extra unit was visited
	visited []uint32 // by place
}

func (s *search) begin(p *Planner) {
	if len(s.tasks) < len(p.Want) || len(s.visited) < len(p.open) || s.round+1 == 0 {
		s.tasks = make([]uint32, len(p.Want))
		s.visited = make([]uint32, len(p.open))
		s.round = 0
	}
	s.round++
	s.extras = false
	s.at = sized(s.at, len(p.States))
	s.ahead = sized(s.ahead, len(p.open)+1)
	for i, w := range p.open {
		s.at[w] = int32(i)
		s.ahead[i] = int32(i)
	}
	s.ahead[len(p.open)] = int32(len(p.open))
}

// visit marks the worker at place i.
func (s *search) visit(i int32) {
	s.visited[i] = s.round
	s.ahead[i] = i + 1
}

func (s *search) isVisited(w int32) bool { return s.visited[s.at[w]] == s.round }

// next returns the first place from i on that is not visited. It shortens the
// ways it goes, so that a round costs little more than its number of visits.
func (s *search) next(i int32) int32 {
	for s.ahead[i] != i {
		s.ahead[i] = s.ahead[s.ahead[i]]
		i = s.ahead[i]
	}
	return i
}

// expand marks a task, and reports whether it was not yet.
func (s *search) expand(t int32) bool {
	if s.tasks[t] == s.round {
		return false
	}
	s.tasks[t] = s.round
	return true
}

// vacate makes room for one copy on w, which was visited and has none, without
// a start more than there are: a start planned for w goes elsewhere, or a copy
// of a task with too many is kept elsewhere, or w gets the extra unit of
// another.
func (p *Planner) vacate(w int32) bool {
	for i := p.addHead[w]; i > 0; i = p.adds[i-1].next {
		if a := p.adds[i-1]; a.worker == w && p.findPlace(a.task) {
			p.undo(i-1, w)
			return true
		}
	}
	copies := p.overs.of(w)
	for i := range copies {
		c := &copies[i]
		if p.flags[c.position] == kept && p.search.expand(c.task) && p.keepElsewhere(c.task) {
			p.lose(w, c.position)
			return true
		}
	}
	return p.takeExtra(w)
}

// keepElsewhere keeps a copy of t that was dropped.
func (p *Planner) keepElsewhere(t int32) bool {
	for i := p.overs.head[t]; i > 0; i = p.overs.copies[i-1].next {
		c := &p.overs.copies[i-1]
		if p.flags[c.position] != dropped || p.search.isVisited(c.worker) {
			continue
		}
		if p.enter(c.worker) {
			p.flags[c.position] = kept
			p.load[c.worker]++
			return true
		}
	}
	return false
}

// enter visits w, and reports whether it has room, or room could be made.
func (p *Planner) enter(w int32) bool {
	p.search.visit(p.search.at[w])
	return p.room(w) > 0 || p.room(w) == 0 && p.vacate(w)
}

// takeExtra has w take over the extra unit of a worker that can do without.
func (p *Planner) takeExtra(w int32) bool {
	if p.search.extras || !p.takesExtra(w) {
		return false
	}
	p.search.extras = true
	for _, v := range p.open {
		if p.limit[v] == p.level+1 && !p.search.isVisited(v) && p.enter(v) {
			p.limit[v]--
			p.limit[w]++
			return true
		}
	}
	return false
}

// findPlace plans the start of a copy of t on some worker, at the cost of that
// one start. The index has to know t.
func (p *Planner) findPlace(t int32) bool {
	if !p.search.expand(t) {
		return false
	}
	for i := p.search.next(0); int(i) < len(p.open); i = p.search.next(i + 1) {
		w := p.open[i]
		if p.index.blocks(t, w) {
			continue
		}
		if p.enter(w) {
			p.gain(t, w)
			p.index.put(t, w)
			return true
		}
	}
	return false
}

// undo takes back a planned start.
func (p *Planner) undo(i, w int32) {
	p.adds[i].worker = None
	p.load[w]--
	p.index.take(p.adds[i].task, w)
}

// index knows, for some tasks, which open workers cannot gain a copy: those
// that have one, and those that may not.
type index struct {
	id      []int32 // by task: its number here, plus one
	start   []int32
	length  []int32
	workers []int32
}

// build makes the index of the tasks for which of is true.
//
// One pass over the lists of the open workers.
func (x *index) build(p *Planner, of func(t int32) bool) {
	x.id = sized(x.id, len(p.Want))
	x.start, x.length = x.start[:0], x.length[:0]
	size := int32(0)
	for t := range p.need {
		if !of(int32(t)) {
			continue
		}
		x.start = append(x.start, size)
		x.length = append(x.length, 0)
		x.id[t] = int32(len(x.start))
		size += max(p.need[t], p.tasks[t].open) + 1 // one more while it moves
		if len(p.Forbidden) > 0 {
			size += p.barred[t]
		}
	}
	x.workers = sized(x.workers, int(size))
	for _, w := range p.open {
		round := p.block(w)
		for k, t := range p.Held[w] {
			if x.id[t] == 0 {
				continue
			}
			switch p.flags[p.offset[w]+int32(k)] {
			case kept:
				x.put(t, w)
				p.marks[t] = round - 1
			case dropped: // to keep it after all is no gain: never forbidden
				p.marks[t] = round - 1
			}
		}
		for i := p.addHead[w]; i > 0; i = p.adds[i-1].next {
			if a := p.adds[i-1]; a.worker == w && x.id[a.task] > 0 {
				x.put(a.task, w)
				p.marks[a.task] = round - 1
			}
		}
		for _, t := range p.forbid.row(w) {
			if x.id[t] > 0 && p.marks[t] == round { // not there already
				x.put(t, w)
				p.marks[t] = round - 1
			}
		}
	}
}

func (x *index) list(t int32) []int32 {
	k := x.id[t] - 1
	return x.workers[x.start[k] : x.start[k]+x.length[k]]
}

func (x *index) blocks(t, w int32) bool {
	for _, v := range x.list(t) {
		if v == w {
			return true
		}
	}
	return false
}

func (x *index) put(t, w int32) {
	k := x.id[t] - 1
	x.workers[x.start[k]+x.length[k]] = w
	x.length[k]++
}

func (x *index) take(t, w int32) {
	list := x.list(t)
	for i, v := range list {
		if v == w {
			list[i] = list[len(list)-1]
			x.length[x.id[t]-1]--
			return
		}
	}
}
