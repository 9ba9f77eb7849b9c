package test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// Workers that had not answered when a term went on: late ones, and what a term says
// of silent ones.

// A late worker counts as answering. It is frozen, and its instances are held.
func TestT3_ALateWorkersInstancesAreHeld(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.expect(12)
		f.term()
		has := f.RunsOn("w2")
		f.Slow(3*time.Second, "w2")
		require.NoError(t, f.DrainWorker("w2"))
		f.RemoveTask(has[0])
		f.forget()
		require.Equal(t, timeout/10, took(f.term))
		require.Empty(t, f.writes())
		require.Equal(t, []string{"w2"}, f.late())
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
		require.ElementsMatch(t, has, f.state("w2").Tasks)
		s := f.LastPlan().Stats
		require.Equal(t, orchestrator.WorkerStats{Answering: 4, Draining: 1, Late: 1}, s.Workers)
		require.Equal(t, orchestrator.InstanceStats{Wanted: 11, Running: 9, Held: 2}, s.Instances)
		held := f.waitingFor(orchestrator.ReasonHeld)
		holds := func(task string) waiting {
			return waiting{Task: task, Instances: 1, Reason: orchestrator.ReasonHeld, Worker: "w2", Named: true}
		}
		require.ElementsMatch(t, []waiting{holds(has[1]), holds(has[2])}, held)

		time.Sleep(3 * time.Second) // its answer comes, and serves the next term
		synctest.Wait()
		f.Slow(0, "w2")
		f.forget()
		f.term()
		require.NotContains(t, texts(f.lists()), "list w2")
		require.Empty(t, f.late())
		require.Empty(t, f.RunsOn("w2"))
		f.requireSettled()
	})
}

// What is missing is placed as if the late worker were open, and its part waits a
// term. It starts elsewhere if the worker is late again.
func TestT3_TheShareOfALateWorkerWaitsATerm(t *testing.T) {
	for name, again := range map[string]bool{"it answers": false, "it is late again": true} {
		t.Run(name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, 4)
				f.expect(8)
				f.term()
				f.Slow(9*time.Second, "w2")
				f.expect(40)
				f.term()
				require.Equal(t, []int{10, 2, 10, 10}, f.loads())
				late := f.waitingFor(orchestrator.ReasonLate)
				require.Len(t, late, 8)
				for _, x := range late {
					require.Equal(t, waiting{Task: x.Task, Instances: 1, Reason: orchestrator.ReasonLate, Worker: "w2", Named: true}, x)
				}
				s := f.LastPlan().Stats
				require.Equal(t, 8, s.Instances.Missing)
				require.Equal(t, 24, s.Adds)
				require.Equal(t, 24, s.LowerBound)

				if again {
					f.term()
					require.Equal(t, []string{"w2"}, f.late())
					require.Empty(t, f.waitingFor(orchestrator.ReasonLate))
					f.requireAllRun()
					require.Len(t, f.RunsOn("w2"), 2)
				}
				time.Sleep(timeout)
				f.Slow(0, "w2")
				f.term()
				require.Equal(t, []int{10, 10, 10, 10}, f.loads())
				f.requireNeverTwice()
			})
		})
	}
}

// A draining late worker has no share, so nothing waits for it.
func TestT3_NothingWaitsForALateWorkerThatDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.expect(8)
		f.term()
		require.NoError(t, f.DrainWorker("w2"))
		f.Slow(9*time.Second, "w2")
		f.expect(40)
		f.term()
		f.requireAllRun()
	})
}

// refusesLate makes every List of w2 fail two seconds after it was called, when the
// others have answered and the term has gone on.
func refusesLate(f *fleet) {
	n := 0
	f.intercept(func(_ context.Context, c call) error {
		if c.Op != orchestrator.OpList || c.Worker != "w2" {
			return nil
		}
		n++
		time.Sleep(2 * time.Second)
		return fmt.Errorf("refused %d times", n)
	})
}

