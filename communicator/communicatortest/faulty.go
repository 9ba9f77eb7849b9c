package communicatortest

// This file holds the fault injector: how a call makes its way through a
// network that does to it what was decided.

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Faulty is a network that does to each call what was decided for it, in front
// of a Communicator that knows nothing of it. It is made by [NewFaulty], and
// must be closed. Its methods may be called from many goroutines.
//
// What it holds back it holds back with channels and timers alone, so that it
// works in a bubble of testing/synctest. Where the decision is [NoFault], the
// contract is kept as the wrapped Communicator keeps it.
type Faulty[W, T comparable] struct {
	next   orchestrator.Communicator[W, T]
	decide func(Call[W, T]) Fault

	healed   chan struct{} // closed by Heal
	closed   chan struct{} // closed by Close
	mu       sync.Mutex    // guards the closing of both, and landings.Add after closed
	landings sync.WaitGroup
}

// NewFaulty puts a network in front of next. What happens to a call is what
// decide returns; nil means that nothing ever does. [Seeded] makes such a
// function from a seed, and one's own can script a story.
//
// decide is called once for each List, Add and Remove, and for each write of an
// Apply, when that begins; from many goroutines, so that a network that is to
// behave the same again must derive the fault from the Call alone. It must not
// block.
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

// Communicator returns the Communicator on the near side of the network. It is
// an [orchestrator.Applier] exactly if the wrapped one is. An Apply meets, for
// each of its writes, the fault that the same write would meet alone: those
// that are handed on go on together, after the longest Latency among them, and
// the answers come back together, as late as the latest.
func (f *Faulty[W, T]) Communicator() orchestrator.Communicator[W, T] {
	if next, ok := f.next.(orchestrator.Applier[W, T]); ok {
		return faultyApplier[W, T]{faultyCalls[W, T]{f}, next}
	}
	return faultyCalls[W, T]{f}
}

// Heal ends all faults, for good: every call that waits returns, with the
// answer that its fault was to give in the end, and new calls are handed on as
// they are. Only what is to land late still does, in its own time. Calls after
// the first do nothing.
func (f *Faulty[W, T]) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeOnce(f.healed)
}

// Close heals the network, drops what has not landed, cancels what is landing,
// and returns when that has returned. Calls after the first do nothing but wait
// for the same. Calls made later are handed on as they are.
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

// fault decides what happens to a call.
func (f *Faulty[W, T]) fault(ctx context.Context, op orchestrator.Op, worker W, task T) Fault {
	select {
	case <-f.healed:
		return Fault{}
	default:
	}
	term, _ := orchestrator.TermFromContext(ctx)
	return f.decide(Call[W, T]{Term: term, Op: op, Worker: worker, Task: task})
}

// answer is what comes back from a worker.
type answer[T comparable] struct {
	tasks []T
	err   error
}

// handOn carries the calls with these indices over to the wrapped Communicator,
// all together, and returns as many answers. It is called from several
// goroutines, also when the call has long returned.
type handOn[T comparable] func(ctx context.Context, calls []int) []answer[T]

// carry takes calls that were made together through the network, each with its
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

// travel spends the latency. Calls whose context ends meanwhile are lost,
// unless their fault is one that does not care.
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

// linger waits as long as the faults say after what can be handed on at once
// has been, and sends off what is to land late.
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

// pause waits for d, and reports whether the context lasted longer. Once the
// network is healed it does not wait.
//
// A context that ends in the very same instant ends first, always. To leave
// that to select would give two runs of the same seed two outcomes: latencies
// and deadlines are round numbers.
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

// land hands a call on when its caller has long given up. The context given
// carries the call's term, and never ends.
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
