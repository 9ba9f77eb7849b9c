package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/internal/breaker"
	"github.com/f8949c05/orchestrator/internal/handover"
)

// The third phase of a term: the writes. What may be sent when is decided by
// package handover; here are the goroutines, the contexts and the clock.

// writing carries out the changes of one term. One goroutine, the term's,
// owns it; the calls run on goroutines of their own and come back through the
// line's mutex.
type writing[W, T comparable] struct {
	o       *Orchestrator[W, T]
	fleet   *fleet[W, T]
	changes []change
	names   []T // of the changes' tasks
	machine *handover.Machine
	ctx     context.Context // what calls start from
	abort   context.CancelCauseFunc

	flights []*flight[T] // in the order of their deadlines; settled ones are dropped late
	active  int          // those in flight and not expired
	landed  *landing[T]

	errs   []error // by change: the first error
	unable []error // by change: a failed start of a task that was still expected
	net    []int8  // by change: starts less stops acknowledged
	starts []breaker.Start
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
	over     bool // the term has gone on: it returned, or its time is up

	// When it has landed:
	took time.Duration
	errs []error
}

// landing is where calls arrive when they return, guarded by lines.mu.
type landing[T comparable] struct {
	flights []*flight[T]
	signal  chan struct{}
	closed  bool // the writes are over, and nobody collects any more
}

// write carries out the changes, until all that could be done is done. It
// returns why that was cut short, if it was.
func (w *writing[W, T]) write(ctx context.Context) error {
	w.order()
	start := time.Now()
	timeout := w.o.cfg.timeout
	// A change begins within the first timeout. A move that has begun takes at
	// most three: so its second half begins within the second and its
	// give-back within the third.
	gates := []struct {
		at    time.Time
		close func()
	}{
		{start.Add(timeout), w.machine.CloseBegin},
		{start.Add(2 * timeout), w.machine.CloseSecond},
		{start.Add(3 * timeout), w.machine.CloseBack},
	}
	cut := ctx.Done()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	defer w.close()
	for {
		if err := w.o.lines.told(); err != nil {
			w.cause = err
		}
		if w.cause == nil && ctx.Err() != nil {
			w.cause = causeOf(ctx)
			w.machine.CloseBegin()
		}
		if errors.Is(w.cause, ErrDeposed) {
			// Another leader writes now: whatever is in flight is cancelled, and
			// nobody waits for it.
			w.abort(w.cause)
			w.machine.CloseBack()
			w.abandon()
			return w.cause
		}
		for w.active < w.o.cfg.concurrency {
			call, ok := w.machine.Next()
			if !ok {
				break
			}
			w.send(call)
		}
		if w.machine.Over() {
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
		case w.cause = <-w.o.lines.deposed:
		case <-cut:
			cut = nil // seen above
		}
	}
}

// order makes the machine. Workers that answered fast come first; what timed
// out in the last term comes last.
func (w *writing[W, T]) order() {
	changes := make([]handover.Change, len(w.changes))
	involved := make([]bool, len(w.fleet.workers))
	for i := range w.changes {
		changes[i] = w.changes[i].Change
		for _, end := range []int32{changes[i].From, changes[i].To} {
			if end != handover.None {
				involved[end] = true
			}
		}
	}
	var order []int32
	for i, yes := range involved {
		if yes {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(i, j int32) int {
		return cmp.Compare(w.fleet.workers[i].took, w.fleet.workers[j].took)
	})
	w.machine = handover.New(changes, len(w.fleet.workers), order, w.o.applier != nil)
	w.errs, w.unable = make([]error, len(changes)), make([]error, len(changes))
	w.net = make([]int8, len(changes))
	w.landed = &landing[T]{signal: make(chan struct{}, 1)}
}

// send makes a call on a goroutine of its own.
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
	worker := w.fleet.workers[call.Worker]

	lines := &w.o.lines
	lines.mu.Lock()
	lines.take(worker.line, f.deadline)
	lines.mu.Unlock()

	ctx, cancel := context.WithDeadline(w.ctx, f.started.Add(callTimeout(w.o.cfg.timeout)))
	landed := w.landed
	name, line := worker.name, worker.line
	go func() {
		defer cancel()
		errs := repeat(errGoexit, len(f.writes))
		defer func() {
			took := time.Since(f.started)
			lines.mu.Lock()
			defer lines.mu.Unlock()
			lines.free(line)
			f.errs, f.took = errs, took
			if landed.closed {
				w.late(name, f)
				return
			}
			landed.flights = append(landed.flights, f)
			select {
			case landed.signal <- struct{}{}:
			default:
			}
		}()
		errs = w.o.callWrites(ctx, name, f.writes)
	}()
}

