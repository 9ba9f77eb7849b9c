package orchestrator

import "fmt"

// Task is an expected task and its settings.
type Task[T comparable] struct {
	Name T
	// Instances is the number of workers that run the task at the same time, one
	// instance each; 0 means 1.
	Instances int
	// Handoff is the order of the two halves of a move. The zero value takes that of
	// [WithHandoff].
	Handoff Handoff
}

// Worker is an expected worker and its settings.
type Worker[W comparable] struct {
	Name W
	// Draining makes the worker's tasks move away. A worker drains if this is true or
	// after [Orchestrator.DrainWorker].
	Draining bool
}

// Handoff is the order of the two halves of a move.
type Handoff uint8

const (
	// HandoffDefault takes the order that [WithHandoff] sets for all tasks.
	HandoffDefault Handoff = iota
	// StopThenStart starts a task on its new worker only after its old worker has
	// acknowledged the stop. The task never runs twice. Between the two calls it does
	// not run.
	StopThenStart
	// StartThenStop stops a task on its old worker only after its new worker has
	// acknowledged the start. Between the two calls it runs twice.
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
