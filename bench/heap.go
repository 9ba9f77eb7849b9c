package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/rebalance"
)

// Memory: what a steady plan allocates, and what an orchestrator keeps.

// planAllocations returns how often a steady plan of this size allocates.
func planAllocations(s size) (float64, error) {
	pr := s.even().problem()
	var keeper rebalance.Planner
	var failed error
	n := testing.AllocsPerRun(10, func() {
		_, err := keeper.Plan(pr)
		failed = errors.Join(failed, err)
	})
	return n, failed
}

// lists is a Communicator whose slices the orchestrator alone keeps. The bytes
// of the names belong to lists.
type lists map[string][]string

var _ orchestrator.Communicator[string, string] = lists{}

// List returns a copy.
func (l lists) List(_ context.Context, worker string) ([]string, error) {
	return slices.Clone(l[worker]), nil
}

var errReadOnly = errors.New("nothing was to be written")

// Add is not called.
func (l lists) Add(context.Context, string, string) error { return errReadOnly }

// Remove is not called.
func (l lists) Remove(context.Context, string, string) error { return errReadOnly }

// heapPerInstance returns how many bytes an orchestrator of this size keeps for
// each instance, once it has had a few terms.
func heapPerInstance(ctx context.Context, s size) (float64, error) {
	f := s.even()
	c := make(lists, f.workers())
	names := f.names()
	for w, list := range f.held {
		tasks := make([]string, len(list))
		for i, t := range list {
			tasks[i] = names[t]
		}
		c[workerName(w)] = tasks
	}
	with, err := heapWhileLed(ctx, f, c, names)
	if err != nil {
		return 0, err
	}
	without := liveHeap()
	runtime.KeepAlive(names)
	runtime.KeepAlive(c)
	runtime.KeepAlive(f)
	return float64(with-without) / float64(f.pairs()), nil
}

// heapWhileLed returns the live heap while there is an orchestrator.
func heapWhileLed(ctx context.Context, f fleet, c lists, names []string) (int64, error) {
	o, err := lead(ctx, f, c, names)
	if err != nil {
		return 0, err
	}
	with := liveHeap()
	runtime.KeepAlive(o)
	return with, nil
}

// liveHeap returns how many bytes are in use after a collection.
func liveHeap() int64 {
	for range 3 { // finalizers, and what they let go
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
