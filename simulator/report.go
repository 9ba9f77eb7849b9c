package simulator

// The results of a run: its report and its violation.

import (
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Cause explains why a task was allowed to run on more workers than wanted.
type Cause string

// The causes of overlaps.
const (
	// UnfencedLost: a worker was declared lost or removed, and kept running.
	UnfencedLost Cause = "unfenced worker lost"
	// StartFirst: a move under orchestrator.StartThenStop.
	StartFirst Cause = "start then stop"
	// MovedSurplus: more copies than wanted ran already, and one of them moved. For
	// example, fewer instances were wanted than before, or a lost worker came back.
	MovedSurplus Cause = "surplus moved"
	// UnawareLeader: a deposed leader that did not yet know that it was deposed started the
	// task. It did so on a worker that did not know the successor either, in place
	// of a copy on a worker that had left.
	UnawareLeader Cause = "leader unaware of its deposition"
	// FalseList: a worker left the task out of its List.
	FalseList Cause = "false List"
)

// Report counts the events of one run, or of several after Add.
type Report struct {
	Runs, Leaders, Terms int
	// Calls counts List, Add and Remove. Each write of an Apply counts as a call.
	Calls int
	// Plans counts the calls of Plan. PlansCompared counts those after which all workers
	// answered the same, so that the next term could be compared.
	Plans, PlansCompared int
	// DryRuns counts the terms with orchestrator.WithDryRun.
	DryRuns int
	// Faults counts the faults by name: a communicatortest.FaultKind for a single
	// call, an [Event] for everything else.
	Faults map[string]int
	// Overlaps counts the starts of a task beyond the number wanted, by cause. What a crashed
	// worker ran counts until the worker has left or come back.
	Overlaps map[Cause]int
	// VirtualTime is the time that passed in the run.
	VirtualTime time.Duration
	// LongestTerm is the longest term, in communicator timeouts.
	LongestTerm float64
	// TermsToSettle is the largest number of terms that changed something after all
	// faults had ended. Terms are not counted in which a worker that could answer
	// was still to be listed, or a worker that had gone was not lost yet.
	TermsToSettle int
}

// Add adds the counts of another report.
func (r *Report) Add(other *Report) {
	if r.Faults == nil {
		r.Faults, r.Overlaps = make(map[string]int), make(map[Cause]int)
	}
	r.Runs, r.Leaders, r.Terms, r.Calls = r.Runs+other.Runs, r.Leaders+other.Leaders, r.Terms+other.Terms, r.Calls+other.Calls
	r.Plans, r.PlansCompared, r.DryRuns = r.Plans+other.Plans, r.PlansCompared+other.PlansCompared, r.DryRuns+other.DryRuns
	r.VirtualTime += other.VirtualTime
	r.LongestTerm, r.TermsToSettle = max(r.LongestTerm, other.LongestTerm), max(r.TermsToSettle, other.TermsToSettle)
	for name, n := range other.Faults {
		r.Faults[name] += n
	}
	for cause, n := range other.Overlaps {
		r.Overlaps[cause] += n
	}
}

// Invariant is a property that holds at every moment of every run.
type Invariant string

// The invariants, in the order of the documentation.
const (
	// Fenced: a worker that has seen a term accepts no write of an earlier one (C7).
	Fenced Invariant = "fenced"
	// Authorized: a task starts on a worker only by a write that the worker may
	// accept at that moment (C7, W4).
	Authorized Invariant = "authorized"
	// Exclusive: no task runs on more workers than wanted, unless there is a
	// [Cause]. A crashed worker that may come back with its tasks counts (T4, T8, W5).
	Exclusive Invariant = "exclusive"
	// Conservative: nothing is written to a worker that has not answered in the term, and nothing starts
	// in the initial wait (T3, T4).
	Conservative Invariant = "conservative"
	// LossAccurate: no worker is declared lost within its grace period or during a
	// mass loss. A worker that has ended is lost in the end (T4, T5).
	LossAccurate Invariant = "loss accurate"
	// Kept: a wanted copy stops only if enough answering ones remain, or for a move that then
	// starts it on one of its two workers (P4, T8).
	Kept Invariant = "kept"
	// Planned: every write belongs to a change of the term's plan (P7).
	Planned Invariant = "planned"
	// Predicted: Plan writes nothing, its calls carry no term, and it changes nothing
	// visible. If all workers answer as before, the next term does what Plan
	// returned. A dry run writes nothing either (T13).
	Predicted Invariant = "predicted"
	// Ruled: no start breaks Requires, MaxPerZone or MaxTasks, counting the copies that its
	// leader knows (P10).
	Ruled Invariant = "ruled"
	// ListingBounded: if half of the workers answer soon, all of which were in time in the
	// previous term, a listing takes at most four times as long, or a tenth of the timeout (T3).
	ListingBounded Invariant = "listing bounded"
	// Bounded: a term ends within five communicator timeouts, and its listing within one (T3).
	Bounded Invariant = "bounded"
	// Live: while faults last, healthy tasks run, healthy workers drain and become
	// even, and then few healthy tasks move (T9).
	Live Invariant = "live"
	// Converged: once nothing fails, all wanted tasks run, evenly, and nothing
	// changes (P1, P2, P6).
	Converged Invariant = "converged"
	// Terminated: no goroutine is left after the run.
	Terminated Invariant = "terminated"
)

// Violation is the error of a run in which an invariant was broken. The first
// violation ends the run.
type Violation struct {
	Seed uint64
	// At is the virtual time since the run began.
	At time.Duration
	// Leader counts from 1 in the order of election; 0 means that no leader caused
	// the violation. Term is the term concerned, or the zero Term.
	Leader int
	Term   orchestrator.Term
	// Invariant is the broken invariant, and Text says what happened instead.
	Invariant Invariant
	Text      string
}

// Error describes the violation in one line.
func (v *Violation) Error() string {
	who := ""
	if v.Leader > 0 {
		who = fmt.Sprintf(", leader %d, term %d", v.Leader, v.Term.Number)
	}
	return fmt.Sprintf("seed %d, after %v%s: invariant %q violated: %s", v.Seed, v.At, who, v.Invariant, v.Text)
}
