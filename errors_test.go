package orchestrator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// T11: what NextTerm returns. T13: the identity that calls carry. And Plan, in
// words and in JSON.

func TestT11_NothingFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(4)
		require.Equal(t, error(nil), f.NextTerm(t.Context()), "not a nil pointer in an interface")
		require.NoError(t, f.LastPlan().Stats.Err)
	})
}

// A silent worker, a start and a stop that failed: each of them is there, as
// what it was.
func TestT11_EveryFailureIsThere(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.expect(8)
		f.term()
		errStop := errors.New("will not stop")
		gone := f.RunsOn("w2")[0]
		f.RemoveTask(gone)
		require.NoError(t, f.AddTask("new", orchestrator.WithTaskInstances(4)))
		f.Hang("w4")
		f.Refuse(func(op orchestrator.Op, worker, _ string) error {
			switch {
			case op == orchestrator.OpAdd && worker == "w1":
				return errRejected
			case op == orchestrator.OpRemove:
				return errStop
			}
			return nil
		})
		err := f.NextTerm(t.Context())

		term, ok := errors.AsType[*orchestrator.TermError](err)
		require.True(t, ok)
		require.Equal(t, f.LastPlan().Stats.Term, term.Term)
		require.EqualValues(t, 2, term.Term.Number)
		require.Len(t, term.Failures, 3)
		require.Equal(t, term.Failures, term.Unwrap())
		require.Equal(t, err, f.LastPlan().Stats.Err)
		for _, target := range []error{orchestrator.ErrSilent, orchestrator.ErrRejected, errRejected, errStop, context.DeadlineExceeded} {
			require.ErrorIs(t, err, target)
		}
		require.NotErrorIs(t, err, orchestrator.ErrDeposed)

		var first *callError
		require.ErrorAs(t, err, &first)
		require.Equal(t, orchestrator.OpList, first.Op)
		require.Equal(t, "w4", first.Worker)
		require.Empty(t, first.Task)
		byOp := make(map[orchestrator.Op]*callError)
		for _, failure := range failures(t, err) {
			byOp[failure.Op] = failure
		}
		require.Equal(t, &callError{Op: orchestrator.OpAdd, Worker: "w1", Task: "new", Err: errRejected}, byOp[orchestrator.OpAdd])
		require.Equal(t, &callError{Op: orchestrator.OpRemove, Worker: "w2", Task: gone, Err: errStop}, byOp[orchestrator.OpRemove])
	})
}

// A term with failures is a whole one: everybody else gets everything.
func TestT11_ATermWithFailuresIsWhole(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.expect(8)
		f.term()
		f.Cut("w1")
		f.failAdds(errBoom, "w2")
		require.NoError(t, f.DrainWorker("w3"))
		f.expect(12)
		f.failingTerm()
		require.Len(t, f.starts(), 4)
		for _, c := range f.LastPlan().Changes {
			if c.To != "w2" {
				require.Equal(t, orchestrator.OutcomeDone, c.Outcome, "%v of %s", c.Kind, c.Task)
			}
		}
	})
}

// Silent workers are failures like others, in the order they were added.
func TestT11_SilentWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.term()
		f.Hang("w2")
		f.Cut("w4")
		silent := f.failingTerm()
		require.Len(t, silent, 2)
		require.Equal(t, "w2", silent[0].Worker)
		require.ErrorIs(t, silent[0], orchestrator.ErrSilent)
		require.Equal(t, "w4", silent[1].Worker)
		require.ErrorIs(t, silent[1], memory.ErrCut, "it failed at once")

		silent = f.failingTerm() // does not wait for them
		require.Len(t, silent, 2)
		require.Equal(t, "w2", silent[0].Worker)
		require.Equal(t, "w4", silent[1].Worker)
	})
}

// A stop under way is no failure.
func TestT11_StoppingIsNoFailure(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 1)
		f.expect(2)
		f.term()
		f.RemoveTask("t1")
		f.Refuse(func(op orchestrator.Op, _, _ string) error {
			if op == orchestrator.OpRemove {
				return fmt.Errorf("flushing: %w", orchestrator.ErrStopping)
			}
			return nil
		})
		f.term()
		require.Equal(t, orchestrator.OutcomeStopping, f.LastPlan().Changes[0].Outcome)
		require.Equal(t, 1, f.LastPlan().Stats.Remove.Stopping)
	})
}

