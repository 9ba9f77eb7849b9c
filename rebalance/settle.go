package rebalance

import (
	"cmp"
	"slices"
)

// weighed is a copy that its worker can give.
type weighed struct {
	weight int64
	copy   ref
	task   int32
}

// partners is with how many of many workers of a hub one exchanges copies.
const partners = 16

// evenByWeight brings the workers that are out of band to half of it, as far as single moves and swaps
// can (T18).
func (p *Planner) evenByWeight() {
	s, g := &p.state, &p.weighing
	g.listed, g.lists = g.listed.emptied(len(s.workers)), slices.Grow(g.lists[:0], len(s.workers))[:len(s.workers)]
	for range 10 { // then a worker that suits a giant may be another one, and one that was full may have room
		if p.evictOver(); s.onlyOver {
			p.evenByPaths(nil)
			return
		}
		g.findLevels(s)
		if s.added > 0 { // what has not started yet moves for nothing, so it comes first
			g.freshOnly = true
			p.settle()
			g.freshOnly = false
		}
		moved := s.added
		if p.settle(); moved == s.added {
			return
		}
	}
}

// settle brings workers that are out of band nearer to it.
func (p *Planner) settle() {
	s, g := &p.state, &p.weighing
	g.listed = g.listed.emptied(len(s.workers))
	if !g.findBands(s) {
		return
	}
	s.rankGivers(cost{-endless.num, 1})
	if !g.freshOnly {
		p.moveGiants()
	}
	for p.settleOnce() {
	}
	s.gives = false
}

// findBands finds the bands, and which workers are out of them.
func (g *weighing) findBands(s *state) (out bool) {
	g.high, g.low = sized(g.high, len(s.workers)), sized(g.low, len(s.workers))
	g.awake = g.awake.emptied(len(s.workers))
	for w := range s.workers {
		at, level := &s.workers[w], s.level[w]
		if !at.takesPart() {
			continue
		}
		band := scaled(level, int64(s.Band), 1_000_000)
		if g.giant[w] != None {
			band = 0 // it has its worker for itself
		}
		g.high[w], g.low[w] = level+band/2, max(0, level-band/2)
		if g.giant[w] != None {
			g.low[w] = 0
		}
		if g.freshOnly {
			band = 0
		}
		if g.isOut(s, int32(w), band/2) {
			g.awake.add(int32(w))
			out = true
		}
	}
	return out
}

// out returns by how much a worker with a load, in a number of copies, is out of half of its band. One
// that can gain nothing is not below it.
func (g *weighing) out(s *state, w int32, load int64, copies int32) int64 {
	if load < g.low[w] && copies < s.workers[w].room {
		return g.low[w] - load
	}
	return max(0, load-g.high[w])
}

func (g *weighing) outNow(s *state, w int32) int64 {
	return g.out(s, w, s.weight[w], s.workers[w].load)
}

// isOut reports whether w is out of half of its band by more than some weight, and not because of its
// only task.
func (g *weighing) isOut(s *state, w int32, by int64) bool {
	at := &s.workers[w]
	return at.takesPart() && g.outNow(s, w) > by && (s.weight[w] < g.low[w] || at.remaining() != 1)
}

// settleOnce lets each worker that has been out of band give and take, the one farthest out first. It
// reports whether any did.
func (p *Planner) settleOnce() (moved bool) {
	s, g := &p.state, &p.weighing
	g.queue = g.queue[:0]
	for w := range s.workers {
		if w := int32(w); g.isOut(s, w, 0) && (g.awake.has(w) || g.isOut(s, w, g.high[w]-s.level[w])) {
			g.awake.add(w)
			g.queue = append(g.queue, w)
		}
	}
	slices.SortStableFunc(g.queue, func(a, b int32) int { return cmp.Compare(g.outNow(s, b), g.outNow(s, a)) })
	for _, w := range g.queue {
		for s.weight[w] > g.high[w] && p.give(w) || s.weight[w] < g.low[w] && p.gain(w) {
			moved = true
		}
	}
	return moved
}

// evictOver moves copies off workers with more than they may have, the lightest first.
func (p *Planner) evictOver() {
	s := &p.state
	for w := range s.workers {
		at, w := &s.workers[w], int32(w)
		if !at.takesPart() || !at.isOver() {
			continue
		}
		list := slices.Clone(p.listOf(w))
		for _, x := range slices.Backward(list) {
			if !at.isOver() {
				break
			}
			if !p.mayMove(1) {
				p.deferred = true
				return
			}
			if v := s.leastFor(&item{task: x.task, from: w, copy: x.copy}); v != None {
				p.moveCopy(w, v, x.copy)
			}
		}
	}
}

// moveGiants moves the giants to their workers.
func (p *Planner) moveGiants() {
	s, g := &p.state, &p.weighing
	for w := range s.workers {
		w := int32(w)
		t := g.giant[w]
		if t == None || !s.workers[w].hasRoom() {
			continue
		}
		locations := g.locationsOf(t)
		if slices.Contains(locations, Pair{t, w}) {
			continue
		}
		for _, h := range locations {
			c := s.copyOf(t, h.Worker)
			if c == noRef || g.giant[h.Worker] == t || !s.isThere(h.Worker, c) || !p.canGive(weighed{0, c, t}, h.Worker, w) {
				continue
			}
			if !p.mayMove(1) {
				p.deferred = true
				return
			}
			p.moveCopy(h.Worker, w, c)
			break
		}
	}
}

