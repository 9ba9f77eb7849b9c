package test

// T8: the two halves of a move, and how many tasks are at risk on a receiver.
// give_back_test.go holds the tests of moves that fail half-way.

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

var (
	errBoom     = errors.New("boom")
	errRejected = fmt.Errorf("no room: %w", orchestrator.ErrRejected)
)

// Under StopThenStart a task stops before it starts elsewhere; under StartThenStop it
// stops after that. The second half is sent as soon as the first is acknowledged, and not
// before.
func TestT8_TheHalvesOfAMove(t *testing.T) {
	for _, handoff := range []orchestrator.Handoff{orchestrator.StopThenStart, orchestrator.StartThenStop} {
		t.Run(handoff.String(), bothWires(given{workers: 1, running: 2, opts: options{orchestrator.WithHandoff(handoff)}}, func(t *testing.T, f *fleet) {
			f.join("w2")
			f.intercept(onWrites(takes(2 * time.Second)))
			f.term()

			writes := f.calls(func(c call) bool { return c.Op != orchestrator.OpList })
			require.Len(t, writes, 2)
			task := writes[0].Task
			want, most := []string{"remove " + task + " w1", "add " + task + " w2"}, 1
			if handoff == orchestrator.StartThenStop {
				slices.Reverse(want)
				most = 2
			}
			require.Equal(t, want, f.writes())
			require.Equal(t, writes[0].Sent.Add(2*time.Second), writes[1].Sent)
			require.Equal(t, most, f.Counts(task).Most)
			f.requireSettled()
		}))
	}
}

// The handoff of the task decides, then that of WithHandoff. The default is
// StopThenStart.
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
		for _, updated := range []bool{false, true} {
			t.Run(fmt.Sprint("all ", c.all, ", task ", c.task, ", updated ", updated), bubble(given{workers: 1, opts: options{orchestrator.WithHandoff(c.all)}}, func(t *testing.T, f *fleet) {
				if updated {
					f.expect(2)
					f.term()
					require.NoError(t, f.UpdateTasks([]task{{Name: "t1", Handoff: c.task}, {Name: "t2", Handoff: c.task}}))
				} else {
					f.expect(2, orchestrator.WithHandoff(c.task))
					f.term()
				}
				f.join("w2")
				f.freshTerm()
				writes := f.calls(func(c call) bool { return c.Op != orchestrator.OpList })
				require.Len(t, writes, 2)
				require.Equal(t, first, writes[0].Op)
			}))
		}
	}
}

// A surplus copy is stopped at once, even while other changes wait.
func TestT8_TrimmingNeverWaits(t *testing.T) {
	for _, handoff := range []orchestrator.Handoff{orchestrator.StopThenStart, orchestrator.StartThenStop} {
		t.Run(handoff.String(), bubble(given{workers: 3, expected: 3, opts: options{orchestrator.WithHandoff(handoff)}}, func(t *testing.T, f *fleet) {
			for _, w := range []string{"w1", "w2", "w3"} { // everything runs everywhere
				for _, task := range names("t", 3) {
					require.NoError(t, f.Cluster.Add(t.Context(), w, task))
				}
			}
			require.NoError(t, f.AddTask("new", orchestrator.WithTaskInstances(3)))
			f.intercept(onWrites(takes(3 * time.Second)))
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
		}))
	}
}

// Under StartThenStop a task with one instance runs on two workers at most, even while a
// silent worker may run it too.
func TestT8_StartThenStop_NeverOnThreeWorkers(t *testing.T) {
	for _, test := range []struct {
		name   string
		silent bool // the other copy is on a silent worker; otherwise its stop fails
	}{
		{"a silent worker holds a copy", true},
		{"a surplus copy does not stop", false},
	} {
		t.Run(test.name, bothWires(given{workers: 4, opts: options{orchestrator.WithHandoff(orchestrator.StartThenStop), hold}}, func(t *testing.T, f *fleet) {
			f.run("w1", "t1")
			f.run("w2", "t1")
			f.expect(1)
			f.intercept(on(orchestrator.OpRemove, "", "", fails(errRejected)))
			f.failingTerm() // both copies are known, and neither was stopped
			require.Len(t, f.Running("t1"), 2)
			if test.silent {
				f.intercept(nil)
				f.Cut("w1")
			}
			require.NoError(t, f.DrainWorker("w2"))
			for range 20 {
				f.steadyTerm()
			}
			t.Logf("at most %d copies at the same time", f.Counts("t1").Most)
			require.LessOrEqual(t, f.Counts("t1").Most, 2)

			f.intercept(nil)
			f.Heal()
			f.untilTerm(64, func() bool { return len(f.Running("t1")) == 1 && len(f.RunsOn("w2")) == 0 })
			require.LessOrEqual(t, f.Counts("t1").Most, 2)
			require.Len(t, f.Running("t1"), 1)
			require.Empty(t, f.RunsOn("w2"), "drained in the end")
		}))
	}
}

