package communicatortest

// Tests of Run and Checks: the clusters that the kit accepts, skips and refuses, and
// deliberate bugs of the reference, each of which the kit finds and gives its clause.

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a tb that records how a check ended.
type recorder struct {
	ctx              context.Context
	cleanups         []func()
	failure, skipped string
}

// record makes a check in a separate goroutine, because a failing check ends its
// goroutine.
func record(ctx context.Context, check func(t tb)) *recorder {
	ctx, cancel := context.WithCancel(ctx)
	r := &recorder{ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			cancel()
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		check(r)
	}()
	<-done
	return r
}

func (r *recorder) Helper() {}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// outcomes makes every check on its own cluster, each in a bubble, and returns how
// each ended, by name.
func outcomes(t *testing.T, factory func(*testing.T) Cluster[string, string]) map[string]*recorder {
	t.Helper()
	all := make(map[string]*recorder)
	for _, c := range checks[string, string]() {
		synctest.Test(t, func(t *testing.T) {
			all[c.name()] = record(t.Context(), func(r tb) { c.run(r, factory(t)) })
		})
	}
	return all
}

func TestRunOnTheWallClock(t *testing.T) {
	Run(t, func(*testing.T) Cluster[string, string] {
		c := newReference("")
		c.Timeout = time.Second
		return c
	})
}

func TestChecksInBubbles(t *testing.T) {
	for name, check := range Checks(func(*testing.T) Cluster[string, string] { return newReference("") }) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, check) })
	}
}

func TestChecksCanBeLeftEarly(*testing.T) {
	for range Checks(func(*testing.T) Cluster[string, string] { return newReference("") }) {
		break
	}
}

func TestEveryClauseIsChecked(t *testing.T) {
	seen := map[string]bool{}
	names := map[string]bool{}
	for _, c := range checks[string, string]() {
		seen[c.clause] = true
		require.False(t, names[c.name()], "two checks are named %s", c.name())
		names[c.name()] = true
	}
	for _, clause := range []string{"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9"} {
		require.True(t, seen[clause], clause)
	}
}

func TestAcceptsWhatIsCorrect(t *testing.T) {
	for _, how := range []bug{"", stopsSlowly, holdsLists} {
		for name, r := range outcomes(t, func(*testing.T) Cluster[string, string] { return newReference(how) }) {
			require.Empty(t, r.failure, name)
			require.Empty(t, r.skipped, name)
		}
	}
}

func TestSkipsWhatItCannotCheck(t *testing.T) {
	want := map[string]string{
		"C1/OneWorkerHeld": "Hold", "C1/OneWorkerCut": "Cut",
		"C3/WhileHeld": "Hold", "C3/WhileCut": "Cut", "C3/WhileStopping": "Linger",
		"C6/RefusedIsNotDone": "Refuse", "C6/HeldIsNotRejected": "Hold", "C6/UnknownWorkers": "UnknownWorkers",
		"C7/DelayedPastList": "Hold", "C7/RemoveWaits": "Linger", "C7/Successor": "Restart",
		"C8/Pinned": "Pin", "C8/LostPins": "Pin",
		"C9/CutIsHeld": "Cut",
	}
	found := outcomes(t, func(*testing.T) Cluster[string, string] {
		c := newReference("")
		return Cluster[string, string]{
			Communicator: struct {
				orchestrator.Communicator[string, string]
			}{c.Communicator},
			Workers: c.Workers,
			Tasks:   c.Tasks,
		}
	})
	for name, r := range found {
		require.Empty(t, r.failure, name)
		switch {
		case strings.HasSuffix(name, "/Apply"):
			require.Contains(t, r.skipped, "not an Applier", name)
		case want[name] != "":
			require.Contains(t, r.skipped, "Cluster."+want[name], name)
		default:
			require.Empty(t, r.skipped, name)
		}
	}
}

func TestRefusesAClusterThatCannotBeChecked(t *testing.T) {
	found := outcomes(t, func(*testing.T) Cluster[string, string] {
		return Cluster[string, string]{
			Workers:        []string{"w1", "w2", "w2"},
			Tasks:          []string{"a", "b"},
			UnknownWorkers: []string{"w1"},
			Timeout:        -1,
		}
	})
	for _, r := range found {
		for _, field := range []string{"Communicator", "Workers", "Tasks", "UnknownWorkers", "Timeout"} {
			require.Contains(t, r.failure, "Cluster."+field)
		}
	}
}

func TestRefusesAClusterThatRunsSomething(t *testing.T) {
	found := outcomes(t, func(t *testing.T) Cluster[string, string] {
		c := newReference("")
		require.NoError(t, c.Communicator.Add(t.Context(), "w2", "a"))
		return c
	})
	for name, r := range found {
		require.Contains(t, r.failure, "a fresh cluster runs nothing", name)
	}
}

