package grpc

// What the error of a call means for its effect.

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	errStranger = errors.New("not connected: never was, or lease expired")
	errClosed   = errors.New("communicator is closed")
)

// meaningOf returns the meaning of a call's error. The result wraps ErrRejected only
// if nothing was done, whatever the call.
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
		if wire.OtherReason(err, wire.ReasonIncarnation) {
			break
		}
		return wire.Explained(orchestrator.ErrRejected, s.Message())
	case codes.DeadlineExceeded: // the worker's clock is ahead
		return fmt.Errorf("%w: %s", context.DeadlineExceeded, s.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: not a worker of this protocol: %s", orchestrator.ErrRejected, s.Message())
	case codes.Unauthenticated, codes.PermissionDenied: // decided before the request is read
		return fmt.Errorf("%w: %w", orchestrator.ErrRejected, wire.Readable(err))
	case codes.ResourceExhausted:
		return fmt.Errorf("message exceeds WithMaxMessage at one end: %s", s.Message())
	}
	return wire.Readable(err)
}

// errUnconfirmed is wrapped if one worker alone names a higher epoch.
var errUnconfirmed = errors.New("no other worker confirms it")

// succeeded returns an error if a worker's answer names a higher epoch than that of
// the call. The error wraps ErrDeposed if the worker is believed.
func (l *link) succeeded(ctx context.Context, later orchestrator.Term) error {
	own, ok := orchestrator.TermFromContext(ctx)
	if !ok || later.Epoch <= own.Epoch {
		return nil
	}
	if l.settings.Believe == nil || l.settings.Believe(state.Worker(l.worker), later) {
		return fmt.Errorf("%w: epoch %d is lower than %d", orchestrator.ErrDeposed, own.Epoch, later.Epoch)
	}
	return fmt.Errorf("worker names epoch %d, higher than %d, but %w", later.Epoch, own.Epoch, errUnconfirmed)
}

// unsent is the error of a write that was not sent, for a reason that lies neither
// with its task nor with its worker. It matches ErrStale, the kind of ErrRejected
// that an orchestrator counts against neither.
type unsent struct{ reason string }

func (e *unsent) Error() string { return "not sent: " + e.reason }

func (e *unsent) Is(target error) bool {
	return target == orchestrator.ErrStale || target == orchestrator.ErrRejected
}
