package worker_test

// C7 and W4: calls of earlier terms and for other incarnations are refused, and a
// worker that rejoins is a new one.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
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
		t.Run(name, inBubble(func(t *testing.T) {
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
		}))
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
		answer := begin(func() error { return w.Add(term(t.Context(), 5, 3), "a") })
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

func TestW4_CallsForAnotherIncarnationAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, until)
		here := func() context.Context {
			return worker.ContextWithIncarnation(term(t.Context(), 5, 3), w.Incarnation())
		}
		require.NoError(t, w.AddWith(here(), "a", grant("one", 1)))

		other := worker.ContextWithIncarnation(term(t.Context(), 9, 9), w.Incarnation()+1)
		_, err := w.List(other)
		require.ErrorIs(t, err, worker.ErrIncarnation)
		errs := append(w.Apply(other, add("a", "b")),
			w.Add(other, "a"), w.Remove(other, "a"), w.Remove(other, "x"), w.Update(other, "a", worker.Grant{Version: 9}))
		for _, err := range errs {
			require.ErrorIs(t, err, worker.ErrIncarnation)
			require.ErrorIs(t, err, orchestrator.ErrRejected)
		}
		require.Equal(t, []string{"a"}, list(t, w))
		require.NoError(t, w.Add(here(), "b"), "the refused calls did not raise the fence")

		before := here()
		require.NoError(t, w.Rejoin(t.Context()))
		require.ErrorIs(t, w.Add(before, "a"), worker.ErrIncarnation)
		require.NoError(t, w.Add(here(), "a"))
	})
}

func TestW4_AWaitingAddIsRefusedAfterARejoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs int
		w := newWorker(t, stubborn(5*time.Second, &runs))
		ctx := worker.ContextWithIncarnation(t.Context(), w.Incarnation())
		require.NoError(t, w.Add(ctx, "a"))
		synctest.Wait()

		added, removed := make(chan error, 1), make(chan error, 1)
		go func() { removed <- w.Remove(ctx, "a") }()
		synctest.Wait()
		go func() { added <- w.Add(ctx, "a") }()
		synctest.Wait()
		require.NoError(t, w.Rejoin(t.Context()))
		require.ErrorIs(t, <-added, orchestrator.ErrRejected)
		require.NoError(t, <-removed, "the task has stopped")
		require.Equal(t, 1, runs)
	})
}

func TestW4_RejoinIsANewWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := leased(t, stubborn(time.Second, new(int)))
		require.NoError(t, w.Add(term(t.Context(), 5, 3), "a"))
		before := w.Incarnation()
		old := w.Sending()
		lost := w.LeaseLost()
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
		<-w.LeaseLost()
		require.Equal(t, told, time.Since(began))
		require.NotEqual(t, lost, w.LeaseLost())
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
			answer := begin(func() error { return w.Add(t.Context(), "a") })
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
		<-w.LeaseLost()
		rejoined := begin(func() error { return w.Rejoin(t.Context()) })
		require.NoError(t, w.Close(t.Context()))
		synctest.Wait()
		require.Equal(t, []string{"a"}, left)
		require.ErrorIs(t, <-rejoined, worker.ErrClosed)
		require.ErrorIs(t, w.Rejoin(t.Context()), worker.ErrClosed)
	})
}

func TestW5_AClosedWorkerLosesNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := leased(t, until)
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Close(t.Context()))
		<-time.After(time.Hour)
		require.False(t, fenced(w), "no task was left to stop")
		require.ErrorIs(t, w.Add(t.Context(), "a"), worker.ErrClosed)
		require.NoError(t, w.Remove(t.Context(), "a"), "a closed worker still answers")
		w.EndLease(nil)
		w.Sending()()
		require.False(t, fenced(w))
	})
}

// A number that cannot be is refused, and harms nothing after the call.
func TestR7_AMadeUpTermHarmsNothing(t *testing.T) {
	const step, byTime = 1 << 40, 1 << 57 // 64 times the microseconds since 1970 in 2041
	for what, c := range map[string]struct{ seen, made orchestrator.Term }{
		"the highest epoch":          {orchestrator.Term{Epoch: 5, Number: 3}, orchestrator.Term{Epoch: math.MaxUint64, Number: 1}},
		"too high for the first":     {orchestrator.Term{}, orchestrator.Term{Epoch: orchestrator.MaxEpoch + 1, Number: 1}},
		"a step too far by time":     {orchestrator.Term{Epoch: byTime, Number: 3}, orchestrator.Term{Epoch: byTime + byTime/16 + 1, Number: 1}},
		"a step too far":             {orchestrator.Term{Epoch: 5, Number: 3}, orchestrator.Term{Epoch: 5 + step + 1, Number: 1}},
		"the highest number":         {orchestrator.Term{Epoch: 5, Number: 3}, orchestrator.Term{Epoch: 5, Number: math.MaxUint64}},
		"a number too high":          {orchestrator.Term{Epoch: 5, Number: 3}, orchestrator.Term{Epoch: 6, Number: 1<<32 + 1}},
		"the number of the first":    {orchestrator.Term{}, orchestrator.Term{Epoch: 1, Number: 1<<32 + 1}},
		"a number of an epoch above": {orchestrator.Term{Epoch: math.MaxUint64 - 1, Number: 3}, orchestrator.Term{Epoch: math.MaxUint64, Number: 1<<32 + 1}},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorker(t, until)
			w.Fence(c.seen)
			_, err := w.List(orchestrator.ContextWithTerm(t.Context(), c.made))
			require.ErrorIs(t, err, orchestrator.ErrRejected)
			require.NotErrorIs(t, err, orchestrator.ErrStale)
			require.ErrorIs(t, w.Add(orchestrator.ContextWithTerm(t.Context(), c.made), "a"), orchestrator.ErrRejected)
			require.Equal(t, c.seen, w.Seen())
			require.NoError(t, w.Add(orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: max(c.seen.Epoch, 1), Number: 4}), "a"))
		})
	}
	for what, c := range map[string]struct{ seen, made orchestrator.Term }{
		"the first":      {orchestrator.Term{}, orchestrator.Term{Epoch: orchestrator.MaxEpoch, Number: 1}},
		"a step by time": {orchestrator.Term{Epoch: byTime, Number: 3}, orchestrator.Term{Epoch: byTime + byTime/16, Number: 1}},
		"a step":         {orchestrator.Term{Epoch: 5, Number: 3}, orchestrator.Term{Epoch: 5 + step, Number: 1 << 32}},
		"the last epoch": {orchestrator.Term{Epoch: math.MaxUint64 - 1, Number: 3}, orchestrator.Term{Epoch: math.MaxUint64, Number: 1}},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorker(t, until)
			w.Fence(c.seen)
			require.NoError(t, w.Add(orchestrator.ContextWithTerm(t.Context(), c.made), "a"))
		})
	}
}

// An error does not tell the incarnation that a call should have named.
func TestR7_TheIncarnationIsToldToNobody(t *testing.T) {
	w := newWorker(t, until)
	wrong := worker.ContextWithIncarnation(t.Context(), w.Incarnation()+1)
	_, listed := w.List(wrong)
	_, _, reported := w.Report(wrong, 0)
	for _, err := range []error{listed, reported, w.Add(wrong, "a"), w.Remove(wrong, "a"), w.Update(wrong, "a", worker.Grant{})} {
		require.ErrorIs(t, err, worker.ErrIncarnation)
		require.NotContains(t, err.Error(), fmt.Sprint(w.Incarnation()))
	}
}
