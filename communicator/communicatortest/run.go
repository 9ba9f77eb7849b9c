package communicatortest

// The entry points of the kit: the implementation under test, the list of checks, and
// how they become tests.

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
)

// defaultTimeout is the value of Cluster.Timeout if that is zero.
const defaultTimeout = 5 * time.Second

// Cluster is the result of a factory: a Communicator with at least two workers that
// run nothing yet, and optional switches that disturb the network. A check that
// needs a missing switch is skipped with a message. Without Hold, the kit cannot
// check that a write delayed past the next List never takes effect. Without Restart, it
// cannot see whether calls reach another process of the same name, and without Pin,
// whether jobs that run are moved. The package documentation has a table.
//
// The kit makes its calls as the orchestrator does: at the same time for different
// workers, and one after another for the same worker. As an exception, the second of
// two leaders that call the same worker does not wait for the first. The kit calls a
// switch from the goroutine of the test, and undoes it exactly once, before the
// test's earlier cleanup functions run.
type Cluster[W, T comparable] struct {
	// Communicator is the implementation under test. If it is an
	// [orchestrator.Applier] too, every check is repeated through Apply.
	Communicator orchestrator.Communicator[W, T]

	// Workers names at least two different workers, which are ready to be called and
	// run nothing.
	Workers []W

	// Tasks names at least three different tasks. Every worker can run all of them
	// at the same time, and stop each within Timeout.
	Tasks []T

	// UnknownWorkers names workers that do not exist. Optional.
	UnknownWorkers []W

	// Epoch is the lowest epoch that the kit uses; the highest is Epoch+10. Set it
	// if the workers have seen an epoch before. 0 means 1.
	Epoch uint64

	// Timeout is the longest reasonable duration of a call. It is also how long the
	// kit waits for a call to return after its context has ended. A call gets a
	// twentieth of it to reach the place where Hold or Cut stops it. 0 means 5 s;
	// negative is an error.
	Timeout time.Duration

	// Hold holds back, once it has returned, every Add, Remove and Apply on its way
	// to worker. List still arrives and is answered, even after the caller of a held
	// write has stopped waiting. The check proves more the closer to the worker Hold
	// works; best is the queue in which writes wait there.
	//
	// A held write should outlive the context of its caller if the transport allows
	// it. Release delivers the held writes, and returns once the worker has
	// processed them. Optional.
	Hold func(worker W) (release func())

	// Cut cuts worker off, once it has returned: no call reaches the worker until
	// heal is called. Calls may hang or fail, depending on the transport. Optional.
	Cut func(worker W) (heal func())

	// Linger makes task slow to stop, once it has returned: when worker, which runs
	// the task, is told to stop it, the task continues until end is called.
	// Optional.
	Linger func(worker W, task T) (end func())

	// Pin makes worker pin task, once it has returned: from the task's next Add on, each
	// List of the worker pins it (C8), until unpin is called. The worker must not pin
	// other tasks for longer than a moment. With package worker, give WithCompletion,
	// and call worker.Movable in each other task, and at unpin in this one. Optional.
	Pin func(worker W, task T) (unpin func())

	// Restart ends worker's process, and starts another one under the same name and at
	// the same address, as a crash and a supervisor do. It returns the worker that a
	// leader would add for the new process. If that equals worker, calls for it must fail
	// until it is added again. Optional.
	Restart func(worker W) (successor W)

	// Refuse makes worker refuse to add task, once it has returned, for a reason
	// that the implementation reports with [orchestrator.ErrRejected]: no room, no
	// such handler, no permission. Accept ends this. Optional.
	Refuse func(worker W, task T) (accept func())
}

// complete sets the defaults, and returns all errors.
func (c *Cluster[W, T]) complete() error {
	var errs []error
	if c.Communicator == nil {
		errs = append(errs, errors.New("Cluster.Communicator is nil"))
	}
	if n := distinct(c.Workers); n < 2 || n < len(c.Workers) {
		errs = append(errs, fmt.Errorf("Cluster.Workers is %v, want at least two, all different", c.Workers))
	}
	if n := distinct(c.Tasks); n < 3 || n < len(c.Tasks) {
		errs = append(errs, fmt.Errorf("Cluster.Tasks is %v, want at least three, all different", c.Tasks))
	}
	for _, w := range c.UnknownWorkers {
		if slices.Contains(c.Workers, w) {
			errs = append(errs, fmt.Errorf("Cluster.UnknownWorkers contains %v, which is in Cluster.Workers too", w))
		}
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("Cluster.Timeout is %v, want 0 or more", c.Timeout))
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	c.Epoch = max(c.Epoch, 1)
	return errors.Join(errs...)
}

// distinct counts the different elements of s.
func distinct[E comparable](s []E) int {
	set := make(map[E]bool, len(s))
	for _, e := range s {
		set[e] = true
	}
	return len(set)
}

