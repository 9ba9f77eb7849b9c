package membership_test

// W6: the end of Run's context.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager/internal/membership"
)

// draining returns a member that drains when the context of Run has ended.
func draining(t *testing.T, c *cluster) *member {
	t.Helper()
	m := newMember(t, c, nil)
	m.runner.Drain = membership.DefaultDrain
	return m.start()
}

// Run's context ends, and the tasks move.
func TestW6_RunDrainsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := draining(t, &cluster{})
		m.add("a", "b")
		m.cancel(errOver)
		after(membership.DefaultDrain - time.Second)
		require.Equal(t, []string{"join", "announce"}, m.noted())
		require.NoError(t, m.worker.Remove(t.Context(), "a"))
		require.NoError(t, m.worker.Remove(t.Context(), "b"))
		require.True(t, m.ended())
		require.Equal(t, errOver, m.err)
		require.NoError(t, m.runner.Close(t.Context()))
		require.Zero(t, m.said("drain cut short"))
	})
}

// They do not move in time: Run stops them, and its error says so.
func TestW6_RunDrainsNoLongerThanItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := draining(t, &cluster{})
		m.add("a", "b")
		m.cancel(errOver)
		after(membership.DefaultDrain - 1)
		require.False(t, m.ended())
		after(1)
		require.True(t, m.ended())
		require.ErrorIs(t, m.err, errOver)
		require.ErrorContains(t, m.err, "stopped before everything had moved")
		require.Equal(t, 1, m.said("drain cut short, stopping remaining tasks"))
		require.ErrorIs(t, m.runner.Close(t.Context()), errOver)
	})
}

// Nothing is to be drained: Run ends at once.
func TestW6_RunHasNothingToDrain(t *testing.T) {
	for name, c := range map[string]*cluster{
		"no tasks":         {},
		"it joins":         {join: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }},
		"a pause":          {away: errAway},
		"nobody else":      {alone: true},
		"before it begins": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c == nil {
					m := newMember(t, &cluster{}, nil)
					m.runner.Drain = membership.DefaultDrain
					ctx, cancel := context.WithCancelCause(t.Context())
					cancel(errOver)
					err := m.runner.Run(ctx, func(ctx context.Context) error { return m.runner.Sessions(ctx, m.config()) })
					require.Equal(t, errOver, err)
					return
				}
				m := draining(t, c)
				if c.alone {
					m.add("a")
				}
				began := time.Now()
				m.cancel(errOver)
				require.True(t, m.ended())
				require.Equal(t, errOver, m.err)
				require.Equal(t, began, time.Now())
			})
		})
	}
}

// Close with less time than Run cuts the drain short, and one with more does not make it longer.
func TestW6_CloseWhileRunDrains(t *testing.T) {
	for _, within := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m := draining(t, &cluster{})
			m.add("a")
			m.cancel(errOver)
			began := time.Now()
			err := <-m.closeWithin(within)
			require.ErrorContains(t, err, "stopped before everything had moved")
			require.Equal(t, min(within, membership.DefaultDrain), time.Since(began))
			require.True(t, m.ended())
			require.ErrorIs(t, m.err, errOver)
		})
	}
}

// Tasks that ignore their context are named when their time is over. The lease is kept for them.
func TestW6_TasksThatIgnoreTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := draining(t, &cluster{alone: true})
		m.stop = time.Hour
		m.add("a", "b")
		m.cancel(errOver)
		after(stopping - 1)
		require.Zero(t, m.said("tasks do not stop"))
		after(time.Minute)
		require.Equal(t, 1, m.said(`level=ERROR msg="tasks do not stop, the process waits for them and keeps their lease" worker=w tasks="[a b]"`))
		require.Zero(t, m.said("lease lost"))
		require.False(t, m.ended())
		after(time.Hour)
		require.True(t, m.ended())
		require.Equal(t, 1, m.said("tasks do not stop"))
	})
}
