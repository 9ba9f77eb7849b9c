package rebalance

// The level of each worker: its load by share in the best fractional placement (P17).

import (
	"cmp"
	"math"
	"slices"
)

// weightLevels finds the placement with the least sum of load²/share in which tasks can be
// divided. In it, workers form pools of equal level, and each class runs in one pool. The
// pools are found by maximum flows of classes to kinds. Tasks that exceed the level of all
// others are set aside before, each with a worker (P17).
type weightLevels struct {
	// Input.
	share  []int32   // by worker; nil means 1 for all
	base   []int64   // by worker: load that cannot move; nil means none
	most   []int64   // by worker: its highest load, at least base; nil means no limit
	kind   []int32   // by worker; nil means 0 for all
	may    [][]int32 // by class: the kinds that may run it, ascending; nil means all
	demand []int64   // by class: the load that can move
	top    []int64   // by class: its largest weight
	// each calls visit with the weights of all tasks in the demand.
	each func(visit func(class int32, weight int64))

	// Output.
	pool   []int32 // by kind
	poolOf []int32 // by class; None if no worker may run it
	level  []ratio // by pool

	kinds   int
	members [][]int32 // by kind: workers, those with the largest share first
	aside   []int32   // by kind: how many of its first members are set aside
	users   []int32   // by kind: the classes with a demand that may run there
	floor   []int64   // by class: giants are heavier
	set     []int32   // by class: how many of its heaviest tasks are set aside
	rest    []int64   // by class: the demand without what is set aside
	giants  []giant
	pools   [][]int32 // by pool: kinds
	flow    kindFlow
	points  []point
}

// giant is a task that may exceed the level of the others.
type giant struct {
	weight int64
	class  int32
}

// point is a level at which a worker begins or ceases to gain.
type point struct {
	at     ratio
	worker int32
	ceases bool
}

func (l *weightLevels) shareOf(w int32) int64 {
	if l.share == nil {
		return 1
	}
	return int64(l.share[w])
}

func (l *weightLevels) kindOf(w int32) int32 {
	if l.kind == nil {
		return 0
	}
	return l.kind[w]
}

// of returns the level of a worker.
func (l *weightLevels) of(w int32) ratio { return l.level[l.pool[l.kindOf(w)]] }

// goal returns the load of a worker at its level, rounded down.
func (l *weightLevels) goal(w int32) int64 {
	level := l.of(w)
	load, _ := divided(level.num, l.shareOf(w), level.den)
	return load
}

// band returns the highest and the lowest load of a worker in band.
func (l *weightLevels) band(w int32, band int64) (high, low int64) {
	level, share := l.of(w), l.shareOf(w)
	if l.base != nil && compareProducts(l.base[w], level.den, level.num, share) > 0 {
		level, share = ratio{l.base[w], 1}, 1
	}
	if l.most != nil && compareProducts(l.most[w], level.den, level.num, share) < 0 {
		level, share = ratio{l.most[w], 1}, 1
	}
	high, _ = level.scaled(share, millionth+band)
	low, exact := level.scaled(share, max(0, millionth-band))
	if !exact {
		low++
	}
	return high, low
}

// solve finds the levels.
func (l *weightLevels) solve(workers int) {
	l.begin(workers)
	l.decompose()
	for l.giant() && l.setAside() {
		l.decompose()
	}
	l.complete()
}

// begin sorts the workers by kind and share.
func (l *weightLevels) begin(workers int) {
	l.kinds = 1
	for _, k := range l.kind {
		l.kinds = max(l.kinds, int(k)+1)
	}
	l.members = slices.Grow(l.members[:0], l.kinds)[:l.kinds]
	for k := range l.members {
		l.members[k] = l.members[k][:0]
	}
	for w := range int32(workers) {
		k := l.kindOf(w)
		l.members[k] = append(l.members[k], w)
	}
	if l.share != nil {
		for _, members := range l.members {
			slices.SortStableFunc(members, func(v, w int32) int { return cmp.Compare(l.share[w], l.share[v]) })
		}
	}
	l.aside, l.set = sized(l.aside, l.kinds), sized(l.set, len(l.demand))
	l.rest = append(l.rest[:0], l.demand...)
	l.floor = sized(l.floor, len(l.demand))
	for c := range l.floor {
		l.floor[c] = math.MaxInt64
	}
	l.users = sized(l.users, l.kinds)
	for c, demand := range l.demand {
		if demand > 0 {
			l.kindsOf(int32(c), func(k int32) { l.users[k]++ })
		}
	}
	l.giants = l.giants[:0]
}

