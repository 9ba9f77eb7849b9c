package communicatortest

// The checks of C7: writes that belong to earlier terms.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkLowerEpoch makes writes of a leader that has a successor.
func checkLowerEpoch[W, T comparable](k *kit[W, T]) {
	worker := k.Workers[0]
	k.add(worker, k.Tasks[1])
	past := k.term
	k.nextEpoch()
	k.list(worker)
	k.refused(past, worker, orchestrator.ErrDeposed, "List carried a higher epoch")
	past.Number += 100
	k.refused(past, worker, orchestrator.ErrDeposed, "List carried a higher epoch, whatever the term's number")
	// A List of an earlier term may be answered or not, but must not lower the
	// fence.
	_, _ = k.tryList(past, worker)
	k.refused(past, worker, orchestrator.ErrDeposed, "a List of a lower epoch does not lower the fence")
	k.add(worker, k.Tasks[0])
	k.listed(worker, "the new leader's writes are done", k.Tasks[0], k.Tasks[1])
}

// checkLowerNumber makes writes of an earlier term of the same leader.
func checkLowerNumber[W, T comparable](k *kit[W, T]) {
	worker := k.Workers[0]
	k.add(worker, k.Tasks[1])
	past := k.term
	k.nextTerm()
	k.list(worker)
	k.refused(past, worker, orchestrator.ErrStale, "List carried a higher number of the same epoch")
	_, _ = k.tryList(past, worker)
	k.refused(past, worker, orchestrator.ErrStale, "a List of a lower number does not lower the fence")
	k.add(worker, k.Tasks[0])
	k.listed(worker, "writes of the later term are done", k.Tasks[0], k.Tasks[1])
}

// checkWritesFence raises the fence by writes alone.
func checkWritesFence[W, T comparable](k *kit[W, T]) {
	worker, absent, present := k.Workers[0], k.Tasks[0], k.Tasks[1]
	first := k.term
	k.nextTerm()
	k.add(worker, present)
	k.refused(first, worker, orchestrator.ErrStale, "Add carried a higher number of the same epoch")
	second := k.term
	k.nextTerm()
	k.remove(worker, absent)
	k.refused(second, worker, orchestrator.ErrStale, "Remove carried a higher number of the same epoch")
	third := k.term
	k.nextEpoch()
	k.add(worker, present)
	k.refused(third, worker, orchestrator.ErrDeposed, "Add carried a higher epoch")
}

// checkEqualTerm makes many calls in one term.
func checkEqualTerm[W, T comparable](k *kit[W, T]) {
	worker := k.Workers[0]
	for range 2 {
		k.add(worker, k.Tasks[0])
		k.listed(worker, "writes of an equal term are done", k.Tasks[0])
		k.add(worker, k.Tasks[1])
		k.remove(worker, k.Tasks[0])
		k.remove(worker, k.Tasks[1])
		k.listed(worker, "writes of an equal term are done")
		k.nextEpoch() // its number is lower
	}
}

// checkWriteWithoutTerm makes writes without a term.
func checkWriteWithoutTerm[W, T comparable](k *kit[W, T]) {
	worker := k.Workers[0]
	k.add(worker, k.Tasks[1])
	k.refused(orchestrator.Term{}, worker, orchestrator.ErrStale, "a term was seen before")
}

// checkListWithoutTerm lists without a term, as WithDryRun does.
func checkListWithoutTerm[W, T comparable](k *kit[W, T]) {
	worker := k.Workers[0]
	k.add(worker, k.Tasks[0])
	got, err := k.tryList(orchestrator.Term{}, worker)
	if err != nil || !sameTasks(got, k.Tasks[:1]) {
		k.failf("List(%v) without a term returned %v, %v, want %v and no error: reading is always allowed",
			worker, got, quote(err), k.Tasks[:1])
	}
	k.add(worker, k.Tasks[1])
	k.remove(worker, k.Tasks[0])
	k.listed(worker, "a List without a term does not raise the fence", k.Tasks[1])
	past := k.term
	k.nextTerm()
	k.list(worker)
	_, _ = k.tryList(orchestrator.Term{}, worker)
	k.refused(past, worker, orchestrator.ErrStale, "a List without a term does not lower the fence")
}

// checkDelayedPastList holds a write back until a later term has listed the worker.
// The write must never take effect.
func checkDelayedPastList[W, T comparable](k *kit[W, T]) {
	worker, present, other := k.Workers[0], k.Tasks[1], k.Tasks[2]
	k.add(worker, present)
	for _, advance := range []func(){k.nextTerm, k.nextEpoch} {
		release := k.hold(worker)
		past := k.term
		for i, op := range []orchestrator.Op{orchestrator.OpAdd, orchestrator.OpRemove} {
			err := k.tryFor(k.arrival(), past, op, worker, k.Tasks[i])
			k.ended(op, worker, k.Tasks[i], err, "whose deadline passed while it was held back")
		}
		advance()
		k.during = ", while writes are held back"
		k.listed(worker, "a write that is held back is not done", present)
		k.during = ""
		release()
		because := fmt.Sprintf("writes %s were delayed until after List %s, and must never land", in(past), in(k.term))
		k.listed(worker, because, present)
		// A following write flushes any queue.
		k.add(worker, other)
		k.listed(worker, because, present, other)
		k.remove(worker, other)
		k.listed(worker, because, present)
	}
}

