package communicatortest

// The check of lists that are held.

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
)

// listHeld lists worker, and reports whether the implementation called Held.
func (k *kit[W, T]) listHeld(worker W) (tasks []T, held bool, err error) {
	ctx, cancel := k.callContext(k.term, k.arrival())
	defer cancel()
	var called atomic.Bool
	err = k.start(orchestrator.ContextWithHeld(ctx, func() { called.Store(true) }), func(ctx context.Context) (err error) {
		tasks, err = k.Communicator.List(ctx, worker)
		return err
	})()
	return tasks, called.Load(), err
}

// checkHeld lists a worker that runs a task, and again after it was cut off with the
// start of another task on its way. The first List is not held. The second fails, or has
// the running task. If it is held, it has both. If it is not, as from a store that decides
// what a worker may run, the worker does not start what it lacks.
func checkHeld[W, T comparable](k *kit[W, T]) {
	worker, runs, sent := k.Workers[0], k.Tasks[0], k.Tasks[1]
	k.add(worker, runs)
	k.listUntil(worker, "of a worker that acknowledged a start", func(tasks []T, held bool) bool {
		return !held && slices.Contains(tasks, runs)
	})
	heal := k.cut(worker)
	added := k.tryFor(k.arrival(), k.term, orchestrator.OpAdd, worker, sent)
	got, held, err := k.listHeld(worker)
	switch {
	case err != nil:
		return
	case !slices.Contains(got, runs):
		k.failf("List(%v), which is cut off, returned %v, held %v, want the running task %v in it", worker, got, held, runs)
	case slices.Contains(got, sent), errors.Is(added, orchestrator.ErrRejected):
		return
	case held:
		k.failf("List(%v), which is cut off, called Held and returned %v, want task %v in it: its start failed with %q, "+
			"so the worker may run it", worker, got, sent, quote(added))
	}
	heal()
	got = k.listUntil(worker, "of a worker that is connected again", func(_ []T, held bool) bool { return !held })
	if slices.Contains(got, sent) {
		k.failf("List(%v), which was cut off, lacked task %v and did not call Held, but the worker started it later", worker, sent)
	}
}

// listUntil lists worker until the answer is as wanted.
func (k *kit[W, T]) listUntil(worker W, what string, wanted func(tasks []T, held bool) bool) []T {
	tick := time.NewTicker(k.arrival())
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		got, held, err := k.listHeld(worker)
		if err == nil && wanted(got, held) {
			return got
		}
		if time.Since(began) > k.Timeout {
			k.failf("List(%v) %s returned %v, error %v, held %v, want its tasks, not held, within %v",
				worker, what, got, quote(err), held, k.Timeout)
		}
	}
}
