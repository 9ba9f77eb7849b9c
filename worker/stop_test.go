package worker_test

// Stop, the first half of Close, and the figures of the lease.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

// completing completes the task called short, and runs the others until their
// context ends, after which they take a second to stop.
func completing(ctx context.Context, task string) error {
	if task == "short" {
		return nil
	}
	<-ctx.Done()
	<-time.After(time.Second)
	return context.Cause(ctx)
}

func TestW6_StopKeepsWhatHasCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaper()
		w := newWorker(t, completing, worker.WithRecord(p), worker.WithCompletion(func(string) {}), worker.WithSlots(2))
		require.Nil(t, w.Apply(t.Context(), add("short", "a", "b", "queued")))
		pass(10 * time.Second)
		require.Equal(t, "short:completed a:running b:running queued:queued ", states(w))

		err := w.Stop(within(t, time.Second/2))
		require.EqualError(t, err, "stop worker: 2 tasks have not stopped: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "short:completed a:stopping b:stopping ", states(w))
		require.ErrorIs(t, w.Add(t.Context(), "c"), orchestrator.ErrRejected)

		began := time.Now()
		require.NoError(t, w.Stop(t.Context()))
		require.Equal(t, time.Second/2, time.Since(began))
		require.Equal(t, "short:completed ", states(w))
		pass(10 * time.Second)
		require.Len(t, p.traces, 1)
		require.False(t, p.torn)

		require.NoError(t, w.Update(t.Context(), "short", worker.Grant{Version: 5}))
		require.NoError(t, w.Stop(t.Context()), "no task is run again")
		require.NoError(t, w.Close(t.Context()))
		require.Empty(t, list(t, w))
		require.True(t, p.torn)
		require.NoError(t, w.Stop(t.Context()))
	})
}

// A lease lost between Stop and Close ends no run, because none is left.
func TestW5_TheLeaseIsLostAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := leased(t, completing, worker.WithCompletion(func(string) {}),
			worker.WithLastResort(func([]string) { t.Error("all tasks have stopped") }))
		require.Nil(t, w.Apply(t.Context(), add("short", "a")))
		synctest.Wait()
		require.NoError(t, w.Stop(t.Context()))
		require.Equal(t, "short:completed ", states(w))
		<-w.Fenced()
		require.Empty(t, list(t, w))
		require.NoError(t, w.Close(t.Context()))
		pass(time.Hour)
	})
}

func TestW5_TheFiguresOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		figures := func(w *worker.Worker[string]) worker.LeaseStats {
			s := w.LeaseStats()
			s.Left = s.Left.Round(time.Second) // the lease also reads a real clock, outside the bubble
			return s
		}
		without := newWorker(t, until)
		require.Zero(t, figures(without))

		w := newWorker(t, until, worker.WithLease(length, toStop))
		require.Zero(t, figures(w))
		acknowledged := w.Sending()
		require.Equal(t, worker.LeaseStats{Sent: 1}, figures(w))
		pass(2 * time.Second)
		acknowledged()
		acknowledged()
		require.Equal(t, worker.LeaseStats{Left: told - 2*time.Second, Sent: 1, Acknowledged: 1}, figures(w), "the lease counts from the sending")
		w.Sending() // this request is never acknowledged
		w.Sending()()
		require.Equal(t, worker.LeaseStats{Left: told, Sent: 3, Acknowledged: 2}, figures(w))

		pass(told)
		require.Equal(t, worker.LeaseStats{Sent: 3, Acknowledged: 2}, figures(w), "the lease is lost")
		require.NoError(t, w.Rejoin(t.Context()))
		require.Equal(t, worker.LeaseStats{Sent: 3, Acknowledged: 2, Rejoins: 1}, figures(w))
		w.Sending()()
		require.Equal(t, worker.LeaseStats{Left: told, Sent: 4, Acknowledged: 3, Rejoins: 1}, figures(w))
		w.GiveUp(errors.New("gone"))
		require.Zero(t, figures(w).Left)
	})
}
