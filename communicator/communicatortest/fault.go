package communicatortest

// Faults: what can happen to a call, and what its caller receives.

import (
	"context"
	"errors"
	"fmt"
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

	// LateLanding makes the caller wait until its context ends, and delivers the
	// call when Fault.Late has passed since then. The call has a separate context
	// with the values of the caller's, such as the term. Whether the call takes
	// effect depends on the worker's fence (C7).
	LateLanding

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
		"LostAnswer", "LateAnswer", "LateLanding", "Stuck",
	}
	if kind < faultKinds {
		return names[kind]
	}
	return fmt.Sprintf("FaultKind(%d)", uint8(kind))
}

// delivered reports whether a call of this kind is delivered without delay.
func (kind FaultKind) delivered() bool {
	switch kind {
	case Refusal, Failure, LostRequest, LateLanding, Stuck:
		return false
	}
	return true
}

// waits reports whether the caller waits until its context ends.
func (kind FaultKind) waits() bool {
	switch kind {
	case LostRequest, LostAnswer, LateAnswer, LateLanding:
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
	// returns the context's cause; Stuck and LateLanding keep their effects. Zero or
	// negative means no delay.
	Latency time.Duration

	// Late is the delay of LateAnswer, LateLanding and Stuck; see there.
	Late time.Duration

	// Err replaces the error that the caller receives if the fault makes up the
	// answer. Nil means the error described at Kind, which wraps ErrInjected.
	Err error
}

// none reports whether a call can be delivered as it is.
func (fault Fault) none() bool {
	return fault.Latency <= 0 && (fault.Kind == NoFault || fault.Kind >= faultKinds)
}

// verdict returns the error that the fault makes up, or nil if the caller receives
// the worker's answer.
func (fault Fault) verdict(ctx context.Context) error {
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
