package rebalance_test

// The slow reference: a minimum-cost flow from the tasks by way of the zones to the workers. It
// chooses all of them together, by every rule but weights. It shares neither code nor shortcuts
// with the planner.

import (
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator/rebalance"
)

// The tiers of a price, in the order of P9.
const (
	tierPinned = iota // pinned copies that stop
	tierPlaced        // wanted copies that do not run
	tierFirst         // further copies that run instead of first ones
	tierDrain         // copies on draining workers
	tierRule          // copies that a rule forbids where they run
	tierEven          // the sum of load²/share
	tierStart         // copies that start
	tiers
)

// price is what a placement costs. The first tier that differs decides.
type price [tiers]int64

func at(tier int, n int64) (p price) {
	p[tier] = n
	return p
}

func (p price) plus(q price) price {
	for i := range p {
		p[i] += q[i]
	}
	return p
}

func (p price) minus(q price) price {
	for i := range p {
		p[i] -= q[i]
	}
	return p
}

func (p price) less(q price) bool {
	i := p.differs(q)
	return i < tiers && p[i] < q[i]
}

// differs returns the first tier that differs, or tiers.
func (p price) differs(q price) int {
	for i := range p {
		if p[i] != q[i] {
			return i
		}
	}
	return tiers
}

const source, sink = 0, 1

// wholeShare is a multiple of all shares in the tests.
const wholeShare = 12

// arc is one direction of an edge. Arc i and arc i^1 are each other's reverse.
type arc struct {
	to, next, room int
	price          price
}

// network is a directed graph with capacities and prices. It has no cycle at the start.
type network struct {
	first    []int
	arcs     []arc
	distance []price // by node: the price of a cheapest path to it
	last     []int   // by node: the last arc of that path
	isSeen   []bool  // by node: it has no cheapest path that is open, or is on the present one
}

func newNetwork(nodes int) *network {
	return &network{
		first:    slices.Repeat([]int{-1}, nodes),
		distance: make([]price, nodes), last: make([]int, nodes), isSeen: make([]bool, nodes),
	}
}

// connect adds an edge and returns the number of its forward arc.
func (n *network) connect(from, to, room int, p price) int {
	id := len(n.arcs)
	n.arcs = append(n.arcs,
		arc{to: to, next: n.first[from], room: max(0, room), price: p},
		arc{to: from, next: n.first[to], price: price{}.minus(p)})
	n.first[from], n.first[to] = id, id+1
	return id
}

// run sends units from the source to the sink along cheapest paths, for as long as the price is
// below zero. It returns the price of all.
func (n *network) run() (total price) {
	for n.measure() && n.distance[sink].less(price{}) {
		total = total.plus(n.distance[sink])
		for v := sink; v != source; { // push may miss it where paths without a price make a circle
			id := n.last[v]
			n.arcs[id].room--
			n.arcs[id^1].room++
			v = n.arcs[id^1].to
		}
		for n.push(source) {
			total = total.plus(n.distance[sink])
		}
	}
	return total
}

// measure finds the cheapest paths, and reports whether there is one to the sink.
func (n *network) measure() bool {
	isReached, isQueued := make([]bool, len(n.first)), make([]bool, len(n.first))
	isReached[source] = true
	queue := []int{source}
	for head := 0; head < len(queue); head++ {
		v := queue[head]
		isQueued[v] = false
		for id := n.first[v]; id >= 0; id = n.arcs[id].next {
			a := &n.arcs[id]
			if a.room == 0 || a.to == source {
				continue
			}
			if d := n.distance[v].plus(a.price); !isReached[a.to] || d.less(n.distance[a.to]) {
				n.distance[a.to], isReached[a.to], n.last[a.to] = d, true, id
				if !isQueued[a.to] {
					isQueued[a.to] = true
					queue = append(queue, a.to)
				}
			}
		}
	}
	for v, is := range isReached {
		n.isSeen[v] = !is
	}
	return isReached[sink]
}

// push sends one unit from v to the sink along a cheapest path. It marks the nodes without one.
func (n *network) push(v int) bool {
	if v == sink {
		return true
	}
	n.isSeen[v] = true
	for id := n.first[v]; id >= 0; id = n.arcs[id].next {
		a := &n.arcs[id]
		if a.room > 0 && !n.isSeen[a.to] && n.distance[v].plus(a.price) == n.distance[a.to] && n.push(a.to) {
			a.room--
			n.arcs[id^1].room++
			n.isSeen[v] = false
			return true
		}
	}
	return false
}

// joint returns a placement of the least price, by worker and task. It reports false if that has
// a start on a worker or in a zone where more run than the rules allow, because no plan has that.
func (r *ruled) joint() (after [][]bool, ok bool) {
	zone := 2 + r.tasks
	worker := zone + r.tasks*r.zones
	g := newNetwork(worker + r.workers)
	arcs := make([][]int, r.workers) // by worker and task
	for w := range arcs {
		arcs[w] = slices.Repeat([]int{-1}, r.tasks)
	}
	for t, target := range r.target {
		for j := range min(target, r.workers) {
			g.connect(source, 2+t, 1, r.runs(t, j))
		}
		for z := range r.zones {
			node := zone + t*r.zones + z
			free, more := r.room(t, z)
			g.connect(2+t, node, free, price{})
			g.connect(2+t, node, more, at(tierRule, 1))
		}
		for w := range r.workers {
			if p, may := r.copyOn(w, t); may && target > 0 {
				arcs[w][t] = g.connect(zone+t*r.zones+r.zone(w), worker+w, 1, p)
			}
		}
	}
	for w, s := range r.pr.States {
		for l := range r.tasks {
			p := price{}
			if s != rebalance.Draining {
				p = at(tierEven, int64(2*l+1)*wholeShare/int64(r.share(w)))
				if l >= r.limit(w) {
					p[tierRule]++
				}
				if l >= max(r.limit(w), count(r.held[w])) {
					break
				}
			}
			g.connect(worker+w, sink, 1, p)
		}
	}
	total := g.run()
	after = make([][]bool, r.workers)
	for w := range after {
		after[w] = make([]bool, r.tasks)
		for t, id := range arcs[w] {
			after[w][t] = r.held[w][t] && r.pr.States[w] == rebalance.Frozen || id >= 0 && g.arcs[id].room == 0
		}
	}
	if p := r.price(after); p != total {
		panic(fmt.Sprintf("the flow costs %v, its placement %v", total, p))
	}
	return after, r.mayStart(after)
}