// TestBoundsAnApplyThatNeverReturns covers calls with several writes.
func TestBoundsAnApplyThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		c := newReference("")
		inner := c.Communicator
		c.Communicator = struct {
			orchestrator.Communicator[string, string]
			orchestrator.Applier[string, string]
		}{inner, endless(end)}
		for _, check := range checks[string, string]() {
			if check.name() == "C5/SeveralWrites/Apply" {
				r := record(t.Context(), func(r tb) { check.run(r, c) })
				require.Contains(t, r.failure, errEndless.Error())
			}
		}
	})
}

// endless is an Applier that does not answer before it is closed.
type endless chan struct{}

func (e endless) Apply(context.Context, string, []orchestrator.Write[string]) []error {
	<-e
	return nil
}

// bug is a defect of a reference.
type bug string

// stopsSlowly is not a bug: Remove answers with ErrStopping until the task has
// stopped.
const stopsSlowly bug = "stops slowly"

// holdsLists is not a bug: List of a worker that is cut off calls Held.
const holdsLists bug = "holds lists"

const (
	oneLockForAll        bug = "C1: one lock for all workers"
	listSharesItsSlice   bug = "C2: List returns the slice that later writes change"
	ignoresContext       bug = "C3: a write waits for its answer after its context has ended"
	listIgnoresCut       bug = "C3: List waits for a worker that is cut off"
	addTwiceFails        bug = "C4: adding a running task fails"
	addTwiceListsTwice   bug = "C4: adding a running task adds it again"
	removeTwiceFails     bug = "C4: removing a task that does not run fails"
	addAnswersEarly      bug = "C5: Add returns before the task is in List"
	removeAnswersEarly   bug = "C5: Remove returns before the task has stopped"
	writesAgain          bug = "C5: each write is made again later"
	removesLingering     bug = "C5: Remove returns before a task that is slow has stopped"
	forgetsSecondWrite   bug = "C5: Apply does only the first write"
	refusesYetAdds       bug = "C6: a refused task is added"
	refusalIsUnknown     bug = "C6: a refusal is reported as a failure"
	staleYetDone         bug = "C6: a stale write is refused and done"
	timeoutIsRejection   bug = "C6: a write that timed out counts as rejected"
	errorsAreEmpty       bug = "C6: every error of List is an empty list"
	strangersAreEmpty    bug = "C6: a worker that does not exist runs nothing"
	strangersAreAddedTo  bug = "C6: a write to a worker that does not exist succeeds"
	answersReversed      bug = "C6: Apply answers in another order"
	fenceOnArrival       bug = "C7: a write is fenced when it arrives, not when it is applied"
	noFence              bug = "C7: no write is fenced"
	acceptsNoTerm        bug = "C7: writes without a term are accepted"
	noTermIsDeposed      bug = "C7: writes without a term are answered with ErrDeposed"
	lowerEpochIsStale    bug = "C7: a lower epoch is answered with ErrStale"
	lowerNumberIsDeposed bug = "C7: a lower number is answered with ErrDeposed"
	lowerNumberIsPlain   bug = "C7: a lower number is answered with ErrRejected alone"
	comparesNumberFirst  bug = "C7: terms are ordered by number first"
	listDoesNotFence     bug = "C7: List does not raise the fence"
	writesDoNotFence     bug = "C7: writes do not raise the fence"
	lastTermWins         bug = "C7: a List of the past lowers the fence"
	equalIsRefused       bug = "C7: a second write of the same term is refused"
	noTermListRefused    bug = "C7: a List without a term is refused"
	noTermListResets     bug = "C7: a List without a term lowers the fence"
	removeOutlivesLeader bug = "C7: a Remove that waited for the stop returns nil after a call of a higher epoch"
	fencesFirstOnly      bug = "C7: Apply fences only its first write"
	callsReachSuccessor  bug = "C7: calls for a process reach its successor"
	heldReachSuccessor   bug = "C7: a write that is held back reaches the successor"
	pinsAreLost          bug = "C8: pins are lost"
	pinsAreFirst         bug = "C8: the tasks to pin are first"
	pinsAll              bug = "C8: every task is pinned"
	pinsInVain           bug = "C8: a worker whose List cannot pin stops what it pins"
	alwaysHeld           bug = "C9: every list is held"
	cutListsLast         bug = "C9: a list that is not held lacks a start that arrives later"
	cutListsNothing      bug = "C9: List of a worker that is cut off is empty"
	heldIsEmpty          bug = "C9: a held list is empty"
	heldForgetsSent      bug = "C9: a held list lacks a start that was sent"
	applyShort           bug = "C5: Apply answers with too few errors"
	applyChangesWrites   bug = "C5: Apply changes its argument"
)

