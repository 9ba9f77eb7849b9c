package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// How everything here is measured: all that is compared runs in turn, round
// after round, so that what else the machine does meets everyone alike, and each
// round begins with another; the garbage of one is collected before the next.
// What is held against the floor, and the floor, is warm: it runs once untimed
// right before it is timed. Whoever comes behind a collection, or behind somebody
// who leaves the caches full of something else, is up to five times slower than
// he is alone, and a floor must not be that.

// entrant is one of several that are measured side by side.
type entrant struct {
	name string
	// rounds is in how many of the rounds it takes part; 0 is all of them.
	rounds int
	// warm has it run once, untimed, right before it is timed.
	warm bool
	// follows has it come right behind the entrant before it in every round.
	follows bool
	// run is what is timed. before and after may be nil.
	before, run, after func() error
}

// samples are the times that one entrant took, by round; 0 where it took no part.
type samples []time.Duration

// median returns the middle one, or the mean of the middle two; 0 if there are none.
func (s samples) median() time.Duration {
	return middle(slices.DeleteFunc(slices.Clone(s), func(d time.Duration) bool { return d == 0 }))
}

// percentile returns the smallest sample that p percent of them do not exceed; 0
// if there are none.
func (s samples) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

// each returns what a function makes of every sample.
func (s samples) each(f func(time.Duration) time.Duration) samples {
	made := make(samples, len(s))
	for i, d := range s {
		if d != 0 {
			made[i] = f(d)
		}
	}
	return made
}

// less takes away from each sample what another took in the same round.
func (s samples) less(other samples) samples {
	return combine(s, other, func(a, b time.Duration) time.Duration { return a - b })
}

// together adds up what several took in the same round.
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

// ratio returns how many times as long as b it took a: the median over the rounds
// that both took part in, which is steadier than the ratio of the medians
// where the machine has other things to do for a while.
func ratio(a, b samples) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if a[i] != 0 && b[i] != 0 {
			ratios = append(ratios, float64(a[i])/float64(b[i]))
		}
	}
	return middle(ratios)
}

// middle returns the middle of some numbers, or the mean of the middle two; 0 if
// there are none. It changes their order.
func middle[N time.Duration | float64 | int](of []N) N {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// race measures the entrants in turn, each round from another one on. Whoever
// takes part in more than one round gets one before, which does not count, to
// come by its memory.
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
				times[i][round] = max(took, 1) // 0 is none
			}
		}
	}
	return times, nil
}

// order is who comes when: the entrants in a circle, from another one on each
// round. It begins with nobody who has to follow another.
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
