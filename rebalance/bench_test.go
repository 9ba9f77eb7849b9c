package rebalance_test

// Plans of large fleets, with and without rules, beside a bare scan of the same integers, below
// which no planner can get, and the problems that provoke the worst case of each step.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// fleets are sizes in pairs of task and worker that run; each task has copies.
var fleets = []struct{ pairs, workers, copies int }{
	{100_000, 1_000, 1},
	{100_000, 1_000, 3},
	{100_000, 1_000, 10},
	{1_000_000, 10_000, 1},
	{1_000_000, 10_000, 3},
	{1_000_000, 10_000, 10},
}

// even is a fleet in which every task has its copies and every worker its
// share, in no order.
func even(pairs, workers, copies int) *rebalance.Problem {
	pr := fleet(pairs/copies, copies, workers, 0)
	order := rand.New(rand.NewPCG(1, 1)).Perm(len(pr.Want))
	for _, list := range pr.Running {
		for i, t := range list {
			list[i] = int32(order[t])
		}
	}
	return pr
}

// without takes some workers away, with all that they run.
func without(pr *rebalance.Problem, lost int) *rebalance.Problem {
	pr.States, pr.Running = pr.States[lost:], pr.Running[lost:]
	for _, by := range rulesByWorker(pr) {
		*by = (*by)[lost:]
	}
	return pr
}

// joined adds some workers that run nothing. Rules apply to them as to the first workers.
func joined(pr *rebalance.Problem, fresh int) *rebalance.Problem {
	pr.States = append(pr.States, make([]rebalance.State, fresh)...)
	pr.Running = append(pr.Running, make([][]int32, fresh)...)
	for _, by := range rulesByWorker(pr) {
		*by = append(*by, (*by)[:fresh]...)
	}
	if pr.Pinned != nil {
		pr.Pinned = append(pr.Pinned, make([]int32, fresh)...)
	}
	return pr
}

// rulesByWorker returns the lists by worker that are in use, but for Pinned.
func rulesByWorker(pr *rebalance.Problem) []*[]int32 {
	lists := []*[]int32{&pr.Kind, &pr.Zone, &pr.Share, &pr.MaxTasks}
	return slices.DeleteFunc(lists, func(by *[]int32) bool { return *by == nil })
}

// in puts some workers into a state.
func in(pr *rebalance.Problem, s rebalance.State, some int) *rebalance.Problem {
	for w := range some {
		pr.States[w] = s
	}
	return pr
}

// pinnedTenth pins a tenth of what each worker runs.
func pinnedTenth(pr *rebalance.Problem) *rebalance.Problem {
	pr.Pinned = make([]int32, len(pr.Running))
	for w, list := range pr.Running {
		pr.Pinned[w] = int32(len(list) / 10)
	}
	return pr
}

type event struct {
	name string
	to   func(*rebalance.Problem) *rebalance.Problem
}

