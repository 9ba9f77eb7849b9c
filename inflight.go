package orchestrator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/internal/term"
)

// inflight holds a slot for each worker's name (C1). mu guards all fields, the slots and the
// state of the listings. It is held briefly.
type inflight[W, T comparable] struct {
	mu     sync.Mutex
	byName map[W]*callSlot[W, T]
	// inFlight counts the busy slots. tardy: some slot has a late answer or failure
	// that no term has taken. Both spare most terms a pass over all slots.
	inFlight int
	tardy    bool
	// freed holds a token if a call has ended since the token was last taken.
	freed chan struct{}
	// listings holds the listings with calls in flight.
	listings []*listing[W, T]
	// deposed holds the ErrDeposed of a call for which no term waited, until a term
	// takes it.
	deposed chan error
}

// callSlot admits one call at a time to a worker. A worker that is removed and added again
// under the same name while a call is in flight keeps its slot.
type callSlot[W, T comparable] struct {
	name     W
	gone     bool // its worker was removed
	busy     bool
	deadline time.Time     // of the call in flight
	write    *writeCall[T] // the call in flight, nil if it is a List
	// legacy holds the starts since the worker's last answer that may have happened or
	// may yet, while the worker is gone and a call to it is in flight.
	legacy term.Set
	// late is an answer to List that came too late for its term.
	late *lateAnswer[T]
	// missed is a call of List that failed too late for its term.
	missed *lateFailure
}

type lateAnswer[T comparable] struct {
	serial uint64 // of the worker that was called
	answer answer[T]
	at     time.Time
	prompt bool // the call took no longer than the term would have waited
}

type lateFailure struct {
	serial uint64 // of the worker that was called
	at     time.Time
	why    string
}

// of returns the slot of a worker, and makes it if necessary.
func (l *inflight[W, T]) of(name W) *callSlot[W, T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	slot := l.byName[name]
	if slot == nil {
		slot = &callSlot[W, T]{name: name}
		l.byName[name] = slot
	}
	slot.gone = false
	return slot
}

// forget drops the slots of removed workers. A slot with a call in flight is dropped when
// the call has ended; until then a new worker of the same name waits for it.
func (l *inflight[W, T]) forget(gone []*worker[W, T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range gone {
		slot := l.byName[w.name]
		if slot == nil {
			continue
		}
		slot.gone, slot.legacy = true, w.Legacy()
		if !slot.busy {
			delete(l.byName, w.name)
		}
	}
}

// legacies returns the numbers of all tasks in a legacy.
func (l *inflight[W, T]) legacies() (tasks []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight == 0 {
		return nil
	}
	for _, slot := range l.byName {
		tasks = slices.AppendSeq(tasks, maps.Keys(slot.legacy))
	}
	return tasks
}

// take marks the slot busy, until its deadline at least. write is nil for a List. The caller holds
// l.mu.
func (l *inflight[W, T]) take(slot *callSlot[W, T], write *writeCall[T], deadline time.Time) {
	slot.busy, slot.write, slot.deadline = true, write, deadline
	l.inFlight++
}

// free marks the slot idle. The caller holds l.mu.
func (l *inflight[W, T]) free(slot *callSlot[W, T]) {
	slot.busy, slot.write = false, nil
	l.inFlight--
	if slot.gone {
		delete(l.byName, slot.name)
	}
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// recordDeposed records the failure of a call for which no term waits any more, if it is
// ErrDeposed: the leader is deposed, however late the error arrives. A failure does not
// count if the leader itself cancelled the call's context, ctx, with ErrDeposed.
func (l *inflight[W, T]) recordDeposed(ctx context.Context, failure *CallError[W, T]) {
	if !errors.Is(failure.Err, ErrDeposed) || errors.Is(context.Cause(ctx), ErrDeposed) {
		return
	}
	select {
	case l.deposed <- failure:
	default: // one is enough
	}
}

// takeDeposed returns the error that recordDeposed recorded, once, and nil otherwise.
func (l *inflight[W, T]) takeDeposed() error {
	select {
	case err := <-l.deposed:
		return err
	default:
		return nil
	}
}

// stuck counts the calls that have outlived their deadline.
func (l *inflight[W, T]) stuck(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight == 0 {
		return 0
	}
	n := 0
	for _, slot := range l.byName {
		if slot.busy && !now.Before(slot.deadline) {
			n++
		}
	}
	return n
}

// end cancels the calls left over from closed listings, and returns when every call that
// was in flight has ended or outlived its deadline. It does not touch the listing of a
// term under way.
func (l *inflight[W, T]) end(cause error) {
	l.mu.Lock()
	for _, listing := range l.listings {
		if listing.closed {
			listing.cancel(cause)
		}
	}
	waitFor := make(map[*callSlot[W, T]]time.Time)
	for _, slot := range l.byName {
		if slot.busy {
			waitFor[slot] = slot.deadline
		}
	}
	l.mu.Unlock()
	for {
		var last time.Time
		now := time.Now()
		l.mu.Lock()
		for slot, deadline := range waitFor {
			if !slot.busy || slot.deadline != deadline || !now.Before(deadline) {
				delete(waitFor, slot)
			} else if last.Before(deadline) {
				last = deadline
			}
		}
		l.mu.Unlock()
		if last.IsZero() {
			return
		}
		select {
		case <-l.freed:
		case <-time.After(time.Until(last)):
		}
	}
}
