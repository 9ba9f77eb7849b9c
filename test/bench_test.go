package test

// The worst case of each step of a term, in two sizes, on a Communicator that costs
// almost nothing. If ten times the size takes much more than ten times the time, a step
// is quadratic. Command bench measures ordinary terms.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

var large = size{1_000_000, 10_000}

// BenchmarkWorstRefused makes every worker refuse every start for three terms, so that
// every task is suspect. Then the workers accept all starts until all tasks run.
func BenchmarkWorstRefused(b *testing.B) {
	for _, s := range []size{{10_000, 100}, {100_000, 1_000}} {
		b.Run(s.String(), func(b *testing.B) {
			var refused, retried samples
			for b.Loop() {
				f := newBenchFleet(b, s, true)
				for _, w := range f.workers {
					*w = benchWorker{}
				}
				term := func() { _ = f.NextTerm(b.Context()) } // with failures
				f.refuses = true
				for range 3 {
					refused.time(term)
				}
				f.refuses = false
				for terms := 0; f.LastPlan().Stats.Instances.Running < s.tasks; terms++ {
					require.Less(b, terms, 100)
					retried.time(term)
				}
			}
			refused.report(b, "refused")
			retried.report(b, "retried")
		})
	}
}

var errAway = errors.New("away")

// BenchmarkWorstLists measures terms without changes whose lists take the longest to
// read: every worker answers in another order, every task has another name, half of the
// workers are silent, or half of the answers come late and in another order. x-scan is in
// multiples of the scan of the integers. Look-ups miss the caches that the smaller size
// still fits into.
func BenchmarkWorstLists(b *testing.B) {
	for _, s := range []size{{100_000, 1_000}, large} {
		b.Run("shuffled/"+s.String(), func(b *testing.B) {
			f := newBenchFleet(b, s, false)
			f.term(b)
			random := rand.New(rand.NewPCG(2, 2))
			for _, w := range f.workers {
				random.Shuffle(len(w.copies[0]), func(i, k int) {
					w.copies[0][i], w.copies[0][k] = w.copies[0][k], w.copies[0][i]
				})
			}
			f.term(b)
			bench := newBench(f)
			for b.Loop() {
				bench.worst(b, nil)
			}
			bench.reportWorst(b)
		})
		b.Run("renamed/"+s.String(), func(b *testing.B) {
			f := newBenchFleet(b, s, false)
			bench := newBench(f)
			var update samples
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				prefix := string(rune('a' + i%26))
				tasks := slices.Clone(f.tasks)
				for k := range tasks {
					tasks[k].Name = prefix + tasks[k].Name
				}
				for w, list := range f.pairs {
					names := make([]string, len(list))
					for k, task := range list {
						names[k] = prefix + taskName(int(task))
					}
					f.workers[w].copies = [2][]string{names, names}
				}
				update.time(func() { require.NoError(b, f.UpdateTasks(tasks)) })
				b.StartTimer()
				bench.worst(b, nil)
			}
			bench.reportWorst(b)
			update.report(b, "update")
		})
		b.Run("half-silent/"+s.String(), func(b *testing.B) {
			f := newBenchFleet(b, s, true, orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
			f.term(b)
			f.everySecond(func(w *benchWorker) { w.err = errAway })
			bench := newBench(f)
			for b.Loop() {
				bench.worst(b, errAway)
			}
			bench.reportWorst(b)
			require.Equal(b, s.tasks/2, f.LastPlan().Stats.Instances.Held)
		})
		b.Run("half-late/"+s.String(), func(b *testing.B) {
			f := newBenchFleet(b, s, false, orchestrator.WithConcurrency(s.workers))
			f.term(b)
			bench := newBench(f)
			goroutines := runtime.NumGoroutine()
			for b.Loop() {
				b.StopTimer()
				f.everySecond(func(w *benchWorker) { w.err = errAway })
				require.Error(b, f.NextTerm(b.Context()))
				f.gate = make(chan struct{})
				f.everySecond(func(w *benchWorker) {
					w.err, w.waits = nil, true
					w.copies[0], w.copies[1] = slices.Clone(w.copies[1]), slices.Clone(w.copies[0])
					slices.Reverse(w.copies[0])
				})
				require.Error(b, f.NextTerm(b.Context()))
				close(f.gate)
				f.everySecond(func(w *benchWorker) { w.waits = false })
				for runtime.NumGoroutine() > goroutines {
					runtime.Gosched()
				}
				b.StartTimer()
				bench.worst(b, nil)
			}
			bench.reportWorst(b)
		})
	}
}

