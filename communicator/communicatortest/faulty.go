package communicatortest

// The fault injector: what can happen to a call, its way through a faulty network, and
// what its caller receives.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// ErrInjected is wrapped by the errors that [Faulty] makes up, except for those of
// calls whose context ended: these return the context's cause.
var ErrInjected = errors.New("injected fault")

// FaultKind is the kind of a [Fault].
type FaultKind uint8

// The kinds of fault. A call that is delivered reaches the wrapped Communicator,
// even if its answer is lost.
const (
	// NoFault delivers the call and returns its answer.
	NoFault FaultKind = iota

	// Refusal does not deliver the call. The caller receives an error that wraps
	// orchestrator.ErrRejected.
	Refusal

	// Failure does not deliver the call. The caller receives an error that leaves
	// open whether the call took effect.
	Failure

	// FalseFailure delivers the call. The caller receives the same error as for
	// Failure, even if the call succeeded.
	FalseFailure

	// LostRequest does not deliver the call. The caller waits until its context
	// ends.
	LostRequest

	// LostAnswer delivers the call. The caller waits until its context ends.
	LostAnswer

	// LateAnswer delivers the call. The caller receives the answer, which may be a
	// success, after Fault.Late has passed since the end of its context. This breaks
	// C3.
	LateAnswer

	// LateRequest makes the caller wait until its context ends, and delivers the
	// call when Fault.Late has passed since then. The call has a separate context
	// with the values of the caller's, such as the term. Whether the call takes
	// effect depends on the worker's fence (C7).
	LateRequest

	// Stuck does not deliver the call, and ignores its context. The call returns
	// when Fault.Late has passed since it was made, or never if Late is zero. This
	// breaks C3.
	Stuck

	faultKinds // the number of kinds
)

// String returns the name of the constant.
func (kind FaultKind) String() string {
	names := [faultKinds]string{
		"NoFault", "Refusal", "Failure", "FalseFailure", "LostRequest",
		"LostAnswer", "LateAnswer", "LateRequest", "Stuck",
	}
	if kind < faultKinds {
		return names[kind]
	}
	return fmt.Sprintf("FaultKind(%d)", uint8(kind))
}

// delivered reports whether a call of this kind is delivered without delay.
func (kind FaultKind) delivered() bool {
	switch kind {
	case Refusal, Failure, LostRequest, LateRequest, Stuck:
		return false
	}
	return true
}

// waits reports whether the caller waits until its context ends.
func (kind FaultKind) waits() bool {
	switch kind {
	case LostRequest, LostAnswer, LateAnswer, LateRequest:
		return true
	}
	return false
}

// Fault is the fault of one call. The zero Fault means no fault.
type Fault struct {
	// Kind is the kind of fault. Values without a name count as NoFault.
	Kind FaultKind

	// Latency is the time that the call takes to reach the worker, before the fault
	// applies. If the caller's context ends first, the call is not delivered and
	// returns the context's cause; Stuck and LateRequest keep their effects. Zero or
	// negative means no delay.
	Latency time.Duration

	// Late is the delay of LateAnswer, LateRequest and Stuck; see there.
	Late time.Duration

	// Err replaces the error that the caller receives if the fault makes up the
	// answer. Nil means the error described at Kind, which wraps ErrInjected.
	Err error
}

// none reports whether a call can be delivered as it is.
func (fault Fault) none() bool {
	return fault.Latency <= 0 && (fault.Kind == NoFault || fault.Kind >= faultKinds)
}

