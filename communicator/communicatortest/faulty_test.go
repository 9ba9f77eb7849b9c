package communicatortest

// Tests of each fault's effect on a call, of healing and of closing.

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// always chooses the same fault for every call except List.
func always(fault Fault) func(Call[string, string]) Fault {
	return func(c Call[string, string]) Fault {
		if c.Op == orchestrator.OpList {
			return Fault{}
		}
		return fault
	}
}

// newFaulty returns a reference with faults, until the test ends.
func newFaulty(t *testing.T, broken bug, decide func(Call[string, string]) Fault) (*Faulty[string, string], orchestrator.Communicator[string, string]) {
	t.Helper()
	f := NewFaulty(newReference(broken).Communicator, decide)
	t.Cleanup(f.Close)
	return f, f.Communicator()
}

// inTerm is a context of the first epoch.
func inTerm(t *testing.T, number uint64) context.Context {
	return orchestrator.ContextWithTerm(t.Context(), orchestrator.Term{Epoch: 1, Number: number})
}

// inTermFor is inTerm with a timeout.
func inTermFor(t *testing.T, timeout time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(inTerm(t, 1), timeout)
	t.Cleanup(cancel)
	return ctx
}

// applier asserts that a Communicator is an Applier.
func applier(t *testing.T, c orchestrator.Communicator[string, string]) orchestrator.Applier[string, string] {
	t.Helper()
	a, ok := c.(orchestrator.Applier[string, string])
	require.True(t, ok)
	return a
}

// plain hides every method that is not of Communicator.
type plain struct {
	orchestrator.Communicator[string, string]
}

func TestNoFaultKeepsTheContract(t *testing.T) {
	decide, err := Seeded[string, string](Schedule{Seed: 1})
	require.NoError(t, err)
	slow, err := Seeded[string, string](Schedule{MinLatency: time.Millisecond, MaxLatency: 20 * time.Millisecond})
	require.NoError(t, err)
	for name, decide := range map[string]func(Call[string, string]) Fault{"Nil": nil, "Zero": decide, "Slow": slow} {
		for check, run := range Checks(func(t *testing.T) Cluster[string, string] {
			c := newReference("")
			f := NewFaulty(c.Communicator, decide)
			t.Cleanup(f.Close)
			c.Communicator = f.Communicator()
			return c
		}) {
			t.Run(name+"/"+check, func(t *testing.T) { synctest.Test(t, run) })
		}
	}
}

func TestIsAnApplierExactlyIfTheWrappedOneIs(t *testing.T) {
	c := newReference("")
	_, ok := NewFaulty(c.Communicator, nil).Communicator().(orchestrator.Applier[string, string])
	require.True(t, ok)
	_, ok = NewFaulty[string, string](plain{c.Communicator}, nil).Communicator().(orchestrator.Applier[string, string])
	require.False(t, ok)
}

// TestFaults makes one Add with each fault, with a deadline of 10 s, alone and
// through Apply.
func TestFaults(t *testing.T) {
	errScripted := errors.New("scripted")
	const latency, late = 2 * time.Second, 5 * time.Second
	for _, tt := range []struct {
		name  string
		fault Fault
		after time.Duration // until the caller has the answer
		err   error
		done  bool          // by then
		lands time.Duration // after the call was made; 0 if never later
	}{
		{name: "NoFault", fault: Fault{}, done: true},
		{name: "Latency", fault: Fault{Latency: latency}, after: latency, done: true},
		{name: "LatencyBeyondDeadline", fault: Fault{Latency: 11 * time.Second}, after: 10 * time.Second, err: context.DeadlineExceeded},
		{name: "LatencyIsDeadline", fault: Fault{Latency: 10 * time.Second}, after: 10 * time.Second, err: context.DeadlineExceeded},
		{name: "Refusal", fault: Fault{Kind: Refusal, Latency: latency}, after: latency, err: orchestrator.ErrRejected},
		{name: "Failure", fault: Fault{Kind: Failure}, err: ErrInjected},
		{name: "FailureScripted", fault: Fault{Kind: Failure, Err: errScripted}, err: errScripted},
		{name: "FalseFailure", fault: Fault{Kind: FalseFailure, Latency: latency}, after: latency, err: ErrInjected, done: true},
		{name: "LostRequest", fault: Fault{Kind: LostRequest}, after: 10 * time.Second, err: context.DeadlineExceeded},
		{name: "LostAnswer", fault: Fault{Kind: LostAnswer}, after: 10 * time.Second, err: context.DeadlineExceeded, done: true},
		{name: "LateAnswer", fault: Fault{Kind: LateAnswer, Late: late}, after: 15 * time.Second, done: true},
		{name: "LateRequest", fault: Fault{Kind: LateRequest, Late: late}, after: 10 * time.Second, err: context.DeadlineExceeded, lands: 15 * time.Second},
		{name: "LateRequestSlow", fault: Fault{Kind: LateRequest, Late: late, Latency: time.Hour}, after: 10 * time.Second, err: context.DeadlineExceeded, lands: 15 * time.Second},
		{name: "Stuck", fault: Fault{Kind: Stuck, Late: time.Hour}, after: time.Hour, err: ErrInjected},
		{name: "StuckSlow", fault: Fault{Kind: Stuck, Late: time.Hour, Latency: time.Second}, after: time.Hour, err: ErrInjected},
		{name: "Unknown", fault: Fault{Kind: faultKinds}, done: true},
	} {
		for _, apply := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				_, c := newFaulty(t, "", always(tt.fault))
				if apply {
					c = viaApply[string, string]{c, applier(t, c)}
				}
				ctx := inTermFor(t, 10*time.Second)

				start := time.Now()
				err := c.Add(ctx, "w1", "a")
				require.ErrorIs(t, err, tt.err, tt.name)
				require.Equal(t, tt.after, time.Since(start), tt.name)
				require.Equal(t, tt.done, lists(t, c, 1), tt.name)
				if tt.lands > 0 {
					<-time.After(tt.lands - tt.after)
					synctest.Wait()
					require.True(t, lists(t, c, 1), tt.name)
				}
			})
		}
	}
}

