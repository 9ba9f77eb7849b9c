package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/recruit"
	"github.com/f8949c05/orchestrator/worker"
)

// counting returns an option that counts the calls of spare time, at most one a
// second, and a pointer to the count.
func counting() (worker.Option, *int) {
	n := new(int)
	return worker.WithSpareTime(time.Second, func(context.Context) { *n++ }), n
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestS2_AWorkerEnlistsWhileASlotIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := recruit.New()
		require.NoError(t, err)
		require.NoError(t, r.Install("compact", 1, recruit.JobFunc(func(context.Context) error { return nil })))
		recruited := func() uint64 { return r.Jobs()[0].Recruited }

		w := newWorker(t, until, worker.WithSlots(2),
			worker.WithSpareTime(time.Second, func(ctx context.Context) { r.Enlist(ctx) }))
		pass(3 * time.Second)
		require.EqualValues(t, 3, recruited(), "once a second without tasks")

		require.Nil(t, w.Apply(t.Context(), add("a")))
		pass(3 * time.Second)
		require.EqualValues(t, 6, recruited(), "one slot is free")

		require.Nil(t, w.Apply(t.Context(), add("b", "c")))
		pass(time.Minute)
		require.EqualValues(t, 6, recruited(), "no slot is free, and a task waits for one")

		require.NoError(t, w.Remove(t.Context(), "a"))
		pass(time.Minute)
		require.EqualValues(t, 6, recruited(), "c holds the slot")
		require.NoError(t, w.Remove(t.Context(), "b"))
		pass(time.Second)
		require.EqualValues(t, 7, recruited())
	})
}

func TestS2_AWorkerWithoutSlotsAlwaysHasOneFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		option, calls := counting()
		w := newWorker(t, until, option)
		require.Nil(t, w.Apply(t.Context(), add("a", "b", "c")))
		pass(3 * time.Second)
		require.Equal(t, 3, *calls)
	})
}

func TestS2_NoSpareTimeWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		option, calls := counting()
		w := newWorker(t, until, worker.WithLease(10*time.Second, time.Second), option)
		pass(5 * time.Second)
		require.Zero(t, *calls, "the lease is not acknowledged yet")
		w.Sending()()
		pass(3 * time.Second)
		require.Equal(t, 3, *calls)
		w.EndLease(errors.New("gone"))
		pass(3 * time.Second)
		require.Equal(t, 3, *calls, "the lease is lost")
		require.NoError(t, w.Rejoin(t.Context()))
		w.Sending()()
		pass(3 * time.Second)
		require.Equal(t, 6, *calls)
	})
}

// Tasks and calls of spare time do not wait for each other.
func TestS3_NoTaskWaitsForSpareTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		calls := 0
		w := newWorker(t, until, worker.WithSlots(1), worker.WithSpareTime(time.Second, func(context.Context) {
			calls++
			<-let
		}))
		pass(time.Second)
		require.Equal(t, 1, calls)
		began := time.Now()
		require.Nil(t, w.Apply(t.Context(), add("a")))
		require.Equal(t, "a:running ", states(w))
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Zero(t, time.Since(began))

		pass(10 * time.Second)
		require.Equal(t, 1, calls, "calls do not overlap")
		close(let)
		pass(2500 * time.Millisecond)
		require.Equal(t, 4, calls, "one call that was due during the first, and those after it")
	})
}

// The interval counts from the beginning of a call, however long the call takes.
func TestS2_SpareTimeAtMostOnceInEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		newWorker(t, until, worker.WithSpareTime(time.Second, func(context.Context) {
			at = append(at, time.Since(began))
			if len(at) == 1 {
				time.Sleep(1900 * time.Millisecond)
			}
		}))
		pass(5 * time.Second)
		require.Equal(t, []time.Duration{time.Second, 2900 * time.Millisecond, 3900 * time.Millisecond, 4900 * time.Millisecond}, at)
	})
}

func TestS3_APanicInSpareTimeIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		w := newWorker(t, until, worker.WithLogger(slog.New(slog.NewTextHandler(&text, nil))),
			worker.WithSpareTime(time.Second, func(context.Context) { panic("boom") }))
		require.Nil(t, w.Apply(t.Context(), add("a")))
		pass(2 * time.Second)
		require.Equal(t, 2, bytes.Count(text.Bytes(), []byte(`level=ERROR msg="spare time panicked" err="panic: boom" stack=`)))
		require.Contains(t, text.String(), "spare_test.go")
		require.Equal(t, "a:running ", states(w))
	})
}

func TestS3_CloseEndsSpareTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, let := make(chan error, 1), make(chan struct{})
		w := newWorker(t, until, worker.WithSpareTime(time.Second, func(ctx context.Context) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			<-let
		}))
		pass(time.Second)
		began := time.Now()
		err := w.Close(within(t, 500*time.Millisecond))
		require.EqualError(t, err, "close worker: the function of WithSpareTime has not returned: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, <-ended, worker.ErrClosed)
		require.Equal(t, 500*time.Millisecond, time.Since(began))
		close(let)
		require.NoError(t, w.Close(t.Context()))
	})
}

// All tasks have ended by then, so a function that needs no lease delays the end of
// the lease by a second at most.
func TestS3_CloseWaitsForSpareTimeForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		p := newMemoryRecord()
		w := newWorker(t, stubborn(10*time.Second, new(int)), worker.WithRecord(p),
			worker.WithSpareTime(time.Second, func(context.Context) { <-let }))
		pass(time.Second)
		require.NoError(t, w.Add(t.Context(), "a"))
		pass(2 * time.Second)
		began := time.Now()
		const text = "close worker: the function of WithSpareTime has not returned: timed out after 1s"
		require.EqualError(t, w.Close(t.Context()), text)
		require.Equal(t, (10+1+1)*time.Second, time.Since(began), "the task, the record, and one second for the function")
		require.True(t, p.removed, "the record is removed")
		require.EqualError(t, w.Close(t.Context()), text, "Close may be called again")
		close(let)
		require.NoError(t, w.Close(t.Context()))
	})
}

func TestWithSpareTimeOutOfRange(t *testing.T) {
	_, err := worker.New(until, worker.WithSpareTime(0, func(context.Context) {}), worker.WithSpareTime(time.Second, nil))
	require.ErrorContains(t, err, "WithSpareTime(0s, …): must be positive")
	require.ErrorContains(t, err, "WithSpareTime(1s, nil): must be a function")
}
