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
	misplaced set         // workers
	searched  bool        // misplaced is of this plan
	copies    classCounts // by worker: what its list names; a task as often as it is named
	counted   bool        // copies is of this plan
	counts    []int32     // by class, of one list
	sums      []weightSum // by worker: of what its list names
	summed    bool        // sums is of this plan

	classes []int32  // fetched, of one list
	seen    []int32  // the different ones
	weights []Weight // fetched, of one list
}

// weightSum is the sum of some weights, and the highest of them.
type weightSum struct {
	sum  int64
	most Weight
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
	if s.searched {
		return !s.misplaced.isEmpty()
	}
	s.searched = true
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

// forgetLists forgets what is of an earlier plan.
func (s *steadiness) forgetLists() { s.searched, s.counted, s.summed = false, false, false }

// meetList returns what meets the tasks of a list in the scan, and counts their classes or sums
// their weights on the way. It returns nil if rules ask for neither, or for both.
func (r *rules) meetList() func(again set, w int32, list []int32) int {
	s := &r.steadiness
	switch {
	case r.labels && r.Class != nil && !r.weights.weighted:
		s.beginCounts(len(r.May))
		return func(again set, _ int32, list []int32) int {
			s.counted = true
			s.classes = slices.Grow(s.classes[:0], len(list))
			at := meetAndFetch(r.met, again, list, r.Class, s.classes)
			s.count(s.classes[:at])
			return at
		}
	case r.weights.weighted && !r.labels:
		s.sums = sized(s.sums, len(r.States))
		return func(again set, w int32, list []int32) int {
			s.summed = true
			s.weights = slices.Grow(s.weights[:0], len(list))
			at := meetAndFetch(r.met, again, list, r.Weight, s.weights)
			s.sums[w] = weightsOf(s.weights[:at])
			return at
		}
	}
	return nil
}

// countClasses counts the classes of the tasks of each list, unless the scan has.
func (r *rules) countClasses() {
	s := &r.steadiness
	if s.counted {
		return
	}
	s.counted = true
	s.beginCounts(len(r.May))
	for _, list := range r.Running {
		if r.Class != nil {
			s.classes = fetch(list, r.Class, s.classes)
		} else {
			s.classes = sized(s.classes, len(list))
		}
		s.count(s.classes)
	}
}

func (s *steadiness) beginCounts(classes int) {
	s.copies.reset()
	s.counts = sized(s.counts, classes)
}

// count counts the classes of one list.
func (s *steadiness) count(classes []int32) {
	s.seen = countIn(s.counts, classes, s.seen[:0])
	s.copies.take(s.counts, s.seen)
	s.copies.endWorker()
}

// countIn counts classes, and appends those that there are to seen. Like tally it is not inlined.
//
//go:noinline
func countIn(counts, classes, seen []int32) []int32 {
	for _, c := range classes {
		if counts[c] == 0 {
			seen = append(seen, c)
		}
		counts[c]++
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
	r.sumWeights()
	demand, top := int64(0), Weight{}
	for w, of := range r.sums {
		if n := len(r.Running[w]); int(r.load[w]) != n || weightBits(of.most, n) > 61 {
			return false // it names a task twice, or the sum may have overflowed
		}
		g.load[w] = of.sum
		demand += of.sum
		top.code = max(top.code, of.most.code)
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

// sumWeights sums the weights of the tasks of each list, unless the scan has.
func (r *rules) sumWeights() {
	s := &r.steadiness
	if s.summed {
		return
	}
	s.summed = true
	s.sums = sized(s.sums, len(r.States))
	for w, list := range r.Running {
		s.weights = fetch(list, r.Weight, s.weights)
		s.sums[w] = weightsOf(s.weights)
	}
}

// weightsOf sums weights. Like tally it is not inlined.
//
//go:noinline
func weightsOf(weights []Weight) weightSum {
	sum, most := int64(len(weights)), uint32(0)
	for _, n := range weights {
		sum += int64(n.code)
		most = max(most, n.code)
	}
	if most >= thousands { // some codes are not numbers less one
		sum = 0
		for _, n := range weights {
			sum += n.Int64()
		}
	}
	return weightSum{sum, Weight{most}}
}
