package worker_test

// W7: content that changes while a task runs.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// eventLog records what happens to tasks, in order.
type eventLog struct {
	mu    sync.Mutex
	lines []string
}

func (d *eventLog) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// read returns the entries since the last read.
func (d *eventLog) read() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

// logged returns a test that runs in a bubble with an empty log.
func logged(test func(t *testing.T, d *eventLog)) func(*testing.T) {
	return inBubble(func(t *testing.T) { test(t, &eventLog{}) })
}

// run is a task that records its content, and takes a second to stop.
func (d *eventLog) run(ctx context.Context, task string) error {
	content, version := worker.Content(ctx)
	token, scope := worker.Token(ctx)
	d.add("%s runs %s@%d token %d/%d", task, content, version, token, scope)
	<-ctx.Done()
	<-time.After(time.Second)
	d.add("%s ends: %v", task, context.Cause(ctx))
	return nil
}

// update takes two seconds to apply an update to a task.
func (d *eventLog) update(ctx context.Context, task string) error {
	content, version := worker.Content(ctx)
	d.add("%s update %s@%d begins", task, content, version)
	select {
	case <-ctx.Done():
		d.add("%s update cut off: %v", task, context.Cause(ctx))
	case <-time.After(2 * time.Second):
		d.add("%s update done", task)
	}
	return nil
}

func grant(content string, version int64) worker.Grant {
	return worker.Grant{Content: []byte(content), Version: version, Token: 7, Scope: 3}
}

// update updates task a.
func update(t *testing.T, w *worker.Worker[string], content string, version int64) {
	t.Helper()
	require.NoError(t, w.Update(t.Context(), "a", worker.Grant{Content: []byte(content), Version: version}))
}

func TestW7_ContentAndTokenComeWithTheTask(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run)
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 5)))
		require.NoError(t, w.Add(t.Context(), "b"))
		require.ElementsMatch(t, []string{"a runs one@5 token 7/3", "b runs @0 token 0/0"}, d.read())
		status := w.Status()[0]
		require.Equal(t, int64(5), status.Version)
		require.Equal(t, uint64(7), status.Token)
		require.Equal(t, uint64(3), status.Scope)

		token, scope := worker.Token(t.Context())
		require.Zero(t, token)
		require.Zero(t, scope)
		content, version := worker.Content(t.Context())
		require.Nil(t, content)
		require.Zero(t, version)
	})(t)
}

func TestW7_RestartsInPlace(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run, worker.WithSlots(1), worker.WithBackoff(time.Minute, time.Hour))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		require.NoError(t, w.Add(t.Context(), "waits"))
		before := list(t, w)
		require.Equal(t, []string{"a runs one@1 token 7/3"}, d.read())

		update(t, w, "two", 2)
		<-time.After(time.Second)
		require.Equal(t, []string{"a ends: the task was updated", "a runs two@2 token 7/3"}, d.read(),
			"without a pause, and without its slot going to another")
		require.Equal(t, "a:running waits:queued ", states(w))
		require.Same(t, &before[0], &list(t, w)[0], "the list is unchanged")
		status := w.Status()[0]
		require.Equal(t, 1, status.Restarts)
		require.ErrorIs(t, status.Err, worker.ErrUpdated)
		require.Equal(t, int64(2), status.Version)

		for _, version := range []int64{-1, 0, 1, 2} {
			update(t, w, "older", version)
		}
		<-time.After(time.Minute)
		require.Empty(t, d.read())

		require.NoError(t, w.AddWith(t.Context(), "a", grant("three", 3)))
		update(t, w, "five", 5)
		update(t, w, "four", 4)
		<-time.After(time.Second)
		require.Equal(t, []string{"a ends: the task was updated", "a runs five@5 token 7/3"}, d.read(), "the last update counts")
	})(t)
}

