package orchestrator_test

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

// What a term says of a worker that it did not wait for.

// refusesLate has every List of w2 fail a second after it was called, when the
// others have answered.
func refusesLate(f *fleet) {
	n := 0
	f.intercept(func(_ context.Context, c call) error {
		if c.Op != orchestrator.OpList || c.Worker != "w2" {
			return nil
		}
		n++
		time.Sleep(time.Second)
		return fmt.Errorf("refused %d times", n)
	})
}

// A silent worker whose calls are refused in the end is no slow one: that its call
// of this term is still under way is not all that is known.
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
		require.Equal(t, "refused 1 times", why(), "it answered last term: it is waited for")
		require.Equal(t, "no answer in time, and the last call failed: refused 1 times", why())
		time.Sleep(2 * time.Second) // the call fails after its term
		require.Equal(t, "no answer in time, and the last call failed: refused 2 times", why())
		for range 2 { // while that call is under way, and when it has failed
			p, err := f.Plan(t.Context())
			require.ErrorIs(t, err, orchestrator.ErrSilent)
			require.Equal(t, "no answer in time, and the last call failed: refused 2 times", failures(t, p.Stats.Err)[0].Err.Error())
			time.Sleep(2 * time.Second)
		}
		f.intercept(nil)
		_ = f.NextTerm(t.Context()) // which need not wait for its answer
		synctest.Wait()
		f.term()
		f.Stick("w2")
		require.Equal(t, orchestrator.ErrSilent.Error(), why(), "it has answered since")
	})
}

// An error says of its own call what it is: that the one before was refused, or ended
// the term, is text in the next one.
func TestT11_HowTheLastCallFailedIsOnlyText(t *testing.T) {
	for name, earlier := range map[string]error{
		"rejected": fmt.Errorf("%w: another incarnation", orchestrator.ErrRejected),
		"deposed":  fmt.Errorf("epoch 7: %w", orchestrator.ErrDeposed),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3)
				f.term()
				f.intercept(func(_ context.Context, c call) error {
					if c.Op == orchestrator.OpList && c.Worker == "w2" {
						return earlier
					}
					return nil
				})
				require.ErrorIs(t, f.NextTerm(t.Context()), earlier)
				f.intercept(nil)
				f.Stick("w2")
				defer f.Heal()
				err := f.NextTerm(t.Context())
				require.ErrorIs(t, err, orchestrator.ErrSilent)
				require.ErrorContains(t, err, earlier.Error())
				require.NotErrorIs(t, err, earlier)
				require.Equal(t, 1, f.LastPlan().Stats.List.Timeout)
			})
		})
	}
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
					f.Slow(5*time.Second, "w1")
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(over) })
				require.ErrorIs(t, end(f, ctx), over)
				f.Slow(0, "w1")
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
		require.ErrorContains(t, o.NextTerm(t.Context()), "cannot be used")
		c.slow = true
		err = o.NextTerm(t.Context())
		require.ErrorContains(t, err, "no answer in time, and the last call failed: its answer cannot be used")
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