// events are what happens to an even fleet.
var events = []event{
	{"steady", func(pr *rebalance.Problem) *rebalance.Problem { return pr }},
	{"one_joins", func(pr *rebalance.Problem) *rebalance.Problem { return joined(pr, 1) }},
	{"one_lost", func(pr *rebalance.Problem) *rebalance.Problem { return without(pr, 1) }},
	{"tenth_joins", func(pr *rebalance.Problem) *rebalance.Problem { return joined(pr, len(pr.States)/10) }},
	{"tenth_lost", func(pr *rebalance.Problem) *rebalance.Problem { return without(pr, len(pr.States)/10) }},
	{"one_silent", func(pr *rebalance.Problem) *rebalance.Problem { return in(pr, rebalance.Frozen, 1) }},
	{"one_drains", func(pr *rebalance.Problem) *rebalance.Problem { return in(pr, rebalance.Draining, 1) }},
	{"tenth_drains", func(pr *rebalance.Problem) *rebalance.Problem { return in(pr, rebalance.Draining, len(pr.States)/10) }},
	{"one_quarantined", func(pr *rebalance.Problem) *rebalance.Problem { return in(pr, rebalance.Quarantined, 1) }},
	{"tenth_pinned_one_joins", func(pr *rebalance.Problem) *rebalance.Problem { return joined(pinnedTenth(pr), 1) }},
	{"all_on_one", func(pr *rebalance.Problem) *rebalance.Problem {
		all := rand.New(rand.NewPCG(5, 5)).Perm(len(pr.Want))
		clear(pr.Running)
		for _, t := range all {
			pr.Running[0] = append(pr.Running[0], int32(t))
		}
		return pr
	}},
	{"hundredth_over", func(pr *rebalance.Problem) *rebalance.Problem {
		random := rand.New(rand.NewPCG(2, 2))
		for range len(pr.Want) / 100 {
			w := random.IntN(len(pr.Running))
			pr.Running[w] = append(pr.Running[w], int32(random.IntN(len(pr.Want))))
		}
		return pr
	}},
	{"random_pairs", func(pr *rebalance.Problem) *rebalance.Problem {
		random := rand.New(rand.NewPCG(3, 3))
		n := 0
		for w, list := range pr.Running {
			n += len(list)
			pr.Running[w] = nil
		}
		for range n * 3 / 2 {
			w := random.IntN(len(pr.Running))
			pr.Running[w] = append(pr.Running[w], int32(random.IntN(len(pr.Want))))
		}
		return pr
	}},
}

func BenchmarkPlan(b *testing.B) {
	for _, size := range fleets {
		b.Run(fmt.Sprintf("%dx%dx%d", size.pairs/size.copies, size.copies, size.workers), func(b *testing.B) {
			b.Run("scan", func(b *testing.B) {
				pr := even(size.pairs, size.workers, size.copies)
				var f floor
				for b.Loop() {
					f.scan(pr)
				}
			})
			b.Run("cold", func(b *testing.B) {
				pr := even(size.pairs, size.workers, size.copies)
				b.ReportAllocs()
				for b.Loop() {
					_, err := new(rebalance.Planner).Plan(pr)
					require.NoError(b, err)
				}
			})
			for _, event := range events {
				b.Run(event.name, func(b *testing.B) { bench(b, event.to(even(size.pairs, size.workers, size.copies))) })
			}
		})
	}
}

// inPools gives each of n kinds of workers a class of its own. One more class may run anywhere.
func inPools(n int) func(pr *rebalance.Problem) {
	return func(pr *rebalance.Problem) {
		byKind(pr, n, n+1)
		for c := range n {
			pr.May[c] = []int32{int32(c)}
		}
	}
}

// inOwnKinds gives each of n kinds of workers a class of its own, as pins do.
func inOwnKinds(n int) func(pr *rebalance.Problem) {
	return func(pr *rebalance.Problem) {
		byKind(pr, n, n)
		random := rand.New(rand.NewPCG(7, 7))
		for c := range pr.May {
			pr.May[c] = []int32{int32(random.IntN(n))}
		}
	}
}

// onThirds lets each of n classes run on a third of the kinds of workers.
func onThirds(n int) func(pr *rebalance.Problem) {
	return func(pr *rebalance.Problem) {
		byKind(pr, 2*n, n)
		random := rand.New(rand.NewPCG(7, 7))
		for c := range pr.May {
			pr.May[c] = []int32{}
			for k := range int32(2 * n) {
				if random.IntN(3) == 0 {
					pr.May[c] = append(pr.May[c], k)
				}
			}
		}
	}
}

// notOnOne keeps each of n classes off a kind of its own.
func notOnOne(n int) func(pr *rebalance.Problem) {
	return func(pr *rebalance.Problem) {
		byKind(pr, n, n)
		for c := range pr.May {
			for k := range n {
				if k != c {
					pr.May[c] = append(pr.May[c], int32(k))
				}
			}
		}
	}
}

// byKind numbers kinds and classes in turn. All classes may run anywhere.
func byKind(pr *rebalance.Problem, kinds, classes int) {
	pr.Kind, pr.Class, pr.May = make([]int32, len(pr.States)), make([]int32, len(pr.Want)), make([][]int32, classes)
	for w := range pr.Kind {
		pr.Kind[w] = int32(w % kinds)
	}
	for t := range pr.Class {
		pr.Class[t] = int32(t % classes)
	}
}

