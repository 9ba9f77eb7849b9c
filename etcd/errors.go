package etcd

// The errors of this package. Its methods wrap each with the names involved.

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

var (
	// ErrUnreachable reports that no endpoint answered in time, or only with
	// transient errors. The text names the endpoints and, if known, the reason: the
	// connection was refused, a certificate is missing or not trusted, or only one
	// end speaks TLS.
	ErrUnreachable = errors.New("etcd does not answer")

	// ErrForeignPrefix reports that the prefix is used by another program, or by
	// another version of this package.
	ErrForeignPrefix = errors.New("prefix used by another program or version")

	// ErrExists reports that a task of this name exists already.
	ErrExists = errors.New("task exists already")

	// ErrNotFound reports that there is no task of this name.
	ErrNotFound = errors.New("no task of this name")

	// ErrChanged reports that a task is no longer as it was read.
	ErrChanged = errors.New("the task has changed")

	// ErrTooLarge reports that a content is larger than [MaxContent], or than an
	// etcd with a reduced --max-request-bytes accepts.
	ErrTooLarge = errors.New("content too large")

	// ErrLeaseTooShort reports that etcd does not grant a lease as short as
	// requested. The text includes the duration that it grants.
	ErrLeaseTooShort = errors.New("etcd grants no lease that short")

	// ErrNameTaken reports that another worker of this name is a member.
	ErrNameTaken = errors.New("name is taken")

	// ErrClusterChanged reports that the endpoints lead to another etcd cluster than
	// before, or to an older state of it. Leases and revisions of the
	// old one are invalid there. It wraps orchestrator.ErrDeposed, so a leader stops.
	ErrClusterChanged = fmt.Errorf("another etcd cluster, or an older state of it: %w", orchestrator.ErrDeposed)

	// ErrNoLeader reports that there is no leader at present.
	ErrNoLeader = errors.New("no leader")
)

// ended translates the error of a mirror.
func ended(err error) error {
	if errors.Is(err, mirror.ErrCluster) {
		return fmt.Errorf("%w (%w)", ErrClusterChanged, err)
	}
	return err
}

// isAny reports whether err wraps one of the targets.
func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
