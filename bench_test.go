package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

// sizes are tasks × workers.
var sizes = []struct{ tasks, workers int }{{1_000, 10}, {10_000, 100}, {100_000, 1_000}}

// reports is what a worker answers to List: in turn from two copies of its
// list, which have no memory in common, as what comes over a network has none;
// or always the very same slice.
type reports struct {
	copies [2][]string
	turn   int
	same   bool
}

func (r *reports) next() []string {
	if r.same {
		return r.copies[0]
	}
	r.turn = 1 - r.turn
	return slices.Clone(r.copies[r.turn])
}

// settled returns a leader of workers that run all tasks, evenly.
func settled(b *testing.B, tasks, workers int, same bool) *orchestrator.Orchestrator[string, string] {
	b.Helper()
	lists := make(map[string]*reports, workers)
	o, err := orchestrator.New(communicator.Func[string, string]{
		ListFunc: func(_ context.Context, worker string) ([]string, error) { return lists[worker].next(), nil },
	})
	require.NoError(b, err)
	names := make([]string, workers)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%05d", i)
		lists[names[i]] = &reports{same: same}
		require.NoError(b, o.AddWorker(names[i]))
	}
	for i := range tasks {
		task := fmt.Sprintf("task-%07d", i)
		require.NoError(b, o.AddTask(task))
		r := lists[names[i%workers]]
		for k := range r.copies {
			r.copies[k] = append(r.copies[k], strings.Clone(task))
		}
	}
	return o
}

// BenchmarkSteadyTerm is a term in which nothing has changed, with a
// Communicator that does nothing but hand out lists: anew each time, as from a
// network, or the very same slices.
func BenchmarkSteadyTerm(b *testing.B) {
	for _, same := range []bool{false, true} {
		name := "fresh"
		if same {
			name = "same"
		}
		for _, size := range sizes {
			b.Run(fmt.Sprintf("%s/%dx%d", name, size.tasks, size.workers), func(b *testing.B) {
				o := settled(b, size.tasks, size.workers, same)
				require.NoError(b, o.NextTerm(b.Context()))
				b.ReportAllocs()
				for b.Loop() {
					if err := o.NextTerm(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				require.Empty(b, o.LastPlan().Changes)
			})
		}
	}
}
