package state

// The State, and what becomes of its changes. The events of members are in members.go,
// those of tasks in tasks.go.

import (
	"errors"
	"time"
)

// Errors with which a State refuses an event. Each is wrapped with the names
// involved.
var (
	ErrNameTaken      = errors.New("name is taken")
	ErrMembershipOver = errors.New("membership of this incarnation has ended")
	ErrNotMember      = errors.New("not a member")
	ErrUnreachable    = errors.New("cannot be called")
	ErrLeft           = errors.New("worker has left")
)

// Rules are the settings of a State.
type Rules struct {
	LeaseMin, LeaseMax time.Duration
	// Unreachable is how long calls to a member may fail before its lease is no
	// longer renewed.
	Unreachable time.Duration
}

// State is the complete state of a manager. Its methods are the possible events. Each
// event adds what must be stored to a change, which Take returns. The argument now may
// run back only by the small difference between two goroutines that read the clock.
type State struct {
	Rules
	Records         // as decided, may be ahead of the store
	change  Records // since the last Take

	started bool
	live    map[string]*liveness // one for each of Records.Members
	unheard int                  // number of those not heard since the start
	ended   ended
}

// liveness is the state of a member that is not stored.
type liveness struct {
	heard   time.Time // last heartbeat or registration; zero: none since the start
	until   time.Time // when the lease expires; zero: before the start
	failing time.Time // first failed call since the last answered one; zero: none
	failed  time.Time // last failed call
}

// newState returns the state of a manager that starts with the stored records, in the
// next epoch.
func newState(r Rules, kept Records) *State {
	s := &State{
		Rules: r, Records: kept.clone(), change: newRecords(),
		live: make(map[string]*liveness), unheard: len(kept.Members),
		ended: newEnded(),
	}
	for name := range kept.Members {
		s.live[name] = &liveness{}
	}
	s.NextEpoch()
	return s
}

// Open returns the state of a manager that starts with the records of its store, and
// the change to store before anything else. Without an earlier manager, epochs and
// versions begin from now: workers may have outlived a lost store, and accept only
// higher ones than those that they have seen. Without a key, the manager uses the given
// one.
func Open(r Rules, kept *Records, now time.Time, key ReceiptKey) (s *State, change Records) {
	if kept.Epoch == 0 {
		kept.Epoch, kept.Revision = uint64(now.UnixMilli()), now.UnixMicro()
	}
	s = newState(r, *kept)
	change = s.Take()
	change.Revision = kept.Revision
	if kept.Key == nil {
		change.Key, s.Key = key, key
	}
	return s, change
}

// NextEpoch begins the next epoch, and returns it.
func (s *State) NextEpoch() uint64 {
	s.Epoch++
	s.change.Epoch = s.Epoch
	return s.Epoch
}

// Ready reports whether every member from before the start has been heard, or has
// ended.
func (s *State) Ready() bool { return s.started && s.unheard == 0 }

// Changed reports whether there are changes to take.
func (s *State) Changed() bool { return !s.change.empty() }

// Take returns the changes since the last call.
func (s *State) Take() Records {
	taken := s.change
	s.change = newRecords()
	return taken
}

// set sets a value in the records and in the change. The zero value deletes it.
func set[V comparable](kept, change map[string]V, name string, v V) {
	change[name] = v
	applyTo(kept, map[string]V{name: v})
}
