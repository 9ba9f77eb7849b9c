package manager

// The ledger's leases: heartbeats, failing calls, and expiry.

import (
	"context"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
)

// start records that workers can reach the manager from now on.
func (l *committer) start() {
	_ = l.look(func(b *state.State, now time.Time) error { // fails only if closed: no worker is served then
		b.Start(now)
		return nil
	})
}

// called records whether a call to a worker was answered.
func (l *committer) called(w state.Worker, answered bool) {
	_ = l.look(func(b *state.State, now time.Time) error { // fails only if closed: leases no longer matter then
		b.Called(now, w, answered)
		return nil
	})
}

// alone reports whether no member other than w can take tasks.
func (l *committer) alone(w state.Worker) (alone bool) {
	_ = l.look(func(b *state.State, now time.Time) error { // fails only if closed: alone is false then
		alone = b.Alone(now, w.Name)
		return nil
	})
	return alone
}

// expire ends memberships whose leases have expired, until ctx is done.
func (l *committer) expire(ctx context.Context) {
	for {
		var next time.Time
		err := l.look(func(b *state.State, now time.Time) error {
			next = b.Expire(now)
			return nil
		})
		if err != nil || !l.pause(ctx, next) {
			return
		}
	}
}

// pause returns true at the given time, or earlier if there is a new lease, and
// false when ctx is done. The zero time means never.
func (l *committer) pause(ctx context.Context, until time.Time) bool {
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

// hurry makes expire look at the leases again, because there is a new one.
func (l *committer) hurry() {
	select {
	case l.sooner <- struct{}{}:
	default: // a token is there already
	}
}

// left reports whether a former member has called Leave.
func (l *committer) left(w state.Worker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.Left(w)
}

// complete sets the fields of members that only the book knows.
func (l *committer) complete(members []MemberState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range members {
		m := &members[i]
		m.Heard, m.Until, m.Failing = l.book.Seen(state.Worker(m.Worker))
	}
}
