package grpc

// What a member decides, as functions of values: how long it waits, and what
// follows from an answer.

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// How a membership ends, or is not reached.
var (
	// errEnded: the manager has ended the membership.
	errEnded = errors.New("the manager has ended the membership")
	// errLate: an acknowledgement is too old to build upon.
	errLate = errors.New("the answer has taken too long")
)

// judgeRegister returns whether a manager may have made this process a member,
// though it has not said so, and what the attempt came to. An error that
// wraps errEnded takes another incarnation, one that wraps ErrInvalid is final,
// and any other is to be tried again.
func judgeRegister(err error) (perhaps bool, verdict error) {
	if errors.Is(err, ErrPlaintext) { // nothing was sent, and nothing will be
		return false, fmt.Errorf("%w: %w", orchestrator.ErrInvalid, readable(err))
	}
	switch code := status.Code(err); code {
	case codes.OK:
		return true, nil
	case codes.FailedPrecondition:
		if otherReason(err, reasonMembershipOver) {
			return false, readable(err)
		}
		return false, fmt.Errorf("%w: %w", errEnded, readable(err))
	case codes.InvalidArgument:
		return false, fmt.Errorf("%w: %w", orchestrator.ErrInvalid, readable(err))
	case codes.AlreadyExists, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return false, readable(err)
	default:
		return true, readable(err)
	}
}

// judgeHeartbeat returns what a heartbeat came to: nil, an error that wraps
// errEnded, or any other after which the next may do better.
func judgeHeartbeat(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.NotFound:
		return fmt.Errorf("%w: %w", errEnded, readable(err))
	}
	return readable(err)
}

// grants returns an error if a manager grants less than the lease that a worker goes
// by. A manager that does not say grants what it was asked for.
func grants(granted *durationpb.Duration, lease time.Duration) error {
	if granted != nil && granted.AsDuration() < lease {
		return fmt.Errorf("%w: the manager grants a lease of %v, and worker.WithLease says %v",
			orchestrator.ErrInvalid, granted.AsDuration(), lease)
	}
	return nil
}

// The heartbeats of a lease. The least that a worker has to renew it in is a
// quarter of it (see worker.WithLease), and three are sent in that. Each may take
// as long, so that a slow line is no reason to lose a lease, and does not hold
// up the next, so that one that is lost is none either.
const (
	leastRenewal = 4 // parts of a lease
	beatsInThat  = 3
)

func heartbeatEvery(lease time.Duration) time.Duration { return lease / leastRenewal / beatsInThat }

func heartbeatPatience(lease time.Duration) time.Duration { return lease / leastRenewal }

// registerPatience is how long an attempt to register may take: the manager
// calls the worker, and writes to disk.
func registerPatience(lease time.Duration) time.Duration {
	return max(lease/leastRenewal, probeTime+time.Second) // to hear why that failed
}

// pauseAfter returns how long to wait after so many failures in a row, from 1:
// twice as long each time, from 50 ms to a second, less a random part of up to a
// half, so that those that failed together do not come back together. random is
// from [0, 1).
func pauseAfter(failures int, random float64) time.Duration {
	const first, longest = 50 * time.Millisecond, time.Second
	d := longest
	if failures < 6 {
		d = min(first<<max(failures-1, 0), longest)
	}
	return d - time.Duration(random*float64(d)/2)
}

// novelties tells what was not said before, since it was last cleared. The zero
// value has heard nothing.
type novelties struct{ seen map[string]bool }

// mostNovelties bounds what is remembered, and so what is said.
const mostNovelties = 32

// news reports whether an error is worth telling: what differs in numbers only,
// as ports and durations do, is the same.
func (n *novelties) news(err error) bool {
	text := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
	if n.seen[text] || len(n.seen) >= mostNovelties {
		return false
	}
	if n.seen == nil {
		n.seen = make(map[string]bool)
	}
	n.seen[text] = true
	return true
}

// clear forgets everything, which is news again, and reports whether there was
// anything.
func (n *novelties) clear() bool {
	some := len(n.seen) > 0
	clear(n.seen)
	return some
}
