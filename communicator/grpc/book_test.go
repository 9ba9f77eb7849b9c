package grpc

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/stretchr/testify/require"
)

const (
	aLease      = 10 * time.Second
	unreachable = 30 * time.Second
)

// at returns a time after the start of the test.
func at(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }

func testBook(kept records) *book {
	b := newBook(rules{leaseMin: time.Second, leaseMax: time.Hour, unreachable: unreachable}, kept)
	if b.key == nil {
		b.key = bytes.Repeat([]byte{7}, receiptKeyLength)
		b.change.key = b.key
	}
	b.start(at(0))
	return b
}

func asks(name string, incarnation uint64) membership {
	return membership{Worker: Worker{name, incarnation}, address: "192.0.2.1:7000", lease: aLease}
}

func register(t *testing.T, b *book, d time.Duration, name string, incarnation uint64) {
	t.Helper()
	require.NoError(t, b.register(at(d), asks(name, incarnation)))
}

func beat(b *book, now time.Time, w Worker, draining bool) error {
	_, err := b.heartbeat(now, w, draining)
	return err
}

// conclusion returns the report of a worker that was given a version of a task and
// has completed it.
func (b *book) conclusion(worker, task string, version int64) conclusion {
	return b.shown(worker, task, version, b.key.issue(worker, task, version))
}

// shown returns what a worker says that shows a receipt.
func (b *book) shown(worker, task string, version int64, r receipt) conclusion {
	return conclusion{task: task, version: version, proven: b.key.issued(r, worker, task, version)}
}

func item(name, content string) *task { return newTask(Item{Name: name, Content: []byte(content)}) }

func TestR2_AMemberUntilItsLeaseHasRunOut(t *testing.T) {
	b := testBook(newRecords())
	w := Worker{"a", 1}
	register(t, b, 0, "a", 1)
	require.Equal(t, aLease, b.take().members["a"].lease)

	require.NoError(t, beat(b, at(aLease-1), w, false))
	require.False(t, b.changed(), "a renewal is not stored")
	require.Equal(t, at(2*aLease-1), b.expire(at(2*aLease-2)), "when the next lease expires")
	require.Contains(t, b.members, "a")
	require.ErrorIs(t, beat(b, at(2*aLease-1), w, false), errNotMember, "the lease has expired, even if expire was not called yet")

	require.Zero(t, b.expire(at(2*aLease-1)))
	require.Empty(t, b.members)
	require.Nil(t, b.take().members["a"])
	require.ErrorIs(t, beat(b, at(2*aLease), w, false), errNotMember)
	require.ErrorIs(t, b.register(at(2*aLease), asks("a", 1)), errMembershipOver, "an ended incarnation cannot register again")
	register(t, b, 2*aLease, "a", 2)
}

func TestW6_AloneWhereNoOtherMemberCanTakeTasks(t *testing.T) {
	b := testBook(newRecords())
	register(t, b, 0, "a", 1)
	require.True(t, b.alone(at(0), "a"))
	register(t, b, 0, "b", 2)
	require.False(t, b.alone(at(0), "a"))
	b.drain("b", true)
	require.True(t, b.alone(at(0), "a"), "drained by name")
	b.drain("b", false)
	require.False(t, b.alone(at(0), "a"))
	require.NoError(t, beat(b, at(1), Worker{"b", 2}, true))
	require.True(t, b.alone(at(1), "a"), "drains by its own request")
	require.NoError(t, beat(b, at(1), Worker{"b", 2}, false))
	require.NoError(t, beat(b, at(aLease/2), Worker{"a", 1}, false))
	require.False(t, b.alone(at(aLease), "a"))
	require.True(t, b.alone(at(aLease+1), "a"), "its lease has expired, even if expire was not called yet")
}

