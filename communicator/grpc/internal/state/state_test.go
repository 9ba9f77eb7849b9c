package state

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

const (
	aLease      = 10 * time.Second
	unreachable = 30 * time.Second
)

// at returns a time after the start of the test.
func at(d time.Duration) time.Time { return time.Unix(1_000_000, 0).Add(d) }

func testState(kept Records) *State {
	b := newState(Rules{LeaseMin: time.Second, LeaseMax: time.Hour, Unreachable: unreachable}, kept)
	if b.Key == nil {
		b.Key = bytes.Repeat([]byte{7}, receiptKeyLength)
		b.change.Key = b.Key
	}
	b.Start(at(0))
	return b
}

func asks(name string, incarnation uint64) Membership {
	return Membership{WorkerID: WorkerID{name, incarnation}, Address: "192.0.2.1:7000", Lease: aLease}
}

func register(t *testing.T, b *State, d time.Duration, name string, incarnation uint64) {
	t.Helper()
	require.NoError(t, b.Register(at(d), asks(name, incarnation)))
}

func beat(b *State, now time.Time, w WorkerID, draining bool) error {
	_, err := b.Heartbeat(now, w, draining)
	return err
}

// conclusion returns the report of a worker that was given a version of a task and
// has completed it.
func (b *State) conclusion(worker, task string, version int64) Conclusion {
	return b.shown(worker, task, version, b.Key.Issue(worker, task, version))
}

// shown returns what a worker says that shows a receipt.
func (b *State) shown(worker, task string, version int64, r Receipt) Conclusion {
	return Conclusion{Task: task, Version: version, Proven: b.Key.Issued(r, worker, task, version)}
}

func item(name, content string) *Task { return NewTask(Item{Name: name, Content: []byte(content)}) }

func TestR2_AMemberUntilItsLeaseHasRunOut(t *testing.T) {
	b := testState(newRecords())
	w := WorkerID{"a", 1}
	register(t, b, 0, "a", 1)
	require.Equal(t, aLease, b.Take().Members["a"].Lease)

	require.NoError(t, beat(b, at(aLease-1), w, false))
	require.False(t, b.Changed(), "a renewal is not stored")
	require.Equal(t, at(2*aLease-1), b.Expire(at(2*aLease-2)), "when the next lease expires")
	require.Contains(t, b.Members, "a")
	require.ErrorIs(t, beat(b, at(2*aLease-1), w, false), ErrNotMember, "the lease has expired, even if expire was not called yet")

	require.Zero(t, b.Expire(at(2*aLease-1)))
	require.Empty(t, b.Members)
	require.Nil(t, b.Take().Members["a"])
	require.ErrorIs(t, beat(b, at(2*aLease), w, false), ErrNotMember)
	require.ErrorIs(t, b.Register(at(2*aLease), asks("a", 1)), ErrMembershipOver, "an ended incarnation cannot register again")
	register(t, b, 2*aLease, "a", 2)
}

func TestW6_AloneWhereNoOtherMemberCanTakeTasks(t *testing.T) {
	b := testState(newRecords())
	register(t, b, 0, "a", 1)
	require.True(t, b.Alone(at(0), "a"))
	register(t, b, 0, "b", 2)
	require.False(t, b.Alone(at(0), "a"))
	b.Drain("b", true)
	require.True(t, b.Alone(at(0), "a"), "drained by name")
	b.Drain("b", false)
	require.False(t, b.Alone(at(0), "a"))
	require.NoError(t, beat(b, at(1), WorkerID{"b", 2}, true))
	require.True(t, b.Alone(at(1), "a"), "drains by its own request")
	require.NoError(t, beat(b, at(1), WorkerID{"b", 2}, false))
	require.NoError(t, beat(b, at(aLease/2), WorkerID{"a", 1}, false))
	require.False(t, b.Alone(at(aLease), "a"))
	require.True(t, b.Alone(at(aLease+1), "a"), "its lease has expired, even if expire was not called yet")
}

func TestR2_ANameIsTakenWhileTheLeaseLasts(t *testing.T) {
	b := testState(newRecords())
	register(t, b, 0, "a", 1)
	err := b.Register(at(aLease-time.Millisecond), asks("a", 2))
	require.ErrorIs(t, err, ErrNameTaken)
	require.ErrorContains(t, err, `"a"`)
	require.ErrorContains(t, err, "192.0.2.1:7000")
	require.ErrorContains(t, err, "1ms")
	require.ErrorIs(t, beat(b, at(1), WorkerID{"a", 2}, false), ErrNotMember)
	register(t, b, 0, "b", 2)

	register(t, b, aLease, "a", 2) // expire was not called
	require.Equal(t, WorkerID{"a", 2}, b.Members["a"].WorkerID)
	require.ErrorIs(t, b.Register(at(aLease), asks("a", 1)), ErrMembershipOver)
	require.ErrorIs(t, beat(b, at(aLease), WorkerID{"a", 1}, false), ErrNotMember)
}

