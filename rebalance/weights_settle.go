package rebalance

// Evening by weight: moves and swaps that bring workers into band (P19).

import (
	"cmp"
	"slices"
)

const (
	receivers = 16 // the least used workers that a swap considers, by class
	donors    = 24 // the most used workers that a worker below its band takes from
	// An evening of items that start anyway ends in this band, in millionths, or after so
	// many passes.
	tightBand, tightPasses = 1000, 16
	// Swaps of up to two items a side are considered if no side has more.
	pairsOf = 24
	// After moves off workers that gain nothing, levels are found again so often.
	levelRounds = 10
)

// even evens out the loose items. They start anyway, so that another place for them costs
// nothing, and P18 and P19 do not hold them back.
func (g *weighing) even() {
	var over []int32
	mine := g.memory.mine.emptied(g.workers)
	g.memory.mine = mine
	for _, i := range g.pending {
		if w := g.items[i].to; w >= 0 && !g.stuck.has(i) {
			mine.add(w)
		}
	}
	if mine.isEmpty() {
		return
	}
	g.tight = true
	g.setBands(min(int64(g.band), tightBand))
	for range tightPasses {
		over = over[:0]
		for w := range int32(g.workers) {
			if g.load[w] > g.high[w] && mine.has(w) {
				over = append(over, w)
			}
		}
		slices.SortFunc(over, g.byOut)
		changed := false
		for _, w := range over {
			for g.load[w] > g.high[w] && g.swapOut(w) {
				changed = true
			}
		}
		for w := range int32(g.workers) {
			for g.load[w] < g.low[w] && g.hasRoom(w, true) && g.swapIn(w) {
				changed = true
				mine.add(w)
			}
		}
		if !changed {
			break
		}
	}
	g.tight = false
}

// byOut orders workers: the one farthest out of its band first.
func (g *weighing) byOut(v, w int32) int {
	return cmp.Or(cmp.Compare(g.outNow(w), g.outNow(v)), cmp.Compare(v, w))
}

// settle makes moves and swaps until a pass over all workers finds none. Workers out of band
// come to half of it, and a move judges both of its workers by half of the band (P18). A worker
// that gains nothing counts in the levels with what it has, so that these are found again
// after moves.
func (g *weighing) settle() {
	g.memory.aimed = g.memory.aimed.emptied(g.workers)
	for range levelRounds {
		g.setBands(int64(g.band) / 2)
		if !g.pass() {
			return
		}
		for g.pass() {
		}
		if g.levels.most == nil {
			return
		}
		for w, n := range g.gain {
			if n == 0 {
				g.levels.most[w] = g.load[w]
			}
		}
		g.levels.solve(g.workers)
		g.ranking.build(g)
	}
}

// isAimed reports whether a worker is out of half of its band, and was out of the whole one.
func (g *weighing) isAimed(w int32) bool {
	if g.outNow(w) == 0 {
		return false
	}
	if high, low := g.levels.band(w, int64(g.band)); g.load[w] > high || g.load[w] < low {
		g.memory.aimed.add(w)
	}
	return g.memory.aimed.has(w)
}

// pass visits the workers that are to change, and reports whether it changed something.
func (g *weighing) pass() bool {
	m := &g.memory
	m.over, m.under = m.over[:0], m.under[:0]
	for w := range int32(g.workers) {
		switch {
		case !g.isAimed(w):
		case g.load[w] > g.high[w]:
			m.over = append(m.over, w)
		default:
			m.under = append(m.under, w)
		}
	}
	changed := false
	slices.SortFunc(m.over, g.byOut)
	for _, w := range m.over {
		for g.load[w] > g.high[w] && g.outNow(w) > 0 && (g.give(w) || g.swapOut(w)) {
			changed = true
		}
	}
	slices.SortFunc(m.under, g.byOut)
	for _, w := range m.under {
		for g.load[w] < g.low[w] && g.outNow(w) > 0 && (g.take(w) || g.swapIn(w)) {
			changed = true
		}
	}
	return changed
}

