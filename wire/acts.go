package wire

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// acts carries out duties on the worker.
type acts struct {
	r *Replica

	mu     sync.Mutex
	flying map[start]bool   // adds under way
	failed map[start]string // adds that the worker has refused, with why
}

// do hands to the worker what follows from the orders. The fence is the life, and Applied in
// it. do returns soon: it waits a few milliseconds for stops, so that one report tells of
// them all.
func (a *acts) do(d *duties, life, id uint64, live bool, epoch uint64) {
	have := a.have()
	a.mu.Lock()
	for s, why := range a.failed {
		d.fail(s, why)
	}
	clear(a.failed)
	d.accept(have, epoch, live)
	add, update, remove := d.steps(have)
	var changes []worker.Change[string]
	add = slices.DeleteFunc(add, func(s start) bool { return a.flying[s] }) // one may wait for the end of an earlier run
	for _, s := range add {
		changes = append(changes, worker.Change[string]{Write: orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: s.task}, Grant: s.grant()})
		a.flying[s] = true
	}
	a.mu.Unlock()
	for _, task := range remove {
		changes = append(changes, worker.Change[string]{Write: orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task}})
	}
	term := orchestrator.Term{Epoch: life, Number: d.applied}
	a.r.worker.Fence(term)
	ctx := worker.ContextWithIncarnation(orchestrator.ContextWithTerm(context.Background(), term), id)
	for _, s := range update {
		_ = a.r.worker.Update(ctx, s.task, s.grant()) // if it fails, it is still to be done with the next turn
	}
	if len(changes) > 0 {
		a.apply(ctx, changes, add)
	}
}

// have returns what the worker has.
func (a *acts) have() present {
	all := a.r.worker.Status()
	have := make(present, len(all))
	for _, s := range all {
		have[s.Task] = s
	}
	return have
}

// isBusy reports whether adds are under way.
func (a *acts) isBusy() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.flying) > 0
}

// grant returns what the worker is given for a start.
func (s start) grant() worker.Grant { return worker.Grant{Version: int64(s.version), Token: s.token} }

// apply hands changes to the worker. The adds are the first of them.
func (a *acts) apply(ctx context.Context, changes []worker.Change[string], adds []start) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		errs := a.r.worker.ApplyWith(ctx, changes)
		a.mu.Lock()
		defer a.mu.Unlock()
		for i, s := range adds {
			delete(a.flying, s)
			if errs != nil && errors.Is(errs[i], orchestrator.ErrRejected) && !errors.Is(errs[i], orchestrator.ErrStale) {
				a.failed[s] = errs[i].Error()
			}
		}
		if errs != nil {
			a.r.wake()
		}
	}()
	select {
	case <-done:
	case <-time.After(a.r.patience):
	}
}
