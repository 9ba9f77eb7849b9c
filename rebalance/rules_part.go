package rebalance

// Rules: which worker of a part runs what. A part is a zone, or the whole fleet.

import (
	"cmp"
	"slices"
)

// item is a copy that needs a worker.
type item struct {
	task, class int32
	tier        int32
	leaving     int32 // its place in rules.leaving, None for a missing copy
}

// plan decides for the workers of one part: how many copies of each class each runs, and
// then which.
func (r *rules) planPart(part int32) {
	r.workers = r.workers[:0]
	for w, s := range r.States {
		if (s == Open || s == Quarantined) && (!r.byZone || r.zoneOf(int32(w)) == part) {
			r.workers = append(r.workers, int32(w))
		}
	}
	if r.weights.weighted {
		r.weigh(part)
		return
	}
	r.count(part)
	r.network.solve()
	r.handOver()
	r.deal()
}

// classes returns the number of classes.
func (r *rules) classes() int {
	return max(1, len(r.may))
}

// classIn returns the class of t in the network.
func (r *rules) classIn(t int32) int32 {
	if r.class == nil {
		return 0
	}
	return r.class[t]
}

// count gives the network what the workers of the part run, and what needs a place. One pass
// over their lists.
func (r *rules) count(part int32) {
	n := &r.network
	classes := r.classes()
	for len(n.need) < tiers {
		n.need = append(n.need, nil)
	}
	for tier := range n.need {
		n.need[tier] = sized(n.need[tier], classes)
	}
	n.may, n.kind, n.share = r.may, n.kind[:0], n.share[:0]
	n.base, n.limit, n.gain = n.base[:0], n.limit[:0], n.gain[:0]
	n.held.reset()
	r.more = sized(r.more, classes)
	for _, w := range r.workers {
		base := r.hold(w)
		for _, x := range n.held.row(int32(n.held.workers()) - 1) {
			n.need[tierFirst][x.class] += x.copies
		}
		limit := NoLimit
		if r.most(w) < int32(len(r.Want))+1 {
			limit = int(max(r.most(w), base))
		}
		n.base = append(n.base, base)
		n.limit = append(n.limit, int32(limit))
		gain := r.gain[w]
		if r.States[w] == Open {
			gain = NoLimit
		}
		n.gain = append(n.gain, gain)
		n.share = append(n.share, r.shareOf(w))
		n.kind = append(n.kind, r.kindOf(w))
	}
	for _, x := range r.over { // not the surplus copies
		n.need[tierFirst][r.classIn(x.task)] -= x.copies
	}
	r.pool = r.pool[:0]
	for _, x := range r.places {
		if x.part != part {
			continue
		}
		c := r.classIn(x.task)
		n.need[x.tier][c] += x.copies
		for range x.copies {
			r.pool = append(r.pool, item{task: x.task, class: c, tier: x.tier, leaving: x.leaving})
		}
	}
	r.sortPool()
}

// hold gives the network what w may keep, and returns how many copies of w count and do not
// move.
func (r *rules) hold(w int32) (base int32) {
	held, list := &r.network.held, r.Running[w]
	isWhole := len(list) > 0 && int(r.load[w]) == len(list) && r.Pinned == nil && r.stays[w] == 0 // it keeps all copies
	switch {
	case isWhole && r.class == nil:
		held.add(0, int32(len(list)))
	case isWhole && r.counted && len(r.may) == len(r.May): // no task has a class of its own
		held.items = append(held.items, r.copies.row(w)...)
	default:
		seen := r.seenClasses[:0]
		base = r.stays[w]
		for k, t := range list {
			switch r.flags[r.offset[w]+int32(k)] {
			case pinned:
				base++
			case kept:
				c := r.classIn(t)
				if r.more[c] == 0 {
					seen = append(seen, c)
				}
				r.more[c]++
			}
		}
		held.take(r.more, seen)
		r.seenClasses = seen
	}
	held.endWorker()
	return base
}

// sortPool sorts the pool by class and tier, and finds where each class begins.
func (r *rules) sortPool() {
	slices.SortStableFunc(r.pool, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.tier, b.tier))
	})
	r.poolAt = sized(r.poolAt, r.classes()+1)
	for _, x := range r.pool {
		r.poolAt[x.class+1]++
	}
	for c := range len(r.poolAt) - 1 {
		r.poolAt[c+1] += r.poolAt[c]
	}
}

// handOver puts the copies that workers have beyond their counts into the pool.
func (r *rules) handOver() {
	n := &r.network
	before := len(r.pool)
	lacking := r.mark()
	for _, x := range r.pool {
		r.marks[x.task] = lacking
	}
	for i, w := range r.workers {
		held, now := n.held.row(int32(i)), n.count.row(int32(i))
		some := false
		for _, h := range held {
			at := slices.IndexFunc(now, func(x classCopies) bool { return x.class == h.class })
			have := int32(0)
			if at >= 0 {
				have = now[at].copies
			}
			if r.more[h.class] = h.copies - have; r.more[h.class] > 0 {
				some = true
			}
		}
		// Copies of tasks that lack others come last: no worker gets a second one.
		over := max(0, r.load[w]-r.most(w))
		for _, last := range []bool{false, true} {
			if !some {
				break
			}
			for k, t := range r.Running[w] {
				at, c := r.offset[w]+int32(k), r.classIn(t)
				if r.flags[at] != kept || r.more[c] <= 0 || !last && r.marks[t] == lacking {
					continue
				}
				r.more[c]--
				why := Rebalance
				if over > 0 {
					why = EvictLimit
					over--
				}
				r.leave(t, w, at, why)
				r.pool = append(r.pool, item{task: t, class: c, tier: tierFirst, leaving: int32(len(r.leaving)) - 1})
			}
		}
		for _, h := range held {
			r.more[h.class] = 0
		}
	}
	if len(r.pool) > before {
		r.sortPool()
	}
}

