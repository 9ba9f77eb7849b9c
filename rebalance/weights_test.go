package rebalance

import (
	flags "flag"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomWeighing returns a small part of random shape: classes, kinds, shares, limits,
// several copies, forbidden pairs, copies that must leave or start.
func randomWeighing(random *rand.Rand, items, workers int) *weighing {
	g := &weighing{workers: 1 + random.IntN(workers), budget: NoLimit}
	rare := func(n int) bool { return random.IntN(n) == 0 }
	g.band = []int32{0, 1000, 50_000, 200_000}[random.IntN(4)]
	classes := 1
	if rare(2) {
		classes = 1 + random.IntN(4)
		kinds := 1 + random.IntN(4)
		for range g.workers {
			g.kind = append(g.kind, int32(random.IntN(kinds)))
		}
		for range classes {
			var may []int32
			for k := range kinds {
				if !rare(3) {
					may = append(may, int32(k))
				}
			}
			g.may = append(g.may, may)
		}
	}
	if rare(3) {
		for range g.workers {
			g.share = append(g.share, []int32{1, 2, 3, 4, 8, 100}[random.IntN(6)])
		}
	}
	if rare(4) {
		for range g.workers {
			g.base = append(g.base, int64(random.IntN(3)*50))
			g.fixed = append(g.fixed, int32(min(1, g.base[len(g.base)-1])))
		}
	}
	tasks := 1 + random.IntN(items)
	weight := make([]int64, tasks)
	class := make([]int32, tasks)
	of := []func() int64{
		func() int64 { return 1 + random.Int64N(100) },
		func() int64 { return []int64{1, 50}[random.IntN(2)] },
		func() int64 { return 1 << random.IntN(41) },
		func() int64 { return 100 },
	}[random.IntN(4)]
	for t := range weight {
		weight[t], class[t] = of(), int32(random.IntN(classes))
	}
	several := rare(3)
	if several {
		g.tasks = tasks
	}
	lonely := random.IntN(3)
	for t := range tasks {
		copies := 1
		if several {
			copies += random.IntN(3)
		}
		at := random.Perm(g.workers)
		for c := range copies {
			it := weighed{weight: weight[t], task: int32(t), class: class[t], from: None}
			switch {
			case rare(8):
				it.from, it.leaves = elsewhere, true
			case lonely == 0 || rare(4) || c >= len(at):
			default:
				it.from = int32(at[c])
			}
			if it.from >= 0 && g.may != nil && g.may[it.class] != nil && !slices.Contains(g.may[it.class], g.kind[it.from]) {
				it.leaves = true
			}
			g.items = append(g.items, it)
		}
	}
	if rare(4) {
		count := make([]int32, g.workers)
		copy(count, g.fixed)
		for _, it := range g.items {
			if it.from >= 0 {
				count[it.from]++
			}
		}
		for w := range g.workers {
			g.limit = append(g.limit, count[w]+int32(random.IntN(4)))
			if rare(3) {
				g.limit[w] = NoLimit
			}
		}
	}
	if rare(6) {
		for range g.workers {
			g.gain = append(g.gain, []int32{NoLimit, NoLimit, 0, 2}[random.IntN(4)])
		}
	}
	if rare(5) {
		odd := random.Int32N(7)
		g.barred = func(task, worker int32) bool { return (task*5+worker*3+odd)%7 == 0 }
	}
	return g
}

// again returns the part as the next call sees it: every item runs where it was placed.
func again(g *weighing) *weighing {
	n := &weighing{
		workers: g.workers, share: g.share, base: g.base, fixed: g.fixed, limit: g.limit, kind: g.kind, gain: g.gain,
		may: g.may, tasks: g.tasks, band: g.band, barred: g.barred, budget: NoLimit, items: slices.Clone(g.items),
	}
	for i := range n.items {
		it := &n.items[i]
		if it.to >= 0 {
			it.leaves = it.leaves && g.stuck.has(int32(i))
			it.from = it.to
		}
	}
	return n
}

// checkRules checks what no placement may break (P10).
func checkRules(t *testing.T, g *weighing) {
	count, fresh := make([]int32, g.workers), make([]int32, g.workers)
	copy(count, g.fixed)
	type pair struct{ task, worker int32 }
	seen := map[pair]bool{}
	for i, it := range g.items {
		if it.to < 0 {
			require.Equal(t, it.from, it.to)
			continue
		}
		count[it.to]++
		if g.tasks > 0 {
			require.False(t, seen[pair{it.task, it.to}], "two copies of task %d on %d", it.task, it.to)
			seen[pair{it.task, it.to}] = true
		}
		if it.to == it.from {
			continue
		}
		fresh[it.to]++
		if g.may != nil && g.may[it.class] != nil {
			require.Contains(t, g.may[it.class], g.kind[it.to], "item %d", i)
		}
		if g.barred != nil {
			require.False(t, g.barred(it.task, it.to), "item %d", i)
		}
	}
	for w := range g.workers {
		if g.limit != nil && g.limit[w] >= 0 {
			require.LessOrEqual(t, count[w], g.limit[w], "worker %d", w)
		}
		if g.gain != nil && g.gain[w] >= 0 {
			require.LessOrEqual(t, fresh[w], g.gain[w], "worker %d", w)
		}
	}
}

var weighings = flags.Int("rebalance.weighings", 5_000, "how many random parts to place by weight")

// checkMoves recomputes what is out of band, and checks P19 for the moves as a whole: the
// sum of its squares is less if anything moved that could stay.
func checkMoves(t *testing.T, g *weighing) {
	moved := false
	for i, it := range g.items {
		if it.leaves || it.from < 0 {
			return
		}
		moved = moved || g.items[i].to != it.from
	}
	sum := func(of func(it *weighed) int32) *big.Int {
		load, count := make([]int64, g.workers), make([]int32, g.workers)
		copy(load, g.base)
		copy(count, g.fixed)
		for i := range g.items {
			if w := of(&g.items[i]); w >= 0 {
				load[w] += g.items[i].weight
				count[w]++
			}
		}
		total := new(big.Int)
		for w := range load {
			var out int64
			switch {
			case load[w] > g.high[w] && count[w] > 1:
				out = load[w] - g.high[w]
			case load[w] < g.low[w] && (g.limit == nil || g.limit[w] < 0 || count[w] < g.limit[w]):
				out = g.low[w] - load[w]
			}
			square := big.NewInt(out)
			total.Add(total, square.Mul(square, square))
		}
		return total
	}
	before, after := sum(func(it *weighed) int32 { return it.from }), sum(func(it *weighed) int32 { return it.to })
	if moved {
		require.Negative(t, after.Cmp(before), "moves lower nothing: %v to %v", before, after)
	}
}

func TestP19_PlanningAgainIsEmpty(t *testing.T) {
	random := rand.New(rand.NewPCG(19, 1))
	for n := range *weighings {
		g := randomWeighing(random, 30, 8)
		g.solve()
		checkRules(t, g)
		if g.gain != nil {
			continue // the next call has new room
		}
		checkMoves(t, g)
		h := again(g)
		h.solve()
		for i, it := range h.items {
			require.Equal(t, it.from, it.to, "problem %d, item %d", n, i)
		}
	}
}

// The highest level, before tasks are set aside, is a bound on every placement of small parts
// that places all.
func TestP20_NoPlacementGetsBelowTheLevel(t *testing.T) {
	random := rand.New(rand.NewPCG(20, 1))
	for n := range *weighings {
		g := randomWeighing(random, 7, 3)
		if g.tasks > 0 || len(g.items) > 7 {
			continue
		}
		g.begin()
		g.levels.begin(g.workers)
		g.levels.decompose()
		bound := slices.MaxFunc(g.levels.level, ratio.compare)
		everyPlacement(g, func(load []int64) {
			highest := ratio{0, 1}
			for w := range int32(g.workers) {
				if use := (ratio{load[w], g.shareOf(w)}); highest.compare(use) < 0 {
					highest = use
				}
			}
			require.LessOrEqual(t, bound.compare(highest), 0, "problem %d: bound %v, loads %v of %+v", n, bound, load, g.items)
		})
	}
}

// everyPlacement visits every placement that keeps the rules and places all.
func everyPlacement(g *weighing, visit func(load []int64)) {
	load, count, fresh := make([]int64, g.workers), make([]int32, g.workers), make([]int32, g.workers)
	copy(load, g.base)
	copy(count, g.fixed)
	var place func(i int)
	place = func(i int) {
		if i == len(g.items) {
			visit(load)
			return
		}
		it := &g.items[i]
		for w := range int32(g.workers) {
			stays := it.from == w && !it.leaves
			if !stays && (!admits(g.may, it.class, g.levels.kindOf(w)) || g.barred != nil && g.barred(it.task, w)) {
				continue
			}
			load[w] += it.weight
			count[w]++
			fresh[w] += int32(b2i(!stays))
			if (g.limit == nil || g.limit[w] < 0 || count[w] <= g.limit[w]) && (g.gain == nil || g.gain[w] < 0 || fresh[w] <= g.gain[w]) {
				place(i + 1)
			}
			load[w] -= it.weight
			count[w]--
			fresh[w] -= int32(b2i(!stays))
		}
	}
	place(0)
}

// placedOn returns a part of workers that hold items of these weights.
func placedOn(band int32, held ...[]int64) *weighing {
	g := &weighing{workers: len(held), band: band, budget: NoLimit}
	for w, weights := range held {
		for _, weight := range weights {
			g.items = append(g.items, weighed{weight: weight, task: int32(len(g.items)), from: int32(w)})
		}
	}
	return g
}

// moves returns how many items get another worker.
func (g *weighing) moves() (n int) {
	for _, it := range g.items {
		n += b2i(it.to != it.from && it.from >= 0)
	}
	return n
}

func TestP17_GiantsAreNoPartOfTheLevel(t *testing.T) {
	tens := slices.Repeat([]int64{10}, 15)
	g := placedOn(50_000, []int64{1000}, tens, tens, nil)
	g.solve()
	require.Equal(t, []ratio{{300, 3}}, g.levels.level)
	require.Equal(t, []int64{1000, 100, 100, 100}, g.load)
	require.Equal(t, 10, g.moves())
}

func TestP17_LevelsByPool(t *testing.T) { // trap 11
	g := placedOn(50_000, []int64{300, 300, 300, 360}, []int64{315, 315}, []int64{10, 10, 10, 10}, []int64{10, 10, 10, 10})
	g.kind, g.may = []int32{0, 0, 1, 1}, [][]int32{{0}, nil}
	for i := range g.items {
		g.items[i].class = int32(b2i(g.items[i].weight == 10))
	}
	g.solve()
	require.Equal(t, []ratio{{1890, 2}, {80, 2}}, []ratio{g.levels.of(0), g.levels.of(2)})
	require.Equal(t, []int64{960, 930, 40, 40}, g.load)
}

func TestP17_UnequalShares(t *testing.T) { // trap 7
	g := &weighing{workers: 3, share: []int32{1, 1, 8}, band: 50_000, budget: NoLimit}
	for t, weight := range []int64{800, 100, 100} {
		g.items = append(g.items, weighed{weight: weight, task: int32(t), from: None})
	}
	g.solve()
	require.Equal(t, []int64{100, 100, 800}, g.load)
}

// Zones bind some tasks only. They must not divide the workers: a worker that joins gets its
// share, and a task that grows is relieved, wherever the others run.
func TestP17_ZonesDoNotDivideTheWorkers(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 17))
		zones := 2 + random.IntN(3)
		pr := &Problem{Band: 50_000, MaxMoves: NoLimit}
		join := func(n int) {
			for range n {
				pr.States, pr.Running = append(pr.States, Open), append(pr.Running, nil)
				pr.Zone = append(pr.Zone, int32(random.IntN(zones)))
			}
		}
		add := func(instances int32, weight int64) {
			pr.Want, pr.Weight = append(pr.Want, instances), append(pr.Weight, RoundWeight(weight))
		}
		join(12)
		for range 400 {
			add(1, 1+random.Int64N(20))
		}
		for range 1 + random.IntN(20) {
			add(2+random.Int32N(2), 1+random.Int64N(20))
		}
		loads := func() []int64 {
			load := make([]int64, len(pr.States))
			for w, list := range pr.Running {
				for _, task := range list {
					load[w] += pr.Weight[task].Int64()
				}
			}
			return load
		}
		var p Planner
		for event, happens := range []func(){
			func() {},
			func() { join(1 + random.IntN(4)) },
			func() {
				task := random.IntN(len(pr.Weight))
				pr.Weight[task] = RoundWeight(10 * pr.Weight[task].Int64())
			},
			func() { add(3, 20) },
			func() { pr.States[random.IntN(12)] = Draining },
		} {
			happens()
			plan, err := p.Plan(pr)
			require.NoError(t, err)
			require.Empty(t, plan.Unplaced)
			before := loads()
			pr.Running = carriedOut(pr, plan)
			after, total, open := loads(), int64(0), int64(0)
			for w, load := range after {
				total += load
				open += int64(b2i(pr.States[w] == Open))
			}
			mean, needless := total/open, int64(0) // needless: what moves beyond what workers lack
			for w, s := range pr.States {
				if s == Open {
					require.InDelta(t, mean, after[w], 0.05*float64(mean)+1, "seed %d, event %d, loads %v", seed, event, after)
					needless -= max(0, mean-before[w])
				}
			}
			for _, c := range plan.Changes {
				if c.From != None && c.To != None {
					needless += pr.Weight[c.Task].Int64()
				}
			}
			require.Less(t, needless, mean, "seed %d, event %d", seed, event)
			plan, err = p.Plan(pr)
			require.NoError(t, err)
			require.Empty(t, plan.Changes, "seed %d, event %d", seed, event)
		}
	}
}

