package orchestrator

// The first phase of a term: List calls to every worker (T2, T3).

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// errNotCalled is the error of a worker whose call could not begin.
var errNotCalled = fmt.Errorf("%w: too many calls in flight, see WithConcurrency", ErrSilent)

// Calls that begin within this part of a timeout share a context. So a call has
// at least the rest of the timeout.
const sharedPart = 16

// answer is a worker's answer to List, or its absence.
type answer[T comparable] struct {
	asked  bool
	missed bool // the call failed, or had the whole timeout
	// began is the time from the listing's begin to the call's; took is the call's
	// duration.
	began, took time.Duration
	list        []T
	held        bool   // the list is the most that the worker may run (C9)
	blocked     bool   // it was not asked, because a write to it has not returned
	pins, same  int32  // how many tasks at the end of list must not move, and at its start are unchanged
	err         error  // errNotCalled until the answer comes; close replaces it for a worker that was asked
	why         string // how the call failed, for later terms; "" if the worker is not the cause
}

// listing is one round of List calls. Goroutines make the calls. Each takes the next
// worker when it has an answer, until the listing is closed. Then the term continues,
// and the calls in flight run until their deadlines.
type listing[W, T comparable] struct {
	o       *Orchestrator[W, T]
	term    uint64          // its number
	base    context.Context // of all calls
	cancel  context.CancelCauseFunc
	began   time.Time
	workers []*worker[W, T]
	answers []answer[T] // by worker
	notes   []listNotes // by worker

	// The term waits for the workers in awaited, but not for those in others.
	awaited, others callQueue

	// o.inflight.mu guards what follows.

	batch    batch
	releases []context.CancelFunc // of all batches
	pending  int                  // awaited workers without an answer
	limit    time.Duration        // when the term continues without the rest; 0 until half have answered
	active   int                  // goroutines
	closed   bool
	half     chan struct{} // closed when limit is set
	done     chan struct{} // closed when pending is 0
	idle     chan struct{} // closed when active is 0
}

// callQueue holds the workers to list, in order.
type callQueue struct {
	order []int
	next  int
	spare int // how many more goroutines may make calls
}

// batch is a context shared by calls that begin shortly after each other.
type batch struct {
	ctx   context.Context
	began time.Duration
}

// list calls List of all workers. It returns after at most one timeout, and earlier if
//
//   - all workers that the term waits for have answered, or
//   - half of them have, and four times as long has passed as that took, and at
//     least a tenth of the timeout.
//
// start is when the term began. list takes a step for each worker and each name, the names
// in parallel, and sorts the workers if their last calls were in different terms.
func (o *Orchestrator[W, T]) list(ctx context.Context, term Term, start time.Time) (answers []answer[T], began time.Time) {
	l := &listing[W, T]{
		o: o, term: term.Number, workers: o.workers, began: time.Now(),
		answers: make([]answer[T], len(o.workers)), notes: make([]listNotes, len(o.workers)),
		half: make(chan struct{}), done: make(chan struct{}), idle: make(chan struct{}),
	}
	l.base, l.cancel = context.WithCancelCause(o.callContext(ctx, term))
	timeout := o.cfg.CommunicatorTimeout
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	l.begin()
	o.enter(term, start, PhaseList, l, nil)
	for half := l.half; ; half = nil {
		select {
		case <-half:
			timer.Reset(min(l.limit, timeout) - time.Since(l.began))
			continue
		case <-l.done:
		case <-timer.C:
		case <-ctx.Done():
			// The calls return immediately, or by their deadline. If the term did not
			// wait for them, the next one would find the workers busy.
			l.cancel(causeOf(ctx))
			timer.Reset(timeout - time.Since(l.began))
			select {
			case <-l.idle:
			case <-timer.C:
			}
		}
		return l.close(), l.began
	}
}

// close ends the listing and returns the answers so far.
func (l *listing[W, T]) close() []answer[T] {
	l.o.inflight.mu.Lock()
	defer l.o.inflight.mu.Unlock()
	l.closed = true
	timeout := l.o.cfg.CommunicatorTimeout
	lasted := time.Since(l.began)
	for i := range l.answers {
		a, w := &l.answers[i], l.workers[i]
		if !a.asked {
			continue
		}
		w.asked = l.term
		if errors.Is(a.err, errNotCalled) {
			a.err = w.unanswered()
		}
		if a.err != nil && lasted-a.began >= timeout-timeout/sharedPart {
			a.missed = true
		}
	}
	return l.answers
}

