package main

// What is noted of a stage: which workers the orchestrator was told of, and what
// runs where.

import (
	"context"
	"fmt"
	"sync"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
)

// told is what an orchestrator is told of the workers, noted on the way.
type told struct {
	etcd.Workers
	mu      sync.Mutex
	there   map[string]int64 // to the incarnation
	changed chan struct{}    // closed, and replaced, at every change
}

func (t *told) init() { t.there, t.changed = make(map[string]int64), make(chan struct{}) }

func (t *told) of(o etcd.Workers) etcd.Workers {
	t.Workers = o
	return t
}

func (t *told) note(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *told) UpdateWorkers(all []orchestrator.Worker[etcd.Worker]) error {
	err := t.Workers.UpdateWorkers(all)
	t.note(func() {
		clear(t.there)
		for _, w := range all {
			t.there[w.Name.Name] = w.Name.Incarnation
		}
	})
	return err
}

func (t *told) AddWorker(w etcd.Worker, opts ...orchestrator.WorkerOption) error {
	err := t.Workers.AddWorker(w, opts...)
	t.note(func() { t.there[w.Name] = w.Incarnation })
	return err
}

func (t *told) RemoveWorker(w etcd.Worker) {
	t.Workers.RemoveWorker(w)
	t.note(func() {
		if t.there[w.Name] == w.Incarnation {
			delete(t.there, w.Name)
		}
	})
}

// wait returns when the orchestrator knows that many workers.
func (t *told) wait(ctx context.Context, n int) error {
	for {
		t.mu.Lock()
		there, changed := len(t.there), t.changed
		t.mu.Unlock()
		if there == n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d members in place of %d: %w", there, n, context.Cause(ctx))
		}
	}
}

// ledger notes what runs where.
type ledger struct {
	mu      sync.Mutex
	running map[string]string // task to worker
	updated int               // contents that have reached a task that runs
	changed chan struct{}     // closed, and replaced, at every change
}

func (l *ledger) init() { l.running, l.changed = make(map[string]string), make(chan struct{}) }

func (l *ledger) note() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *ledger) start(task, worker string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.running[task]; ok {
		return fmt.Errorf("%s runs at %s and at %s", task, other, worker)
	}
	l.running[task] = worker
	l.note()
	return nil
}

func (l *ledger) stop(task string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, task)
	l.note()
}

func (l *ledger) update() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.updated++
	l.note()
}

// wait returns when that many tasks run, and that many contents have reached
// one while it ran.
func (l *ledger) wait(ctx context.Context, tasks, updates int) error {
	for {
		l.mu.Lock()
		running, updated, changed := len(l.running), l.updated, l.changed
		l.mu.Unlock()
		if running == tasks && updated >= updates {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d tasks run in place of %d, with %d updates in place of %d: %w", running, tasks, updated, updates, context.Cause(ctx))
		}
	}
}