// What cut the term short comes first.
// A task that is taken off while a term is about to start it: that this is refused
// then is no failure, as it would be of a task that is wanted.
func TestT11_AStartThatNobodyWantsAnyMore(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 2)
		require.NoError(t, f.AddTask("off"))
		require.NoError(t, f.AddTask("on"))
		f.Refuse(func(op orchestrator.Op, _, task string) error {
			if op != orchestrator.OpAdd {
				return nil
			}
			if task == "off" {
				f.RemoveTask("off")
			}
			return errRejected
		})
		term, ok := errors.AsType[*orchestrator.TermError](f.NextTerm(t.Context()))
		require.True(t, ok)
		require.Len(t, term.Failures, 1)
		failure, ok := errors.AsType[*orchestrator.CallError[string, string]](term.Failures[0])
		require.True(t, ok)
		require.Equal(t, "on", failure.Task)
	})
}

func TestT11_TheCauseComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(6)
		f.Refuse(func(op orchestrator.Op, worker, _ string) error {
			if op == orchestrator.OpAdd && worker == "w2" {
				return errRejected
			}
			return nil
		})
		errDeploy := errors.New("deploy")
		ctx, cancel := context.WithCancelCause(t.Context())
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpAdd {
				time.Sleep(time.Second)
				cancel(errDeploy)
			}
			return nil
		})
		err := f.NextTerm(ctx)
		term, ok := errors.AsType[*orchestrator.TermError](err)
		require.True(t, ok)
		require.Len(t, term.Failures, 2)
		require.ErrorIs(t, term.Failures[0], errDeploy)
		require.ErrorIs(t, term.Failures[1], errRejected)
	})
}

// A deposed leader sends nothing more, and says of every change whether it had
// begun: of those that were waiting for their turn no outcome is unknown.
func TestT11_WhatADeposedLeaderDidNotBegin(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 4)
		f.expect(40)
		f.term()
		f.join("w5")
		f.forget()
		f.intercept(func(_ context.Context, c call) error {
			if c.Op == orchestrator.OpRemove {
				return orchestrator.ErrDeposed
			}
			return nil
		})
		require.ErrorIs(t, f.NextTerm(t.Context()), orchestrator.ErrDeposed)
		begun := make(map[string]bool)
		for _, c := range f.sent(orchestrator.OpRemove) {
			begun[c.Task] = true
		}
		require.Len(t, f.LastPlan().Changes, 8)
		for _, c := range f.LastPlan().Changes {
			if begun[c.Task] {
				require.Equal(t, orchestrator.OutcomeUnknown, c.Outcome)
				require.ErrorIs(t, c.Err, orchestrator.ErrDeposed)
			} else {
				require.Equal(t, orchestrator.OutcomeSkipped, c.Outcome)
				require.ErrorIs(t, c.Err, orchestrator.ErrSkipped)
			}
		}
	})
}

// However much fails, the text stays short.
func TestT11_TheTextIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2000)
		f.failAdds(errRejected)
		err := f.NextTerm(t.Context())
		require.Len(t, failures(t, err), 2000)
		require.Less(t, len(err.Error()), 1000)
		require.Contains(t, err.Error(), "term 1: 2000 failures: add task ")
		require.Contains(t, err.Error(), "; and 1995 more")
	})
}

