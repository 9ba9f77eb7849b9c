package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// Whole terms on a Communicator that costs next to nothing: the goals, each as a
// ratio of what was measured in the same run, and the worst cases of each step, in
// two sizes. If ten times the size takes much more than ten times the time, there
// is a hidden square.

var large = size{1_000_000, 10_000}

// BenchmarkTermSteady is a term in which nothing has changed, with a
// Communicator that does nothing but hand out lists: anew each time, as from a
// network, or the very same slices. The goal for x-floors is at most 2 where
// names have to be compared, and 1.5 where not: the comparison is no part of the
// floors then.
func BenchmarkTermSteady(b *testing.B) {
	for _, same := range []bool{false, true} {
		name := "fresh"
		if same {
			name = "same"
		}
		for _, s := range []size{{1_000, 10}, {20_000, 200}, {100_000, 1_000}, large} {
			b.Run(name+"/"+s.String(), func(b *testing.B) {
				f := newBenchFleet(b, s, same)
				f.term(b)
				f.term(b)
				bench := newBench(f)
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					bench.floor(b)
					b.StartTimer()
					bench.terms.add(f.term(b))
				}
				require.Empty(b, f.LastPlan().Changes)
				floor := []samples{bench.scan, bench.fanOut}
				if !same {
					floor = append(floor, bench.compare)
				}
				bench.scan.report(b, "scan")
				bench.compare.report(b, "compare")
				bench.fanOut.report(b, "fanout")
				bench.terms.report(b, "term")
				b.ReportMetric(bench.terms.over(floor...), "x-floors")
			})
		}
	}
}

// BenchmarkTermGrowth has ten times the work: x-time is to be at most 12.
func BenchmarkTermGrowth(b *testing.B) {
	small := newBenchFleet(b, size{large.tasks / 10, large.workers / 10}, false)
	big := newBenchFleet(b, large, false)
	for range 2 {
		small.term(b)
		big.term(b)
	}
	var smalls, bigs samples
	for b.Loop() {
		smalls.add(small.term(b))
		bigs.add(big.term(b))
	}
	smalls.report(b, "small")
	bigs.report(b, "large")
	b.ReportMetric(bigs.over(smalls), "x-time")
}

// BenchmarkTermOneWorker is a term after one worker has joined, and one after it
// was lost. The goal for x-steady is at most 1.5, the calls themselves
// left out at what the bare fan-out takes for as many.
func BenchmarkTermOneWorker(b *testing.B) {
	for _, same := range []bool{false, true} {
		name := "fresh"
		if same {
			name = "same"
		}
		b.Run(name+"/"+large.String(), func(b *testing.B) {
			f := newBenchFleet(b, large, same)
			f.term(b)
			f.term(b)
			var before, between, calls, joins, losses samples
			const moved = 100 // tasks of one worker
			for b.Loop() {
				before.add(f.term(b))
				name := f.join(b)
				took := f.term(b)
				calls.time(func() { fanOut(b.Context(), 2*moved) })
				joins.add(took - calls[len(calls)-1])
				require.InDelta(b, moved, f.LastPlan().Stats.Adds, 1)
				f.term(b)

				between.add(f.term(b))
				f.leave(name)
				took = f.term(b)
				losses.add(took - calls[len(calls)-1]/2)
				require.InDelta(b, moved, f.LastPlan().Stats.Adds, 1)
				f.term(b)
			}
			before.report(b, "steady")
			calls.report(b, "calls")
			joins.report(b, "joined")
			losses.report(b, "lost")
			b.ReportMetric(joins.over(before), "x-steady-joined")
			b.ReportMetric(losses.over(between), "x-steady-lost")
		})
	}
}

// BenchmarkTermHeap says what a leader keeps, the bytes of the names left out:
// the list that each worker answered last is new, its names are not. Writes have
// happened, so the planner has used what memory it uses. B/instance is to be
// under 160.
func BenchmarkTermHeap(b *testing.B) {
	for b.Loop() {
		f := newBenchFleet(b, large, false)
		f.term(b)
		f.join(b)
		f.term(b)
		// From now on everyone answers with a list of its own, which only the
		// leader keeps.
		names := make([][]string, len(f.workers))
		for i, w := range f.workers {
			names[i] = w.copies[0]
		}
		for range 2 {
			for i, w := range f.workers {
				w.copies = [2][]string{slices.Clone(names[i]), slices.Clone(names[i])}
			}
			f.term(b)
		}
		for _, w := range f.workers {
			w.copies = [2][]string{}
		}
		with := liveHeap()
		runtime.KeepAlive(f.Orchestrator)
		f.Orchestrator = nil
		without := liveHeap()
		runtime.KeepAlive(f)
		runtime.KeepAlive(names)
		b.ReportMetric(float64(with-without)/float64(large.tasks), "B/instance")
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkWorstRefused makes every worker refuse every start for three terms, so
// that every task is suspect, and then none, until all tasks run.
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

// BenchmarkWorstLists has nothing to change, and still much to do: every worker
// answers in another order, or every task has another name, or half of the
// workers are silent, or half of the answers come late and in another order.
// x-scan is in multiples of the integer scan; look-ups miss the caches that the
// smaller size still fits into.
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

// BenchmarkWorstWrites has one worker run everything, so that nearly every task
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

// BenchmarkWorstSwapped expects other tasks in place of those that run, where the
// stops timed out once, so that they come after the starts, and the starts have
// unknown outcomes: each stop then looks for its task among those starts.
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

// swapped is a worker of which the first Apply times out, and that then stops
// what it is told to, and leaves open whether it starts anything.
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