func zonesOf(n int) func(pr *rebalance.Problem) {
	return func(pr *rebalance.Problem) { inZones(pr, n) }
}

func weightsOf(law string) func(pr *rebalance.Problem) {
	return func(pr *rebalance.Problem) {
		pr.Weight, pr.Band = make([]rebalance.Weight, len(pr.Want)), 50_000
		random := rand.New(rand.NewPCG(8, 8))
		for t := range pr.Weight {
			pr.Weight[t] = rebalance.RoundWeight(laws[law](random))
		}
	}
}

// changeWeights multiplies the weights of one task in so many by a number of thousandths.
func changeWeights(one int, low, high int64) func(pr *rebalance.Problem) *rebalance.Problem {
	return func(pr *rebalance.Problem) *rebalance.Problem {
		random := rand.New(rand.NewPCG(9, 9))
		for t := 0; t < len(pr.Weight); t += one {
			pr.Weight[t] = rebalance.RoundWeight(pr.Weight[t].Int64() * (low + random.Int64N(high-low+1)) / 1000)
		}
		return pr
	}
}

// BenchmarkRules plans settled fleets in which a rule binds.
func BenchmarkRules(b *testing.B) {
	more := append(slices.Clone(events[:7]), event{"cold", func(pr *rebalance.Problem) *rebalance.Problem {
		clear(pr.Running)
		return pr
	}})
	weighing := []event{{"loads_wander", changeWeights(1, 970, 1030)}, {"tenth_changes", changeWeights(10, 500, 2000)}}
	for _, c := range []struct {
		name                   string
		tasks, copies, workers int
		rule                   func(pr *rebalance.Problem)
	}{
		{"pools_8", 100_000, 1, 1_000, inPools(8)},
		{"pools_32", 100_000, 1, 1_000, inPools(32)},
		{"thirds_8", 100_000, 1, 1_000, onThirds(8)},
		{"thirds_32", 100_000, 1, 1_000, onThirds(32)},
		{"not_on_one_of_1000", 100_000, 1, 1_000, notOnOne(1_000)},
		{"own_kinds_1000", 100_000, 1, 1_000, inOwnKinds(1_000)},
		{"zones_3_of_5k", 5_000, 2, 100, zonesOf(3)},
		{"zones_3", 33_333, 3, 1_000, zonesOf(3)},
		{"zones_16", 33_333, 3, 1_000, zonesOf(16)},
		{"zones_100", 33_333, 3, 1_000, zonesOf(100)},
		{"zones_300", 33_333, 3, 1_000, zonesOf(300)},
		{"shares", 100_000, 1, 1_000, func(pr *rebalance.Problem) {
			for w := range pr.States {
				pr.Share = append(pr.Share, int32(1+w%4))
			}
		}},
		{"limits", 33_333, 3, 1_000, func(pr *rebalance.Problem) { pr.MaxTasks = slices.Repeat([]int32{112}, 1_000) }},
		{"pools_8_100_moves", 100_000, 1, 1_000, func(pr *rebalance.Problem) {
			inPools(8)(pr)
			pr.MaxMoves = 100
		}},
		{"weights_uniform", 100_000, 1, 1_000, weightsOf("uniform")},
		{"weights_lognormal", 100_000, 1, 1_000, weightsOf("lognormal")},
	} {
		pr := holds(slices.Repeat([]int32{int32(c.copies)}, c.tasks), make([][]int32, c.workers))
		c.rule(pr)
		live(b, new(rebalance.Planner), pr)
		for i, e := range append(more, weighing...) {
			if i < len(more) || pr.Weight != nil {
				b.Run(c.name+"/"+e.name, func(b *testing.B) { bench(b, e.to(clone(pr))) })
			}
		}
	}
}