func TestT11_Texts(t *testing.T) {
	call := func(op orchestrator.Op, task string) error {
		return &callError{Op: op, Worker: "w1", Task: task, Err: errBoom}
	}
	term := orchestrator.Term{Epoch: 7, Number: 42}
	for _, c := range []struct {
		err  error
		want string
	}{
		{call(orchestrator.OpList, ""), "list worker w1: boom"},
		{call(orchestrator.OpAdd, "t1"), "add task t1 to worker w1: boom"},
		{call(orchestrator.OpRemove, "t1"), "remove task t1 from worker w1: boom"},
		{
			&orchestrator.TermError{Term: term, Failures: []error{call(orchestrator.OpList, "")}},
			"term 42: list worker w1: boom",
		},
		{
			&orchestrator.TermError{Term: term, Failures: []error{errBoom, call(orchestrator.OpAdd, "t1")}},
			"term 42: 2 failures: boom; add task t1 to worker w1: boom",
		},
		{
			&orchestrator.TermError{Term: term, Failures: []error{errBoom, errBoom, errBoom, errBoom, errBoom}},
			"term 42: 5 failures: boom; boom; boom; boom; boom",
		},
		{
			&orchestrator.TermError{Term: term, Failures: []error{errBoom, errBoom, errBoom, errBoom, errBoom, errBoom}},
			"term 42: 6 failures: boom; boom; boom; boom; boom; and 1 more",
		},
	} {
		require.EqualError(t, c.err, c.want)
	}
	require.ErrorIs(t, call(orchestrator.OpAdd, "t1"), errBoom)
	require.ErrorIs(t, orchestrator.ErrStale, orchestrator.ErrRejected)
}

// identities is a tap that notes with which identity each call was made.
type identities struct {
	mu    sync.Mutex
	calls map[string]orchestrator.Term // of those that carry one
	bare  []string                     // those that do not
}

func (i *identities) tap(ctx context.Context, c call) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if id, ok := orchestrator.TermFromContext(ctx); ok {
		i.calls[c.String()] = id
	} else {
		i.bare = append(i.bare, c.String())
	}
	return nil
}

func (f *fleet) noteIdentities() *identities {
	i := &identities{calls: make(map[string]orchestrator.Term)}
	f.intercept(i.tap)
	return i
}

// Every call of a term carries it: List, Add and Remove, one by one or in an
// Apply.
func TestT13_EveryCallCarriesTheTerm(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		f := start(t, 1, orchestrator.WithEpoch(7))
		f.expect(2)
		first := f.noteIdentities()
		f.term()
		one := orchestrator.Term{Epoch: 7, Number: 1}
		require.Equal(t, map[string]orchestrator.Term{"list w1": one, "add t1 w1": one, "add t2 w1": one}, first.calls)
		require.Empty(t, first.bare)
		require.Equal(t, one, f.LastPlan().Stats.Term)

		f.join("w2")
		second := f.noteIdentities()
		f.term()
		require.Len(t, second.calls, 4, "two lists, and the halves of a move")
		for c, id := range second.calls {
			require.Equal(t, orchestrator.Term{Epoch: 7, Number: 2}, id, c)
		}
		require.Empty(t, second.bare)
	})
}

// Every call has a deadline, and what the caller's context carries.
func TestT13_EveryCallHasADeadlineAndTheCallersValues(t *testing.T) {
	onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
		type key struct{}
		f := start(t, 1)
		f.expect(2)
		seen := make(chan bool, 10)
		f.intercept(func(ctx context.Context, _ call) error {
			deadline, ok := ctx.Deadline()
			seen <- ok && time.Until(deadline) <= timeout && ctx.Value(key{}) == "value"
			return nil
		})
		require.NoError(t, f.NextTerm(context.WithValue(t.Context(), key{}, "value")))
		require.Len(t, seen, 3)
		for range 3 {
			require.True(t, <-seen)
		}
	})
}

// Numbers rise with every term, also one that was cut short.
func TestT13_NumbersRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.expect(1)
		var last uint64
		for i := range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			ids := f.noteIdentities()
			if i%3 == 1 {
				f.intercept(func(ctx context.Context, c call) error { cancel(); return ids.tap(ctx, c) })
			}
			_ = f.NextTerm(ctx)
			cancel()
			require.Greater(t, ids.calls["list w1"].Number, last)
			last = ids.calls["list w1"].Number
		}
	})
}