// kindsOf calls visit with the kinds that may run a class and have a worker that is not
// set aside.
func (l *weightLevels) kindsOf(class int32, visit func(kind int32)) {
	if l.may == nil || l.may[class] == nil {
		for k := range int32(l.kinds) {
			if len(l.members[k]) > int(l.aside[k]) {
				visit(k)
			}
		}
		return
	}
	for _, k := range l.may[class] {
		if int(k) < l.kinds && len(l.members[k]) > int(l.aside[k]) {
			visit(k)
		}
	}
}

// largest returns the kind of the worker with the largest share, of those that may run a
// class and are not set aside. It is None if there is none. Of equals it takes a worker that
// the fewest classes can use.
func (l *weightLevels) largest(class int32) int32 {
	best := None
	l.kindsOf(class, func(k int32) {
		if best == None {
			best = k
			return
		}
		c := cmp.Compare(l.shareOf(l.members[k][l.aside[k]]), l.shareOf(l.members[best][l.aside[best]]))
		if c > 0 || c == 0 && l.users[k] < l.users[best] {
			best = k
		}
	})
	return best
}

// exceeds reports whether a weight exceeds the level of the largest worker of a kind.
func (l *weightLevels) exceeds(weight int64, kind int32) bool {
	level := l.level[l.pool[kind]]
	return compareProducts(weight, level.den, level.num, l.shareOf(l.members[kind][l.aside[kind]])) > 0
}

// giant reports whether some task may exceed its level.
func (l *weightLevels) giant() bool {
	for c, weight := range l.top {
		if k := l.largest(int32(c)); weight > 0 && k != None && l.exceeds(weight, k) {
			return true
		}
	}
	return false
}

// setAside sets tasks above the present levels aside, and reports whether there are any.
// A task exceeds the level with itself if and only if it exceeds the level of the rest,
// and levels only fall when tasks are set aside.
func (l *weightLevels) setAside() bool {
	limit := make([]int64, len(l.demand)) // by class: smaller weights are no giants
	for c := range limit {
		limit[c] = math.MaxInt64
		l.kindsOf(int32(c), func(k int32) {
			level, least := l.level[l.pool[k]], l.members[k][len(l.members[k])-1]
			high, _ := divided(level.num, l.shareOf(least), level.den)
			limit[c] = min(limit[c], high)
		})
	}
	if l.isBelow(limit) {
		l.collect(limit)
	}
	found, skip, ended := false, append([]int32(nil), l.set...), make([]bool, len(l.demand))
	for _, g := range l.giants {
		if skip[g.class] > 0 {
			skip[g.class]-- // set aside before
			continue
		}
		if ended[g.class] {
			continue
		}
		k := l.largest(g.class)
		if k == None || !l.exceeds(g.weight, k) || l.isLast(k) {
			ended[g.class] = true
			continue
		}
		l.aside[k]++
		l.set[g.class]++
		l.rest[g.class] -= g.weight
		found = true
	}
	return found
}

// isBelow reports whether a limit is below what the giants were collected with.
func (l *weightLevels) isBelow(limit []int64) bool {
	for c, n := range limit {
		if n < l.floor[c] {
			return true
		}
	}
	return false
}

// collect collects the tasks above half of the limits, the heaviest first. Limits fall from
// call to call, but seldom by half.
func (l *weightLevels) collect(limit []int64) {
	for c, n := range limit {
		l.floor[c] = n / 2
	}
	l.giants = l.giants[:0]
	l.each(func(class int32, weight int64) {
		if weight > l.floor[class] {
			l.giants = append(l.giants, giant{weight, class})
		}
	})
	slices.SortFunc(l.giants, func(a, b giant) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.class, b.class))
	})
}

// isLast reports whether the pool of a kind has one worker left.
func (l *weightLevels) isLast(kind int32) bool {
	left := 0
	for _, k := range l.pools[l.pool[kind]] {
		left += len(l.members[k]) - int(l.aside[k])
	}
	return left == 1
}

// decompose divides the kinds into pools. A pool whose classes cannot fill its kinds
// evenly is split along a minimum cut: the classes that exceed their kinds, and the rest.
func (l *weightLevels) decompose() {
	l.pool = sized(l.pool, l.kinds)
	l.poolOf = sized(l.poolOf, len(l.rest))
	l.level, l.pools = l.level[:0], l.pools[:0]
	var all weightPart
	for k := range int32(l.kinds) {
		l.pool[k] = None
		if len(l.members[k]) > int(l.aside[k]) {
			all.kinds = append(all.kinds, k)
		}
	}
	free := true // every class may run on every kind
	for c, rest := range l.rest {
		l.poolOf[c] = None
		n := 0
		l.kindsOf(int32(c), func(int32) { n++ })
		if n == 0 || rest == 0 {
			continue
		}
		all.classes = append(all.classes, int32(c))
		free = free && n == len(all.kinds)
	}
	for parts := []weightPart{all}; len(parts) > 0; {
		p := parts[len(parts)-1]
		parts = parts[:len(parts)-1]
		if len(p.kinds) == 0 {
			continue
		}
		level := l.fill(p)
		if !free && len(p.kinds) > 1 && len(p.classes) > 0 {
			if over, rest, ok := l.flow.split(l, p, level); ok {
				parts = append(parts, rest, over)
				continue
			}
		}
		number := int32(len(l.level))
		l.level, l.pools = append(l.level, level), append(l.pools, p.kinds)
		for _, k := range p.kinds {
			l.pool[k] = number
		}
		for _, c := range p.classes {
			l.poolOf[c] = number
		}
	}
}

