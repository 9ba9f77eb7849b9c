package grpc

// What an error says, as an outcome, and the other way round.

import (
	"errors"
	"fmt"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// kinds are the errors that say something, and their outcomes.
var kinds = [...]struct {
	err     error
	outcome orchestratorv1.Outcome
}{
	{orchestrator.ErrDeposed, orchestratorv1.Outcome_OUTCOME_DEPOSED},
	{orchestrator.ErrStale, orchestratorv1.Outcome_OUTCOME_STALE},
	{orchestrator.ErrRejected, orchestratorv1.Outcome_OUTCOME_REJECTED},
	{orchestrator.ErrStopping, orchestratorv1.Outcome_OUTCOME_STOPPING},
}

// outcomeOf returns what an error of a change says: of several that it wraps, the
// first counts.
func outcomeOf(err error) orchestratorv1.Outcome {
	if err == nil {
		return orchestratorv1.Outcome_OUTCOME_DONE
	}
	for _, k := range kinds {
		if err == k.err { //nolint:errorlint // what it wraps comes below, in its order
			return k.outcome
		}
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
	if r.GetOutcome() == orchestratorv1.Outcome_OUTCOME_DONE {
		return nil
	}
	for _, k := range kinds {
		if r.GetOutcome() == k.outcome {
			return explained(k.err, r.GetMessage())
		}
	}
	return errors.New("the worker leaves open what became of it: " + legible(r.GetMessage(), longestMessage))
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
