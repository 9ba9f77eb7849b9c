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
	if old := b.tasks[t.Name]; old != nil && old.sum == t.sum {
		if old.Settings == next.Settings {
			return old.Item
		}
		next.Revision = old.Revision
		next.Content = old.Content
	} else {
		b.revision++
		b.change.revision = b.revision
		next.Revision = b.revision
	}
	set(b.tasks, b.change.tasks, t.Name, &next)
	return next.Item
}

// remove makes tasks no longer expected, all of them or, where one is not,
// none.
func (b *book) remove(names []string) error {
	for _, name := range names {
		if b.tasks[name] == nil {
			return fmt.Errorf("%w: %.100q", ErrNotFound, name)
		}
	}
	for _, name := range names {
		set(b.tasks, b.change.tasks, name, nil)
	}
	return nil
}

// verdict is what comes of a completion.
type verdict uint8

const (
	doneRecorded   verdict = iota + 1 // it is in the book, now or since before
	doneSuperseded                    // there is newer content
	doneUnknown                       // nobody expects that
)

// complete says that a worker has done what a version of a task asked for. The
// first that does so, for whatever instance, completes the task.
func (b *book) complete(now time.Time, worker, name string, version int64) verdict {
	if done := b.done[name]; done != nil && done.Revision >= version {
		return doneRecorded
	}
	t := b.tasks[name]
	switch {
	case t == nil || t.Revision < version:
		return doneUnknown
	case t.Revision > version:
		return doneSuperseded
	}
	set(b.tasks, b.change.tasks, name, nil)
	set(b.done, b.change.done, name, &finished{
		Completion: Completion{Task: name, Revision: version, Worker: worker, At: now.Round(0).UTC()},
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
