package test

// T8: moves that fail half-way, and give-backs.

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// If the first half of a move fails, the second is not sent, and the task keeps running
// on its old worker, whatever the handoff.
func TestT8_FailedFirstHalf(t *testing.T) {
	for name, c := range map[string]struct {
		handoff orchestrator.Handoff
		op      orchestrator.Op
		err     error
		want    orchestrator.Outcome
	}{
		"stop rejected":   {orchestrator.StopThenStart, orchestrator.OpRemove, errRejected, orchestrator.OutcomeFailed},
		"stop unknown":    {orchestrator.StopThenStart, orchestrator.OpRemove, errBoom, orchestrator.OutcomeUnknown},
		"stop under way":  {orchestrator.StopThenStart, orchestrator.OpRemove, orchestrator.ErrStopping, orchestrator.OutcomeStopping},
		"start rejected":  {orchestrator.StartThenStop, orchestrator.OpAdd, errRejected, orchestrator.OutcomeFailed},
		"start unknown":   {orchestrator.StartThenStop, orchestrator.OpAdd, errBoom, orchestrator.OutcomeUnknown},
		"start timed out": {orchestrator.StartThenStop, orchestrator.OpAdd, context.DeadlineExceeded, orchestrator.OutcomeUnknown},
	} {
		t.Run(name, bothWires(given{workers: 1, running: 2, opts: options{orchestrator.WithHandoff(c.handoff)}}, func(t *testing.T, f *fleet) {
			f.join("w2")
			f.refuse(c.op, "", "", c.err)
			err := f.NextTerm(t.Context())
			require.Len(t, f.writes(), 1, "nothing but the half that failed")
			require.Len(t, f.sent(c.op), 1)
			move := f.LastPlan().Changes[0]
			require.Equal(t, c.want, move.Outcome)
			require.ErrorIs(t, move.Err, c.err)
			require.Equal(t, []string{"w1"}, f.Running(move.Task))
			if c.want == orchestrator.OutcomeStopping {
				require.NoError(t, err, "a stop under way is no failure")
			} else {
				require.ErrorIs(t, err, c.err)
			}
		}))
	}
}

// If the stop under StartThenStop fails, the task runs on both workers. The old copy is
// stopped when the pause of its stop has ended, and nothing else moves.
func TestT8_StartThenStop_StopFails(t *testing.T) {
	for name, heals := range map[string]bool{"once": true, "twice": false} {
		t.Run(name, bothWires(given{workers: 1, running: 2, opts: options{orchestrator.WithHandoff(orchestrator.StartThenStop)}}, func(t *testing.T, f *fleet) {
			f.join("w2")
			f.refuse(orchestrator.OpRemove, "", "", errBoom)
			f.failingTerm()
			move := f.LastPlan().Changes[0]
			require.Equal(t, orchestrator.OutcomeUnknown, move.Outcome)
			require.Len(t, f.Running(move.Task), 2)

			f.freshTerm()
			require.Empty(t, f.writes(), "the stop pauses")
			if heals {
				f.Refuse(nil)
				f.term()
			} else {
				f.failingTerm()
				f.Refuse(nil)
				f.untilTerm(3, func() bool { return len(f.Running(move.Task)) == 1 })
			}
			require.Equal(t, "remove "+move.Task+" "+move.From, f.writes()[0])
			require.Equal(t, orchestrator.ReasonSurplus, f.changesOf(move.Task)[0].Kind.Reason)
			require.Equal(t, []string{move.To}, f.Running(move.Task))
			f.requireSettled()
			require.Equal(t, []int{1, 1}, f.loads())
		}))
	}
}

// Whichever half is refused, the task runs on its old worker again by the end of the
// term.
func TestT8_RefusedMoveIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		refuseAfter int // so many Adds to w3 succeed, and the next is refused
		drain       bool
	}{
		"the first, to an unproven receiver": {0, false},
		"the second":                         {1, false},
		"a later one":                        {3, false},
		"the first of a drain":               {0, true},
		"a later one of a drain":             {3, true},
	} {
		t.Run(name, bothWires(given{workers: 2, running: 16}, func(t *testing.T, f *fleet) {
			f.join("w3")
			if c.drain {
				require.NoError(t, f.DrainWorker("w1"))
			}
			refused := f.refuseOne("w3", c.refuseAfter)
			f.forget()
			require.Len(t, f.failingTerm(), 1)

			move := f.changesOf(refused())[0]
			require.Equal(t, orchestrator.OutcomeReturned, move.Outcome)
			require.ErrorIs(t, move.Err, orchestrator.ErrRejected)
			require.Equal(t, []string{move.From}, f.Running(move.Task), "it runs again where it came from")
			require.Subset(t, f.writes(), []string{
				fmt.Sprintf("remove %s %s", move.Task, move.From),
				fmt.Sprintf("add %s %s", move.Task, "w3"),
				fmt.Sprintf("add %s %s", move.Task, move.From),
			})
			f.requireAllRun()
			f.requireNeverTwice()
			require.Equal(t, 1, f.outcomes()[orchestrator.OutcomeReturned])

			for range 8 {
				_ = f.NextTerm(t.Context())
				f.requireAllRun()
			}
			f.requireSettled()
		}))
	}
}

