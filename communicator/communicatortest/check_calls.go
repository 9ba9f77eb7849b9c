package communicatortest

// The checks of C1 to C6: concurrent calls, the slices that List returns, calls that
// end with their context, and the meaning of answers to writes.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkSideBySide uses all workers at the same time. Each must run exactly its own
// tasks, which it gets in an order of its own.
func checkSideBySide[W, T comparable](k *kit[W, T]) {
	work := func(worker W, tasks []T) error {
		for i, task := range tasks {
			if err := k.finish(orchestrator.OpAdd, worker, task); err != nil {
				return fmt.Errorf("%s failed with %w", callText(orchestrator.OpAdd, worker, task), err)
			}
			got, err := k.tryList(k.term, worker)
			if err != nil {
				return fmt.Errorf("List(%v) failed with %w", worker, err)
			}
			if want := tasks[:i+1]; !sameTasks(got, want) {
				return fmt.Errorf("List(%v) returned %v, want %v", worker, got, want)
			}
		}
		for _, task := range tasks {
			if err := k.finish(orchestrator.OpRemove, worker, task); err != nil {
				return fmt.Errorf("%s failed with %w", callText(orchestrator.OpRemove, worker, task), err)
			}
		}
		return nil
	}
	answers := make(chan error, len(k.Workers))
	for i, worker := range k.Workers {
		first := i % len(k.Tasks)
		go func() { answers <- work(worker, slices.Concat(k.Tasks[first:], k.Tasks[:first])) }()
	}
	var errs []error
	for range k.Workers {
		errs = append(errs, <-answers)
	}
	if err := errors.Join(errs...); err != nil {
		k.failf("with calls for different workers side by side, %v", err)
	}
}

// checkOneWorkerHeld uses one worker while a write to another hangs.
func checkOneWorkerHeld[W, T comparable](k *kit[W, T]) {
	k.hold(k.Workers[0])
	k.checkOthers(func(ctx context.Context) error {
		return k.Communicator.Add(ctx, k.Workers[0], k.Tasks[0])
	})
}

// checkOneWorkerCut uses one worker while another is cut off.
func checkOneWorkerCut[W, T comparable](k *kit[W, T]) {
	k.cut(k.Workers[0])
	k.checkOthers(func(ctx context.Context) error {
		_, err := k.Communicator.List(ctx, k.Workers[0])
		return err
	})
	k.checkOthers(func(ctx context.Context) error {
		return k.Communicator.Add(ctx, k.Workers[0], k.Tasks[0])
	})
}

// checkOthers uses the second worker while a call to the first, which is held or cut
// off, is under way. It repeats this for the arrival time, so that the hanging call
// has also reached the switch.
func (k *kit[W, T]) checkOthers(call func(context.Context) error) {
	ctx, cancel := context.WithCancel(orchestrator.ContextWithTerm(k.Context(), k.term))
	defer cancel()
	wait := k.start(ctx, call)

	const rounds = 3
	k.during = fmt.Sprintf(", while a call for worker %v hangs", k.Workers[0])
	tick := time.NewTicker(k.arrival() / rounds)
	defer tick.Stop()
	other := k.Workers[1]
	for range rounds {
		k.add(other, k.Tasks[0])
		k.listed(other, "Add returned nil", k.Tasks[0])
		k.remove(other, k.Tasks[0])
		<-tick.C
	}
	k.during = ""
	cancel()
	if err := wait(); errors.Is(err, errEndless) {
		k.failf("the call for worker %v, which was cancelled: %v", k.Workers[0], err)
	}
}

