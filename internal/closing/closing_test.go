package closing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator/internal/closing"
	"github.com/stretchr/testify/require"
)

func never(context.Context) error { return errors.New("it has run") }

func TestClose_ReturnsOnceTheMemberIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := closing.New(func() { t.Error("it was not late") })
		require.True(t, c.Begin())
		require.False(t, c.Begin(), "once")
		go func() {
			<-c.Drain()
			<-time.After(time.Second)
			c.Finish(nil)
		}()
		began := time.Now()
		require.NoError(t, c.Close(t.Context(), never))
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, c.Close(t.Context(), never), "as often as one likes")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, c.Close(ended, never))
		select {
		case <-c.Leave():
			require.Fail(t, "it was drained, and did not have to leave")
		default:
		}
	})
}

// What a member does after everything has moved is not early, however long it takes.
func TestClose_SaysNothingWhereOnlyTheRestWasSlow(t *testing.T) {
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

// Nobody had to be impatient for a member to lose what it had.
func TestClose_SaysThatTheMemberEndedByItself(t *testing.T) {
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

func TestClose_SaysToEverybodyThatTheMemberLeftEarly(t *testing.T) {
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
		require.Equal(t, err, <-second, "who had more patience")
		require.Equal(t, err, c.Close(t.Context(), never), "and who comes later")
	})
}

func TestClose_OfOneThatHasNotRun(t *testing.T) {
	c := closing.New(func() {})
	failure := errors.New("not yet")
	require.ErrorIs(t, c.Close(t.Context(), func(context.Context) error { return failure }), failure)
	require.NoError(t, c.Close(t.Context(), func(context.Context) error { return nil }), "it may be tried again")
	require.False(t, c.Begin())
}
