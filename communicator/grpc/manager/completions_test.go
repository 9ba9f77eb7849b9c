package manager

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

const (
	notTold    = orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_UNSPECIFIED
	recorded   = orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_RECORDED
	superseded = orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_SUPERSEDED
	unknown    = orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_UNKNOWN_TASK
)

func completed(task string, version int64) worker.TaskStatus[string] {
	return worker.TaskStatus[string]{Task: task, State: worker.Completed, Version: version}
}

func running(task string) worker.TaskStatus[string] {
	return worker.TaskStatus[string]{Task: task, State: worker.Running, Version: 7}
}

type statuses = []worker.TaskStatus[string]

// Every completion is reported until it is answered, and not again after that.
func TestW3_ACompletionIsReportedUntilItIsAnswered(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	want := []completion{{task: "a", version: 1}, {task: "c", version: 3}}
	require.Equal(t, want, c.batch())
	require.Equal(t, want, c.batch(), "no answer")
	require.False(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{notTold, recorded}))
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
	require.False(t, c.answered(c.batch(), nil), "too few outcomes")
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{unknown}))
	require.Empty(t, c.batch())
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	require.Empty(t, c.batch(), "everything was answered")
}

// A completion is reported even if the worker no longer has the task.
func TestW3_ACompletionOutlivesItsTask(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1)})
	c.look(nil)
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
}

// A task that gets newer content completes again.
func TestW3_NewerContentIsAnotherCompletion(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1), completed("b", 1)})
	c.look(statuses{completed("a", 5), completed("b", 1)})
	require.Equal(t, []completion{{task: "a", version: 5}, {task: "b", version: 1}}, c.batch())
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{superseded, recorded}))
	c.look(statuses{completed("a", 5), completed("b", 1)})
	require.Empty(t, c.batch())
	c.look(statuses{running("a")})
	c.look(statuses{completed("a", 9)})
	require.Equal(t, []completion{{task: "a", version: 9}}, c.batch())
}

// A completion during a call is reported by the next call, even if it is of a task
// in the current batch.
func TestW3_CompletionsWhileOthersAreReported(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1), completed("b", 1)})
	batch := c.batch()
	c.look(statuses{completed("a", 5), completed("b", 1), completed("c", 1)})
	require.Equal(t, []completion{{task: "a", version: 1}, {task: "b", version: 1}}, batch)
	require.True(t, c.answered(batch, []orchestratorv1.CompletionOutcome{superseded, recorded}))
	require.ElementsMatch(t, []completion{{task: "a", version: 5}, {task: "c", version: 1}}, c.batch())
	c.look(statuses{completed("a", 5), completed("b", 1), completed("c", 1)})
	require.Len(t, c.batch(), 2)
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{recorded, recorded}))
	require.Empty(t, c.batch())
	require.Empty(t, c.latest)
}

// A job that failed, and completed when the worker got it again, is reported as
// completed.
func TestW8_ACompletionOverridesAFailure(t *testing.T) {
	failed := completed("a", 1)
	failed.State, failed.Err, failed.Attempts = worker.Failed, errors.New("no disk"), 3
	c := newCompletions(nil)
	c.look(statuses{failed})
	require.NotNil(t, c.batch()[0].failure)
	c.look(statuses{completed("a", 1)})
	require.Nil(t, c.batch()[0].failure, "before the failure was reported")
	c.look(statuses{failed})
	require.Nil(t, c.batch()[0].failure, "the task has completed")

	c = newCompletions(nil)
	c.look(statuses{failed})
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{recorded}))
	c.look(statuses{failed})
	require.Empty(t, c.batch())
	c.look(statuses{completed("a", 1)})
	require.Len(t, c.batch(), 1, "after the failure was reported")
}

// A manager that does not answer does not keep the worker from being watched.
// Otherwise the lease, and with it completed tasks, could be lost before the answer.
func TestW3_CompletionsWhileTheManagerHangsAreReported(t *testing.T) {
	inBureau(t, func(o *bureau) {
		s := o.hire(worker.WithCompletion(func(string) {}))
		o.after(2 * time.Second)
		o.do(silent)
		s.add("short1")
		o.after(6500 * time.Millisecond)
		s.add("short2")
		o.after(5 * time.Second)
		require.Equal(o, 1, o.said("membership lost"))
		require.Empty(o, s.worker.Status())
		o.do(nil)
		o.heard()
		o.after(time.Minute)
		told := o.heard(callComplete)
		require.Len(o, told, 1)
		require.Equal(o, []string{"short1@0", "short2@0"}, told[0].tasks)
	})
}

// Answered completions are forgotten with their tasks, so memory does not grow with
// time.
func TestW3_NothingIsRememberedOfTasksThatAreGone(t *testing.T) {
	c := newCompletions(nil)
	for i := range 100 {
		c.look(statuses{completed(fmt.Sprint(i), 1)})
		require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{recorded}))
	}
	c.look(nil)
	require.Empty(t, c.told)
	require.Empty(t, c.latest)
	require.Empty(t, c.owed)
}

// The completions of a predecessor are reported, but not its other tasks.
func TestW6_WhatAPredecessorHasCompleted(t *testing.T) {
	c := newCompletions([]worker.Previous[string]{
		{Task: "a", Completed: true, Version: 4}, {Task: "b"}, {Task: strings.Repeat("x", identity.MaxName+1), Completed: true},
	})
	require.Equal(t, []completion{{task: "a", version: 4}}, c.batch())
}

// Batches are bounded, and together contain every completion.
func TestW3_CompletionsGoInBoundedBatches(t *testing.T) {
	long := strings.Repeat("x", identity.MaxName-10)
	for _, name := range []string{"", long} {
		c := newCompletions(nil)
		var all statuses
		for i := range 3 * mostCompletions {
			all = append(all, completed(fmt.Sprint(name, i), 1))
		}
		c.look(all)
		told := 0
		for len(c.owed) > 0 {
			batch := c.batch()
			size := 0
			for _, b := range batch {
				size += len(b.task)
			}
			require.NotEmpty(t, batch)
			require.LessOrEqual(t, len(batch), mostCompletions)
			require.LessOrEqual(t, size, mostCompletionBytes)
			told += len(batch)
			outcomes := make([]orchestratorv1.CompletionOutcome, len(batch))
			for i := range outcomes {
				outcomes[i] = recorded
			}
			require.True(t, c.answered(batch, outcomes))
		}
		require.Equal(t, len(all), told)
	}
}