// checkErrorIsNotEmpty lists a worker in ways that fail: with a context that is done or
// whose deadline passed, and for a leader that has a successor. Each List must fail, or
// return the tasks of now: the worker was listed before it got the second one.
func checkErrorIsNotEmpty[W, T comparable](k *kit[W, T]) {
	worker, want := k.Workers[0], k.Tasks[:2]
	k.add(worker, want[0])
	past := k.term
	k.nextEpoch()
	k.list(worker)
	k.add(worker, want[1])
	look := func(term orchestrator.Term, timeout time.Duration, how string) {
		k.Helper()
		switch got, err := k.look(timeout, term, worker); {
		case errors.Is(err, errEndless):
			k.failf("List(%v) %s: %v", worker, how, err)
		case err == nil && !sameTasks(got.tasks, want):
			k.failf("List(%v) %s returned %v and no error, want an error, or %v: an error that reads as an empty or old list "+
				"makes the leader start tasks elsewhere, while they run", worker, how, got.tasks, want)
		}
	}
	look(k.term, 0, "with a context that was done before")
	look(past, k.Timeout, "for a leader that has a successor")
	k.shorterAndShorter(func(timeout time.Duration) {
		look(k.term, timeout, fmt.Sprintf("with %v to answer", timeout))
	})
	k.listed(worker, "it still runs its tasks", want...)
}

// shorterAndShorter calls f with timeouts from the arrival time down, until none is left,
// so that some calls end at any point on their way.
func (k *kit[W, T]) shorterAndShorter(f func(timeout time.Duration)) {
	for timeout := k.arrival(); timeout > time.Microsecond; timeout /= 2 {
		f(timeout)
	}
}

// checkGivenUp gives calls up after shorter and shorter times. The answers to later calls
// must be their own, and an Add that was given up must not take effect after the next List.
func checkGivenUp[W, T comparable](k *kit[W, T]) {
	worker, other, task := k.Workers[0], k.Workers[1], k.Tasks[0]
	k.add(other, k.Tasks[1])
	k.shorterAndShorter(func(timeout time.Duration) {
		_, _ = k.look(timeout, k.term, worker)
		k.listed(other, "the answer must be its own, and not that of a call that was given up", k.Tasks[1])
		err := k.tryFor(timeout, k.term, orchestrator.OpAdd, worker, task)
		k.ended(orchestrator.OpAdd, worker, task, err, "which was given up")
		k.rejected(err, orchestrator.OpAdd, worker, task)
		k.nextTerm()
		k.list(worker)
		k.remove(worker, task)
		k.listed(worker, "Remove returned nil, the answer must be its own, and the Add that was given up belongs to an earlier term")
	})
}

// checkNotRepeated adds a task, removes it after a moment, and looks whether it comes back:
// a retry or a proxy that carries a call out again, later than that moment, would undo what
// followed the call.
func checkNotRepeated[W, T comparable](k *kit[W, T]) {
	const looks = 64
	worker, task := k.Workers[0], k.Tasks[0]
	tick := time.NewTicker(k.arrival() / looks)
	defer tick.Stop()
	k.add(worker, task)
	for range looks / 8 {
		<-tick.C
	}
	k.remove(worker, task)
	for range looks {
		<-tick.C
		k.listed(worker, fmt.Sprintf("%v was added once and then removed, and no call may be carried out again later", task))
	}
}

// checkSnapshots keeps what List returned, and compares it after later writes.
func checkSnapshots[W, T comparable](k *kit[W, T]) {
	worker := k.Workers[0]
	var kept, copies [][]T
	look := func(want ...T) {
		got := k.list(worker)
		if !sameTasks(got, want) {
			k.failf("List(%v) returned %v, want %v", worker, got, want)
		}
		kept, copies = append(kept, got), append(copies, slices.Clone(got))
	}
	a, b, c := k.Tasks[0], k.Tasks[1], k.Tasks[2]
	k.add(worker, a)
	look(a)
	k.add(worker, b)
	look(a, b)
	k.add(worker, c)
	look(a, b, c)
	k.remove(worker, a)
	look(b, c)
	k.remove(worker, b)
	look(c)
	k.add(worker, a)
	look(a, c)
	for i := range kept {
		if !slices.Equal(kept[i], copies[i]) {
			k.failf("a slice that List(%v) returned as %v reads %v after later writes, "+
				"want it unchanged: return a copy, or never change a returned slice", worker, copies[i], kept[i])
		}
	}
}

