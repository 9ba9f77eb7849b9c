package orchestrator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// The lines to the workers: at most one call at a time on each (C1), also
// where a call has outlived its term.

// lines holds a line for each worker's name. Its mutex guards them and what is
// counted in a term's calls; it is held for moments only.
type lines[W, T comparable] struct {
	mu     sync.Mutex
	byName map[W]*line[W, T]
	// inFlight counts the lines that are busy, and tardy says that something came
	// after its term had gone on which nobody has looked at yet: most terms need
	// not go over all lines for either.
	inFlight int
	tardy    bool
	// freed holds a token when a call has ended since it was last taken.
	freed chan struct{}
	// listings holds those with calls still in flight.
	listings []*listing[W, T]
	// deposed holds what a worker has said that knows a higher epoch, for which no
	// term waited any more, until one hears of it.
	deposed chan error
}

// line is the way to one worker. A worker that is removed and added again
// under the same name, while a call is in flight, has the same line.
type line[W, T comparable] struct {
	name     W
	gone     bool // its worker was removed
	busy     bool
	deadline time.Time // of the call in flight
	// legacy holds, while the worker is gone and a call to it in flight, the starts
	// that may have happened since its last answer, or may yet.
	legacy set
	// late is an answer to List that came after its term had gone on.
	late *lateAnswer[T]
	// missed is a call of List that failed after its term had gone on.
	missed *lateFailure
}

type lateAnswer[T comparable] struct {
	serial uint64 // of the worker that was asked
	answer answer[T]
	at     time.Time
	prompt bool // it took no longer than the term would have waited for it
}

type lateFailure struct {
	serial uint64 // of the worker that was asked
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

// of returns the line to a worker, a new one if there is none.
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

// forget drops the lines to workers that were removed; those with a call in
// flight when it has ended, for which a new worker of that name has to wait.
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

// take marks the line busy until the call's deadline at least. l.mu is held.
func (l *lines[W, T]) take(ln *line[W, T], deadline time.Time) {
	ln.busy, ln.deadline = true, deadline
	l.inFlight++
}

// free marks the line idle. l.mu is held.
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

// tell takes in the error of a call for which no term waits any more, and whose
// context was ctx: a leader that is told of a higher epoch is deposed, however late
// it hears of it. One that has cut the call off for that has been told nothing.
func (l *lines[W, T]) tell(ctx context.Context, failure *CallError[W, T]) {
	if !errors.Is(failure.Err, ErrDeposed) || errors.Is(context.Cause(ctx), ErrDeposed) {
		return
	}
	select {
	case l.deposed <- failure:
	default: // one is enough
	}
}

// told returns what tell has taken in, once.
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

// end cancels the calls that linger, and returns when all that were in flight
// have ended or have outlived their deadlines. A listing of another term, which
// may be under way, is none of its business.
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

// callTimeout is how long the context of a call lasts, for a timeout after
// which nobody waits for it any more: a little less, so that a call that
// honours its context has returned by then and is not taken for a stuck one.
func callTimeout(timeout time.Duration) time.Duration {
	return timeout - timeout/10_000
}

// callContext returns the context that the calls of a term start from: the values
// of ctx, not its end, and the term's identity, unless this is a dry run.
func (o *Orchestrator[W, T]) callContext(ctx context.Context, term Term) context.Context {
	ctx = context.WithoutCancel(ctx)
	if o.cfg.dryRun {
		return ctx
	}
	return ContextWithTerm(ctx, term)
}