func TestP19_LumpsAreQuiet(t *testing.T) { // trap 6
	random := rand.New(rand.NewPCG(6, 6))
	g := &weighing{workers: 10, band: 50_000, budget: NoLimit}
	for t := range 25 {
		g.items = append(g.items, weighed{weight: []int64{1, 50}[random.IntN(2)], task: int32(t), from: None})
	}
	g.solve()
	h := again(g)
	h.solve()
	require.Zero(t, h.moves())
}

func TestP18_WanderingLoadsMoveNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 1))
	pr := &Problem{Want: slices.Repeat([]int32{1}, 10_000), States: make([]State, 50), Running: make([][]int32, 50), Weight: make([]Weight, 10_000), Band: 50_000, MaxMoves: NoLimit}
	mean := make([]int64, len(pr.Weight))
	for t := range mean {
		mean[t] = 1000 + random.Int64N(9000)
		pr.Weight[t] = RoundWeight(mean[t])
	}
	var p Planner
	for term := range 50 {
		plan, err := p.Plan(pr)
		require.NoError(t, err)
		if term > 0 {
			require.Empty(t, plan.Changes, "term %d", term)
		}
		pr.Running = carriedOut(pr, plan)
		for t := range mean {
			pr.Weight[t] = RoundWeight(mean[t] * (900 + random.Int64N(201)) / 1000)
		}
	}
}

