package communicatortest

// Deliberate bugs of the reference, and the proof that the kit finds each and names
// the clause that it breaks.

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bug is a defect of a reference.
type bug string

// stopsSlowly is not a bug: Remove answers with ErrStopping until the task has
// stopped.
const stopsSlowly bug = "stops slowly"

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
	forgetsSecondWrite   bug = "C5: Apply does only the first write"
	refusesYetAdds       bug = "C6: a refused task is added"
	refusalIsUnknown     bug = "C6: a refusal is reported as a failure"
	staleYetDone         bug = "C6: a stale write is refused and done"
	timeoutIsRejection   bug = "C6: a write that timed out counts as rejected"
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
		strangersAreEmpty:    {"C6/Strangers"},
		strangersAreAddedTo:  {"C6/Strangers"},
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
