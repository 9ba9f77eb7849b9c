package manager

// The decisions of a member as pure functions: how long to wait, and what follows
// from an answer.

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
)

// Errors that end a membership, or keep it from beginning.
var (
	// errEnded reports that the manager has ended the membership.
	errEnded = errors.New("manager has ended the membership")
	// errLate reports an acknowledgement that came too late to rely on.
	errLate = errors.New("answer took too long")
)

// registerResult evaluates the result of Register. mayBeMember reports whether the
// manager may have registered this process. If verdict wraps errEnded, another
// incarnation is needed. If it wraps ErrInvalid, it is final. Any other error calls
// for another attempt.
func registerResult(err error) (mayBeMember bool, verdict error) {
	if errors.Is(err, communicator.ErrPlaintext) { // no attempt can ever send anything
		return false, fmt.Errorf("%w: %w", orchestrator.ErrInvalid, wire.Readable(err))
	}
	switch code := status.Code(err); code {
	case codes.OK:
		return true, nil
	case codes.FailedPrecondition:
		if wire.OtherReason(err, wire.ReasonMembershipOver) {
			return false, wire.Readable(err)
		}
		return false, fmt.Errorf("%w: %w", errEnded, wire.Readable(err))
	case codes.InvalidArgument:
		return false, fmt.Errorf("%w: %w", orchestrator.ErrInvalid, wire.Readable(err))
	case codes.AlreadyExists, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return false, wire.Readable(err)
	default:
		return true, wire.Readable(err)
	}
}

// heartbeatResult evaluates the result of Heartbeat: nil, an error that wraps
// errEnded, or another error, after which the next heartbeat may succeed.
func heartbeatResult(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.NotFound:
		return fmt.Errorf("%w: %w", errEnded, wire.Readable(err))
	}
	return wire.Readable(err)
}

// grants returns an error if a manager grants a shorter lease than the worker's. A
// manager that states no lease grants the requested one.
func grants(granted *durationpb.Duration, lease time.Duration) error {
	if granted != nil && granted.AsDuration() < lease {
		return fmt.Errorf("%w: manager grants a lease of %v: worker.WithLease is %v",
			orchestrator.ErrInvalid, granted.AsDuration(), lease)
	}
	return nil
}

// The heartbeats of a lease. A worker has at least a quarter of its lease to renew
// it (see worker.WithLease), and sends three heartbeats in that time. Each may take
// as long as that quarter, and the next does not wait for it. So neither a slow
// connection nor a lost heartbeat loses the lease.
const (
	leastRenewal = 4 // parts of a lease
	beatsInThat  = 3
)

func heartbeatEvery(lease time.Duration) time.Duration { return lease / leastRenewal / beatsInThat }

func heartbeatTimeout(lease time.Duration) time.Duration { return lease / leastRenewal }

// registerTimeout returns how long an attempt to register may take. The manager
// calls the worker, and writes to its store.
func registerTimeout(lease time.Duration) time.Duration {
	return max(lease/leastRenewal, probeTime+time.Second) // long enough to get the reason of a failed call
}

// seenErrors filters errors that were not seen since it was last cleared. The zero
// value has seen none.
type seenErrors struct{ seen map[string]bool }

// maxSeenErrors bounds the errors that are remembered, and so the errors that are
// logged.
const maxSeenErrors = 32

// news reports whether an error is new. Errors that differ only in digits, such as
// ports and durations, are the same.
func (e *seenErrors) news(err error) bool {
	text := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
	if e.seen[text] || len(e.seen) >= maxSeenErrors {
		return false
	}
	if e.seen == nil {
		e.seen = make(map[string]bool)
	}
	e.seen[text] = true
	return true
}

// clear forgets all errors, and reports whether there were any.
func (e *seenErrors) clear() bool {
	some := len(e.seen) > 0
	clear(e.seen)
	return some
}