// refuseOne makes a worker refuse one start, after a number of starts that it accepts.
// The result returns the task that it refused.
func (f *fleet) refuseOne(worker string, after int) (which func() string) {
	state := make(chan string, 1)
	state <- ""
	taken := 0
	f.Refuse(func(op orchestrator.Op, w, task string) error {
		if op != orchestrator.OpAdd || w != worker {
			return nil
		}
		refused := <-state
		defer func() { state <- refused }()
		if taken++; taken == after+1 {
			refused = task
			return errRejected
		}
		return nil
	})
	return func() string {
		refused := <-state
		state <- refused
		return refused
	}
}

// A task whose start a quarantined worker refuses in its trial is given back as well.
func TestT8_RefusedTrialIsGivenBack(t *testing.T) {
	onBothWires(t, given{workers: 2, expected: 8}, func(t *testing.T, f *fleet) {
		f.quarantine("w2")
		f.term() // its pause
		require.Equal(t, []int{8, 0}, f.loads())

		require.Len(t, f.failingTerm(), 1)
		require.Len(t, f.LastPlan().Changes, 1)
		trial := f.LastPlan().Changes[0]
		require.Equal(t, orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}, trial.Kind)
		require.Equal(t, orchestrator.OutcomeReturned, trial.Outcome)
		require.Equal(t, []int{8, 0}, f.loads())
		f.requireNeverTwice()
	})
}

