package grpc

// The book's tasks: what is expected, what is completed, and whose name is
// drained.

import (
	"fmt"
	"time"
)

// put makes tasks expected, and returns them as they are in the book. What is
// already there with this content keeps its version, and what is already
// completed with it stays so.
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

// remove makes tasks no longer expected, and forgets those that have failed: all of
// them or, if one is neither, none.
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

// retry makes tasks that have failed expected again: all of them or, if one has
// not, none. Each has a new revision, so that what is still told of the old one
// does not count.
func (b *book) retry(names []string) error {
	for _, name := range names {
		if b.failed[name] == nil {
			return fmt.Errorf("%w: %.100q has not failed", ErrNotFound, name)
		}
	}
	for _, name := range names {
		if failed := b.failed[name]; failed != nil { // not named twice
			t := failed.task()
			t.Revision = b.nextRevision()
			set(b.failed, b.change.failed, name, nil)
			set(b.tasks, b.change.tasks, name, t)
		}
	}
	return nil
}

// conclusion is what a worker says of a task that came to its end there.
type conclusion struct {
	task    string
	version int64
	failure *Failure // nil: it has completed
	proven  bool     // the worker shows the receipt for this version
}

// verdict is what comes of a conclusion.
type verdict uint8

const (
	doneRecorded   verdict = iota + 1 // it is in the book, now or since before
	doneSuperseded                    // there is newer content
	doneUnknown                       // the task is expected no more
	doneRefused                       // the worker was not given that
)

// conclude records that a worker has done what a version of a task asked for, or has
// failed for good. The first instance that does so completes the task, or fails it. One
// that completes after another has failed completes it too. A refusal tells nothing of
// the task.
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

// forget takes completions out of the book.
func (b *book) forget(names []string) {
	for _, name := range names {
		if b.done[name] != nil {
			set(b.done, b.change.done, name, nil)
		}
	}
}

// drain has the worker of a name end empty, or no longer, whether it is a
// member or not.
func (b *book) drain(name string, drained bool) {
	if b.drains[name] != drained {
		set(b.drains, b.change.drains, name, drained)
	}
}