var packings = flags.Int("rebalance.packings", 1, "how many packings of each number of pieces to solve")

// Perfect packings, of which the optimum is known.
func TestPackings(t *testing.T) {
	for _, pieces := range []int{3, 5, 10, 20, 50} {
		random := rand.New(rand.NewPCG(1, uint64(pieces)))
		for range *packings {
			const workers, size = 100, 1_000_000
			g := &weighing{workers: workers, budget: NoLimit}
			for range workers {
				cuts := []int64{0, size}
				for range pieces - 1 {
					cuts = append(cuts, 1+random.Int64N(size-1))
				}
				slices.Sort(cuts)
				for i := 1; i < len(cuts); i++ {
					if cuts[i] > cuts[i-1] {
						g.items = append(g.items, weighed{weight: cuts[i] - cuts[i-1], task: int32(len(g.items)), from: None})
					}
				}
			}
			g.solve()
			most := int64(size * 101 / 100)
			if pieces == 3 {
				most = size * 103 / 100
			}
			require.LessOrEqual(t, slices.Max(g.load), most, "%d pieces", pieces)
		}
	}
}

func TestRoundWeight(t *testing.T) {
	for _, of := range []struct{ weight, want int64 }{
		{-1, 1},
		{0, 1},
		{1, 1},
		{999, 999},
		{1000, 1000},
		{1004, 1000},
		{1005, 1010},
		{9994, 9990},
		{9995, 10_000},
		{999_499, 999_000},
		{999_500, 1_000_000},
		{MaxWeight, 1_100_000_000_000},
		{math.MaxInt64, 1_100_000_000_000},
	} {
		require.Equal(t, of.want, RoundWeight(of.weight).Int64(), "of %d", of.weight)
	}
	require.EqualValues(t, 1, Weight{}.Int64())
	last := Weight{}
	for n := int64(1); n <= MaxWeight; n += 1 + n/1999 {
		w := RoundWeight(n)
		require.Equal(t, w, RoundWeight(w.Int64()), "%d", n) // one code for each number
		require.GreaterOrEqual(t, w.compare(last), 0, "%d", n)
		require.InEpsilon(t, n, w.Int64(), 0.005, "%d", n)
		last = w
	}
}
