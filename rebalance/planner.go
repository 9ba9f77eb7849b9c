package rebalance

// The planner: the steps of a plan, and their order.

import "slices"

// Planner makes plans. It reuses its memory, so that a call on a problem of the same size allocates
// very little, and nothing if there is nothing to change. The zero value is ready to use. It is not
// safe for concurrent use.
type Planner struct {
	state    state
	scan     scan
	keeping  keeping
	search   search
	improver improver
	weighing weighing
	dealer   dealer
	plan     Plan
	steady   steady

	stuck    []int32 // of the items, those that no worker can simply take
	failed   set     // the tasks that no worker can take
	limit    int     // how many copies may move, or NoLimit
	placed   int     // missing copies that have a place
	gaveUp   int     // state.taken when copies were last let stay
	deferred bool    // the limit kept some copy from moving
	still    bool    // nothing moves for an even spread

	sources, over []int32 // memory of steps
}

// Plan plans one problem. The plan's slices are valid until the next call. If the problem is
// inconsistent, Plan returns an error that wraps ErrInvalid.
func (p *Planner) Plan(pr *Problem) (Plan, error) {
	if p.steady.known && pr != nil && p.steady.agrees(pr, false) {
		return p.plan, nil
	}
	p.steady.known = false
	if err := pr.check(); err != nil {
		return Plan{}, err
	}
	limit := pr.MaxMoves
	if pr.Trial && limit != 0 {
		limit = 1
	}
	p.still = false
	err := p.solve(pr, NoLimit)
	whole := p.plan
	if err == nil && pr.Still && whole.Moves > 0 {
		p.still = true
		err = p.solve(pr, NoLimit)
		p.plan.Held = max(0, whole.Moves-p.plan.Moves)
	}
	if moves := p.plan.Moves; err == nil && limit >= 0 && moves > limit {
		held := p.plan.Held
		err = p.solve(pr, limit)
		p.plan.Held, p.plan.Deferred = held, max(0, moves-p.plan.Moves)
		if p.deferred { // a chain may have taken as many moves as the best plan has
			p.plan.Deferred = max(1, p.plan.Deferred)
		}
	}
	if less := p.plan.Held + p.plan.Deferred; less > 0 {
		p.plan.LowerBound = min(p.plan.Adds, max(p.plan.Adds-p.plan.Moves, whole.LowerBound-less))
	}
	p.state.Problem, p.state.weights, p.keeping.target = Problem{}, nil, nil // the caller's slices
	if err != nil {
		return Plan{}, err
	}
	p.steady.known = len(p.plan.Changes) == 0 && pr.isWorthKeeping() && p.steady.agrees(pr, true)
	return p.plan, nil
}

// steady is a copy of the last problem, if it is known: its plan changes nothing, and is the plan of the next
// problem if that is equal.
type steady struct {
	Problem
	known bool
}

// isWorthKeeping reports whether a plan takes longer than a copy of the problem. Lists of many kinds take much memory.
func (pr *Problem) isWorthKeeping() bool {
	const most = 1 << 20
	pairs := 0
	for _, kinds := range pr.May {
		pairs += len(kinds)
	}
	return pairs <= most && (pr.May != nil || pr.Zone != nil || pr.Weight != nil)
}

// agrees reports whether a problem is equal to the last one. With copies it makes the last one equal.
func (s *steady) agrees(pr *Problem, copies bool) bool {
	if copies {
		s.Band, s.MaxMoves, s.Still, s.Trial = pr.Band, pr.MaxMoves, pr.Still, pr.Trial
	}
	return s.Band == pr.Band && s.MaxMoves == pr.MaxMoves && s.Still == pr.Still && s.Trial == pr.Trial &&
		agree(&s.States, pr.States, copies) && agree(&s.Kind, pr.Kind, copies) && agree(&s.Zone, pr.Zone, copies) &&
		agree(&s.Share, pr.Share, copies) && agree(&s.MaxTasks, pr.MaxTasks, copies) && agree(&s.Joined, pr.Joined, copies) &&
		agree(&s.Pinned, pr.Pinned, copies) && agree(&s.Forbidden, pr.Forbidden, copies) &&
		agree(&s.Want, pr.Want, copies) && agree(&s.Class, pr.Class, copies) && agree(&s.MaxPerZone, pr.MaxPerZone, copies) &&
		agree(&s.Weight, pr.Weight, copies) && agree(&s.Rests, pr.Rests, copies) &&
		agreeInAll(&s.May, pr.May, copies) && agreeInAll(&s.Running, pr.Running, copies)
}

// agree is agrees for a list. A nil list differs from an empty one.
func agree[E comparable](last *[]E, list []E, copies bool) bool {
	if !copies {
		return size(*last) == size(list) && slices.Equal(*last, list)
	}
	if *last = append((*last)[:0], list...); len(list) == 0 {
		*last = slices.Clone(list)
	}
	return true
}

// agreeInAll is agree for lists.
func agreeInAll(last *[][]int32, lists [][]int32, copies bool) bool {
	if copies {
		*last = slices.Grow((*last)[:0], len(lists))[:len(lists)]
	}
	if len(*last) != len(lists) {
		return false
	}
	for i, list := range lists {
		if !agree(&(*last)[i], list, copies) {
			return false
		}
	}
	return true
}

