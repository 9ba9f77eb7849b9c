package orchestrator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
)

// Communicator carries calls to the workers. It is the only interface that a user must
// implement. Package communicator/memory is a cluster in one process for tests,
// communicator.Func adapts three functions, and communicatortest.Run checks an
// implementation against the clauses below.
//
// # Concurrency
//
// (C1) Methods are called from many goroutines, at the same time for different workers
// but never for the same worker. A call that hangs for one worker must not block a call
// for another.
//
// # Ownership
//
// (C2) Once List has returned, neither side changes the slice. Returning the same slice
// again means "unchanged" and saves the orchestrator a comparison.
//
// # Blocking
//
// (C3) A call returns when its context is done. If it does not, the term continues
// without it and makes no other call to that worker until it returns.
//
// # Meaning
//
// (C4) Add and Remove are idempotent: adding a task that runs succeeds, and so does
// removing one that does not.
//
// (C5) A nil error means done. After Add, the task is in List. After Remove, the task
// has stopped and is not in List.
//
// (C7) A worker remembers the highest [Term] carried by any call, including List. It
// refuses a write of a lower term when the write would be applied, even if the write
// was queued in between: with [ErrDeposed] if the epoch is lower, with [ErrStale],
// which wraps [ErrRejected], if only the number is. A worker that has seen a term
// refuses writes without one with ErrStale. So a slow write never takes effect after a
// later term has listed the worker.
//
// If a call with a higher epoch arrives while Remove waits for its task to stop, Remove
// fails with ErrDeposed: the stop belongs to the later leader, and the earlier one must
// not start the task elsewhere. worker.Worker implements C7 for every transport that
// passes the term on.
//
// A name identifies the process for which AddWorker was called. If another process
// takes over the name, a transport must not deliver calls to it until RemoveWorker and
// AddWorker have been called. Otherwise it would run tasks that the leader believes
// gone with the first process.
//
// # Pinned tasks
//
// (C8) Within a call of List, [Pin] names tasks that must not move now, such as running
// jobs. A transport carries the pins across its wire ([ContextWithPins]). A worker refuses
// to stop a running job that its last List did not pin, or could not pin because Pin
// returned false, with ErrRejected.
//
// # Held lists
//
// (C9) Within a call of List, [Held] declares that nothing new was heard from the worker,
// and that the returned list is the most that the worker may run. The worker is silent
// with exactly that list, and nothing is sent to it.
//
// # Errors
//
// (C6) The error of a call decides what the orchestrator may conclude:
//
//	nil           done (C5)
//	ErrDeposed    a higher epoch is known; List may return it too. The term ends,
//	              and the leader should stop. If no term waits for the call any
//	              more, the term under way ends, or the next one.
//	ErrRejected   not done, and it will not be; ErrElsewhere, which wraps it,
//	              adds that the task has asked to run on another worker
//	ErrStopping   a stop is under way and the task is still in List; not a
//	              failure. An Add with this answer will not start the task later.
//	any other     unknown: it may have happened, or may happen until the next
//	              List; the next term checks
//
// Errors may be wrapped. If one wraps several of these, the first in the table counts.
//
// A call that panics fails with an unknown outcome, and the stack is logged. The same
// holds if Error, Is or Unwrap of the returned error panics, as for a nil pointer in an
// error: the orchestrator calls these methods before the call counts as returned. For an
// [Applier], only the write with that error fails. An error that wraps itself, or more
// than 10,000 errors, is replaced by one that states this. Every other error reaches the
// caller of NextTerm as the same value, for errors.Is and errors.As.
type Communicator[W, T comparable] interface {
	// List returns the tasks that worker was told to run and has not stopped, in any
	// state: queued, starting, running, between restarts, completed or stopping. The
	// order is free. Moves to a joining worker take tasks from the front, so put those
	// that are cheapest to move first, such as queued ones.
	//
	// A name that cannot be compared, such as a slice in an interface, or that does not
	// equal itself, such as NaN, makes the answer unusable: the call counts as failed.
	List(ctx context.Context, worker W) ([]T, error)
	// Add makes worker run task.
	Add(ctx context.Context, worker W, task T) error
	// Remove stops task on worker and returns when it has stopped.
	Remove(ctx context.Context, worker W, task T) error
}

// Applier is an optional interface of a [Communicator]: one call carries several writes
// for one worker. It serves transports on which a round trip costs more than its
// content. The orchestrator finds it by type assertion and then makes every write
// through it.
//
// Apply carries out each write like a call of Add or Remove, in any order or in
// parallel. It returns one error for each write, in their order, or nil if all
// succeeded. If it returns any other number of errors, the outcome of every write is
// unknown. writes names each task at most once, and neither side changes it. The
// contract of Communicator holds for Apply as well.
//
// A task that stops slowly should not delay the others: report each write with [Applied]
// as soon as it is done.
type Applier[W, T comparable] interface {
	Apply(ctx context.Context, worker W, writes []Write[T]) []error
}

type appliedKey[T comparable] struct{}

// Applied reports, within a call of [Applier].Apply, that a write is done, before Apply
// returns. The orchestrator continues with it: a task that has stopped starts elsewhere
// while another task still stops. ctx is the context of the call, or one derived from
// it. A write that Applied reported counts as done, whatever Apply returns for it.
// Applied ignores writes that the call does not carry, and does nothing outside of such
// a call. It is safe for concurrent use.
func Applied[T comparable](ctx context.Context, write Write[T]) {
	if f, ok := ctx.Value(appliedKey[T]{}).(func(Write[T])); ok {
		f(write)
	}
}

