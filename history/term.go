package history

import (
	"time"

	"github.com/f8949c05/orchestrator"
)

type (
	// Change is a change with strings as names.
	Change = orchestrator.Change[string, string]
	// Waiting is a waiting instance with strings as names.
	Waiting = orchestrator.Waiting[string, string]
	// Pause is a pause with strings as names.
	Pause = orchestrator.Pause[string, string]
)

// Term is a term that did something, or that found the fleet otherwise than the term
// before. It does not change, and must not be changed. Times are in UTC, errors are only
// text, and names and errors have at most 512 bytes; see [Record].
type Term struct {
	Stats orchestrator.TermStats `json:"stats"`
	// Changes are those of the plan, in its order and at most 10,000. The others are only
	// counted, as are all changes of a term that exceeds [WithChanges] by its age.
	Changes     []Change `json:"changes,omitempty"`
	ChangesMore int      `json:"changes_more,omitempty"`
	// Events are the workers whose condition changed, at most 10,000.
	Events     []WorkerEvent `json:"events,omitempty"`
	EventsMore int           `json:"events_more,omitempty"`
	// Waiting has the first hundred of those of the plan. WaitingInstances counts all
	// instances that wait, by reason.
	Waiting          []Waiting                   `json:"waiting,omitempty"`
	WaitingMore      int                         `json:"waiting_more,omitempty"`
	WaitingInstances map[orchestrator.Reason]int `json:"waiting_instances,omitempty"`
	// Paused has the first hundred of those of the plan. PausedKinds counts all of them.
	Paused      []Pause                        `json:"paused,omitempty"`
	PausedMore  int                            `json:"paused_more,omitempty"`
	PausedKinds map[orchestrator.PauseKind]int `json:"paused_kinds,omitempty"`
	// Holds has the first hundred of those of the plan.
	Holds []orchestrator.Hold `json:"holds,omitempty"`
	// Quiet are the terms between the recorded one before and this one.
	Quiet Quiet `json:"quiet_before,omitzero"`

	seq uint64 // counts the terms of the ring
}

// Quiet counts consecutive terms that did nothing and found the fleet as the term before.
type Quiet struct {
	Terms int `json:"terms"`
	// Last and LastStart are those of the last of them.
	Last      orchestrator.Term `json:"last"`
	LastStart time.Time         `json:"last_start"`
}

// WorkerEvent is a change of a worker's condition in a term.
type WorkerEvent struct {
	Worker string `json:"worker"`
	// Before is nil if the worker joined, and After is nil if it was removed.
	Before *Condition `json:"before,omitempty"`
	After  *Condition `json:"after,omitempty"`
	// Tasks counts its tasks at the end of the term.
	Tasks int `json:"tasks"`
	// Err is why it did not answer.
	Err string `json:"err,omitempty"`
}

// Condition is a worker's state and what else decides whether it receives tasks.
type Condition struct {
	State       orchestrator.State `json:"state"`
	Draining    bool               `json:"draining,omitempty"`
	Quarantined bool               `json:"quarantined,omitempty"`
}

// WorkerRow is a worker at the end of a term. The ring has one for each worker.
type WorkerRow struct {
	Name string `json:"name"`
	Condition
	// Tasks counts its tasks; a lost or removed worker has none.
	Tasks int `json:"tasks"`
	// Removed reports whether the fleet no longer has the worker.
	Removed bool `json:"removed,omitempty"`
}

// kept counts the changes and events that the term holds.
func (t *Term) kept() int { return len(t.Changes) + len(t.Events) }

// stripped returns the term with only the numbers of its changes and of the rest.
func (t *Term) stripped() *Term {
	c := *t
	c.Changes, c.ChangesMore = nil, c.ChangesMore+len(c.Changes)
	c.Events, c.EventsMore = nil, c.EventsMore+len(c.Events)
	c.Waiting, c.WaitingMore = nil, c.WaitingMore+len(c.Waiting)
	c.Paused, c.PausedMore, c.Holds = nil, c.PausedMore+len(c.Paused), nil
	return &c
}
