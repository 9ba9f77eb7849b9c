package test

// T11: what NextTerm returns.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

func TestT11_NothingFailed(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 4}, func(t *testing.T, f *fleet) {
		require.Equal(t, error(nil), f.NextTerm(t.Context()), "not a nil pointer in an interface")
		require.NoError(t, f.LastPlan().Stats.Err)
	})
}

// A silent worker, a failed start and a failed stop are each reported with their call and
// cause.
func TestT11_EveryFailureIsReported(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 8}, func(t *testing.T, f *fleet) {
		errStop := errors.New("will not stop")
		gone := f.RunsOn("w2")[0]
		f.RemoveTask(gone)
		require.NoError(t, f.AddTask("new", orchestrator.WithTaskInstances(4)))
		f.Hang("w4")
		f.Slow(timeout/2, "w2", "w3") // so that w4 is waited for as long as it may take
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

// A term with failures is complete: every other change is made.
func TestT11_ATermWithFailuresIsComplete(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 8}, func(t *testing.T, f *fleet) {
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

// Silent workers come in the order in which they were added.
func TestT11_SilentWorkers(t *testing.T) {
	inBubble(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.term()
		f.Hang("w2")
		f.Cut("w4")
		f.failingTerm()
		time.Sleep(timeout)
		silent := f.failingTerm()
		require.Len(t, silent, 2)
		require.Equal(t, "w2", silent[0].Worker)
		require.ErrorIs(t, silent[0], orchestrator.ErrSilent)
		require.Equal(t, "w4", silent[1].Worker)
		require.ErrorContains(t, silent[1], memory.ErrCut.Error())
	})
}

// A stop under way is no failure.
func TestT11_StoppingIsNoFailure(t *testing.T) {
	onBothWires(t, given{workers: 1, running: 2}, func(t *testing.T, f *fleet) {
		f.RemoveTask("t1")
		f.refuse(orchestrator.OpRemove, "", "", fmt.Errorf("flushing: %w", orchestrator.ErrStopping))
		f.term()
		require.Equal(t, orchestrator.OutcomeStopping, f.LastPlan().Changes[0].Outcome)
		require.Equal(t, 1, f.LastPlan().Stats.Remove.Stopping)
	})
}

// The error names a task whose stop timed out. A stop that is still under way is not
// reported again.
func TestT11_ATaskThatDoesNotStop(t *testing.T) {
	inBubble(t, given{workers: 1, running: 3}, func(t *testing.T, f *fleet) {
		hung := map[string]bool{"t1": true}
		f.Refuse(func(op orchestrator.Op, _, task string) error {
			if op == orchestrator.OpRemove && hung[task] {
				return orchestrator.ErrStopping
			}
			return nil
		})
		info := func() int { return len(f.log.lines(`"msg":"term"`, `"level":"INFO"`)) }
		f.RemoveTask("t1")
		before := info()
		f.term()
		require.Empty(t, f.log.lines("does not stop"), "it may take its time")
		require.Equal(t, before+1, info())
		for range 3 {
			f.term()
		}
		require.Len(t, f.log.lines("task not stopping", `"level":"WARN"`, `"task":"t1"`, `"worker":"w1"`, `"tasks":1`), 1)
		require.Equal(t, before+1, info())

		hung["t2"] = true
		f.RemoveTask("t2")
		f.term()
		f.term()
		require.Len(t, f.log.lines("task not stopping", `"tasks":2`), 1)
		clear(hung)
		f.term()
		f.term()
		require.Equal(t, 1, f.LastPlan().Stats.Instances.Wanted)
		require.Len(t, f.log.lines("task not stopping"), 2)
	})
}

// A task is removed while a term is about to start it. If its start is then refused, that
// is not a failure; for an expected task it would be.
func TestT11_AStartOfATaskThatIsRemoved(t *testing.T) {
	onBothWires(t, given{workers: 2}, func(t *testing.T, f *fleet) {
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

// The cause that cut the term short comes first.
func TestT11_TheCauseComesFirst(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 6}, func(t *testing.T, f *fleet) {
		f.refuse(orchestrator.OpAdd, "w2", "", errRejected)
		errDeploy := errors.New("deploy")
		ctx, cancel := context.WithCancelCause(t.Context())
		f.intercept(on(orchestrator.OpAdd, "", "", func(context.Context) error {
			time.Sleep(time.Second)
			cancel(errDeploy)
			return nil
		}))
		err := f.NextTerm(ctx)
		term, ok := errors.AsType[*orchestrator.TermError](err)
		require.True(t, ok)
		require.Len(t, term.Failures, 2)
		require.ErrorIs(t, term.Failures[0], errDeploy)
		require.ErrorIs(t, term.Failures[1], errRejected)
	})
}

// A deposed leader sends nothing more. No change that had not begun has an unknown
// outcome.
func TestT11_WhatADeposedLeaderDidNotBegin(t *testing.T) {
	onBothWires(t, given{workers: 4, running: 40}, func(t *testing.T, f *fleet) {
		f.join("w5")
		f.intercept(on(orchestrator.OpRemove, "", "", fails(orchestrator.ErrDeposed)))
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

// The text stays short, however many calls fail.
func TestT11_TheTextIsBounded(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 2000}, func(t *testing.T, f *fleet) {
		f.failAdds(errRejected)
		err := f.NextTerm(t.Context())
		require.Len(t, failures(t, err), 2000)
		require.Less(t, len(err.Error()), 1000)
		require.Contains(t, err.Error(), "term 1: 2000 failures: add task ")
		require.Contains(t, err.Error(), "; and 1995 more")
	})
}

// brokenError is an error with methods that may panic or return the error itself.
type brokenError struct {
	text   func() string
	is     func(target error) bool
	unwrap func() []error
}

func (e *brokenError) Error() string {
	if e.text != nil {
		return e.text()
	}
	return "broken"
}

func (e *brokenError) Is(target error) bool { return e.is != nil && e.is(target) }

func (e *brokenError) Unwrap() []error {
	if e.unwrap == nil {
		return nil
	}
	return e.unwrap()
}

// loopError wraps itself.
type loopError struct{}

func (loopError) Error() string { return "loop" }

func (e loopError) Unwrap() error { return e }

// brokenErrors returns errors that must not end the leader's process, by what is wrong
// with them.
func brokenErrors() map[string]error {
	ownText, ownBranch := new(brokenError), new(brokenError)
	ownText.text = func() string { panic(ownText) }
	ownBranch.unwrap = func() []error { return []error{nil, errBoom, ownBranch} }
	return map[string]error{
		"typed nil":            (*brokenError)(nil),
		"typed nil in a join":  errors.Join(errBoom, (*brokenError)(nil)),
		"Error panics":         &brokenError{text: func() string { panic(errBoom) }},
		"Error panics with it": ownText,
		"Is panics":            &brokenError{is: func(error) bool { panic(errBoom) }},
		"Is panics for one": &brokenError{is: func(target error) bool {
			if errors.Is(target, orchestrator.ErrStale) {
				panic(errBoom)
			}
			return false
		}},
		"Unwrap panics":          &brokenError{unwrap: func() []error { panic(errBoom) }},
		"wraps itself":           loopError{},
		"wraps itself in a list": ownBranch,
	}
}

// requireReadable checks that all results of a term can be read.
func requireReadable(t *testing.T, f *fleet, err error) {
	t.Helper()
	require.NotEmpty(t, err.Error())
	require.NotErrorIs(t, err, orchestrator.ErrDeposed)
	require.NotErrorIs(t, err, orchestrator.ErrStale)
	require.NotEmpty(t, f.LastPlan().String())
	_, jsonErr := json.Marshal(f.LastPlan())
	require.NoError(t, jsonErr)
}

// An error with a method that panics counts as a panic of its call. It does not affect
// other calls, nor other writes of the same Apply.
func TestT11_BrokenErrors(t *testing.T) {
	for name, broken := range brokenErrors() {
		for _, op := range []orchestrator.Op{orchestrator.OpList, orchestrator.OpAdd, orchestrator.OpRemove} {
			t.Run(fmt.Sprint(name, "/", op), bothWires(given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
				bad := map[orchestrator.Op]string{orchestrator.OpAdd: "new1", orchestrator.OpRemove: f.RunsOn("w1")[0]}
				f.RemoveTask(bad[orchestrator.OpRemove])
				for _, task := range names("new", 4) {
					require.NoError(t, f.AddTask(task))
				}
				f.intercept(func(_ context.Context, c call) error {
					if c.Op == op && c.Task == bad[op] && (op != orchestrator.OpList || c.Worker == "w1") {
						return broken
					}
					return nil
				})
				err := f.NextTerm(t.Context())
				requireReadable(t, f, err)
				found := failures(t, err)
				require.Len(t, found, 1)
				require.Equal(t, op, found[0].Op)
				require.Equal(t, bad[op], found[0].Task)
				if op != orchestrator.OpList {
					require.Equal(t, 1, f.outcomes()[orchestrator.OutcomeUnknown])
					require.Equal(t, len(f.LastPlan().Changes)-1, f.outcomes()[orchestrator.OutcomeDone])
				}

				f.intercept(nil)
				for range 4 { // what failed is tried again later
					_ = f.NextTerm(t.Context())
					synctest.Wait()
				}
				f.requireSettled()
			}))
		}
	}
}

// The cause of the caller's context may be such an error too.
func TestT11_BrokenCauses(t *testing.T) {
	for name, broken := range brokenErrors() {
		for _, at := range []orchestrator.Op{0, orchestrator.OpList, orchestrator.OpAdd} {
			t.Run(fmt.Sprint(name, "/", at), bubble(given{workers: 2, expected: 4}, func(t *testing.T, f *fleet) {
				ctx, cancel := context.WithCancelCause(t.Context())
				if at == 0 {
					cancel(broken)
				}
				f.intercept(on(at, "", "", func(context.Context) error {
					cancel(broken)
					return orchestrator.ErrRejected
				}))
				requireReadable(t, f, f.NextTerm(ctx))
				requireReadable(t, f, f.Run(ctx, time.Second))
			}))
		}
	}
}

// Every other error reaches the caller as the same value, even if it cannot be compared.
func TestT11_OtherErrorsStayAsTheyAre(t *testing.T) {
	onBothWires(t, given{workers: 1, expected: 1}, func(t *testing.T, f *fleet) {
		f.failAdds(listError{nil, errBoom, orchestrator.ErrRejected})
		err := f.NextTerm(t.Context())
		list, ok := errors.AsType[listError](err)
		require.True(t, ok)
		require.Len(t, list, 3)
		require.Equal(t, orchestrator.OutcomeFailed, f.LastPlan().Changes[0].Outcome)
	})
}

// listError is an error that cannot be compared.
type listError []error

func (e listError) Error() string { return fmt.Sprint([]error(e)) }

func (e listError) Unwrap() []error { return e }

// A long text in an answer fills neither the leader's memory nor the errors of later
// terms.
func TestT11_TheTextOfASilenceIsBounded(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		f.Refuse(func(_ orchestrator.Op, worker, _ string) error {
			if worker == "w2" {
				return errors.New(strings.Repeat("é", 1<<20))
			}
			return nil
		})
		f.failingTerm()
		f.Hang("w2")
		silent := f.failingTerm()
		require.ErrorContains(t, silent[0], "the last call failed: é")
		require.Less(t, len(silent[0].Error()), 1000)
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
		{&orchestrator.TermError{Term: term, Failures: []error{call(orchestrator.OpList, "")}}, "term 42: list worker w1: boom"},
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

const noCalls = `{
	"done": 0, "rejected": 0, "stopping": 0, "deposed": 0, "timeout": 0, "failed": 0,
	"seconds": {"count": 0, "sum_ns": 0, "buckets": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}
}`

// All results of a term can be marshalled, with failures too. Empty lists are lists, not
// null.
func TestPlan_JSONOfATerm(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		f.failAdds(errRejected, "w2")
		f.expect(4)
		f.failingTerm()
		f.term() // which tries w2 with nothing
		text, err := json.Marshal(f.LastPlan())
		require.NoError(t, err)
		var got struct {
			Stats struct {
				Term orchestrator.Term `json:"term"`
			} `json:"stats"`
			Changes []map[string]any `json:"changes"`
			Paused  []map[string]any `json:"paused"`
			Workers []map[string]any `json:"workers"`
			Waiting []map[string]any `json:"waiting"`
		}
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, f.LastPlan().Stats.Term, got.Stats.Term)
		require.Len(t, got.Changes, len(f.LastPlan().Changes))
		require.Equal(t, "worker", got.Paused[0]["kind"])
		require.Equal(t, "w2", got.Paused[0]["worker"])
		require.NotContains(t, got.Paused[0], "task", "all of it")
		require.Len(t, got.Workers, 2)
		require.NotNil(t, got.Waiting)
		require.NotContains(t, string(text), "null")
	})
}
