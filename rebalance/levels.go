package rebalance

import (
	"math"
	"slices"
)

// How many copies each worker is to end with.

// fill pours n copies into workers with the given room (negative: unlimited),
// as evenly as that goes: each gets level, or as much as it has room for, and
// extra of those with more room get one more. It returns n' < n in full where
// there is less room than copies.
//
// It searches for the level by halving: O(workers · log n).
func fill(room []int32, n int) (level, extra int32) {
	poured := func(level int) int {
		sum := 0
		for _, r := range room {
			if r < 0 || int(r) > level {
				sum += level
			} else {
				sum += int(r)
			}
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

// keepClosed decides what the closed workers keep. They are levelled with the
// open ones, as if those could take everything, and shed what is above: first
// copies of which there are too many, then such that an open worker has a place
// for; with bounds, only such of which there are too many. From then on what
// they have is fixed.
//
// Costs a few passes over the lists of the closed workers.
func (p *Planner) keepClosed() {
	if !p.has[Closed] {
		return
	}
	closed := p.levelled[:0]
	for w, s := range p.States {
		if s == Closed {
			closed = append(closed, int32(w))
		}
	}
	p.levelled = closed
	p.byLoad(closed)
	for _, w := range closed {
		p.shedClosed(w, func(t int32) bool { return p.closed[t] > p.target[t] })
	}
	if p.Bounds != nil {
		return // what they shed may have nowhere to go
	}
	room := p.rooms[:0]
	for w, s := range p.States {
		switch s {
		case Open:
			room = append(room, -1)
		case Closed:
			room = append(room, p.load[w])
		}
	}
	p.rooms = room
	n := 0
	for t := range p.target {
		n += int(min(p.target[t], p.places(int32(t))+p.closed[t]))
	}
	level, extra := fill(room, n)
	for _, w := range closed {
		keep := level
		if p.load[w] > level && extra > 0 {
			keep++
			extra--
		}
		p.shedClosed(w, func(t int32) bool {
			return p.load[w] > keep && p.Want[t]-p.tasks[t].lack+p.closed[t] > p.target[t]
		})
		p.shedClosed(w, func(t int32) bool {
			return p.load[w] > keep && p.target[t]-p.closed[t] < p.places(t)
		})
	}
}

// shedClosed drops from closed worker w the copies for which sheds is true.
func (p *Planner) shedClosed(w int32, sheds func(t int32) bool) {
	for k, t := range p.Held[w] {
		if at := p.offset[w] + int32(k); p.flags[at] == kept && sheds(t) {
			p.lose(t, w, at)
			p.closed[t]--
		}
	}
}

// boundOf returns how many copies w may gain up to, negative for any number.
func (p *Planner) boundOf(w int32) int32 {
	if p.Bounds == nil {
		return -1
	}
	return p.Bounds[w]
}

// hasBound says whether w may gain none beyond n copies.
func (p *Planner) hasBound(w, n int32) bool {
	b := p.boundOf(w)
	return b >= 0 && b <= n
}

// levels decides with how many copies each open worker ends, but for the extra
// units.
func (p *Planner) levels() {
	if n, w := p.wanted, len(p.open); p.Bounds == nil && w > 0 {
		p.level, p.extra = int32(n/w), int32(n%w)
	} else {
		room := p.rooms[:0]
		for _, w := range p.open {
			room = append(room, p.boundOf(w))
		}
		p.rooms = room
		p.level, p.extra = fill(room, n)
	}
	for _, w := range p.open {
		p.base[w] = p.level
		if p.hasBound(w, p.level) {
			p.base[w] = p.boundOf(w)
		}
		p.limit[w] = p.base[w]
	}
}

// extras gives the extra units out: first to those that would otherwise have
// too many, and then in order.
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

// takesExtra says whether w may have an extra unit and has none.
func (p *Planner) takesExtra(w int32) bool {
	return p.limit[w] == p.level && !p.hasBound(w, p.level)
}

// bound computes the lower bound on adds, as far as it is known before they are
// chosen: each copy that is missing needs one, and so does each that a worker
// has too many. After relieve no choice of drops has fewer of these.
func (p *Planner) bound() {
	for _, x := range p.pending {
		p.plan.LowerBound += int(x.copies)
	}
	for _, w := range p.open {
		p.plan.LowerBound += int(max(0, -p.room(w)))
	}
}

// isConstrained says whether some worker cannot take what it lacks. Then the
// exchange may fail, and the bound need not hold.
func (p *Planner) isConstrained() bool {
	return p.has[Closed] || p.Bounds != nil || len(p.Forbidden) > 0
}

// plainBound is the lower bound that holds whatever the constraints: a start
// for each copy that a task gains, and one for each that a worker lacks for an
// even spread, if the spread ends even.
func (p *Planner) plainBound() int {
	gained := p.missing
	for _, x := range p.pending {
		gained -= int(x.copies)
	}
	least, most := int32(math.MaxInt32), int32(0)
	lacking, above, n := 0, 0, 0
	for _, w := range p.open {
		least, most = min(least, p.load[w]), max(most, p.load[w])
		n += int(p.load[w])
	}
	if most-least > 1 {
		return gained
	}
	for _, w := range p.open {
		before := p.before[w]
		lacking += int(max(0, least-before))
		if before > least {
			above++
		}
	}
	extra := n - int(least)*len(p.open)
	return max(gained, lacking+max(0, extra-above))
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