func TestT13_Epoch(t *testing.T) {
	for name, c := range map[string]struct {
		opts []option
		want func(now time.Time) uint64
	}{
		"by default the wall clock when New was called": {
			nil, func(now time.Time) uint64 { return uint64(now.UnixMilli()) },
		},
		"zero means the default": {
			[]option{orchestrator.WithEpoch(0)}, func(now time.Time) uint64 { return uint64(now.UnixMilli()) },
		},
		"as given": {
			[]option{orchestrator.WithEpoch(5)}, func(time.Time) uint64 { return 5 },
		},
		"the largest": {
			[]option{orchestrator.WithEpoch(1<<64 - 1)}, func(time.Time) uint64 { return 1<<64 - 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(12345 * time.Millisecond)
				made := time.Now()
				f := newFleet(t, 1, c.opts...)
				time.Sleep(time.Hour)
				ids := f.noteIdentities()
				f.term()
				require.Equal(t, c.want(made), ids.calls["list w1"].Epoch)
			})
		})
	}
}

// Of two plain leaders the one started last wins, and the other one hears of it.
func TestT13_TheLeaderStartedLastWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFleet(t, 2)
		old.expect(4)
		old.term()
		young := old.successor()
		young.term()
		require.NoError(t, old.AddTask("late"))
		require.ErrorIs(t, old.NextTerm(t.Context()), orchestrator.ErrDeposed)
		require.Empty(t, young.Running("late"))
		young.requireSettled()
	})
}

// Plan reads without an identity, and fences nobody.
func TestT13_PlanCarriesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFleet(t, 2)
		old.expect(4)
		old.term()
		young := old.successor()
		ids := young.noteIdentities()
		p, err := young.Plan(t.Context())
		require.NoError(t, err)
		require.Zero(t, p.Stats.Term.Number)
		require.Empty(t, ids.calls)
		require.ElementsMatch(t, []string{"list w1", "list w2"}, ids.bare)

		old.intercept(nil)
		old.expect(6)
		old.term() // it leads on
		old.requireSettled()
	})
}

func TestT13_TermCompare(t *testing.T) {
	term := func(epoch, number uint64) orchestrator.Term { return orchestrator.Term{Epoch: epoch, Number: number} }
	ordered := []orchestrator.Term{{}, term(0, 1), term(1, 0), term(1, 9), term(2, 1), term(1<<63, 0)}
	for i, a := range ordered {
		for j, b := range ordered {
			switch {
			case i < j:
				require.Equal(t, -1, a.Compare(b))
			case i > j:
				require.Equal(t, 1, a.Compare(b))
			default:
				require.Zero(t, a.Compare(b))
			}
		}
	}
}

func TestT13_TermInAContext(t *testing.T) {
	_, ok := orchestrator.TermFromContext(t.Context())
	require.False(t, ok)
	ctx := orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: 1, Number: 2})
	ctx = orchestrator.ContextWithTerm(ctx, orchestrator.Term{Epoch: 3, Number: 4})
	id, ok := orchestrator.TermFromContext(ctx)
	require.True(t, ok)
	require.Equal(t, orchestrator.Term{Epoch: 3, Number: 4}, id)

	var buf bytes.Buffer
	slog.New(slog.NewTextHandler(&buf, nil)).Info("x", "term", id)
	require.Contains(t, buf.String(), "term.epoch=3 term.number=4")
}

// stripped returns changes without what came of them.
func stripped(changes []change) []change {
	plain := make([]change, len(changes))
	for i, c := range changes {
		plain[i] = change{Kind: c.Kind, Task: c.Task, From: c.From, To: c.To}
	}
	return plain
}

// later is when every silent worker is lost.
func later() { time.Sleep(time.Minute) }

