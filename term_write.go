package orchestrator

// The third phase of a term: the writes. Package handover decides what may be sent;
// goroutines, contexts and the clock are here.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/term"
)

// writing carries out the changes of one term. The term's goroutine owns it. Each call
// runs on a separate goroutine, which puts its result into results under inflight.mu.
type writing[W, T comparable] struct {
	*term.Writes

	o       *Orchestrator[W, T]
	workers []*worker[W, T]
	changes []term.Change
	names   []T             // of the changes' tasks
	ctx     context.Context // the parent of all calls
	abort   context.CancelCauseFunc

	sent    []*writeCall[T] // in the order of their deadlines; settled ones are dropped late
	active  int             // the number of calls in flight that have not expired
	results *writeResults[T]

	began  time.Time
	ended  time.Time
	times  []changeTimes // by change
	left   atomic.Int64  // changes that have not ended
	errs   []error       // by change: the first error
	failed []error       // every failure, as *CallError
	calls  *TermStats
	cause  error // why the writes were cut short
}

// changeTimes is when the calls of a change began and ended, counted from the begin of the
// writes.
type changeTimes struct {
	begun, stopped bool // stopped: its task runs on neither worker of the move, since stoppedAt
	began, took    time.Duration
	stoppedAt, gap time.Duration
}

// timesOf returns when the first call of change i began, how long its calls took, and how
// long its task was stopped.
func (w *writing[W, T]) timesOf(i int) (began time.Time, took, gap time.Duration) {
	t := &w.times[i]
	if !t.begun {
		return began, 0, 0
	}
	gap = t.gap
	if t.stopped {
		gap = w.ended.Sub(w.began) - t.stoppedAt
	}
	return w.began.Add(t.began), t.took, gap
}

// answered records the time of an answer to a write, after Ended.
func (w *writing[W, T]) answered(write handover.Write, done bool, now time.Time) {
	t, c, at := &w.times[write.Change], &w.changes[write.Change], now.Sub(w.began)
	t.took = at - t.began
	switch {
	case !done:
	case write.Start && t.stopped:
		t.stopped, t.gap = false, at-t.stoppedAt
	case !write.Start && c.To != handover.None && w.Net(int(write.Change)) < 0:
		t.stopped, t.stoppedAt = true, at
	}
}

// writeCall is a call with one or more writes.
type writeCall[T comparable] struct {
	call     handover.Call
	writes   []Write[T]
	started  time.Time
	deadline time.Time               // when the term waits no longer
	over     bool                    // the term no longer waits: it returned, or its time is up
	applied  []bool                  // by write: it was done before the call returned; nil if none was
	index    func() map[Write[T]]int // of writes

	// Set when the call has returned:
	took time.Duration
	errs []error
}

// stopsOnly reports whether c is a call that starts nothing.
func (c *writeCall[T]) stopsOnly() bool {
	return c != nil && !slices.ContainsFunc(c.writes, func(w Write[T]) bool { return w.Op == OpAdd })
}

// writeResults holds what the term has not processed yet: the calls that have returned, and
// the writes that are done. inflight.mu guards it.
type writeResults[T comparable] struct {
	calls   []*writeCall[T]
	applied []appliedWrite[T]
	signal  chan struct{}
	closed  bool // the writes have ended, so calls that return are late
}

// appliedWrite is a write that is done in a call that has not returned.
type appliedWrite[T comparable] struct {
	call  *writeCall[T]
	write int
}

// notify signals that there is something to collect. The caller holds inflight.mu.
func (r *writeResults[T]) notify() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// write carries out the changes. If it is cut short, it returns the cause.
func (w *writing[W, T]) write(ctx context.Context) error {
	w.errs, w.times = make([]error, len(w.changes)), make([]changeTimes, len(w.changes))
	w.results = &writeResults[T]{signal: make(chan struct{}, 1)}
	start := time.Now()
	w.began = start
	defer func() { w.ended = time.Now() }()
	timeout := w.o.cfg.CommunicatorTimeout
	// A change begins within the first timeout. A move that has begun takes at
	// most three: so its second half begins within the second and its
	// give-back within the third.
	gates := []struct {
		at    time.Time
		close func()
	}{
		{start.Add(timeout), w.Machine.CloseBegin},
		{start.Add(2 * timeout), w.Machine.CloseSecond},
		{start.Add(3 * timeout), w.Machine.CloseBack},
	}
	cut := ctx.Done()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	defer w.close()
	for {
		if err := w.o.inflight.takeDeposed(); err != nil {
			w.cause = err
		}
		if w.cause == nil && ctx.Err() != nil {
			w.cause = causeOf(ctx)
			w.Machine.CloseBegin()
		}
		if errors.Is(w.cause, ErrDeposed) {
			// Another leader writes now: the calls in flight are cancelled, and the
			// term does not wait for them.
			w.abort(w.cause)
			w.Machine.CloseBack()
			w.abandon()
			return w.cause
		}
		for w.active < w.o.cfg.Concurrency {
			call, ok := w.Machine.Next()
			if !ok {
				break
			}
			w.send(call)
		}
		w.left.Store(int64(w.Machine.Left()))
		if w.Machine.Over() {
			return w.cause
		}
		next := start.Add(4 * timeout)
		if len(gates) > 0 {
			next = gates[0].at
		}
		if c := w.oldest(); c != nil && c.deadline.Before(next) {
			next = c.deadline
		}
		timer.Reset(time.Until(next))
		select {
		case <-w.results.signal:
			w.collect()
		case <-timer.C:
			w.collect()
			now := time.Now()
			w.expire(now)
			for len(gates) > 0 && !now.Before(gates[0].at) {
				gates[0].close()
				gates = gates[1:]
			}
		case w.cause = <-w.o.inflight.deposed:
		case <-cut:
			cut = nil // seen above
		}
	}
}