func TestR2_ANameIsTakenWhileTheLeaseLasts(t *testing.T) {
	b := testBook(newRecords())
	register(t, b, 0, "a", 1)
	err := b.register(at(aLease-time.Millisecond), asks("a", 2))
	require.ErrorIs(t, err, errNameTaken)
	require.ErrorContains(t, err, `"a"`)
	require.ErrorContains(t, err, "192.0.2.1:7000")
	require.ErrorContains(t, err, "1ms")
	require.ErrorIs(t, beat(b, at(1), Worker{"a", 2}, false), errNotMember)
	register(t, b, 0, "b", 2)

	register(t, b, aLease, "a", 2) // expire was not called
	require.Equal(t, Worker{"a", 2}, b.members["a"].Worker)
	require.ErrorIs(t, b.register(at(aLease), asks("a", 1)), errMembershipOver)
	require.ErrorIs(t, beat(b, at(aLease), Worker{"a", 1}, false), errNotMember)
}

func TestR2_RegisteringAgainRenews(t *testing.T) {
	b := testBook(newRecords())
	register(t, b, 0, "a", 1)
	b.take()
	register(t, b, aLease/2, "a", 1)
	require.False(t, b.changed())
	b.expire(at(aLease))
	require.Contains(t, b.members, "a")

	again := asks("a", 1)
	again.lease, again.address, again.draining = aLease/2, "192.0.2.2:7000", true
	require.NoError(t, b.register(at(aLease), again))
	kept := b.take().members["a"]
	require.Equal(t, membership{Worker{"a", 1}, "192.0.2.2:7000", aLease, true}, *kept, "the longer lease counts")
	require.Equal(t, at(2*aLease), b.expire(at(aLease)))
}

func TestR2_Leaving(t *testing.T) {
	b := testBook(newRecords())
	register(t, b, 0, "a", 1)
	b.leave(Worker{"a", 2})
	b.leave(Worker{"nobody", 1})
	require.Contains(t, b.members, "a", "another incarnation cannot leave for this one")
	b.take()
	b.leave(Worker{"a", 1})
	require.Empty(t, b.members)
	require.True(t, b.changed())
	b.leave(Worker{"a", 1})
	require.ErrorIs(t, b.register(at(1), asks("a", 1)), errMembershipOver)
	require.ErrorIs(t, b.register(at(1), asks("nobody", 1)), errMembershipOver, "a Register that arrives after the Leave")
	register(t, b, 1, "a", 3)
}

func TestR2_EndedIncarnationsAreRememberedWithABound(t *testing.T) {
	b := testBook(newRecords())
	b.leave(Worker{"other", 1})
	for i := range uint64(endedEach) {
		b.leave(Worker{"a", i + 1})
		b.leave(Worker{"a", i + 1})
	}
	require.ErrorIs(t, b.mayRegister(at(0), Worker{"a", 1}), errMembershipOver)
	for i := range uint64(2 * endedNames) {
		b.leave(Worker{"a", 100 + i})
	}
	require.NoError(t, b.mayRegister(at(0), Worker{"a", 1}))
	require.ErrorIs(t, b.mayRegister(at(0), Worker{"a", 100 + 2*endedNames - 1}), errMembershipOver)
	require.ErrorIs(t, b.mayRegister(at(0), Worker{"other", 1}), errMembershipOver, "which a displaces not")
	for i := range 2 * endedNames {
		b.leave(Worker{fmt.Sprint("w", i), 1})
	}
	require.NoError(t, b.mayRegister(at(0), Worker{"other", 1}))
	require.ErrorIs(t, b.mayRegister(at(0), Worker{fmt.Sprint("w", 2*endedNames-1), 1}), errMembershipOver)
	require.Len(t, b.ended.of, endedNames)
	require.Len(t, b.ended.ring, endedNames)
}

