package grpc

// What a manager's user says and asks: tasks, completions, drains, members.

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Put has a task be expected, or gives it other content or settings, and returns
// it with its version. When it returns, that is in the store, and the next term,
// which is run at once, goes by it.
//
// Content that differs from what the task has gets a version of its own. It reaches
// workers that run the task, in place, without a move (see worker.WithUpdate). To
// put what is there already changes nothing, and restarts nothing.
//
// A task that has been completed with this very content is done: it is not run
// again, is not expected ([Manager.Get]), and stays among what is
// [Manager.Completed]; what Put returns then is no error, and has the version that was
// completed. [Manager.Completion] tells whether that is so. The same holds for one
// that has failed ([Manager.Failed], [Manager.Retry]). So a program that puts
// all it knows at each start has nothing done twice. Other content is something else
// to be done; to have the same done once more, call [Manager.Forget] before.
//
// Errors wrap [orchestrator.ErrInvalid] where the item cannot be, and nothing was
// changed; or [ErrStopped]. Where ctx ends before, it may have been done or not.
func (m *Manager) Put(ctx context.Context, item Item) (Item, error) {
	stored, err := m.put(ctx, []Item{item})
	if err != nil {
		return Item{}, fmt.Errorf("put task %.100q: %w", item.Name, err)
	}
	return stored[0], nil
}

// PutAll puts many at once, as if each was given to Put: all of them, or, where one
// is invalid or named twice, none. It returns them in their order. It is what to
// use for more than a few: each call writes to the disk once.
func (m *Manager) PutAll(ctx context.Context, items []Item) ([]Item, error) {
	stored, err := m.put(ctx, items)
	if err != nil {
		return nil, fmt.Errorf("put %d tasks: %w", len(items), err)
	}
	return stored, nil
}

func (m *Manager) put(ctx context.Context, items []Item) (stored []Item, err error) {
	tasks := make([]*task, len(items))
	seen := make(map[string]int, len(items))
	for i, item := range items {
		if err := item.check(); err != nil {
			return nil, fmt.Errorf("item %d, %.100q: %w", i, item.Name, err)
		}
		if first, ok := seen[item.Name]; ok {
			return nil, fmt.Errorf("%w: task %.100q is given twice, at %d and at %d", orchestrator.ErrInvalid, item.Name, first, i)
		}
		seen[item.Name] = i
		item.Content = bytes.Clone(item.Content)
		tasks[i] = newTask(item)
	}
	err = m.ledger.do(ctx, func(b *book, _ time.Time) error {
		stored = b.put(tasks)
		return nil
	})
	return stored, err
}

// Delete has tasks be expected no longer, and forgets those that have failed: all
// of them, or, where one is neither ([ErrNotFound]), none. The next term, which is run at once, stops them. Where
// ctx ends before, it may have been done or not.
func (m *Manager) Delete(ctx context.Context, names ...string) error {
	err := m.ledger.do(ctx, func(b *book, _ time.Time) error { return b.remove(names) })
	if err != nil {
		return fmt.Errorf("delete tasks: %w", err)
	}
	return nil
}

// Get returns a task that is expected. [ErrNotFound].
func (m *Manager) Get(name string) (Item, error) {
	item, err := m.ledger.catalog.item(name)
	if err != nil {
		return Item{}, fmt.Errorf("get task: %w", err)
	}
	return item, nil
}

// Items returns up to limit of the tasks that are expected, those after the name
// given, sorted by name; from the first with an empty name. Fewer than limit are
// the last ones. All of one call are as of one moment. limit is from 1 to
// [MaxList], or the error wraps [orchestrator.ErrInvalid].
func (m *Manager) Items(after string, limit int) ([]Item, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	return m.ledger.catalog.items(after, limit), nil
}

// Completed returns up to limit of the completions that were not forgotten, those
// of tasks after the name given, as [Manager.Items] does.
func (m *Manager) Completed(after string, limit int) ([]Completion, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("list completions: %w", err)
	}
	return m.ledger.catalog.completions(after, limit), nil
}

