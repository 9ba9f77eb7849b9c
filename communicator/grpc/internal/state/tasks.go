package state

// Tasks: expected, completed and failed ones; and the drained names.

import (
	"fmt"
	"time"
)

// Put makes tasks expected, and returns them as stored. A task that exists with the
// same content keeps its version, and one that was completed or has failed with the
// same content stays so.
func (s *State) Put(tasks []*Task) []Item {
	stored := make([]Item, len(tasks))
	for i, t := range tasks {
		stored[i] = s.putOne(t)
	}
	return stored
}

func (s *State) putOne(t *Task) Item {
	next := *t
	next.Settings = t.Settings.Normalized()
	if done := s.done[t.Name]; done != nil {
		if done.sum == t.sum {
			next.Revision = done.Revision
			return next.Item
		}
		set(s.done, s.change.done, t.Name, nil)
	}
	if failed := s.failed[t.Name]; failed != nil {
		if failed.sum == t.sum {
			next.Revision = failed.Revision
			if !failed.Settings.Equal(next.Settings) {
				changed := *failed
				changed.Settings = next.Settings
				set(s.failed, s.change.failed, t.Name, &changed)
			}
			return next.Item
		}
		set(s.failed, s.change.failed, t.Name, nil)
	}
	if old := s.tasks[t.Name]; old != nil && old.sum == t.sum {
		if old.Settings.Equal(next.Settings) {
			return old.Item
		}
		next.Revision = old.Revision
		next.Content = old.Content
	} else {
		next.Revision = s.nextRevision()
	}
	set(s.tasks, s.change.tasks, t.Name, &next)
	return next.Item
}

func (s *State) nextRevision() int64 {
	s.Revision++
	s.change.Revision = s.Revision
	return s.Revision
}

// Remove deletes tasks that are expected or have failed. If one is neither, it
// deletes none.
func (s *State) Remove(names []string) error {
	for _, name := range names {
		if s.tasks[name] == nil && s.failed[name] == nil {
			return fmt.Errorf("%w: %.100q", ErrNotFound, name)
		}
	}
	for _, name := range names {
		if s.tasks[name] != nil {
			set(s.tasks, s.change.tasks, name, nil)
		} else if s.failed[name] != nil {
			set(s.failed, s.change.failed, name, nil)
		}
	}
	return nil
}

// Retry makes failed tasks expected again. If one has not failed, it changes none.
// Each task gets a new version, so that late conclusions of the old one do not
// count.
func (s *State) Retry(names []string) error {
	for _, name := range names {
		if s.failed[name] == nil {
			return fmt.Errorf("%w: %.100q has not failed", ErrNotFound, name)
		}
	}
	for _, name := range names {
		if failed := s.failed[name]; failed != nil { // nil if the name is given twice
			t := failed.task()
			t.Revision = s.nextRevision()
			set(s.failed, s.change.failed, name, nil)
			set(s.tasks, s.change.tasks, name, t)
		}
	}
	return nil
}

// Failure is why a job has failed for good.
type Failure struct {
	Err      string
	Attempts int // in a row
}

// Conclusion is a worker's report that a task has completed or failed.
type Conclusion struct {
	Task    string
	Version int64
	Failure *Failure // nil: it has completed
	Proven  bool     // the worker shows the receipt for this version
}

// Verdict is the answer to a conclusion, with the numbers of CompletionOutcome in the proto
// file.
type Verdict uint8

const (
	DoneRecorded   Verdict = iota + 1 // it is recorded, now or already before
	DoneSuperseded                    // the task has newer content
	DoneUnknown                       // the task is no longer expected
	DoneRefused                       // the worker was not given this content
)

// Conclude records that a worker has completed a version of a task, or has failed
// for good. The first instance that does so completes or fails the task. An instance
// that completes after another has failed completes the task nevertheless. A refusal
// reveals nothing about the task.
func (s *State) Conclude(now time.Time, worker string, e Conclusion) Verdict {
	if !e.Proven {
		return DoneRefused
	}
	if done := s.done[e.Task]; done != nil && done.Revision >= e.Version {
		return DoneRecorded
	}
	t, failed := s.tasks[e.Task], s.failed[e.Task]
	if failed != nil {
		if e.Failure != nil && failed.Revision == e.Version {
			return DoneRecorded
		}
		t = failed.task()
	}
	switch {
	case t == nil || t.Revision < e.Version:
		return DoneUnknown
	case t.Revision > e.Version:
		return DoneSuperseded
	}
	now = now.Round(0).UTC()
	if failed == nil {
		set(s.tasks, s.change.tasks, e.Task, nil)
	}
	if e.Failure != nil {
		set(s.failed, s.change.failed, e.Task, &failedTask{
			FailedTask: FailedTask{Item: t.Item, Err: e.Failure.Err, Attempts: e.Failure.Attempts, Worker: worker, At: now},
			sum:        t.sum,
		})
		return DoneRecorded
	}
	if failed != nil {
		set(s.failed, s.change.failed, e.Task, nil)
	}
	set(s.done, s.change.done, e.Task, &finished{
		Completion: Completion{Task: e.Task, Revision: e.Version, Worker: worker, At: now},
		sum:        t.sum,
	})
	return DoneRecorded
}

// Forget deletes completions.
func (s *State) Forget(names []string) {
	for _, name := range names {
		if s.done[name] != nil {
			set(s.done, s.change.done, name, nil)
		}
	}
}

// Drain drains or undrains the worker of a name, whether or not it is a member.
func (s *State) Drain(name string, drained bool) {
	if s.drains[name] != drained {
		set(s.drains, s.change.drains, name, drained)
	}
}
