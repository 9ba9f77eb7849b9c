package manager

// The ledger: the book with a lock, a clock and a store.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
)

// ledger applies events to the book one after the other. It saves what they change,
// and only then informs the orchestrator and answers. Changes made during a save are
// saved together after it.
//
// An error of the store closes the ledger: every later event fails.
type committer struct {
	store   Store
	epoch   uint64
	catalog state.Committed
	// tell passes on saved changes. It is called by one goroutine at a time, in
	// order, after the changes are in the store and in the catalog.
	tell func(state.Delta)
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
	book   *state.State
	busy   bool    // a goroutine is saving
	next   *commit // to be saved next; nil: nothing
	saving *commit // being saved; nil: nothing
	closed error   // why events fail; nil: the ledger is open
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

// openLedger reads a store and begins the next epoch.
func openCommitter(s Store, r state.Rules) (*committer, error) {
	kept, err := load(s)
	if err != nil {
		return nil, err
	}
	b, change := state.Open(r, &kept, time.Now(), state.NewReceiptKey())
	if err := s.Save(change.Encode()); err != nil {
		return nil, fmt.Errorf("save the epoch: %w", err)
	}
	kept.Apply(&change)
	return &committer{
		store: s, epoch: b.Epoch, catalog: state.NewCommitted(kept), tell: func(state.Delta) {},
		ready: make(chan struct{}), broken: make(chan struct{}), sooner: make(chan struct{}, 1),
		key: b.Key, book: b,
	}, nil
}

// do calls decide and returns its error, once every decision so far is saved and
// passed on. If ctx ends first, the decision stands, unless the store fails.
func (l *committer) do(ctx context.Context, decide func(b *state.State, now time.Time) error) error {
	l.mu.Lock()
	if l.closed != nil {
		defer l.mu.Unlock()
		return l.closed
	}
	err := decide(l.book, time.Now())
	wait := l.settle()
	l.mu.Unlock()
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

// look calls read and returns its error without waiting for a save.
func (l *committer) look(read func(b *state.State, now time.Time) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return l.closed
	}
	err := read(l.book, time.Now())
	l.settle()
	return err
}

// heartbeat renews a lease and returns its length. It waits for the store only if it
// changes stored state, so a slow disk does not expire leases. A cancelled heartbeat
// is dropped, because a later one, such as one that drains, may have been applied.
func (l *committer) heartbeat(ctx context.Context, w state.Worker, draining bool) (lease time.Duration, err error) {
	var changes bool
	beat := func(b *state.State, now time.Time) (err error) {
		if ctx.Err() != nil { // a later heartbeat may have been applied
			return fmt.Errorf("worker %q: %w: %w", w.Name, errGivenUp, context.Cause(ctx))
		}
		if changes, err = b.Heartbeat(now, w, draining); err == nil {
			lease = b.Members[w.Name].Lease
		}
		return err
	}
	if err := l.look(beat); err != nil || !changes {
		return lease, err
	}
	return lease, l.do(ctx, func(*state.State, time.Time) error { return nil })
}

// settle starts a save if the book has changed, and returns the commit to wait for;
// nil: everything is saved. The caller holds mu.
func (l *committer) settle() *commit {
	if l.book.Ready() && !isClosed(l.ready) {
		close(l.ready)
	}
	if l.book.Changed() && l.next == nil {
		l.next = &commit{done: make(chan struct{})}
		if !l.busy {
			l.busy = true
			go l.save()
		}
	}
	if l.next != nil {
		return l.next
	}
	return l.saving
}

// save saves commits until none is left. It is the body of a goroutine.
func (l *committer) save() {
	for {
		b, change := l.begin()
		if b == nil {
			return
		}
		err := l.store.Save(change.Encode())
		if err != nil {
			l.fail(fmt.Errorf("%w: save: %w", ErrStopped, err))
			return
		}
		l.tell(l.catalog.Apply(&change))
		close(b.done)
	}
}

// begin returns the next commit and its changes, or nil.
func (l *committer) begin() (*commit, state.Records) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saving, l.next = l.next, nil
	if l.saving == nil {
		l.busy = false
		return nil, state.Records{}
	}
	return l.saving, l.book.Take()
}

// fail closes the ledger after an error of the store, and answers every waiting
// call.
func (l *committer) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil {
		l.closed = err
	}
	close(l.broken)
	for _, b := range []*commit{l.saving, l.next} {
		if b != nil {
			b.err = err
			close(b.done)
		}
	}
	l.saving, l.next = nil, nil
	l.book.Take() // drop unsaved changes
}

// close makes later events fail, and returns when all earlier changes are saved.
func (l *committer) close() {
	l.mu.Lock()
	if l.closed == nil {
		l.closed = ErrStopped
	}
	wait := l.settle()
	l.mu.Unlock()
	if wait != nil {
		<-wait.done
	}
}

// failure returns why the ledger is closed.
func (l *committer) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
