package rebalance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// zoneProblem is a random input of zoneQuotas.
func zoneProblem(rng *rand.Rand) *zoneQuotas {
	zones, classes, tasks := 1+rng.IntN(4), 1+rng.IntN(2), 1+rng.IntN(9)
	workers := zones + rng.IntN(8)
	q := &zoneQuotas{zones: zones}
	isFrozen := make([]bool, workers)
	may := make([][]bool, classes)
	for c := range may {
		may[c] = make([]bool, workers)
	}
	limited, shared, confined := rng.IntN(6) == 0, rng.IntN(4) == 0, rng.IntN(3) == 0
	q.able, q.width = make([]int32, classes*zones), make([]int32, classes*zones)
	for w := range workers {
		z := int32(rng.IntN(zones))
		isFrozen[w] = rng.IntN(8) == 0
		q.zone, q.load = append(q.zone, z), append(q.load, 0)
		q.share = append(q.share, 1)
		if shared {
			q.share[w] = 1 + rng.Int32N(3)
		}
		q.limit = append(q.limit, NoLimit)
		if limited && rng.IntN(2) == 0 {
			q.limit[w] = rng.Int32N(6)
		}
		for c := range may {
			may[c][w] = c == 0 || !confined || rng.IntN(2) == 0
			if may[c][w] {
				q.able[c*zones+int(z)]++
				if !isFrozen[w] {
					q.width[c*zones+int(z)]++
				}
			}
		}
		if isFrozen[w] {
			q.zone[w] = None
		}
	}
	n := tasks * zones
	q.held, q.fixed, q.pinned, q.holder = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
	zone := make([]int32, workers)
	for w := range zone {
		zone[w] = q.zone[w]
		if zone[w] == None {
			zone[w] = 0
		}
	}
	for t := range tasks {
		class := rng.IntN(classes)
		wanted := int32(1 + rng.IntN(4))
		if rng.IntN(20) == 0 {
			wanted = int32(rng.IntN(12))
		}
		rule := int32(0)
		switch rng.IntN(6) {
		case 0:
			rule = -1
		case 1:
			rule = 1 + rng.Int32N(3)
		}
		held, fixed := int32(0), int32(0)
		for w := range workers {
			if !may[class][w] || rng.IntN(100) >= 100*int(wanted)/workers {
				continue
			}
			at := t*zones + int(zone[w])
			if isFrozen[w] {
				q.fixed[at]++
				fixed++
				continue
			}
			q.held[at]++
			q.holder[at] = int32(w)
			q.load[w]++
			if held++; rng.IntN(12) == 0 && held <= wanted {
				q.pinned[at]++
			}
		}
		q.class, q.rule, q.wanted = append(q.class, int32(class)), append(q.rule, rule), append(q.wanted, wanted)
		q.target = append(q.target, max(wanted-fixed, min(wanted, held)))
		for z, pinned := range q.pinned[t*zones : (t+1)*zones] {
			if sum := sumOf(q.pinned[t*zones : (t+1)*zones]); sum > q.target[t] {
				q.pinned[t*zones+z] -= min(pinned, sum-q.target[t])
			}
		}
	}
	room, pins := make([]int, zones), make([]int32, zones)
	for w, z := range q.zone {
		if z != None {
			room[z] += int(q.limitOf(w))
		}
	}
	for i, n := range q.pinned {
		pins[i%zones] += n
	}
	for z, n := range pins {
		if int(n) > room[z] { // the caller counts pinned copies beyond a limit as fixed
			q.limit = nil
		}
	}
	if rng.IntN(4) == 0 {
		q.limit = nil // goals keep to them
		for i := range q.able {
			q.goal = append(q.goal, rng.Int32N(q.width[i]*4+1))
		}
	}
	return q
}

