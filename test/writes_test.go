package test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T7: the order of the writes, and who waits for whom.

// slowWrites has each write take d.
func slowWrites(d time.Duration) func(context.Context, call) error {
	return func(_ context.Context, c call) error {
		if c.Op != orchestrator.OpList {
			time.Sleep(d)
		}
		return nil
	}
}

// involves says whether a worker is one end of a change.
func involves(c change, worker string) bool {
	return c.From == worker || c.To == worker
}

func TestT7_ConcurrentAcrossWorkersOneAtATimeOnEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.expect(20)
		f.intercept(slowWrites(time.Second))
		d, err := f.timedTerm() // the wire would notice two calls at once for a worker
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, d)
		require.Equal(t, 4, f.mostInFlight())
		require.Equal(t, []int{5, 5, 5, 5}, f.loads())
	})
}

func TestT7_AnApplierTakesWhatThereIsInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newBatchFleet(t, 4)
		f.expect(20)
		began := time.Now()
		f.term()
		require.Len(t, f.writes(), 20)
		require.Equal(t, 4, f.LastPlan().Stats.Apply.Done)
		require.Equal(t, 20, f.LastPlan().Stats.Add.Done)
		require.Zero(t, time.Since(began))
		f.requireSettled()
	})
}

// Whichever it is: no receiver that has to prove itself first is left waiting
// for a task from the slow one.
func TestT7_OneSlowWorkerDelaysOnlyItsOwnMoves(t *testing.T) {
	for name, newFleet := range map[string]func(*testing.T, int, ...option) *fleet{
		"one by one": newFleet, "applied": newBatchFleet,
	} {
		for _, slow := range names("w", 4) {
			t.Run(name+" "+slow, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, 4)
					f.expect(24)
					f.term()
					f.join("w5", "w6")
					f.Slow(900*time.Millisecond, slow)
					f.forget()
					f.term()
					f.requireNotDelayed(slow, 900*time.Millisecond)

					f.Heal()
					f.requireSettled()
				})
			})
		}
	}
}

// requireNotDelayed checks that all writes of the last term that belong to no
// change of the slow worker's were done the moment the listing, which took as
// long as given, was over, and that the slow worker did have some.
func (f *fleet) requireNotDelayed(slow string, listing time.Duration) {
	f.t.Helper()
	p := f.LastPlan()
	require.True(f.t, slices.ContainsFunc(p.Changes, func(c change) bool { return involves(c, slow) }))
	for _, c := range f.calls(func(c call) bool { return c.Op != orchestrator.OpList }) {
		i := slices.IndexFunc(p.Changes, func(x change) bool { return x.Task == c.Task && involves(x, c.Worker) })
		if !involves(p.Changes[i], slow) {
			require.Equal(f.t, p.Stats.Start.Add(listing), c.Sent.Add(c.Took), "%v", c)
		}
	}
}

func TestT7_NothingNewBeginsAfterATimeout(t *testing.T) {
	for name, first := range map[string]func(context.Context) error{
		"a call that ends with its context": hang,
		"a call that outlives it":           dawdle,
		"a timeout behind the transport":    func(context.Context) error { return fmt.Errorf("proxy: %w", context.DeadlineExceeded) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3)
				f.expect(15)
				f.intercept(func(ctx context.Context, c call) error {
					if c.Op == orchestrator.OpAdd && c.Worker == "w2" {
						return first(ctx)
					}
					return nil
				})
				d, err := f.timedTerm()
				require.Len(t, failures(t, err), 1)
				require.LessOrEqual(t, d, timeout)
				require.Len(t, f.calls(func(c call) bool { return c.Op == orchestrator.OpAdd && c.Worker == "w2" }), 1)
				require.Equal(t, []int{5, 0, 5}, f.loads())
				require.Equal(t, 1, f.LastPlan().Stats.Add.Timeout+f.LastPlan().Stats.Add.Failed)

				skipped := 0
				for _, c := range f.LastPlan().Changes {
					if c.Outcome == orchestrator.OutcomeSkipped {
						skipped++
						require.Equal(t, "w2", c.To)
						require.ErrorIs(t, c.Err, orchestrator.ErrSkipped)
						require.ErrorContains(t, c.Err, "timed out")
					}
				}
				require.Equal(t, 4, skipped)
			})
		})
	}
}

// A stop that timed out pauses for a term, and comes last when it is tried again.
func TestT7_WhatTimedOutComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.expect(5)
		f.term()
		require.NoError(t, f.UpdateTasks([]task{{Name: "t5"}}))
		stuck := ""
		f.intercept(func(ctx context.Context, c call) error {
			if c.Op == orchestrator.OpRemove && (stuck == "" || stuck == c.Task) {
				stuck = c.Task
				return hang(ctx)
			}
			return nil
		})
		require.Error(t, f.NextTerm(t.Context()))
		require.Equal(t, orchestrator.OutcomeUnknown, f.changesOf(stuck)[0].Outcome)
		require.Len(t, f.RunsOn("w1"), 5)
		f.term()
		require.Equal(t, []string{stuck, "t5"}, f.RunsOn("w1"))

		f.RemoveTask("t5")
		f.forget()
		require.Error(t, f.NextTerm(t.Context()))
		require.Equal(t, []string{"remove t5 w1", "remove " + stuck + " w1"}, f.writes())
	})
}

// Two tasks that can never be stopped do not keep the others from it by taking
// turns at coming last.
func TestT7_TwoThatTimeOutDoNotBlockTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.expect(5)
		f.term()
		require.NoError(t, f.UpdateTasks(nil))
		f.intercept(func(ctx context.Context, c call) error {
			if c.Op == orchestrator.OpRemove && (c.Task == "t2" || c.Task == "t4") {
				return hang(ctx)
			}
			return nil
		})
		for range 3 {
			_ = f.NextTerm(t.Context())
		}
		require.ElementsMatch(t, []string{"t2", "t4"}, f.RunsOn("w1"))
	})
}
