package manager

// The methods for a manager's user: tasks, completions, drains, members.

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
)

// Put adds or updates a task and returns it with its version. When Put returns, the
// task is stored, and the next term, which runs at once, uses it.
//
// New content gets a new version. Workers that run the task receive it in place,
// without a move (see worker.WithUpdate). Putting an identical task changes nothing
// and restarts nothing.
//
// A task that was completed with the same content is not run again: it is not
// expected ([Manager.Get]) and stays in [Manager.Completed]. Put then returns the
// completed version and no error; [Manager.Completion] tells the cases apart. The
// same holds for a task that has failed ([Manager.Failed], [Manager.Retry]). So a
// program may put all its tasks at each start. To run the same content again, call
// [Manager.Forget] first.
//
// Errors wrap [orchestrator.ErrInvalid] if the item is invalid, and nothing was
// changed, or [ErrStopped]. If ctx ends first, the task may or may not be stored.
func (m *Manager) Put(ctx context.Context, item Item) (Item, error) {
	stored, err := m.put(ctx, []Item{item})
	if err != nil {
		return Item{}, fmt.Errorf("put task %.100q: %w", item.Name, err)
	}
	return stored[0], nil
}

// PutAll puts many tasks as Put does, and returns them in the same order. If one is
// invalid or named twice, it puts none. Prefer it to many calls of Put: each call
// writes to the disk once.
func (m *Manager) PutAll(ctx context.Context, items []Item) ([]Item, error) {
	stored, err := m.put(ctx, items)
	if err != nil {
		return nil, fmt.Errorf("put %d tasks: %w", len(items), err)
	}
	return stored, nil
}

func (m *Manager) put(ctx context.Context, items []Item) (stored []Item, err error) {
	tasks := make([]*state.Task, len(items))
	seen := make(map[string]int, len(items))
	for i, item := range items {
		kept := state.Item(item)
		if err := kept.Check(); err != nil {
			return nil, fmt.Errorf("item %d, %.100q: %w", i, item.Name, err)
		}
		if first, ok := seen[item.Name]; ok {
			return nil, fmt.Errorf("%w: task %.100q is given twice, at %d and at %d", orchestrator.ErrInvalid, item.Name, first, i)
		}
		seen[item.Name] = i
		kept.Content = bytes.Clone(kept.Content)
		tasks[i] = state.NewTask(kept)
	}
	err = m.committer.commit(ctx, func(s *state.State, _ time.Time) error {
		stored = each(s.Put(tasks), itemOf)
		return nil
	})
	return stored, err
}

// Delete removes tasks that are expected or have failed. If one is neither
// ([ErrNotFound]), it removes none. The next term, which runs at once, stops them.
// If ctx ends first, the tasks may or may not be removed.
func (m *Manager) Delete(ctx context.Context, names ...string) error {
	err := m.committer.commit(ctx, func(s *state.State, _ time.Time) error { return s.Remove(names) })
	if err != nil {
		return fmt.Errorf("delete tasks: %w", err)
	}
	return nil
}

// Get returns an expected task, or [ErrNotFound].
func (m *Manager) Get(name string) (Item, error) {
	item, err := m.committer.committed.Item(name)
	if err != nil {
		return Item{}, fmt.Errorf("get task: %w", err)
	}
	return Item(item), nil
}

// Items returns up to limit expected tasks whose names come after the given one,
// sorted by name. An empty name starts at the first task. Fewer than limit means
// that no more follow. The result of one call is a consistent snapshot. limit is
// from 1 to [MaxList], otherwise the error wraps [orchestrator.ErrInvalid].
func (m *Manager) Items(after string, limit int) ([]Item, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	return each(m.committer.committed.Items(after, limit), itemOf), nil
}

// Completed returns up to limit completions that were not forgotten, of tasks after
// the given name, as [Manager.Items] does.
func (m *Manager) Completed(after string, limit int) ([]Completion, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("list completions: %w", err)
	}
	return each(m.committer.committed.Completions(after, limit), func(c state.Completion) Completion { return Completion(c) }), nil
}

// Completion returns the completion of a task. It returns [ErrNotFound] if the task
// has not completed, its completion was forgotten, or it was put with other content
// since.
func (m *Manager) Completion(name string) (Completion, error) {
	done, err := m.committer.committed.Completion(name)
	if err != nil {
		return Completion{}, fmt.Errorf("get completion: %w", err)
	}
	return Completion(done), nil
}

// Failed returns up to limit failed tasks after the given name, as [Manager.Items]
// does. A failed task is not expected and does not run until [Manager.Retry] or a
// Put with other content; [Manager.Delete] removes it.
func (m *Manager) Failed(after string, limit int) ([]FailedTask, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("list failed tasks: %w", err)
	}
	return each(m.committer.committed.Failures(after, limit), failedOf), nil
}