// Plan decides what the next term decides, whatever the situation.
func TestPlan_DecidesAsTheNextTerm(t *testing.T) {
	for name, prepare := range map[string]func(*fleet){
		"nothing runs":    func(*fleet) {},
		"nothing changes": func(f *fleet) { _ = f.NextTerm(f.t.Context()) },
		"a worker joins": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.join("w5")
		},
		"a worker drains": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			_ = f.DrainWorker("w2")
		},
		"a worker is removed": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.RemoveWorker("w1")
		},
		"a worker is silent": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.Cut("w2")
			f.RemoveTask("t1")
		},
		"a worker is lost": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.Cut("w2")
			later()
		},
		"a worker was never heard": func(f *fleet) { f.Cut("w2") },
		"tasks come and go": func(f *fleet) {
			_ = f.NextTerm(f.t.Context())
			f.RemoveTask("t1")
			_ = f.AddTask("t2", orchestrator.WithTaskInstances(3))
			_ = f.AddTask("new")
		},
		"a worker is avoided": func(f *fleet) {
			f.failAdds(errRejected, "w2")
			_ = f.NextTerm(f.t.Context())
		},
		"a start that failed is listed": func(f *fleet) {
			f.intercept(func(_ context.Context, c call) error {
				if c.Op == orchestrator.OpAdd && c.Worker == "w2" {
					f.LoseAnswers("w2")
				}
				return nil
			})
			_ = f.NextTerm(f.t.Context())
			f.intercept(nil)
			f.Heal()
			f.expect(25)
		},
		"a worker is on probation": func(f *fleet) {
			f.failAdds(errRejected, "w2")
			_ = f.NextTerm(f.t.Context())
			_ = f.NextTerm(f.t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, start func(*testing.T, int, ...option) *fleet) {
				f := start(t, 4)
				f.expect(18)
				prepare(f)
				f.forget()
				p, errPlan := f.Plan(t.Context())
				require.Empty(t, f.writes())
				for _, c := range p.Changes {
					require.Equal(t, orchestrator.OutcomePlanned, c.Outcome)
					require.NoError(t, c.Err)
				}
				errTerm := f.NextTerm(t.Context())
				done := f.LastPlan()
				require.Equal(t, stripped(done.Changes), stripped(p.Changes))
				require.Equal(t, done.Waiting, p.Waiting)
				require.Equal(t, done.Stats.Changes, p.Stats.Changes)
				require.Equal(t, done.Stats.Adds, p.Stats.Adds)
				require.Equal(t, done.Stats.LowerBound, p.Stats.LowerBound)
				if errPlan != nil { // what Plan met, the term met too
					require.ErrorContains(t, errTerm, failures(t, errPlan)[0].Error())
				}
			})
		})
	}
}

// Plan changes nothing: whoever looks afterwards sees what was there before.
func TestPlan_ChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		f := newFleet(t, 3, orchestrator.WithStats(func(orchestrator.TermStats) { reported++ }))
		f.expect(9)
		_, err := f.Plan(t.Context())
		require.NoError(t, err)
		require.Nil(t, f.LastActual())
		require.Zero(t, f.LastPlan())
		f.term()

		actual, last := f.LastActual(), f.LastPlan()
		f.join("w4")
		f.RemoveTask("t1")
		f.forget()
		for range 3 {
			p, err := f.Plan(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, p.Changes)
		}
		require.Equal(t, actual, f.LastActual())
		require.Equal(t, last, f.LastPlan())
		require.Equal(t, 1, reported)
		require.Empty(t, f.writes())

		f.term()
		require.Equal(t, last.Stats.Term.Number+1, f.termNumber(), "a Plan is no term")
	})
}

// A worker that misses a Plan has not missed a term: the next one waits for it.
func TestPlan_SilenceDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(9)
		f.term()
		f.Hang("w2")
		p, err := f.Plan(t.Context())
		require.Len(t, failures(t, err), 1)
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.Equal(t, orchestrator.Silent, p.Workers[1].State)
		require.Equal(t, orchestrator.Answering, f.state("w2").State)

		f.Heal()
		f.Slow(time.Second, "w2")
		took, err := f.timedTerm()
		require.NoError(t, err)
		require.Equal(t, time.Second, took)
	})
}

// An answer that came too late for its term ends the silence: the next term
// waits for that worker again, and so does a Plan in its stead.
func TestPlan_WaitsForWhomTheTermWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 4)
		f.expect(20)
		f.term()
		f.Stick("w2")
		f.failingTerm()
		f.Heal()
		synctest.Wait() // its answer is here
		f.Slow(time.Second, "w2")
		f.join("w5")
		waited := took(func() {
			p, err := f.Plan(t.Context())
			require.NoError(t, err)
			require.Len(t, p.Changes, 4)
		})
		require.Equal(t, time.Second, waited)
		f.term()
		f.requireSettled()
	})
}

