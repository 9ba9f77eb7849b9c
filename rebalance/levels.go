package rebalance

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// levels finds what the workers of each hub should run by weight: their part in the best placement of
// tasks that can be divided. Class after class is poured over the hubs that may run it, as evenly as
// the others let it, until that changes little. This converges to the least Σ load²/share, because
// that is convex and each class moves on its own (block coordinate descent).
type levels struct {
	share []int64 // by hub: of the workers that take part
	base  []int64 // by hub: what cannot move; nil means nothing
	load  []int64 // by hub, in units
	unit  int     // how many bits of a load are a fraction
	hubs  [][]int32
	part  [][]int64 // by class, and hub in hubs: what the class has there
	order []int32
}

// solve finds the loads. weight is by class. It gives up if the classes have more hubs in all than most,
// and then returns false.
func (l *levels) solve(s *state, weight []int64, most int) bool {
	total, pairs := int64(1), 1
	l.hubs, l.part = slices.Grow(l.hubs[:0], len(weight))[:len(weight)], slices.Grow(l.part[:0], len(weight))[:len(weight)]
	for c, w := range weight {
		total += w
		l.hubs[c] = l.hubs[c][:0]
		hubs, few := s.hubsOf(int32(c))
		for _, h := range hubs {
			if w > 0 && l.share[h] > 0 && (!s.labels || s.kindAdmits(s.hubs[h].kind, int32(c))) {
				l.hubs[c] = append(l.hubs[c], h)
			}
		}
		if few {
			slices.Sort(l.hubs[c])
		}
		l.part[c] = sized(l.part[c], len(l.hubs[c]))
		if pairs += len(l.hubs[c]); pairs > most {
			return false
		}
	}
	for _, n := range l.base {
		total += n
	}
	l.unit = 62 - bits.Len64(uint64(total))
	l.load = sized(l.load, len(l.share))
	for h, n := range l.base {
		l.load[h] = n << l.unit
	}
	for range max(2, min(200, 10_000_000/pairs, most/pairs)) {
		moved := false
		for c, w := range weight {
			if len(l.hubs[c]) > 0 && l.pour(c, w<<l.unit) {
				moved = true
			}
		}
		if !moved || len(weight) == 1 {
			break
		}
	}
	return true
}

// of returns what a worker of a hub should run. The hub has a share.
func (l *levels) of(hub int32, share int64) int64 {
	return scaled(l.load[hub], share, l.share[hub]) >> l.unit
}

// pour takes a class out and pours it again. It reports whether the load of a hub changes by more than
// a ten-thousandth.
func (l *levels) pour(c int, weight int64) (moved bool) {
	hubs, part := l.hubs[c], l.part[c]
	l.order = l.order[:0]
	sum, share := weight, int64(0)
	for i, h := range hubs {
		l.load[h] -= part[i]
		sum, share, l.order = sum+l.load[h], share+l.share[h], append(l.order, int32(i))
	}
	// The lowest hubs fill up to a common level. Those above it leave, which lowers it.
	for some := true; some; {
		n := len(l.order)
		l.order = slices.DeleteFunc(l.order, func(i int32) bool {
			h := hubs[i]
			isAbove := compareProducts(sum, l.share[h], l.load[h], share) <= 0
			if isAbove {
				sum, share = sum-l.load[h], share-l.share[h]
			}
			return isAbove
		})
		some = len(l.order) < n
	}
	next := 0
	for i, h := range hubs {
		was := part[i]
		if part[i] = 0; next < len(l.order) && l.order[next] == int32(i) {
			part[i] = max(0, scaled(sum, l.share[h], share)-l.load[h])
			next++
		}
		l.load[h] += part[i]
		moved = moved || max(part[i]-was, was-part[i]) > l.load[h]/10_000
	}
	return moved
}

// weighing evens the loads by weight (P17 to P19). That is no flow, so the result is not always the
// best one. It is one that no single move or swap betters.
type weighing struct {
	levels    levels
	heaviest  int64   // a copy of a wanted task
	sums      []int64 // by class: the weight of its copies
	giant     []int32 // by worker: the giant that is to run there, or None
	fixed     set     // the workers whose load cannot come to its level
	giants    []giant
	locations []Pair // of giants and the workers that run them, by task
	heavy     set    // the tasks of giants

	high, low []int64     // by worker: the loads between which it is in half of its band
	awake     set         // the workers that are, or have been, out of band
	lists     [][]weighed // by worker: what it can give, the heaviest first
	listed    set         // the workers whose list is right
	freshOnly bool        // only copies that have not started move
	queue     []int32
	partners  []int32
	loads     []Load
	memory    [2][]int64 // of state
}

// giant is a copy of a task that is heavier than the level of the others.
type giant struct {
	weight int64
	task   int32
}

