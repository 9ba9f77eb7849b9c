package test

// T8: the two halves of a move, how much is risked on a receiver, and moves that
// fail half-way.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

var (
	errBoom     = errors.New("boom")
	errRejected = fmt.Errorf("no room: %w", orchestrator.ErrRejected)
)

// slowly has every write take d, so that what waits for what can be seen.
func slowly(f *fleet, d time.Duration) {
	f.intercept(onWrites("", "", takes(d)))
}

func TestT8_StopThenStart(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		slowly(f, 2*time.Second)
		f.term()

		require.Len(t, f.writes(), 2)
		stop, begin := f.sent(orchestrator.OpRemove)[0], f.sent(orchestrator.OpAdd)[0]
		require.Equal(t, "w1", stop.Worker)
		require.Equal(t, "add "+stop.Task+" w2", begin.String())
		require.Equal(t, stop.Sent.Add(2*time.Second), begin.Sent, "as soon as the stop was acknowledged, and no earlier")
		f.requireNeverTwice()
		f.requireSettled()
	})
}

func TestT8_StartThenStop(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 2, opts: options{orchestrator.WithHandoff(orchestrator.StartThenStop)}}, func(t *testing.T, f *fleet) {
		f.join("w2")
		slowly(f, 2*time.Second)
		f.term()

		require.Len(t, f.writes(), 2)
		stop, begin := f.sent(orchestrator.OpRemove)[0], f.sent(orchestrator.OpAdd)[0]
		require.Equal(t, "w2", begin.Worker)
		require.Equal(t, "remove "+begin.Task+" w1", stop.String())
		require.Equal(t, begin.Sent.Add(2*time.Second), stop.Sent, "as soon as the start was acknowledged, and no earlier")
		require.Equal(t, 2, f.Counts(begin.Task).Most)
		f.requireSettled()
	})
}

// The order is that of the task, else that of all tasks, else stop then start.
func TestT8_HandoffOfATaskOrOfAll(t *testing.T) {
	const (
		unset         = orchestrator.HandoffDefault
		stopThenStart = orchestrator.StopThenStart
		startThenStop = orchestrator.StartThenStop
	)
	for _, c := range []struct{ all, task, want orchestrator.Handoff }{
		{unset, unset, stopThenStart},
		{unset, stopThenStart, stopThenStart},
		{unset, startThenStop, startThenStop},
		{stopThenStart, unset, stopThenStart},
		{stopThenStart, startThenStop, startThenStop},
		{startThenStop, unset, startThenStop},
		{startThenStop, stopThenStart, stopThenStart},
	} {
		first := orchestrator.OpRemove
		if c.want == startThenStop {
			first = orchestrator.OpAdd
		}
		t.Run(fmt.Sprint("all ", c.all, ", task ", c.task), func(t *testing.T) {
			inBubble(t, given{workers: 1, opts: options{orchestrator.WithHandoff(c.all)}}, func(t *testing.T, f *fleet) {
				f.expect(2, orchestrator.WithHandoff(c.task))
				f.term()
				f.join("w2")
				f.forget()
				f.term()
				writes := f.calls(func(c call) bool { return c.Op != orchestrator.OpList })
				require.Len(t, writes, 2)
				require.Equal(t, first, writes[0].Op)
			})
		})
		t.Run(fmt.Sprint("all ", c.all, ", task updated to ", c.task), func(t *testing.T) {
			inBubble(t, given{workers: 1, running: 2, opts: options{orchestrator.WithHandoff(c.all)}}, func(t *testing.T, f *fleet) {
				require.NoError(t, f.UpdateTasks([]task{{Name: "t1", Handoff: c.task}, {Name: "t2", Handoff: c.task}}))
				f.join("w2")
				f.term()
				writes := f.calls(func(c call) bool { return c.Op != orchestrator.OpList })
				require.Len(t, writes, 2)
				require.Equal(t, first, writes[0].Op)
			})
		})
	}
}

// A surplus copy is stopped at once, whatever else the term has to wait for.
func TestT8_TrimmingNeverWaits(t *testing.T) {
	for _, handoff := range []orchestrator.Handoff{orchestrator.StopThenStart, orchestrator.StartThenStop} {
		t.Run(handoff.String(), func(t *testing.T) {
			inBubble(t, given{workers: 3, expected: 3, opts: options{orchestrator.WithHandoff(handoff)}}, func(t *testing.T, f *fleet) {
				for _, w := range []string{"w1", "w2", "w3"} { // everything runs everywhere
					for _, task := range names("t", 3) {
						require.NoError(t, f.Cluster.Add(t.Context(), w, task))
					}
				}
				require.NoError(t, f.AddTask("new", orchestrator.WithTaskInstances(3)))
				slowly(f, 3*time.Second)
				began := time.Now()
				f.term()

				trims := f.sent(orchestrator.OpRemove)
				require.Len(t, trims, 6)
				first := make(map[string]call)
				for _, c := range trims {
					if _, ok := first[c.Worker]; !ok {
						first[c.Worker] = c
					}
				}
				for w, c := range first {
					require.Equal(t, began, c.Sent, "the first on %s", w)
				}
				f.intercept(nil)
				f.requireSettled()
			})
		})
	}
}