// madeUp returns the error that the fault makes up, or nil if the caller receives
// the worker's answer.
func (fault Fault) madeUp(ctx context.Context) error {
	switch {
	case fault.Kind == NoFault, fault.Kind == LateAnswer, fault.Kind >= faultKinds:
		return nil
	case fault.Err != nil:
		return fault.Err
	case fault.Kind == Refusal:
		return fmt.Errorf("%w: %w", ErrInjected, orchestrator.ErrRejected)
	case fault.Kind.waits() && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %v", ErrInjected, fault.Kind)
}

// Call identifies a call for which a fault is chosen. Each write of an Apply is a
// separate call.
type Call[W, T comparable] struct {
	// Term is the term of the call, or zero if it has none.
	Term orchestrator.Term
	// Op is OpList, OpAdd or OpRemove.
	Op     orchestrator.Op
	Worker W
	// Task is the zero value if Op is OpList.
	Task T
}

// Faulty is a network in front of a Communicator that applies a chosen fault to each
// call. Make it with [NewFaulty] and close it. Its methods may be called from many
// goroutines.
//
// Faulty delays calls with channels and timers alone, so it works in a bubble of
// testing/synctest. Calls with [NoFault] keep the contract as the wrapped
// Communicator does.
type Faulty[W, T comparable] struct {
	next   orchestrator.Communicator[W, T]
	decide func(Call[W, T]) Fault

	healed     chan struct{}  // closed by Heal
	closed     chan struct{}  // closed by Close
	mu         sync.Mutex     // guards the closing of both, and deliveries.Add after closed
	deliveries sync.WaitGroup // late ones
}

// NewFaulty puts a network in front of next. decide returns the fault of each call;
// a nil decide means no faults. [Seeded] makes such a function from a seed. Your own
// function can script a sequence of faults.
//
// decide is called at the beginning of each List, Add and Remove, and for each write
// of an Apply. It is called from many goroutines and must not block. For repeatable
// behaviour, it must derive the fault from the Call alone.
func NewFaulty[W, T comparable](next orchestrator.Communicator[W, T], decide func(Call[W, T]) Fault) *Faulty[W, T] {
	if decide == nil {
		decide = func(Call[W, T]) Fault { return Fault{} }
	}
	return &Faulty[W, T]{
		next:   next,
		decide: decide,
		healed: make(chan struct{}),
		closed: make(chan struct{}),
	}
}

// Communicator returns the Communicator that makes calls through the network. It is
// an [orchestrator.Applier] if and only if the wrapped one is. Each write of an
// Apply gets the fault that it would get alone. The delivered writes travel
// together, after the longest Latency among them, and the answers return together,
// as late as the latest.
func (f *Faulty[W, T]) Communicator() orchestrator.Communicator[W, T] {
	if next, ok := f.next.(orchestrator.Applier[W, T]); ok {
		return faultyApplier[W, T]{faultyCalls[W, T]{f}, next}
	}
	return faultyCalls[W, T]{f}
}

// Heal ends all faults for good. Every waiting call returns with the answer of its
// fault, and new calls are delivered unchanged. Calls with LateRequest still arrive
// late. A second Heal does nothing.
func (f *Faulty[W, T]) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeOnce(f.healed)
}

// Close heals the network, drops the late calls that have not been delivered,
// cancels those being delivered, and returns when they have returned. A second Close
// only waits for the same. Later calls are delivered unchanged.
func (f *Faulty[W, T]) Close() {
	f.mu.Lock()
	f.closeOnce(f.healed)
	f.closeOnce(f.closed)
	f.mu.Unlock()
	f.deliveries.Wait()
}

// closeOnce closes c unless it is closed. The caller holds mu.
func (f *Faulty[W, T]) closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// fault returns the fault of a call.
func (f *Faulty[W, T]) fault(ctx context.Context, op orchestrator.Op, worker W, task T) Fault {
	select {
	case <-f.healed:
		return Fault{}
	default:
	}
	term, _ := orchestrator.TermFromContext(ctx)
	return f.decide(Call[W, T]{Term: term, Op: op, Worker: worker, Task: task})
}

// answer is a worker's answer.
type answer[T comparable] struct {
	tasks []T
	err   error
}

// delivery delivers the calls with these indices to the wrapped Communicator together,
// and returns one answer for each. It is called from several goroutines, even after
// the caller's call has returned.
type delivery[T comparable] func(ctx context.Context, calls []int) []answer[T]

// send sends calls that were made together through the network, each with its
// fault, and returns their answers.
func (f *Faulty[W, T]) send(ctx context.Context, faults []Fault, deliver delivery[T]) []answer[T] {
	made := time.Now()
	f.delayRequests(ctx, faults)
	var on []int
	for i, fault := range faults {
		if fault.Kind.delivered() {
			on = append(on, i)
		}
	}
	answers := make([]answer[T], len(faults))
	if len(on) > 0 {
		for j, a := range deliver(ctx, on) {
			answers[on[j]] = a
		}
	}
	f.delayAnswers(ctx, made, faults, deliver)
	for i, fault := range faults {
		if err := fault.madeUp(ctx); err != nil {
			answers[i] = answer[T]{err: err}
		}
	}
	return answers
}

// delayRequests waits for the latency. Calls whose context ends first are lost, except for
// LateRequest and Stuck.
func (f *Faulty[W, T]) delayRequests(ctx context.Context, faults []Fault) {
	var latency time.Duration
	for _, fault := range faults {
		latency = max(latency, fault.Latency)
	}
	if f.pause(ctx, latency) {
		return
	}
	for i, fault := range faults {
		if fault.Kind != LateRequest && fault.Kind != Stuck {
			faults[i] = Fault{Kind: LostRequest}
		}
	}
}

