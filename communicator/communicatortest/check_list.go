package communicatortest

// The checks of what a List declares: the worker is held, tasks are pinned.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkHeld lists a worker that runs a task, and again after it was cut off with the
// start of another task on its way. The first List is not held. The second fails, or has
// the running task. If it is held, it has both. If it is not, as from a store that decides
// what a worker may run, the worker does not start what it lacks.
func checkHeld[W, T comparable](k *kit[W, T]) {
	worker, runs, sent := k.Workers[0], k.Tasks[0], k.Tasks[1]
	k.add(worker, runs)
	k.listUntil(worker, "its tasks, not held", func(l listing[T]) bool {
		return !l.held && slices.Contains(l.tasks, runs)
	})
	heal := k.cut(worker)
	added := k.tryFor(k.arrival(), k.term, orchestrator.OpAdd, worker, sent)
	k.nextTerm() // before that, an Add whose outcome is unknown may still take effect
	got, err := k.look(k.arrival(), k.term, worker)
	switch {
	case err != nil:
		return
	case !slices.Contains(got.tasks, runs):
		k.failf("List(%v), which is cut off, returned %v, held %v, want the running task %v in it", worker, got.tasks, got.held, runs)
	case slices.Contains(got.tasks, sent), errors.Is(added, orchestrator.ErrRejected):
		return
	case got.held:
		k.failf("List(%v), which is cut off, called Held and returned %v, want task %v in it: its start failed with %q, "+
			"so the worker may run it", worker, got.tasks, sent, quote(added))
	}
	heal()
	got = k.listUntil(worker, "its tasks, not held, as it is connected again", func(l listing[T]) bool { return !l.held })
	if slices.Contains(got.tasks, sent) {
		k.failf("List(%v), which was cut off, lacked task %v and did not call Held, but the worker started it later", worker, sent)
	}
}

// checkPinned lists a worker that runs a task that it pins, and one that it does not. The
// other worker runs the first task too, and does not pin it.
func checkPinned[W, T comparable](k *kit[W, T]) {
	worker, other, job := k.Workers[0], k.Workers[1], k.Tasks[0]
	unpin := k.pin(worker, job)
	for _, task := range k.Tasks[:2] {
		k.add(worker, task)
	}
	k.add(other, job)
	for range 2 {
		k.pinned(worker, job)
		k.pinned(other)
		k.nextTerm()
	}
	unpin()
	k.pinned(worker)
	for _, task := range k.Tasks[:2] {
		k.remove(worker, task)
	}
	k.listed(worker, "tasks that are not pinned any more can be removed")
}

// checkLostPins lists a worker that pins a task, as a leader that does not hear of pins.
// The worker, or the Communicator for it, must then refuse to stop the task.
func checkLostPins[W, T comparable](k *kit[W, T]) {
	worker, job := k.Workers[0], k.Tasks[0]
	k.pin(worker, job)
	k.add(worker, job)
	k.pinned(worker, job)
	k.nextTerm()
	ctx, cancel := k.callContext(k.term, k.Timeout)
	defer cancel()
	if _, err := k.listIn(ctx, worker); err != nil {
		return // it says that it cannot pin
	}
	err := k.try(k.term, orchestrator.OpRemove, worker, job)
	if !errors.Is(err, orchestrator.ErrRejected) {
		k.failf("%s returned %v, want an error that wraps ErrRejected: List pinned the task, but Pin returned false, "+
			"so the leader may move it", callText(orchestrator.OpRemove, worker, job), quote(err))
	}
	k.rejected(err, orchestrator.OpRemove, worker, job)
	k.nextTerm()
	k.pinned(worker, job)
	k.remove(worker, job)
	k.listed(worker, "a task that the leader knows to be pinned can be removed")
}

// pinned lists worker until it pins exactly the tasks wanted.
func (k *kit[W, T]) pinned(worker W, want ...T) {
	k.Helper()
	k.listUntil(worker, fmt.Sprintf("%v pinned (orchestrator.Pin, ContextWithPins)", want), func(l listing[T]) bool {
		return sameTasks(l.pinned, want)
	})
}

// listUntil lists worker until the answer is as wanted.
func (k *kit[W, T]) listUntil(worker W, what string, wanted func(listing[T]) bool) listing[T] {
	k.Helper()
	tick := time.NewTicker(k.arrival())
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		got, err := k.look(k.arrival(), k.term, worker)
		if err == nil && wanted(got) {
			return got
		}
		if time.Since(began) > k.Timeout {
			k.failf("List(%v) returned %v, pinned %v, held %v, error %v, want %s, within %v",
				worker, got.tasks, got.pinned, got.held, quote(err), what, k.Timeout)
		}
	}
}