// begin decides the order of the calls, and starts them.
func (l *listing[W, T]) begin() {
	calls := &l.o.inflight
	calls.mu.Lock()
	defer calls.mu.Unlock()
	grace, spare, served := l.o.grace(), l.o.cfg.Concurrency, false
	l.awaited.order = make([]int, 0, len(l.workers))
	for i, w := range l.workers {
		a := &l.answers[i]
		a.err = errNotCalled
		switch {
		case w.fresh:
			w.fresh, a.err, served = false, nil, true
		case w.slot.busy && l.began.Before(w.slot.deadline):
			// The call counts as another failure only if it followed the last failure.
			// Otherwise no term ran for a long time, and the answer may be on its way.
			a.err, a.missed = w.unanswered(), w.slot.deadline.Sub(w.Missed) <= 2*l.o.cfg.CommunicatorTimeout
			a.blocked = w.slot.write != nil
			spare--
		case w.slot.busy: // a stop that hangs says nothing of its worker
			a.err, a.missed, a.blocked = ErrStuck, !w.slot.write.stopsOnly(), true
		case w.awaited || l.o.fleet.IsDue(w.Worker, l.began, grace):
			l.awaited.order = append(l.awaited.order, i)
		default:
			l.others.order = append(l.others.order, i)
		}
	}
	if len(l.awaited.order) == 0 && !served {
		l.awaited, l.others = l.others, l.awaited
	}
	l.pending = len(l.awaited.order)
	l.ask(&l.awaited, l.o.cfg.Concurrency)
	l.ask(&l.others, spare)
	// The term may continue before a goroutine has started the next one.
	for range min(spare, len(l.others.order)) {
		l.start(&l.others, 0)
	}
	calls.listings = append(calls.listings, l)
	l.finished()
}

// ask starts the calls of a queue. The workers whose last call is oldest come first.
func (l *listing[W, T]) ask(q *callQueue, spare int) {
	askedLast := func(i, j int) int { return cmp.Compare(l.workers[i].asked, l.workers[j].asked) }
	if !slices.IsSortedFunc(q.order, askedLast) {
		slices.SortStableFunc(q.order, askedLast)
	}
	q.spare = spare
	l.start(q, 0)
}

// start starts one more goroutine for a queue, up to the queue's limit. The caller holds
// inflight.mu.
//
// Each goroutine starts the next one before its first call. If calls block, there are soon
// as many goroutines as the limit allows. If they return immediately, there are as many as
// processors, which saves most of the waiting for inflight.mu.
func (l *listing[W, T]) start(q *callQueue, now time.Duration) {
	if q.spare <= 0 {
		return
	}
	if i, b, ok := l.pull(q, now); ok {
		q.spare--
		l.active++
		go l.work(q, i, b)
	}
}

// pull returns the next worker of a queue, and the context of its call. The caller holds
// inflight.mu.
func (l *listing[W, T]) pull(q *callQueue, now time.Duration) (int, batch, bool) {
	if l.closed || l.base.Err() != nil || q.next == len(q.order) {
		return 0, batch{}, false
	}
	i := q.order[q.next]
	q.next++
	timeout := l.o.cfg.CommunicatorTimeout
	if l.batch.ctx == nil || now-l.batch.began > timeout/sharedPart {
		ctx, release := context.WithDeadline(l.base, l.began.Add(now+callTimeout(timeout)))
		l.releases = append(l.releases, release)
		l.batch = batch{ctx: ctx, began: now}
	}
	w := l.workers[i]
	l.o.inflight.take(w.slot, nil, l.began.Add(l.batch.began+timeout))
	w.slot.late, w.slot.missed = nil, nil // what arrived since the term began is stale
	l.answers[i].asked, l.answers[i].began = true, now
	return i, l.batch, true
}