func TestW7_TheHandlerIsCalledInPlace(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run, worker.WithUpdate(d.update))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		d.read()
		update(t, w, "two", 2)
		require.Equal(t, []string{"a update two@2 begins"}, d.read())
		update(t, w, "three", 3)
		update(t, w, "four", 4)
		update(t, w, "two", 2)
		require.Empty(t, d.read(), "updates do not overlap")
		<-time.After(2 * time.Second)
		require.Equal(t, []string{"a update done", "a update four@4 begins"}, d.read(), "the last update follows")
		<-time.After(2 * time.Second)
		require.Equal(t, []string{"a update done"}, d.read())
		require.Zero(t, w.Status()[0].Restarts)

		update(t, w, "five", 5)
		<-time.After(time.Second)
		d.read()
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.Equal(t, []string{"a update cut off: the task was removed from this worker", "a ends: the task was removed from this worker"}, d.read())
	})(t)
}

func TestW7_AHandlerThatFailsMeansARestart(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":  func() error { return errors.New("cannot") },
		"panic":  func() error { panic("cannot") },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, logged(func(t *testing.T, d *eventLog) {
			var log bytes.Buffer
			w := newWorker(t, d.run, worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
				worker.WithUpdate(func(context.Context, string) error { return fail() }))
			require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
			d.read()
			update(t, w, "two", 2)
			<-time.After(time.Second)
			require.Equal(t, []string{"a ends: the task was updated", "a runs two@2 token 7/3"}, d.read())
			require.Contains(t, log.String(), "update failed, task will be restarted with it")
			update(t, w, "three", 3)
			<-time.After(time.Second)
			require.Equal(t, []string{"a ends: the task was updated", "a runs three@3 token 7/3"}, d.read())
		}))
	}
}

// A task that is about to be restarted gets no update: its next run starts with the
// content.
func TestW7_ARunThatEndsForAnUpdateGetsNoOther(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run, worker.WithUpdate(func(ctx context.Context, task string) error {
			_, version := worker.Content(ctx)
			d.add("%s update %d begins", task, version)
			return errors.New("no")
		}))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		d.read()
		update(t, w, "two", 2)
		require.Equal(t, []string{"a update 2 begins"}, d.read())
		update(t, w, "three", 3)
		<-time.After(time.Second)
		require.Equal(t, []string{"a ends: the task was updated", "a runs three@3 token 7/3"}, d.read())
	})(t)
}

// A run that fails during an update has failed, and is restarted after a pause.
func TestW7_AFailureDuringAnUpdateIsAFailure(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, func(_ context.Context, task string) error {
			d.add("%s runs", task)
			<-time.After(time.Second)
			return errors.New("on its own")
		}, worker.WithBackoff(time.Hour, time.Hour), worker.WithUpdate(func(ctx context.Context, task string) error {
			_, version := worker.Content(ctx)
			d.add("%s update %d begins", task, version)
			<-ctx.Done()
			<-time.After(2 * time.Second)
			return context.Cause(ctx)
		}))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		d.read()
		update(t, w, "two", 2)
		<-time.After(2 * time.Second)
		update(t, w, "three", 3)
		<-time.After(time.Minute)
		require.Equal(t, []string{"a update 2 begins"}, d.read())
		require.Equal(t, "a:backoff ", states(w))
		require.ErrorContains(t, w.Status()[0].Err, "on its own")
	})(t)
}

