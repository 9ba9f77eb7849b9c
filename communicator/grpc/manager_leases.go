package grpc

// The ledger's leases: who is heard, who can be called, and whose time is over.

import (
	"context"
	"time"
)

// start says that workers can be heard from now on.
func (l *ledger) start() {
	_ = l.look(func(b *book, now time.Time) error { // closed: then nobody is heard
		b.start(now)
		return nil
	})
}

// called says whether a call to a worker was answered.
func (l *ledger) called(w Worker, answered bool) {
	_ = l.look(func(b *book, now time.Time) error { // closed: then it does not matter
		b.called(now, w, answered)
		return nil
	})
}

// alone reports whether no other member than a worker can take tasks.
func (l *ledger) alone(w Worker) (alone bool) {
	_ = l.look(func(b *book, now time.Time) error { // closed: then it is not known
		alone = b.alone(now, w.Name)
		return nil
	})
	return alone
}

// expire ends memberships whose leases have run out, until ctx ends.
func (l *ledger) expire(ctx context.Context) {
	for {
		var next time.Time
		err := l.look(func(b *book, now time.Time) error {
			next = b.expire(now)
			return nil
		})
		if err != nil || !l.pause(ctx, next) {
			return
		}
	}
}

// pause returns when it is time, or may be, with true, or when ctx has ended. The
// zero time is never.
func (l *ledger) pause(ctx context.Context, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-l.sooner:
	case <-ctx.Done():
		return false
	}
	return true
}

// hurry has the leases be looked at again: there is a new one.
func (l *ledger) hurry() {
	select {
	case l.sooner <- struct{}{}:
	default: // it is going to be
	}
}

// left reports whether a worker that is no member any more has left by itself.
func (l *ledger) left(w Worker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.ended.left(w)
}

// complete adds to members what only the book knows.
func (l *ledger) complete(members []MemberState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range members {
		m := &members[i]
		if kept := l.book.members[m.Name]; kept != nil && kept.Worker == m.Worker {
			live := l.book.live[m.Name]
			m.Heard, m.Until, m.Failing = live.heard, live.until, live.failing
		}
	}
}
