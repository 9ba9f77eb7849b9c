package test

// T3: what is missing starts in the same term, whoever else is late.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// slowInTurn makes List of another worker take 1.5 s in each term.
func (f *fleet) slowInTurn(workers ...string) {
	began := time.Now()
	f.intercept(func(ctx context.Context, c call) error {
		if turn := int(time.Since(began) / tick); c.Op == orchestrator.OpList && c.Worker == workers[turn%len(workers)] {
			return pass(ctx, 1500*time.Millisecond)
		}
		return nil
	})
}

// T-a: a worker of the smaller zone is lost, while workers of the other zone are slow in turn.
func TestT3_NothingStarvesBesideSlowWorkersInZones(t *testing.T) {
	inBubble(t, given{workers: 15, opts: options{hold}}, func(t *testing.T, f *fleet) {
		for i, w := range f.workers {
			zone := "a"
			if i >= 12 {
				zone = "b"
			}
			require.NoError(t, f.AddWorker(w, orchestrator.WithWorkerZone(zone)))
		}
		f.expect(30, orchestrator.WithTaskInstances(2))
		f.term()
		f.slowInTurn(f.workers[:12]...)
		for range 5 {
			_ = f.NextTerm(t.Context())
			time.Sleep(tick)
		}
		f.Kill("w13")
		f.RemoveWorker("w13")
		_ = f.NextTerm(t.Context())
		require.NotEmpty(t, f.late())
		require.Zero(t, f.missing())
	})
}

// T-b: workers with heavy tasks are slow in turn, and one with light tasks is lost.
func TestT3_NothingStarvesBesideSlowWorkersByWeight(t *testing.T) {
	inBubble(t, given{workers: 6, opts: options{hold}}, func(t *testing.T, f *fleet) {
		for i := range 3 {
			require.NoError(t, f.AddTask(fmt.Sprint("heavy", i), orchestrator.WithTaskWeight(40)))
		}
		for i := range 120 {
			require.NoError(t, f.AddTask(fmt.Sprint("light", i), orchestrator.WithTaskWeight(1)))
		}
		f.term()
		var heavy []string
		light := ""
		for _, w := range f.workers {
			if len(f.RunsOn(w)) == 1 {
				heavy = append(heavy, w)
			} else {
				light = w
			}
		}
		require.Len(t, heavy, 3)
		f.slowInTurn(heavy...)
		for range 5 {
			_ = f.NextTerm(t.Context())
			time.Sleep(tick)
		}
		f.Kill(light)
		f.RemoveWorker(light)
		_ = f.NextTerm(t.Context())
		require.NotEmpty(t, f.late())
		require.Zero(t, f.missing())
	})
}
