package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// What the benchmarks of whole terms share: a Communicator that costs next to
// nothing, a leader on top of it, and the floors below which no term can get.

// size is a fleet in which every task runs once.
type size struct{ tasks, workers int }

func (s size) String() string { return fmt.Sprintf("%dx%d", s.tasks, s.workers) }

// benchFleet is a Communicator that hands out lists and applies writes to them,
// and the leader of its workers. Each list is in no order.
type benchFleet struct {
	*orchestrator.Orchestrator[string, string]

	same    bool // hands out the very same slices (C2)
	refuses bool // every start
	idle    bool // acknowledges writes and forgets them
	gate    chan struct{}
	workers []*benchWorker
	names   []string // of the first workers
	pairs   [][]int32
	tasks   []orchestrator.Task[string]
}

// benchWorker is what a worker answers to List: in turn from two copies of its
// list, which have no memory in common, as what comes over a network has none;
// or always the very same slice.
type benchWorker struct {
	copies [2][]string
	turn   int
	err    error // what it answers instead
	waits  bool  // for the gate, before it answers
}

// at returns a worker by its name, which ends in its number: what it costs to
// find a worker is not the leader's affair.
func (f *benchFleet) at(name string) *benchWorker {
	i := 0
	for _, digit := range []byte(name[len(name)-5:]) {
		i = 10*i + int(digit-'0')
	}
	return f.workers[i]
}

func (f *benchFleet) List(_ context.Context, worker string) ([]string, error) {
	w := f.at(worker)
	if w.waits {
		<-f.gate
	}
	if !f.same {
		w.turn = 1 - w.turn
	}
	return w.copies[w.turn], w.err
}

// The slices handed out are not changed (C2).
func (f *benchFleet) Add(_ context.Context, worker, task string) error {
	switch {
	case f.refuses:
		return orchestrator.ErrRejected
	case f.idle:
		return nil
	}
	w := f.at(worker)
	for i, list := range w.copies {
		w.copies[i] = append(slices.Clip(list), strings.Clone(task))
	}
	return nil
}

func (f *benchFleet) Remove(_ context.Context, worker, task string) error {
	if f.idle {
		return nil
	}
	w := f.at(worker)
	for i, list := range w.copies {
		at := slices.Index(list, task)
		w.copies[i] = slices.Concat(list[:at], list[at+1:])
	}
	return nil
}

// newBenchFleet returns a leader of workers that run all tasks, evenly.
func newBenchFleet(b *testing.B, s size, same bool, opts ...orchestrator.Option) *benchFleet {
	b.Helper()
	f := &benchFleet{
		same: same, workers: make([]*benchWorker, s.workers), names: make([]string, s.workers),
		pairs: make([][]int32, s.workers), tasks: make([]orchestrator.Task[string], s.tasks),
	}
	for at, task := range rand.New(rand.NewPCG(1, 1)).Perm(s.tasks) {
		f.pairs[at%s.workers] = append(f.pairs[at%s.workers], int32(task))
	}
	members := make([]orchestrator.Worker[string], s.workers)
	for i := range f.names {
		f.names[i] = workerName(i)
		members[i].Name = f.names[i]
		f.workers[i] = &benchWorker{copies: [2][]string{f.list(i), f.list(i)}}
	}
	for i := range f.tasks {
		f.tasks[i].Name = taskName(i)
	}
	var err error
	f.Orchestrator, err = orchestrator.New(f, opts...)
	require.NoError(b, err)
	require.NoError(b, f.UpdateTasks(f.tasks))
	require.NoError(b, f.UpdateWorkers(members))
	return f
}

func workerName(i int) string { return fmt.Sprintf("worker-%05d", i) }

func taskName(i int) string { return fmt.Sprintf("task-%07d", i) }

// list returns the names of what worker i runs at first, in memory of their own.
func (f *benchFleet) list(i int) []string {
	list := make([]string, len(f.pairs[i]))
	for k, task := range f.pairs[i] {
		list[k] = taskName(int(task))
	}
	return list
}

// join adds a worker that runs nothing, and returns its name.
func (f *benchFleet) join(b *testing.B) string {
	b.Helper()
	name := workerName(len(f.workers))
	f.workers = append(f.workers, &benchWorker{})
	require.NoError(b, f.AddWorker(name))
	return name
}

// leave removes the worker that joined last.
func (f *benchFleet) leave(name string) {
	f.RemoveWorker(name)
	f.workers = f.workers[:len(f.workers)-1]
}

// term runs a term in which nothing fails, and returns how long it took.
func (f *benchFleet) term(b *testing.B) time.Duration {
	b.Helper()
	start := time.Now()
	if err := f.NextTerm(b.Context()); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// floors are what a term cannot do without, timed.
type floors struct{ scan, compare, fanOut samples }

// bench holds what the floors need.
type bench struct {
	fleet  *benchFleet
	owner  []int32
	copies []int32
	floors
	terms samples
}

func newBench(f *benchFleet) *bench {
	return &bench{fleet: f, owner: make([]int32, len(f.tasks)), copies: make([]int32, len(f.tasks))}
}

// floor runs each of them once.
func (f *bench) floor(b *testing.B) {
	b.Helper()
	f.scan.time(f.scanPairs)
	differ := 0
	f.compare.time(func() { differ = f.compareNames() })
	require.Zero(b, differ)
	f.fanOut.time(func() { fanOut(b.Context(), len(f.fleet.names)) })
}

// scanPairs goes over the integers: whose is each task, and how many copies has
// it?
func (f *bench) scanPairs() {
	clear(f.copies)
	for w, list := range f.fleet.pairs {
		for _, task := range list {
			f.owner[task] = int32(w)
			f.copies[task]++
		}
	}
}

// compareNames compares every name with what the same worker reported last.
func (f *bench) compareNames() (differ int) {
	for _, w := range f.fleet.workers {
		copies := &w.copies
		for k, task := range copies[0] {
			if copies[1][k] != task {
				differ++
			}
		}
	}
	return differ
}

// fanOut makes calls that do nothing, each with a deadline of its own, 128 of
// them at a time.
func fanOut(ctx context.Context, calls int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(calls, 128) {
		wg.Go(func() {
			for next.Add(1) <= int64(calls) {
				_, cancel := context.WithTimeout(ctx, 10*time.Second)
				cancel()
			}
		})
	}
	wg.Wait()
}

// samples are how long something took, time after time.
type samples []time.Duration

func (s *samples) add(took time.Duration) { *s = append(*s, took) }

func (s *samples) time(f func()) {
	start := time.Now()
	f()
	s.add(time.Since(start))
}

// median returns the one in the middle, in nanoseconds.
func (s samples) median() float64 {
	return float64(slices.Sorted(slices.Values(s))[len(s)/2])
}

// over returns the median of the ratios, round by round: other programs disturb
// whole rounds rather than one side of them.
func (s samples) over(others ...samples) float64 {
	ratios := make([]float64, len(s))
	for i := range s {
		floor := time.Duration(0)
		for _, other := range others {
			floor += other[i]
		}
		ratios[i] = float64(s[i]) / float64(floor)
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// report reports the median in milliseconds.
func (s samples) report(b *testing.B, unit string) { b.ReportMetric(s.median()/1e6, unit+"-ms") }
