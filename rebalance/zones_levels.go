package rebalance

// How full each zone is and should be.

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// zoneLevels holds the loads of zones and compares them. The n-th copy of a zone has a mark:
// the cost of adding it to Σ load²/share over the workers of the zone, if these are as
// even as they can be. The l-th copy of a worker adds (2l−1)/share. Zones are even if no
// copy of a zone has a higher mark than the next copy of another one would have.
//
// With goals by class the mark is the distance from the goal, and each class is a part of
// its own.
type zoneLevels struct {
	zones, parts int
	load         []int // by part and zone: copies on workers that are not frozen
	aim          []int // by part and zone: the load to aim at
	low, high    []int // by part and zone: the loads that are as even as any

	groups []zoneGroup // by zone
	first  []int32     // by zone: its first group; one more at the end
	scale  int64       // marks are in units of 1/scale
	mark   int64       // of the last copy of all zones

	byGoal bool
}

// zoneGroup is a number of workers of one zone with the same share and limit.
type zoneGroup struct {
	zone, share, limit int32
	workers            int64
}

const (
	noMark   = math.MinInt64 // below the mark of any copy
	fullMark = math.MaxInt64 // of a copy without room
)

// begin groups the workers and sets the loads to zero.
func (l *zoneLevels) begin(q *zoneQuotas) {
	l.zones, l.parts, l.byGoal = q.zones, 1, q.goal != nil
	if l.byGoal {
		l.parts = len(q.goal) / q.zones
	}
	n := l.parts * l.zones
	l.load, l.aim, l.low, l.high = sized(l.load, n), sized(l.aim, n), sized(l.low, n), sized(l.high, n)
	l.groups = l.groups[:0]
	if q.share == nil && q.limit == nil {
		for z := range l.zones {
			l.groups = append(l.groups, zoneGroup{zone: int32(z), share: 1, limit: math.MaxInt32})
		}
		for _, z := range q.zone {
			if z != None {
				l.groups[z].workers++
			}
		}
	} else {
		tasks := int32(0) // no worker runs more copies than there are tasks
		for _, n := range q.target {
			if n > 0 {
				tasks++
			}
		}
		for w, z := range q.zone {
			if z != None {
				l.groups = append(l.groups, zoneGroup{z, q.shareOf(w), min(q.limitOf(w), tasks), 1})
			}
		}
		l.group()
	}
	l.first = sized(l.first, l.zones+1)
	sum, most := 1, int32(1)
	for _, g := range l.groups {
		l.first[g.zone+1]++
		most = max(most, g.share)
	}
	for z := range l.zones {
		l.first[z+1] += l.first[z]
	}
	for _, n := range q.target {
		sum += int(n)
	}
	// The product of a mark and a share must stay below 2⁶².
	l.scale = 1 << max(0, 61-bits.Len(uint(2*sum))-bits.Len(uint(most)))
}

// group sorts the groups by zone and merges equal ones.
func (l *zoneLevels) group() {
	slices.SortFunc(l.groups, func(a, b zoneGroup) int {
		return cmp.Or(cmp.Compare(a.zone, b.zone), cmp.Compare(a.share, b.share), cmp.Compare(a.limit, b.limit))
	})
	out := l.groups[:0]
	for _, g := range l.groups {
		if n := len(out); n > 0 && out[n-1].zone == g.zone && out[n-1].share == g.share && out[n-1].limit == g.limit {
			out[n-1].workers++
		} else {
			out = append(out, g)
		}
	}
	l.groups = out
}

// groupsOf returns the groups of a zone.
func (l *zoneLevels) groupsOf(z int32) []zoneGroup { return l.groups[l.first[z]:l.first[z+1]] }

// upTo returns how many copies of a worker have at most some mark.
func (l *zoneLevels) upTo(share, limit int32, mark int64) int64 {
	switch mark {
	case noMark:
		return 0
	case fullMark:
		return int64(limit)
	}
	return min(int64(limit), (((mark+1)*int64(share)-1)/l.scale+1)/2)
}

// count returns how many copies of some workers have at most some mark.
func (l *zoneLevels) count(groups []zoneGroup, mark int64) int {
	n := int64(0)
	for _, g := range groups {
		n += g.workers * l.upTo(g.share, g.limit, mark)
	}
	return int(n)
}

// markOf returns the mark of the n-th copy of some workers.
func (l *zoneLevels) markOf(groups []zoneGroup, n int) int64 {
	switch {
	case n <= 0:
		return noMark
	case len(groups) == 1 && groups[0].workers > 0:
		g := groups[0]
		nth := (int64(n)-1)/g.workers + 1
		if nth > int64(g.limit) {
			return fullMark
		}
		return (2*nth - 1) * l.scale / int64(g.share)
	case l.count(groups, fullMark) < n:
		return fullMark
	}
	low, high := int64(-1), int64(2*n)*l.scale // fewer than n at low, n or more at high
	for high-low > 1 {
		if mid := low + (high-low)/2; l.count(groups, mid) < n {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// markAt returns the mark of the n-th copy of a zone.
func (l *zoneLevels) markAt(part int, z int32, n int) int64 {
	if l.byGoal {
		return int64(n - l.aim[part*l.zones+int(z)])
	}
	return l.markOf(l.groupsOf(z), n)
}

// room returns how many copies the workers of a zone may run in all.
func (l *zoneLevels) room(z int32) int { return l.count(l.groupsOf(z), fullMark) }

// below returns how many copies a zone lacks for its aim.
func (l *zoneLevels) below(part int, z int32) int {
	at := part*l.zones + int(z)
	return l.aim[at] - l.load[at]
}

// setGoals computes the loads to aim at for a number of copies.
func (l *zoneLevels) setGoals(goal []int32, copies int) {
	if l.byGoal {
		for i, n := range goal {
			l.aim[i], l.low[i], l.high[i] = int(n), int(n), int(n)
		}
		return
	}
	l.mark = l.markOf(l.groups, copies)
	lows, span := 0, 0
	for z := range int32(l.zones) {
		groups := l.groupsOf(z)
		l.high[z] = l.count(groups, l.mark)
		l.low[z] = l.high[z]
		if l.mark != fullMark && l.mark != noMark {
			l.low[z] = l.count(groups, l.mark-1)
		}
		lows += l.low[z]
		span += l.high[z] - l.low[z]
	}
	for z := range l.aim {
		l.aim[z] = l.low[z]
		if span > 0 {
			l.aim[z] += (l.high[z] - l.low[z]) * (copies - lows) / span
		}
	}
}

// isEven reports whether all zones are as even as any could be.
func (l *zoneLevels) isEven() bool {
	for part := range l.parts {
		last, next := int64(noMark), int64(fullMark)
		for z := range int32(l.zones) {
			n := l.load[part*l.zones+int(z)]
			if n > 0 {
				last = max(last, l.markAt(part, z, n))
			}
			next = min(next, l.markAt(part, z, n+1))
		}
		if last > next {
			return false
		}
	}
	return true
}
