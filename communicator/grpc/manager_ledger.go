package grpc

// The ledger: the book, with a lock, a clock and a disk.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ledger has events decided one after the other, saves what they change, and only
// then tells the orchestrator and answers. What comes together while something
// is being saved is saved in one go after it.
//
// An error of the store closes it: from then on nothing is decided.
type ledger struct {
	store   Store
	epoch   uint64
	catalog catalog
	// tell is called by one goroutine at a time, in order, once what it tells is
	// on disk and in the catalog.
	tell func(news)
	// ready is closed once no member is left that is known from before the start
	// only.
	ready chan struct{}
	// key makes the receipts. It does not change.
	key receiptKey
	// broken is closed once the store has failed.
	broken chan struct{}
	// sooner holds a token when the book may want to be looked at earlier.
	sooner chan struct{}

	mu     sync.Mutex // guards what follows, and is held for moments
	book   *book
	busy   bool    // there is a goroutine that saves
	next   *commit // what is to be saved; nil: nothing
	saving *commit // what is being saved; nil: nothing
	closed error   // why nothing is decided any more; nil: it is
}

// commit is what is saved together.
type commit struct {
	done chan struct{} // closed once it is saved, and everybody was told
	err  error         // why it was not
}

// ErrStopped says that the manager runs no more: its Run has returned or is about
// to, or its store has failed.
var ErrStopped = errors.New("the manager has stopped")

// errGivenUp says that the caller does not wait for an answer any more.
var errGivenUp = errors.New("the call was given up")

// openLedger reads what a store holds, and begins another epoch.
func openLedger(s Store, r rules) (*ledger, error) {
	kept, err := load(s)
	if err != nil {
		return nil, err
	}
	if kept.epoch == 0 {
		// Workers may have outlived a store that was lost: they follow only a higher
		// epoch, and take lower versions of contents for older.
		now := time.Now()
		kept.epoch, kept.revision = uint64(now.UnixMilli()), now.UnixMicro()
	}
	b := newBook(r, kept)
	change := b.take()
	change.revision = kept.revision
	if kept.key == nil {
		change.key = newReceiptKey()
		b.key = change.key
	}
	if err := s.Save(change.encode()); err != nil {
		return nil, fmt.Errorf("save the epoch: %w", err)
	}
	kept.apply(&change)
	return &ledger{
		store: s, epoch: b.epoch, catalog: newCatalog(kept), tell: func(news) {},
		ready: make(chan struct{}), broken: make(chan struct{}), sooner: make(chan struct{}, 1),
		key: b.key, book: b,
	}, nil
}

// do has something decided, and returns what decide does once everything that
// was decided so far is on disk, and everybody was told. Where ctx ends before, what
// was decided stands, unless the store fails.
func (l *ledger) do(ctx context.Context, decide func(b *book, now time.Time) error) error {
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
		return fmt.Errorf("not known to be saved: %w: %w", errGivenUp, context.Cause(ctx))
	}
}

// look has something read that nobody else is told of, and that changes nothing
// on disk.
func (l *ledger) look(read func(b *book, now time.Time) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return l.closed
	}
	err := read(l.book, time.Now())
	l.settle()
	return err
}

// heartbeat renews a lease. It waits for the disk only where it has something to
// write down itself: a disk that is slow for a while costs nobody his lease. One that
// was given up says nothing any more: what its worker has said since may be that it
// drains.
//
// It returns the lease.
func (l *ledger) heartbeat(ctx context.Context, w Worker, draining bool) (lease time.Duration, err error) {
	var changes bool
	beat := func(b *book, now time.Time) (err error) {
		if ctx.Err() != nil { // a later one may have been dealt with before
			return fmt.Errorf("worker %q: %w: %w", w.Name, errGivenUp, context.Cause(ctx))
		}
		if changes, err = b.heartbeat(now, w, draining); err == nil {
			lease = b.members[w.Name].lease
		}
		return err
	}
	if err := l.look(beat); err != nil || !changes {
		return lease, err
	}
	return lease, l.do(ctx, func(*book, time.Time) error { return nil })
}

// settle sees to it that what has changed is saved, and returns what has to be
// waited for until that is so; nil: nothing. The lock is held.
func (l *ledger) settle() *commit {
	if l.book.started && l.book.unheard == 0 && !isClosed(l.ready) {
		close(l.ready)
	}
	if l.book.changed() && l.next == nil {
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

// save saves commits until there is none. It is the whole of a goroutine.
func (l *ledger) save() {
	for {
		b, change := l.begin()
		if b == nil {
			return
		}
		err := l.store.Save(change.encode())
		if err != nil {
			l.fail(fmt.Errorf("%w: save: %w", ErrStopped, err))
			return
		}
		l.tell(l.catalog.apply(&change))
		close(b.done)
	}
}

// begin takes the next commit, if there is one.
func (l *ledger) begin() (*commit, records) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saving, l.next = l.next, nil
	if l.saving == nil {
		l.busy = false
		return nil, records{}
	}
	return l.saving, l.book.take()
}

// fail closes the ledger for want of a disk, and answers everybody who waits.
func (l *ledger) fail(err error) {
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
	l.book.take() // which nobody will ever hear of
}

// close lets nothing be decided any more, and returns when everything that was is
// saved.
func (l *ledger) close() {
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
func (l *ledger) failure() error {
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
