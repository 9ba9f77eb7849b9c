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
	complete bool     // false if there are more than maxStates
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

// graph is the part of the state space that is known. A state is a number, in the order
// in which the search finds it.
type graph struct {
	*config
	seed     maphash.Seed
	ids      map[uint64]uint32 // by the hash of the canonical state
	hashes   []uint64
	parents  []uint32
	good     []bool   // of expanded states, for liveness
	from, to []uint32 // steps that are no faults, for liveness
}

// found is a successor of the state from.
type found struct {
	hash  uint64
	from  uint32
	fault bool
	bad   finding
	state state
}

// block is the number of states that a goroutine expands at a time.
const block = 1024

// maxStates is the number of states after which a search ends without a result.
const maxStates = 100_000_000

// search explores all states of c, breadth first, until one is bad. No result depends on
// the number of goroutines. They expand parts of a level, and only read the graph; what
// they found is added afterwards, in the order of the level.
func search(c *config, goroutines int) result {
	g := &graph{config: c, seed: maphash.MakeSeed(), ids: map[uint64]uint32{}}
	start := state{confirmed: 1}
	g.learn(&found{hash: maphash.Comparable(g.seed, start), fault: true})
	workers := make([]worker, goroutines)
	for w := range workers {
		workers[w] = worker{graph: g, moves: moves{config: c}}
	}
	depth := 0
	for level := []state{start}; len(level) > 0; depth++ {
		id := uint32(len(g.hashes) - len(level))
		var next []state
		for len(level) > 0 {
			var group sync.WaitGroup
			for w := range workers {
				part := level[:min(block, len(level))]
				first := id
				group.Go(func() { workers[w].expand(part, first) })
				level, id = level[len(part):], id+uint32(len(part))
			}
			group.Wait()
			for w := range workers {
				g.good = append(g.good, workers[w].good...)
				for i := range workers[w].found {
					f := &workers[w].found[i]
					if f.bad != none {
						return result{len(g.hashes), depth + 1, f.bad, true, append(g.path(f.from), f.hash), g.seed}
					}
					if g.learn(f) {
						next = append(next, f.state)
					}
				}
			}
			if len(g.hashes) > maxStates {
				return result{states: len(g.hashes), steps: depth}
			}
		}
		level = next
	}
	r := result{states: len(g.hashes), steps: depth - 1, complete: true, seed: g.seed}
	if id, ok := g.stuck(); ok {
		r.finding, r.path = neverRuns, g.path(id)
		r.steps = len(r.path) - 1
	}
	return r
}

// worker expands states in a goroutine. It only reads the graph.
type worker struct {
	*graph
	moves moves
	found []found
	good  []bool
}

// expand finds the successors of a part of a level; first is the number of its first state.
func (w *worker) expand(part []state, first uint32) {
	w.found, w.good = w.found[:0], w.good[:0]
	for i := range part {
		if w.has(liveness) {
			w.good = append(w.good, w.settled(&part[i]))
		}
		for _, move := range w.moves.steps(&part[i]) {
			bad := w.judge(&move.to)
			w.canonical(&move.to)
			hash := maphash.Comparable(w.seed, move.to)
			if _, known := w.ids[hash]; !known || bad != none || w.has(liveness) && !move.fault {
				w.found = append(w.found, found{hash, first + uint32(i), move.fault, bad, move.to})
			}
		}
	}
}

// learn adds a step and its state, and reports whether the state is new.
func (g *graph) learn(f *found) bool {
	id, known := g.ids[f.hash]
	if !known {
		id = uint32(len(g.hashes))
		g.ids[f.hash] = id
		g.hashes, g.parents = append(g.hashes, f.hash), append(g.parents, f.from)
	}
	if g.has(liveness) && !f.fault {
		g.from, g.to = append(g.from, f.from), append(g.to, id)
	}
	return !known
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
		if c.running(s, t) > c.instances+c.surplus {
			return runsTwice
		}
	}
	return none
}

// running counts the members that run a task.
func (c *config) running(s *state, task int) int {
	n := 0
	for i := range c.ids {
		n += int(s.members[i].running >> task & 1)
	}
	return n
}

// stuck returns the first state from which no good state can be reached without faults. It
// returns false if each state can reach one, or if the configuration does not ask.
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
	}
	for t := range c.tasks {
		if c.running(s, t) != c.instances {
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
