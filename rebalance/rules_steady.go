package rebalance

// Rules: the quick look at a fleet in which nothing must change. It is for the ordinary case
// that all workers are open, no copy is pinned, and zones do not bind.

import (
	"cmp"
	"slices"
)

// steadiness is the memory of the quick look.
type steadiness struct {
	pairs     []Pair
	classesOf rows        // by kind
	workersOf rows        // by kind
	admitting []int32     // by class: the last kind that may run it, plus one; anyKind
	classed   bool        // the lists are counted, in this plan
	copies    classCounts // by worker: what its list names; a task as often as it is named
	counts    []int32     // by class, of one list
	misplaced set         // workers
}

// anyKind marks a class that every kind may run.
const anyKind = -1

// isUnchanged reports whether every copy stays where it is unless an even spread needs it to
// move, for a fleet without quarantined workers and pinned copies.
func (r *rules) isUnchanged() bool {
	if len(r.open) < len(r.States) || len(r.open) == 0 || r.Pinned != nil ||
		len(r.leaving)+len(r.places)+len(r.over)+len(r.hopeless)+len(r.drops) > 0 {
		return false
	}
	for w, n := range r.load {
		if n > r.most(int32(w)) {
			return false
		}
	}
	return true
}

// isSteady reports whether nothing must change, if all workers are open and every task has its
// copies: they run where they may, and the loads are even, or in band if weights differ (P18). One
// pass over the lists for labels, and one for weights.
func (r *rules) isSteady() bool {
	if r.zoned || r.Pinned != nil {
		return false
	}
	for w, n := range r.load {
		if n > r.most(int32(w)) {
			return false
		}
	}
	if r.labels && r.anyMisplaced() {
		return false
	}
	if r.weights.weighted {
		return r.isInBand()
	}
	return r.isEven()
}

// anyMisplaced reports whether a worker runs a copy that its labels forbid, and sets misplaced. It
// looks at the workers by kind, and so at each pair of a class and a kind once. One pass over the
// lists, in the first call of a plan.
func (r *rules) anyMisplaced() bool {
	s := &r.steadiness
	if s.classed {
		return !s.misplaced.isEmpty()
	}
	r.countClasses()
	kinds := int32(1)
	s.pairs = s.pairs[:0]
	for w := range r.States {
		kind := r.kindOf(int32(w))
		kinds = max(kinds, kind+1)
		s.pairs = append(s.pairs, Pair{Task: int32(w), Worker: kind})
	}
	s.workersOf.fill(int(kinds), s.pairs)
	s.admitting = sized(s.admitting, len(r.May))
	s.pairs = s.pairs[:0]
	for c, may := range r.May {
		if may == nil {
			s.admitting[c] = anyKind
		}
		for _, kind := range may {
			if kind < kinds {
				s.pairs = append(s.pairs, Pair{Task: int32(c), Worker: kind})
			}
		}
	}
	s.classesOf.fill(int(kinds), s.pairs)
	s.misplaced = s.misplaced.emptied(len(r.States))
	for kind := range kinds {
		for _, c := range s.classesOf.row(kind) {
			s.admitting[c] = kind + 1
		}
		for _, w := range s.workersOf.row(kind) {
			if slices.ContainsFunc(s.copies.row(w), func(x classCopies) bool {
				a := s.admitting[x.class]
				return a != kind+1 && a != anyKind
			}) {
				s.misplaced.add(w)
			}
		}
	}
	return !s.misplaced.isEmpty()
}

// countClasses counts the classes of the tasks of each list.
func (r *rules) countClasses() {
	s := &r.steadiness
	s.classed = true
	s.copies.reset()
	s.counts = sized(s.counts, len(r.May))
	for _, list := range r.Running {
		if r.Class != nil {
			r.seenClasses = countIn(s.counts, r.Class, list, r.seenClasses[:0])
			s.copies.take(s.counts, r.seenClasses)
		} else if len(list) > 0 {
			s.copies.add(0, int32(len(list)))
		}
		s.copies.endWorker()
	}
}

