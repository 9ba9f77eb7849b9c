package orchestrator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// hanging has the List of one worker hang, whatever becomes of its context.
type hanging struct {
	*workers
	name    string
	release chan struct{}
}

func (c *hanging) List(ctx context.Context, worker string) ([]string, error) {
	if worker == c.name {
		<-c.release
	}
	return c.workers.List(ctx, worker)
}

// A call to a worker that was removed, and that fails late, says nothing of the
// one that was added under the same name: that one was not asked yet, for want of
// a slot, and nobody is lost unasked.
func TestT4_LateFailureOfAPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := newWorkers(t, "w1", "w2")
		o.cfg.grace, o.cfg.concurrency = 0, 1
		require.NoError(t, o.NextTerm(t.Context()))
		c.answerAfter(time.Hour, "w2")
		require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent)
		require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent, "it is asked, and not waited for")
		o.RemoveWorker("w2")
		require.NoError(t, o.AddWorker("w2"))
		require.ErrorIs(t, o.NextTerm(t.Context()), ErrSilent, "the line to it is busy")
		time.Sleep(11 * time.Second) // the call to the first w2 fails
		c.answerAfter(0, "w2")

		stuck := &hanging{workers: c, name: "w1", release: make(chan struct{})}
		defer close(stuck.release)
		o.comm = stuck
		require.ErrorIs(t, o.NextTerm(t.Context()), errNoSlot)
		require.Equal(t, "w2", o.LastActual()[1].Name)
		require.Equal(t, Silent, o.LastActual()[1].State)
	})
}
