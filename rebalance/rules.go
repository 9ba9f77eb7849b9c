package rebalance

// The ruled path of the planner: labels, zones, shares, limits and weights. It is used only
// if such a rule binds.

import (
	"math"
	"slices"
)

// rules plans problems in which a rule binds. Its safety does not depend on the steps that
// choose: every start and move passes one gate, canGain.
//
// A copy that must leave its worker, because the worker drains or a rule forbids it, is
// placed like a missing one, and stops when it has its place. Otherwise it stays.
type rules struct {
	*draft
	assembly  *assembly
	network   network
	quotas    zoneQuotas
	searching pathSearch
	budget    moveBudget
	weights   weightRules
	steadiness

	labels, zoned, limits bool // which rules bind
	defaultCaps           bool // for some task
	byZone                bool // each zone is a part: zones bind, and weights do not differ

	zones     int     // how many there are
	inZone    []int32 // by task and zone, if zones bind: copies, as planned, on all workers
	gain      []int32 // by worker: how many more copies it may gain
	loads     []int32 // by worker: before the plan
	leaving   []leaving
	leavingOf []int32         // by position: the latest of leaving, plus one
	away      []int32         // by task: copies in leaving
	firstOf   []int32         // by task: copies that stay
	elsewhere map[int32]int32 // by task: of these, pinned ones where the task may not start
	places    []place         // copies to place
	stopping  []Change        // memory
	asked     []answer        // by class

	// Of one part.
	workers []int32 // those that take part
	more    []int32 // by class: copies to hand over, or to take
	pool    []item  // copies that need a worker, by class
	poolAt  []int32 // by class: where its copies begin in pool; one more at the end
	inexact bool    // some counts of the network could not be realized
	rest    []item  // copies that have no place yet

	zonedPlaces []place
	zoneLimits  []int32
	goals       []int32    // by class and zone: copies
	zoneRows    [3][]int32 // of fixed, pinned and extra, which may be nil
	kinds       [2][]int32 // by kind and zone: workers, and those that may gain copies
	room        []int32
	beyondCaps  bool // a copy has no place within the default caps, so that none counts
	seenClasses []int32
	dealt       []int32 // by place in pool: the change that deal has made of it, plus one
	next        []int32

	// The classes of the network: those of the problem, and one for each task with surplus
	// copies.
	class, ownClass []int32
	may, ownMay     [][]int32

	width    []int32 // by class: the workers that may run it
	staysAt  []Unplaced
	stays    []int32   // by worker: copies that should leave, and that no worker may run
	hopeless []pending // missing copies beyond that
	over     []pending // tasks with surplus copies
	found    set
	holders  []holder
}

// answer is whether workers of a kind may run a class.
type answer struct {
	kind int32 // plus one
	may  bool
}

// leaving is a copy that leaves its worker if it has another place.
type leaving struct {
	task, worker, position int32
	why                    Reason
	stuck                  bool  // it stays, and its room is reserved
	placed                 bool  // it moves
	change                 int32 // that moves it
}

// place is a number of copies of a task that need a place.
type place struct {
	task, copies int32
	part         int32 // the zone, if zones bind
	tier         int32 // the lower, the more urgent; see tiers
	leaving      int32 // the place of the copy in rules.leaving, None for a missing one
}

// The tiers of copies, in the order of P9.
const (
	tierFirst   = iota // copies that stay, and missing first ones
	tierFurther        // further missing ones
	tierDrain          // copies on draining workers
	tierEvict          // copies that a rule evicts
	tiers
)

// bind reports whether a rule binds. O(1) if none is set.
func (r *rules) bind() bool {
	r.labels = r.labelsBind()
	r.limits = slices.ContainsFunc(r.MaxTasks, func(n int32) bool { return n != 0 && int(n) < len(r.Want) })
	r.zoned, r.zones, r.defaultCaps = false, 1, false
	r.forgetLists()
	if r.May == nil {
		r.Class = nil
	}
	for _, z := range r.Zone {
		r.zones = max(r.zones, int(z)+1)
	}
	wants := r.Want
	if r.zones == 1 && r.MaxPerZone == nil {
		wants = nil // a pass over all tasks would cost a third of a steady term
	}
	for t, want := range wants {
		if want == 0 {
			continue
		}
		most := r.maxPerZone(int32(t))
		r.defaultCaps = r.defaultCaps || want > 1 && most == 0 && r.zones > 1
		r.zoned = r.zoned || r.defaultCaps || most > 0 && (most < want || r.has[Frozen]) // silent workers may hold further copies
		if r.defaultCaps {
			break
		}
	}
	weighted := r.bindWeights()
	r.byZone = r.zoned && !weighted
	return weighted || r.labels || r.limits || r.zoned || differ(r.Share)
}

