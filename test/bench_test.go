package test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The goals for whole terms, each as a ratio of what was measured in the same
// run, in turn, round by round. The worst cases are in worst_bench_test.go.

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