// measure finds whether weights differ, and the loads by weight.
func (g *weighing) measure(s *state) {
	heaviest, wanted, least, copies := Weight{}, Weight{}, Weight{math.MaxUint32}, int64(1)
	for t, w := range s.Weight {
		n := s.Want[t]
		heaviest.code = max(heaviest.code, w.code)
		copies += int64(min(n, int32(len(s.workers))))
		if n > 0 {
			wanted.code, least.code = max(wanted.code, w.code), min(least.code, w.code)
		}
	}
	if least.code >= wanted.code { // all weights are alike (P21)
		return
	}
	g.memory = [2][]int64{sized(g.memory[0], len(s.workers)), sized(g.memory[1], len(s.workers))}
	s.weights, s.weight, s.level = s.Weight, g.memory[0], g.memory[1]
	copies = max(copies, int64(len(s.flags)))
	// As many bits as leave room for the sum of all, so that levels are hardly rounded.
	s.bits = min(16, 58-bits.Len64(uint64(heaviest.Int64()))-bits.Len64(uint64(copies)))
	g.heaviest = s.inUnits(wanted)
	for w, list := range s.Running {
		at := &s.workers[w]
		if int(at.load) == len(list) && s.bits >= 0 {
			s.weight[w] = sumWeights(list, s.Weight) << s.bits
			continue
		}
		for k, t := range list {
			if s.flags[at.offset+int32(k)]&gone == 0 {
				s.weight[w] += s.weightOf(t)
			}
		}
	}
}

// weightOf returns the weight of a copy in units.
func (s *state) weightOf(t int32) int64 { return s.inUnits(s.weights[t]) }

func (s *state) inUnits(w Weight) int64 {
	if s.bits < 0 {
		return max(1, w.Int64()>>-s.bits)
	}
	return w.Int64() << s.bits
}

// sumWeights is not inlined, like meet.
//
//go:noinline
func sumWeights(list []int32, weight []Weight) (sum int64) {
	for _, t := range list {
		sum += weight[t].Int64()
	}
	return sum
}

// findLevels finds the levels. What cannot move is fixed (P17): giants, what is pinned beyond its
// worker's level, and workers below theirs that can gain nothing, or not enough.
func (g *weighing) findLevels(s *state) {
	l := &g.levels
	g.sumUp(s)
	g.giant, g.fixed = roomy(g.giant, len(s.workers)), g.fixed.emptied(len(s.workers))
	for w := range s.workers {
		g.giant[w] = None
	}
	l.solve(s, g.sums, math.MaxInt)
	g.setAside(s)
	for g.fix(s) {
		l.solve(s, g.sums, math.MaxInt)
	}
	for w := range s.workers {
		at := &s.workers[w]
		switch t := g.giant[w]; {
		case t != None:
			s.level[w] = s.weightOf(t)
		case at.state == Quarantined && at.load == 0:
			s.level[w] = 0
		case at.takesPart() && !g.fixed.has(int32(w)):
			s.level[w] = l.of(at.hub, int64(at.share))
		}
	}
}

// sumUp sums the weights that the workers run by class, and the shares by hub.
func (g *weighing) sumUp(s *state) {
	l := &g.levels
	g.sums, l.share, l.base = sized(g.sums, max(1, len(s.May))), sized(l.share, len(s.hubs)), sized(l.base, len(s.hubs))
	for w := range s.workers {
		at := &s.workers[w]
		if at.state == Open || at.state == Quarantined && at.load > 0 {
			l.share[at.hub] += int64(at.share)
		}
		switch {
		case !at.takesPart():
		case s.labels:
			for t := range s.copiesOn(int32(w)) {
				g.addTo(s, t, at.hub, 1)
			}
		default:
			g.sums[0] += s.weight[w]
		}
	}
}

// addTo adds n copies of t on a hub to the sums. One that must not be there stays there.
func (g *weighing) addTo(s *state, t, hub int32, n int64) {
	at := &g.sums[s.class(t)]
	if !s.admitsClass(t, hub) {
		at = &g.levels.base[hub]
	}
	*at = max(0, *at+n*s.weightOf(t))
}

// fix takes workers out whose load cannot come to their level. It reports whether there were some.
func (g *weighing) fix(s *state) (some bool) {
	l, queue := &g.levels, g.queue[:0]
	for w := range s.workers {
		at, w := &s.workers[w], int32(w)
		if !at.takesPart() || g.giant[w] != None || g.fixed.has(w) || at.state == Quarantined && at.load == 0 {
			continue
		}
		level, stays := l.of(at.hub, int64(at.share)), int64(0)
		if at.state == Open && at.room < unlimited && compareProducts(int64(at.room), g.heaviest, level, 1) < 0 {
			most := int64(at.room) * g.heaviest
			for c, hubs := range l.hubs {
				if i, found := slices.BinarySearch(hubs, at.hub); found {
					part := scaled(l.part[c][i], int64(at.share), l.share[at.hub]) >> l.unit
					g.sums[c] = max(0, g.sums[c]-scaled(part, most, level))
				}
			}
			s.level[w], queue = most, append(queue, w)
			continue
		}
		isLow := s.weight[w] < level && at.state != Open
		if !isLow && s.Pinned == nil {
			continue
		}
		stay := func(visit func(t int32) bool) {
			for t, c := range s.copiesOn(w) {
				if (isLow || c >= 0 && s.flags[c]&(pinned|leaving) == pinned) && !visit(t) {
					return
				}
			}
		}
		for t := range stay {
			stays += s.weightOf(t)
		}
		if !isLow && stays <= level {
			continue
		}
		for t := range stay {
			g.addTo(s, t, at.hub, -1)
		}
		s.level[w], queue = stays, append(queue, w)
	}
	for _, w := range queue {
		at := &s.workers[w]
		l.share[at.hub] -= int64(at.share)
		g.fixed.add(w)
	}
	g.queue = queue
	return len(queue) > 0
}

