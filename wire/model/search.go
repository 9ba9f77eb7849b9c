package model

import (
	"hash/maphash"
	"slices"
	"sync"
)

// result is the outcome of a search.
type result struct {
	states   int
	steps    int      // of the shortest way to the finding; without one, of the longest shortest way
	finding  finding  // none if the configuration holds
	complete bool     // false if the search ended at its limit of states
	path     []uint64 // hashes of the states on the way to the finding
	seed     maphash.Seed
}

// finding is what a search found.
type finding string

const (
	none       finding = ""
	runsTwice  finding = "a task runs twice"
	tokenFalls finding = "a token does not rise"
	neverRuns  finding = "something never comes to run"
)

// graph is the part of the state space that is known. A state is a number: the order
// in which it was found, and so breadth first.
type graph struct {
	*config
	seed     maphash.Seed
	ids      map[uint64]uint32 // by the hash of the canonical state
	hashes   []uint64
	parents  []uint32
	good     []bool   // liveness only, as are the edges
	from, to []uint32 // steps that are no faults
}

// found is a successor on its way into the graph.
type found struct {
	hash  uint64
	state state
	from  uint32
	id    uint32 // if it is known
	known bool
	fault bool
	bad   finding
}

// block is the number of states that one goroutine expands before the results of all
// are added to the graph.
const block = 1024

// search explores all states of c, breadth first, until one is bad or more than limit
// are known. Up to limit states no result depends on the number of goroutines.
func search(c *config, goroutines, limit int) result {
	g := &graph{config: c, seed: maphash.MakeSeed(), ids: map[uint64]uint32{}}
	start := state{confirmed: 1}
	g.learn(found{hash: maphash.Comparable(g.seed, start)})
	workers := make([]worker, goroutines)
	for w := range workers {
		workers[w] = worker{graph: g, moves: moves{config: c}}
	}
	depth := 0
	for level := []state{start}; len(level) > 0; depth++ {
		first := len(g.hashes) - len(level)
		var next []state
		for at := 0; at < len(level); at += goroutines * block {
			g.expand(workers, level, first, at)
			for w := range workers {
				for i := range workers[w].found {
					f := &workers[w].found[i]
					if f.bad != none {
						path := append(g.path(f.from), f.hash)
						return result{states: len(g.hashes), steps: depth + 1, finding: f.bad, complete: true, path: path, seed: g.seed}
					}
					if g.learn(*f) {
						next = append(next, f.state)
					}
				}
			}
			if len(g.hashes) > limit {
				return result{states: len(g.hashes), steps: depth}
			}
		}
		level = next
	}
	r := result{states: len(g.hashes), steps: depth - 1, complete: true, seed: g.seed}
	if c.has(liveness) {
		if id, ok := g.stuck(); ok {
			r.finding, r.path = neverRuns, g.path(id)
			r.steps = len(r.path) - 1
		}
	}
	return r
}

// worker expands states in a goroutine. It only reads the graph.
type worker struct {
	*graph
	moves moves
	found []found
	first int
	goods []bool
}

// expand finds the successors of the states of a level from at on, a block for each worker.
func (g *graph) expand(workers []worker, level []state, first, at int) {
	var group sync.WaitGroup
	for w := range workers {
		from := min(at+w*block, len(level))
		part := level[from:min(from+block, len(level))]
		x := &workers[w]
		x.found, x.goods = x.found[:0], x.goods[:0]
		if len(workers) == 1 {
			x.expand(part, first+from)
			continue
		}
		group.Go(func() { x.expand(part, first+from) })
	}
	group.Wait()
	for w := range workers {
		g.good = append(g.good, workers[w].goods...)
	}
}

func (w *worker) expand(part []state, first int) {
	for i := range part {
		if w.has(liveness) {
			w.goods = append(w.goods, w.settled(&part[i]))
		}
		list := w.moves.steps(&part[i])
		for j := range list {
			to := &list[j].to
			bad := w.judge(to)
			w.canonical(to)
			f := found{hash: maphash.Comparable(w.seed, *to), from: uint32(first + i), fault: list[j].fault, bad: bad}
			if f.id, f.known = w.ids[f.hash]; f.known && bad == none && (f.fault || !w.has(liveness)) {
				continue
			}
			f.state = *to
			w.found = append(w.found, f)
		}
	}
}

