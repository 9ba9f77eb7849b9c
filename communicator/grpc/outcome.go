package grpc

// What an error says, as an outcome, and the other way round.

import (
	"errors"
	"fmt"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// outcomeOf returns what an error of a change says: of several that it wraps, the
// first counts.
func outcomeOf(err error) orchestratorv1.Outcome {
	if err == nil {
		return orchestratorv1.Outcome_OUTCOME_DONE
	}
	switch err { //nolint:errorlint // what it wraps comes below, in its order
	case orchestrator.ErrDeposed:
		return orchestratorv1.Outcome_OUTCOME_DEPOSED
	case orchestrator.ErrStale: // which wraps the next
		return orchestratorv1.Outcome_OUTCOME_STALE
	case orchestrator.ErrRejected:
		return orchestratorv1.Outcome_OUTCOME_REJECTED
	case orchestrator.ErrStopping:
		return orchestratorv1.Outcome_OUTCOME_STOPPING
	}
	var wrapped []error
	switch w := err.(type) { //nolint:errorlint // one step at a time
	case interface{ Unwrap() error }:
		wrapped = []error{w.Unwrap()}
	case interface{ Unwrap() []error }:
		wrapped = w.Unwrap()
	}
	for _, err := range wrapped {
		if err == nil {
			continue
		}
		if o := outcomeOf(err); o != orchestratorv1.Outcome_OUTCOME_UNSPECIFIED {
			return o
		}
	}
	return orchestratorv1.Outcome_OUTCOME_UNSPECIFIED
}

// errorOf returns what a result says; nil: it was done.
func errorOf(r *orchestratorv1.Result) error {
	var kind error
	switch r.GetOutcome() {
	case orchestratorv1.Outcome_OUTCOME_DONE:
		return nil
	case orchestratorv1.Outcome_OUTCOME_DEPOSED:
		kind = orchestrator.ErrDeposed
	case orchestratorv1.Outcome_OUTCOME_STALE:
		kind = orchestrator.ErrStale
	case orchestratorv1.Outcome_OUTCOME_REJECTED:
		kind = orchestrator.ErrRejected
	case orchestratorv1.Outcome_OUTCOME_STOPPING:
		kind = orchestrator.ErrStopping
	default:
		return errors.New("the worker leaves open what became of it: " + legible(r.GetMessage(), longestMessage))
	}
	return explained(kind, r.GetMessage())
}

// explained returns an error that wraps kind, for a reason that may begin with
// what kind says.
func explained(kind error, reason string) error {
	reason = strings.TrimPrefix(legible(reason, longestMessage), kind.Error())
	reason = strings.TrimPrefix(reason, ": ")
	if reason == "" {
		return kind
	}
	return fmt.Errorf("%w: %s", kind, reason)
}
