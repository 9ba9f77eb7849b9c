package rebalance

// The flow of a network, and what it says about the workers.

// nodes says where each sort of node begins.
type nodes struct{ class, kind, worker, rest, missing, end int32 }

// build makes the flow for the present levels. With costs it is for all parts, and has a
// node for each worker. Otherwise it is for the parts that are not settled, and has a node
// for each special worker: the others are one with their kind.
func (n *network) build(costs bool) {
	v := nodes{class: firstNode}
	v.kind = v.class + int32(len(n.want))
	v.worker = v.kind + int32(n.kinds)
	v.rest = v.worker + int32(len(n.specials))
	if costs {
		v.rest = v.worker + int32(len(n.load))
	}
	v.missing = v.rest + int32(len(n.settled))
	v.end = v.missing
	if costs {
		v.end += int32(len(n.missing))
	}
	n.nodes = v
	n.flow.begin()
	n.buildClasses(costs)
	n.buildWorkers(costs)
	n.buildKinds(costs)
	for p, c := range n.rest {
		n.restArc[p] = None
		if c > 0 && (costs || !n.settled[p]) {
			n.restArc[p] = n.edge(v.rest+int32(p), sink, c, 0)
		}
	}
	n.link(int(v.end))
}

// buildClasses adds the edges from the source to the classes, and from there to the
// kinds and, with costs, to what has no place.
func (n *network) buildClasses(costs bool) {
	classes := int32(len(n.want))
	cost := int8(0)
	if costs {
		cost = 1
	}
	n.supplyArc = sized(n.supplyArc, len(n.want))
	n.missingArc = n.missingArc[:0]
	for k := range classes {
		p := n.part[k]
		n.supplyArc[k] = None
		if n.want[k] == 0 || n.settled[p] && !costs {
			continue
		}
		v := n.nodes.class + k
		n.supplyArc[k] = n.edge(source, v, n.demand[k], 0)
		if !n.mayAll(k) {
			for _, g := range n.may[k] {
				n.buildKindOf(v, g, p, cost)
			}
		} else {
			for g := range int32(n.kinds) {
				n.buildKindOf(v, g, p, cost)
			}
		}
		if costs && p == n.top {
			for i, tier := range n.need {
				n.missingArc = append(n.missingArc, n.edge(v, n.nodes.missing+int32(i), tier[k], 0))
			}
		}
	}
	if costs && n.top != None {
		for i, c := range n.missing {
			n.edge(n.nodes.missing+int32(i), sink, c, 0)
		}
	}
}

// buildKindOf adds the edge from a class, whose node is v, to a kind of the same part.
func (n *network) buildKindOf(v, g, part int32, cost int8) {
	if int(g) < n.kinds && n.part[len(n.want)+int(g)] == part && len(n.byKind.row(g)) > 0 {
		n.edge(v, n.nodes.kind+g, unbounded, cost)
	}
}

// buildWorkers adds the edges of the workers, and sums up the levels of those that have
// no node.
func (n *network) buildWorkers(costs bool) {
	n.kindLow, n.kindHigh = sized(n.kindLow, n.kinds), sized(n.kindHigh, n.kinds)
	n.restArc = sized(n.restArc, len(n.settled))
	n.newArc = sized(n.newArc, len(n.load))
	n.lowArc, n.highArc = sized(n.lowArc, len(n.load)), sized(n.highArc, len(n.load))
	n.heldArc = sized(n.heldArc, len(n.held.items))
	for w := range int32(len(n.load)) {
		p, g := n.partOf(w), n.kindOf(w)
		n.newArc[w], n.lowArc[w], n.highArc[w] = None, None, None
		v := n.nodes.worker + w
		switch {
		case n.settled[p] && !costs:
			continue
		case !costs && n.special[w] == None:
			n.kindLow[g] += int64(n.low[w])
			n.kindHigh[g] += int64(n.high[w])
			continue
		case !costs:
			v = n.nodes.worker + n.special[w]
		}
		for i := n.held.start[w]; i < n.held.start[w+1]; i++ {
			x := n.held.items[i]
			n.heldArc[i] = None
			if n.part[x.class] == p && n.want[x.class] > 0 {
				n.heldArc[i] = n.edge(n.nodes.class+x.class, v, x.copies, 0)
			}
		}
		if gain := n.gainOf(w); gain > 0 && n.part[len(n.want)+int(g)] == p {
			n.newArc[w] = n.edge(n.nodes.kind+g, v, gain, 0)
		}
		n.lowArc[w], n.highArc[w] = n.buildRoom(v, p, int64(n.low[w]), int64(n.high[w]))
	}
}

// buildKinds adds the edges from the kinds to the sink, for what goes to lower parts and
// to workers without a node.
func (n *network) buildKinds(costs bool) {
	for g := range int32(n.kinds) {
		if p := n.part[len(n.want)+int(g)]; costs || !n.settled[p] {
			out := int64(n.outflow[g])
			n.buildRoom(n.nodes.kind+g, p, n.kindLow[g]+out, n.kindHigh[g]+out)
		}
	}
}

