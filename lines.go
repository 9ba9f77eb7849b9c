package orchestrator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// The lines to the workers: each carries at most one call at a time (C1), even if a call
// has outlived its term.

// lines holds a line for each worker's name. mu guards all fields, the lines and the
// state of the listings. It is held briefly.
type lines[W, T comparable] struct {
	mu     sync.Mutex
	byName map[W]*line[W, T]
	// inFlight counts the busy lines. tardy: some line has a late answer or failure
	// that no term has taken. Both spare most terms a pass over all lines.
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

// line is the way to one worker. A worker that is removed and added again under the same
// name while a call is in flight keeps its line.
type line[W, T comparable] struct {
	name     W
	gone     bool // its worker was removed
	busy     bool
	deadline time.Time // of the call in flight
	// legacy holds the starts since the worker's last answer that may have happened or
	// may yet, while the worker is gone and a call to it is in flight.
	legacy set
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

func newLines[W, T comparable]() lines[W, T] {
	return lines[W, T]{
		byName:  make(map[W]*line[W, T]),
		freed:   make(chan struct{}, 1),
		deposed: make(chan error, 1),
	}
}

// of returns the line to a worker, and makes it if necessary.
func (l *lines[W, T]) of(name W) *line[W, T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.byName[name]
	if ln == nil {
		ln = &line[W, T]{name: name}
		l.byName[name] = ln
	}
	ln.gone = false
	return ln
}

// forget drops the lines to removed workers. A line with a call in flight is dropped when
// the call has ended; until then a new worker of the same name waits for it.
func (l *lines[W, T]) forget(gone []*worker[W, T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range gone {
		ln := l.byName[w.name]
		if ln == nil {
			continue
		}
		ln.gone, ln.legacy = true, w.maybe
		if !ln.busy {
			delete(l.byName, w.name)
		}
	}
}

// legacies returns the numbers of all tasks in a legacy.
func (l *lines[W, T]) legacies() (tasks []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight == 0 {
		return nil
	}
	for _, ln := range l.byName {
		tasks = slices.AppendSeq(tasks, maps.Keys(ln.legacy))
	}
	return tasks
}

// take marks the line busy, until its deadline at least. The caller holds l.mu.
func (l *lines[W, T]) take(ln *line[W, T], deadline time.Time) {
	ln.busy, ln.deadline = true, deadline
	l.inFlight++
}

// free marks the line idle. The caller holds l.mu.
func (l *lines[W, T]) free(ln *line[W, T]) {
	ln.busy = false
	l.inFlight--
	if ln.gone {
		delete(l.byName, ln.name)
	}
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// tell records the error of a call for which no term waits any more. If it is ErrDeposed,
// the leader is deposed, however late the error arrives. It is ignored if the leader
// itself cancelled the call's context, ctx, with ErrDeposed.
func (l *lines[W, T]) tell(ctx context.Context, failure *CallError[W, T]) {
	if !errors.Is(failure.Err, ErrDeposed) || errors.Is(context.Cause(ctx), ErrDeposed) {
		return
	}
	select {
	case l.deposed <- failure:
	default: // one is enough
	}
}

// told returns the error that tell recorded, once.
func (l *lines[W, T]) told() error {
	select {
	case err := <-l.deposed:
		return err
	default:
		return nil
	}
}

// stuck counts the calls that have outlived their deadline.
func (l *lines[W, T]) stuck(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight == 0 {
		return 0
	}
	n := 0
	for _, ln := range l.byName {
		if ln.busy && !now.Before(ln.deadline) {
			n++
		}
	}
	return n
}

// end cancels the calls left over from closed listings, and returns when every call that
// was in flight has ended or outlived its deadline. It does not touch the listing of a
// term under way.
func (l *lines[W, T]) end(cause error) {
	l.mu.Lock()
	for _, listing := range l.listings {
		if listing.closed {
			listing.cancel(cause)
		}
	}
	waitFor := make(map[*line[W, T]]time.Time)
	for _, ln := range l.byName {
		if ln.busy {
			waitFor[ln] = ln.deadline
		}
	}
	l.mu.Unlock()
	for {
		var last time.Time
		now := time.Now()
		l.mu.Lock()
		for ln, deadline := range waitFor {
			if !ln.busy || ln.deadline != deadline || !now.Before(deadline) {
				delete(waitFor, ln)
			} else if last.Before(deadline) {
				last = deadline
			}
		}
		l.mu.Unlock()
		if last.IsZero() {
			return
		}
		timer := time.NewTimer(time.Until(last))
		select {
		case <-l.freed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// callTimeout returns how long the context of a call lasts: a little less than the
// timeout, so that a call that honours its context has returned by then and does not
// count as stuck.
func callTimeout(timeout time.Duration) time.Duration {
	return timeout - timeout/10_000
}

// callContext returns the parent context of a term's calls: the values of ctx without
// its cancellation, and the term unless this is a dry run.
func (o *Orchestrator[W, T]) callContext(ctx context.Context, term Term) context.Context {
	ctx = context.WithoutCancel(ctx)
	if o.cfg.dryRun {
		return ctx
	}
	return ContextWithTerm(ctx, term)
}
