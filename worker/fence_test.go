package worker_test

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

func term(ctx context.Context, epoch, number uint64) context.Context {
	return orchestrator.ContextWithTerm(ctx, orchestrator.Term{Epoch: epoch, Number: number})
}

func TestC7_LowerWritesAreRefused(t *testing.T) {
	w := newWorker(t, until)
	require.NoError(t, w.Add(t.Context(), "a"), "the worker has seen no term")
	require.NoError(t, w.Add(term(t.Context(), 5, 3), "b"))

	for name, c := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"older epoch, higher number": {term(t.Context(), 4, 9), orchestrator.ErrDeposed},
		"older term":                 {term(t.Context(), 5, 2), orchestrator.ErrStale},
		"no term":                    {t.Context(), orchestrator.ErrStale},
		"zero term":                  {term(t.Context(), 0, 0), orchestrator.ErrDeposed},
	} {
		t.Run(name, func(t *testing.T) {
			errs := append(w.Apply(c.ctx, add("a", "c")), w.Add(c.ctx, "a"), w.Remove(c.ctx, "a"), w.Remove(c.ctx, "x"))
			for _, err := range errs {
				require.ErrorIs(t, err, c.want)
				if errors.Is(c.want, orchestrator.ErrDeposed) {
					require.NotErrorIs(t, err, orchestrator.ErrRejected)
				}
			}
			require.Equal(t, []string{"a", "b"}, list(t, w))
		})
	}

	require.NoError(t, w.Remove(term(t.Context(), 5, 3), "a"), "the same term")
	require.NoError(t, w.Remove(term(t.Context(), 6, 1), "b"), "the first term of a later leader")
	require.ErrorIs(t, w.Add(term(t.Context(), 5, 4), "a"), orchestrator.ErrDeposed)
}

func TestC7_ListRaisesTheFence(t *testing.T) {
	w := newWorker(t, until)
	require.Zero(t, w.Seen())
	_, err := w.List(term(t.Context(), 5, 3))
	require.NoError(t, err)
	require.ErrorIs(t, w.Add(term(t.Context(), 5, 2), "a"), orchestrator.ErrStale)

	require.Equal(t, orchestrator.Term{Epoch: 5, Number: 3}, w.Seen())

	_, err = w.List(term(t.Context(), 5, 1))
	require.NoError(t, err, "a call with a lower term of the same leader may read")
	require.Equal(t, orchestrator.Term{Epoch: 5, Number: 3}, w.Seen())
	_, err = w.List(t.Context())
	require.NoError(t, err, "a call without a term may read")
	require.ErrorIs(t, w.Add(term(t.Context(), 5, 2), "a"), orchestrator.ErrStale, "reads do not lower the fence")

	_, err = w.List(term(t.Context(), 4, 9))
	require.ErrorIs(t, err, orchestrator.ErrDeposed)
}

func TestC7_ARefusedWriteOfALaterTermStillRaises(t *testing.T) {
	w, err := worker.New(until)
	require.NoError(t, err)
	require.NoError(t, w.Close(t.Context()))
	require.ErrorIs(t, w.Add(term(t.Context(), 5, 3), "a"), orchestrator.ErrRejected)
	require.ErrorIs(t, w.Remove(term(t.Context(), 5, 2), "a"), orchestrator.ErrStale)
}

func TestC7_WriteThatWaitedIsRefusedWhenItsTurnComes(t *testing.T) {
	for name, c := range map[string]struct {
		seen orchestrator.Term
		want error
	}{
		"later term":  {orchestrator.Term{Epoch: 5, Number: 4}, orchestrator.ErrStale},
		"later epoch": {orchestrator.Term{Epoch: 6, Number: 1}, orchestrator.ErrDeposed},
		"same term":   {orchestrator.Term{Epoch: 5, Number: 3}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs int
				w := newWorker(t, stubborn(5*time.Second, &runs))
				require.NoError(t, w.Add(t.Context(), "a"))
				synctest.Wait()
				require.ErrorIs(t, w.Remove(within(t, time.Second), "a"), orchestrator.ErrStopping)

				answers := make(chan error, 2)
				go func() { answers <- w.Add(term(t.Context(), 5, 3), "a") }()
				synctest.Wait()
				_, err := w.List(orchestrator.ContextWithTerm(t.Context(), c.seen))
				require.NoError(t, err)
				require.ErrorIs(t, <-answers, c.want)
				synctest.Wait()
				if c.want != nil {
					require.Equal(t, 1, runs)
					require.Empty(t, list(t, w))
				}
			})
		})
	}
}

func TestC7_AnAddThatWasAppliedStaysDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, func(ctx context.Context, _ string) error {
			<-time.After(5 * time.Second)
			worker.Ready(ctx)
			<-ctx.Done()
			return nil
		}, worker.WithReadiness())
		answer := make(chan error, 1)
		go func() { answer <- w.Add(term(t.Context(), 5, 3), "a") }()
		synctest.Wait()
		_, err := w.List(term(t.Context(), 5, 4))
		require.NoError(t, err)
		require.NoError(t, <-answer, "the Add was applied before the later List")
	})
}

func TestW4_FenceBeforeTheFirstCall(t *testing.T) {
	w := newWorker(t, until)
	w.Fence(orchestrator.Term{})
	require.NoError(t, w.Add(t.Context(), "a"), "the zero term does not raise the fence")
	w.Fence(orchestrator.Term{Epoch: 5, Number: 3})
	w.Fence(orchestrator.Term{Epoch: 4, Number: 9})
	require.ErrorIs(t, w.Add(t.Context(), "b"), orchestrator.ErrStale)
	require.ErrorIs(t, w.Add(term(t.Context(), 4, 9), "b"), orchestrator.ErrDeposed)
	require.NoError(t, w.Add(term(t.Context(), 5, 3), "b"))
}

func TestW4_IncarnationIsNewEveryTime(t *testing.T) {
	seen := map[uint64]bool{0: true}
	for range 100 {
		w, err := worker.New(until, worker.WithSeed(1))
		require.NoError(t, err)
		require.False(t, seen[w.Incarnation()])
		seen[w.Incarnation()] = true
	}
}

// If two leaders wait for the same stop, it belongs to the later one: the first must
// not start the task elsewhere.
func TestC7_AStopUnderWayIsTheLaterLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, stubborn(time.Minute, new(int)))
		require.NoError(t, w.Add(term(t.Context(), 5, 1), "a"))
		synctest.Wait()
		first, second, again := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { first <- w.Remove(term(t.Context(), 5, 1), "a") }()
		synctest.Wait()
		go func() { second <- w.Remove(term(t.Context(), 6, 1), "a") }()
		synctest.Wait()
		go func() { again <- w.Remove(term(t.Context(), 6, 2), "a") }()
		require.ErrorIs(t, <-first, orchestrator.ErrDeposed)
		require.NoError(t, <-second, "terms of one leader do not overlap")
		require.NoError(t, <-again)
	})
}