// worst runs the scan of the integers, and a term.
func (f *bench) worst(b *testing.B, want error) {
	b.Helper()
	f.scan.time(f.scanPairs)
	var err error
	f.terms.time(func() { err = f.fleet.NextTerm(b.Context()) })
	require.ErrorIs(b, err, want)
	require.Empty(b, f.fleet.LastPlan().Changes)
}

func (f *bench) reportWorst(b *testing.B) {
	b.Helper()
	f.terms.report(b, "term")
	b.ReportMetric(f.terms.over(f.scan), "x-scan")
}

// everySecond changes every second worker.
func (f *benchFleet) everySecond(change func(*benchWorker)) {
	for i := 1; i < len(f.workers); i += 2 {
		change(f.workers[i])
	}
}

// BenchmarkWorstWrites begins with one worker that runs everything. Nearly every task
// leaves it, write by write or in one call.
func BenchmarkWorstWrites(b *testing.B) {
	for _, s := range []size{{10_000, 10}, {100_000, 100}} {
		for _, batch := range []bool{false, true} {
			name := "single/"
			if batch {
				name = "apply/"
			}
			b.Run(name+s.String(), func(b *testing.B) {
				f := newBenchFleet(b, s, true)
				f.idle = true
				if batch {
					o, err := orchestrator.New(applierFleet{f})
					require.NoError(b, err)
					require.NoError(b, o.UpdateTasks(f.tasks))
					for _, name := range f.names {
						require.NoError(b, o.AddWorker(name))
					}
					f.Orchestrator = o
				}
				all := f.workers[0]
				for _, w := range f.workers[1:] {
					all.copies[0] = append(all.copies[0], w.copies[0]...)
					w.copies[0] = nil
				}
				for b.Loop() {
					f.term(b)
				}
				adds := f.LastPlan().Stats.Adds
				require.Equal(b, s.tasks-s.tasks/s.workers, adds)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*adds), "ns/write")
			})
		}
	}
}

// BenchmarkWorstSwapped replaces the expected tasks. The stops time out once, so they
// come after the starts, whose outcomes are unknown. Each stop then looks for its task
// among those starts.
func BenchmarkWorstSwapped(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var last samples
			for b.Loop() {
				w := &swapped{}
				tasks := make([]orchestrator.Task[string], n)
				for i := range n {
					w.old = append(w.old, "old"+strconv.Itoa(i))
					tasks[i].Name = "new" + strconv.Itoa(i)
				}
				o, err := orchestrator.New[string, string](w)
				require.NoError(b, err)
				require.NoError(b, o.AddWorker("w"))
				require.NoError(b, o.UpdateTasks(nil))
				_ = o.NextTerm(b.Context()) // the stops time out
				require.NoError(b, o.UpdateTasks(tasks))
				last.time(func() { _ = o.NextTerm(b.Context()) })
				require.Len(b, o.LastPlan().Changes, 2*n)
			}
			last.report(b, "swapped")
		})
	}
}

// swapped is a worker whose first Apply times out. Later it carries out stops, and leaves
// the outcome of starts unknown.
type swapped struct {
	orchestrator.Communicator[string, string]
	old   []string
	calls int
}

func (w *swapped) List(context.Context, string) ([]string, error) { return w.old, nil }

func (w *swapped) Apply(_ context.Context, _ string, writes []orchestrator.Write[string]) []error {
	w.calls++
	errs := make([]error, len(writes))
	for i, write := range writes {
		switch {
		case w.calls == 1:
			errs[i] = context.DeadlineExceeded
		case write.Op == orchestrator.OpAdd:
			errs[i] = errAway
		}
	}
	return errs
}

// applierFleet makes all writes for a worker in one call.
type applierFleet struct{ *benchFleet }