// deal lets each worker take copies from the pool, up to its counts. What a worker cannot
// take, because it runs the task already or may not gain it, waits for another one, or is
// exchanged for a copy that an earlier worker has taken.
func (r *rules) deal() {
	n := &r.network
	r.dealt = sized(r.dealt, len(r.pool))
	next := append(r.next[:0], r.poolAt...)
	r.next = next
	fails := 0
	for i, w := range r.workers {
		held := n.held.row(int32(i))
		for _, x := range n.count.row(int32(i)) {
			want := x.copies
			if at := slices.IndexFunc(held, func(h classCopies) bool { return h.class == x.class }); at >= 0 {
				want -= held[at].copies
			}
			if want <= 0 {
				continue
			}
			blocked := r.block(w)
			for at := next[x.class]; at < r.poolAt[x.class+1] && want > 0; at++ {
				p := &r.pool[at]
				if r.dealt[at] != 0 {
					if at == next[x.class] {
						next[x.class]++
					}
					continue
				}
				if r.marks[p.task] == blocked || !r.canGain(p.task, w, r.originOf(p)) {
					continue
				}
				r.put(p, w)
				r.dealt[at] = r.addHead[w]
				r.marks[p.task] = blocked
				want--
			}
			failed := None // the other copies of this task fail as well
			for at := next[x.class]; at < r.poolAt[x.class+1] && want > 0 && fails < exchangeFails; at++ {
				switch {
				case r.dealt[at] != 0 || r.pool[at].task == failed:
				case r.dealByExchange(at, w, blocked):
					want--
				default:
					failed = r.pool[at].task
					fails++
				}
			}
			r.inexact = r.inexact || want > 0
		}
	}
	for at := range r.pool {
		if r.dealt[at] == 0 {
			r.rest = append(r.rest, r.pool[at])
		}
	}
}

// exchangeTries is how many copies of its class are tried in exchange for one, and exchangeFails
// how many copies may fail in a part. The search places what is left.
const (
	exchangeTries = 100
	exchangeFails = 1000
)

// dealByExchange gives w, which cannot take the copy at a place of the pool, a copy of the same
// class that another worker has taken. That worker takes the copy at that place.
func (r *rules) dealByExchange(at, w int32, blocked uint32) bool {
	p := &r.pool[at]
	begin := r.poolAt[p.class]
	for k, taken := range r.dealt[begin:min(r.poolAt[p.class+1], begin+exchangeTries)] {
		if taken == 0 {
			continue
		}
		t, v := r.changes[taken-1].Task, r.changes[taken-1].To
		if r.marks[t] == blocked || !r.canGain(t, w, v) ||
			r.positionOf(p.task, v) != None || r.runs(p.task, v) || !r.passes(p.task, v, r.originOf(p)) {
			continue
		}
		r.redirect(taken-1, w)
		r.dealt[begin+int32(k)] = int32(len(r.adds))
		r.marks[t] = blocked
		r.put(p, v)
		r.dealt[at] = r.addHead[v]
		return true
	}
	return false
}

// originOf returns the worker that gives a copy up, or None.
func (r *rules) originOf(p *item) int32 {
	if p.leaving == None {
		return None
	}
	return r.leaving[p.leaving].worker
}

// keepInstead keeps the copy that a change moves off its worker. The change starts another
// copy instead.
func (r *rules) keepInstead(p *item, i int32) {
	c, position := &r.changes[i], r.adds[i].position
	r.flags[position] = kept
	r.load[c.From]++
	r.inItsZone(c.Task, c.From, 1)
	c.From, c.Reason = None, Missing
	if p.leaving != None {
		r.takeFrom(p.leaving, i)
	}
}

// takeFrom makes start i a move of copy number k of those that leave their workers.
func (r *rules) takeFrom(k, i int32) {
	l, c := &r.leaving[k], &r.changes[i]
	c.From, c.Reason, r.adds[i].position = l.worker, l.why, l.position
	r.flags[l.position] = dropped
	l.placed, l.change = true, i
	if l.stuck {
		l.stuck = false
		r.load[l.worker]--
	}
	r.inItsZone(l.task, l.worker, -1)
}

// put starts a copy on w, or moves it there. If w would give a copy away, it keeps that instead.
func (r *rules) put(p *item, w int32) {
	if i := r.movedAway(r.positionOf(p.task, w)); i != None {
		r.keepInstead(p, i)
		return
	}
	r.changes = append(r.changes, Change{Task: p.task, From: None, To: w, Reason: Missing})
	r.adds = append(r.adds, add{next: r.addHead[w]})
	r.addHead[w] = int32(len(r.adds))
	if p.leaving != None {
		r.takeFrom(p.leaving, int32(len(r.adds))-1)
	}
	r.load[w]++
	if r.States[w] == Quarantined {
		r.gain[w]--
	}
	r.inItsZone(p.task, w, 1)
}
