package worker

// The local record (W6): what ran and what completed, kept past the end of the
// process, for the one after it to report.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
)

// Trace is what a worker has written down about one of its tasks.
type Trace[T comparable] struct {
	Task T
	// Completed says that it had completed (see WithCompletion), Failed that it had
	// failed (see WithAttempts); else it ran, or was to.
	Completed, Failed bool
	// Err is what its last run failed with, and Attempts how many had in a row. They
	// are empty unless it had failed.
	Err      string
	Attempts int
	// Version is that of its content; Token, Scope and Receipt are what came with
	// it. See Grant.
	Version      int64
	Token, Scope uint64
	Receipt      string
}

// Record is where a worker writes down what it has. Package boltrecord, a module
// of its own, keeps it in a file.
//
// # Concurrency
//
// The worker makes one call at a time: Load in New, then Save from a goroutine
// of its own, and at last Remove.
//
// # Ownership
//
// Neither side changes a slice that it has given to the other.
//
// # Blocking
//
// No task and no call of the worker waits for Save. What changes meanwhile is
// saved after it, in one call. Close waits for Save and Remove as long as its
// context allows.
//
// # Errors
//
// One of Load is one of New. One of Save is logged at Warn; what it was about is
// saved again with the next change. One of Remove is one of Close.
type Record[T comparable] interface {
	// Load returns what was saved and not removed, in any order.
	Load() ([]Trace[T], error)
	// Save adds traces, or puts them in place of those of the same tasks, and
	// takes away those of the tasks that are gone: all of it or nothing. No task
	// is in both, and one that is gone may never have been saved.
	Save(traces []Trace[T], gone []T) error
	// Remove leaves nothing behind: the worker has come to a good end. No call
	// comes after one that succeeded.
	Remove() error
}

// WithRecord has the worker write down what it has as that changes, so that
// after a crash the worker made next with the same record can tell
// ([Worker.Before]). [Worker.Close] removes the record once everything has
// stopped: a transport reports what has completed before that, after [Worker.Stop].
// What could not be reported by then, and what Before has told, is not in any
// record after it.
//
// The record is for reports. It is written in the background, so what changed
// in the last moments before a crash may be missing, and nothing about who may
// run what can be concluded from it. T must be the worker's.
//
// Default: none. A nil r is out of range.
func WithRecord[T comparable](r Record[T]) Option {
	return optionFunc(func(c *config) {
		if r == nil {
			c.invalid("WithRecord(nil): must be a record")
		}
		c.record = r
	})
}

// Before returns what the record held when the worker was made: what its
// predecessor ran and had completed when it ended, unless it was closed; what
// had completed or failed comes first. It is empty without [WithRecord]. The slice is the
// caller's.
func (w *Worker[T]) Before() []Trace[T] { return slices.Clone(w.scribe.before) }

// scribe keeps a record up to date.
type scribe[T comparable] struct {
	record Record[T] // nil: there is none
	before []Trace[T]

	// Guarded by Worker.mu.
	changed map[T]struct{} // tasks whose traces are not as they should be
	saving  chan struct{}  // closed when the goroutine that saves ends; nil: there is none
	removed bool
}

// newScribe reads what a predecessor has left. That stays in the record until
// there is something else to write down, so that a process that ends at once
// does not take it along.
func newScribe[T comparable](r Record[T]) (scribe[T], error) {
	s := scribe[T]{record: r, changed: make(map[T]struct{})}
	if r == nil {
		return s, nil
	}
	before, err := r.Load()
	if err != nil {
		return s, fmt.Errorf("load the record: %w", err)
	}
	s.before = slices.Clone(before)
	slices.SortStableFunc(s.before, func(a, b Trace[T]) int { return rank(a) - rank(b) })
	for _, t := range s.before {
		s.changed[t.Task] = struct{}{}
	}
	return s, nil
}

func rank[T comparable](t Trace[T]) int {
	if t.Completed || t.Failed {
		return 0
	}
	return 1
}

// note says that a task has changed. The lock is held.
func (w *Worker[T]) note(task T) {
	s := &w.scribe
	if s.record == nil {
		return
	}
	s.changed[task] = struct{}{}
	if s.saving == nil {
		s.saving = make(chan struct{})
		go w.save()
	}
}

// save writes down what has changed, until nothing has. It is the whole of a
// goroutine.
func (w *Worker[T]) save() {
	for {
		traces, gone, done := w.toSave()
		if done {
			return
		}
		if err := w.saveThese(traces, gone); err != nil {
			w.cfg.logger.Warn("the record could not be saved", slog.Any("err", err))
			w.saveLater(traces, gone)
			return
		}
	}
}

func (w *Worker[T]) toSave() (traces []Trace[T], gone []T, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.scribe
	if len(s.changed) == 0 {
		close(s.saving)
		s.saving = nil
		return nil, nil, true
	}
	for task := range s.changed {
		if e := w.tasks[task]; e != nil {
			t := Trace[T]{
				Task:      task,
				Completed: e.state == Completed,
				Failed:    e.state == Failed,
				Version:   e.grant.Version,
				Token:     e.grant.Token,
				Scope:     e.grant.Scope,
				Receipt:   e.grant.Receipt,
			}
			if t.Failed {
				t.Err, t.Attempts = e.err.Error(), e.attempts
			}
			traces = append(traces, t)
		} else {
			gone = append(gone, task)
		}
	}
	clear(s.changed)
	return traces, gone, false
}

// saveThese calls the user's record, which must not take the worker down.
func (w *Worker[T]) saveThese(traces []Trace[T], gone []T) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return w.scribe.record.Save(traces, gone)
}

// saveLater gives up until something changes.
func (w *Worker[T]) saveLater(traces []Trace[T], gone []T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.scribe
	for _, t := range traces {
		s.changed[t.Task] = struct{}{}
	}
	for _, task := range gone {
		s.changed[task] = struct{}{}
	}
	close(s.saving)
	s.saving = nil
}

// removeRecord takes the record away, once nothing is left to be saved. The
// worker is closed and empty.
func (w *Worker[T]) removeRecord(ctx context.Context) error {
	w.mu.Lock()
	s := &w.scribe
	saving, removed := s.saving, s.removed || s.record == nil
	w.mu.Unlock()
	if removed {
		return nil
	}
	if saving != nil {
		select {
		case <-saving:
		case <-ctx.Done():
			return fmt.Errorf("the record is being saved: %w", context.Cause(ctx))
		}
	}
	w.mu.Lock()
	removed, s.removed = s.removed, true
	w.mu.Unlock()
	if removed {
		return nil
	}
	if err := s.record.Remove(); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		s.removed = false
		return fmt.Errorf("remove the record: %w", err)
	}
	return nil
}
