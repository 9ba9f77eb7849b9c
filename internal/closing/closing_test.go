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
		c := closing.New()
		require.True(t, c.Begin())
		require.False(t, c.Begin(), "once")
		go func() {
			<-c.Drain()
			<-time.After(time.Second)
			c.Finish()
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

func TestClose_SaysToEverybodyThatTheMemberLeftEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := closing.New()
		require.True(t, c.Begin())
		go func() {
			<-c.Leave()
			<-time.After(time.Second)
			c.Finish()
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
		require.ErrorIs(t, <-second, closing.ErrEarly, "who had more patience")
		require.ErrorIs(t, c.Close(t.Context(), never), closing.ErrEarly, "and who comes later")
	})
}

func TestClose_OfOneThatHasNotRun(t *testing.T) {
	c := closing.New()
	failure := errors.New("not yet")
	require.ErrorIs(t, c.Close(t.Context(), func(context.Context) error { return failure }), failure)
	require.NoError(t, c.Close(t.Context(), func(context.Context) error { return nil }), "it may be tried again")
	require.False(t, c.Begin())
}