func (f applierFleet) Apply(context.Context, string, []orchestrator.Write[string]) []error {
	return nil
}

// BenchmarkWorstMembers adds workers one by one, and removes them again, the
// first one first.
func BenchmarkWorstMembers(b *testing.B) {
	for _, s := range []size{{0, 10_000}, {0, 100_000}} {
		b.Run(s.String(), func(b *testing.B) {
			f := newBenchFleet(b, s, true)
			for b.Loop() {
				for _, name := range f.names {
					f.RemoveWorker(name)
				}
				for _, name := range f.names {
					require.NoError(b, f.AddWorker(name))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*s.workers), "ns/call")
		})
	}
}

// BenchmarkReaders measures what a dashboard calls: between terms, Progress during a listing
// that waits, and Explain of a task that one worker runs.
func BenchmarkReaders(b *testing.B) {
	f := newBenchFleet(b, large, true, orchestrator.WithCommunicatorTimeout(time.Hour))
	f.term(b)
	b.Run("Last", func(b *testing.B) {
		for b.Loop() {
			f.Last()
		}
	})
	b.Run("Workers", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range f.Last().Workers() {
			}
		}
	})
	b.Run("Explain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, ok := f.Last().Explain(taskName(large.tasks / 2))
			require.True(b, ok)
		}
	})
	b.Run("Progress", func(b *testing.B) {
		last := f.workers[len(f.workers)-1]
		last.waits, f.gate = true, make(chan struct{})
		done := make(chan error)
		go func() { done <- f.NextTerm(b.Context()) }()
		for f.Progress().Done < len(f.workers)-1 {
			runtime.Gosched()
		}
		for b.Loop() {
			require.Len(b, f.Progress().WaitingFor, 1)
		}
		last.waits = false
		close(f.gate)
		require.NoError(b, <-done)
	})
}

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

// benchWorker holds the answers of a worker to List. They are two copies of its list in
// turn, which share no memory, as if they came over a network; or always the same slice.
type benchWorker struct {
	copies [2][]string
	turn   int
	err    error // returned by List
	waits  bool  // for the gate, before it answers
}

// at returns a worker by its name, which ends in its number. It uses no map, so that the
// Communicator costs almost nothing.
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

// Add implements orchestrator.Communicator. It does not change the slices that List
// returned (C2).
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

// list returns the names of the first tasks of worker i, each in separate memory.
func (f *benchFleet) list(i int) []string {
	list := make([]string, len(f.pairs[i]))
	for k, task := range f.pairs[i] {
		list[k] = taskName(int(task))
	}
	return list
}

// term runs a term in which nothing fails.
func (f *benchFleet) term(b *testing.B) {
	b.Helper()
	require.NoError(b, f.NextTerm(b.Context()))
}

// bench times terms of a fleet, and the scan of its integers.
type bench struct {
	fleet       *benchFleet
	owner       []int32
	copies      []int32
	scan, terms samples
}

func newBench(f *benchFleet) *bench {
	return &bench{fleet: f, owner: make([]int32, len(f.tasks)), copies: make([]int32, len(f.tasks))}
}

// scanPairs passes once over the integers. It stores the worker and the number of copies
// of each task.
func (f *bench) scanPairs() {
	clear(f.copies)
	for w, list := range f.fleet.pairs {
		for _, task := range list {
			f.owner[task] = int32(w)
			f.copies[task]++
		}
	}
}

// samples are the durations of several rounds.
type samples []time.Duration

func (s *samples) add(took time.Duration) { *s = append(*s, took) }

func (s *samples) time(f func()) {
	start := time.Now()
	f()
	s.add(time.Since(start))
}

// median returns the median in nanoseconds.
func (s samples) median() float64 {
	return float64(slices.Sorted(slices.Values(s))[len(s)/2])
}

// over returns the median of the ratios of each round, because other programs disturb
// whole rounds rather than one side of them.
func (s samples) over(other samples) float64 {
	ratios := make([]float64, len(s))
	for i := range s {
		ratios[i] = float64(s[i]) / float64(other[i])
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// report reports the median in milliseconds.
func (s samples) report(b *testing.B, unit string) { b.ReportMetric(s.median()/1e6, unit+"-ms") }