// collect takes in the calls that have returned.
func (w *writing[W, T]) collect() {
	lines := &w.o.lines
	lines.mu.Lock()
	flights := w.landed.flights
	w.landed.flights = nil
	lines.mu.Unlock()
	for _, f := range flights {
		if f.over {
			w.late(w.fleet.workers[f.call.Worker].name, f)
			w.machine.Returned(f.call.Worker)
			continue
		}
		w.settle(f, f.errs, f.took, false)
	}
}

// close has calls that return from now on be late.
func (w *writing[W, T]) close() {
	lines := &w.o.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	w.landed.closed = true
	for _, f := range w.landed.flights {
		w.late(w.fleet.workers[f.call.Worker].name, f)
	}
}

// late takes in a call that has returned when its time was up, or the writes are
// over.
func (w *writing[W, T]) late(worker W, f *flight[T]) {
	for i, err := range f.errs {
		write := f.writes[i]
		w.o.lines.tell(w.ctx, &CallError[W, T]{Op: write.Op, Worker: worker, Task: write.Task, Err: err})
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

// expire goes on without the calls whose deadline has passed.
func (w *writing[W, T]) expire(now time.Time) {
	for f := w.oldest(); f != nil && !now.Before(f.deadline); f = w.oldest() {
		w.settle(f, repeat(ErrSilent, len(f.writes)), now.Sub(f.started), true)
	}
}

// abandon goes on without any of the calls in flight.
func (w *writing[W, T]) abandon() {
	w.collect()
	for f := w.oldest(); f != nil; f = w.oldest() {
		f.over = true
		for i, write := range f.call.Writes {
			w.errs[write.Change] = cmp.Or[error](w.errs[write.Change], w.cause)
			if f.writes[i].Op == OpAdd {
				w.fleet.unsure(f.call.Worker, w.changes[write.Change].Task)
			}
		}
	}
}

// settle records the answers to a call.
func (w *writing[W, T]) settle(f *flight[T], errs []error, took time.Duration, stuck bool) {
	f.over = true
	w.active--
	timedOut := stuck || took >= callTimeout(w.o.cfg.timeout)
	answers := make([]handover.Answer, len(errs))
	for i, err := range errs {
		timedOut = timedOut || errors.Is(err, context.DeadlineExceeded)
		answers[i] = meaning(err)
	}
	stats := w.statsOf(OpApply)
	if w.o.applier == nil {
		stats = w.statsOf(f.writes[0].Op)
	} else {
		stats.count(errors.Join(errs...), timedOut)
	}
	stats.Seconds.observe(took)
	for i, err := range errs {
		w.statsOf(f.writes[i].Op).count(err, timedOut)
		w.learn(f, i, err, answers[i], timedOut)
	}
	w.machine.Done(f.call, answers, timedOut, stuck)
}

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
func (w *writing[W, T]) learn(f *flight[T], i int, err error, answer handover.Answer, timedOut bool) {
	write := f.call.Writes[i]
	c := &w.changes[write.Change]
	worker := w.fleet.workers[f.call.Worker]
	name := w.names[write.Change]
	switch {
	case write.Start && answer == handover.Done:
		w.fleet.didStart(worker, c.Task, name)
		w.net[write.Change]++
	case answer == handover.Done:
		worker.didStop(c.Task, name)
		w.net[write.Change]--
	case write.Start && answer != handover.Refused:
		w.fleet.unsure(f.call.Worker, c.Task)
	}
	if err != nil && w.errs[write.Change] == nil {
		w.errs[write.Change] = err
	}
	// Nor is it a failure that a start was refused which nobody wants any more: a
	// transport may know before the term does.
	unwanted := write.Start && answer == handover.Refused && !errors.Is(err, ErrDeposed) && !w.o.expects(c.Task)
	if err != nil && answer != handover.Stopping && !unwanted {
		failure := &CallError[W, T]{Op: f.writes[i].Op, Worker: worker.name, Task: name, Err: err}
		if errors.Is(err, ErrDeposed) && !errors.Is(w.cause, ErrDeposed) {
			w.cause = failure
		} else {
			w.failed = append(w.failed, failure)
		}
	}
	blameless := unwanted || fencedOff(err)
	if write.Start && !blameless {
		w.unable[write.Change] = err
	}
	switch {
	case write.Start && answer != handover.Stopping && !blameless:
		w.starts = append(w.starts, breaker.Start{
			Pair: breaker.Pair{Task: c.Task, Worker: worker.serial},
			Err:  err, TimedOut: timedOut, Back: write.Back, Elsewhere: c.StartFirst && c.From != handover.None,
		})
	case write.Start || fencedOff(err):
	case err == nil:
		worker.stopped(c.Task)
	default:
		surplus := c.To == handover.None || w.net[write.Change] > 0 // the other copy runs
		worker.stopFailed(c.Task, surplus, err, breaker.Moment{Term: w.o.number, Time: time.Now()}, &w.o.cfg)
	}
}

// limitGains limits what a worker may gain in the next term to what it has started
// in this one, and at least one, if it could not begin all. So a worker that starts
// slowly does not keep its share of what is missing from the others.
func (w *writing[W, T]) limitGains() {
	started := make(map[uint64]int32)
	for _, s := range w.starts {
		if s.Err == nil {
			started[s.Worker]++
		}
	}
	for i := range w.changes {
		c := &w.changes[i]
		if c.From != handover.None {
			continue
		}
		_, skip := w.machine.Outcome(i)
		if skip == handover.WindowClosed || skip == handover.WorkerTimedOut {
			worker := w.fleet.workers[c.To]
			worker.gain, worker.limited = max(1, started[worker.serial]), w.o.number+1
		}
	}
}

// fencedOff reports whether a worker refused a write for the write's age. That is no
// failure of the task or the worker.
func fencedOff(err error) bool { return errors.Is(err, ErrStale) || errors.Is(err, ErrDeposed) }

// outcomes returns how the writes ended, for the breakers.
func (w *writing[W, T]) outcomes() breaker.Writes {
	out := breaker.Writes{Starts: w.starts}
	for i := range w.changes {
		c := &w.changes[i]
		if o, _ := w.machine.Outcome(i); o == handover.OutSkipped && c.To != handover.None {
			out.Skipped = append(out.Skipped, c.Task)
		}
		// Neither the receiver nor the source is known to have started the task.
		if c.kind().Op == Move && w.net[i] < 0 && out.Stranded == nil && !errors.Is(w.cause, ErrDeposed) {
			out.Stranded = w.unable[i]
		}
	}
	return out
}

// unsure records a start that may have happened.
func (f *fleet[W, T]) unsure(worker, task int32) {
	w := f.workers[worker]
	if w.maybe == nil {
		w.maybe = make(set)
	}
	w.maybe.add(task)
}

// outcome says what came of change i, and why it did not succeed.
func (w *writing[W, T]) outcome(i int) (Outcome, error) {
	out, skip := w.machine.Outcome(i)
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
