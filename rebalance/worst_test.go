package rebalance_test

import (
	"math/rand/v2"
	"testing"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file holds the problems that the steps of a plan find hardest, each made
// to provoke the worst case that the step's comment states.

// holds makes a problem of what each worker runs; want is by task.
func holds(want []int32, held [][]int32) *rebalance.Problem {
	return &rebalance.Problem{
		Want: want, Held: held, States: make([]rebalance.State, len(held)), MaxMoves: noLimit,
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

// dropChain: of each pair of neighbours one has to drop a task. All but the last
// drop the one that the next has to keep then, so that the last has one too
// many, and what it drops has to be kept by the one before, and so on to the
// first: one path through all workers.
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

// swaps: half of the workers run some tasks that all shall run, and have room;
// the others are full. Every missing copy costs an exchange.
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

// halves: two halves of the workers each run what the other shall run too.
// Whoever takes has to pass over as many tasks as it may take.
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

// picky: the tasks of the workers lost may be started on a tenth of the others
// only, which have to hand over what they run.
func picky(pairs, workers int) *rebalance.Problem {
	pr := even(pairs, workers, 1)
	lost := workers / 10
	for _, list := range pr.Held[:lost] {
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

// oneSource: of all that runs, the worker that joins may have only what the first
// one runs: all other workers have to hand over to that one.
func oneSource(pairs, workers int) *rebalance.Problem {
	pr := joined(even(pairs, workers, 1), 1)
	for _, list := range pr.Held[1:] {
		for _, t := range list {
			pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: t, Worker: int32(workers)})
		}
	}
	return pr
}

// refusing: all starts from nothing, and some workers take none of it. What was
// meant for them goes to the others, which are all above the lowest load then.
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

// parted: the same in groups of workers, of which each takes its own tasks only:
// the first groups the most.
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

// quarantined puts every nth worker into quarantine with half as much again as the
// others run, and lets some join.
func quarantined(pr *rebalance.Problem, nth int) *rebalance.Problem {
	for w := 0; w+1 < len(pr.Held); w += nth {
		pr.States[w] = rebalance.Quarantined
		next := pr.Held[w+1]
		pr.Held[w] = append(pr.Held[w], next[:len(next)/4]...)
		pr.Held[w+1] = next[len(next)/4:]
	}
	return joined(pr, len(pr.Held)/10)
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
