package simulator

// What a run tells about itself.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Cause is why a task ran on more workers than it wanted, where that may be.
type Cause string

// The causes of overlaps.
const (
	// UnfencedLost: a worker counted as lost, or was removed, and went on.
	UnfencedLost Cause = "unfenced worker lost"
	// StartFirst: a move under orchestrator.StartThenStop.
	StartFirst Cause = "start then stop"
	// MovedSurplus: there were more than wanted already, such as after fewer
	// instances were wanted or a lost worker was back, and one of them moved.
	MovedSurplus Cause = "surplus moved"
	// SurplusAgain: a worker that has crashed runs again what it ran, and there
	// were too many already.
	SurplusAgain Cause = "surplus again"
	// Untold: a leader that was deposed, and did not know that yet, started it on a
	// worker that had not heard of its successor either, in the place of a copy whose
	// worker had left.
	Untold Cause = "deposed leader not told"
	// LiedTo: a worker left the task out of its List, or put it in.
	LiedTo Cause = "lie in List"
)

// Report counts what happened in a run, or, after Add, in several.
type Report struct {
	Runs, Leaders, Terms int
	// Calls counts List, Add and Remove, each write of an Apply on its own.
	Calls int
	// Plans counts the calls of Plan, and PlansKept those whose workers said the
	// same again in the term that followed.
	Plans, PlansKept int
	// Rehearsals counts the terms with orchestrator.WithDryRun.
	Rehearsals int
	// Faults counts what went wrong, by its name: a communicatortest.FaultKind
	// for a single call, a [Trouble] for everything else.
	Faults map[string]int
	// Refused counts the writes that workers refused because of their fence.
	Refused int
	// Overlaps counts the starts of a task beyond what it wanted, by cause.
	Overlaps map[Cause]int
	// Virtual is the time that passed in the run.
	Virtual time.Duration
	// Longest is the longest term, in communicator timeouts.
	Longest float64
	// Settling is the largest number of terms that changed something after
	// everything was over. Not counted are the terms in which a worker that could
	// answer was still to be asked, one that was gone was not lost yet, something was
	// avoided still because it had failed before, or a worker was tried out again.
	Settling int
	// While faults last: the most terms until what is healthy had converged, and
	// those for which a healthy task was missing; then, in 30 terms, how many were
	// long, and how many healthy instances moved; and how many stopped in an outage
	// of all starts.
	Enduring, Starting, Long, Churn, Outage int
}

func newReport() *Report {
	return &Report{Faults: make(map[string]int), Overlaps: make(map[Cause]int)}
}

// Add adds what another report counts.
func (r *Report) Add(other *Report) {
	if r.Faults == nil {
		r.Faults, r.Overlaps = make(map[string]int), make(map[Cause]int)
	}
	r.Runs += other.Runs
	r.Leaders += other.Leaders
	r.Terms += other.Terms
	r.Calls += other.Calls
	r.Plans += other.Plans
	r.PlansKept += other.PlansKept
	r.Rehearsals += other.Rehearsals
	r.Refused += other.Refused
	r.Virtual += other.Virtual
	r.Longest = max(r.Longest, other.Longest)
	r.Settling = max(r.Settling, other.Settling)
	r.Enduring, r.Starting = max(r.Enduring, other.Enduring), max(r.Starting, other.Starting)
	r.Long, r.Churn, r.Outage = max(r.Long, other.Long), max(r.Churn, other.Churn), max(r.Outage, other.Outage)
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
	line("plans, and kept to", fmt.Sprintf("%d, %d", r.Plans, r.PlansKept))
	line("virtual time", r.Virtual.Round(time.Second))
	line("longest term, in timeouts", fmt.Sprintf("%.3f", r.Longest))
	line("most terms to settle", r.Settling)
	line("while faults last: converged", r.Enduring)
	line("  terms missing", r.Starting)
	line("  long terms", r.Long)
	line("  healthy moves", r.Churn)
	line("  stopped in an outage", r.Outage)
	line("writes refused by a fence", r.Refused)
	for _, cause := range slices.Sorted(maps.Keys(r.Overlaps)) {
		line("overlap: "+string(cause), r.Overlaps[cause])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		line("fault: "+name, r.Faults[name])
	}
	return b.String()
}