// checkContextDoneBefore makes each call with a context that is done already.
func checkContextDoneBefore[W, T comparable](k *kit[W, T]) {
	worker, task := k.Workers[0], k.Tasks[0]
	ctx, cancel := k.callContext(k.term, k.Timeout)
	cancel()
	err := k.start(ctx, func(ctx context.Context) error {
		_, err := k.Communicator.List(ctx, worker)
		return err
	})()
	if errors.Is(err, errEndless) {
		k.failf("List(%v) with a context that was done before has not returned after %v, want it to return at once",
			worker, k.Timeout)
	}
	for _, op := range []orchestrator.Op{orchestrator.OpAdd, orchestrator.OpRemove} {
		err := k.start(ctx, func(ctx context.Context) error { return k.write(ctx, op, worker, task) })()
		k.ended(op, worker, task, err, "with a context that was done before")
	}
}

// checkEndsWhileHeld lets the deadline of a held write pass.
func checkEndsWhileHeld[W, T comparable](k *kit[W, T]) {
	worker := k.Workers[0]
	k.add(worker, k.Tasks[1])
	k.hold(worker)
	for i, op := range []orchestrator.Op{orchestrator.OpAdd, orchestrator.OpRemove} {
		err := k.tryFor(k.arrival(), k.term, op, worker, k.Tasks[i])
		k.ended(op, worker, k.Tasks[i], err, "whose deadline passed while it was held back")
	}
}

// checkEndsWhileCut cancels calls to a worker that is cut off.
func checkEndsWhileCut[W, T comparable](k *kit[W, T]) {
	worker, task := k.Workers[0], k.Tasks[0]
	k.cut(worker)
	calls := []func(context.Context) error{
		func(ctx context.Context) error { _, err := k.Communicator.List(ctx, worker); return err },
		func(ctx context.Context) error { return k.Communicator.Add(ctx, worker, task) },
		func(ctx context.Context) error { return k.Communicator.Remove(ctx, worker, task) },
	}
	for i, name := range []string{"List", "Add", "Remove"} {
		ctx, cancel := k.callContext(k.term, 2*k.Timeout)
		timer := time.AfterFunc(k.arrival(), cancel)
		err := k.start(ctx, calls[i])()
		timer.Stop()
		cancel()
		if errors.Is(err, errEndless) {
			k.failf("%s for worker %v, which is cut off, has not returned %v after it was cancelled, "+
				"want it to end with its context", name, worker, k.Timeout)
		}
	}
}

// checkEndsWhileStopping lets the deadline of a Remove pass while its task stops.
func checkEndsWhileStopping[W, T comparable](k *kit[W, T]) {
	worker, task := k.Workers[0], k.Tasks[0]
	k.add(worker, task)
	end := k.linger(worker, task)
	err := k.tryFor(k.arrival(), k.term, orchestrator.OpRemove, worker, task)
	k.ended(orchestrator.OpRemove, worker, task, err, "whose deadline passed while the task stopped")
	end()
	k.remove(worker, task)
	k.listed(worker, "the task has stopped")
}

// ended fails if a write outlasted its context, or returned nil and is not done.
func (k *kit[W, T]) ended(op orchestrator.Op, worker W, task T, err error, how string) {
	k.Helper()
	if errors.Is(err, errEndless) {
		k.failf("%s %s has not returned %v after that, want it to end with its context",
			callText(op, worker, task), how, k.Timeout)
	}
	if err != nil {
		return
	}
	if got := k.list(worker); slices.Contains(got, task) != (op == orchestrator.OpAdd) {
		k.failf("%s %s returned nil, but List returns %v: want an error unless it was done (C5)",
			callText(op, worker, task), how, got)
	}
}

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
	k.needs("Refuse", k.Refuse != nil, "a refusal that is done, or counts as unknown")
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

// checkUnknownWorkers calls workers that do not exist.
func checkUnknownWorkers[W, T comparable](k *kit[W, T]) {
	k.needs("UnknownWorkers", len(k.UnknownWorkers) > 0, "a worker that does not exist, and seems to run nothing")
	for _, worker := range k.UnknownWorkers {
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