// moveCopy moves a copy.
func (p *Planner) moveCopy(u, v int32, c ref) {
	g := &p.weighing
	p.state.put(p.state.take(u, c), v)
	g.listed.remove(v)
	if g.listed.has(u) {
		g.lists[u] = slices.DeleteFunc(g.lists[u], func(x weighed) bool { return x.copy == c })
	}
}

// listOf returns the copies that w can give, the heaviest first.
func (p *Planner) listOf(w int32) []weighed {
	s, g := &p.state, &p.weighing
	if g.listed.has(w) {
		return g.lists[w]
	}
	l := g.lists[w][:0]
	for t, c := range s.copiesOn(w) {
		if c < 0 || !g.freshOnly && s.flags[c] == 0 {
			l = append(l, weighed{s.weightOf(t), c, t})
		}
	}
	slices.SortFunc(l, func(a, b weighed) int { return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.copy, b.copy)) })
	g.lists[w] = l
	g.listed.add(w)
	return l
}

// give moves a copy of u, which is above its band, to one of the workers with the least, or swaps one.
func (p *Planner) give(u int32) bool {
	return p.giveToSome(u, partners) || p.areFew() && p.giveToSome(u, 2*partners)
}

// areFew reports whether the workers are so few that one exchanges copies with all.
func (p *Planner) areFew() bool { return len(p.state.workers) <= 2*partners }

// giveToSome is give to so many workers of each hub.
func (p *Planner) giveToSome(u int32, most int) bool {
	s, g := &p.state, &p.weighing
	g.partners = g.partners[:0]
	for h := range int32(len(s.hubs)) {
		if !s.mayGive(u, h) {
			continue
		}
		items := s.takers[h].items
		for _, v := range items[:min(len(items), most)] {
			if v != u {
				g.partners = append(g.partners, v)
			}
		}
	}
	if len(g.partners) > 8*partners {
		slices.SortFunc(g.partners, func(a, b int32) int { return cmp.Or(cmp.Compare(s.above(a), s.above(b)), int(a-b)) })
		g.partners = g.partners[:8*partners]
	}
	return p.moveOrSwap(u, g.partners, true)
}

// above returns by how much w is above its level, or a negative number.
func (s *state) above(w int32) int64 { return s.weight[w] - s.level[w] }

// gain moves a copy to v, which is below its band, from one of the workers with the most, or swaps one.
func (p *Planner) gain(v int32) bool {
	s, g := &p.state, &p.weighing
	hub := s.workers[v].hub
	suits := func(u int32) bool { return u != v && s.workers[u].remaining() >= 2 && s.mayGive(u, hub) }
	g.partners = g.partners[:0]
	for _, u := range s.givers.items[:min(len(s.givers.items), 4*partners)] {
		if len(g.partners) < partners && suits(u) {
			g.partners = append(g.partners, u)
		}
	}
	most := partners
	switch {
	case p.moveOrSwap(v, g.partners, false):
		return true
	case p.areFew():
		most *= 2
	case !s.labels && !s.zoned:
		return false
	}
	g.partners = g.partners[:0] // those with the most may all be of other pools or zones
	for u := range s.workers {
		u := int32(u)
		if !s.workers[u].takesPart() || !suits(u) || s.zoned && s.zone(u) != s.zone(v) {
			continue
		}
		at, _ := slices.BinarySearchFunc(g.partners, s.above(u), func(w int32, n int64) int { return cmp.Compare(n, s.above(w)) })
		if at < most {
			g.partners = slices.Insert(g.partners, at, u)
			g.partners = g.partners[:min(len(g.partners), most)]
		}
	}
	return p.moveOrSwap(v, g.partners, false)
}

// choice is a move of x from u to v, and of y back if it is one.
type choice struct {
	u, v int32
	x, y weighed
	isIn bool   // both are in band then
	drop square // by how much the sum of squares of what is out of band falls
}

// moveOrSwap makes the best move, or the best swap, between w and one of the others.
func (p *Planner) moveOrSwap(w int32, others []int32, gives bool) bool {
	s, g := &p.state, &p.weighing
	best, heaviest := choice{u: None}, int64(0)
	pair := func(o int32) (u, v int32) {
		if gives {
			return w, o
		}
		return o, w
	}
	for _, o := range others {
		u, v := pair(o)
		if !s.workers[v].hasRoom() {
			continue
		}
		list, most := p.listOf(u), min(s.weight[u]-g.low[u], g.high[v]-s.weight[v])
		at, _ := slices.BinarySearchFunc(list, most, func(x weighed, n int64) int { return cmp.Compare(n, x.weight) })
		p.choose(&best, choice{u: u, v: v, y: weighed{copy: noRef}}, list, at)
		if i := slices.IndexFunc(list, func(x weighed) bool { return x.task != g.giant[u] }); i >= 0 {
			heaviest = max(heaviest, list[i].weight)
		}
	}
	if best.u == None || !best.isIn && g.outNow(s, w) <= heaviest { // else no swap brings both into band
		for _, o := range others {
			u, v := pair(o)
			p.considerSwaps(&best, u, v)
		}
	}
	switch {
	case best.u == None:
		return false
	case !p.mayMove(1) || best.y.copy != noRef && !p.mayMove(2):
		p.deferred = true
		return false
	case best.y.copy == noRef:
		p.moveCopy(best.u, best.v, best.x.copy)
		return true
	}
	g.listed.remove(best.u)
	g.listed.remove(best.v)
	p.search.hops = append(p.search.hops[:0], hop{from: best.u, to: best.v, copy: best.x.copy}, hop{from: best.v, to: best.u, copy: best.y.copy})
	return s.apply(p.search.hops)
}

