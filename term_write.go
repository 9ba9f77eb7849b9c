package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/term"
)

// The third phase of a term: the writes. Package handover decides what may be sent;
// goroutines, contexts and the clock are here.

// writing carries out the changes of one term. The term's goroutine owns it. Each call
// runs on a separate goroutine, which puts its result into landed under inflight.mu.
type writing[W, T comparable] struct {
	*term.Writes

	o       *Orchestrator[W, T]
	workers []*worker[W, T]
	changes []term.Change
	names   []T             // of the changes' tasks
	ctx     context.Context // the parent of all calls
	abort   context.CancelCauseFunc

	flights []*flight[T] // in the order of their deadlines; settled ones are dropped late
	active  int          // the number of calls in flight that have not expired
	landed  *landing[T]

	errs   []error // by change: the first error
	failed []error // every failure, as *CallError
	calls  *TermStats
	cause  error // why the writes were cut short
}

// flight is a call in flight.
type flight[T comparable] struct {
	call     handover.Call
	writes   []Write[T]
	started  time.Time
	deadline time.Time
	over     bool                    // the term no longer waits: it returned, or its time is up
	applied  []bool                  // by write: it was done before the call returned; nil if none was
	index    func() map[Write[T]]int // of writes

	// Set when the call has returned:
	took time.Duration
	errs []error
}

// landing holds the calls that have returned. inflight.mu guards it.
type landing[T comparable] struct {
	flights []*flight[T]
	applied []applied[T]
	signal  chan struct{}
	closed  bool // the writes have ended, so calls that return are late
}

// applied is a write that is done in a call that has not returned.
type applied[T comparable] struct {
	flight *flight[T]
	write  int
}

