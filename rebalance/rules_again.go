package rebalance

// Rules: a second look at a plan. Zones are decided before workers, and several copies of a
// task are placed by counts and searches. So a plan may find more to do on the result of the
// first one. It is made at once, and not in the next call.

import "slices"

// secondLook plans again on the result of a plan, and joins the two.
type secondLook struct {
	result  Problem
	running [][]int32
	arena   []int32 // of the lists that change
	changes []Change
	waiting []Unplaced

	pairs         []Pair
	gaining, lost rows // by worker: the tasks of which it gains or loses a copy
	isLost        set  // the tasks of which the worker at hand loses a copy

	gains map[Pair]int // by task and the worker that gains a copy: its change
	loses map[Pair]int // by task and the worker that loses one
}

// looks is how many plans one call makes at most.
const looks = 12

// mayImprove reports whether another plan on the result may find more to do.
func (r *rules) mayImprove(pr *Problem) bool {
	return r.ruled && pr.MaxMoves < 0 && !pr.Trial && (r.zoned || r.inexact) && len(r.plan.Changes) > 0
}

// run looks again until there is nothing to do.
func (s *secondLook) run(p *Planner, pr *Problem, plan Plan) (Plan, error) {
	for range looks - 1 {
		s.changes = append(s.changes[:0], plan.Changes...)
		s.waiting = append(s.waiting[:0], plan.Unplaced...)
		s.carryOut(pr)
		next, err := p.planOnce(&s.result)
		if err != nil {
			return Plan{}, err
		}
		isEven := func(c Change) bool { // the first plan may have gone beyond a default cap
			return c.Reason == EvictZone && (pr.MaxPerZone == nil || pr.MaxPerZone[c.Task] == 0)
		}
		if len(next.Changes) == 0 || pr.Still && slices.ContainsFunc(next.Changes, isEven) {
			plan.Unplaced = s.waiting
			break
		}
		s.index()
		for _, c := range next.Changes {
			if isEven(c) {
				c.Reason = Rebalance
			}
			s.add(c)
		}
		plan = s.joined(next)
	}
	plan.Changes = s.changes
	return plan, nil
}

// carryOut sets result to the problem after the changes.
func (s *secondLook) carryOut(pr *Problem) {
	s.result = *pr
	s.running = append(s.running[:0], pr.Running...)
	s.result.Running = s.running
	s.result.Pinned = slices.Clone(pr.Pinned)
	workers, size := len(pr.States), 0
	s.pairs = s.pairs[:0]
	for _, c := range s.changes {
		if c.From != None {
			s.pairs = append(s.pairs, Pair{c.Task, c.From})
		}
	}
	s.lost.fill(workers, s.pairs)
	s.pairs = s.pairs[:0]
	for _, c := range s.changes {
		if c.To != None {
			s.pairs = append(s.pairs, Pair{c.Task, c.To})
		}
	}
	s.gaining.fill(workers, s.pairs)
	changing := func(w int32) bool { return len(s.lost.row(w))+len(s.gaining.row(w)) > 0 }
	for w, list := range pr.Running {
		if w := int32(w); changing(w) {
			size += len(list) + len(s.gaining.row(w))
		}
	}
	s.arena = slices.Grow(s.arena[:0], size)
	s.isLost = s.isLost.emptied(len(pr.Want))
	for w, list := range pr.Running {
		w := int32(w)
		if !changing(w) {
			continue
		}
		for _, t := range s.lost.row(w) {
			s.isLost.add(t)
		}
		gains, free, begin := s.gaining.row(w), len(list), len(s.arena)
		if pr.Pinned != nil {
			free -= int(pr.Pinned[w])
		}
		s.keep(list[:free])
		s.arena = append(s.arena, gains...)
		pinned := len(s.arena)
		s.keep(list[free:])
		if pr.Pinned != nil {
			s.result.Pinned[w] = int32(len(s.arena) - pinned)
		}
		s.running[w] = s.arena[begin:len(s.arena):len(s.arena)]
		for _, t := range s.lost.row(w) {
			s.isLost.remove(t)
		}
	}
}

// keep appends the tasks of a list that its worker does not lose.
func (s *secondLook) keep(list []int32) {
	for _, t := range list {
		if !s.isLost.has(t) {
			s.arena = append(s.arena, t)
		}
	}
}

// index finds the changes by task and worker. Most second plans are empty, and need none.
func (s *secondLook) index() {
	s.gains, s.loses = make(map[Pair]int, len(s.changes)), make(map[Pair]int, len(s.changes))
	for i, c := range s.changes {
		if c.To != None {
			s.gains[Pair{c.Task, c.To}] = i
		}
		if c.From != None {
			s.loses[Pair{c.Task, c.From}] = i
		}
	}
}

// add adds a change of a later plan.
func (s *secondLook) add(c Change) {
	if at := (Pair{c.Task, c.From}); c.From != None {
		if i, ok := s.gains[at]; ok { // the copy goes to another worker at once
			first := s.changes[i]
			delete(s.gains, at)
			s.changes[i].From, s.changes[i].To = None, None
			c.From, c.Reason = first.From, first.Reason
			if c.From == c.To {
				delete(s.loses, Pair{c.Task, c.To})
				return
			}
		}
	}
	if at := (Pair{c.Task, c.To}); c.To != None {
		if i, ok := s.loses[at]; ok { // the copy stays, and another one leaves
			first := &s.changes[i]
			delete(s.loses, at)
			first.From = c.From
			switch {
			case first.From != None && first.To != None:
				first.Reason = c.Reason
			case first.To != None:
				first.Reason = Missing
			}
			if first.From != None {
				s.loses[Pair{c.Task, c.From}] = i
			}
			return
		}
	}
	switch {
	case c.From == None && c.To == None:
		return
	case c.To == None && c.Reason != Unexpected:
		c.Reason = Surplus
	}
	if c.From != None {
		s.loses[Pair{c.Task, c.From}] = len(s.changes)
	}
	if c.To != None {
		s.gains[Pair{c.Task, c.To}] = len(s.changes)
	}
	s.changes = append(s.changes, c)
}

// joined returns next with all changes.
func (s *secondLook) joined(next Plan) Plan {
	s.changes = slices.DeleteFunc(s.changes, func(c Change) bool { return c.From == None && c.To == None })
	slices.SortStableFunc(s.changes, func(a, b Change) int { // stops come last
		switch {
		case a.To != None && b.To == None:
			return -1
		case a.To == None && b.To != None:
			return 1
		}
		return 0
	})
	next.Changes = s.changes
	next.Adds, next.Moves = 0, 0
	needed, grows := 0, make(map[int32]int)
	for _, c := range s.changes {
		if c.From != None && c.Reason != Unexpected {
			grows[c.From]--
		}
		if c.To == None {
			continue
		}
		grows[c.To]++
		next.Adds++
		if c.From != None {
			next.Moves++
		}
		if isAim(&c) {
			needed++
		}
	}
	grown := 0
	for _, n := range grows {
		grown += max(0, n)
	}
	next.LowerBound = max(needed, grown)
	return next
}