// lists reports whether worker w1 lists any task.
func lists(t *testing.T, c orchestrator.Communicator[string, string], number uint64) bool {
	t.Helper()
	tasks, err := c.List(inTerm(t, number), "w1")
	require.NoError(t, err)
	return len(tasks) > 0
}

func TestLandingCarriesItsTermIntoTheFence(t *testing.T) {
	for _, broken := range []bug{"", noFence} {
		synctest.Test(t, func(t *testing.T) {
			_, c := newFaulty(t, broken, always(Fault{Kind: LateRequest, Late: time.Second}))
			ctx := inTermFor(t, time.Second)
			require.ErrorIs(t, c.Add(ctx, "w1", "a"), context.DeadlineExceeded)
			require.False(t, lists(t, c, 2))
			<-time.After(time.Minute)
			require.Equal(t, broken == noFence, lists(t, c, 2))
		})
	}
}

func TestListMeetsFaultsToo(t *testing.T) {
	for kind, want := range map[FaultKind]error{
		FalseFailure: ErrInjected,
		LateRequest:  context.DeadlineExceeded,
		LateAnswer:   nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := NewFaulty(newReference("").Communicator, func(c Call[string, string]) Fault {
				require.Equal(t, Call[string, string]{
					Term: orchestrator.Term{Epoch: 1, Number: 1}, Op: orchestrator.OpList, Worker: "w1",
				}, c)
				return Fault{Kind: kind, Late: time.Second}
			})
			defer f.Close()
			ctx := inTermFor(t, time.Second)
			tasks, err := f.Communicator().List(ctx, "w1")
			require.ErrorIs(t, err, want)
			require.Empty(t, tasks)
			<-time.After(time.Minute)
		})
	}
}

func TestCauseOfTheContextIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(newReference("").Communicator, always(Fault{Kind: LostAnswer}))
		defer f.Close()
		ctx, cancel := context.WithCancelCause(inTerm(t, 1))
		time.AfterFunc(time.Second, func() { cancel(orchestrator.ErrDeposed) })
		require.ErrorIs(t, f.Communicator().Add(ctx, "w1", "a"), orchestrator.ErrDeposed)
	})
}

// TestApplyMeetsTheFaultOfEachWrite makes one call with a write for each fault.
func TestApplyMeetsTheFaultOfEachWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReference("")
		fates := map[string]Fault{
			"refused": {Kind: Refusal},
			"false":   {Kind: FalseFailure, Latency: time.Second},
			"landing": {Kind: LateRequest, Late: time.Minute},
			"late":    {Kind: LateAnswer, Late: time.Second},
		}
		f := NewFaulty(c.Communicator, func(c Call[string, string]) Fault { return fates[c.Task] })
		defer f.Close()
		var writes []orchestrator.Write[string]
		for _, task := range []string{"fine", "refused", "false", "landing", "late"} {
			writes = append(writes, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
		}
		ctx := inTermFor(t, 10*time.Second)
		start := time.Now()
		errs := applier(t, f.Communicator()).Apply(ctx, "w1", writes)
		require.Equal(t, 11*time.Second, time.Since(start))
		require.Len(t, errs, 5)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], orchestrator.ErrRejected)
		require.ErrorIs(t, errs[2], ErrInjected)
		require.ErrorIs(t, errs[3], context.DeadlineExceeded)
		require.NoError(t, errs[4])

		tasks, err := f.Communicator().List(inTerm(t, 1), "w1")
		require.NoError(t, err)
		require.Equal(t, []string{"fine", "false", "late"}, tasks)
		<-time.After(time.Minute)
		synctest.Wait()
		tasks, err = f.Communicator().List(inTerm(t, 1), "w1")
		require.NoError(t, err)
		require.Equal(t, []string{"fine", "false", "late", "landing"}, tasks)
	})
}

