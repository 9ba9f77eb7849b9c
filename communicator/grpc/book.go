package grpc

// The book: what a manager decides, event by event. It is pure: no clock, no
// lock, no I/O. Members are in book_members.go, tasks in book_tasks.go.

import (
	"errors"
	"time"
)

// Why the book refuses what it is asked for. Each is wrapped with the names
// involved.
var (
	errNameTaken      = errors.New("the name is taken")
	errMembershipOver = errors.New("this incarnation's membership has ended")
	errNotMember      = errors.New("no member")
	errUnreachable    = errors.New("cannot be called")
	errLeft           = errors.New("it has left")
)

// rules are what a book goes by.
type rules struct {
	leaseMin, leaseMax time.Duration
	// unreachable is how long calls to a member may fail before its lease is no
	// longer renewed.
	unreachable time.Duration
}

// book is everything that a manager knows. Its methods are the events that can
// happen; each leaves behind what has to be on disk before anybody is told of
// it, for take to collect. now never runs back by more than the moment that
// lies between two goroutines that read the clock.
type book struct {
	rules
	records         // as decided, which may be ahead of the disk
	change  records // since take

	started bool
	live    map[string]*member // one for each of records.members
	unheard int                // how many of those have not been heard since the start
	ended   ended
}

// member is what is known of a member that is not on disk.
type member struct {
	heard   time.Time // zero: not since the start
	until   time.Time // when its lease has run out; zero: before the start
	failing time.Time // the first call that failed since one was answered; zero: none
	failed  time.Time // the last one that did
}

// newBook returns the book of a manager that was started with what is on disk,
// in an epoch of its own.
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

// changed reports whether there is something to be taken.
func (b *book) changed() bool { return !b.change.empty() }

// take returns what has changed since it was called last.
func (b *book) take() records {
	taken := b.change
	b.change = newRecords()
	return taken
}

// set notes a value, or with the zero value that there is none any more.
func set[V comparable](kept, change map[string]V, name string, v V) {
	change[name] = v
	applyTo(kept, map[string]V{name: v})
}