// An update that does not return delays neither the end of its task's context nor
// that of the function. The task has not stopped until the update has returned.
func TestW7_AHandlerThatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, w *worker.Worker[string])
		want error
	}{
		"removed": {func(t *testing.T, w *worker.Worker[string]) {
			require.NoError(t, w.Remove(t.Context(), "a"))
		}, worker.ErrRemoved},
		"fenced": {func(t *testing.T, w *worker.Worker[string]) {
			w.EndLease(nil)
			require.NoError(t, w.Rejoin(t.Context()))
		}, worker.ErrLeaseLost},
		"closed": {func(t *testing.T, w *worker.Worker[string]) {
			require.NoError(t, w.Close(t.Context()))
		}, worker.ErrClosed},
		"another owner": {func(t *testing.T, w *worker.Worker[string]) {
			require.NoError(t, w.AddWith(t.Context(), "a", worker.Grant{Token: 8, Scope: 3}))
			<-time.After(11 * time.Second)
			require.NoError(t, w.Remove(t.Context(), "a"))
		}, worker.ErrUpdated},
	} {
		t.Run(name, inBubble(func(t *testing.T) {
			var told atomic.Bool
			var cause error
			w := leased(t, func(ctx context.Context, _ string) error {
				if told.Load() {
					t.Error("the update of the previous run is still under way")
				}
				<-ctx.Done()
				return nil
			}, worker.WithUpdate(func(ctx context.Context, _ string) error {
				told.Store(true)
				defer told.Store(false)
				<-ctx.Done()
				cause = context.Cause(ctx)
				<-time.After(10 * time.Second)
				return nil
			}))
			require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
			synctest.Wait()
			update(t, w, "two", 2)
			synctest.Wait()
			began := time.Now()
			c.end(t, w)
			require.GreaterOrEqual(t, time.Since(began), 10*time.Second)
			require.ErrorIs(t, cause, c.want)
			require.False(t, told.Load())
			require.Empty(t, list(t, w))
		}))
	}
}

func TestW7_UpdateInEachState(t *testing.T) {
	t.Run("unknown", func(t *testing.T) {
		w := newWorker(t, until)
		require.ErrorIs(t, w.Update(t.Context(), "a", worker.Grant{Version: 1}), orchestrator.ErrRejected)
		require.Empty(t, list(t, w))
	})
	t.Run("queued", logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run, worker.WithSlots(1), worker.WithUpdate(d.update))
		require.NoError(t, w.Add(t.Context(), "first"))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		update(t, w, "two", 2)
		d.read()
		require.NoError(t, w.Remove(t.Context(), "first"))
		require.Equal(t, []string{"first ends: the task was removed from this worker", "a runs two@2 token 7/3"}, d.read())
	}))
	t.Run("starting", logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run, worker.WithReadiness())
		go func() { _ = w.AddWith(t.Context(), "a", grant("one", 1)) }()
		d.read()
		update(t, w, "two", 2)
		<-time.After(time.Second)
		require.Equal(t, []string{"a ends: the task was updated", "a runs two@2 token 7/3"}, d.read())
		require.Equal(t, "a:starting ", states(w))
	}))
	t.Run("starting, with a handler", logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, func(ctx context.Context, task string) error {
			<-time.After(3 * time.Second)
			worker.Ready(ctx)
			return d.run(ctx, task)
		}, worker.WithReadiness(), worker.WithUpdate(d.update))
		answer := begin(func() error { return w.AddWith(t.Context(), "a", grant("one", 1)) })
		update(t, w, "two", 2)
		update(t, w, "three", 3)
		require.Empty(t, d.read(), "the task is not ready yet")
		<-time.After(3 * time.Second)
		require.ElementsMatch(t, []string{"a runs one@1 token 7/3", "a update three@3 begins"}, d.read())
		require.NoError(t, <-answer)
	}))
	t.Run("backoff", logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, func(ctx context.Context, _ string) error {
			content, _ := worker.Content(ctx)
			d.add("%s", content)
			if string(content) == "good" {
				<-ctx.Done()
			}
			return nil
		}, worker.WithBackoff(time.Hour, 2*time.Hour), worker.WithUpdate(d.update))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("bad", 1)))
		require.Equal(t, []string{"bad"}, d.read())
		require.Equal(t, "a:backoff ", states(w))
		update(t, w, "still bad", 2)
		require.Equal(t, []string{"still bad"}, d.read(), "immediately, because the content is new")
		<-time.After(time.Hour)
		require.Equal(t, []string{"still bad"}, d.read(), "after the shortest pause")
		update(t, w, "good", 3)
		require.Equal(t, []string{"good"}, d.read())
		<-time.After(24 * time.Hour)
		require.Empty(t, d.read(), "the timer of the pause finds nothing to do")
	}))
	t.Run("stopping", logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run)
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		require.ErrorIs(t, w.Remove(within(t, time.Nanosecond), "a"), orchestrator.ErrStopping)
		require.ErrorIs(t, w.Update(t.Context(), "a", worker.Grant{Content: []byte("two"), Version: 2}), orchestrator.ErrRejected)
		d.read()
		// A task that is added again gets the content of the new Add.
		require.NoError(t, w.AddWith(t.Context(), "a", worker.Grant{Content: []byte("zero"), Version: 1, Token: 9}))
		require.Equal(t, []string{"a ends: the task was removed from this worker", "a runs zero@1 token 9/0"}, d.read())
	}))
	t.Run("completed", inBubble(func(t *testing.T) {
		runs := 0
		w := newWorker(t, func(context.Context, string) error { runs++; return nil },
			worker.WithCompletion(func(string) {}))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		synctest.Wait()
		update(t, w, "one", 1)
		require.NoError(t, w.AddWith(t.Context(), "a", worker.Grant{Token: 9, Scope: 3}))
		synctest.Wait()
		require.Equal(t, 1, runs, "a completed task is not run again")
		update(t, w, "two", 2)
		synctest.Wait()
		require.Equal(t, 2, runs, "newer content is run")
		require.Equal(t, "a:completed ", states(w))
		status := w.Status()[0]
		require.Equal(t, int64(2), status.Version)
		require.Equal(t, 1, status.Restarts)
		require.NoError(t, status.Err)
	}))
	t.Run("restarting already", logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run)
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		d.read()
		update(t, w, "two", 2)
		<-time.After(time.Second / 2)
		update(t, w, "three", 3)
		require.NoError(t, w.Remove(t.Context(), "a"))
		<-time.After(time.Hour)
		require.Equal(t, []string{"a ends: the task was updated"}, d.read(), "after a Remove the task is not restarted")
		require.Empty(t, list(t, w))
	}))
}

