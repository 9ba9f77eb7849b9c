package etcd

// What the state of a task at a worker means for a write that was asked for.
// Pure; a table of its tests is the specification.

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// before tells whether a write has its answer before it was made. The state is
// no older than the term, and nobody but this leader has assigned anything
// since.
//
// What seems to be done already is done again: only a write tells whether the
// leader still leads.
func before(op orchestrator.Op, s spot) (settled bool, err error) {
	switch {
	case op == orchestrator.OpRemove:
		return false, nil
	case op != orchestrator.OpAdd:
		return true, fmt.Errorf("%w: %v is not a write", orchestrator.ErrRejected, op)
	case s.claim != 0 && s.assigned == 0:
		return true, fmt.Errorf("%w: the task has not stopped yet", orchestrator.ErrStopping)
	}
	return false, nil
}

// after tells whether a write has its answer, by a state that holds as of the
// revision seen. The write was made at the revision made; found is the claim
// that a Remove found when it was made, 0 for none.
//
// A state that is older than the write may not show yet what was claimed just
// before, and may still show what was deleted just before: a Remove waits for
// both, so that it is true, and List says the same.
func after(op orchestrator.Op, made, found, seen int64, s spot) (settled bool, err error) {
	if op == orchestrator.OpRemove {
		// What was assigned or claimed later is not what was to be removed.
		return seen >= found && (s.assigned == 0 || s.assigned > made) && (s.claim == 0 || s.claim > made), nil
	}
	switch {
	case seen < made:
		return false, nil
	case s.assigned != 0 && s.claim != 0:
		return !s.starting, nil
	case s.assigned != 0:
		return false, nil
	case s.claim != 0:
		return true, fmt.Errorf("%w: the task was taken away again", orchestrator.ErrStopping)
	case s.refused == made:
		return true, fmt.Errorf("%w: %s", orchestrator.ErrRejected, s.reason)
	}
	return true, errUnclaimed
}

// errUnclaimed is the answer to an Add whose assignment is gone again and was
// never claimed.
var errUnclaimed = fmt.Errorf("%w: not claimed in time, or the worker is gone", orchestrator.ErrRejected)

// late is the answer to a write that was made and has had none by the end of
// its call.
func late(op orchestrator.Op, task string, cause error) error {
	if op == orchestrator.OpRemove {
		return fmt.Errorf("%w: task %s has not stopped yet", orchestrator.ErrStopping, task)
	}
	return fmt.Errorf("task %s has not started yet: %w", task, cause)
}

// failed is the answer to a write whose transaction failed. A lease that is not
// there is certain: etcd looks for it before it changes anything.
func failed(w Worker, err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return gone(w)
	}
	return err
}
