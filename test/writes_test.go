package test

// T3 and T7: the order of the writes, when they may begin, and how long a term may last.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// involves reports whether a worker is one end of a change.
func involves(c change, worker string) bool {
	return c.From == worker || c.To == worker
}

func TestT7_ConcurrentAcrossWorkersOneAtATimeOnEach(t *testing.T) {
	inBubble(t, given{workers: 4, expected: 20}, func(t *testing.T, f *fleet) {
		f.intercept(onWrites(takes(time.Second)))
		d, err := f.timedTerm() // the wire would notice two calls at once for a worker
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, d)
		require.Equal(t, 4, f.mostInFlight())
		require.Equal(t, []int{5, 5, 5, 5}, f.loads())
	})
}

func TestT7_AnApplierGetsSeveralWritesInOneCall(t *testing.T) {
	inBubble(t, given{workers: 4, expected: 20, applier: true}, func(t *testing.T, f *fleet) {
		began := time.Now()
		f.term()
		require.Len(t, f.writes(), 20)
		require.Equal(t, 4, f.LastPlan().Stats.Apply.Done)
		require.Equal(t, 20, f.LastPlan().Stats.Add.Done)
		require.Zero(t, time.Since(began))
		f.requireSettled()
	})
}

// Whichever worker is slow, no receiver without credit waits for a task from it.
func TestT7_OneSlowWorkerDelaysOnlyItsOwnMoves(t *testing.T) {
	for _, slow := range names("w", 4) {
		t.Run(slow, bothWires(given{workers: 4, running: 24}, func(_ *testing.T, f *fleet) {
			f.join("w5", "w6")
			f.Slow(900*time.Millisecond, slow)
			f.term()
			f.requireNotDelayed(slow, 900*time.Millisecond)

			f.Heal()
			f.requireSettled()
		}))
	}
}

// requireNotDelayed checks that the slow worker had changes in the last term, and that
// all writes of other changes were done when the listing ended, after the given time.
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
		t.Run(name, bubble(given{workers: 3, expected: 15}, func(t *testing.T, f *fleet) {
			f.intercept(on(orchestrator.OpAdd, "w2", "", first))
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
		}))
	}
}

// A stop that timed out pauses for a term, and comes last when it is tried again.
func TestT7_StopsThatTimedOutComeLast(t *testing.T) {
	inBubble(t, given{workers: 1, running: 5}, func(t *testing.T, f *fleet) {
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

// Two tasks that can never be stopped do not take turns in keeping the others from being
// stopped.
func TestT7_TwoThatTimeOutDoNotBlockTheRest(t *testing.T) {
	inBubble(t, given{workers: 1, running: 5}, func(t *testing.T, f *fleet) {
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

// A task that does not stop delays no other task of its worker: these start elsewhere
// while its stop is under way, although one call carries all stops of the worker.
func TestT7_AStopThatHangsHoldsUpNoOtherMoveOfItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stopped, longest := make(map[string]time.Time), time.Duration(0)
		hang := make(chan struct{})
		c, err := memory.New(func(ctx context.Context, _, task string) error {
			mu.Lock()
			if at, ok := stopped[task]; ok {
				longest = max(longest, time.Since(at))
			}
			mu.Unlock()
			<-ctx.Done()
			if task == "deaf" {
				<-hang
			}
			mu.Lock()
			defer mu.Unlock()
			stopped[task] = time.Now()
			return nil
		})
		require.NoError(t, err)
		o, err := orchestrator.New(c, orchestrator.WithSeed(0))
		require.NoError(t, err)
		c.Start("w1")
		require.NoError(t, o.AddWorker("w1"))
		require.NoError(t, o.AddTask("deaf"))
		for i := range 11 {
			require.NoError(t, o.AddTask(fmt.Sprint("t", i)))
		}
		require.NoError(t, o.NextTerm(t.Context()))
		for i := range 12 {
			name := fmt.Sprint("v", i)
			c.Start(name)
			require.NoError(t, o.AddWorker(name))
		}
		require.NoError(t, o.DrainWorker("w1"))
		require.NoError(t, o.NextTerm(t.Context()))
		require.Equal(t, []string{"deaf"}, o.LastActual()[0].Tasks)
		mu.Lock()
		require.Len(t, stopped, 11)
		require.LessOrEqual(t, longest, 150*time.Millisecond)
		mu.Unlock()
		stats := o.LastPlan().Stats
		require.Equal(t, 11, stats.Remove.Done)
		require.Equal(t, 1, stats.Remove.Stopping)
		require.Equal(t, 11, stats.Add.Done)
		close(hang)
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
	})
}

func TestT3_ChangesBeginWithinTheFirstTimeoutOnly(t *testing.T) {
	inBubble(t, given{workers: 1, expected: 6}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "", "", takes(3*time.Second)))
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

// The longest possible term: the listing takes a timeout, a move begins at the end of the
// next one, and its stop, start and give-back take one each.
func TestT3_WorstTermLastsFiveTimeouts(t *testing.T) {
	const nearly = timeout - 2*time.Millisecond
	inBubble(t, given{workers: 1, running: 3}, func(t *testing.T, f *fleet) {
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

// Three tasks move to one receiver, which takes a timeout for each. The third could not
// be given back in time, so its start is not sent.
func TestT3_SecondHalvesBeginWithinTheSecondTimeoutOnly(t *testing.T) {
	const nearly = timeout - 2*time.Millisecond
	inBubble(t, given{workers: 3, running: 18}, func(t *testing.T, f *fleet) {
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

// A term ends within five timeouts, whatever the calls do.
func TestT3_NoTermLastsLonger(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			f := newFleet(t, given{workers: 4, running: 12, opts: options{orchestrator.WithConcurrency(1 + r.IntN(6)), orchestrator.WithHandoff(orchestrator.Handoff(r.IntN(3)))}})
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

// With one call at a time, a start that hangs takes the only slot between the two halves
// of a move. At its deadline the slot is free, and the move continues.
func TestT3_SlotIsFreeAtTheDeadline(t *testing.T) {
	inBubble(t, given{workers: 1, running: 2, opts: options{orchestrator.WithConcurrency(1)}}, func(t *testing.T, f *fleet) {
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
