//go:build peers

package main

// The method of measuring. Everything that is compared runs in turn, round after
// round, so that other load of the machine affects all alike. Each round begins with
// another entrant, and each turn with a garbage collection. The floor, and what is
// compared with it, is warm: it runs once untimed right before the timed run.
// Otherwise it could be up to five times slower, after a collection or with caches
// full of other data, and a floor must be a minimum.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// entrant is a participant in a race.
type entrant struct {
	name string
	// rounds is the number of rounds in which it takes part; 0 means all.
	rounds int
	// warm makes it run once, untimed, right before the timed run.
	warm bool
	// follows makes it run right after the previous entrant in every round.
	follows bool
	// run is timed. before and after may be nil.
	before, run, after func() error
}

// samples are the times of one entrant by round; 0 if it did not take part.
type samples []time.Duration

// median returns the middle sample, or the mean of the middle two. It ignores zeros,
// and returns 0 without samples.
func (s samples) median() time.Duration {
	return middle(slices.DeleteFunc(slices.Clone(s), func(d time.Duration) bool { return d == 0 }))
}

// percentile returns the smallest sample that at least p percent of the samples do
// not exceed, or 0 without samples.
func (s samples) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

// each applies f to every sample except zeros.
func (s samples) each(f func(time.Duration) time.Duration) samples {
	made := make(samples, len(s))
	for i, d := range s {
		if d != 0 {
			made[i] = f(d)
		}
	}
	return made
}

// less subtracts the sample of the same round.
func (s samples) less(other samples) samples {
	return combine(s, other, func(a, b time.Duration) time.Duration { return a - b })
}

// together adds the samples of the same round.
func together(first samples, others ...samples) samples {
	for _, other := range others {
		first = combine(first, other, func(a, b time.Duration) time.Duration { return a + b })
	}
	return first
}

func combine(s, other samples, f func(a, b time.Duration) time.Duration) samples {
	made := make(samples, min(len(s), len(other)))
	for i := range made {
		if s[i] != 0 && other[i] != 0 {
			made[i] = f(s[i], other[i])
		}
	}
	return made
}

// ratio returns the median of a divided by b over the rounds in which both took
// part. It is steadier than the ratio of the medians if other load comes and goes.
func ratio(a, b samples) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if a[i] != 0 && b[i] != 0 {
			ratios = append(ratios, float64(a[i])/float64(b[i]))
		}
	}
	return middle(ratios)
}

// middle returns the median of some numbers, which is the mean of the middle two if
// their number is even, or 0 without numbers. It sorts them.
func middle[N time.Duration | float64 | int](of []N) N {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// race measures the entrants in turn, and begins each round with another one. An
// entrant that takes part in more than one round gets an extra first turn, which
// does not count, to allocate its memory.
func race(rounds int, entrants []entrant) ([]samples, error) {
	times := make([]samples, len(entrants))
	for i := range times {
		times[i] = make(samples, rounds)
	}
	for round := -1; round < rounds; round++ {
		for _, i := range order(entrants, round+1) {
			e := entrants[i]
			turns := rounds
			if e.rounds > 0 {
				turns = min(e.rounds, rounds)
			}
			if round < 0 && turns == 1 || round >= 0 && !takesPart(round, rounds, turns) {
				continue
			}
			took, err := e.measure()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.name, err)
			}
			if round >= 0 {
				times[i][round] = max(took, 1) // 0 means that it did not take part
			}
		}
	}
	return times, nil
}

// order returns the order of the entrants in a round: a circle that begins with
// another entrant each round, but never with one that follows another.
func order(entrants []entrant, round int) []int {
	var free, circle []int
	for i, e := range entrants {
		circle = append(circle, i)
		if !e.follows {
			free = append(free, i)
		}
	}
	first := free[round%len(free)]
	return slices.Concat(circle[first:], circle[:first])
}

// takesPart spreads the turns of an entrant evenly over the rounds.
func takesPart(round, rounds, turns int) bool {
	return (round+1)*turns/rounds > round*turns/rounds
}

func (e entrant) measure() (time.Duration, error) {
	runtime.GC()
	if e.before != nil {
		if err := e.before(); err != nil {
			return 0, err
		}
	}
	if e.warm {
		if err := e.run(); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err := e.run()
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	if e.after != nil {
		err = e.after()
	}
	return took, err
}

// The floor: the least work of a system that reads every reported instance, compares
// every reported name and calls every worker.

// scan passes once over the tasks of every worker. For each task it stores the last
// worker and the number of copies in one word.
type scan struct {
	words []uint64
	found fleet
}

func newScan(f fleet) *scan { return &scan{make([]uint64, len(f.want)), f} }

func (s *scan) run() error {
	clear(s.words)
	for w, list := range s.found.held {
		owner := uint64(w+1) << 32
		for _, t := range list {
			s.words[t] = owner | uint64(uint32(s.words[t])+1)
		}
	}
	return nil
}

// compare compares every name with the name at the same place in the other lists.
func compare(a, b [][]string) error {
	for w := range a {
		for i, name := range a[w] {
			if name != b[w][i] {
				return errors.New("two copies of the same list differ")
			}
		}
	}
	return nil
}

// callsAtOnce is the orchestrator's default limit of calls in flight, and
// callTimeout the limit of each call.
const (
	callsAtOnce = 1024
	callTimeout = 10 * time.Second
)

// fanOut makes a number of calls that do nothing, each with its own deadline.
func fanOut(calls int) error {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(calls, callsAtOnce) {
		group.Go(func() {
			for next.Add(1) <= int64(calls) {
				_, cancel := context.WithTimeout(context.Background(), callTimeout)
				cancel()
			}
		})
	}
	group.Wait()
	return nil
}

// eachOf returns a figure of each column.
func eachOf[C any](columns []C, figure func(C) number) []number {
	figures := make([]number, len(columns))
	for i, c := range columns {
		figures[i] = figure(c)
	}
	return figures
}

// medianOf returns the median of a figure over several events.
func medianOf[E any, N int | time.Duration](of []E, figure func(E) N) N {
	figures := make([]N, len(of))
	for i, e := range of {
		figures[i] = figure(e)
	}
	return middle(figures)
}
