package rebalance_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file measures plans of large fleets against a bare scan of the same
// integers, below which no planner can get.

// fleets are sizes in pairs of task and worker that run; each task has copies.
var fleets = []struct{ pairs, workers, copies int }{
	{100_000, 1_000, 1}, {100_000, 1_000, 3}, {1_000_000, 10_000, 1}, {1_000_000, 10_000, 3},
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
	{"all_on_one", func(pr *rebalance.Problem) *rebalance.Problem {
		for w := range pr.Held {
			pr.Held[w] = nil
		}
		for t := range pr.Want {
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
			b.Run("scan", func(b *testing.B) { scan(b, even(size.pairs, size.workers, size.copies)) })
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
	b.Run("scan", func(b *testing.B) { scan(b, pr) })
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

// bench plans a problem over and over with one planner.
func bench(b *testing.B, pr *rebalance.Problem) {
	b.Helper()
	var planner rebalance.Planner
	plan, err := planner.Plan(pr)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := planner.Plan(pr); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(plan.Adds), "adds")
}

// scan counts the copies of each task and the load of each worker.
func scan(b *testing.B, pr *rebalance.Problem) {
	b.Helper()
	copies, loads := make([]int32, len(pr.Want)), make([]int32, len(pr.States))
	for b.Loop() {
		clear(copies)
		for w, list := range pr.Held {
			loads[w] = int32(len(list))
			for _, t := range list {
				copies[t]++
			}
		}
	}
}
