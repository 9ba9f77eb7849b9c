package history

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

const benchTasks, benchWorkers = 1_000_000, 10_000

// idle answers without tasks at first, and then with the tasks that were added.
type idle map[string][]string

func (c idle) List(_ context.Context, worker string) ([]string, error) { return c[worker], nil }
func (idle) Add(context.Context, string, string) error                 { return nil }
func (idle) Remove(context.Context, string, string) error              { return nil }

// benchTerms returns three terms at 10,000 workers: one that starts a million tasks, and
// two without changes.
func benchTerms(b *testing.B) (snapshots []*orchestrator.Snapshot[string, string]) {
	b.Helper()
	c := make(idle)
	o, err := orchestrator.New(c)
	require.NoError(b, err)
	members := make([]orchestrator.Worker[string], benchWorkers)
	for i := range members {
		members[i].Name = fmt.Sprintf("worker-%05d", i)
	}
	expected := make([]orchestrator.Task[string], benchTasks)
	for i := range expected {
		expected[i].Name = fmt.Sprintf("task-%07d", i)
	}
	require.NoError(b, o.UpdateWorkers(members))
	require.NoError(b, o.UpdateTasks(expected))
	for range 3 {
		require.NoError(b, o.NextTerm(b.Context()))
		snapshots = append(snapshots, o.Last())

		for w := range o.Last().Workers() {
			c[w.Name] = w.Tasks
		}
	}
	return snapshots
}

// BenchmarkRecord measures what the end of a term costs more with a history, at 10,000
// workers and a million tasks.
func BenchmarkRecord(b *testing.B) {
	snapshots := benchTerms(b)
	for _, file := range []bool{false, true} {
		begin := func(b *testing.B) *recorder[string, string] {
			b.Helper()
			var opts []Option
			if file {
				opts = append(opts, WithFile(filepath.Join(b.TempDir(), "log"), 0, 0))
			}
			ring, err := New(opts...)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, ring.Close()) })
			return newRecorder[string, string](ring)
		}
		b.Run(fmt.Sprintf("starts/file=%t", file), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				r := begin(b)
				b.StartTimer()
				r.observe(snapshots[0])
			}
		})
		b.Run(fmt.Sprintf("quiet/file=%t", file), func(b *testing.B) {
			r := begin(b)
			for _, s := range snapshots {
				r.observe(s)
			}
			before := len(r.ring.terms)
			b.ReportAllocs()
			for b.Loop() {
				r.last = orchestrator.Term{} // so that the snapshot is that of a new term
				r.observe(snapshots[2])
			}
			require.Len(b, r.ring.terms, before)
		})
	}
}

// BenchmarkView measures the reads of a page, with 100,000 changes and as many points as a
// ring can have.
func BenchmarkView(b *testing.B) {
	ring, err := New()
	require.NoError(b, err)
	for n := range uint64(2000) {
		t := &Term{Stats: orchestrator.TermStats{Term: orchestrator.Term{Epoch: 1, Number: n + 1}}}
		for i := range 100 {
			t.Changes = append(t.Changes, Change{
				Kind: orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing},
				Task: fmt.Sprint(i * int(n)), To: "w", Outcome: orchestrator.OutcomeFailed,
			})
		}
		ring.record(t, []WorkerRow{{Name: "w", Tasks: int(n)}})
	}
	b.Run("View", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NotNil(b, ring.View())
		}
	})
	b.Run("Repeated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			rows, matching := ring.View().Repeated(Filter{}, Position{}, 12)
			require.Len(b, rows, 12)
			require.Equal(b, 100_000, matching)
		}
	})
	b.Run("RepeatedLastPage", func(b *testing.B) {
		v := ring.View()
		after := Position{v.terms[v.stripped].Stats.Term, 99}
		for b.Loop() {
			v.Repeated(Filter{}, after, 12)
		}
	})
	b.Run("Load", func(b *testing.B) {
		for b.Loop() {
			require.Len(b, ring.View().Load("w"), keptPoints)
		}
	})
}
