package rebalance

// What a placement by weight reached, and bounds on what others reach (P20).

import (
	"cmp"
	"slices"
)

// heaviest is how many of the heaviest items the bound on moves distinguishes. All others
// count as heavy as the last of these.
const heaviest = 4096

// bounds sets the figures of P20.
//
// highestBound relaxes the placement in three ways, and takes the highest result: tasks
// can be divided (the highest level, and what cannot move); the heaviest task of a class
// is alone on the largest worker that may run it; and of k*m+1 tasks on m workers of the
// largest share, some worker has k+1. If an item has no place, only what cannot move
// counts.
//
// movesBound compares with the plans that place all items, whose highest load by share is
// at most that of this plan, and the lowest at least, in each pool. A worker that is above
// the highest without moves gives at least as many items as it takes if they are the
// heaviest of its own. A worker below the lowest gains at least as many as it takes if
// they are the heaviest of all, starts included.
func (g *weighing) bounds() {
	g.highest, g.highestBound, g.moves, g.movesBound = ratio{0, 1}, ratio{0, 1}, 0, 0
	for w := range int32(g.workers) {
		g.highest = larger(g.highest, ratio{g.load[w], g.shareOf(w)})
		if g.base != nil {
			g.highestBound = larger(g.highestBound, ratio{g.base[w], g.shareOf(w)})
		}
	}
	forced, starts := 0, 0
	for i := range g.items {
		it := &g.items[i]
		switch {
		case g.stuck.has(int32(i)):
		case it.from == None:
			starts++
		case it.to != it.from:
			g.moves++
			if it.leaves || it.from == elsewhere {
				forced++
			}
		}
	}
	if !g.stuck.isEmpty() || g.workers == 0 {
		return
	}
	g.boundHighest()
	if g.moves > forced {
		given, gained := g.boundMoves()
		g.movesBound = forced + max(given, gained-starts-forced)
	} else {
		g.movesBound = forced
	}
}

func larger(a, b ratio) ratio {
	if a.compare(b) < 0 {
		return b
	}
	return a
}

// boundHighest raises the bound on the highest load.
func (g *weighing) boundHighest() {
	l := &g.levels
	g.highestBound = larger(g.highestBound, g.levelBound)
	most := int64(1)
	for c, weight := range l.top {
		if k := l.largest(int32(c)); k != None && weight > 0 {
			g.highestBound = larger(g.highestBound, ratio{weight, l.shareOf(l.members[k][0])})
		}
	}
	for w := range int32(g.workers) {
		most = max(most, g.shareOf(w))
	}
	if len(g.items) > 16*g.workers {
		return // tasks that can be divided give a better bound
	}
	weights := g.memory.weights[:0]
	for i := range g.items {
		weights = append(weights, g.items[i].weight)
	}
	slices.SortFunc(weights, descending)
	g.memory.weights = weights
	for k := 1; k*g.workers < len(weights); k++ {
		sum := int64(0)
		for i := k*g.workers - k; i <= k*g.workers; i++ {
			sum += weights[i]
		}
		g.highestBound = larger(g.highestBound, ratio{sum, most})
	}
}

func descending(a, b int64) int { return cmp.Compare(b, a) }

// boundMoves returns how many items workers give and gain at least.
func (g *weighing) boundMoves() (given, gained int) {
	stays := sized(g.memory.stays, g.workers) // by worker: its load without moves
	g.memory.stays = stays
	copy(stays, g.base)
	for i := range g.items {
		if it := &g.items[i]; it.from >= 0 && !it.leaves {
			stays[it.from] += it.weight
		}
	}
	top, bottom := g.extremes()
	over := g.memory.mine.emptied(g.workers)
	g.memory.mine = over
	var lacks []int64
	for w := range int32(g.workers) {
		pool := g.levels.pool[g.levels.kindOf(w)]
		if high, _ := divided(top[pool].num, g.shareOf(w), top[pool].den); stays[w] > high {
			over.add(w)
			stays[w] -= high
		} else if low, rest := divided(bottom[pool].num, g.shareOf(w), bottom[pool].den); g.mayGainAny(w) {
			lacks = append(lacks, low+min(rest, 1)-stays[w])
		}
	}
	return g.gives(over, stays), g.lacks(lacks)
}

func (g *weighing) mayGainAny(w int32) bool { return g.gain == nil || g.gain[w] != 0 }

// extremes returns the highest and the lowest load by share of each pool, the latter among
// the workers that may gain.
func (g *weighing) extremes() (top, bottom []ratio) {
	top = slices.Repeat([]ratio{{0, 1}}, len(g.levels.level))
	bottom = slices.Repeat([]ratio{{-1, 1}}, len(g.levels.level))
	for w := range int32(g.workers) {
		pool, use := g.levels.pool[g.levels.kindOf(w)], ratio{g.load[w], g.shareOf(w)}
		top[pool] = larger(top[pool], use)
		if g.mayGainAny(w) && (bottom[pool].num < 0 || use.compare(bottom[pool]) < 0) {
			bottom[pool] = use
		}
	}
	for p := range bottom {
		bottom[p].num = max(0, bottom[p].num)
	}
	return top, bottom
}

// gives returns how many items the workers in over give at least, to lose excess.
func (g *weighing) gives(over set, excess []int64) int {
	if over.isEmpty() {
		return 0
	}
	var held []int32
	for i := range g.items {
		if it := &g.items[i]; it.from >= 0 && !it.leaves && over.has(it.from) {
			held = append(held, int32(i))
		}
	}
	slices.SortFunc(held, func(i, j int32) int {
		a, b := &g.items[i], &g.items[j]
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.weight, a.weight))
	})
	n := 0
	for _, i := range held {
		if it := &g.items[i]; excess[it.from] > 0 {
			excess[it.from] -= it.weight
			n++
		}
	}
	return n
}

// lacks returns how many items it takes to give some workers what they lack.
func (g *weighing) lacks(loads []int64) int {
	top := g.heaviest()
	if len(top) == 0 {
		return 0
	}
	each, total := 0, int64(0)
	for _, load := range loads {
		if load > 0 {
			each += fewest(top, load)
			total += load
		}
	}
	return max(each, fewest(top, total))
}

// fewest returns how many of some weights it takes to reach a load, if the last one can be
// taken again and again.
func fewest(weights []int64, load int64) int {
	n := 0
	for ; load > 0 && n < len(weights); n++ {
		load -= weights[n]
	}
	if last := weights[len(weights)-1]; load > 0 {
		n += int((load + last - 1) / last)
	}
	return n
}

// heaviest returns the weights of the heaviest items, in descending order.
func (g *weighing) heaviest() []int64 {
	heap := g.memory.weights[:0]
	least := int64(0)
	for i := range g.items {
		weight := g.items[i].weight
		if len(heap) >= heaviest && weight <= least {
			continue
		}
		heap = append(heap, weight)
		if len(heap) == 2*heaviest {
			slices.SortFunc(heap, descending)
			heap = heap[:heaviest]
			least = heap[heaviest-1]
		}
	}
	slices.SortFunc(heap, descending)
	g.memory.weights = heap
	return heap[:min(len(heap), heaviest)]
}
