package grpc

// The conversion between errors and the outcomes and reasons on the wire.

import (
	"errors"
	"fmt"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kinds maps errors to outcomes.
var kinds = [...]struct {
	err     error
	outcome orchestratorv1.Outcome
}{
	{orchestrator.ErrDeposed, orchestratorv1.Outcome_OUTCOME_DEPOSED},
	{orchestrator.ErrStale, orchestratorv1.Outcome_OUTCOME_STALE},
	{orchestrator.ErrRejected, orchestratorv1.Outcome_OUTCOME_REJECTED},
	{orchestrator.ErrStopping, orchestratorv1.Outcome_OUTCOME_STOPPING},
}

// outcomeOf returns the outcome of an error. If the error wraps several of kinds,
// the first in the order of wrapping counts.
func outcomeOf(err error) orchestratorv1.Outcome {
	if err == nil {
		return orchestratorv1.Outcome_OUTCOME_DONE
	}
	for _, k := range kinds {
		if err == k.err { //nolint:errorlint // wrapped errors follow below, in their order
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

// errorOf returns the error of a result; nil if it was done.
func errorOf(r *orchestratorv1.Result) error {
	if r.GetOutcome() == orchestratorv1.Outcome_OUTCOME_DONE {
		return nil
	}
	for _, k := range kinds {
		if r.GetOutcome() == k.outcome {
			return explained(k.err, r.GetMessage())
		}
	}
	return errors.New("outcome unknown: " + truncateUTF8(r.GetMessage(), longestMessage))
}

// explained returns an error that wraps kind, with a reason. It drops the text of
// kind from the beginning of the reason.
func explained(kind error, reason string) error {
	reason = strings.TrimPrefix(truncateUTF8(reason, longestMessage), kind.Error())
	reason = strings.TrimPrefix(reason, ": ")
	if reason == "" {
		return kind
	}
	return fmt.Errorf("%w: %s", kind, reason)
}

// The machine-readable reasons of statuses. The proto file defines what each means.
const (
	reasonDomain         = "orchestrator.v1"
	reasonIncarnation    = "INCARNATION"
	reasonMembershipOver = "MEMBERSHIP_OVER"
	reasonUnreachable    = "UNREACHABLE"
)

// explainedStatus returns a status error, with a reason unless that is empty.
func explainedStatus(code codes.Code, reason, text string) error {
	plain := status.New(code, text)
	if reason == "" {
		return plain.Err()
	}
	s, err := plain.WithDetails(&errdetails.ErrorInfo{Domain: reasonDomain, Reason: reason})
	if err != nil { // only for codes.OK
		return plain.Err()
	}
	return s.Err()
}

// reasonOf returns the reason of a call's error, or "" if it has none of this
// protocol.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == reasonDomain {
			return info.GetReason()
		}
	}
	return ""
}

// otherReason reports whether a call's error has a reason other than the given one.
// The statuses of a later version may have.
func otherReason(err error, reason string) bool {
	given := reasonOf(err)
	return given != "" && given != reason
}
