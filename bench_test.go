package orchestrator_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The goals for whole terms, each as a ratio of what was measured in the same
// run, in turn. The worst cases are in worst_bench_test.go.

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
				floor := bench.scan.median() + bench.fanOut.median()
				if !same {
					floor += bench.compare.median()
				}
				bench.scan.report(b, "scan")
				bench.compare.report(b, "compare")
				bench.fanOut.report(b, "fanout")
				bench.terms.report(b, "term")
				b.ReportMetric(bench.terms.median()/floor, "x-floors")
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
	b.ReportMetric(bigs.median()/smalls.median(), "x-time")
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
			bench := newBench(f)
			var steady, joins, losses samples
			for b.Loop() {
				bench.fanOut.time(func() { fanOut(b.Context(), large.workers) })
				steady.add(f.term(b))

				name := f.join(b)
				joins.add(f.term(b))
				require.Equal(b, large.tasks/(large.workers+1), f.LastPlan().Stats.Adds)
				f.term(b)
				steady.add(f.term(b))

				f.leave(name)
				losses.add(f.term(b))
				require.Equal(b, large.tasks/(large.workers+1), f.LastPlan().Stats.Adds)
				f.term(b)
			}
			calls := 2 * large.tasks / large.workers
			call := bench.fanOut.median() / float64(large.workers)
			steady.report(b, "steady")
			joins.report(b, "joined")
			losses.report(b, "lost")
			b.ReportMetric((joins.median()-float64(calls)*call)/steady.median(), "x-steady-joined")
			b.ReportMetric((losses.median()-float64(calls/2)*call)/steady.median(), "x-steady-lost")
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
