package rebalance

import "math/bits"

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
	p.overs.link()
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
	copies := p.overs.on(w)
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
	o := &p.overs
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

// takeExtra has w take over the extra unit of a worker that can do without.
// Each is asked once a round: one that is passed has none any more, leads
// nowhere, or is on the path already.
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
