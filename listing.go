package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The first phase of a term: every worker is asked what it runs (T2, T3).

// errNoSlot is why a worker was not asked at all.
var errNoSlot = fmt.Errorf("%w: every call that the term may have in flight was taken", ErrSilent)

// errStuck is why a worker was not asked either.
var errStuck = fmt.Errorf("%w: an earlier call has not returned", ErrSilent)

// answer is what a worker said to List, or why it said nothing.
type answer[T comparable] struct {
	asked  bool
	missed bool // the call failed, or its time was up: it may yet be under way if not
	list   []T
	same   int    // how many names at its start are those that the worker answered before
	err    error  // errNoSlot until asked, unanswered until answered
	why    string // how the call failed, for terms to come; "" where that says nothing of the worker
	at     time.Time
	took   time.Duration
}

// listing is one round of List calls. The calls run on goroutines of their own,
// each of which takes the next worker when it has its answer, until the
// listing is closed: then the term has gone on, and what is still in flight
// lingers until its deadline.
type listing[W, T comparable] struct {
	o        *Orchestrator[W, T]
	ctx      context.Context
	cancel   context.CancelCauseFunc
	began    time.Time
	deadline time.Time
	term     uint64
	dry      bool

	workers []*worker[W, T]
	answers []answer[T] // by worker
	order   []int       // workers to ask, the first waits of them to be waited for
	waits   int

	// What follows is guarded by o.lines.mu.

	next    int // into order
	pending int // waited for, and without an answer
	spare   int // how many more that are not waited for may be asked
	active  int // goroutines
	closed  bool
	done    chan struct{} // closed when pending is 0
	idle    chan struct{} // closed when active is 0
}

// list asks all workers what they run, and returns when those have answered
// that are waited for, after one timeout at the latest. It takes a step for each
// worker and each name, the names side by side, and to sort those that are
// silent: O(silent · log(silent)).
func (o *Orchestrator[W, T]) list(ctx context.Context, f *fleet[W, T], term Term, dry bool) []answer[T] {
	start := time.Now()
	l := &listing[W, T]{
		o: o, term: term.Number, dry: dry, workers: f.workers,
		began: start, deadline: start.Add(o.cfg.timeout),
		answers: make([]answer[T], len(f.workers)),
		order:   make([]int, 0, len(f.workers)),
		spare:   o.cfg.concurrency,
		done:    make(chan struct{}),
		idle:    make(chan struct{}),
	}
	base, cancel := context.WithCancelCause(callContext(ctx, term, dry))
	callCtx, release := context.WithDeadline(base, start.Add(callTimeout(o.cfg.timeout)))
	l.ctx = callCtx
	l.cancel = func(cause error) { cancel(cause); release() }

	timer := time.NewTimer(o.cfg.timeout)
	defer timer.Stop()
	l.start(start)
	timedOut := false
	select {
	case <-l.done:
	case <-timer.C:
		timedOut = true
	case <-ctx.Done():
		// The calls return at once, or else by their deadline. Without waiting
		// for that, the next term would find their lines busy.
		l.cancel(causeOf(ctx))
		select {
		case <-l.idle:
		case <-timer.C:
		}
	}
	o.lines.mu.Lock()
	defer o.lines.mu.Unlock()
	l.closed = true
	if timedOut {
		for _, i := range l.order[:l.next] {
			a := &l.answers[i]
			a.missed = a.missed || a.err != nil
		}
	}
	return l.answers
}

