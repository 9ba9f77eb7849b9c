package rebalance

// Rules: the workers of a part by weight, if weights differ.

import (
	"math"
	"math/big"
	"math/bits"
	"slices"
)

// weightRules is the part of the rules that is used only if weights differ.
type weightRules struct {
	weighing weighing
	weighted bool // weights differ
	shift    int  // weights lose so many bits, so that the sum of all does not overflow
	position []int32
	copies   []weighedCopy
	left     []int32 // items whose changes are not made yet
	loads    []Load
	stops    set // expected tasks of which a copy stops
	deferred int // moves for evenness that MaxMoves left out
}

// weighedCopy is where an item of the weighing comes from.
type weighedCopy struct {
	worker, position int32 // of a copy that stays
	pool             int32 // of others: the place in the pool, otherwise None
}

// bindWeights reports whether weights differ.
func (r *rules) bindWeights() bool {
	r.weights.weighted = r.Weight != nil && weightsDiffer(r.Weight, r.Want)
	r.weights.deferred, r.weights.shift = 0, 0
	return r.weights.weighted
}

// limitWeights sets shift. Two passes over the tasks.
func (r *rules) limitWeights() {
	copies := len(r.Want)
	for _, want := range r.Want {
		copies += int(want)
	}
	r.weights.shift = max(0, weightBits(slices.MaxFunc(r.Weight, Weight.compare), copies)-61)
}

// weightBits returns a bound on the bits of the weight of some copies.
func weightBits(most Weight, copies int) int {
	return bits.Len64(uint64(most.Int64())) + bits.Len64(uint64(copies))
}

func (r *rules) weightOf(t int32) int64 {
	if r.weights.shift == 0 {
		return r.Weight[t].Int64()
	}
	return max(1, r.Weight[t].Int64()>>r.weights.shift)
}

// weigh places the copies of one part by weight.
func (r *rules) weigh(part int32) {
	g := &r.weights.weighing
	r.askWeighing(part)
	g.budget = NoLimit
	for again := true; again; {
		g.solve()
		again = g.limit != nil && r.evictMore()
	}
	budget, _ := r.allowance(nil)
	if r.Still {
		budget = 0
	}
	if budget != math.MaxInt {
		made := 0 // by other parts
		for i := range r.changes {
			if c := &r.changes[i]; c.To != None && c.From != None && c.Reason == Rebalance {
				made++
			}
		}
		budget = max(0, budget-len(r.leaving)-made)
		if even, lacking := g.spent, g.unplaced(); even > budget {
			g.budget = budget
			if g.solve(); r.Still && g.unplaced() > lacking { // other copies must make room
				g.budget = NoLimit
				g.solve()
			}
			r.weights.deferred += max(0, even-g.spent)
		}
	}
	r.takeWeighing()
}

// unplaced counts the items without a worker, and those that stay although they should leave.
func (g *weighing) unplaced() (n int) {
	for i := range g.items {
		if it := &g.items[i]; it.to < 0 || it.leaves && it.to == it.from {
			n++
		}
	}
	return n
}

// evictMore lets copies leave workers that exceed their limits because others that should
// leave have no place. It reports whether there are any.
func (r *rules) evictMore() bool {
	s := &r.weights
	g := &s.weighing
	found := false
	for i := range g.items {
		it, c := &g.items[i], &s.copies[i]
		if it.from < 0 || it.leaves || it.to != it.from || g.limit[it.from] < 0 || g.count[it.from] <= g.limit[it.from] {
			continue
		}
		g.count[it.from]--
		it.leaves, it.tier, c.pool, found = true, tierEvict, int32(len(r.pool)), true
		r.leave(it.task, c.worker, c.position, EvictLimit)
		r.pool = append(r.pool, item{task: it.task, class: it.class, tier: tierEvict, leaving: int32(len(r.leaving)) - 1})
	}
	return found
}

