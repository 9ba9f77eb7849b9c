package rebalance

// The search for paths: how a full worker can take one more copy at the cost of one start.

import "math/bits"

// search holds the marks of one round. The search for a path marks what it visits. If it
// fails, the marks stay, because no path leads on from there. If it succeeds, it removes
// them, because another path may use the same workers and tasks. So in a round without
// success every mark is valid, which proves that there are no more paths.
type search struct {
	*draft
	surplus *surplus
	index   index

	round    uint32
	expanded []uint32 // by task: the round in which it was expanded

	// A bit for each worker. No path needs to lead through a worker that has too many: a
	// search of its own starts there.
	unvisited set // open, without too many, and not visited
	roomy     set // with room
	free      set // of one step, until the next

	// How many of the open workers takeExtra has visited.
	extras int

	// By worker: the progress through its adds, and through its copies of tasks with too
	// many. What was passed leads nowhere in this round.
	nextAdd  []int32
	nextCopy []int32
}

// relieve exchanges drops as long as that relieves a worker that has too many copies. This
// is the search for a maximum zero-cost flow. It works in rounds, and in a round it does
// not repeat a step that has failed. It ends when no worker has too many, or after a
// round without success, which proves that no more copies can be saved.
//
// A round visits each worker, and each copy of a task with too many, once. Every round but
// the last saves a copy.
func (s *search) relieve() {
	if len(s.surplus.copies) == 0 {
		return
	}
	for success := true; success && s.anyOverfull(); {
		success = false
		s.begin()
		for _, w := range s.open {
			if s.room(w) >= 0 {
				continue
			}
			for s.room(w) < 0 && s.vacate(w) {
				success = true
			}
		}
	}
}

// anyOverfull reports whether a worker has more copies than its limit.
func (s *search) anyOverfull() bool {
	for _, w := range s.open {
		if s.room(w) < 0 {
			return true
		}
	}
	return false
}

func (s *search) begin() {
	if len(s.expanded) < len(s.Want) || s.round+1 == 0 {
		s.expanded = make([]uint32, len(s.Want))
		s.round = 0
	}
	s.surplus.link()
	s.round++
	s.extras = 0
	s.unvisited = s.unvisited.emptied(len(s.States))
	s.roomy = s.roomy.emptied(len(s.States))
	s.free = s.free.emptied(len(s.States))
	for _, w := range s.open {
		room := s.room(w)
		if room >= 0 {
			s.unvisited.add(w)
		}
		if room > 0 {
			s.roomy.add(w)
		}
	}
	s.nextAdd = append(s.nextAdd[:0], s.addHead...)
	s.nextCopy = sized(s.nextCopy, len(s.States))
}

// pick returns a worker to which a path from t may lead, one with room if there is one, or
// None. The index must contain t.
func (s *search) pick(t int32) int32 {
	s.index.free(t, s.unvisited, s.free)
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
	if s.expanded[t] == s.round {
		return false
	}
	s.expanded[t] = s.round
	return true
}

func (s *search) collapse(t int32) { s.expanded[t] = 0 }

// vacate makes room for one copy on w, which was visited and has no room, without another
// start: a start planned for w moves to another worker, or another worker keeps a copy of
// a task with too many, or w gets the extra unit of another worker.
func (s *search) vacate(w int32) bool {
	for at := &s.nextAdd[w]; *at > 0; {
		i := *at - 1
		c := s.changes[i]
		*at = s.adds[i].next
		if c.To != None && s.findPlace(c.Task) {
			s.undo(i, w)
			return true
		}
	}
	copies := s.surplus.on(w)
	for at := &s.nextCopy[w]; int(*at) < len(copies); {
		c := &copies[*at]
		*at++
		if s.flags[c.position] == kept && s.keepElsewhere(c.number) {
			s.lose(s.Running[w][c.position-s.offset[w]], w, c.position)
			return true
		}
	}
	return s.takeExtra(w)
}

// keepElsewhere keeps a dropped copy of the task with this number on another worker.
func (s *search) keepElsewhere(number int32) bool {
	o := s.surplus
	if o.met[number] == s.round {
		return false
	}
	o.met[number] = s.round
	for i := o.head[number]; i > 0; i = o.links[i-1].next {
		position, worker := o.copies[i-1].position, o.links[i-1].worker
		if s.flags[position] == dropped && s.unvisited.has(worker) && s.enter(worker) {
			s.flags[position] = kept
			s.load[worker]++
			o.met[number] = 0
			return true
		}
	}
	return false
}

// enter visits w, and reports whether it has room or could make room. The caller uses that
// room.
func (s *search) enter(w int32) bool {
	s.unvisited.remove(w)
	if s.room(w) <= 0 && !s.vacate(w) {
		return false
	}
	s.unvisited.add(w)
	if s.room(w) == 1 {
		s.roomy.remove(w)
	}
	return true
}

// takeExtra gives w the extra unit of a worker that can do without it. It visits each
// worker once in a round: a worker that was passed has no extra unit any more, leads
// nowhere, or is on the path.
func (s *search) takeExtra(w int32) bool {
	if !s.takesExtra(w) {
		return false
	}
	for s.extras < len(s.open) {
		v := s.open[s.extras]
		s.extras++
		if s.limit[v] > s.base[v] && s.unvisited.has(v) && s.enter(v) {
			s.limit[v]--
			s.limit[w]++
			return true
		}
	}
	return false
}

// findPlace plans a start of t on some worker, at the cost of one start, and reports
// whether it could. The index must contain t.
func (s *search) findPlace(t int32) bool {
	if !s.expand(t) {
		return false
	}
	for {
		w := s.pick(t)
		if w == None {
			return false
		}
		if s.enter(w) {
			s.gain(t, w)
			s.index.put(t, w)
			s.collapse(t)
			return true
		}
	}
}

// undo cancels start i on w.
func (s *search) undo(i, w int32) {
	s.cancel(i)
	s.index.take(s.changes[i].Task, w)
}