// The Add is not sent, because another call to its receiver timed out while the stop was
// under way.
func TestT8_NotSentIsGivenBack_ReceiverTimedOut(t *testing.T) {
	inBubble(t, given{workers: 2, running: 10}, func(t *testing.T, f *fleet) {
		f.join("w3")
		require.NoError(t, f.AddTask("new"))
		require.NoError(t, f.AddTask("sick"))
		f.intercept(func(ctx context.Context, c call) error {
			switch {
			case c.Op == orchestrator.OpAdd && c.Task == "sick":
				return hang(ctx)
			case c.Op == orchestrator.OpRemove:
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		f.forget()
		f.failingTerm()

		adds := f.calls(func(c call) bool { return c.Op == orchestrator.OpAdd && c.Worker == "w3" })
		require.Equal(t, []string{"add new w3", "add sick w3"}, texts(adds), "no more to w3 when it has timed out")
		require.Positive(t, f.outcomes()[orchestrator.OutcomeReturned])
		for _, c := range f.moves() {
			require.ErrorIs(t, c.Err, orchestrator.ErrSkipped)
			require.Equal(t, []string{c.From}, f.Running(c.Task), "task %s is %s", c.Task, c.Outcome)
		}
	})
}

// While a start hangs on a worker, no healthy task is stopped to move there.
func TestT8_NoMoveWaitsForAStartThatHangs(t *testing.T) {
	for name, failedBefore := range map[string]bool{"a new task": false, "one that failed before, which comes last": true} {
		t.Run(name, bothWires(given{workers: 2, running: 8}, func(t *testing.T, f *fleet) {
			if failedBefore {
				f.failAdds(errRejected)
				require.NoError(t, f.AddTask("sick"))
				f.failingTerm()
				f.Refuse(nil)
			}
			f.join("w3")
			require.NoError(t, f.AddTask("sick"))
			f.intercept(on(orchestrator.OpAdd, "", "sick", hang))
			f.failingTerm()
			require.Zero(t, f.outcomes()[orchestrator.OutcomeReturned], "%v", f.LastPlan())
			require.Equal(t, failedBefore, f.outcomes()[orchestrator.OutcomeDone] > 0)
			for _, name := range names("t", 8) {
				require.Len(t, f.Running(name), 1, name)
			}
		}))
	}
}

// The Add is not sent, because its receiver was busy until the second gate had closed.
func TestT8_NotSentIsGivenBack_TooLate(t *testing.T) {
	inBubble(t, given{workers: 2, running: 8}, func(t *testing.T, f *fleet) {
		f.join("w3")
		require.NoError(t, f.AddTask("new")) // proves that w3 can be trusted with two moves at once
		for _, w := range []string{"w1", "w2"} {
			ctx := orchestrator.ContextWithTerm(t.Context(), f.LastPlan().Stats.Term)
			require.NoError(t, f.Worker(w).Add(ctx, "old-"+w))
		}
		f.intercept(func(_ context.Context, c call) error {
			switch {
			case c.Op == orchestrator.OpList || c.Task == "new":
			case strings.HasPrefix(c.Task, "old"):
				time.Sleep(9 * time.Second)
			case c.Op == orchestrator.OpRemove && c.Worker == "w1":
				time.Sleep(6 * time.Second)
			case c.Op == orchestrator.OpRemove && c.Worker == "w2", c.Worker == "w3":
				time.Sleep(9900 * time.Millisecond)
			}
			return nil
		})
		f.forget()
		require.NoError(t, f.NextTerm(t.Context()), "what was not begun is no failure")

		require.Len(t, f.moves(), 2)
		for _, c := range f.moves() {
			if c.From == "w1" {
				require.Equal(t, orchestrator.OutcomeDone, c.Outcome)
				require.Equal(t, []string{"w3"}, f.Running(c.Task))
				continue
			}
			require.Equal(t, orchestrator.OutcomeReturned, c.Outcome)
			require.ErrorIs(t, c.Err, orchestrator.ErrSkipped)
			require.Equal(t, []string{"w2"}, f.Running(c.Task))
		}
		f.requireAllRun()
	})
}

// If the old worker refuses the give-back, the task is missing, and the next term starts
// it on any worker.
func TestT8_GivenBackAndRefused(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		f.failAdds(errRejected)
		f.failingTerm()
		move := f.LastPlan().Changes[0]
		require.Equal(t, orchestrator.OutcomeFailed, move.Outcome)
		require.Empty(t, f.Running(move.Task))
		require.Equal(t, 1, f.LastPlan().Stats.Instances.Missing)

		f.Refuse(nil)
		for range 4 {
			_ = f.NextTerm(t.Context())
		}
		f.requireAllRun()
		f.requireNeverTwice()
	})
}

// If the outcome of a start is unknown, nothing is given back. The next term lists what
// runs.
func TestT8_AnUnknownOutcomeIsNotGivenBack(t *testing.T) {
	t.Run("it did not happen", bothWires(given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		f.failAdds(errBoom, "w2")
		f.failingTerm()
		move := f.LastPlan().Changes[0]
		require.Equal(t, orchestrator.OutcomeUnknown, move.Outcome)
		require.Len(t, f.writes(), 2, "the stop and the start, and nothing else")
		require.Empty(t, f.Running(move.Task))

		f.term()
		f.requireAllRun()
		require.Equal(t, []string{"w1"}, f.Running(move.Task))
		f.requireNeverTwice()
	}))
	t.Run("it did happen", bothWires(given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		f.intercept(on(orchestrator.OpAdd, "", "", func(context.Context) error {
			f.LoseAnswers("w2")
			return nil
		}))
		took, err := f.timedTerm()
		require.Len(t, failures(t, err), 1)
		require.InDelta(t, timeout, took, float64(timeout/1000))
		move := f.LastPlan().Changes[0]
		require.Equal(t, orchestrator.OutcomeUnknown, move.Outcome)
		require.Len(t, f.writes(), 2, "the stop and the start, and nothing else")
		require.Equal(t, []string{"w2"}, f.Running(move.Task))

		f.intercept(nil)
		f.Heal()
		f.requireSettled()
		f.requireNeverTwice()
	}))
	t.Run("it happens later", bothWires(given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		release := f.HoldWrites("w2")
		f.failingTerm()
		move := f.LastPlan().Changes[0]
		require.Equal(t, orchestrator.OutcomeUnknown, move.Outcome)
		require.Empty(t, f.Running(move.Task))
		release() // no term has looked since: the write is valid
		synctest.Wait()
		require.Equal(t, []string{"w2"}, f.Running(move.Task))
		f.requireSettled()
		f.requireNeverTwice()
	}))
}
