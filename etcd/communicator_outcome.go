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

// after tells whether a write that was made has its answer, by a state that
// holds as of a revision.
//
// For an Add, made is the revision of its transaction. For a Remove it is the
// create revision of the claim that the transaction found, 0 if it found none:
// to go by the state alone would be a mistake, since it may not show yet what was
// assigned and claimed just before.
func after(op orchestrator.Op, made, seen int64, s spot) (settled bool, err error) {
	if op == orchestrator.OpRemove {
		return made == 0 || seen >= made && s.claim != made, nil
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