// BenchmarkCrowded wants nearly as many copies of each task as there are
// workers.
func BenchmarkCrowded(b *testing.B) {
	const tasks, workers = 10_000, 100
	random := rand.New(rand.NewPCG(4, 4))
	pr := &rebalance.Problem{
		Want: make([]int32, tasks), States: make([]rebalance.State, workers), Running: make([][]int32, workers),
		MaxMoves: rebalance.NoLimit,
	}
	for t := range pr.Want {
		pr.Want[t] = int32(workers - 10 + random.IntN(11))
		for w := range workers {
			if random.IntN(100) < 80 {
				pr.Running[w] = append(pr.Running[w], int32(t))
			}
		}
	}
	b.Run("plan", func(b *testing.B) { bench(b, pr) })
	b.Run("plan/tenth_lost", func(b *testing.B) { bench(b, without(even(900_000, workers, workers-10), workers/10)) })
}

// BenchmarkDaemon starts fleets in which some tasks run everywhere, from
// nothing. Where there are many more workers it must not take many more times
// as long for each start.
func BenchmarkDaemon(b *testing.B) {
	for _, size := range []struct{ tasks, workers int }{{100_000, 1_000}, {200_000, 2_000}} {
		for _, n := range []int{0, 1, 5} {
			b.Run(fmt.Sprintf("%dx%d/%d", size.tasks, size.workers, n), func(b *testing.B) {
				pr := daemons(size.tasks, size.workers, n)
				bench(b, pr)
				starts := size.tasks + n*size.workers
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*starts), "ns/start")
			})
		}
	}
}

// bench plans a problem over and over with one planner, and reports how many
// times as long as a scan of it that takes: medians, of turns.
func bench(b *testing.B, pr *rebalance.Problem) {
	b.Helper()
	var planner rebalance.Planner
	plan, err := planner.Plan(pr)
	require.NoError(b, err)
	var f floor
	f.scan(pr)
	plans, scans := make([]time.Duration, 0, 1<<16), make([]time.Duration, 0, 1<<16)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if _, err := planner.Plan(pr); err != nil {
			b.Fatal(err)
		}
		plans = append(plans, time.Since(start))
		b.StopTimer()
		start = time.Now()
		f.scan(pr)
		scans = append(scans, time.Since(start))
		b.StartTimer()
	}
	slices.Sort(plans)
	slices.Sort(scans)
	took, least := plans[len(plans)/2], scans[len(scans)/2]
	b.ReportMetric(float64(took)/float64(least), "x-scan")
	b.ReportMetric(float64(least), "scan-ns")
	b.ReportMetric(float64(plan.Adds), "adds")
	if plan.Adds > 0 { // what the goal for bulk changes is in: 3 scans, and so much for each change
		b.ReportMetric(float64(took-3*least)/float64(plan.Adds), "ns/add-beyond-3-scans")
	}
}

// floor is the work that no planner can avoid: find the copies of each task, and the
// names that a list repeats.
type floor struct {
	tasks []struct{ owner, copies int32 }
	loads []int32
}

// scan marks the owner and counts the copies of each task.
func (f *floor) scan(pr *rebalance.Problem) {
	f.tasks = slices.Grow(f.tasks, len(pr.Want))[:len(pr.Want)]
	f.loads = slices.Grow(f.loads, len(pr.Running))[:len(pr.Running)]
	clear(f.tasks)
	clear(f.loads)
	for w, list := range pr.Running {
		f.loads[w] = int32(len(list))
		for _, t := range list {
			s := &f.tasks[t]
			s.owner = int32(w)
			s.copies++
		}
	}
}

// holds makes a problem of what each worker runs; want is by task.
func holds(want []int32, held [][]int32) *rebalance.Problem {
	return &rebalance.Problem{
		Want: want, Running: held, States: make([]rebalance.State, len(held)), MaxMoves: noLimit,
	}
}

// filler hands out tasks that are wanted once.
type filler struct{ want []int32 }

func (f *filler) add(list []int32, n int) []int32 {
	for range n {
		list = append(list, int32(len(f.want)))
		f.want = append(f.want, 1)
	}
	return list
}

