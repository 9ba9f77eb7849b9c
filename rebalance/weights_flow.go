package rebalance

// The maximum flow of classes to kinds that divides the workers into pools of equal level.

import "slices"

// kindFlow is a maximum flow of classes to kinds, by blocking flows in layers.
type kindFlow struct {
	arcs   []kindArc
	from   [][]int32 // by class of the part: its arcs
	into   [][]int32 // by kind of the part: its arcs
	supply []int64   // by class
	room   []int64   // by kind
	depth  []int32   // by class, then by kind; 0 is unreached
	next   []int32   // like depth: the arc to try next
	queue  []int32
}

type kindArc struct {
	class, kind int32
	flow        int64
}

// split sends the demand of a part to its kinds. If they have no room for all at that
// level, it returns the classes and kinds that exceed the level, and the others.
func (f *kindFlow) split(l *weightLevels, p weightPart, level ratio) (over, rest weightPart, ok bool) {
	f.build(l, p, level)
	for f.reach() {
		clear(f.next)
		for c := range p.classes {
			for sent := int64(1); sent > 0 && f.supply[c] > 0; {
				sent = f.push(int32(c), f.supply[c])
			}
		}
	}
	if !slices.ContainsFunc(f.supply, func(left int64) bool { return left > 0 }) {
		return over, rest, false
	}
	for c, class := range p.classes {
		if f.depth[c] > 0 {
			over.classes = append(over.classes, class)
		} else {
			rest.classes = append(rest.classes, class)
		}
	}
	for k, kind := range p.kinds {
		if f.depth[len(p.classes)+k] > 0 {
			over.kinds = append(over.kinds, kind)
		} else {
			rest.kinds = append(rest.kinds, kind)
		}
	}
	return over, rest, len(rest.kinds) > 0 && len(over.kinds) > 0
}

func (f *kindFlow) build(l *weightLevels, p weightPart, level ratio) {
	f.arcs = f.arcs[:0]
	f.from, f.into = emptyLists(f.from, len(p.classes)), emptyLists(f.into, len(p.kinds))
	f.supply, f.room = f.supply[:0], f.room[:0]
	position := make([]int32, l.kinds)
	for i, k := range p.kinds {
		position[k] = int32(i) + 1
		f.room = append(f.room, l.room(k, level))
	}
	for c, class := range p.classes {
		f.supply = append(f.supply, l.rest[class])
		l.kindsOf(class, func(k int32) {
			if i := position[k]; i > 0 {
				f.from[c] = append(f.from[c], int32(len(f.arcs)))
				f.into[i-1] = append(f.into[i-1], int32(len(f.arcs)))
				f.arcs = append(f.arcs, kindArc{class: int32(c), kind: i - 1})
			}
		})
	}
	f.next = sized(f.next, len(p.classes)+len(p.kinds))
}

// emptyLists returns n empty lists, and reuses their memory.
func emptyLists(s [][]int32, n int) [][]int32 {
	s = slices.Grow(s[:0], n)[:n]
	for i := range s {
		s[i] = s[i][:0]
	}
	return s
}

// reach finds the nodes that classes with supply reach, in layers. It reports whether a
// kind with room is among them.
func (f *kindFlow) reach() bool {
	classes := int32(len(f.supply))
	f.depth = sized(f.depth, len(f.supply)+len(f.room))
	f.queue = f.queue[:0]
	for c, left := range f.supply {
		if left > 0 {
			f.depth[c] = 1
			f.queue = append(f.queue, int32(c))
		}
	}
	found := false
	for i := 0; i < len(f.queue); i++ {
		n := f.queue[i]
		visit := func(to int32) {
			if f.depth[to] == 0 {
				f.depth[to] = f.depth[n] + 1
				f.queue = append(f.queue, to)
			}
		}
		if n < classes {
			for _, a := range f.from[n] {
				visit(classes + f.arcs[a].kind)
			}
			continue
		}
		found = found || f.room[n-classes] > 0
		for _, a := range f.into[n-classes] {
			if f.arcs[a].flow > 0 {
				visit(f.arcs[a].class)
			}
		}
	}
	return found
}

// push sends at most some units from a node down the layers, and returns how many.
func (f *kindFlow) push(n int32, most int64) int64 {
	classes := int32(len(f.supply))
	if n >= classes {
		if sent := min(most, f.room[n-classes]); sent > 0 {
			f.room[n-classes] -= sent
			return sent
		}
	}
	arcs := f.from
	at := n
	if n >= classes {
		arcs, at = f.into, n-classes
	}
	for ; int(f.next[n]) < len(arcs[at]); f.next[n]++ {
		a := &f.arcs[arcs[at][f.next[n]]]
		to, room := classes+a.kind, most
		if n >= classes {
			to, room = a.class, min(most, a.flow)
		}
		if room == 0 || f.depth[to] != f.depth[n]+1 {
			continue
		}
		sent := f.push(to, room)
		if sent == 0 {
			continue
		}
		if n < classes {
			a.flow += sent
			if f.depth[n] == 1 {
				f.supply[n] -= sent
			}
		} else {
			a.flow -= sent
		}
		return sent
	}
	return 0
}
