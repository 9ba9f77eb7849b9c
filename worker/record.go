package worker

// The local record (W6): which tasks ran and which had completed, kept for the next
// process to report.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/f8949c05/orchestrator/internal/panics"
)

// TaskRecord is what a [Record] stores of one task.
type TaskRecord[T comparable] struct {
	Task T
	// Completed: the task had completed (see WithCompletion). Failed: the task had
	// failed (see WithAttempts). Otherwise the task ran or was to run.
	Completed, Failed bool
	// Err is the error of the last run, Attempts the number of failed runs in a row.
	// Both are empty unless the task had failed.
	Err      string
	Attempts int
	// Version is that of the task's content. Token, Scope and Receipt are those of
	// its grant; see Grant.
	Version      int64
	Token, Scope uint64
	Receipt      string
}

// Record stores which tasks a worker has. Package communicator/grpc/boltfile
// stores it in a file.
//
// # Concurrency
//
// The worker makes one call at a time: Load in New, then Save from a separate
// goroutine, and finally Remove.
//
// # Ownership
//
// Neither side changes a slice that it has passed to the other.
//
// # Blocking
//
// No task and no method of the worker except Close waits for Save. Changes during a
// Save are saved after it, in one call. Close waits for Save and Remove as long as
// its context allows.
//
// # Errors
//
// New returns the error of Load. An error of Save is logged at Warn, and its changes
// are saved again with the next change. Close returns the error of Remove.
type Record[T comparable] interface {
	// Load returns the tasks that were saved and not deleted, in any order.
	Load() ([]TaskRecord[T], error)
	// Save adds or replaces tasks and deletes those in gone, all or nothing. No task is
	// in both slices. A task in gone may never have been saved.
	Save(tasks []TaskRecord[T], gone []T) error
	// Remove deletes the whole record, because the worker was closed properly. After
	// a successful Remove no method is called.
	Remove() error
}

// WithRecord makes the worker record its tasks whenever they change. After a crash,
// a new worker with the same record can return them ([Worker.Previous]).
// [Worker.Close] removes the record once all tasks have stopped, so a transport must
// report completed tasks between [Worker.Stop] and Close. No later record contains
// what was not reported by then, or what Previous has returned.
//
// The record is for reports only. It is written in the background, so the last
// changes before a crash may be missing. Do not use it to decide which worker may
// run a task. T must be the worker's.
//
// By default there is no record. r must not be nil.
func WithRecord[T comparable](r Record[T]) Option {
	return optionFunc(func(c *config) {
		c.refuse(r == nil, "WithRecord(nil): must be a record")
		c.record = r
	})
}

// Previous returns the tasks of the previous process, as the record had them when New
// was called. Completed and failed ones come first. The slice is empty if that process
// closed its worker, or without [WithRecord]. The caller owns it.
func (w *Worker[T]) Previous() []TaskRecord[T] { return slices.Clone(w.recorder.before) }

// recorder keeps the record up to date.
type recorder[T comparable] struct {
	record Record[T] // nil: none
	before []TaskRecord[T]

	// Guarded by Worker.mu.
	changed map[T]struct{} // tasks whose record is outdated
	saving  chan struct{}  // closed when the goroutine that saves ends; nil: none runs
	removed bool
}

// newRecorder loads the record of the previous process. Its tasks stay in the record
// until the first Save, so that they survive a process that ends soon after its
// start.
func newRecorder[T comparable](record Record[T]) (recorder[T], error) {
	r := recorder[T]{record: record, changed: make(map[T]struct{})}
	if record == nil {
		return r, nil
	}
	before, err := record.Load()
	if err != nil {
		return r, fmt.Errorf("load record: %w", err)
	}
	for _, ended := range []bool{true, false} {
		for _, t := range before {
			if (t.Completed || t.Failed) == ended {
				r.before = append(r.before, t)
				r.changed[t.Task] = struct{}{}
			}
		}
	}
	return r, nil
}

// note marks a task as changed. The caller holds mu.
func (w *Worker[T]) note(task T) {
	r := &w.recorder
	if r.record == nil {
		return
	}
	r.changed[task] = struct{}{}
	if r.saving == nil {
		r.saving = make(chan struct{})
		go w.save()
	}
}

// save saves changes until none are left, in a separate goroutine.
func (w *Worker[T]) save() {
	for {
		tasks, gone, done := w.toSave()
		if done {
			return
		}
		if err := panics.Catch(func() error { return w.recorder.record.Save(tasks, gone) }); err != nil {
			w.cfg.logger.Warn("record not saved", slog.Any("err", err))
			w.saveLater(tasks, gone)
			return
		}
	}
}

func (w *Worker[T]) toSave() (tasks []TaskRecord[T], gone []T, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.recorder
	if len(r.changed) == 0 {
		close(r.saving)
		r.saving = nil
		return nil, nil, true
	}
	for task := range r.changed {
		if e := w.tasks[task]; e != nil {
			t := TaskRecord[T]{
				Task:      task,
				Completed: e.state == Completed,
				Failed:    e.state == Failed,
				Version:   e.grant.Version,
				Token:     e.grant.Token,
				Scope:     e.grant.Scope,
				Receipt:   e.grant.Receipt,
			}
			if t.Failed {
				t.Err, t.Attempts = e.text, e.attempts
			}
			tasks = append(tasks, t)
		} else {
			gone = append(gone, task)
		}
	}
	clear(r.changed)
	return tasks, gone, false
}

// saveLater marks the tasks as changed again, and ends the goroutine until the next
// change.
func (w *Worker[T]) saveLater(tasks []TaskRecord[T], gone []T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &w.recorder
	for _, t := range tasks {
		r.changed[t.Task] = struct{}{}
	}
	for _, task := range gone {
		r.changed[task] = struct{}{}
	}
	close(r.saving)
	r.saving = nil
}

// removeRecord removes the record once no save is under way. The worker is closed
// and has no tasks.
func (w *Worker[T]) removeRecord(ctx context.Context) error {
	w.mu.Lock()
	r := &w.recorder
	saving, removed := r.saving, r.removed || r.record == nil
	w.mu.Unlock()
	if removed {
		return nil
	}
	if saving != nil {
		select {
		case <-saving:
		case <-ctx.Done():
			return fmt.Errorf("save record: %w", context.Cause(ctx))
		}
	}
	w.mu.Lock()
	removed, r.removed = r.removed, true
	w.mu.Unlock()
	if removed {
		return nil
	}
	if err := r.record.Remove(); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.removed = false
		return fmt.Errorf("remove record: %w", err)
	}
	return nil
}
