package etcd

// The result of a write, derived from the state of its task. Pure functions; their
// test table is the specification.

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// before reports whether a write has its result before it is made, and which. The
// state is no older than the term, and only this leader can have assigned anything
// since.
//
// A write that seems to be done already is made again, because only a write proves
// that the leader still leads.
func before(op orchestrator.Op, s taskState) (settled bool, err error) {
	switch {
	case op == orchestrator.OpRemove:
		return false, nil
	case op != orchestrator.OpAdd:
		return true, fmt.Errorf("%w: %v is neither Add nor Remove", orchestrator.ErrRejected, op)
	case s.claim != 0 && s.assigned == 0:
		return true, fmt.Errorf("%w: task has not stopped", orchestrator.ErrStopping)
	}
	return false, nil
}

// after reports whether a write has its result, and which, from a state as of the
// revision seen. The write was made at the revision made. found is the claim that a
// Remove found when it was made, 0 for none.
//
// A state older than the write may miss a claim made just before, and may show an
// assignment deleted just before. A Remove waits for both, so that its result is
// true and List agrees.
func after(op orchestrator.Op, made, found, seen int64, s taskState) (settled bool, err error) {
	if op == orchestrator.OpRemove {
		// An assignment or claim made after the write is not the one to remove.
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
		return true, fmt.Errorf("%w: task was taken away again", orchestrator.ErrStopping)
	case s.refused == made:
		return true, fmt.Errorf("%w: %s", orchestrator.ErrRejected, s.reason)
	}
	return true, errUnclaimed
}

// errUnclaimed is the result of an Add whose assignment is gone and was never
// claimed.
var errUnclaimed = fmt.Errorf("%w: not claimed in time, or worker gone", orchestrator.ErrRejected)

// late returns the result of a write that was made, but had no result by the end of
// its call.
func late(op orchestrator.Op, task string, cause error) error {
	if op == orchestrator.OpRemove {
		return fmt.Errorf("%w: task %s has not stopped", orchestrator.ErrStopping, task)
	}
	return fmt.Errorf("task %s has not started: %w", task, cause)
}

// failed returns the result of a write whose transaction failed. A missing lease
// means certainly not done, because etcd checks the lease before it changes
// anything.
func failed(w Worker, err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return gone(w)
	}
	return err
}
