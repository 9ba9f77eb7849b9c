package orchestrator

import (
	"errors"
	"fmt"
	"strings"
)

// What a [Communicator] returns to say more than "unknown". Each may be
// wrapped.
var (
	// ErrRejected says that a write was certainly not done, and will not be.
	ErrRejected = errors.New("rejected by the worker")

	// ErrStale is the ErrRejected of a worker that has seen a later term than
	// the write's (C7). Nobody is to blame for it, so nothing is avoided
	// because of it.
	ErrStale = fmt.Errorf("%w: the write's term is over", ErrRejected)

	// ErrStopping says that a stop is under way and takes longer than the call
	// may. It is no failure: the task stays in List until it has stopped.
	ErrStopping = errors.New("stop under way")

	// ErrDeposed says that a higher epoch is known: another leader has taken
	// over. It ends the term and [Orchestrator.Run], and is also the cause
	// that an election ends the leader's context with.
	ErrDeposed = errors.New("deposed")
)

// What a term itself says of a worker or a write.
var (
	// ErrSilent is the cause in a [CallError] for a worker that did not answer
	// List in time, or could not be asked. The text may say how the call before
	// failed.
	ErrSilent = errors.New("no answer in time")

	// ErrSkipped is the cause in a [Change] that this term did not begin.
	ErrSkipped = errors.New("not begun in this term")
)

// What the methods that change the expectations return, wrapped with the names
// involved.
var (
	// ErrInvalid says that an argument or an option is out of its range. The
	// text names it and its value; nothing was changed.
	ErrInvalid = errors.New("invalid")

	// ErrUnknownWorker says that no worker of that name was added.
	ErrUnknownWorker = errors.New("unknown worker")
)

// CallError is one failure of a term: a call, to whom, about what, and why it
// failed. [TermError] holds them; errors.As with a *CallError[W, T] takes one
// apart.
type CallError[W, T comparable] struct {
	// Op is OpList, OpAdd or OpRemove.
	Op     Op
	Worker W
	// Task is the zero value where Op is OpList.
	Task T
	Err  error
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

// TermError is what [Orchestrator.NextTerm] returns when something failed. The
// term was a whole one nevertheless: everything that could be done was done,
// and the next term tries the rest again.
type TermError struct {
	// Term is the identity of the term.
	Term Term
	// Failures holds a *CallError for each call that failed and each worker
	// that is silent, workers in the order they were added; where the term was
	// cut short, its cause comes first. A start that was refused is no failure
	// where its task is expected no more by then.
	Failures []error
}

// The text of a TermError spells out so many failures, and so many bytes of
// each.
const (
	termErrorShown = 5
	termErrorBytes = 500
)

// Error spells out the first few failures, cut short where they are long, and
// counts the others.
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

// shorten cuts a long text short.
func shorten(text string) string {
	if len(text) <= termErrorBytes {
		return text
	}
	return strings.ToValidUTF8(text[:termErrorBytes], "") + "…"
}

// Unwrap returns the failures, for errors.Is and errors.As.
func (e *TermError) Unwrap() []error { return e.Failures }