func TestR2_RegisteringAgainRenews(t *testing.T) {
	b := testState(newRecords())
	register(t, b, 0, "a", 1)
	b.Take()
	register(t, b, aLease/2, "a", 1)
	require.False(t, b.Changed())
	b.Expire(at(aLease))
	require.Contains(t, b.Members, "a")

	again := asks("a", 1)
	again.Lease, again.Address, again.Draining = aLease/2, "192.0.2.2:7000", true
	again.Settings = orchestrator.WorkerSettings{Labels: []string{"gpu"}}
	require.NoError(t, b.Register(at(aLease), again))
	kept := b.Take().Members["a"]
	require.Equal(t, Membership{WorkerID{"a", 1}, "192.0.2.2:7000", aLease, true, again.Settings}, *kept, "the longer lease counts")
	require.Equal(t, at(2*aLease), b.Expire(at(aLease)))
}

func TestR2_Leaving(t *testing.T) {
	b := testState(newRecords())
	register(t, b, 0, "a", 1)
	b.Leave(WorkerID{"a", 2})
	b.Leave(WorkerID{"nobody", 1})
	require.Contains(t, b.Members, "a", "another incarnation cannot leave for this one")
	b.Take()
	b.Leave(WorkerID{"a", 1})
	require.Empty(t, b.Members)
	require.True(t, b.Changed())
	b.Leave(WorkerID{"a", 1})
	require.ErrorIs(t, b.Register(at(1), asks("a", 1)), ErrMembershipOver)
	require.ErrorIs(t, b.Register(at(1), asks("nobody", 1)), ErrMembershipOver, "a Register that arrives after the Leave")
	register(t, b, 1, "a", 3)
}

func TestR2_EndedIncarnationsAreRememberedWithABound(t *testing.T) {
	b := testState(newRecords())
	b.Leave(WorkerID{"other", 1})
	for i := range uint64(endedEach) {
		b.Leave(WorkerID{"a", i + 1})
		b.Leave(WorkerID{"a", i + 1})
	}
	require.ErrorIs(t, b.MayRegister(at(0), WorkerID{"a", 1}), ErrMembershipOver)
	for i := range uint64(2 * endedNames) {
		b.Leave(WorkerID{"a", 100 + i})
	}
	require.NoError(t, b.MayRegister(at(0), WorkerID{"a", 1}))
	require.ErrorIs(t, b.MayRegister(at(0), WorkerID{"a", 100 + 2*endedNames - 1}), ErrMembershipOver)
	require.ErrorIs(t, b.MayRegister(at(0), WorkerID{"other", 1}), ErrMembershipOver, "which a displaces not")
	for i := range 2 * endedNames {
		b.Leave(WorkerID{fmt.Sprint("w", i), 1})
	}
	require.NoError(t, b.MayRegister(at(0), WorkerID{"other", 1}))
	require.ErrorIs(t, b.MayRegister(at(0), WorkerID{fmt.Sprint("w", 2*endedNames-1), 1}), ErrMembershipOver)
	require.Len(t, b.ended.of, endedNames)
	require.Len(t, b.ended.ring, endedNames)
}

func TestR2_AfterARestartEachKnownMemberIsWaitedFor(t *testing.T) {
	before := testState(newRecords())
	register(t, before, 0, "a", 1)
	register(t, before, 0, "b", 2)
	long := asks("c", 3)
	long.Lease = 3 * aLease
	require.NoError(t, before.Register(at(0), long))

	// The next manager starts an hour later. No lease expires before start.
	b := newState(before.Rules, before.Records)
	require.Equal(t, before.Epoch+1, b.Epoch)
	require.Equal(t, b.Epoch, b.Take().Epoch)
	require.Equal(t, 3, b.unheard)
	require.Zero(t, b.Expire(at(time.Hour)))
	require.Len(t, b.Members, 3)
	b.Start(at(time.Hour))
	require.ErrorIs(t, b.MayRegister(at(time.Hour), WorkerID{"a", 9}), ErrNameTaken)

	require.NoError(t, beat(b, at(time.Hour+1), WorkerID{"a", 1}, false))
	require.NoError(t, beat(b, at(time.Hour+2), WorkerID{"a", 1}, false))
	require.Equal(t, 2, b.unheard)
	require.False(t, b.Changed())
	require.Equal(t, at(time.Hour+aLease), b.Expire(at(time.Hour+aLease-1)))
	require.Equal(t, 2, b.unheard)
	b.Expire(at(time.Hour + aLease))
	require.Equal(t, 1, b.unheard, "b is gone, a is heard")
	require.NotContains(t, b.Members, "b")
	require.NoError(t, b.Register(at(time.Hour+2*aLease), long), "a Register counts as well as a heartbeat")
	require.Zero(t, b.unheard)
}

