package manager

// The committer: the state with a lock, a clock and a store.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
)

// committer applies events to the state one after the other. It saves what they change,
// and only then informs the orchestrator and answers. Changes made during a save are
// saved together after it.
//
// An error of the store closes the committer: every later event fails.
type committer struct {
	store     Store
	epoch     uint64
	committed state.Committed
	// publish passes on saved changes. It is called by one goroutine at a time, in
	// order, after the changes are in the store and in committed.
	publish func(state.Delta)
	// ready is closed when every member from before the start has been heard or has
	// ended.
	ready chan struct{}
	// key makes the receipts. It does not change.
	key state.ReceiptKey
	// broken is closed when the store has failed.
	broken chan struct{}
	// sooner holds a token when expire may have to look at the leases earlier.
	sooner chan struct{}

	mu     sync.Mutex // guards the fields below; held briefly
	state  *state.State
	busy   bool    // a goroutine is saving
	next   *commit // to be saved next; nil: nothing
	saving *commit // being saved; nil: nothing
	closed error   // why events fail; nil: the committer is open
}

// commit is a set of changes that are saved together.
type commit struct {
	done chan struct{} // closed when the changes are saved and passed on
	err  error         // why they are not saved
}

// ErrStopped reports that the manager no longer runs: its Run has returned or is
// about to, or its store has failed.
var ErrStopped = errors.New("manager has stopped")

// errGivenUp reports that the caller has cancelled the call.
var errGivenUp = errors.New("call cancelled")

// openCommitter reads a store and begins the next epoch.
func openCommitter(store Store, r state.Rules) (*committer, error) {
	kept, err := load(store)
	if err != nil {
		return nil, err
	}
	s, change := state.Open(r, &kept, time.Now(), state.NewReceiptKey())
	if err := store.Save(change.Encode()); err != nil {
		return nil, fmt.Errorf("save the epoch: %w", err)
	}
	kept.Apply(&change)
	return &committer{
		store: store, epoch: s.Epoch, committed: state.NewCommitted(kept), publish: func(state.Delta) {},
		ready: make(chan struct{}), broken: make(chan struct{}), sooner: make(chan struct{}, 1),
		key: s.Key, state: s,
	}, nil
}

// commit applies an event and returns its error, once every event so far is saved and
// passed on. If ctx ends first, the event stands, unless the store fails.
func (c *committer) commit(ctx context.Context, event func(s *state.State, now time.Time) error) error {
	c.mu.Lock()
	if c.closed != nil {
		defer c.mu.Unlock()
		return c.closed
	}
	err := event(c.state, time.Now())
	wait := c.startSave()
	c.mu.Unlock()
	if wait == nil {
		return err
	}
	select {
	case <-wait.done:
		if wait.err != nil {
			return wait.err
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("may not be saved: %w: %w", errGivenUp, context.Cause(ctx))
	}
}

// apply applies an event and returns its error without waiting for a save.
func (c *committer) apply(event func(s *state.State, now time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return c.closed
	}
	err := event(c.state, time.Now())
	c.startSave()
	return err
}

// heartbeat renews a lease and returns its length. It waits for the store only if it
// changes stored state, so a slow disk does not expire leases. A cancelled heartbeat
// is dropped, because a later one, such as one that drains, may have been applied.
func (c *committer) heartbeat(ctx context.Context, w state.WorkerID, draining bool) (lease time.Duration, err error) {
	var changes bool
	beat := func(s *state.State, now time.Time) (err error) {
		if ctx.Err() != nil { // a later heartbeat may have been applied
			return fmt.Errorf("worker %q: %w: %w", w.Name, errGivenUp, context.Cause(ctx))
		}
		if changes, err = s.Heartbeat(now, w, draining); err == nil {
			lease = s.Members[w.Name].Lease
		}
		return err
	}
	if err := c.apply(beat); err != nil || !changes {
		return lease, err
	}
	return lease, c.commit(ctx, func(*state.State, time.Time) error { return nil })
}

// startSave starts a save if the state has changed, and returns the commit to wait for;
// nil: everything is saved. The caller holds mu.
func (c *committer) startSave() *commit {
	if c.state.Ready() && !isClosed(c.ready) {
		close(c.ready)
	}
	if c.state.Changed() && c.next == nil {
		c.next = &commit{done: make(chan struct{})}
		if !c.busy {
			c.busy = true
			go c.save()
		}
	}
	if c.next != nil {
		return c.next
	}
	return c.saving
}

// save saves commits until none is left. It is the body of a goroutine.
func (c *committer) save() {
	for {
		b, change := c.begin()
		if b == nil {
			return
		}
		err := c.store.Save(change.Encode())
		if err != nil {
			c.fail(fmt.Errorf("%w: save: %w", ErrStopped, err))
			return
		}
		c.publish(c.committed.Apply(&change))
		close(b.done)
	}
}

// begin returns the next commit and its changes, or nil.
func (c *committer) begin() (*commit, state.Records) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saving, c.next = c.next, nil
	if c.saving == nil {
		c.busy = false
		return nil, state.Records{}
	}
	return c.saving, c.state.Take()
}