// give moves the heaviest item that fits to the least used worker of its class.
func (g *weighing) give(w int32) bool {
	m := &g.memory
	m.best = slices.Grow(m.best[:0], max(1, len(g.may)))[:max(1, len(g.may))]
	m.met = m.met.emptied(len(m.best))
	list := g.list(w)
	spare := g.load[w] - g.low[w]
	first, _ := slices.BinarySearchFunc(list, spare, func(i int32, most int64) int { return cmp.Compare(most, g.items[i].weight) })
	for _, i := range list[first:] {
		it := &g.items[i]
		if !m.met.has(it.class) {
			m.met.add(it.class)
			m.best[it.class] = g.leastOther(it.class, w)
		}
		v := m.best[it.class]
		if v == None || g.load[v]+it.weight > g.high[v] || !g.affords(g.cost(i, v)) || !g.mayTake(i, v) || g.rests(i, v) {
			continue
		}
		if _, ok := g.improves(w, v, it.weight, 1, it.weight); ok {
			g.put(i, v)
			return true
		}
	}
	return false
}

// leastOther returns the least used worker other than w for a class, or None.
func (g *weighing) leastOther(class, w int32) int32 {
	g.walk.least(&g.ranking, g.ranking.spansOf(class, false), 0)
	v := g.walk.next()
	if v == w {
		v = g.walk.next()
	}
	return v
}

// take takes the heaviest item that fits from one of the most used workers.
func (g *weighing) take(w int32) bool {
	for _, v := range g.fullest(w, donors) {
		list := g.list(v)
		first, _ := slices.BinarySearchFunc(list, g.high[w]-g.load[w], func(i int32, most int64) int { return cmp.Compare(most, g.items[i].weight) })
		for _, i := range list[first:] {
			weight := g.items[i].weight
			if _, ok := g.improves(v, w, weight, 1, weight); ok && g.affords(g.cost(i, w)) && g.mayTake(i, w) && !g.rests(i, w) {
				g.put(i, w)
				return true
			}
		}
	}
	return false
}

// fullest returns the most used workers of a worker's pool that are more used than it is
// and not full with one item.
func (g *weighing) fullest(w int32, most int) []int32 {
	m := &g.memory
	m.partners = m.partners[:0]
	pool := g.ranking.pools[g.levels.pool[g.levels.kindOf(w)]]
	m.range1[0] = pool
	g.walk.mostUsed(&g.ranking, m.range1[:])
	for len(m.partners) < most {
		v := g.walk.next()
		if v == None || v == w || !g.ranking.after(v, w) {
			break
		}
		if len(g.lists[v]) > 0 && (g.count[v] > 1 || g.load[v] <= g.high[v]) {
			m.partners = append(m.partners, v)
		}
	}
	return m.partners
}

// emptiest returns the least used workers for the classes of a worker's items.
func (g *weighing) emptiest(w int32, most int) []int32 {
	m := &g.memory
	m.partners, m.met = m.partners[:0], m.met.emptied(max(1, len(g.may)))
	for _, i := range g.list(w) {
		class := g.items[i].class
		if m.met.has(class) {
			continue
		}
		m.met.add(class)
		g.walk.least(&g.ranking, g.ranking.spansOf(class, false), 0)
		for range most + 1 {
			v := g.walk.next()
			if v == None || g.ranking.after(v, w) {
				break
			}
			if v != w && (len(g.may) < 2 || !slices.Contains(m.partners, v)) {
				m.partners = append(m.partners, v)
			}
		}
	}
	return m.partners
}

// swapOut makes the best swap of a worker with one of the least used.
func (g *weighing) swapOut(w int32) bool {
	best := swap{}
	for _, v := range g.emptiest(w, receivers) {
		if g.swap(w, v, &best); best.rest == (square{}) && best.found {
			break
		}
	}
	return g.make(best)
}

// swapIn makes the best swap of a worker with one of the most used.
func (g *weighing) swapIn(w int32) bool {
	best := swap{}
	for _, v := range g.fullest(w, receivers) {
		if g.swap(v, w, &best); best.rest == (square{}) && best.found {
			break
		}
	}
	return g.make(best)
}

// choice is up to two items of a worker, each None if there are fewer.
type choice struct {
	weight   int64
	one, two int32
}

func (c choice) count() int32 {
	switch {
	case c.one == None:
		return 0
	case c.two == None:
		return 1
	}
	return 2
}

// swap is an exchange of items between two workers.
type swap struct {
	found    bool
	from, to int32  // the workers
	out, in  choice // what from gives and gets
	rest     square // what is out of band after it
	saved    square // how much less that is than before
	moved    int64
}

// make carries a swap out, and reports whether there was one.
func (g *weighing) make(s swap) bool {
	if !s.found {
		return false
	}
	for _, i := range []int32{s.out.one, s.out.two} {
		if i != None {
			g.put(i, s.to)
		}
	}
	for _, i := range []int32{s.in.one, s.in.two} {
		if i != None {
			g.put(i, s.from)
		}
	}
	return true
}