// canGive reports whether u can give a copy to v. A giant stays on its worker, and a task that rests
// moves only to workers that have joined since.
func (p *Planner) canGive(x weighed, u, v int32) bool {
	s := &p.state
	if s.Rests != nil && s.Joined[v] < s.Rests[x.task] && s.goneFrom(x.task, v) == noRef {
		return false
	}
	return p.weighing.giant[u] != x.task && s.can(x.task, v, u)
}

// considerSwaps considers, for each copy of v, those of u that bring both about into band.
func (p *Planner) considerSwaps(best *choice, u, v int32) {
	s, g := &p.state, &p.weighing
	most := min(s.weight[u]-g.low[u], g.high[v]-s.weight[v])
	if most <= 0 || s.workers[u].isOver() || s.workers[v].isOver() {
		return
	}
	from, k := p.listOf(u), 0
	for _, y := range p.listOf(v) {
		for k < len(from) && from[k].weight-y.weight > most {
			k++
		}
		p.choose(best, choice{u: u, v: v, y: y}, from, k)
	}
}

// choose completes a choice by a copy of u. The heaviest that keeps both in band is at some place of the
// list. Those about it are better than others.
func (p *Planner) choose(best *choice, c choice, list []weighed, at int) {
	isSwap := c.y.copy != noRef
	consider := func(i int) (may bool) {
		c.x = list[i]
		if may = p.canGive(c.x, c.u, c.v) && (!isSwap || p.canGive(c.y, c.v, c.u)); may && p.betters(&c) && best.isWorse(&c) {
			*best = c
		}
		return may
	}
	above, below, left := at, 4, 2 // below counts those that rest
	switch {
	case p.areFew():
		below = 64
	case isSwap:
		above, below = 1, 1
	}
	for i := at; i < len(list) && below > 0 && (!isSwap || list[i].weight > c.y.weight); i++ {
		if consider(i) {
			break // the next ones are no better
		}
		if isSwap || p.state.can(list[i].task, c.v, c.u) {
			below--
		}
	}
	for i := at - 1; i >= max(0, at-above) && left > 0; i-- {
		if consider(i) {
			left--
		}
	}
}

// isWorse reports whether another choice is better: it brings both into band, is one move and not two, or
// lowers the sum of squares by more.
func (best *choice) isWorse(c *choice) bool {
	isSwap, isBestSwap := c.y.copy != noRef, best.y.copy != noRef
	switch {
	case best.u == None:
		return true
	case c.isIn != best.isIn:
		return c.isIn
	case isSwap != isBestSwap:
		return isBestSwap
	}
	return best.drop.less(c.drop)
}

// betters reports whether a choice lowers the sum of squares of what is out of band, by enough for the
// weight that moves (P19). It sets by how much, and whether it brings both into band.
func (p *Planner) betters(c *choice) bool {
	s, g := &p.state, &p.weighing
	back, copies := int64(0), int32(1)
	if c.y.copy != noRef {
		back, copies = c.y.weight, 0
	}
	net := c.x.weight - back
	before1, before2 := g.outNow(s, c.u), g.outNow(s, c.v)
	after1 := g.out(s, c.u, s.weight[c.u]-net, s.workers[c.u].load-copies)
	after2 := g.out(s, c.v, s.weight[c.v]+net, s.workers[c.v].load+copies)
	was, is := squares(before1, before2), squares(after1, after2)
	c.isIn, c.drop = after1+after2 == 0, was.minus(is)
	if !is.less(was) {
		return false
	}
	return c.isIn || g.freshOnly || before1+before2-after1-after2 >= (c.x.weight+back+9)/10
}

// inWeights returns a number of units as a weight.
func (s *state) inWeights(units int64) int64 {
	if s.bits < 0 {
		return units << -s.bits
	}
	return (units + 1<<s.bits>>8) >> s.bits
}

// report lists the loads.
func (p *Planner) report() {
	s, g := &p.state, &p.weighing
	if p.still || p.deferred { // no step has found the levels
		g.findLevels(s)
	}
	g.loads = sized(g.loads, len(s.workers))
	for w := range g.loads {
		g.loads[w] = Load{Weight: s.inWeights(s.weight[w]), Level: s.inWeights(s.level[w])}
	}
	p.plan.Loads = g.loads
}