// Completion returns that of a task, unless it was forgotten, or the task was put with
// other content since. [ErrNotFound].
func (m *Manager) Completion(name string) (Completion, error) {
	done, err := m.ledger.catalog.completion(name)
	if err != nil {
		return Completion{}, fmt.Errorf("get completion: %w", err)
	}
	return done, nil
}

// Failed returns up to limit of the tasks that have failed, those after the name
// given, as [Manager.Items] does. Such a task is not expected and does not run
// until [Manager.Retry] or a Put with other content; [Manager.Delete] forgets it.
func (m *Manager) Failed(after string, limit int) ([]FailedTask, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("list failed tasks: %w", err)
	}
	return m.ledger.catalog.failures(after, limit), nil
}

// Retry has tasks that have failed run again, with the content that they had: all
// of them, or, if one has not failed ([ErrNotFound]), none. The next term, which is
// run at once, starts them. If ctx ends first, it may have been done or not.
func (m *Manager) Retry(ctx context.Context, names ...string) error {
	if err := m.ledger.do(ctx, func(b *book, _ time.Time) error { return b.retry(names) }); err != nil {
		return fmt.Errorf("retry tasks: %w", err)
	}
	return nil
}

func checkLimit(limit int) error {
	if limit < 1 || limit > MaxList {
		return fmt.Errorf("%w: limit %d: must be from 1 to %d", orchestrator.ErrInvalid, limit, MaxList)
	}
	return nil
}

// Forget takes the completions of tasks off the store, where they stay otherwise:
// once they are dealt with, or to have the same done again. A task without one is no
// error. Where ctx ends before, it may have been done or not.
func (m *Manager) Forget(ctx context.Context, names ...string) error {
	err := m.ledger.do(ctx, func(b *book, _ time.Time) error {
		b.forget(names)
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget completions: %w", err)
	}
	return nil
}

// Drain has the worker of that name end with no tasks, and get none, until
// Undrain: whenever it joins, and also after a restart. It need not be a member.
func (m *Manager) Drain(ctx context.Context, worker string) error {
	return m.drain(ctx, "drain", worker, true)
}

// Undrain takes back what Drain said. A worker that nobody drained is no error, and
// one that asked to be drained itself drains on.
func (m *Manager) Undrain(ctx context.Context, worker string) error {
	return m.drain(ctx, "undrain", worker, false)
}

func (m *Manager) drain(ctx context.Context, what, worker string, drained bool) error {
	err := checkName("worker", worker)
	if err == nil {
		err = m.ledger.do(ctx, func(b *book, _ time.Time) error {
			b.drain(worker, drained)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("%s worker %.100q: %w", what, worker, err)
	}
	return nil
}

// Members returns the members, sorted by name.
func (m *Manager) Members() []MemberState {
	members := m.ledger.catalog.members()
	m.ledger.complete(members)
	return members
}

// MemberCount returns how many workers are members. It costs less than
// [Manager.Members].
func (m *Manager) MemberCount() int { return m.ledger.catalog.memberCount() }

// Tasks returns what a member has reported of its tasks in the last term: in
// which state each is, and which content it has. It is nil where that was never
// asked, or is no member.
func (m *Manager) Tasks(w Worker) []TaskState { return m.workers.Tasks(w) }

// Plan returns what the next term would do if h came true. It calls no worker; see
// [orchestrator.Orchestrator.Plan]. It returns [ErrNotLeading] unless the manager
// leads.
func (m *Manager) Plan(h orchestrator.Hypothesis[Worker, string]) (orchestrator.Plan[Worker, string], error) {
	if !m.leading.Load() {
		return orchestrator.Plan[Worker, string]{}, fmt.Errorf("plan: %w", ErrNotLeading)
	}
	return m.orch.Plan(h)
}

// LastPlan returns what the last term did, and why; the zero value before the
// first. See [orchestrator.Orchestrator.LastPlan].
func (m *Manager) LastPlan() orchestrator.Plan[Worker, string] { return m.orch.LastPlan() }

// LastActual returns what the last term has left behind; nil before the first.
// See [orchestrator.Orchestrator.LastActual].
func (m *Manager) LastActual() []orchestrator.WorkerState[Worker, string] { return m.orch.LastActual() }