func TestW7_CompletionIsNotMistakenForAnUpdate(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run, worker.WithCompletion(func(string) { t.Error("a task whose context has ended does not complete") }))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		update(t, w, "two", 2)
		<-time.After(time.Minute)
		require.Equal(t, "a:running ", states(w))
	})(t)
}

func TestW7_UpdatesAreFencedLikeAnyWrite(t *testing.T) {
	w := newWorker(t, until)
	require.NoError(t, w.Add(term(t.Context(), 5, 3), "a"))
	require.ErrorIs(t, w.Update(t.Context(), "a", worker.Grant{Version: 1}), orchestrator.ErrStale)
	require.ErrorIs(t, w.Update(term(t.Context(), 5, 2), "a", worker.Grant{Version: 1}), orchestrator.ErrStale)
	require.ErrorIs(t, w.Update(term(t.Context(), 4, 9), "a", worker.Grant{Version: 1}), orchestrator.ErrDeposed)
	require.NoError(t, w.Update(term(t.Context(), 5, 3), "a", worker.Grant{Version: 1}))
	ended, cancel := context.WithCancel(term(t.Context(), 5, 4))
	cancel()
	require.ErrorIs(t, w.Update(ended, "a", worker.Grant{Version: 2}), orchestrator.ErrRejected)
	require.Equal(t, int64(1), w.Status()[0].Version)
}

