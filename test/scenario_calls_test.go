package test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// What happens to the calls of a scenario: the commands that disturb them, and the
// Communicator that does so.

// rule is what happens to some calls.
type rule struct {
	op, worker, task string
	do               func(ctx context.Context) error
	// after says that it happens once the call has been carried out.
	after bool
	// more is what List names once more.
	more []string
}

func (r *rule) covers(c call) bool {
	return (r.op == "*" || r.op == c.Op.String()) && (r.worker == "*" || r.worker == c.Worker) &&
		(r.task == "*" || r.task == c.Task)
}

func (w *world) holdWrites(args []string) { w.freed[args[0]] = w.cluster.HoldWrites(args[0]) }
func (w *world) freeWrites(args []string) { w.freed[args[0]]() }

func (w *world) repeat(args []string) {
	w.addRule(rule{op: "list", worker: args[0], task: "*", more: expand(args[1:])})
}

func (w *world) refuse(args []string) {
	w.addRule(rule{op: args[0], worker: args[1], task: args[2], do: func(context.Context) error {
		return orchestrator.ErrRejected
	}})
}

var errBroken = errors.New("connection reset")

func (w *world) fail(args []string) {
	w.addRule(rule{op: args[0], worker: args[1], task: args[2], do: func(context.Context) error { return errBroken }})
}

func (w *world) garble(args []string) {
	w.addRule(rule{op: args[0], worker: args[1], task: args[2], after: true, do: func(context.Context) error { return errBroken }})
}

func (w *world) delayed(args []string) {
	d := w.duration(args[0])
	w.addRule(rule{op: args[1], worker: args[2], task: args[3], do: func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}})
}

func (w *world) addRule(r rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = append(w.rules, r)
}

func (w *world) setRules(rules []rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = rules
}

// applying returns the rules for a call.
func (w *world) applying(c call, after bool) []rule {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.rules), func(r rule) bool {
		return r.after != after || r.do == nil || !r.covers(c)
	})
}

// before is asked about each call before it is handed on.
func (w *world) before(ctx context.Context, c call) error {
	for _, r := range w.applying(c, false) {
		if err := r.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// line is a wire on which what comes back may be tampered with.
type line struct {
	*wire
	w *world
}

// List implements orchestrator.Communicator. The first worker's answer takes a
// millisecond, the second one's two, and so on, so that it is always the same
// answers that a term has when it goes on without those that were silent.
func (l *line) List(ctx context.Context, worker string) ([]string, error) {
	tasks, err := l.wire.List(ctx, worker)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(l.w.latency(worker)):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, r := range l.w.rules {
		if r.covers(call{Op: orchestrator.OpList, Worker: worker}) {
			tasks = append(tasks, r.more...)
		}
	}
	return tasks, err
}

// Add implements orchestrator.Communicator.
func (l *line) Add(ctx context.Context, worker, task string) error {
	return l.tamper(ctx, call{Op: orchestrator.OpAdd, Worker: worker, Task: task}, l.wire.Add(ctx, worker, task))
}

// Remove implements orchestrator.Communicator.
func (l *line) Remove(ctx context.Context, worker, task string) error {
	return l.tamper(ctx, call{Op: orchestrator.OpRemove, Worker: worker, Task: task}, l.wire.Remove(ctx, worker, task))
}

func (l *line) tamper(ctx context.Context, c call, err error) error {
	for _, r := range l.w.applying(c, true) {
		err = errors.Join(err, r.do(ctx))
	}
	return err
}

func (w *world) latency(worker string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takes[worker]
}