func sumOf(numbers []int32) int32 {
	sum := int32(0)
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// slowCap is P13 word by word.
func slowCap(q *zoneQuotas, t int) int32 {
	if q.rule[t] != 0 || q.wanted[t] < 2 {
		if q.rule[t] > 0 {
			return q.rule[t]
		}
		return math.MaxInt32
	}
	able := slices.Clone(q.able[int(q.class[t])*q.zones:][:q.zones])
	slices.SortFunc(able, func(a, b int32) int { return int(b - a) })
	able = slices.DeleteFunc(able, func(n int32) bool { return n == 0 })
	if len(able) == 0 {
		return math.MaxInt32
	}
	workers := sumOf(able)
	mean := float64(workers) / float64(len(able))
	z := 0
	for i, n := range able {
		if i < 2 || float64(n) >= mean/2 {
			z++
		}
	}
	for c := int32(math.Ceil(float64(q.wanted[t]) / float64(z))); ; c++ {
		fit := int32(0)
		for _, n := range able {
			fit += min(n, c)
		}
		if fit >= min(q.wanted[t], workers) {
			return c
		}
	}
}

// zoneFlow is the reference: a minimum-cost flow from tasks over zones to copies of zones.
type zoneFlow struct {
	to, room []int
	cost     []int
	arcs     [][]int
}

func (f *zoneFlow) add(a, b, room, cost int) {
	for max(a, b) >= len(f.arcs) {
		f.arcs = append(f.arcs, nil)
	}
	f.arcs[a] = append(f.arcs[a], len(f.to))
	f.to, f.room, f.cost = append(f.to, b), append(f.room, room), append(f.cost, cost)
	f.arcs[b] = append(f.arcs[b], len(f.to))
	f.to, f.room, f.cost = append(f.to, a), append(f.room, 0), append(f.cost, -cost)
}

// push sends one unit along a cheapest path, and returns its cost.
func (f *zoneFlow) push(from, to int) (int, bool) {
	dist, by := make([]int, len(f.arcs)), make([]int, len(f.arcs))
	for i := range dist {
		dist[i] = math.MaxInt
	}
	dist[from] = 0
	for again := true; again; {
		again = false
		for a, list := range f.arcs {
			if dist[a] == math.MaxInt {
				continue
			}
			for _, i := range list {
				if b := f.to[i]; f.room[i] > 0 && dist[a]+f.cost[i] < dist[b] {
					dist[b], by[b], again = dist[a]+f.cost[i], i, true
				}
			}
		}
	}
	if dist[to] == math.MaxInt {
		return 0, false
	}
	for n := to; n != from; n = f.to[by[n]^1] {
		f.room[by[n]]--
		f.room[by[n]^1]++
	}
	return dist[to], true
}

const zoneStart = 1 << 20 // the cost of evenness in starts

// leastZoneCost returns the most copies that have a place within the caps, and the least of
// the unevenness, in sixths, times zoneStart plus the starts. Pinned copies stay.
func leastZoneCost(q *zoneQuotas) (placed, cost int) {
	f := &zoneFlow{}
	source, sink, zone := 0, 1, 2
	task := zone + len(q.able)
	for part := range zoneParts(q) {
		for z := range q.zones {
			pins := int(zoneSum(q, q.pinned, part, z))
			for i, mark := range zoneMarks(q, part, z) {
				if i < pins {
					placed++
					cost += mark * zoneStart
					continue
				}
				f.add(zone+part*q.zones+z, sink, 1, mark*zoneStart)
			}
		}
	}
	for t, target := range q.target {
		f.add(source, task+t, int(target-sumOf(q.pinned[t*q.zones:][:q.zones])), 0)
		for z := range q.zones {
			at := t*q.zones + z
			top := min(q.width[int(q.class[t])*q.zones+z], slowCap(q, t)-q.fixed[at])
			top = max(top, q.pinned[at])
			held := min(top, q.held[at])
			node := zone + z
			if q.goal != nil {
				node += int(q.class[t]) * q.zones
			}
			f.add(task+t, node, int(held-q.pinned[at]), 0)
			f.add(task+t, node, int(top-held), 1)
		}
	}
	for {
		c, ok := f.push(source, sink)
		if !ok {
			return placed, cost
		}
		placed++
		cost += c
	}
}

// zoneParts returns the number of parts of which each is even.
func zoneParts(q *zoneQuotas) int {
	if q.goal == nil {
		return 1
	}
	return len(q.goal) / q.zones
}

// zoneSum sums the numbers of a zone over the tasks of a part.
func zoneSum(q *zoneQuotas, rows []int32, part, z int) int32 {
	sum := int32(0)
	for t := range q.target {
		if q.goal == nil || int(q.class[t]) == part {
			sum += rows[t*q.zones+z]
		}
	}
	return sum
}

// zoneMarks returns what the copies of a zone add to the unevenness, in sixths.
func zoneMarks(q *zoneQuotas, part, z int) []int {
	var marks []int
	if q.goal != nil {
		for l := 1; l <= 60; l++ {
			marks = append(marks, l-int(q.goal[part*q.zones+z]))
		}
		return marks
	}
	tasks := 0
	for _, n := range q.target {
		tasks += int(min(n, 1))
	}
	for w, wz := range q.zone {
		if int(wz) == z {
			for l := 1; l <= tasks && l <= int(q.limitOf(w)); l++ {
				marks = append(marks, (2*l-1)*6/int(q.share[w]))
			}
		}
	}
	slices.Sort(marks)
	return marks
}

// zoneCost returns the copies placed and the cost of quotas.
func zoneCost(q *zoneQuotas) (placed, cost int) {
	for i, n := range q.quota {
		placed += int(n)
		cost += int(max(0, n-q.held[i]))
	}
	for part := range zoneParts(q) {
		for z := range q.zones {
			load, marks := int(zoneSum(q, q.quota, part, z)), zoneMarks(q, part, z)
			if load > len(marks) {
				return -1, 0
			}
			for _, m := range marks[:load] {
				cost += m * zoneStart
			}
		}
	}
	return placed, cost
}

func TestP13_ZoneQuotasAreExact(t *testing.T) {
	var q zoneQuotas
	exact, short, beyond := 0, 0, 0
	for seed := range uint64(10000) {
		p := zoneProblem(rand.New(rand.NewPCG(seed, 1)))
		setInput(&q, p)
		q.solve()
		name := fmt.Sprintf("seed %d", seed)
		isBeyond := checkQuotas(t, name, &q)
		placed, cost := zoneCost(&q)
		most, least := leastZoneCost(&q)
		switch {
		case isBeyond:
			beyond++
			if placed < most {
				t.Fatalf("%s: %d copies are placed, %d fit", name, placed, most)
			}
		case placed != most:
			t.Fatalf("%s: %d copies are placed, %d fit", name, placed, most)
		case len(q.unplaced) > 0 && hasRoomless(&q):
			short++
		case cost != least:
			t.Fatalf("%s: unevenness %d and %d starts instead of %d and %d", name, cost/zoneStart, cost%zoneStart, least/zoneStart, least%zoneStart)
		default:
			exact++
		}
		if !hasRoomless(&q) {
			checkFixpoint(t, name, &q)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d exact, %d without room, %d beyond a default cap", exact, short, beyond)
}

func hasRoomless(q *zoneQuotas) bool {
	return slices.ContainsFunc(q.unplaced, func(x zoneUnplaced) bool { return x.why == zoneRoom })
}

// setInput copies the input of p.
func setInput(q, p *zoneQuotas) {
	q.zones, q.wanted, q.target, q.class, q.rule = p.zones, p.wanted, p.target, p.class, p.rule
	q.held, q.fixed, q.pinned, q.holder = p.held, p.fixed, p.pinned, p.holder
	q.able, q.width, q.goal = p.able, p.width, p.goal
	q.zone, q.share, q.limit, q.load = p.zone, p.share, p.limit, p.load
}

// checkQuotas checks what every result keeps. It reports whether a task runs more copies in
// a zone than its default cap.
func checkQuotas(t *testing.T, name string, q *zoneQuotas) (beyond bool) {
	t.Helper()
	left := make([]int32, len(q.target))
	for _, x := range q.unplaced {
		left[x.task] += x.copies
	}
	for task, target := range q.target {
		row := q.quota[task*q.zones:][:q.zones]
		if sumOf(row)+left[task] != target {
			t.Errorf("%s: task %d has quotas %v and %d unplaced, target %d", name, task, row, left[task], target)
		}
		limit := slowCap(q, task)
		for z, n := range row {
			at := task*q.zones + z
			width := q.width[int(q.class[task])*q.zones+z]
			if n < q.pinned[at] || n > max(width, q.pinned[at]) {
				t.Errorf("%s: task %d zone %d: quota %d, pinned %d, workers %d", name, task, z, n, q.pinned[at], width)
			}
			if n+q.fixed[at] <= limit || n <= q.pinned[at] || n == 0 {
				continue
			}
			if q.rule[task] != 0 {
				t.Errorf("%s: task %d zone %d: quota %d and %d fixed, the cap is %d", name, task, z, n, q.fixed[at], limit)
			}
			beyond = true
		}
	}
	return beyond
}

// checkFixpoint solves again with the quotas as what is held.
func checkFixpoint(t *testing.T, name string, q *zoneQuotas) {
	t.Helper()
	p := *q
	p.held, p.holder = slices.Clone(q.quota), nil
	again := zoneQuotas{}
	setInput(&again, &p)
	again.solve()
	if !slices.Equal(again.quota, q.quota) {
		t.Errorf("%s: quotas %v become %v", name, q.quota, again.quota)
	}
}