// send makes a call on a separate goroutine.
func (w *writing[W, T]) send(call handover.Call) {
	c := &writeCall[T]{call: call, started: time.Now(), writes: make([]Write[T], len(call.Writes))}
	until, hangs := c.started.Add(w.o.cfg.CommunicatorTimeout), true
	for i, write := range call.Writes {
		hangs = hangs && write.Start && w.changes[write.Change].Hangs
		if t := &w.times[write.Change]; !t.begun {
			t.begun, t.began = true, c.started.Sub(w.began)
		}
		c.writes[i] = Write[T]{Op: OpRemove, Task: w.names[write.Change]}
		if write.Start {
			c.writes[i].Op = OpAdd
		}
	}
	if c.deadline = until; hangs {
		c.deadline = c.started.Add(w.o.cfg.CommunicatorTimeout / 10)
	}
	at, _ := slices.BinarySearchFunc(w.sent, c, func(a, b *writeCall[T]) int { return cmp.Or(a.deadline.Compare(b.deadline), -1) })
	w.sent = slices.Insert(w.sent, at, c)
	w.active++
	worker := w.workers[call.Worker]

	calls := &w.o.inflight
	calls.mu.Lock()
	calls.take(worker.slot, c, until)
	calls.mu.Unlock()

	ctx, cancel := context.WithDeadline(w.ctx, c.started.Add(callTimeout(w.o.cfg.CommunicatorTimeout)))
	results := w.results
	if len(c.writes) > 1 {
		c.index = sync.OnceValue(func() map[Write[T]]int {
			index := make(map[Write[T]]int, len(c.writes))
			for i, write := range c.writes {
				index[write] = i
			}
			return index
		})
		ctx = ContextWithApplied(ctx, func(write Write[T]) { w.o.recordApplied(results, c, write) })
	}
	name, slot := worker.name, worker.slot
	go func() {
		defer cancel()
		errs := slices.Repeat([]error{errGoexit}, len(c.writes))
		defer func() {
			took := time.Since(c.started)
			calls.mu.Lock()
			defer calls.mu.Unlock()
			calls.free(slot)
			c.errs, c.took = errs, took
			if results.closed {
				w.late(name, c)
				return
			}
			results.calls = append(results.calls, c)
			results.notify()
		}()
		errs = w.o.callWrites(ctx, name, c.writes)
	}()
}

// recordApplied records a write that is done in a call that has not returned.
func (o *Orchestrator[W, T]) recordApplied(results *writeResults[T], c *writeCall[T], write Write[T]) {
	defer func() { _ = recover() }() // a name that cannot be compared is not in the call
	i, ok := c.index()[write]
	if !ok {
		return
	}
	o.inflight.mu.Lock()
	defer o.inflight.mu.Unlock()
	results.applied = append(results.applied, appliedWrite[T]{c, i})
	results.notify()
}

// collect processes the writes that are done, and the calls that have returned.
func (w *writing[W, T]) collect() {
	calls := &w.o.inflight
	calls.mu.Lock()
	returned, early := w.results.calls, w.results.applied
	w.results.calls, w.results.applied = nil, nil
	calls.mu.Unlock()
	now := time.Now()
	for _, e := range early {
		if c := e.call; !c.over && !c.isApplied(e.write) {
			if c.applied == nil {
				c.applied = make([]bool, len(c.writes))
			}
			c.applied[e.write] = true
			w.statsOf(c.writes[e.write].Op).count(nil, false)
			w.learn(c, e.write, nil, handover.Done, false, now)
			w.Machine.Answered(c.call.Writes[e.write], handover.Done)
		}
	}
	for _, c := range returned {
		if c.over {
			w.late(w.workers[c.call.Worker].name, c)
			w.Machine.Returned(c.call.Worker)
			continue
		}
		w.settle(c, c.errs, c.took, false)
	}
}

// close makes calls that return from now on late.
func (w *writing[W, T]) close() {
	calls := &w.o.inflight
	calls.mu.Lock()
	defer calls.mu.Unlock()
	w.results.closed = true
	for _, c := range w.results.calls {
		w.late(w.workers[c.call.Worker].name, c)
	}
}

// late processes a call that returned after its deadline, or after the end of the
// writes.
func (w *writing[W, T]) late(worker W, c *writeCall[T]) {
	for i, err := range c.errs {
		write := c.writes[i]
		w.o.inflight.recordDeposed(w.ctx, &CallError[W, T]{Op: write.Op, Worker: worker, Task: write.Task, Err: err})
	}
}

