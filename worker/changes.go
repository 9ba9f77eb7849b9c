package worker

// How transports learn of changes, and what they report.

import (
	"context"

	"github.com/f8949c05/orchestrator"
)

// changeLog counts changes. Worker.mu guards it.
type changeLog struct {
	count uint64
	told  uint64        // count at the last List or Report of a leader
	next  chan struct{} // closed with the next change; nil: not requested
}

// changed records a change of what Status returns. The caller holds mu.
func (w *Worker[T]) changed() {
	w.log.count++
	if w.log.next != nil {
		close(w.log.next)
		w.log.next = nil
	}
}

// Changes returns how often the result of [Worker.Status] has changed: a task was
// added or has gone, has entered another state, or has newer content or another
// token. next is closed with the next change. n is at least 1, never falls, and is
// kept across a [Worker.Rejoin].
func (w *Worker[T]) Changes() (n uint64, next <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log.next == nil {
		w.log.next = make(chan struct{})
	}
	return w.log.count, w.log.next
}

// Report combines List, Status and Changes in one step. known is the n of an earlier
// report, or 0. If nothing has changed since that report, tasks is nil and nothing
// is copied. Report fails as [Worker.List] does. The caller owns the slice.
func (w *Worker[T]) Report(ctx context.Context, known uint64) (n uint64, tasks []TaskStatus[T], err error) {
	c := callerOf(ctx)
	if c.ended != nil {
		return 0, nil, c.ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitRead(c); err != nil {
		return 0, nil, err
	}
	if known != w.log.count {
		tasks = w.status()
	}
	w.tell(c)
	return w.log.count, tasks, nil
}

// tell records which tasks the leader has now seen unpinned. Once the worker has
// seen a term, a read without one, such as that of a dry run, is not the leader's
// and is not recorded. The caller holds mu.
func (w *Worker[T]) tell(c caller) {
	leads := c.hasTerm || w.fence == (orchestrator.Term{})
	if w.hooks.completed == nil || !leads || w.log.told == w.log.count {
		return
	}
	w.log.told = w.log.count
	for e := range w.order.all() {
		e.unpinned = !w.pinned(e)
	}
}
