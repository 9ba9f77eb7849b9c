package communicatortest

// The building blocks of all checks: calls with a time limit, and expectations with
// one-sentence failures.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
)

// errEndless replaces the answer of a call that does not return.
var errEndless = errors.New("the call does not return although its context has ended (C3)")

// kit is one check under way.
type kit[W, T comparable] struct {
	tb
	Cluster[W, T]
	applier orchestrator.Applier[W, T] // nil unless the check is made through Apply
	clause  string
	during  string            // the present disturbance of the cluster, for failures
	term    orchestrator.Term // the term of calls, unless they name another
}

// failf ends the check with a sentence that begins with its clause.
func (k *kit[W, T]) failf(format string, args ...any) {
	k.Helper()
	k.Fatalf("%s: %s%s", k.clause, fmt.Sprintf(format, args...), k.during)
}

// nextTerm proceeds to the next term of the same leader.
func (k *kit[W, T]) nextTerm() { k.term.Number++ }

// nextEpoch proceeds to the first term of the next leader.
func (k *kit[W, T]) nextEpoch() { k.term = orchestrator.Term{Epoch: k.term.Epoch + 1, Number: 1} }

// hold holds back the writes to worker until release is called or the check ends.
func (k *kit[W, T]) hold(worker W) (release func()) {
	k.Helper()
	k.needs("Hold", k.Hold != nil, "a write that takes effect after a later List")
	return k.undo(k.Hold(worker))
}

// cut cuts worker off until heal is called or the check ends.
func (k *kit[W, T]) cut(worker W) (heal func()) {
	k.Helper()
	k.needs("Cut", k.Cut != nil, "what calls to a worker that is cut off do")
	return k.undo(k.Cut(worker))
}

// linger makes task slow to stop until end is called or the check ends.
func (k *kit[W, T]) linger(worker W, task T) (end func()) {
	k.Helper()
	k.needs("Linger", k.Linger != nil, "a Remove that does not wait until its task has stopped")
	return k.undo(k.Linger(worker, task))
}

// pin makes worker pin task until unpin is called or the check ends.
func (k *kit[W, T]) pin(worker W, task T) (unpin func()) {
	k.Helper()
	k.needs("Pin", k.Pin != nil, "a transport that loses pins")
	return k.undo(k.Pin(worker, task))
}

// needs skips the check if the cluster lacks a switch. unseen is what is then not found.
func (k *kit[W, T]) needs(name string, given bool, unseen string) {
	k.Helper()
	if !given {
		k.Skipf("%s: not checked, because there is no Cluster.%s: %s", k.clause, name, unseen)
	}
}

// undo makes sure that a switch is undone exactly once, however the check ends.
func (k *kit[W, T]) undo(f func()) func() {
	f = sync.OnceFunc(f)
	k.Cleanup(f)
	return f
}

// callContext returns a context for one call, with the deadline, and with the term
// unless it is zero.
func (k *kit[W, T]) callContext(term orchestrator.Term, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx := k.Context()
	if term != (orchestrator.Term{}) {
		ctx = orchestrator.ContextWithTerm(ctx, term)
	}
	return context.WithTimeout(ctx, timeout)
}

// arrival is the time that a call gets to reach the place where a switch stops it.
func (k *kit[W, T]) arrival() time.Duration { return k.Timeout / 20 }

// start makes a call in its own goroutine. wait returns the call's error. If the
// call has not returned one timeout after its context has ended, wait returns
// errEndless, and other results of the call must not be read.
func (k *kit[W, T]) start(ctx context.Context, call func(context.Context) error) (wait func() error) {
	answer := make(chan error, 1)
	go func() { answer <- call(ctx) }()
	return func() error {
		select {
		case err := <-answer:
			return err
		case <-ctx.Done():
		}
		limit := time.NewTimer(k.Timeout)
		defer limit.Stop()
		select {
		case err := <-answer:
			return err
		case <-limit.C:
			return errEndless
		}
	}
}

// listing is what a List returned and declared.
type listing[T comparable] struct {
	tasks, pinned []T // pinned is the end of tasks
	held          bool
}

// look lists worker in a term, with a deadline.
func (k *kit[W, T]) look(timeout time.Duration, term orchestrator.Term, worker W) (l listing[T], err error) {
	ctx, cancel := k.callContext(term, timeout)
	defer cancel()
	var pins atomic.Int64
	var held atomic.Bool
	ctx = orchestrator.ContextWithPins(ctx, func(n int) { pins.Store(int64(n)) })
	ctx = orchestrator.ContextWithHeld(ctx, func() { held.Store(true) })
	l.tasks, err = k.listIn(ctx, worker)
	l.pinned, l.held = l.tasks[len(l.tasks)-min(int(pins.Load()), len(l.tasks)):], held.Load()
	return l, err
}

