package rebalance

// Which worker has the least, and which the most.

import "cmp"

// cost is a fraction: by how much one copy more or less changes Σ load²/share.
type cost struct{ num, share int64 }

// endless is the cost of a copy that must not be, or must not stay.
var endless = cost{1<<32 - 1, 1} // the products of less are below 1<<63

func (a cost) less(b cost) bool { return a.num*b.share < b.num*a.share }

func (a cost) compare(b cost) int { return cmp.Compare(a.num*b.share, b.num*a.share) }

// adding returns what one copy more costs.
func (w *worker) adding() cost { return cost{2*int64(w.remaining()) + 1, int64(w.share)} }

// adding returns what one copy more on w costs.
func (s *state) adding(w int32) cost { return s.workers[w].adding() }

// removing returns what one copy less on w saves.
func (s *state) removing(w int32) cost {
	at := &s.workers[w]
	switch {
	case at.isOver():
		return endless
	case s.onlyOver:
		return cost{-endless.num, 1}
	}
	return cost{2*int64(at.remaining()) - 1, int64(at.share)}
}

// key is the place of a worker in an order. Equal costs go by a number that looks random and
// changes with the load. So families of tasks spread, and the tasks that a worker has in common with
// others, it has in common with many.
type key struct {
	num   int64 // the cost, or what it is in an order by weight
	share int32
	tie   uint32
}

func (a key) before(b key) bool {
	x, y := a.num, b.num
	if a.share != b.share {
		x, y = x*int64(b.share), y*int64(a.share)
	}
	return x < y || x == y && a.tie < b.tie
}

func (a key) cost() cost { return cost{a.num, int64(a.share)} }

func keyOf(c cost, tie uint32) key { return key{c.num, int32(c.share), tie} }

// heap holds workers or hubs, the first one at the top. Several heaps may share keys and index.
type heap struct {
	items []int32
	keys  []key   // by worker or hub
	index []int32 // by worker or hub: where it is in items, plus one
}

// ranks keeps the workers in order while copies come and go.
type ranks struct {
	inUse  bool
	takers []heap // by hub: the workers that may gain a copy, those with room and the least first
	order  heap   // the hubs with such workers, by the first of these; unused if there is only one
	givers heap   // the workers that may lose a copy, the most first; empty while it is not in use
	gives  bool   // givers is in use
	newest bool   // of equal takers the newest comes first
	// onlyOver lets only workers give that have more copies than they may.
	onlyOver bool
	queue    [2]heap // memory of inOrder: of workers, and of hubs
}

// rank puts the workers that may gain a copy in order, if that costs less than some limit.
func (s *state) rank(limit cost) {
	s.inUse, s.gives = true, false
	for len(s.takers) < len(s.hubs) {
		s.takers = append(s.takers, heap{})
	}
	takers := s.takers[:len(s.hubs)]
	keys, index := roomy(s.takers[0].keys, len(s.workers)), sized(s.takers[0].index, len(s.workers))
	for h := range takers {
		takers[h] = heap{takers[h].items[:0], keys, index}
	}
	for w := range s.workers {
		at := &s.workers[w]
		if at.takesPart() && at.adding().less(limit) { // a quarantined one may have room later
			keys[w] = s.takerKey(int32(w))
			takers[at.hub].append(int32(w))
		}
	}
	o := &s.order
	*o = heap{o.items[:0], roomy(o.keys, len(takers)), sized(o.index, len(takers))}
	for h := range takers {
		takers[h].arrange()
		if len(takers) > 1 && len(takers[h].items) > 0 {
			o.keys[h] = takers[h].top()
			o.append(int32(h))
		}
	}
	o.arrange()
}

// rankGivers puts the workers that may lose a copy in order, if that saves more than some limit.
func (s *state) rankGivers(limit cost) {
	s.gives = true
	g := &s.givers
	*g = heap{g.items[:0], roomy(g.keys, len(s.workers)), sized(g.index, len(s.workers))}
	for w := range s.workers {
		if s.workers[w].takesPart() && limit.less(s.removing(int32(w))) {
			g.keys[w] = s.giverKey(int32(w))
			g.append(int32(w))
		}
	}
	g.arrange()
}

