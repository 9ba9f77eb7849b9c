package worker_test

// W9: tasks that ask to run elsewhere.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// asks is a task that asks to run elsewhere at once, unless its name is "stays". It takes a
// second to stop, and then fails.
func asks(ctx context.Context, task string) error {
	if task != "stays" {
		if err := worker.Reschedule(ctx, "no disk"); err != nil {
			return err
		}
	}
	<-ctx.Done()
	<-time.After(time.Second)
	return errors.New("not of interest")
}

// stops waits until the worker does not have the task "a" any more.
func stops(t *testing.T, w *worker.Worker[string]) {
	t.Helper()
	for _, changed := w.Changes(); slices.Contains(list(t, w), "a"); _, changed = w.Changes() {
		<-changed
	}
}

func TestW9_StopsAndIsRefused(t *testing.T) {
	inBubble(func(t *testing.T) {
		var cause error
		w := newWorker(t, func(ctx context.Context, task string) error {
			err := asks(ctx, task)
			if task == "a" {
				cause = context.Cause(ctx)
			}
			return err
		}, worker.WithSlots(1))
		require.NoError(t, w.Add(t.Context(), "a"))
		require.NoError(t, w.Add(t.Context(), "stays"))
		synctest.Wait()
		require.Equal(t, "a:stopping stays:queued ", states(w))
		waits := begin(func() error { return w.Add(t.Context(), "a") })
		stops(t, w)
		require.Equal(t, "stays:running ", states(w))
		require.ErrorIs(t, cause, worker.ErrRescheduled)
		require.ErrorContains(t, cause, "no disk")
		for _, err := range []error{<-waits, w.Add(t.Context(), "a")} {
			require.ErrorIs(t, err, orchestrator.ErrElsewhere)
			require.ErrorIs(t, err, orchestrator.ErrRejected)
			require.ErrorContains(t, err, "no disk")
		}
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.NoError(t, w.Add(t.Context(), "stays"))
		require.NoError(t, w.Add(t.Context(), "another"), "only the task is refused")
	})(t)
}

// A leader that asks now and then is refused for ever, and one that keeps asking for a minute.
func TestW9_GivesWay(t *testing.T) {
	inBubble(func(t *testing.T) {
		w := newWorker(t, asks)
		for range 3 {
			require.NoError(t, w.Add(t.Context(), "a"))
			stops(t, w)
			for _, pause := range []time.Duration{time.Hour, 3 * time.Minute, 3 * time.Minute, 30 * time.Second, 29 * time.Second} {
				<-time.After(pause)
				require.ErrorIs(t, w.Add(t.Context(), "a"), orchestrator.ErrElsewhere)
			}
			<-time.After(time.Second)
		}
	})(t)
}

func TestW9_ContentOfAnotherVersion(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, func(ctx context.Context, task string) error {
			if _, version := worker.Content(ctx); version%2 == 1 {
				require.NoError(t, worker.Reschedule(ctx, "odd"))
			}
			return d.run(ctx, task)
		})
		add := func(version int64) error {
			return w.AddWith(t.Context(), "a", worker.Grant{Version: version, Token: uint64(version)})
		}
		require.NoError(t, add(1))
		stops(t, w)
		require.ErrorIs(t, w.AddWith(t.Context(), "a", worker.Grant{Version: 1, Token: 99}), orchestrator.ErrElsewhere, "a token is no content")
		require.NoError(t, add(2))
		require.NoError(t, w.Remove(t.Context(), "a"))
		require.ErrorIs(t, add(1), orchestrator.ErrElsewhere, "it is still refused")
		require.NoError(t, add(2))
		update(t, w, "three", 3)
		stops(t, w)
		require.ErrorIs(t, add(3), orchestrator.ErrElsewhere)
		require.NoError(t, add(4))
	})(t)
}

// The function of WithUpdate may refuse the content that it is given.
func TestW9_FromAnUpdate(t *testing.T) {
	logged(func(t *testing.T, d *eventLog) {
		w := newWorker(t, d.run, worker.WithUpdate(func(ctx context.Context, _ string) error {
			return worker.Reschedule(ctx, "too large")
		}))
		require.NoError(t, w.AddWith(t.Context(), "a", grant("one", 1)))
		update(t, w, "two", 2)
		stops(t, w)
		require.ErrorContains(t, w.AddWith(t.Context(), "a", grant("two", 2)), "too large")
		require.NoError(t, w.AddWith(t.Context(), "a", grant("three", 3)))
	})(t)
}

