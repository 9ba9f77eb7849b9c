package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// took runs f and returns how long it took.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// listed returns the tasks that w1 lists when the network is healthy.
func listed(t *testing.T, c *cluster) []string {
	t.Helper()
	tasks, err := c.List(t.Context(), "w1")
	require.NoError(t, err)
	return tasks
}

func TestCut_FailsAtOnceWhileTasksRunOn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		require.NoError(t, c.Add(t.Context(), "w1", "a"))
		c.Cut("w1")
		require.Zero(t, took(func() {
			_, err := c.List(t.Context(), "w1")
			require.ErrorIs(t, err, memory.ErrCut)
			err = c.Remove(t.Context(), "w1", "a")
			require.ErrorIs(t, err, memory.ErrCut)
			require.NotErrorIs(t, err, orchestrator.ErrRejected)
			require.NoError(t, c.Add(t.Context(), "w2", "a"), "other workers are not affected")
		}))
		require.Equal(t, []string{"w1", "w2"}, c.Running("a"))
		c.Heal("w1")
		require.Equal(t, []string{"a"}, listed(t, c))
	})
}

func TestHang_EndsWithTheContext(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		c.Hang("w1", "w2")
		require.Equal(t, time.Second, took(func() {
			require.ErrorIs(t, c.Add(within(t, time.Second), "w1", "a"), context.DeadlineExceeded)
		}))
		healed := time.AfterFunc(time.Second, func() { c.Heal() })
		defer healed.Stop()
		require.Equal(t, time.Second, took(func() {
			require.NoError(t, c.Add(t.Context(), "w1", "b"))
		}))
		require.Equal(t, []string{"b"}, listed(t, c), "a call whose context ended never arrives")
	})
}

func TestStick_IgnoresTheContext(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		c.Stick("w1")
		healed := time.AfterFunc(time.Minute, func() { c.Heal("w1") })
		defer healed.Stop()
		require.Equal(t, time.Minute, took(func() {
			require.NoError(t, c.Add(within(t, time.Second), "w1", "a"))
		}))
		require.Equal(t, []string{"w1"}, c.Running("a"))
	})
}

func TestSlow_IsGivenUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		c.Slow(2*time.Second, "w1")
		require.Equal(t, 2*time.Second, took(func() {
			require.NoError(t, c.Add(t.Context(), "w1", "a"))
		}))
		require.Equal(t, time.Second, took(func() {
			require.ErrorIs(t, c.Add(within(t, time.Second), "w1", "b"), context.DeadlineExceeded)
		}))
		<-time.After(time.Minute)
		require.Equal(t, []string{"a"}, listed(t, c))
	})
}

func TestLate_ArrivesAfterTheCallerGaveUp(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		c.Late(2*time.Second, "w1")
		require.ErrorIs(t, c.Add(within(t, time.Second), "w1", "a"), context.DeadlineExceeded)
		require.Empty(t, c.RunsOn("w1"))
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a"}, c.RunsOn("w1"))
		require.NoError(t, c.Remove(t.Context(), "w1", "a"), "a waiting caller gets the answer")
	})
}

func TestC7_LateWriteIsFencedOff(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		c.Late(2*time.Second, "w1")
		require.ErrorIs(t, c.Add(term(within(t, time.Second), 3), "w1", "a"), context.DeadlineExceeded)
		c.Heal()
		_, err := c.List(term(t.Context(), 4), "w1")
		require.NoError(t, err)
		<-time.After(time.Minute)
		require.Empty(t, c.RunsOn("w1"))
	})
}

func TestHoldWrites_LetsListsThrough(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		release := c.HoldWrites("w1")
		require.ErrorIs(t, c.Add(within(t, time.Second), "w1", "a"), context.DeadlineExceeded)
		waiting := begin(func() error { return c.Add(t.Context(), "w1", "b") })
		require.Empty(t, listed(t, c))
		release()
		require.ElementsMatch(t, []string{"a", "b"}, c.RunsOn("w1"))
		require.NoError(t, <-waiting)
		release()
		require.NoError(t, c.Remove(t.Context(), "w1", "a"))

		release = c.HoldWrites("w1")
		c.Cut("w1")
		release()
		_, err := c.List(t.Context(), "w1")
		require.ErrorIs(t, err, memory.ErrCut, "another switch was set since")
	})
}

func TestLoseAnswers_DoesWhatItIsTold(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *cluster) {
		c.LoseAnswers("w1")
		require.Equal(t, time.Second, took(func() {
			require.ErrorIs(t, c.Add(within(t, time.Second), "w1", "a"), context.DeadlineExceeded)
		}))
		require.Equal(t, []string{"w1"}, c.Running("a"))
		tasks, err := c.List(within(t, time.Second), "w1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Nil(t, tasks)
	})
}