// dropChain: one of each pair of neighbours must drop a task that both run. Each worker
// but the last drops the task that it shares with the next, which keeps it. So the last
// has one too many. What it drops, the worker before must keep, and so on to the first:
// one path through all workers.
func dropChain(workers, load int) *rebalance.Problem {
	f := filler{want: make([]int32, workers-1)}
	held := make([][]int32, workers)
	for i := range f.want {
		f.want[i] = 1
	}
	for w := range held {
		list := make([]int32, 0, load+1)
		switch w {
		case 0:
			list = append(f.add(list, load-1), 0)
		case workers - 1:
			list = f.add(append(list, int32(w-1)), load)
		default:
			list = f.add(append(list, int32(w), int32(w-1)), load-1)
		}
		held[w] = list
	}
	return holds(f.want, held)
}

// startChain: every task misses a copy, and only two neighbours lack it. Each
// takes the one that the next could have taken too, so that the first task is
// stuck, and the way to the only room leads through all workers.
func startChain(workers int) *rebalance.Problem {
	tasks := workers - 1
	f := filler{want: make([]int32, tasks)}
	for t := range f.want {
		f.want[t] = int32(tasks)
	}
	held := make([][]int32, workers)
	for w := range held {
		for i := range tasks { // task i is lacked by workers i and i+1; the last come first
			if i != w && i+1 != w {
				held[w] = append(held[w], int32(tasks-1-i))
			}
		}
		if w < workers-1 {
			held[w] = f.add(held[w], 1)
		}
	}
	return holds(f.want, held)
}

// swaps: half of the workers run some tasks that are wanted on all, and have room. The
// others are full. Every missing copy costs an exchange.
func swaps(workers, load, shared int) *rebalance.Problem {
	f := filler{want: make([]int32, shared)}
	for t := range f.want {
		f.want[t] = int32(workers)
	}
	held := make([][]int32, workers)
	for w := range held {
		if w%2 == 0 {
			for t := range shared {
				held[w] = append(held[w], int32(t))
			}
			held[w] = f.add(held[w], load-2*shared)
		} else {
			held[w] = f.add(held[w], load)
		}
	}
	return holds(f.want, held)
}

// halves: each half of the workers runs tasks that the other half must start. A worker
// passes over as many tasks as it may take.
func halves(workers, shared int) *rebalance.Problem {
	want := make([]int32, 2*shared)
	for t := range want {
		want[t] = int32(workers - 2)
	}
	held := make([][]int32, workers)
	for w := range held {
		for t := range shared {
			held[w] = append(held[w], int32(t+w*2/workers*shared))
		}
	}
	return holds(want, held)
}

// fewWide: all starts from nothing, and some tasks want two copies: too few
// beside the rest for their second copies to wait.
func fewWide(tasks, wide, workers int) *rebalance.Problem {
	f := filler{}
	f.add(nil, tasks)
	for t := range wide {
		f.want[t] = 2
	}
	return holds(f.want, make([][]int32, workers))
}

// picky: the tasks of the lost workers may start only on a tenth of the others, which
// must hand over the tasks that they run.
func picky(pairs, workers int) *rebalance.Problem {
	pr := even(pairs, workers, 1)
	lost := workers / 10
	for _, list := range pr.Running[:lost] {
		for _, t := range list {
			for w := range workers - lost {
				if w%10 != 0 {
					pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: t, Worker: int32(w)})
				}
			}
		}
	}
	return without(pr, lost)
}

// oneSource: the worker that joins may gain only the tasks of the first worker. So all
// others must hand tasks over to the first.
func oneSource(pairs, workers int) *rebalance.Problem {
	pr := joined(even(pairs, workers, 1), 1)
	for _, list := range pr.Running[1:] {
		for _, t := range list {
			pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: t, Worker: int32(workers)})
		}
	}
	return pr
}

// refusing: nothing runs yet, and some workers may take no task. So all others end
// above the lowest load.
func refusing(tasks, workers, refuse int) *rebalance.Problem {
	f := filler{}
	pr := holds(nil, make([][]int32, workers))
	for _, t := range f.add(nil, tasks) {
		for w := range refuse {
			pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: t, Worker: int32(w)})
		}
	}
	pr.Want = f.want
	return pr
}

