package rebalance

import (
	"math"
	"math/bits"
)

// What the searches of repair know from those before: how low a path can lead.

// region is a set of workers that no path leaves, with the lowest load of any in
// it. So no path from one of them leads to a lower load, and a
// search may end where it comes to one that has it.
//
// To move copies along a path to the lowest load that can be reached keeps
// regions what they are, but for paths that enter one: see widen. In none does
// the lowest load fall, since what moves away leaves a worker with one more than
// that.
type region struct {
	members set
	own     set // those of members whose search it limits; if there are none, it is not in use
	lowest  int32
	low     set // the members with the lowest load
	lows    int
}

// forget leaves a single region, of all open workers.
func (g *graph) forget(p *Planner) {
	g.regions = g.regions[:0]
	r := g.newRegion(len(p.States))
	for _, w := range p.open {
		r.members.add(w)
		r.own.add(w)
		g.regionOf[w] = 0
	}
	r.findLowest(p)
}

// newRegion returns an empty region, the last one. It uses again what memory
// there is.
func (g *graph) newRegion(workers int) *region {
	if n := len(g.regions); n < cap(g.regions) {
		g.regions = g.regions[:n+1]
	} else {
		g.regions = append(g.regions, region{})
	}
	r := &g.regions[len(g.regions)-1]
	r.members, r.own = r.members.emptied(workers), r.own.emptied(workers)
	return r
}

func (r *region) findLowest(p *Planner) {
	r.lowest, r.lows = math.MaxInt32, 0
	r.low = r.low.emptied(len(p.States))
	for _, w := range p.open {
		if !r.members.has(w) || p.load[w] > r.lowest {
			continue
		}
		if p.load[w] < r.lowest {
			r.lowest, r.lows = p.load[w], 0
			clear(r.low)
		}
		r.low.add(w)
		r.lows++
	}
}

// changed notes that the load of w, one of members, is another.
func (r *region) changed(p *Planner, w int32) {
	isLow := p.load[w] == r.lowest
	switch {
	case isLow == r.low.has(w):
	case isLow:
		r.low.add(w)
		r.lows++
	default:
		r.low.remove(w)
		r.lows--
		if r.lows == 0 {
			r.findLowest(p)
		}
	}
}

// aim limits a search that begins with the given workers: it cannot leave within,
// and ends at one of target. It returns their load, which is the lowest within. It
// empties from.
func (g *graph) aim(from set) int32 {
	lowest := int32(math.MaxInt32)
	clear(g.within)
	clear(g.target)
	for i := range from {
		for from[i] != 0 {
			w := int32(i*64 + bits.TrailingZeros64(from[i]))
			r := &g.regions[g.regionOf[w]]
			from.without(r.own)
			g.within.with(r.members)
			if r.lowest < lowest {
				lowest = r.lowest
				clear(g.target)
			}
			if r.lowest == lowest {
				g.target.with(r.low)
			}
		}
	}
	return lowest
}

// learn makes a region of those that a search reached that went through all that
// it could. It limits those that no other region limits as much.
func (g *graph) learn(p *Planner) {
	at := 1
	for at < len(g.regions) && !g.regions[at].own.isEmpty() {
		at++
	}
	if at == len(g.regions) {
		g.newRegion(len(p.States))
	}
	e := &g.regions[at]
	clear(e.members)
	for _, w := range g.reached {
		e.members.add(w)
	}
	e.findLowest(p)
	for _, w := range g.reached {
		if r := &g.regions[g.regionOf[w]]; r.lowest < e.lowest {
			r.own.remove(w)
			e.own.add(w)
			g.regionOf[w] = int32(at)
		}
	}
	copy(g.within, e.members)
}

// widen has every region that the path to w enters from outside take in all that
// the search could reach: what moved in can move back there, and on. Their lowest
// load is that of w, or more, so that the regions' stays.
func (g *graph) widen(p *Planner, w int32) {
	for i := range g.regions {
		if r := &g.regions[i]; r.members.has(w) && !r.own.isEmpty() && !r.members.contains(g.within) {
			r.members.with(g.within)
			r.findLowest(p)
		}
	}
}