func TestR2_AfterARestartEachKnownMemberIsWaitedFor(t *testing.T) {
	before := testBook(newRecords())
	register(t, before, 0, "a", 1)
	register(t, before, 0, "b", 2)
	long := asks("c", 3)
	long.lease = 3 * aLease
	require.NoError(t, before.register(at(0), long))

	// The next manager starts an hour later. No lease expires before start.
	b := newBook(before.rules, before.records)
	require.Equal(t, before.epoch+1, b.epoch)
	require.Equal(t, b.epoch, b.take().epoch)
	require.Equal(t, 3, b.unheard)
	require.Zero(t, b.expire(at(time.Hour)))
	require.Len(t, b.members, 3)
	b.start(at(time.Hour))
	require.ErrorIs(t, b.mayRegister(at(time.Hour), Worker{"a", 9}), errNameTaken)

	require.NoError(t, beat(b, at(time.Hour+1), Worker{"a", 1}, false))
	require.NoError(t, beat(b, at(time.Hour+2), Worker{"a", 1}, false))
	require.Equal(t, 2, b.unheard)
	require.False(t, b.changed())
	require.Equal(t, at(time.Hour+aLease), b.expire(at(time.Hour+aLease-1)))
	require.Equal(t, 2, b.unheard)
	b.expire(at(time.Hour + aLease))
	require.Equal(t, 1, b.unheard, "b is gone, a is heard")
	require.NotContains(t, b.members, "b")
	require.NoError(t, b.register(at(time.Hour+2*aLease), long), "a Register counts as well as a heartbeat")
	require.Zero(t, b.unheard)
}

func TestR2_AnUnreachableMemberIsNotRenewed(t *testing.T) {
	b := testBook(newRecords())
	w := Worker{"a", 1}
	register(t, b, 0, "a", 1)
	b.called(at(time.Second), w, false)
	for d := time.Second; d < unreachable; d += time.Second {
		require.NoError(t, beat(b, at(d), w, false))
	}
	require.NoError(t, beat(b, at(unreachable+time.Second), w, false), "one failed call is not enough")
	b.called(at(unreachable+time.Second-1), w, false)
	require.NoError(t, beat(b, at(unreachable+time.Second), w, false))
	b.called(at(unreachable+time.Second), Worker{"a", 2}, false)
	b.called(at(unreachable+time.Second), w, false)
	err := beat(b, at(unreachable+time.Second), w, true)
	require.ErrorIs(t, err, errUnreachable)
	require.ErrorContains(t, err, "192.0.2.1:7000")
	require.ErrorContains(t, err, "30s")
	require.False(t, b.draining(b.members["a"]))

	b.called(at(unreachable+2*time.Second), w, true)
	require.NoError(t, beat(b, at(unreachable+2*time.Second), w, false))
	b.called(at(unreachable+3*time.Second), w, false)
	b.called(at(2*unreachable+3*time.Second), w, false)
	require.ErrorIs(t, beat(b, at(unreachable+4*time.Second), w, false), errUnreachable)
	b.expire(at(unreachable + 2*time.Second + aLease))
	require.Empty(t, b.members, "its lease has expired")
}

func TestR2_RegisteringDoesNotProveThatCallsGetThrough(t *testing.T) {
	b := testBook(newRecords())
	register(t, b, 0, "a", 1)
	b.called(at(0), Worker{"a", 1}, false)
	b.called(at(unreachable-1), Worker{"a", 1}, false)
	register(t, b, 1, "a", 1)
	b.called(at(unreachable), Worker{"a", 1}, false)
	require.ErrorIs(t, b.register(at(1), asks("a", 1)), errUnreachable)
	b.called(at(2), Worker{"a", 1}, true)
	register(t, b, 2, "a", 1)
}

