package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

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
