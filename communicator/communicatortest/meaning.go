package communicatortest

// The checks of C4 to C6: the meaning of answers to writes.

import (
	"errors"
	"slices"

	"github.com/f8949c05/orchestrator"
)

// checkIdempotent repeats writes, in the same term and in the next one.
func checkIdempotent[W, T comparable](k *kit[W, T]) {
	worker, task := k.Workers[0], k.Tasks[0]
	k.remove(worker, task)
	k.listed(worker, "a task that was not there was removed")
	k.add(worker, task)
	k.add(worker, task)
	k.listed(worker, "a task added twice runs once", task)
	k.nextTerm()
	k.add(worker, task)
	k.listed(worker, "a task added again in the next term runs once", task)
	k.remove(worker, task)
	k.remove(worker, task)
	k.listed(worker, "a task removed twice is gone")
	k.nextTerm()
	k.remove(worker, task)
	k.listed(worker, "a task removed again in the next term is gone")
}

// checkDoneMeansListed lists the workers after each successful write.
func checkDoneMeansListed[W, T comparable](k *kit[W, T]) {
	worker := k.Workers[0]
	for i, task := range k.Tasks {
		k.add(worker, task)
		k.listed(worker, "a task is in List as soon as Add returned nil", k.Tasks[:i+1]...)
	}
	for _, other := range k.Workers[1:] {
		k.listed(other, "a task is added to one worker only")
	}
	k.add(k.Workers[1], k.Tasks[0])
	for i, task := range k.Tasks {
		k.remove(worker, task)
		k.listed(worker, "a task is no longer in List as soon as Remove returned nil", k.Tasks[i+1:]...)
	}
	k.listed(k.Workers[1], "a task is removed from one worker only", k.Tasks[0])
	k.add(worker, k.Tasks[0])
	k.listed(worker, "a task that was removed can be added again", k.Tasks[0])
}

// checkStaleIsNotDone makes writes of the previous term. If they return ErrRejected,
// they must not be done.
func checkStaleIsNotDone[W, T comparable](k *kit[W, T]) {
	worker, absent, present := k.Workers[0], k.Tasks[0], k.Tasks[1]
	k.add(worker, present)
	past := k.term
	k.nextTerm()
	k.list(worker)
	k.rejected(k.try(past, orchestrator.OpAdd, worker, absent), orchestrator.OpAdd, worker, absent)
	k.rejected(k.try(past, orchestrator.OpRemove, worker, present), orchestrator.OpRemove, worker, present)
}

// checkRefusedIsNotDone adds a task that the worker refuses.
func checkRefusedIsNotDone[W, T comparable](k *kit[W, T]) {
	worker, task := k.Workers[0], k.Tasks[0]
	if k.Refuse == nil {
		k.Skipf("%s: Cluster.Refuse is nil, needed to make a worker refuse a task", k.clause)
	}
	accept := k.undo(k.Refuse(worker, task))
	err := k.try(k.term, orchestrator.OpAdd, worker, task)
	if !errors.Is(err, orchestrator.ErrRejected) {
		k.failf("%s, which the worker refuses, returned %v, want an error that wraps ErrRejected",
			callText(orchestrator.OpAdd, worker, task), quote(err))
	}
	k.rejected(err, orchestrator.OpAdd, worker, task)
	accept()
	k.rejected(err, orchestrator.OpAdd, worker, task)
	k.add(worker, task)
	k.listed(worker, "a task that was refused can be added once it is accepted", task)
}

// checkHeldIsNotRejected lets held writes time out. If they return ErrRejected, they
// must not be done.
func checkHeldIsNotRejected[W, T comparable](k *kit[W, T]) {
	worker, absent, present := k.Workers[0], k.Tasks[0], k.Tasks[1]
	k.add(worker, present)
	release := k.hold(worker)
	added := k.tryFor(k.arrival(), k.term, orchestrator.OpAdd, worker, absent)
	removed := k.tryFor(k.arrival(), k.term, orchestrator.OpRemove, worker, present)
	release()
	k.rejected(added, orchestrator.OpAdd, worker, absent)
	k.rejected(removed, orchestrator.OpRemove, worker, present)
}

// rejected fails if a write was answered with ErrRejected but was done.
func (k *kit[W, T]) rejected(err error, op orchestrator.Op, worker W, task T) {
	k.Helper()
	if !errors.Is(err, orchestrator.ErrRejected) {
		return
	}
	if got := k.list(worker); slices.Contains(got, task) == (op == orchestrator.OpAdd) {
		k.failf("%s failed with %q, which wraps ErrRejected, but was done, List returns %v: "+
			"an error that wraps ErrRejected means certainly not done", callText(op, worker, task), err, got)
	}
}

// checkStrangers calls workers that do not exist.
func checkStrangers[W, T comparable](k *kit[W, T]) {
	if len(k.Strangers) == 0 {
		k.Skipf("%s: Cluster.Strangers is empty, needed to call a worker that does not exist", k.clause)
	}
	for _, worker := range k.Strangers {
		if tasks, err := k.tryList(k.term, worker); err == nil {
			k.failf("List(%v) returned %v and no error, want an error: a worker that does not exist has no list",
				worker, tasks)
		}
		for _, op := range []orchestrator.Op{orchestrator.OpAdd, orchestrator.OpRemove} {
			if err := k.try(k.term, op, worker, k.Tasks[0]); err == nil {
				k.failf("%s returned nil, want an error: the worker does not exist", callText(op, worker, k.Tasks[0]))
			}
		}
	}
}