// askWeighing sets the input of the weighing.
func (r *rules) askWeighing(part int32) {
	s := &r.weights
	g := &s.weighing
	g.workers, g.band, g.may = len(r.workers), r.Band, r.may
	g.share, g.kind, g.limit, g.gain = g.share[:0], g.kind[:0], g.limit[:0], g.gain[:0]
	g.base, g.fixed, g.items, g.rest, g.joined = g.base[:0], g.fixed[:0], g.items[:0], r.Rests, g.joined[:0]
	s.copies = s.copies[:0]
	s.position = sized(s.position, len(r.States))
	r.pool = r.pool[:0]
	for _, x := range r.places {
		if x.part == part {
			for range x.copies {
				r.pool = append(r.pool, item{task: x.task, class: r.classIn(x.task), tier: x.tier, leaving: x.leaving})
			}
		}
	}
	for w := range s.position {
		s.position[w] = elsewhere
	}
	limited, quarantined := false, false
	for i, w := range r.workers {
		s.position[w] = int32(i)
		base, fixed := int64(0), int32(0)
		over := r.load[w] - min(r.load[w], r.most(w))
		for k, t := range r.Running[w] {
			at := r.offset[w] + int32(k)
			switch r.flags[at] {
			case pinned:
				base += r.weightOf(t)
				fixed++
			case kept:
				if over > 0 {
					over--
					r.leave(t, w, at, EvictLimit)
					r.pool = append(r.pool, item{task: t, class: r.classIn(t), tier: tierEvict, leaving: int32(len(r.leaving)) - 1})
					continue
				}
				g.items = append(g.items, weighed{weight: r.weightOf(t), task: t, class: r.classIn(t), from: int32(i), zone: None})
				s.copies = append(s.copies, weighedCopy{worker: w, position: at, pool: None})
			}
		}
		limit, gain := int32(NoLimit), int32(NoLimit)
		if n := r.most(w); n <= int32(len(r.Want)) {
			limit, limited = n, true
		}
		if r.States[w] == Quarantined {
			gain, quarantined = r.gain[w], true
		}
		g.base, g.fixed = append(g.base, base), append(g.fixed, fixed)
		g.limit, g.gain = append(g.limit, limit), append(g.gain, gain)
		g.share, g.kind = append(g.share, r.shareOf(w)), append(g.kind, r.kindOf(w))
		if g.rest != nil {
			g.joined = append(g.joined, r.Joined[w])
		}
	}
	stays := func(t, w int32) {
		if i := s.position[w]; i >= 0 {
			g.base[i] += r.weightOf(t)
			g.fixed[i]++
		}
	}
	for i := range r.leaving { // no worker may run these
		if l := &r.leaving[i]; l.stuck {
			stays(l.task, l.worker)
		}
	}
	for i := range r.rest { // no zone has room for these
		if w := r.originOf(&r.rest[i]); w != None && !r.leaving[r.rest[i].leaving].stuck {
			stays(r.rest[i].task, w)
		}
	}
	if !limited {
		g.limit = nil
	}
	if !quarantined {
		g.gain = nil
	}
	for at := range r.pool {
		x := &r.pool[at]
		it := weighed{weight: r.weightOf(x.task), task: x.task, class: x.class, from: None, zone: None, tier: int8(x.tier)}
		if w := r.originOf(x); w != None {
			it.from, it.leaves = s.position[w], true
			if it.from < 0 {
				it.zone = r.zoneOf(w)
			}
		}
		g.items = append(g.items, it)
		s.copies = append(s.copies, weighedCopy{pool: int32(at)})
	}
	g.tasks, g.zones = 0, 0
	if r.wanted > len(r.Want) || slices.Max(r.Want) > 1 || r.zoned {
		g.tasks = len(r.Want)
	}
	if r.zoned {
		g.zones, g.zone, g.running = r.zones, g.zone[:0], append(g.running[:0], r.inZone...)
		for _, w := range r.workers {
			g.zone = append(g.zone, r.zoneOf(w))
		}
		g.most = r.quotas.capOf
	}
	r.barSome()
}