// oldest returns the call whose deadline comes first.
func (w *writing[W, T]) oldest() *writeCall[T] {
	for len(w.sent) > 0 && w.sent[0].over {
		w.sent = w.sent[1:]
	}
	if len(w.sent) == 0 {
		return nil
	}
	return w.sent[0]
}

// expire settles the calls whose deadline has passed.
func (w *writing[W, T]) expire(now time.Time) {
	for c := w.oldest(); c != nil && !now.Before(c.deadline); c = w.oldest() {
		w.settle(c, slices.Repeat([]error{ErrSilent}, len(c.writes)), now.Sub(c.started), true)
	}
}

// abandon gives up all calls in flight.
func (w *writing[W, T]) abandon() {
	w.collect()
	now := time.Now()
	for c := w.oldest(); c != nil; c = w.oldest() {
		c.over = true
		for i, write := range c.call.Writes {
			if c.isApplied(i) {
				continue
			}
			w.errs[write.Change] = cmp.Or[error](w.errs[write.Change], w.cause)
			w.answered(write, false, now)
			if c.writes[i].Op == OpAdd {
				w.Unsure(c.call.Worker, w.changes[write.Change].Task)
			}
		}
	}
}

// settle records the answers to a call.
func (w *writing[W, T]) settle(c *writeCall[T], errs []error, took time.Duration, stuck bool) {
	c.over = true
	w.active--
	timedOut := stuck || took >= callTimeout(w.o.cfg.CommunicatorTimeout)
	rest := handover.Call{Worker: c.call.Worker} // the writes that were not applied before
	var answers []handover.Result
	for i, err := range errs {
		if c.isApplied(i) {
			continue
		}
		timedOut = timedOut || errors.Is(err, context.DeadlineExceeded)
		rest.Writes = append(rest.Writes, c.call.Writes[i])
		answers = append(answers, meaning(err))
	}
	stats := w.statsOf(OpApply)
	if w.o.applier == nil {
		stats = w.statsOf(c.writes[0].Op)
	} else {
		stats.count(errors.Join(errs...), timedOut)
	}
	stats.Seconds.observe(took)
	now := time.Now()
	for i, err := range errs {
		if !c.isApplied(i) {
			w.statsOf(c.writes[i].Op).count(err, timedOut)
			w.learn(c, i, err, meaning(err), timedOut, now)
		}
	}
	w.Machine.Done(rest, answers, timedOut, stuck)
}

// isApplied reports whether a write was done before its call returned.
func (c *writeCall[T]) isApplied(write int) bool { return c.applied != nil && c.applied[write] }

func (w *writing[W, T]) statsOf(op Op) *CallStats {
	switch op {
	case OpAdd:
		return &w.calls.Add
	case OpRemove:
		return &w.calls.Remove
	}
	return &w.calls.Apply
}

// learn records the answer to one write.
func (w *writing[W, T]) learn(c *writeCall[T], i int, err error, answer handover.Result, timedOut bool, now time.Time) {
	write := c.call.Writes[i]
	task := w.changes[write.Change].Task
	worker := w.workers[c.call.Worker]
	if answer == handover.Done {
		worker.acked = append(worker.acked, c.writes[i])
	}
	w.errs[write.Change] = cmp.Or(w.errs[write.Change], err)
	// A refused start of a task that is no longer expected is not a failure: a transport
	// may learn of the removal before the term does.
	unwanted := write.Start && answer == handover.Refused && !errors.Is(err, ErrDeposed) && !w.o.expects(task)
	if err != nil && answer != handover.Stopping && !unwanted {
		failure := &CallError[W, T]{Op: c.writes[i].Op, Worker: worker.name, Task: w.names[write.Change], Err: err}
		if errors.Is(err, ErrDeposed) && !errors.Is(w.cause, ErrDeposed) {
			w.cause = failure
		} else {
			w.failed = append(w.failed, failure)
		}
	}
	w.Ended(c.call.Worker, write, &term.Result{
		Answer: answer, Err: err, TimedOut: timedOut,
		Ignored:   unwanted || errors.Is(err, ErrStale) || errors.Is(err, ErrDeposed), // refused because of its age
		Silent:    errors.Is(err, ErrSilent) || errors.Is(err, context.DeadlineExceeded),
		Elsewhere: errors.Is(err, ErrElsewhere),
	}, term.Moment{Term: w.o.number, Time: now})
	w.answered(write, answer == handover.Done, now)
}

// outcome returns the outcome of change i, and the error if it did not succeed.
func (w *writing[W, T]) outcome(i int) (Outcome, error) {
	out, skip := w.Machine.Outcome(i)
	err := w.errs[i]
	if skip != handover.NotSkipped {
		err = errors.Join(err, fmt.Errorf("%w: %v", ErrSkipped, skip))
	}
	switch out {
	case handover.OutDone:
		return OutcomeDone, nil
	case handover.OutUnstarted:
		out = handover.OutFailed
	case handover.Pending:
		out = handover.OutUnknown
	}
	return Outcome(out), err
}