// A worker joins that rejects everything: one healthy task is stopped for it,
// and that one runs again where it came from in the same term.
func TestT8_JoiningWorkerRejectsEverything(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 100}, func(t *testing.T, f *fleet) {
		f.join("w5")
		f.failAdds(errRejected, "w5")
		require.Len(t, f.failingTerm(), 1)

		stops := f.sent(orchestrator.OpRemove)
		require.Len(t, stops, 1)
		task, from := stops[0].Task, stops[0].Worker
		require.Equal(t, []string{
			"remove " + task + " " + from,
			"add " + task + " w5",
			"add " + task + " " + from,
		}, f.writes())
		require.Equal(t, map[orchestrator.Outcome]int{
			orchestrator.OutcomeReturned: 1,
			orchestrator.OutcomeSkipped:  19,
		}, f.outcomes())
		for _, c := range f.moves() {
			if c.Outcome == orchestrator.OutcomeSkipped {
				require.ErrorIs(t, c.Err, orchestrator.ErrSkipped)
			}
		}
		require.Equal(t, []int{25, 25, 25, 25, 0}, f.loads())
		f.requireSettled() // w5 is left alone now
	})
}

// As many workers as there are join, and all of them reject everything.
func TestT8_EachJoiningWorkerRisksOneTask(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 100}, func(t *testing.T, f *fleet) {
		f.join("w5", "w6", "w7", "w8")
		f.failAdds(errRejected, "w5", "w6", "w7", "w8")
		f.failingTerm()
		require.Len(t, f.sent(orchestrator.OpRemove), 4)
		require.Equal(t, []int{25, 25, 25, 25, 0, 0, 0, 0}, f.loads())
	})
}

// A worker joins that never answers an Add: one task is at risk, and the next term
// finds out where it runs.
func TestT8_JoiningWorkerHangsOnAdd(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 100}, func(t *testing.T, f *fleet) {
		f.join("w5")
		f.intercept(on(orchestrator.OpAdd, "w5", "", hang))
		took, err := f.timedTerm()
		require.Len(t, failures(t, err), 1)
		require.InDelta(t, timeout, took, float64(timeout/1000), "one timeout")
		require.Len(t, f.sent(orchestrator.OpRemove), 1)
		require.Equal(t, 1, f.LastPlan().Stats.Instances.Missing)

		took, err = f.timedTerm()
		require.NoError(t, err)
		require.Zero(t, took)
		require.Equal(t, []int{25, 25, 25, 25, 0}, f.loads())
		f.requireNeverTwice()
	})
}

// One move at a time until the receiver has acknowledged a start; then all of
// its share, in the same term.
func TestT8_ProvenReceiverGetsItsShare(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 100}, func(t *testing.T, f *fleet) {
		f.join("w5")
		slowly(f, 100*time.Millisecond)
		f.forget()
		f.term()
		require.Equal(t, []int{20, 20, 20, 20, 20}, f.loads())

		adds := f.sent(orchestrator.OpAdd)
		proven := adds[0].Sent.Add(adds[0].Took)
		early := f.calls(func(c call) bool { return c.Op == orchestrator.OpRemove && c.Sent.Before(proven) })
		require.Len(t, early, 1, "stopped before w5 had acknowledged a start")
		f.requireNeverTwice()
	})
}

// An Add that starts something missing proves its receiver too.
func TestT8_AnyStartProvesAReceiver(t *testing.T) {
	inBubble(t, given{workers: 2, running: 8}, func(t *testing.T, f *fleet) {
		f.join("w3")
		require.NoError(t, f.AddTask("new"))
		f.intercept(on(orchestrator.OpRemove, "", "", takes(time.Second)))
		f.term()
		stops := f.sent(orchestrator.OpRemove)
		require.Len(t, stops, 2)
		require.Equal(t, stops[0].Sent, stops[1].Sent, "two at once, since w3 has started the new task")
		require.Equal(t, []int{3, 3, 3}, f.loads())
	})
}

