package worker_test

// W4, W5: a worker that begins anew after its lease, and one that is closed without it.

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
		require.ErrorIs(t, w.Add(term(t.Context(), 5, 3), "a"), orchestrator.ErrRejected, "that was for the lease before")
		began := time.Now()
		w.Sending()()
		require.ErrorIs(t, w.Add(term(t.Context(), 5, 2), "a"), orchestrator.ErrStale, "terms are not forgotten")
		require.NoError(t, w.Add(term(t.Context(), 5, 3), "a"))
		old()
		<-w.Fenced()
		require.Equal(t, told, time.Since(began))
		require.NotEqual(t, lost, w.Fenced())
	})
}

// An Add that waits for a stop must not be let into the next life of the worker.
func TestW4_AWriteDoesNotOutliveItsIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Run often: the Add and Rejoin wait for the same stop, and either may
		// be the first to get on.
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

func TestW4_AnAcknowledgementIsOfItsTime(t *testing.T) {
	w := newWorker(t, until, worker.WithLease(length, toStop))
	old := w.Sending()
	require.NoError(t, w.Rejoin(t.Context()))
	old()
	require.ErrorIs(t, w.Add(t.Context(), "a"), orchestrator.ErrRejected, "the first that comes after Rejoin is not the first that counts")
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

func TestW5_CloseDoesNotForgetTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at time.Duration
		w := leased(t, stubborn(time.Minute, new(int)), worker.WithLastResort(func([]string) { at = time.Since(began) }))
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Close(t.Context()))
		synctest.Wait()
		require.Equal(t, resort, at, "nobody renewed it, and the task went on")

		w = leased(t, until)
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Close(t.Context()))
		<-time.After(time.Hour)
		require.False(t, fenced(w), "there was nothing left to stop")
		require.ErrorIs(t, w.Add(t.Context(), "a"), worker.ErrClosed)
		require.NoError(t, w.Remove(t.Context(), "a"), "it goes on answering")
		w.GiveUp(nil)
		w.Sending()()
		require.False(t, fenced(w))
	})
}