// checkRemoveWaits makes a Remove wait for its task to stop while the next leader
// lists the worker. The stop then belongs to the next leader. The first leader must
// not take it for its own, whether Remove returns immediately or when the task has
// stopped.
func checkRemoveWaits[W, T comparable](k *kit[W, T]) {
	worker, task := k.Workers[0], k.Tasks[0]
	k.add(worker, task)
	end := k.linger(worker, task)
	past := k.term
	ctx, cancel := k.callContext(past, k.Timeout)
	defer cancel()
	answered := make(chan struct{})
	wait := k.start(ctx, func(ctx context.Context) error {
		defer close(answered)
		return k.write(ctx, orchestrator.OpRemove, worker, task)
	})
	arrival := time.NewTimer(k.arrival())
	defer arrival.Stop()
	waits := true
	call := callText(orchestrator.OpRemove, worker, task) + " " + in(past)
	select {
	case <-arrival.C:
	case <-answered: // for example, with ErrStopping
		waits = false
		if wait() == nil {
			k.failf("%s returned nil before the task had stopped, want it to wait or to fail (C5)", call)
		}
	}
	k.nextEpoch()
	k.listed(worker, "a task that is slow to stop is in List until it has stopped", task)
	end()
	if waits {
		k.refusedWith(wait(), orchestrator.ErrDeposed, call, "a call of a higher epoch came while it waited for the stop")
	}
	k.remove(worker, task)
	k.listed(worker, "the task has stopped")
}

// checkSuccessor replaces a worker's process by another one of the same name, while writes
// are held back if the cluster can. No call for the first may reach the second.
func checkSuccessor[W, T comparable](k *kit[W, T]) {
	k.needs("Restart", k.Restart != nil, "a transport without incarnations")
	worker, runs, sent := k.Workers[0], k.Tasks[0], k.Tasks[1]
	k.add(worker, runs)
	release := func() {}
	if k.Hold != nil {
		release = k.hold(worker)
		_ = k.tryFor(k.arrival(), k.term, orchestrator.OpAdd, worker, sent)
	}
	successor := k.Restart(worker)
	release()
	because := "its process was replaced by another one of the same name, and calls must not reach that one (an incarnation tells them apart)"
	fails := func() {
		k.Helper()
		if got, err := k.tryList(k.term, worker); err == nil && !slices.Contains(got, runs) {
			k.failf("List(%v) returned %v and no error, want an error: %s", worker, got, because)
		}
		if err := k.try(k.term, orchestrator.OpAdd, worker, sent); err == nil {
			k.failf("%s returned nil, want an error: %s", callText(orchestrator.OpAdd, worker, sent), because)
		}
		_ = k.try(k.term, orchestrator.OpRemove, worker, runs)
	}
	fails()
	if successor == worker {
		return // its calls reach nobody until it is added again
	}
	k.listed(successor, "calls for its predecessor must not reach it")
	k.add(successor, runs)
	fails()
	k.listed(successor, "calls for its predecessor must not reach it", runs)
}

// refused fails unless writes of the term are answered with an error that wraps want
// and are not done. The worker must run the second task, and no other.
func (k *kit[W, T]) refused(term orchestrator.Term, worker W, want error, because string) {
	k.Helper()
	absent, present := k.Tasks[0], k.Tasks[1]
	for i, op := range []orchestrator.Op{orchestrator.OpAdd, orchestrator.OpRemove} {
		task := k.Tasks[i]
		err := k.try(term, op, worker, task)
		k.refusedWith(err, want, callText(op, worker, task)+" "+in(term), because)
	}
	if got := k.list(worker); !sameTasks(got, []T{present}) {
		k.failf("Add(%v, %v) and Remove(%v, %v) %s were refused, but List returns %v, want %v: %s",
			worker, absent, worker, present, in(term), got, []T{present}, because)
	}
}

// refusedWith fails unless err, the answer to a call, wraps want.
func (k *kit[W, T]) refusedWith(err, want error, call, because string) {
	k.Helper()
	name := "ErrStale"
	if errors.Is(want, orchestrator.ErrDeposed) {
		name = "ErrDeposed"
	}
	switch {
	case err == nil:
		k.failf("%s was accepted, want an error that wraps %s: %s", call, name, because)
	case !errors.Is(err, want):
		k.failf("%s failed with %q, want an error that wraps %s: %s", call, err, name, because)
	}
}

// quote formats an error, or its absence, for a failure.
func quote(err error) string {
	if err == nil {
		return "no error"
	}
	return fmt.Sprintf("%q", err)
}
