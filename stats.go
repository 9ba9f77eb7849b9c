package orchestrator

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"time"
)

// TermStats holds the figures of one term. [WithStats] passes it on at the end of each
// term, and [Plan] includes it. The receiver may keep it.
type TermStats struct {
	// Term is the identity of the term. For [Orchestrator.Plan] it is that of the
	// next term.
	Term Term `json:"term"`
	// Start is the time at which the term began.
	Start time.Time `json:"start"`
	// Listing, Planning and Writing are the durations of the phases, and Total that of
	// the term. They are 0 for a phase that was not reached.
	Listing  time.Duration `json:"listing_ns"`
	Planning time.Duration `json:"planning_ns"`
	Writing  time.Duration `json:"writing_ns"`
	Total    time.Duration `json:"total_ns"`

	Workers   WorkerStats   `json:"workers"`
	Instances InstanceStats `json:"instances"`
	// StateChanges counts the workers whose state changed in the term, by the new state. It
	// holds no zeros, and is nil if none changed. A new worker that answers does not count.
	StateChanges map[State]int `json:"state_changes,omitempty"`

	// Changes counts the planned starts, stops and moves by reason, whether they were
	// carried out or not. It holds no zeros, and is nil if nothing changes.
	Changes map[ChangeKind]int `json:"changes,omitempty"`
	// Outcomes counts the changes by outcome. It holds no zeros either.
	Outcomes map[Outcome]int `json:"outcomes,omitempty"`
	// Deferred counts the moves left to later terms, by [WithMaxMoves] or because all
	// moves pause.
	Deferred int `json:"deferred"`
	// MovesHeld counts the moves for an even spread that wait, because of [Plan].Holds.
	MovesHeld int `json:"moves_held,omitempty"`
	// EvictionsHeld counts the instances that stay on a worker without the labels that they
	// require. If changed labels would evict more than [WithMaxLoss] allows to lose, none is
	// evicted for five minutes.
	EvictionsHeld int `json:"evictions_held,omitempty"`
	// Adds is the number of planned starts, including those of moves. LowerBound is the
	// fewest starts with which any plan could reach the same spread (P8).
	Adds       int `json:"adds"`
	LowerBound int `json:"lower_bound"`
	// Spread is the difference between the largest and the smallest number of tasks on
	// an open worker at the end of the term.
	Spread int `json:"spread"`
	// HighestLoad is the highest quotient of a worker's weight and level ([WorkerPlan]), and
	// OutOfBand counts the workers out of their band ([WithBand]) after the plan. Both are 0
	// unless weights differ.
	HighestLoad float64 `json:"highest_load,omitempty"`
	OutOfBand   int     `json:"out_of_band,omitempty"`
	// TasksChanged, WeightsChanged and WorkersChanged report what was set since the term before: tasks or
	// their settings, measured weights alone ([Orchestrator.UpdateWeights]), and workers, their drains or
	// their settings.
	TasksChanged   bool `json:"tasks_changed,omitempty"`
	WeightsChanged bool `json:"weights_changed,omitempty"`
	WorkersChanged bool `json:"workers_changed,omitempty"`

	// List, Add and Remove count the calls by result and hold their durations. A write
	// carried by an Apply counts under Add or Remove. Apply counts the calls that
	// carried writes.
	List   CallStats `json:"list"`
	Add    CallStats `json:"add"`
	Remove CallStats `json:"remove"`
	Apply  CallStats `json:"apply"`

	// MassLoss reports whether too many workers are silent, or were within the last
	// timeout, so that none is declared lost; see [WithMaxLoss].
	MassLoss bool `json:"mass_loss"`
	// InitialWait is the end of the wait of [WithInitialWait], and zero in terms that began after it.
	InitialWait time.Time `json:"initial_wait,omitzero"`
	// Observed reports whether the term is one of [Orchestrator.Observe].
	Observed bool `json:"observed,omitempty"`
	// Cut reports whether the term ended early, because its context was done or its
	// leader is deposed.
	Cut bool `json:"cut"`
	// Err is the error that NextTerm returned.
	Err error `json:"-"`

	runOver *atomic.Bool // set for functions of WithStats, while Run runs
}