// fail closes the committer after an error of the store, and answers every waiting
// call.
func (c *committer) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = err
	}
	close(c.broken)
	for _, b := range []*commit{c.saving, c.next} {
		if b != nil {
			b.err = err
			close(b.done)
		}
	}
	c.saving, c.next = nil, nil
	c.state.Take() // drop unsaved changes
}

// close makes later events fail, and returns when all earlier changes are saved.
func (c *committer) close() {
	c.mu.Lock()
	if c.closed == nil {
		c.closed = ErrStopped
	}
	wait := c.startSave()
	c.mu.Unlock()
	if wait != nil {
		<-wait.done
	}
}

// failure returns why the committer is closed.
func (c *committer) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// start records that workers can reach the manager from now on.
func (c *committer) start() {
	_ = c.apply(func(s *state.State, now time.Time) error { // fails only if closed: no worker is served then
		s.Start(now)
		return nil
	})
}

// called records whether a call to a worker was answered.
func (c *committer) called(w state.WorkerID, answered bool) {
	_ = c.apply(func(s *state.State, now time.Time) error { // fails only if closed: leases no longer matter then
		s.Called(now, w, answered)
		return nil
	})
}

// alone reports whether no member other than w can take tasks.
func (c *committer) alone(w state.WorkerID) (alone bool) {
	_ = c.apply(func(s *state.State, now time.Time) error { // fails only if closed: alone is false then
		alone = s.Alone(now, w.Name)
		return nil
	})
	return alone
}

// expire ends memberships whose leases have expired, until ctx is done.
func (c *committer) expire(ctx context.Context) {
	for {
		var next time.Time
		err := c.apply(func(s *state.State, now time.Time) error {
			next = s.Expire(now)
			return nil
		})
		if err != nil || !c.pause(ctx, next) {
			return
		}
	}
}

// pause returns true at the given time, or earlier if there is a new lease, and
// false when ctx is done. The zero time means never.
func (c *committer) pause(ctx context.Context, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		due = time.After(time.Until(until))
	}
	select {
	case <-due:
	case <-c.sooner:
	case <-ctx.Done():
		return false
	}
	return true
}

// nudge makes expire look at the leases again, because there is a new one.
func (c *committer) nudge() {
	select {
	case c.sooner <- struct{}{}:
	default: // a token is there already
	}
}

// left reports whether a former member has called Leave.
func (c *committer) left(w state.WorkerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Left(w)
}

// complete sets the fields of members that are not stored.
func (c *committer) complete(members []MemberState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range members {
		m := &members[i]
		m.Heard, m.Until, m.Failing = c.state.Seen(state.WorkerID(m.WorkerID))
	}
}
