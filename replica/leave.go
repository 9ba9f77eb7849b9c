package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/backoff"
)

// leaving is the end of a replica (A6).
type leaving struct {
	stop     <-chan struct{} // closed when the replica is to leave; nil once it was seen
	deadline <-chan time.Time
	expired  bool
	tasks    int        // that were stopped because they had not moved
	closed   chan error // nil: the tasks may still move
}

// closeTasks stops the tasks that are left, once none are, none could move, or WithDrain
// has passed.
func (l *loop) closeTasks(ctx context.Context) {
	if !l.e.self.Draining || l.leave.closed != nil {
		return
	}
	n, alone := len(l.r.worker.Status()), !l.e.synced || l.r.s.lead || l.e.isAlone()
	if n > 0 && !alone && !l.leave.expired {
		return
	}
	if !alone {
		l.leave.tasks += n
	}
	closed := make(chan error, 1)
	l.leave.closed, l.leave.deadline = closed, time.After(max(l.r.s.stop, time.Second))
	l.r.parts.Go(func() { closed <- l.r.worker.Close(ctx) })
}

// wait waits for the next reason to look. done: the replica has ended, with err.
func (l *loop) wait(ctx context.Context, changes <-chan struct{}) (done bool, err error) {
	now := time.Now()
	pause := min(l.e.self.Lease/12, 500*time.Millisecond)
	woken := l.r.woken
	if l.failed != nil { // it waits, whatever happens
		woken, changes = nil, nil
	} else if l.joined {
		sync, read := l.due(now)
		pause = min(sync.Sub(now), read.Sub(now))
		l.beginWait(ctx)
	}
	select {
	case <-l.r.killed:
		return true, nil
	case <-l.leave.stop:
		l.leave.stop, l.leave.deadline = nil, time.After(l.r.s.drain)
		l.e.self.Draining = true
		l.stopLeading("the replica is draining")
		l.r.log.Info("leaves", "tasks", len(l.r.worker.Status()))
	case <-l.leave.deadline:
		have := slices.Sorted(maps.Keys(l.acts.have()))
		if l.leave.expired = true; l.leave.closed != nil && len(have) > 0 {
			l.r.log.Warn("tasks do not stop, the last resort is called at the end of the lease", slices.Concat([]any{"tasks", have}, l.r.s.exits)...)
		}
	case err := <-l.leave.closed:
		return true, l.end(ctx, err)
	case err := <-l.waits:
		l.waits, l.hears = nil, err == nil || errors.Is(err, context.DeadlineExceeded)
		if err == nil {
			backoff.Sleep(ctx, time.Until(l.lastRead.Add(2*time.Millisecond))) // it may return at once, again and again
			l.lastRead = time.Time{}
		} else if !l.hears {
			l.deaf = now.Add(30 * time.Second)
		}
	case <-woken:
	case <-changes:
	case <-time.After(max(pause, time.Millisecond)):
	}
	return false, nil
}

// beginWait asks the backend to tell when something has changed.
func (l *loop) beginWait(ctx context.Context) {
	if l.r.waiter == nil || l.waits != nil || !l.e.synced || l.since == "" || time.Now().Before(l.deaf) {
		return
	}
	q := Query{Self: l.e.self.ID, Server: l.e.head.Server, Since: l.since, Follow: l.lead != nil || l.follows != nil}
	waits := make(chan error, 1)
	l.waits = waits
	ctx, cancel := context.WithTimeout(ctx, l.e.self.Lease) // the ID may change
	l.r.parts.Go(func() {
		defer cancel()
		waits <- l.r.waiter.Wait(ctx, q)
	})
}

// end is the end of a replica whose tasks have stopped.
func (l *loop) end(ctx context.Context, err error) error {
	if err != nil {
		return fmt.Errorf("stop the tasks: %w", err)
	}
	l.remove(ctx)
	l.r.log.Info("has left", "stopped", l.leave.tasks)
	if l.leave.tasks > 0 && !l.r.s.lead {
		return fmt.Errorf("%w: %d tasks were stopped", ErrUndrained, l.leave.tasks)
	}
	return nil
}

// remove removes the record of a replica whose tasks have stopped, so that others wait for no
// lease.
func (l *loop) remove(ctx context.Context) {
	if !l.tried && len(l.e.left) == 0 {
		return
	}
	u := l.e.update(time.Now(), 0)
	u.Campaign, u.Confirm, u.Left = 0, false, append(slices.Clip(u.Left), u.Self)
	_, err := l.call(ctx, "leave the table", func(ctx context.Context) (View, error) { return l.r.backend.Sync(ctx, u) })
	if err != nil && !errors.Is(err, ErrEvicted) {
		l.r.log.Warn("record not removed, others wait for one lease", "err", err)
	}
}
