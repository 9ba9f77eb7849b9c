package rebalance_test

// The slow reference: a min-cost flow over the whole graph of tasks and workers, by
// successive shortest paths. It shares neither code nor shortcuts with the planner.
// If the best plan is not promised, it measures how far a plan is from it.

import (
	"fmt"
	"math"
	"slices"
)

// arc is one direction of an edge. Arc i and arc i^1 are each other's reverse.
type arc struct {
	to, next int
	room     int
	cost     int64
}

// network is a directed graph with capacities and costs.
type network struct {
	first []int
	arcs  []arc
}

func newNetwork(nodes int) *network {
	n := &network{first: make([]int, nodes)}
	for i := range n.first {
		n.first[i] = -1
	}
	return n
}

// connect adds an edge and returns the number of its forward arc.
func (n *network) connect(from, to, room int, cost int64) {
	id := len(n.arcs)
	n.arcs = append(n.arcs,
		arc{to: to, next: n.first[from], room: room, cost: cost},
		arc{to: from, next: n.first[to], cost: -cost})
	n.first[from], n.first[to] = id, id+1
}

// run sends as much as possible from node 0 to node 1, along a cheapest path each time, and
// returns the flow and its cost.
func (n *network) run() (flow int, cost int64) {
	const source, sink = 0, 1
	distance := make([]int64, len(n.first))
	by := make([]int, len(n.first))
	queued := make([]bool, len(n.first))
	queue := make([]int, 0, len(n.first))
	for {
		for i := range distance {
			distance[i] = math.MaxInt64
		}
		distance[source] = 0
		queue = append(queue[:0], source)
		for head := 0; head < len(queue); head++ {
			v := queue[head]
			queued[v] = false
			for id := n.first[v]; id >= 0; id = n.arcs[id].next {
				a := &n.arcs[id]
				if d := distance[v] + a.cost; a.room > 0 && d < distance[a.to] {
					distance[a.to], by[a.to] = d, id
					if !queued[a.to] {
						queued[a.to] = true
						queue = append(queue, a.to)
					}
				}
			}
		}
		if distance[sink] == math.MaxInt64 {
			return flow, cost
		}
		units := math.MaxInt
		for v := sink; v != source; v = n.arcs[by[v]^1].to {
			units = min(units, n.arcs[by[v]].room)
		}
		for v := sink; v != source; v = n.arcs[by[v]^1].to {
			n.arcs[by[v]].room -= units
			n.arcs[by[v]^1].room += units
		}
		flow += units
		cost += int64(units) * distance[sink]
	}
}

// fewestAdds returns the least number of Adds with which the open workers can
// run copies[task] of each task with loads that differ by at most one, for a
// problem without forbidden pairs and pinned copies: ⌊n/w⌋ units of each worker go
// straight to the sink, and one node hands out the n mod w units that are left.
// It returns false if no such assignment exists.
func fewestAdds(r *reading, copies []int) (adds int, ok bool) {
	n := 0
	for _, c := range copies {
		n += c
	}
	if len(r.open) == 0 {
		return 0, n == 0
	}
	var (
		source, sink, extra = 0, 1, 2
		task                = func(t int) int { return 3 + t }
		worker              = func(i int) int { return 3 + r.tasks + i }
		g                   = newNetwork(3 + r.tasks + len(r.open))
	)
	for t, c := range copies {
		if c == 0 {
			continue
		}
		g.connect(source, task(t), c, 0)
		for i, w := range r.open {
			g.connect(task(t), worker(i), 1, addCost(r, w, t))
		}
	}
	for i := range r.open {
		g.connect(worker(i), sink, n/len(r.open), 0)
		g.connect(worker(i), extra, 1, 0)
	}
	g.connect(extra, sink, n%len(r.open), 0)
	flow, cost := g.run()
	return int(cost), flow == n
}

// optimum is what the best assignment reaches, in the order of importance.
type optimum struct {
	placed  int   // copies that have a place, the most
	depth   int64 // sum over these of reading.depth, the least: first copies first
	squares int64 // sum of squared loads, the least
	adds    int   // the fewest
}

// The costs of the tiers: one of a higher tier outweighs all of the lower ones
// in problems of up to 500 tasks and 60 workers.
const (
	squareCost = int64(1) << 16
	depthCost  = int64(1) << 42
)

// best returns the optimum for at most copies[task] of each task, on the open
// workers and, if quarantined is set, on the quarantined ones too, which may keep their
// tasks and gain up to MaxGain. Pinned copies that the plan keeps do not move.
func best(o *outcome, copies []int, quarantined bool) optimum {
	r := o.reading
	workers := append([]int(nil), r.open...)
	if quarantined {
		workers = append(workers, r.quarantined...)
	}
	var (
		source, sink = 0, 1
		task         = func(t int) int { return 2 + t }
		worker       = func(i int) int { return 2 + r.tasks + i }
		g            = newNetwork(2 + r.tasks + len(workers))
		fixed        = make([]int, len(workers))
		placed       = 0
		squares      = int64(0)
	)
	for t, c := range copies {
		first := 0 // copies that are pinned
		for i, w := range workers {
			if o.isFixed(w, t) {
				fixed[i]++
				first++
			}
		}
		placed += first
		for j := first; j < min(c, len(workers)); j++ {
			g.connect(source, task(t), 1, r.depth(t, j)*depthCost)
		}
		for i, w := range workers {
			switch {
			case c == first || o.isFixed(w, t):
			case r.mayRun(w, t):
				g.connect(task(t), worker(i), 1, addCost(r, w, t))
			}
		}
	}
	for i := range workers {
		squares += int64(fixed[i]) * int64(fixed[i])
		for j := fixed[i]; j < r.tasks; j++ {
			g.connect(worker(i), sink, 1, int64(2*j+1)*squareCost)
		}
	}
	flow, cost := g.run()
	return optimum{
		placed:  flow + placed,
		depth:   cost / depthCost,
		squares: cost%depthCost/squareCost + squares,
		adds:    int(cost % squareCost),
	}
}