func TestW9_BadUses(t *testing.T) {
	inBubble(func(t *testing.T) {
		err := worker.Reschedule(t.Context(), "why")
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, "not a task's")

		var ctxs []context.Context
		var errs []error
		w := newWorker(t, func(ctx context.Context, task string) error {
			ctxs = append(ctxs, ctx)
			switch task {
			case "empty":
				errs = append(errs, worker.Reschedule(ctx, ""), worker.Reschedule(ctx, "\xff\xfe"))
			case "twice":
				errs = append(errs, worker.Reschedule(ctx, "first"), worker.Reschedule(ctx, "second"))
			case "long":
				errs = append(errs, worker.Reschedule(ctx, strings.Repeat("é", 150)[1:]))
			case "panics":
				errs = append(errs, worker.Reschedule(ctx, "why"))
				panic("at once")
			case "ends":
				return nil
			}
			return until(ctx, task)
		}, worker.WithCompletion(func(string) {}))
		does := func(task string) []error {
			ctxs, errs = nil, nil
			require.NoError(t, w.Add(t.Context(), task))
			synctest.Wait()
			return errs
		}
		for _, err := range does("empty") {
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.ErrorContains(t, err, "without a reason")
		}
		require.Equal(t, "empty:running ", states(w), "nothing has changed")

		twice := does("twice")
		require.NoError(t, twice[0])
		require.ErrorIs(t, twice[1], worker.ErrRescheduled)
		require.ErrorContains(t, twice[1], "first")
		require.ErrorContains(t, w.Add(t.Context(), "twice"), "first")

		require.NoError(t, does("long")[0])
		text := w.Add(t.Context(), "long").Error()
		require.True(t, strings.HasSuffix(text, ": "+strings.Repeat("é", 99)), text)

		require.NoError(t, does("panics")[0])
		require.ErrorIs(t, w.Add(t.Context(), "panics"), orchestrator.ErrElsewhere)

		does("ends")
		require.ErrorIs(t, worker.Reschedule(ctxs[0], "late"), worker.ErrReturned)
		require.Equal(t, "empty:running ends:completed ", states(w))

		does("removed")
		require.NoError(t, w.Remove(t.Context(), "removed"))
		require.ErrorIs(t, worker.Reschedule(ctxs[0], "late"), worker.ErrRemoved)
		require.NoError(t, w.Add(t.Context(), "removed"))
	})(t)
}

// An Add that waits until the task is ready is told that it stops.
func TestW9_BeforeItIsReady(t *testing.T) {
	inBubble(func(t *testing.T) {
		w := newWorker(t, asks, worker.WithReadiness())
		require.ErrorIs(t, w.Add(t.Context(), "a"), orchestrator.ErrStopping)
		require.ErrorIs(t, w.Add(t.Context(), "a"), orchestrator.ErrElsewhere)
	})(t)
}

// A lost lease does not change the machine.
func TestW9_OutlastsTheLease(t *testing.T) {
	inBubble(func(t *testing.T) {
		w := newWorker(t, asks, worker.WithLease(time.Minute, 2*time.Second))
		w.Sending()()
		require.NoError(t, w.Add(t.Context(), "a"))
		synctest.Wait()
		w.EndLease(nil)
		require.NoError(t, w.Rejoin(t.Context()))
		w.Sending()()
		require.ErrorIs(t, w.Add(t.Context(), "a"), orchestrator.ErrElsewhere)
		require.NoError(t, w.Add(t.Context(), "stays"))
		w.EndLease(nil)
	})(t)
}

func TestW9_KeepsSoManyRefusals(t *testing.T) {
	inBubble(func(t *testing.T) {
		w := newWorker(t, asks)
		const n = 10_050
		for i := range n {
			require.NoError(t, w.Add(t.Context(), fmt.Sprint(i)))
		}
		<-time.After(2 * time.Second)
		require.Empty(t, list(t, w))
		refused := 0
		for i := range n {
			if errors.Is(w.Add(t.Context(), fmt.Sprint(i)), orchestrator.ErrElsewhere) {
				refused++
			}
		}
		require.Equal(t, 10_000, refused)
	})(t)
}
