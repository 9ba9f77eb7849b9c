package rebalance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file measures plans of large fleets against a bare scan of the same
// integers, below which no planner can get.

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
	for _, list := range pr.Held {
		for i, t := range list {
			list[i] = int32(order[t])
		}
	}
	return pr
}

// without takes some workers away, with all that they run.
func without(pr *rebalance.Problem, lost int) *rebalance.Problem {
	pr.States, pr.Held = pr.States[lost:], pr.Held[lost:]
	return pr
}

// joined adds some workers that run nothing.
func joined(pr *rebalance.Problem, fresh int) *rebalance.Problem {
	pr.States = append(pr.States, make([]rebalance.State, fresh)...)
	pr.Held = append(pr.Held, make([][]int32, fresh)...)
	if pr.Pinned != nil {
		pr.Pinned = append(pr.Pinned, make([]int32, fresh)...)
	}
	return pr
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
	pr.Pinned = make([]int32, len(pr.Held))
	for w, list := range pr.Held {
		pr.Pinned[w] = int32(len(list) / 10)
	}
	return pr
}

// events are what happens to an even fleet.
var events = []struct {
	name string
	to   func(*rebalance.Problem) *rebalance.Problem
}{
	{"steady", func(pr *rebalance.Problem) *rebalance.Problem { return pr }},
	{"one_joins", func(pr *rebalance.Problem) *rebalance.Problem { return joined(pr, 1) }},
	{"one_lost", func(pr *rebalance.Problem) *rebalance.Problem { return without(pr, 1) }},
	{"tenth_joins", func(pr *rebalance.Problem) *rebalance.Problem { return joined(pr, len(pr.States)/10) }},
	{"tenth_lost", func(pr *rebalance.Problem) *rebalance.Problem { return without(pr, len(pr.States)/10) }},
	{"one_silent", func(pr *rebalance.Problem) *rebalance.Problem { return in(pr, rebalance.Frozen, 1) }},
	{"one_drains", func(pr *rebalance.Problem) *rebalance.Problem { return in(pr, rebalance.Draining, 1) }},
	{"tenth_drains", func(pr *rebalance.Problem) *rebalance.Problem { return in(pr, rebalance.Draining, len(pr.States)/10) }},
	{"one_quarantined", func(pr *rebalance.Problem) *rebalance.Problem { return in(pr, rebalance.Quarantined, 1) }},
	{"one_gains", func(pr *rebalance.Problem) *rebalance.Problem {
		pr = joined(pr, 1)
		pr.States[len(pr.States)-1], pr.Gain = rebalance.Quarantined, make([]int32, len(pr.States))
		pr.Gain[len(pr.States)-1] = 1
		return pr
	}},
	{"tenth_pinned_one_joins", func(pr *rebalance.Problem) *rebalance.Problem { return joined(pinnedTenth(pr), 1) }},
	{"all_on_one", func(pr *rebalance.Problem) *rebalance.Problem {
		all := rand.New(rand.NewPCG(5, 5)).Perm(len(pr.Want))
		clear(pr.Held)
		for _, t := range all {
			pr.Held[0] = append(pr.Held[0], int32(t))
		}
		return pr
	}},
	{"hundredth_over", func(pr *rebalance.Problem) *rebalance.Problem {
		random := rand.New(rand.NewPCG(2, 2))
		for range len(pr.Want) / 100 {
			w := random.IntN(len(pr.Held))
			pr.Held[w] = append(pr.Held[w], int32(random.IntN(len(pr.Want))))
		}
		return pr
	}},
	{"random_pairs", func(pr *rebalance.Problem) *rebalance.Problem {
		random := rand.New(rand.NewPCG(3, 3))
		n := 0
		for w, list := range pr.Held {
			n += len(list)
			pr.Held[w] = nil
		}
		for range n * 3 / 2 {
			w := random.IntN(len(pr.Held))
			pr.Held[w] = append(pr.Held[w], int32(random.IntN(len(pr.Want))))
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

// BenchmarkCrowded wants nearly as many copies of each task as there are
// workers.
func BenchmarkCrowded(b *testing.B) {
	const tasks, workers = 10_000, 100
	random := rand.New(rand.NewPCG(4, 4))
	pr := &rebalance.Problem{
		Want: make([]int32, tasks), States: make([]rebalance.State, workers), Held: make([][]int32, workers),
		MaxMoves: rebalance.NoLimit,
	}
	for t := range pr.Want {
		pr.Want[t] = int32(workers - 10 + random.IntN(11))
		for w := range workers {
			if random.IntN(100) < 80 {
				pr.Held[w] = append(pr.Held[w], int32(t))
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

// floor is what any planner has to do: to know which copies of a task there
// are, and which of them are named twice.
type floor struct {
	tasks []struct{ owner, copies int32 }
	loads []int32
}

// scan marks the owner and counts the copies of each task.
func (f *floor) scan(pr *rebalance.Problem) {
	f.tasks = slices.Grow(f.tasks, len(pr.Want))[:len(pr.Want)]
	f.loads = slices.Grow(f.loads, len(pr.Held))[:len(pr.Held)]
	clear(f.tasks)
	clear(f.loads)
	for w, list := range pr.Held {
		f.loads[w] = int32(len(list))
		for _, t := range list {
			s := &f.tasks[t]
			s.owner = int32(w)
			s.copies++
		}
	}
}
