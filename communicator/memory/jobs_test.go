package memory_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

// runJobs runs 24 jobs of 15 s on two workers with the given number of slots each.
// If joins is true, another worker joins every five seconds. It returns the time
// taken and the total number of starts.
func runJobs(t *testing.T, slots int, joins bool) (took time.Duration, starts int64) {
	t.Helper()
	const jobs, length = 24, 15 * time.Second
	var begun atomic.Int64
	done := make(chan string, 2*jobs)
	cluster, err := memory.New(func(ctx context.Context, _, _ string) error {
		begun.Add(1)
		select {
		case <-time.After(length):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, memory.WithWorkerOptions(worker.WithSlots(slots), worker.WithCompletion(func(task string) { done <- task })))
	require.NoError(t, err)
	o, err := orchestrator.New(cluster, orchestrator.WithSeed(1))
	require.NoError(t, err)
	join := func(name string) {
		cluster.Start(name)
		require.NoError(t, o.AddWorker(name))
	}
	for i := range jobs {
		require.NoError(t, o.AddTask(fmt.Sprint("job ", i)))
	}
	join("w1")
	join("w2")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	began := time.Now()
	go func() { ended <- o.Run(ctx, time.Second) }()
	more := make(<-chan time.Time)
	if joins {
		more = time.Tick(5 * time.Second)
	}
	for left, next := jobs, 3; left > 0; {
		select {
		case task := <-done:
			o.RemoveTask(task)
			left--
		case <-more:
			join(fmt.Sprint("w", next))
			next++
		}
	}
	took = time.Since(began)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, cluster.Close(context.WithoutCancel(t.Context())))
	return took, begun.Load()
}

// Workers that join take waiting jobs, and no running job: no job is started twice.
func TestW8_JobsFinishWhileWorkersJoin(t *testing.T) {
	for _, slots := range []int{12, 4, 1} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alone, starts := runJobs(t, slots, false)
				require.EqualValues(t, 24, starts)
				took, starts := runJobs(t, slots, true)
				t.Logf("%v without joins, %v with", alone, took)
				require.EqualValues(t, 24, starts)
				require.LessOrEqual(t, took, alone*12/10)
			})
		})
	}
}