// ContextWithApplied returns a context in which [Applied] calls f instead. f may be called
// from many goroutines. Transports use it at both ends.
func ContextWithApplied[T comparable](ctx context.Context, f func(Write[T])) context.Context {
	return context.WithValue(ctx, appliedKey[T]{}, f)
}

// Write is one element of what an [Applier] applies.
type Write[T comparable] struct {
	// Op is OpAdd or OpRemove.
	Op   Op `json:"op"`
	Task T  `json:"task"`
}

// Op is a kind of call to a worker.
type Op uint8

// The kinds of call. OpApply is a call that carries several writes; each of
// them is an OpAdd or an OpRemove.
const (
	OpList Op = iota + 1
	OpAdd
	OpRemove
	OpApply
)

// String returns the operation's name in lower case.
func (op Op) String() string {
	names := [...]string{OpList: "list", OpAdd: "add", OpRemove: "remove", OpApply: "apply"}
	if op > 0 && int(op) < len(names) {
		return names[op]
	}
	return fmt.Sprintf("op(%d)", uint8(op))
}

// MarshalText returns what String does.
func (op Op) MarshalText() ([]byte, error) { return []byte(op.String()), nil }

// UnmarshalText reads what MarshalText writes for the kinds above.
func (op *Op) UnmarshalText(text []byte) error {
	return unmarshalText(op, "the operation", text, OpList, OpAdd, OpRemove, OpApply)
}

// unmarshalText sets v to the value with a text. what says what v is.
func unmarshalText[V fmt.Stringer](v *V, what string, text []byte, values ...V) error {
	i := slices.IndexFunc(values, func(value V) bool { return value.String() == string(text) })
	if i < 0 {
		return invalid("%s is %q", what, text)
	}
	*v = values[i]
	return nil
}

// Pin declares, within a call of List, that the last n tasks of the returned list must
// not move now: jobs that run to completion, completed or failed. They count towards the
// spread, but move neither for it nor for a drain, which waits for them. Pin takes
// effect if the call succeeds; of several calls the last one counts. ctx is the context
// of the call, or one derived from it. n below 0 counts as 0, and n above the length of
// the list as that length.
//
// Pin returns false, and does nothing, where nothing collects pins: outside of a call of
// List, after it has returned, or behind a wire that does not carry pins
// ([ContextWithPins]). Then no task is pinned, and its worker must refuse to stop a
// running job. Pin(ctx, 0) at the start of a List tells whether pins are collected.
func Pin(ctx context.Context, n int) bool {
	n = max(n, 0)
	switch p := ctx.Value(pinKey{}).(type) {
	case func(int):
		p(n)
	case *listNotes:
		return p.note(func(state int64) int64 { return 4*min(int64(n), math.MaxInt32) + state&listHeld })
	default:
		return false
	}
	return true
}

// ContextWithPins returns a context in which [Pin] calls f instead. f may be called from
// many goroutines. A transport calls the worker's List with such a context if Pin returns
// true in the leader's List, and calls Pin there with the number that f got. Where pins are
// lost, no job that runs is stopped, but with [StartThenStop] a move may start it a second time.
func ContextWithPins(ctx context.Context, f func(n int)) context.Context {
	return context.WithValue(ctx, pinKey{}, f)
}

type pinKey struct{}

// Held declares, within a call of List, that the Communicator has heard nothing new from
// the worker, and that the returned list is the most that the worker may run. The worker
// is silent with exactly that list: nothing is sent to it, and its tasks start elsewhere
// only when it is declared lost or removed. It counts as heard, so the tasks that no
// worker lists can start. Held serves transports that keep the last words of the workers
// in a store. It takes effect if the call succeeds. ctx is the context of the call, or
// one derived from it. Held returns false, and does nothing, outside of a call of List:
// then List must fail, or its caller takes the list for an answer.
func Held(ctx context.Context) bool {
	switch h := ctx.Value(heldKey{}).(type) {
	case func():
		h()
	case *listNotes:
		return h.note(func(state int64) int64 { return state | listHeld })
	default:
		return false
	}
	return true
}

// ContextWithHeld returns a context in which [Held] calls f instead. f may be called from
// many goroutines. Transports use it to carry Held to the leader, tests to observe it.
func ContextWithHeld(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, heldKey{}, f)
}

type heldKey struct{}

// listNotes is the context of one call of List, with what the call declares beside its
// list. Each call has its own: what a goroutine that it left behind declares later is
// not taken for that of another worker.
type listNotes struct {
	context.Context
	state atomic.Int64 // the tasks that [Pin] pins, times 4, with the bits below
}

// Bits of the state of listNotes.
const (
	listReturned = 1
	listHeld     = 2 // [Held] was called
)

// Value returns the notes for the keys of [Pin] and [Held].
func (l *listNotes) Value(key any) any {
	switch key.(type) {
	case pinKey, heldKey:
		return l
	}
	return l.Context.Value(key)
}

// note changes the state unless the List has returned, and reports whether it did.
func (l *listNotes) note(change func(state int64) int64) bool {
	for {
		state := l.state.Load()
		if state&listReturned != 0 {
			return false
		}
		if l.state.CompareAndSwap(state, change(state)) {
			return true
		}
	}
}

// end makes later notes fail, and returns those so far.
func (l *listNotes) end() (pins int, held bool) {
	state := l.state.Or(listReturned)
	return int(state / 4), state&listHeld != 0
}
