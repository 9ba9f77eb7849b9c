package test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// The worst cases of the steps of a term, each in two sizes: what takes much
// more than ten times as long where there is ten times as much is a hidden
// square.

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
