package history

import (
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// CauseKind is what made the spread uneven.
type CauseKind string

// The kinds of causes. Cause.Workers has the workers of those that are about workers.
const (
	CauseJoined   CauseKind = "joined"
	CauseBack     CauseKind = "back" // it answers again
	CauseOpen     CauseKind = "open" // its drain or its quarantine has ended
	CauseRemoved  CauseKind = "removed"
	CauseLost     CauseKind = "lost"
	CauseDrained  CauseKind = "drained"
	CauseHold     CauseKind = "hold"     // it has ended; Hold is its text
	CauseTasks    CauseKind = "tasks"    // more or fewer instances are wanted
	CauseRules    CauseKind = "rules"    // of a task: its weight, labels or zones
	CauseSettings CauseKind = "settings" // of a worker: its zone, labels, share or limit
	CauseWeights  CauseKind = "weights"  // measured ones
)

// Cause is what made the spread uneven, and the term that found it. Workers has the first eight names, and
// More counts the others.
type Cause struct {
	Kind    CauseKind         `json:"kind"`
	Workers []string          `json:"workers,omitempty"`
	More    int               `json:"more,omitempty"`
	Hold    string            `json:"hold,omitempty"`
	Term    orchestrator.Term `json:"term"`
	Start   time.Time         `json:"start"` // of the term
}

// someWorkers bounds Cause.Workers.
const someWorkers = 8

// Uneven returns why a term made moves for an even spread: the newest event that may have made the spread uneven
// since the last even plan, which is one that left no such moves to be made. It returns false if the term made
// none, or the view has no such event.
func (v *View) Uneven(id orchestrator.Term) (Cause, bool) {
	last := v.index(id)
	if last < 0 || moves(v.terms[last]) == 0 {
		return Cause{}, false
	}
	for i := last; i >= 0; i-- {
		t := v.terms[i]
		if i < last && t.Stats.Deferred+t.Stats.MovesHeld == 0 && (v.followed(i).Terms > 0 || moves(t) == 0) {
			break
		}
		c := Cause{Term: t.Stats.Term, Start: t.Stats.Start}
		if c.find(t, v.terms[max(i-1, 0)]) {
			return c, true
		}
	}
	return Cause{}, false
}

// moves counts the moves of a term for an even spread.
func moves(t *Term) int {
	return t.Stats.Changes[orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}]
}

// find sets the cause that a term found first. before is the recorded term before it, or the term if it is the
// first one.
func (c *Cause) find(t, before *Term) bool {
	for _, kind := range []CauseKind{CauseJoined, CauseBack, CauseOpen, CauseLost, CauseRemoved, CauseDrained} {
		for i := range t.Events {
			switch {
			case kindOf(&t.Events[i]) != kind:
			case len(c.Workers) < someWorkers:
				c.Kind, c.Workers = kind, append(c.Workers, t.Events[i].Worker)
			default:
				c.More++
			}
		}
		if c.Kind != "" {
			return true
		}
	}
	stats := &t.Stats
	ended := func(h orchestrator.Hold) bool {
		return !slices.ContainsFunc(t.Holds, func(is orchestrator.Hold) bool { return is.Why == h.Why })
	}
	switch {
	case before == t:
	case slices.ContainsFunc(before.Holds, ended):
		c.Kind, c.Hold = CauseHold, before.Holds[slices.IndexFunc(before.Holds, ended)].Why
	case stats.Instances.Wanted != before.Stats.Instances.Wanted:
		c.Kind = CauseTasks
	case stats.TasksChanged:
		c.Kind = CauseRules
	case stats.WorkersChanged:
		c.Kind = CauseSettings
	case stats.WeightsChanged:
		c.Kind = CauseWeights
	}
	return c.Kind != ""
}

// kindOf returns how a change of a worker's condition makes the spread uneven; "" if it does not.
func kindOf(e *WorkerEvent) CauseKind {
	was, is := e.Before, e.After
	switch {
	case is == nil:
		return CauseRemoved
	case was == nil:
		return CauseJoined
	case is.State == orchestrator.Lost && was.State != orchestrator.Lost:
		return CauseLost
	case is.State == orchestrator.Answering && was.State != orchestrator.Answering:
		return CauseBack
	case is.Draining && !was.Draining:
		return CauseDrained
	case was.Draining && !is.Draining, was.Quarantined && !is.Quarantined:
		return CauseOpen
	}
	return ""
}