// RunEnded reports whether [Orchestrator.Run] ran the term and has returned since. It may
// change from false to true at any time after a function of [WithStats] has returned. It is
// false for a term that NextTerm ran, and in a [Plan].
func (s TermStats) RunEnded() bool { return s.runOver != nil && s.runOver.Load() }

// MarshalJSON writes Err as its text under "err", and omits it if it is nil.
func (s TermStats) MarshalJSON() ([]byte, error) {
	type plain TermStats
	return json.Marshal(struct {
		plain
		Err string `json:"err,omitempty"`
	}{plain(s), errText(s.Err)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *TermStats) UnmarshalJSON(data []byte) error {
	type plain TermStats
	var in struct {
		plain
		Err string `json:"err"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*s = TermStats(in.plain)
	s.Err = textError(in.Err)
	return nil
}

// WorkerStats counts the workers of a term. Answering, Silent and Lost add up
// to all of them.
type WorkerStats struct {
	Answering int `json:"answering"`
	Silent    int `json:"silent"`
	Lost      int `json:"lost"`
	// Draining counts the draining workers in any state.
	Draining int `json:"draining"`
	// Late counts the answering workers whose answer came too late for the term.
	Late int `json:"late"`
	// Quarantined counts the workers that receive no tasks because they failed to start
	// some.
	Quarantined int `json:"quarantined"`
	// Stuck counts the workers with a call that has not returned by its deadline. They
	// receive no other call until it returns.
	Stuck int `json:"stuck"`
}

// InstanceStats counts instances of tasks. A term that ended before it could plan has
// the counts of the term before. If there was none, every instance is missing.
type InstanceStats struct {
	// Wanted is the sum of the expected tasks' instances.
	Wanted int `json:"wanted"`
	// Running counts the instances of expected tasks on answering workers that are not
	// late, at the end of the term.
	Running int `json:"running"`
	// Held counts the instances that silent and late workers hold.
	Held int `json:"held"`
	// Missing counts the wanted instances that are neither running nor held, summed
	// over the tasks.
	Missing int `json:"missing"`
	// Unplaceable counts the wanted instances without a place; [Plan] has the reasons.
	Unplaceable int `json:"unplaceable"`
	// Unexpected counts the listed tasks of answering workers that are not expected.
	// Duplicate counts how often a worker listed a task again.
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

	// Seconds holds the durations of the calls. It is empty for writes carried by an
	// Apply.
	Seconds Durations `json:"seconds"`
}

// Durations is a histogram of call durations in fixed buckets.
type Durations struct {
	Count uint64        `json:"count"`
	Sum   time.Duration `json:"sum_ns"`
	// Buckets[i] counts the durations up to bound i of [DurationBounds] and above the
	// bound before. Longer ones are in Count only.
	Buckets [16]uint64 `json:"buckets"`
}

// shortest is the first of the bounds.
const shortest = 500 * time.Microsecond

// DurationBounds returns the upper bounds of the buckets of [Durations]: 0.5
// ms, doubling up to about 16 s.
func DurationBounds() [16]time.Duration {
	var bounds [16]time.Duration
	for i := range bounds {
		bounds[i] = shortest << i
	}
	return bounds
}

func (d *Durations) observe(took time.Duration) {
	d.Count++
	d.Sum += took
	bound := shortest
	for i := range d.Buckets {
		if took <= bound {
			d.Buckets[i]++
			return
		}
		bound *= 2
	}
}

// errText returns the text of an error for JSON, or "" if it is nil. Bytes that are not
// UTF-8 are replaced here, because encoding/json writes the replacement in another form
// than it writes the same character once it was read.
func errText(err error) string {
	if err == nil {
		return ""
	}
	return strings.ToValidUTF8(err.Error(), "\ufffd")
}

// textError returns an error with a text, or nil if the text is empty.
func textError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}