// solve makes a plan in which no more than so many copies move.
func (p *Planner) solve(pr *Problem, moves int) error {
	s := &p.state
	s.begin(pr)
	s.bind()
	if err := p.scan.count(s); err != nil {
		return err
	}
	p.weighing.measure(s)
	p.keeping.decide(s, &p.scan)
	p.plan = Plan{Changes: p.plan.Changes, Unplaced: p.plan.Unplaced}
	p.search.excluded = p.search.excluded[:0]
	p.limit, p.placed, p.deferred, p.gaveUp, s.onlyOver = moves, 0, false, s.taken, false
	proven := true
	most, _, uneven := p.extremes(nil)
	if p.isUnfinished(uneven) {
		s.prepare()
		limit := endless
		if len(p.keeping.items) == 0 && s.weights == nil && most != None { // only those can take that have much less than others
			limit = s.removing(most)
		}
		s.rank(limit)
		p.search.excluded = p.search.excluded.emptied(len(s.workers))
		s.fresh = slices.Grow(s.fresh, len(p.keeping.items))
		if p.keeping.trimmed && s.weights == nil {
			p.exchangeSurplus() // it costs nothing, so it comes first
		}
		p.placeMissing()
		p.move()
		proven = s.weights == nil && p.improve()
		if p.still {
			p.returnHome()
		}
		if p.keeping.evicts && s.taken != p.gaveUp && p.takeUp() {
			if !p.still && !p.deferred {
				p.even()
			}
			proven = s.weights == nil && p.improve()
		}
	}
	p.diff()
	p.listUnplaced()
	p.bound(proven && (s.staying == 0 || !s.labels && !s.zoned && s.MaxTasks == nil))
	if s.weights != nil {
		p.report()
	}
	return nil
}

// isUnfinished reports whether something needs a place or is uneven.
func (p *Planner) isUnfinished(uneven bool) bool {
	if len(p.keeping.items) > 0 || p.keeping.trimmed {
		return true
	}
	if p.state.weights == nil {
		return uneven
	}
	p.state.prepare() // for levels
	p.weighing.findLevels(&p.state)
	return p.weighing.findBands(&p.state) || slices.ContainsFunc(p.state.workers, func(w worker) bool { return w.takesPart() && w.isOver() })
}

// move makes the moves, in the order of P9.
func (p *Planner) move() {
	s := &p.state
	for again := true; again; {
		if s.MaxTasks != nil { // an eviction by a limit may make room where another rule has none
			s.onlyOver = true
			p.even()
			s.onlyOver = false
		}
		if p.keeping.evicts {
			p.placeLeaving()
		}
		if !p.still && (!p.deferred || p.placed > 0) { // what starts is placed as evenly as ever
			p.even()
		}
		missing := p.missing()
		if again = missing > 0; again { // workers that were full may have room now
			p.placeMissing()
			if s.zoned {
				s.relaxed = true
				p.placeMissing()
				s.relaxed = false
			}
			again = p.missing() < missing
		}
	}
}

// placeLeaving places the copies that must leave, first those that have moved last: they are at the end of
// the lists. Of equal workers the newest comes first. So in a rolling update, which drains the old ones, what
// has moved goes to workers that stay.
func (p *Planner) placeLeaving() {
	s := &p.state
	if s.newest = s.Joined != nil; s.newest {
		s.rank(endless)
	}
	p.place(drained, evicted)
	if s.zoned && len(p.stuck) > 0 {
		s.relaxed = true
		p.place(drained, evicted)
		s.relaxed = false
	}
	p.giveUp()
	if s.newest {
		s.newest = false
		s.rank(endless)
	}
}

// takeUp places copies that were to stay, where others have made room for them. It reports whether there were
// some.
func (p *Planner) takeUp() bool {
	s := &p.state
	for i := range p.keeping.items {
		if x := &p.keeping.items[i]; x.from != None && s.stays(x.copy) {
			s.leave(x.from, x.copy)
		}
	}
	moved := s.added
	p.placeLeaving()
	return s.added > moved
}

// returnHome puts copies back that have made room which is not needed any more.
func (p *Planner) returnHome() {
	s := &p.state
	for i := range s.fresh {
		t, from := s.fresh[i].task, s.fresh[i].worker
		if from == None {
			continue
		}
		for k := s.trails[t].left; k > 0; k = s.left[k-1].next {
			h := &s.left[k-1]
			if at := &s.workers[h.worker]; s.flags[h.copy]&(gone|leaving) == gone && at.takesPart() && at.load < at.room && s.can(t, h.worker, from) {
				s.put(s.take(from, ^int32(i)), h.worker)
				break
			}
		}
	}
}

// missing returns how many missing copies have no place.
func (p *Planner) missing() int { return p.keeping.missing - p.placed }

// placeMissing places missing copies: first those of tasks that do not run at all.
func (p *Planner) placeMissing() {
	p.place(firstOnes, firstOnes)
	p.place(furtherOnes, furtherOnes)
}

// moved returns how many copies the state moves.
func (p *Planner) moved() int { return p.state.added - p.placed }

// mayMove reports whether n copies more may move. A chain of moves that helps only as a whole is made
// whole if it is the first of its plan: else it would never be made.
func (p *Planner) mayMove(n int) bool {
	return p.limit < 0 || p.moved()+n <= p.limit || p.limit > 0 && p.moved() == 0 && !p.state.Trial
}

// bound sets the lowest number of starts. By weight other loads may be as even, so it is what is missing or must
// leave. Without weights the loads of a worker in two plans that are as even differ by one at most: the flow halfway
// between these plans would be more even otherwise.
func (p *Planner) bound(proven bool) {
	s, plan := &p.state, &p.plan
	if plan.LowerBound = plan.Adds; proven {
		return
	}
	if s.weights != nil {
		for _, c := range plan.Changes {
			if c.Reason == Rebalance || c.Reason == Room {
				plan.LowerBound--
			}
		}
		return
	}
	byWorker := 0
	for w := range s.workers {
		byWorker += int(max(0, s.workers[w].got-s.workers[w].lost-1))
	}
	plan.LowerBound = max(byWorker, plan.Adds-plan.Moves)
}