func TestR2_AnUnreachableMemberIsNotRenewed(t *testing.T) {
	b := testState(newRecords())
	w := WorkerID{"a", 1}
	register(t, b, 0, "a", 1)
	b.Called(at(time.Second), w, false)
	for d := time.Second; d < unreachable; d += time.Second {
		require.NoError(t, beat(b, at(d), w, false))
	}
	require.NoError(t, beat(b, at(unreachable+time.Second), w, false), "one failed call is not enough")
	b.Called(at(unreachable+time.Second-1), w, false)
	require.NoError(t, beat(b, at(unreachable+time.Second), w, false))
	b.Called(at(unreachable+time.Second), WorkerID{"a", 2}, false)
	b.Called(at(unreachable+time.Second), w, false)
	err := beat(b, at(unreachable+time.Second), w, true)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "192.0.2.1:7000")
	require.ErrorContains(t, err, "30s")
	require.False(t, b.draining(b.Members["a"]))

	b.Called(at(unreachable+2*time.Second), w, true)
	require.NoError(t, beat(b, at(unreachable+2*time.Second), w, false))
	b.Called(at(unreachable+3*time.Second), w, false)
	b.Called(at(2*unreachable+3*time.Second), w, false)
	require.ErrorIs(t, beat(b, at(unreachable+4*time.Second), w, false), ErrUnreachable)
	b.Expire(at(unreachable + 2*time.Second + aLease))
	require.Empty(t, b.Members, "its lease has expired")
}

func TestR2_RegisteringDoesNotProveThatCallsGetThrough(t *testing.T) {
	b := testState(newRecords())
	register(t, b, 0, "a", 1)
	b.Called(at(0), WorkerID{"a", 1}, false)
	b.Called(at(unreachable-1), WorkerID{"a", 1}, false)
	register(t, b, 1, "a", 1)
	b.Called(at(unreachable), WorkerID{"a", 1}, false)
	require.ErrorIs(t, b.Register(at(1), asks("a", 1)), ErrUnreachable)
	b.Called(at(2), WorkerID{"a", 1}, true)
	register(t, b, 2, "a", 1)
}

