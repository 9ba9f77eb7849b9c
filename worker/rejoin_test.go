package worker_test

// W4, W5: a worker that rejoins after the loss of its lease, and one closed without
// a lease.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

func TestW4_RejoinIsANewWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := leased(t, stubborn(time.Second, new(int)))
		require.NoError(t, w.Add(term(t.Context(), 5, 3), "a"))
		before := w.Incarnation()
		old := w.Sending()
		lost := w.Fenced()
		<-lost
		require.NoError(t, w.Rejoin(t.Context()))
		require.NotEqual(t, before, w.Incarnation())
		require.Positive(t, int64(w.Incarnation()))
		require.False(t, fenced(w))
		require.Empty(t, list(t, w))

		old()
		require.ErrorIs(t, w.Add(term(t.Context(), 5, 3), "a"), orchestrator.ErrRejected, "the acknowledgement was for the former lease")
		began := time.Now()
		w.Sending()()
		require.ErrorIs(t, w.Add(term(t.Context(), 5, 2), "a"), orchestrator.ErrStale, "Rejoin keeps the fence")
		require.NoError(t, w.Add(term(t.Context(), 5, 3), "a"))
		old()
		<-w.Fenced()
		require.Equal(t, told, time.Since(began))
		require.NotEqual(t, lost, w.Fenced())
	})
}

// An Add that waits for a stop must not take effect after a Rejoin.
func TestW4_AWriteDoesNotOutliveItsIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Run this often: the Add and Rejoin wait for the same stop, and either may
		// be the first to continue.
		for range 50 {
			w := leased(t, stubborn(time.Second, new(int)))
			require.NoError(t, w.Add(t.Context(), "a"))
			require.ErrorIs(t, w.Remove(within(t, time.Nanosecond), "a"), orchestrator.ErrStopping)
			answer := make(chan error, 1)
			go func() { answer <- w.Add(t.Context(), "a") }()
			synctest.Wait()
			require.NoError(t, w.Rejoin(t.Context()))
			w.Sending()()
			require.ErrorIs(t, <-answer, orchestrator.ErrRejected)
			require.Empty(t, list(t, w))
		}
	})
}

func TestW4_AnAcknowledgementBelongsToItsLease(t *testing.T) {
	w := newWorker(t, until, worker.WithLease(length, toStop))
	old := w.Sending()
	require.NoError(t, w.Rejoin(t.Context()))
	old()
	require.ErrorIs(t, w.Add(t.Context(), "a"), orchestrator.ErrRejected, "an acknowledgement of a request before Rejoin does not count")
	w.Sending()()
	require.NoError(t, w.Add(t.Context(), "a"))
}

func TestW4_RejoinWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, func(_ context.Context, task string) error {
			if task == "queued" {
				t.Error("started in a slot that became free")
			}
			return errors.New("no")
		}, worker.WithSlots(1), worker.WithBackoff(time.Minute, time.Minute))
		require.Zero(t, w.Lease())
		w.Sending()()
		require.Nil(t, w.Apply(t.Context(), add("a", "queued")))
		<-time.After(time.Hour)
		require.False(t, fenced(w))
		before := w.Incarnation()
		require.NoError(t, w.Rejoin(t.Context()))
		require.NotEqual(t, before, w.Incarnation())
		require.Empty(t, list(t, w))
		require.NoError(t, w.Add(t.Context(), "a"))
	})
}

func TestW4_TwoRejoinsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := leased(t, stubborn(time.Second, new(int)))
		require.NoError(t, w.Add(t.Context(), "a"))
		seen := make(chan uint64, 2)
		for range 2 {
			go func() {
				if err := w.Rejoin(t.Context()); err != nil {
					t.Error(err)
				}
				seen <- w.Incarnation()
			}()
		}
		first := <-seen
		require.Equal(t, first, <-seen)
	})
}

func TestW5_CloseWhileFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left []string
		w := leased(t, stubborn(time.Minute, new(int)), worker.WithLastResort(func(tasks []string) { left = tasks }))
		require.NoError(t, w.Add(t.Context(), "a"))
		<-w.Fenced()
		rejoined := make(chan error, 1)
		go func() { rejoined <- w.Rejoin(t.Context()) }()
		synctest.Wait()
		require.NoError(t, w.Close(t.Context()))
		synctest.Wait()
		require.Equal(t, []string{"a"}, left)
		require.ErrorIs(t, <-rejoined, worker.ErrClosed)
		require.ErrorIs(t, w.Rejoin(t.Context()), worker.ErrClosed)
	})
}

func TestW5_CloseKeepsTheLastResort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at time.Duration
		w := leased(t, stubborn(time.Minute, new(int)), worker.WithLastResort(func([]string) { at = time.Since(began) }))
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Close(t.Context()))
		synctest.Wait()
		require.Equal(t, resort, at, "the lease was not renewed, and the task kept running")

		w = leased(t, until)
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Close(t.Context()))
		<-time.After(time.Hour)
		require.False(t, fenced(w), "no task was left to stop")
		require.ErrorIs(t, w.Add(t.Context(), "a"), worker.ErrClosed)
		require.NoError(t, w.Remove(t.Context(), "a"), "a closed worker still answers")
		w.GiveUp(nil)
		w.Sending()()
		require.False(t, fenced(w))
	})
}