// A late worker whose call fails in the end is silent. Its error tells how the call
// before failed, while the call of this term is under way.
func TestT11_HowTheLastCallFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(3)
		f.term()
		refusesLate(f)
		why := func() string {
			t.Helper()
			failed := failures(t, f.NextTerm(t.Context()))
			require.Len(t, failed, 1)
			require.Equal(t, "w2", failed[0].Worker)
			return failed[0].Err.Error()
		}
		f.term()
		require.Equal(t, []string{"w2"}, f.late())
		time.Sleep(2 * time.Second) // the call fails after its term
		synctest.Wait()
		require.Equal(t, "no answer in time, and the last call failed: refused 1 times", why())
		require.Equal(t, orchestrator.Silent, f.state("w2").State)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, "no answer in time, and the last call failed: refused 2 times", why())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f.intercept(nil)
		f.anyTerm() // it need not wait for its answer
		synctest.Wait()
		f.term()
		f.Stick("w2")
		f.term()
		require.Equal(t, []string{"w2"}, f.late(), "it has answered since")
		time.Sleep(timeout)
		require.Equal(t, "no answer in time: an earlier call has not returned", why())
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)
	})
}

// That the call before was rejected is text: errors.Is does not find it.
func TestT11_HowTheLastCallFailedIsOnlyText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earlier := fmt.Errorf("%w: another incarnation", orchestrator.ErrRejected)
		f := newFleet(t, 3)
		f.term()
		f.intercept(on(orchestrator.OpList, "w2", "", func(context.Context) error { return earlier }))
		require.ErrorIs(t, f.NextTerm(t.Context()), earlier)
		f.intercept(nil)
		f.Stick("w2")
		defer f.Heal()
		err := f.NextTerm(t.Context())
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.ErrorContains(t, err, earlier.Error())
		require.NotErrorIs(t, err, earlier)
	})
}

// A call that the leader ends says nothing of its worker.
func TestT11_WhatTheLeaderEndsIsNoWorkersFailure(t *testing.T) {
	over := errors.New("this leader is over")
	for name, end := range map[string]func(f *fleet, ctx context.Context) error{
		"a term":             (*fleet).NextTerm,
		"the terms of a Run": func(f *fleet, ctx context.Context) error { return f.Run(ctx, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3)
				f.term()
				f.Cut("w2")
				f.silentTerm("w2")
				f.Heal()
				f.Slow(5*time.Second, "w2") // which NextTerm does not wait for
				if name == "a term" {
					f.Slow(5*time.Second, "w1", "w3")
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(over) })
				require.ErrorIs(t, end(f, ctx), over)
				f.Slow(0, "w1", "w3")
				err := f.NextTerm(t.Context())
				require.ErrorIs(t, err, orchestrator.ErrSilent)
				require.NotContains(t, err.Error(), over.Error())
				require.ErrorContains(t, err, "the worker is cut off")
			})
		})
	}
}

// An answer that is of no use is a failure, too.
func TestT11_AnAnswerThatCannotBeUsedIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &unusable{}
		o, err := orchestrator.New[string, any](c)
		require.NoError(t, err)
		require.NoError(t, o.AddWorker("w1"))
		require.NoError(t, o.AddWorker("w2"))
		require.ErrorContains(t, o.NextTerm(t.Context()), "unusable answer")
		c.slow = true
		err = o.NextTerm(t.Context())
		require.ErrorContains(t, err, "no answer in time, and the last call failed: unusable answer")
		time.Sleep(time.Second) // the call returns
	})
}

// unusable has one worker list what is no name.
type unusable struct{ slow bool }

func (c *unusable) List(_ context.Context, worker string) ([]any, error) {
	if worker == "w1" {
		return nil, nil
	}
	if c.slow {
		time.Sleep(time.Second)
	}
	return []any{[]int{1}}, nil
}
func (c *unusable) Add(context.Context, string, any) error    { return nil }
func (c *unusable) Remove(context.Context, string, any) error { return nil }
