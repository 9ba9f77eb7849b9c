package main

import "github.com/dgryski/go-jump"

// Jump consistent hash: no memory, no balance to speak of, and workers that
// come and go at the end of the row only. It is here for its speed.

func jumpHash() planner {
	return planner{
		name: "jump hash",
		takes: func(s size, e event) int {
			// It has no notion of what runs where: cold and all on one are steady.
			if e.name == cold.name || e.name == allOnOne.name {
				return 0
			}
			return always(s, e)
		},
		prepare: func(now fleet, before int) (attempt, error) {
			// Its keys are numbers; to make them out of names is not counted.
			keys := make([]uint64, len(now.want))
			for t := range keys {
				keys[t] = scramble(uint64(t))
			}
			owners := make([]int32, len(keys))
			assign := func(workers int) {
				for t, key := range keys {
					owners[t] = jump.Hash(key, workers)
				}
			}
			assign(before)
			ran := byWorker(owners, max(before, now.workers()))
			return attempt{
				found:  fleet{now.want, ran[:now.workers()]},
				plan:   func() error { assign(now.workers()); return nil },
				placed: func() ([][]int32, error) { return byWorker(owners, now.workers()), nil },
			}, nil
		},
	}
}

// byWorker turns the owner of each task into the tasks of each worker.
func byWorker(owners []int32, workers int) [][]int32 {
	placed := make([][]int32, workers)
	for t, w := range owners {
		placed[w] = append(placed[w], int32(t))
	}
	return placed
}

// scramble is the finalizer of SplitMix64, a hash of a number.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