// labelsBind reports whether some class may not run on workers of some kind.
func (r *rules) labelsBind() bool {
	if len(r.May) == 0 || r.Class == nil && r.May[0] == nil {
		return false
	}
	most := int32(0)
	for _, kind := range r.Kind {
		most = max(most, kind)
	}
	kinds, n := r.found.emptied(int(most)+1), 0 // of workers
	r.found = kinds
	for w := range r.States {
		if kind := r.kindOf(int32(w)); !kinds.has(kind) {
			kinds.add(kind)
			n++
		}
	}
	return slices.ContainsFunc(r.May, func(may []int32) bool {
		if may == nil {
			return false
		}
		admitted := 0
		for i, kind := range may {
			if kind <= most && kinds.has(kind) && (i == 0 || may[i-1] != kind) {
				admitted++
			}
		}
		return admitted < n
	})
}

func differ(shares []int32) bool {
	return slices.ContainsFunc(shares, func(n int32) bool { return n != shares[0] })
}

// maxPerZone returns the rule of t: 0 is the default, and a negative number none.
func (r *rules) maxPerZone(t int32) int32 {
	if r.MaxPerZone == nil {
		return 0
	}
	return r.MaxPerZone[t]
}

func (d *draft) classOf(t int32) int32 {
	if d.Class == nil {
		return 0
	}
	return d.Class[t]
}

func (d *draft) kindOf(w int32) int32 {
	if d.Kind == nil {
		return 0
	}
	return d.Kind[w]
}

func (r *rules) zoneOf(w int32) int32 {
	if r.Zone == nil {
		return 0
	}
	return r.Zone[w]
}

func (d *draft) shareOf(w int32) int32 {
	if d.Share == nil {
		return 1
	}
	return d.Share[w]
}

// most returns how many copies w may run.
func (r *rules) most(w int32) int32 {
	if r.MaxTasks == nil || r.MaxTasks[w] == 0 {
		return math.MaxInt32
	}
	return max(0, r.MaxTasks[w])
}

// canGain reports whether w may gain a copy of t, which it does not run, and has room for it.
// from is the worker that gives the copy up, or None.
func (r *rules) canGain(t, w, from int32) bool {
	return r.gain[w] > 0 && r.load[w] < r.most(w) && r.passes(t, w, from)
}

// passes reports whether no rule of the task, and no forbidden pair, keeps a copy of t off w.
func (r *rules) passes(t, w, from int32) bool {
	return r.mayKeep(t, w, from) && !slices.Contains(r.forbid.row(w), t)
}

// mayKeep is passes for a copy that w has: a forbidden pair does not bind it.
func (r *rules) mayKeep(t, w, from int32) bool {
	if !r.mayRun(t, r.kindOf(w)) {
		return false
	}
	if !r.zoned {
		return true
	}
	z := r.zoneOf(w)
	n := r.inZone[int(t)*r.zones+int(z)]
	if from != None && r.zoneOf(from) == z {
		n--
	}
	return n < r.capOf(t, z)
}

// inItsZone counts n copies more of t in the zone of w.
func (r *rules) inItsZone(t, w, n int32) {
	if r.zoned {
		r.inZone[int(t)*r.zones+int(r.zoneOf(w))] += n
	}
}

// runs reports whether w runs t as planned. A copy that leaves w still counts.
func (r *rules) runs(t, w int32) bool {
	if at := r.positionOf(t, w); at != None && (r.flags[at].runs() || r.flags[at] == leaves) {
		return true
	}
	for i := r.addHead[w]; i > 0; i = r.adds[i-1].next {
		if c := &r.changes[i-1]; c.To == w && c.Task == t {
			return true
		}
	}
	return false
}

// markRunning marks the tasks that w runs as planned. A copy that leaves w still counts.
func (r *rules) markRunning(w int32) uint32 {
	round, list := r.mark(), r.Running[w]
	for k, flag := range r.flags[r.offset[w]:][:len(list)] {
		if flag.runs() || flag == leaves {
			r.marks[list[k]] = round
		}
	}
	for i := r.addHead[w]; i > 0; i = r.adds[i-1].next {
		if c := &r.changes[i-1]; c.To == w {
			r.marks[c.Task] = round
		}
	}
	return round
}