func TestW5_AnotherOwnersTokenRestartsTheTask(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run, worker.WithUpdate(d.update))
		with := func(token, scope uint64) []string {
			require.NoError(t, w.AddWith(t.Context(), "a", worker.Grant{Token: token, Scope: scope}))
			<-time.After(time.Second)
			return d.read()
		}
		require.Equal(t, []string{"a runs @0 token 7/3"}, with(7, 3))
		require.Empty(t, with(7, 3))
		require.Empty(t, with(6, 3))
		require.Empty(t, with(0, 0), "no token changes nothing")
		require.Equal(t, []string{"a ends: the task was updated", "a runs @0 token 8/3"}, with(8, 3))
		require.Equal(t, []string{"a ends: the task was updated", "a runs @0 token 1/4"}, with(1, 4), "a token of another scope")
	})(t)
}

func TestW7_ACompletedTaskRunsAgainWithNewerContent(t *testing.T) {
	t.Run("after the queue", logged(func(t *testing.T, d *eventLog) {
		var told []string
		w := newWorker(t, func(ctx context.Context, task string) error {
			if task == "a" {
				content, _ := worker.Content(ctx)
				d.add("a does %s", content)
				return nil
			}
			return d.run(ctx, task)
		}, worker.WithSlots(1), worker.WithReadiness(), worker.WithCompletion(func(task string) { told = append(told, task) }))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		ctx := within(t, time.Second)
		require.ErrorIs(t, w.Add(ctx, "b"), context.DeadlineExceeded, "b is never ready")
		d.read()
		require.NoError(t, w.AddWith(t.Context(), "a", grant("two", 2)))
		require.Equal(t, "a:queued b:starting ", states(w))
		require.NoError(t, w.Remove(t.Context(), "b"))
		require.Equal(t, []string{"b ends: the task was removed from this worker", "a does two"}, d.read())
		require.Equal(t, "a:completed ", states(w))
		require.Equal(t, []string{"a", "a"}, told)
	}))
	t.Run("an update cut off by the end of the run", logged(func(t *testing.T, d *eventLog) {
		end := make(chan error)
		w := newWorker(t, func(ctx context.Context, _ string) error {
			content, _ := worker.Content(ctx)
			d.add("does %s", content)
			return <-end
		}, worker.WithCompletion(func(string) { d.add("completed") }), worker.WithUpdate(d.update))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		synctest.Wait()
		update(t, w, "two", 2)
		require.ElementsMatch(t, []string{"does one", "a update two@2 begins"}, d.read())
		end <- nil // while the update is under way
		require.Equal(t, []string{"a update cut off: the task's function has returned", "does two"}, d.read())
		update(t, w, "three", 3)
		<-time.After(3 * time.Second)
		require.Equal(t, []string{"a update three@3 begins", "a update done"}, d.read())
		end <- nil
		require.Equal(t, []string{"completed"}, d.read())
		require.Equal(t, int64(3), w.Status()[0].Version)
	}))
	t.Run("an update before the task was ready", logged(func(t *testing.T, d *eventLog) {
		end := make(chan error)
		w := newWorker(t, func(ctx context.Context, _ string) error {
			content, _ := worker.Content(ctx)
			d.add("does %s", content)
			return <-end
		}, worker.WithReadiness(), worker.WithCompletion(func(string) { d.add("completed") }), worker.WithUpdate(d.update))
		require.ErrorIs(t, w.AddWith(within(t, time.Second), "a", grant("one", 1)), context.DeadlineExceeded)
		update(t, w, "two", 2)
		require.Equal(t, []string{"does one"}, d.read())
		end <- nil
		require.Equal(t, []string{"does two"}, d.read())
		end <- nil
		require.Equal(t, []string{"completed"}, d.read())
	}))
	t.Run("must become ready again", inBubble(func(t *testing.T) {
		w := newWorker(t, func(ctx context.Context, _ string) error {
			<-time.After(time.Second)
			worker.Ready(ctx)
			return nil
		}, worker.WithReadiness(), worker.WithCompletion(func(string) {}))
		for version := range int64(3) {
			began := time.Now()
			require.NoError(t, w.AddWith(t.Context(), "a", grant("one", version)))
			require.Equal(t, time.Second, time.Since(began), "version %d", version)
			synctest.Wait()
			require.Equal(t, "a:completed ", states(w))
		}
	}))
	t.Run("without earlier failures", inBubble(func(t *testing.T) {
		runs := 0
		w := newWorker(t, func(_ context.Context, _ string) error {
			<-time.After(time.Millisecond)
			runs++
			if runs == 6 {
				return nil
			}
			return errors.New("boom")
		}, worker.WithCompletion(func(string) {}), worker.WithBackoff(time.Second, time.Hour))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		pass(10 * time.Minute)
		require.Equal(t, "a:completed ", states(w))
		update(t, w, "two", 2)
		require.NoError(t, w.Status()[0].Err)
		require.Equal(t, 6, w.Status()[0].Restarts)
		pass(2 * time.Second)
		require.Greater(t, runs, 7, "the pauses start over with the shortest")
	}))
}