func TestR2_InvalidRegistrationsAreRefused(t *testing.T) {
	by := rules{leaseMin: time.Second, leaseMax: time.Minute}
	fine := asks("a", 1)
	require.NoError(t, fine.check(by))
	for says, change := range map[string]func(*membership){
		"without a name":         func(r *membership) { r.Name = "" },
		"1025 bytes":             func(r *membership) { r.Name = strings.Repeat("n", 1025) },
		"without an incarnation": func(r *membership) { r.Incarnation = 0 },
		"grants 1s to 1m0s":      func(r *membership) { r.lease = time.Minute + 1 },
		"999.999999ms":           func(r *membership) { r.lease = time.Second - 1 },
		"not host:port":          func(r *membership) { r.address = "localhost" },
		"for listening":          func(r *membership) { r.address = ":80" },
		"is for listening":       func(r *membership) { r.address = "[::]:80" },
		"0.0.0.0:80":             func(r *membership) { r.address = "0.0.0.0:80" },
		"from 1 to 65535":        func(r *membership) { r.address = "localhost:0" },
		`"localhost:http"`:       func(r *membership) { r.address = "localhost:http" },
		"600 bytes":              func(r *membership) { r.address = strings.Repeat("h", 600) },
	} {
		r := fine
		change(&r)
		err := r.check(by)
		require.ErrorIs(t, err, orchestrator.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
}

func TestR2_DrainingIsSaidByTheWorkerOrOfItsName(t *testing.T) {
	b := testBook(newRecords())
	b.drain("a", true)
	b.take()
	b.drain("a", true)
	require.False(t, b.changed())
	register(t, b, 0, "a", 1)
	require.True(t, b.draining(b.members["a"]))
	require.NoError(t, beat(b, at(1), Worker{"a", 1}, true))
	require.True(t, b.take().members["a"].draining)
	b.drain("a", false)
	require.True(t, b.draining(b.members["a"]))
	require.NoError(t, beat(b, at(1), Worker{"a", 1}, false))
	require.False(t, b.draining(b.members["a"]))
	b.take()
	b.drain("nobody", false)
	require.False(t, b.changed())
}

func TestR1_VersionsRise(t *testing.T) {
	b := testBook(newRecords())
	b.take()
	put := func(name, content string) int64 { return b.put([]*task{item(name, content)})[0].Revision }
	require.EqualValues(t, 1, put("a", "x"))
	require.EqualValues(t, 2, put("b", ""))
	require.EqualValues(t, 3, put("a", "y"))
	require.EqualValues(t, 3, b.take().revision)
	require.EqualValues(t, 3, put("a", "y"), "the same content keeps its version")
	require.False(t, b.changed())

	require.NoError(t, b.remove([]string{"a"}))
	require.EqualValues(t, 4, put("a", "y"), "a deleted task gets a new version")
	require.NoError(t, b.remove([]string{"a", "b"}))
	after := testBook(b.records)
	require.EqualValues(t, 5, after.put([]*task{item("a", "y")})[0].Revision, "even if version 4 is not stored")
}

func TestR1_SettingsChangeNoContent(t *testing.T) {
	b := testBook(newRecords())
	b.put([]*task{item("a", "x")})
	b.take()
	twice := item("a", "x")
	twice.Settings = Settings{Instances: 2, Handoff: orchestrator.StartThenStop}
	require.Equal(t, Item{"a", []byte("x"), twice.Settings, 1}, b.put([]*task{twice})[0])
	change := b.take()
	require.Equal(t, 2, change.tasks["a"].Settings.Instances)
	require.Zero(t, change.revision)
	require.Equal(t, Settings{Instances: 1}, b.put([]*task{item("a", "x")})[0].Settings)
}

func TestR1_RemovingIsAllOrNothing(t *testing.T) {
	b := testBook(newRecords())
	b.put([]*task{item("a", ""), item("b", "")})
	b.take()
	err := b.remove([]string{"a", "c"})
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, `"c"`)
	require.False(t, b.changed())
	require.Len(t, b.tasks, 2)
	require.NoError(t, b.remove([]string{"a", "b", "a"}))
	require.Empty(t, b.tasks)
}

func TestR1_Completing(t *testing.T) {
	b := testBook(newRecords())
	b.put([]*task{item("a", "x"), item("b", "x")})
	b.put([]*task{item("a", "y")}) // version 3
	b.take()
	require.Equal(t, doneUnknown, b.conclude(at(0), "w", b.conclusion("w", "nobody's", 1)))
	require.Equal(t, doneSuperseded, b.conclude(at(0), "w", b.conclusion("w", "a", 1)))
	require.Equal(t, doneSuperseded, b.conclude(at(0), "w", b.conclusion("w", "a", 0)))
	require.Equal(t, doneUnknown, b.conclude(at(0), "w", b.conclusion("w", "a", 4)), "a version that was never given")
	require.False(t, b.changed())

	require.Equal(t, doneRecorded, b.conclude(at(5), "w", b.conclusion("w", "a", 3)))
	change := b.take()
	require.Nil(t, change.tasks["a"])
	require.Equal(t, Completion{"a", 3, "w", at(5).UTC()}, change.done["a"].Completion)
	require.NotContains(t, b.tasks, "a")
	require.Equal(t, doneRecorded, b.conclude(at(6), "other", b.conclusion("other", "a", 3)))
	require.Equal(t, doneRecorded, b.conclude(at(6), "other", b.conclusion("other", "a", 1)))
	require.Equal(t, doneUnknown, b.conclude(at(6), "other", b.conclusion("other", "a", 4)))
	require.False(t, b.changed(), "at most once per version")
	require.Contains(t, b.tasks, "b")
}

func TestR1_WhatIsCompletedIsNotRunAgain(t *testing.T) {
	b := testBook(newRecords())
	b.put([]*task{item("a", "x")})
	b.conclude(at(0), "w", b.conclusion("w", "a", 1))
	b = testBook(b.records)
	b.take()
	require.EqualValues(t, 1, b.put([]*task{item("a", "x")})[0].Revision)
	require.False(t, b.changed(), "nothing is left to be done")
	require.Empty(t, b.tasks)

	require.EqualValues(t, 2, b.put([]*task{item("a", "y")})[0].Revision)
	require.Empty(t, b.done, "new content is to be completed again")
	require.Equal(t, doneSuperseded, b.conclude(at(0), "w", b.conclusion("w", "a", 1)))
	require.Equal(t, doneRecorded, b.conclude(at(0), "w", b.conclusion("w", "a", 2)))
	b.take()
	b.forget([]string{"a", "nobody's"})
	require.Nil(t, b.take().done["a"])
	b.forget([]string{"a"})
	require.False(t, b.changed())
	require.Equal(t, doneUnknown, b.conclude(at(0), "w", b.conclusion("w", "a", 2)))
	require.EqualValues(t, 3, b.put([]*task{item("a", "y")})[0].Revision, "a forgotten completion allows another run")
}

// A completion counts only from a worker whose name was given this version. A
// refusal is the same whether or not the task exists.
func TestR5_OnlyAWorkerThatWasGivenATaskCompletesIt(t *testing.T) {
	b := testBook(newRecords())
	b.put([]*task{item("a", "x"), item("b", "x")})
	b.conclude(at(0), "w", b.conclusion("w", "b", 2))
	b.take()
	for _, e := range []conclusion{
		b.shown("w", "a", 1, receipt{}),
		b.shown("w", "a", 1, b.key.issue("other", "a", 1)),
		b.shown("w", "a", 1, b.key.issue("w", "a", 2)),
		b.shown("w", "a", 1, b.key.issue("w", "b", 1)),
		b.shown("w", "b", 2, receipt{}),
		b.shown("w", "b", 1, receipt{}),
		b.shown("w", "b", 3, receipt{}), // it has completed
		b.shown("w", "a", 0, receipt{}),
		b.shown("w", "a", 2, receipt{}),
		b.shown("w", "nobody's", 1, receipt{}),
		b.shown("w", "a", 1, newReceiptKey().issue("w", "a", 1)),
	} {
		require.Equal(t, doneRefused, b.conclude(at(0), "w", e), "%+v", e)
		e.failure = &Failure{Attempts: 1}
		require.Equal(t, doneRefused, b.conclude(at(0), "w", e), "%+v", e)
	}
	require.False(t, b.changed())
	require.Equal(t, doneRecorded, b.conclude(at(0), "w", b.conclusion("w", "a", 1)))
}

// A failed job is not expected until Retry or a Put with new content.
func TestW8_WhatHasFailedIsNotRunAgain(t *testing.T) {
	b := testBook(newRecords())
	b.put([]*task{item("a", "x"), item("b", "x")})
	failed := b.conclusion("w", "a", 1)
	failed.failure = &Failure{Err: "no disk", Attempts: 3}
	require.Equal(t, doneRecorded, b.conclude(at(5), "w", failed))
	require.NotContains(t, b.tasks, "a")
	b = testBook(b.records)
	b.take()
	want := FailedTask{Item: Item{Name: "a", Content: []byte("x"), Settings: Settings{Instances: 1}, Revision: 1}, Worker: "w", At: at(5).UTC(), Err: "no disk", Attempts: 3}
	require.Equal(t, want, b.failed["a"].FailedTask)
	require.Equal(t, doneRecorded, b.conclude(at(6), "w", failed), "the same report again")
	require.EqualValues(t, 1, b.put([]*task{item("a", "x")})[0].Revision)
	require.False(t, b.changed(), "the same content stays failed")

	other := item("a", "x")
	other.Settings.Instances = 3
	require.Equal(t, 3, b.put([]*task{other})[0].Settings.Instances)
	require.Equal(t, 3, b.failed["a"].Settings.Instances, "the settings apply after a retry")
	b.take()

	require.ErrorIs(t, b.retry([]string{"a", "b"}), ErrNotFound)
	require.False(t, b.changed(), "all or none")
	require.NoError(t, b.retry([]string{"a", "a"}))
	require.EqualValues(t, 3, b.tasks["a"].Revision)
	require.Empty(t, b.failed)
	require.Equal(t, doneSuperseded, b.conclude(at(6), "w", failed), "a report of the earlier version")

	failed = b.conclusion("w", "a", 3)
	failed.failure = &Failure{Attempts: 1}
	b.conclude(at(7), "w", failed)
	require.EqualValues(t, 4, b.put([]*task{item("a", "y")})[0].Revision)
	require.Empty(t, b.failed, "new content makes it expected again")

	failed = b.conclusion("w", "a", 4)
	failed.failure = &Failure{Attempts: 1}
	b.conclude(at(8), "w", failed)
	require.Equal(t, doneRecorded, b.conclude(at(9), "v", b.conclusion("v", "a", 4)), "another instance has completed it")
	require.Contains(t, b.done, "a")
	require.Empty(t, b.failed)
	require.Equal(t, doneRecorded, b.conclude(at(9), "w", failed), "too late")

	failed = b.conclusion("w", "b", 2)
	failed.failure = &Failure{Attempts: 1}
	b.conclude(at(9), "w", failed)
	require.NoError(t, b.remove([]string{"b"}), "a failed task can be removed")
	require.ErrorIs(t, b.remove([]string{"b"}), ErrNotFound)
}

func TestR2_NewsIsTheDifference(t *testing.T) {
	disk := newRecords()
	b := testBook(disk)
	take := func() news {
		change := b.take()
		n := disk.news(&change)
		disk.apply(&change)
		require.Equal(t, b.records, disk)
		return n
	}
	register(t, b, 0, "b", 1)
	register(t, b, 0, "a", 2)
	b.drain("a", true)
	b.drain("nobody", true)
	twice := item("t", "")
	twice.Settings = Settings{Instances: 2, Handoff: orchestrator.StopThenStart}
	b.put([]*task{twice, item("s", "")})
	require.Equal(t, news{
		expected: []orchestrator.Task[string]{
			{Name: "s", Instances: 1},
			{Name: "t", Instances: 2, Handoff: orchestrator.StopThenStart},
		},
		came: []arrival{
			{Worker{"a", 2}, true, "192.0.2.1:7000", true, false},
			{Worker{"b", 1}, false, "192.0.2.1:7000", true, false},
		},
	}, take())
	require.Equal(t, news{}, take())

	b.drain("a", false)
	b.leave(Worker{"b", 1})
	register(t, b, 0, "b", 3)
	b.put([]*task{item("never", "")})
	require.NoError(t, b.remove([]string{"never", "s"}))
	require.Equal(t, news{
		unexpected: []string{"s"},
		gone:       []Worker{{"b", 1}},
		came: []arrival{
			{Worker{"a", 2}, false, "192.0.2.1:7000", false, true},
			{Worker{"b", 3}, false, "192.0.2.1:7000", true, false},
		},
	}, take())

	elsewhere := asks("b", 3)
	elsewhere.address = "192.0.2.9:7000"
	require.NoError(t, b.register(at(0), elsewhere))
	b.conclude(at(0), "b", b.conclusion("b", "t", 1))
	b.drain("a", true)
	b.leave(Worker{"a", 2})
	require.Equal(t, news{
		unexpected: []string{"t"},
		gone:       []Worker{{"a", 2}},
		came:       []arrival{{Worker{"b", 3}, false, "192.0.2.9:7000", true, false}},
	}, take())
}