// work calls List of worker i, and then of the next workers of the queue.
func (l *listing[W, T]) work(q *callQueue, i int, b batch) {
	returned := false
	started := l.answers[i].began
	defer func() {
		if returned {
			return
		}
		// The Communicator ended the goroutine, as a failing test does.
		a := answer[T]{asked: true, began: started, err: errGoexit, why: errGoexit.Error()}
		if next, b, ok := l.finish(q, i, a, time.Since(l.began)); ok {
			go l.work(q, next, b)
		}
	}()
	l.o.inflight.mu.Lock()
	l.start(q, started)
	l.o.inflight.mu.Unlock()
	for ok := true; ok; {
		ctx := &l.notes[i]
		ctx.Context = b.ctx
		list, err := l.o.callList(ctx, l.workers[i].name)
		pins, held := ctx.end()
		// Only the listing's begin reads the wall clock: reading the monotonic clock
		// alone takes half as long, which matters for short lists.
		now := time.Since(l.began)
		why := ""
		if err != nil && l.base.Err() == nil {
			why = shorten(err.Error())
		}
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrSilent, err)
		}
		// The names are compared here, in parallel; the term would compare them one
		// worker after the other. Only this answer replaces the previous one.
		same := alike(list, l.workers[i].list)
		a := answer[T]{
			asked: true, began: started, took: now - started,
			list: list, pins: int32(min(pins, len(list))), held: held, same: int32(same), err: err, why: why,
		}
		i, b, ok = l.finish(q, i, a, now)
		started = now
	}
	returned = true
}

// finish records a worker's answer, and returns the next worker.
func (l *listing[W, T]) finish(q *callQueue, i int, a answer[T], now time.Duration) (next int, b batch, ok bool) {
	calls := &l.o.inflight
	calls.mu.Lock()
	defer calls.mu.Unlock()
	slot, w := l.workers[i].slot, l.workers[i]
	calls.free(slot)
	switch {
	case !l.closed:
		a.missed = a.err != nil
		l.answers[i] = a
		if q == &l.awaited {
			l.pending--
			if l.limit == 0 && l.pending <= len(l.awaited.order)/2 { // half have answered
				l.limit = max(4*now, l.o.cfg.CommunicatorTimeout/10)
				close(l.half)
			}
		}
		if errors.Is(a.err, ErrDeposed) { // the term is over
			l.pending = 0
			l.cancel(a.err)
		}
	case a.err != nil && l.base.Err() != nil: // the leader cancelled it
		calls.recordDeposed(l.base, &CallError[W, T]{Op: OpList, Worker: slot.name, Err: a.err})
	case a.err != nil:
		calls.tardy = true
		slot.missed = &lateFailure{serial: w.Serial, at: l.began.Add(now), why: a.why}
		calls.recordDeposed(l.base, &CallError[W, T]{Op: OpList, Worker: slot.name, Err: a.err})
	default:
		// The worker is fenced at this term and gets no write before the next one, so
		// its answer will still be true then.
		calls.tardy = true
		slot.late = &lateAnswer[T]{serial: w.Serial, answer: a, at: l.began.Add(now), prompt: a.took <= max(l.limit, l.o.cfg.CommunicatorTimeout/10)}
	}
	// The next worker is taken before the listing is closed, so that a term with few
	// calls in flight still lists its silent workers in turn.
	if next, b, ok = l.pull(q, now); !ok {
		l.active--
	}
	for _, other := range calls.listings {
		// A later term may be under way, in which the call counted.
		if other != l && !other.closed && !slot.gone && other.began.Before(slot.deadline) {
			other.others.spare++
			other.start(&other.others, time.Since(other.began))
		}
	}
	l.finished()
	return next, b, ok
}

// finished closes the listing when the term waits for no more answers, and
// releases it when no call is in flight. The caller holds inflight.mu.
func (l *listing[W, T]) finished() {
	if l.pending == 0 && !l.closed {
		l.closed = true
		close(l.done)
	}
	if l.active == 0 {
		calls := &l.o.inflight
		calls.listings = slices.DeleteFunc(calls.listings, func(other *listing[W, T]) bool { return other == l })
		l.cancel(nil)
		for _, release := range l.releases {
			release()
		}
		close(l.idle)
	}
}

// takeLate returns, for each worker, the answer that came too late for its term, and
// records the calls that failed too late. It returns nil if there were neither;
// otherwise it takes O(workers).
func (o *Orchestrator[W, T]) takeLate() []*lateAnswer[T] {
	o.inflight.mu.Lock()
	defer o.inflight.mu.Unlock()
	if !o.inflight.tardy {
		return nil
	}
	o.inflight.tardy = false
	late := make([]*lateAnswer[T], len(o.workers))
	for i, w := range o.workers {
		if l := w.slot.late; l != nil && l.serial == w.Serial {
			late[i] = l
		}
		if m := w.slot.missed; m != nil && m.serial == w.Serial {
			w.Miss(m.at)
			w.failed = cmp.Or(m.why, w.failed)
		}
		w.slot.late, w.slot.missed = nil, nil
	}
	return late
}
