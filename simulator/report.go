package simulator

// The results of a run: its report and its violation.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// SurplusRestarted: a restarted worker runs its tasks again, and more copies than
	// wanted ran already.
	SurplusRestarted Cause = "surplus restarted"
	// UnawareLeader: a deposed leader that did not yet know that it was deposed started the
	// task. It did so on a worker that did not know the successor either, in place
	// of a copy on a worker that had left.
	UnawareLeader Cause = "leader unaware of its deposition"
	// FalseList: a worker left the task out of its List, or added it.
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
	// Evictions counts the moves that a rule of placement requires, EvictionsHeld the copies
	// that stayed because too many would move, by term, and CausesChecked the entries with
	// causes of what has no place.
	Evictions, EvictionsHeld, CausesChecked int
	// Faults counts the faults by name: a communicatortest.FaultKind for a single
	// call, an [Event] for everything else.
	Faults map[string]int
	// Refused counts the writes that workers refused because of their fence.
	Refused int
	// Overlaps counts the starts of a task beyond the number wanted, by cause.
	Overlaps map[Cause]int
	// VirtualTime is the time that passed in the run.
	VirtualTime time.Duration
	// LongestTerm is the longest term, in communicator timeouts.
	LongestTerm float64
	// TermsToSettle is the largest number of terms that changed something after all
	// faults had ended. Terms are not counted in which a worker that could answer
	// was still to be listed, a worker that had gone was not lost yet, or a pause
	// lasted.
	TermsToSettle int
	// While faults last, TermsToConverge is the largest number of terms until the
	// healthy part converged, and TermsMissing the largest number for which a healthy
	// task was missing. In the 30 terms after that, LongTerms is the largest number of
	// long terms, and Churn that of healthy instances that moved. OutageStops is the
	// largest number of instances that stopped in an outage of all starts.
	TermsToConverge, TermsMissing, LongTerms, Churn, OutageStops int
}

func newReport() *Report {
	return &Report{Faults: make(map[string]int), Overlaps: make(map[Cause]int)}
}

// Add adds the counts of another report.
func (r *Report) Add(other *Report) {
	if r.Faults == nil {
		r.Faults, r.Overlaps = make(map[string]int), make(map[Cause]int)
	}
	r.Runs += other.Runs
	r.Leaders += other.Leaders
	r.Terms += other.Terms
	r.Calls += other.Calls
	r.Plans += other.Plans
	r.PlansCompared += other.PlansCompared
	r.DryRuns += other.DryRuns
	r.Refused += other.Refused
	r.Evictions += other.Evictions
	r.EvictionsHeld += other.EvictionsHeld
	r.CausesChecked += other.CausesChecked
	r.VirtualTime += other.VirtualTime
	r.LongestTerm = max(r.LongestTerm, other.LongestTerm)
	r.TermsToSettle = max(r.TermsToSettle, other.TermsToSettle)
	r.TermsToConverge, r.TermsMissing = max(r.TermsToConverge, other.TermsToConverge), max(r.TermsMissing, other.TermsMissing)
	r.LongTerms, r.Churn, r.OutageStops = max(r.LongTerms, other.LongTerms), max(r.Churn, other.Churn), max(r.OutageStops, other.OutageStops)
	for name, n := range other.Faults {
		r.Faults[name] += n
	}
	for cause, n := range other.Overlaps {
		r.Overlaps[cause] += n
	}
}

