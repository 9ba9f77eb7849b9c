package orchestrator

import "fmt"

// Task is a piece of work, and how it is to be run.
type Task[T comparable] struct {
	Name T
	// Instances is on how many workers it is to run, each on a worker of its
	// own; 0 means 1.
	Instances int
	// Handoff is how it moves; the zero value means as [WithHandoff] says.
	Handoff Handoff
}

// Worker is a member of the fleet.
type Worker[W comparable] struct {
	Name W
	// Draining says that it is to end empty. A worker drains if this or
	// [Orchestrator.DrainWorker] says so.
	Draining bool
}

// Handoff is the order of the two halves of a move.
type Handoff uint8

const (
	// HandoffDefault means as [WithHandoff] says.
	HandoffDefault Handoff = iota
	// StopThenStart starts a task at its new place only after its old place
	// has acknowledged the stop. It never runs twice, and for a moment it does
	// not run at all.
	StopThenStart
	// StartThenStop stops a task at its old place only after its new place has
	// acknowledged the start. For a moment it runs twice.
	StartThenStop
)

// String returns the name of the handoff.
func (h Handoff) String() string {
	switch h {
	case HandoffDefault:
		return "default"
	case StopThenStart:
		return "stop then start"
	case StartThenStop:
		return "start then stop"
	}
	return fmt.Sprintf("handoff(%d)", uint8(h))
}

func (h Handoff) check() error {
	if h > StartThenStop {
		return fmt.Errorf("%w: handoff is %d, not one of HandoffDefault, StopThenStart, StartThenStop", ErrInvalid, uint8(h))
	}
	return nil
}