func TestW1_ApplyWithGivesContent(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run)
		require.NoError(t, w.Add(t.Context(), "gone"))
		d.read()
		changes := []worker.Change[string]{
			{Write: orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: "a"}, Grant: grant("one", 1)},
			{Write: orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: "gone"}},
			{Write: orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: "b"}, Grant: grant("two", 2)},
		}
		require.Nil(t, w.ApplyWith(t.Context(), changes))
		require.ElementsMatch(t, []string{
			"a runs one@1 token 7/3", "b runs two@2 token 7/3", "gone ends: the task was removed from this worker",
		}, d.read())
		require.Equal(t, []string{"a", "b"}, list(t, w))

		changes[1].Op = orchestrator.OpList
		errs := w.ApplyWith(t.Context(), changes)
		require.Len(t, errs, 3)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], orchestrator.ErrRejected)
		require.NoError(t, errs[2])
	})(t)
}

// A run that has called Updated takes new content from the channel, in place.
func TestW7_ARunThatAsksIsTold(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		asks := true
		w := newWorker(t, func(ctx context.Context, task string) error {
			_, version := worker.Content(ctx)
			token, _ := worker.Token(ctx)
			d.add("%s runs @%d token %d", task, version, token)
			var updated <-chan struct{}
			if asks {
				updated = worker.Updated(ctx)
			}
			for {
				select {
				case <-updated:
					d.add("%s was told", task)
				case <-ctx.Done():
					return nil
				}
			}
		})
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		require.Equal(t, []string{"a runs @1 token 7"}, d.read())
		update(t, w, "two", 2)
		require.Equal(t, []string{"a was told"}, d.read())
		update(t, w, "one", 1)
		require.Empty(t, d.read())
		require.Zero(t, w.Status()[0].Restarts)
		require.Equal(t, int64(2), w.Status()[0].Version)
		require.NoError(t, w.Update(t.Context(), "a", worker.Grant{Version: 3, Token: 8, Scope: 3}))
		require.Equal(t, []string{"a runs @3 token 8"}, d.read(), "another owner means another run")
		asks = false
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		update(t, w, "two", 2)
		require.Equal(t, []string{"a runs @1 token 7", "a runs @2 token 7"}, d.read(), "it has not asked")
		require.Nil(t, worker.Updated(t.Context()))
	})(t)
}

// A job that returns with an update that it has not received has not done it.
func TestW7_AJobThatMissesAnUpdateRunsAgain(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, func(ctx context.Context, task string) error {
			_, version := worker.Content(ctx)
			_ = worker.Updated(ctx)
			<-time.After(time.Second)
			d.add("%s has done @%d", task, version)
			return nil
		}, worker.WithCompletion(func(string) { d.add("completed") }))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		synctest.Wait()
		update(t, w, "two", 2)
		<-time.After(3 * time.Second)
		require.Equal(t, []string{"a has done @1", "a has done @2", "completed"}, d.read())
	})(t)
}