// However often somebody looks at a Plan, a worker that comes back from silence
// is heard in the next terms.
func TestPlan_KeepsNobodySilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3)
		f.expect(9)
		f.term()
		f.Cut("w2")
		f.failingTerm()
		f.Slow(time.Second, "w2") // it is back, and slower than the others
		for range 5 {
			_, _ = f.Plan(t.Context())
			_ = f.NextTerm(t.Context())
			time.Sleep(2 * time.Second)
		}
		require.Equal(t, orchestrator.Answering, f.state("w2").State)
	})
}

// A Plan that is cancelled is no plan.
func TestPlan_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.expect(2)
		errStop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		f.intercept(func(context.Context, call) error { cancel(errStop); return nil })
		p, err := f.Plan(ctx)
		require.ErrorIs(t, err, errStop)
		require.Zero(t, p)
		_, err = f.Plan(ctx)
		require.ErrorIs(t, err, errStop)
	})
}

// samplePlan has one of everything.
func samplePlan() plan {
	kind := func(op orchestrator.ChangeOp, r orchestrator.Reason) orchestrator.ChangeKind {
		return orchestrator.ChangeKind{Op: op, Reason: r}
	}
	return plan{
		Stats: orchestrator.TermStats{
			Term:  orchestrator.Term{Epoch: 7, Number: 42},
			Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Changes: map[orchestrator.ChangeKind]int{
				kind(orchestrator.Start, orchestrator.ReasonMissing): 1,
				kind(orchestrator.Move, orchestrator.ReasonDrain):    1,
				kind(orchestrator.Stop, orchestrator.ReasonSurplus):  1,
			},
			Adds: 2, LowerBound: 2, Deferred: 3, MassLoss: true, Err: errBoom,
		},
		Changes: []change{
			{Kind: kind(orchestrator.Start, orchestrator.ReasonMissing), Task: "a", To: "w1", Outcome: orchestrator.OutcomeDone},
			{Kind: kind(orchestrator.Move, orchestrator.ReasonDrain), Task: "bb", From: "w1", To: "w2", Outcome: orchestrator.OutcomeReturned, Err: errBoom},
			{Kind: kind(orchestrator.Stop, orchestrator.ReasonSurplus), Task: "c", From: "w3", Outcome: orchestrator.OutcomeDone},
		},
		Waiting: []waiting{
			{Task: "d", Instances: 2, Reason: orchestrator.ReasonNoWorker},
			{Task: "e", Instances: 1, Reason: orchestrator.ReasonHeld, Worker: "w3", Named: true},
		},
		Avoided: []avoided{
			{Worker: "w4", Whole: true, Until: 44, Failures: 1, Err: errBoom},
			{Worker: "w4", Task: "f", Until: 50, Failures: 3, Err: errBoom},
		},
		Workers: []orchestrator.WorkerPlan[string]{
			{Name: "w1", State: orchestrator.Answering, Draining: true, Before: 5, After: 4},
			{Name: "w3", State: orchestrator.Silent, Before: 2, After: 2},
			{Name: "w4", State: orchestrator.Answering, Avoided: true},
			{Name: "w5", State: orchestrator.Lost},
		},
	}
}

func TestPlan_String(t *testing.T) {
	want := strings.TrimPrefix(`
3 changes: 1 move (drain), 1 start (missing), 1 stop (surplus); 2 starts, at least 2 needed; 2 waiting; 3 moves left for later; too many workers silent at once, none given up

change  task  from  to  reason   outcome
start   a     -     w1  missing  done
move    bb    w1    w2  drain    returned: boom
stop    c     w3    -   surplus  done

waiting  task  instances  worker  reason
         d     2          -       no open worker
         e     1          w3      held

avoided  worker  task  until term  failures  last failure
         w4      all   44          1         boom
         w4      f     50          3         boom

worker  state                before  after
w1      answering, draining  5       4
w3      silent               2       2
w4      answering, avoided   0       0
w5      lost                 0       0
`, "\n")
	require.Equal(t, want, samplePlan().String())
	require.Equal(t, want, fmt.Sprint(samplePlan()))

	single := samplePlan()
	single.Changes, single.Stats.Adds, single.Stats.Deferred = single.Changes[:1], 1, 1
	require.Contains(t, single.String(), "1 change: ")
	require.Contains(t, single.String(), "; 1 start, at least 2 needed;")
	require.Contains(t, single.String(), "; 1 move left for later;")
}