// parted: nothing runs yet, and each group of workers may take only its own tasks. The
// first groups have the most.
func parted(tasks, workers, groups int) *rebalance.Problem {
	f := filler{}
	pr := holds(nil, make([][]int32, workers))
	for i, t := range f.add(nil, tasks) {
		group := min(i%groups, i/groups%groups)
		for w := range workers {
			if w%groups != group {
				pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: t, Worker: int32(w)})
			}
		}
	}
	pr.Want = f.want
	return pr
}

// quarantined puts every nth worker into quarantine, with half as many tasks again as
// the others have, and adds workers.
func quarantined(pr *rebalance.Problem, nth int) *rebalance.Problem {
	for w := 0; w+1 < len(pr.Running); w += nth {
		pr.States[w] = rebalance.Quarantined
		next := pr.Running[w+1]
		pr.Running[w] = append(pr.Running[w], next[:len(next)/4]...)
		pr.Running[w+1] = next[len(next)/4:]
	}
	return joined(pr, len(pr.Running)/10)
}

// manyCopies wants many copies of few tasks, of which random ones run.
func manyCopies(tasks, workers, wanted, percent int) *rebalance.Problem {
	random := rand.New(rand.NewPCG(6, 6))
	want := make([]int32, tasks)
	held := make([][]int32, workers)
	for t := range want {
		want[t] = int32(wanted)
		for w := range held {
			if random.IntN(100) < percent {
				held[w] = append(held[w], int32(t))
			}
		}
	}
	return holds(want, held)
}

func BenchmarkWorst(b *testing.B) {
	for _, c := range []struct {
		name string
		make func() *rebalance.Problem
	}{
		{"relieve/chain_1000", func() *rebalance.Problem { return dropChain(1_000, 100) }},
		{"relieve/chain_10000", func() *rebalance.Problem { return dropChain(10_000, 100) }},
		{"relieve/random_half", func() *rebalance.Problem { return manyCopies(10_000, 100, 50, 60) }},
		{"unstick/chain_300", func() *rebalance.Problem { return startChain(300) }},
		{"unstick/chain_1000", func() *rebalance.Problem { return startChain(1_000) }},
		{"exchange/300", func() *rebalance.Problem { return swaps(300, 1_000, 50) }},
		{"exchange/1000", func() *rebalance.Problem { return swaps(1_000, 1_000, 50) }},
		{"deal/halves_1000", func() *rebalance.Problem { return halves(1_000, 100) }},
		{"deal/halves_10000", func() *rebalance.Problem { return halves(10_000, 100) }},
		{"placeWide/few_10000", func() *rebalance.Problem { return fewWide(1_000_000, 190, 10_000) }},
		{"forbidden/picky_100", func() *rebalance.Problem { return picky(10_000, 100) }},
		{"forbidden/picky_300", func() *rebalance.Problem { return picky(30_000, 300) }},
		{"repair/one_source_1000", func() *rebalance.Problem { return oneSource(100_000, 1_000) }},
		{"repair/one_source_10000", func() *rebalance.Problem { return oneSource(1_000_000, 10_000) }},
		{"repair/refusing_10_5000", func() *rebalance.Problem { return refusing(5_000, 10, 1) }},
		{"repair/refusing_10_20000", func() *rebalance.Problem { return refusing(20_000, 10, 1) }},
		{"repair/refusing_10_80000", func() *rebalance.Problem { return refusing(80_000, 10, 1) }},
		{"repair/refusing_1000_100000", func() *rebalance.Problem { return refusing(100_000, 1_000, 20) }},
		{"repair/parted_20_5000", func() *rebalance.Problem { return parted(5_000, 20, 10) }},
		{"repair/parted_20_20000", func() *rebalance.Problem { return parted(20_000, 20, 10) }},
		{"repair/parted_20_80000", func() *rebalance.Problem { return parted(80_000, 20, 10) }},
		{"keep/half_1000", func() *rebalance.Problem { return quarantined(even(100_000, 1_000, 1), 2) }},
		{"keep/half_10000", func() *rebalance.Problem { return quarantined(even(1_000_000, 10_000, 1), 2) }},
	} {
		b.Run(c.name, func(b *testing.B) { bench(b, c.make()) })
	}
}
