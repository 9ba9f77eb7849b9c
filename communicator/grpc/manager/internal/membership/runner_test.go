package membership_test

// Joining, and joining again.

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/worker"
)

func TestRun_TheOrderOfLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{})
		m.add("a")
		m.stop = time.Minute // far longer than the lease
		m.cancel(errOver)
		after(time.Minute - time.Second)
		require.Equal(t, []string{"join"}, m.noted())
		require.Len(t, m.worker.Status(), 1)
		after(time.Second)
		require.True(t, m.ended())
		require.ErrorIs(t, m.err, errOver)
		require.Equal(t, []string{"join", "stopped", "leave"}, m.noted())
		require.ErrorIs(t, m.worker.Rejoin(t.Context()), worker.ErrClosed)
		require.Zero(t, m.said("level=WARN"))
	})
}

// A membership that is lost stops all tasks, and another one begins.
func TestRun_JoinsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		lose  func(*member)
		cause error
	}{
		"Keep fails": {func(m *member) { m.lost <- errAway }, errAway},
		"the lease is not renewed": {func(m *member) {
			m.set(func(c *cluster) { c.silent = true })
			after(lease)
			m.set(func(c *cluster) { c.silent = false })
		}, worker.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := startMember(t, &cluster{})
				m.add("a")
				before := m.worker.Incarnation()
				c.lose(m)
				after(50 * time.Millisecond)
				require.Equal(t, []string{"join", "leave", "join"}, m.noted())
				require.Empty(t, m.worker.Status())
				require.Len(t, m.causes, 1)
				require.ErrorIs(t, m.causes[0], c.cause)
				require.NotEqual(t, before, m.worker.Incarnation())
				require.Equal(t, 1, m.said("membership lost"))
				m.add("a")
			})
		})
	}
}

// A member leaves when nothing of the session is left.
func TestRun_LeavesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{ends: time.Minute})
		m.add("a")
		m.stop = time.Hour
		m.lost <- errAway
		after(time.Second)
		m.cancel(errOver)
		after(time.Hour - 2*time.Second)
		require.Equal(t, []string{"join"}, m.noted(), "a task has not stopped")
		after(time.Second)
		require.Equal(t, []string{"join", "stopped", "leave"}, m.noted())

		m = startMember(t, &cluster{ends: time.Minute})
		m.cancel(errOver)
		after(time.Minute)
		require.Equal(t, []string{"join", "stopped", "kept", "leave"}, m.noted())
	})
}

// A member that has not joined tries again until its context ends, and loses no lease.
func TestRun_JoinFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{away: errAway})
		after(10 * time.Second)
		require.Zero(t, m.said("lease lost"))
		m.cancel(errOver)
		require.True(t, m.ended())
		require.ErrorIs(t, m.err, errOver)
	})
}

// The pauses between sessions grow, and begin again after a membership.
func TestRun_PausesBetweenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{away: errAway})
		after(10 * time.Second)
		pauses := m.pauses()
		for i, longest := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
			require.LessOrEqual(t, pauses[2*i+1], longest*time.Millisecond) // after leaving
			require.GreaterOrEqual(t, pauses[2*i+1], longest*time.Millisecond/2)
		}
		m.set(func(c *cluster) { c.away = nil })
		after(time.Second)
		joined := len(m.noted())
		m.lost <- errAway
		after(time.Second)
		require.Equal(t, []string{"leave", "join"}, m.noted()[joined:])
		require.LessOrEqual(t, m.pauses()[joined], 50*time.Millisecond)
	})
}

// A final error ends Run.
func TestRun_EndsIfNothingHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{away: errFinal})
		require.True(t, m.ended())
		require.ErrorIs(t, m.err, errFinal)
		require.Equal(t, []string{"join", "stopped", "leave"}, m.noted())
		require.NoError(t, m.runner.Close(t.Context()))
	})
}

// A worker that is closed meanwhile cannot join again.
func TestRun_TheWorkerWasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, &cluster{})
		require.NoError(t, m.worker.Close(t.Context()))
		m.lost <- errAway
		require.True(t, m.ended())
		require.ErrorIs(t, m.err, worker.ErrClosed)
		require.ErrorIs(t, m.err, errAway)
	})
}

// The context of Join ends with the session, such as if the lease is lost.
func TestRun_JoinEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []error
		m := startMember(t, &cluster{join: func(ctx context.Context) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return context.Cause(ctx)
		}})
		m.worker.EndLease(errAway)
		after(time.Second)
		require.Len(t, causes, 1)
		require.EqualError(t, causes[0], "lease may have expired")
		require.Equal(t, []string{"join", "leave", "join"}, m.noted())
	})
}

// Tasks that still stop when the last membership is lost have the usual margin.
func TestW5_TheMembershipIsLostWhileLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var resort time.Time
		m := startMember(t, &cluster{}, worker.WithLastResort(func([]string) { resort = time.Now() }))
		m.add("a")
		m.stop = time.Hour
		m.cancel(errOver)
		after(time.Minute)
		require.Zero(t, resort)
		lost := time.Now()
		m.lost <- errAway
		after(lease)
		require.Equal(t, stopping, resort.Sub(lost))
	})
}