// One of two copies is surplus, and both workers drain.
func TestT8_StartThenStop_SurplusAndDrain(t *testing.T) {
	for _, drained := range [][]string{{"w1"}, {"w2"}, {"w1", "w2"}} {
		t.Run(fmt.Sprint(drained), bothWires(given{workers: 3, opts: options{orchestrator.WithHandoff(orchestrator.StartThenStop)}}, func(t *testing.T, f *fleet) {
			f.run("w1", "t1")
			f.run("w2", "t1")
			f.expect(1)
			for _, name := range drained {
				require.NoError(t, f.DrainWorker(name))
			}
			f.intercept(func(ctx context.Context, c call) error { // a start ends before a stop
				switch c.Op {
				case orchestrator.OpAdd:
					return pass(ctx, time.Second)
				case orchestrator.OpRemove:
					return pass(ctx, 3*time.Second)
				}
				return nil
			})
			f.untilTerm(5, func() bool { return false })
			t.Logf("at most %d copies at the same time", f.Counts("t1").Most)
			require.LessOrEqual(t, f.Counts("t1").Most, 2)
			require.Len(t, f.Running("t1"), 1)
			require.NotSubset(t, drained, f.Running("t1"))
		}))
	}
}

// A worker joins that refuses every start. One healthy task is stopped for it, and runs
// on its old worker again in the same term.
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

// As many workers join as there were, and all of them refuse every start.
func TestT8_EachJoiningWorkerRisksOneTask(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 100}, func(t *testing.T, f *fleet) {
		f.join("w5", "w6", "w7", "w8")
		f.failAdds(errRejected, "w5", "w6", "w7", "w8")
		f.failingTerm()
		require.Len(t, f.sent(orchestrator.OpRemove), 4)
		require.Equal(t, []int{25, 25, 25, 25, 0, 0, 0, 0}, f.loads())
	})
}

// A worker joins on which every Add hangs. One task is at risk, and the next term finds
// out where it runs.
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

// One task moves at a time until the receiver has acknowledged a start. Then it gets the
// rest of its share in the same term.
func TestT8_ProvenReceiverGetsItsShare(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 100}, func(t *testing.T, f *fleet) {
		f.join("w5")
		f.intercept(onWrites(takes(100 * time.Millisecond)))
		f.freshTerm()
		require.Equal(t, []int{20, 20, 20, 20, 20}, f.loads())

		adds := f.sent(orchestrator.OpAdd)
		proven := adds[0].Sent.Add(adds[0].Took)
		early := f.calls(func(c call) bool { return c.Op == orchestrator.OpRemove && c.Sent.Before(proven) })
		require.Len(t, early, 1, "stopped before w5 had acknowledged a start")
		f.requireNeverTwice()
	})
}

// With more first moves a receiver that proves itself needs fewer rounds, and one that
// refuses everything is sent as many tasks, once.
func TestT8_FirstMoves(t *testing.T) {
	g := given{workers: 4, running: 100, opts: options{orchestrator.WithFirstMoves(8)}}
	onBothWires(t, g, func(t *testing.T, f *fleet) {
		require.Equal(t, 8, f.Config().FirstMoves)
		f.join("w5")
		f.intercept(onWrites(takes(100 * time.Millisecond)))
		f.freshTerm()
		require.Equal(t, []int{20, 20, 20, 20, 20}, f.loads())
		adds := f.sent(orchestrator.OpAdd)
		proven := adds[0].Sent.Add(adds[0].Took)
		early := f.calls(func(c call) bool { return c.Op == orchestrator.OpRemove && c.Sent.Before(proven) })
		require.LessOrEqual(t, len(early), 8)
		require.Greater(t, len(early), 1)
		f.requireNeverTwice()
	})
	onBothWires(t, g, func(t *testing.T, f *fleet) {
		f.join("w5")
		f.failAdds(errRejected, "w5")
		f.failingTerm()
		stops := len(f.sent(orchestrator.OpRemove))
		require.LessOrEqual(t, stops, 8)
		require.Greater(t, stops, 1)
		require.Equal(t, []int{25, 25, 25, 25, 0}, f.loads(), "each goes back")
		f.requireSettled()
	})
	for _, n := range []int{-1, 0, 1025} {
		require.ErrorContains(t, orchestrator.CheckOptions(orchestrator.WithFirstMoves(n)), "WithFirstMoves")
	}
}

// A start of a missing task gives its worker credit too.
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

// An Add times out, and arrives when the task has started elsewhere. The worker refuses
// it.
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

// A Remove that arrives late does not stop a task that a later term keeps.
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

// The network and the workers fail in any order. If no silent worker is declared lost, no
// task ever runs twice. Once nothing fails, every task runs.
func TestT8_NeverTwiceWhateverHappens(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), bothWires(given{workers: 4, expected: 20, opts: options{orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)}}, func(t *testing.T, f *fleet) {
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
		}))
	}
}

// turmoil runs terms while the network and the workers fail.
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

// While a start hangs, no move to its worker begins, even if other starts of the same
// call are done: the tasks of these moves could not start before the call has returned.
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

// hangingStart is a Communicator on which the start of one task hangs, while the other
// writes of its call are done and reported.
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
