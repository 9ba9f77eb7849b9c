package orchestrator_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The worst cases of the steps of a term, each in two sizes: what takes much
// more than ten times as long where there is ten times as much is a hidden
// square.

// BenchmarkWorstRefused has every worker refuse every start, so that all are
// closed and everything has failed somewhere, then be probed in the same term,
// and then open again in the same term.
func BenchmarkWorstRefused(b *testing.B) {
	for _, s := range []size{{10_000, 100}, {100_000, 1_000}} {
		b.Run(s.String(), func(b *testing.B) {
			var refused, probed, taken, reopened samples
			for b.Loop() {
				f := newBenchFleet(b, s, true)
				for _, w := range f.workers {
					*w = benchWorker{}
				}
				term := func(adds int) func() {
					return func() {
						_ = f.NextTerm(b.Context()) // with failures
						require.Equal(b, adds, f.LastPlan().Stats.Adds)
					}
				}
				f.refuses = true
				refused.time(term(s.tasks))
				term(0)()
				probed.time(term(s.workers))
				f.refuses = false
				term(0)()
				term(0)()
				taken.time(term(s.workers))
				reopened.time(term(s.tasks - s.workers))
				require.Equal(b, s.tasks, f.LastPlan().Stats.Instances.Running)
			}
			refused.report(b, "refused")
			probed.report(b, "probed")
			taken.report(b, "probes-taken")
			reopened.report(b, "reopened")
		})
	}
}