// barSome bars workers from tasks that are forbidden to them, and from those of which they
// have a pinned copy.
func (r *rules) barSome() {
	s := &r.weights
	s.weighing.barred = nil
	if len(r.Forbidden) == 0 && r.Pinned == nil {
		return
	}
	s.weighing.barred = func(task, worker int32) bool {
		w := r.workers[worker]
		if slices.Contains(r.forbid.row(w), task) {
			return true
		}
		if r.Pinned == nil || r.Pinned[w] == 0 {
			return false
		}
		k := slices.Index(r.Running[w], task)
		return k >= 0 && r.flags[r.offset[w]+int32(k)] == pinned
	}
}

// exchangeStop keeps a surplus copy on w that was to stop, and stops another one in its
// stead. It reports whether there is one.
func (r *rules) exchangeStop(x *item, w int32) bool {
	if !r.weights.stops.has(x.task) || !r.keepAgain(x.task, w) {
		return false
	}
	if r.zoned {
		r.inZone[int(x.task)*r.zones+int(r.zoneOf(w))]++
	}
	if x.leaving != None {
		l := &r.leaving[x.leaving]
		l.placed = true
		r.load[l.worker]++
		r.stop(l.task, l.worker, l.position)
	}
	return true
}

// takeWeighing makes the changes of the weighing. All copies leave before any is placed, so
// that the gate sees the room that they make.
func (r *rules) takeWeighing() {
	s := &r.weights
	g := &s.weighing
	s.stops = s.stops.emptied(len(r.Want))
	for _, x := range r.drops {
		s.stops.add(x.task)
	}
	for i := range g.items {
		it, c := &g.items[i], &s.copies[i]
		if c.pool == None && it.to != it.from {
			c.pool = int32(len(r.pool))
			r.leave(it.task, c.worker, c.position, Rebalance)
			r.pool = append(r.pool, item{task: it.task, class: it.class, tier: tierFirst, leaving: int32(len(r.leaving)) - 1})
		}
	}
	left := s.left[:0]
	for i := range g.items {
		if s.copies[i].pool != None {
			left = append(left, int32(i))
		}
	}
	s.left = left
	for n := -1; n != len(left); { // copies that change zones make room for each other
		n = len(left)
		left = slices.DeleteFunc(left, func(i int32) bool {
			it, x := &g.items[i], &r.pool[s.copies[i].pool]
			if it.to < 0 || it.to == it.from || !r.canGain(it.task, r.workers[it.to], r.originOf(x)) {
				return false
			}
			if w := r.workers[it.to]; !r.exchangeStop(x, w) {
				r.put(x, w)
			}
			return true
		})
	}
	for _, i := range left {
		r.rest = append(r.rest, r.pool[s.copies[i].pool])
	}
	s.loads = sized(s.loads, len(r.States))
	for i, w := range r.workers {
		s.loads[w].Level = g.levels.goal(int32(i)) << s.shift
	}
}

// setLoads sets the loads of the plan. One pass over the lists.
func (r *rules) setLoads() {
	loads := r.weights.loads
	for w, list := range r.Running {
		for k, t := range list {
			if r.flags[r.offset[w]+int32(k)] != repeated {
				loads[w].Weight += r.Weight[t].Int64()
			}
		}
	}
	for _, c := range r.plan.Changes {
		if c.From != None {
			loads[c.From].Weight -= r.Weight[c.Task].Int64()
		}
		if c.To != None {
			loads[c.To].Weight += r.Weight[c.Task].Int64()
		}
	}
	r.plan.Loads = loads
}

// addWeightSquares is addSquares by weight. Copies that move and have no place yet count where
// they are.
func (r *rules) addWeightSquares(j *judgement, planned bool) {
	load := make([]int64, len(r.States))
	for w, list := range r.Running {
		for k, t := range list {
			if flag := r.flags[r.offset[w]+int32(k)]; flag.runs() || flag == leaves {
				load[w] += r.weightOf(t)
			}
		}
	}
	for i := range r.changes {
		c := &r.changes[i]
		switch {
		case c.To == None:
		case planned:
			load[c.To] += r.weightOf(c.Task)
		case c.From != None:
			load[c.From] += r.weightOf(c.Task)
		}
	}
	for w, n := range load {
		if s := r.States[w]; s == Open || s == Quarantined {
			square := big.NewInt(n)
			j.addSquare(square.Mul(square, square), r.shareOf(int32(w)))
		}
	}
}
