package communicatortest

// This file holds the vocabulary of faults: what can happen to a call, and what
// its caller is then told.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
)

// ErrInjected is wrapped by the errors that [Faulty] makes up, save for those
// of calls whose context ended, which are that context's cause.
var ErrInjected = errors.New("injected fault")

// FaultKind is what happens to a call.
type FaultKind uint8

// The kinds of fault. A call that is handed on reaches the wrapped
// Communicator, whatever becomes of its answer.
const (
	// NoFault hands the call on, and its answer back.
	NoFault FaultKind = iota

	// Refusal does not hand the call on. The caller gets an error that wraps
	// orchestrator.ErrRejected.
	Refusal

	// Failure does not hand the call on. The caller gets an error that leaves
	// open whether it happened.
	Failure

	// FalseFailure hands the call on. The caller gets the same error as for
	// Failure, also where it succeeded.
	FalseFailure

	// LostRequest does not hand the call on. The caller waits until its context
	// ends.
	LostRequest

	// LostAnswer hands the call on. The caller waits until its context ends.
	LostAnswer

	// LateAnswer hands the call on. The answer, which may well be a success, is
	// given when Fault.Late has passed since the end of the caller's context:
	// so the call breaks C3.
	LateAnswer

	// LateLanding lets the caller wait until its context ends, and hands the
	// call on when Fault.Late has passed since then: under a context of its
	// own, but with the values of the caller's, the term among them. Whether it
	// lands is then up to the worker's fence (C7).
	LateLanding

	// Stuck does not hand the call on, and does not return when its context
	// ends, but when Fault.Late has passed since it was made, or never, if that
	// is zero: so the call breaks C3.
	Stuck

	faultKinds // how many there are
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

// delivered reports whether a call of this kind is handed on at once.
func (kind FaultKind) delivered() bool {
	switch kind {
	case Refusal, Failure, LostRequest, LateLanding, Stuck:
		return false
	}
	return true
}

// waits reports whether the caller is left waiting until its context ends.
func (kind FaultKind) waits() bool {
	switch kind {
	case LostRequest, LostAnswer, LateAnswer, LateLanding:
		return true
	}
	return false
}

// Fault is what happens to one call. The zero Fault is none at all.
type Fault struct {
	// Kind is what happens. Values without a name count as NoFault.
	Kind FaultKind

	// Latency is how long the call takes to get to the worker, before anything
	// else happens. Where the caller's context ends before, the call is not
	// handed on, and the caller gets the context's cause; Stuck and LateLanding
	// remain what they are. Not positive means at once.
	Latency time.Duration

	// Late is how late LateAnswer, LateLanding and Stuck are, as said there.
	Late time.Duration

	// Err is what the caller is told where the fault makes up the answer. nil
	// means what is said at Kind, with an error that wraps ErrInjected.
	Err error
}

// none reports whether a call can be handed on as it is.
func (fault Fault) none() bool {
	return fault.Latency <= 0 && (fault.Kind == NoFault || fault.Kind >= faultKinds)
}

// verdict returns what the caller is told in the end, or nil if that is what
// the worker answered.
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

// Call is a call that a fault is wanted for. Each write of an Apply is a call
// of its own.
type Call[W, T comparable] struct {
	// Term is the term the call belongs to, or zero if it belongs to none.
	Term orchestrator.Term
	// Op is OpList, OpAdd or OpRemove.
	Op     orchestrator.Op
	Worker W
	// Task is the zero value where Op is OpList.
	Task T
}
