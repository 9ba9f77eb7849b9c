package communicatortest

// The entry points of the kit: the list of checks, and how they become tests.

import (
	"context"
	"iter"
	"testing"

	"github.com/f8949c05/orchestrator"
)

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

// checks returns every check, in the order of the clauses.
func checks[W, T comparable]() []check[W, T] {
	type body = func(*kit[W, T])
	var all []check[W, T]
	both := func(clause, title string, b body) {
		all = append(all, check[W, T]{clause, title, false, b}, check[W, T]{clause, title, true, b})
	}
	batch := func(clause, title string, b body) {
		all = append(all, check[W, T]{clause, title, true, b})
	}
	both("C1", "SideBySide", checkSideBySide)
	both("C1", "OneWorkerHeld", checkOneWorkerHeld)
	both("C1", "OneWorkerCut", checkOneWorkerCut)
	both("C2", "Snapshots", checkSnapshots)
	both("C3", "ContextDoneBefore", checkContextDoneBefore)
	both("C3", "WhileHeld", checkEndsWhileHeld)
	both("C3", "WhileCut", checkEndsWhileCut)
	both("C4", "Idempotent", checkIdempotent)
	both("C5", "DoneMeansListed", checkDoneMeansListed)
	batch("C5", "SeveralWrites", checkSeveralWrites)
	both("C6", "StaleIsNotDone", checkStaleIsNotDone)
	both("C6", "RefusedIsNotDone", checkRefusedIsNotDone)
	both("C6", "HeldIsNotRejected", checkHeldIsNotRejected)
	both("C6", "Strangers", checkStrangers)
	batch("C6", "MixedAnswers", checkMixedAnswers)
	both("C7", "LowerEpoch", checkLowerEpoch)
	both("C7", "LowerNumber", checkLowerNumber)
	both("C7", "WritesFence", checkWritesFence)
	both("C7", "EqualTerm", checkEqualTerm)
	both("C7", "WriteWithoutTerm", checkWriteWithoutTerm)
	both("C7", "ListWithoutTerm", checkListWithoutTerm)
	both("C7", "DelayedPastList", checkDelayedPastList)
	both("C7", "RemoveWaits", checkRemoveWaits)
	batch("C7", "EachWriteFenced", checkEachWriteFenced)
	return all
}