// String returns a table for people.
func (r *Report) String() string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%-28s %v\n", name, value) }
	line("schedules", r.Runs)
	line("leaders", r.Leaders)
	line("terms", r.Terms)
	line("calls", r.Calls)
	line("plans, and compared", fmt.Sprintf("%d, %d", r.Plans, r.PlansCompared))
	line("virtual time", r.VirtualTime.Round(time.Second))
	line("longest term, in timeouts", fmt.Sprintf("%.3f", r.LongestTerm))
	line("most terms to settle", r.TermsToSettle)
	line("while faults last: converged", r.TermsToConverge)
	line("  terms missing", r.TermsMissing)
	line("  long terms", r.LongTerms)
	line("  healthy moves", r.Churn)
	line("  stopped in an outage", r.OutageStops)
	line("writes refused by a fence", r.Refused)
	line("evictions, and held", fmt.Sprintf("%d, %d", r.Evictions, r.EvictionsHeld))
	line("causes of no place", r.CausesChecked)
	for _, cause := range slices.Sorted(maps.Keys(r.Overlaps)) {
		line("overlap: "+string(cause), r.Overlaps[cause])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		line("fault: "+name, r.Faults[name])
	}
	return b.String()
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
	// [Cause] (T4, T8, W5).
	Exclusive Invariant = "exclusive"
	// Conservative: no task is started elsewhere that a worker may run which is
	// silent or has never answered (T4).
	Conservative Invariant = "conservative"
	// LossAccurate: no worker is declared lost within its grace period or during a
	// mass loss. Each silent worker is declared lost when its grace period has ended
	// and a List call to it has failed (T4, T5).
	LossAccurate Invariant = "loss accurate"
	// Trimmed: after surplus copies are stopped, as many answering copies remain as
	// are wanted (P4).
	Trimmed Invariant = "trimmed"
	// Planned: every write belongs to a change of the term's plan, and the plan
	// leaves no more answering copies of a task than are wanted (P1).
	Planned Invariant = "planned"
	// Explained: every change has its true reason. The plan gives the reason for
	// every instance that has no place, or waits for another one (P7).
	Explained Invariant = "explained"
	// Predicted: Plan writes nothing, its calls carry no term, and it changes nothing
	// visible. If all workers answer as before, the next term does what Plan
	// returned. A dry run writes nothing either (T13).
	Predicted Invariant = "predicted"
	// Prompt: Run begins a term soon after each change, including a change during a
	// term, and returns the cause of its end (T14).
	Prompt Invariant = "prompt"
	// Ruled: no start breaks Requires, MaxPerZone or MaxTasks, counting what silent workers
	// may run and what failed to stop. Labels that would evict too much evict nothing for
	// five minutes (P10, P11).
	Ruled Invariant = "ruled"
	// Budgeted: a plan has no more moves than the budget allows (T10).
	Budgeted Invariant = "budgeted"
	// Ordered: the second half of a move follows the acknowledged first. A task that
	// was stopped and cannot be started is given back. No change begins on a worker
	// after a write to it timed out. A worker that has acknowledged no start in the
	// term gets one move at a time (T7, T8).
	Ordered Invariant = "ordered"
	// Paused: after a failed start, plans leave its task and its worker alone until
	// their pauses end. A worker is quarantined only if it failed to start tasks that
	// have started elsewhere. After a move that left its task stopped, no healthy
	// task moves (T9).
	Paused Invariant = "paused"
	// ListingBounded: a listing waits for new workers and for those that answered in
	// time in the previous term, but at most four times as long as half of them
	// take, or a tenth of the timeout (T2, T3).
	ListingBounded Invariant = "listing bounded"
	// Reported: the error of a term names each failed call, and no other (T11).
	Reported Invariant = "reported"
	// Recorded: LastActual holds exactly what workers have listed and acknowledged (T12).
	Recorded Invariant = "recorded"
	// Bounded: a term ends within five communicator timeouts. It has no more calls
	// in flight than allowed, and no more goroutines than these need (T2, T3).
	Bounded Invariant = "bounded"
	// Deposed: a leader that learns of a higher epoch ends its term immediately (C6).
	Deposed Invariant = "deposed"
	// Cancelled: a leader whose context has ended begins no change. It writes
	// nothing at all if it had not begun to write, or is deposed (T6).
	Cancelled Invariant = "cancelled"
	// Live: while faults last, healthy tasks run, healthy workers drain and become
	// even, and then few healthy tasks move (T9).
	Live Invariant = "live"
	// Converged: once nothing fails, all wanted tasks run, evenly, and nothing
	// changes (P1, P2, P6).
	Converged Invariant = "converged"
	// LayerReturns: the layer of Settings.Wrap returns from every call.
	LayerReturns Invariant = "layer returns"
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