// countIn counts the classes of the tasks of a list, and appends those that it has to seen.
// Like tally it is not inlined.
//
//go:noinline
func countIn(counts, class, list, seen []int32) []int32 {
	var fetched [fetches]int32
	for len(list) > 0 {
		part := list[:min(len(list), fetches)]
		for k, t := range part {
			fetched[k%fetches] = class[t]
		}
		for _, c := range fetched[:len(part)] {
			if counts[c] == 0 {
				seen = append(seen, c)
			}
			counts[c]++
		}
		list = list[len(part):]
	}
	return seen
}

// isEven reports whether no copy adds more to the sum of load²/share than it would on another
// worker.
func (r *rules) isEven() bool {
	most, least := None, None // the last copy adds the most, the next one the least
	for _, w := range r.open {
		if most == None || r.compareAdded(w, 0, most, 0) > 0 {
			most = w
		}
		if r.load[w] < r.most(w) && (least == None || r.compareAdded(w, 1, least, 1) < 0) {
			least = w
		}
	}
	return least == None || r.compareAdded(most, 0, least, 1) <= 0
}

// compareAdded compares what the last copies of v and w add to the sum of load²/share, with
// some more copies on each.
func (r *rules) compareAdded(v, more, w, others int32) int {
	a := (2*int64(r.load[v]+more) - 1) * int64(r.shareOf(w))
	b := (2*int64(r.load[w]+others) - 1) * int64(r.shareOf(v))
	return cmp.Compare(a, b)
}

// isInBand reports whether all workers are in band.
func (r *rules) isInBand() bool {
	g := &r.weights.weighing
	l := &g.levels
	l.share, l.kind, l.may, l.base, l.most = r.Share, r.Kind, r.May, nil, nil
	g.load = sized(g.load, len(r.States))
	demand, top := int64(0), Weight{}
	for w, list := range r.Running {
		sum, most := weightSum(r.Weight, list)
		if int(r.load[w]) != len(list) || weightBits(most, len(list)) > 61 {
			return false // it names a task twice, or the sum may have overflowed
		}
		g.load[w] = sum
		demand += sum
		top.code = max(top.code, most.code)
	}
	if weightBits(top, len(r.Want)+r.wanted) > 61 {
		return false
	}
	classes := max(1, len(r.May))
	l.demand, l.top = sized(l.demand, classes), sized(l.top, classes)
	if classes == 1 {
		l.demand[0], l.top[0] = demand, top.Int64()
	} else {
		for t, want := range r.Want {
			if want > 0 {
				c, weight := r.classOf(int32(t)), r.Weight[t].Int64()
				l.demand[c] += weight * int64(want)
				l.top[c] = max(l.top[c], weight)
			}
		}
	}
	l.each = func(visit func(class int32, weight int64)) {
		for t, want := range r.Want {
			for range want {
				visit(r.classOf(int32(t)), r.Weight[t].Int64())
			}
		}
	}
	l.solve(len(r.States))
	high, low := int64(0), int64(0)
	level := int64(0)
	of, share := None, int64(0) // the pool and the share of these
	loads := sized(r.weights.loads, len(g.load))
	r.weights.loads = loads
	for w, load := range g.load {
		w := int32(w)
		if pool := l.pool[l.kindOf(w)]; pool != of || l.shareOf(w) != share {
			of, share = pool, l.shareOf(w)
			high, low = l.band(w, int64(r.Band))
			level = l.goal(w)
		}
		loads[w] = Load{load, level}
		if load > high && len(r.Running[w]) > 1 || load < low && r.load[w] < r.most(w) {
			return false
		}
	}
	r.plan.Loads = loads
	return true
}

// fetches is how many elements are fetched before they are looked at. What belongs to a million
// tasks is in a distant cache. If a loop fetches it and does nothing else, the processor
// waits for many elements at a time.
const fetches = 128

// weightSum returns the sum and the highest of the weights of a list. Like tally it is not
// inlined.
//
//go:noinline
func weightSum(weight []Weight, list []int32) (sum int64, most Weight) {
	var fetched [fetches]Weight
	for len(list) > 0 {
		part := list[:min(len(list), fetches)]
		for k, t := range part {
			fetched[k%fetches] = weight[t]
		}
		for _, n := range fetched[:len(part)] {
			sum += n.Int64()
			most.code = max(most.code, n.code)
		}
		list = list[len(part):]
	}
	return sum, most
}