// learn adds a state and the step to it, and reports whether the state is new.
func (g *graph) learn(f found) bool {
	if !f.known {
		f.id, f.known = g.ids[f.hash] // another worker or an earlier state has found it
	}
	fresh := !f.known
	if fresh {
		f.id = uint32(len(g.hashes))
		g.ids[f.hash] = f.id
		g.hashes, g.parents = append(g.hashes, f.hash), append(g.parents, f.from)
	}
	if g.has(liveness) && !f.fault && f.id != f.from {
		g.from, g.to = append(g.from, f.from), append(g.to, f.id)
	}
	return fresh
}

// path returns the hashes of the states on the shortest way to a state.
func (g *graph) path(id uint32) []uint64 {
	path := []uint64{g.hashes[id]}
	for id != 0 {
		id = g.parents[id]
		path = append(path, g.hashes[id])
	}
	slices.Reverse(path)
	return path
}

// judge returns what is wrong with a state.
func (c *config) judge(s *state) finding {
	if s.tokenFell != 0 {
		return tokenFalls
	}
	for t := range c.tasks {
		n := 0
		for i := range c.ids {
			n += int(s.members[i].running >> t & 1)
		}
		if n > c.instances+c.surplus {
			return runsTwice
		}
	}
	return none
}

// stuck returns the first state from which no good one can be reached without faults.
func (g *graph) stuck() (uint32, bool) {
	n := len(g.hashes)
	count := make([]uint32, n+1) // edges to each state, then where they begin in back
	for _, to := range g.to {
		count[to+1]++
	}
	for i := range n {
		count[i+1] += count[i]
	}
	back, next := make([]uint32, len(g.to)), slices.Clone(count)
	for e, to := range g.to {
		back[next[to]] = g.from[e]
		next[to]++
	}
	var queue []uint32
	for id, good := range g.good {
		if good {
			queue = append(queue, uint32(id))
		}
	}
	reached := g.good
	for len(queue) > 0 {
		id := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, from := range back[count[id]:count[id+1]] {
			if !reached[from] {
				reached[from] = true
				queue = append(queue, from)
			}
		}
	}
	id := slices.Index(reached, false)
	return uint32(id), id >= 0
}

// settled reports whether everything runs as wanted and is under control, or a bound of
// the configuration ends the run here.
func (c *config) settled(s *state) bool {
	for i := range c.ids {
		if s.copied != 0 && s.members[i].phase == ended {
			return true // the saved copy keeps its ID
		}
	}
	if !c.led(s) {
		for k := int(s.epoch); k < c.leaders; k++ {
			if s.leaders[k].phase == waiting {
				return false
			}
		}
		return true // no epoch is left
	}
	k := int(s.epoch - 1)
	if int(s.leaders[k].batches) >= c.batches+extraBatches {
		return true
	}
	members := 0
	var running [maxTasks]int
	for i := range c.ids {
		x := &s.members[i]
		switch {
		case x.phase == serving && c.quiet(x, k):
		case x.phase == serving || x.has(recorded) || x.alive():
			return false
		default:
			continue
		}
		members++
		for t := range c.tasks {
			running[t] += int(x.running >> t & 1)
		}
	}
	for t := range c.tasks {
		if running[t] != c.instances {
			return false
		}
	}
	return members == c.processes
}

// quiet reports whether a member runs what it is ordered to run, and table and leader
// know it.
func (c *config) quiet(x *member, k int) bool {
	read := x.order.version == 0 || x.accepted.version >= x.order.version && x.order.tasks == x.accepted.tasks
	return x.has(recorded) && read && x.running == x.accepted.tasks&^x.refusing &&
		x.report.applied == x.accepted.version && x.report.also == c.present(x).also &&
		x.intents[k].pending.order.version == 0
}
