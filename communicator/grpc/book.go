package grpc

// The book: the decisions of a manager, event by event. It is pure: no clock, no
// lock, no I/O. Members are in book_members.go, tasks in book_tasks.go.

import (
	"errors"
	"time"
)

// Errors with which the book refuses an event. Each is wrapped with the names
// involved.
var (
	errNameTaken      = errors.New("name is taken")
	errMembershipOver = errors.New("membership of this incarnation has ended")
	errNotMember      = errors.New("not a member")
	errUnreachable    = errors.New("cannot be called")
	errLeft           = errors.New("worker has left")
)

// rules are the settings of a book.
type rules struct {
	leaseMin, leaseMax time.Duration
	// unreachable is how long calls to a member may fail before its lease is no
	// longer renewed.
	unreachable time.Duration
}

// book is the complete state of a manager. Its methods are the possible events. Each
// event adds the changes that must be stored to change, for take to collect. The
// argument now may run back only by the small difference between two goroutines that
// read the clock.
type book struct {
	rules
	records         // as decided, may be ahead of the store
	change  records // since the last take

	started bool
	live    map[string]*member // one for each of records.members
	unheard int                // number of those not heard since the start
	ended   ended
}

// member is the state of a member that is not stored.
type member struct {
	heard   time.Time // last heartbeat or registration; zero: none since the start
	until   time.Time // when the lease expires; zero: before the start
	failing time.Time // first failed call since the last answered one; zero: none
	failed  time.Time // last failed call
}

// newBook returns the book of a manager that starts with the stored records, in the
// next epoch.
func newBook(r rules, kept records) *book {
	b := &book{
		rules: r, records: kept.clone(), change: newRecords(),
		live: make(map[string]*member), unheard: len(kept.members),
		ended: newEnded(),
	}
	for name := range kept.members {
		b.live[name] = &member{}
	}
	b.epoch++
	b.change.epoch = b.epoch
	return b
}

// changed reports whether there are changes to take.
func (b *book) changed() bool { return !b.change.empty() }

// take returns the changes since the last call.
func (b *book) take() records {
	taken := b.change
	b.change = newRecords()
	return taken
}

// set sets a value in the book and in the change. The zero value deletes it.
func set[V comparable](kept, change map[string]V, name string, v V) {
	change[name] = v
	applyTo(kept, map[string]V{name: v})
}