// takerKey returns the key of w among the workers that gain.
func (s *state) takerKey(w int32) key {
	at := &s.workers[w]
	tie := mix(w, at.load)
	if s.newest {
		tie = ^uint32(s.Joined[w])
	}
	switch {
	case s.weights == nil && at.hasRoom():
		return keyOf(at.adding(), tie)
	case s.weights == nil:
		return keyOf(endless, tie)
	case at.hasRoom():
		return key{s.weight[w], 1, tie}
	}
	return key{1 << 62, 1, tie}
}

// giverKey returns the key of w among the workers that lose.
func (s *state) giverKey(w int32) key {
	at := &s.workers[w]
	p := keyOf(s.removing(w), mix(w, at.load))
	if s.weights != nil {
		p.num, p.share = s.above(w), 1
		if at.isOver() {
			p.num = 1 << 62
		}
	}
	p.num = -p.num
	return p
}

// update restores the orders after a change of w.
func (s *state) update(w int32) {
	if !s.inUse {
		return
	}
	hub := s.workers[w].hub
	if h := &s.takers[hub]; h.index[w] > 0 {
		h.keys[w] = s.takerKey(w)
		h.fix(int(h.index[w] - 1))
		if o := &s.order; len(o.items) > 0 && o.keys[hub] != h.top() {
			o.keys[hub] = h.top()
			o.fix(int(o.index[hub] - 1))
		}
	}
	if g := &s.givers; s.gives && g.index[w] > 0 {
		g.keys[w] = s.giverKey(w)
		g.fix(int(g.index[w] - 1))
	}
}

func (h *heap) append(w int32) {
	h.items = append(h.items, w)
	h.index[w] = int32(len(h.items))
}

// top returns the key of the first one.
func (h *heap) top() key { return h.keys[h.items[0]] }

// arrange makes a heap of the items.
func (h *heap) arrange() {
	for i := len(h.items)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// fix restores the order after a change at place i.
func (h *heap) fix(i int) {
	w := h.items[i]
	for p := h.keys[w]; i > 0; {
		up := (i - 1) / 2
		if !p.before(h.keys[h.items[up]]) {
			break
		}
		h.set(i, h.items[up])
		i = up
	}
	h.set(i, w)
	h.down(i)
}

func (h *heap) down(i int) {
	w := h.items[i]
	for p := h.keys[w]; ; {
		c := 2*i + 1
		if c >= len(h.items) {
			break
		}
		if c+1 < len(h.items) && h.keys[h.items[c+1]].before(h.keys[h.items[c]]) {
			c++
		}
		if !h.keys[h.items[c]].before(p) {
			break
		}
		h.set(i, h.items[c])
		i = c
	}
	h.set(i, w)
}

func (h *heap) set(i int, w int32) {
	h.items[i] = w
	h.index[w] = int32(i + 1)
}

// drop removes the top and returns it.
func (h *heap) drop() int32 {
	top, last := h.items[0], len(h.items)-1
	h.index[top] = 0
	if w := h.items[last]; last > 0 {
		h.set(0, w)
	}
	if h.items = h.items[:last]; last > 0 {
		h.down(0)
	}
	return top
}

// inOrder calls visit with the items from the top on, until it returns false. q is memory: the items that
// may come next.
func (h *heap) inOrder(q *heap) func(visit func(w int32) bool) {
	return func(visit func(w int32) bool) {
		if len(h.items) == 0 || !visit(h.items[0]) {
			return
		}
		*q = heap{q.items[:0], h.keys, roomy(q.index, len(h.keys))}
		for w := h.items[0]; ; w = q.drop() {
			first := min(2*int(h.index[w])-1, len(h.items)) // the items below w
			for _, v := range h.items[first:min(first+2, len(h.items))] {
				q.append(v)
				q.fix(len(q.items) - 1)
			}
			if len(q.items) == 0 || !visit(q.items[0]) {
				return
			}
		}
	}
}

// hubsInOrder calls visit with the hubs in the order of the workers that take a copy first, until it
// returns false.
func (s *state) hubsInOrder(visit func(hub int32) bool) {
	if len(s.hubs) == 1 {
		visit(0)
		return
	}
	s.order.inOrder(&s.queue[1])(visit)
}