// arrived signals that there is something to collect. The caller holds inflight.mu.
func (l *landing[T]) arrived() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// write carries out the changes. If it is cut short, it returns the cause.
func (w *writing[W, T]) write(ctx context.Context) error {
	w.errs = make([]error, len(w.changes))
	w.landed = &landing[T]{signal: make(chan struct{}, 1)}
	start := time.Now()
	timeout := w.o.cfg.timeout
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
		if err := w.o.inflight.told(); err != nil {
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
		for w.active < w.o.cfg.concurrency {
			call, ok := w.Machine.Next()
			if !ok {
				break
			}
			w.send(call)
		}
		if w.Machine.Over() {
			return w.cause
		}
		next := start.Add(4 * timeout)
		if len(gates) > 0 {
			next = gates[0].at
		}
		if f := w.oldest(); f != nil && f.deadline.Before(next) {
			next = f.deadline
		}
		timer.Reset(time.Until(next))
		select {
		case <-w.landed.signal:
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
	f := &flight[T]{call: call, started: time.Now(), writes: make([]Write[T], len(call.Writes))}
	f.deadline = f.started.Add(w.o.cfg.timeout)
	for i, write := range call.Writes {
		f.writes[i] = Write[T]{Op: OpRemove, Task: w.names[write.Change]}
		if write.Start {
			f.writes[i].Op = OpAdd
		}
	}
	w.flights = append(w.flights, f)
	w.active++
	worker := w.workers[call.Worker]

	calls := &w.o.inflight
	calls.mu.Lock()
	calls.take(worker.slot, f.deadline)
	calls.mu.Unlock()

	ctx, cancel := context.WithDeadline(w.ctx, f.started.Add(callTimeout(w.o.cfg.timeout)))
	landed := w.landed
	if len(f.writes) > 1 {
		f.index = sync.OnceValue(func() map[Write[T]]int {
			index := make(map[Write[T]]int, len(f.writes))
			for i, write := range f.writes {
				index[write] = i
			}
			return index
		})
		ctx = ContextWithApplied(ctx, func(write Write[T]) { w.o.applied(landed, f, write) })
	}
	name, slot := worker.name, worker.slot
	go func() {
		defer cancel()
		errs := repeat(errGoexit, len(f.writes))
		defer func() {
			took := time.Since(f.started)
			calls.mu.Lock()
			defer calls.mu.Unlock()
			calls.free(slot)
			f.errs, f.took = errs, took
			if landed.closed {
				w.late(name, f)
				return
			}
			landed.flights = append(landed.flights, f)
			landed.arrived()
		}()
		errs = w.o.callWrites(ctx, name, f.writes)
	}()
}

// applied records a write that is done in a call that has not returned.
func (o *Orchestrator[W, T]) applied(landed *landing[T], f *flight[T], write Write[T]) {
	defer func() { _ = recover() }() // a name that cannot be compared is not in the call
	i, ok := f.index()[write]
	if !ok {
		return
	}
	o.inflight.mu.Lock()
	defer o.inflight.mu.Unlock()
	landed.applied = append(landed.applied, applied[T]{f, i})
	landed.arrived()
}

// collect processes the writes that are done, and the calls that have returned.
func (w *writing[W, T]) collect() {
	calls := &w.o.inflight
	calls.mu.Lock()
	flights, early := w.landed.flights, w.landed.applied
	w.landed.flights, w.landed.applied = nil, nil
	calls.mu.Unlock()
	now := time.Now()
	for _, e := range early {
		if f := e.flight; !f.over && !f.isApplied(e.write) {
			if f.applied == nil {
				f.applied = make([]bool, len(f.writes))
			}
			f.applied[e.write] = true
			w.statsOf(f.writes[e.write].Op).count(nil, false)
			w.learn(f, e.write, nil, handover.Done, false, now)
			w.Machine.Answered(f.call.Writes[e.write], handover.Done)
		}
	}
	for _, f := range flights {
		if f.over {
			w.late(w.workers[f.call.Worker].name, f)
			w.Machine.Returned(f.call.Worker)
			continue
		}
		w.settle(f, f.errs, f.took, false)
	}
}

// close makes calls that return from now on late.
func (w *writing[W, T]) close() {
	calls := &w.o.inflight
	calls.mu.Lock()
	defer calls.mu.Unlock()
	w.landed.closed = true
	for _, f := range w.landed.flights {
		w.late(w.workers[f.call.Worker].name, f)
	}
}

// late processes a call that returned after its deadline, or after the end of the
// writes.
func (w *writing[W, T]) late(worker W, f *flight[T]) {
	for i, err := range f.errs {
		write := f.writes[i]
		w.o.inflight.tell(w.ctx, &CallError[W, T]{Op: write.Op, Worker: worker, Task: write.Task, Err: err})
	}
}

// oldest returns the flight whose deadline comes first.
func (w *writing[W, T]) oldest() *flight[T] {
	for len(w.flights) > 0 && w.flights[0].over {
		w.flights = w.flights[1:]
	}
	if len(w.flights) == 0 {
		return nil
	}
	return w.flights[0]
}

// expire settles the calls whose deadline has passed.
func (w *writing[W, T]) expire(now time.Time) {
	for f := w.oldest(); f != nil && !now.Before(f.deadline); f = w.oldest() {
		w.settle(f, repeat(ErrSilent, len(f.writes)), now.Sub(f.started), true)
	}
}

// abandon gives up all calls in flight.
func (w *writing[W, T]) abandon() {
	w.collect()
	for f := w.oldest(); f != nil; f = w.oldest() {
		f.over = true
		for i, write := range f.call.Writes {
			if f.isApplied(i) {
				continue
			}
			w.errs[write.Change] = cmp.Or[error](w.errs[write.Change], w.cause)
			if f.writes[i].Op == OpAdd {
				w.Unsure(f.call.Worker, w.changes[write.Change].Task)
			}
		}
	}
}

// settle records the answers to a call.
func (w *writing[W, T]) settle(f *flight[T], errs []error, took time.Duration, stuck bool) {
	f.over = true
	w.active--
	timedOut := stuck || took >= callTimeout(w.o.cfg.timeout)
	rest := handover.Call{Worker: f.call.Worker} // the writes that were not applied before
	var answers []handover.Answer
	for i, err := range errs {
		if f.isApplied(i) {
			continue
		}
		timedOut = timedOut || errors.Is(err, context.DeadlineExceeded)
		rest.Writes = append(rest.Writes, f.call.Writes[i])
		answers = append(answers, meaning(err))
	}
	stats := w.statsOf(OpApply)
	if w.o.applier == nil {
		stats = w.statsOf(f.writes[0].Op)
	} else {
		stats.count(errors.Join(errs...), timedOut)
	}
	stats.Seconds.observe(took)
	now := time.Now()
	for i, err := range errs {
		if !f.isApplied(i) {
			w.statsOf(f.writes[i].Op).count(err, timedOut)
			w.learn(f, i, err, meaning(err), timedOut, now)
		}
	}
	w.Machine.Done(rest, answers, timedOut, stuck)
}

// isApplied reports whether a write was done before its call returned.
func (f *flight[T]) isApplied(write int) bool { return f.applied != nil && f.applied[write] }

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
func (w *writing[W, T]) learn(f *flight[T], i int, err error, answer handover.Answer, timedOut bool, now time.Time) {
	write := f.call.Writes[i]
	c := &w.changes[write.Change]
	worker := w.workers[f.call.Worker]
	if answer == handover.Done {
		worker.acked = append(worker.acked, f.writes[i])
	}
	if err != nil && w.errs[write.Change] == nil {
		w.errs[write.Change] = err
	}
	// A refused start of a task that is no longer expected is not a failure: a transport
	// may learn of the removal before the term does.
	unwanted := write.Start && answer == handover.Refused && !errors.Is(err, ErrDeposed) && !w.o.expects(c.Task)
	if err != nil && answer != handover.Stopping && !unwanted {
		failure := &CallError[W, T]{Op: f.writes[i].Op, Worker: worker.name, Task: w.names[write.Change], Err: err}
		if errors.Is(err, ErrDeposed) && !errors.Is(w.cause, ErrDeposed) {
			w.cause = failure
		} else {
			w.failed = append(w.failed, failure)
		}
	}
	w.Ended(f.call.Worker, write, &term.Result{
		Answer: answer, Err: err, TimedOut: timedOut, Ignored: unwanted || fencedOff(err),
		Stopping: errors.Is(err, ErrStopping), Refused: errors.Is(err, ErrRejected), Silent: isTimeout(err),
	}, term.Moment{Term: w.o.number, Time: now})
}

// isTimeout reports whether a call used up its time.
func isTimeout(err error) bool {
	return errors.Is(err, ErrSilent) || errors.Is(err, context.DeadlineExceeded)
}

// fencedOff reports whether a worker refused a write because of its age. That is a
// failure of neither the task nor the worker.
func fencedOff(err error) bool { return errors.Is(err, ErrStale) || errors.Is(err, ErrDeposed) }

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
	case handover.OutFailed, handover.OutUnstarted:
		return OutcomeFailed, err
	case handover.OutReturned:
		return OutcomeReturned, err
	case handover.OutStopping:
		return OutcomeStopping, err
	case handover.OutSkipped:
		return OutcomeSkipped, err
	}
	return OutcomeUnknown, err
}