// Run checks whether the Communicator that factory makes keeps the contract of
// [orchestrator.Communicator]. It runs one subtest per check, named after its
// clause, such as C7/LowerEpoch. Each is repeated through Apply if the Communicator
// is an [orchestrator.Applier], such as C7/LowerEpoch/Apply, and that subtest is
// skipped otherwise.
//
// The factory is called at the beginning of each subtest, with that subtest's t. It
// makes a new cluster, and cleans it up in t.Cleanup. It may call t.Fatal and
// t.Skip.
//
// Run makes the checks one after another and returns when all have ended. A
// successful check takes a few calls; a check that holds or cuts calls takes a few
// twentieths of [Cluster].Timeout more. A call that does not return although its
// context has ended fails its check, and leaves its goroutine behind.
func Run[W, T comparable](t *testing.T, factory func(t *testing.T) Cluster[W, T]) {
	t.Helper()
	for name, check := range Checks(factory) {
		t.Run(name, check)
	}
}

// Checks returns the checks of [Run] by name, in order. Use it to run each check in
// your own way, for example in a bubble of testing/synctest, where t.Run cannot be
// called and waiting takes no time:
//
//	for name, check := range communicatortest.Checks(factory) {
//		t.Run(name, func(t *testing.T) { synctest.Test(t, check) })
//	}
func Checks[W, T comparable](factory func(t *testing.T) Cluster[W, T]) iter.Seq2[string, func(t *testing.T)] {
	return func(yield func(string, func(*testing.T)) bool) {
		for _, c := range checks[W, T]() {
			if !yield(c.name(), func(t *testing.T) { c.run(t, factory(t)) }) {
				return
			}
		}
	}
}

// tb is the part of *testing.T that checks use, so that the kit's own tests can
// observe a failing check.
type tb interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// check is one check of one clause.
type check[W, T comparable] struct {
	clause, title string
	apply         bool // through Apply
	body          func(*kit[W, T])
}

// name returns the name of the check's subtest.
func (c check[W, T]) name() string {
	if c.apply {
		return c.clause + "/" + c.title + "/Apply"
	}
	return c.clause + "/" + c.title
}

// run makes the check on a fresh cluster.
func (c check[W, T]) run(t tb, cluster Cluster[W, T]) {
	t.Helper()
	if err := cluster.complete(); err != nil {
		t.Fatalf("the factory's cluster cannot be checked: %v", err)
	}
	var applier orchestrator.Applier[W, T]
	if c.apply {
		var ok bool
		applier, ok = cluster.Communicator.(orchestrator.Applier[W, T])
		if !ok {
			t.Skipf("the Communicator is not an Applier")
		}
		cluster.Communicator = viaApply[W, T]{cluster.Communicator, applier}
	}
	k := &kit[W, T]{
		tb:      t,
		Cluster: cluster,
		applier: applier,
		clause:  c.clause,
		term:    orchestrator.Term{Epoch: cluster.Epoch + 1, Number: 10},
	}
	for _, w := range k.Workers {
		k.listed(w, "a fresh cluster runs nothing")
	}
	c.body(k)
}

// checks returns every check, in the order of the clauses, but for the first.
func checks[W, T comparable]() []check[W, T] {
	type body = func(*kit[W, T])
	var all []check[W, T]
	both := func(clause, title string, b body) {
		all = append(all, check[W, T]{clause, title, false, b}, check[W, T]{clause, title, true, b})
	}
	batch := func(clause, title string, b body) {
		all = append(all, check[W, T]{clause, title, true, b})
	}
	both("C6", "ErrorIsNotEmpty", checkErrorIsNotEmpty) // first, because it costs most
	both("C1", "SideBySide", checkSideBySide)
	both("C1", "GivenUp", checkGivenUp)
	both("C1", "OneWorkerHeld", checkOneWorkerHeld)
	both("C1", "OneWorkerCut", checkOneWorkerCut)
	both("C2", "Snapshots", checkSnapshots)
	both("C3", "ContextDoneBefore", checkContextDoneBefore)
	both("C3", "WhileHeld", checkEndsWhileHeld)
	both("C3", "WhileCut", checkEndsWhileCut)
	both("C3", "WhileStopping", checkEndsWhileStopping)
	both("C4", "Idempotent", checkIdempotent)
	both("C5", "DoneMeansListed", checkDoneMeansListed)
	both("C5", "NotRepeated", checkNotRepeated)
	batch("C5", "SeveralWrites", checkSeveralWrites)
	both("C6", "StaleIsNotDone", checkStaleIsNotDone)
	both("C6", "RefusedIsNotDone", checkRefusedIsNotDone)
	both("C6", "HeldIsNotRejected", checkHeldIsNotRejected)
	both("C6", "UnknownWorkers", checkUnknownWorkers)
	batch("C6", "MixedAnswers", checkMixedAnswers)
	both("C7", "LowerEpoch", checkLowerEpoch)
	both("C7", "LowerNumber", checkLowerNumber)
	both("C7", "WritesFence", checkWritesFence)
	both("C7", "EqualTerm", checkEqualTerm)
	both("C7", "WriteWithoutTerm", checkWriteWithoutTerm)
	both("C7", "ListWithoutTerm", checkListWithoutTerm)
	both("C7", "DelayedPastList", checkDelayedPastList)
	both("C7", "RemoveWaits", checkRemoveWaits)
	both("C7", "Successor", checkSuccessor)
	batch("C7", "EachWriteFenced", checkEachWriteFenced)
	both("C8", "Pinned", checkPinned)
	both("C8", "LostPins", checkLostPins)
	both("C9", "CutIsHeld", checkHeld)
	return all
}