// An Add times out, and lands when its task has long been started elsewhere:
// the worker refuses it.
func TestT8_LateWriteIsRefused(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.join("w2")
		release := f.HoldWrites("w2")
		f.failingTerm()
		move := f.LastPlan().Changes[0]
		require.Equal(t, orchestrator.OutcomeUnknown, move.Outcome)

		f.term() // it looks, does not find it, and starts it elsewhere
		require.Equal(t, []string{"w1"}, f.Running(move.Task))
		release()
		synctest.Wait()
		require.Equal(t, []string{"w1"}, f.Running(move.Task), "the late Add was refused")
		require.Equal(t, 1, f.Counts(move.Task).Most)
	})
}

// A Remove that lands late does not stop what a later term has decided to keep.
func TestT8_LateStopIsRefused(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.RemoveTask("t2")
		release := f.HoldWrites("w1")
		f.failingTerm()

		require.NoError(t, f.AddTask("t2"))
		f.term() // it looks, and finds it
		require.Empty(t, f.LastPlan().Changes)
		release()
		synctest.Wait()
		require.Equal(t, []string{"w1"}, f.Running("t2"), "the late Remove was refused")
		require.Equal(t, 0, f.Counts("t2").Stops)
	})
}

// Whatever happens to the network and to the workers, in whatever order: where
// silent is never taken for lost, no task ever runs twice, and once everything
// is well again, everything runs.
func TestT8_NeverTwiceWhateverHappens(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onBothWires(t, given{workers: 4, expected: 20, opts: options{orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)}}, func(t *testing.T, f *fleet) {
				turmoil(f, rand.New(rand.NewPCG(seed, 8)))
				f.requireNeverTwice()

				f.Refuse(nil)
				f.Heal()
				synctest.Wait()
				for range 70 { // the longest backoff, and a few more
					_ = f.NextTerm(t.Context())
					time.Sleep(time.Second)
				}
				f.requireSettled()
				f.requireNeverTwice()
			})
		})
	}
}

// turmoil runs terms while things go wrong.
func turmoil(f *fleet, r *rand.Rand) {
	var mu sync.Mutex // refusals come from many goroutines
	dice := rand.New(rand.NewPCG(r.Uint64(), 1))
	odds := r.IntN(3)
	f.Refuse(func(op orchestrator.Op, _, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == orchestrator.OpList || dice.IntN(10) >= odds {
			return nil
		}
		return []error{errRejected, errBoom, orchestrator.ErrStopping}[dice.IntN(3)]
	})
	for range 40 {
		w := f.workers[r.IntN(len(f.workers))]
		ctx, cancel := f.t.Context(), context.CancelFunc(func() {})
		switch r.IntN(16) {
		case 0:
			f.Hang(w)
		case 1:
			f.Cut(w)
		case 2:
			f.LoseAnswers(w)
		case 3:
			f.HoldWrites(w)
		case 4:
			f.Slow(time.Duration(r.IntN(15))*time.Second, w)
		case 5:
			f.Late(time.Duration(r.IntN(15))*time.Second, w)
		case 6, 7:
			f.Heal(w)
		case 8:
			_ = f.DrainWorker(w)
		case 9:
			_ = f.UndrainWorker(w)
		case 10: // it crashes, and is back at once, empty
			f.Start(w)
		case 11: // it is replaced
			f.RemoveWorker(w)
			f.Kill(w)
			f.join(w)
		case 12:
			if len(f.workers) < 7 {
				f.join(fmt.Sprint("w", len(f.workers)+1))
			}
		case 13:
			f.RemoveTask(fmt.Sprint("t", 1+r.IntN(20)))
			f.expect(20 - r.IntN(3))
		case 14: // the leader crashes, and another one takes over
			f.wire = &wire{t: f.t, cluster: f.Cluster, inFlight: make(map[flight]bool)}
			*f = *f.successor(orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
		case 15: // a deploy, some time during the term
			ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(15_000))*time.Millisecond)
		}
		_ = f.NextTerm(ctx)
		cancel()
		time.Sleep(time.Duration(r.IntN(10_000)) * time.Millisecond)
	}
	for _, w := range f.workers {
		_ = f.UndrainWorker(w)
	}
}