// swap looks for a swap between from, the more used, and to, that is better than the best
// so far. For each choice of from it tries the choices of to that leave both nearest to
// their bands.
func (g *weighing) swap(from, to int32, best *swap) {
	m := &g.memory
	pairs := g.tight && len(g.lists[from]) <= pairsOf && len(g.lists[to]) <= pairsOf
	m.left = g.choices(m.left[:0], from, to, pairs)
	m.right = g.choices(append(m.right[:0], choice{one: None, two: None}), to, from, pairs)
	slices.SortFunc(m.right, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.count(), b.count()), cmp.Compare(a.one, b.one), cmp.Compare(a.two, b.two))
	})
	need := max(g.load[from]-g.high[from], g.low[to]-g.load[to])
	room := min(g.load[from]-g.low[from], g.high[to]-g.load[to])
	if need > room || g.tight {
		need += (room - need) / 2
	}
	before := squares(g.outNow(from), g.outNow(to))
	for _, out := range m.left {
		at, _ := slices.BinarySearchFunc(m.right, out.weight-need, func(c choice, weight int64) int { return cmp.Compare(c.weight, weight) })
		for k := max(0, at-1); k <= min(at+2, len(m.right)); k++ {
			in := m.right[0] // nothing: a plain move
			if k < min(at+2, len(m.right)) {
				in = m.right[k]
			}
			if out.weight <= in.weight || !g.fits(from, to, out, in) || !g.affords(g.costOf(out, to)+g.costOf(in, from)) {
				continue
			}
			moved := out.weight + in.weight
			rest, ok := g.improves(from, to, out.weight-in.weight, out.count()-in.count(), moved)
			if !ok {
				continue
			}
			saved := before.minus(rest)
			if !best.found || best.saved.less(saved) || best.saved == saved && moved < best.moved {
				*best = swap{found: true, from: from, to: to, out: out, in: in, rest: rest, saved: saved, moved: moved}
			}
		}
	}
}

// choices appends the items of a worker that another one may run, and pairs of them.
func (g *weighing) choices(to []choice, w, other int32, pairs bool) []choice {
	first := len(to)
	for _, i := range g.list(w) {
		if (!g.tight || g.loose.has(i)) && g.mayRun(i, other) && g.mayGain(other, g.items[i].from != other) && !g.rests(i, other) {
			to = append(to, choice{g.items[i].weight, i, None})
		}
	}
	if last := len(to); pairs {
		for a := first; a < last; a++ {
			for b := a + 1; b < last; b++ {
				to = append(to, choice{to[a].weight + to[b].weight, to[a].one, to[b].one})
			}
		}
	}
	return to
}

// costOf returns how many moves it adds to move a choice.
func (g *weighing) costOf(c choice, to int32) (cost int) {
	for _, i := range []int32{c.one, c.two} {
		if i != None {
			cost += g.cost(i, to)
		}
	}
	return cost
}

// fits reports whether the limits of both workers allow a swap.
func (g *weighing) fits(from, to int32, out, in choice) bool {
	return g.fitsOn(to, out, in) && g.fitsOn(from, in, out)
}

// fitsOn reports whether the limits of a worker allow it to exchange some items for others.
func (g *weighing) fitsOn(w int32, gets, gives choice) bool {
	if more := gets.count() - gives.count(); gets.count() > 0 && g.limit != nil && g.limit[w] >= 0 && g.count[w]+more > g.limit[w] {
		return false
	}
	if g.gain == nil || g.gain[w] < 0 {
		return true
	}
	fresh := int32(0)
	for _, i := range []int32{gets.one, gets.two} {
		if i != None && g.items[i].from != w {
			fresh++
		}
	}
	return g.gained[w]+fresh <= g.gain[w]
}

// improves reports whether moving some weight between two workers lowers the sum of the
// squares of what is out of half of the band, by P19, and returns that sum. count is by how many
// items the first worker has fewer; moved is the weight of all items that move.
func (g *weighing) improves(from, to int32, weight int64, count int32, moved int64) (square, bool) {
	a, b := g.outNow(from), g.outNow(to)
	c := g.out(from, g.load[from]-weight, g.count[from]-count)
	d := g.out(to, g.load[to]+weight, g.count[to]+count)
	rest := squares(c, d)
	if !rest.less(squares(a, b)) {
		return rest, false
	}
	if g.tight || c == 0 && d == 0 {
		return rest, true
	}
	less := a + b - c - d
	return rest, less > 0 && less >= (moved+9)/10
}
