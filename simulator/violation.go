package simulator

// What a run returns when something happened that must never happen.

import (
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
)

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
	// that there is to see, and says what a term then does if nobody says anything
	// else meanwhile.
	Foreseen Invariant = "foreseen"
	// Prompt: Run begins a term soon after each change, also after one during a term,
	// and returns why it has ended.
	Prompt Invariant = "prompt"
	// Budgeted: a plan has no more moves than the budget allows.
	Budgeted Invariant = "budgeted"
	// Ordered: the second half of a move follows the acknowledged first, what was
	// stopped and cannot be started is given back, and nothing new begins on a
	// worker after a timeout.
	Ordered Invariant = "ordered"
	// Proven: a worker has one move to it under way for each start that it has
	// acknowledged in the term, and one; and none once it has failed one without
	// having acknowledged any.
	Proven Invariant = "proven"
	// Avoided: a start that has failed is not tried again before its backoff is over,
	// which doubles; a worker that is to blame gets nothing, and then one task; and
	// no other worker is.
	Avoided Invariant = "avoided"
	// Patient: a listing waits for the workers that answered the term before and
	// for new ones, and for no others.
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
	// Cancelled: a leader whose context has ended begins nothing any more, and
	// writes nothing at all where it had not begun to, or is deposed.
	Cancelled Invariant = "cancelled"
	// Converged: once nothing fails any more, everything wanted runs, evenly,
	// and nothing changes any more.
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
	// was nobody's doing. Term is the term concerned, or the zero Term.
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