// start decides whom to ask in which order, and makes the first calls.
func (l *listing[W, T]) start(now time.Time) {
	lines := &l.o.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	var others []int
	for i, w := range l.workers {
		l.answers[i].err = errNoSlot
		switch {
		case w.line.busy:
			if now.Before(w.line.deadline) { // it lingers
				l.answers[i].err = w.unanswered()
				l.spare--
			} else {
				l.answers[i].err, l.answers[i].missed = errStuck, true
			}
		case w.state == Answering:
			l.order = append(l.order, i)
			if w.patience {
				l.waits++
			}
		default:
			others = append(others, i)
		}
	}
	// After those that answered come those to be waited for all the same, then
	// those asked longest ago; equals in the order they were added.
	slices.SortStableFunc(others, func(i, j int) int {
		a, b := l.workers[i], l.workers[j]
		if a.patience != b.patience {
			if a.patience {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.asked, b.asked)
	})
	l.order = append(l.order, others...)
	for _, i := range others {
		if l.workers[i].patience {
			l.waits++
		}
	}
	l.pending = l.waits
	if l.dry {
		// An answer that came late would be of no use, as the call fences
		// nobody, and would keep the next term from asking.
		for _, i := range l.order[l.waits:] {
			l.answers[i].err = l.workers[i].unanswered()
		}
		l.order = l.order[:l.waits]
	}

	for range min(l.o.cfg.concurrency, len(l.order)) {
		if i, ok := l.pull(); ok {
			l.active++
			go l.work(i)
		}
	}
	lines.listings[l] = struct{}{}
	l.finished()
}

// pull returns the next worker to ask. lines.mu is held.
func (l *listing[W, T]) pull() (int, bool) {
	if l.closed || l.ctx.Err() != nil || l.next == len(l.order) {
		return 0, false
	}
	if l.next >= l.waits {
		if l.spare <= 0 {
			return 0, false
		}
		l.spare--
	}
	i := l.order[l.next]
	l.next++
	w := l.workers[i]
	l.o.lines.take(w.line, l.deadline)
	l.answers[i].asked, l.answers[i].err = true, w.unanswered()
	if !l.dry {
		w.asked = l.term
	}
	return i, true
}

// work asks worker i, and then one after the other.
func (l *listing[W, T]) work(i int) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// The Communicator ended the goroutine, as a failing test does.
		if next, ok := l.finish(i, answer[T]{asked: true, err: errGoexit, why: errGoexit.Error()}); ok {
			go l.work(next)
		}
	}()
	for ok := true; ok; {
		// The wall clock is read once, at the start of the listing: to read one clock
		// takes half as long as both, and with small lists that counts.
		started := time.Since(l.began)
		list, err := l.o.callList(l.ctx, l.workers[i].name)
		answered := time.Since(l.began)
		why := l.why(err)
		if err != nil && l.ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrSilent, err)
		}
		// Names are compared here, side by side, and not by the term, one worker
		// after the other. What the worker answered before changes with this
		// answer only, so nobody else writes it now.
		same := alike(list, l.workers[i].list)
		i, ok = l.finish(i, answer[T]{asked: true, list: list, same: same, err: err, why: why, at: l.began.Add(answered), took: answered - started})
	}
	returned = true
}

// why is how a call failed, as text. A call that the leader has ended says nothing of
// its worker.
func (l *listing[W, T]) why(err error) string {
	if err == nil || errors.Is(l.ctx.Err(), context.Canceled) {
		return ""
	}
	return shorten(err.Error())
}

// finish takes a worker's answer, and returns the next worker to ask.
func (l *listing[W, T]) finish(i int, a answer[T]) (next int, ok bool) {
	lines := &l.o.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	ln := l.workers[i].line
	lines.free(ln)
	switch {
	case !l.closed:
		a.missed = a.err != nil
		if !a.missed {
			ln.missed = nil
		}
		l.answers[i] = a
		if l.workers[i].patience {
			l.pending--
		}
	case l.dry: // it fences nobody
	case a.err != nil:
		lines.tardy = true
		ln.missed = &lateFailure{serial: l.workers[i].serial, why: a.why}
		lines.tell(l.ctx, &CallError[W, T]{Op: OpList, Worker: ln.name, Err: a.err})
	default:
		// The worker is fenced at this term, and gets no write before the next
		// one: what it said will still be true then.
		lines.tardy = true
		ln.late = &lateAnswer[T]{serial: l.workers[i].serial, term: l.term, list: a.list, at: a.at}
	}
	// The next worker is taken before the listing is closed: where calls are
	// few, silent workers are still asked in turn.
	if next, ok = l.pull(); !ok {
		l.active--
	}
	l.finished()
	return next, ok
}

// finished closes the listing when nobody is waited for any more, and lets go
// of it when no call is in flight. lines.mu is held.
func (l *listing[W, T]) finished() {
	if l.pending == 0 && !l.closed {
		l.closed = true
		close(l.done)
	}
	if l.active == 0 {
		delete(l.o.lines.listings, l)
		l.cancel(nil)
		close(l.idle)
	}
}

// late returns, for each worker, the answer that came after its term had gone
// on, and with take, forgets it. It returns nil where none did, and else takes
// O(workers).
func (o *Orchestrator[W, T]) late(workers []*worker[W, T], take bool) []*lateAnswer[T] {
	o.lines.mu.Lock()
	defer o.lines.mu.Unlock()
	if !o.lines.tardy {
		return nil
	}
	o.lines.tardy = !take
	late := make([]*lateAnswer[T], len(workers))
	for i, w := range workers {
		if l := w.line.late; l != nil && l.serial == w.serial {
			late[i] = l
		}
		if take {
			if m := w.line.missed; m != nil && m.serial == w.serial {
				w.missed = true
				w.failed = cmp.Or(m.why, w.failed)
			}
			w.line.late, w.line.missed = nil, nil
		}
	}
	return late
}
