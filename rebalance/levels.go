package rebalance

import (
	"math"
	"slices"
)

// The number of copies that each worker ends with.

// fill distributes n copies over workers as evenly as floors and ceilings allow: each
// worker gets level, or its bound nearest to level, and extra of those below their
// ceilings get one more. If the workers take less than n in all, level is n.
//
// It finds the level by binary search, in O(workers · log n).
func fill(floors, ceilings []int32, n int) (level, extra int32) {
	poured := func(level int) int {
		sum := 0
		for w, least := range floors {
			sum += min(max(level, int(least)), int(ceilings[w]))
		}
		return sum
	}
	low, high := 0, n+1 // poured(low) <= n; at high it is more, or no level is
	for high-low > 1 {
		if mid := (low + high) / 2; poured(mid) <= n {
			low = mid
		} else {
			high = mid
		}
	}
	if poured(low+1) > n {
		extra = int32(n - poured(low))
	}
	return int32(low), extra
}

// levels decides with how many copies each open worker ends, without the extra units. A
// worker with more pinned copies than the level keeps these.
func (p *Planner) levels() {
	p.level, p.extra = p.levelOf(p.wanted)
	for _, w := range p.open {
		p.base[w] = max(p.level, p.pinnedOn(w))
		p.limit[w] = p.base[w]
	}
}

// levelOf returns the level of the open workers with n copies, and how many of them
// get one more.
func (p *Planner) levelOf(n int) (level, extra int32) {
	workers := len(p.open)
	switch {
	case workers == 0:
		return 0, 0
	case p.Pinned == nil:
		return int32(n / workers), int32(n % workers)
	}
	p.floors, p.ceilings = p.floors[:0], p.ceilings[:0]
	for _, w := range p.open {
		p.floors, p.ceilings = append(p.floors, p.fixed[w]), append(p.ceilings, math.MaxInt32)
	}
	return fill(p.floors, p.ceilings, n)
}

// extras assigns the extra units: first to workers that would otherwise have too many,
// then in order.
func (p *Planner) extras() {
	left := p.extra
	for _, above := range []bool{true, false} {
		for _, w := range p.open {
			if left > 0 && (p.load[w] > p.level) == above && p.takesExtra(w) {
				p.limit[w]++
				left--
			}
		}
	}
}

// takesExtra reports whether w may have an extra unit and has none.
func (p *Planner) takesExtra(w int32) bool { return p.limit[w] == p.level }

// bound computes the lower bound on adds, as far as it is known before they are chosen:
// each missing copy needs one, and so does each copy beyond a worker's limit. After
// relieve no choice of drops needs fewer.
func (p *Planner) bound() {
	p.grown = len(p.changes)
	p.plan.LowerBound = p.grown
	for _, x := range p.pending {
		p.plan.LowerBound += int(x.copies)
	}
	for _, w := range p.open {
		p.plan.LowerBound += int(max(0, -p.room(w)))
	}
}

// isConstrained reports whether some worker may be unable to take copies that it lacks,
// or to give copies that it has. Then the exchange may fail, and the bound may be too
// high.
//
// Pinned copies alone are not a constraint if no task wants more than one copy: a worker
// with too many copies has some that are not pinned, and any other worker may take any of
// them.
func (p *Planner) isConstrained() bool {
	return p.has[Quarantined] || p.Pinned != nil && p.most > 1 || len(p.Forbidden) > 0
}

// plainBound returns the lower bound that holds under any constraints: a start for each
// copy that a task gains, and, if the spread ends even, one for each copy that an open
// worker lacks for that.
func (p *Planner) plainBound() int {
	gained := p.missing
	least, most := int32(math.MaxInt32), int32(0)
	lacking, above, n := 0, 0, 0
	for _, w := range p.open {
		least, most = min(least, p.load[w]), max(most, p.load[w])
		n += int(p.load[w])
	}
	if most-least > 1 {
		return p.grown + gained
	}
	for _, w := range p.open {
		before := p.before[w]
		lacking += int(max(0, least-before))
		if before > least {
			above++
		}
	}
	extra := n - int(least)*len(p.open)
	return p.grown + max(gained, lacking+max(0, extra-above))
}

// byLoad sorts workers by load, the highest first, equals by number.
func (p *Planner) byLoad(workers []int32) {
	slices.SortFunc(workers, func(v, w int32) int {
		if p.load[v] != p.load[w] {
			return int(p.load[w] - p.load[v])
		}
		return int(v - w)
	})
}
