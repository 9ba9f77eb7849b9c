package worker

// How transports learn that something has changed, and what they report.

import (
	"context"

	"github.com/f8949c05/orchestrator"
)

// changeLog counts changes. It is guarded by Worker.mu.
type changeLog struct {
	count uint64
	told  uint64        // the count as of the last List or Report of a leader
	next  chan struct{} // closed with the next change; nil: nobody has asked
}

// changed takes note of a change of what Status tells. The lock is held.
func (w *Worker[T]) changed() {
	w.log.count++
	if w.log.next != nil {
		close(w.log.next)
		w.log.next = nil
	}
}

// Changes returns how often what [Worker.Status] tells has changed: a task has
// come or gone, has entered another state, has newer content or another token.
// next is closed with the next change. n is at least 1, never falls, and counts
// on through a [Worker.Rejoin].
func (w *Worker[T]) Changes() (n uint64, next <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log.next == nil {
		w.log.next = make(chan struct{})
	}
	return w.log.count, w.log.next
}

// Report is List, Status and Changes in one step. known is the n of a report
// that the caller has, 0 if none: where nothing has changed since, tasks is nil,
// and nothing is copied. It fails as [Worker.List] does. The slice is the
// caller's.
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

// tell keeps what a call has seen unpinned, if its caller may write: a read without a
// term, as for a dry run, must not change what the leader is known to have seen.
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
