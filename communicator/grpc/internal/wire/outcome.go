package wire

// The conversion between errors and the outcomes and reasons on the wire.

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
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

// OutcomeOf returns the outcome of an error. If the error wraps several of kinds,
// the first in the order of wrapping counts.
func OutcomeOf(err error) orchestratorv1.Outcome {
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
		if o := OutcomeOf(err); o != orchestratorv1.Outcome_OUTCOME_UNSPECIFIED {
			return o
		}
	}
	return orchestratorv1.Outcome_OUTCOME_UNSPECIFIED
}

// ErrorOf returns the error of a result; nil if it was done.
func ErrorOf(r *orchestratorv1.Result) error {
	if r.GetOutcome() == orchestratorv1.Outcome_OUTCOME_DONE {
		return nil
	}
	for _, k := range kinds {
		if r.GetOutcome() == k.outcome {
			return Explained(k.err, r.GetMessage())
		}
	}
	return errors.New("outcome unknown: " + Truncate(r.GetMessage(), MaxErrorText))
}

// Explained returns an error that wraps kind, with a reason. It drops the text of
// kind from the beginning of the reason.
func Explained(kind error, reason string) error {
	reason = strings.TrimPrefix(Truncate(reason, MaxErrorText), kind.Error())
	reason = strings.TrimPrefix(reason, ": ")
	if reason == "" {
		return kind
	}
	return fmt.Errorf("%w: %s", kind, reason)
}

// The machine-readable reasons of statuses. The proto file defines what each means.
const (
	reasonDomain         = "orchestrator.v1"
	ReasonIncarnation    = "INCARNATION"
	ReasonMembershipOver = "MEMBERSHIP_OVER"
	ReasonUnreachable    = "UNREACHABLE"
)

// Status returns a status error, with a reason unless that is empty.
func Status(code codes.Code, reason, text string) error {
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

// ReasonOf returns the reason of a call's error, or "" if it has none of this
// protocol.
func ReasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == reasonDomain {
			return info.GetReason()
		}
	}
	return ""
}

// OtherReason reports whether a call's error has a reason other than the given one.
// The statuses of a later version may have.
func OtherReason(err error, reason string) bool {
	given := ReasonOf(err)
	return given != "" && given != reason
}

// Readable returns an error without gRPC's prefix that wraps err.
func Readable(err error) error { return &plainError{err} }

type plainError struct{ err error }

// Error returns the code and the text of the status.
func (e *plainError) Error() string {
	s := status.Convert(e.err)
	return fmt.Sprintf("%v: %s", s.Code(), Truncate(s.Message(), MaxErrorText))
}

// Unwrap returns the error of the call.
func (e *plainError) Unwrap() error { return e.err }

// MaxErrorText is how many bytes of an error's text are sent and kept, also of a
// task's error.
const MaxErrorText = 512

// Truncate returns a text as valid UTF-8 of at most longest bytes. A shortened text shares
// no memory with the long one.
func Truncate(text string, longest int) string {
	if len(text) > longest {
		text = strings.Clone(text[:longest])
	}
	return strings.ToValidUTF8(text, "")
}
