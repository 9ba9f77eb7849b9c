package communicatortest

// The fault injector: the way of a call through a faulty network.

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

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

	healed   chan struct{} // closed by Heal
	closed   chan struct{} // closed by Close
	mu       sync.Mutex    // guards the closing of both, and landings.Add after closed
	landings sync.WaitGroup
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
// fault, and new calls are delivered unchanged. Calls with LateLanding still arrive
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
	f.landings.Wait()
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

// handOn delivers the calls with these indices to the wrapped Communicator together,
// and returns one answer for each. It is called from several goroutines, even after
// the caller's call has returned.
type handOn[T comparable] func(ctx context.Context, calls []int) []answer[T]

// carry sends calls that were made together through the network, each with its
// fault, and returns their answers.
func (f *Faulty[W, T]) carry(ctx context.Context, faults []Fault, hand handOn[T]) []answer[T] {
	made := time.Now()
	f.travel(ctx, faults)
	var on []int
	for i, fault := range faults {
		if fault.Kind.delivered() {
			on = append(on, i)
		}
	}
	answers := make([]answer[T], len(faults))
	if len(on) > 0 {
		for j, a := range hand(ctx, on) {
			answers[on[j]] = a
		}
	}
	f.linger(ctx, made, faults, hand)
	for i, fault := range faults {
		if err := fault.verdict(ctx); err != nil {
			answers[i] = answer[T]{err: err}
		}
	}
	return answers
}

// travel waits for the latency. Calls whose context ends first are lost, except for
// LateLanding and Stuck.
func (f *Faulty[W, T]) travel(ctx context.Context, faults []Fault) {
	var latency time.Duration
	for _, fault := range faults {
		latency = max(latency, fault.Latency)
	}
	if f.pause(ctx, latency) {
		return
	}
	for i, fault := range faults {
		if fault.Kind != LateLanding && fault.Kind != Stuck {
			faults[i] = Fault{Kind: LostRequest}
		}
	}
}

// linger waits as long as the faults require after the other calls have been
// delivered, and schedules the late deliveries.
func (f *Faulty[W, T]) linger(ctx context.Context, made time.Time, faults []Fault, hand handOn[T]) {
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
		case LateLanding:
			f.land(endless, fault.Late, func(ctx context.Context) { hand(ctx, []int{i}) })
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

// land delivers a call after its caller has stopped waiting. ctx carries the call's
// term and never ends.
func (f *Faulty[W, T]) land(ctx context.Context, late time.Duration, hand func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed:
		return
	default:
	}
	f.landings.Go(func() {
		timer := time.NewTimer(late)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-f.closed:
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		f.landings.Go(func() {
			defer cancel(nil)
			hand(ctx)
		})
		select {
		case <-ctx.Done():
		case <-f.closed:
			cancel(fmt.Errorf("%w: the network was closed", ErrInjected))
		}
	})
}
