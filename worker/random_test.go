package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

// whims are tasks that behave at random, and record their runs.
type whims struct {
	runs    map[string]*atomic.Int32
	running atomic.Int32
	most    atomic.Int32 // the most slots used at the same time
	twice   atomic.Bool  // a task ran twice at the same time
}

func (w *whims) run(ctx context.Context, task string) error {
	if w.runs[task].Add(1) > 1 {
		w.twice.Store(true)
	}
	n := w.running.Add(1)
	for {
		if m := w.most.Load(); n <= m || w.most.CompareAndSwap(m, n) {
			break
		}
	}
	defer func() {
		w.running.Add(-1)
		w.runs[task].Add(-1)
	}()
	select {
	case <-ctx.Done():
		<-time.After(time.Duration(rand.IntN(4)) * time.Second)
		return nil
	case <-time.After(time.Duration(rand.IntN(20)) * time.Second):
	}
	switch rand.IntN(4) {
	case 0:
		panic("on a whim")
	case 1:
		runtime.Goexit()
	case 2:
		return errors.New("on a whim")
	}
	return nil
}

// Whatever the order and the deadlines of the calls, their results are accurate: nil
// means done, and ErrStopping or ErrRejected of an Add means that the task will not
// start. No task runs twice at the same time.
func TestW1_ResultsAreAccurate(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			whims := &whims{runs: map[string]*atomic.Int32{}}
			tasks := make([]string, 6)
			for i := range tasks {
				tasks[i] = fmt.Sprint("t", i)
				whims.runs[tasks[i]] = new(atomic.Int32)
			}
			slots := 1 + random.IntN(4)
			opts := []worker.Option{worker.WithSlots(slots), worker.WithBackoff(time.Second, 3*time.Second)}
			if random.IntN(2) == 0 {
				opts = append(opts, worker.WithCompletion(func(string) {}))
			}
			w := newWorker(t, whims.run, opts...)

			refused := map[string]bool{} // tasks that must not be in List at the end
			for range 200 {
				task := tasks[random.IntN(len(tasks))]
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000)-200)*time.Millisecond)
				if random.IntN(2) == 0 {
					err := w.Add(ctx, task)
					delete(refused, task)
					switch {
					case err == nil:
						require.Contains(t, list(t, w), task)
					case errors.Is(err, orchestrator.ErrStopping):
						refused[task] = true
					default:
						require.ErrorIs(t, err, orchestrator.ErrRejected)
						if !slices.Contains(list(t, w), task) {
							refused[task] = true
						}
					}
				} else {
					err := w.Remove(ctx, task)
					switch {
					case err == nil:
						require.NotContains(t, list(t, w), task)
						require.Zero(t, whims.runs[task].Load())
						refused[task] = true
					case errors.Is(err, orchestrator.ErrStopping):
						refused[task] = true
					default:
						require.ErrorIs(t, err, orchestrator.ErrRejected)
					}
				}
				cancel()
				if random.IntN(10) == 0 {
					<-time.After(5 * time.Second) // every stop ends within 3 s
					for task := range refused {
						require.NotContains(t, list(t, w), task)
						require.Zero(t, whims.runs[task].Load())
					}
				}
			}
			require.NoError(t, w.Close(t.Context()))
			require.False(t, whims.twice.Load())
			require.LessOrEqual(t, int(whims.most.Load()), slots)
			require.Zero(t, whims.running.Load())
		})
	}
}

// Calls from many goroutines at the same time, with weaker checks.
func TestW1_ConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whims := &whims{runs: map[string]*atomic.Int32{"a": new(atomic.Int32), "b": new(atomic.Int32)}}
		w := newWorker(t, whims.run, worker.WithSlots(1), worker.WithBackoff(time.Second, time.Second))
		done := make(chan struct{})
		for i := range 8 {
			go func() {
				defer func() { done <- struct{}{} }()
				for n := range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i+n)%4)*time.Second)
					task := []string{"a", "b"}[(i+n)%2]
					switch (i + n) % 3 {
					case 0:
						_ = w.Add(ctx, task)
					case 1:
						_ = w.Remove(ctx, task)
					case 2:
						_ = w.Apply(ctx, add("a", "b"))
						_ = w.Status()
					}
					cancel()
				}
			}()
		}
		for range 8 {
			<-done
		}
		require.NoError(t, w.Close(t.Context()))
		require.False(t, whims.twice.Load())
		require.LessOrEqual(t, int(whims.most.Load()), 1)
		require.Zero(t, whims.running.Load())
	})
}

func BenchmarkAddRemove(b *testing.B) {
	for _, others := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			w, err := worker.New(func(ctx context.Context, _ int) error {
				<-ctx.Done()
				return nil
			})
			require.NoError(b, err)
			for i := range others {
				require.NoError(b, w.Add(b.Context(), -1-i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_ = w.Add(b.Context(), i)
				_ = w.Remove(b.Context(), i)
			}
			require.NoError(b, w.Close(b.Context()))
		})
	}
}