// listIn lists worker with a context that has a deadline. After an error the list is nil.
func (k *kit[W, T]) listIn(ctx context.Context, worker W) ([]T, error) {
	var tasks []T
	err := k.start(ctx, func(ctx context.Context) (err error) {
		tasks, err = k.Communicator.List(ctx, worker)
		return err
	})()
	if err != nil {
		return nil, err
	}
	return tasks, nil
}

// tryList lists worker in a term.
func (k *kit[W, T]) tryList(term orchestrator.Term, worker W) ([]T, error) {
	l, err := k.look(k.Timeout, term, worker)
	return l.tasks, err
}

// write makes a single write.
func (k *kit[W, T]) write(ctx context.Context, op orchestrator.Op, worker W, task T) error {
	if op == orchestrator.OpAdd {
		return k.Communicator.Add(ctx, worker, task)
	}
	return k.Communicator.Remove(ctx, worker, task)
}

// try makes a single write in a term.
func (k *kit[W, T]) try(term orchestrator.Term, op orchestrator.Op, worker W, task T) error {
	return k.tryFor(k.Timeout, term, op, worker, task)
}

// tryFor makes a single write in a term, with a deadline.
func (k *kit[W, T]) tryFor(timeout time.Duration, term orchestrator.Term, op orchestrator.Op, worker W, task T) error {
	ctx, cancel := k.callContext(term, timeout)
	defer cancel()
	return k.start(ctx, func(ctx context.Context) error { return k.write(ctx, op, worker, task) })()
}

// finish makes a write in the present term, and repeats it at intervals while the
// answer is ErrStopping.
func (k *kit[W, T]) finish(op orchestrator.Op, worker W, task T) error {
	const rounds = 100
	tick := time.NewTicker(k.Timeout / rounds)
	defer tick.Stop()
	var err error
	for range rounds {
		err = k.try(k.term, op, worker, task)
		if !errors.Is(err, orchestrator.ErrStopping) {
			break
		}
		<-tick.C
	}
	return err
}

// list lists worker in the present term, and fails the check on an error.
func (k *kit[W, T]) list(worker W) []T {
	k.Helper()
	tasks, err := k.tryList(k.term, worker)
	if err != nil {
		k.failf("List(%v) %s failed with %q, want the worker's tasks", worker, in(k.term), err)
	}
	return tasks
}

// add makes worker run task in the present term, and fails the check on an error.
func (k *kit[W, T]) add(worker W, task T) {
	k.Helper()
	k.done(orchestrator.OpAdd, worker, task)
}

// remove makes worker stop task in the present term, and fails the check on an
// error.
func (k *kit[W, T]) remove(worker W, task T) {
	k.Helper()
	k.done(orchestrator.OpRemove, worker, task)
}

// done makes a write in the present term, and fails the check on an error.
func (k *kit[W, T]) done(op orchestrator.Op, worker W, task T) {
	k.Helper()
	if err := k.finish(op, worker, task); err != nil {
		k.failf("%s %s failed with %q, want nil", callText(op, worker, task), in(k.term), err)
	}
}

// listed fails unless worker lists want, in any order, each task once.
func (k *kit[W, T]) listed(worker W, because string, want ...T) {
	k.Helper()
	if got := k.list(worker); !sameTasks(got, want) {
		k.failf("List(%v) %s returned %v, want %v: %s", worker, in(k.term), got, want, because)
	}
}

// sameTasks reports whether got contains each task of want once, and no other.
func sameTasks[T comparable](got, want []T) bool {
	if len(got) != len(want) {
		return false
	}
	for _, task := range want {
		if !slices.Contains(got, task) {
			return false
		}
	}
	return true
}

// callText formats a call for a failure.
func callText[W, T comparable](op orchestrator.Op, worker W, task T) string {
	if op == orchestrator.OpAdd {
		return fmt.Sprintf("Add(%v, %v)", worker, task)
	}
	return fmt.Sprintf("Remove(%v, %v)", worker, task)
}

// in formats a term for a failure.
func in(term orchestrator.Term) string {
	if term == (orchestrator.Term{}) {
		return "without a term"
	}
	return fmt.Sprintf("in epoch %d, term %d", term.Epoch, term.Number)
}