// delayAnswers waits as long as the faults require after the other calls have been
// delivered, and schedules the late deliveries.
func (f *Faulty[W, T]) delayAnswers(ctx context.Context, made time.Time, faults []Fault, deliver delivery[T]) {
	for _, fault := range faults {
		if fault.Kind.waits() {
			select {
			case <-ctx.Done():
			case <-f.healed:
			}
			break
		}
	}
	endless := context.WithoutCancel(ctx)
	var late time.Duration
	for i, fault := range faults {
		switch fault.Kind {
		case LateRequest:
			f.deliverLate(endless, fault.Late, func(ctx context.Context) { deliver(ctx, []int{i}) })
		case LateAnswer:
			late = max(late, fault.Late)
		}
	}
	f.pause(endless, late)
	for _, fault := range faults {
		switch {
		case fault.Kind == Stuck && fault.Late <= 0:
			<-f.healed
		case fault.Kind == Stuck:
			f.pause(endless, fault.Late-time.Since(made))
		}
	}
}

// pause waits for d or until the network is healed. It returns false if the context
// ended first.
//
// If the context ends at the same instant, it counts as ended first. A select would
// choose at random, so two runs of one seed could differ: latencies and deadlines
// are round numbers and often coincide.
func (f *Faulty[W, T]) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	var elapsed <-chan time.Time
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > d {
		timer := time.NewTimer(d)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-elapsed:
		return true
	case <-f.healed:
		return true
	case <-ctx.Done():
		return false
	}
}

// deliverLate delivers a call after its caller has stopped waiting. ctx carries the call's
// term and never ends.
func (f *Faulty[W, T]) deliverLate(ctx context.Context, late time.Duration, deliver func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed:
		return
	default:
	}
	f.deliveries.Go(func() {
		timer := time.NewTimer(late)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-f.closed:
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		f.deliveries.Go(func() {
			defer cancel(nil)
			deliver(ctx)
		})
		select {
		case <-ctx.Done():
		case <-f.closed:
			cancel(fmt.Errorf("%w: the network was closed", ErrInjected))
		}
	})
}

// faultyCalls is the Communicator of a Faulty.
type faultyCalls[W, T comparable] struct{ f *Faulty[W, T] }

// faultyApplier is the Communicator of a Faulty whose wrapped Communicator is an
// Applier.
type faultyApplier[W, T comparable] struct {
	faultyCalls[W, T]
	next orchestrator.Applier[W, T]
}

var (
	_ orchestrator.Communicator[int, int] = faultyCalls[int, int]{}
	_ orchestrator.Communicator[int, int] = faultyApplier[int, int]{}
	_ orchestrator.Applier[int, int]      = faultyApplier[int, int]{}
)

// List implements orchestrator.Communicator.
func (c faultyCalls[W, T]) List(ctx context.Context, worker W) ([]T, error) {
	var none T
	fault := c.f.fault(ctx, orchestrator.OpList, worker, none)
	if fault.none() {
		return c.f.next.List(ctx, worker)
	}
	a := c.f.send(ctx, []Fault{fault}, func(ctx context.Context, _ []int) []answer[T] {
		tasks, err := c.f.next.List(ctx, worker)
		return []answer[T]{{tasks, err}}
	})[0]
	return a.tasks, a.err
}

// Add implements orchestrator.Communicator.
func (c faultyCalls[W, T]) Add(ctx context.Context, worker W, task T) error {
	return c.write(ctx, orchestrator.OpAdd, worker, task, c.f.next.Add)
}

// Remove implements orchestrator.Communicator.
func (c faultyCalls[W, T]) Remove(ctx context.Context, worker W, task T) error {
	return c.write(ctx, orchestrator.OpRemove, worker, task, c.f.next.Remove)
}

func (c faultyCalls[W, T]) write(ctx context.Context, op orchestrator.Op, worker W, task T,
	next func(context.Context, W, T) error,
) error {
	fault := c.f.fault(ctx, op, worker, task)
	if fault.none() {
		return next(ctx, worker, task)
	}
	return c.f.send(ctx, []Fault{fault}, func(ctx context.Context, _ []int) []answer[T] {
		return []answer[T]{{err: next(ctx, worker, task)}}
	})[0].err
}

// Apply implements orchestrator.Applier.
func (c faultyApplier[W, T]) Apply(ctx context.Context, worker W, writes []orchestrator.Write[T]) []error {
	faults := make([]Fault, len(writes))
	clean := true
	for i, write := range writes {
		faults[i] = c.f.fault(ctx, write.Op, worker, write.Task)
		clean = clean && faults[i].none()
	}
	if clean {
		return c.next.Apply(ctx, worker, writes)
	}
	answers := c.f.send(ctx, faults, func(ctx context.Context, calls []int) []answer[T] {
		some := make([]orchestrator.Write[T], len(calls))
		for j, i := range calls {
			some[j] = writes[i]
		}
		errs := c.next.Apply(ctx, worker, some)
		answers := make([]answer[T], len(calls))
		for j := range answers {
			switch {
			case len(errs) == len(calls):
				answers[j].err = errs[j]
			case errs != nil:
				answers[j].err = fmt.Errorf("%d writes were answered with %d errors", len(calls), len(errs))
			}
		}
		return answers
	})
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = a.err
	}
	return errs
}