func TestApplyOfAWrongLengthSaysNothing(t *testing.T) {
	c := newReference(applyShort)
	f := NewFaulty(c.Communicator, func(c Call[string, string]) Fault {
		if c.Task == "c" {
			return Fault{Kind: Refusal}
		}
		return Fault{}
	})
	defer f.Close()
	errs := applier(t, f.Communicator()).Apply(inTerm(t, 1), "w1", []orchestrator.Write[string]{
		{Op: orchestrator.OpAdd, Task: "a"}, {Op: orchestrator.OpAdd, Task: "b"}, {Op: orchestrator.OpAdd, Task: "c"},
	})
	require.Len(t, errs, 3)
	for i, err := range errs {
		require.Error(t, err)
		require.Equal(t, i == 2, errors.Is(err, orchestrator.ErrRejected))
	}
}

func TestHealEndsWhatWaits(t *testing.T) {
	for kind, want := range map[FaultKind]error{
		LostRequest: ErrInjected, LostAnswer: ErrInjected, LateAnswer: nil, LateRequest: ErrInjected, Stuck: ErrInjected,
	} {
		synctest.Test(t, func(t *testing.T) {
			f, c := newFaulty(t, "", always(Fault{Kind: kind, Late: time.Minute, Latency: time.Hour}))
			start := time.Now()
			time.AfterFunc(time.Second, func() { f.Heal(); f.Heal() })
			require.ErrorIs(t, c.Add(inTerm(t, 1), "w1", "a"), want, kind)
			require.Equal(t, time.Second, time.Since(start), kind)
			require.NoError(t, c.Remove(inTerm(t, 1), "w1", "a"))
			require.Equal(t, time.Second, time.Since(start), kind)
			<-time.After(time.Minute)
			synctest.Wait()
			require.Equal(t, kind == LateRequest, lists(t, c, 1), kind)
		})
	}
}

func TestStuckForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(newReference("").Communicator, always(Fault{Kind: Stuck}))
		time.AfterFunc(time.Hour, f.Close)
		start := time.Now()
		ctx := inTermFor(t, time.Second)
		require.ErrorIs(t, f.Communicator().Add(ctx, "w1", "a"), ErrInjected)
		require.Equal(t, time.Hour, time.Since(start))
	})
}

func TestCloseDropsWhatHasNotLanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(newReference("").Communicator, always(Fault{Kind: LateRequest, Late: time.Hour}))
		c := f.Communicator()
		ctx := inTermFor(t, time.Second)
		require.Error(t, c.Add(ctx, "w1", "a"))
		waits := make(chan error)
		go func() { waits <- c.Add(inTerm(t, 1), "w2", "a") }()
		synctest.Wait()
		f.Close()
		f.Close()
		require.ErrorIs(t, <-waits, ErrInjected)
		<-time.After(2 * time.Hour)
		require.False(t, lists(t, c, 1))
		require.NoError(t, c.Add(inTerm(t, 1), "w1", "a"))
	})
}

func TestCloseCancelsWhatIsLanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newReference("")
		release := cluster.Hold("w1")
		f := NewFaulty(cluster.Communicator, always(Fault{Kind: LateRequest}))
		ctx := inTermFor(t, time.Second)
		require.Error(t, f.Communicator().Add(ctx, "w1", "a"))
		synctest.Wait()
		f.Close() // would never return otherwise
		release()
	})
}

// TestTheKitSeesThroughFaults checks that the kit finds the faults that break C3.
func TestTheKitSeesThroughFaults(t *testing.T) {
	for _, kind := range []FaultKind{Stuck, LateAnswer} {
		found := map[string]*recorder{}
		for _, c := range checks[string, string]() {
			synctest.Test(t, func(t *testing.T) {
				cluster := newReference("")
				f := NewFaulty(cluster.Communicator, always(Fault{Kind: kind, Late: time.Hour}))
				defer f.Close()
				cluster.Communicator = f.Communicator()
				found[c.name()] = record(t.Context(), func(r tb) { c.run(r, cluster) })
			})
		}
		require.Contains(t, found["C3/ContextDoneBefore"].failure, "C3: ")
		require.Contains(t, found["C3/ContextDoneBefore/Apply"].failure, "C3: ")
	}
}

func TestFaultKindNames(t *testing.T) {
	require.Equal(t, "NoFault", NoFault.String())
	require.Equal(t, "Stuck", Stuck.String())
	require.Equal(t, "FaultKind(9)", faultKinds.String())
}