// TestFindsWhatIsBroken expects the checks named to find each bug and to name the
// broken clause. The variants through Apply must find it too, where they exist.
func TestFindsWhatIsBroken(t *testing.T) {
	finds := map[bug][]string{
		oneLockForAll:        {"C1/OneWorkerHeld", "C1/OneWorkerCut"},
		listSharesItsSlice:   {"C2/Snapshots"},
		ignoresContext:       {"C3/WhileHeld", "C3/WhileCut"},
		listIgnoresCut:       {"C3/WhileCut"},
		addTwiceFails:        {"C4/Idempotent"},
		addTwiceListsTwice:   {"C4/Idempotent"},
		removeTwiceFails:     {"C4/Idempotent"},
		addAnswersEarly:      {"C5/DoneMeansListed", "C5/SeveralWrites/Apply"},
		removeAnswersEarly:   {"C5/DoneMeansListed", "C5/SeveralWrites/Apply"},
		forgetsSecondWrite:   {"C5/SeveralWrites/Apply", "C6/MixedAnswers/Apply"},
		applyShort:           {"C5/SeveralWrites/Apply"},
		applyChangesWrites:   {"C5/SeveralWrites/Apply"},
		refusesYetAdds:       {"C6/RefusedIsNotDone", "C6/MixedAnswers/Apply"},
		refusalIsUnknown:     {"C6/RefusedIsNotDone", "C6/MixedAnswers/Apply"},
		staleYetDone:         {"C6/StaleIsNotDone", "C7/LowerNumber", "C7/LowerEpoch", "C7/DelayedPastList"},
		timeoutIsRejection:   {"C6/HeldIsNotRejected"},
		errorsAreEmpty:       {"C6/ErrorIsNotEmpty"},
		writesAgain:          {"C5/NotRepeated"},
		removesLingering:     {"C7/RemoveWaits"},
		callsReachSuccessor:  {"C7/Successor"},
		heldReachSuccessor:   {"C7/Successor"},
		pinsAreLost:          {"C8/Pinned", "C8/LostPins"},
		pinsAreFirst:         {"C8/Pinned"},
		pinsAll:              {"C8/Pinned"},
		pinsInVain:           {"C8/LostPins"},
		strangersAreEmpty:    {"C6/UnknownWorkers"},
		strangersAreAddedTo:  {"C6/UnknownWorkers"},
		answersReversed:      {"C6/MixedAnswers/Apply"},
		fenceOnArrival:       {"C7/DelayedPastList"},
		noFence:              {"C7/LowerEpoch", "C7/LowerNumber", "C7/WritesFence", "C7/WriteWithoutTerm", "C7/DelayedPastList", "C7/EachWriteFenced/Apply"},
		acceptsNoTerm:        {"C7/WriteWithoutTerm", "C7/EachWriteFenced/Apply"},
		noTermIsDeposed:      {"C7/WriteWithoutTerm"},
		lowerEpochIsStale:    {"C7/LowerEpoch", "C7/WritesFence", "C7/EachWriteFenced/Apply"},
		lowerNumberIsDeposed: {"C7/LowerNumber", "C7/WritesFence", "C7/EachWriteFenced/Apply"},
		lowerNumberIsPlain:   {"C7/LowerNumber"},
		comparesNumberFirst:  {"C7/LowerEpoch", "C7/EqualTerm"},
		listDoesNotFence:     {"C7/LowerEpoch", "C7/LowerNumber", "C7/DelayedPastList"},
		writesDoNotFence:     {"C7/WritesFence"},
		lastTermWins:         {"C7/LowerEpoch", "C7/LowerNumber"},
		equalIsRefused:       {"C7/EqualTerm"},
		noTermListRefused:    {"C7/ListWithoutTerm"},
		noTermListResets:     {"C7/ListWithoutTerm"},
		removeOutlivesLeader: {"C7/RemoveWaits"},
		fencesFirstOnly:      {"C7/EachWriteFenced/Apply"},
		alwaysHeld:           {"C9/CutIsHeld"},
		cutListsLast:         {"C9/CutIsHeld"},
		cutListsNothing:      {"C9/CutIsHeld"},
		heldIsEmpty:          {"C9/CutIsHeld"},
		heldForgetsSent:      {"C9/CutIsHeld"},
	}
	for broken, names := range finds {
		t.Run(string(broken), func(t *testing.T) {
			found := outcomes(t, func(*testing.T) Cluster[string, string] { return newReference(broken) })
			for _, name := range names {
				for _, name := range []string{name, strings.TrimSuffix(name, "/Apply") + "/Apply"} {
					failure := found[name].failure
					require.NotEmpty(t, failure, "%s found nothing", name)
					require.Regexp(t, "^"+regexp.QuoteMeta(name[:2])+": ", failure)
					t.Logf("%s: %s", name, failure)
				}
			}
		})
	}
}
