package grpc

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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

// Every completion is told until it was answered, and then no more.
func TestW3_ACompletionIsToldUntilItIsAnswered(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	want := []completion{{task: "a", version: 1}, {task: "c", version: 3}}
	require.Equal(t, want, c.batch())
	require.Equal(t, want, c.batch(), "no answer")
	require.False(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{notTold, recorded}))
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
	require.False(t, c.answered(c.batch(), nil), "an answer too short")
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{unknown}))
	require.Empty(t, c.batch())
	c.look(statuses{completed("a", 1), running("b"), completed("c", 3)})
	require.Empty(t, c.batch(), "all of this was answered")
}

// What was done is told, also where the worker does not have the task any more.
func TestW3_ACompletionOutlivesItsTask(t *testing.T) {
	c := newCompletions(nil)
	c.look(statuses{completed("a", 1)})
	c.look(nil)
	require.Equal(t, []completion{{task: "a", version: 1}}, c.batch())
}

// A task that is given newer content completes again.
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

// What completes while a batch is on its way is told by the next, also where it is
// of a task of that batch.
func TestW3_CompletionsWhileOthersAreTold(t *testing.T) {
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

// A job that failed, and completed when it was given here again, is told as completed.
func TestW8_ACompletionOverridesAFailure(t *testing.T) {
	failed := completed("a", 1)
	failed.State, failed.Err, failed.Attempts = worker.Failed, errors.New("no disk"), 3
	c := newCompletions(nil)
	c.look(statuses{failed})
	require.NotNil(t, c.batch()[0].failure)
	c.look(statuses{completed("a", 1)})
	require.Nil(t, c.batch()[0].failure, "before it was told")
	c.look(statuses{failed})
	require.Nil(t, c.batch()[0].failure, "it was done")

	c = newCompletions(nil)
	c.look(statuses{failed})
	require.True(t, c.answered(c.batch(), []orchestratorv1.CompletionOutcome{recorded}))
	c.look(statuses{failed})
	require.Empty(t, c.batch())
	c.look(statuses{completed("a", 1)})
	require.Len(t, c.batch(), 1, "after it was told")
}

// A manager that hangs does not keep the teller from looking: the lease may be
// lost before there is an answer, and what had completed with it.
func TestW3_WhatCompletesWhileTheManagerHangsIsTold(t *testing.T) {
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

// What was answered is forgotten with the task: nothing grows with time.
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

// A predecessor's completions are told too; what it ran is nobody's business.
func TestW6_WhatAPredecessorHasCompleted(t *testing.T) {
	c := newCompletions([]worker.Trace[string]{
		{Task: "a", Completed: true, Version: 4}, {Task: "b"}, {Task: strings.Repeat("x", maxName+1), Completed: true},
	})
	require.Equal(t, []completion{{task: "a", version: 4}}, c.batch())
}

// Batches have bounds, and all of them together are everything.
func TestW3_CompletionsGoInBoundedBatches(t *testing.T) {
	long := strings.Repeat("x", maxName-10)
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
