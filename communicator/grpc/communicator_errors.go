package grpc

// What the failure of a call says about what it was to do.

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	errStranger = errors.New("it is not connected: it was never, or its lease is over")
	errClosed   = errors.New("the communicator is closed")
)

// meaningOf returns what the error of a call means, where it has one. Only those
// errors wrap ErrRejected after which nothing was done, whatever was asked for.
func meaningOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	if cause := context.Cause(ctx); cause != nil && (s.Code() == codes.DeadlineExceeded || s.Code() == codes.Canceled) {
		return cause
	}
	switch s.Code() {
	case codes.FailedPrecondition:
		if otherReason(err, reasonIncarnation) {
			break
		}
		return explained(orchestrator.ErrRejected, s.Message())
	case codes.DeadlineExceeded: // the worker's clock is ahead
		return fmt.Errorf("%w: %s", context.DeadlineExceeded, s.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: it serves something else: %s", orchestrator.ErrRejected, s.Message())
	case codes.Unauthenticated, codes.PermissionDenied: // decided before anything is read
		return fmt.Errorf("%w: %w", orchestrator.ErrRejected, readable(err))
	case codes.ResourceExhausted:
		return fmt.Errorf("a message is larger than WithMaxMessage allows, here or there: %s", s.Message())
	}
	return readable(err)
}

// errUnconfirmed is the error of a call whose worker alone names a higher epoch.
var errUnconfirmed = errors.New("no other worker says so")

// succeeded returns an error if a worker's answer names a term of a later epoch than
// that of the call: one that wraps ErrDeposed if the worker is believed.
func (l *link) succeeded(ctx context.Context, later orchestrator.Term) error {
	own, ok := orchestrator.TermFromContext(ctx)
	if !ok || later.Epoch <= own.Epoch {
		return nil
	}
	if l.settings.believe == nil || l.settings.believe(l.worker, later) {
		return fmt.Errorf("%w: the call is of epoch %d, the worker has seen %d", orchestrator.ErrDeposed, own.Epoch, later.Epoch)
	}
	return fmt.Errorf("the call is of epoch %d, the worker says it has seen %d, and %w", own.Epoch, later.Epoch, errUnconfirmed)
}

// readable returns an error that reads without gRPC's words about itself, and
// wraps what err does.
func readable(err error) error { return &plainError{err} }

type plainError struct{ err error }

func (e *plainError) Error() string {
	s := status.Convert(e.err)
	return fmt.Sprintf("%v: %s", s.Code(), legible(s.Message(), longestMessage))
}

func (e *plainError) Unwrap() error { return e.err }

// unsent is the error of a write that was not sent for a reason that lies neither
// with its task nor with its worker. It says it is ErrStale: that is the ErrRejected
// for which an orchestrator blames nobody.
type unsent struct{ reason string }

func (e *unsent) Error() string { return "not sent: " + e.reason }

func (e *unsent) Is(target error) bool {
	return target == orchestrator.ErrStale || target == orchestrator.ErrRejected
}