// Long tables are cut off, and say so.
func TestPlan_StringIsBounded(t *testing.T) {
	p := plan{}
	for _, name := range names("t", 1000) {
		p.Changes = append(p.Changes, change{Kind: orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}, Task: name, To: "w1"})
	}
	text := p.String()
	require.Contains(t, text, "t50 ")
	require.NotContains(t, text, "t51 ")
	require.Contains(t, text, "… and 950 more\n")
}

func TestPlan_JSON(t *testing.T) {
	text, err := json.Marshal(samplePlan())
	require.NoError(t, err)
	require.JSONEq(t, `{
		"stats": {
			"term": {"epoch": 7, "number": 42},
			"start": "2026-01-02T03:04:05Z",
			"listing_ns": 0, "planning_ns": 0, "writing_ns": 0, "total_ns": 0,
			"workers": {"answering": 0, "silent": 0, "lost": 0, "draining": 0, "avoided": 0, "stuck": 0},
			"instances": {"wanted": 0, "running": 0, "held": 0, "missing": 0, "unplaceable": 0, "unexpected": 0, "duplicate": 0},
			"changes": {"move/drain": 1, "start/missing": 1, "stop/surplus": 1},
			"cut": false,
			"deferred": 3, "adds": 2, "lower_bound": 2, "spread": 0,
			"list": `+noCalls+`, "add": `+noCalls+`, "remove": `+noCalls+`, "apply": `+noCalls+`,
			"mass_loss": true,
			"err": "boom"
		},
		"changes": [
			{"op": "start", "reason": "missing", "task": "a", "to": "w1", "outcome": "done"},
			{"op": "move", "reason": "drain", "task": "bb", "from": "w1", "to": "w2", "outcome": "returned", "err": "boom"},
			{"op": "stop", "reason": "surplus", "task": "c", "from": "w3", "outcome": "done"}
		],
		"waiting": [
			{"task": "d", "instances": 2, "reason": "no open worker"},
			{"task": "e", "instances": 1, "reason": "held", "worker": "w3"}
		],
		"avoided": [
			{"worker": "w4", "until_term": 44, "failures": 1, "err": "boom"},
			{"worker": "w4", "task": "f", "until_term": 50, "failures": 3, "err": "boom"}
		],
		"workers": [
			{"name": "w1", "state": "answering", "draining": true, "before": 5, "after": 4},
			{"name": "w3", "state": "silent", "before": 2, "after": 2},
			{"name": "w4", "state": "answering", "avoided": true, "before": 0, "after": 0},
			{"name": "w5", "state": "lost", "before": 0, "after": 0}
		]
	}`, string(text))
}

const noCalls = `{
	"done": 0, "rejected": 0, "stopping": 0, "deposed": 0, "timeout": 0, "failed": 0,
	"seconds": {"count": 0, "sum_ns": 0, "buckets": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}
}`

// What a term leaves can be marshalled, failures and all, and lists are lists
// also where they are empty.
func TestPlan_JSONOfATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2)
		f.failAdds(errRejected, "w2")
		f.expect(4)
		f.failingTerm()
		f.term()
		text, err := json.Marshal(f.LastPlan())
		require.NoError(t, err)
		var got struct {
			Stats struct {
				Term orchestrator.Term `json:"term"`
			} `json:"stats"`
			Changes []map[string]any `json:"changes"`
			Avoided []map[string]any `json:"avoided"`
			Workers []map[string]any `json:"workers"`
			Waiting []map[string]any `json:"waiting"`
		}
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, f.LastPlan().Stats.Term, got.Stats.Term)
		require.Len(t, got.Changes, 2)
		require.Equal(t, "w2", got.Avoided[0]["worker"])
		require.NotContains(t, got.Avoided[0], "task", "all of it")
		require.Len(t, got.Workers, 2)
		require.NotNil(t, got.Waiting)
		require.NotContains(t, string(text), "null")
	})
}
