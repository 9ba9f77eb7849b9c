package test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T3: how long a term may last, and what may begin when.

func TestT3_ChangesBeginWithinTheFirstTimeoutOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.expect(6)
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpAdd {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		d, err := f.timedTerm()
		require.NoError(t, err, "to skip is no failure")
		require.Equal(t, 12*time.Second, d, "at 0, 3, 6 and 9 seconds one begins; what has begun is carried through")
		outcomes := make(map[orchestrator.Outcome]int)
		for _, c := range f.LastPlan().Changes {
			outcomes[c.Outcome]++
			if c.Outcome == orchestrator.OutcomeSkipped {
				require.ErrorIs(t, c.Err, orchestrator.ErrSkipped)
			}
		}
		require.Equal(t, map[orchestrator.Outcome]int{orchestrator.OutcomeDone: 4, orchestrator.OutcomeSkipped: 2}, outcomes)
		require.Equal(t, 2, f.LastPlan().Stats.Instances.Missing)
		f.term()
		f.requireSettled()
	})
}

// The longest term there can be: the listing takes a timeout; a move begins at
// the end of the next one; its stop, its start and its give-back take one each.
func TestT3_WorstTermLastsFiveTimeouts(t *testing.T) {
	const nearly = timeout - 2*time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.expect(3)
		f.term()
		f.join("w2")
		f.RemoveTask("t3") // to be stopped before the move begins
		f.forget()
		f.intercept(func(_ context.Context, c call) error {
			time.Sleep(nearly)
			if c.Op == orchestrator.OpAdd && c.Worker == "w2" {
				return orchestrator.ErrRejected
			}
			return nil
		})
		d, err := f.timedTerm()
		require.ErrorIs(t, err, orchestrator.ErrRejected)
		require.Equal(t, 5*nearly, d)
		moved := f.calls(func(c call) bool { return c.Worker == "w2" && c.Op == orchestrator.OpAdd })[0].Task
		require.Equal(t, []string{
			"remove t3 w1", "remove " + moved + " w1", "add " + moved + " w2", "add " + moved + " w1",
		}, f.writes())
		require.Equal(t, []string{"w1"}, f.Running(moved))
	})
}

// Of three tasks on their way to one receiver, which takes a timeout for each,
// the third would begin there too late to be given back in time.
func TestT3_SecondHalvesBeginWithinTheSecondTimeoutOnly(t *testing.T) {
	const nearly = timeout - 2*time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(18)
		f.term()
		f.join("w4")
		require.NoError(t, f.AddTask("n1")) // two starts that prove the receiver,
		require.NoError(t, f.AddTask("n2")) // so that three moves may be under way
		f.intercept(func(_ context.Context, c call) error {
			if c.Op != orchestrator.OpList && c.Task[0] == 't' {
				time.Sleep(nearly)
			}
			return nil
		})
		f.term()
		outcomes := make(map[orchestrator.Outcome]int)
		for _, c := range f.LastPlan().Changes {
			if c.Kind.Op == orchestrator.Move {
				outcomes[c.Outcome]++
			}
		}
		require.Equal(t, map[orchestrator.Outcome]int{orchestrator.OutcomeDone: 2, orchestrator.OutcomeReturned: 1}, outcomes)
		require.Equal(t, 2*timeout+nearly, f.LastPlan().Stats.Writing, "given back as soon as that is clear")
		require.Equal(t, []int{6, 5, 5, 4}, descending(f.loads()))
	})
}

// Whatever the calls do, a term is over after five timeouts.
func TestT3_NoTermLastsLonger(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			f := newFleet(t, 4, orchestrator.WithConcurrency(1+r.IntN(6)), orchestrator.WithHandoff(orchestrator.Handoff(r.IntN(3))))
			f.expect(12)
			f.term()
			f.join("w5")
			f.RemoveTask("t1")
			require.NoError(t, f.AddTask("n", orchestrator.WithTaskInstances(5)))
			require.NoError(t, f.DrainWorker("w2"))
			over := make(chan struct{})
			var mu sync.Mutex // of r
			f.intercept(func(ctx context.Context, _ call) error {
				mu.Lock()
				fate, d := r.IntN(6), time.Duration(r.Int64N(int64(timeout)))
				mu.Unlock()
				switch fate {
				case 0:
					<-over // ignores its context
					return errors.New("too late")
				case 1:
					return hang(ctx)
				case 2:
					return orchestrator.ErrRejected
				}
				time.Sleep(d)
				return nil
			})
			for range 3 {
				d, _ := f.timedTerm()
				require.LessOrEqual(t, d, 5*timeout, "seed %d", seed)
			}
			close(over)
		})
	}
}

// With one call at a time, a start that sticks takes the only slot between the
// two halves of a move. At its deadline the slot is free, and the move goes on.
func TestT3_SlotIsFreeAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, orchestrator.WithConcurrency(1))
		f.expect(2)
		f.term()
		f.join("w2", "w3")
		require.NoError(t, f.AddTask("sticks"))
		p, err := f.Plan(orchestrator.Hypothesis[string, string]{})
		require.NoError(t, err)
		require.Len(t, p.Changes, 2)
		i := slices.IndexFunc(p.Changes, func(c change) bool { return c.Kind.Op == orchestrator.Move })
		moved := p.Changes[i]

		over := make(chan struct{})
		defer close(over)
		f.forget()
		f.intercept(func(_ context.Context, c call) error {
			switch {
			case c.Op == orchestrator.OpList && c.Worker != "w1":
				time.Sleep(time.Millisecond) // who answers fast is served first
				if c.Worker == moved.To {
					time.Sleep(time.Millisecond)
				}
			case c.Op == orchestrator.OpRemove:
				time.Sleep(timeout - time.Second)
			case c.Task == "sticks":
				<-over
			}
			return nil
		})
		_, err = f.timedTerm()
		require.Len(t, failures(t, err), 1)
		require.Equal(t, 2*timeout-time.Second, f.LastPlan().Stats.Writing)
		require.Equal(t, []string{moved.To}, f.Running(moved.Task))
		writes := f.calls(func(c call) bool { return c.Op != orchestrator.OpList })
		require.Equal(t, "sticks", writes[1].Task, "it set out between the halves: %v", f.writes())
	})
}