// weightPart is a set of classes and the kinds that run them.
type weightPart struct{ classes, kinds []int32 }

// fill returns the level at which the workers of a part hold their base and the demand.
func (l *weightLevels) fill(p weightPart) ratio {
	demand, shares, plain := int64(0), int64(0), true
	for _, c := range p.classes {
		demand += l.rest[c]
	}
	for _, k := range p.kinds {
		for _, w := range l.members[k][l.aside[k]:] {
			shares += l.shareOf(w)
			plain = plain && (l.base == nil || l.base[w] == 0) && (l.most == nil || l.most[w] == math.MaxInt64)
		}
	}
	if plain || demand == 0 {
		return ratio{demand, shares}
	}
	l.points = l.points[:0]
	fixed := int64(0) // the load of workers that do not gain at the level of the sweep
	for _, k := range p.kinds {
		for _, w := range l.members[k][l.aside[k]:] {
			base := int64(0)
			if l.base != nil {
				base = l.base[w]
			}
			fixed += base
			l.points = append(l.points, point{at: ratio{base, l.shareOf(w)}, worker: w})
			if l.most != nil && l.most[w] < math.MaxInt64 {
				l.points = append(l.points, point{at: ratio{l.most[w], l.shareOf(w)}, worker: w, ceases: true})
			}
		}
	}
	slices.SortFunc(l.points, func(a, b point) int {
		return cmp.Or(a.at.compare(b.at), cmp.Compare(a.worker, b.worker), b2i(a.ceases)-b2i(b.ceases))
	})
	total, gaining := fixed+demand, int64(0)
	for _, x := range l.points {
		if gaining > 0 && compareProducts(gaining, x.at.num, max(0, total-fixed), x.at.den) >= 0 {
			return ratio{max(0, total-fixed), gaining}
		}
		if x.ceases {
			fixed += l.most[x.worker]
			gaining -= l.shareOf(x.worker)
			continue
		}
		if l.base != nil {
			fixed -= l.base[x.worker]
		}
		gaining += l.shareOf(x.worker)
	}
	if gaining > 0 {
		return ratio{max(0, total-fixed), gaining}
	}
	return ratio{total, shares} // more than all may take: some has no place
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// room returns how much more than its base a kind holds at a level, rounded up by worker.
func (l *weightLevels) room(kind int32, level ratio) int64 {
	sum := int64(0)
	for _, w := range l.members[kind][l.aside[kind]:] {
		high, rest := divided(level.num, l.shareOf(w), level.den)
		if rest > 0 {
			high++
		}
		if l.most != nil {
			high = min(high, l.most[w])
		}
		if l.base != nil {
			high = max(0, high-l.base[w])
		}
		sum += high
	}
	return sum
}

// complete gives a pool to each kind and class that is set aside as a whole: the one with
// the highest level among those that it could help.
func (l *weightLevels) complete() {
	if len(l.level) == 0 {
		l.level, l.pools = append(l.level, ratio{0, 1}), append(l.pools, nil)
	}
	whole := l.aside
	l.aside = sized([]int32(nil), l.kinds)
	for c, pool := range l.poolOf {
		if pool == None {
			l.kindsOf(int32(c), func(k int32) {
				if p := l.pool[k]; p != None && (l.poolOf[c] == None || l.level[p].compare(l.level[l.poolOf[c]]) < 0) {
					l.poolOf[c] = p
				}
			})
		}
	}
	for k := range int32(l.kinds) {
		if l.pool[k] != None || int(whole[k]) != len(l.members[k]) {
			continue
		}
		best := None
		for c, p := range l.poolOf {
			if p != None && admits(l.may, int32(c), k) && (best == None || l.level[p].compare(l.level[best]) > 0) {
				best = p
			}
		}
		if best == None {
			best = int32(len(l.level))
			l.level, l.pools = append(l.level, ratio{0, 1}), append(l.pools, nil)
		}
		l.pool[k] = best
	}
	for c, pool := range l.poolOf {
		if pool == None {
			l.kindsOf(int32(c), func(k int32) { l.poolOf[c] = l.pool[k] })
		}
	}
}
