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
