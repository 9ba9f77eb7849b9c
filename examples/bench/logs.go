//go:build peers

package main

// Records of running tasks and of the leader's terms.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// taskLog records which worker runs each task.
type taskLog struct {
	mu      sync.Mutex
	running map[string]string // the worker of each task
	loads   map[string]int    // by worker
	last    time.Time         // when the last task started
	changed chan struct{}     // closed and replaced at every change
}

func (l *taskLog) init() {
	l.running, l.loads, l.changed = make(map[string]string), make(map[string]int), make(chan struct{})
}

// note wakes all waiters. The caller holds mu.
func (l *taskLog) note() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *taskLog) start(task, worker string) error { return l.startAt(time.Now(), task, worker) }

// startAt records a start. It fails if the task runs already.
func (l *taskLog) startAt(at time.Time, task, worker string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.running[task]; ok {
		return fmt.Errorf("%s runs on %s and on %s", task, other, worker)
	}
	l.running[task], l.last = worker, at
	l.loads[worker]++
	l.note()
	return nil
}

// stop records that a task has stopped on a worker.
func (l *taskLog) stop(task, worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[task] == worker {
		l.forget(task, worker)
		l.note()
	}
}

// killed records that a worker's process and its tasks have ended.
func (l *taskLog) killed(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for task, runner := range l.running {
		if runner == worker {
			l.forget(task, worker)
		}
	}
	l.note()
}

// forget removes a running task. The caller holds mu.
func (l *taskLog) forget(task, worker string) {
	delete(l.running, task)
	if l.loads[worker]--; l.loads[worker] == 0 {
		delete(l.loads, worker)
	}
}

// until waits until reached returns true, and returns the time of the latest start.
// It calls reached with mu held.
func (l *taskLog) until(ctx context.Context, what string, reached func() bool) (time.Time, error) {
	for {
		l.mu.Lock()
		done, last, running, changed := reached(), l.last, len(l.running), l.changed
		l.mu.Unlock()
		if done {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return last, fmt.Errorf("%s: %d tasks run: %w", what, running, context.Cause(ctx))
		}
	}
}

// wait waits until that many tasks run, and returns the time of the latest start.
func (l *taskLog) wait(ctx context.Context, tasks int) (time.Time, error) {
	return l.until(ctx, fmt.Sprintf("wait for %d tasks", tasks), func() bool { return len(l.running) == tasks })
}

// waitFor waits until a worker runs that many tasks, as wait does.
func (l *taskLog) waitFor(ctx context.Context, worker string, tasks int) (time.Time, error) {
	return l.until(ctx, fmt.Sprintf("wait for %d tasks on %s", tasks, worker),
		func() bool { return l.loads[worker] == tasks })
}

// termLog records the statistics of a leader's terms.
type termLog struct {
	mu      sync.Mutex
	all     []orchestrator.TermStats
	changed chan struct{} // closed and replaced at every term
}

func (l *termLog) init() { l.changed = make(chan struct{}) }

func (l *termLog) note(s orchestrator.TermStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	close(l.changed)
	l.changed = make(chan struct{})
}

// since returns all terms except the first n.
func (l *termLog) since(n int) []orchestrator.TermStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[n:len(l.all):len(l.all)]
}

func (l *termLog) len() int { return len(l.since(0)) }

// wait returns the first term after the first n for which ok is true.
func (l *termLog) wait(ctx context.Context, n int, ok func(orchestrator.TermStats) bool) (orchestrator.TermStats, error) {
	for {
		l.mu.Lock()
		terms, changed := l.all[n:], l.changed
		l.mu.Unlock()
		for _, s := range terms {
			if ok(s) {
				return s, nil
			}
		}
		n += len(terms)
		select {
		case <-changed:
		case <-ctx.Done():
			return orchestrator.TermStats{}, fmt.Errorf("after term %d: %w", n, errors.Join(context.Cause(ctx), l.last()))
		}
	}
}

// last describes the last term.
func (l *termLog) last() error {
	terms := l.since(0)
	if len(terms) == 0 {
		return errors.New("no term has ended")
	}
	s := terms[len(terms)-1]
	failed := ""
	if s.Err != nil {
		failed = fmt.Sprintf(", %.300s", s.Err)
	}
	return fmt.Errorf("the last term took %v and ended with %+v on %+v, spread %d%s", s.Total, s.Instances, s.Workers, s.Spread, failed)
}
