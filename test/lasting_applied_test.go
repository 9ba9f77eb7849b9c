package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/stretchr/testify/require"
)

// A task that does not stop keeps none of its neighbours stopped: they start elsewhere
// while its stop is under way, although one call carries all stops of their worker.
func TestT7_AStopThatHangsHoldsUpNoOtherMoveOfItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stopped, longest := make(map[string]time.Time), time.Duration(0)
		hang := make(chan struct{})
		c, err := memory.New(func(ctx context.Context, _, task string) error {
			mu.Lock()
			if at, ok := stopped[task]; ok {
				longest = max(longest, time.Since(at))
			}
			mu.Unlock()
			<-ctx.Done()
			if task == "deaf" {
				<-hang
			}
			mu.Lock()
			defer mu.Unlock()
			stopped[task] = time.Now()
			return nil
		})
		require.NoError(t, err)
		o, err := orchestrator.New(c, orchestrator.WithSeed(0))
		require.NoError(t, err)
		c.Start("w1")
		require.NoError(t, o.AddWorker("w1"))
		require.NoError(t, o.AddTask("deaf"))
		for i := range 11 {
			require.NoError(t, o.AddTask(fmt.Sprint("t", i)))
		}
		require.NoError(t, o.NextTerm(t.Context()))
		for i := range 12 {
			name := fmt.Sprint("v", i)
			c.Start(name)
			require.NoError(t, o.AddWorker(name))
		}
		require.NoError(t, o.DrainWorker("w1"))
		require.NoError(t, o.NextTerm(t.Context()))
		require.Equal(t, []string{"deaf"}, o.LastActual()[0].Tasks)
		mu.Lock()
		require.Len(t, stopped, 11)
		require.LessOrEqual(t, longest, 150*time.Millisecond)
		mu.Unlock()
		stats := o.LastPlan().Stats
		require.Equal(t, 11, stats.Remove.Done)
		require.Equal(t, 1, stats.Remove.Stopping)
		require.Equal(t, 11, stats.Add.Done)
		close(hang)
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
	})
}

// A start that hangs keeps the moves to its worker from beginning, also if other starts
// of the same call are done: their tasks could not start before the call has returned.
func TestT8_EarlyStartsGiveNoCreditBeforeTheirCallReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stopped := 0
		c, err := memory.New(func(ctx context.Context, worker, _ string) error {
			<-ctx.Done()
			if worker == "a" {
				mu.Lock()
				stopped++
				mu.Unlock()
			}
			return nil
		})
		require.NoError(t, err)
		c.Start("a")
		o, err := orchestrator.New(&hangingStart{c}, orchestrator.WithSeed(0))
		require.NoError(t, err)
		require.NoError(t, o.AddWorker("a"))
		for i := range 40 {
			require.NoError(t, o.AddTask(fmt.Sprint("t", i)))
		}
		require.NoError(t, o.NextTerm(t.Context()))
		c.Start("b")
		require.NoError(t, o.AddWorker("b"))
		for i := range 9 {
			require.NoError(t, o.AddTask(fmt.Sprint("new", i)))
		}
		require.NoError(t, o.AddTask("hangs"))
		require.Error(t, o.NextTerm(t.Context()))
		mu.Lock()
		require.Zero(t, stopped)
		mu.Unlock()
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
	})
}

// hangingStart is a Communicator on which the start of one task hangs, while those of
// its call are done and reported.
type hangingStart struct {
	*memory.Cluster[string, string]
}

func (h *hangingStart) Apply(ctx context.Context, worker string, writes []orchestrator.Write[string]) []error {
	errs := make([]error, len(writes))
	hangs := -1
	for i, write := range writes {
		if write.Op == orchestrator.OpAdd && write.Task == "hangs" {
			hangs = i
			continue
		}
		if one := h.Cluster.Apply(ctx, worker, []orchestrator.Write[string]{write}); one != nil {
			errs[i] = one[0]
		} else {
			orchestrator.Applied(ctx, write)
		}
	}
	if hangs >= 0 {
		<-ctx.Done()
		errs[hangs] = context.Cause(ctx)
	}
	return errs
}
