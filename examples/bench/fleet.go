//go:build peers

package main

// The problems for all planners: fleets, and events that change them.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
)

// fleet is an assignment of tasks to workers. Both are numbered from 0.
type fleet struct {
	want []int32   // by task, the number of workers that should run it
	held [][]int32 // by worker, the tasks that it runs, in random order
}

func (f fleet) workers() int { return len(f.held) }

func (f fleet) pairs() (n int) {
	for _, list := range f.held {
		n += len(list)
	}
	return n
}

// size is the size of a fleet before any event: the numbers of running instances, of
// workers, and of copies of each task.
type size struct{ instances, workers, copies int }

// of returns a size with the same number of instances and another number of copies.
func (s size) of(copies int) size { return size{s.instances, s.workers, copies} }

func (s size) String() string {
	text := fmt.Sprintf("%s × %s", thousands(s.instances), thousands(s.workers))
	if s.copies > 1 {
		text += fmt.Sprintf(", %d copies", s.copies)
	}
	return text
}

// thousands formats a round number in short form.
func thousands(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1_000 && n%1_000 == 0:
		return fmt.Sprintf("%dk", n/1_000)
	}
	return strconv.Itoa(n)
}

// even returns a fleet in which every task has its copies and every worker its
// share. Which tasks a worker runs, and in which order it lists them, is random.
func (s size) even() fleet {
	f := fleet{want: make([]int32, s.instances/s.copies), held: make([][]int32, s.workers)}
	order := rand.New(rand.NewPCG(1, 1)).Perm(len(f.want))
	share := (len(f.want)*s.copies + s.workers - 1) / s.workers
	for w := range f.held {
		f.held[w] = make([]int32, 0, share)
	}
	for i, t := range order {
		f.want[t] = int32(s.copies)
		for c := range s.copies {
			w := (i*s.copies + c) % s.workers
			f.held[w] = append(f.held[w], int32(t))
		}
	}
	return f
}

// event is a change of a fleet. It returns another fleet and does not modify the
// original.
type event struct {
	name string
	to   func(fleet) fleet
}

// The events of the comparison. Workers join and leave at the end of the list,
// because jump hash supports nothing else.
var (
	cold       = event{"cold", func(f fleet) fleet { return fleet{f.want, make([][]int32, f.workers())} }}
	steady     = event{"steady", func(f fleet) fleet { return f }}
	oneJoins   = event{"one joins", func(f fleet) fleet { return f.joined(1) }}
	oneLost    = event{"one lost", func(f fleet) fleet { return f.lost(1) }}
	tenthLost  = event{"10% lost", func(f fleet) fleet { return f.lost(f.workers() / 10) }}
	tenthJoins = event{"10% join", func(f fleet) fleet { return f.joined(f.workers() / 10) }}
	allOnOne   = event{"all on one", fleet.gathered}

	events = []event{cold, steady, oneJoins, oneLost, tenthLost, tenthJoins, allOnOne}
)

func (f fleet) joined(n int) fleet {
	return fleet{f.want, append(slices.Clone(f.held), make([][]int32, n)...)}
}

func (f fleet) lost(n int) fleet { return fleet{f.want, f.held[:f.workers()-n]} }

// gathered makes the first worker run every task once, and the others none.
func (f fleet) gathered() fleet {
	seen := make([]bool, len(f.want))
	all := make([]int32, 0, len(f.want))
	for _, list := range f.held {
		for _, t := range list {
			if !seen[t] {
				seen[t] = true
				all = append(all, t)
			}
		}
	}
	held := make([][]int32, f.workers())
	held[0] = all
	return fleet{f.want, held}
}

// The hard cases, for which a planner must search.

// hundredthOver adds random copies, one for every hundredth task, which are surplus.
func (f fleet) hundredthOver() fleet {
	random := rand.New(rand.NewPCG(2, 2))
	held := make([][]int32, f.workers())
	for w, list := range f.held {
		held[w] = slices.Clone(list)
	}
	for range len(f.want) / 100 {
		w := random.IntN(len(held))
		held[w] = append(held[w], int32(random.IntN(len(f.want))))
	}
	return fleet{f.want, held}
}

// scattered returns a fleet with the given number of random pairs of task and
// worker.
func (f fleet) scattered(pairs int) fleet {
	random := rand.New(rand.NewPCG(3, 3))
	held := make([][]int32, f.workers())
	for range pairs {
		w := random.IntN(len(held))
		held[w] = append(held[w], int32(random.IntN(len(f.want))))
	}
	for w := range held {
		held[w] = slices.Clone(held[w]) // contiguous in memory, as in an even fleet
	}
	return fleet{f.want, held}
}

// crowded returns a fleet in which each task is wanted on 90% to 100% of the
// workers, and four fifths of all pairs exist at random.
func crowded(tasks, workers int) fleet {
	random := rand.New(rand.NewPCG(4, 4))
	f := fleet{make([]int32, tasks), make([][]int32, workers)}
	for t := range f.want {
		f.want[t] = int32(workers - random.IntN(workers/10+1))
		for w := range f.held {
			if random.IntN(10) < 8 {
				f.held[w] = append(f.held[w], int32(t))
			}
		}
	}
	return f
}
