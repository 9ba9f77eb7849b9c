package rebalance

// The least and the most used workers.

import (
	"cmp"
	"math/bits"
	"slices"
)

// ranking is a tournament of workers by load/share. Its leaves are ordered by pool, share
// and kind, so that the workers that may run a class are a few spans of leaves.
type ranking struct {
	g     *weighing
	size  int32   // leaves, a power of two
	leaf  []int32 // by worker
	least []int32 // by node: the least used worker that may take a copy, or None
	most  []int32 // by node: the most used worker
	order []int32
	segs  []segment
	of    [][]int32   // by kind: segments
	plain bool        // all shares are equal
	pools []stretch   // by pool: its leaves
	spans [][]stretch // by class: the leaves of its pool that may run it
	every [][]stretch // by class: the leaves that may run it
	known set         // the classes with spans
}

// segment is a stretch of workers of the same pool, kind and grade of shares.
type segment struct {
	stretch
	pool, kind, grade int32
}

// stretch is a range of leaves.
type stretch struct{ from, to int32 }

// grade returns the class of a share: shares of a grade differ by an eighth at most.
func grade(share int64) int32 {
	n := int32(bits.Len64(uint64(share)))
	if n <= 4 {
		return int32(share)
	}
	return n*8 + int32(share>>(n-4)&7)
}

// build makes the tournament.
func (r *ranking) build(g *weighing) {
	r.g = g
	l := &g.levels
	r.order = r.order[:0]
	r.plain = true
	for w := range int32(g.workers) {
		r.order = append(r.order, w)
		r.plain = r.plain && l.shareOf(w) == l.shareOf(0)
	}
	key := func(w int32) segment {
		k := l.kindOf(w)
		return segment{pool: l.pool[k], kind: k, grade: grade(l.shareOf(w))}
	}
	if len(l.level) > 1 || l.kinds > 1 || !r.plain {
		slices.SortFunc(r.order, func(v, w int32) int {
			a, b := key(v), key(w)
			return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.grade, b.grade), cmp.Compare(a.kind, b.kind), cmp.Compare(v, w))
		})
	}
	r.size = 1 << bits.Len32(uint32(max(1, g.workers)-1))
	r.leaf = sized(r.leaf, g.workers)
	r.least, r.most = sized(r.least, int(2*r.size)), sized(r.most, int(2*r.size))
	for i := range r.least {
		r.least[i], r.most[i] = None, None
	}
	r.segs, r.of = r.segs[:0], emptyLists(r.of, l.kinds)
	r.pools = sized(r.pools, len(l.level))
	for i, w := range r.order {
		at := int32(i)
		r.leaf[w] = at
		r.fill(w)
		s := key(w)
		if n := len(r.segs); n == 0 || s.pool != r.segs[n-1].pool || s.kind != r.segs[n-1].kind || s.grade != r.segs[n-1].grade {
			s.stretch = stretch{at, at}
			r.of[s.kind] = append(r.of[s.kind], int32(n))
			r.segs = append(r.segs, s)
		}
		r.segs[len(r.segs)-1].to++
		if p := &r.pools[s.pool]; p.to == 0 {
			*p = stretch{at, at + 1}
		} else {
			p.to++
		}
	}
	for n := r.size - 1; n > 0; n-- {
		r.play(n)
	}
	classes := max(1, len(g.may))
	r.known = r.known.emptied(classes)
	r.spans = slices.Grow(r.spans[:0], classes)[:classes]
	r.every = slices.Grow(r.every[:0], classes)[:classes]
}

// fill sets the leaf of a worker.
func (r *ranking) fill(w int32) {
	n := r.size + r.leaf[w]
	r.most[n], r.least[n] = w, None
	if r.g.hasRoom(w, false) {
		r.least[n] = w
	}
}

// play sets the winners of an inner node.
func (r *ranking) play(n int32) {
	a, b := r.least[2*n], r.least[2*n+1]
	if a == None || b != None && r.before(b, a, 0) {
		a = b
	}
	r.least[n] = a
	a, b = r.most[2*n], r.most[2*n+1]
	if a == None || b != None && r.after(b, a) {
		a = b
	}
	r.most[n] = a
}

// update plays the matches of a worker again, after its load has changed.
func (r *ranking) update(w int32) {
	r.fill(w)
	for n := (r.size + r.leaf[w]) / 2; n > 0; n /= 2 {
		r.play(n)
	}
}

