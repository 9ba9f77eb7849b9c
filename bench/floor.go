package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// The floor: what nobody who looks at every reported instance, compares every
// reported name and calls every worker can do without.

// scan passes once over what every worker runs, and marks for each task the
// last worker met and how many there were: one word for each task.
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

// compare compares every name in one set of lists with the one in its place in
// another.
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

// callsAtOnce is how many calls the orchestrator has in flight by default, and
// callTimeout how long each may take.
const (
	callsAtOnce = 1024
	callTimeout = 10 * time.Second
)

// fanOut makes so many calls that do nothing, each with a deadline of its own.
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
