package orchestrator

import (
	"errors"
	"fmt"
	"strings"
)

// The errors of a [Communicator] that mean more than "unknown". They may be wrapped.
var (
	// ErrRejected reports that a write was not done and will not be done.
	ErrRejected = errors.New("rejected by the worker")

	// ErrStale reports that the worker has seen a later term than the write's (C7). It
	// wraps ErrRejected and counts against neither the worker nor the task.
	ErrStale = fmt.Errorf("%w: stale term", ErrRejected)

	// ErrElsewhere reports a start that a worker refuses because the task has asked to run
	// on another worker. It wraps ErrRejected. It pauses the task on that worker, and counts
	// against neither the worker nor the task (T9).
	ErrElsewhere = fmt.Errorf("%w: the task has asked to run elsewhere", ErrRejected)

	// ErrStopping reports that a stop is under way and outlasts the call. It is not a
	// failure: the task stays in List until it has stopped.
	ErrStopping = errors.New("stop under way")

	// ErrDeposed reports a higher epoch: another leader has taken over. It ends
	// the term and [Orchestrator.Run]. An election also ends the leader's context
	// with it as the cause.
	ErrDeposed = errors.New("deposed")
)

// The causes that a term adds.
var (
	// ErrSilent is the cause in a [CallError] for a call that had no answer by its
	// deadline, or could not be made. The text may include the failure of the previous
	// call.
	ErrSilent = errors.New("no answer in time")

	// ErrStuck reports a worker that receives no call, because an earlier one has not
	// returned. It wraps ErrSilent.
	ErrStuck = fmt.Errorf("%w: an earlier call has not returned", ErrSilent)

	// ErrHeld reports a worker from which its Communicator has heard nothing new (C9).
	// It wraps ErrSilent.
	ErrHeld = fmt.Errorf("%w: nothing new heard by the communicator", ErrSilent)

	// ErrSkipped is the cause in a [Change] that the term did not begin.
	ErrSkipped = errors.New("not begun in this term")
)

// The errors of the methods that change the expectations. They are wrapped with
// the names involved.
var (
	// ErrInvalid reports an argument or an option that is out of range. The text names
	// it and its value; nothing was changed. A name is invalid if it cannot be
	// compared, such as a slice in an interface, or does not equal itself, such as NaN.
	ErrInvalid = errors.New("invalid")

	// ErrUnknownWorker reports a worker that was not added.
	ErrUnknownWorker = errors.New("unknown worker")

	// ErrNoTerm reports that [Orchestrator.Plan] was called before the first term.
	ErrNoTerm = errors.New("no term has run yet")
)

// CallError is one failure of a term: the call, its worker, its task, and the
// cause. [TermError] holds them; errors.As with a *CallError[W, T] finds the
// first.
type CallError[W, T comparable] struct {
	// Op is OpList, OpAdd or OpRemove.
	Op     Op
	Worker W
	// Task is the zero value if Op is OpList.
	Task T
	// Err is the error that the Communicator returned, or wraps ErrSilent. If a
	// method of the returned error panics, Err is another error that says so.
	Err error
}

// Error names the operation, the worker, the task if there is one, and the
// cause.
func (e *CallError[W, T]) Error() string {
	if e.Op == OpList {
		return fmt.Sprintf("list worker %v: %v", e.Worker, e.Err)
	}
	prep := "to"
	if e.Op == OpRemove {
		prep = "from"
	}
	return fmt.Sprintf("%v task %v %s worker %v: %v", e.Op, e.Task, prep, e.Worker, e.Err)
}

// Unwrap returns the cause.
func (e *CallError[W, T]) Unwrap() error { return e.Err }

// TermError holds the failures of a term. [Orchestrator.NextTerm] returns it if
// anything failed. The term carried out everything else, and the next one retries.
type TermError struct {
	// Term is the identity of the term.
	Term Term
	// Failures holds a *CallError for each call that failed and for each silent
	// worker. Silent workers come first, in the order in which they were added. If
	// the term was cut short, the cause comes before all others. A start that was
	// refused is not a failure if its task is no longer expected.
	Failures []error
}

// The bounds of the text of a TermError: how many failures it shows, and how many
// bytes of each.
const (
	termErrorShown = 5
	termErrorBytes = 500
)

// Error returns a text of bounded length: the first five failures, and how many
// others there are.
func (e *TermError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "term %d: ", e.Term.Number)
	if len(e.Failures) > 1 {
		fmt.Fprintf(&b, "%d failures: ", len(e.Failures))
	}
	for i, err := range e.Failures {
		if i == termErrorShown {
			fmt.Fprintf(&b, "; and %d more", len(e.Failures)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(shorten(err.Error()))
	}
	return b.String()
}

// shorten returns at most the first termErrorBytes of a text.
func shorten(text string) string {
	if len(text) <= termErrorBytes {
		return text
	}
	return strings.ToValidUTF8(text[:termErrorBytes], "") + "…"
}

// Unwrap returns the failures, for errors.Is and errors.As.
func (e *TermError) Unwrap() []error { return e.Failures }