// A start that hangs keeps the moves to its worker from beginning, also if other starts
// of the same call are done: their tasks could not start before the call has returned.
func TestT8_EarlyStartsGiveNoCreditBeforeTheirCallReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stopped := 0
		c, err := memory.New(func(ctx context.Context, worker, _ string) error {
			<-ctx.Done()
			if worker == "a" {
				mu.Lock()
				stopped++
				mu.Unlock()
			}
			return nil
		})
		require.NoError(t, err)
		c.Start("a")
		o, err := orchestrator.New(&hangingStart{c}, orchestrator.WithSeed(0))
		require.NoError(t, err)
		require.NoError(t, o.AddWorker("a"))
		for i := range 40 {
			require.NoError(t, o.AddTask(fmt.Sprint("t", i)))
		}
		require.NoError(t, o.NextTerm(t.Context()))
		c.Start("b")
		require.NoError(t, o.AddWorker("b"))
		for i := range 9 {
			require.NoError(t, o.AddTask(fmt.Sprint("new", i)))
		}
		require.NoError(t, o.AddTask("hangs"))
		require.Error(t, o.NextTerm(t.Context()))
		mu.Lock()
		require.Zero(t, stopped)
		mu.Unlock()
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
	})
}

// hangingStart is a Communicator on which the start of one task hangs, while those of
// its call are done and reported.
type hangingStart struct {
	*memory.Cluster[string, string]
}

func (h *hangingStart) Apply(ctx context.Context, worker string, writes []orchestrator.Write[string]) []error {
	errs := make([]error, len(writes))
	hangs := -1
	for i, write := range writes {
		if write.Op == orchestrator.OpAdd && write.Task == "hangs" {
			hangs = i
			continue
		}
		if one := h.Cluster.Apply(ctx, worker, []orchestrator.Write[string]{write}); one != nil {
			errs[i] = one[0]
		} else {
			orchestrator.Applied(ctx, write)
		}
	}
	if hangs >= 0 {
		<-ctx.Done()
		errs[hangs] = context.Cause(ctx)
	}
	return errs
}

// If the first half fails, the second is not sent: under StopThenStart the task
// goes on at its old place, under StartThenStop too.
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
		t.Run(name, func(t *testing.T) {
			onBothWires(t, given{workers: 1, running: 2, opts: options{orchestrator.WithHandoff(c.handoff)}}, func(t *testing.T, f *fleet) {
				f.join("w2")
				f.Refuse(func(op orchestrator.Op, _, _ string) error {
					if op == c.op {
						return c.err
					}
					return nil
				})
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
			})
		})
	}
}

// A stop that fails half-way under StartThenStop leaves the task at both places. The
// old copy is stopped when the pause of its stop is over, and nothing else moves.
func TestT8_StartThenStop_StopFails(t *testing.T) {
	for name, heals := range map[string]bool{"once": true, "twice": false} {
		t.Run(name, func(t *testing.T) {
			onBothWires(t, given{workers: 1, running: 2, opts: options{orchestrator.WithHandoff(orchestrator.StartThenStop)}}, func(t *testing.T, f *fleet) {
				f.join("w2")
				f.Refuse(func(op orchestrator.Op, _, _ string) error {
					if op == orchestrator.OpRemove {
						return errBoom
					}
					return nil
				})
				f.failingTerm()
				move := f.LastPlan().Changes[0]
				require.Equal(t, orchestrator.OutcomeUnknown, move.Outcome)
				require.Len(t, f.Running(move.Task), 2)

				f.forget()
				f.term()
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
			})
		})
	}
}

// A move that is refused, whichever it is, leaves its task where it was: it
// runs again there before the term is over.
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
		t.Run(name, func(t *testing.T) {
			onBothWires(t, given{workers: 2, running: 16}, func(t *testing.T, f *fleet) {
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
			})
		})
	}
}

// refuseOne has a worker take so many tasks, then refuse one, and take all
// others. It returns a function that tells which one it refused.
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

// What a quarantined worker refuses in its trial is given back as well.
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

// The Add was not sent, because its receiver timed out on something else while
// the stop was under way.
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

// A task that hangs where it starts stops no healthy one that was to move there too.
func TestT8_NoMoveWaitsForAStartThatHangs(t *testing.T) {
	for name, failedBefore := range map[string]bool{"a new task": false, "one that failed before, which comes last": true} {
		t.Run(name, func(t *testing.T) {
			onBothWires(t, given{workers: 2, running: 8}, func(t *testing.T, f *fleet) {
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
			})
		})
	}
}

// The Add was not sent, because the time for it was over when its receiver was
// free.
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

// When the old place does not want it back either, the task is missing, and
// the next term starts it wherever it can.
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

// After an answer that says nothing, nothing is given back: the next term looks
// what really happened.
func TestT8_UnknownOutcomeIsLookedAt(t *testing.T) {
	t.Run("it did not happen", func(t *testing.T) {
		onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
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
		})
	})
	t.Run("it did happen", func(t *testing.T) {
		onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
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
		})
	})
	t.Run("it happens later", func(t *testing.T) {
		onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
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
		})
	})
}