// lowest returns the lowest level by share 1, in units. Hubs that run nothing have none.
func (l *levels) lowest() (least int64) {
	least = math.MaxInt64
	for h, share := range l.share {
		if share > 0 && l.load[h] > 0 {
			least = min(least, l.load[h]/share)
		}
	}
	return least
}

// setAside gives the tasks that are heavier than any level that they could have a part in a worker each,
// the heaviest first. That lowers the levels of the others, so there may be more.
func (g *weighing) setAside(s *state) {
	l, above := &g.levels, int64(math.MaxInt64)
	g.giants, g.locations = g.giants[:0], g.locations[:0]
	for i, some := 0, true; some; {
		if lowest := l.lowest() >> l.unit; g.heaviest > lowest && lowest < above {
			g.listGiants(s, lowest/2, above)
			above = lowest / 2
		}
		for some = false; i < len(g.giants); i++ {
			x := g.giants[i]
			c := s.class(x.task)
			if !g.exceeds(s, x, c) {
				break
			}
			w := g.ownerOf(s, x)
			if w == None {
				break
			}
			g.giant[w] = x.task
			g.sums[c] = max(0, g.sums[c]-x.weight)
			l.share[s.workers[w].hub] -= int64(s.workers[w].share)
			some = true
		}
		if some {
			l.solve(s, g.sums, math.MaxInt)
		}
	}
}

// exceeds reports whether a giant is heavier than the level of each worker that may run it. By weight
// the workers of a hub have equal shares.
func (g *weighing) exceeds(s *state, x giant, class int32) (found bool) {
	l := &g.levels
	for h, share := range l.share {
		if share > 0 && (!s.labels || s.kindAdmits(s.hubs[h].kind, class)) {
			if x.weight <= l.of(int32(h), int64(s.hubs[h].share)) {
				return false
			}
			found = true
		}
	}
	return found
}

// listGiants adds the copies that are heavier than some weight to the list, the heaviest first, and who runs
// them. Those above most are in it.
func (g *weighing) listGiants(s *state, above, most int64) {
	listed := len(g.giants)
	g.heavy = g.heavy.emptied(len(s.Want))
	for t := range s.Want {
		if n := s.weightOf(int32(t)); n > above && n <= most {
			g.heavy.add(int32(t))
		}
	}
	add := func(t, w int32) {
		g.locations = append(g.locations, Pair{t, w})
		g.giants = append(g.giants, giant{s.weightOf(t), t})
	}
	for w := range s.workers {
		at := &s.workers[w]
		if !at.takesPart() {
			continue
		}
		for k, t := range s.Running[w] { // every steady plan comes here
			if g.heavy.has(t) && s.flags[at.offset+int32(k)] == 0 {
				add(t, int32(w))
			}
		}
		for i := at.fresh; i > 0; i = s.fresh[i-1].nextOn {
			if t := s.fresh[i-1].task; g.heavy.has(t) {
				add(t, int32(w))
			}
		}
	}
	slices.SortStableFunc(g.locations, func(a, b Pair) int { return cmp.Compare(a.Task, b.Task) })
	slices.SortStableFunc(g.giants[listed:], func(a, b giant) int { return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.task, b.task)) })
}

// locationsOf returns the workers that run a giant.
func (g *weighing) locationsOf(t int32) []Pair {
	find := func(t int32) int {
		i, _ := slices.BinarySearchFunc(g.locations, t, func(p Pair, t int32) int { return cmp.Compare(p.Task, t) })
		return i
	}
	return g.locations[find(t):find(t+1)]
}

// ownerOf returns the worker for a giant: of those with the highest share the one that must hand over
// the fewest copies, where the giant counts if it must move there.
func (g *weighing) ownerOf(s *state, x giant) int32 {
	best, cost := None, int32(0)
	better := func(w, others int32) bool {
		at := &s.workers[w]
		return best == None || at.share > s.workers[best].share || at.share == s.workers[best].share && others < cost
	}
	for _, p := range g.locationsOf(x.task) {
		if others := s.workers[p.Worker].remaining() - 1; g.giant[p.Worker] == None && better(p.Worker, others) {
			best, cost = p.Worker, others
		}
	}
	if best != None && cost == 0 && len(s.Share) == 0 {
		return best
	}
	for w := range s.workers {
		at, w := &s.workers[w], int32(w)
		if g.giant[w] == None && at.state == Open && better(w, at.remaining()+1) && s.can(x.task, w, None) {
			best, cost = w, at.remaining()+1
		}
	}
	return best
}