// buildRoom adds the edges from a node of part p to the sink for low units, and to the
// rest of the part for those up to high. It returns them.
func (n *network) buildRoom(v, p int32, low, high int64) (lowArc, highArc int32) {
	lowArc, highArc = None, None
	if low > 0 {
		lowArc = n.edge(v, sink, int32(min(low, unbounded)), 0)
	}
	if high > low {
		highArc = n.edge(v, n.nodes.rest+p, int32(min(high-low, unbounded)), 0)
	}
	return lowArc, highArc
}

// chooseStarts finds the flow of least cost for the levels. It begins with what is held.
func (n *network) chooseStarts() {
	n.build(true)
	for w := range int32(len(n.load)) {
		n.hold(w)
	}
	most := n.most
	if most == 0 {
		most = networkWork
	}
	n.proven = n.fill(true, most)
	if n.proven {
		return
	}
	n.bound = 0
	for _, a := range n.arcs {
		n.bound += int(a.back) * int(max(0, a.cost))
	}
	for _, e := range n.supplyArc {
		if e != None {
			n.bound += int(n.room(e)) * n.distance
		}
	}
	n.fill(false, 0)
}

// hold sends along what w holds, as far as its level allows.
func (n *network) hold(w int32) {
	rest := n.restArc[n.partOf(w)]
	for i := n.held.start[w]; i < n.held.start[w+1]; i++ {
		e, supply := n.heldArc[i], n.supplyArc[n.held.items[i].class]
		if e == None || supply == None {
			continue
		}
		units := min(n.room(e), n.room(supply))
		if low := n.lowArc[w]; low != None {
			c := min(units, n.room(low))
			n.send(supply, c)
			n.send(e, c)
			n.send(low, c)
			units -= c
		}
		if high := n.highArc[w]; high != None && rest != None {
			c := min(units, n.room(high), n.room(rest))
			n.send(supply, c)
			n.send(e, c)
			n.send(high, c)
			n.send(rest, c)
		}
	}
}

// result reads count, unplaced and starts from the flow.
func (n *network) result() {
	n.deal()
	n.count.reset()
	n.starts = 0
	for w := range int32(len(n.load)) {
		fresh := n.fresh[n.dealt[w].begin:n.dealt[w].end]
		for i := n.held.start[w]; i < n.held.start[w+1]; i++ {
			x := n.held.items[i]
			for len(fresh) > 0 && fresh[0].class < x.class {
				n.count.add(fresh[0].class, fresh[0].copies)
				n.starts += int(fresh[0].copies)
				fresh = fresh[1:]
			}
			c := n.stays(w, i)
			if len(fresh) > 0 && fresh[0].class == x.class {
				c += fresh[0].copies
				fresh = fresh[1:]
			}
			if c > 0 {
				n.count.add(x.class, c)
				n.starts += int(max(0, c-x.copies))
			}
		}
		for _, x := range fresh {
			n.count.add(x.class, x.copies)
			n.starts += int(x.copies)
		}
		n.count.endWorker()
	}
	if n.proven {
		n.bound = n.starts
	}
	i := 0
	for k := range n.want {
		if n.top == None || n.supplyArc[k] == None || n.part[k] != n.top {
			continue
		}
		for range n.need {
			n.unplaced[k] += n.on(n.missingArc[i])
			i++
		}
	}
}

// stays returns how many copies of item i of held stay on worker w.
func (n *network) stays(w, i int32) int32 {
	if e := n.heldArc[i]; e != None {
		return n.on(e)
	}
	if x := n.held.items[i]; n.part[x.class] > n.partOf(w) && n.want[x.class] > 0 {
		return x.copies
	}
	return 0
}

// span is where some elements begin and end.
type span struct{ begin, end int32 }

// deal gives the new copies of each kind to its workers, to each worker about as many of
// each class.
func (n *network) deal() {
	n.fresh = n.fresh[:0]
	n.dealt = sized(n.dealt, len(n.load))
	for g := range int32(n.kinds) {
		pool := n.pool[:0]
		total := int64(0)
		v := n.nodes.kind + g
		for _, a := range n.arcs[n.first[v]:n.first[v+1]] {
			if a.to >= n.nodes.class && a.to < n.nodes.kind && a.room > 0 {
				pool = append(pool, classCopies{a.to - n.nodes.class, a.room})
				total += int64(a.room)
			}
		}
		n.pool = pool
		next := 0
		for _, w := range n.byKind.row(g) {
			c := int64(0)
			if e := n.newArc[w]; e != None {
				c = int64(n.on(e))
			} else if n.part[len(n.want)+int(g)] > n.partOf(w) {
				c = int64(n.gainOf(w))
			}
			if c == 0 {
				continue
			}
			begin := int32(len(n.fresh))
			left := c
			for _, x := range pool {
				part := int64(x.copies) * c / total
				n.fresh = append(n.fresh, classCopies{x.class, int32(part)})
				left -= part
			}
			own := n.fresh[begin:]
			for ; left > 0; next = (next + 1) % len(pool) {
				if own[next].copies < pool[next].copies {
					own[next].copies++
					left--
				}
			}
			end := begin
			for i, x := range own {
				pool[i].copies -= x.copies
				if x.copies > 0 {
					n.fresh[end] = x
					end++
				}
			}
			n.fresh = n.fresh[:end]
			n.dealt[w] = span{begin, end}
			total -= c
		}
	}
}