// runs returns the price of copy j of a task, counted from 0: copies that run now come before all
// that start (P4), and first copies before further ones.
func (r *ruled) runs(t, j int) price {
	p := at(tierPlaced, -1)
	switch {
	case j < min(int(r.pr.Want[t]), r.answering[t]):
	case r.frozen[t]+j == 0:
		p[tierFirst] = 1
	default:
		p[tierFirst] = 2
	}
	return p
}

// room returns how many copies of t a zone may run besides those on frozen workers, and how many
// more it may run against the rule: none but those that run there, if the cap is a rule of the
// user. A default cap leaves no copy without a place.
func (r *ruled) room(t, z int) (free, more int) {
	most, isRule := r.capOf(t)
	held := 0
	for w, s := range r.pr.States {
		if r.zone(w) == z && r.held[w][t] {
			if s == rebalance.Frozen {
				most--
			} else {
				held++
			}
		}
	}
	free = min(r.workers, max(0, most))
	if isRule {
		return free, held - free
	}
	return free, r.workers
}

// copyOn returns the price of a copy of t on w, and whether it may run there.
func (r *ruled) copyOn(w, t int) (p price, may bool) {
	if !r.held[w][t] {
		pair := rebalance.Pair{Task: int32(t), Worker: int32(w)}
		return at(tierStart, 1), r.pr.States[w] == rebalance.Open && r.admits(w, t) && !r.forbidden[pair]
	}
	if r.pinned[w][t] {
		p[tierPinned]--
	}
	switch {
	case r.pr.States[w] == rebalance.Draining:
		p[tierDrain]++
	case !r.admits(w, t):
		p[tierRule]++
	}
	return p, r.pr.States[w] != rebalance.Frozen
}

// price returns the price of a placement.
func (r *ruled) price(after [][]bool) (p price) {
	for t := range r.tasks {
		n := 0
		for z := range r.zones {
			inZone := 0
			for w := range r.workers {
				if r.zone(w) == z && after[w][t] && r.pr.States[w] != rebalance.Frozen {
					on, _ := r.copyOn(w, t)
					p = p.plus(on)
					inZone++
				}
			}
			free, _ := r.room(t, z)
			p[tierRule] += int64(max(0, inZone-free))
			n += inZone
		}
		for j := range n {
			p = p.plus(r.runs(t, j))
		}
	}
	for w, s := range r.pr.States {
		if s == rebalance.Open || s == rebalance.Quarantined {
			load := count(after[w])
			p[tierEven] += int64(load*load) * wholeShare / int64(r.share(w))
			p[tierRule] += int64(max(0, load-max(0, r.limit(w))))
		}
	}
	return p
}

// mayStart reports whether no copy starts on a worker or in a zone that runs too many.
func (r *ruled) mayStart(after [][]bool) bool {
	for w, tasks := range after {
		for t, runs := range tasks {
			if !runs || r.held[w][t] {
				continue
			}
			inZone := 0
			for v := range r.workers {
				if after[v][t] && r.zone(v) == r.zone(w) {
					inZone++
				}
			}
			if most, isRule := r.capOf(t); count(tasks) > r.limit(w) || isRule && inZone > most {
				return false
			}
		}
	}
	return true
}

func count(list []bool) (n int) {
	for _, is := range list {
		if is {
			n++
		}
	}
	return n
}

// A fault is in what a plan is worse than the joint minimum, or than what it says of itself.
type fault string

const (
	noFault      fault = ""
	startsMore   fault = "starts above"
	lessEven     fault = "less even"
	boundAbove   fault = "bound above" // and so starts above
	placesLess   fault = "placed less"
	furtherFirst fault = "further first"
	staysMore    fault = "stays"
)

// judgement is a plan beside the joint minimum.
type judgement struct {
	isKnown       bool  // the least price is one of a plan
	someStay      bool  // in the minimum, on draining workers or where a rule forbids them
	starts, above int64 // the fewest, and those above; 0 if the placement is not the best
	fault         fault
}

// judge compares the plan with the joint minimum.
func (r *ruled) judge() (j judgement, err error) {
	after, ok := r.joint()
	plan, least := r.price(r.after), r.price(after)
	tier := plan.differs(least)
	if plan.less(least) {
		return j, fmt.Errorf("P9: the reference is wrong: it costs %v, the plan %v", least, plan)
	}
	if j.isKnown = ok; !ok {
		return j, nil
	}
	j.someStay = least[tierDrain]+least[tierRule] > 0
	switch tier {
	case tierPinned, tierPlaced:
		j.fault = placesLess
	case tierFirst:
		j.fault = furtherFirst
	case tierDrain, tierRule:
		j.fault = staysMore
	case tierEven:
		j.fault = lessEven
	default:
		j.starts = least[tierStart]
		j.above = plan[tierStart] - j.starts
		if r.plan.LowerBound > int(j.starts) {
			j.fault = boundAbove
		} else if j.above > 0 {
			j.fault = startsMore
		}
	}
	return j, nil
}