func TestR2_InvalidRegistrationsAreRefused(t *testing.T) {
	by := Rules{LeaseMin: time.Second, LeaseMax: time.Minute}
	fine := asks("a", 1)
	require.NoError(t, fine.Check(by))
	for says, change := range map[string]func(*Membership){
		"without a name":         func(r *Membership) { r.Name = "" },
		"1025 bytes":             func(r *Membership) { r.Name = strings.Repeat("n", 1025) },
		"without an incarnation": func(r *Membership) { r.Incarnation = 0 },
		"grants 1s to 1m0s":      func(r *Membership) { r.Lease = time.Minute + 1 },
		"999.999999ms":           func(r *Membership) { r.Lease = time.Second - 1 },
		"not host:port":          func(r *Membership) { r.Address = "localhost" },
		"for listening":          func(r *Membership) { r.Address = ":80" },
		"is for listening":       func(r *Membership) { r.Address = "[::]:80" },
		"0.0.0.0:80":             func(r *Membership) { r.Address = "0.0.0.0:80" },
		"from 1 to 65535":        func(r *Membership) { r.Address = "localhost:0" },
		`"localhost:http"`:       func(r *Membership) { r.Address = "localhost:http" },
		"600 bytes":              func(r *Membership) { r.Address = strings.Repeat("h", 600) },
	} {
		r := fine
		change(&r)
		err := r.Check(by)
		require.ErrorIs(t, err, orchestrator.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
}

func TestR2_DrainingIsSaidByTheWorkerOrOfItsName(t *testing.T) {
	b := testState(newRecords())
	b.Drain("a", true)
	b.Take()
	b.Drain("a", true)
	require.False(t, b.Changed())
	register(t, b, 0, "a", 1)
	require.True(t, b.draining(b.Members["a"]))
	require.NoError(t, beat(b, at(1), WorkerID{"a", 1}, true))
	require.True(t, b.Take().Members["a"].Draining)
	b.Drain("a", false)
	require.True(t, b.draining(b.Members["a"]))
	require.NoError(t, beat(b, at(1), WorkerID{"a", 1}, false))
	require.False(t, b.draining(b.Members["a"]))
	b.Take()
	b.Drain("nobody", false)
	require.False(t, b.Changed())
}

func TestR1_VersionsRise(t *testing.T) {
	b := testState(newRecords())
	b.Take()
	put := func(name, content string) int64 { return b.Put([]*Task{item(name, content)})[0].Revision }
	require.EqualValues(t, 1, put("a", "x"))
	require.EqualValues(t, 2, put("b", ""))
	require.EqualValues(t, 3, put("a", "y"))
	require.EqualValues(t, 3, b.Take().Revision)
	require.EqualValues(t, 3, put("a", "y"), "the same content keeps its version")
	require.False(t, b.Changed())

	require.NoError(t, b.Remove([]string{"a"}))
	require.EqualValues(t, 4, put("a", "y"), "a deleted task gets a new version")
	require.NoError(t, b.Remove([]string{"a", "b"}))
	after := testState(b.Records)
	require.EqualValues(t, 5, after.Put([]*Task{item("a", "y")})[0].Revision, "even if version 4 is not stored")
}

func TestR1_SettingsChangeNoContent(t *testing.T) {
	b := testState(newRecords())
	b.Put([]*Task{item("a", "x")})
	b.Take()
	twice := item("a", "x")
	twice.Settings = orchestrator.TaskSettings{Instances: 2, Handoff: orchestrator.StartThenStop}
	require.Equal(t, Item{"a", []byte("x"), twice.Settings, 1}, b.Put([]*Task{twice})[0])
	change := b.Take()
	require.Equal(t, 2, change.tasks["a"].Settings.Instances)
	require.Zero(t, change.Revision)
	require.Equal(t, orchestrator.TaskSettings{Instances: 1}, b.Put([]*Task{item("a", "x")})[0].Settings)
}

func TestR1_RemovingIsAllOrNothing(t *testing.T) {
	b := testState(newRecords())
	b.Put([]*Task{item("a", ""), item("b", "")})
	b.Take()
	err := b.Remove([]string{"a", "c"})
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, `"c"`)
	require.False(t, b.Changed())
	require.Len(t, b.tasks, 2)
	require.NoError(t, b.Remove([]string{"a", "b", "a"}))
	require.Empty(t, b.tasks)
}

func TestR1_Completing(t *testing.T) {
	b := testState(newRecords())
	b.Put([]*Task{item("a", "x"), item("b", "x")})
	b.Put([]*Task{item("a", "y")}) // version 3
	b.Take()
	require.Equal(t, DoneUnknown, b.Conclude(at(0), "w", b.conclusion("w", "nobody's", 1)))
	require.Equal(t, DoneSuperseded, b.Conclude(at(0), "w", b.conclusion("w", "a", 1)))
	require.Equal(t, DoneSuperseded, b.Conclude(at(0), "w", b.conclusion("w", "a", 0)))
	require.Equal(t, DoneUnknown, b.Conclude(at(0), "w", b.conclusion("w", "a", 4)), "a version that was never given")
	require.False(t, b.Changed())

	require.Equal(t, DoneRecorded, b.Conclude(at(5), "w", b.conclusion("w", "a", 3)))
	change := b.Take()
	require.Nil(t, change.tasks["a"])
	require.Equal(t, Completion{"a", 3, "w", at(5).UTC()}, change.done["a"].Completion)
	require.NotContains(t, b.tasks, "a")
	require.Equal(t, DoneRecorded, b.Conclude(at(6), "other", b.conclusion("other", "a", 3)))
	require.Equal(t, DoneRecorded, b.Conclude(at(6), "other", b.conclusion("other", "a", 1)))
	require.Equal(t, DoneUnknown, b.Conclude(at(6), "other", b.conclusion("other", "a", 4)))
	require.False(t, b.Changed(), "at most once per version")
	require.Contains(t, b.tasks, "b")
}

func TestR1_WhatIsCompletedIsNotRunAgain(t *testing.T) {
	b := testState(newRecords())
	b.Put([]*Task{item("a", "x")})
	b.Conclude(at(0), "w", b.conclusion("w", "a", 1))
	b = testState(b.Records)
	b.Take()
	require.EqualValues(t, 1, b.Put([]*Task{item("a", "x")})[0].Revision)
	require.False(t, b.Changed(), "nothing is left to be done")
	require.Empty(t, b.tasks)

	require.EqualValues(t, 2, b.Put([]*Task{item("a", "y")})[0].Revision)
	require.Empty(t, b.done, "new content is to be completed again")
	require.Equal(t, DoneSuperseded, b.Conclude(at(0), "w", b.conclusion("w", "a", 1)))
	require.Equal(t, DoneRecorded, b.Conclude(at(0), "w", b.conclusion("w", "a", 2)))
	b.Take()
	b.Forget([]string{"a", "nobody's"})
	require.Nil(t, b.Take().done["a"])
	b.Forget([]string{"a"})
	require.False(t, b.Changed())
	require.Equal(t, DoneUnknown, b.Conclude(at(0), "w", b.conclusion("w", "a", 2)))
	require.EqualValues(t, 3, b.Put([]*Task{item("a", "y")})[0].Revision, "a forgotten completion allows another run")
}

// A completion counts only from a worker whose name was given this version. A
// refusal is the same whether or not the task exists.
func TestR5_OnlyAWorkerThatWasGivenATaskCompletesIt(t *testing.T) {
	b := testState(newRecords())
	b.Put([]*Task{item("a", "x"), item("b", "x")})
	b.Conclude(at(0), "w", b.conclusion("w", "b", 2))
	b.Take()
	for _, e := range []Conclusion{
		b.shown("w", "a", 1, Receipt{}),
		b.shown("w", "a", 1, b.Key.Issue("other", "a", 1)),
		b.shown("w", "a", 1, b.Key.Issue("w", "a", 2)),
		b.shown("w", "a", 1, b.Key.Issue("w", "b", 1)),
		b.shown("w", "b", 2, Receipt{}),
		b.shown("w", "b", 1, Receipt{}),
		b.shown("w", "b", 3, Receipt{}), // it has completed
		b.shown("w", "a", 0, Receipt{}),
		b.shown("w", "a", 2, Receipt{}),
		b.shown("w", "nobody's", 1, Receipt{}),
		b.shown("w", "a", 1, NewReceiptKey().Issue("w", "a", 1)),
	} {
		require.Equal(t, DoneRefused, b.Conclude(at(0), "w", e), "%+v", e)
		e.Failure = &Failure{Attempts: 1}
		require.Equal(t, DoneRefused, b.Conclude(at(0), "w", e), "%+v", e)
	}
	require.False(t, b.Changed())
	require.Equal(t, DoneRecorded, b.Conclude(at(0), "w", b.conclusion("w", "a", 1)))
}

// A failed job is not expected until Retry or a Put with new content.
func TestW8_WhatHasFailedIsNotRunAgain(t *testing.T) {
	b := testState(newRecords())
	b.Put([]*Task{item("a", "x"), item("b", "x")})
	failed := b.conclusion("w", "a", 1)
	failed.Failure = &Failure{Err: "no disk", Attempts: 3}
	require.Equal(t, DoneRecorded, b.Conclude(at(5), "w", failed))
	require.NotContains(t, b.tasks, "a")
	b = testState(b.Records)
	b.Take()
	want := FailedTask{Item: Item{Name: "a", Content: []byte("x"), Settings: orchestrator.TaskSettings{Instances: 1}, Revision: 1}, Worker: "w", At: at(5).UTC(), Err: "no disk", Attempts: 3}
	require.Equal(t, want, b.failed["a"].FailedTask)
	require.Equal(t, DoneRecorded, b.Conclude(at(6), "w", failed), "the same report again")
	require.EqualValues(t, 1, b.Put([]*Task{item("a", "x")})[0].Revision)
	require.False(t, b.Changed(), "the same content stays failed")

	other := item("a", "x")
	other.Settings.Instances = 3
	require.Equal(t, 3, b.Put([]*Task{other})[0].Settings.Instances)
	require.Equal(t, 3, b.failed["a"].Settings.Instances, "the settings apply after a retry")
	b.Take()

	require.ErrorIs(t, b.Retry([]string{"a", "b"}), ErrNotFound)
	require.False(t, b.Changed(), "all or none")
	require.NoError(t, b.Retry([]string{"a", "a"}))
	require.EqualValues(t, 3, b.tasks["a"].Revision)
	require.Empty(t, b.failed)
	require.Equal(t, DoneSuperseded, b.Conclude(at(6), "w", failed), "a report of the earlier version")

	failed = b.conclusion("w", "a", 3)
	failed.Failure = &Failure{Attempts: 1}
	b.Conclude(at(7), "w", failed)
	require.EqualValues(t, 4, b.Put([]*Task{item("a", "y")})[0].Revision)
	require.Empty(t, b.failed, "new content makes it expected again")

	failed = b.conclusion("w", "a", 4)
	failed.Failure = &Failure{Attempts: 1}
	b.Conclude(at(8), "w", failed)
	require.Equal(t, DoneRecorded, b.Conclude(at(9), "v", b.conclusion("v", "a", 4)), "another instance has completed it")
	require.Contains(t, b.done, "a")
	require.Empty(t, b.failed)
	require.Equal(t, DoneRecorded, b.Conclude(at(9), "w", failed), "too late")

	failed = b.conclusion("w", "b", 2)
	failed.Failure = &Failure{Attempts: 1}
	b.Conclude(at(9), "w", failed)
	require.NoError(t, b.Remove([]string{"b"}), "a failed task can be removed")
	require.ErrorIs(t, b.Remove([]string{"b"}), ErrNotFound)
}

func TestR2_NewsIsTheDifference(t *testing.T) {
	disk := newRecords()
	b := testState(disk)
	take := func() Delta {
		change := b.Take()
		n := disk.delta(&change)
		disk.Apply(&change)
		require.Equal(t, b.Records, disk)
		return n
	}
	register(t, b, 0, "b", 1)
	register(t, b, 0, "a", 2)
	b.Drain("a", true)
	b.Drain("nobody", true)
	twice := item("t", "")
	twice.Settings = orchestrator.TaskSettings{
		Instances: 2, Handoff: orchestrator.StopThenStart, Requires: []string{"gpu"}, MaxPerZone: -1, Weight: 7,
	}
	b.Put([]*Task{twice, item("s", "")})
	require.Equal(t, Delta{
		Expected: []orchestrator.Task[string]{
			{Name: "s", Instances: 1},
			orchestrator.NewTask("t", twice.Settings),
		},
		Came: []Arrival{
			{WorkerID: WorkerID{"a", 2}, Address: "192.0.2.1:7000", Draining: true, Moved: true},
			{WorkerID: WorkerID{"b", 1}, Address: "192.0.2.1:7000", Moved: true},
		},
	}, take())
	require.Equal(t, Delta{}, take())

	b.Drain("a", false)
	b.Leave(WorkerID{"b", 1})
	register(t, b, 0, "b", 3)
	b.Put([]*Task{item("never", "")})
	require.NoError(t, b.Remove([]string{"never", "s"}))
	require.Equal(t, Delta{
		Unexpected: []string{"s"},
		Gone:       []WorkerID{{"b", 1}},
		Came: []Arrival{
			{WorkerID: WorkerID{"a", 2}, Address: "192.0.2.1:7000", Turned: true},
			{WorkerID: WorkerID{"b", 3}, Address: "192.0.2.1:7000", Moved: true},
		},
	}, take())

	labelled := asks("b", 3)
	labelled.Settings = orchestrator.WorkerSettings{Zone: "east", Labels: []string{"gpu"}}
	require.NoError(t, b.Register(at(0), labelled))
	require.Equal(t, Delta{Came: []Arrival{
		{WorkerID: WorkerID{"b", 3}, Address: "192.0.2.1:7000", Settings: labelled.Settings, Reset: true},
	}}, take())
	labelled.Settings.Share = 1 // means the same
	require.NoError(t, b.Register(at(0), labelled))
	require.Equal(t, Delta{}, take())

	elsewhere := asks("b", 3)
	elsewhere.Address = "192.0.2.9:7000"
	require.NoError(t, b.Register(at(0), elsewhere))
	b.Conclude(at(0), "b", b.conclusion("b", "t", 1))
	b.Drain("a", true)
	b.Leave(WorkerID{"a", 2})
	require.Equal(t, Delta{
		Unexpected: []string{"t"},
		Gone:       []WorkerID{{"a", 2}},
		Came:       []Arrival{{WorkerID: WorkerID{"b", 3}, Address: "192.0.2.9:7000", Moved: true, Reset: true}},
	}, take())
}