// Retry makes failed tasks run again with the same content. If one has not failed
// ([ErrNotFound]), it retries none. The next term, which runs at once, starts them.
// If ctx ends first, the tasks may or may not be retried.
func (m *Manager) Retry(ctx context.Context, names ...string) error {
	if err := m.committer.commit(ctx, func(s *state.State, _ time.Time) error { return s.Retry(names) }); err != nil {
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

// Forget deletes the completions of tasks from the store, where they otherwise stay.
// Call it when they have been processed, or before the same content is to run again.
// A task without a completion is not an error. If ctx ends first, the completions
// may or may not be deleted.
func (m *Manager) Forget(ctx context.Context, names ...string) error {
	err := m.committer.commit(ctx, func(s *state.State, _ time.Time) error {
		s.Forget(names)
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget completions: %w", err)
	}
	return nil
}

// Drain moves all tasks away from the worker of that name and gives it none until
// Undrain. This also holds whenever the worker joins, and after a restart of the
// manager. The worker need not be a member.
func (m *Manager) Drain(ctx context.Context, worker string) error {
	return m.drain(ctx, "drain", worker, true)
}

// Undrain reverses Drain. A worker that was not drained is not an error. A worker
// that asked to be drained itself stays draining.
func (m *Manager) Undrain(ctx context.Context, worker string) error {
	return m.drain(ctx, "undrain", worker, false)
}

func (m *Manager) drain(ctx context.Context, what, worker string, drained bool) error {
	err := identity.CheckName("worker", worker)
	if err == nil {
		err = m.committer.commit(ctx, func(s *state.State, _ time.Time) error {
			s.Drain(worker, drained)
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
	kept := m.committer.committed.Members()
	members := make([]MemberState, len(kept))
	for i, k := range kept {
		members[i] = MemberState{WorkerID: communicator.WorkerID(k.WorkerID), Address: k.Address, Lease: k.Lease, Draining: k.Drains, Settings: k.Settings}
	}
	m.committer.complete(members)
	return members
}

// MemberCount returns how many workers are members. It costs less than
// [Manager.Members].
func (m *Manager) MemberCount() int { return m.committer.committed.MemberCount() }

// Tasks returns the tasks that a member reported in the last term, with the state
// and the content version of each. It returns nil if the worker was never listed or
// is not a member.
func (m *Manager) Tasks(w communicator.WorkerID) []communicator.TaskState { return m.workers.Tasks(w) }

// Plan returns what the next term would do if h came true. It calls no worker; see
// [orchestrator.Orchestrator.Plan]. It returns [ErrNotLeading] unless the manager
// leads.
func (m *Manager) Plan(h orchestrator.Hypothesis[communicator.WorkerID, string]) (orchestrator.Plan[communicator.WorkerID, string], error) {
	if !m.leading.Load() {
		return orchestrator.Plan[communicator.WorkerID, string]{}, fmt.Errorf("plan: %w", ErrNotLeading)
	}
	return m.orch.Plan(h)
}

// UpdateWeights replaces what one instance of each task takes by measurement. The weights are
// not stored: after a restart of the manager, call it again. See
// [orchestrator.Orchestrator.UpdateWeights].
func (m *Manager) UpdateWeights(weights map[string]int64) error { return m.orch.UpdateWeights(weights) }

// Last returns the last term; nil before the first. See [orchestrator.Orchestrator.Last].
func (m *Manager) Last() *orchestrator.Snapshot[communicator.WorkerID, string] { return m.orch.Last() }

// OnTerm registers a function that is called at the end of each term. See
// [orchestrator.Orchestrator.OnTerm].
func (m *Manager) OnTerm(f func(*orchestrator.Snapshot[communicator.WorkerID, string])) (stop func()) {
	return m.orch.OnTerm(f)
}

// Progress returns the progress of the term under way. See
// [orchestrator.Orchestrator.Progress].
func (m *Manager) Progress() orchestrator.Progress[communicator.WorkerID] { return m.orch.Progress() }

// Config returns the options of the terms in force. See [orchestrator.Orchestrator.Config].
func (m *Manager) Config() orchestrator.Config { return m.orch.Config() }

// LastPlan returns what the last term did, with reasons; the zero value before the
// first. See [orchestrator.Orchestrator.LastPlan].
func (m *Manager) LastPlan() orchestrator.Plan[communicator.WorkerID, string] {
	return m.orch.LastPlan()
}

// LastActual returns the state after the last term; nil before the first. See
// [orchestrator.Orchestrator.LastActual].
func (m *Manager) LastActual() []orchestrator.WorkerState[communicator.WorkerID, string] {
	return m.orch.LastActual()
}
