package closing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/closing"
)

func never(context.Context) error { return errors.New("stop was called for a running member") }

func TestClose_ReturnsOnceTheMemberIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := closing.New(func() { t.Error("late was called in time") })
		require.True(t, c.Begin())
		require.False(t, c.Begin(), "a second run")
		go func() {
			<-c.Drain()
			<-time.After(time.Second)
			c.Finish(nil)
		}()
		began := time.Now()
		require.NoError(t, c.Close(t.Context(), never))
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, c.Close(t.Context(), never), "a repeated Close")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, c.Close(ended, never))
		select {
		case <-c.Leave():
			require.Fail(t, "a drained member was told to leave")
		default:
		}
	})
}

// What a member does after all tasks have moved is not early, however long it takes.
func TestClose_SucceedsIfOnlyTheEndWasSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := closing.New(func() {})
		require.True(t, c.Begin())
		require.NoError(t, c.Hurried())
		go func() {
			<-c.Leave()
			c.Finish(nil)
		}()
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		require.NoError(t, c.Close(ctx, never))
		require.ErrorIs(t, c.Hurried(), enough)
	})
}

// A member can lose its tasks without an impatient Close.
func TestClose_ReportsThatTheMemberEndedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := closing.New(func() {})
		require.True(t, c.Begin())
		lost := errors.New("lost")
		go func() {
			<-c.Drain()
			c.Finish(lost)
		}()
		for range 2 {
			err := c.Close(t.Context(), never)
			require.ErrorIs(t, err, closing.ErrEarly)
			require.ErrorIs(t, err, lost)
		}
		require.NoError(t, c.Hurried())
	})
}

func TestClose_ReturnsTheSameErrorToAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lates := 0
		c := closing.New(func() { lates++ })
		require.True(t, c.Begin())
		go func() {
			<-c.Leave()
			<-time.After(time.Second)
			c.Finish(c.Hurried())
		}()
		second := make(chan error, 1)
		go func() { second <- c.Close(t.Context(), never) }()
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		began := time.Now()
		err := c.Close(ctx, never)
		require.ErrorIs(t, err, closing.ErrEarly)
		require.ErrorIs(t, err, enough)
		require.Equal(t, time.Minute+time.Second, time.Since(began))
		require.Equal(t, 1, lates)
		require.Equal(t, err, <-second, "a Close with more time")
		require.Equal(t, err, c.Close(t.Context(), never), "a later Close")
	})
}

func TestClose_OfOneThatHasNotRun(t *testing.T) {
	c := closing.New(func() {})
	failure := errors.New("not yet")
	require.ErrorIs(t, c.Close(t.Context(), func(context.Context) error { return failure }), failure)
	require.NoError(t, c.Close(t.Context(), func(context.Context) error { return nil }), "a retry")
	require.False(t, c.Begin())
}