// Invariant is something that holds at every moment of every run.
type Invariant string

// The invariants, in the order in which the documentation lists them.
const (
	// Fenced: a worker that has seen a term accepts no write of an earlier one.
	Fenced Invariant = "fenced"
	// Caused: a task starts on a worker only by a write that the worker may
	// accept at that moment.
	Caused Invariant = "caused"
	// NeverTwice: no task runs on more workers than it wants, but for the
	// reasons that are counted as a [Cause].
	NeverTwice Invariant = "never twice"
	// Held: nothing that a silent or never heard worker may hold is started
	// elsewhere.
	Held Invariant = "held"
	// Lost: no worker is lost before its time, nor during a mass loss, and each
	// is when its time has come and it was asked.
	Lost Invariant = "lost"
	// Trimmed: trimming leaves a task as many answering copies as are wanted.
	Trimmed Invariant = "trimmed"
	// Planned: every write belongs to a change of the term's plan, and by the plan
	// no more of a task answer in the end than are wanted.
	Planned Invariant = "planned"
	// Reasoned: every change has a reason that is true, and of every instance that
	// has no place, or not the one that it should, the plan says why.
	Reasoned Invariant = "reasoned"
	// Foreseen: Plan writes nothing, carries the identity of no term, changes nothing
	// that can be seen, and says what the next term does if all workers answer as
	// before.
	Foreseen Invariant = "foreseen"
	// Prompt: Run begins a term soon after each change, also after one during a term,
	// and returns why it has ended.
	Prompt Invariant = "prompt"
	// Budgeted: a plan has no more moves than the budget allows.
	Budgeted Invariant = "budgeted"
	// Ordered: the second half of a move follows the acknowledged first, what was
	// stopped and cannot be started is given back, nothing new begins on a worker
	// after a timeout, and one move alone on a worker that has not acknowledged any
	// start in the term.
	Ordered Invariant = "ordered"
	// Paused: what failed is left alone for a while, in all plans; a worker is
	// quarantined only if it failed to start tasks that have started elsewhere; and
	// after a move that left its task stopped nothing healthy moves.
	Paused Invariant = "paused"
	// Patient: a listing waits for the workers that answered in time the term before
	// and for new ones, and not long for the slowest of these.
	Patient Invariant = "patient"
	// Told: the error of a term names each call that has failed, and no other.
	Told Invariant = "told"
	// Said: LastActual holds exactly what workers have said and acknowledged.
	Said Invariant = "said"
	// Bounded: a term ends after five communicator timeouts, and has no more
	// calls in flight than it may, nor more goroutines than these need.
	Bounded Invariant = "bounded"
	// Deposed: a leader that is told of a higher epoch ends its term at once.
	Deposed Invariant = "deposed"
	// Cancelled: a leader whose context has ended begins nothing more, and
	// writes nothing at all where it had not begun to, or is deposed.
	Cancelled Invariant = "cancelled"
	// Live: while faults last, what is healthy runs, drains and gets even, and is
	// left alone.
	Live Invariant = "live"
	// Converged: once nothing fails, everything wanted runs, evenly, and nothing
	// changes.
	Converged Invariant = "converged"
	// Wrapped: the layer of Settings.Wrap returns from every call.
	Wrapped Invariant = "wrapped"
	// Ended: once all is over no goroutine is left.
	Ended Invariant = "ended"
)

// Violation is the error of a run in which an invariant did not hold: the first
// one, at which the run was ended.
type Violation struct {
	Seed uint64
	// At is the virtual time since the run began.
	At time.Duration
	// Leader counts from 1, in the order in which they were elected; 0 where it
	// was no leader's doing. Term is the term concerned, or the zero Term.
	Leader int
	Term   orchestrator.Term
	// Invariant is what did not hold, and Text what happened instead.
	Invariant Invariant
	Text      string
}

// Error names everything that the fields hold.
func (v *Violation) Error() string {
	who := ""
	if v.Leader > 0 {
		who = fmt.Sprintf(", leader %d, term %d", v.Leader, v.Term.Number)
	}
	return fmt.Sprintf("seed %d, after %v%s: not %s: %s", v.Seed, v.At, who, v.Invariant, v.Text)
}
