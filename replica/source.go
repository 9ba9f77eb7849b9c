package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/loglimit"
	"github.com/f8949c05/orchestrator/internal/panics"
)

// Task is a task and its settings.
type Task struct {
	Name string
	// Instances is the number of replicas that run the task at the same time; 0 means 1.
	Instances int
	// Handoff is the order of the two halves of a move; see orchestrator.WithHandoff.
	Handoff orchestrator.Handoff
	// Requires, MaxPerZone and Weight are as in orchestrator.Task.
	Requires   []string
	MaxPerZone int
	Weight     int64
	// Content is the input of the task, at most 1 MiB; see worker.Content. It is not
	// copied: the Source must not change the bytes.
	Content []byte
	// Version rises with each new content of the task, and also from before the task
	// was deleted until it is put again. It is above 0 if there is a content.
	Version int64
}

// Source provides the tasks. It calls tell with all tasks, and again whenever they have
// changed, until ctx ends; then it returns. Only the leader's Source is called, from one
// goroutine.
//
// tell replaces the tasks: one that is no longer among them stops. So an empty list stops
// all, which the replica logs. It returns an error that wraps orchestrator.ErrInvalid and
// changes nothing if a task is invalid or appears twice. It does not keep the slice.
//
// If a Source returns before ctx has ended, the replica logs that, keeps the tasks, and
// calls the Source again after a pause. It does so after a panic, too. Until its first
// call of tell nothing starts and nothing stops. If a Source does not return when ctx ends,
// the replica logs that, and does not wait: the Source may then be called again while the
// former call is under way, whose tell changes nothing.
type Source func(ctx context.Context, tell func([]Task) error) error

// Names is a Source of tasks that never change.
func Names(names ...string) Source {
	tasks := make([]Task, len(names))
	for i, name := range names {
		tasks[i].Name = name
	}
	return func(ctx context.Context, tell func([]Task) error) error {
		if err := tell(tasks); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
}

// Poll is a Source that calls f at once and then with the given interval, which must be
// positive. After an error of f it ends, so that the replica logs the error, keeps the
// tasks, and calls it again after a pause. When its context ends, it returns nil.
func Poll(interval time.Duration, f func(context.Context) ([]Task, error)) Source {
	return func(ctx context.Context, tell func([]Task) error) error {
		if interval <= 0 {
			return fmt.Errorf("poll: %w: the interval is %v: must be above 0", orchestrator.ErrInvalid, interval)
		}
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			tasks, err := f(ctx)
			if err == nil {
				err = tell(tasks)
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
		return nil
	}
}

// maxContent bounds the content of a task, so that a message holds several.
const maxContent = 1 << 20

// contents has the contents of the tasks, and implements grpc.RevisedContents.
type contents struct {
	mu       sync.Mutex
	tasks    map[string]content
	revision int64 // rises with each replacement
}

type content struct {
	bytes   []byte
	version int64
}

// Content returns the content of a task.
func (c *contents) Content(task string) (bytes []byte, version int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.tasks[task]
	return found.bytes, found.version, ok
}

// Revision returns a number that rises with each new content.
func (c *contents) Revision() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision + 1
}

// replace replaces all tasks, here and at o, or returns an error and changes nothing. It
// returns the former number of tasks. Meanwhile Content waits, so that no task starts
// without its content.
func (c *contents) replace(tasks []Task, o tasksOf) (before int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[string]content, len(tasks))
	expected := make([]orchestrator.Task[string], len(tasks))
	for i, t := range tasks {
		former := c.tasks[t.Name]
		switch {
		case t.Name == "" || len(t.Name) > maxText:
			return 0, fmt.Errorf("task %.100q: %w: its name has %d bytes: must have from 1 to %d", t.Name, orchestrator.ErrInvalid, len(t.Name), maxText)
		case len(t.Content) > maxContent:
			return 0, fmt.Errorf("task %q: %w: content has %d bytes: at most %d", t.Name, orchestrator.ErrInvalid, len(t.Content), maxContent)
		case t.Version < 0, len(t.Content) > 0 && t.Version == 0:
			return 0, fmt.Errorf("task %q: %w: content has version %d: must be above 0", t.Name, orchestrator.ErrInvalid, t.Version)
		case t.Version < former.version, t.Version == former.version && !bytes.Equal(t.Content, former.bytes):
			return 0, fmt.Errorf("task %q: %w: new content has version %d, the former %d: must be higher", t.Name, orchestrator.ErrInvalid, t.Version, former.version)
		}
		next[t.Name] = content{t.Content, t.Version}
		expected[i] = orchestrator.Task[string]{
			Name: t.Name, Instances: t.Instances, Handoff: t.Handoff,
			Requires: t.Requires, MaxPerZone: t.MaxPerZone, Weight: t.Weight,
		}
	}
	if err := o.UpdateTasks(expected); err != nil {
		return 0, err
	}
	before = len(c.tasks)
	c.tasks = next
	c.revision++
	return before, nil
}

// tasksOf is what a leader passes the tasks to.
type tasksOf interface {
	UpdateTasks(tasks []orchestrator.Task[string]) error
}

// invalidTasks is the error of a call of tell. It was logged.
type invalidTasks struct{ err error }

func (e *invalidTasks) Error() string { return e.err.Error() }
func (e *invalidTasks) Unwrap() error { return e.err }

// feed calls the source until ctx ends, and passes its tasks on. told is called after
// each answer.
func feed(ctx context.Context, source Source, c *contents, o tasksOf, log *slog.Logger, longest time.Duration, told func()) {
	failed, refused := loglimit.Limiter{Every: 10 * time.Second}, loglimit.Limiter{Every: 10 * time.Second}
	first := true // what an earlier leader was told is unknown
	tell := func(tasks []Task) error {
		before, err := c.replace(tasks, o)
		if err != nil {
			if omitted, ok := refused.Take(time.Now(), ""); ok {
				log.Error("source told invalid tasks: all tasks stay as they are until it tells valid ones", "err", err, loglimit.Omitted(omitted))
			}
			return &invalidTasks{err}
		}
		mended, valid := failed.Reset(), refused.Reset()
		if mended || valid {
			log.Info("source succeeds again", "tasks", len(tasks))
		}
		if len(tasks) == 0 && (before > 0 || first) {
			log.Warn("source told an empty list: all tasks stop", "before", before)
		}
		first = false
		told()
		return nil
	}
	retry := backoff.Backoff{First: 100 * time.Millisecond, Longest: longest}
	for ctx.Err() == nil {
		began := time.Now()
		err := call(ctx, source, tell)
		if ctx.Err() != nil {
			return
		}
		if _, logged := errors.AsType[*invalidTasks](err); !logged {
			if omitted, ok := failed.Take(time.Now(), ""); ok {
				log.Error("source of the tasks failed: they stay as they are, and it is called again", "err", err, loglimit.Omitted(omitted))
			}
		}
		if time.Since(began) > longest {
			retry.Reset()
		}
		retry.Wait(ctx)
	}
}

// call calls the source. A panic is an error.
func call(ctx context.Context, source Source, tell func([]Task) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panics.Error(p)
		}
	}()
	if err := source(ctx, tell); err != nil {
		return err
	}
	return errors.New("source returned before its context ended")
}
