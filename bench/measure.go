package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// How everything here is measured: all that is compared runs in turn, round
// after round, so that what else the machine does meets everyone alike; the
// garbage of one is collected before the next is timed.

// entrant is one of several that are measured side by side.
type entrant struct {
	name string
	// rounds is in how many of the rounds it takes part; 0 is all of them.
	rounds int
	// run is what is timed. before and after may be nil.
	before, run, after func() error
}

// samples are the times that one entrant took.
type samples []time.Duration

// median returns the middle one, or the mean of the middle two; 0 if there are none.
func (s samples) median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	s = slices.Clone(s)
	slices.Sort(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// race measures the entrants in turn. Whoever takes part in more than one round
// gets one before, which does not count, to come by its memory.
func race(rounds int, entrants []entrant) ([]samples, error) {
	times := make([]samples, len(entrants))
	for round := -1; round < rounds; round++ {
		for i, e := range entrants {
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
				times[i] = append(times[i], took)
			}
		}
	}
	return times, nil
}

// takesPart spreads the turns of an entrant evenly over the rounds.
func takesPart(round, rounds, turns int) bool {
	return (round+1)*turns/rounds > round*turns/rounds
}

func (e entrant) measure() (time.Duration, error) {
	if e.before != nil {
		if err := e.before(); err != nil {
			return 0, err
		}
	}
	runtime.GC()
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

// ratio returns how many times b fits into a.
func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