// isFixed reports whether a worker keeps a pinned copy of a task.
func (o *outcome) isFixed(worker, task int) bool {
	return o.pinned[worker][task] && o.after[worker][task]
}

func addCost(r *reading, worker, task int) int64 {
	if r.held[worker][task] {
		return 0
	}
	return 1
}

// gap is the distance of a plan from the best one, if the best is not promised.
type gap struct {
	class   string // what restricts the problem; empty if the best is promised
	limited bool   // it was compared with the best
	apart   bool   // the copies or their spread differ from the best: overall is not known
	placed  int    // copies that could have had a place
	depth   int64  // by how much the ranks of the copies exceed the least
	squares int64  // by how much the sum of squared loads exceeds the least
	given   int    // Adds more than needed, with the copies of each task that the plan places
	overall int    // Adds more than needed, if all of the above are optimal
	adds    int
}

// The values of gap.class.
const (
	byQuarantined = "quarantined workers"
	byForbidden   = "forbidden pairs"
	byPinned      = "pinned copies"
	bySeveral     = "several of these"
)

var restrictions = []string{byQuarantined, byForbidden, byPinned, bySeveral}

// restriction returns what restricts a problem, empty if nothing does.
func (r *reading) restriction() string {
	class := ""
	for _, by := range []struct {
		is   bool
		name string
	}{{len(r.quarantined) > 0, byQuarantined}, {len(r.forbidden) > 0, byForbidden}, {r.isPinned && !r.plain(), byPinned}} {
		switch {
		case by.is && class == "":
			class = by.name
		case by.is:
			class = bySeveral
		}
	}
	return class
}

// distance compares with the reference if something restricts the plan.
func (o *outcome) distance() (g gap, err error) {
	g.class = o.restriction()
	if o.plain() && !o.isPinned || o.plan.Deferred > 0 {
		return g, nil
	}
	have := optimum{squares: o.squares(), adds: o.plan.Adds}
	for t := range o.target {
		n := o.onOpen[t] + o.onQuarantined[t]
		have.placed += n
		first := 0
		for _, w := range slices.Concat(o.open, o.quarantined) {
			if o.isFixed(w, t) {
				first++
			}
		}
		for j := first; j < n; j++ {
			have.depth += o.depth(t, j)
		}
	}
	closest := best(o, o.onOpen, false)
	if o.squares() < closest.squares {
		return gap{}, fmt.Errorf("P2: the reference is wrong: %d, at best %d", o.squares(), closest.squares)
	}
	others := slices.Clone(o.target)
	for t, waits := range o.waits {
		others[t] -= waits
	}
	ideal := best(o, others, true)
	g = gap{
		class: g.class, limited: true, apart: true, adds: have.adds,
		placed: ideal.placed - have.placed,
		depth:  have.depth - ideal.depth,
	}
	g.squares = have.squares - closest.squares
	if g.squares == 0 {
		g.given = have.adds - closest.adds
		if o.plan.LowerBound > closest.adds {
			return gap{}, fmt.Errorf("P8: lower bound %d, but %d adds are enough to the same end", o.plan.LowerBound, closest.adds)
		}
		if o.plain() && (g.given != 0 || o.plan.LowerBound != closest.adds) {
			return gap{}, fmt.Errorf("P3: %d adds, at least %d, where %d are enough", have.adds, o.plan.LowerBound, closest.adds)
		}
	}
	for _, w := range o.quarantined {
		have.squares += int64(o.loads[w]) * int64(o.loads[w])
	}
	if g.placed == 0 && g.depth == 0 && have.squares == ideal.squares {
		g.overall = have.adds - ideal.adds
		g.apart = false
		if g.overall < 0 {
			return gap{}, fmt.Errorf("P3: the reference is wrong: %d adds, at best %d", have.adds, ideal.adds)
		}
	}
	return g, g.accept()
}

// The gaps that are accepted, measured over millions of problems. Of Adds, one
// in ten may be more than needed on top.
const (
	acceptPlaced  = 0
	acceptDepth   = 0
	acceptSquares = 0
	acceptGiven   = 12
	acceptOverall = 25
)

func (g gap) accept() error {
	switch {
	case g.placed > acceptPlaced:
		return fmt.Errorf("P1: %d more copies could have a place", g.placed)
	case g.depth > acceptDepth:
		return fmt.Errorf("P1: first copies do not come first: %d deeper than needed", g.depth)
	case g.squares > acceptSquares:
		return fmt.Errorf("P2: the sum of squared loads could be less by %d", g.squares)
	case g.given > acceptGiven+g.adds/10 || g.overall > acceptOverall+g.adds/10:
		return fmt.Errorf("P3: %d adds, %d less are enough with the same copies, %d less with the best", g.adds, g.given, g.overall)
	}
	return nil
}

// tally sums up the gaps of many problems of one class.
type tally struct {
	problems int
	measured int // those whose distance from the best is known
	adds     int // in these
	beyond   int // adds more than needed, in these
	worst    int // the most of them in one problem
}

func (t *tally) add(g gap) {
	t.problems++
	if g.limited && !g.apart {
		t.measured++
		t.adds += g.adds
		t.beyond += g.overall
		t.worst = max(t.worst, g.overall)
	}
}