// before reports whether v is less used than w if both had some more weight. Equals go
// by number.
func (r *ranking) before(v, w int32, more int64) bool {
	load := r.g.load
	if r.plain {
		return load[v] < load[w] || load[v] == load[w] && v < w
	}
	c := compareProducts(load[v]+more, r.g.shareOf(w), load[w]+more, r.g.shareOf(v))
	return c < 0 || c == 0 && v < w
}

// after reports whether v is more used than w. Equals go by number.
func (r *ranking) after(v, w int32) bool {
	load := r.g.load
	if r.plain {
		return load[v] > load[w] || load[v] == load[w] && v < w
	}
	c := compareProducts(load[v], r.g.shareOf(w), load[w], r.g.shareOf(v))
	return c > 0 || c == 0 && v < w
}

// spansOf returns the leaves that may run a class: those of its pool, or all.
func (r *ranking) spansOf(class int32, all bool) []stretch {
	if !r.known.has(class) {
		r.known.add(class)
		r.spans[class] = r.collect(r.spans[class][:0], class, r.g.levels.poolOf[class])
		r.every[class] = r.collect(r.every[class][:0], class, None)
	}
	if all {
		return r.every[class]
	}
	return r.spans[class]
}

// collect returns the spans of a class in a pool, or in all pools if that is None.
func (r *ranking) collect(spans []stretch, class, pool int32) []stretch {
	var found []int32
	add := func(of []int32) {
		for _, s := range of {
			if pool == None || r.segs[s].pool == pool {
				found = append(found, s)
			}
		}
	}
	if may := r.g.may; may == nil || may[class] == nil {
		for _, of := range r.of {
			add(of)
		}
	} else {
		for _, k := range may[class] {
			if int(k) < len(r.of) {
				add(r.of[k])
			}
		}
	}
	slices.Sort(found)
	for i, s := range found {
		seg := r.segs[s]
		if n := len(spans); n > 0 && spans[n-1].to == seg.from && r.segs[found[i-1]].grade == seg.grade {
			spans[n-1].to = seg.to
			continue
		}
		spans = append(spans, seg.stretch)
	}
	return spans
}

// walk visits the workers of some spans, the least or the most used first. The loads must
// not change during a walk.
type walk struct {
	r     *ranking
	best  []int32 // by node: the winner
	most  bool
	more  int64
	heap  []int32 // nodes; the first has the best winner
	yield int32   // the node whose winner was returned last, or 0
}

// least starts a walk from the least used after taking some more weight.
func (k *walk) least(r *ranking, spans []stretch, more int64) {
	k.r, k.best, k.most, k.more = r, r.least, false, more
	k.start(spans)
}

// mostUsed starts a walk from the most used.
func (k *walk) mostUsed(r *ranking, spans []stretch) {
	k.r, k.best, k.most, k.more = r, r.most, true, 0
	k.start(spans)
}

func (k *walk) start(spans []stretch) {
	k.heap, k.yield = k.heap[:0], 0
	for _, s := range spans {
		for from, to := s.from+k.r.size, s.to+k.r.size; from < to; from, to = from/2, to/2 {
			if from&1 != 0 {
				k.push(from)
				from++
			}
			if to&1 != 0 {
				to--
				k.push(to)
			}
		}
	}
}

// next returns the next worker, or None.
func (k *walk) next() int32 {
	if n := k.yield; n > 0 {
		w := k.best[n]
		for n < k.r.size {
			n *= 2
			if k.best[n] == w {
				k.push(n + 1)
			} else {
				k.push(n)
				n++
			}
		}
		k.yield = 0
	}
	if len(k.heap) == 0 {
		return None
	}
	k.yield = k.heap[0]
	last := len(k.heap) - 1
	k.heap[0] = k.heap[last]
	k.heap = k.heap[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && k.less(c+1, c) {
			c++
		}
		if !k.less(c, i) {
			break
		}
		k.heap[i], k.heap[c] = k.heap[c], k.heap[i]
		i = c
	}
	return k.best[k.yield]
}

func (k *walk) push(n int32) {
	if k.best[n] == None {
		return
	}
	k.heap = append(k.heap, n)
	for i := len(k.heap) - 1; i > 0 && k.less(i, (i-1)/2); i = (i - 1) / 2 {
		k.heap[i], k.heap[(i-1)/2] = k.heap[(i-1)/2], k.heap[i]
	}
}

func (k *walk) less(i, j int) bool {
	v, w := k.best[k.heap[i]], k.best[k.heap[j]]
	if k.most {
		return k.r.after(v, w)
	}
	return k.r.before(v, w, k.more)
}
