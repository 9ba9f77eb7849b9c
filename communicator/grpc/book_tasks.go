package grpc

// The book's tasks: expected, completed and failed ones, and the drained names.

import (
	"fmt"
	"time"
)

// put makes tasks expected, and returns them as stored. A task that exists with the
// same content keeps its version, and one that was completed or has failed with the
// same content stays so.
func (b *book) put(tasks []*task) []Item {
	stored := make([]Item, len(tasks))
	for i, t := range tasks {
		stored[i] = b.putOne(t)
	}
	return stored
}

func (b *book) putOne(t *task) Item {
	next := *t
	next.Settings = t.Settings.whole()
	if done := b.done[t.Name]; done != nil {
		if done.sum == t.sum {
			next.Revision = done.Revision
			return next.Item
		}
		set(b.done, b.change.done, t.Name, nil)
	}
	if failed := b.failed[t.Name]; failed != nil {
		if failed.sum == t.sum {
			next.Revision = failed.Revision
			if failed.Settings != next.Settings {
				changed := *failed
				changed.Settings = next.Settings
				set(b.failed, b.change.failed, t.Name, &changed)
			}
			return next.Item
		}
		set(b.failed, b.change.failed, t.Name, nil)
	}
	if old := b.tasks[t.Name]; old != nil && old.sum == t.sum {
		if old.Settings == next.Settings {
			return old.Item
		}
		next.Revision = old.Revision
		next.Content = old.Content
	} else {
		next.Revision = b.nextRevision()
	}
	set(b.tasks, b.change.tasks, t.Name, &next)
	return next.Item
}

func (b *book) nextRevision() int64 {
	b.revision++
	b.change.revision = b.revision
	return b.revision
}

// remove deletes tasks that are expected or have failed. If one is neither, it
// deletes none.
func (b *book) remove(names []string) error {
	for _, name := range names {
		if b.tasks[name] == nil && b.failed[name] == nil {
			return fmt.Errorf("%w: %.100q", ErrNotFound, name)
		}
	}
	for _, name := range names {
		if b.tasks[name] != nil {
			set(b.tasks, b.change.tasks, name, nil)
		} else if b.failed[name] != nil {
			set(b.failed, b.change.failed, name, nil)
		}
	}
	return nil
}

// retry makes failed tasks expected again. If one has not failed, it changes none.
// Each task gets a new version, so that late conclusions of the old one do not
// count.
func (b *book) retry(names []string) error {
	for _, name := range names {
		if b.failed[name] == nil {
			return fmt.Errorf("%w: %.100q has not failed", ErrNotFound, name)
		}
	}
	for _, name := range names {
		if failed := b.failed[name]; failed != nil { // nil if the name is given twice
			t := failed.task()
			t.Revision = b.nextRevision()
			set(b.failed, b.change.failed, name, nil)
			set(b.tasks, b.change.tasks, name, t)
		}
	}
	return nil
}

// conclusion is a worker's report that a task has completed or failed.
type conclusion struct {
	task    string
	version int64
	failure *Failure // nil: it has completed
	proven  bool     // the worker shows the receipt for this version
}

// verdict is the book's answer to a conclusion.
type verdict uint8

const (
	doneRecorded   verdict = iota + 1 // it is recorded, now or already before
	doneSuperseded                    // the task has newer content
	doneUnknown                       // the task is no longer expected
	doneRefused                       // the worker was not given this content
)

// conclude records that a worker has completed a version of a task, or has failed
// for good. The first instance that does so completes or fails the task. An instance
// that completes after another has failed completes the task nevertheless. A refusal
// reveals nothing about the task.
func (b *book) conclude(now time.Time, worker string, e conclusion) verdict {
	if !e.proven {
		return doneRefused
	}
	if done := b.done[e.task]; done != nil && done.Revision >= e.version {
		return doneRecorded
	}
	t, failed := b.tasks[e.task], b.failed[e.task]
	if failed != nil {
		if e.failure != nil && failed.Revision == e.version {
			return doneRecorded
		}
		t = failed.task()
	}
	switch {
	case t == nil || t.Revision < e.version:
		return doneUnknown
	case t.Revision > e.version:
		return doneSuperseded
	}
	now = now.Round(0).UTC()
	if failed == nil {
		set(b.tasks, b.change.tasks, e.task, nil)
	}
	if e.failure != nil {
		set(b.failed, b.change.failed, e.task, &failedTask{
			FailedTask: FailedTask{Item: t.Item, Err: e.failure.Err, Attempts: e.failure.Attempts, Worker: worker, At: now},
			sum:        t.sum,
		})
		return doneRecorded
	}
	if failed != nil {
		set(b.failed, b.change.failed, e.task, nil)
	}
	set(b.done, b.change.done, e.task, &finished{
		Completion: Completion{Task: e.task, Revision: e.version, Worker: worker, At: now},
		sum:        t.sum,
	})
	return doneRecorded
}

// forget deletes completions.
func (b *book) forget(names []string) {
	for _, name := range names {
		if b.done[name] != nil {
			set(b.done, b.change.done, name, nil)
		}
	}
}

// drain drains or undrains the worker of a name, whether or not it is a member.
func (b *book) drain(name string, drained bool) {
	if b.drains[name] != drained {
		set(b.drains, b.change.drains, name, drained)
	}
}
