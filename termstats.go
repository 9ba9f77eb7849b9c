package orchestrator

import (
	"encoding/json"
	"time"
)

// TermStats says about one term what a dashboard needs to know. [WithStats]
// hands it over at the end of each term, and [Plan] carries it. It is a value:
// the receiver may keep it.
type TermStats struct {
	// Term is the identity of the term. For [Orchestrator.Plan] it is that of the
	// next term.
	Term Term `json:"term"`
	// Start is when the term began.
	Start time.Time `json:"start"`
	// Listing, Planning and Writing are how long each phase took, and Total
	// the whole term. A phase that was not reached took zero.
	Listing  time.Duration `json:"listing_ns"`
	Planning time.Duration `json:"planning_ns"`
	Writing  time.Duration `json:"writing_ns"`
	Total    time.Duration `json:"total_ns"`

	Workers   WorkerStats   `json:"workers"`
	Instances InstanceStats `json:"instances"`

	// Changes counts what the term planned: every start, stop and move, by
	// reason, whether it was carried out or not. It holds no zeros, and is nil
	// in a quiet term.
	Changes map[ChangeKind]int `json:"changes,omitempty"`
	// Outcomes counts the same by what came of them. It holds no zeros either.
	Outcomes map[Outcome]int `json:"outcomes,omitempty"`
	// Deferred counts the moves left to later terms, by [WithMaxMoves] or because all
	// moves pause.
	Deferred int `json:"deferred"`
	// Adds is the number of starts planned, those that are part of a move
	// included. LowerBound is what any plan to the same end would have needed
	// at least (P8).
	Adds       int `json:"adds"`
	LowerBound int `json:"lower_bound"`
	// Spread is the difference between the largest and the smallest number of
	// tasks on an open worker when the term was over.
	Spread int `json:"spread"`

	// List, Add and Remove count the calls by their result, and say how long
	// they took. A write that travelled in an Apply is counted under Add or
	// Remove; Apply counts the calls that carried them.
	List   CallStats `json:"list"`
	Add    CallStats `json:"add"`
	Remove CallStats `json:"remove"`
	Apply  CallStats `json:"apply"`

	// MassLoss says that too many workers were silent at once, or had been within a
	// timeout before, which keeps them from becoming lost; see [WithMaxLoss].
	MassLoss bool `json:"mass_loss"`
	// Cut says that the term ended before it had done what it could: its
	// context was done, or its leader is deposed.
	Cut bool `json:"cut"`
	// Err is what NextTerm returned.
	Err error `json:"-"`
}

// MarshalJSON writes Err as its text under "err", absent where it is nil.
func (s TermStats) MarshalJSON() ([]byte, error) {
	type plain TermStats
	return json.Marshal(struct {
		plain
		Err string `json:"err,omitempty"`
	}{plain(s), errText(s.Err)})
}

// WorkerStats counts the workers of a term. Answering, Silent and Lost add up
// to all of them.
type WorkerStats struct {
	Answering int `json:"answering"`
	Silent    int `json:"silent"`
	Lost      int `json:"lost"`
	// Draining counts those asked to end empty, whatever their state.
	Draining int `json:"draining"`
	// Late counts those among the answering that had not answered when the term
	// went on.
	Late int `json:"late"`
	// Quarantined counts those that get no tasks because they failed to start some.
	Quarantined int `json:"quarantined"`
	// Stuck counts those with a call that has outlived its deadline and not
	// returned. They get no further call until it does.
	Stuck int `json:"stuck"`
}

// InstanceStats counts instances of tasks. A term that ended before it could
// plan has those of the term before; where there was none, all is missing.
type InstanceStats struct {
	// Wanted is the sum of the expected tasks' instances.
	Wanted int `json:"wanted"`
	// Running counts the instances of expected tasks on answering workers that are
	// not late, as the term left them.
	Running int `json:"running"`
	// Held counts those that silent and late workers hold.
	Held int `json:"held"`
	// Missing counts what is wanted and neither running nor held: the sum,
	// over the tasks, of what each lacks.
	Missing int `json:"missing"`
	// Unplaceable counts those of the wanted for which the term found no place;
	// [Plan] says why.
	Unplaceable int `json:"unplaceable"`
	// Unexpected counts the tasks listed by answering workers that nobody
	// expects, and Duplicate the times a worker listed a task again.
	Unexpected int `json:"unexpected"`
	Duplicate  int `json:"duplicate"`
}

// CallStats counts the calls of one kind.
type CallStats struct {
	Done     int `json:"done"`     // answered nil
	Rejected int `json:"rejected"` // certainly not done: ErrRejected
	Stopping int `json:"stopping"` // a stop under way: ErrStopping
	Deposed  int `json:"deposed"`  // refused for a higher epoch: ErrDeposed
	Timeout  int `json:"timeout"`  // no answer by the deadline
	Failed   int `json:"failed"`   // any other error

	// Seconds holds how long the calls took, each counted once. It is empty
	// for the writes that an Apply carried.
	Seconds Durations `json:"seconds"`
}

// Durations is a histogram of call durations in fixed buckets.
type Durations struct {
	Count uint64        `json:"count"`
	Sum   time.Duration `json:"sum_ns"`
	// Buckets counts the durations up to each of [DurationBounds], and above
	// the one before; longer ones are in Count only.
	Buckets [16]uint64 `json:"buckets"`
}

// DurationBounds returns the upper bounds of the buckets of [Durations]: 0.5
// ms, doubling up to about 16 s.
func DurationBounds() [16]time.Duration {
	var bounds [16]time.Duration
	for i := range bounds {
		bounds[i] = (500 * time.Microsecond) << i
	}
	return bounds
}

func (d *Durations) observe(took time.Duration) {
	d.Count++
	d.Sum += took
	bound := 500 * time.Microsecond
	for i := range d.Buckets {
		if took <= bound {
			d.Buckets[i]++
			return
		}
		bound *= 2
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
